"""Spec: round trips through text and JSON, derived facts, and errors that point at the place."""

from __future__ import annotations

import json

import pytest
from hypothesis import HealthCheck, given, settings

import multilayer as ml
from cases import ALL, Case
from multilayer.errors import SpecError
from multilayer.layers import Activation, Columns, Dropout, Inputs, LayerNorm, Linear, Residual
from multilayer.spec import MAX_JSON, Spec
from strategies import specs

by_name = pytest.mark.parametrize("case", ALL, ids=lambda case: case.name)


@by_name
def test_text_and_json_read_back_the_same(case: Case) -> None:
    spec = case.spec
    assert Spec.parse(str(spec)) == spec
    assert Spec.from_json(spec.to_json()) == spec
    assert hash(Spec.parse(str(spec))) == hash(spec)
    assert str(Spec.parse(str(spec))) == str(spec)


@settings(max_examples=1000, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(spec=specs())
def test_random_networks_round_trip(spec: Spec) -> None:
    assert Spec.parse(str(spec)) == spec, str(spec)
    assert Spec.from_json(spec.to_json()) == spec


@pytest.mark.parametrize(
    ("text", "spec"),
    [
        ("784-256-128-10", ml.mlp(784, [256, 128], 10)),
        ("784-10", ml.linear(784, 10)),
        ("7-1:step", ml.neuron(7)),
        ("2 - 8 : tanh - 1", ml.mlp(2, [8], 1, activation="tanh")),
        ("100-64-32-1:sigmoid", ml.mlp(100, [64, 32], 1, output="sigmoid")),
        ("4-8:none-8:none-1", ml.mlp(4, [8, 8], 1, activation="none")),
        ("4-8*3-1", ml.mlp(4, [8, 8, 8], 1)),
        ("4-(8:tanh)*2-1", ml.mlp(4, [8, 8], 1, activation="tanh")),
        ("4-(8-3)*2-1", ml.mlp(4, [8, 3, 8, 3], 1)),
        ("4-8:layernorm:gelu:dropout(0.1)-1", ml.mlp(4, [8], 1, norm="layernorm", activation="gelu", dropout=0.1)),
        ("4-8-dropout(0.1)-1", ml.mlp(4, [8], 1, dropout=0.1)),
        ("4-8-layernorm-gelu-1", ml.mlp(4, [8], 1, norm="layernorm", activation="gelu")),
        ("20-384:none-[layernorm-1536:gelu:dropout(0.1)-384]*6-10", ml.residual_mlp(20, 10)),
        ("768-3072:gelu-768", ml.feed_forward_block(768)),
        ("3+cat(2, 5)-4-1", ml.mlp(Inputs(3, (2, 5)), [4], 1)),
        ("cat(2)-1", Spec(Inputs(0, (2,)), [Columns(), Linear(1)])),
        ("3-leaky-1", Spec(3, [Activation("leaky_relu"), Linear(1)])),
        (
            "3-4:blend(leaky_relu(0.2))-1",
            Spec(3, [Linear(4), Activation("leaky_relu", {"alpha": 0.2}, blend=True), Linear(1)]),
        ),
        ("3-4:sigmoid(a=2)-1", Spec(3, [Linear(4), Activation("sigmoid", {"a": 2.0}), Linear(1)])),
        (
            "3-4:combination(relu, tanh)-1",
            Spec(3, [Linear(4), Activation("combination", {"parts": "relu+tanh"}), Linear(1)]),
        ),
        ("3-linear(4, bias=no, scale=-1e-3):none-1", Spec(3, [Linear(4, bias=False, scale=-1e-3), Linear(1)])),
        (
            "3-columns(piecewise, categories=one_hot)-1",
            Spec(3, [Columns("piecewise", categories="one-hot"), Linear(1)]),
        ),
    ],
)
def test_text_means(text: str, spec: Spec) -> None:
    assert Spec.parse(text) == spec


def test_the_implied_activation_can_be_chosen() -> None:
    assert Spec.parse("4-8-8-1", activation="gelu") == ml.mlp(4, [8, 8], 1, activation="gelu")
    assert Spec.parse("4-8:tanh-8-1", activation="none") == ml.mlp(4, [8, 8], 1, activation=["tanh", "none"])


def test_shortest_text() -> None:
    assert str(ml.mlp(784, [256, 128], 10)) == "784-256-128-10"
    assert str(ml.residual_mlp(20, 10)) == "20-384:none-[layernorm-1536:gelu:dropout(0.1)-384]*6-10"
    assert repr(ml.linear(3)) == "Spec('3-1')"


@pytest.mark.parametrize(
    ("text", "message", "column"),
    [
        ("784--10", "a width, a layer or a bracket expected here, got '-'", 4),
        ("784-0-10", "a width must be a whole number of at least 1, got 0", 4),
        ("784-2.5-10", "a width must be a whole number of at least 1, got 2.5", 4),
        ("784", "at least one layer after its inputs, got the inputs alone: try 784-10", 3),
        ("784-", "expected here, got the end of the text", 4),
        ("", "must begin with its inputs, got an empty text: try 784-256-128-10", 0),
        ("784-256:gelo-10", "unknown layer or activation 'gelo': did you mean 'gelu'", 8),
        ("784-layrnorm-10", "did you mean 'layernorm'", 4),
        ("784-256 10", "'-' or ':' expected between layers, got '10'", 8),
        ("784-[256-784", "']' expected here, got the end of the text", 12),
        ("784-256-10]", "'-' or ':' expected between layers, got ']'", 10),
        ("784-256-10é", "cannot hold the character 'é'", 10),
        ("784-٣-10", "cannot hold the character '٣'", 4),
        ("784-dropout-10", r"dropout needs p: dropout\(0.1\)", 4),
        ("784-dropout(2)-10", "dropout must be at least 0 and below 1, got 2", 4),
        ("784-dropout(x)-10", "p must be a number, got 'x'", 4),
        ("784-linear(8, bia=no)-10", "unknown option of linear 'bia': did you mean 'bias'", 4),
        ("784-linear(8, bias=3)-10", "bias must be true or false, got 3", 4),
        ("784-linear(8, d_out=9)-10", "d_out of linear is given twice", 4),
        ("784-scale(3)-10", "scale takes at most 0 plain arguments", 4),
        ("784-8:relu(3)-10", "relu takes no constants, got 3", 6),
        ("784-8:leaky_relu(alfa=3)-10", "did you mean 'alpha'", 6),
        ("784-8:blend-10", r"blend takes one activation: blend\(selu\)", 6),
        ("784-8*0-10", "a repetition must be a whole number of at least 1, got 0", 6),
        ("784-8*100001-10", "at most 100,000 layers", 4),
        ("784-" + "[" * 60, "brackets nest at most 50 deep", 54),
        ("784-8:" + "blend(" * 60, "brackets nest at most 50 deep", None),
        ("3+cat()-10", "a number of categories must be a whole number of at least 1, got '\\)'", 6),
        ("3+4-10", r"cat\(...\) expected here, got '4'", 2),
        ("0-10", "the number of inputs must be a whole number of at least 1, got 0", 0),
        ("99999999999-10", "inputs must be at most 2\\^31, got 99999999999", 0),
        ("3-" + "9" * 5000, "a width must be at most 2\\^31, got a number of 5000 digits", 2),
        ("3-99999999999", "width must be at most 2\\^31, got 99999999999", 2),
    ],
)
def test_errors_point_at_the_place(text: str, message: str, column: int | None) -> None:
    with pytest.raises(SpecError, match=message) as raised:
        Spec.parse(text)
    lines = str(raised.value).split("\n")
    assert lines[-1].strip() == "^"
    if column is not None and column < 60:
        assert lines[-1].index("^") - 2 == column


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("7-[3-4]-1", r"layers\[0\] \(residual\): a residual block must return the width it is given: 7 in, 4 out"),
        ("7-4-[4-[3:relu-5]-4]-1", r"layers\[2\].layers\[2\] \(residual\): .* 4 in, 5 out"),
        ("7-groupnorm(2)-1", r"layers\[0\] \(groupnorm\): .* got width 7 and groups=2"),
        ("7-4-columns-1", r"layers\[2\]: columns must be the first layer"),
        ("7-[columns-7]-1", r"layers\[0\].layers\[0\]: columns must be the first layer"),
    ],
)
def test_what_does_not_fit_together_names_the_layer(text: str, message: str) -> None:
    with pytest.raises(SpecError, match=message):
        Spec.parse(text)


def test_a_text_may_not_be_endless() -> None:
    with pytest.raises(SpecError, match="at most 100,000 characters, got 300,001"):
        Spec.parse("1-" * 150_000 + "1")


def changed(**changes: object) -> str:
    data = ml.mlp(4, [8], 2, dropout=0.1).to_dict()
    return json.dumps(data | changes)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "not JSON: Expecting value at line 1, column 1"),
        ("[1, 2]", r"the spec must be an object, got \[1, 2\]"),
        ("[" * 100_000, "nested too deeply"),
        ('{"format": "multilayer.spec", "format": "x"}', "the key 'format' stands twice"),
        (changed(version=2), "version must be 1, got 2: update multilayer to read it"),
        (changed(version="1"), "version must be 1, got '1': no such version exists"),
        (changed(version=True), "version must be 1, got True"),
        (changed(format="onnx"), "format must be 'multilayer.spec', got 'onnx'"),
        (changed(layer=[]), "the spec: unknown key 'layer': did you mean 'layers'"),
        (changed(layers={}), "layers must be a list, got {}"),
        (changed(layers=[]), "at least one layer"),
        (changed(layers=[3]), r"layers\[0\] must be an object, got 3"),
        (
            changed(layers=[{"kind": "liner"}]),
            r"layers\[0\].kind: unknown kind of layer 'liner': did you mean 'linear'",
        ),
        (changed(layers=[{"kind": "linear"}]), r"layers\[0\] needs the key 'd_out', got kind"),
        (changed(layers=[{"kind": "linear", "d_out": "8"}]), r"layers\[0\]: d_out must be a whole number, got '8'"),
        (changed(layers=[{"kind": "linear", "d_out": 8, "bias": 1}]), "bias must be true or false, got 1"),
        (changed(layers=[{"kind": "linear", "d_out": -8}]), "width must be a whole number of at least 1, got -8"),
        (changed(layers=[{"kind": "linear", "d_out": 8, "biass": True}]), "unknown key 'biass': did you mean 'bias'"),
        (
            changed(layers=[{"kind": "residual", "layers": [{"kind": "dropout", "p": 7}]}]),
            r"layers\[0\].layers\[0\]: dropout",
        ),
        ('{"format": ' + "9" * 5000 + "}", "not a spec: Exceeds the limit"),
        (changed(inputs={"numeric": "4"}), "inputs must be a whole number of at least 1, got '4'"),
        (
            changed(inputs={"numeric": 4, "categories": [2.5]}),
            "categories must be a whole number of at least 1, got 2.5",
        ),
        (changed(inputs={"numeric": 4, "category": []}), "unknown key 'category': did you mean 'categories'"),
        (
            changed(inputs={"numeric": 4, "categories": [3]}),
            "inputs with categories need a columns layer first, got linear",
        ),
    ],
)
def test_bad_json_names_the_key(text: str, message: str) -> None:
    with pytest.raises(SpecError, match=message):
        Spec.from_json(text)


def test_json_may_not_be_endless() -> None:
    with pytest.raises(SpecError, match="at most 4,000,000 characters"):
        Spec.from_json(" " * (MAX_JSON + 1))


def test_a_spec_is_plain_immutable_data() -> None:
    spec = ml.mlp(4, [8], 2)
    assert spec in {spec}
    with pytest.raises(AttributeError):
        spec.layers = ()  # type: ignore[misc]
    with pytest.raises(SpecError, match=r"layers\[0\] must be a layer, got 3"):
        Spec(4, [3])  # type: ignore[list-item]


def test_names_of_tensors_are_stable_and_readable() -> None:
    spec = Spec(4, [Linear(6), LayerNorm(), Residual((Linear(6), Activation("prelu"))), Dropout(0.1), Linear(2)])
    assert list(spec.parameters) == [
        "linear1.weight",
        "linear1.bias",
        "layernorm1.weight",
        "layernorm1.bias",
        "residual1.linear1.weight",
        "residual1.linear1.bias",
        "residual1.prelu1.alpha",
        "linear2.weight",
        "linear2.bias",
    ]


def test_shared_numbers_are_counted_once() -> None:
    apart, shared = Spec.parse("4-8:prelu-8:prelu-1"), Spec.parse("4-8:prelu(per=network)-8:prelu(per=network)-1")
    assert shared.n_parameters == apart.n_parameters - 1
    assert "shared.prelu1.alpha" in shared.parameters
    two = Spec.parse("4-8:apl(n=1, per=network)-8:apl(n=3, per=network)-1")
    assert [name for name in two.parameters if name.startswith("shared")] == [
        "shared.apl1.a",
        "shared.apl1.b",
        "shared.apl2.a",
        "shared.apl2.b",
    ]
