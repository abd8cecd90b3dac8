"""Spec: round trips through text and JSON, derived properties, and the position in error messages."""

from __future__ import annotations

import json

import pytest
from hypothesis import HealthCheck, given, settings

import multilayer as ml
from multilayer.errors import SpecError
from multilayer.nn.layers import Activation, Columns, Dropout, GroupNorm, Inputs, LayerNorm, Linear, Residual, Scale
from multilayer.spec import Spec
from multilayer.spec.spec import MAX_JSON
from support.cases import ALL, Case
from support.strategies import specs

by_name = pytest.mark.parametrize("case", ALL, ids=lambda case: case.name)


@by_name
def test_text_and_json_round_trip(case: Case) -> None:
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
        ("4-8:batchnorm-1", ml.mlp(4, [8], 1, norm="batchnorm")),
        ("4-8:rmsnorm:dropout(0.1)-1", ml.mlp(4, [8], 1, norm="rmsnorm", dropout=0.1)),
        (
            "4-8:groupnorm(2):layernorm-1",
            Spec(4, [Linear(8), GroupNorm(2), LayerNorm(), Activation("relu"), Linear(1)]),
        ),
        ("4-8:relu:layernorm-1", Spec(4, [Linear(8), Activation("relu"), LayerNorm(), Linear(1)])),
        ("4-8:none:layernorm-1", Spec(4, [Linear(8), LayerNorm(), Linear(1)])),
        (
            "4-8:dropout(0.1):layernorm-1",
            Spec(4, [Linear(8), Activation("relu"), Dropout(0.1), LayerNorm(), Linear(1)]),
        ),
        ("4-8:scale:layernorm-1", Spec(4, [Linear(8), Activation("relu"), Scale(), LayerNorm(), Linear(1)])),
        ("4-layernorm-8-1", Spec(4, [LayerNorm(), Linear(8), Activation("relu"), Linear(1)])),
        ("20-384:none-[layernorm-1536:gelu:dropout(0.1)-384]*6-10", ml.residual_mlp(20, 10)),
        ("768-3072:gelu-768", ml.feed_forward_block(768)),
        ("3+cat(2, 5)-4-1", ml.mlp(Inputs(3, (2, 5)), [4], 1)),
        ("cat(2)-1", Spec(Inputs(0, (2,)), [Columns(), Linear(1)])),
        ("cat(2)-none", Spec(Inputs(0, (2,)), [Columns()])),
        ("3:linear(width=1, bias=no,)", Spec(3, [Linear(1, bias=False)])),
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
        (
            "3-4:combination(relu, tanh+sin, per=unit)-1",
            Spec(3, [Linear(4), Activation("combination", {"parts": "relu+tanh+sin"}, per="unit"), Linear(1)]),
        ),
        ("3-linear(4, bias=no, scale=-1e-3):none-1", Spec(3, [Linear(4, bias=False, scale=-1e-3), Linear(1)])),
        (
            "3-columns(piecewise, categories=one_hot)-1",
            Spec(3, [Columns("piecewise", categories="one-hot"), Linear(1)]),
        ),
    ],
)
def test_the_layers_of_a_text(text: str, spec: Spec) -> None:
    assert Spec.parse(text) == spec


def test_the_default_activation_can_be_chosen() -> None:
    assert Spec.parse("4-8-8-1", activation="gelu") == ml.mlp(4, [8, 8], 1, activation="gelu")
    assert Spec.parse("4-8:tanh-8-1", activation="none") == ml.mlp(4, [8, 8], 1, activation=["tanh", "none"])


def test_str_returns_the_shortest_text() -> None:
    assert str(ml.mlp(784, [256, 128], 10)) == "784-256-128-10"
    assert str(ml.residual_mlp(20, 10)) == "20-384:none-[layernorm-1536:gelu:dropout(0.1)-384]*6-10"
    assert repr(ml.linear(3)) == "Spec('3-1')"
    assert str(ml.mlp(4, [8], 1, norm="batchnorm", dropout=0.1)) == "4-8:batchnorm:dropout(0.1)-1"


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
        ("784-256-10é", "cannot contain the character 'é'", 10),
        ("784-٣-10", "cannot contain the character '٣'", 4),
        ("784-dropout-10", r"dropout needs p: dropout\(0.1\)", 4),
        ("784-dropout(2)-10", "dropout must be at least 0 and below 1, got 2", 4),
        ("784-dropout(x)-10", "p must be a number, got 'x'", 4),
        ("784-linear(8, bia=no)-10", "unknown option of linear 'bia': did you mean 'bias'", 14),
        ("784-linear(8, bias=3)-10", "bias must be true or false, got 3", 4),
        ("784-linear(8, d_out=9)-10", "d_out of linear is given twice", 14),
        ("784-linear(8, width=9)-10", "d_out of linear is given twice", 14),
        ("784-linear(8, 9)-10", "linear takes at most 1 positional argument; name the rest", 14),
        ("784-linear(bias=no, 8)-10", "positional arguments come before named ones", 20),
        ("784-layernorm(3)-10", "layernorm takes no positional arguments; name the rest", 14),
        ("784-linear(4,scale=relu+", "a name expected here, got the end of the text", 24),
        ("784-linear(8,scale=tangent(5))-10", "tangent takes no arguments here", 27),
        ("784-linear(8,bias=no(5))-10", "no takes no arguments here", 21),
        ("784-columns(plr(3))-10", "plr takes no arguments here", 16),
        ("784-scale(3)-10", "scale takes no arguments", 10),
        ("784-8:relu(3)-10", "relu takes no arguments", 11),
        ("784-8:relu(per=unit)-10", "relu takes no arguments", 11),
        ("784-8:leaky_relu(alfa=3)-10", "did you mean 'alpha'", 17),
        ("784-8:leaky_relu(0.2,0.3)-10", "leaky_relu takes at most 1 positional argument\n", 21),
        ("784-8:leaky_relu(0.2,alpha=0.3)-10", "alpha of leaky_relu is given twice", 21),
        ("784-8:leaky_relu(alpha=0.2,alpha=0.3)-10", "alpha of leaky_relu is given twice", 27),
        ("784-8:prelu(per=unit,per=layer)-10", "per of prelu is given twice", 21),
        ("784-8:combination(relu+", "a name expected here, got the end of the text", 23),
        ("784-8:combination(relu+3)", "a name expected here, got '3'", 23),
        ("784-8:combination(relu(3)+tanh)-10", "relu takes no arguments here", 23),
        ("784-8:combination(relu+tanh(3))-10", "tanh takes no arguments here", 28),
        ("784-8:combination(relu(3), tanh)-10", "relu takes no arguments here", 23),
        ("784-8:combination(relu, tanh, 3)-10", "combination takes at most 1 positional argument; name the rest", 30),
        ("784-8:generalised_relu(gate=tanh(9))-10", "tanh takes no arguments here", 33),
        ("784-8:generalised_relu(tanh, relu)-10", "generalised_relu takes at most 1 positional argument", 29),
        ("784-8:blend-10", r"blend takes one activation: blend\(selu\)", 6),
        ("784-8:blend(x=selu)-10", r"blend takes one activation: blend\(selu\)", 6),
        ("784-8:blend(leaky_relu(0.2,9))-10", "leaky_relu takes at most 1 positional argument", 27),
        ("784-[none", "']' expected here, got the end of the text", 9),
        ("784-[none]-10", "a residual block must hold at least one layer, got none", 4),
        ("784-none", "at least one layer after its inputs, got 'none' alone", 4),
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
def test_errors_point_at_their_position(text: str, message: str, column: int | None) -> None:
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
        (
            "4-columns(plr, d_numeric=2147483648)-1",
            r"layers\[0\] \(columns\): width must be at most 2\^31, got 8589934592",
        ),
        ("7-4-columns-1", r"layers\[2\]: columns must be the first layer"),
        ("7-[columns-7]-1", r"layers\[0\].layers\[0\]: columns must be the first layer"),
    ],
)
def test_mismatched_layers_are_reported_with_their_position(text: str, message: str) -> None:
    with pytest.raises(SpecError, match=message):
        Spec.parse(text)


def test_the_length_of_a_text_is_limited() -> None:
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
        ('{"format": "multilayer.spec", "format": "x"}', "the key 'format' occurs twice"),
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
        *(
            (
                changed(layers=[layer | {name: 10**400}]),
                f"{name} must be a number that fits a float, got a whole number",
            )
            for name, layer in {
                "scale": {"kind": "linear", "d_out": 8},
                "eps": {"kind": "layernorm"},
                "bound": {"kind": "kan", "d_out": 8},
                "sigma": {"kind": "columns", "numeric": "plr"},
            }.items()
        ),
        (changed(layers=[{"kind": "batchnorm", "momentum": 10**400}]), "momentum must be a number that fits a float"),
        (changed(layers=[{"kind": "columns", "max_one_hot": 10**400}]), r"max_one_hot .* at most 2\^31"),
        (changed(inputs={"numeric": "4"}), "inputs must be a whole number of at least 0, got '4'"),
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
def test_invalid_json_is_reported_with_the_key(text: str, message: str) -> None:
    with pytest.raises(SpecError, match=message):
        Spec.from_json(text)


def test_the_length_of_json_is_limited() -> None:
    with pytest.raises(SpecError, match="at most 4,000,000 characters"):
        Spec.from_json(" " * (MAX_JSON + 1))


@pytest.mark.parametrize(
    "layer",
    [
        {"kind": "linear", "d_out": 8, "scale": 10**30},
        {"kind": "linear", "d_out": 8, "scale": -(10**17) - 1},
        *({"kind": kind, "eps": 10**30} for kind in ("batchnorm", "layernorm", "rmsnorm")),
        {"kind": "groupnorm", "groups": 2, "eps": 10**30},
        {"kind": "batchnorm", "momentum": 1},
        {"kind": "columns", "numeric": "plr", "sigma": 10**30},
        {"kind": "kan", "d_out": 8, "bound": 10**30},
        {"kind": "dropout", "p": 0},
    ],
    ids=lambda layer: "-".join(map(str, layer.values())),
)
def test_integers_for_float_options_round_trip(layer: dict[str, object]) -> None:
    spec = Spec.from_json(changed(layers=[layer]))
    assert Spec.parse(str(spec)) == spec
    assert Spec.parse(str(spec)).to_json() == spec.to_json()
    assert Spec.from_json(spec.to_json()).to_json() == spec.to_json()


def test_a_spec_is_immutable_and_hashable() -> None:
    spec = ml.mlp(4, [8], 2)
    assert spec in {spec}
    with pytest.raises(AttributeError):
        spec.layers = ()  # type: ignore[misc]
    with pytest.raises(SpecError, match=r"layers\[0\] must be a layer, got 3"):
        Spec(4, [3])  # type: ignore[list-item]


def test_tensor_names() -> None:
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


def test_shared_parameters_are_counted_once() -> None:
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
