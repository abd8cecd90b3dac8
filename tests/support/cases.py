"""The table of all layers, activations, losses and optimizers, over which all checks run.

Each has a row, with a column for each implementation besides the description and its numpy reference: the torch twin,
the kernel in the fused engine, the code of the explorer page, the ONNX operators, and the module of `torch.nn`. A
missing implementation is an explicit `no` with the reason. tests/nn/test_case_table.py compares the table with the
code.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from multilayer.nn import activations
from multilayer.nn.layers import Activation, Layer
from multilayer.spec import Spec

no = "no"
TORCH_RUNS_IT = f"{no}: rare and inherently slow; the torch engine runs it"
SHOWN_REDUCED = f"{no}: rare; the page reports this, and shows what Python computed"
NOT_IN_TORCH = f"{no}: torch has no such module"
NOT_ON_THE_PAGE = f"{no}: the page teaches with simple ones"
NO_GRAPH = f"{no}: ONNX files are made for prediction, which has no loss and no optimizer"


@dataclass(frozen=True, kw_only=True)
class Row:
    """Whether each implementation exists: `yes`, or `no` with the reason."""

    torch: str = "yes"
    """pytorch/"""
    kernel: str = "yes"
    """csrc/, with engines/fused_program.py"""
    page: str = "yes"
    """frontend/engine/"""
    onnx: str = "yes"
    """export/onnx/"""
    module: str = "yes"
    """A module of `torch.nn`, for `to_sequential` and `from_torch`."""


@dataclass(frozen=True, kw_only=True)
class Case(Row):
    name: str
    text: str
    """A network around the layer, as text: inputs, the layer, and something on either side of it."""
    kinks: bool = False
    """Whether a random input may fall so near a kink that finite differences mislead."""

    @property
    def spec(self) -> Spec:
        return Spec.parse(self.text)


# Layers

LAYER_ROWS: dict[str, Row] = {
    "linear": Row(),
    "activation": Row(),  # see ACTIVATION_ROWS
    "batchnorm": Row(),
    "layernorm": Row(),
    "rmsnorm": Row(),
    "groupnorm": Row(),
    "dropout": Row(),
    "glu": Row(module=NOT_IN_TORCH),
    "maxout": Row(kernel=TORCH_RUNS_IT, module=NOT_IN_TORCH),
    "kan": Row(kernel=TORCH_RUNS_IT, page=SHOWN_REDUCED, module=NOT_IN_TORCH),
    "residual": Row(module=NOT_IN_TORCH),
    "scale": Row(module=NOT_IN_TORCH),
    "columns": Row(module=NOT_IN_TORCH),
}


def _with(row: Row, case: Case) -> Case:
    return replace(case, **vars(row))


_LAYERS: dict[str, tuple[Case, ...]] = {
    "linear": (
        Case(name="linear", text="5-4:none-3"),
        Case(name="linear without bias", text="5-linear(4, bias=no):none-linear(3, bias=no)"),
        Case(name="linear scaled", text="5-linear(4, scale=0.5):none-linear(3, bias=no, scale=tangent)"),
        Case(name="one in, one out", text="1-1"),
        Case(name="deep linear", text="3-(4:none)*5-2"),
    ),
    "batchnorm": (
        Case(name="batchnorm", text="5-4:batchnorm:tanh-3"),
        Case(name="batchnorm first", text="5-batchnorm-4:batchnorm(eps=0.01, momentum=0.3):tanh-2"),
    ),
    "layernorm": (
        Case(name="layernorm", text="5-4:layernorm:tanh-3"),
        Case(name="layernorm first", text="5-layernorm-4:layernorm(eps=0.01):none-3"),
    ),
    "rmsnorm": (
        Case(name="rmsnorm", text="5-4:rmsnorm:tanh-3"),
        Case(name="rmsnorm first", text="5-rmsnorm-4:rmsnorm(eps=0.01):none-3"),
    ),
    "groupnorm": (
        Case(name="groupnorm", text="5-6:groupnorm(2):tanh-3"),
        Case(name="groupnorm first", text="6-groupnorm(3)-4:groupnorm(1, eps=0.01):none-3"),
    ),
    "dropout": (
        Case(name="dropout", text="5-8:tanh:dropout(0.5)-3"),
        Case(name="dropout first", text="5-dropout(0.25)-4:tanh:dropout(0)-3:dropout(0.1)"),
    ),
    "glu": tuple(
        Case(name=variant, text=f"5-{variant}(4)-{variant}(3, bias=no)", kinks=variant == "reglu")
        for variant in ("glu", "reglu", "geglu", "swiglu")
    ),
    "maxout": (
        Case(name="maxout", text="5-maxout(4, 3)-maxout(2, bias=no)", kinks=True),
        Case(name="maxout of one", text="5-maxout(4, 1)-2"),
    ),
    "kan": (
        Case(name="kan spline", text="4-kan(3)-kan(2, grid=1, bound=2)"),
        Case(
            name="kan rbf",
            text="4-kan(3, basis=rbf)-kan(2, basis=rbf, grid=2, bound=2)",
        ),
    ),
    "residual": (
        Case(name="residual", text="3-4:none-[layernorm-8:gelu-4]-2"),
        Case(name="residual first", text="3-[6:tanh-3]-2"),
        Case(name="residual nested", text="3-[[3:tanh]:silu-5:tanh-3]*2-2"),
        Case(name="residual of norms", text="3-4:tanh-[batchnorm-4:dropout(0.2)]-2"),
        Case(name="residual without weights", text="3-4:none-[tanh]-2"),
        Case(name="residual of nothing new", text="3-4:none-[identity]-2"),
    ),
    "scale": (
        Case(name="scale", text="5-scale-4:tanh:scale-3"),
        Case(name="scale last", text="5-4:tanh-3:scale"),
    ),
    "columns": (
        Case(name="columns plain", text="5-columns-4:tanh-3"),
        Case(name="columns one-hot", text="3+cat(2, 3, 1)-columns-4:tanh-3"),
        Case(name="columns embedding", text="3+cat(4, 9, 2)-columns(d_category=3)-4:tanh-3"),
        Case(
            name="columns of categories alone", text="cat(2, 12)-columns(categories=embedding, d_category=2)-4:tanh-3"
        ),
        Case(name="columns of one-hots alone", text="cat(5, 12)-columns(categories=one_hot)-4:tanh-3"),
        Case(name="columns plr", text="3-columns(plr, d_numeric=4, n=5, sigma=0.3)-4:tanh-3", kinks=True),
        Case(name="columns plr one feature", text="1-columns(plr, d_numeric=2, n=3, sigma=0.3)-3", kinks=True),
        Case(name="columns pbld", text="3+cat(2, 9)-columns(pbld, d_category=3)-4:tanh-3"),
        Case(name="columns piecewise", text="3-columns(piecewise, d_numeric=4, n=6)-4:tanh-3"),
        Case(name="columns piecewise, one bin", text="2-columns(piecewise, d_numeric=2, n=1)-3"),
    ),
}


LAYERS = {kind: tuple(_with(LAYER_ROWS[kind], case) for case in cases) for kind, cases in _LAYERS.items()}


# Activations

_RARE = Row(kernel=TORCH_RUNS_IT, page=SHOWN_REDUCED, module=NOT_IN_TORCH)
_OURS = Row(module=NOT_IN_TORCH)

ACTIVATION_ROWS: dict[str, Row] = {
    "identity": Row(),
    "step": _OURS,
    "polynomial": _OURS,
    "sqrt": _OURS,
    "sigmoid": Row(),
    "tanh": Row(),
    "hard_tanh": Row(),
    "sin": _OURS,
    "relu": Row(),
    "leaky_relu": Row(),
    "prelu": Row(),
    "elu": Row(),
    "selu": Row(),
    "softplus": Row(),
    "gelu": Row(),
    "gelu_tanh": Row(),
    "silu": Row(),
    "swish": _OURS,
    "learned_swish": _OURS,
    "trainable_swish": _RARE,
    "mish": Row(),
    "apl": _RARE,
    "kaf": _RARE,
    "combination": _RARE,
    "generalised_relu": _RARE,
    "softmax": Row(kernel=TORCH_RUNS_IT),
}


def _activation(name: str) -> tuple[Case, ...]:
    fn = activations.get(name)
    # √z is defined for z ≥ 0 only, so its inputs are positive.
    before = "softplus" if name == "sqrt" else "none"
    networks = {
        name: f"5-4:{before}:{name}-3",
        f"{name} at the end": f"5-4:tanh-3:{'softplus:' if name == 'sqrt' else ''}{name}",
    }
    if fn.elementwise and name != "sqrt":
        networks[f"{name} blended"] = f"5-4:blend({name})-3"
        networks[f"{name} first"] = f"4-{name}-4:tanh-3"
    if fn.learned:
        networks[f"{name} per unit"] = f"5-4:{name}(per=unit)-3:{name}(per=unit)"
        networks[f"{name} shared"] = f"5-4:{name}(per=network)-4:{name}(per=network)-[4:{name}(per=network)]-3"
    cases = (Case(name=k, text=text, kinks=bool(fn.kinks)) for k, text in networks.items())
    return tuple(_with(ACTIVATION_ROWS[name], case) for case in cases)


ACTIVATIONS: dict[str, tuple[Case, ...]] = {name: _activation(name) for name in ACTIVATION_ROWS}


# Losses and optimizers


@dataclass(frozen=True, kw_only=True)
class LossRow(Row):
    by_hand: dict[str, Callable[[Tensor, Tensor], Tensor]]
    """Each name to test, with and without constants, and the same loss of a batch in plain torch."""
    onnx: str = field(default=NO_GRAPH, init=False)
    module: str = field(default=NOT_IN_TORCH, init=False)


@dataclass(frozen=True, kw_only=True)
class OptimizerRow(Row):
    by_hand: dict[str, Callable[[Any], torch.optim.Optimizer]]
    """Each name to test, and the same torch optimizer for some parameter groups."""
    onnx: str = field(default=NO_GRAPH, init=False)
    module: str = field(default=NOT_IN_TORCH, init=False)


def _quantiles(z: Tensor, y: Tensor, levels: list[float]) -> Tensor:
    e, q = y.repeat_interleave(len(levels), dim=1) - z, torch.tensor(levels, dtype=z.dtype)
    q = q.repeat(z.shape[1] // len(levels))
    return torch.maximum(q * e, (q - 1) * e).mean()


def _focal(z: Tensor, y: Tensor, gamma: float) -> Tensor:
    loss = functional.cross_entropy(z, y, reduction="none")
    return ((-torch.expm1(-loss)) ** gamma * loss).mean()


def _binary(z: Tensor, y: Tensor) -> Tensor:
    return functional.binary_cross_entropy_with_logits(z, y)


LOSS_ROWS: dict[str, LossRow] = {
    "cross_entropy": LossRow(
        by_hand={
            "cross_entropy": functional.cross_entropy,
            "cross_entropy(label_smoothing=0.1)": lambda z, y: functional.cross_entropy(z, y, label_smoothing=0.1),
        }
    ),
    "focal": LossRow(
        by_hand={"focal": lambda z, y: _focal(z, y, 2.0), "focal(gamma=0.5)": lambda z, y: _focal(z, y, 0.5)},
        kernel=TORCH_RUNS_IT,
        page=NOT_ON_THE_PAGE,
    ),
    "binary_cross_entropy": LossRow(
        by_hand={
            "binary_cross_entropy": _binary,
            "binary_cross_entropy(0.2)": lambda z, y: _binary(z, 0.8 * y + 0.1),
        }
    ),
    "mse": LossRow(by_hand={"mse": functional.mse_loss}),
    "mae": LossRow(by_hand={"mae": functional.l1_loss}, page=NOT_ON_THE_PAGE),
    "huber": LossRow(
        by_hand={
            "huber": functional.huber_loss,
            "huber(0.3)": lambda z, y: functional.huber_loss(z, y, delta=0.3),
        },
        page=NOT_ON_THE_PAGE,
    ),
    "quantile": LossRow(
        by_hand={
            "quantile": lambda z, y: _quantiles(z, y, [0.5]),
            "quantile(0.1, 0.5, 0.9)": lambda z, y: _quantiles(z, y, [0.1, 0.5, 0.9]),
        },
        page=NOT_ON_THE_PAGE,
    ),
    "poisson": LossRow(by_hand={"poisson": functional.poisson_nll_loss}, page=NOT_ON_THE_PAGE),
    "perceptron": LossRow(
        by_hand={"perceptron": lambda z, y: functional.relu(-(2 * y - 1) * z).mean()}, page=NOT_ON_THE_PAGE
    ),
}

OPTIMIZER_ROWS: dict[str, OptimizerRow] = {
    "sgd": OptimizerRow(by_hand={"sgd": lambda groups: torch.optim.SGD(groups, lr=1.0)}),
    "momentum": OptimizerRow(by_hand={"momentum": lambda groups: torch.optim.SGD(groups, lr=1.0, momentum=0.9)}),
    "nesterov": OptimizerRow(
        by_hand={
            "nesterov": lambda groups: torch.optim.SGD(groups, lr=1.0, momentum=0.9, nesterov=True),
            "nesterov(0.5)": lambda groups: torch.optim.SGD(groups, lr=1.0, momentum=0.5, nesterov=True),
        },
        page=NOT_ON_THE_PAGE,
    ),
    "adam": OptimizerRow(
        by_hand={
            "adam": lambda groups: torch.optim.Adam(groups, fused=True),
            "adam(beta2=0.95)": lambda groups: torch.optim.Adam(groups, betas=(0.9, 0.95), fused=True),
        }
    ),
    "adamw": OptimizerRow(
        by_hand={"adamw": lambda groups: torch.optim.AdamW(groups, weight_decay=0.1, fused=True)},
        page=NOT_ON_THE_PAGE,
    ),
}


# Mixtures

MIXTURES: tuple[Case, ...] = (
    Case(name="worked example", text="784-256-128-10"),
    Case(name="no hidden layer", text="7-3"),
    Case(name="one neuron", text="7-1:step"),
    Case(name="xor", text="2-2:tanh-1"),
    Case(name="width one", text="1-1:tanh-1:tanh-1"),
    Case(name="residual network", text="20-16:none-[layernorm-64:gelu:dropout(0.1)-16]*3-10"),
    Case(name="constants", text="5-4:leaky_relu(0.3)-4:elu(0.5)-4:sigmoid(2)-4:polynomial(3)-4:swish(0.5)-2"),
    Case(
        name="constants of parts",
        text="5-4:combination(relu+tanh, per=unit)-2",
        kernel=TORCH_RUNS_IT,
        page=SHOWN_REDUCED,
    ),
    Case(
        name="recipe",
        text="14+cat(3, 12, 2)-columns(pbld)-scale-(linear(16, scale=tangent):blend(selu):dropout(0.15))*3-2",
    ),
)

ALL: tuple[Case, ...] = (*(case for cases in (*LAYERS.values(), *ACTIVATIONS.values()) for case in cases), *MIXTURES)


def kinds_of(layers: tuple[Layer, ...]) -> set[str]:
    found: set[str] = set()
    for layer in layers:
        found.add(layer.name if isinstance(layer, Activation) else layer.kind)
        found |= kinds_of(getattr(layer, "layers", ()))
    return found


def rows_for(spec: Spec, batch: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray | None]:
    """Inputs away from 0, where most kinks are, and codes with every value somewhere, 0 included."""
    generator = np.random.default_rng(seed)
    x = generator.normal(size=(batch, spec.inputs.numeric))
    x = x + 0.05 * np.sign(x)
    if not spec.inputs.categories:
        return x, None
    return x, np.stack([generator.integers(0, n + 1, size=batch) for n in spec.inputs.categories], axis=1)
