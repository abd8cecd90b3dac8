"""The closed form of the fused engine's memory against what the core itself says it takes."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import multilayer as ml
from cases import ALL, Case
from multilayer import _core
from multilayer.costs.memory import Memory
from multilayer.engine.fused_program import program_of, why_not
from multilayer.engine.protocol import Settings
from multilayer.layers import KAN
from multilayer.spec import Spec
from strategies import specs

RECIPE = (
    "14+cat(3, 12, 2, 7, 30, 5, 2, 9)"
    "-columns(pbld)-scale-(linear(256, scale=tangent):blend(selu):dropout(0.15))*3-linear(1, scale=tangent)"
)


def memory(spec: Spec, batch: int, *, optimizer: str = "adam", average: bool = False, clip: bool = False) -> Memory:
    return ml.cost(spec, batch=batch, engine="fused", optimizer=optimizer, average=average, clip=clip).memory


def taken(spec: Spec, batch: int, *, optimizer: str = "adam", average: bool = False) -> int:
    """What the core keeps, which are not buffers."""
    chosen = Settings(loss="mse", optimizer=optimizer, average=0.99 if average else None)
    return _core.fused_bytes(program_of(spec, chosen), batch)


def require_equal(spec: Spec, batch: int, *, optimizer: str = "adam", average: bool = False) -> None:
    found = memory(spec, batch, optimizer=optimizer, average=average)
    assert found.total - found.buffers == taken(spec, batch, optimizer=optimizer, average=average)


@pytest.mark.parametrize("case", [case for case in ALL if case.kernel == "yes"], ids=lambda case: case.name)
def test_every_case(case: Case) -> None:
    for batch in (1, 16, 17, 256):
        require_equal(case.spec, batch)


@pytest.mark.parametrize(
    "spec",
    [Spec.parse("784-256-128-10"), Spec.parse(RECIPE), ml.residual_mlp(50, 10, hidden=128, blocks=4)],
    ids=["784-256-128-10", "recipe", "residual_mlp"],
)
@pytest.mark.parametrize("optimizer", ["sgd", "momentum", "adam"])
def test_networks_that_are_measured(spec: Spec, optimizer: str) -> None:
    for batch in (32, 250):
        require_equal(spec, batch, optimizer=optimizer)
        require_equal(spec, batch, optimizer=optimizer, average=True)


@settings(max_examples=500, deadline=None)
@given(spec=specs(), batch=st.integers(1, 300), average=st.booleans())
def test_random_networks(spec: Spec, batch: int, average: bool) -> None:
    if why_not(spec) is None:
        require_equal(spec, batch, average=average)


def test_gradients_are_stored_to_be_clipped_alone() -> None:
    plain, clipped = (memory(Spec.parse("5-4-3"), 1, clip=clip) for clip in (False, True))
    assert plain.gradients == 0
    assert clipped.gradients == clipped.parameters == 4 * (4 * 16 + 16 + 3 * 16 + 16)
    assert plain.temporary == 0


def test_what_has_no_kernel_counts_as_pytorch_keeps_it() -> None:
    assert memory(Spec.parse("5-maxout(4, 3)-2"), 9).activations == 4 * 16 * (5 + 4 + 16 + 2)
    assert memory(Spec.parse("5-kan(4)"), 9).activations == 4 * 16 * (5 + 4 + KAN(4).kept(5).per_row)
