"""The catalogue of activations: `get("leaky_relu", alpha=0.1)` gives an `ActivationFunction`. numpy only."""

from __future__ import annotations

import copyreg
import inspect
from collections.abc import Callable, Hashable
from functools import lru_cache
from typing import cast

from ...errors import SpecError, unknown_name
from . import fixed, learned
from .function import ActivationFunction, Array, Kept

__all__ = ["ActivationFunction", "Array", "Kept", "aliases", "catalogue", "get"]

catalogue: dict[str, Callable[..., ActivationFunction]] = {
    "identity": fixed.identity,
    "step": fixed.step,
    "polynomial": fixed.polynomial,
    "sqrt": fixed.sqrt,
    "sigmoid": fixed.sigmoid,
    "tanh": fixed.tanh,
    "hard_tanh": fixed.hard_tanh,
    "sin": fixed.sin,
    "relu": fixed.relu,
    "leaky_relu": fixed.leaky_relu,
    "prelu": learned.prelu,
    "elu": fixed.elu,
    "selu": fixed.selu,
    "softplus": fixed.softplus,
    "gelu": fixed.gelu,
    "gelu_tanh": fixed.gelu_tanh,
    "silu": fixed.silu,
    "swish": fixed.swish,
    "learned_swish": learned.learned_swish,
    "trainable_swish": learned.trainable_swish,
    "mish": fixed.mish,
    "apl": learned.apl,
    "kaf": learned.kaf,
    "combination": learned.combination,
    "generalised_relu": learned.generalised_relu,
    "softmax": fixed.softmax,
}
"""Functions that create an activation, by name, in the order of listings."""

aliases: dict[str, str] = {
    "none": "identity",
    "linear": "identity",
    "heaviside": "step",
    "logistic": "sigmoid",
    "hardtanh": "hard_tanh",
    "leaky": "leaky_relu",
    "leakyrelu": "leaky_relu",
    "generalized_relu": "generalised_relu",
}
"""Other accepted names. `ActivationFunction.name` is always the name in the catalogue."""


def get(name: str, **constants: object) -> ActivationFunction:
    """Return the activation with a name and constants. Case does not matter. Equal arguments give the same object.

    >>> get("leaky", alpha=0.1).formula
    'z if z > 0 else 0.1·z'
    """
    key = name.lower()
    key = aliases.get(key, key)
    if key not in catalogue:
        raise SpecError(unknown_name("activation", name, [*catalogue, *aliases]))
    takes = inspect.signature(catalogue[key]).parameters
    for constant, value in constants.items():
        if constant not in takes:
            if not takes:
                raise SpecError(f"{key} takes no constants, got {constant}={value!r}")
            raise SpecError(unknown_name(f"constant of {key}", constant, takes))
    bound = {constant: parameter.default for constant, parameter in takes.items()} | constants
    # JSON has lists of names. The cache needs hashable values; other values fail the checks without the cache.
    bound = {k: tuple(map(str, cast("list[object]", v))) if isinstance(v, list) else v for k, v in bound.items()}
    make = _made if all(isinstance(value, Hashable) for value in bound.values()) else _made.__wrapped__
    return make(key, **bound)


@lru_cache(maxsize=1024, typed=True)  # typed, since True equals 1 but must fail its check
def _made(name: str, **constants: object) -> ActivationFunction:
    return catalogue[name](**constants)


def _restored(name: str, constants: tuple[tuple[str, object], ...]) -> ActivationFunction:
    return get(name, **dict(constants))


# Pickle an activation as its name and constants, so that modules that hold one can be pickled and copied.
copyreg.pickle(ActivationFunction, lambda function: (_restored, (function.name, function.constants)))
