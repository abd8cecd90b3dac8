"""Each activation as ONNX operators, with the formulas of `nn.activations`.

    write(graph, fn, z, p)    z (B, d) → a (B, d); p contains the learned parameters by name

Runtimes compute exp(z), where numpy computes exp(−|z|). Values that are nearly 0 therefore have a small absolute error,
not a small relative error.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import reduce
from typing import Any

import numpy as np

from ...nn.activations.fixed import SELU_ALPHA, SELU_SCALE
from ...nn.activations.function import ActivationFunction
from ...nn.activations.learned import kaf_gamma
from .graph import Graph, Value

Learned = Mapping[str, str]
Writer = Callable[[Graph, ActivationFunction, str, Learned], str]


def write(g: Graph, fn: ActivationFunction, z: str, p: Learned) -> str:
    """Return a = f(z)."""
    if fn.name in WRITERS:
        return WRITERS[fn.name](g, fn, z, p)
    constants: dict[str, Any] = dict(fn.constants)
    return g.op(fn.name.title().replace("_", ""), z, **constants)


def number(value: float) -> np.float32:
    return np.float32(value)


def _step(g: Graph, fn: ActivationFunction, z: str, p: Learned) -> str:
    return g.cast(g.op("GreaterOrEqual", z, number(0)), np.float32)


def _swish(g: Graph, z: str, beta: Value) -> str:
    return g.op("Mul", z, g.op("Sigmoid", g.op("Mul", z, beta)))


def _trainable_swish(g: Graph, fn: ActivationFunction, z: str, p: Learned) -> str:
    gate = g.op("Sigmoid", g.op("Add", g.op("Mul", p["a"], z), p["b"]))
    return g.op("Mul", gate, g.op("Add", g.op("Mul", p["c"], z), p["d"]))


def _with_axis(g: Graph, z: str) -> str:
    return g.op("Unsqueeze", z, np.array([-1]))  # (B, d, 1)


def _total(g: Graph, values: str) -> str:
    return g.op("ReduceSum", values, np.array([-1]), keepdims=0)  # (B, d, n) → (B, d)


def _apl(g: Graph, fn: ActivationFunction, z: str, p: Learned) -> str:
    hinges = g.op("Relu", g.op("Sub", p["b"], _with_axis(g, z)))  # (B, d, n)
    return g.op("Add", g.op("Relu", z), _total(g, g.op("Mul", p["a"], hinges)))


def _kaf(g: Graph, fn: ActivationFunction, z: str, p: Learned) -> str:
    n, bound = fn.constant("n"), fn.constant("bound")
    distance = g.op("Sub", _with_axis(g, z), np.linspace(-bound, bound, n).astype(np.float32))  # (B, d, n)
    bumps = g.op("Exp", g.op("Mul", g.op("Mul", distance, distance), number(-kaf_gamma(n, bound))))
    return _total(g, g.op("Mul", p["alpha"], bumps))


def _combination(g: Graph, fn: ActivationFunction, z: str, p: Learned) -> str:
    terms = [
        g.op("Mul", g.op("Gather", p["alpha"], np.int64(i), axis=-1), write(g, part, z, {}))
        for i, part in enumerate(fn.parts)
    ]
    return reduce(lambda total, term: g.op("Add", total, term), terms)


WRITERS: dict[str, Writer] = {
    "identity": lambda g, fn, z, p: z,
    "step": _step,
    "polynomial": lambda g, fn, z, p: g.op("Pow", z, number(fn.constant("p"))),
    "sigmoid": lambda g, fn, z, p: g.op("Sigmoid", g.op("Mul", z, number(fn.constant("a")))),
    "hard_tanh": lambda g, fn, z, p: g.op("Clip", z, number(-1), number(1)),
    "prelu": lambda g, fn, z, p: g.op("PRelu", z, p["alpha"]),
    "selu": lambda g, fn, z, p: g.op("Selu", z, alpha=SELU_ALPHA, gamma=SELU_SCALE),
    "gelu_tanh": lambda g, fn, z, p: g.op("Gelu", z, approximate="tanh"),
    "silu": lambda g, fn, z, p: g.op("Mul", z, g.op("Sigmoid", z)),
    "swish": lambda g, fn, z, p: _swish(g, z, number(fn.constant("beta"))),
    "learned_swish": lambda g, fn, z, p: _swish(g, z, p["beta"]),
    "trainable_swish": _trainable_swish,
    "mish": lambda g, fn, z, p: g.op("Mul", z, g.op("Tanh", g.op("Softplus", z))),
    "apl": _apl,
    "kaf": _kaf,
    "combination": _combination,
    "generalised_relu": lambda g, fn, z, p: g.op("Mul", z, write(g, fn.parts[0], z, {})),
    "softmax": lambda g, fn, z, p: g.op("Softmax", z, axis=-1),
}
"""For an activation that is not listed, ONNX has an operator with the same name and constants, such as LeakyRelu."""
