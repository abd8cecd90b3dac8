"""Temperature scaling for the averaged ensemble, compared with simulations whose true probabilities are known."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import optimize

import multilayer as ml
from multilayer.nn import calibration, losses
from multilayer.nn.calibration import MAX_ROWS, Calibration, HeldOutRows, combined, ensemble_temperature, temperature
from multilayer.nn.losses import Loss

CROSS, BINARY = losses.get("cross_entropy"), losses.get("binary_cross_entropy")
MEMBERS, CLASSES, OVERCONFIDENCE = 4, 5, 1.7


def simulated(
    loss: Loss,
    rows: int,
    *,
    noise: float,
    seed: int = 0,
    members: int = MEMBERS,
    learned: float = 0.5,
    apart: float = 2,
) -> tuple[NDArray[np.float64], NDArray[np.bool_], NDArray[np.float64]]:
    """Return simulated member outputs, the training rows of each member, and targets drawn from the true probabilities.

    The outputs are the true logits plus independent noise, times OVERCONFIDENCE. Each member holds out a fifth of the
    rows. On its training rows, its outputs are shifted toward the target by `learned`.
    """
    generator = np.random.default_rng(seed)
    truth = apart * generator.normal(size=(rows, CLASSES if loss.classes else 1))
    if loss.classes:
        p = np.exp(truth) / np.exp(truth).sum(1, keepdims=True)
        y = (p.cumsum(1) < generator.random((rows, 1))).sum(1)
        lean = np.eye(CLASSES)[y]
    else:
        y = (generator.random((rows, 1)) < 1 / (1 + np.exp(-truth))).astype(np.float64)
        lean = 2 * y - 1
    z = OVERCONFIDENCE * (truth + noise * generator.normal(size=(members, *truth.shape)))
    seen = np.arange(rows) % 5 != np.arange(members)[:, None]
    return z + learned * seen[..., None] * lean, seen, y


def best(loss: Loss, z: NDArray[np.float64], y: NDArray[np.float64]) -> float:
    """Return the temperature that minimizes the loss of the averaged ensemble on these rows."""

    def cost(t: float) -> float:
        return float(loss.rows(combined(loss, list(z), Calibration(temperature=float(np.exp(t)))), y).sum())

    return float(np.exp(optimize.minimize_scalar(cost, bounds=(-0.5, 2), method="bounded").x))


@pytest.mark.parametrize("loss", [CROSS, BINARY], ids=["classes", "labels"])
@pytest.mark.parametrize("noise", [0.2, 0.6, 1.0])
def test_rows_held_out_by_one_member_give_the_temperature_of_the_ensemble(loss: Loss, noise: float) -> None:
    z, seen, y = simulated(loss, 8000, noise=noise)
    held_out = np.flatnonzero((~seen).sum(0) == 1)
    held_out_outputs = z[(~seen[:, held_out]).argmax(0), held_out]
    alone = temperature(loss, held_out_outputs, y[held_out], None)
    found = ensemble_temperature(loss, z[:, held_out], seen[:, held_out], y[held_out], None, alone)
    fresh, _, targets = simulated(loss, 40_000, noise=noise, seed=1, learned=0)
    optimum = best(loss, fresh, targets)
    assert found == pytest.approx(optimum, rel=0.08)
    if noise > 0.5:  # with less noise, the effect is below the standard error of one temperature
        assert abs(found - optimum) < abs(alone - optimum)


@pytest.mark.parametrize("loss", [CROSS, BINARY], ids=["classes", "labels"])
def test_confident_members_that_disagree_are_not_sharpened(loss: Loss) -> None:
    """No temperature makes the mean prediction as confident as the mean output, so the search has no optimum."""
    z, seen, y = simulated(loss, 8000, noise=3.0, apart=20)
    held_out = np.flatnonzero((~seen).sum(0) == 1)
    held_out_outputs = z[(~seen[:, held_out]).argmax(0), held_out]
    alone = temperature(loss, held_out_outputs, y[held_out], None)
    found = ensemble_temperature(loss, z[:, held_out], seen[:, held_out], y[held_out], None, alone)
    fresh, _, targets = simulated(loss, 40_000, noise=3.0, seed=1, learned=0, apart=20)
    assert found == pytest.approx(best(loss, fresh, targets), rel=0.2)  # a tenth for the fit, plus 0.08 as above


def test_rows_held_out_by_all_members_are_fitted_directly() -> None:
    z, seen, y = simulated(CROSS, 3000, noise=0.8, learned=0)
    found = ensemble_temperature(CROSS, z, np.zeros_like(seen), y, None, 1.0)
    assert found == pytest.approx(best(CROSS, z, y), rel=1e-3)
    weights = np.where(np.arange(3000) < 1000, 1.0, 0.0)
    assert ensemble_temperature(CROSS, z, np.zeros_like(seen), y, weights, 1.0) == pytest.approx(
        best(CROSS, z[:, :1000], y[:1000]), rel=1e-3
    )


def test_two_members_get_the_confidence_of_their_mean_output() -> None:
    z, seen, y = simulated(CROSS, 4000, noise=0.6, members=2)
    held_out = np.flatnonzero((~seen).sum(0) == 1)
    alone = 2.0
    found = ensemble_temperature(CROSS, z[:, held_out], seen[:, held_out], y[held_out], None, alone)
    assert 0.8 * alone < found < alone


def test_members_that_agree_keep_their_temperature() -> None:
    z, seen, y = simulated(CROSS, 4000, noise=0.0, learned=0)
    held_out = np.flatnonzero((~seen).sum(0) == 1)
    alone = temperature(CROSS, z[0, held_out], y[held_out], None)
    found = ensemble_temperature(CROSS, z[:, held_out], seen[:, held_out], y[held_out], None, alone)
    assert found == pytest.approx(alone, rel=1e-3)


def test_many_rows_give_a_plausible_temperature_and_no_rows_keep_that_of_one_member() -> None:
    rows = 4 * MAX_ROWS
    z, seen, y = simulated(BINARY, rows, noise=0.5)
    held_out = np.flatnonzero((~seen).sum(0) == 1)
    alone = temperature(BINARY, z[(~seen[:, held_out]).argmax(0), held_out], y[held_out], None)
    assert (
        0.5 * alone < ensemble_temperature(BINARY, z[:, held_out], seen[:, held_out], y[held_out], None, alone) < alone
    )
    assert (
        ensemble_temperature(
            CROSS, np.zeros((4, 3, 2)), np.ones((4, 3), dtype=np.bool_), np.zeros(3, dtype=int), None, 1.3
        )
        == 1.3
    )


def test_sample_weights_are_respected() -> None:
    z, seen, y = simulated(CROSS, 2000, noise=0.8)
    noisy = z.copy()
    noisy[:, 1000:] *= 5
    weight = np.where(np.arange(2000) < 1000, 1.0, 0.0)
    alone = 1.5
    found = ensemble_temperature(CROSS, noisy, seen, y, weight, alone)
    without = ensemble_temperature(CROSS, z[:, :1000], seen[:, :1000], y[:1000], None, alone)
    assert found == pytest.approx(without, rel=0.05)


def test_rows_held_out_by_several_members_are_used() -> None:
    z, _, y = simulated(CROSS, 6000, noise=0.8, learned=0)
    pairs = np.arange(6000) % 2 == (np.arange(MEMBERS) // 2)[:, None]
    alone = temperature(CROSS, z[0], y, None)
    assert ensemble_temperature(CROSS, z, ~pairs, y, None, alone) == pytest.approx(best(CROSS, z, y), rel=0.08)


def test_few_rows_change_the_temperature_little() -> None:
    z, seen, y = simulated(CROSS, 20, noise=1.0)
    alone = temperature(CROSS, z[0], y, None)
    assert abs(np.log(ensemble_temperature(CROSS, z, seen, y, None, alone) / alone)) < 0.25


def test_non_finite_rows_are_dropped() -> None:
    z, seen, y = simulated(CROSS, 1000, noise=0.5)
    broken = z.copy()
    broken[2, 7] = np.nan
    kept = np.delete(np.arange(1000), 7)
    found = ensemble_temperature(CROSS, broken, seen, y, None, 1.5)
    assert found == ensemble_temperature(CROSS, z[:, kept], seen[:, kept], y[kept], None, 1.5)


@pytest.mark.parametrize("members", [1, 2, 3, 4])
def test_a_fitted_ensemble_saves_both_temperatures(members: int, tmp_path: Path) -> None:
    """Held-out rows use the temperature of the members that hold them out, new rows that of the ensemble."""
    generator = np.random.default_rng(0)
    x = generator.normal(size=(300, 4))
    y = (x[:, 0] + generator.normal(size=300) > 0).astype(int)
    model = ml.MLPClassifier(ensemble=members, epochs=12, hidden=(32,), random_state=0).fit(x, y)
    found = model.model_.calibration
    assert found is not None
    assert (found.out_of_fold is None) == (members == 1)
    if members > 1:
        assert found.for_out_of_fold.temperature == found.out_of_fold
        assert found.temperature < found.out_of_fold
    model.save(tmp_path / "model.safetensors")
    again = ml.load(tmp_path / "model.safetensors").calibration
    assert again is not None
    assert (again.temperature, again.out_of_fold) == (found.temperature, found.out_of_fold)
    without = Calibration.from_parts({"temperature": 1.5}, found.to_parts()[1], "here")
    assert without.for_out_of_fold is without


def test_many_rows_are_subsampled_evenly(monkeypatch: pytest.MonkeyPatch) -> None:
    z, seen, y = simulated(CROSS, 100, noise=0.5)
    z[:, 50:] *= 3  # the second half of the rows is far too confident
    none = np.zeros_like(seen)
    half = ensemble_temperature(CROSS, z[:, ::2], none[:, ::2], y[::2], None, 1.0)
    monkeypatch.setattr(calibration, "MAX_ROWS", 50)
    assert ensemble_temperature(CROSS, z, none, y, None, 1.0) == half


def test_the_temperature_is_shrunk_by_the_number_of_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    z, seen, y = simulated(CROSS, 150, noise=0.5)
    used = int(((seen.sum(0) > 1) & ~seen.all(0)).sum())
    shrunk = ensemble_temperature(CROSS, z, seen, y, None, 3.0)
    monkeypatch.setattr(calibration, "PRIOR_ROWS", 0)
    whole = ensemble_temperature(CROSS, z, seen, y, None, 3.0)
    assert shrunk == pytest.approx(3.0 * (whole / 3.0) ** (used / (used + 100)))
    assert shrunk != pytest.approx(whole, rel=1e-3)


@pytest.mark.parametrize("loss", [CROSS, BINARY], ids=["classes", "labels"])
def test_rows_are_weighted_by_confidence(loss: Loss) -> None:
    z, seen, y = simulated(loss, 40, noise=0.5)
    weight = np.where(np.arange(40) < 10, 3.0, 0.0)
    some = HeldOutRows(loss=loss, members=z[:, :10], seen=seen[:, :10], y=y[:10], weight=np.ones(10))
    rows = HeldOutRows(loss=loss, members=z, seen=seen, y=y, weight=weight)
    assert rows.confidence(rows.members, 1.3) == pytest.approx(some.confidence(some.members, 1.3))
