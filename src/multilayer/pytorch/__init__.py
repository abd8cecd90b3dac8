"""The torch module of each kind of layer, with the names of `multilayer.nn.layers`.

A module takes the description of its layer and the input width. It creates empty parameters (`model` fills them), and
computes the function of the layer along the last axis with autograd operations. The field `kept` of the description
lists the tensors that autograd saves for the backward pass, and the tests compare the two. Change `kept` if you change
operations here.

Descriptions belong in `nn`, training with torch in `engines`, and trained models as torch modules in `export`.
"""

from __future__ import annotations

from ..errors import needed_by

with needed_by("multilayer.pytorch"):
    from .layers import TWINS, Dropout, Twin

__all__ = ["TWINS", "Dropout", "Twin"]
