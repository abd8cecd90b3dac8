"""Inverse questions: each answer fits the limit, and the next larger network or batch does not."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from multilayer.core.formatting import duration, flops, signed, size
from multilayer.costs import Cost, cost
from multilayer.costs.budget import quantity as parse
from multilayer.costs.inverse import (
    MAX_BATCH,
    MAX_WIDTH,
    deepest,
    hidden_widths,
    largest_batch,
    time,
    widest,
    with_width,
)
from multilayer.errors import OptionError
from multilayer.spec import Spec
from multilayer.spec.spec import MAX_LAYERS
from support.machines import SLOW

NETWORKS = [
    "784-256-128-10",
    "1-1-1",
    "20-384-[layernorm-1536:gelu:dropout(0.1)-384]*2-10",
    "16-[64-16]-32-[8-32]",
    "13+cat(3,12)-64:batchnorm:gelu-32-1",
    "8-swiglu(24)-maxout(6,2)-kan(5)-3",
    "8-16:groupnorm(4):relu-4:groupnorm(2)-2",
    "4-8:prelu(per=network)-8:prelu(per=network)-2",
]


@pytest.mark.parametrize("text", [*NETWORKS, "784-10"])
@pytest.mark.parametrize(("engine", "dtype"), [("torch", "float32"), ("fused", "float16")])
@pytest.mark.parametrize("temporary", [False, True])
def test_the_largest_batch_fits_and_one_more_row_does_not(text: str, engine: str, dtype: str, temporary: bool) -> None:
    spec = Spec.parse(text)
    limit = 40_000_000
    batch = largest_batch(spec, limit, engine=engine, dtype=dtype, temporary=temporary)

    def bytes_for(rows: int) -> int:
        memory = cost(spec, batch=rows, engine=engine, dtype=dtype).memory
        return memory.total + (memory.temporary if temporary else 0)

    assert batch == 0 or bytes_for(batch) <= limit
    assert bytes_for(batch + 1) > limit


def test_largest_batch_at_an_exact_limit() -> None:
    spec = Spec.parse("784-256-128-10")
    limit = cost(spec, batch=77).memory.total
    assert largest_batch(spec, limit) == 77
    assert largest_batch(spec, limit - 1) == 76


def test_largest_batch_if_none_or_all_fit() -> None:
    assert largest_batch(Spec.parse("784-10"), 1000) == 0
    assert largest_batch(Spec.parse("4-relu"), 10) == MAX_BATCH  # there are no parameters, so no activations are stored


def cost_of_8_rows(spec: Spec, batch: int | None = None) -> Cost:
    return cost(spec, batch=batch or 8)


VALUES = {"flops": lambda spec: cost_of_8_rows(spec).step, "parameters": lambda spec: spec.n_parameters}


@pytest.mark.parametrize("text", NETWORKS)
@pytest.mark.parametrize("limit", VALUES)
def test_the_widest_network_fits_and_the_next_does_not(text: str, limit: str) -> None:
    spec, value = Spec.parse(text), VALUES[limit]
    target = 5 * value(spec)
    found = widest(spec, account=cost_of_8_rows, **{limit: target})
    assert found is not None
    assert value(found.spec) <= target
    # A group norm restricts widths to multiples, so the next wider network may have several more units.
    assert value(with_width(spec, found.width + 1)) > target
    assert found.width > found.base
    assert found.spec.inputs == spec.inputs
    assert found.spec.d_out == spec.d_out


def test_widest_within_both_limits() -> None:
    spec = Spec.parse("784-256-128-10")
    both = widest(spec, flops=10**9, parameters=10**6)
    single = widest(spec, parameters=10**6)
    assert both == single  # the number of parameters is the tighter limit
    tight = widest(spec, flops=10**7, parameters=10**6)
    assert tight is not None
    assert cost(tight.spec).step <= 10**7


def test_with_width_keeps_proportions_and_block_widths() -> None:
    assert str(with_width(Spec.parse("784-256-128-10"), 512)) == "784-512-256-10"
    assert str(with_width(Spec.parse("784-256-128-10"), 1)) == "784-1-1-10"
    # The first block keeps the input width, and the last block the output width.
    assert hidden_widths(Spec.parse("16-[64-16]-32-[8-32]")) == [64, 8]
    assert with_width(Spec.parse("16-[64-16]-32-[8-32]"), 128) == Spec.parse("16-[128-16]-32-[16-32]")
    # A block between hidden layers gets the new width.
    assert with_width(Spec.parse("20-32-[64-32]-10"), 128) == Spec.parse("20-64-[128-64]-10")
    assert with_width(Spec.parse("8-12:groupnorm(4)-2"), 17) == Spec.parse("8-16:groupnorm(4)-2")


@pytest.mark.parametrize("text", NETWORKS)
@pytest.mark.parametrize("limit", VALUES)
def test_the_deepest_network_fits_and_the_next_does_not(text: str, limit: str) -> None:
    spec, value = Spec.parse(text), VALUES[limit]
    target = 3 * value(spec) + 17
    found = deepest(spec, account=cost_of_8_rows, **{limit: target})
    assert found is not None
    assert found.copies >= 2
    assert value(found.spec) <= target
    assert found.spec.d_out == spec.d_out
    assert found.parameters == found.spec.n_parameters
    assert found.step == cost_of_8_rows(found.spec).step
    # One more copy exceeds the limit. The cost of a copy is computed from a deeper network.
    deeper = deepest(spec, account=cost_of_8_rows, **{limit: target + 10 * value(spec)})
    assert deeper is not None
    assert deeper.copies > found.copies
    per_copy = (value(deeper.spec) - value(found.spec)) // (deeper.copies - found.copies)
    assert value(found.spec) + per_copy > target


def test_deepest_repeats_the_last_hidden_layer_or_block() -> None:
    found = deepest(Spec.parse("4-8-6:tanh-2"), parameters=200)
    assert found is not None
    assert (found.spec, found.copies, found.repeated) == (Spec.parse("4-8-6:tanh-6:tanh-6:tanh-2"), 3, "linear2")
    block = deepest(Spec.parse("4-8-[8]-2"), parameters=500)
    assert block is not None
    assert (block.spec, block.repeated) == (Spec.parse("4-8-[8]*6-2"), "residual1")


def test_deepest_stops_at_the_largest_number_of_layers() -> None:
    found = deepest(Spec.parse("1-1:none-1"), parameters=10**9)
    assert found is not None
    assert found.at_limit
    assert len(found.spec.entries) == MAX_LAYERS


def test_widest_stops_at_the_largest_width() -> None:
    found = widest(Spec.parse("4-4-1"), parameters=10**99)
    assert found is not None
    assert found.at_limit
    assert found.width == MAX_WIDTH // 2
    smaller = widest(Spec.parse("4-4-1"), parameters=100)
    assert smaller is not None
    assert not smaller.at_limit


def test_no_network_fits() -> None:
    spec = Spec.parse("784-256-10")
    assert widest(spec, flops=1000) is None
    assert deepest(spec, flops=1000) is None


@pytest.mark.parametrize("question", [widest, deepest])
def test_a_limit_and_a_hidden_layer_are_needed(question) -> None:
    with pytest.raises(OptionError, match="a limit is needed"):
        question(Spec.parse("4-8-2"))
    with pytest.raises(OptionError, match="only a network with a hidden layer"):
        question(Spec.parse("4-2"), parameters=100)


@settings(max_examples=60, deadline=None)
@given(
    hidden=st.lists(st.integers(1, 40), min_size=1, max_size=4),
    limit=st.integers(1, 200_000),
    batch=st.integers(1, 9),
)
def test_widest_and_deepest_are_exact_for_random_networks(hidden: list[int], limit: int, batch: int) -> None:
    spec = Spec.parse("-".join(map(str, [3, *hidden, 2])))
    wide = widest(spec, flops=limit, account=lambda network, _=None: cost(network, batch=batch))
    if wide is None:
        assert cost(with_width(spec, 1), batch=batch).step > limit
    else:
        assert cost(wide.spec, batch=batch).step <= limit < cost(with_width(spec, wide.width + 1), batch=batch).step
    rows = largest_batch(spec, limit)
    assert rows == 0 or cost(spec, batch=rows).memory.total <= limit
    assert cost(spec, batch=rows + 1).memory.total > limit


# Time


def test_training_time_includes_the_partial_last_step() -> None:
    spec = Spec.parse("64-128-10")
    full, rest = (time(spec, epochs=1, rows=n, batch=32, machine=SLOW).seconds for n in (32, 5))
    several = time(spec, epochs=3, rows=69, batch=32, machine=SLOW)
    assert several.seconds == pytest.approx(3 * (2 * full + rest))
    assert several.lower_bound
    assert time(spec, epochs=1, rows=5, batch=32, machine=SLOW).seconds == pytest.approx(rest)
    # At 1 GFLOP/s with very fast memory, a step takes at least the time of its matrix products.
    assert full >= cost(spec, batch=32).layers[0].forward.matmul / 1e9


def test_training_time_uses_a_measured_step() -> None:
    spec = Spec.parse("64-128-10")
    full, rest = (time(spec, epochs=1, rows=n, batch=32, machine=SLOW).seconds for n in (32, 5))
    found = time(spec, epochs=3, rows=69, batch=32, machine=SLOW, measured=0.25)
    assert found.seconds == pytest.approx(3 * (2 * 0.25 + 0.25 * rest / full))
    assert not found.lower_bound


# Quantities


@pytest.mark.parametrize(
    ("text", "unit", "value"),
    [
        ("2GB", "bytes", 2 * 10**9),
        ("512MiB", "bytes", 512 * 2**20),
        ("1.5Gi", "bytes", 3 * 2**29),
        (" 100 kb ", "bytes", 100_000),
        ("1e9", "flops", 10**9),
        ("1.5G", "flops", 1_500_000_000),
        ("2 TFLOPs", "flops", 2 * 10**12),
        ("10M", "count", 10**7),
        ("235_146", "count", 235_146),
        ("235,146", "count", 235_146),
        ("9007199254740993", "count", 9007199254740993),  # exact for integers that a float cannot represent
        ("1.1e1", "count", 11),
        ("12.9", "count", 12),
    ],
)
def test_quantities_are_read_exactly(text: str, unit, value: int) -> None:
    assert parse(text, what="it", unit=unit) == value


@pytest.mark.parametrize(
    "text", ["", "GB", "2XB", "-1", "inf", "nan", "1e999", "2MiB", "1..2", "0x10", "1 2", "9" * 100]
)
def test_invalid_quantities_are_refused(text: str) -> None:
    with pytest.raises(OptionError, match="flops must be a quantity such as 1e9"):
        parse(text, what="flops", unit="flops")


def test_quantities_that_round_to_0_are_refused() -> None:
    with pytest.raises(OptionError, match=r"memory must be at least 1, got '0\.3'"):
        parse("0.3", what="memory", unit="bytes")


def test_formatting_of_bytes_counts_and_times() -> None:
    assert [flops(n) for n in (0, 999, 1000, 45_124_416, 84_608_280_000)] == [
        "0 FLOP", "999 FLOP", "1.00 kFLOP", "45.1 MFLOP", "84.6 GFLOP"
    ]  # fmt: skip
    assert [size(n) for n in (1023, 1024, 3_913_120, 2**30 - 1)] == ["1023 B", "1.00 KiB", "3.73 MiB", "1.00 GiB"]
    assert flops(10**24) == "1,000,000 EFLOP"
    assert flops(10**99) == "1e+81 EFLOP"
    assert [signed(n) for n in (12_288, -12_288, 0)] == ["+12,288", "−12,288", "+0"]
    assert [duration(s) for s in (2e-9, 0.0015, 59.0, 61.0, 3660.0)] == [
        "2.00 ns", "1.50 ms", "59.0 s", "1 min 1 s", "1 h 1 min"
    ]  # fmt: skip
