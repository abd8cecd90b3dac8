"""`ml.find_learning_rate`: the short runs, the choice, the reasons when it declines, and what it leaves unchanged."""

from __future__ import annotations

import json
import math
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import multilayer as ml
from multilayer.cli.output import strict_json
from multilayer.data import DataOptions, read
from multilayer.errors import MissingExtra, OptionError
from multilayer.runs.config import Config
from multilayer.runs.events import EpochEnd
from multilayer.training import learning_rate_finder as module
from multilayer.training.inputs import encode
from multilayer.training.learning_rate_finder import LearningRateSuggestion, suggest
from multilayer.training.rate_trials import ShortRuns, diverged, smooth
from multilayer.training.setup import Setup

SPEC = "2-8:tanh-1"
FAST: dict[str, Any] = {"threads": 1, "quiet": True}


def setup(spec: str = SPEC, data: Any = "moons", weights: Any = None, **options: Any) -> Setup:
    settings: dict[str, Any] = {"threads": 1, "epochs": 100, **options}
    config = Config(**settings)
    return Setup.make(spec, encode(read(data), DataOptions(sample_weight=weights), config), config)


def rows(number: int = 300, *, seed: int = 0) -> tuple[Any, Any]:
    x = np.random.default_rng(seed).normal(size=(number, 3))
    return x, x[:, 0] - 2 * x[:, 1] + 0.1 * np.random.default_rng(seed + 1).normal(size=number)


@pytest.mark.parametrize("engine", ["numpy", "torch", "fused"])
def test_every_engine_gives_the_same_suggestion(engine: str) -> None:
    found = ml.find_learning_rate(SPEC, "moons", engine=engine, dtype="float64", epochs=120, **FAST)
    expected = ml.find_learning_rate(SPEC, "moons", engine="numpy", dtype="float64", epochs=120, **FAST)
    assert found.learning_rate == expected.learning_rate is not None
    np.testing.assert_allclose(found.losses, expected.losses, rtol=1e-6)
    np.testing.assert_allclose([t.loss for t in found.trials], [t.loss for t in expected.trials], rtol=1e-6)


@pytest.mark.parametrize("weighted", [False, True])
def test_a_trial_is_a_short_training(weighted: bool) -> None:
    """A trial over the steps of one epoch ends with the validation loss of a training of one epoch."""
    x, y = rows()
    weights = np.random.default_rng(5).uniform(0.1, 3, size=len(x)) if weighted else None
    made = setup("3-8:tanh-1", (x, y), weights, seed=3, weight_decay=0.5)
    with ShortRuns.of(made) as runs:
        found = runs.trial(0.02, made.plan.steps_per_epoch, len(runs.held_out))
    options: dict[str, Any] = {"sample_weight": weights} if weighted else {}
    run = ml.fit("3-8:tanh-1", (x, y), epochs=1, learning_rate=0.02, seed=3, weight_decay=0.5, **options, **FAST)
    event = next(event for event in run.log if isinstance(event, EpochEnd))
    assert found is not None
    assert found.mean() == pytest.approx(event.validation_loss, rel=1e-5)


def test_a_trial_longer_than_an_epoch_takes_the_batches_of_the_next_one() -> None:
    made = setup()
    taken: list[tuple[int, int]] = []
    run = made.engine.run
    made.engine.run = lambda order, **how: (taken.append((order.epoch, order.steps)), run(order, **how))[1]  # type: ignore[method-assign]
    with ShortRuns.of(made) as runs:
        runs.trial(0.01, 2 * made.plan.steps_per_epoch + 3, 10)
    assert [sum(steps for epoch, steps in taken if epoch == number) for number in range(3)] == [
        made.plan.steps_per_epoch,
        made.plan.steps_per_epoch,
        3,
    ]


def test_the_state_of_the_engine_is_restored() -> None:
    made = setup()
    before = made.engine.state().copy()
    assert suggest(made, quiet=True).learning_rate is not None
    assert made.engine.state().equals(before)


def test_ctrl_c_restores_the_state() -> None:
    made = setup()
    before, run, calls = made.engine.state().copy(), made.engine.run, []

    def interrupted(*args: Any, **how: Any) -> Any:
        calls.append(args)
        if len(calls) == 5:
            raise KeyboardInterrupt
        return run(*args, **how)

    made.engine.run = interrupted  # type: ignore[method-assign]
    with pytest.raises(KeyboardInterrupt):
        suggest(made, quiet=True)
    assert made.engine.state().equals(before)


def test_it_is_reproducible_by_seed_and_changes_no_training() -> None:
    x, y = rows()
    copies = x.copy(), y.copy()
    before = ml.fit("3-8-1", (x, y), epochs=3, **FAST).model
    first, second = (ml.find_learning_rate("3-8-1", (x, y), **FAST) for _ in range(2))
    other = ml.find_learning_rate("3-8-1", (x, y), seed=1, **FAST)
    after = ml.fit("3-8-1", (x, y), epochs=3, **FAST).model
    assert first == second
    assert first.losses != other.losses
    assert (x == copies[0]).all()
    assert (y == copies[1]).all()
    assert before is not None
    assert after is not None
    assert (before.predict(x) == after.predict(x)).all()


@pytest.mark.parametrize("share", [0.1, 0.4])
def test_all_steps_and_evaluations_stay_within_the_share(share: float) -> None:
    made = setup(epochs=300)
    steps, evaluated = [], []
    run, outputs = made.engine.run, made.engine.outputs
    made.engine.run = lambda order, **how: (steps.append(order.steps), run(order, **how))[1]  # type: ignore[method-assign]
    made.engine.outputs = lambda rows, **how: (evaluated.append(len(rows)), outputs(rows, **how))[1]  # type: ignore[method-assign]
    assert suggest(made, share=share, quiet=True).learning_rate is not None
    assert sum(steps) <= share * made.plan.steps
    assert sum(steps) > 0.7 * share * made.plan.steps
    assert sum(evaluated) <= 17 * len(made.prepared.validation)


def test_without_validation_rows_a_part_of_the_training_rows_is_held_out() -> None:
    made = setup(validation=None)
    runs = ShortRuns.of(made)
    assert len(runs.held_out) == int(0.2 * len(made.plan.rows))
    assert sorted([*runs.held_out, *runs.plan.rows]) == sorted(made.plan.rows)
    assert suggest(made, quiet=True).learning_rate is not None


def test_it_finds_a_better_rate_than_the_default_for_plain_gradient_descent() -> None:
    options: dict[str, Any] = {"optimizer": "sgd", "weight_decay": 0.0, "epochs": 150, **FAST}
    found = ml.find_learning_rate("3-16:tanh-1", rows(), **options)
    assert found.learning_rate is not None
    assert found.default is not None
    default, chosen = (
        ml.fit("3-16:tanh-1", rows(), learning_rate=rate, **options).metrics["rmse"]
        for rate in (found.default, found.learning_rate)
    )
    assert found.learning_rate > 3 * found.default
    assert chosen < 0.9 * default


def test_rates_above_the_point_of_divergence_are_not_tried() -> None:
    found = ml.find_learning_rate("3-64-64-1", rows(), optimizer="sgd", weight_decay=0.0, **FAST)
    assert found.diverged_at is not None
    assert len(found.rates) == len(found.losses) == len(found.smoothed)
    assert found.rates[-1] == found.diverged_at
    assert max(one.learning_rate for one in found.trials) < found.diverged_at
    assert found.learning_rate is not None
    assert found.learning_rate < found.diverged_at


def test_the_default_itself_is_among_the_rates() -> None:
    """Rounded, it would be another training than without the option."""
    wide = setup("3-300-1", rows(), epochs=150)
    assert wide.plan.rate not in [float(f"{wide.plan.rate:.3g}")]
    found = suggest(wide, quiet=True)
    assert wide.plan.rate in [one.learning_rate for one in found.trials]
    assert len({one.learning_rate for one in found.trials}) <= 9


def test_a_diverged_trial_is_never_suggested() -> None:
    made = setup("3-64-64-1", rows(), optimizer="sgd", weight_decay=0.0)
    with ShortRuns.of(made) as runs:
        assert runs.trial(1e3, 50, 10) is None
        assert runs.trial(1e-3, 50, 10) is not None


def test_start_model_is_where_the_short_runs_begin() -> None:
    trained = ml.fit("3-8-1", rows(), epochs=40, **FAST).model
    assert trained is not None
    scratch, tuned = (
        ml.find_learning_rate("3-8-1", rows(), start=start, share=1.0, epochs=20, **FAST) for start in (None, trained)
    )
    assert scratch.start_loss is not None
    assert tuned.start_loss is not None
    assert tuned.start_loss < 0.3 * scratch.start_loss


def test_an_ensemble_counts_all_its_networks_and_runs_one() -> None:
    x, y = rows(600)
    found = ml.find_learning_rate(None, (x, y), hidden=(8,), **FAST)
    assert found.learning_rate is not None
    single = ml.find_learning_rate(None, (x, y), hidden=(8,), ensemble=1, **FAST)
    assert single.learning_rate is None
    assert "the training is too short" in single.reason


class Loader:
    """A loader whose rows must not be read."""

    batch_size, dataset = 16, ()

    def __iter__(self) -> Any:
        raise AssertionError("the loader was read")


x, y = rows()
noise = np.random.default_rng(9).normal(size=len(x))
DECLINED: dict[str, tuple[Any, dict[str, Any], str]] = {
    "perceptron": (("2-1:step", "moons"), {}, "the perceptron rule learns from mistakes"),
    "few rows": (
        ("3-4-1", (x[:30], y[:30])),
        {},
        "too few rows: comparing rates needs at least 10 held-out rows, got 6",
    ),
    "few epochs": (
        ("3-4-1", (x, y)),
        {"epochs": 4},
        r"too short: .* at least 2,000 steps, got 60 steps: set more epochs$",
    ),
    "share": (("3-4-1", (x, y)), {"epochs": 50}, r"got 750 steps: set more epochs, or allow more of them, share=0.27$"),
    "zero gradient": (
        ("3-4-4-1", (x, np.sign(y))),
        {"init": "zeros", "optimizer": "sgd"},
        "does not clearly fall|is the same",
    ),
    "no relation": (("3-4:tanh-1", (x, noise)), {"init": "zeros"}, "the held-out loss does not clearly fall at any"),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("case", DECLINED)
def test_it_declines_with_a_reason(case: str) -> None:
    arguments, options, reason = DECLINED[case]
    found = ml.find_learning_rate(*arguments, **options, **FAST)
    assert found.learning_rate is None
    assert re.search(reason, found.reason), found.reason


def test_it_declines_a_loader_without_reading_it() -> None:
    found = ml.find_learning_rate("3-4-1", Loader())
    assert found.learning_rate is None
    assert found.reason == "the batches of a DataLoader cannot be repeated: pass the rows as (X, y)"


@pytest.mark.filterwarnings("ignore:target 'y' is the same")
def test_it_declines_a_constant_target() -> None:
    found = ml.find_learning_rate("3-4-1", (x, np.full(len(x), 3.5)), **FAST)
    assert found.learning_rate is None
    assert "the target is the same in every training row" in found.reason


def test_it_declines_if_training_diverges_at_every_rate() -> None:
    made = setup("3-16-16-1", rows(), optimizer="sgd", weight_decay=0.0, learning_rate=1e6, epochs=150)
    found = suggest(made, quiet=True)
    assert found.learning_rate is None
    assert "diverges even at a learning rate of" in found.reason


def test_options_are_checked() -> None:
    with pytest.raises(OptionError, match=r"find_learning_rate chooses learning_rate, got 0\.1: omit it"):
        ml.find_learning_rate(SPEC, "moons", learning_rate=0.1)
    with pytest.raises(OptionError, match="share must be above 0 and at most 1, got 2"):
        ml.find_learning_rate(SPEC, "moons", share=2)
    with pytest.raises(OptionError, match="find_learning_rate: unknown option 'epoch': did you mean 'epochs'"):
        ml.find_learning_rate(SPEC, "moons", epoch=2)  # type: ignore[call-arg]
    with pytest.raises(ml.MultilayerError, match="needs data to train on"):
        ml.find_learning_rate(SPEC)


def test_smoothing_is_a_weighted_mean_of_the_past() -> None:
    values, window = np.random.default_rng(0).normal(size=20), 3.0
    expected = []
    for end in range(1, len(values) + 1):
        weights = np.exp(-np.arange(end)[::-1] / window)
        expected.append((weights * values[:end]).sum() / weights.sum())
    np.testing.assert_allclose(smooth(values, window), expected)
    assert smooth(np.array([4.0, math.nan, 1.0]), window)[0] == 4.0


def test_a_value_that_is_not_finite_counts_as_divergence() -> None:
    assert diverged(np.array([1.0, math.nan, 1.0]), 1) == 1
    assert diverged(np.array([1.0, 1.5, math.inf]), 1) == 2
    assert diverged(np.array([math.nan, 1.0]), 1) == 0
    assert diverged(np.array([-1.0, -0.5]), 1) is None
    assert diverged(np.array([-1.0, 0.5]), 1) == 1
    assert diverged(np.array([1.0, 3.0, 5.9]), 2) is None, "the first batches differ"


# What is shown


@pytest.fixture(scope="module")
def found() -> LearningRateSuggestion:
    return ml.find_learning_rate(SPEC, "moons", epochs=150, **FAST)


def test_json_has_every_value(found: LearningRateSuggestion) -> None:
    values = json.loads(strict_json(found.to_dict()))
    assert values["learning_rate"] == found.learning_rate
    assert values["smoothed"] == list(found.smoothed)
    assert values["trials"][0].keys() == {"learning_rate", "steps", "loss"}
    with_inf = replace(found, trials=(replace(found.trials[0], loss=math.inf),))
    assert json.loads(strict_json(with_inf.to_dict()))["trials"][0]["loss"] == "inf"


def test_plot_and_notebook(found: LearningRateSuggestion, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found.plot(tmp_path / "lr.svg")
    assert f"Suggested learning rate: {found.learning_rate:g}" in (tmp_path / "lr.svg").read_text()
    assert "<svg" in found._repr_html_()
    declined = module._declined("a < b")
    assert declined._repr_html_() == "<p><strong>no suggestion</strong>: a &lt; b</p>"
    with pytest.raises(OptionError, match="nothing to plot: no short run was made, because a < b"):
        declined.plot()
    with pytest.raises(OptionError, match=r"must end in \.svg"):
        found.plot(tmp_path / "lr.txt")

    def missing(**_: Any) -> None:
        raise MissingExtra("matplotlib", "a plot")

    monkeypatch.setattr("multilayer.drawing.plots.learning_rate_figure", missing)
    assert "<svg" not in found._repr_html_()
    assert f"learning rate {found.learning_rate:g}" in found._repr_html_()


@pytest.mark.parametrize(("terminal", "quiet", "after", "shown"), [
    (True, False, 0.0, True),
    (True, True, 0.0, False),
    (True, False, 1e9, False),
    (False, False, 0.0, False),
])  # fmt: skip
def test_a_terminal_shows_progress_if_the_search_takes_long(
    terminal: bool,
    quiet: bool,
    after: float,
    shown: bool,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(module, "SHOWN_AFTER", after)
    monkeypatch.delenv("TERM", raising=False)
    (monkeypatch.setenv if terminal else lambda *_: monkeypatch.delenv("FORCE_COLOR", raising=False))(
        "FORCE_COLOR", "1"
    )
    suggest(setup(), quiet=quiet)
    written = capsys.readouterr()
    assert ("learning rates" in written.err) is shown
    assert written.out == ""
