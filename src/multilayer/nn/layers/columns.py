"""Numeric and categorical inputs: their description `Inputs`, and the layer `Columns` that encodes them as one vector.

Numeric features, with different weights for each feature f (F features, K values inside, D outputs):
    none        x
    plr         relu(W_f [cos v, sin v] + b_f),  v = 2π c_f x          Gorishniy et al. 2022
    pbld        [x, W_f cos(2π w_f x + b′_f) + b_f]                    Holzmüller et al. 2024
    piecewise   W_f e_f(x) + b_f,  e_t = clip((x − edge_t)/(edge_{t+1} − edge_t), 0, 1), open at both ends
Categories with n known values. Code 0 means missing or unknown:
    one-hot     n columns (for n = 2 one column of −1 and +1); all are 0 for code 0
    embedding   row `code` of a table (n + 1, d_category)
    auto        one-hot up to `max_one_hot` values, otherwise embedding

The bin edges are a buffer, computed from the training rows. They are not part of the spec.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import KW_ONLY, dataclass, replace
from typing import Any, ClassVar, Literal

import numpy as np

from ...core.counts import named
from ...errors import DataError, SpecError, unknown_name
from ..activations.function import Kept
from .base import (
    Array,
    Backward,
    Draw,
    EvenlySpaced,
    Flops,
    Forward,
    Layer,
    Parameter,
    Pass,
    Tensors,
    Timed,
    require_number,
    store_whole,
    timed_width,
    whole,
)


@dataclass(frozen=True)
class Inputs:
    """Describe the inputs of a network: numeric features, then categorical columns.

    Parameters
    ----------
    numeric : int
        Number of numeric features.
    categories : tuple of int
        Number of known values of each categorical column. A row has the code 1 to n for a known value, and 0 for a
        missing or unknown one.

    Raises
    ------
    SpecError
        If there are no inputs, or a number is invalid.

    Examples
    --------
    >>> inputs = Inputs(numeric=13, categories=(3, 12))
    >>> inputs.count
    15
    """

    numeric: int = 0
    categories: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "numeric", whole("inputs", self.numeric, least=0))
        if not isinstance(self.categories, Iterable):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise SpecError(f"categories must be one number for each column, got {self.categories!r}: write (3, 12)")
        object.__setattr__(self, "categories", tuple(whole("categories", n) for n in self.categories))
        if not self.numeric and not self.categories:
            raise SpecError("a network needs at least one input, got none")

    @staticmethod
    def of(inputs: int | Inputs) -> Inputs:
        """Return `Inputs` for a number of numeric features."""
        if isinstance(inputs, Inputs):
            return inputs
        return Inputs(numeric=whole("inputs", inputs))

    @property
    def count(self) -> int:
        """Number of features per row."""
        return self.numeric + len(self.categories)


TIMED_FEATURES = 16
"""Number of features of the layer that is timed when an engine is calibrated."""
MAX_TIMED_CATEGORIES = 64
"""Largest number of category values of that layer."""

Numeric = Literal["none", "plr", "pbld", "piecewise"]
Categories = Literal["auto", "one-hot", "embedding"]

DEFAULTS: dict[str, tuple[int, int, float | None]] = {
    # d_numeric, n (frequencies or bins), sigma of the frequencies
    "plr": (24, 48, 0.01),
    "pbld": (4, 16, 0.1),
    "piecewise": (16, 48, None),
}


@dataclass(frozen=True)
class Columns(Layer):
    """Encode numeric features and categorical codes as one vector: (B, F) and (B, C) → (B, O).

    It must be the first layer. Networks with categorical inputs need one. The formulas are in the module's docstring.

    Parameters
    ----------
    numeric : {"none", "plr", "pbld", "piecewise"}
        Embedding of numeric features. ``"none"`` uses the values themselves.
    d_numeric : int or None
        Outputs per numeric feature. The default depends on `numeric`.
    n : int or None
        Number of frequencies or bins per feature. The default depends on `numeric`.
    sigma : float or None
        Standard deviation of the initial frequencies. The default depends on `numeric`.
    categories : {"auto", "one-hot", "embedding"}
        Encoding of categories. ``"auto"`` uses one-hot for up to `max_one_hot` values.
    d_category : int
        Width of a category embedding.
    max_one_hot : int
        Largest number of values that ``"auto"`` encodes as one-hot.

    Raises
    ------
    SpecError
        If an option is invalid, or has no meaning with `numeric`.

    Examples
    --------
    >>> from multilayer.nn.layers import Inputs
    >>> Columns().width(Inputs(numeric=2, categories=(3, 40)))
    13
    """

    kind: ClassVar[str] = "columns"
    letters: ClassVar[Mapping[str, str]] = {
        "F": "numeric inputs",
        "D": "outputs of the inner linear map of columns",
        "E": "numbers read from embedding tables",
    }
    mixes: ClassVar[bool] = True
    numeric: Numeric = "none"
    _: KW_ONLY
    d_numeric: int | None = None
    n: int | None = None
    sigma: float | None = None
    categories: Categories = "auto"
    d_category: int = 8
    max_one_hot: int = 8

    def __post_init__(self) -> None:
        kinds = ("none", *DEFAULTS)
        if self.numeric not in kinds:
            raise SpecError(unknown_name("numeric embedding", self.numeric, kinds))
        if self.categories not in ("auto", "one-hot", "embedding"):
            raise SpecError(unknown_name("category encoding", self.categories, ("auto", "one-hot", "embedding")))
        defaults = DEFAULTS.get(self.numeric, (None, None, None))
        for name, default in zip(("d_numeric", "n", "sigma"), defaults, strict=True):
            given = getattr(self, name)
            if given is not None and default is None:
                raise SpecError(f"{name} has no meaning with numeric={self.numeric!r}, got {given!r}")
            object.__setattr__(self, name, default if given is None else given)
        if self.numeric != "none":
            store_whole(self, d_numeric="d_numeric", n="n")
        if self.numeric == "pbld" and self.d_numeric == 1:
            raise SpecError("d_numeric must be at least 2 with pbld (one output is the value itself), got 1")
        if self.sigma is not None:
            object.__setattr__(self, "sigma", require_number("sigma", self.sigma, positive=True))
        store_whole(self, d_category="d_category")
        object.__setattr__(self, "max_one_hot", whole("max_one_hot", self.max_one_hot, least=0))

    # Shapes

    def one_hot(self, n: int) -> bool:
        """Return whether a column with n known values is encoded as one-hot."""
        return self.categories == "one-hot" or (self.categories == "auto" and n <= self.max_one_hot)

    def category_widths(self, inputs: Inputs) -> tuple[int, ...]:
        """Return the number of outputs of each categorical column."""
        return tuple((1 if n == 2 else n) if self.one_hot(n) else self.d_category for n in inputs.categories)

    def embedded(self, inputs: Inputs) -> Iterator[tuple[int, int]]:
        """Yield position and number of known values of each categorical column with an embedding."""
        return ((i, n) for i, n in enumerate(inputs.categories) if not self.one_hot(n))

    @property
    def inner(self) -> tuple[int, int]:
        """K and D: inputs and outputs of the matrix product of each feature."""
        n, d = self.n or 0, self.d_numeric or 0
        return {"plr": (2 * n, d), "pbld": (n, d - 1), "piecewise": (n, d)}.get(self.numeric, (0, 0))

    def width(self, d: int | Inputs) -> int:
        inputs = Inputs.of(d)
        return inputs.numeric * (self.d_numeric or 1) + sum(self.category_widths(inputs))

    def widest(self, d: int | Inputs) -> int:
        return max(self.width(d), Inputs.of(d).numeric * max(self.inner))

    def parameters(self, d: int | Inputs) -> tuple[Parameter, ...]:
        inputs = Inputs.of(d)
        F, (K, D), n = inputs.numeric, self.inner, self.n or 0
        found: list[Parameter] = []
        if F and self.numeric != "none":
            bound = Draw("uniform", 1 / math.sqrt(K))
            if self.sigma is not None:
                found.append(
                    Parameter(name="frequency", shape=(F, n), role="frequency", value=Draw("normal", self.sigma))
                )
            if self.numeric == "pbld":
                found.append(Parameter(name="phase", shape=(F, n), role="frequency", value=Draw("uniform", math.pi)))
            found += [
                Parameter(name="weight", shape=(F, K, D), role="embedding", fan_in=K, fan_out=D, value=bound),
                Parameter(name="bias", shape=(F, D), role="bias", fan_in=K, fan_out=D, value=bound),
            ]
        for i, values in self.embedded(inputs):
            shape = (values + 1, self.d_category)
            found.append(Parameter(name=f"table{i + 1}", shape=shape, role="embedding", value=Draw("normal", 1.0)))
        return tuple(found)

    def buffers(self, d: int | Inputs) -> tuple[Parameter, ...]:
        inputs = Inputs.of(d)
        if self.numeric != "piecewise" or not inputs.numeric:
            return ()
        shape = (inputs.numeric, (self.n or 0) + 1)
        return (Parameter(name="edges", shape=shape, role="statistic", value=EvenlySpaced(3.0)),)

    # Cost

    def cost(self, d: int | Inputs, batch: int, *, input_gradient: bool = True) -> Flops:
        inputs = Inputs.of(d)
        tables = sum(1 for _ in self.embedded(inputs))
        B, F, n, E = named(B=batch, F=inputs.numeric, n=self.n or 0, E=tables * self.d_category)
        K, D = named(K=self.inner[0], D=self.inner[1])
        scatter = B * E if tables else 0  # a lookup costs nothing; its gradient is one sum per value
        if self.numeric == "none" or not inputs.numeric:
            return Flops(backward=Backward(other=scatter))
        product = 2 * B * F * K * D
        # Per frequency: 2π, × c, cos, sin; back: slopes of both 4, their sum, × x, Σ, × 2π. pbld: × 2πw, + b, cos;
        # back: sin, sign, × δ, × x, Σ dw, Σ db. Per bin: −, ×, min, max; no gradient goes through an encoding.
        here, back = {"plr": (4 * B * F * n, 8 * B * F * n), "pbld": (4 * B * F * n, 6 * B * F * n)}.get(
            self.numeric, (4 * B * F * n, 0)
        )
        relu = B * F * D if self.numeric == "plr" else 0
        return Flops(
            forward=Forward(matmul=product, bias=B * F * D, activation=relu, other=here),
            backward=Backward(
                dW=product,
                db=B * F * D,
                dA=0 if self.numeric == "piecewise" else product,
                activation=2 * relu if relu else 0,
                other=back + scatter,
            ),
        )

    def kept(self, d: int | Inputs, *, input_gradient: bool = True) -> Kept:
        F, (K, D), n = Inputs.of(d).numeric, self.inner, self.n or 0
        if not F:
            return Kept()
        return {
            "none": Kept(),
            "plr": Kept(input=True, per_row=F * (n + K + D)),  # v, cos v and sin v, output of relu
            "pbld": Kept(input=True, per_row=F * (n + K)),
            "piecewise": Kept(per_row=F * K),
        }[self.numeric]

    def timed(self, d: int | Inputs) -> tuple[Timed, ...]:
        """Return a layer for the numeric features, and one for each categorical column."""
        inputs, found = Inputs.of(d), list[Timed]()
        if inputs.numeric and self.numeric != "none":
            features = timed_width(TIMED_FEATURES, max(self.inner))
            plain = replace(self, categories="auto")
            found.append(Timed(layer=plain, d=features, standard=features, numbers=inputs.numeric))
        for n in inputs.categories:
            codes = Columns(categories="one-hot" if self.one_hot(n) else "embedding", d_category=self.d_category)
            found.append(
                Timed(layer=codes, d=Inputs(categories=(min(n, MAX_TIMED_CATEGORIES),)), standard=1, numbers=1)
            )
        return tuple(found)

    def fused_widths(self, d: int | Inputs, *, learning: bool) -> tuple[int, ...]:
        F, (K, D) = Inputs.of(d).numeric, self.inner
        slopes = {"plr": K + D, "pbld": K}.get(self.numeric, 0)
        return self.width(d), F * K, F * slopes

    def looped_widths(self, d: int | Inputs) -> tuple[int, ...]:
        return self.width(d), Inputs.of(d).numeric * (self.inner[0] + (self.n or 0))

    # Numpy

    def forward(self, x: Array | tuple[Array, Any], p: Tensors, run: Pass) -> tuple[Array, Any]:
        numbers, codes = x if isinstance(x, tuple) else (x, np.zeros((len(x), 0), dtype=np.int64))
        pieces: list[Array] = []
        cache: dict[str, Any] = {"x": numbers, "codes": codes, "numeric": 0}
        if numbers.shape[1]:
            pieces.append(self._embed(numbers, p, cache))
            cache["numeric"] = pieces[0].shape[1]
        for i, n in enumerate(run.categories):
            column = codes[:, i]
            for row in np.flatnonzero(~((column >= 0) & (column <= n)))[:1]:
                raise DataError(code_refused(i, n, column[row].item(), int(row)))
            pieces.append(one_hot(column, n) if self.one_hot(n) else p[f"table{i + 1}"][column])
        cache["widths"] = [piece.shape[1] for piece in pieces]
        return np.concatenate(pieces, axis=1), cache

    def _embed(self, x: Array, p: Tensors, cache: dict[str, Any]) -> Array:
        if self.numeric == "none":
            return x
        if self.numeric == "piecewise":
            inside = piecewise(x, p["edges"])
        elif self.numeric == "plr":
            cache["v"] = v = 2 * np.pi * x[..., None] * p["frequency"]  # (B, F, n)
            inside = np.concatenate([np.cos(v), np.sin(v)], -1)  # (B, F, K)
        else:
            cache["v"] = v = 2 * np.pi * x[..., None] * p["frequency"] + p["phase"]
            inside = np.cos(v)
        cache["inside"] = inside
        z = np.einsum("bfk,fkd->bfd", inside, p["weight"]) + p["bias"]  # (B, F, D)
        if self.numeric == "plr":
            cache["open"] = z > 0
            z = np.where(z > 0, z, 0)
        elif self.numeric == "pbld":
            z = np.concatenate([x[..., None], z], -1)
        return z.reshape(len(x), z.shape[1] * z.shape[2])

    def backward(self, dy: Array, cache: Any, p: Tensors) -> tuple[Array, dict[str, Array]]:
        """Return the gradients of the parameters. ∂L/∂x is zeros: no layer comes before."""
        x, codes = cache["x"], cache["codes"]
        grads: dict[str, Array] = {}
        cuts = np.cumsum(cache["widths"])[:-1]
        pieces = np.split(dy, cuts, axis=1)
        if cache["numeric"]:
            dnumeric = pieces.pop(0)
            if self.numeric != "none":
                grads |= self._embed_backward(dnumeric.reshape(len(x), x.shape[1], self.d_numeric or 0), cache, p)
        for i, piece in enumerate(pieces):
            if f"table{i + 1}" in p:
                table = np.zeros_like(p[f"table{i + 1}"])
                np.add.at(table, codes[:, i], piece)
                grads[f"table{i + 1}"] = table
        return np.zeros_like(x), grads

    def _embed_backward(self, dz: Array, cache: dict[str, Any], p: Tensors) -> dict[str, Array]:
        if self.numeric == "plr":
            dz = dz * cache["open"]
        elif self.numeric == "pbld":
            dz = dz[..., 1:]
        grads = {"weight": np.einsum("bfk,bfd->fkd", cache["inside"], dz), "bias": dz.sum(0)}
        if self.numeric == "piecewise":
            return grads
        dinside = np.einsum("bfd,fkd->bfk", dz, p["weight"])
        v, x = cache["v"], cache["x"]
        if self.numeric == "plr":
            dcos, dsin = np.split(dinside, 2, axis=-1)
            dv = dsin * np.cos(v) - dcos * np.sin(v)  # (B, F, n)
        else:
            dv = -dinside * np.sin(v)
            grads["phase"] = dv.sum(0)
        grads["frequency"] = 2 * np.pi * (dv * x[..., None]).sum(0)
        return grads


def code_refused(column: int, n: int, code: float, row: int) -> str:
    """Return the error message for an invalid code, such as −1, which pandas uses for missing values."""
    return (
        f"category column {column} must hold whole numbers from 0 (missing or unknown) to {n}, "
        f"got {code} in row {row} of the batch: use codes from 1 for values, and 0 for missing or new ones"
    )


def one_hot(codes: Any, n: int) -> Array:
    """Encode codes 0 to n as n columns, or as one column of ±1 for n = 2. Code 0 gives zeros. (B,) → (B, n)."""
    table = np.array([[0.0], [-1.0], [1.0]]) if n == 2 else np.eye(n + 1)[:, 1:]
    return table[codes]


def piecewise(x: Array, edges: Array) -> Array:
    """Return the position of x in each bin: 0 below, 1 above. The outer bins are unbounded. (B, F) → (B, F, n)."""
    low, high = edges[:, :-1], edges[:, 1:]
    t = (x[..., None] - low) / (high - low)
    lower, upper = np.zeros(t.shape[-1]), np.ones(t.shape[-1])
    lower[0], upper[-1] = -np.inf, np.inf
    return np.clip(t, lower, upper)
