"""Layers: options, shapes, parameters, exact cost and numpy reference of each kind.

    base           the interface `Layer`, and what layers share
    dense          Linear, GLU, Maxout
    kan            KAN
    elementwise    Activation, Dropout, Scale, Residual
    norms          BatchNorm, LayerNorm, RMSNorm, GroupNorm
    columns        Columns, and the description of the inputs: Inputs

`KINDS` lists every kind by its name in strings and JSON.
"""

from __future__ import annotations

from .base import MAX_LAYERS, Backward, Draw, EvenlySpaced, Flops, Forward, Layer, Parameter, Pass, named
from .columns import Columns, Inputs
from .dense import GATES, GLU, Linear, Maxout
from .elementwise import Activation, Dropout, Residual, Scale
from .kan import KAN
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
