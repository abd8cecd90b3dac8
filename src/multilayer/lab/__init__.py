"""Experiments that measure what textbooks claim about these networks. One file in `experiments/` per experiment.

    import multilayer as ml

    result = ml.lab.vanishing_gradients(seeds=5)
    result.verdict                     # "holds", "holds partly" or "does not hold here"
    result.rows                        # the measurements, one row each
    result.plot("gradients.svg")

An experiment declares its claim, its settings and its criteria before it runs. This package runs the measurements for
each seed, computes an interval over the seeds for each criterion, and writes results, plots and the book. Code that
trains or computes networks belongs in `spec` and `engines`. Code that draws a panel belongs in `drawing`.
"""

from __future__ import annotations

import functools
from typing import Any

from .catalog import NAMES, get
from .experiment import Experiment
from .result import Result
from .running import run

__all__ = ["NAMES", "Experiment", "Result", "get", "run"]


def __getattr__(name: str) -> Any:
    if name not in NAMES:
        raise AttributeError(f"module 'multilayer.lab' has no attribute {name!r}")
    return functools.partial(run, name)


def __dir__() -> list[str]:
    return sorted([*__all__, *NAMES])
