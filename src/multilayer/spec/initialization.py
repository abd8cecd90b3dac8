"""First values of a network's parameters: the schemes, and the numbers they give.

    zeros                 0: every unit of a layer computes the same and stays the same
    constant(c)           c: the same failure
    normal(v) uniform(v)  variance v, so standard deviation √v, for any width
    lecun                 1/n_in                              LeCun et al. 1998         (and lecun_uniform)
    xavier                2/(n_in + n_out)                    Glorot & Bengio 2010      (and xavier_uniform)
    he                    2/n_in                              He et al. 2015            (and he_uniform; he(fan_out))
    auto                  gain²/n_in, gain = 1/√E[f(z)²] of the activation that feeds the layer (1 for inputs and
                          norms): then every z has variance 1, whatever the activation and the depth
    depth                 auto's variance divided by the number of layers with weights
    width                 1/n_out
    orthogonal            gain times a matrix with orthonormal rows or columns: variance gain²/max(n_in, n_out)
                          (Saxe et al. 2014)
    torch                 PyTorch's nn.Linear: U(±1/√n_in) for weights and biases, variance 1/(3 n_in)

Uniform laws are U(±√(3·variance)). Biases are 0 except under `torch`. A linear map with a fixed scale s has its weights
divided by s, so that s·W is what the scheme says. Tensors with first values of their own (norms, learned activations,
embeddings) keep those under every scheme.

Numbers come from the counter-based stream: tensor t takes part t of the purpose INIT, its first axes as rows and its
last as units, so the same seed gives the same float64 on any platform, whoever asks. `orthogonal` goes through a QR
factorisation whose last digits depend on the linear-algebra library; it is the one exception.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np

from ..core import random
from ..core.machine import require_memory
from ..core.named_options import choose, require
from ..core.random import Purpose
from ..errors import OptionError
from ..nn.layers import Draw, Even, Linear, Parameter, Residual
from ..nn.layers.base import Array
from .spec import Entry, Spec


@dataclass(frozen=True, kw_only=True)
class Fan:
    """What a scheme looks at."""

    n_in: int
    n_out: int
    gain: float
    depth: int


@dataclass(frozen=True, kw_only=True)
class Scheme:
    """How weights are drawn. `variance` is that of s·W."""

    text: str
    law: Literal["normal", "uniform", "orthogonal", "constant"]
    variance: Callable[[Fan], float]
    constant: float = 0.0
    fixed: bool = False
    """Whether the variance is the same whatever the width."""
    biases: bool = False
    """Whether biases are drawn as well, from U(±1/√n_in)."""


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
"""Every scheme as it is written."""


def scheme(text: str) -> Scheme:
    """The scheme of that name; `he_normal` and the like are understood.

    >>> scheme("normal(0.01)").variance(Fan(n_in=64, n_out=64, gain=1.0, depth=1))
    0.01
    """
    if not isinstance(text, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise OptionError(f"an initialisation scheme must be chosen by a text such as 'he', got {text!r}")
    called, bracket, given = text.replace(" ", "").partition("(")
    called = called.removesuffix("_normal")
    called = _ALIASES.get(called, called)
    name = (called + bracket + given).removesuffix("(fan_in)")
    if name in _PLAIN:
        return _PLAIN[name]
    if bracket and called in _PLAIN:
        takes = "fan_in or fan_out" if f"{called}(fan_out)" in _PLAIN else "nothing"
        raise OptionError(f"{called} takes {takes} in brackets, got {given.removesuffix(')')!r}")
    return choose("initialisation scheme", name, _WITH_NUMBER, also=tuple(_PLAIN))


def initialise(spec: Spec, init: str | Scheme = "auto", *, seed: int = 0) -> dict[str, Array]:
    """Every parameter and buffer of a network by name, float64.

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
    """The variance of s·W that a scheme gives each weight matrix, by name; those with their own law included."""
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
    """1/√E[a²] of what reaches each entry, where every z before has variance 1.

    Dropout divides by 1 − p, so it raises E[a²]; a norm makes it 1; behind a residual block it is taken as 1.
    """
    gain = square = 1.0
    depth = 0
    for entry in entries:
        if entry.depth != depth:
            gain, square, depth = 1.0, 1.0, entry.depth
        yield math.sqrt(gain**2 / square)
        gain, square = entry.layer.reaching(gain, square)


def _fans(spec: Spec) -> Iterator[tuple[str, tuple[Fan, float]]]:
    """Each weight matrix and bias with what its scheme looks at, and the fixed scale of its layer."""
    entries = spec.entries
    depth = sum(any(p.role == "weight" for p in _own(entry)) for entry in entries)
    for entry, gain in zip(entries, feeding_gains(entries), strict=True):
        own = [p for p in _own(entry) if p.role in ("weight", "bias") and p.fan_in]
        if not own:
            continue
        scale = entry.layer.factor(entry.width_in) if isinstance(entry.layer, Linear) else 1.0
        for p in own:
            fan = Fan(n_in=p.fan_in, n_out=p.fan_out, gain=gain, depth=max(depth, 1))
            yield f"{entry.name}.{p.name}", (fan, scale)


def _own(entry: Entry) -> tuple[Parameter, ...]:
    return () if isinstance(entry.layer, Residual) else entry.layer.parameters(entry.d_in)  # pyright: ignore[reportArgumentType]


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
    if isinstance(value, Even):
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
    square = law.scale * law.scale  # unlike a power, infinite where it is too large
    return square if law.law == "normal" else square / 3


def _orthogonal(normal: Array) -> Array:
    """Orthonormal rows or columns, whichever are fewer, by QR with the signs of R's diagonal taken out."""
    tall = normal if normal.shape[0] >= normal.shape[1] else normal.T
    q, r = np.linalg.qr(tall)
    q = q * np.where(np.diag(r) < 0, -1.0, 1.0)
    return q if normal.shape[0] >= normal.shape[1] else q.T
