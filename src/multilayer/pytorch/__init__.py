"""The torch twin of each kind of layer, same names as in `multilayer.nn.layers`.

A twin takes its description and the width that reaches it, makes empty parameters of the described shapes (`model`
fills them), and computes the same function as ordinary autograd operations, along the last axis of its input. What
autograd keeps for each is its description's `kept`, so a change of operations here is a change there; the tests compare
the two.

Descriptions belong in `nn`, training with torch in `engines`, and trained models as torch modules in `export`.
"""

from __future__ import annotations

from ..errors import needed_by

with needed_by("multilayer.pytorch"):
    from .layers import TWINS, Dropout, Twin

__all__ = ["TWINS", "Dropout", "Twin"]
