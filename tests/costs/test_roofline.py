"""Predicted time of a training step: the lower bound, and predictions with a calibration."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest

from multilayer.core import machine
from multilayer.costs import cost
from multilayer.costs.roofline import (
    ELEMENTWISE_SHARE,
    SpeedCalibration,
    loss_key,
    predict,
    recall,
    remember,
    seconds_of,
    units,
    update_key,
)
from multilayer.nn.layers import Activation
from multilayer.nn.layers.base import MAX_TIMED_WIDTH
from multilayer.spec import Spec
from support.cases import ALL, Case
from support.machines import SLOW

FLAT = ((1, 0.0), (2, 0.0))


def calibration(spec: Spec, **curves: tuple[tuple[int, float], ...]) -> SpeedCalibration:
    """Return a calibration with matrix products at 2 GFLOP/s and time 0 for all layers without a curve."""
    kinds = {unit.key: FLAT for parts in units(spec).values() for unit in parts}
    kinds |= {loss_key("mse", 1): FLAT, loss_key("cross_entropy", 4): FLAT, update_key("adam"): FLAT}
    for name, curve in curves.items():
        (key,) = [key for key in kinds if name in key]
        kinds[key] = curve
    return SpeedCalibration(products=((1, 1, 2.0), (64, 64, 2.0), (1, 64, 2.0), (64, 1, 2.0)), kinds=kinds)


def test_curves_are_interpolated() -> None:
    curve = ((10, 1.0), (20, 2.0), (30, 4.0))
    assert [seconds_of(curve, n) for n in (1, 10, 15, 20, 25, 30, 40)] == [1, 1, 1.5, 2, 3, 4, 6]
    assert seconds_of(((5, 3.0),), 100) == 3


def test_rates_are_interpolated_on_log_scales() -> None:
    found = SpeedCalibration(products=((1, 16, 1.0), (1, 64, 4.0), (16, 16, 16.0), (16, 64, 64.0)))
    assert found.rate(1, 16) == pytest.approx(1)
    assert found.rate(4, 32) == pytest.approx(math.sqrt(1 * 64))
    assert found.rate(1000, 1000) == pytest.approx(64)
    assert found.rate(1, 1) == pytest.approx(1)


def test_the_bound_without_a_calibration() -> None:
    found = predict(cost("64-128-10", batch=32), SLOW)
    products = 6 * 32 * (64 * 128 + 128 * 10) - 2 * 32 * 64 * 128  # without dA of the inputs
    assert products / 1e9 < found.seconds < 2 * products / 1e9
    assert not found.calibrated
    assert {row.bound for row in found.rows} == {"compute"}
    assert found.fused_saving >= 1


def test_matrix_products_use_their_rate_and_layers_their_curve() -> None:
    spec = Spec.parse("8-32:gelu-4")
    known = calibration(spec, gelu=((32, 1e-3), (64, 3e-3)))
    account = cost(spec, batch=3, loss="mse")
    found = predict(account, SLOW, calibration=known)
    assert found.calibrated
    first, second = found.rows
    traffic = 1e-6  # memory traffic takes almost no time on this machine
    assert first.seconds == pytest.approx(2 * 2 * 3 * 8 * 32 / 2e9 + 1e-3 + 2e-3 / 32 * (96 - 32), abs=traffic)
    assert second.seconds == pytest.approx(3 * 2 * 3 * 32 * 4 / 2e9, abs=traffic)
    assert (first.overhead, first.bound) == (1e-3, "compute")
    assert found.seconds == pytest.approx(first.seconds + second.seconds, abs=traffic)
    # A fused activation takes only its arithmetic, at an eighth of the peak. Its slope is counted in the second row.
    slope = account.layers[0].forward.activation + account.layers[1].backward.activation
    fused = found.seconds - 5e-3 + slope / (ELEMENTWISE_SHARE * 1e9)
    assert found.fused_saving == pytest.approx(found.seconds / fused, rel=0.01)


def test_the_times_of_loss_update_and_step_are_added() -> None:
    spec = Spec.parse("2-3-1")
    known = calibration(spec)
    kinds = {**known.kinds, loss_key("mse", 1): ((5, 1.0), (10, 2.0)), update_key("adam"): ((1, 0.0), (100, 100.0))}
    known = replace(known, kinds=kinds, per_tensor=1000.0, per_step=0.5)
    found = predict(cost(spec, batch=5), SLOW, calibration=known)
    assert (found.loss, found.per_step) == (1.0, 0.5)
    assert found.optimizer == pytest.approx((2 * 3 + 3 + 3 + 1 - 1) * 100 / 99 + 3 * 1000)
    assert found.seconds == pytest.approx(1.5 + found.optimizer, abs=1e-6)


def test_an_uncalibrated_layer_makes_the_prediction_a_lower_bound() -> None:
    spec = Spec.parse("8-32:gelu-4")
    known = calibration(spec)
    without = {key: curve for key, curve in known.kinds.items() if "gelu" not in key}
    found = predict(cost(spec), SLOW, calibration=replace(known, kinds=without))
    assert not found.calibrated
    assert found.seconds > 0


@pytest.mark.parametrize("case", ALL, ids=lambda case: case.name)
def test_every_layer_is_represented_by_a_unit(case: Case) -> None:
    found = units(case.spec)
    assert list(found) == [entry.name for entry in case.spec.entries]
    learning = False
    for entry in case.spec.entries:
        for unit in found[entry.name]:
            assert unit.learning == learning
            assert unit.widest <= MAX_TIMED_WIDTH
            assert unit.numbers in (entry.width_in, entry.d_out, 1)
            assert type(unit.layer) is type(entry.layer)
            Spec(unit.d, [unit.layer])
        learning |= any(name.startswith(f"{entry.name}.") for name in case.spec.tensor_names)


def test_layers_without_effect_have_no_unit() -> None:
    found = units(Spec.parse("4+cat(3)-columns-8:none:dropout(0)-identity-2"))
    assert [len(parts) for parts in found.values()] == [1, 1, 0, 0, 1]


def test_units_are_small_for_any_layer() -> None:
    text = "2-columns(plr, n=1000000)-maxout(8, 100000)-kan(4, grid=1000000)-512:groupnorm(512):prelu(per=network)-1"
    found = units(Spec.parse(text))
    columns, maxout, kan, _, norm, prelu, _ = (parts[0] for parts in found.values())
    assert [unit.standard for unit in (columns, maxout, kan, norm, prelu)] == [1, 1, 1, 512, 128]
    assert isinstance(prelu.layer, Activation)
    assert prelu.layer.per == "layer"


# Saved calibrations


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "multilayer" / "torch.json"


def test_a_saved_calibration_is_loaded_and_extended(cache: Path) -> None:
    assert recall(SLOW) is None
    known = SpeedCalibration(products=((1, 1, 2.0),), kinds={"a": ((1, 0.5), (2, 1.0))}, per_tensor=0.1, per_step=0.2)
    remember(known, SLOW, threads=1, version="2")
    assert recall(SLOW) == known
    remember(replace(known, kinds={"b": FLAT}, per_step=0.3), SLOW, threads=1, version="2")
    assert recall(SLOW) == replace(known, kinds={**known.kinds, "b": FLAT}, per_step=0.3)
    remember(replace(known, kinds={"b": FLAT}), SLOW, threads=2, version="2")
    assert recall(SLOW) == replace(known, kinds={"b": FLAT})
    assert recall(replace(SLOW, processor="another")) is None


@pytest.mark.parametrize(
    "content", ["{", "[]", "{}", '{"calibration": {"rates": [], "traffic": 1.0}}', '{"calibration": 5}']
)
def test_calibrations_of_another_version_are_ignored(content: str, cache: Path) -> None:
    cache.parent.mkdir(parents=True)
    cache.write_text(content if content[1:2] != '"' else content.replace("{", '{"processor": "a slow one", ', 1))
    assert recall(SLOW) is None
    assert machine.remembered("nothing.json") is None
