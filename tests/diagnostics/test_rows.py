"""The rows that a network is checked on."""

from __future__ import annotations

import numpy as np
import pytest

import multilayer as ml
from multilayer.diagnostics.references import measure_skills


def test_no_row_of_an_ensemble_with_folds_is_both_a_training_row_and_held_out() -> None:
    run = ml.fit(None, "wine", epochs=2, quiet=True)
    assert run.samples is not None
    held_out = run.samples.held_out
    assert held_out is not None
    assert held_out.judges is not None
    assert held_out.judges.any(1).all()
    assert not np.intersect1d(run.samples.train.numbers, held_out.numbers).size
    assert len(run.samples.train) + len(held_out) == 178


@pytest.mark.parametrize(("network", "data", "metric"), [("13-8-3", "wine", "accuracy"), ("10-8-1", "diabetes", "r2")])
def test_the_scores_of_the_references_fit_their_skills(network: str, data: str, metric: str) -> None:
    """A skill and a score have the same errors and differ only in the error that counts as 0."""
    run = ml.fit(network, data, epochs=3, quiet=True)
    assert run.samples is not None
    assert run.samples.held_out is not None
    skills = measure_skills(run.samples.train, run.samples.held_out)
    assert skills.metric == metric
    assert skills.scores["network"] == pytest.approx(run.metrics[metric])
    loss = {name: 1 - score for name, score in skills.scores.items()}
    for name in ("linear", "features", "neighbors"):
        ratio = (1 - getattr(skills, name)) / (1 - skills.held_out)
        assert loss[name] / loss["network"] == pytest.approx(ratio)
