"""Combined members; temperatures against an optimizer; intervals against simulation; saved calibrations."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import optimize, special

from multilayer.errors import FileError, OptionError
from multilayer.models.trained_model import TrainedModel
from multilayer.nn import losses
from multilayer.nn.calibration import (
    MAX_ERRORS,
    MAX_TEMPERATURE,
    MIN_TEMPERATURE,
    Calibration,
    calibrated,
    combined,
    temperature,
)
from multilayer.training.fit import fit
from multilayer.training.recipe import Recipe

CROSS, BINARY, MSE = losses.get("cross_entropy"), losses.get("binary_cross_entropy"), losses.get("mse")


def draws(seed: int, *, rows: int = 400, classes: int = 4, stretch: float = 2.0) -> tuple[np.ndarray, np.ndarray]:
    """Return class labels drawn from random logits, and these logits multiplied by `stretch`."""
    generator = np.random.default_rng(seed)
    z = generator.normal(size=(rows, classes))
    y = (special.softmax(z, 1).cumsum(1) < generator.random((rows, 1))).sum(1)
    return z * stretch, y


# Temperature


def test_a_few_correct_predictions_do_not_give_full_confidence() -> None:
    """If all n predictions are correct, the mean confidence is at most (n + 1.5)/(n + 2), for both binary losses."""
    for n in (3, 30, 300):
        y = np.arange(n) % 2
        z = np.where(np.arange(2) == y[:, None], 5.0, -5.0)
        for loss, outputs, targets in ((CROSS, z, y), (BINARY, z[:, 1:] - z[:, :1], y[:, None].astype(float))):
            t = temperature(loss, outputs, targets, None)
            gap = (z.max(1) - z.min(1))[0] / t
            assert 1 / (1 + np.exp(-gap)) <= (n + 1.5) / (n + 2) + 1e-4
            assert 1 / (1 + np.exp(-gap)) >= n / (n + 2)


@pytest.mark.parametrize("stretch", [0.7, 1.0, 3.0, 9.0])
@pytest.mark.parametrize("weighted", [False, True])
def test_the_temperature_minimises_the_loss(stretch: float, weighted: bool) -> None:
    z, y = draws(1, stretch=stretch)
    weight = np.random.default_rng(2).uniform(0.1, 3, len(y)) if weighted else None
    found = temperature(CROSS, z, y, weight)
    w = np.ones(len(y)) if weight is None else weight

    doubt = 1 / (len(y) + 2)
    targets = (1 - doubt) * np.eye(z.shape[1])[y] + doubt / z.shape[1]

    def loss(log_t: float) -> float:
        return float((-(special.log_softmax(z / np.exp(log_t), 1) * targets).sum(1) * w).sum() / w.sum())

    best = optimize.minimize_scalar(loss, bounds=(np.log(MIN_TEMPERATURE), np.log(MAX_TEMPERATURE)), method="bounded")
    assert found == pytest.approx(np.exp(best.x), rel=1e-3)
    assert loss(np.log(found)) <= best.fun + 1e-9
    assert found == pytest.approx(stretch, rel=0.3)  # the factor of the outputs


def test_the_temperature_of_binary_labels_minimises_the_loss() -> None:
    generator = np.random.default_rng(3)
    z = generator.normal(size=(500, 3)) * 2
    y = (generator.random((500, 3)) < special.expit(z)).astype(float)
    found = temperature(BINARY, 2.5 * z, y, None)
    targets = (1 - 1 / 502) * y + 0.5 / 502
    loss = lambda t: BINARY.rows(2.5 * z / t, targets).mean()  # noqa: E731
    best = optimize.minimize_scalar(loss, bounds=(0.1, 10), method="bounded")
    assert found == pytest.approx(best.x, rel=1e-3)


def test_temperature_stays_within_bounds() -> None:
    z, y = np.tile([[0.1, -0.1], [-0.1, 0.1]], (500, 1)), np.arange(1000) % 2
    assert temperature(CROSS, z, y, None) == MIN_TEMPERATURE  # all predictions are correct
    assert temperature(CROSS, z, 1 - y, None) == MAX_TEMPERATURE  # all predictions are wrong
    assert temperature(CROSS, z[:0], np.zeros(0, np.int64), None) == 1.0


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_non_finite_outputs_give_temperature_1(value: float) -> None:
    z = np.array([[value, 0.0], [1.0, 2.0]])
    assert temperature(CROSS, z, np.array([0, 1]), None) == 1.0
    assert temperature(BINARY, z, np.array([[0.0, 1.0], [1.0, 0.0]]), None) == 1.0


def test_very_large_outputs_give_the_highest_temperature() -> None:
    """The squares of these outputs overflow in float64."""
    z = np.array([[1e160, -1e160], [-1e160, 1e160]])
    assert temperature(BINARY, z, np.array([[0.0, 1.0], [1.0, 0.0]]), None) == MAX_TEMPERATURE


# Members


def test_combined_outputs_give_the_mean_prediction() -> None:
    z = [np.random.default_rng(i).normal(size=(50, 4)) * 6 for i in range(5)]
    for t in (None, 0.5, 3.0):
        calibration = None if t is None else Calibration(temperature=t)
        scale = 1.0 if t is None else t
        expected = np.mean([special.softmax(one / scale, 1) for one in z], axis=0)
        np.testing.assert_allclose(special.softmax(combined(CROSS, z, calibration), 1), expected, rtol=1e-12)
        expected = np.mean([special.expit(one / scale) for one in z], axis=0)
        np.testing.assert_allclose(special.expit(combined(BINARY, z, calibration)), expected, rtol=1e-12)
    np.testing.assert_allclose(
        np.exp(combined(losses.get("poisson"), z)), np.mean([np.exp(one) for one in z], axis=0), rtol=1e-12
    )
    np.testing.assert_allclose(combined(MSE, z), np.mean(z, axis=0), rtol=1e-12)


def test_combined_outputs_are_stable_and_clipped_to_the_range() -> None:
    z = [np.array([[1e4, 0.0]]), np.array([[0.0, 1e4]])]
    np.testing.assert_allclose(special.softmax(combined(CROSS, z), 1), [[0.5, 0.5]])
    range_ = Calibration(low=np.array([-1.0]), high=np.array([2.0]))
    found = combined(MSE, [np.array([[-9.0], [0.5], [9.0]])], range_)
    assert found.ravel().tolist() == [-1.0, 0.5, 2.0]
    one = np.array([[3.0, 1.0]])
    np.testing.assert_array_equal(combined(CROSS, [one]), one)


# Intervals


def test_intervals_have_the_stated_coverage(tried: Any) -> None:
    """Split conformal intervals: the expected coverage is between c and c + 1/(n + 1).

    The coverage of 99 errors is Beta(90, 10). The standard error of its mean over 400 draws is 0.03/√400 = 0.0015. Four
    standard errors are allowed.
    """
    generator = np.random.default_rng(0)
    covered: list[float] = []
    for _ in range(400):
        errors = np.sort(generator.standard_t(3, size=(99, 1)), 0)
        half = Calibration(errors=errors).interval(0.9, MSE)[1][0]
        covered.append(float((np.abs(generator.standard_t(3, size=1000)) <= half).mean()))
    assert 0.9 - 4 * 0.0015 < np.mean(covered) < 0.91 + 4 * 0.0015
    tried("intervals: simulated data sets", len(covered))


def test_intervals_from_too_few_rows_are_infinite() -> None:
    four = Calibration(errors=np.array([[-2.0], [-1.0], [0.5], [3.0]]))
    assert [ends[0] for ends in four.interval(0.79, MSE)] == [-3.0, 3.0]  # the 4th of 4 errors: ⌈5 · 0.79⌉ = 4
    assert four.too_few(0.79, MSE) is None
    assert four.interval(0.81, MSE)[1][0] == np.inf  # ⌈5 · 0.81⌉ = 5, and there are only 4 errors
    for coverage, needed in ((0.81, 5), (0.9, 9), (0.95, 19), (0.99, 99)):
        assert four.too_few(coverage, MSE) == needed
        assert Calibration(errors=np.zeros((needed, 1))).too_few(coverage, MSE) is None
        assert Calibration(errors=np.zeros((needed - 1, 1))).too_few(coverage, MSE) == needed
    assert four.too_few(0.9, losses.get("quantile(0.9)")) == 19  # half of the rest on each side
    for q in (5e-324, 1e-300, 1e-17, 1 - 2**-53):  # 1 − q or q is rounded
        needed = four.too_few_for(q)
        assert needed is not None
        assert needed == pytest.approx(min(1 / min(q, 1 - q), 1e300), rel=1e-15)
        assert four.quantile(q)[0] == (np.inf if q > 0.5 else -np.inf)
    assert four.quantile(0.5)[0] == -0.25
    assert [four.quantile(q)[0] for q in (0.2, 0.3, 0.8)] == [-2.0, -1.5, 3.0]  # the 1st, 1.5th and 4th of 4
    assert [four.quantile(q)[0] for q in (0.19, 0.81)] == [-np.inf, np.inf]
    assert [four.too_few_for(q) for q in (0.2, 0.8, 0.19, 0.81, 0.05, 0.95, 0.01)] == [None, None, 5, 5, 19, 19, 99]


@pytest.mark.parametrize("rows", [19, 59])
def test_quantiles_of_few_rows_have_the_stated_coverage(rows: int, tried: Any) -> None:
    """A new error is between the quantiles 0.05 and 0.95 of n errors with probability 0.9 if (n + 1)/20 is an integer.

    The tolerance is four standard errors of the mean of 4,000 draws.
    """
    generator = np.random.default_rng(0)
    covered: list[float] = []
    for _ in range(4000):
        found = Calibration(errors=np.sort(generator.normal(size=(rows, 1)), 0))
        low, high = found.quantile(0.05)[0], found.quantile(0.95)[0]
        covered.append(float(special.ndtr(high) - special.ndtr(low)))
    assert abs(np.mean(covered) - 0.9) < 4 * np.std(covered) / np.sqrt(len(covered))
    tried("quantiles: simulated data sets", len(covered))


@pytest.mark.parametrize("bad", [0.0, 1.0, -0.1, 1.5, float("nan")])
def test_coverage_and_quantiles_must_be_between_0_and_1(bad: float) -> None:
    known = Calibration(errors=np.zeros((3, 1)))
    with pytest.raises(OptionError, match="coverage must be above 0 and below 1, got"):
        known.interval(bad, MSE)
    with pytest.raises(OptionError, match="a quantile must be above 0 and below 1, got"):
        known.quantile(bad)


def test_intervals_need_held_out_errors() -> None:
    with pytest.raises(OptionError, match="intervals need errors on held-out rows, and the model has none"):
        Calibration().interval(0.9, MSE)


def test_calibrated_stores_the_values_of_each_task() -> None:
    z, y = draws(5, stretch=4.0)
    assert calibrated(CROSS, z, y, None, np.zeros((0, 0))).temperature == pytest.approx(4, rel=0.3)
    targets = np.array([[-1.0], [0.0], [4.0]])
    found = calibrated(MSE, np.zeros((3, 1)), targets, None, targets)
    assert (found.low[0], found.high[0], found.temperature) == (-1.0, 4.0, 1.0)
    assert found.errors.ravel().tolist() == [-1.0, 0.0, 4.0]
    counts = calibrated(losses.get("poisson"), np.zeros((3, 1)), targets, None, targets)
    assert counts.errors.ravel().tolist() == [-2.0, -1.0, 3.0]  # the prediction is exp(0) = 1
    assert not len(counts.low)
    two = np.array([[0.0, 1.0, 2.0], [0.0, 1.0, 5.0]])  # the first two targets are constant
    alike = calibrated(losses.get("poisson"), np.full((2, 3), 0.5), two, None, two)
    assert np.exp(combined(losses.get("poisson"), [np.full((1, 3), 0.5)], alike)).tolist() == [
        [pytest.approx(0, abs=1e-300), 1.0, np.exp(0.5)]
    ]
    np.testing.assert_allclose(alike.errors[:, :2], 0, atol=1e-300)
    levels = np.array([[1.0, -0.5], [-0.5, 1.0], [-0.5, 1.0]])  # crossed levels, which decoding sorts
    scores = calibrated(losses.get("quantile(0.1, 0.9)"), levels, targets, None, targets)
    assert scores.errors.ravel().tolist() == [-0.5, 0.5, 3.0]
    for bad in (1e4, np.nan):
        assert not len(calibrated(losses.get("poisson"), np.full((3, 1), bad), targets, None, targets).errors)
    many = np.random.default_rng(0).normal(size=(3 * MAX_ERRORS, 1))
    kept = calibrated(MSE, np.zeros_like(many), many, None, many)
    assert kept.errors.shape == (MAX_ERRORS, 1)
    np.testing.assert_allclose(kept.quantile(0.9), np.quantile(many, 0.9, axis=0), atol=1e-3)


@pytest.mark.parametrize("loss", ["poisson", "quantile(0.9)", "quantile(0.25, 0.75)"])
def test_intervals_of_every_loss_have_the_stated_coverage(loss: str) -> None:
    """The coverage is 0.9 to 0.91, with the tolerance of mse: four standard errors of 0.0015.

    The two ends of a quantile interval are separate, and each adds up to 1/(n + 1). Poisson counts have ties, which can
    only increase the coverage.
    """
    generator, chosen = np.random.default_rng(0), losses.get(loss)
    covered: list[float] = []
    for _ in range(400):
        if loss == "poisson":
            y, z = generator.poisson(50, size=(1099, 1)).astype(float), np.full((1099, 1), np.log(50.0))
        else:
            y, z = (
                generator.exponential(size=(1099, 1)),
                np.full((1099, chosen.per_target), 2.0) * [1, 1.5][: chosen.per_target],
            )
        found = calibrated(chosen, z[:99], y[:99], None, np.array([[-1e9], [1e9]]))
        low, high = found.interval(0.9, chosen)
        given = np.exp(z[0]) if loss == "poisson" else z[0]
        covered.append(float(((given[0] + low <= y[99:]) & (y[99:] <= given[-1] + high)).mean()))
    assert 0.9 - 4 * 0.0015 < np.mean(covered) < (0.94 if loss == "poisson" else 0.92 + 4 * 0.0015)


def test_interval_ends_around_a_single_quantile_are_quantiles() -> None:
    """z is the 0.9 quantile of an exponential distribution, so 90 % of the rows lie below it."""
    y = np.random.default_rng(0).exponential(size=(1999, 1))
    z = np.full_like(y, np.log(10))
    chosen = losses.get("quantile(0.9)")
    low, high = calibrated(chosen, z, y, None, y).interval(0.8, chosen)
    np.testing.assert_allclose(np.log(10) + np.array([low[0], high[0]]), np.quantile(y, [0.1, 0.9]), atol=0.02)


# Weights


def test_intervals_ignore_rows_of_weight_0() -> None:
    generator = np.random.default_rng(0)
    y = generator.normal(size=(60, 2))
    strange = np.concatenate([y, y + 1000])
    weight = np.repeat([0.7, 0.0], 60)
    alone = calibrated(MSE, np.zeros((60, 2)), y, None, strange)
    np.testing.assert_array_equal(calibrated(MSE, np.zeros((120, 2)), strange, weight, strange).errors, alone.errors)
    np.testing.assert_array_equal(
        calibrated(MSE, np.zeros((60, 2)), y, np.full(60, 0.3, np.float32), strange).errors, alone.errors
    )


def test_errors_are_weighted() -> None:
    """Half of the rows have errors ten times as large and a ninth of the weight, so they count as a tenth of the rows.

    The interval is compared with such a mixture. The effective sample size of the 4,000 rows is 2,439.
    """
    generator = np.random.default_rng(0)
    y = generator.normal(size=(4000, 1)) * np.repeat([1.0, 10.0], 2000)[:, None]
    weight = np.repeat([9.0, 1.0], 2000)
    found = calibrated(MSE, np.zeros_like(y), y, weight, y)
    assert len(found.errors) == round(20_000**2 / (2000 * 82))
    half = found.interval(0.8, MSE)[1][0]
    fresh = np.abs(generator.normal(size=100_000)) * np.where(generator.random(100_000) < 0.1, 10.0, 1.0)
    assert (fresh <= half).mean() == pytest.approx(0.8, abs=4 * np.sqrt(0.16 / 2439))


# Saved calibrations


@pytest.fixture(scope="module")
def model() -> TrainedModel:
    x = np.random.default_rng(0).normal(size=(80, 3))
    made = fit(Recipe(hidden=(8,)), (x, x[:, 0] * x[:, 1]), ensemble=2, epochs=2, quiet=True).model
    assert made is not None
    return made


def test_a_saved_model_keeps_its_calibration(model: TrainedModel, tmp_path: Path) -> None:
    assert model.calibration is not None
    assert len(model.calibration.errors) == 32  # each of the two members holds out a fifth of 80 rows
    model.save(tmp_path / "m.safetensors")
    again = TrainedModel.load(tmp_path / "m.safetensors")
    assert again.calibration is not None
    assert len(again.members) == 2
    np.testing.assert_array_equal(again.calibration.errors, model.calibration.errors)
    assert again.to_bytes() == model.to_bytes()


@pytest.mark.parametrize(
    ("data", "arrays", "fault"),
    [
        ({"temperature": 0.0}, {}, "a temperature from 0.1 to 20"),
        ({"temperature": float("inf")}, {}, "a temperature from 0.1 to 20"),
        ({"temperature": "1"}, {}, "a temperature from 0.1 to 20"),
        ({"temperature": 1.0, "more": 2}, {}, "a temperature from 0.1 to 20"),
        ([], {}, "a temperature from 0.1 to 20"),
        ({"temperature": 1.0}, {"low": np.zeros(1)}, "low, high and errors"),
        (
            {"temperature": 1.0},
            {"low": np.zeros(1), "high": np.zeros(1), "errors": np.full((2, 1), np.nan)},
            "all finite",
        ),
    ],
)
def test_a_damaged_calibration_is_refused(data: Any, arrays: Any, fault: str) -> None:
    with pytest.raises(FileError, match=fault):
        Calibration.from_parts(data, arrays, "model.safetensors")


def test_errors_use_predictions_clipped_to_the_training_targets() -> None:
    targets = np.array([[0.0], [1.0], [2.0]])
    z, y = np.array([[-5.0], [1.0], [9.0]]), np.array([[0.0], [1.5], [2.0]])
    found = calibrated(losses.get("mse"), z, y, None, targets)
    assert found.errors[:, 0].tolist() == [0.0, 0.0, 0.5]
