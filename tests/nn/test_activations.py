"""Every activation of the catalogue: derivatives against finite differences, numpy against torch, and their names.

Tolerances: numpy and torch both use float64 (eps 2.2e-16) and evaluate the same formula, with fewer than 100 operations
on values below 1,000. They therefore agree to 1e-12 of the largest value. The error of five-point differences with
h = 1e-3 is h⁴ f⁽⁵⁾/30 + eps |f|/h. In all cases f⁽⁵⁾ is below 1e4, which gives 3e-10, rounded up to 1e-9.
"""

from __future__ import annotations

import copy
import math
import pickle
import unicodedata

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from multilayer.errors import SpecError
from multilayer.nn.activations import ActivationFunction, aliases, catalogue, get
from multilayer.nn.activations.function import initial
from multilayer.nn.activations.learned import building_blocks
from multilayer.pytorch.activations import forward

CASES: list[tuple[str, dict[str, object]]] = [
    *((name, {}) for name in catalogue),
    ("polynomial", {"p": 1}),
    ("polynomial", {"p": 5}),
    ("sigmoid", {"a": 3.0}),
    ("leaky_relu", {"alpha": 0.2}),
    ("leaky_relu", {"alpha": 0.0}),
    ("elu", {"alpha": 1.7}),
    ("swish", {"beta": 2.5}),
    ("swish", {"beta": 0.0}),
    ("swish", {"beta": -1.0}),
    ("learned_swish", {"beta": 0.5}),
    ("prelu", {"alpha": -0.1}),
    ("apl", {"n": 1}),
    ("apl", {"n": 5}),
    ("kaf", {"n": 7, "bound": 2.0, "target": "elu"}),
    *(("generalised_relu", {"gate": name}) for name in building_blocks),
    ("combination", {"parts": "identity"}),
    ("combination", {"parts": "+".join(building_blocks)}),
]
ALL = [get(name, **constants) for name, constants in CASES]
ELEMENTWISE = [fn for fn in ALL if fn.elementwise]
LEARNED = [fn for fn in ALL if fn.learned]


def name_of(fn: ActivationFunction) -> str:
    return "-".join([fn.name, *(f"{value}" for _, value in fn.constants)])


every = pytest.mark.parametrize("fn", ALL, ids=name_of)
elementwise = pytest.mark.parametrize("fn", ELEMENTWISE, ids=name_of)
with_learned = pytest.mark.parametrize("fn", LEARNED, ids=name_of)


def points(fn: ActivationFunction, rows: int = 40, d: int = 5) -> np.ndarray:
    """Return z (rows, d) in the domain of fn, at least 0.01 from its kinks and from 0, where ELU″ is discontinuous."""
    z = np.random.default_rng(0).uniform(-6, 6, (rows, d))
    z = np.abs(z) + 0.5 if fn.name == "sqrt" else z
    for kink in (0.0, *fn.kinks):
        z = np.where(np.abs(z - kink) < 0.01, z + 0.05, z)
    return z


def learned_values(fn: ActivationFunction, *, per_unit: int | None = None) -> dict[str, np.ndarray]:
    """Return learned parameters that differ from their initial values. The kinks of APL stay where they are."""
    rng = np.random.default_rng(1)
    lead = () if per_unit is None else (per_unit,)
    return {
        name: np.broadcast_to(first, (*lead, *first.shape)).copy()
        if (fn.name, name) == ("apl", "b")
        else first + 0.3 * rng.standard_normal((*lead, *first.shape))
        for name, first in fn.learned.items()
    }


def as_torch(learned: dict[str, np.ndarray]) -> dict[str, torch.Tensor]:
    return {name: torch.tensor(value, requires_grad=True) for name, value in learned.items()}


# Derivatives


def differences(f, x: np.ndarray, h: float = 1e-3) -> np.ndarray:
    return (8 * (f(x + h) - f(x - h)) - (f(x + 2 * h) - f(x - 2 * h))) / (12 * h)


@elementwise
def test_df_is_the_derivative(fn: ActivationFunction) -> None:
    z, learned = points(fn), learned_values(fn, per_unit=5)
    expected = differences(lambda x: fn.f(x, **learned), z)
    scale = max(1.0, np.abs(fn.f(z, **learned)).max())
    np.testing.assert_allclose(fn.df(z, **learned), expected, rtol=0, atol=1e-9 * scale)


@with_learned
def test_dp_is_the_derivative_with_respect_to_each_learned_parameter(fn: ActivationFunction) -> None:
    z, learned = points(fn), learned_values(fn, per_unit=5)
    assert fn.dp is not None
    exact = fn.dp(z, **learned)
    assert exact.keys() == learned.keys()
    for name, value in learned.items():
        for i in np.ndindex(fn.learned[name].shape):
            one = np.zeros_like(value)
            one[(..., *i)] = 1.0
            expected = differences(lambda s: fn.f(z, **{**learned, name: value + s * one}), np.float64(0))  # noqa: B023
            scale = max(1.0, np.abs(expected).max())
            np.testing.assert_allclose(exact[name][(..., *i)], expected, rtol=0, atol=1e-9 * scale)


def test_softmax_vjp_is_its_jacobian() -> None:
    fn = get("softmax")
    assert fn.vjp is not None
    z = np.random.default_rng(0).standard_normal(6)
    # Row j of z + s I changes only input j, so its derivative with respect to s is column j of the Jacobian.
    jacobian = differences(lambda s: fn.f(z + s * np.eye(6)), np.float64(0)).T
    np.testing.assert_allclose(np.diag(jacobian), fn.df(z), atol=1e-12)
    np.testing.assert_allclose(np.stack([fn.vjp(z, e) for e in np.eye(6)]), jacobian, atol=1e-12)


@pytest.mark.parametrize(
    ("name", "constants", "z", "value", "slope"),
    [
        ("step", {}, 0.0, 1.0, 0.0),
        ("relu", {}, 0.0, 0.0, 0.0),
        ("leaky_relu", {}, 0.0, 0.0, 0.01),
        ("leaky_relu", {"alpha": 0.3}, 0.0, 0.0, 0.3),
        ("prelu", {}, 0.0, 0.0, 0.25),
        ("elu", {"alpha": 2.0}, 0.0, 0.0, 2.0),
        ("selu", {}, 0.0, 0.0, 1.0507009873554805 * 1.6732632423543772),
        ("sqrt", {}, 0.0, 0.0, math.inf),
        ("hard_tanh", {}, 1.0, 1.0, 0.0),
        ("hard_tanh", {}, -1.0, -1.0, 0.0),
        ("generalised_relu", {"gate": "step"}, 0.0, 0.0, 1.0),
        ("apl", {}, 0.0, 0.0, 0.0),
        ("apl", {}, 1.0, 1.0, 1.0),
    ],
)
def test_values_and_slopes_at_kinks(
    name: str, constants: dict[str, object], z: float, value: float, slope: float
) -> None:
    fn = get(name, **constants)
    assert fn.f(np.array([z])) == value
    assert fn.df(np.array([z])) == slope
    x = torch.tensor([z], dtype=torch.float64, requires_grad=True)
    a = forward(fn, x, as_torch({k: v.copy() for k, v in fn.learned.items()}))
    a.backward()
    assert a.item() == value
    assert x.grad is not None
    assert x.grad.item() == slope


@pytest.mark.parametrize("side", [-1.0, 1.0])
def test_apl_hinges_have_slope_zero_at_their_kink(side: float) -> None:
    fn, learned = get("apl"), {"a": np.array([0.5, 0.5]), "b": np.array([-1.0, 1.0])}
    z = torch.tensor([side], dtype=torch.float64, requires_grad=True)
    forward(fn, z, as_torch(learned)).backward()
    assert z.grad is not None
    assert z.grad.item() == fn.df(np.array([side]), **learned) == (1.0 if side > 0 else -0.5)


# numpy and torch


@every
@pytest.mark.parametrize("per_unit", [None, 5], ids=["shared", "per_unit"])
def test_torch_agrees_with_numpy(fn: ActivationFunction, per_unit: int | None) -> None:
    z, learned = points(fn), learned_values(fn, per_unit=per_unit)
    da = np.random.default_rng(2).standard_normal(z.shape)
    x, p = torch.tensor(z, requires_grad=True), as_torch(learned)
    a = forward(fn, x, p)
    a.backward(torch.tensor(da))

    def close(actual: torch.Tensor | None, expected: np.ndarray) -> None:
        assert actual is not None
        scale = max(1.0, np.abs(expected).max())
        np.testing.assert_allclose(actual.detach().numpy(), expected, rtol=0, atol=1e-12 * scale)

    close(a, fn.f(z, **learned))
    close(x.grad, fn.vjp(z, da) if fn.vjp else da * fn.df(z, **learned))
    slopes = fn.dp(z, **learned) if fn.dp else {}
    for name, value in learned.items():
        extended = da.reshape(*da.shape, *[1] * fn.learned[name].ndim)
        close(p[name].grad, (extended * slopes[name]).sum(axis=0 if per_unit else (0, 1)).reshape(value.shape))


@every
def test_torch_gradients_pass_gradcheck_twice(fn: ActivationFunction) -> None:
    z = torch.tensor(points(fn, rows=3, d=2), requires_grad=True)
    p = as_torch(learned_values(fn, per_unit=2))

    def run(z: torch.Tensor, *values: torch.Tensor) -> torch.Tensor:
        return forward(fn, z, dict(zip(p, values, strict=True)))

    assert torch.autograd.gradcheck(run, (z, *p.values()))
    assert torch.autograd.gradgradcheck(run, (z, *p.values()))


@every
@pytest.mark.parametrize("shape", [(5,), (1, 1), (2, 3, 5), (0, 5)])
def test_inputs_may_have_any_rank(fn: ActivationFunction, shape: tuple[int, ...]) -> None:
    z = np.random.default_rng(0).uniform(0.1, 2, shape)
    a = fn.f(z)
    assert a.shape == fn.df(z).shape == shape
    b = forward(fn, torch.tensor(z), {k: torch.tensor(v.copy()) for k, v in fn.learned.items()})
    np.testing.assert_allclose(b.numpy(), a, rtol=1e-12)


@every
def test_torch_compiles_in_one_graph(fn: ActivationFunction) -> None:
    torch.compiler.reset()
    z, p = torch.tensor(points(fn)), as_torch(learned_values(fn))
    compiled = torch.compile(forward, backend="eager", fullgraph=True)
    torch.testing.assert_close(compiled(fn, z, p), forward(fn, z, p))


@every
@pytest.mark.parametrize("shape", [(4, 3), (1, 1)])
def test_kept_matches_the_tensors_that_autograd_saves(fn: ActivationFunction, shape: tuple[int, int]) -> None:
    rows, d = shape
    leaf = torch.rand(shape, requires_grad=True)
    z = leaf + 1  # an intermediate tensor, as in a network
    p = {name: torch.tensor(value, dtype=torch.float32, requires_grad=True) for name, value in fn.learned.items()}
    saved: list[torch.Tensor] = []

    def pack(t: torch.Tensor) -> torch.Tensor:
        saved.append(t)
        return t

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
        a = forward(fn, z, p)
    floats = {t.untyped_storage().data_ptr(): t.untyped_storage().nbytes() // 4 for t in saved if t.is_floating_point()}
    for value in p.values():
        floats.pop(value.untyped_storage().data_ptr(), None)
    has_input = floats.pop(z.untyped_storage().data_ptr(), 0) > 0
    has_output = floats.pop(a.untyped_storage().data_ptr(), 0) > 0
    assert (has_input, has_output) == (fn.kept.input, fn.kept.output)
    assert sum(floats.values()) == fn.kept.extra * rows * d + fn.kept.per_row * rows + fn.kept.per_batch


# Stability


@elementwise
def test_large_inputs_give_finite_values_without_warnings(fn: ActivationFunction) -> None:
    z = np.array([1e-300, 30.0, 39.9, 40.1, 100.0, 750.0, 1e4])
    z = z if fn.name == "sqrt" else np.concatenate([-z, [0.0], z])
    x = torch.tensor(z, requires_grad=True)
    p = as_torch({k: v.copy() for k, v in fn.learned.items()})
    a = forward(fn, x, p)
    a.sum().backward()
    assert np.isfinite(fn.f(z)).all()
    assert np.isfinite(fn.df(z)).all()
    np.testing.assert_allclose(a.detach().numpy(), fn.f(z), rtol=1e-12, atol=1e-12)
    smooth = ~np.isin(z, fn.kinks)
    assert x.grad is not None
    np.testing.assert_allclose(x.grad.numpy()[smooth], fn.df(z)[smooth], rtol=1e-12, atol=1e-12)
    for name, slopes in (fn.dp(z) if fn.dp else {}).items():
        assert np.isfinite(slopes).all(), name


@pytest.mark.parametrize("sign", [-1, 1])
def test_softmax_of_large_inputs(sign: int) -> None:
    fn = get("softmax")
    np.testing.assert_array_equal(fn.f(np.array([sign * 1e4, 0.0])), [1.0, 0.0] if sign > 0 else [0.0, 1.0])
    np.testing.assert_array_equal(fn.f(np.full(4, sign * 1e4)), np.full(4, 0.25))


@pytest.mark.parametrize(
    ("name", "below", "above"),
    [
        ("identity", -math.inf, math.inf),
        ("step", 0, 1),
        ("sigmoid", 0, 1),
        ("tanh", -1, 1),
        ("hard_tanh", -1, 1),
        ("elu", -1, math.inf),
        ("leaky_relu", -math.inf, math.inf),
        *((name, 0, math.inf) for name in ["relu", "softplus", "gelu", "gelu_tanh", "silu", "swish", "mish"]),
    ],
)
def test_infinite_inputs_give_the_limits(name: str, below: float, above: float) -> None:
    fn = get(name)
    np.testing.assert_array_equal(fn.f(np.array([-math.inf, math.inf])), [below, above])
    slopes = fn.df(np.array([-math.inf, math.inf]))
    assert slopes[1] == (1 if above == math.inf else 0)
    assert slopes[0] == (0 if below > -math.inf else fn.df(np.array(-5.0)))


@every
def test_nan_stays_nan(fn: ActivationFunction) -> None:
    z = np.array([math.nan, 0.5])
    p = as_torch({k: v.copy() for k, v in fn.learned.items()})
    assert np.isnan(fn.f(z)[0])
    assert torch.isnan(forward(fn, torch.tensor(z), p)[0])


def test_sqrt_is_nan_below_zero() -> None:
    fn = get("sqrt")
    assert np.isnan(fn.f(np.array([-1.0]))).all()
    assert np.isnan(fn.df(np.array([-1.0]))).all()


def test_left_tails_are_accurate() -> None:
    # z Φ(z) with Φ(−10) from tables of the normal distribution. The formula 1 + erf would give 0.
    np.testing.assert_allclose(get("gelu").f(np.array([-10.0])), [-7.619853024160527e-23], rtol=1e-13)
    np.testing.assert_allclose(get("silu").f(np.array([-50.0])), [-50 * math.exp(-50)], rtol=1e-14)
    np.testing.assert_allclose(get("tanh").df(np.array([30.0])), [4 * math.exp(-60)], rtol=1e-14)


@pytest.mark.parametrize("fn", [fn for fn in ALL if not fn.learned], ids=name_of)
def test_float32_stays_float32(fn: ActivationFunction) -> None:
    z = np.array([0.25, 1.5], dtype=np.float32)
    assert fn.f(z).dtype == fn.df(z).dtype == np.float32


# Identities


@given(st.floats(-700, 700))
def test_tanh_is_a_scaled_sigmoid(s: float) -> None:
    z = np.array([s])
    np.testing.assert_allclose(get("tanh").f(z), 2 * get("sigmoid").f(2 * z) - 1, rtol=0, atol=4e-16)
    np.testing.assert_allclose(get("tanh").f(z), 2 * get("sigmoid", a=2).f(z) - 1, rtol=0, atol=4e-16)


@pytest.mark.parametrize("other", ["swish", "generalised_relu", "learned_swish", "trainable_swish"])
def test_silu_is_a_special_case_of_other_activations(other: str) -> None:
    z = np.linspace(-20, 20, 401)
    np.testing.assert_array_equal(get(other).f(z), get("silu").f(z))
    np.testing.assert_allclose(get(other).df(z), get("silu").df(z), rtol=0, atol=4e-16)


def test_activations_that_equal_relu() -> None:
    z = np.linspace(-3, 3, 400)  # does not contain 0
    for fn in (get("generalised_relu", gate="step"), get("apl"), get("elu", alpha=0), get("leaky_relu", alpha=0)):
        np.testing.assert_array_equal(fn.f(z), np.maximum(z, 0))
        np.testing.assert_array_equal(fn.df(z), (z > 0).astype(float))


@pytest.mark.parametrize(("target", "tolerance"), [("tanh", 0.01), ("elu", 0.02), ("sigmoid", 0.02)])
def test_initial_kaf_approximates_its_target(target: str, tolerance: float) -> None:
    z = np.linspace(-2.5, 2.5, 201)
    assert np.abs(get("kaf", target=target).f(z) - get(target).f(z)).max() < tolerance


def test_kaf_follows_the_spacing_rule() -> None:
    fn = get("kaf", n=7, bound=3.0)  # Δ = 1, γ = 1/6
    alpha = np.eye(7)[3]
    np.testing.assert_allclose(fn.f(np.array([0.0, 1.0, -2.0]), alpha=alpha), np.exp(-np.array([0, 1, 4]) / 6))


def test_initial_combination_is_the_mean_of_its_parts() -> None:
    z = np.linspace(-3, 3, 50)
    mean = (z + np.tanh(z) + np.maximum(z, 0)) / 3
    np.testing.assert_allclose(get("combination").f(z), mean, atol=1e-15)
    np.testing.assert_allclose(
        get("combination", parts=["identity", "relu"]).f(z, alpha=np.array([2.0, -1.0])), 2 * z - np.maximum(z, 0)
    )


# Names, constants, data


@every
def test_formulas_are_plain_text(fn: ActivationFunction) -> None:
    assert fn.formula.isprintable()
    assert "z" in fn.formula
    assert fn.formula == unicodedata.normalize("NFC", fn.formula)
    assert not set("\\{}$") & set(fn.formula)
    assert fn.latex.count("{") == fn.latex.count("}")
    assert fn.latex.count(r"\left") == fn.latex.count(r"\right")
    assert fn.latex.isascii()


@every
def test_equal_arguments_give_the_same_object(fn: ActivationFunction) -> None:
    again = get(fn.name, **dict(fn.constants))
    assert again == fn
    assert hash(again) == hash(fn)
    assert copy.deepcopy(again) is again
    assert pickle.loads(pickle.dumps(again)) is again


@with_learned
def test_initial_values_cannot_be_changed(fn: ActivationFunction) -> None:
    for value in fn.learned.values():
        assert value.dtype == np.float64
        with pytest.raises(ValueError, match="read-only"):
            value[...] = 1.0
    assert not initial(1.0).flags.writeable


def test_names_and_constants() -> None:
    for alias, name in aliases.items():
        assert get(alias).name == name
    assert get("ReLU") is get("relu")
    assert get("leaky_relu") is get("leaky_relu", alpha=0.01)
    assert get("leaky_relu", alpha=1) == get("leaky_relu", alpha=1.0)
    assert get("leaky_relu", alpha=0.1) != get("leaky_relu")
    assert get("combination", parts=["relu", "tanh"]) == get("combination", parts="relu+tanh")
    assert get("kaf", n=np.int64(8)).constant("n") == 8


@pytest.mark.parametrize(
    ("name", "constants", "message"),
    [
        ("rleu", {}, "unknown activation 'rleu': did you mean 'relu'"),
        ("relu", {"alpha": 0.1}, "relu takes no constants, got alpha=0.1"),
        ("leaky_relu", {"alfa": 0.1}, "unknown constant of leaky_relu 'alfa': did you mean 'alpha'"),
        ("leaky_relu", {"alpha": math.nan}, "leaky_relu needs alpha to be a finite number, got alpha=nan"),
        ("leaky_relu", {"alpha": "0.1"}, "leaky_relu needs alpha to be a finite number, got alpha='0.1'"),
        ("leaky_relu", {"alpha": True}, "leaky_relu needs alpha to be a finite number, got alpha=True"),
        ("leaky_relu", {"alpha": [0.1]}, "leaky_relu needs alpha to be a finite number, got alpha="),
        ("elu", {"alpha": 10**400}, "elu needs alpha to be a finite number"),
        ("elu", {"alpha": {}}, "elu needs alpha to be a finite number, got alpha={}"),
        ("swish", {"beta": math.inf}, "swish needs beta to be a finite number, got beta=inf"),
        ("sigmoid", {"a": 0}, "sigmoid needs a to be a positive number, got a=0"),
        ("polynomial", {"p": 0}, "polynomial needs p to be a whole number from 1 to 16, got p=0"),
        ("polynomial", {"p": 2.5}, "polynomial needs p to be a whole number from 1 to 16, got p=2.5"),
        ("apl", {"n": 65}, "apl needs n to be a whole number from 1 to 64, got n=65"),
        ("kaf", {"n": 1}, "kaf needs n to be a whole number from 2 to 64, got n=1"),
        ("kaf", {"bound": -1.0}, "kaf needs bound to be a positive number, got bound=-1.0"),
        ("kaf", {"target": "tahn"}, "unknown target of kaf 'tahn': did you mean 'tanh'"),
        ("generalised_relu", {"gate": "softmax"}, "unknown gate of generalised_relu 'softmax'"),
        ("combination", {"parts": "relu+gelo"}, "unknown part of combination 'gelo': did you mean 'gelu'"),
        (
            "combination",
            {"parts": "relu+relu"},
            r"combination needs parts to be one or more different names, got .*relu",
        ),
        ("combination", {"parts": []}, "combination needs parts to be one or more different names"),
        ("combination", {"parts": [1, 2]}, "unknown part of combination '1'"),
        ("combination", {"parts": 3}, "combination needs parts to be names"),
    ],
)
def test_errors_report_what_was_expected_and_received(name: str, constants: dict[str, object], message: str) -> None:
    get("leaky_relu", alpha=1.0)  # a cached activation whose alpha equals True: the error must still be raised
    with pytest.raises(SpecError, match=message):
        get(name, **constants)
