"""The kinds of layer, a file each: what it is, its shapes, its parameters, its exact cost and its numpy reference.

`KINDS` is the closed set that text, JSON and every twin go by.
"""

from __future__ import annotations

from .activation import Activation
from .base import MAX_LAYERS, Backward, Draw, Even, Flops, Forward, Layer, Parameter, Pass, named
from .batch_norm import BatchNorm
from .columns import Columns
from .dropout import Dropout
from .glu import GATES, GLU
from .group_norm import GroupNorm
from .inputs import Inputs
from .kan import KAN
from .layer_norm import LayerNorm
from .linear import Linear
from .maxout import Maxout
from .residual import Residual
from .rms_norm import RMSNorm
from .scale import Scale

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
    "Even",
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
