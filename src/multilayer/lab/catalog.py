"""The experiments by name, in the order of the book."""

from __future__ import annotations

from importlib import import_module

from ..errors import OptionError, unknown_name
from .experiment import Experiment

NAMES = (
    "linear_collapse",
    "universal_approximation",
    "depth_and_width",
    "parity",
    "vanishing_gradients",
    "variance_through_depth",
    "dead_units",
    "residual_connections",
    "activation_functions",
    "optimizers",
    "batch_size",
    "overfitting",
    "random_labels",
    "double_descent",
    "overconfidence",
    "sharp_minima",
    "loss_landscape",
    "restarts",
    "layer_features",
    "cost_claims",
)


def get(name: str) -> Experiment:
    """Return the experiment with this name.

    >>> get("vanishing_gradients").title
    'Vanishing gradients'
    """
    if name not in NAMES:
        raise OptionError(unknown_name("experiment", name, NAMES))
    return import_module(f".experiments.{name}", __package__).EXPERIMENT
