"""The reference loops of the fused engine in double: 50 steps against the torch engine, single steps against numpy.

Reproducibility is tested in test_fused_engine_bits.py, and invalid input in test_fused_engine_refusals.py.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from multilayer.core import _core
from multilayer.data.batches import Data
from multilayer.engines import Engine, Gradients, Order, Settings, numpy_engine
from multilayer.engines.fused_engine import FusedEngine
from multilayer.engines.fused_program import why_not
from multilayer.engines.numpy_engine import NumpyEngine
from multilayer.nn import losses
from multilayer.spec import Spec
from support.cases import ALL, Case
from support.engines import FUSED_LOSSES, FUSED_OPTIMIZERS, double, orders, run, table
from support.strategies import has_batch_norm, specs
from support.training_rows import prepare

pytestmark = pytest.mark.usefixtures("one_thread")

KERNELS = [case for case in ALL if case.kernel == "yes" and case.name != "worked example"]
SOME = [c for c in KERNELS if c.name in ("linear", "dropout", "residual network", "recipe", "columns pbld", "swiglu")]


def fused(spec: Spec, data: Data, settings: Settings, **how: Any) -> FusedEngine:
    return FusedEngine(spec, data, settings, **{"dtype": np.float64, **how})


# Against the torch engine


def agree(spec: Spec, data: Data, ours: Engine, theirs: Engine, *, rate: float, decay: float = 0.0) -> None:
    """Compare 50 steps with a partial last batch. The tolerance is 1e-9 of the largest value of each tensor."""
    rows = len(data)
    for order in [*orders(rows, 3, 8), Order(epoch=8, rows=np.arange(6), batch=3)]:
        found, expected = (run(e, order, rate=rate, decay=decay) for e in (ours, theirs))
        np.testing.assert_allclose(found.loss, expected.loss, rtol=1e-9, atol=1e-12)
        np.testing.assert_allclose(found.gradient_norm, expected.gradient_norm, rtol=1e-9, atol=1e-12)
    assert ours.state().step == 50
    tensors = ours.state().tensors()
    for name, value in theirs.state().tensors().items():
        scale = max(1, np.abs(value).max(initial=0))
        np.testing.assert_allclose(tensors[name], value, rtol=0, atol=1e-9 * scale, err_msg=name)
    everything = np.arange(rows)
    for averaged in (False, True):
        z, expected = (e.outputs(everything, averaged=averaged) for e in (ours, theirs))
        np.testing.assert_allclose(z, expected, rtol=0, atol=1e-9 * max(1, np.abs(expected).max()))


@pytest.mark.parametrize("case", KERNELS, ids=lambda case: case.name)
def test_50_steps_equal_torch(case: Case) -> None:
    """Compare with SGD and all other options. The update of SGD is linear in the gradient."""
    how = Settings(loss="mse", optimizer="sgd", seed=3, l2=1e-3, clip_norm=2.0, clip_value=1.0, average=0.9)
    data = table(case.spec, 17)
    agree(case.spec, data, fused(case.spec, data, how), double(case.spec, data, how), rate=1e-3, decay=0.1)


@pytest.mark.parametrize("optimizer", [o for o in FUSED_OPTIMIZERS if o != "sgd"])
@pytest.mark.parametrize("case", SOME, ids=lambda case: case.name)
def test_50_steps_equal_torch_for_every_optimiser(case: Case, optimizer: str) -> None:
    """No parameter of these networks has a true gradient of 0, which Adam would turn into full steps of rounding."""
    how = Settings(loss="mse", optimizer=optimizer, seed=3, average=0.9)
    data = table(case.spec, 17)
    agree(case.spec, data, fused(case.spec, data, how), double(case.spec, data, how), rate=1e-3, decay=0.01)


@pytest.mark.parametrize("loss", FUSED_LOSSES)
@pytest.mark.parametrize("optimizer", ["nesterov", "adamw"])
def test_50_steps_equal_torch_for_every_loss(loss: str, optimizer: str) -> None:
    spec = Spec.parse("5-6:tanh:dropout(0.2)-3")
    data, how = table(spec, 17, loss), Settings(loss=loss, optimizer=optimizer, seed=1, average=0.9)
    agree(spec, data, fused(spec, data, how), double(spec, data, how), rate=0.01, decay=0.01)


@pytest.mark.parametrize("loss", FUSED_LOSSES)
def test_weights_and_mixed_targets_equal_torch(loss: str) -> None:
    spec = Spec.parse("5-6:tanh-3")
    plain = table(spec, 20, loss)
    generator = np.random.default_rng(5)
    weighted = replace(plain, weight=generator.uniform(0.1, 3, size=20))
    several = [weighted]
    if losses.get(loss).classes:
        several.append(replace(weighted, y=generator.dirichlet(np.ones(3), size=20)))
    for data in several:
        how = Settings(loss=loss, optimizer="sgd")
        expected = double(spec, data, how).gradients(np.arange(20), epoch=0)
        found = fused(spec, data, how).gradients(np.arange(20), epoch=0)
        assert found.loss == pytest.approx(expected.loss, rel=1e-12)
        for name, g in expected.gradients.items():
            np.testing.assert_allclose(found.gradients[name], g, rtol=0, atol=1e-13, err_msg=name)


# Against the numpy engine


def close(found: Gradients, expected: Gradients, scale: float) -> None:
    """Compare with the tolerance of test_layers.py, multiplied by the amplification of rounding in norms."""
    tolerance = 1e-11
    np.testing.assert_allclose(found.loss, expected.loss, rtol=tolerance * scale, atol=tolerance * scale)
    for ours, theirs in ((found.gradients, expected.gradients), (found.buffers, expected.buffers)):
        assert ours.keys() == theirs.keys()
        for name, value in theirs.items():
            atol = tolerance * scale * max(1.0, np.abs(value).max(initial=0))
            np.testing.assert_allclose(ours[name], value, rtol=0, atol=atol, err_msg=name)


def norm_amplification(caches: list[Any]) -> float:
    """Return the factor by which the norms amplify rounding: the product of 1/σ, which matters even if a gradient is
    0."""
    product = 1.0
    for cache in caches:
        if isinstance(cache, list):
            product *= norm_amplification(cache)
        elif isinstance(cache, tuple) and len(cache) < 4:  # x̂ and 1/σ of a norm; a gated unit has four
            product *= max(1.0, float(np.max(cache[1])))
    return product


def gradients_and_scale(oracle: NumpyEngine, rows: np.ndarray, dropout: float) -> tuple[Gradients, float]:
    """Return the gradients of the numpy engine and the scale of its intermediate values, at least 1."""
    walks: list[tuple[np.ndarray, list[Any]]] = []
    real = numpy_engine.forward_through

    def recorded_forward(*args: Any) -> Any:
        walks.append(real(*args))
        return walks[-1]

    with patch.object(numpy_engine, "forward_through", recorded_forward):
        found = oracle.gradients(rows, epoch=2, dropout=dropout)
    z, caches = walks[0]
    return found, norm_amplification(caches) * max(1.0, float(np.abs(z).max(initial=0)))


@settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much])
@given(
    spec=specs().filter(lambda spec: why_not(spec) is None),
    loss=st.sampled_from(["mse", "mse", *FUSED_LOSSES]),
    optimizer=st.sampled_from(["sgd", "momentum", "nesterov(0.5)"]),
    batch=st.sampled_from([1, 2, 3, 8, 17]),
    dropout=st.sampled_from([0.0, 0.5, 1.0]),
    weighted=st.booleans(),
)
def test_single_steps_of_random_networks_equal_numpy(
    spec: Spec, loss: str, optimizer: str, batch: int, dropout: float, weighted: bool
) -> None:
    """Compare loss, gradients, statistics, update and predictions from the same perturbed state."""
    assume(batch > 1 or not has_batch_norm(spec.layers))
    assume(spec.d_out % losses.get(loss).per_target == 0)
    generator = np.random.default_rng(4)
    data = table(spec, 20, loss)
    if weighted:
        data = replace(data, weight=generator.uniform(0.1, 3, size=20))
    how = Settings(loss=loss, optimizer=optimizer, seed=7, l2=0.01, average=0.9)
    oracle, engine = NumpyEngine(spec, data, how), fused(spec, data, how)
    state = oracle.state()
    for name, value in state.parameters.items():
        state.parameters[name] = value + 0.1 * generator.normal(size=value.shape)
    oracle.load(state)
    engine.load(state)
    rows = generator.permutation(20)[:batch]
    expected, scale = gradients_and_scale(oracle, rows, dropout)
    assume(math.isfinite(expected.loss) and scale < 1e6)
    found = engine.gradients(rows, epoch=2, dropout=dropout)
    close(found, expected, scale)
    assert engine.apply(found, rate=0.01, decay=0.1) == pytest.approx(oracle.apply(expected, rate=0.01, decay=0.1))
    theirs = engine.state().tensors()
    for name, value in oracle.state().tensors().items():
        atol = 1e-11 * scale * max(1.0, np.abs(value).max(initial=0))
        np.testing.assert_allclose(theirs[name], value, rtol=0, atol=atol, err_msg=name)
    for averaged in (False, True):
        z, y = (e.outputs(np.arange(20), averaged=averaged) for e in (engine, oracle))
        np.testing.assert_allclose(z, y, rtol=0, atol=1e-9 * scale * max(1.0, np.abs(y).max(initial=0)))


@pytest.mark.parametrize("optimizer", FUSED_OPTIMIZERS)
def test_clipping_l2_decay_factors_averages_and_the_rate_factor(optimizer: str) -> None:
    spec = Spec.parse("4-5:relu-2")
    data, order = table(spec, 40), orders(40, 8, 1)[0]
    how = Settings(
        loss="mse",
        optimizer=optimizer,
        l2=0.01,
        clip_norm=0.4,
        clip_value=0.1,
        average=0.9,
        rate_factors={"linear1.weight": 0.5},
        decay_factors={"linear2.bias": 2.0},
    )
    oracle, engine = NumpyEngine(spec, data, how), fused(spec, data, how)
    for e in (oracle, engine):
        e.load(replace(e.state(), rate_factor=0.25))
        run(e, order, rate=0.05, decay=0.3)
    theirs = oracle.state().tensors()
    for name, value in engine.state().tensors().items():
        np.testing.assert_allclose(value, theirs[name], rtol=0, atol=1e-14, err_msg=name)
    assert engine.state().rate_factor == 0.25


@pytest.mark.parametrize("clip", ["clip_norm", "clip_value"])
def test_clipping_changes_only_gradients_above_the_norm(clip: str) -> None:
    spec = Spec.parse("3-2")
    data, order = table(spec, 8), Order(epoch=0, rows=np.arange(8), batch=8)
    plain, loose, tight = (
        fused(spec, data, Settings(loss="mse", optimizer="sgd", **how)) for how in ({}, {clip: 1e3}, {clip: 1e-3})
    )
    for engine in (plain, loose, tight):
        run(engine, order, rate=1.0)
    assert loose.state().equals(plain.state())
    start = fused(spec, data, Settings(loss="mse")).state().parameters["linear1.weight"]
    moved = np.abs(tight.state().parameters["linear1.weight"] - start)
    assert 0 < moved.max() <= 1e-3 * (1 + 1e-9)


def test_rate_decay_and_dropout_can_change_at_every_step() -> None:
    spec = Spec.parse("4-6:tanh:dropout(0.5)-2")
    data, order = table(spec, 30), orders(30, 4, 1)[0]
    steps = np.arange(order.steps)
    how = {"rate": 0.1 / (1 + steps), "decay": 0.01 * steps, "dropout": np.linspace(0, 1, len(steps))}
    engines = [make(spec, data, Settings(loss="mse", seed=5)) for make in (fused, NumpyEngine)]
    found, expected = (engine.run(order, **how) for engine in engines)
    np.testing.assert_allclose(found.loss, expected.loss, rtol=1e-12)
    np.testing.assert_allclose(found.gradient_norm, expected.gradient_norm, rtol=1e-12)


def test_dropout_masks_equal_those_of_the_numpy_engine() -> None:
    """Masks depend on the row and the number of the layer, so a batch gradient is the mean of those of its rows."""
    spec = Spec.parse("4-8:tanh:dropout(0.5)-3:dropout(0)-[3:dropout(0.25)-3]-2:dropout(0.1)")
    data, how = table(spec, 20), Settings(loss="mse", seed=9)
    engine, oracle = fused(spec, data, how), NumpyEngine(spec, data, how)
    rows = np.array([3, 11, 7, 19])
    for factor in (1.0, 0.5, 0.0):
        together = engine.gradients(rows, epoch=4, dropout=factor).gradients
        singles = [engine.gradients(rows[i : i + 1], epoch=4, dropout=factor).gradients for i in range(4)]
        expected = oracle.gradients(rows, epoch=4, dropout=factor).gradients
        for name, g in together.items():
            np.testing.assert_allclose(g, np.mean([found[name] for found in singles], axis=0), atol=1e-13)
            np.testing.assert_allclose(g, expected[name], atol=1e-13)


def test_batch_norm_keeps_running_statistics_over_a_smaller_last_batch() -> None:
    spec = Spec.parse("4-6:batchnorm(momentum=0.3):relu-[batchnorm-6]-2")
    data, how = table(spec, 23), Settings(loss="mse", optimizer="sgd", average=0.5)
    engine, oracle = fused(spec, data, how), NumpyEngine(spec, data, how)
    for order in orders(23, 7, 3):  # 7, 7, 7 and 2 rows
        run(engine, order)
        run(oracle, order)
    for name, value in oracle.state().buffers.items():
        np.testing.assert_allclose(engine.state().buffers[name], value, rtol=1e-12, err_msg=name)
        assert not np.array_equal(value, np.ones_like(value))
    for averaged in (False, True):  # averaged parameters with the running statistics of the steps
        z, expected = (e.outputs(np.arange(23), averaged=averaged) for e in (engine, oracle))
        np.testing.assert_allclose(z, expected, atol=1e-12)


@pytest.mark.parametrize("text", ["noise(0.1)", "mask(0.3)", "mixup(0.4)", "noise+mask+mixup"])
def test_augmented_rows_equal_those_of_the_numpy_engine(text: str) -> None:
    generator = np.random.default_rng(0)
    columns = {f"x{i}": generator.normal(size=40) for i in range(5)}
    columns |= {"c": ["uvw"[i % 3] for i in range(40)], "y": np.arange(40) % 4}
    ready = prepare(columns, target="y", augment=text)
    spec = Spec(ready.encoding.inputs, Spec.parse("5+cat(3)-columns-6:tanh:dropout(0.3)-4").layers)
    how = Settings(loss="cross_entropy", seed=2)
    engine, oracle = fused(spec, ready.data, how), NumpyEngine(spec, ready.data, how)
    for order in orders(40, 7, 2):
        found, expected = run(engine, order), run(oracle, order)
        np.testing.assert_allclose(found.loss, expected.loss, rtol=1e-11)
    for name, value in oracle.state().tensors().items():
        np.testing.assert_allclose(engine.state().tensors()[name], value, atol=1e-11, err_msg=name)
    np.testing.assert_allclose(engine.outputs(np.arange(40)), oracle.outputs(np.arange(40)), atol=1e-11)
    rows = np.array([4, 8, 39])
    close(engine.gradients(rows, epoch=5), oracle.gradients(rows, epoch=5), 1.0)


# Float


@pytest.mark.parametrize("case", KERNELS, ids=lambda case: case.name)
def test_float_loops_agree_with_double_loops_up_to_rounding(case: Case) -> None:
    """Compare loss and gradients of one step. The tolerance is 1e-4 of the largest value.

    Sums have fewer than 200 terms, and a path has about 12 operations, which gives √200 · 12 · 6e-8 ≈ 1e-5. Norms and
    powers amplify it.
    """
    how = Settings(loss="mse", optimizer="sgd", seed=3)
    data = table(case.spec, 12)
    exact = fused(case.spec, data, how)
    narrow = fused(case.spec, data, how, dtype=np.float32, core="reference")
    expected, found = (e.gradients(np.arange(12), epoch=1) for e in (exact, narrow))
    assert found.loss == pytest.approx(expected.loss, rel=1e-4, abs=1e-6)
    for name, g in expected.gradients.items():
        assert found.gradients[name].dtype == np.float32
        atol = 1e-4 * max(1.0, np.abs(g).max(initial=0))
        np.testing.assert_allclose(found.gradients[name], g, rtol=0, atol=atol, err_msg=name)
    for name, value in narrow.state().tensors().items():
        assert value.dtype == (np.float64 if name == "counters" else np.float32), name
    assert narrow.outputs(np.arange(3)).dtype == np.float32


@pytest.mark.parametrize("classes", [10, 100, 1000, 4000])
@pytest.mark.parametrize("smoothing", [0, 0.1])
def test_the_loss_of_many_classes_is_accurate(classes: int, smoothing: float) -> None:
    """Smoothed targets are many equal terms. In a single running sum, all of them would be rounded the same way."""
    rng = np.random.default_rng(0)
    data = Data(x=rng.normal(size=(40, 6)), y=rng.integers(0, classes, 40))
    chosen = Settings(loss=f"cross_entropy(label_smoothing={smoothing})")
    exact, *found = (
        FusedEngine(Spec.parse(f"6-{classes}"), data, chosen, dtype=dtype, core=core)
        .gradients(np.arange(40), epoch=0)
        .loss
        for dtype, core in ((np.float64, "auto"), *((np.float32, core) for core in _core.fused_kernels()))
    )
    terms = 64  # terms of a sum, and the number of such sums: the error of an addition is at most half a unit
    bound = (min(classes, terms) + classes / terms + 10) / 2 * np.finfo(np.float32).eps
    np.testing.assert_allclose(found, exact, rtol=bound)


def test_it_learns() -> None:
    spec = Spec.parse("2-16:tanh-3")
    angle = np.linspace(0.5, 4, 150)
    turn = np.arange(150) % 3
    x = np.stack([angle * np.cos(angle + 2.1 * turn), angle * np.sin(angle + 2.1 * turn)], 1)
    engine: Engine = FusedEngine(spec, Data(x=x, y=turn), Settings(loss="cross_entropy"))
    for order in orders(150, 30, 150):
        run(engine, order, rate=0.03)
    assert (engine.outputs(np.arange(150)).argmax(1) == turn).mean() > 0.8
