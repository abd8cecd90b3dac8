"""Ready-made networks, and the exact effect of the simplest ones.

mlp, linear, neuron, residual_mlp, feed_forward_block    return a `Spec`
collapse       the single linear map of a network without activations
hyperplane     the plane on which the pre-activation of a neuron is 0
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields
from typing import Any, TypeVar, cast

import numpy as np
from numpy.typing import ArrayLike

from ..errors import SpecError
from ..nn.layers import (
    GLU,
    KINDS,
    Activation,
    Columns,
    Dropout,
    Inputs,
    Layer,
    Linear,
    Residual,
    Scale,
    named,
)
from ..nn.layers.base import MAX_LAYERS, Array, whole
from .spec import Spec

T = TypeVar("T")

NORMS = {
    kind: layer
    for kind, layer in KINDS.items()
    if layer.normalises and all(field.default is not MISSING for field in fields(cast(Any, layer)))
}
"""The norms without required options."""

HIDDEN = (256, 128)
"""Default widths of the hidden layers."""


def mlp(
    d_in: int | Inputs,
    hidden: Sequence[int] = HIDDEN,
    d_out: int = 1,
    *,
    activation: str | Activation | Sequence[str | Activation] = "relu",
    output: str | Activation | None = None,
    dropout: float = 0.0,
    norm: str | None = None,
    bias: bool = True,
) -> Spec:
    """Describe a multilayer perceptron.

    Each hidden layer is a linear map, followed by the norm, the activation and dropout.

    Parameters
    ----------
    d_in : int or Inputs
        Number of inputs. Categorical inputs get a `Columns` layer.
    hidden : sequence of int
        Widths of the hidden layers. Empty for a linear model.
    d_out : int
        Number of outputs.
    activation : str, Activation or sequence of these
        Activation of all hidden layers, or one for each.
    output : str, Activation or None
        Activation of the outputs. By default outputs are raw, as the losses expect them.
    dropout : float
        Fraction of the units of each hidden layer that dropout sets to zero.
    norm : str or None
        Norm of each hidden layer: ``"batchnorm"``, ``"layernorm"`` or ``"rmsnorm"``.
    bias : bool
        Whether linear layers have a bias.

    Returns
    -------
    Spec
        The network.

    Raises
    ------
    SpecError
        If an option is invalid.

    Examples
    --------
    >>> mlp(784, [256, 128], 10).n_parameters
    235146
    >>> mlp(2, [8], 1, activation="tanh", dropout=0.1)
    Spec('2-8:tanh:dropout(0.1)-1')
    """
    example = f"write [{hidden}]" if isinstance(hidden, int) else f"write {list(HIDDEN)}"
    hidden = _several("hidden", hidden, "a sequence of widths", example)
    if isinstance(activation, str | Activation):
        choices: tuple[str | Activation, ...] = (activation,) * len(hidden)
    else:
        choices = _several("activation", activation, "a name, or one for each hidden layer", "write 'relu'")
    if len(choices) != len(hidden):
        raise SpecError(
            f"activation must be one name, or one for each of {len(hidden)} hidden layers, got {len(choices)}"
        )
    if norm is not None:
        _require_norm(norm)
    layers: list[Layer] = []
    inputs = Inputs.of(d_in)
    if inputs.categories:
        layers.append(Columns())
    for i, (width, chosen) in enumerate(zip(hidden, choices, strict=True)):
        try:
            layers.append(Linear(width, bias=bias))
        except SpecError:
            raise SpecError(f"width must be a whole number of at least 1, got hidden[{i}]={width!r}") from None
        layers += [NORMS[norm]()] if norm else []
        layers += _activation(chosen)
        layers += [Dropout(dropout)] if dropout else []
    layers.append(Linear(d_out, bias=bias))
    layers += _activation(output)
    return Spec(inputs, layers)


def _activation(chosen: str | Activation | None) -> list[Layer]:
    if chosen is None:
        return []
    layer = chosen if isinstance(chosen, Activation) else Activation(chosen)
    return [] if layer.passes_through else [layer]


def _several(name: str, values: Iterable[T], what: str, remedy: str) -> tuple[T, ...]:
    if isinstance(values, str) or not isinstance(values, Iterable):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise SpecError(f"{name} must be {what}, got {values!r}: {remedy}")
    return tuple(values)


def _require_norm(norm: str) -> None:
    if norm not in tuple(NORMS):
        raise SpecError(f"norm must be one of {', '.join(NORMS)}, got {norm!r}")


def linear(d_in: int | Inputs, d_out: int = 1) -> Spec:
    """Describe a network without hidden layers.

    The loss determines the model: linear regression with ``"mse"``, logistic regression with
    ``"binary_cross_entropy"``, softmax regression with ``"cross_entropy"``.

    Parameters
    ----------
    d_in : int or Inputs
        Number of inputs.
    d_out : int
        Number of outputs.

    Returns
    -------
    Spec
        The network.

    Raises
    ------
    SpecError
        If a number of inputs or outputs is not a whole number of at least 1.

    Examples
    --------
    >>> linear(4, 3)
    Spec('4-3')
    """
    return mlp(d_in, (), d_out)


def neuron(d_in: int, *, activation: str = "step") -> Spec:
    """Describe a network with a single unit.

    With the activation ``"step"`` it is the perceptron, which `ml.fit` trains by the perceptron rule
    (docs/explanation/training.md).

    Parameters
    ----------
    d_in : int
        Number of inputs.
    activation : str
        Activation of the unit.

    Returns
    -------
    Spec
        The network, such as ``7-1:step``.

    Raises
    ------
    SpecError
        If the activation is unknown, or `d_in` is not a whole number of at least 1.

    Examples
    --------
    >>> neuron(7).n_parameters
    8
    """
    return mlp(d_in, (), 1, output=activation)


def residual_mlp(
    d_in: int | Inputs,
    d_out: int,
    *,
    hidden: int = 384,
    blocks: int = 6,
    expansion: int = 4,
    activation: str = "gelu",
    dropout: float = 0.1,
    norm: str = "layernorm",
) -> Spec:
    """Describe a residual network with pre-normalization.

    The network consists of a linear map to the hidden width, blocks x + f(norm(x)), and a linear output layer. f is a
    `feed_forward_block`.

    Parameters
    ----------
    d_in : int or Inputs
        Number of inputs.
    d_out : int
        Number of outputs.
    hidden : int
        Width between the blocks.
    blocks : int
        Number of residual blocks.
    expansion : int
        Width inside a block, as a multiple of `hidden`.
    activation : str
        Activation inside the blocks.
    dropout : float
        Dropout inside the blocks.
    norm : str
        Norm at the start of each block: ``"batchnorm"``, ``"layernorm"`` or ``"rmsnorm"``.

    Returns
    -------
    Spec
        The network.

    Raises
    ------
    SpecError
        If an option is invalid.

    Examples
    --------
    >>> residual_mlp(20, 10).n_parameters
    7105930
    """
    _require_norm(norm)
    blocks = whole("blocks", blocks, least=0, most=MAX_LAYERS)
    inner = feed_forward_block(hidden, expansion=expansion, activation=activation, dropout=dropout).layers
    columns = [Columns()] if Inputs.of(d_in).categories else []
    block = Residual((NORMS[norm](), *inner))
    return Spec(d_in, [*columns, Linear(hidden), *[block] * blocks, Linear(d_out)])


def feed_forward_block(
    d: int, *, expansion: int = 4, activation: str = "gelu", dropout: float = 0.0, gate: str | None = None
) -> Spec:
    """Describe the feed-forward block of a transformer: d → expansion·d → d.

    Parameters
    ----------
    d : int
        Number of inputs and outputs.
    expansion : int
        Inner width, as a multiple of `d`.
    activation : str
        Activation of the inner layer. Not used with `gate`.
    dropout : float
        Dropout after the inner layer.
    gate : str or None
        Gated inner layer instead of the activation: ``"glu"``, ``"reglu"``, ``"geglu"`` or ``"swiglu"``.

    Returns
    -------
    Spec
        The network.

    Raises
    ------
    SpecError
        If an option is invalid.

    Examples
    --------
    >>> feed_forward_block(768).n_parameters
    4722432
    >>> feed_forward_block(8, gate="swiglu", expansion=2)
    Spec('8-swiglu(16)-8')
    """
    d = whole("d", d)
    wide = whole("expansion", expansion) * d
    first = [Linear(wide), *_activation(activation)] if gate is None else [GLU(wide, gate)]
    return Spec(d, [*first, *([Dropout(dropout)] if dropout else []), Linear(d)])


def collapse(spec: Spec | str, weights: Mapping[str, Any]) -> tuple[Array, Array]:
    """Combine the layers of a network without activations into one linear map.

    The outputs of the network equal x Wᵀ + b up to rounding. Dropout has no effect, as at prediction.

    Parameters
    ----------
    spec : Spec or str
        A network of linear, scale, dropout and residual layers.
    weights : mapping of str to array or torch.Tensor
        Tensors by name, such as a state_dict.

    Returns
    -------
    W : ndarray of shape (d_out, d_in)
        Weights of the linear map.
    b : ndarray of shape (d_out,)
        Bias of the linear map.

    Raises
    ------
    SpecError
        If a layer is not linear, or a tensor is missing or has the wrong shape.

    Examples
    --------
    >>> from multilayer.spec.initialization import initialise
    >>> W, b = collapse("3-8:none-2", initialise(Spec.parse("3-8:none-2")))
    >>> W.shape, b.shape
    ((2, 3), (2,))
    """
    spec = Spec.of(spec)
    if spec.inputs.categories or isinstance(spec.layers[0], Columns):
        raise SpecError("collapse needs plain numeric inputs, got a columns layer")
    values = {name: _weight(weights, stored, spec) for name, stored in spec.tensor_names.items()}
    return _collapse(spec.layers, spec.inputs.numeric, values, "")


def _weight(weights: Mapping[str, Any], name: str, spec: Spec) -> Array:
    if name not in weights:
        raise SpecError(f"weights must hold {name} for {spec}, got {', '.join(weights) or 'none'}")
    value = weights[name]
    if hasattr(value, "detach"):  # a torch tensor, perhaps on another device or in bfloat16
        value = value.detach().cpu().double()
    found = np.asarray(value, dtype=np.float64)
    expected = spec.parameters[name].shape
    if found.shape != expected:
        raise SpecError(f"{name} must have the shape {expected} for {spec}, got {found.shape}")
    return found


def _collapse(layers: Sequence[Layer], d: int, values: Mapping[str, Array], prefix: str) -> tuple[Array, Array]:
    W: Array
    W, b = np.eye(d), np.zeros(d)
    for name, layer in named(layers):
        path = f"{prefix}{name}"
        if isinstance(layer, Linear):
            step = layer.factor(len(b)) * values[f"{path}.weight"]
            W, b = step @ W, step @ b + (values[f"{path}.bias"] if layer.bias else 0)
        elif isinstance(layer, Scale):
            s = values[f"{path}.scale"]
            W, b = s[:, None] * W, s * b
        elif isinstance(layer, Residual):
            inner, shift = _collapse(layer.layers, len(b), values, f"{path}.")
            W, b = W + inner @ W, b + inner @ b + shift
        elif not isinstance(layer, Dropout) and not layer.passes_through:
            linear_kinds = ", ".join(sorted(k for k in KINDS if k in ("linear", "scale", "residual", "dropout")))
            raise SpecError(f"only layers without an activation collapse ({linear_kinds}), got {path}")
    return W, b


@dataclass(frozen=True)
class Hyperplane:
    """The plane w·x + b = 0, where the pre-activation of a neuron changes sign."""

    normal: Array
    """Unit vector at right angles to the plane: w/‖w‖."""
    offset: float
    """Signed distance of the plane from the origin along the normal: −b/‖w‖."""


def hyperplane(w: ArrayLike, b: float) -> Hyperplane:
    """Return the plane on which the pre-activation w·x + b of a neuron is 0.

    Parameters
    ----------
    w : array-like of shape (d_in,)
        Weights of the neuron.
    b : float
        Bias of the neuron.

    Returns
    -------
    Hyperplane
        The unit normal and the distance from the origin.

    Raises
    ------
    SpecError
        If all weights are 0.

    Examples
    --------
    >>> hyperplane([3.0, 4.0], -10.0).offset
    2.0
    """
    vector: Any = np.asarray(w, dtype=np.float64).ravel()
    length = float(np.linalg.norm(vector))
    if length == 0:
        raise SpecError("a neuron with all weights 0 has no plane: its pre-activation is the same everywhere")
    return Hyperplane(vector / length, -float(b) / length)
