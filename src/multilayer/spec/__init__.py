"""A network as plain immutable data: `Spec`, its text and JSON, ready-made networks, initialization, and the size
of signals through depth.

What a single layer computes belongs in `nn`; the torch module of a network in `pytorch`.
"""

from __future__ import annotations

from .spec import Entry, HasSpec, Spec

__all__ = ["Entry", "HasSpec", "Spec"]
