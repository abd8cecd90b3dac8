"""Summary of a network: its layers with parameters and FLOPs, grouped in blocks, and repeated layers merged.

A part of the summary is one of these:

- a linear map, or another layer that mixes its inputs, with the activation after it
- any other layer
- a residual block, with the parts inside it

Equal parts in a row are merged into one part with `times`. Its parameters and FLOPs are the sums over all of them, so
the parameters of a summary add up to those of the network. The FLOPs add up to those of the training step without the
loss. `mlp show` prints a summary as a tree, and `ml.draw` draws it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from ..nn.layers import KINDS, Activation, Columns, Inputs, Layer, Linear, Maxout, Residual, named
from ..spec import Spec
from . import Cost, Row, cost
from .html import summary_table

_LONGEST_PATTERN = 8
_FOLD_ALONE = 3


@dataclass(frozen=True, kw_only=True)
class Part:
    """A part of a network, or `times` equal parts. `name` and `last` are the names of the first and the last."""

    name: str
    last: str
    kind: str
    """The kind of layer, or "group" for several layers that repeat as a pattern."""
    label: str
    detail: str = ""
    """The options of the layer except its width: `bias=no`, `0.1`, `k=3`."""
    activation: Activation | None = None
    d_in: int | Inputs
    d_out: int
    parameters: int
    flops: int
    """FLOPs of the forward and the backward pass."""
    times: int = 1
    parts: tuple[Part, ...] = ()

    @property
    def mixes(self) -> bool:
        return self.kind in KINDS and KINDS[self.kind].mixes

    @property
    def width_in(self) -> int:
        return self.d_in.count if isinstance(self.d_in, Inputs) else self.d_in

    @property
    def heading(self) -> str:
        """The name without its block: `linear2`, or `linear2…99` for the layers `linear2` to `linear99`."""
        first, last = self.name.rpartition(".")[2], self.last.rpartition(".")[2]
        return first if first == last else f"{first}…{last[len(last.rstrip('0123456789')) :]}"

    @property
    def function(self) -> str:
        """The text form of the activation, or an empty string."""
        return "" if self.activation is None else written(self.activation, self.d_out)

    def key(self) -> tuple[Any, ...]:
        """Return a key that equal parts share. It has no FLOPs, because the first layer needs no input gradient."""
        activation = () if self.activation is None else (self.activation,)
        inner = tuple(part.key() for part in self.parts)
        return self.kind, self.label, self.detail, activation, self.d_in, self.d_out, self.parameters, self.times, inner


@dataclass(frozen=True, kw_only=True)
class NetworkSummary:
    """The parts of a network, with its cost at the default batch size. `summarize` creates it."""

    spec: Spec
    cost: Cost
    parts: tuple[Part, ...]

    def share(self, part: Part) -> float:
        """Return the share of a part in the FLOPs of the step. The rest of the step is the loss."""
        return part.flops / self.cost.step

    def to_dict(self) -> dict[str, Any]:
        """Return plain data. The numbers of a part that occurs several times are sums over all of them."""
        return {
            "network": str(self.spec),
            "parameters": self.cost.parameters,
            "batch": self.cost.batch,
            "step": self.cost.step,
            "inputs": {"numeric": self.spec.inputs.numeric, "categories": list(self.spec.inputs.categories)},
            "layers": [self._part_to_dict(part) for part in self.parts],
        }

    def _repr_html_(self) -> str:
        return summary_table(self)

    def _part_to_dict(self, part: Part) -> dict[str, Any]:
        found: dict[str, Any] = {
            "name": part.name,
            "last": part.last,
            "kind": part.kind,
            "detail": part.detail,
            "activation": part.function or None,
            "d_in": part.width_in,
            "d_out": part.d_out,
            "times": part.times,
            "parameters": part.parameters,
            "flops": part.flops,
            "share": self.share(part),
        }
        return found | ({"layers": [self._part_to_dict(inner) for inner in part.parts]} if part.parts else {})


def summarize(spec: Spec | str, *, fold: bool = True, loss: str = "auto") -> NetworkSummary:
    """Summarize a network. With `fold`, repeated layers are merged: three equal layers, two equal blocks or patterns.

    With "auto", the number of outputs decides the loss.

    >>> [(part.heading, part.times) for part in summarize("8-[8]*3-4-(16)*5-2").parts]
    [('residual1…3', 3), ('linear1', 1), ('linear2', 1), ('linear3…6', 4), ('linear7', 1)]
    """
    spec = Spec.of(spec)
    account = cost(spec, loss=loss)
    rows = {row.name: row for row in account.layers}
    inputs = spec.inputs if spec.inputs.categories else spec.inputs.numeric
    return NetworkSummary(spec=spec, cost=account, parts=_parts(spec.layers, inputs, "", rows, fold))


def written(layer: Layer, d: int | Inputs) -> str:
    """Return the text form of a layer: `256`, `dropout(0.1)`, `blend(selu)`."""
    return str(Spec(d, (layer,))).partition("-")[2]


def _parts(layers: Sequence[Layer], d: int | Inputs, prefix: str, rows: dict[str, Row], fold: bool) -> tuple[Part, ...]:
    found: list[Part] = []
    for name, layer in named(layers):
        path = prefix + name
        width = layer.width(d)  # pyright: ignore[reportArgumentType]
        row = rows.get(path)
        if row is None and isinstance(layer, Activation):
            # Its cost is in the row of the layer before it.
            found[-1] = replace(found[-1], activation=layer)
            continue
        assert row is not None
        own = row.forward.total + row.backward.total
        inner = _parts(layer.layers, d, f"{path}.", rows, fold) if isinstance(layer, Residual) else ()
        found.append(
            Part(
                name=path,
                last=path,
                kind=layer.kind,
                label=layer.label,
                detail=_detail(layer, d),
                activation=layer if isinstance(layer, Activation) else None,
                d_in=d,
                d_out=width,
                parameters=row.parameters + sum(part.parameters for part in inner),
                flops=own + sum(part.flops for part in inner),
                parts=inner,
            )
        )
        d = width
    return tuple(_folded(found)) if fold else tuple(found)


def _detail(layer: Layer, d: int | Inputs) -> str:
    """Return the text between the brackets of a layer's text form, without the width."""
    if isinstance(layer, Residual | Activation):
        return ""
    text = written(layer, d)
    if "(" not in text:
        return ""
    arguments = text[text.index("(") + 1 : -1].split(", ")
    if layer.kind != "linear" and not isinstance(layer, Columns) and hasattr(layer, "d_out"):
        arguments = arguments[1:]
    elif isinstance(layer, Linear):
        arguments = [argument for argument in arguments if "=" in argument]
    if isinstance(layer, Maxout) and arguments and "=" not in arguments[0]:
        arguments[0] = f"k={arguments[0]}"
    return ", ".join(arguments)


def _folded(parts: list[Part]) -> list[Part]:
    """Merge equal neighbors into one part, and a repeated pattern of several layers into one group."""
    keys = [part.key() for part in parts]
    found: list[Part] = []
    i = 0
    while i < len(parts):
        length, times = _pattern(keys, i)
        alone = length == 1 and not parts[i].parts
        if times < (_FOLD_ALONE if alone else 2):
            found.append(parts[i])
            i += 1
            continue
        rounds = [parts[i + k * length : i + (k + 1) * length] for k in range(times)]
        merged = tuple(_merged(same) for same in zip(*rounds, strict=True))
        found.append(replace(merged[0], times=times) if length == 1 else _group(merged, times))
        i += length * times
    return found


def _pattern(keys: list[tuple[Any, ...]], i: int) -> tuple[int, int]:
    """Return the length and the repeats of the pattern that starts at `i` and covers most parts.

    Of several such patterns, the shortest is returned.
    """
    best = (1, 1)
    for length in range(1, _LONGEST_PATTERN + 1):
        pattern = keys[i : i + length]
        times = 1
        while len(pattern) == length and keys[i + times * length : i + (times + 1) * length] == pattern:
            times += 1
        if times > 1 and length * times > best[0] * best[1]:
            best = (length, times)
    return best


def _merged(same: Sequence[Part]) -> Part:
    """Merge equal parts into one. Its numbers are their sums."""
    inner = tuple(_merged(parts) for parts in zip(*(part.parts for part in same), strict=True))
    return replace(
        same[0],
        last=same[-1].last,
        parameters=sum(part.parameters for part in same),
        flops=sum(part.flops for part in same),
        parts=inner,
    )


def _group(parts: tuple[Part, ...], times: int) -> Part:
    return Part(
        name=parts[0].name,
        last=parts[-1].last,
        kind="group",
        label="repeat",
        d_in=parts[0].d_in,
        d_out=parts[-1].d_out,
        parameters=sum(part.parameters for part in parts),
        flops=sum(part.flops for part in parts),
        times=times,
        parts=parts,
    )
