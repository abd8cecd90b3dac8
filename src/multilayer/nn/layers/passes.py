"""The forward and the backward pass through the numpy layers, with the values of every layer.

Names of layers inside a residual block begin with the name of the block, as in `Spec.entries`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from . import Layer, Pass, Residual, named
from .base import Array, Tensors, part_of


class Values(NamedTuple):
    """Input x (B, I) and output y (B, O) of a layer. The input of a layer with typed inputs is (numbers, codes)."""

    x: Any
    y: Array


class Gradients(NamedTuple):
    """∂L/∂y, ∂L/∂x and ∂L/∂p of a layer. A residual block has only the parameters of its layers."""

    dy: Array
    dx: Array
    parameters: dict[str, Array]


def forward_pass(
    layers: Sequence[Layer],
    x: Any,
    tensors: Tensors,
    run: Pass,
    found: dict[str, Values],
    caches: dict[str, Any],
    *,
    prefix: str = "",
) -> Any:
    """Return the outputs of the layers. Write the values and the cache of each layer by its name."""
    for name, layer in named(layers):
        place, own = prefix + name, part_of(tensors, name)
        if isinstance(layer, Residual):
            y = x + forward_pass(layer.layers, x, own, run, found, caches, prefix=f"{place}.")
        else:
            y, caches[place] = layer.forward(x, own, run)
        found[place] = Values(x, y)
        x = y
    return x


def backward_pass(
    layers: Sequence[Layer],
    dy: Array,
    tensors: Tensors,
    caches: Mapping[str, Any],
    found: dict[str, Gradients],
    *,
    prefix: str = "",
) -> Array:
    """Return ∂L/∂x of the layers for ∂L/∂y. Write the gradients of each layer by its name."""
    for name, layer in reversed(list(named(layers))):
        place, own = prefix + name, part_of(tensors, name)
        if isinstance(layer, Residual):
            inner = backward_pass(layer.layers, dy, own, caches, found, prefix=f"{place}.")
            dx, parameters = dy + inner, dict[str, Array]()
        else:
            dx, parameters = layer.backward(dy, caches[place], own)
        found[place] = Gradients(dy, dx, parameters)
        dy = dx
    return dy
