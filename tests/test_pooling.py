"""How sure several members may be together: against simulations in which the truth is known."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import optimize

from multilayer import losses
from multilayer.calibration import Calibration, combined, temperature
from multilayer.losses import Loss
from multilayer.pooling import MOST_ROWS, pooled

CROSS, BINARY = losses.get("cross_entropy"), losses.get("binary_cross_entropy")
MEMBERS, CLASSES, SURE = 4, 5, 1.7


def simulated(
    loss: Loss, rows: int, *, noise: float, seed: int = 0, members: int = MEMBERS, learned: float = 0.5
) -> tuple[NDArray[np.float64], NDArray[np.bool_], NDArray[np.float64]]:
    """Outputs of members, SURE times too sure and each with noise of its own; which rows each saw, by a fifth; and
    targets drawn from the truth. Members that saw a row lean towards its target, by what they learned of it."""
    generator = np.random.default_rng(seed)
    truth = 2 * generator.normal(size=(rows, CLASSES if loss.classes else 1))
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
    found = pooled(loss, z[:, held_out], seen[:, held_out], y[held_out], None, alone)
    fresh, _, targets = simulated(loss, 40_000, noise=noise, seed=1, learned=0)
    wanted = best(loss, fresh, targets)
    assert found == pytest.approx(wanted, rel=0.08)
    if noise > 0.5:  # below, what chance does to one member's temperature is more than what the others change
        assert abs(found - wanted) < abs(alone - wanted)


def test_rows_that_all_members_judged_are_fitted_outright() -> None:
    z, seen, y = simulated(CROSS, 3000, noise=0.8, learned=0)
    found = pooled(CROSS, z, np.zeros_like(seen), y, None, 1.0)
    assert found == pytest.approx(best(CROSS, z, y), rel=1e-3)
    weights = np.where(np.arange(3000) < 1000, 1.0, 0.0)
    assert pooled(CROSS, z, np.zeros_like(seen), y, weights, 1.0) == pytest.approx(
        best(CROSS, z[:, :1000], y[:1000]), rel=1e-3
    )


def test_two_members_have_no_noise_to_compare_and_are_only_made_as_sure_as_their_mean() -> None:
    z, seen, y = simulated(CROSS, 4000, noise=0.6, members=2)
    held_out = np.flatnonzero((~seen).sum(0) == 1)
    alone = 2.0
    found = pooled(CROSS, z[:, held_out], seen[:, held_out], y[held_out], None, alone)
    assert 0.8 * alone < found < alone


def test_members_that_agree_stay_as_they_are() -> None:
    z, seen, y = simulated(CROSS, 4000, noise=0.0, learned=0)
    held_out = np.flatnonzero((~seen).sum(0) == 1)
    alone = temperature(CROSS, z[0, held_out], y[held_out], None)
    found = pooled(CROSS, z[:, held_out], seen[:, held_out], y[held_out], None, alone)
    assert found == pytest.approx(alone, rel=1e-3)


def test_many_rows_are_looked_at_evenly_and_none_leave_it_at_one_members() -> None:
    rows = 4 * MOST_ROWS
    z, seen, y = simulated(BINARY, rows, noise=0.5)
    held_out = np.flatnonzero((~seen).sum(0) == 1)
    alone = temperature(BINARY, z[(~seen[:, held_out]).argmax(0), held_out], y[held_out], None)
    assert 0.5 * alone < pooled(BINARY, z[:, held_out], seen[:, held_out], y[held_out], None, alone) < alone
    assert pooled(CROSS, np.zeros((4, 3, 2)), np.ones((4, 3), dtype=np.bool_), np.zeros(3, dtype=int), None, 1.3) == 1.3
