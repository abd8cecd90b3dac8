"""Run an experiment of the laboratory at its smallest size."""

from __future__ import annotations

from multilayer.lab import Result, get
from multilayer.lab.running import measure


def tiny(name: str, *, seeds: int = 2, first_seed: int = 0, workers: int = 1) -> Result:
    """Run an experiment with its settings `tiny`, in this process."""
    experiment = get(name)
    result = measure(experiment, experiment.tiny, seeds=seeds, first_seed=first_seed, workers=workers, quiet=True)
    missing = [one.statement for one in result.criteria if one.measured == "not measured"]
    assert not missing, f"criteria without a number: {missing}"
    return result
