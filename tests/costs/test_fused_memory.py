"""Closed forms of the memory of the fused engine, compared with engines that run the kernels or the reference loops."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import multilayer as ml
from multilayer.costs.memory import LONG_STEP, halves_gradients, keeps_gradients, stored
from multilayer.data.batches import Batch, Data
from multilayer.engines.fused_engine import FusedEngine
from multilayer.engines.fused_program import why_not
from multilayer.engines.protocol import Order, Settings
from multilayer.nn.layers import KAN
from multilayer.spec import Spec
from support.cases import ALL, Case
from support.strategies import specs

RECIPE = (
    "14+cat(3, 12, 2, 7, 30, 5, 2, 9)"
    "-columns(pbld)-scale-(linear(256, scale=tangent):blend(selu):dropout(0.15))*3-linear(1, scale=tangent)"
)


def rows_for(spec: Spec, n: int) -> Data:
    rng = np.random.default_rng(0)
    inputs = spec.inputs
    codes = np.stack([rng.integers(0, k + 1, n) for k in inputs.categories], 1) if inputs.categories else None
    x = np.abs(rng.normal(size=(n, inputs.numeric))).astype(np.float32)
    return Data(x=x, y=rng.random((n, spec.d_out)).astype(np.float32), codes=codes)


def one_step(engine: FusedEngine) -> None:
    rows, one = np.arange(len(engine.data)), np.ones(1)
    engine.run(Order(epoch=0, rows=rows, batch=len(rows)), rate=1e-3 * one, decay=0 * one, dropout=one)


def require_equal(
    spec: Spec,
    batch: int,
    *,
    optimizer: str = "adam",
    average: bool = False,
    clip: bool = False,
    dtype: str = "float32",
) -> None:
    """Check that the stated memory equals that of an engine after a step and a prediction."""
    found = ml.cost(
        spec, batch=batch, loss="mse", engine="fused", dtype=dtype, optimizer=optimizer, average=average, clip=clip
    )
    chosen = Settings(
        loss="mse", optimizer=optimizer, average=0.99 if average else None, clip_norm=1.0 if clip else None
    )
    engine = FusedEngine(spec, rows_for(spec, batch), chosen, threads=1, dtype=dtype)
    rows = np.arange(batch)
    one_step(engine)
    if dtype == "float32":  # after a prediction, the reference loops keep only the tensors of its rows
        engine.outputs(rows)
    assert found.memory.total == engine.bytes
    engine.apply(engine.gradients(rows, epoch=1), rate=1e-3, decay=0)
    assert found.memory.total == engine.bytes  # memory that only `gradients` needs is released


@pytest.mark.parametrize("case", [case for case in ALL if case.kernel == "yes"], ids=lambda case: case.name)
def test_every_case_in_float(case: Case) -> None:
    for batch in (2, 16, 129, 256):
        require_equal(case.spec, batch)


@pytest.mark.parametrize("case", [case for case in ALL if case.kernel == "yes"], ids=lambda case: case.name)
def test_every_case_in_double(case: Case) -> None:
    for batch in (2, 33, 300):
        require_equal(case.spec, batch, dtype="float64")


@pytest.mark.parametrize("text", ["20-64-64-2", "50-(layernorm-64:gelu:dropout(0.1))*4-2", RECIPE])
@pytest.mark.parametrize("batch", [8, 256])
def test_reference_loops_keep_the_result_of_each_operation(text: str, batch: int) -> None:
    for how in ({}, {"optimizer": "sgd"}, {"optimizer": "momentum", "average": True}, {"clip": True}):
        require_equal(Spec.parse(text), batch, dtype="float64", **how)


@settings(max_examples=100, deadline=None)
@given(spec=specs(), batch=st.integers(2, 300))
def test_random_networks_in_double(spec: Spec, batch: int) -> None:
    if why_not(spec) is None:
        require_equal(spec, batch, dtype="float64")


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("text", ["64-128-1000", "5-4-3"])
def test_mixup_stores_classes_as_probabilities(text: str, dtype: str) -> None:
    spec, batch = Spec.parse(text), 256
    plain = rows_for(spec, batch)
    classes = np.arange(batch) % spec.d_out

    def mixed(batch: Batch, data: Data, rows: np.ndarray, epoch: int) -> Batch:
        return replace(batch, y=plain.y[rows])

    for mixup, augment in ((False, None), (True, mixed)):
        engine = FusedEngine(
            spec, replace(plain, y=classes, augment=augment), Settings(loss="cross_entropy"), threads=1, dtype=dtype
        )
        one_step(engine)
        engine.outputs(np.arange(batch))
        found = ml.cost(spec, batch=batch, loss="cross_entropy", engine="fused", dtype=dtype, mixup=mixup)
        assert found.memory.total == engine.bytes


def test_mixup_of_numeric_targets_needs_no_more_memory() -> None:
    for loss in ("mse", "binary_cross_entropy", "quantile(0.1, 0.5, 0.9)"):
        one, two = (ml.cost("5-4-3", loss=loss, engine="fused", mixup=mixup).memory for mixup in (False, True))
        assert one == two


@pytest.mark.parametrize(
    "spec",
    [Spec.parse("784-256-128-10"), Spec.parse(RECIPE), ml.residual_mlp(50, 10, hidden=128, blocks=4)],
    ids=["784-256-128-10", "recipe", "residual_mlp"],
)
@pytest.mark.parametrize("optimizer", ["sgd", "momentum", "adam"])
def test_benchmark_networks(spec: Spec, optimizer: str) -> None:
    for batch in (32, 250):
        require_equal(spec, batch, optimizer=optimizer)
        require_equal(spec, batch, optimizer=optimizer, average=True)


@settings(max_examples=300, deadline=None)
@given(spec=specs(), batch=st.integers(2, 300), average=st.booleans(), clip=st.booleans())
def test_random_networks_in_float(spec: Spec, batch: int, average: bool, clip: bool) -> None:
    if why_not(spec) is None:
        require_equal(spec, batch, average=average, clip=clip)


def test_small_networks_store_the_gradients_of_two_halves() -> None:
    spec = Spec.parse("5-4-3")
    one, two = (ml.cost(spec, batch=batch, engine="fused").memory for batch in (127, 128))
    assert two.gradients - one.gradients == 2 * 4 * stored(spec)
    for batch in (127, 128, 1023, 1024, 2000):
        require_equal(spec, batch)
    for text in ("5-4:prelu-3", "5-4:layernorm-3", "200-100-3"):  # other layers with parameters, or many parameters
        assert not halves_gradients(Spec.parse(text), 128)


def test_gradients_are_kept_for_clipping_and_for_interruptible_steps() -> None:
    spec = Spec.parse("5-4-3")
    numbers, always = 4 * 16 + 16 + 3 * 16 + 16, 4 * 16 + 16 + 3 * 16 + 16
    plain, clipped = (ml.cost(spec, batch=1, engine="fused", clip=clip).memory for clip in (False, True))
    assert (plain.gradients, clipped.gradients) == (4 * always, 4 * (always + numbers))
    assert plain.temporary == 0
    large = Spec.parse("784-1024-1024-10")
    short, long = (ml.cost(large, batch=batch, engine="fused").memory for batch in (1023, 1024))
    assert short.gradients < short.parameters < long.gradients


def test_a_long_interruptible_step() -> None:
    require_equal(Spec.parse("64-512-512-2"), 2048)


def test_sums_over_rows_count_for_the_length_of_a_step() -> None:
    spec = Spec.parse("64-[layernorm:gelu]*4-3:prelu(per=unit)-1:prelu-1:layernorm-5:blend(prelu(per=unit))-2")
    vectors = 4 * 2 * 64 + 3 + 3 + 5 + 5 + 5 + 2
    weights = 64 * 3 + 3 + 1 + 5 + 5 * 2 + 32 * vectors
    require_kept_gradients_from(spec, -(-LONG_STEP // weights))


def require_kept_gradients_from(spec: Spec, first: int) -> None:
    assert [keeps_gradients(spec, batch, clip=False) for batch in (first - 1, first)] == [False, True]
    for batch in (first - 1, first):
        require_equal(spec, batch, optimizer="sgd")


def test_columns_layers_count_for_the_length_of_a_step() -> None:
    weights = 4 * 256 * (256 + 8) + 4 * 256
    require_kept_gradients_from(Spec.parse("4-columns(plr, d_numeric=256, n=128)-1"), -(-LONG_STEP // weights))


def test_steps_with_few_rows_become_interruptible_later() -> None:
    weights = 1565 * 1565 + 1565 + 32 * 1565
    require_kept_gradients_from(Spec.parse("1565-1565-1"), -(-5 * LONG_STEP // weights))
    require_kept_gradients_from(Spec.parse("3200-3200-1"), 256)


def test_layers_without_a_kernel_count_as_in_pytorch() -> None:
    def activations(text: str) -> int:
        return ml.cost(Spec.parse(text), batch=9, loss="mse", engine="fused").memory.activations

    about = 2 * (3 + 2)
    assert activations("5-maxout(4, 3)-2") == 4 * 128 * (about + 5 + 4 + 16 + 2)
    assert activations("5-kan(2)") == 4 * 128 * (about + 5 + 2 + KAN(2).kept(5).per_row)
