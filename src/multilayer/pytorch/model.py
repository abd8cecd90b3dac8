"""Convert a spec to an `nn.Module`, and an `nn.Sequential` to a spec with weights.

`Model` has one submodule per layer, with the name of the layer. Its state_dict has the names of `Spec.parameters` and
`Spec.buffers`. It works with every optimizer, DataLoader, torch.compile and DDP, can be part of another module, and
operates on the last axis of inputs of any rank.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor, nn

from ..core.formatting import count
from ..core.machine import require_memory
from ..errors import DataError, SpecError
from ..nn import layers as L
from ..nn.activations import ActivationFunction, catalogue
from ..nn.activations import get as get_activation
from ..nn.layers.columns import code_refused
from ..spec import Spec
from ..spec.initialization import initialise
from . import layers as twins

SOFTPLUS_EXACT = 40.0
"""Threshold above which torch's softplus returns z. From 40 on, z equals log(1 + e^z) in float64."""


class Model(nn.Module):
    """A network as a torch module. Create it with `build` or `from_torch`.

    Shape:
        x (..., numeric inputs) and, for categorical inputs, codes (..., categorical columns) → (..., d_out)

    Attributes
    ----------
    spec : Spec
        The description of the network.
    """

    def __init__(self, spec: Spec) -> None:
        super().__init__()
        self.spec = spec
        d: Any = spec.inputs if spec.inputs.categories else spec.inputs.numeric
        names: list[str] = []
        for name, twin in twins.twins(spec.layers, d):
            self.add_module(name, twin)
            names.append(name)
        self._order = tuple(names)
        self._share()

    def _share(self) -> None:
        homes: dict[str, nn.Module] = {}
        for entry in self.spec.entries:
            if not isinstance(entry.layer, L.Activation) or entry.layer.per != "network":
                continue
            parameters = tuple(p for p in entry.layer.parameters(entry.d_out) if p.shared)
            stored = self.spec.tensor_names[f"{entry.name}.{parameters[0].name}"].split(".")[1]
            if stored not in homes:
                homes[stored] = twins.Shared(parameters)
            cast(twins.Activation, self.get_submodule(entry.name)).share(homes[stored])
        if homes:
            self.add_module("shared", nn.ModuleDict(homes))

    def forward(self, x: Tensor, codes: Tensor | None = None) -> Tensor:
        first, *rest = self._order
        modules = cast("dict[str, nn.Module]", self._modules)  # much faster than get_submodule
        # Tensors have no values while a graph is traced.
        check = not (torch.compiler.is_compiling() or cast(Any, torch.jit).is_tracing())
        numeric = self.spec.inputs.numeric
        if check and numeric and x.shape[-1:] != (numeric,):
            raise DataError(
                f"x must have {numeric} numbers per row, as the inputs of the network, got shape {tuple(x.shape)}"
            )
        if codes is not None or self.spec.inputs.categories:
            if codes is None:
                n = count(len(self.spec.inputs.categories), "categorical column")
                raise SpecError(f"this network takes {n}, got no codes: call model(x, codes)")
            if not self.spec.inputs.categories:
                raise SpecError("this network takes no categorical columns, got codes: call model(x)")
            if check and not codes.is_meta:
                _check_codes(codes, self.spec.inputs.categories)
            x = modules[first](x, codes)
        else:
            x = modules[first](x)
        for name in rest:
            x = modules[name](x)
        return x

    def extra_repr(self) -> str:
        return f"{self.spec}  # {self.spec.n_parameters:,} parameters"


def build(
    spec: Spec | str,
    seed: int = 0,
    *,
    init: str = "auto",
    dtype: torch.dtype = torch.float32,
    device: torch.device | str | None = None,
) -> Model:
    """Build a new, untrained network from its description.

    Parameters
    ----------
    spec : Spec or str
        The network, such as ``"784-256-128-10"``. For a trained model with its weights, use `to_torch`.
    seed : int
        Seed of the initial weights.
    init : str
        Initialization scheme. ``"auto"`` chooses it by the activations.
    dtype, device
        Data type and device of the parameters, as in PyTorch.

    Returns
    -------
    Model
        An ordinary `torch.nn.Module`.

    Raises
    ------
    SpecError
        If `spec` is invalid, or is a trained model, a run, an estimator or a torch module.

    Examples
    --------
    >>> model = build("784-256-128-10", seed=0)
    >>> sum(p.numel() for p in model.parameters())
    235146
    """
    if not isinstance(spec, Spec | str):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise SpecError(_not_a_spec(spec))
    spec = Spec.of(spec)
    require_memory(16 * spec.n_stored, f"a network of {spec.n_parameters:,} parameters with their initial values")
    model = Model(spec)
    fill(model, initialise(model.spec, init, seed=seed))
    return model.to(device=device, dtype=dtype)


def _not_a_spec(given: Any) -> str:
    """Return the error message that says what to call instead of `build`, which would discard trained weights."""
    kind = type(given).__name__
    if isinstance(given, Model):
        remedy = "it is built already; ml.build(model.spec) makes a new, untrained network"
    elif isinstance(given, nn.Module):
        remedy = "ml.from_torch(module) reads an nn.Sequential with its weights"
    elif hasattr(given, "to_torch") or hasattr(getattr(given, "model", None), "to_torch"):
        remedy = "ml.to_torch(model) converts a trained model to a torch module with its weights"
    else:
        return f"ml.build needs a Spec or a string such as '784-256-10', got {given!r}"
    return f"ml.build makes an untrained network from a Spec or a string, got a {kind}: {remedy}"


def fill(model: nn.Module, values: Mapping[str, Any]) -> None:
    """Copy numpy values into a model by name. The names of both must be equal.

    The model is cast to float64 first, so that values are rounded only once, when the caller casts it to another dtype.
    """
    model.double()
    tensors = model.state_dict()
    assert tensors.keys() == values.keys(), sorted(tensors.keys() ^ values.keys())
    with torch.no_grad():
        # One by one: load_state_dict looks through all names for every module, which takes seconds for 2,000 layers.
        for name, target in tensors.items():
            value = torch.from_numpy(np.array(values[name]))
            assert value.shape == target.shape, (name, value.shape, target.shape)
            target.copy_(value)


def _check_codes(codes: Tensor, categories: tuple[int, ...]) -> None:
    if codes.shape[-1:] != (len(categories),):
        raise DataError(
            f"codes must have one column per categorical column ({len(categories)}), got shape {tuple(codes.shape)}"
        )
    flat = codes.reshape(-1, len(categories))
    fits = (flat >= 0) & (flat <= torch.tensor(categories, device=codes.device))
    if not fits.all():
        row, column = (~fits).nonzero()[0].tolist()
        raise DataError(code_refused(column, categories[column], flat[row, column].item(), row))


def to_sequential(model: Model) -> nn.Sequential:
    """Copy a network into standard torch modules. A layer that torch does not have is an error."""
    found: list[nn.Module] = []
    for name, twin in model.named_children():
        if name != "shared":
            layer: L.Layer = cast(Any, twin).layer
            made = _TO_TORCH[type(layer)](twin) if layer.torch_module else _refuse(name, layer)
            for own, p in twin.named_parameters():
                made.get_parameter(_TORCH_NAMES.get(own, own)).requires_grad_(p.requires_grad)
            found.append(made.train(twin.training))
    whole = nn.Sequential(*found)
    whole.training = model.training  # not whole.train(), which would set the mode of the children too
    return whole


def from_torch(module: nn.Module) -> Model:
    """Convert an `nn.Sequential` to a `Model` with copies of its weights.

    Frozen parameters (`requires_grad=False`) stay frozen, and modules in evaluation mode stay in evaluation mode.

    Parameters
    ----------
    module : torch.nn.Sequential
        Linear layers, activations, norms and dropout, also in nested `nn.Sequential`.

    Returns
    -------
    Model
        A module that computes the same function. `Model.spec` is its description.

    Raises
    ------
    SpecError
        If a spec cannot describe a module exactly, or modules share weights.

    Examples
    --------
    >>> from_torch(nn.Sequential(nn.Linear(4, 3), nn.Tanh(), nn.Linear(3, 1))).spec
    Spec('4-3:tanh-1')
    """
    if not isinstance(module, nn.Module):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise SpecError(f"from_torch reads an nn.Sequential, got {module!r}")
    leaves = list(_leaves(module))
    _refuse_ties(leaves)
    pairs = [(layer, child) for child in leaves for layer in _described(child)]
    first = next((child for _, child in pairs if isinstance(child, nn.Linear)), None)
    width = _leading_width(pairs) if first is None else _leading_width(pairs) or first.in_features
    if not width:
        raise SpecError("from_torch needs at least one module with a width (nn.Linear or a norm), got none")
    model = Model(Spec(width, [layer for layer, _ in pairs])).to(_dtype(module))
    for entry, (_, child) in zip(model.spec.entries, pairs, strict=True):
        expected = _leading_width([(entry.layer, child)])
        if expected and expected != entry.width_in:
            raise SpecError(
                f"{entry.name} takes {expected} numbers, but the layer before it gives {entry.width_in}: {child}"
            )
    own = [twin for name, twin in model.named_children() if name != "shared"]
    with torch.no_grad():
        for twin, (_, child) in zip(own, pairs, strict=True):
            for name, target in (*twin.named_parameters(), *twin.named_buffers()):
                source = cast(Tensor, getattr(child, _TORCH_NAMES.get(name, name)))
                target.copy_(source.reshape(target.shape))
                target.requires_grad_(source.requires_grad)
            twin.train(child.training)
    model.training = module.training
    return model


_TORCH_NAMES = {"alpha": "weight"}
"""Names of parameters in torch, if they differ from ours."""


# To torch


def _linear(twin: Any) -> nn.Module:
    layer = twin.layer
    made = nn.Linear(twin.weight.shape[1], layer.d_out, bias=layer.bias, dtype=twin.weight.dtype)
    with torch.no_grad():
        made.weight.copy_(twin.weight * twin.factor)
        if layer.bias:
            made.bias.copy_(twin.bias)
    return made


def _with_state(made: nn.Module, twin: nn.Module) -> nn.Module:
    made.to(next(twin.parameters()).dtype)
    made.load_state_dict(twin.state_dict(), strict=False)
    return made


_OPTIONS: dict[str, Callable[[ActivationFunction], dict[str, Any]]] = {
    "leaky_relu": lambda fn: {"negative_slope": fn.constant("alpha")},
    "elu": lambda fn: {"alpha": fn.constant("alpha")},
    "softplus": lambda fn: {"threshold": SOFTPLUS_EXACT},
    "gelu_tanh": lambda fn: {"approximate": "tanh"},
    "softmax": lambda fn: {"dim": -1},
}
"""Arguments of the torch module of an activation. Modules that are not listed take none."""


def _prelu(twin: Any) -> nn.Module:
    made = nn.PReLU(twin.alpha.numel(), dtype=twin.alpha.dtype)
    with torch.no_grad():
        made.weight.copy_(twin.alpha.reshape(-1))
    return made


def _activation(twin: Any) -> nn.Module:
    layer: L.Activation = twin.layer
    if layer.name == "prelu":
        return _prelu(twin)
    fn, options = layer.function, _OPTIONS.get(layer.name)
    assert fn.torch_module is not None
    return getattr(nn, fn.torch_module)(**({} if options is None else options(fn)))


def _refuse(name: str, layer: L.Layer) -> nn.Module:
    if isinstance(layer, L.Activation) and layer.per == "network" and replace(layer, per="layer").torch_module:
        raise SpecError(
            f"torch has no activation with parameters shared by the whole network: use {layer.name}(per=layer)"
        )
    raise SpecError(f"torch has no module for {name} ({layer.label}): use the model itself, which is an nn.Module too")


_TO_TORCH: dict[type[L.Layer], Any] = {
    L.Linear: _linear,
    L.Activation: _activation,
    L.Dropout: lambda twin: nn.Dropout(twin.layer.p),
    L.LayerNorm: lambda twin: _with_state(nn.LayerNorm(twin.weight.shape[0], eps=twin.layer.eps), twin),
    L.RMSNorm: lambda twin: _with_state(nn.RMSNorm(twin.weight.shape[0], eps=twin.layer.eps), twin),
    L.GroupNorm: lambda twin: _with_state(
        nn.GroupNorm(twin.layer.groups, twin.weight.shape[0], eps=twin.layer.eps), twin
    ),
    L.BatchNorm: lambda twin: _with_state(
        nn.BatchNorm1d(twin.weight.shape[0], eps=twin.layer.eps, momentum=twin.layer.momentum), twin
    ),
}


# From torch


def _leaves(module: nn.Module) -> Iterator[nn.Module]:
    if isinstance(module, nn.Sequential):
        for child in module:
            yield from _leaves(child)
    else:
        yield module


def _refuse_ties(leaves: list[nn.Module]) -> None:
    """Raise an error for shared weights, whose copies would differ after training. Other modules may occur twice."""
    homes: dict[Tensor, tuple[int, nn.Module]] = {}
    for place, child in enumerate(leaves):
        for p in child.parameters():
            if p in homes:
                first, same = homes[p]
                what = f"{child} is used at both" if same is child else f"{same} and {child} have the same weights"
                raise SpecError(
                    f"from_torch needs separate weights for each module, but those at {first} and {place} are shared "
                    f"({what}): copy one of them, for example with copy.deepcopy"
                )
        homes |= {p: (place, child) for p in child.parameters()}


def _affine(child: Any) -> None:
    if child.weight is None or getattr(child, "bias", None) is None:
        raise SpecError(f"from_torch needs norms with weight and bias, got {child}: create the norm with both")


def _norm(child: Any, layer: L.Layer) -> L.Layer:
    _last_axis(child)
    _affine(child)
    if getattr(child, "track_running_stats", True) is False or getattr(child, "momentum", 0.1) is None:
        raise SpecError(
            f"from_torch needs running statistics with a momentum, got {child}: use the defaults of these two options"
        )
    return layer


def _last_axis(child: Any) -> None:
    if len(getattr(child, "normalized_shape", (0,))) != 1:
        raise SpecError(
            f"from_torch needs norms over the last axis only, got {child}: "
            "flatten the rows first, and use a norm with one dimension"
        )


def _flatten(child: nn.Module) -> L.Layer:
    raise SpecError(
        f"from_torch cannot describe {child}, because layers operate on the last axis and do not flatten their inputs: "
        "remove it from the Sequential and pass x.flatten(1)"
    )


def _softplus(child: nn.Softplus) -> L.Layer:
    if child.beta != 1 or child.threshold not in (20, SOFTPLUS_EXACT):
        raise SpecError(
            "from_torch needs softplus with beta 1 and the default threshold of 20, because ours is exact for all z, "
            f"got {child}: use nn.Softplus()"
        )
    return L.Activation("softplus")


def _rms(child: Any) -> L.Layer:
    _last_axis(child)
    if child.weight is None:
        raise SpecError(f"from_torch needs norms with a weight, got {child}: create the norm with one")
    return L.RMSNorm(eps=torch.finfo(child.weight.dtype).eps if child.eps is None else child.eps)


def _plain(name: str) -> Callable[[nn.Module], L.Layer]:
    return lambda module: L.Activation(name)


_FROM_TORCH: dict[type[nn.Module], Any] = {
    **{getattr(nn, kind): _plain(name) for name in catalogue if (kind := get_activation(name).torch_module)},
    nn.Linear: lambda m: L.Linear(m.out_features, bias=m.bias is not None),
    nn.Identity: lambda m: None,
    nn.Flatten: _flatten,
    nn.Dropout: lambda m: L.Dropout(m.p),
    nn.LayerNorm: lambda m: _norm(m, L.LayerNorm(eps=m.eps)),
    nn.RMSNorm: _rms,
    nn.GroupNorm: lambda m: _norm(m, L.GroupNorm(m.num_groups, eps=m.eps)),
    nn.BatchNorm1d: lambda m: _norm(m, L.BatchNorm(eps=m.eps, momentum=m.momentum)),
    nn.PReLU: lambda m: L.Activation("prelu", per="unit" if m.num_parameters > 1 else "layer"),
    nn.Hardtanh: lambda m: L.Activation("hard_tanh") if (m.min_val, m.max_val) == (-1, 1) else _unknown(m),
    nn.LeakyReLU: lambda m: L.Activation("leaky_relu", {"alpha": m.negative_slope}),
    nn.ELU: lambda m: L.Activation("elu", {"alpha": m.alpha}),
    nn.Softplus: _softplus,
    nn.GELU: lambda m: L.Activation("gelu" if m.approximate == "none" else "gelu_tanh"),
    nn.Softmax: lambda m: L.Activation("softmax") if m.dim in (-1, 1) else _unknown(m),
}


def _unknown(child: nn.Module) -> L.Layer:
    names = ", ".join(sorted(cls.__name__ for cls in _FROM_TORCH if cls is not nn.Flatten))
    raise SpecError(f"from_torch reads nn.Sequential of {names}; got {child}")


def _described(child: nn.Module) -> Iterable[L.Layer]:
    make = _FROM_TORCH.get(type(child))
    layer = _unknown(child) if make is None else make(child)
    return [] if layer is None else [layer]


def _leading_width(pairs: list[tuple[L.Layer, nn.Module]]) -> int:
    """Return the input width of the first module that has one, or 0."""
    for _, child in pairs:
        weight = cast("Tensor | None", getattr(child, "weight", None))
        if isinstance(child, nn.Linear):
            return child.in_features
        if weight is not None and weight.numel() > 1:
            return weight.numel()
    return 0


def _dtype(module: nn.Module) -> torch.dtype:
    return next((p.dtype for p in module.parameters()), torch.float32)
