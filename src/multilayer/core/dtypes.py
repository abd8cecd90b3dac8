"""Number formats, by the name of the option `dtype`."""

from __future__ import annotations

DTYPES = {"float64": 8, "float32": 4, "bfloat16": 2, "float16": 2}
"""Bytes per number."""
_NOT_TRAINED = "float16"
"""A format whose cost can be computed, but in which no engine trains."""
TRAINED = tuple(name for name in DTYPES if name != _NOT_TRAINED)
