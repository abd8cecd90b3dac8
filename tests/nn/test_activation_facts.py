"""The documented properties of every activation: slopes, ranges, gains, moments, saturation, dead units and FLOPs.

Expected values come from closed forms, from the requirements, or from a sum over a fine grid. Quadrature is accurate to
1e-13 if f is smooth between its kinks. Suprema are rounded to 14 digits.
"""

from __future__ import annotations

import math

import numpy as np
import pytest

from multilayer.nn.activations import ActivationFunction, catalogue, get, properties
from multilayer.nn.activations.learned import building_blocks

ELEMENTWISE = [
    *(get(name) for name in catalogue if name != "softmax"),
    *(get("generalised_relu", gate=name) for name in building_blocks),
    get("sigmoid", a=3.0),
    get("leaky_relu", alpha=0.0),
    get("elu", alpha=1.7),
    get("swish", beta=-1.0),
    get("apl", n=5),
    get("kaf", n=7, bound=2.0, target="elu"),
    get("combination", parts="step+relu"),
    get("combination", parts="sigmoid+tanh"),
]


def name_of(fn: ActivationFunction) -> str:
    return "-".join([fn.name, *(f"{value}" for _, value in fn.constants)])


elementwise = pytest.mark.parametrize("fn", ELEMENTWISE, ids=name_of)


@pytest.mark.parametrize(
    ("name", "slope"),
    [
        ("step", 0),
        ("sigmoid", 0.25),
        ("tanh", 1),
        ("relu", 1),
        ("leaky_relu", 1),
        ("prelu", 1),
        ("elu", 1),
        ("gelu", 1.1289),
        ("gelu_tanh", 1.1290),
        ("silu", 1.0998),
        ("sin", 1),
        ("softmax", 0.25),
        ("polynomial", math.inf),
        ("sqrt", math.inf),
    ],
)
def test_max_slope(name: str, slope: float) -> None:
    assert properties.max_slope(get(name)) == pytest.approx(slope, abs=1e-13 if slope in (0, 0.25, 1) else 5e-5)


@elementwise
def test_slopes_and_values_stay_within_the_stated_bounds(fn: ActivationFunction) -> None:
    z = np.linspace(0.01 if fn.name == "sqrt" else -12, 12, 10_001)
    low, high = properties.extent(fn)
    slack = 1e-13 * max(1, abs(fn.f(z)).max())
    assert low - slack <= fn.f(z).min() <= fn.f(z).max() <= high + slack
    assert np.abs(fn.df(z)).max() <= properties.max_slope(fn) + 1e-13


def test_max_slope_is_where_the_second_derivative_vanishes() -> None:
    # GELU″ = φ(z)(2 − z²) is 0 at √2.
    gelu = get("gelu")
    assert properties.max_slope(gelu) == pytest.approx(gelu.df(np.array(math.sqrt(2))), rel=1e-13)


@pytest.mark.parametrize(
    ("name", "low", "high"),
    [
        ("identity", -math.inf, math.inf),
        ("step", 0, 1),
        ("sigmoid", 0, 1),
        ("tanh", -1, 1),
        ("sin", -1, 1),
        ("relu", 0, math.inf),
        ("leaky_relu", -math.inf, math.inf),
        ("elu", -1, math.inf),
        ("softplus", 0, math.inf),
        ("gelu", -0.16997, math.inf),
        ("silu", -0.27846, math.inf),
        ("mish", -0.30884, math.inf),
        ("polynomial", 0, math.inf),
        ("sqrt", 0, math.inf),
        ("softmax", 0, 1),
    ],
)
def test_extent(name: str, low: float, high: float) -> None:
    exact = low in (0, -1, -math.inf)
    assert properties.extent(get(name)) == (
        pytest.approx(low, abs=1e-13 if exact else 5e-6),
        pytest.approx(high, abs=1e-13),
    )


@pytest.mark.parametrize("name", ["gelu", "silu"])
def test_the_slope_changes_sign_at_the_minimum(name: str) -> None:
    fn, place = get(name), {"gelu": -0.752, "silu": -1.278}[name]
    assert fn.df(np.array(place - 0.001)) < 0 < fn.df(np.array(place + 0.001))


@pytest.mark.parametrize(
    ("name", "constants", "gain"),
    [
        ("identity", {}, 1),
        ("relu", {}, math.sqrt(2)),
        ("leaky_relu", {"alpha": 0.2}, math.sqrt(2 / 1.04)),
        ("step", {}, math.sqrt(2)),
        ("selu", {}, 1),  # Klambauer's fixed point
        ("polynomial", {"p": 3}, 1 / math.sqrt(15)),  # E z⁶
        ("sin", {}, 1 / math.sqrt((1 - math.exp(-2)) / 2)),
        ("sqrt", {}, None),
        ("softmax", {}, None),
    ],
)
def test_gain(name: str, constants: dict[str, object], gain: float | None) -> None:
    computed = properties.gain(get(name, **constants))
    assert computed is None if gain is None else computed == pytest.approx(gain, rel=1e-13)


@pytest.mark.parametrize(
    ("name", "gain"), [("identity", 1), ("relu", math.sqrt(2)), ("polynomial", 0.5), ("step", None), ("sqrt", None)]
)
def test_gain_backward(name: str, gain: float | None) -> None:
    computed = properties.gain_backward(get(name))
    assert computed is None if gain is None else computed == pytest.approx(gain, rel=1e-13)


@pytest.mark.parametrize("fn", [fn for fn in ELEMENTWISE if fn.name != "sqrt"], ids=name_of)
def test_moments_agree_with_numerical_integration(fn: ActivationFunction) -> None:
    # The mid-point rule on 4·10⁵ points over ±40: exact for smooth f, h φ(0) at a jump.
    z = (np.arange(400_000) + 0.5) / 400_000 * 80 - 40
    h = 80 / 400_000
    weights = np.exp(-z * z / 2) / math.sqrt(2 * math.pi) * h
    assert properties.second_moment(fn, 1.0) == pytest.approx((weights * fn.f(z) ** 2).sum(), rel=2 * h, abs=1e-15)
    assert properties.slope_moment(fn, 1.0) == pytest.approx((weights * fn.df(z) ** 2).sum(), rel=2 * h, abs=1e-15)


@pytest.mark.parametrize("variance", [1e-12, 1e-6, 1e-3, 0.3, 1.0, 17.0, 1e3, 1e6, 1e12])
def test_moments_at_every_variance(variance: float) -> None:
    s = math.sqrt(variance)
    assert properties.second_moment(get("relu"), variance) == pytest.approx(variance / 2, rel=1e-13)
    assert properties.slope_moment(get("relu"), variance) == pytest.approx(0.5, rel=1e-13)
    assert properties.second_moment(get("polynomial", p=4), variance) == pytest.approx(105 * variance**4, rel=1e-12)
    inside = math.erf(1 / s / math.sqrt(2))  # P(|z| < 1)
    assert properties.slope_moment(get("hard_tanh"), variance) == pytest.approx(inside, rel=1e-12)
    # E σ² = ½ − E σ(1 − σ), and E σ(1 − σ) is a density times an interval of length 1 where the density is flat.
    sigmoid = properties.second_moment(get("sigmoid"), variance)
    if variance >= 1e6:
        assert sigmoid == pytest.approx(0.5 - 1 / (s * math.sqrt(2 * math.pi)), rel=1e-8)
    if variance <= 1e-3:
        assert sigmoid == pytest.approx(0.25 + variance / 16, rel=variance**2)


def test_moments_at_variance_zero() -> None:
    assert properties.second_moment(get("sigmoid"), 0.0) == pytest.approx(0.25, rel=1e-13)
    assert properties.slope_moment(get("identity"), 0.0) == pytest.approx(1.0, rel=1e-13)


def test_facts_for_given_values_of_learned_parameters() -> None:
    assert properties.max_slope(get("prelu"), {"alpha": np.array(-3.0)}) == 3
    assert properties.gain(get("prelu"), {"alpha": np.array(1.0)}) == pytest.approx(1, rel=1e-13)
    assert properties.extent(get("learned_swish"), {"beta": np.array(2.0)})[0] == pytest.approx(-0.27846 / 2, abs=5e-6)
    assert properties.saturates(get("prelu"), {"alpha": np.array(0.0)}) == (0, None)


@pytest.mark.parametrize(
    ("name", "below", "above"),
    [
        ("identity", None, None),
        ("step", None, None),  # its slope is 0 everywhere
        ("polynomial", None, None),
        ("sqrt", None, None),
        ("sin", None, None),
        ("sigmoid", -5.98645, 5.98645),
        ("tanh", -2.99322, 2.99322),
        ("hard_tanh", -1, 1),
        ("relu", 0, None),
        ("leaky_relu", None, None),  # its smallest slope is 1 % of the largest, and not 0
        ("elu", math.log(0.01), None),
        ("gelu", -3.02166, None),
        ("softplus", -math.log(99), None),
    ],
)
def test_saturates(name: str, below: float | None, above: float | None) -> None:
    for got, expected in zip(properties.saturates(get(name)), (below, above), strict=True):
        assert got is None if expected is None else got == pytest.approx(expected, abs=5e-6)


@elementwise
def test_dies_and_vanishes_match_the_slopes(fn: ActivationFunction) -> None:
    # At ±6, the slope of a function that dies is 0. The slope of one that only vanishes may decrease slowly, like 1/z².
    far = np.array([-6.0, 6.0]) if fn.name != "kaf" else np.array([-30.0, 30.0])
    slopes = np.abs(fn.df(far))
    if fn.name not in ("sqrt", "kaf", "apl"):  # the parameters of a dead APL unit still get a gradient
        assert fn.dies == bool((slopes == 0).any())
    assert fn.vanishes == bool((np.abs(fn.df(1000 * far)) < 1e-5).all())


@elementwise
def test_dead_range(fn: ActivationFunction) -> None:
    """f′ is 0 exactly up to the range, also between the nearest floats, and no function without `dies` has a range."""
    low, high = properties.dead_range(fn)
    assert fn.dies == ((low, high) != (None, None))
    z = np.concatenate([np.linspace(-30, 30, 60_001), np.geomspace(1e-30, 1e6, 500), -np.geomspace(1e-30, 1e6, 500)])
    bounds = [bound for bound in (low, high) if bound is not None and math.isfinite(bound)]
    z = np.concatenate([z, bounds, *(np.nextafter(bounds, far) for far in (-np.inf, np.inf))])
    inside = np.zeros(len(z), dtype=bool)
    if low is not None:
        inside |= z <= low
    if high is not None:
        inside |= z >= high
    if fn.dies:
        np.testing.assert_array_equal(fn.df(z) == 0, inside)


def test_dead_units() -> None:
    z = np.array([[-1.0, -1.0, 0.0, 2.0], [-2.0, 3.0, -5.0, 1.0]])
    np.testing.assert_array_equal(properties.dead(get("relu"), z), [True, False, True, False])
    np.testing.assert_array_equal(properties.dead(get("hard_tanh"), z), [True, True, False, True])
    np.testing.assert_array_equal(properties.dead(get("step"), z), [True] * 4)
    for name in ("leaky_relu", "gelu", "sigmoid", "identity", "apl"):
        assert not properties.dead(get(name), 1e4 * z).any()
    np.testing.assert_array_equal(properties.dead(get("relu"), z.reshape(2, 1, 4)), properties.dead(get("relu"), z))
    assert not properties.dead(get("relu"), np.zeros((0, 4))).any()


def test_saturated_units() -> None:
    rows = np.zeros((100, 3))
    rows[:95, 0], rows[:94, 1], rows[:, 2] = 9.0, 9.0, -6.0
    np.testing.assert_array_equal(properties.saturated(get("sigmoid"), rows), [True, False, True])
    np.testing.assert_array_equal(properties.saturated(get("tanh"), rows), [True, False, True])
    np.testing.assert_array_equal(properties.saturated(get("gelu"), rows), [False, False, True])
    for name in ("relu", "leaky_relu", "identity", "step", "softmax"):
        assert not properties.saturated(get(name), -rows).any()
    assert not properties.saturated(get("sigmoid"), np.zeros((0, 3))).any()
    # Swish with β = 0 is linear. With β = 1 it is flat at −9, with β = −1 at +9.
    beta = {"beta": np.array([0.0, 1.0, -1.0])}
    z = np.tile([-9.0, -9.0, -9.0], (10, 1))
    np.testing.assert_array_equal(properties.saturated(get("learned_swish"), z, beta), [False, True, False])
    np.testing.assert_array_equal(properties.saturated(get("learned_swish"), -z, beta), [False, False, True])


@pytest.mark.parametrize(
    ("name", "constants", "flops", "backward", "cached", "bits"),
    [
        ("identity", {}, 0, 0, "nothing", 0),
        ("sigmoid", {}, 4, 2, "a", 32),
        ("sigmoid", {"a": 2}, 5, 3, "a", 32),
        ("tanh", {}, 6, 2, "a", 32),
        ("relu", {}, 1, 1, "sign", 1),
        ("leaky_relu", {}, 2, 2, "sign", 1),
        ("prelu", {}, 2, 2, "z", 32),
        ("elu", {}, 4, 3, "z", 32),
        ("gelu_tanh", {}, 14, 14, "z", 32),
        ("silu", {}, 5, 5, "z, σ(z)", 64),
        ("softmax", {}, 5, 3, "a", 32),
        ("apl", {"n": 3}, 13, 16, "z", 32),
        ("kaf", {"n": 10}, 59, 70, "z", 32),
        ("combination", {"parts": "relu+tanh"}, 1 + 6 + 3, 2 + 8 + 3, "z", 32),
    ],
)
def test_flops_follow_the_convention(
    name: str, constants: dict[str, object], flops: int, backward: int, cached: str, bits: int
) -> None:
    fn = get(name, **constants)
    assert (fn.flops, fn.flops_backward, fn.cached, fn.cached_bits) == (flops, backward, cached, bits)


@pytest.mark.parametrize(
    ("name", "vanishes", "dies"),
    [
        ("sigmoid", True, False),
        ("tanh", True, False),
        ("relu", False, True),
        ("leaky_relu", False, False),
        ("prelu", False, False),
        ("elu", False, False),
        ("gelu_tanh", False, False),
        ("silu", False, False),
        ("step", True, True),
    ],
)
def test_which_activations_vanish_and_die(name: str, vanishes: bool, dies: bool) -> None:
    assert (get(name).vanishes, get(name).dies) == (vanishes, dies)
