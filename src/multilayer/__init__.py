"""Feed-forward networks: describe one, compute its cost, train it, inspect it, and export it.

    import multilayer as ml

    model = ml.MLPClassifier().fit(X, y)      # a scikit-learn estimator
    run = ml.fit("784-256-128-10", "digits")  # a training run with metrics, report and model
    ml.cost("784-256-128-10", batch=32).step  # exact FLOPs of a training step
    ml.build("784-256-128-10", seed=0)        # a torch.nn.Module

Names are imported when they are first used, so `import multilayer` is fast. `build`, `from_torch` and `to_torch` need
the extra `torch`.
"""

from __future__ import annotations

from .core.version import __version__ as __version__

TYPE_CHECKING = False  # type checkers take it as True; not imported from typing, which is slow
if TYPE_CHECKING:
    from typing import Any

    from . import lab as lab
    from .costs import cost
    from .diagnostics import check
    from .drawing.picture import draw
    from .errors import MultilayerError, SpecError
    from .estimators.classifier import MLPClassifier
    from .estimators.regressor import MLPRegressor
    from .export.onnx.model import to_onnx
    from .export.torch_module import to_torch
    from .interpretation.trace import trace
    from .models.trained_model import load
    from .nn.layers import (
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
    from .pages.explorer import explore
    from .pytorch.model import build, from_torch
    from .spec import Spec
    from .spec.initialization import initialise
    from .spec.networks import collapse, feed_forward_block, hyperplane, linear, mlp, neuron, residual_mlp
    from .spec.propagation import variance
    from .training.fit import fit, resume
    from .training.learning_rate_finder import find_learning_rate


_LAZY = {
    "MultilayerError": "errors",
    "SpecError": "errors",
    "MLPClassifier": "estimators.classifier",
    "MLPRegressor": "estimators.regressor",
    **dict.fromkeys(
        ("GLU", "KAN", "Activation", "BatchNorm", "Columns", "Dropout", "GroupNorm", "Inputs"), "nn.layers"
    ),
    **dict.fromkeys(("LayerNorm", "Linear", "Maxout", "RMSNorm", "Residual", "Scale"), "nn.layers"),
    **dict.fromkeys(("collapse", "feed_forward_block", "hyperplane", "linear", "mlp"), "spec.networks"),
    **dict.fromkeys(("neuron", "residual_mlp"), "spec.networks"),
    "Spec": "spec",
    "build": "pytorch.model",
    "check": "diagnostics",
    "cost": "costs",
    "draw": "drawing.picture",
    "explore": "pages.explorer",
    "find_learning_rate": "training.learning_rate_finder",
    "fit": "training.fit",
    "from_torch": "pytorch.model",
    "initialise": "spec.initialization",
    "load": "models.trained_model",
    "resume": "training.fit",
    "to_onnx": "export.onnx.model",
    "to_torch": "export.torch_module",
    "trace": "interpretation.trace",
    "variance": "spec.propagation",
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
    "check",
    "collapse",
    "cost",
    "draw",
    "explore",
    "feed_forward_block",
    "find_learning_rate",
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


_IMPORTED: dict[str, Any] = {}


def __getattr__(name: str) -> Any:
    """Import a public name. Its functions explain an unknown keyword; inside the package, they are called directly."""
    import importlib
    from types import FunctionType

    if name in _IMPORTED:
        return _IMPORTED[name]
    if name == "lab":  # a package, not a name in one
        return importlib.import_module(".lab", __name__)
    if name not in _LAZY:
        raise AttributeError(f"module 'multilayer' has no attribute {name!r}")

    from .errors import MissingExtra, explain_unknown, needed_by

    try:
        with needed_by(f"ml.{name}"):
            found = getattr(importlib.import_module(f".{_LAZY[name]}", __name__), name)
    except MissingExtra as error:
        return error.when_called(name)
    if isinstance(found, FunctionType):
        found = explain_unknown(found)
        found.__module__ = __name__  # pickle imports it from here
    _IMPORTED[name] = found
    return found


def __dir__() -> list[str]:
    return __all__
