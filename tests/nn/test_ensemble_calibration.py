"""How sure several members may be together: against simulations in which the truth is known."""

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
MEMBERS, CLASSES, SURE = 4, 5, 1.7


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
    """Outputs of members, SURE times too sure and each with noise of its own; which rows each saw, by a fifth; and
    targets drawn from the truth. Members that saw a row lean towards its target, by what they learned of it."""
    generator = np.random.default_rng(seed)
    truth = apart * generator.normal(size=(rows, CLASSES if loss.classes else 1))
    if loss.classes:
        p = np.exp(truth) / np.exp(truth).sum(1, keepdims=True)
        y = (p.cumsum(1) < generator.random((rows, 1))).sum(1)
        lean = np.eye(CLASSES)[y]
    else:
        y = (generator.random((rows, 1)) < 1 / (1 + np.exp(-truth))).astype(np.float64)
        lean = 2 * y - 1
    z = SURE * (truth + noise * generator.normal(size=(members, *truth.shape)))
    seen = np.arange(rows) % 5 != np.arange(members)[:, None]
    return z + learned * seen[..., None] * lean, seen, y


def best(loss: Loss, z: NDArray[np.float64], y: NDArray[np.float64]) -> float:
    """The T that makes the members' mean likeliest on these rows."""

    def cost(t: float) -> float:
        return float(loss.rows(combined(loss, list(z), Calibration(temperature=float(np.exp(t)))), y).sum())

    return float(np.exp(optimize.minimize_scalar(cost, bounds=(-0.5, 2), method="bounded").x))


@pytest.mark.parametrize("loss", [CROSS, BINARY], ids=["classes", "labels"])
@pytest.mark.parametrize("noise", [0.2, 0.6, 1.0])
def test_rows_held_out_by_one_member_tell_of_all_together(loss: Loss, noise: float) -> None:
    z, seen, y = simulated(loss, 8000, noise=noise)
    held_out = np.flatnonzero((~seen).sum(0) == 1)
    judged = z[(~seen[:, held_out]).argmax(0), held_out]
    alone = temperature(loss, judged, y[held_out], None)
    found = ensemble_temperature(loss, z[:, held_out], seen[:, held_out], y[held_out], None, alone)
    fresh, _, targets = simulated(loss, 40_000, noise=noise, seed=1, learned=0)
    wanted = best(loss, fresh, targets)
    assert found == pytest.approx(wanted, rel=0.08)
    if noise > 0.5:  # below, what chance does to one member's temperature is more than what the others change
        assert abs(found - wanted) < abs(alone - wanted)


@pytest.mark.parametrize("loss", [CROSS, BINARY], ids=["classes", "labels"])
def test_members_that_are_sure_and_contradict_each_other_are_not_made_surer(loss: Loss) -> None:
    """No T makes their mean as sure as their mean output: a bound was what the search ended at."""
    z, seen, y = simulated(loss, 8000, noise=3.0, apart=20)
    held_out = np.flatnonzero((~seen).sum(0) == 1)
    judged = z[(~seen[:, held_out]).argmax(0), held_out]
    alone = temperature(loss, judged, y[held_out], None)
    found = ensemble_temperature(loss, z[:, held_out], seen[:, held_out], y[held_out], None, alone)
    fresh, _, targets = simulated(loss, 40_000, noise=3.0, seed=1, learned=0, apart=20)
    assert found == pytest.approx(best(loss, fresh, targets), rel=0.2)  # a tenth is allowed, and 0.08 as above


def test_rows_that_all_members_judged_are_fitted_outright() -> None:
    z, seen, y = simulated(CROSS, 3000, noise=0.8, learned=0)
    found = ensemble_temperature(CROSS, z, np.zeros_like(seen), y, None, 1.0)
    assert found == pytest.approx(best(CROSS, z, y), rel=1e-3)
    weights = np.where(np.arange(3000) < 1000, 1.0, 0.0)
    assert ensemble_temperature(CROSS, z, np.zeros_like(seen), y, weights, 1.0) == pytest.approx(
        best(CROSS, z[:, :1000], y[:1000]), rel=1e-3
    )


def test_two_members_have_no_noise_to_compare_and_are_only_made_as_sure_as_their_mean() -> None:
    z, seen, y = simulated(CROSS, 4000, noise=0.6, members=2)
    held_out = np.flatnonzero((~seen).sum(0) == 1)
    alone = 2.0
    found = ensemble_temperature(CROSS, z[:, held_out], seen[:, held_out], y[held_out], None, alone)
    assert 0.8 * alone < found < alone


def test_members_that_agree_stay_as_they_are() -> None:
    z, seen, y = simulated(CROSS, 4000, noise=0.0, learned=0)
    held_out = np.flatnonzero((~seen).sum(0) == 1)
    alone = temperature(CROSS, z[0, held_out], y[held_out], None)
    found = ensemble_temperature(CROSS, z[:, held_out], seen[:, held_out], y[held_out], None, alone)
    assert found == pytest.approx(alone, rel=1e-3)


def test_many_rows_are_looked_at_evenly_and_none_leave_it_at_one_members() -> None:
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


def test_weights_count_everywhere() -> None:
    z, seen, y = simulated(CROSS, 2000, noise=0.8)
    wild = z.copy()
    wild[:, 1000:] *= 5
    weight = np.where(np.arange(2000) < 1000, 1.0, 0.0)
    alone = 1.5
    found = ensemble_temperature(CROSS, wild, seen, y, weight, alone)
    without = ensemble_temperature(CROSS, z[:, :1000], seen[:, :1000], y[:1000], None, alone)
    assert found == pytest.approx(without, rel=0.05)


def test_rows_with_several_judges_count_as_well() -> None:
    z, _, y = simulated(CROSS, 6000, noise=0.8, learned=0)
    pairs = np.arange(6000) % 2 == (np.arange(MEMBERS) // 2)[:, None]
    alone = temperature(CROSS, z[0], y, None)
    assert ensemble_temperature(CROSS, z, ~pairs, y, None, alone) == pytest.approx(best(CROSS, z, y), rel=0.08)


def test_few_rows_move_it_little() -> None:
    z, seen, y = simulated(CROSS, 20, noise=1.0)
    alone = temperature(CROSS, z[0], y, None)
    assert abs(np.log(ensemble_temperature(CROSS, z, seen, y, None, alone) / alone)) < 0.25


def test_rows_that_are_not_finite_are_left_out() -> None:
    z, seen, y = simulated(CROSS, 1000, noise=0.5)
    broken = z.copy()
    broken[2, 7] = np.nan
    kept = np.delete(np.arange(1000), 7)
    found = ensemble_temperature(CROSS, broken, seen, y, None, 1.5)
    assert found == ensemble_temperature(CROSS, z[:, kept], seen[:, kept], y[kept], None, 1.5)


@pytest.mark.parametrize("members", [1, 2, 3, 4])
def test_a_fitted_ensemble_keeps_both_temperatures(members: int, tmp_path: Path) -> None:
    """Held-out rows are told by their judges' temperature, new rows by that of all; both are in the file."""
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
    z[:, 50:] *= 3  # the second half of the rows is far too sure
    none = np.zeros_like(seen)
    half = ensemble_temperature(CROSS, z[:, ::2], none[:, ::2], y[::2], None, 1.0)
    monkeypatch.setattr(calibration, "MAX_ROWS", 50)
    assert ensemble_temperature(CROSS, z, none, y, None, 1.0) == half


def test_few_rows_move_the_temperature_less(monkeypatch: pytest.MonkeyPatch) -> None:
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
