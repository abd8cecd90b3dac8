"""Initial values of the parameters of a network.

The schemes, by the variance of the weights:

    zeros                 0. All units of a layer are equal and stay equal.
    constant(c)           c²: all weights are c, which fails in the same way
    normal(v) uniform(v)  v, for any width
    lecun                 1/n_in                              LeCun et al. 1998         (and lecun_uniform)
    xavier                2/(n_in + n_out)                    Glorot & Bengio 2010      (and xavier_uniform)
    he                    2/n_in                              He et al. 2015            (and he_uniform; he(fan_out))
    auto                  gain²/n_in, with gain = 1/√E[f(z)²] of the activation before the layer (1 for inputs and
                          norms). Every z then has variance 1, for any activation and depth.
    depth                 the variance of auto divided by the number of layers with weights
    width                 1/n_out
    orthogonal            gain²/max(n_in, n_out): gain times a matrix with orthonormal rows or columns
                          (Saxe et al. 2014)
    torch                 1/(3 n_in), as in PyTorch's nn.Linear: U(±1/√n_in) for weights and biases

Uniform distributions are U(±√(3·variance)). Biases are 0 except for `torch`. If a linear map has a fixed scale s, its
weights are divided by s, so that s·W follows the scheme. Norms, learned activations and embeddings define their own
initial values, which are the same under every scheme.

The random numbers are counter-based: tensor t uses part t of the purpose INIT, with its last axis as units and the
others as rows. The same seed gives the same float64 values on any platform. Only `orthogonal` is an exception: the last
digits of its QR factorization depend on the linear algebra library.

`from_rows` uses training rows, so that z of each unit of a linear layer has standard deviation 1:

    W ~ N(0, 1), each row divided by the standard deviation of s·x Wᵀ                        Holzmüller et al. 2024
    b = −s·x̃ Wᵀ, x̃ a random mean of five training rows (b = 0 in the last layer)             Steinwart 2019

Each unit then has its kink within the data, for any scale of the columns. If the inputs of a unit do not vary, it is
scaled for independent inputs of variance 1. Layers inside residual blocks and all other tensors keep their usual
values, with one exception: the periodic embedding of a feature with few values and many rows per value, such as a code,
a month or a grade. Half of its frequencies are increased, so that they separate neighboring values.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from ..core import random
from ..core.machine import require_memory
from ..core.named_options import choose, require
from ..core.random import Purpose
from ..core.sparse import Sparse
from ..errors import OptionError
from ..nn.layers import Columns, Draw, EvenlySpaced, Linear, Parameter, Pass, named
from ..nn.layers.base import Array
from .spec import Entry, Spec


@dataclass(frozen=True, kw_only=True)
class Fan:
    """Properties of a layer that a scheme depends on."""

    n_in: int
    n_out: int
    gain: float
    depth: int


@dataclass(frozen=True, kw_only=True)
class Scheme:
    """Distribution of the initial weights. `variance` is that of s·W."""

    text: str
    law: Literal["normal", "uniform", "orthogonal", "constant"]
    variance: Callable[[Fan], float]
    constant: float = 0.0
    fixed: bool = False
    """Whether the variance does not depend on the width."""
    biases: bool = False
    """Whether biases are random as well: U(±1/√n_in)."""


def _he(fan: Fan) -> float:
    return 2 / fan.n_in


def _he_out(fan: Fan) -> float:
    return 2 / fan.n_out


def _lecun(fan: Fan) -> float:
    return 1 / fan.n_in


def _xavier(fan: Fan) -> float:
    return 2 / (fan.n_in + fan.n_out)


def _auto(fan: Fan) -> float:
    return fan.gain**2 / fan.n_in


_PLAIN: dict[str, Scheme] = {
    scheme.text: scheme
    for scheme in (
        Scheme(text="zeros", law="constant", variance=lambda fan: 0.0),
        Scheme(text="lecun", law="normal", variance=_lecun),
        Scheme(text="lecun_uniform", law="uniform", variance=_lecun),
        Scheme(text="xavier", law="normal", variance=_xavier),
        Scheme(text="xavier_uniform", law="uniform", variance=_xavier),
        Scheme(text="he", law="normal", variance=_he),
        Scheme(text="he_uniform", law="uniform", variance=_he),
        Scheme(text="he(fan_out)", law="normal", variance=_he_out),
        Scheme(text="he_uniform(fan_out)", law="uniform", variance=_he_out),
        Scheme(text="auto", law="normal", variance=_auto),
        Scheme(text="depth", law="normal", variance=lambda fan: _auto(fan) / fan.depth),
        Scheme(text="width", law="normal", variance=lambda fan: 1 / fan.n_out),
        Scheme(text="orthogonal", law="orthogonal", variance=lambda fan: fan.gain**2 / max(fan.n_in, fan.n_out)),
        Scheme(text="torch", law="uniform", variance=lambda fan: 1 / (3 * fan.n_in), biases=True),
    )
}


def _constant(value: float) -> Scheme:
    return Scheme(text=f"constant({value:g})", law="constant", variance=lambda fan: value * value, constant=value)


def _normal(variance: float) -> Scheme:
    require("variance", variance, variance >= 0, "at least 0")
    return Scheme(text=f"normal({variance:g})", law="normal", variance=lambda fan: variance, fixed=True)


def _uniform(variance: float) -> Scheme:
    require("variance", variance, variance >= 0, "at least 0")
    return Scheme(text=f"uniform({variance:g})", law="uniform", variance=lambda fan: variance, fixed=True)


_WITH_NUMBER: dict[str, Callable[..., Scheme]] = {"constant": _constant, "normal": _normal, "uniform": _uniform}
_ALIASES = {"kaiming": "he", "glorot": "xavier", "kaiming_uniform": "he_uniform", "glorot_uniform": "xavier_uniform"}

SCHEMES: tuple[str, ...] = (*_PLAIN, *(f"{name}(…)" for name in _WITH_NUMBER))
"""Names of all schemes."""


def scheme(text: str) -> Scheme:
    """Return the scheme with a name. Names such as `he_normal` and `kaiming` are accepted as well.

    >>> scheme("normal(0.01)").variance(Fan(n_in=64, n_out=64, gain=1.0, depth=1))
    0.01
    """
    if not isinstance(text, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise OptionError(f"an initialization scheme must be a string such as 'he', got {text!r}")
    base, bracket, argument = text.replace(" ", "").partition("(")
    base = base.removesuffix("_normal")
    base = _ALIASES.get(base, base)
    name = (base + bracket + argument).removesuffix("(fan_in)")
    if name in _PLAIN:
        return _PLAIN[name]
    if bracket and base in _PLAIN:
        takes = "fan_in or fan_out" if f"{base}(fan_out)" in _PLAIN else "nothing"
        raise OptionError(f"{base} takes {takes} in brackets, got {argument.removesuffix(')')!r}")
    return choose("initialization scheme", name, _WITH_NUMBER, also=tuple(_PLAIN))


def initialise(spec: Spec, init: str | Scheme = "auto", *, seed: int = 0) -> dict[str, Array]:
    """Return initial values of all parameters and buffers of a network.

    Parameters
    ----------
    spec : Spec
        The network.
    init : str
        Initialization scheme, such as ``"he"``, ``"normal(0.01)"`` or ``"auto"``.
    seed : int
        Seed of the random numbers.

    Returns
    -------
    dict of str to ndarray
        Values by tensor name, in float64.

    Raises
    ------
    OptionError
        If the scheme does not exist.

    Examples
    --------
    >>> values = initialise(Spec.parse("784-256-10"), "he", seed=0)
    >>> values["linear1.weight"].shape, round(float(values["linear1.weight"].std()), 3)
    ((256, 784), 0.05)
    """
    chosen = init if isinstance(init, Scheme) else scheme(init)
    require_memory(8 * spec.n_stored, f"a network of {spec.n_parameters:,} parameters in float64")
    fans = dict(_fans(spec))
    values: dict[str, Array] = {}
    for part, (name, parameter) in enumerate(spec.parameters.items()):
        values[name] = _values(parameter, chosen, fans.get(name), seed=seed, part=part)
    for name, buffer in spec.buffers.items():
        values[name] = _fixed(buffer)
    return values


def weight_variances(spec: Spec, init: str | Scheme = "auto") -> dict[str, float]:
    """Return the variance of s·W for each weight matrix and bias, by name."""
    chosen = init if isinstance(init, Scheme) else scheme(init)
    found: dict[str, float] = {}
    for name, (fan, _) in _fans(spec):
        own = spec.parameters[name].value
        found[name] = _draw_variance(own) if isinstance(own, Draw) else chosen.variance(fan)
    return found


def weight_deviations(spec: Spec, init: str | Scheme = "auto") -> dict[str, float]:
    """Return the standard deviation of the initial weights W of each layer, by layer name. A constant scheme gives 0.

    >>> weight_deviations(Spec.parse("64-32-10"), "normal(0.01)")
    {'linear1': 0.1, 'linear2': 0.1}
    """
    chosen = init if isinstance(init, Scheme) else scheme(init)
    variances = weight_variances(spec, chosen)
    found: dict[str, float] = {}
    for name, (_, scale) in _fans(spec):
        layer, _, tensor = name.rpartition(".")
        if tensor == "weight":
            drawn = chosen.law != "constant" or isinstance(spec.parameters[name].value, Draw)
            found[layer] = math.sqrt(variances[name]) / scale if drawn and scale else 0.0
    return found


def feeding_gains(entries: Iterable[Entry]) -> Iterator[float]:
    """Yield 1/√E[a²] of the inputs a of each entry, if every earlier z has variance 1.

    Dropout divides by 1 − p, which increases E[a²]. After a norm it is 1. After a residual block it is assumed to be 1.
    """
    gain = square = 1.0
    depth = 0
    for entry in entries:
        if entry.depth != depth:
            gain, square, depth = 1.0, 1.0, entry.depth
        yield math.sqrt(gain**2 / square)
        gain, square = entry.layer.reaching(gain, square)


def _fans(spec: Spec) -> Iterator[tuple[str, tuple[Fan, float]]]:
    """Yield the name of each weight matrix and bias, with its `Fan` and the fixed scale of its layer."""
    entries = spec.entries
    depth = sum(any(p.role == "weight" for p in entry.parameters) for entry in entries)
    for entry, gain in zip(entries, feeding_gains(entries), strict=True):
        scale = entry.layer.factor(entry.width_in) if isinstance(entry.layer, Linear) else 1.0
        for p in entry.parameters:
            if p.role not in ("weight", "bias") or not p.fan_in:
                continue
            fan = Fan(n_in=p.fan_in, n_out=p.fan_out, gain=gain, depth=max(depth, 1))
            yield f"{entry.name}.{p.name}", (fan, scale)


def _values(parameter: Parameter, chosen: Scheme, fan: tuple[Fan, float] | None, *, seed: int, part: int) -> Array:
    shape = parameter.shape
    if isinstance(parameter.value, Draw):
        return _draw(shape, parameter.value, seed=seed, part=part)
    if parameter.value is not None or fan is None:
        return _fixed(parameter)
    sizes, scale = fan
    if parameter.role == "bias":
        bound = Draw("uniform", 1 / math.sqrt(sizes.n_in))
        return _draw(shape, bound, seed=seed, part=part) if chosen.biases else np.zeros(shape)
    if scale == 0:
        return np.zeros(shape)
    if chosen.law == "constant":
        return np.full(shape, chosen.constant / scale)
    deviation = math.sqrt(chosen.variance(sizes)) / scale
    if chosen.law == "orthogonal":
        return sizes.gain / scale * _orthogonal(_draw(shape, Draw("normal", 1.0), seed=seed, part=part))
    law = Draw("normal", deviation) if chosen.law == "normal" else Draw("uniform", math.sqrt(3) * deviation)
    return _draw(shape, law, seed=seed, part=part)


def _fixed(parameter: Parameter) -> Array:
    value = 0.0 if parameter.value is None or isinstance(parameter.value, Draw) else parameter.value
    if isinstance(value, EvenlySpaced):
        value = np.linspace(-value.bound, value.bound, parameter.shape[-1])
    return np.array(np.broadcast_to(np.asarray(value, dtype=np.float64), parameter.shape))


def _draw(shape: tuple[int, ...], law: Draw, *, seed: int, part: int) -> Array:
    rows, units = math.prod(shape[:-1]), shape[-1] if shape else 1
    if law.law == "normal":
        flat = law.scale * random.normal(seed, Purpose.INIT, rows=rows, units=units, part=part)
    else:
        flat = law.scale * (2 * random.uniform(seed, Purpose.INIT, rows=rows, units=units, part=part) - 1)
    return flat.reshape(shape)


def _draw_variance(law: Draw) -> float:
    square = law.scale * law.scale  # unlike **, a product overflows to infinity
    return square if law.law == "normal" else square / 3


def _orthogonal(normal: Array) -> Array:
    """Return a matrix with orthonormal rows or columns, from a QR factorization with a positive diagonal of R."""
    tall = normal if normal.shape[0] >= normal.shape[1] else normal.T
    q, r = np.linalg.qr(tall)
    q = q * np.where(np.diag(r) < 0, -1.0, 1.0)
    return q if normal.shape[0] >= normal.shape[1] else q.T


# From data

MAX_ROWS, MAX_NUMBERS = 1024, 1 << 22
"""Largest number of training rows, and of values in them. At least 64 rows are used."""
ROWS_PER_KINK = 5
"""Number of training rows whose random mean is the point x̃ of a bias."""
MAX_VALUES, MIN_ROWS_PER_VALUE = 32, 32
"""Largest number of values of a feature with few values, and smallest mean number of rows per value."""
TURNS_BETWEEN_VALUES = 0.25
"""Turns between neighboring values at a frequency of one standard deviation. A quarter turn separates them."""


def from_rows(spec: Spec, x: NDArray[Any] | Sparse, codes: NDArray[np.int64] | None, *, seed: int) -> dict[str, Array]:
    """Return all parameters and buffers by name in float64, fitted to training rows x (N, F) and codes (N, C)."""
    values = initialise(spec, "normal(1)", seed=seed)
    rows = min(MAX_ROWS, max(64, MAX_NUMBERS // max(x.shape[1], 1)))
    chosen = random.permutation(len(x), seed=seed, epoch=0)[:rows]
    a: Any = np.asarray(x[chosen], dtype=np.float64)
    if codes is not None and spec.inputs.categories:
        a = (a, codes[chosen])
    layers = list(named(spec.layers))
    last = max((i for i, (_, layer) in enumerate(layers) if isinstance(layer, Linear)), default=-1)
    run = Pass(categories=spec.inputs.categories)
    for i, (name, layer) in enumerate(layers):
        own = {stored.removeprefix(f"{name}."): stored for stored in values if stored.startswith(f"{name}.")}
        tensors = {short: values[stored] for short, stored in own.items()}
        if isinstance(layer, Linear):
            _linear(layer, a, tensors, seed=seed, part=i, bias=i != last)
        if isinstance(layer, Columns) and layer.sigma is not None:
            tensors["frequency"] = _widened(tensors["frequency"], layer.sigma, a, rows=len(x))
        values |= {stored: tensors[short] for short, stored in own.items()}
        a, _ = layer.forward(a, tensors, run)
    return values


def _widened(frequency: Array, sigma: float, a: Any, *, rows: int) -> Array:
    """Return the frequencies (F, n), with every other one increased for features with few values."""
    x: Array = a[0] if isinstance(a, tuple) else a  # (N, F)
    found = frequency.copy()  # (F, n)
    for i in range(x.shape[1]):
        values = np.unique(x[:, i])
        if 2 < len(values) <= min(MAX_VALUES, rows // MIN_ROWS_PER_VALUE):
            found[i, ::2] *= max(1.0, TURNS_BETWEEN_VALUES / (sigma * float(np.median(np.diff(values)))))
    return found


def _linear(layer: Linear, x: Array, tensors: dict[str, Array], *, seed: int, part: int, bias: bool) -> None:
    """Set weight and bias of a linear layer for its inputs x (N, I)."""
    s, W = layer.factor(x.shape[1]), tensors["weight"]
    deviation = (s * (x @ W.T)).std(0)  # (O,)
    alone = s * np.linalg.norm(W, axis=1)
    tensors["weight"] = W / np.where(deviation > 1e-6, deviation, np.where(alone > 0, alone, 1.0))[:, None]
    if layer.bias and bias:
        units = layer.d_out
        draw = random.uniform(seed, Purpose.INIT, rows=units, units=2 * ROWS_PER_KINK, epoch=1, part=part)
        corners = (draw[:, :ROWS_PER_KINK] * len(x)).astype(np.int64)  # (O, 5)
        shares = -np.log(draw[:, ROWS_PER_KINK:])
        shares /= shares.sum(1, keepdims=True)
        points = np.einsum("ok,oki->oi", shares, x[corners])  # (O, I)
        tensors["bias"] = -s * (points * tensors["weight"]).sum(1)
