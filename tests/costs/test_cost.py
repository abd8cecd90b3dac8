"""Cost: exact counts of the worked example, and closed forms against torch for every case and random networks."""

from __future__ import annotations

import json
import tracemalloc
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings

import multilayer as ml
from multilayer.costs.verification import verify
from multilayer.errors import OptionError, SpecError
from multilayer.nn import losses
from multilayer.spec import Spec
from support.cases import ALL, Case
from support.strategies import batches, has_batch_norm, specs

WORKED = "784-256-128-10"
by_name = pytest.mark.parametrize("case", ALL, ids=lambda case: case.name)


def test_worked_example_forward() -> None:
    c = ml.cost(WORKED, batch=32, convention="textbook")
    parts = [(row.forward.matmul, row.forward.bias, row.forward.activation) for row in c.layers]
    assert parts == [(12_845_056, 8_192, 8_192), (2_097_152, 4_096, 4_096), (81_920, 320, 1_600)]
    assert [row.forward.total for row in c.layers] == [12_861_440, 2_105_344, 83_840]
    assert c.loss.forward == 640
    assert c.forward == 15_051_264


def test_worked_example_backward() -> None:
    c = ml.cost(WORKED, batch=32, convention="textbook")
    parts = [(r.backward.dW, r.backward.db, r.backward.dA, r.backward.activation) for r in c.layers]
    assert parts == [
        (12_845_056, 8_192, 12_845_056, 0),
        (2_097_152, 4_096, 2_097_152, 8_192),
        (81_920, 320, 81_920, 4_096),
    ]
    assert [row.backward.total for row in c.layers] == [25_698_304, 4_206_592, 168_256]
    assert c.backward == 30_073_152
    assert c.loss.backward == 640
    assert c.step == 45_124_416
    assert c.backward / c.forward == pytest.approx(2.0, abs=0.01)


def test_worked_example_memory_and_epoch() -> None:
    c = ml.cost(WORKED, batch=32, optimizer="adam", convention="textbook", rows=60_000)
    assert (c.memory.parameters, c.memory.gradients, c.memory.optimizer) == (940_584, 940_584, 1_881_168)
    assert c.memory.activations == 100_352 + 32_768 + 16_384 + 1_280
    assert c.memory.total == 3_913_120
    assert round(c.memory.total / 2**20, 2) == 3.73
    assert c.epoch is not None
    assert (c.epoch.rows, c.epoch.steps) == (60_000, 1_875)
    assert c.epoch.flops == 1_875 * 45_124_416
    share = c.layers[0].parameters / c.parameters
    assert share == pytest.approx(0.85, abs=0.005)


def test_the_actual_convention_lists_its_differences_from_the_textbook() -> None:
    actual, textbook = (ml.cost(WORKED, batch=32, convention=c) for c in ("actual", "textbook"))
    assert actual.layers[0].backward.dA == 0
    assert actual.layers[1].backward.activation == 32 * 256 * 2
    assert actual.layers[2].backward.activation == 32 * 128 * 2
    assert {item.what: item.flops for item in actual.left_out} == {
        "dA of the first layer": 12_845_056,
        "σ′ at its actual cost": -12_288,
    }
    assert actual.backward + sum(item.flops for item in actual.left_out) == textbook.backward


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(spec=specs(), batch=batches)
def test_the_differences_between_the_conventions_add_up(spec: Spec, batch: int) -> None:
    actual, textbook = (ml.cost(spec, batch=batch, convention=c) for c in ("actual", "textbook"))
    assert actual.backward + sum(item.flops for item in actual.left_out) == textbook.backward
    assert actual.forward == textbook.forward


def test_the_cost_of_a_neuron() -> None:
    for n in (1, 7, 100):
        c = ml.cost(ml.neuron(n, activation="sigmoid"), batch=1, loss="mse")
        assert c.parameters == n + 1
        assert c.layers[0].forward.total == 2 * n + 1 + 4


def test_backward_is_not_twice_forward_for_a_small_net() -> None:
    c = ml.cost("784-256-10", batch=32)
    assert c.backward / c.forward == pytest.approx(1.013, abs=0.01)


def test_training_takes_about_six_flops_per_parameter_and_row() -> None:
    c = ml.cost("1000-1000-1000-1000", batch=64, convention="textbook")
    assert c.step / (64 * c.parameters) == pytest.approx(6, rel=0.01)


@by_name
def test_closed_forms_equal_the_counts_of_torch(case: Case) -> None:
    for batch in (1, 2, 7):
        if batch == 1 and has_batch_norm(case.spec.layers):
            continue
        for check in verify(case.spec, batch=batch).checks:
            assert check.closed_form == check.counted, f"{check.what} at batch {batch}"


@pytest.mark.parametrize(
    "loss", [*losses.LOSSES, "cross_entropy(0.1)", "binary_cross_entropy(0.1)", "huber(2)", "quantile(0.1, 0.5, 0.9)"]
)
def test_closed_forms_for_every_loss(loss: str) -> None:
    for text in ("5-4:tanh-3", "5-3", "5-4-6:sigmoid"):
        for check in verify(text, batch=6, loss=loss).checks:
            assert check.closed_form == check.counted, check.what


@settings(max_examples=1000, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(spec=specs(), batch=batches)
def test_closed_forms_on_random_networks(spec: Spec, batch: int) -> None:
    assume(batch > 1 or not has_batch_norm(spec.layers))
    for check in verify(spec, batch=batch).checks:
        assert check.closed_form == check.counted, f"{check.what}: {spec}"


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_bytes_depend_on_the_dtype(dtype: str) -> None:
    assert verify("5-4-3", dtype=dtype).ok
    size = {"float64": 8, "float32": 4}[dtype]
    assert ml.cost("5-4-3", dtype=dtype).memory.parameters == size * 39


def test_the_cost_of_optimizers() -> None:
    slots = {"sgd": 0, "momentum": 1, "nesterov": 1, "adam": 2, "adamw": 2}
    for name, count in slots.items():
        c = ml.cost("5-4-3", optimizer=name)
        assert c.memory.optimizer == count * c.memory.parameters
        assert c.optimizer_flops > 0
    weights, parameters = 5 * 4 + 4 * 3, 39
    adam, adamw = (ml.cost("5-4-3", optimizer=o).optimizer_flops for o in ("adam", "adamw"))
    assert adamw - adam == 2 * weights
    assert ml.cost("5-4-3", l2=True).optimizer_flops - adam == 2 * weights
    assert ml.cost("5-4-3", clip=True).optimizer_flops - adam == 3 * parameters
    averaged = ml.cost("5-4-3", average=True)
    assert averaged.optimizer_flops - adam == 3 * parameters
    assert averaged.memory.total - ml.cost("5-4-3").memory.total == 4 * parameters


def test_a_partial_last_batch_is_counted_with_its_rows() -> None:
    c = ml.cost(WORKED, batch=32, rows=1_000)
    rest = ml.cost(WORKED, batch=1_000 % 32).step
    assert c.epoch is not None
    assert c.epoch.steps == 32
    assert c.epoch.flops == 31 * c.step + rest
    few = ml.cost(WORKED, batch=32, rows=5)
    assert few.epoch is not None
    assert (few.epoch.steps, few.epoch.flops) == (1, ml.cost(WORKED, batch=5).step)


def test_1000_rows_in_batches_of_20_are_50_steps_per_epoch() -> None:
    epoch = ml.cost("4-1", batch=20, rows=1_000).epoch
    assert epoch is not None
    assert 5 * epoch.steps == 250


def test_the_output_activation_is_counted_once() -> None:
    raw, explicit = ml.cost("5-4-3"), ml.cost("5-4-3:softmax")
    assert raw.layers[-1].forward == explicit.layers[-1].forward


def test_embeddings_have_no_forward_flops() -> None:
    c = ml.cost("cat(50, 60)-columns-1", batch=8)
    assert c.layers[0].forward.total == 0
    assert c.layers[0].backward.other == 8 * 16
    assert c.layers[0].parameters == (51 + 61) * 8


def test_shared_parameters_count_once_and_their_flops_per_use() -> None:
    c = ml.cost("4-8:prelu(per=network)-8:prelu(per=network)-1")
    assert [row.parameters for row in c.layers] == [41, 72, 9]
    assert c.layers[0].forward.activation == c.layers[1].forward.activation > 0


def test_activations_belong_to_the_row_of_their_layer() -> None:
    rows = ml.cost("4-8:layernorm:gelu:dropout(0.1)-[8:tanh]-1").layers
    assert [row.name for row in rows] == [
        "linear1",
        "layernorm1",
        "gelu1",
        "dropout1",
        "residual1.linear1",
        "residual1",
        "linear2",
    ]
    assert rows[4].what == "8→8 tanh"


@by_name
def test_all_counts_are_integers_and_totals_are_sums(case: Case) -> None:
    c = ml.cost(case.spec, batch=3, rows=10)
    data = json.loads(c.to_json())

    def numbers(value: object) -> None:
        assert not isinstance(value, float), value
        for inner in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
            numbers(inner)

    numbers(data)
    for row in data["layers"]:
        for part in ("forward", "backward"):
            values = dict(row[part])
            assert values.pop("total") == sum(values.values())
    assert data["forward"] == sum(row["forward"]["total"] for row in data["layers"]) + data["loss"]["forward"]
    assert data["backward"] == sum(row["backward"]["total"] for row in data["layers"])
    assert data["step"] == data["forward"] + data["backward"]
    assert data["parameters"] == sum(row["parameters"] for row in data["layers"]) == case.spec.n_parameters
    memory = dict(data["memory"])
    assert memory.pop("total") == sum(v for k, v in memory.items() if k != "temporary")


def test_activation_slopes_count_with_the_next_linear_layer() -> None:
    rows = {
        row.name: row.backward.activation for row in ml.cost("8-8:relu:dropout(0.1)-4:layernorm:gelu-2", batch=1).layers
    }
    relu, gelu = 8 * 2, 4 * 11
    assert rows == {"linear1": 0, "dropout1": 0, "linear2": relu, "layernorm1": 0, "gelu1": gelu, "linear3": 0}
    assert ml.cost("8-4:relu:dropout(0.1)", batch=1).layers[0].backward.activation == 4 * 2


def test_intermediate_tensors_of_a_layer_count_as_temporary_memory() -> None:
    assert ml.cost("4-kan(3)", batch=1).memory.temporary == 4 * (4 + 4 * 8)
    assert ml.cost("4-maxout(3, 5)", batch=1).memory.temporary == 4 * (4 + 15)
    assert ml.cost("4-swiglu(3)", batch=1).memory.temporary == 4 * (4 + 6)
    assert ml.cost("4-columns(plr, n=50, d_numeric=2)-1", batch=1).memory.temporary == 4 * (4 + 4 * 100)


def test_formulas_are_shown_next_to_the_counts() -> None:
    first = ml.cost(WORKED, batch=32).layers[0].forward.matmul
    assert (first.formula, first.numbers) == ("2·B·I·O", "2·32·784·256")  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"batch": 0}, "batch must be a whole number of at least 1, got 0"),
        ({"batch": 2.5}, "batch must be a whole number of at least 1, got 2.5"),
        ({"rows": -1}, "rows must be a whole number of at least 1, got -1"),
        ({"optimizer": "adan"}, "unknown optimizer 'adan': did you mean 'adam'"),
        ({"loss": "crossentropy"}, "did you mean 'cross_entropy'"),
        ({"engine": "fuse"}, "did you mean 'fused'"),
        ({"dtype": "float23"}, "did you mean 'float32'"),
        ({"convention": "text"}, "did you mean 'textbook'"),
        ({"batch": 10**401}, r"batch must be at most 2\^63"),
        (
            {"loss": "quantile(0.1, 0.5, 0.9)"},
            "needs 3 outputs for each target, got a network of 2: end it with a multi",
        ),
    ],
)
def test_invalid_options_are_refused(options: dict[str, object], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        ml.cost("4-2", **options)  # type: ignore[arg-type]


def test_numpy_integers_and_models_are_accepted() -> None:
    plain = ml.cost("4-3-1", batch=3, rows=10)
    assert ml.cost("4-3-1", batch=np.int64(3), rows=np.int64(10)).to_json() == plain.to_json()
    assert ml.cost(ml.build("4-3-1"), batch=3, rows=10) == plain


def test_invalid_networks_are_refused() -> None:
    with pytest.raises(SpecError, match=r"a network must be a Spec, a string such as '784-256-10', .* got 784"):
        ml.cost(784)  # type: ignore[arg-type]
    with pytest.raises(SpecError, match=r"of this package, got a dict$"):
        ml.cost({"0.weight": np.zeros((30, 30))})  # type: ignore[arg-type]
    with pytest.raises(OptionError, match="loss must be a string such as 'cross_entropy', got 5"):
        ml.cost("4-1", loss=5)  # type: ignore[arg-type]


def test_verify_refuses_mismatched_losses_and_too_large_networks() -> None:
    with pytest.raises(OptionError, match="needs 2 outputs for each target, got a network of 3"):
        verify("4-3", loss="quantile(0.1, 0.9)")
    with pytest.raises(OptionError, match=r"needs 819,563\.9 GiB of memory, and this machine has"):
        verify("4-3", batch=10**13)
    assert verify("4-4", loss="quantile(0.1, 0.9)", batch=3).ok


def test_networks_and_batches_too_large_for_memory_are_refused() -> None:
    with pytest.raises(OptionError, match=r"a network of 1,000,000,000,000 parameters with their initial values "):
        ml.build("1000000-linear(1000000, bias=no)")
    with pytest.raises(OptionError, match=r"a network of 1,000,000,000,000 parameters in float64 needs 7,450\.6 GiB"):
        ml.initialise(Spec.parse("1000000-linear(1000000, bias=no)"))
    with pytest.raises(OptionError, match=r"a pass of 512 rows through this network in float64 needs "):
        ml.variance("1000000-1000000")
    with pytest.raises(OptionError, match=r"a pass of 512 rows through this network in float64 needs "):
        ml.variance("4-kan(1, grid=10000000)")  # its intermediate tensors are too large


def test_bin_edges_too_large_for_memory_are_refused() -> None:
    spec = Spec.parse("1000-columns(piecewise, n=2147483648, d_numeric=1)-1")
    refusals = (ml.build, ml.initialise, ml.variance, verify)
    tracemalloc.start()
    try:
        assert ml.cost(spec).memory.buffers == 4 * 1000 * (2**31 + 1)
        for refused in refusals:
            with pytest.raises(OptionError, match=r"needs [\d,.]+ GiB of memory, and this machine has"):
                refused(spec)
        assert tracemalloc.get_traced_memory()[1] < 10**7  # the edges of one feature take 16 GiB
    finally:
        tracemalloc.stop()


def test_initial_bin_edges_are_evenly_spaced() -> None:
    values = ml.initialise(Spec.parse("2-columns(piecewise, n=3, d_numeric=1)-1"))
    assert values["columns1.edges"].tolist() == [[-3, -1, 1, 3]] * 2


@pytest.mark.parametrize("text", ["8-(8:gelu)*500-1", "8-[layernorm-16-8]*200-1", "8-(8:prelu(per=network))*100-1"])
def test_the_cost_of_repeated_layers_is_computed_once(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    spec = Spec.parse(text)
    calls: list[object] = []
    for kind in {type(entry.layer) for entry in spec.entries}:

        def counted(self, d, batch, *, input_gradient=True, real=kind.cost):  # type: ignore[no-untyped-def]
            calls.append(self)
            return real(self, d, batch, input_gradient=input_gradient)

        monkeypatch.setattr(kind, "cost", counted)
    account = ml.cost(spec)
    assert len(calls) < 40  # distinct layers, with and without an input gradient, for both conventions
    assert sum(row.parameters for row in account.layers) == account.parameters


def test_cost_of_a_wide_network_takes_no_memory() -> None:
    c = ml.cost("1000000-2000000-1000000", batch=1)
    assert c.parameters == 2 * 10**6 * (10**6 + 1) + 10**6 * (2 * 10**6 + 1)


def test_a_cost_is_immutable_and_can_be_pickled() -> None:
    c = ml.cost(WORKED)
    assert replace(c, batch=1).batch == 1
