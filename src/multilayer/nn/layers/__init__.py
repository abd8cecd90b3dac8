"""The kinds of layer: what each is, its shapes, its parameters, its exact cost and its numpy reference.

`KINDS` is the closed set that text, JSON and the other implementations go by.
"""

from __future__ import annotations

from .base import MAX_LAYERS, Backward, Draw, EvenlySpaced, Flops, Forward, Layer, Parameter, Pass, named
from .columns import Columns, Inputs
from .dense import GATES, GLU, KAN, Linear, Maxout
from .elementwise import Activation, Dropout, Residual, Scale
from .norms import BatchNorm, GroupNorm, LayerNorm, RMSNorm

KINDS: dict[str, type[Layer]] = {
    layer.kind: layer
    for layer in (
        Linear,
        Activation,
        BatchNorm,
        LayerNorm,
        RMSNorm,
        GroupNorm,
        Dropout,
        GLU,
        Maxout,
        KAN,
        Residual,
        Scale,
        Columns,
    )
}

__all__ = [
    "GATES",
    "GLU",
    "KAN",
    "KINDS",
    "MAX_LAYERS",
    "Activation",
    "Backward",
    "BatchNorm",
    "Columns",
    "Draw",
    "Dropout",
    "EvenlySpaced",
    "Flops",
    "Forward",
    "GroupNorm",
    "Inputs",
    "Layer",
    "LayerNorm",
    "Linear",
    "Maxout",
    "Parameter",
    "Pass",
    "RMSNorm",
    "Residual",
    "Scale",
    "named",
]
