"""Copies of trained models with changed tensors."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from multilayer.models.trained_model import TrainedModel


def with_tensors(model: TrainedModel, change: Callable[[str, Any], Any]) -> TrainedModel:
    """Return the model with `change(name, value)` in place of every tensor of every member."""
    return replace(
        model,
        members=tuple(
            replace(one, tensors={name: change(name, value) for name, value in one.tensors.items()})
            for one in model.members
        ),
    )
