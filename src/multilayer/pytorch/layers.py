"""One `nn.Module` per kind of layer. The description in `nn.layers` defines the parameters and the formula."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any, Generic, TypeVar, cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from ..nn import layers
from ..nn.layers import Inputs, Layer, named
from ..nn.layers.base import Parameter
from ..nn.layers.norms import require_rows
from . import activations

L = TypeVar("L", bound=Layer)


class Twin(nn.Module, Generic[L]):
    """Base class of the modules: empty parameters and buffers with the shapes of the description."""

    def __init__(self, layer: L, d: Any) -> None:
        super().__init__()
        self.layer = layer
        for parameter in layer.parameters(d):
            if not parameter.shared:
                self.register_parameter(parameter.name, nn.Parameter(torch.empty(parameter.shape)))
        for buffer in layer.buffers(d):
            self.register_buffer(buffer.name, torch.empty(buffer.shape))

    def extra_repr(self) -> str:
        shapes = [f"{name} {tuple(p.shape)}" for name, p in self.named_parameters(recurse=False)]
        return ", ".join(shapes)

    def _get_name(self) -> str:
        return self.layer.label


class Linear(Twin[layers.Linear]):
    """x (..., I) → (..., O)."""

    def __init__(self, layer: layers.Linear, d: int) -> None:
        super().__init__(layer, d)
        self.factor = layer.factor(d)

    def forward(self, x: Tensor) -> Tensor:
        weight, bias = cast(Tensor, self.weight), cast("Tensor | None", getattr(self, "bias", None))
        if self.layer.scale is None:
            return functional.linear(x, weight, bias)
        flat = x.reshape(-1, x.shape[-1])
        W = weight.T
        z = self.factor * (flat @ W) if bias is None else torch.addmm(bias, flat, W, alpha=self.factor)
        return z.reshape(*x.shape[:-1], weight.shape[0])


class Activation(Twin[layers.Activation]):
    """z (..., d) → a (..., d). `share` sets another module whose parameters several activations use."""

    def __init__(self, layer: layers.Activation, d: int) -> None:
        super().__init__(layer, d)
        self._shared: list[nn.Module] = []  # in a list, because torch would register an attribute as a submodule

    def share(self, home: nn.Module) -> None:
        self._shared = [home]

    def forward(self, z: Tensor) -> Tensor:
        function = self.layer.function
        home = self._shared[0] if self._shared else self
        a = activations.forward(function, z, {name: getattr(home, name) for name in function.learned})
        return z + cast(Tensor, self.blend) * (a - z) if self.layer.blend else a


class BatchNorm(Twin[layers.BatchNorm]):
    """x (..., d) → (..., d), with statistics over all axes except the last."""

    def forward(self, x: Tensor) -> Tensor:
        flat = x.reshape(-1, x.shape[-1])
        if self.training:
            require_rows(len(flat))
        y = functional.batch_norm(
            flat,
            cast(Tensor, self.running_mean),
            cast(Tensor, self.running_var),
            cast(Tensor, self.weight),
            cast(Tensor, self.bias),
            training=self.training,
            momentum=self.layer.momentum,
            eps=self.layer.eps,
        )
        return y.reshape(x.shape)


class LayerNorm(Twin[layers.LayerNorm]):
    def forward(self, x: Tensor) -> Tensor:
        weight, bias = cast(Tensor, self.weight), cast(Tensor, self.bias)
        return functional.layer_norm(x, weight.shape, weight, bias, self.layer.eps)


class RMSNorm(Twin[layers.RMSNorm]):
    def forward(self, x: Tensor) -> Tensor:
        inverse = torch.rsqrt(x.square().mean(-1, keepdim=True) + self.layer.eps)
        return x * inverse * cast(Tensor, self.weight)


class GroupNorm(Twin[layers.GroupNorm]):
    def forward(self, x: Tensor) -> Tensor:
        flat = x.reshape(-1, x.shape[-1])
        weight, bias = cast(Tensor, self.weight), cast(Tensor, self.bias)
        # functional.group_norm raises an error for one row with groups of one value, where x̂ is 0.
        return torch.group_norm(flat, self.layer.groups, weight, bias, self.layer.eps).reshape(x.shape)


class Dropout(Twin[layers.Dropout]):
    """Dropout with random numbers of torch. Engines set `keep` for counter-based masks, and `factor` to scale p."""

    def __init__(self, layer: layers.Dropout, d: int) -> None:
        super().__init__(layer, d)
        self.keep: Callable[[int, float], Tensor] | None = None
        self.factor = 1.0

    def extra_repr(self) -> str:
        return f"{self.layer.p:g}"

    def forward(self, x: Tensor) -> Tensor:
        p = self.layer.p * self.factor
        if not self.training or p == 0:
            return x
        return functional.dropout(x, p) if self.keep is None else x * self.keep(x.shape[-1], p)


class GLU(Twin[layers.GLU]):
    def __init__(self, layer: layers.GLU, d: int) -> None:
        super().__init__(layer, d)
        self.gate = layer.gate

    def forward(self, x: Tensor) -> Tensor:
        z = functional.linear(x, cast(Tensor, self.weight), cast("Tensor | None", getattr(self, "bias", None)))
        gate, value = z.chunk(2, dim=-1)  # (..., O) each
        return activations.forward(self.gate, gate, {}) * value


class Maxout(Twin[layers.Maxout]):
    def forward(self, x: Tensor) -> Tensor:
        z = functional.linear(x, cast(Tensor, self.weight), cast("Tensor | None", getattr(self, "bias", None)))
        return z.unflatten(-1, (self.layer.d_out, self.layer.k)).max(-1).values


class KAN(Twin[layers.KAN]):
    def forward(self, x: Tensor) -> Tensor:
        layer = self.layer
        places = torch.arange(layer.n_bases, dtype=x.dtype, device=x.device)
        centres = layer.first + layer.step * places
        u = (x.unsqueeze(-1) - centres) / layer.step  # (..., I, K)
        if layer.basis == "rbf":
            bases = torch.exp(-(u**2))
        else:
            distance = u.abs()
            bases = (functional.relu(2 - distance) ** 3 - 4 * functional.relu(1 - distance) ** 3) / 6
        curves = functional.linear(bases.flatten(-2), cast(Tensor, self.weight))
        return curves + functional.linear(functional.silu(x), cast(Tensor, self.base))


class Scale(Twin[layers.Scale]):
    def forward(self, x: Tensor) -> Tensor:
        return x * cast(Tensor, self.scale)


class Residual(Twin[layers.Residual]):
    """x + g(x). The layers of g are child modules with their names."""

    def __init__(self, layer: layers.Residual, d: int) -> None:
        nn.Module.__init__(self)
        self.layer = layer
        for name, twin in twins(layer.layers, d):
            self.add_module(name, twin)

    def forward(self, x: Tensor) -> Tensor:
        h = x
        for child in self.children():
            h = child(h)
        return x + h


class Columns(Twin[layers.Columns]):
    """numbers (..., F) and codes (..., C) → (..., O)."""

    def __init__(self, layer: layers.Columns, d: int | Inputs) -> None:
        super().__init__(layer, d)
        self.inputs = Inputs.of(d)

    def forward(self, x: Tensor, codes: Tensor | None = None) -> Tensor:
        layer = self.layer
        if layer.numeric == "none" and not self.inputs.categories:
            return x
        pieces = [self._embed(x)] if self.inputs.numeric else []
        for i, n in enumerate(self.inputs.categories):
            column = cast(Tensor, codes)[..., i].long()
            if not layer.one_hot(n):
                pieces.append(functional.embedding(column, cast(Tensor, getattr(self, f"table{i + 1}"))))
            elif n == 2:
                signs = torch.tensor([0.0, -1.0, 1.0], dtype=x.dtype, device=x.device)
                pieces.append(signs[column].unsqueeze(-1))
            else:
                pieces.append(functional.one_hot(column, n + 1)[..., 1:].to(x.dtype))
        return torch.cat(pieces, dim=-1)

    def _embed(self, x: Tensor) -> Tensor:
        kind = self.layer.numeric
        if kind == "none":
            return x
        weight, bias = cast(Tensor, self.weight), cast(Tensor, self.bias)  # (F, K, D), (F, D)
        wide = x.reshape(-1, x.shape[-1], 1)  # (B, F, 1)
        if kind == "piecewise":
            edges = cast(Tensor, self.edges)
            t = (wide - edges[:, :-1]) / (edges[:, 1:] - edges[:, :-1])  # (B, F, n)
            lower, upper = t.new_zeros(t.shape[-1]), t.new_ones(t.shape[-1])
            lower[0], upper[-1] = -math.inf, math.inf
            inside = torch.minimum(torch.maximum(t, lower), upper)
        else:
            v = 2 * math.pi * (wide * cast(Tensor, self.frequency))  # (B, F, n)
            plr = kind == "plr"
            inside = torch.cat([v.cos(), v.sin()], -1) if plr else (v + cast(Tensor, self.phase)).cos()
        z = torch.bmm(inside.transpose(0, 1), weight).transpose(0, 1) + bias  # (B, F, D)
        if kind == "plr":
            z = functional.relu(z)
        elif kind == "pbld":
            z = torch.cat([wide, z], -1)
        return z.reshape(*x.shape[:-1], z.shape[1] * z.shape[2])


TWINS: dict[type[Layer], type[Twin[Any]]] = {
    layers.Linear: Linear,
    layers.Activation: Activation,
    layers.BatchNorm: BatchNorm,
    layers.LayerNorm: LayerNorm,
    layers.RMSNorm: RMSNorm,
    layers.GroupNorm: GroupNorm,
    layers.Dropout: Dropout,
    layers.GLU: GLU,
    layers.Maxout: Maxout,
    layers.KAN: KAN,
    layers.Residual: Residual,
    layers.Scale: Scale,
    layers.Columns: Columns,
}


def twins(sequence: tuple[Layer, ...], d: Any) -> Iterator[tuple[str, Twin[Any]]]:
    """Yield the name and the torch module of each layer."""
    for name, layer in named(sequence):
        yield name, TWINS[type(layer)](layer, d)
        d = layer.width(d)


class Shared(nn.Module):
    """Parameters of an activation that all its layers in the network share."""

    def __init__(self, parameters: tuple[Parameter, ...]) -> None:
        super().__init__()
        for parameter in parameters:
            self.register_parameter(parameter.name, nn.Parameter(torch.empty(parameter.shape)))
