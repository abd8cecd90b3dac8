"""Schedules: known values, comparison with the schedulers of torch, and properties of every schedule."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from multilayer.errors import OptionError
from multilayer.nn import schedules
from multilayer.nn.schedules import SCHEDULES

EXAMPLES = [*SCHEDULES, "constant(warmup=0.1)", "linear(0.2, floor=0.1)", "cosine(0, 0.01)", "step(0.1, 0.5)"]


def factors_of_torch(make, steps: int) -> list[float]:
    """Return the learning rates of a scheduler of torch that starts from the learning rate 1."""
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=1.0)
    scheduler = make(optimizer)
    found = []
    for _ in range(steps):
        found.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        scheduler.step()
    return found


@pytest.mark.parametrize(
    ("text", "make"),
    [
        ("cosine(warmup=0)", lambda o, n: torch.optim.lr_scheduler.CosineAnnealingLR(o, T_max=n)),
        ("cosine(warmup=0, floor=0.1)", lambda o, n: torch.optim.lr_scheduler.CosineAnnealingLR(o, n, eta_min=0.1)),
        ("linear", lambda o, n: torch.optim.lr_scheduler.LinearLR(o, 1.0, 0.0, total_iters=n)),
        ("step(0.25, 0.5)", lambda o, n: torch.optim.lr_scheduler.StepLR(o, n // 4, gamma=0.5)),
        ("step(0.1, 0.3)", lambda o, n: torch.optim.lr_scheduler.StepLR(o, n // 10, gamma=0.3)),
        ("one_cycle", lambda o, n: torch.optim.lr_scheduler.OneCycleLR(o, max_lr=1.0, total_steps=n + 1)),
        (
            "one_cycle(0.1, div=10, final_div=100)",
            lambda o, n: torch.optim.lr_scheduler.OneCycleLR(
                o, max_lr=1.0, total_steps=n + 1, pct_start=0.1, div_factor=10, final_div_factor=100
            ),
        ),
    ],
)
@pytest.mark.parametrize("steps", [20, 100, 1000])
def test_schedules_agree_with_torch(text: str, make, steps: int) -> None:
    # OneCycleLR raises an error after its last step, so both schedules get one more step.
    length = steps + 1 if "one_cycle" in text else steps
    found = schedules.get(text)(np.arange(steps), length)
    np.testing.assert_allclose(found, factors_of_torch(lambda o: make(o, steps), steps), rtol=1e-9, atol=1e-12)


def test_known_answers() -> None:
    assert schedules.get("constant")(7, 10) == 1
    assert schedules.get("cosine(warmup=0)")(0, 8) == 1
    assert schedules.get("cosine(warmup=0)")(4, 8) == 0.5
    assert schedules.get("cosine(warmup=0)")(2, 8) == pytest.approx((2 + math.sqrt(2)) / 4, abs=1e-15)
    assert schedules.get("linear")(3, 4) == 0.25
    np.testing.assert_array_equal(
        schedules.get("step(every=0.25, factor=0.5)")(np.arange(8), 8), [1, 1, 0.5, 0.5, 0.25, 0.25, 0.125, 0.125]
    )
    np.testing.assert_array_equal(schedules.get("flat_cosine")(np.arange(3), 4), [1, 1, 1])
    assert schedules.get("flat_cosine")(3, 4) == 0.5
    assert schedules.get("one_cycle")(0, 100) == pytest.approx(1 / 25)
    assert schedules.get("one_cycle")(29, 100) == 1
    assert schedules.get("one_cycle")(99, 100) == pytest.approx(1 / 25e4)


def test_coslog_ends_its_cycles_at_powers_of_two() -> None:
    """The four cycles begin with 0 at 1 + 15 t = 1, 2, 4, 8. Each reaches 1 in the middle on the logarithmic scale."""
    schedule = schedules.get("coslog(4)")
    for start in (0, 1, 3, 7):
        assert schedule(start, 15) == pytest.approx(0, abs=1e-15)
    assert schedule(1, 45 // 3) == pytest.approx(0, abs=1e-15)
    n = 15_000_000
    for k in range(4):
        peak = round((2 ** (k + 0.5) - 1) / 15 * n)
        assert schedule(peak, n) == pytest.approx(1, abs=1e-9)
    assert schedules.get("coslog(cycles=1)")(500_000, 1_000_000) == pytest.approx(
        (1 - math.cos(2 * math.pi * math.log2(1.5))) / 2
    )


def test_warm_up_is_linear_and_precedes_the_schedule() -> None:
    found = schedules.get("cosine(warmup=0.1)")(np.arange(40), 40)
    np.testing.assert_allclose(found[:5], [0.2, 0.4, 0.6, 0.8, 1.0])
    np.testing.assert_array_equal(found[4:], schedules.get("cosine(warmup=0)")(np.arange(36), 36))
    assert schedules.get("constant(warmup=0.29)")(28, 100) < 1 == schedules.get("constant(warmup=0.29)")(29, 100)


@pytest.mark.parametrize("text", EXAMPLES)
@pytest.mark.parametrize("steps", [1, 2, 3, 10, 257])
def test_factors_are_from_0_to_1_and_the_same_for_scalars_and_arrays(text: str, steps: int) -> None:
    schedule = schedules.get(text)
    whole = schedule(np.arange(steps), steps)
    assert whole.dtype == np.float64
    assert ((whole >= 0) & (whole <= 1)).all()
    singles = [schedule(i, steps) for i in range(steps)]
    assert all(type(value) is float for value in singles)
    np.testing.assert_array_equal(whole, singles)
    np.testing.assert_array_equal(whole[steps // 2 :], schedule(np.arange(steps // 2, steps), steps))


@pytest.mark.parametrize("text", EXAMPLES)
def test_the_shape_is_the_same_for_short_and_long_runs(text: str) -> None:
    """Factors at the same share of the run are equal, except where a warm-up or a peak is rounded to a step."""
    schedule = schedules.get(text)
    short, long = schedule(np.arange(1000), 1000), schedule(np.arange(0, 10_000, 10), 10_000)
    assert np.abs(short - long).mean() < 2e-2


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("cosin", "unknown schedule 'cosin': did you mean 'cosine'"),
        (
            "cosine(warmup=1)",
            "warmup must be at least 0 and below 1, a share of the run, or a number of steps above 1, got 1",
        ),
        ("cosine(floor=2)", "floor must be from 0 to 1, got 2"),
        ("step(0)", "every must be above 0 and at most 1, a share of the run, got 0"),
        ("step(factor=3)", "factor must be from 0 to 1, got 3"),
        ("flat_cosine(1)", "flat must be at least 0 and below 1"),
        ("one_cycle(div=0.5)", "div must be at least 1"),
        ("coslog(1.5)", "cycles must be a whole number from 1 to 50, got 1.5"),
    ],
)
def test_invalid_constants_are_refused(text: str, message: str) -> None:
    with pytest.raises(OptionError, match=message):
        schedules.get(text)


@pytest.mark.parametrize("step", [-1, 10])
def test_a_step_outside_the_run_is_refused(step: int) -> None:
    with pytest.raises(OptionError, match=f"step must be from 0 to 9 in a run of 10 steps, got {step}"):
        schedules.get("cosine")(step, 10)


def test_a_warmup_above_one_is_a_number_of_steps() -> None:
    for text in ("cosine", "linear", "constant", "step", "one_cycle"):
        steps, share = schedules.get(f"{text}(warmup=10)"), schedules.get(f"{text}(warmup=0.1)")
        assert [steps(i, 100) for i in range(100)] == [share(i, 100) for i in range(100)]
    long = schedules.get("cosine(warmup=10000)")
    assert long(99, 100) == pytest.approx(0.01, rel=1e-3)  # a run that is shorter than its warm-up
    with pytest.raises(OptionError, match=r"a share of the run, or a number of steps above 1, got 1\.5"):
        schedules.get("cosine(warmup=1.5)")
