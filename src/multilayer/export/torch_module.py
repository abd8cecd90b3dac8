"""A trained model as a torch module, with its weights.

    rows → encode → x, codes → [preprocessing] → members → z₁ … z_M → calibrated average → z

`forward` returns the same values as `model.outputs`. The average is that of `calibration.combined`, in torch:

    softmax    z = log mean softmax(zₘ/T)
    sigmoid    z = logit mean σ(zₘ/T)
    exp        z = log mean exp(zₘ)
    none       z = mean zₘ, within the range of the training targets

The mean is weighted if the members have different weights.

Not included: prediction intervals, and inputs of strings or dates. Tensors cannot store them, so `encode` converts a
table to tensors.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ..data import Encoding
from ..data.preprocessing import Codes, DateParts, FillMissing, SmoothClip, Standardise, Step, Unlearned
from ..errors import DataError, OptionError, SpecError
from ..nn import losses
from ..nn.calibration import Calibration, combination
from ..pytorch.model import Model, fill, to_sequential
from ..spec import Spec
from .protocol import Trained, TrainedMember, check_member, distinct, is_array, trained


def to_torch(model: Any, *, member: int | None = None, preprocessing: bool = False) -> nn.Module:
    """Convert a model to a torch module with copies of its weights.

    Parameters
    ----------
    model : TrainedModel, Run, fitted estimator or Model
        A trained model (from `ml.fit`, `ml.load` or an estimator), or a network from `ml.build`.
    member : int, optional
        Ensemble member to convert, counted from 0, without calibration. By default, the calibrated average of all
        members.
    preprocessing : bool
        Whether the module scales its inputs. By default, it takes scaled numbers.

    Returns
    -------
    TrainedNetwork
        For a trained model, in evaluation mode.
    torch.nn.Sequential
        For a network from `ml.build`: the same layers as standard torch modules.

    Raises
    ------
    SpecError
        If `model` has no weights, or a layer of a network from `ml.build` does not exist in torch.
    OptionError
        If `member` does not exist, or `model` is an estimator that is not fitted.

    Examples
    --------
    >>> import multilayer as ml
    >>> model = ml.fit("4-8-3", "iris", epochs=2, quiet=True).model
    >>> net = ml.to_torch(model)
    >>> z = net(*net.encode("iris"))                    # (150, 3), as model.outputs("iris")
    >>> torch.allclose(z, torch.tensor(model.outputs("iris"), dtype=z.dtype), atol=1e-5)
    True
    """
    if isinstance(model, Model):
        if member is not None or preprocessing:
            raise OptionError("member and preprocessing are options for trained models, got a network from ml.build")
        return to_sequential(model)
    if isinstance(model, nn.Module):
        raise SpecError(f"to_torch needs a model of this package, got a torch module ({type(model).__name__})")
    if isinstance(model, Spec | str):
        raise SpecError(f"to_torch needs a model with its weights, got {model!r}: make one with ml.build(spec)")
    return TrainedNetwork(trained(model), member=member, preprocessing=preprocessing)


class TrainedNetwork(nn.Module):
    """A trained model as a torch module. Create it with `to_torch`.

    Attributes
    ----------
    members : torch.nn.ModuleList
        The networks, each a `Model`.
    preprocessing : Preprocessing or None
        Scaling of raw numbers, if it is part of the module.
    columns : tuple of str
        Meaning of each column of `x`. If members have different encodings, the columns of each encoding follow one
        another.
    category_columns : tuple of str
        Meaning of each column of `codes`.
    classes : tuple
        Class labels in the order of the class indices; for a multilabel task, a pair for each label. Empty for
        regression.

    Notes
    -----
    Inputs are `x` (rows, columns) and, if the model has categorical columns, `codes` (rows, categorical columns). A
    code is 0 for missing or unknown values, else the position in the sorted vocabulary, starting at 1. `encode` makes
    both from a table.

    The module is in evaluation mode; call `train()` before fine-tuning. Scales and calibration are float64 buffers, as
    in `model.outputs`; on devices without float64, call `float()` first.
    """

    temperature: Tensor
    low: Tensor
    high: Tensor
    mean: Tensor
    std: Tensor

    def __init__(self, model: Trained, *, member: int | None, preprocessing: bool) -> None:
        super().__init__()
        n = len(model.members)
        chosen = model.members if member is None else [model.members[check_member(member, n)]]
        self.encoding = chosen[0].encoding
        self.encodings = distinct(chosen)
        self.inputs = [_columns_of(one.encoding, self.encodings) for one in chosen]
        if preprocessing and len(self.encodings) > 1:
            other = next(i for i, one in enumerate(chosen) if one.encoding is not self.encoding)
            raise OptionError(
                f"preprocessing=True needs members with one encoding, but that of member {other} (from 0) differs from "
                "that of member 0: pass member=0, or leave preprocessing to net.encode"
            )
        self.members = nn.ModuleList([_network(one) for one in chosen])
        self.weights = model.weights if member is None else None
        self.preprocessing = Preprocessing(self.encoding) if preprocessing else None
        calibration = model.calibration if member is None else None
        self.made_of = f"member {member} of {n}" if member is not None else combination(n, calibration)
        task, calibration = self.encoding.task, calibration or Calibration()
        values = {"low": calibration.low, "high": calibration.high, "mean": task.mean, "std": task.std}
        for name, value in {"temperature": calibration.temperature, **values}.items():
            self.register_buffer(name, torch.tensor(value, dtype=torch.float64))
        self.eval()

    @property
    def columns(self) -> tuple[str, ...]:
        if self.preprocessing is not None:
            return self.preprocessing.columns
        return tuple(name for one in self.encodings for name in one.numeric_names)

    @property
    def category_columns(self) -> tuple[str, ...]:
        return tuple(column.name for one in self.encodings for column in one.categorical)

    @property
    def classes(self) -> tuple[Any, ...]:
        found = self.encoding.task.classes
        return found[0] if len(found) == 1 else found

    def encode(self, table: Any) -> tuple[Tensor, ...]:
        """Convert rows to the tensors that `forward` takes: ``net(*net.encode(table))``.

        Parameters
        ----------
        table
            Rows in any form that `model.predict` takes: a DataFrame, an array, a file or a bundled data set.

        Returns
        -------
        tuple of torch.Tensor
            `x`, and `codes` if the model has categorical columns.
        """
        encodings = self.encodings if self.preprocessing is None else [_unscaled(self.encoding)]
        parts = [encoding.encode(table, dtype=np.float64) for encoding in encodings]
        replace(parts[0], notes=tuple(dict.fromkeys(note for part in parts for note in part.notes))).warn()
        values = np.concatenate([np.asarray(part.x[:]) for part in parts], axis=1)
        codes = [part.codes for part in parts if part.codes is not None]
        if self.preprocessing is not None:
            encoding = encodings[0]
            values = _with_missing(encoding, values)
            if is_array(encoding):
                whole = np.full((len(values), len(encoding.columns)), np.nan)
                whole[:, _kept(encoding)] = values
                values = whole
        weight = next(self.members.parameters(), self.temperature)
        dtype = weight.dtype if self.preprocessing is None else torch.float64
        x = torch.from_numpy(values).to(weight.device, dtype)
        return (x,) if not codes else (x, torch.from_numpy(np.concatenate(codes, axis=1)).to(weight.device))

    def forward(self, x: Tensor, codes: Tensor | None = None) -> Tensor:
        """Compute the model's outputs z (rows, outputs), as `model.outputs` does.

        For classification, the outputs are logits. Their softmax is the probability; for a binary or multilabel task
        with a sigmoid, their sigmoid is. For regression, they are standardized; `predict` returns the target's units.
        """
        if self.preprocessing is not None:
            x = self.preprocessing(x).to(next(self.members.parameters(), x).dtype)
        if len(self.encodings) == 1:
            return self._average([member(x, codes) for member in self.members])
        return self._average(
            [
                member(x[:, numbers], None if codes is None or places == slice(0, 0) else codes[:, places])
                for member, (numbers, places) in zip(self.members, self.inputs, strict=True)
            ]
        )

    def predict_proba(self, x: Tensor, codes: Tensor | None = None) -> Tensor:
        """Compute class probabilities (rows, classes). For a multilabel task, compute P(label = 1) (rows, labels).

        Raises
        ------
        DataError
            If the model is a regression model.
        """
        return self._probabilities(self(x, codes))

    def predict(self, x: Tensor, codes: Tensor | None = None) -> Tensor:
        """Compute class indices into `classes`, or numbers in the target's units.

        A multilabel task gives 0 or 1 for each label (rows, labels). Several targets give one column each. Several
        quantiles add a last axis, in increasing order.
        """
        z, task = self(x, codes), self.encoding.task
        loss = losses.get(self.encoding.loss)
        if task.kind == "multilabel":
            return (self._probabilities(z) > 0.5).long()
        if task.classifies:
            return z.argmax(-1) if z.shape[-1] > 1 else (z[..., 0] > (0.5 if loss.link is None else 0.0)).long()
        y = z.exp() if loss.link == "exp" else z
        y = y.unflatten(-1, (len(task.names), loss.per_target)).sort(-1).values  # (B, T, Q)
        y = y * self.std.to(y.dtype)[:, None] + self.mean.to(y.dtype)[:, None]
        y = y[..., 0] if loss.per_target == 1 else y
        return y[:, 0] if len(task.names) == 1 else y

    def _average(self, z: list[Tensor]) -> Tensor:
        loss = losses.get(self.encoding.loss)
        link = loss.link
        if loss.gives_probabilities:
            z = [one / self.temperature.to(one.dtype) for one in z]
        if len(z) == 1:
            together = z[0]
        elif link == "softmax":
            together = _log_mean([one.log_softmax(-1) for one in z], self.weights)
        elif link == "sigmoid":
            yes, no = (_log_mean([F.logsigmoid(sign * one) for one in z], self.weights) for sign in (1, -1))
            together = yes - no
        elif link == "exp":
            together = _log_mean(z, self.weights)
        else:
            together = _mean(z, self.weights)
        if len(self.low):
            together = together.clamp(self.low.to(together.dtype), self.high.to(together.dtype))
        return together

    def _probabilities(self, z: Tensor) -> Tensor:
        """Compute probabilities from outputs, as `data.targets.probabilities` does."""
        task, link = self.encoding.task, losses.get(self.encoding.loss).link
        if not task.classifies:
            raise DataError(f"a {task.kind} model has no probabilities: call predict")
        if link == "softmax":
            return z.softmax(-1)
        if task.kind == "multiclass" and link != "sigmoid":
            p = z.clamp(min=0)
            p = torch.where((p > 0).any(-1, keepdim=True), p, F.one_hot(z.argmax(-1), z.shape[-1]).to(p.dtype))
        elif link == "sigmoid":
            p = z.sigmoid()
        else:
            p = (z > 0).to(z.dtype) if link == "step" else z.clamp(0, 1)
        if task.kind == "multilabel":
            return p
        return torch.cat([1 - p, p], -1) if task.kind == "binary" else p / p.sum(-1, keepdim=True)

    def extra_repr(self) -> str:
        task = self.encoding.task
        if task.classifies:
            meaning = "logits" if losses.get(self.encoding.loss).gives_probabilities else "scores"
        else:
            meaning = f"{', '.join(task.names)}, standardized; predict() returns the original units"
        rows = "raw numbers" if self.preprocessing is not None else "scaled numbers"
        return f"# {self.made_of}; {rows} in, {meaning} out"


class Preprocessing(nn.Module):
    """Scale raw numbers exactly as the `Encoding` of the model does.

    Shape:
        x (..., columns), NaN for missing values → (..., inputs of the network)
    """

    fill: Tensor
    center: Tensor
    scale: Tensor
    kept: Tensor
    indicators: Tensor
    learned: Tensor

    def __init__(self, encoding: Encoding) -> None:
        super().__init__()
        self.steps = tuple(type(step) for step in encoding.number_steps)
        values = sum(len(column.parts) for column in encoding.numeric)
        self.columns = (
            tuple(c.name for c in encoding.columns) if is_array(encoding) else encoding.numeric_names[:values]
        )
        for name in ("fill", "center", "scale"):
            self.register_buffer(name, torch.tensor(getattr(encoding, name), dtype=torch.float64))
        firsts = np.cumsum([0, *(len(column.parts) for column in encoding.numeric)])
        kept = _kept(encoding) if is_array(encoding) else list(range(values))
        indicators = [int(i) for i, c in zip(firsts, encoding.numeric, strict=False) if c.indicator]
        learned = [c.family != "empty" for c in encoding.numeric for _ in c.parts]
        self.register_buffer("kept", torch.tensor(kept, dtype=torch.int64))
        self.register_buffer("indicators", torch.tensor(indicators, dtype=torch.int64))
        self.register_buffer("learned", torch.tensor(learned, dtype=torch.bool))

    def forward(self, x: Tensor) -> Tensor:
        if x.shape[-1] != len(self.columns):
            raise DataError(f"x must have {len(self.columns)} numbers per row, got shape {tuple(x.shape)}")
        values = x.to(self.center.dtype).index_select(-1, self.kept)
        missing, r = values.isnan(), values
        for step in self.steps:
            r = NUMBER_STEPS[step](self, r)
        r = torch.where(self.learned, r, 0.0)  # a column without values in training is 0
        return torch.cat([r, missing.index_select(-1, self.indicators).to(r.dtype)], -1)


def _smooth_clip(x: Tensor) -> Tensor:
    most = torch.finfo(x.dtype).max
    x = x.clamp(-most, most)
    return x / torch.hypot(torch.ones_like(x), x / 3)  # x/√(1 + (x/3)²), which does not overflow


NUMBER_STEPS: dict[type[Step], Callable[[Preprocessing, Tensor], Tensor]] = {
    FillMissing: lambda net, x: torch.where(x.isnan(), net.fill, x),
    Standardise: lambda net, x: (x - net.center) / net.scale,
    SmoothClip: lambda net, x: _smooth_clip(x),
}
"""The steps for numbers. They read the buffers of the module."""
NOT_IN_TORCH: tuple[type[Step], ...] = (DateParts, Unlearned, Codes)
"""Steps that are not implemented here. `TrainedNetwork.encode` applies them, because their inputs may be dates, strings
or other values that tensors cannot store."""


def _mean(z: list[Tensor], weights: Sequence[float] | None) -> Tensor:
    if weights is None:
        return torch.stack(z).mean(0)
    return torch.stack([weight * one for one, weight in zip(z, weights, strict=True)]).sum(0) / sum(weights)


def _log_mean(z: list[Tensor], weights: Sequence[float] | None) -> Tensor:
    """Compute the logarithm of the mean of exp(z)."""
    if weights is None:
        return torch.stack(z).logsumexp(0) - math.log(len(z))
    raised = [one + math.log(weight) for one, weight in zip(z, weights, strict=True)]
    return torch.stack(raised).logsumexp(0) - math.log(sum(weights))


def _network(member: TrainedMember) -> Model:
    own = Model(member.spec)
    fill(own, member.tensors)
    dtype = next((value.dtype for value in member.tensors.values()), np.dtype(np.float32))
    return own.to(cast(Any, torch).from_numpy(np.zeros(0, dtype)).dtype)


def _columns_of(encoding: Encoding, encodings: Sequence[Encoding]) -> tuple[slice, slice]:
    """Return the columns of `x` and of `codes` that belong to one of several encodings next to each other."""
    before = encodings[: next(i for i, one in enumerate(encodings) if one is encoding)]
    first = sum(one.inputs.numeric for one in before)
    code = sum(len(one.categorical) for one in before)
    codes = len(encoding.categorical)
    return slice(first, first + encoding.inputs.numeric), slice(code, code + codes) if codes else slice(0, 0)


def _kept(encoding: Encoding) -> list[int]:
    """Return the positions of the array columns that are inputs."""
    return [i for i, column in enumerate(encoding.columns) if column.parts]


def _unscaled(encoding: Encoding) -> Encoding:
    """Return the encoding without scaling, with a missing-value indicator for every column."""
    columns = tuple(replace(c, indicator=bool(c.parts) and c.family != "empty") for c in encoding.columns)
    zero, one = np.zeros_like(encoding.center), np.ones_like(encoding.scale)
    return replace(encoding, columns=columns, scaling="none", center=zero, scale=one, fill=zero)


def _with_missing(unscaled: Encoding, values: Any) -> Any:
    """Return the numbers, with NaN where the indicators of `_unscaled` mark a missing value."""
    x = values[:, : len(unscaled.center)].copy()
    place, indicator = 0, len(unscaled.center)
    for column in unscaled.numeric:
        stop = place + len(column.parts)
        if column.indicator:
            x[values[:, indicator] > 0, place:stop] = np.nan
            indicator += 1
        place = stop
    return x
