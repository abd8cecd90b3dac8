"""A network as plain immutable data: `Spec`, its text and JSON, ready-made networks, initialization, and the size
of activations and gradients in each layer.

The computation of a single layer belongs in `nn`. The torch module of a network belongs in `pytorch`.
"""

from __future__ import annotations

from .spec import Entry, HasSpec, Spec

__all__ = ["Entry", "HasSpec", "Spec"]
