"""The members of a model: each encodes rows and computes outputs, and `Members` averages them.

    rows → encoding of each member → x, codes → members → z₁ … z_M → weighted, calibrated average → z

A member runs in compiled code (`engines.fused_engine`) if all of its layers have a kernel, otherwise in numpy.

Predictions and files belong in `trained_model`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import groupby
from typing import Any, Self, cast

import numpy as np

from ..data import Encoded, Encoding
from ..data.encoding import Note
from ..engines.fused_engine import PredictProgram
from ..engines.fused_program import why_not
from ..errors import DataError, OptionError
from ..nn import losses
from ..nn.calibration import Calibration, combined
from ..nn.layers import Pass
from ..nn.layers.base import Array, forward_through
from ..spec import Spec
from . import metrics, model_file

MAX_ROWS_PER_PASS = 4096
"""Number of rows in one numpy computation."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Member:
    """A network, its parameters and buffers by name, its encoding, and its weight in the average."""

    spec: Spec
    tensors: Mapping[str, Array]
    encoding: Encoding
    weight: float = 1.0

    @cached_property
    def program(self) -> PredictProgram | None:
        """The network in compiled code, packed at first use. None if numpy runs it."""
        if why_not(self.spec) is not None or any(value.dtype != np.float32 for value in self.tensors.values()):
            return None
        return PredictProgram(self.spec, self.tensors)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "program"}

    def outputs(self, rows: Encoded) -> Array:
        """Compute raw outputs z (rows, d_out). The outputs of a row do not depend on the other rows."""
        if self.program is None:
            return self.outputs_in_numpy(rows)
        return self.program.outputs(rows.x, rows.codes if self.spec.inputs.categories else None)

    def outputs_in_numpy(self, rows: Encoded) -> Array:
        """Compute the raw outputs with the numpy layers. The results differ only by rounding."""
        x, codes = rows.x, rows.codes
        tensors = {place: self.tensors[stored] for place, stored in self.spec.tensor_names.items()}
        tensors |= {name: self.tensors[name] for name in self.spec.buffers}
        dtype = next(iter(tensors.values())).dtype if tensors else np.dtype(np.float32)
        found: list[Array] = []
        for start in range(0, len(x), MAX_ROWS_PER_PASS):
            part = slice(start, start + MAX_ROWS_PER_PASS)
            numbers = x[part].astype(dtype, copy=False)
            inputs: Any = numbers if codes is None else (numbers, codes[part])
            run = Pass(categories=self.spec.inputs.categories)
            found.append(forward_through(self.spec.layers, inputs, tensors, run)[0])
        return np.concatenate(found) if found else np.zeros((0, self.spec.d_out), dtype)


@dataclass(frozen=True, kw_only=True, eq=False)
class Members:
    """Networks that predict the same target from the same columns, and the weighted average of their outputs.

    Each member may have its own network and its own encoding of the columns. Equal encodings are shared, so rows are
    encoded only once for them.
    """

    members: tuple[Member, ...]
    calibration: Calibration | None = None

    def __post_init__(self) -> None:
        assert self.members, "a model has at least one member"
        distinct: list[Encoding] = []
        shared: list[Member] = []
        for i, one in enumerate(self.members):
            known = next((equal for equal in distinct if equal is one.encoding or equal == one.encoding), None)
            if known is None:
                different = _difference(self.encoding, one.encoding)
                if different is not None:
                    raise OptionError(f"all members must have the same {different}, but that of member {i + 1} differs")
                distinct.append(one.encoding)
            shared.append(one if known is None or known is one.encoding else replace(one, encoding=known))
        object.__setattr__(self, "members", tuple(shared))

    @property
    def spec(self) -> Spec:
        """The network of the first member."""
        return self.members[0].spec

    @property
    def encoding(self) -> Encoding:
        """The encoding of the first member. Its task, loss and column names are those of all members."""
        return self.members[0].encoding

    @property
    def encodings(self) -> list[Encoding]:
        """The different encodings of the members, that of the first member first."""
        return list({id(one.encoding): one.encoding for one in self.members}.values())

    @property
    def tensors(self) -> dict[str, Array]:
        """Parameters and buffers by name. Names of several members begin with `memberN/`."""
        return model_file.joined([one.tensors for one in self.members])

    @property
    def weights(self) -> tuple[float, ...] | None:
        """Weights of the members in the average. None if they are equal."""
        found = tuple(one.weight for one in self.members)
        return None if len(set(found)) == 1 else found

    @property
    def networks(self) -> str:
        """The networks of all members, such as "2 × 4-8-3"."""
        return self._of_all(str)

    def check_alike(self, purpose: str, *, networks: bool = True, encodings: bool = True) -> None:
        """Raise an error if members have different networks or different encodings, unless this is allowed."""
        for i, one in enumerate(self.members):
            other_encoding = encodings and one.encoding is not self.encoding
            for what, differs in (("network", networks and one.spec != self.spec), ("encoding", other_encoding)):
                if differs:
                    raise OptionError(
                        f"{purpose} needs members with the same {what}, but that of member {i + 1} differs from that "
                        "of member 1: pass a model of one member"
                    )

    def with_encodings(self, change: Callable[[Encoding], Encoding]) -> Self:
        """Return the same networks, with `change(encoding)` in place of each encoding."""
        changed = self._by_encoding(change)
        return replace(
            self, members=tuple(replace(one, encoding=new) for one, new in zip(self.members, changed, strict=True))
        )

    def __repr__(self) -> str:
        task = self.encoding.task.describe().removeprefix("task: ")
        parameters = self._of_all(lambda spec: f"{spec.n_parameters:,}")
        return f"{type(self).__name__}({self.networks}, {parameters} parameters: {task})"

    def _of_all(self, describe: Callable[[Spec], str]) -> str:
        """Describe the network of each member. Equal networks in a row are described once."""
        parts: list[str] = []
        for spec, group in groupby(self.members, lambda one: one.spec):
            n = len(list(group))
            parts.append(f"{n} × {describe(spec)}" if n > 1 else describe(spec))
        return " + ".join(parts)

    def _by_encoding(self, function: Callable[[Encoding], Any]) -> tuple[Any, ...]:
        """Return the function's value for each member's encoding. It is called once for a shared encoding."""
        values = {id(one.encoding): one.encoding for one in self.members}
        found = {key: function(encoding) for key, encoding in values.items()}
        return tuple(found[id(one.encoding)] for one in self.members)

    def encode(self, source: Any, *, targets: bool = False, dtype: Any = np.float32) -> tuple[Encoded, ...]:
        """Encode rows for each member. Members that share an encoding share the result."""
        return self._by_encoding(lambda encoding: encoding.encode(source, targets=targets, dtype=dtype))

    def read(self, source: Any, *, targets: bool = False, dtype: Any = np.float32) -> tuple[Encoded, ...]:
        """Encode rows for each member. Each kind of difference from the training data gives a warning."""
        found = self.encode(source, targets=targets, dtype=dtype)
        replace(found[0], notes=notes_of(found)).warn()
        return found

    def forward(self, rows: Encoded | Sequence[Encoded]) -> Array:
        """Compute the averaged raw outputs z (rows, d_out) of encoded rows.

        The outputs of a row do not depend on other rows. `rows` is the result of `encode`, or rows of the encoding that
        all members share.
        """
        parts = self._for_each(rows)
        found = self._together([one.outputs(part) for one, part in zip(self.members, parts, strict=True)])
        if not np.isfinite(found).all():
            row = parts[0].rows[np.flatnonzero(~np.isfinite(found).all(1))[0]]
            raise DataError(
                f"row {row + 1:,}: the network's outputs are not finite: values are too far from the training rows, "
                "or the model is damaged"
            )
        return found

    def forward_in_numpy(self, rows: Encoded | Sequence[Encoded]) -> Array:
        """Compute the raw outputs with the numpy layers. The results differ only by rounding."""
        parts = self._for_each(rows)
        return self._together([one.outputs_in_numpy(part) for one, part in zip(self.members, parts, strict=True)])

    def _for_each(self, rows: Encoded | Sequence[Encoded]) -> Sequence[Encoded]:
        if not isinstance(rows, Encoded):
            return rows
        self.check_alike("a prediction of rows with one encoding", networks=False)
        return [rows] * len(self.members)

    def _together(self, z: list[Array]) -> Array:
        if len(z) == 1 and self.calibration is None:
            return z[0]
        return combined(losses.get(self.encoding.loss), z, self.calibration, weights=self.weights)

    def measured(self, rows: Encoded | Sequence[Encoded]) -> dict[str, float]:
        """Compute all metrics of the task on encoded rows with their targets."""
        parts, task = self._for_each(rows), self.encoding.task
        z = self.forward(parts).astype(np.float64)
        return metrics.measure(task, cast(Any, parts[0].y), z, loss=self.encoding.loss, names=metrics.names_for(task))


def notes_of(rows: Sequence[Encoded]) -> tuple[Note, ...]:
    """Return the notes about rows that `TrainedModel.encode` encoded, without duplicates."""
    return tuple(dict.fromkeys(note for part in rows for note in part.notes))


def _difference(first: Encoding, other: Encoding) -> str | None:
    """Return the first property that two encodings of one model must share but do not. None if they share all."""
    for name, ours, theirs in (
        ("task", first.task, other.task),
        ("loss", first.loss, other.loss),
        ("columns", [c.name for c in first.columns], [c.name for c in other.columns]),
        ("kind of input", (first.positional, first.image), (other.positional, other.image)),
    ):
        if ours != theirs:
            return name
    return None
