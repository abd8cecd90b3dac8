"""One update of torch tensors from their gradients: clipping, L2, weight decay, optimizer, averages.

The optimizers are in `pytorch.optimizers`.

    clip    by the norm over all tensors, then by value
    l2      g ← g + l2 · factor · p
    decay   p ← (1 − η · decay · factor) p, for every optimizer, as in AdamW
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, cast

import torch
from torch import Tensor

from ..nn import optimizers
from ..pytorch.optimizers import ParameterGroup, update
from ..spec import Spec
from .protocol import Settings

foreach: Any = torch
"""torch with its `_foreach_` functions, which take a list of tensors. They are documented but not typed."""


class Updater:
    """Holds the optimizer state and updates the parameters. It reads and changes `parameter.grad`."""

    def __init__(self, spec: Spec, settings: Settings, parameters: Mapping[str, Tensor]) -> None:
        self.settings, self.optimizer = settings, optimizers.get(settings.optimizer)
        self.parameters = list(parameters.values())
        # Created before the first step, so that `load` can always set them.
        self.slots = {slot: [torch.zeros_like(p) for p in self.parameters] for slot in self.optimizer.slots}
        self.averages = [] if settings.average is None else [p.detach().clone() for p in self.parameters]
        self.rate_factor = 1.0
        self._step = 0
        rates = [settings.rate_factors.get(name, 1.0) for name in parameters]
        shrinks = [settings.decay_factors.get(name, float(spec.parameters[name].decays)) for name in parameters]
        self._groups = [self._group(rate, rates) for rate in dict.fromkeys(rates)]
        pairs = list(zip(rates, shrinks, strict=True))
        self._decaying = [
            (*pair, [p for p, other in zip(self.parameters, pairs, strict=True) if other == pair])
            for pair in dict.fromkeys(pairs)
            if pair[1]
        ]

    @property
    def step(self) -> int:
        return self._step

    @step.setter
    def step(self, value: int) -> None:
        self._step = value
        for group in self._groups:
            for count in group.counts:
                count.fill_(value)

    def gradients(self) -> list[Tensor]:
        """Return the gradients in the order of the parameters."""
        return [cast(Tensor, p.grad) for p in self.parameters]

    def norm(self) -> float:
        """Return the norm over all gradients. The norms of the tensors are added in float64."""
        found = foreach._foreach_norm(self.gradients())
        norm = math.hypot(*[n.item() for n in found])
        if math.isfinite(norm):
            return norm
        # Squares of values above 1e19 overflow in float32, although the norm does not.
        return math.hypot(*[n.item() for n in foreach._foreach_norm([g.double() for g in self.gradients()])])

    @torch.no_grad()
    def update(self, norm: float, rate: float, decay: float) -> None:
        """Take one step with gradients of the given norm."""
        settings = self.settings
        if settings.clip_norm is not None and norm > settings.clip_norm:
            foreach._foreach_mul_(self.gradients(), settings.clip_norm / norm)
        if settings.clip_value is not None:
            foreach._foreach_clamp_min_(self.gradients(), -settings.clip_value)
            foreach._foreach_clamp_max_(self.gradients(), settings.clip_value)
        rate = rate * self.rate_factor
        for factor, shrink, parameters in self._decaying if settings.l2 or decay else ():
            if settings.l2:
                foreach._foreach_add_([p.grad for p in parameters], parameters, alpha=settings.l2 * shrink)
            if decay:
                foreach._foreach_mul_(parameters, 1 - rate * factor * decay * shrink)
        for group in self._groups:
            update(self.optimizer, group, rate * group.factor)
        self._step += 1
        if settings.average is not None:
            foreach._foreach_mul_(self.averages, settings.average)
            foreach._foreach_add_(self.averages, self.parameters, alpha=1 - settings.average)

    def _group(self, rate: float, rates: list[float]) -> ParameterGroup:
        places = [i for i, other in enumerate(rates) if other == rate]
        found = [self.parameters[i] for i in places]
        return ParameterGroup(
            factor=rate,
            parameters=found,
            slots={slot: [values[i] for i in places] for slot, values in self.slots.items()},
            counts=[torch.zeros((), dtype=torch.float32, device=p.device) for p in found],
        )
