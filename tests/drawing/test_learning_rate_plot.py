"""The plot of a learning-rate search: no text is hidden or cut, and gaps and divergences do not break it."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from multilayer.drawing.plots import learning_rate_figure, save
from support.figures import outside, overlapping, texts_of_svg

RATES = np.logspace(-4, 1, 60)
LOSSES = 2 - np.minimum(1.5, 0.5 * np.log10(RATES / 1e-4)) + 0.1 * np.sin(np.arange(60))
NINE = np.logspace(-4, 0, 9).tolist()

CASES: dict[str, dict[str, Any]] = {
    "chosen": {"rounds": {24: (NINE, np.linspace(2, 1, 9).tolist()), 88: (NINE[3:7], [0.9, 0.5, 0.6, 0.8])}},
    "one diverged": {"rounds": {24: (NINE, [*np.linspace(2, 1, 8).tolist(), math.inf])}},
    "one rate": {"rounds": {24: (NINE[:1], [1.0])}},
    "declined early": {"rounds": {}, "chosen": None, "start_loss": None},
    "all diverged": {"rounds": {24: (NINE, [math.inf] * 9)}, "chosen": None},
}


@pytest.mark.parametrize("case", CASES)
def test_texts_are_visible(case: str, tmp_path: Path) -> None:
    options: dict[str, Any] = {"chosen": 0.01, "start_loss": 2.0, "subtitle": "a subtitle " * 30, **CASES[case]}
    smoothed = LOSSES.tolist()
    smoothed[-1] = math.inf
    figure = learning_rate_figure(range_test=(RATES.tolist(), LOSSES.tolist(), smoothed), **options)
    assert overlapping(figure) == []
    assert outside(figure) == []
    save(figure, tmp_path / "a.svg")
    texts = texts_of_svg(tmp_path / "a.svg")
    assert ("Suggested learning rate: 0.01" if options["chosen"] else "No suggestion") in texts
    for steps, (_, losses) in options["rounds"].items():
        assert (f"{steps} steps" in texts) is any(map(math.isfinite, losses))


def test_a_divergence_does_not_flatten_the_curve() -> None:
    losses = [*LOSSES.tolist()[:-1], 1e9]
    figure = learning_rate_figure(range_test=(RATES.tolist(), losses, losses), rounds={}, chosen=None)
    low, high = figure.axes[0].get_ylim()
    assert high - low < 2 * np.ptp(LOSSES)
