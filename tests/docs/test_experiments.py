"""The pages about the experiments show stored results that fit the experiments of this version."""

from __future__ import annotations

from dataclasses import asdict

import pytest

from multilayer.core.canonical_json import plain
from multilayer.lab import get
from support.figures import outside, overlapping
from support.site import experiment_pages


@pytest.mark.parametrize("name", experiment_pages.results())
def test_every_experiment_has_a_stored_result_of_its_default_settings(name: str) -> None:
    result = experiment_pages.results()[name]
    experiment = get(name)
    assert result.settings == plain(asdict(experiment.settings)), f"measure again: {experiment_pages.COMMAND}"
    assert len(result.seeds) == experiment.seeds
    assert not result.interrupted


@pytest.mark.parametrize("name", experiment_pages.results())
def test_every_experiment_has_a_page_with_its_verdict(name: str) -> None:
    page = experiment_pages.pages()[f"explanation/experiments/{name}.md"]()
    result = experiment_pages.results()[name]
    assert f"**What we measured: {result.verdict}.**" in page
    assert get(name).claim in page
    assert f"| [{get(name).title}]({name}.md) |" in experiment_pages.pages()["explanation/experiments/index.md"]()


@pytest.mark.parametrize("name", experiment_pages.results())
def test_no_text_of_a_plot_is_hidden_or_cut(name: str) -> None:
    figure = experiment_pages.results()[name].figure()
    assert overlapping(figure) == []
    assert outside(figure) == []
