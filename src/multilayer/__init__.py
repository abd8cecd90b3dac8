"""multilayer: describe a feed-forward network once, and read it as cost, PyTorch module, fast program, picture.

    import multilayer as ml

    spec = ml.mlp(784, [256, 128], 10)        or ml.Spec.parse("784-256-128-10")
    ml.cost(spec, batch=32).step              FLOPs of a training step, exactly
    model = ml.build(spec, seed=0)            an ordinary torch.nn.Module

Names load when first used: importing the package imports nothing at all.
"""

from __future__ import annotations

TYPE_CHECKING = False  # as type checkers read it, without importing typing
if TYPE_CHECKING:
    from typing import Any

    from .costs import cost
    from .errors import MultilayerError, SpecError
    from .explain.trace import trace
    from .export.onnx import to_onnx
    from .export.torch_module import to_torch
    from .init import initialise
    from .jobs import fit, resume
    from .layers import (
        GLU,
        KAN,
        Activation,
        BatchNorm,
        Columns,
        Dropout,
        GroupNorm,
        Inputs,
        LayerNorm,
        Linear,
        Maxout,
        Residual,
        RMSNorm,
        Scale,
    )
    from .model import build, from_torch
    from .networks import collapse, feed_forward_block, hyperplane, linear, mlp, neuron, residual_mlp
    from .picture import draw
    from .predictor import load
    from .propagation import variance
    from .spec import Spec
    from .tabular.estimators import MLPClassifier, MLPRegressor
    from .web.explore import explore

__version__ = "0.1.0"

_LAZY = {
    "MultilayerError": "errors",
    "SpecError": "errors",
    "MLPClassifier": "tabular.estimators",
    "MLPRegressor": "tabular.estimators",
    **dict.fromkeys(("GLU", "KAN", "Activation", "BatchNorm", "Columns", "Dropout", "GroupNorm", "Inputs"), "layers"),
    **dict.fromkeys(("LayerNorm", "Linear", "Maxout", "RMSNorm", "Residual", "Scale"), "layers"),
    **dict.fromkeys(("collapse", "feed_forward_block", "hyperplane", "linear", "mlp"), "networks"),
    **dict.fromkeys(("neuron", "residual_mlp"), "networks"),
    "Spec": "spec",
    "build": "model",
    "cost": "costs",
    "draw": "picture",
    "explore": "web.explore",
    "fit": "jobs",
    "from_torch": "model",
    "initialise": "init",
    "load": "predictor",
    "resume": "jobs",
    "to_onnx": "export.onnx",
    "to_torch": "export.torch_module",
    "trace": "explain.trace",
    "variance": "propagation",
}

__all__ = [
    "GLU",
    "KAN",
    "Activation",
    "BatchNorm",
    "Columns",
    "Dropout",
    "GroupNorm",
    "Inputs",
    "LayerNorm",
    "Linear",
    "MLPClassifier",
    "MLPRegressor",
    "Maxout",
    "MultilayerError",
    "RMSNorm",
    "Residual",
    "Scale",
    "Spec",
    "SpecError",
    "build",
    "collapse",
    "cost",
    "draw",
    "explore",
    "feed_forward_block",
    "fit",
    "from_torch",
    "hyperplane",
    "initialise",
    "linear",
    "load",
    "mlp",
    "neuron",
    "residual_mlp",
    "resume",
    "to_onnx",
    "to_torch",
    "trace",
    "variance",
]


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module 'multilayer' has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(f".{_LAZY[name]}", __name__), name)


def __dir__() -> list[str]:
    return __all__
