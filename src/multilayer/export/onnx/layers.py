"""Each kind of layer as ONNX operators in float32, with the formulas of `nn.layers` in prediction mode.

    network(graph, spec, tensors, ...)     encoded rows → raw outputs z (B, O)
    WRITERS[kind](graph, layer, x, p, d)   one layer: x (B, d) → (B, width); p contains its tensors by name

Tensors are constants with their names in the model file. Operators of the graph reshape them if needed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...nn import activations
from ...nn.layers import (
    GLU,
    KAN,
    Activation,
    BatchNorm,
    Columns,
    Dropout,
    GroupNorm,
    Inputs,
    Layer,
    LayerNorm,
    Linear,
    Maxout,
    Residual,
    RMSNorm,
    Scale,
    named,
)
from ...nn.layers.base import Array
from ...nn.layers.columns import one_hot
from ...spec import Spec
from .activations import number
from .activations import write as activate
from .graph import Graph

Tensors = Mapping[str, str]


@dataclass(frozen=True)
class Rows:
    """Encoded rows: the numbers (B, F), or None, and the codes (B,) of each categorical column."""

    numbers: str | None
    codes: tuple[str, ...]


def network(g: Graph, spec: Spec, tensors: Mapping[str, Array], rows: Rows, *, prefix: str) -> str:
    """Write a network and return its outputs z (B, O). Its tensors become constants named `prefix` + name."""
    g.place = ""
    stored = {
        name: g.constant(np.asarray(value, np.float32), f"{prefix}{name}") for name, value in sorted(tensors.items())
    }
    places = {place: stored[name] for place, name in spec.tensor_names.items()}
    places |= {name: stored[name] for name in spec.buffers}
    if isinstance(spec.layers[0], Columns):
        return _through(g, spec.layers, rows, places, spec.inputs, prefix)
    return _through(g, spec.layers, rows.numbers, places, spec.inputs.numeric, prefix)


def _through(g: Graph, layers: Iterable[Layer], x: Any, p: Tensors, d: Any, path: str) -> str:
    """Write the layers one after another."""
    for name, layer in named(layers):
        own = {key.removeprefix(f"{name}."): value for key, value in p.items() if key.startswith(f"{name}.")}
        g.place = f"{path}{name}/"
        x = WRITERS[type(layer)](g, layer, x, own, d)
        d = layer.width(d)
    return x


def _affine(g: Graph, x: str, p: Tensors, factor: float = 1.0) -> str:
    return g.op("Gemm", x, p["weight"], *([p["bias"]] if "bias" in p else []), alpha=factor, transB=1)


def _linear(g: Graph, layer: Linear, x: str, p: Tensors, d: int) -> str:
    return _affine(g, x, p, layer.factor(d))


def _activation(g: Graph, layer: Activation, z: str, p: Tensors, d: int) -> str:
    a = activate(g, layer.function, z, p)
    return g.op("Add", z, g.op("Mul", p["blend"], g.op("Sub", a, z))) if layer.blend else a


def _batch_norm(g: Graph, layer: BatchNorm, x: str, p: Tensors, d: int) -> str:
    names = ("weight", "bias", "running_mean", "running_var")
    return g.op("BatchNormalization", x, *(p[name] for name in names), epsilon=layer.eps)


def _layer_norm(g: Graph, layer: LayerNorm, x: str, p: Tensors, d: int) -> str:
    return g.op("LayerNormalization", x, p["weight"], p["bias"], axis=-1, epsilon=layer.eps)


def _rms_norm(g: Graph, layer: RMSNorm, x: str, p: Tensors, d: int) -> str:
    mean = g.op("ReduceMean", g.op("Mul", x, x), np.array([-1]))  # (B, 1)
    return g.op("Mul", g.op("Div", x, g.op("Sqrt", g.op("Add", mean, number(layer.eps)))), p["weight"])


def _group_norm(g: Graph, layer: GroupNorm, x: str, p: Tensors, d: int) -> str:
    size = d // layer.groups
    grouped = g.op("Reshape", x, np.array([0, layer.groups, size]))  # (B, G, I/G)
    xhat = g.op("LayerNormalization", grouped, np.ones(size, np.float32), axis=-1, epsilon=layer.eps)
    return g.op("Add", g.op("Mul", g.op("Reshape", xhat, np.array([0, d])), p["weight"]), p["bias"])


def _glu(g: Graph, layer: GLU, x: str, p: Tensors, d: int) -> str:
    z = _affine(g, x, p)  # (B, 2·O)
    cut, end, axis = np.array([layer.d_out]), np.array([2 * layer.d_out]), np.array([1])
    gate, value = g.op("Slice", z, np.array([0]), cut, axis), g.op("Slice", z, cut, end, axis)  # (B, O)
    return g.op("Mul", activate(g, layer.gate, gate, {}), value)


def _maxout(g: Graph, layer: Maxout, x: str, p: Tensors, d: int) -> str:
    z = g.op("Reshape", _affine(g, x, p), np.array([0, layer.d_out, layer.k]))  # (B, O, k)
    return g.op("ReduceMax", z, np.array([-1]), keepdims=0)


def _kan(g: Graph, layer: KAN, x: str, p: Tensors, d: int) -> str:
    distance = g.op("Sub", g.op("Unsqueeze", x, np.array([-1])), layer.centres.astype(np.float32))
    u = g.op("Div", distance, number(layer.step))  # (B, I, K)
    if layer.basis == "rbf":
        bases = g.op("Exp", g.op("Neg", g.op("Mul", u, u)))
    else:
        outer, inner = (
            g.op("Pow", g.op("Relu", g.op("Sub", number(far), g.op("Abs", u))), number(3)) for far in (2, 1)
        )
        bases = g.op("Div", g.op("Sub", outer, g.op("Mul", number(4), inner)), number(6))
    flat = g.op("Reshape", bases, np.array([0, d * layer.n_bases]))  # (B, I·K)
    curves = g.op("Gemm", flat, p["weight"], transB=1)
    return g.op("Add", curves, g.op("Gemm", activate(g, activations.get("silu"), x, {}), p["base"], transB=1))


def _residual(g: Graph, layer: Residual, x: str, p: Tensors, d: int) -> str:
    place = g.place
    h = _through(g, layer.layers, x, p, d, place)
    g.place = place
    return g.op("Add", x, h)


def _scale(g: Graph, layer: Scale, x: str, p: Tensors, d: int) -> str:
    return g.op("Mul", x, p["scale"])


def _columns(g: Graph, layer: Columns, rows: Rows, p: Tensors, d: int | Inputs) -> str:
    pieces: list[str] = [] if rows.numbers is None else [_embed(g, layer, rows.numbers, p, Inputs.of(d).numeric)]
    for i, (n, codes) in enumerate(zip(Inputs.of(d).categories, rows.codes, strict=True)):
        table = one_hot(np.arange(n + 1), n).astype(np.float32) if layer.one_hot(n) else p[f"table{i + 1}"]
        pieces.append(g.op("Gather", table, codes, axis=0))  # (B, width)
    return g.op("Concat", *pieces, axis=1) if len(pieces) > 1 else pieces[0]


def _embed(g: Graph, layer: Columns, x: str, p: Tensors, F: int) -> str:
    """Embed numbers (B, F) → (B, F·d_numeric). Features are the first axis, because MatMul is batched over it."""
    if layer.numeric == "none":
        return x
    wide = g.op("Unsqueeze", g.op("Transpose", x, perm=[1, 0]), np.array([2]))  # (F, B, 1)
    z = g.op("MatMul", _inside(g, layer, wide, p), p["weight"])  # (F, B, D)
    z = g.op("Add", z, g.op("Unsqueeze", p["bias"], np.array([1])))
    if layer.numeric == "plr":
        z = g.op("Relu", z)
    elif layer.numeric == "pbld":
        z = g.op("Concat", wide, z, axis=2)
    return g.op("Reshape", g.op("Transpose", z, perm=[1, 0, 2]), np.array([0, F * (layer.d_numeric or 1)]))


def _inside(g: Graph, layer: Columns, wide: str, p: Tensors) -> str:
    """Return the input of the matrix product of each feature.   (F, B, 1) → (F, B, K)"""
    if layer.numeric == "piecewise":
        n, axis = layer.n or 0, np.array([1])
        low, high = (g.op("Slice", p["edges"], np.array([i]), np.array([n + i]), axis) for i in (0, 1))  # (F, n)
        size = g.op("Unsqueeze", g.op("Sub", high, low), axis)
        t = g.op("Div", g.op("Sub", wide, g.op("Unsqueeze", low, axis)), size)  # (F, B, n)
        lower, upper = np.zeros(n, np.float32), np.ones(n, np.float32)
        lower[0], upper[-1] = -np.inf, np.inf
        return g.op("Min", g.op("Max", t, lower), upper)
    turns = g.op("Mul", wide, g.op("Unsqueeze", p["frequency"], np.array([1])))  # (F, B, n)
    v = g.op("Mul", turns, number(2 * math.pi))
    if layer.numeric == "plr":
        return g.op("Concat", g.op("Cos", v), g.op("Sin", v), axis=2)
    return g.op("Cos", g.op("Add", v, g.op("Unsqueeze", p["phase"], np.array([1]))))


def _dropout(g: Graph, layer: Dropout, x: str, p: Tensors, d: int) -> str:
    return x


WRITERS: dict[type[Layer], Callable[[Graph, Any, Any, Tensors, Any], str]] = {
    Linear: _linear,
    Activation: _activation,
    BatchNorm: _batch_norm,
    LayerNorm: _layer_norm,
    RMSNorm: _rms_norm,
    GroupNorm: _group_norm,
    Dropout: _dropout,
    GLU: _glu,
    Maxout: _maxout,
    KAN: _kan,
    Residual: _residual,
    Scale: _scale,
    Columns: _columns,
}
