"""The description of a network as immutable data: `Spec`.

    spec            `Spec`, its layers and tensor names, JSON
    grammar         the string form, such as "784-256-128-10"
    networks        ready-made networks: `mlp`, `linear`, `neuron`, `residual_mlp`, `feed_forward_block`
    initialization  initial values of the parameters
    propagation     size of activations and gradients in each layer at initialization

The computation of a single layer belongs in `nn`. The torch module of a network belongs in `pytorch`.
"""

from __future__ import annotations

from .spec import Entry, HasSpec, Spec

__all__ = ["Entry", "HasSpec", "Spec"]
