"""Layers that work on each value separately: Activation, Dropout, Scale; and residual blocks.

    Activation   a = f(z), f from the catalogue of activations
                 a = z + α (f(z) − z) with `blend`, α learned per unit, initially 1    RealMLP, Holzmüller et al. 2024
    Dropout      y = x ⊙ m / (1 − p) in training, y = x otherwise                      Srivastava et al. 2014
    Scale        y = x ⊙ s, s learned
    Residual     y = x + g(x), g any layers whose output has the width of their input  He et al. 2016

The learned parameters of an activation belong to each unit (`per="unit"`), to the layer, or to the network; then all
such layers with the same function share them. `Pass.keep` provides the dropout masks, so that all engines can use the
same ones. A residual block may contain any layer, including residual blocks.
"""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import KW_ONLY, dataclass, field, replace
from typing import Any, ClassVar, Literal

import numpy as np

from ...core.counts import named as sizes
from ...errors import SpecError, unknown_name
from .. import activations
from ..activations import properties
from ..activations.function import ActivationFunction, Kept
from ..activations.properties import gain as gain_of
from .base import (
    Array,
    Backward,
    Flops,
    Forward,
    Layer,
    Moments,
    Parameter,
    Pass,
    Passed,
    Tensors,
    Timed,
    backward_through,
    forward_through,
    named,
    require_number,
)

Per = Literal["unit", "layer", "network"]
Constants = tuple[tuple[str, object], ...]

_CALL = re.compile(r"\s*([A-Za-z_][A-Za-z0-9_]*)\s*\((.*)\)\s*", re.DOTALL)


@dataclass(frozen=True)
class Activation(Layer):
    """Apply an activation to each value: a = f(z). Softmax works along the last axis.

    Parameters
    ----------
    name : str
        Name of the activation, optionally with its options: ``"leaky_relu(0.2)"``. `mlp activations` lists all.
    constants : mapping or sequence of pairs
        Constants of the function by name. Values equal to the defaults are dropped, so that equal layers compare equal.
    per : {"unit", "layer", "network"}
        Which units share the learned parameters of the function.
    blend : bool
        Whether a learned share α of each unit mixes f(z) with z.

    Raises
    ------
    SpecError
        If the activation does not exist, or an option does not fit it.

    Examples
    --------
    >>> Activation("leaky_relu(0.2)") == Activation("leaky_relu", {"alpha": 0.2})
    True
    """

    kind: ClassVar[str] = "activation"
    name: str
    constants: Constants | Mapping[str, object] = ()
    _: KW_ONLY
    per: Per = "layer"
    blend: bool = False
    function: ActivationFunction = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if not isinstance(self.name, str):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise SpecError(f"an activation must be a name such as 'relu' or 'leaky_relu(0.2)', got {self.name!r}")
        if "(" in self.name:
            self._read()
        function = activations.get(self.name, **dict(self.constants))
        usual = activations.get(function.name).constants
        chosen = tuple(pair for pair in function.constants if pair not in usual)
        for key, value in (("name", function.name), ("constants", chosen), ("function", function)):
            object.__setattr__(self, key, value)
        if self.per not in ("unit", "layer", "network"):
            raise SpecError(unknown_name("value of per", self.per, ("unit", "layer", "network")))
        if self.per != "layer" and not function.learned:
            raise SpecError(f"per={self.per!r} needs an activation with learned numbers, got {self.name!r}")
        if self.blend and not function.elementwise:
            raise SpecError(f"blend needs an elementwise activation, got {self.name!r}")

    def _read(self) -> None:
        """Set the fields from a name with options, such as `leaky_relu(0.2)`, `prelu(per=unit)` or `blend(selu)`."""
        text = self.name
        if dict(self.constants) or self.blend or self.per != "layer":
            raise SpecError(
                f"options of an activation must be in its name or separate arguments, not both, got {text!r}"
            )
        blended = _CALL.fullmatch(text)
        if blended is not None and blended[1] == "blend":
            text = blended[2]
            object.__setattr__(self, "blend", True)
        name, options = _call(text)
        for key, value in (("name", name), ("per", options.pop("per", "layer")), ("constants", options)):
            object.__setattr__(self, key, value)

    @property
    def label(self) -> str:
        return self.name

    @property
    def passes_through(self) -> bool:
        return self.name == "identity" and not self.blend

    def parameters(self, d: int) -> tuple[Parameter, ...]:
        found: list[Parameter] = []
        for name, initial in self.function.learned.items():
            value = np.broadcast_to(initial, (d, *initial.shape)) if self.per == "unit" else initial
            found.append(
                Parameter(name=name, shape=value.shape, role="activation", value=value, shared=self.per == "network")
            )
        if self.blend:
            found.append(Parameter(name="blend", shape=(d,), role="activation", value=1.0))
        return tuple(found)

    def cost(self, d: int, batch: int, *, input_gradient: bool = True) -> Flops:
        B, n, c, c2 = sizes(B=batch, n=d, c=self.function.flops, **{"c′": self.function.flops_backward})
        forward, backward = c * B * n, B * n * (1 + c2)
        # Each learned parameter needs a product with δ and a sum over rows.
        learned = sum(int(np.size(v)) for v in self.function.learned.values())
        extra = 2 * learned * B * n if learned else 0
        if self.blend:
            # Forward: f − z, ×α, +z. Backward: 1 + α(f′ − 1) is 3, dα a product and a sum.
            return Flops(
                forward=Forward(activation=forward + 3 * B * n),
                backward=Backward(activation=backward + 3 * B * n, other=extra + 2 * B * n),
            )
        return Flops(forward=Forward(activation=forward), backward=Backward(activation=backward, other=extra))

    def kept(self, d: int, *, input_gradient: bool = True) -> Kept:
        fn = self.function
        kept = fn.kept
        if not input_gradient:  # then only learned parameters need a gradient
            kept = (fn.kept if fn.kept_on_data is None else fn.kept_on_data) if fn.learned else Kept()
        if not self.blend:
            return Kept(input=kept.input, output=kept.output, per_row=kept.extra * d, per_batch=kept.per_batch)
        # The blend keeps f(z) − z, and f(z) only if f keeps its result.
        return Kept(input=kept.input, per_row=(kept.extra + kept.output + 1) * d, per_batch=kept.per_batch)

    @property
    def torch_module(self) -> bool:
        return self.function.torch_module is not None and not self.blend and self.per != "network"

    @property
    def on_page(self) -> bool:
        return self.function.on_page

    def moments(self, d: int, x: Moments | None, V: float | None) -> Passed:
        if x is None or not self.function.elementwise:
            return Passed()
        return Passed(*through(self.function, x))

    def reaching(self, gain: float, square: float) -> tuple[float, float]:
        return gain_of(self.function) or 1.0, 1.0

    def timed(self, d: int) -> tuple[Timed, ...]:
        if self.passes_through:
            return ()
        itself = replace(self, per="layer") if self.per == "network" else self
        return (replace(super().timed(d)[0], layer=itself),)

    @property
    def weights_alone(self) -> bool:
        return not (self.function.learned or self.blend)

    def fused_widths(self, d: int, *, learning: bool) -> tuple[int, ...]:
        return (d,) * (1 + len(self.function.learned) + self.blend)

    def looped_widths(self, d: int) -> tuple[int, ...]:
        return (d,)

    def _learned(self, p: Tensors) -> dict[str, Array]:
        return {name: p[name] for name in self.function.learned}

    def forward(self, x: Array, p: Tensors, run: Pass) -> tuple[Array, Array]:
        a = self.function.f(x, **self._learned(p))
        return (x + p["blend"] * (a - x) if self.blend else a), x

    def backward(self, dy: Array, cache: Array, p: Tensors) -> tuple[Array, dict[str, Array]]:
        z, fn, learned = cache, self.function, self._learned(p)
        grads: dict[str, Array] = {}
        da = dy
        if self.blend:
            grads["blend"] = (dy * (fn.f(z, **learned) - z)).sum(0)
            da = dy * p["blend"]
        if fn.dp is not None:
            for name, slope in fn.dp(z, **learned).items():
                vector = slope.ndim > z.ndim
                per_unit = ((da[..., None] if vector else da) * slope).sum(0)  # (O,) or (O, n)
                grads[name] = per_unit if self.per == "unit" else per_unit.sum(0)
        dz = fn.vjp(z, da) if fn.vjp is not None else da * fn.df(z, **learned)
        return (dz + (1 - p["blend"]) * dy if self.blend else dz), grads


def _call(text: str) -> tuple[str, dict[str, object]]:
    """Return name and options of a call such as `elu(0.5)`. Positional options are the constants in order."""
    match = _CALL.fullmatch(text)
    if match is None:
        return text.strip(), {}
    name, inside = match[1], match[2]
    keys = [key for key, _ in activations.get(name).constants]
    arguments = [argument.strip() for argument in inside.split(",") if argument.strip()]
    if activations.get(name).name == "combination":  # its parts may be separate arguments
        parts = [argument for argument in arguments if "=" not in argument]
        arguments = ["+".join(parts)] * bool(parts) + [argument for argument in arguments if "=" in argument]
    found: dict[str, object] = {}
    for i, argument in enumerate(arguments):
        key, named, value = (word.strip() for word in argument.rpartition("="))
        if not named:
            if i >= len(keys):
                raise SpecError(f"{name} takes at most {len(keys)} positional options, got {text!r}")
            key = keys[i]
        if key in found:
            raise SpecError(f"{key} of {name} is given twice in {text!r}")
        try:
            found[key] = float(value)
        except ValueError:
            found[key] = value
    return name, found


@dataclass(frozen=True)
class Dropout(Layer):
    """Set a random fraction p of the values to zero in training: y = x ⊙ m / (1 − p). At prediction y = x.

    Parameters
    ----------
    p : float
        Probability of setting a value to zero, at least 0 and below 1.

    Raises
    ------
    SpecError
        If `p` is out of range.

    Examples
    --------
    >>> Dropout(0.5).p
    0.5
    """

    kind: ClassVar[str] = "dropout"
    p: float

    def __post_init__(self) -> None:
        p = require_number("dropout", self.p, requirement="at least 0 and below 1")
        if not 0 <= p < 1:
            raise SpecError(f"dropout must be at least 0 and below 1, got {self.p!r}")
        object.__setattr__(self, "p", p)

    def cost(self, d: int, batch: int, *, input_gradient: bool = True) -> Flops:
        if self.p == 0:
            return Flops()
        B, I = sizes(B=batch, I=d)  # noqa: E741
        # Forward: one random number, one comparison, one product. Backward: one product.
        return Flops(forward=Forward(other=3 * B * I), backward=Backward(other=B * I))

    def kept(self, d: int, *, input_gradient: bool = True) -> Kept:
        return Kept(per_row=d if self.p else 0)  # the mask, as floats

    @property
    def passes_through(self) -> bool:
        return self.p == 0

    @property
    def torch_module(self) -> bool:
        return True

    def moments(self, d: int, x: Moments | None, V: float | None) -> Passed:
        return Passed() if x is None else Passed(Moments(x.q / (1 - self.p), x.c, x.m), 1 / (1 - self.p))

    def reaching(self, gain: float, square: float) -> tuple[float, float]:
        return gain, square / (1 - self.p)

    def timed(self, d: int) -> tuple[Timed, ...]:
        return (replace(super().timed(d)[0], layer=Dropout(0.5)),) if self.p else ()

    @property
    def weights_alone(self) -> bool:
        return True

    def fused_widths(self, d: int, *, learning: bool) -> tuple[int, ...]:
        return (d,)

    def looped_widths(self, d: int) -> tuple[int, ...]:
        return d, d

    def forward(self, x: Array, p: Tensors, run: Pass) -> tuple[Array, Array | None]:
        if not run.training or self.p == 0:
            return x, None
        if run.keep is None:
            raise AssertionError("a training pass with dropout needs masks")
        mask = run.keep(x.shape[-1], self.p)  # (B, I), already divided by 1 − p
        return x * mask, mask

    def backward(self, dy: Array, cache: Array | None, p: Tensors) -> tuple[Array, dict[str, Array]]:
        return (dy if cache is None else dy * cache), {}


@dataclass(frozen=True)
class Scale(Layer):
    """Multiply each unit by a learned factor, initially 1: y = x ⊙ s. x (B, I), s (I,) → y (B, I).

    Examples
    --------
    >>> sum(p.size for p in Scale().parameters(16))
    16
    """

    kind: ClassVar[str] = "scale"

    def parameters(self, d: int) -> tuple[Parameter, ...]:
        return (Parameter(name="scale", shape=(d,), role="scale", value=1.0),)

    def cost(self, d: int, batch: int, *, input_gradient: bool = True) -> Flops:
        B, I = sizes(B=batch, I=d)  # noqa: E741
        return Flops(forward=Forward(other=B * I), backward=Backward(other=3 * B * I if input_gradient else 2 * B * I))

    def kept(self, d: int, *, input_gradient: bool = True) -> Kept:
        return Kept(input=True)

    def moments(self, d: int, x: Moments | None, V: float | None) -> Passed:
        return Passed(x, 1.0)

    def reaching(self, gain: float, square: float) -> tuple[float, float]:
        return gain, square

    def fused_widths(self, d: int, *, learning: bool) -> tuple[int, ...]:
        return (d,) * (1 + learning)  # in the backward pass ds still reads the input, so dx needs separate memory

    def looped_widths(self, d: int) -> tuple[int, ...]:
        return (d,)

    def forward(self, x: Array, p: Tensors, run: Pass) -> tuple[Array, Array]:
        return x * p["scale"], x

    def backward(self, dy: Array, cache: Array, p: Tensors) -> tuple[Array, dict[str, Array]]:
        return dy * p["scale"], {"scale": (dy * cache).sum(0)}


@dataclass(frozen=True)
class Residual(Layer):
    """Residual block: y = x + g(x).

    Parameters
    ----------
    layers : iterable of Layer
        The layers g. The width of their output must equal the width of their input.

    Raises
    ------
    SpecError
        If there are no layers, or the widths differ.

    Examples
    --------
    >>> from multilayer.nn.layers import Activation, Linear
    >>> Residual([Linear(16), Activation("relu"), Linear(8)]).width(8)
    8
    """

    kind: ClassVar[str] = "residual"
    layers: tuple[Layer, ...]

    def __post_init__(self) -> None:
        if isinstance(self.layers, Layer) or not isinstance(self.layers, Iterable):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise SpecError(f"a residual block must hold a sequence of layers, got {self.layers!r}: write [Linear(10)]")
        object.__setattr__(self, "layers", tuple(self.layers))
        if not self.layers:
            raise SpecError("a residual block must hold at least one layer, got none")

    def width(self, d: int) -> int:
        inside = d
        for layer in self.layers:
            inside = layer.width(inside)
        if inside != d:
            raise SpecError(
                f"a residual block must return the width it is given: {d} in, {inside} out; "
                f"end it with a layer of width {d}"
            )
        return d

    def _inside(self, d: int) -> list[tuple[str, Layer, int]]:
        found: list[tuple[str, Layer, int]] = []
        for name, layer in named(self.layers):
            found.append((name, layer, d))
            d = layer.width(d)
        return found

    def _tensors(self, d: int, which: str) -> tuple[Parameter, ...]:
        return tuple(
            replace(q, name=f"{name}.{q.name}")
            for name, layer, inside in self._inside(d)
            for q in getattr(layer, which)(inside)
        )

    def parameters(self, d: int) -> tuple[Parameter, ...]:
        return self._tensors(d, "parameters")

    def buffers(self, d: int) -> tuple[Parameter, ...]:
        return self._tensors(d, "buffers")

    def cost(self, d: int, batch: int, *, input_gradient: bool = True) -> Flops:
        """Return the FLOPs of the final sum and of the sum of two gradients. The layers inside are separate."""
        B, I = sizes(B=batch, I=d)  # noqa: E741
        return Flops(forward=Forward(other=B * I), backward=Backward(other=B * I if input_gradient else 0))

    def timed(self, d: int) -> tuple[Timed, ...]:
        return (replace(super().timed(d)[0], layer=Residual((Activation("identity"),))),)

    def looped_widths(self, d: int) -> tuple[int, ...]:
        return d, d

    def forward(self, x: Array, p: Tensors, run: Pass) -> tuple[Array, list[Any]]:
        h, caches = forward_through(self.layers, x, p, run)
        return x + h, caches

    def backward(self, dy: Array, cache: list[Any], p: Tensors) -> tuple[Array, dict[str, Array]]:
        dh, grads = backward_through(self.layers, dy, cache, p)
        return dy + dh, grads


def through(fn: ActivationFunction, x: Moments) -> tuple[Moments | None, float | None]:
    """Return the moments after an activation, and E f′².

    The input is z ~ N(m, q − m²), and its values on two rows have covariance c − m².
    """
    variance = x.q - x.m**2
    if not (math.isfinite(x.q) and variance > 0):
        return None, None
    t, w = _nodes()
    if x.m == 0:
        q, slope = properties.second_moment(fn, x.q), properties.slope_moment(fn, x.q)
    else:
        z = x.m + math.sqrt(variance) * t
        q, slope = float((w * fn.f(z) ** 2).sum()), float((w * fn.df(z) ** 2).sum())
    r = min(1.0, max(0.0, (x.c - x.m**2) / variance))
    # z on two rows is √r · shared + √(1 − r) · independent, so E f f is the mean of (E[f | shared])².
    shared = x.m + math.sqrt(variance * r) * t
    given = (fn.f(shared[:, None] + math.sqrt(variance * (1 - r)) * t) * w).sum(1)
    m, c = float((w * given).sum()), float((w * given**2).sum())
    if not all(map(math.isfinite, (q, m, c))):
        return None, None
    return Moments(q, c, m), slope if math.isfinite(slope) else None


@functools.cache
def _nodes() -> tuple[Array, Array]:
    """Return nodes and weights for the mean over N(0, 1). They are computed at first use, since the import is slow.

    Kinks cause a small error, which does not matter: the prediction holds only for large widths.
    """
    t, w = np.polynomial.legendre.leggauss(120)
    return 8 * t, 8 * w * np.exp(-0.5 * (8 * t) ** 2) / math.sqrt(2 * math.pi)
