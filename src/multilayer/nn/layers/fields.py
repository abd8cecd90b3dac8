"""The fields of a layer as text and JSON meet them: which are stored, and whether a value is of a field's type."""

from __future__ import annotations

import typing
from collections.abc import Mapping
from dataclasses import fields
from typing import Any, Literal, cast

from ...errors import SpecError
from .base import Layer


def stored_fields(cls: type[Layer]) -> list[Any]:
    """The dataclass fields that make a layer what it is; what it derives is left out."""
    return [field for field in fields(cast(Any, cls)) if field.init]


def check_fields(cls: type[Layer], values: Mapping[str, Any]) -> None:
    """Refuses a value that is not of its field's type; what the values mean is the layer's own check."""
    hints = typing.get_type_hints(cls)
    for name, value in values.items():
        if name not in ("layers", "constants") and not _fits(value, hints[name]):
            raise SpecError(f"{name} must be {_describe(hints[name])}, got {value!r}")


def _fits(value: object, hint: Any) -> bool:
    """Whether a value is of a field's type; a whole number fits where a float is asked for, true and false do not."""
    origin = typing.get_origin(hint)
    if origin is Literal:
        return isinstance(value, str)  # which names are valid is the layer's own check, with its suggestion
    if origin is not None:
        return any(_fits(value, option) for option in typing.get_args(hint))
    if hint is float:
        return isinstance(value, int | float) and not isinstance(value, bool)
    if hint is int:
        return isinstance(value, int) and not isinstance(value, bool)
    return isinstance(value, hint)


def _describe(hint: Any) -> str:
    words = {int: "a whole number", float: "a number", str: "a text", bool: "true or false", type(None): "null"}
    if typing.get_origin(hint) is Literal:
        return " or ".join(repr(option) for option in typing.get_args(hint))
    return words.get(hint) or " or ".join(_describe(option) for option in typing.get_args(hint))
