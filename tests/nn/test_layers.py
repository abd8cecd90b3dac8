"""Every case of the table: the numpy layers against torch in float64, and the gradients of torch by gradcheck.

Tolerance: float64 has eps = 2.2e-16. The longest sums here have fewer than 200 terms of size about 1, so rounding stays
below 200·eps·√layers ≈ 1e-13. The tolerance is 1e-11 because norms are ill-conditioned.
"""

from __future__ import annotations

import math
from typing import Any, cast

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings

import multilayer as ml
from multilayer.errors import BatchError, DataError, SpecError
from multilayer.nn import activations
from multilayer.nn.layers import Pass
from multilayer.nn.layers.base import backward_through, forward_through
from multilayer.pytorch import Dropout
from multilayer.pytorch.model import Model, fill
from multilayer.spec import Spec
from multilayer.spec.initialization import initialise
from support.cases import ALL, Case, rows_for
from support.strategies import has_batch_norm, specs

TOLERANCE = 1e-11
by_name = pytest.mark.parametrize("case", ALL, ids=lambda case: case.name)


def values_for(spec: Spec, seed: int = 3) -> dict[str, np.ndarray]:
    """Return perturbed initial values, so that no norm scale is 1, no bias is 0, and no two hinges coincide."""
    generator = np.random.default_rng(seed)
    values = initialise(spec, seed=seed)
    return values | {name: values[name] + 0.1 * generator.normal(size=values[name].shape) for name in spec.parameters}


def model_with(spec: Spec, values: dict[str, np.ndarray]) -> Model:
    model = Model(spec).double()
    fill(model, values)
    return model.train()


def reference(spec: Spec, values: dict[str, np.ndarray], x: np.ndarray, codes: np.ndarray | None):
    """Run the numpy layers forward and backward from a random gradient. The dropout masks are returned as well."""
    generator = np.random.default_rng(1)
    masks: list[np.ndarray] = []

    def keep(d: int, p: float) -> np.ndarray:
        masks.append((generator.random((len(x), d)) >= p) / (1 - p))
        return masks[-1]

    tensors = {place: values[stored] for place, stored in spec.tensor_names.items()}
    tensors |= {name: values[name] for name in spec.buffers}
    run = Pass(training=True, keep=keep, categories=spec.inputs.categories)
    y, caches = forward_through(spec.layers, x if codes is None else (x, codes), tensors, run)  # type: ignore[arg-type]
    dy = generator.normal(size=y.shape)
    dx, found = backward_through(spec.layers, dy, caches, tensors)
    gradients = {name: np.zeros(p.shape) for name, p in spec.parameters.items()}
    for place, g in found.items():
        gradients[spec.tensor_names[place]] += g
    return y, dy, dx, gradients, masks, run.updates


def record_norms(model: Model) -> list[float]:
    """Record the factor by which each norm amplifies rounding, 1/√(variance + ε), while the model runs.

    For nearly equal inputs the factor is up to 1/√ε, even if the true gradient is 0. Errors grow by the product of all
    factors.
    """
    amplification: list[float] = []

    def record(module: torch.nn.Module, args: tuple[torch.Tensor, ...]) -> None:
        layer = cast(Any, module).layer
        x = args[0].detach().unflatten(-1, (getattr(layer, "groups", 1), -1))  # (B, G, I/G)
        axis = 0 if layer.kind == "batchnorm" else -1
        spread = (x**2).mean(axis) if layer.kind == "rmsnorm" else x.var(axis, correction=0)
        amplification.append(max(1.0, float(spread.min() + layer.eps) ** -0.5))

    for module in model.modules():
        if hasattr(getattr(module, "layer", None), "eps"):
            module.register_forward_pre_hook(record)
    return amplification


def check_against_torch(spec: Spec, batch: int) -> None:
    x, codes = rows_for(spec, batch)
    values = values_for(spec)
    y, dy, dx, gradients, masks, updates = reference(spec, values, x, codes)
    model = model_with(spec, values)
    queue = iter(masks)
    for module in model.modules():
        if isinstance(module, Dropout):
            module.keep = lambda d, p: torch.from_numpy(next(queue))
    amplification = record_norms(model)
    inputs = torch.from_numpy(x).requires_grad_()
    out = model(inputs) if codes is None else model(inputs, torch.from_numpy(codes))
    out.backward(torch.from_numpy(dy))

    def close(ours: np.ndarray, theirs: np.ndarray, what: str) -> None:
        scale = max(math.prod(amplification), float(np.abs(theirs).max(initial=0)))
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=TOLERANCE * scale, err_msg=what)

    close(y, out.detach().numpy(), "outputs")
    for name, p in model.named_parameters():
        close(gradients[name], np.zeros(p.shape) if p.grad is None else p.grad.numpy(), name)
    for name, buffer in model.named_buffers():
        close(updates.get(name, values[name]), buffer.numpy(), name)
    if spec.layers[0].kind != "columns":
        close(dx, inputs.grad.numpy() if inputs.grad is not None else np.zeros_like(x), "inputs")


@by_name
def test_numpy_agrees_with_torch(case: Case) -> None:
    check_against_torch(case.spec, 7)


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(spec=specs())
def test_numpy_agrees_with_torch_on_random_networks(spec: Spec) -> None:
    check_against_torch(spec, 5)


# The worked example has 235,146 parameters, too many for finite differences. Other cases check its layers.
@pytest.mark.parametrize("case", [case for case in ALL if case.name != "worked example"], ids=lambda case: case.name)
def test_gradcheck(case: Case) -> None:
    """Compare with finite differences in float64, for inputs and parameters. Inputs are far from kinks."""
    spec = case.spec
    model = model_with(spec, values_for(spec)).eval()
    x, codes = rows_for(spec, 3, seed=5)
    rest = () if codes is None else (torch.from_numpy(codes),)
    names = [name for name, _ in model.named_parameters()]

    def run(inputs: torch.Tensor, *parameters: torch.Tensor) -> torch.Tensor:
        given_state = {**dict(zip(names, parameters, strict=True)), **dict(model.named_buffers())}
        return torch.func.functional_call(model, given_state, (inputs, *rest))

    inputs = torch.from_numpy(x).requires_grad_(bool(spec.inputs.numeric))
    parameters = [p.detach().clone().requires_grad_() for p in model.parameters()]
    if any(fn.name == "step" for fn in functions_of(spec)) or not spec.inputs.numeric:
        out = run(inputs, *parameters)
        assert torch.isfinite(out).all()  # the derivative of a step is 0; other tests check its value at 0
        if any(fn.name == "step" for fn in functions_of(spec)):
            return
    assert torch.autograd.gradcheck(run, (inputs, *parameters), eps=1e-6, atol=1e-6, rtol=1e-4)


def functions_of(spec: Spec) -> list[activations.ActivationFunction]:
    found = [getattr(entry.layer, "function", None) for entry in spec.entries]
    return [part for fn in found if fn is not None for part in (fn, *fn.parts)]


@by_name
def test_rank_three_inputs_use_the_last_axis(case: Case) -> None:
    spec = case.spec
    model = model_with(spec, values_for(spec)).eval()
    x, codes = rows_for(spec, 6)
    flat = (torch.from_numpy(x),) if codes is None else (torch.from_numpy(x), torch.from_numpy(codes))
    deep = tuple(t.reshape(2, 3, t.shape[-1]) for t in flat)
    torch.testing.assert_close(model(*deep), model(*flat).reshape(2, 3, spec.d_out), rtol=0, atol=1e-12)


@by_name
def test_empty_input_gives_empty_output(case: Case) -> None:
    spec = case.spec
    values = values_for(spec)
    x, codes = rows_for(spec, 0)
    inputs = [torch.from_numpy(x)] + ([] if codes is None else [torch.from_numpy(codes)])
    for shape in ((0,), (2, 0)):
        wide = [part.reshape(*shape, part.shape[-1]) for part in inputs]
        assert model_with(spec, values).eval()(*wide).shape == (*shape, spec.d_out)
    tensors = {place: values[stored] for place, stored in spec.tensor_names.items()}
    tensors |= {name: values[name] for name in spec.buffers}
    run = Pass(categories=spec.inputs.categories)
    y, _ = forward_through(spec.layers, x if codes is None else (x, codes), tensors, run)  # type: ignore[arg-type]
    assert y.shape == (0, spec.d_out)


@pytest.mark.parametrize("text", ["2+cat(2, 3)-1", "2+cat(2, 12)-columns(d_category=3)-1"])
@pytest.mark.parametrize(("column", "code"), [(0, -1), (0, 3), (1, -1), (1, 13)])
def test_codes_outside_their_values_are_refused(text: str, column: int, code: int) -> None:
    spec = Spec.parse(text)
    n = spec.inputs.categories[column]
    codes = np.ones((4, 2), dtype=np.int64)
    codes[2, column] = code
    run = Pass(categories=spec.inputs.categories)
    message = rf"category column {column} must hold .* from 0 \(missing or unknown\) to {n}, got {code} in row 2"
    with pytest.raises(DataError, match=message):
        forward_through(spec.layers, (np.zeros((4, 2)), codes), values_for(spec), run)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("numpys", "plain"),
    [
        (lambda: ml.Linear(np.int64(4)), ml.Linear(4)),
        (lambda: ml.GLU(np.uint8(4)), ml.GLU(4)),
        (lambda: ml.Maxout(np.int32(4), np.int64(3)), ml.Maxout(4, 3)),
        (lambda: ml.KAN(np.int64(4), grid=np.int64(3)), ml.KAN(4, grid=3)),
        (lambda: ml.GroupNorm(np.int64(2)), ml.GroupNorm(2)),
        (lambda: ml.Columns("plr", n=np.int64(3), d_category=np.int64(2)), ml.Columns("plr", n=3, d_category=2)),
        (lambda: ml.Columns(max_one_hot=np.int64(0)), ml.Columns(max_one_hot=0)),
        (lambda: ml.Inputs(np.int64(3), np.array([2, 4])), ml.Inputs(3, (2, 4))),
        (lambda: ml.Inputs(np.int64(0), (np.int64(2),)), ml.Inputs(0, (2,))),
        (lambda: ml.mlp(np.int64(3), np.array([4]), np.int64(1)), ml.mlp(3, [4], 1)),
    ],
)
def test_numpy_integers_are_stored_as_python_integers(numpys, plain) -> None:
    made = numpys()
    assert made == plain
    assert repr(made) == repr(plain)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("leaky_relu(0.2)", ml.Activation("leaky_relu", {"alpha": 0.2})),
        ("leaky_relu(alpha=0.2)", ml.Activation("leaky_relu", {"alpha": 0.2})),
        ("relu()", ml.Activation("relu")),
        ("prelu(per=unit)", ml.Activation("prelu", per="unit")),
        ("combination(relu, tanh, per=unit)", ml.Activation("combination", {"parts": "relu+tanh"}, per="unit")),
        ("combination(relu+tanh)", ml.Activation("combination", {"parts": "relu+tanh"})),
        ("blend(elu(0.5))", ml.Activation("elu", {"alpha": 0.5}, blend=True)),
    ],
)
def test_an_activation_may_be_given_as_a_string(text: str, expected: ml.Activation) -> None:
    assert ml.Activation(text) == expected
    assert ml.mlp(3, [4], 1, activation=text) == Spec.parse(f"3-4:{text}-1")


@pytest.mark.parametrize("text", ["3-4:batchnorm:relu-2", "3-batchnorm-2", "3-[batchnorm-3]-2"])
def test_batch_norm_refuses_one_row_in_training(text: str) -> None:
    model = ml.build(text).train()
    with pytest.raises(BatchError, match="at least 2 rows in a training batch, got 1"):
        model(torch.zeros(1, 3))
    assert model.eval()(torch.zeros(1, 3)).shape == (1, 2)
    spec = Spec.parse(text)
    values = initialise(spec)
    with pytest.raises(BatchError, match="drop the last batch, or use layernorm"):
        forward_through(spec.layers, np.zeros((1, 3)), values, Pass(training=True))


def test_networks_with_batch_norm_are_detected() -> None:
    assert has_batch_norm(Spec.parse("3-[batchnorm-3]-2").layers)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: ml.Linear(0), "width must be a whole number of at least 1, got 0"),
        (lambda: ml.Linear(True), "width must be a whole number of at least 1, got True"),
        (lambda: ml.Linear(3, scale="tangents"), "scale must be a finite number or 'tangent', got 'tangents'"),
        (lambda: ml.Linear(3, scale=float("nan")), "scale must be a finite number"),
        (lambda: ml.Dropout(1.0), "dropout must be at least 0 and below 1, got 1.0"),
        (lambda: ml.Dropout(-0.1), "got -0.1"),
        (lambda: ml.LayerNorm(eps=0), "eps must be a positive number, got 0"),
        (lambda: ml.BatchNorm(momentum=0), "momentum must be above 0 and at most 1, got 0"),
        (lambda: ml.GLU(4, "swigloo"), "did you mean 'swiglu'"),
        (lambda: ml.KAN(4, basis="splines"), "did you mean 'spline'"),
        (lambda: ml.KAN(4, basis="rbf", grid=1), "grid must be at least 2 for the rbf basis, got 1"),
        (lambda: ml.KAN(4, bound=-1), "bound must be a positive number, got -1"),
        (lambda: ml.Residual(()), "must hold at least one layer, got none"),
        (lambda: ml.Activation("gelo"), "did you mean 'gelu'"),
        (lambda: ml.Activation("relu", per="unit"), "needs an activation with learned numbers, got 'relu'"),
        (lambda: ml.Activation("prelu", per="units"), "did you mean 'unit'"),
        (lambda: ml.Activation("softmax", blend=True), "blend needs an elementwise activation, got 'softmax'"),
        (lambda: ml.Columns("plrs"), "did you mean 'plr'"),
        (lambda: ml.Columns("none", n=3), "n has no meaning with numeric='none', got 3"),
        (lambda: ml.Columns("pbld", d_numeric=1), "d_numeric must be at least 2 with pbld"),
        (lambda: ml.Columns(categories="onehot"), "did you mean 'one-hot'"),
        (lambda: ml.Inputs(0), "at least one input, got none"),
        (lambda: ml.Inputs(3, (0,)), "categories must be a whole number of at least 1, got 0"),
    ],
)
def test_invalid_layers_report_what_is_required(make, message: str) -> None:
    with pytest.raises(SpecError, match=message.replace("(", r"\(").replace(")", r"\)")):
        make()


def test_missing_or_unexpected_codes_are_reported() -> None:
    model = ml.build("3+cat(2, 5)-4-1")
    with pytest.raises(SpecError, match=r"takes 2 categorical columns, got no codes: call model\(x, codes\)"):
        model(torch.zeros(1, 3))
    with pytest.raises(SpecError, match=r"takes no categorical columns, got codes: call model\(x\)"):
        ml.build("3-1")(torch.zeros(1, 3), torch.zeros(1, 1))
