"""Calibration: every kind of layer is timed, and the result predicts a step. The tests compare no times."""

from __future__ import annotations

import math

import pytest

from multilayer.costs import cost, torch_speed
from multilayer.costs.roofline import predict
from multilayer.costs.torch_speed import calibrate, measure
from multilayer.errors import BatchError, SpecError
from multilayer.spec import Spec
from support.cases import ALL, Case
from support.machines import SLOW

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(autouse=True)
def _short_timings(monkeypatch: pytest.MonkeyPatch) -> None:
    """Restrict calibrations to one or two short timings."""
    for name, value in (("SIZES", (2**8, 2**10)), ("UPDATES", (2, 64)), ("BATCHES", (1, 4)), ("WIDTHS", (4, 16))):
        monkeypatch.setattr(torch_speed, name, value)
    for name in ("BUDGET", "SHORT"):
        monkeypatch.setattr(torch_speed, name, 0.0)


@pytest.mark.parametrize("case", ALL, ids=lambda case: case.name)
def test_every_kind_of_layer_is_timed(case: Case) -> None:
    found = calibrate(case.spec, SLOW, optimizer="adam", loss="mse")
    assert predict(cost(case.spec, batch=3, loss="mse"), SLOW, calibration=found).calibrated
    for key, curve in found.kinds.items():
        numbers, seconds = zip(*curve, strict=True)
        assert list(numbers) == sorted(set(numbers)), key
        assert list(seconds) == sorted(seconds), key
        assert seconds[0] >= 0
    assert [pair[:2] for pair in found.products] == [(1, 4), (1, 16), (4, 4), (4, 16)]
    assert all(rate > 0 for _, _, rate in found.products)


@pytest.mark.parametrize("loss", ["cross_entropy", "quantile(0.1, 0.5, 0.9)", "binary_cross_entropy"])
@pytest.mark.parametrize("optimizer", ["sgd", "nesterov(0.5)"])
def test_every_loss_and_optimizer_is_timed(loss: str, optimizer: str) -> None:
    spec = Spec.parse("4-8-6")
    found = calibrate(spec, SLOW, optimizer=optimizer, loss=loss)
    assert predict(cost(spec, loss=loss, optimizer=optimizer), SLOW, calibration=found).calibrated
    assert math.isfinite(found.per_step)


def test_layers_too_wide_to_be_timed_give_a_lower_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch_speed, "MOST", 1000)
    spec = Spec.parse("4-kan(3, grid=2000)-1")
    found = calibrate(spec, SLOW, optimizer="adam", loss="mse")
    assert not predict(cost(spec), SLOW, calibration=found).calibrated


def test_networks_that_cannot_train_are_refused() -> None:
    with pytest.raises(SpecError, match="a training step needs parameters, and 4-relu has none"):
        measure("4-relu")
    with pytest.raises(BatchError, match="batchnorm needs at least 2 rows in a training batch, got 1"):
        measure("4-6:batchnorm-2", batch=1)


def test_measure_compares_prediction_and_measurement(monkeypatch: pytest.MonkeyPatch, tmp_path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    found = measure("3+cat(3, 12)-columns(pbld)-8:layernorm:gelu-[8:dropout(0.1)]-2", batch=4, machine=SLOW)
    assert [row.name for row in found.rows][:2] == ["columns1", "linear1"]
    assert found.prediction.calibrated
    assert found.measured > 0
    assert found.predicted == found.prediction.seconds
    assert [row.name for row in found.rows if row.measured is None] == ["residual1"]
    assert found.error == pytest.approx(found.predicted / found.measured - 1)
