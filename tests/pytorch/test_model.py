"""`ml.build`, `ml.from_torch` and `ml.to_torch`: names, weights, training, copies and error messages."""

from __future__ import annotations

import copy
import time
import warnings

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import multilayer as ml
from multilayer.errors import DataError, SpecError
from multilayer.pytorch.model import Model
from multilayer.spec.initialization import initialise
from support.cases import ALL, LAYERS, MIXTURES, Case, rows_for

by_name = pytest.mark.parametrize("case", ALL, ids=lambda case: case.name)


@by_name
def test_state_dict_has_the_names_of_the_spec(case: Case) -> None:
    spec = case.spec
    model = ml.build(spec, seed=1)
    assert set(model.state_dict()) == set(spec.parameters) | set(spec.buffers)
    assert [name for name, _ in model.named_parameters()] == sorted(spec.parameters, key=list(model.state_dict()).index)
    for name, p in model.named_parameters():
        assert tuple(p.shape) == spec.parameters[name].shape
    assert sum(p.numel() for p in model.parameters()) == spec.n_parameters


def test_equal_seeds_give_the_weights_of_the_numpy_initialization() -> None:
    spec = ml.mlp(5, [4], 3, norm="batchnorm")
    values = initialise(spec, seed=7)
    model = ml.build(spec, seed=7, dtype=torch.float64)
    for name, tensor in model.state_dict().items():
        np.testing.assert_array_equal(tensor.numpy(), values[name])
    single = ml.build(spec, seed=7).state_dict()
    for name, tensor in single.items():
        np.testing.assert_array_equal(tensor.numpy(), values[name].astype(np.float32))


def test_the_repr_describes_the_network() -> None:
    text = repr(ml.build("4-3:tanh:dropout(0.1)-1"))
    for part in (
        "4-3:tanh:dropout(0.1)-1  # 19 parameters",
        "(linear1): linear(weight (3, 4), bias (3,))",
        "dropout(0.1)",
    ):
        assert part in text


@by_name
def test_deep_copies_and_state_dicts_give_the_same_outputs(case: Case) -> None:
    spec = case.spec
    model = ml.build(spec, seed=1).eval()
    x, codes = rows_for(spec, 4)
    inputs = [torch.from_numpy(x).float()] + ([] if codes is None else [torch.from_numpy(codes)])
    out = model(*inputs)
    assert torch.equal(copy.deepcopy(model)(*inputs), out)
    fresh = ml.build(spec, seed=2).eval()
    fresh.load_state_dict(model.state_dict())
    assert torch.equal(fresh(*inputs), out)


def test_a_copy_has_separate_shared_parameters() -> None:
    model = copy.deepcopy(ml.build("3-4:prelu(per=network)-4:prelu(per=network)-1"))
    with torch.no_grad():
        model.get_parameter("shared.prelu1.alpha").fill_(0.0)
    x = -torch.ones(1, 4)
    assert torch.equal(model.get_submodule("prelu1")(x), torch.zeros(1, 4))
    assert torch.equal(model.get_submodule("prelu2")(x), torch.zeros(1, 4))


def test_trains_with_a_torch_optimizer_and_a_dataloader() -> None:
    torch.manual_seed(0)
    x = torch.randn(64, 3)
    y = (x[:, :1] * x[:, 1:2] > 0).float()
    model = ml.build("3-16:tanh-1", seed=0)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.05)
    before = nn.functional.binary_cross_entropy_with_logits(model(x), y).item()
    for _ in range(30):
        for rows, target in DataLoader(TensorDataset(x, y), batch_size=16, shuffle=True):
            optimizer.zero_grad()
            nn.functional.binary_cross_entropy_with_logits(model(rows), target).backward()
            optimizer.step()
    assert nn.functional.binary_cross_entropy_with_logits(model(x), y).item() < before / 2


def test_can_be_part_of_another_module() -> None:
    class Whole(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body = ml.build(ml.residual_mlp(6, 4, hidden=8, blocks=2))
            self.head = nn.Linear(4, 1)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.head(self.body(x))

    whole = Whole()
    assert whole(torch.zeros(2, 5, 6)).shape == (2, 5, 1)
    assert "body.residual1.linear1.weight" in whole.state_dict()


@pytest.mark.parametrize(
    "text",
    ["4-8:prelu(per=network)-8:prelu(per=network)-2", *(cases[0].text for cases in LAYERS.values()), MIXTURES[-1].text],
)
def test_compiles_in_one_graph(text: str) -> None:
    model = ml.build(text, seed=3).eval()
    rows, codes = rows_for(model.spec, 5)
    x = [torch.from_numpy(rows).float()] + ([] if codes is None else [torch.from_numpy(codes)])
    torch.compiler.reset()  # the limit on recompilations is per class, not per model
    with warnings.catch_warnings():
        # torch.compile uses deprecated functions of torch.
        warnings.simplefilter("ignore")
        compiled = torch.compile(model, backend="eager", fullgraph=True)
        torch.testing.assert_close(compiled(*x), model(*x))


SEQUENCES = [
    nn.Sequential(nn.Linear(5, 4), nn.ReLU(), nn.Linear(4, 3)),
    nn.Sequential(
        nn.Linear(5, 4, bias=False), nn.BatchNorm1d(4), nn.GELU(), nn.Dropout(0.2), nn.Linear(4, 1), nn.Sigmoid()
    ),
    nn.Sequential(
        nn.LayerNorm(5), nn.Linear(5, 4), nn.LeakyReLU(0.2), nn.RMSNorm(4), nn.Linear(4, 3), nn.Softmax(dim=-1)
    ),
    nn.Sequential(nn.Linear(5, 6), nn.GroupNorm(2, 6), nn.GELU(approximate="tanh"), nn.PReLU(), nn.Linear(6, 2)),
    nn.Sequential(
        nn.Linear(5, 6), nn.PReLU(6), nn.Sequential(nn.ELU(0.5), nn.SELU()), nn.Softplus(), nn.SiLU(), nn.Mish()
    ),
    nn.Sequential(nn.Linear(5, 6), nn.Tanh(), nn.Hardtanh(), nn.Identity(), nn.Linear(6, 1)),
    nn.Sequential(nn.Tanh(), nn.Linear(5, 1)),
    nn.Linear(5, 2),
]


@pytest.mark.parametrize("module", SEQUENCES, ids=str)
def test_from_torch_and_back(module: nn.Module) -> None:
    module = copy.deepcopy(module).double().eval()
    x = torch.randn(7, 5, dtype=torch.float64)
    model = ml.from_torch(module)
    assert isinstance(model, Model)
    torch.testing.assert_close(model(x), module(x), rtol=0, atol=1e-14)
    again = ml.to_torch(model)
    torch.testing.assert_close(again(x), module(x), rtol=0, atol=1e-14)
    assert ml.from_torch(again).spec == model.spec
    assert not any(p is q for p in model.parameters() for q in module.parameters())


def test_to_torch_includes_the_fixed_scale_in_the_weights() -> None:
    model = ml.build("5-linear(4, scale=tangent):tanh-1", dtype=torch.float64)
    x = torch.randn(3, 5, dtype=torch.float64)
    torch.testing.assert_close(ml.to_torch(model)(x), model(x), rtol=0, atol=1e-14)


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("5-kan(3)-1", r"kan1 \(kan\)"),
        ("5-4:apl-1", r"apl1 \(apl\)"),
        ("5-4:blend(relu)-1", r"relu1 \(relu\)"),
        ("5-[5]-1", "residual1"),
    ],
)
def test_to_torch_of_a_layer_that_torch_does_not_have_is_an_error(text: str, name: str) -> None:
    with pytest.raises(SpecError, match=f"torch has no module for {name}.*: use the model itself"):
        ml.to_torch(ml.build(text))


def test_to_torch_of_shared_parameters_is_an_error() -> None:
    with pytest.raises(SpecError, match="shared by the whole network"):
        ml.to_torch(ml.build("5-4:prelu(per=network)-4:prelu(per=network)-1"))


@pytest.mark.parametrize(
    ("module", "message"),
    [
        (5, "from_torch reads an nn.Sequential, got 5"),
        (nn.Sequential(nn.Conv2d(1, 2, 3)), "from_torch reads nn.Sequential of .*; got Conv2d"),
        (nn.Sequential(nn.ReLU()), "at least one module with a width"),
        (nn.Sequential(nn.Linear(3, 2), nn.LayerNorm(2, elementwise_affine=False)), "needs norms with weight and bias"),
        (nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2, track_running_stats=False)), "needs running statistics"),
        (nn.Sequential(nn.Linear(3, 2), nn.Softplus(beta=2)), "got Softplus"),
    ],
)
def test_from_torch_of_an_unknown_module_is_an_error(module: nn.Module, message: str) -> None:
    with pytest.raises(SpecError, match=message):
        ml.from_torch(module)


SHARED = nn.Linear(3, 3)
TIED = nn.Sequential(nn.Linear(3, 3), nn.ReLU(), nn.Linear(3, 3))
TIED[2].weight = TIED[0].weight


@pytest.mark.parametrize(
    ("module", "message"),
    [
        (
            nn.Sequential(SHARED, nn.ReLU(), SHARED),
            r"but those at 0 and 2 are shared \(Linear.* is used at both\): copy one of them, .*deepcopy",
        ),
        (TIED, r"those at 0 and 2 are shared \(Linear.* and Linear.* have the same weights\)"),
        (nn.Sequential(nn.Linear(3, 3), nn.Sequential(SHARED, SHARED)), "those at 1 and 2 are shared"),
        (
            nn.Sequential(nn.Linear(3, 2), nn.Softplus(threshold=5)),
            r"threshold of 20, because ours is exact for all z, got Softplus.*threshold=5.*: use nn.Softplus\(\)",
        ),
        (
            nn.Sequential(nn.LayerNorm((4, 5)), nn.Linear(5, 2)),
            r"norms over the last axis only, got LayerNorm\(\(4, 5\).*: flatten the rows first",
        ),
        (nn.Sequential(nn.RMSNorm((4, 5)), nn.Linear(5, 2)), r"norms over the last axis only, got RMSNorm\(\(4, 5\)"),
        (
            nn.Sequential(nn.Flatten(), nn.Linear(5, 2)),
            r"cannot describe Flatten.*do not flatten their inputs: remove it .* pass x.flatten\(1\)",
        ),
    ],
)
def test_from_torch_of_a_module_that_it_would_change_is_an_error(module: nn.Module, message: str) -> None:
    with pytest.raises(SpecError, match=message):
        ml.from_torch(module)


def test_a_module_without_parameters_can_be_used_several_times() -> None:
    relu = nn.ReLU()
    module = nn.Sequential(nn.Linear(3, 4), relu, nn.Linear(4, 4), relu, nn.Linear(4, 1))
    x = torch.randn(6, 3)
    torch.testing.assert_close(ml.from_torch(module)(x), module(x))


def test_frozen_parameters_stay_frozen_in_both_directions() -> None:
    module = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.PReLU(), nn.Linear(4, 1))
    module[0].requires_grad_(False)
    module[2].weight.requires_grad_(False)
    module[1].eval()
    model = ml.from_torch(module)
    frozen = {name for name, p in model.named_parameters() if not p.requires_grad}
    assert frozen == {"linear1.weight", "linear1.bias", "prelu1.alpha"}
    assert model.training
    assert not model.get_submodule("batchnorm1").training
    again = ml.to_torch(model)
    assert [p.requires_grad for p in again.parameters()] == [p.requires_grad for p in module.parameters()]
    assert [m.training for m in again.modules()] == [m.training for m in module.modules()]


def test_to_torch_needs_weights() -> None:
    with pytest.raises(SpecError, match=r"needs a model with its weights, got Spec\('4-1'\): make one with ml.build"):
        ml.to_torch(ml.linear(4))  # type: ignore[arg-type]


@pytest.mark.parametrize("text", ["2+cat(2, 3)-1", "2+cat(2, 12)-columns(d_category=3)-1"])
@pytest.mark.parametrize(("column", "code"), [(0, -1), (0, 3), (1, -1), (1, 13)])
def test_codes_out_of_range_are_errors(text: str, column: int, code: int) -> None:
    model = ml.build(text)
    n = model.spec.inputs.categories[column]
    codes = torch.ones(2, 3, 2, dtype=torch.int64)
    codes[1, 2, column] = code
    message = rf"category column {column} must hold .* from 0 \(missing or unknown\) to {n}, got {code} in row 5"
    with pytest.raises(DataError, match=message):
        model(torch.zeros(2, 3, 2), codes)
    with pytest.raises(DataError, match=r"codes must have one column per categorical column \(2\), got"):
        model(torch.zeros(2, 3, 2), codes[..., :1])


def test_codes_are_not_checked_while_a_graph_is_traced() -> None:
    model = ml.build("2+cat(2, 3)-1").eval()
    inputs = torch.zeros(4, 2), torch.tensor([[0, 0], [1, 3], [2, 1], [0, 2]])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the trace contains constants, and tracing is deprecated
        warnings.filterwarnings("error", message="Converting a tensor to a Python")
        traced = torch.jit.trace(model, inputs)
    torch.testing.assert_close(traced(*inputs), model(*inputs))
    exported = torch.export.export(model, inputs)
    torch.testing.assert_close(exported.module()(*inputs), model(*inputs))


def test_building_time_is_proportional_to_depth() -> None:
    """A search through all names for each layer would take quadratic time."""

    def seconds(depth: int) -> float:
        spec = ml.mlp(4, [4] * depth, 1)
        found: list[float] = []
        for _ in range(3):
            started = time.process_time()
            ml.build(spec)
            found.append(time.process_time() - started)
        return min(found)

    assert seconds(2000) < 8 * seconds(500)


def test_from_torch_checks_that_the_widths_fit() -> None:
    with pytest.raises(SpecError, match="linear2 takes 5 numbers, but the layer before it gives 4"):
        ml.from_torch(nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(5, 1)))


def test_building_does_not_change_the_global_random_state() -> None:
    torch.manual_seed(5)
    first = torch.rand(3)
    torch.manual_seed(5)
    ml.build("4-8-1", seed=3)
    assert torch.equal(torch.rand(3), first)


@pytest.mark.parametrize("text", ["3-4-1", "3-scale-1", "1-scale-1", "1-columns(plr)-1", "3+cat(2)-columns-1"])
def test_rows_of_a_wrong_width_are_errors(text: str) -> None:
    """Without the check, rows with one number would be broadcast to any width."""
    model = ml.build(text)
    codes = [torch.zeros(2, 1, dtype=torch.long)] * bool(model.spec.inputs.categories)
    with pytest.raises(DataError, match=r"x must have \d numbers? per row, .* got shape \(2, 5\)"):
        model(torch.zeros(2, 5), *codes)
