"""A network with a step output trains by the perceptron rule; two outputs are accepted for two classes."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import multilayer as ml
from multilayer.cli.main import app
from multilayer.errors import MultilayerError, SpecError
from multilayer.pages.report.report import report
from multilayer.runs.config import Config
from multilayer.training.setup import Setup
from support.training_rows import prepare

CORNERS = [[0, 0], [0, 1], [1, 0], [1, 1]]
AND, OR, XOR = [0, 0, 0, 1], [0, 1, 1, 1], [0, 1, 1, 0]


def separable(rows: int = 300) -> tuple[Any, Any]:
    """Return rows of seven numbers and two linearly separable classes, with a margin."""
    generator = np.random.default_rng(0)
    x, normal = generator.normal(size=(rows, 7)), generator.normal(size=7)
    x = x[np.abs(x @ normal) > 0.3]
    return x, (x @ normal > 0).astype(int)


@pytest.mark.parametrize("engine", ["fused", "numpy", "torch"])
def test_a_perceptron_learns_and_and_or_but_not_xor(engine: str) -> None:
    for y, learned in ((AND, True), (OR, True), (XOR, False)):
        run = ml.fit("2-1:step", (CORNERS, y), engine=engine, epochs=100, quiet=True)
        assert run.model is not None
        assert (run.model.predict(CORNERS).tolist() == y) == learned
        assert (run.end.reason == "every training row is classified correctly") == learned
        assert set(run.model.predict_proba(CORNERS).ravel().tolist()) <= {0.0, 1.0}


def test_a_perceptron_that_cannot_learn_xor_says_what_is_needed() -> None:
    run = ml.fit("2-1:step", (CORNERS, XOR), quiet=True)
    (notice,) = [event for event in run.events if event["event"] == "notice"]
    assert notice["remedy"].startswith(
        "a single neuron learns only classes that a line or plane separates: add a hidden"
    )


def test_engines_agree_on_every_weight_of_a_perceptron() -> None:
    x, y = separable()
    found = [
        ml.fit(ml.neuron(7), (x, y), engine=engine, dtype="float64", epochs=3, quiet=True).model
        for engine in ("numpy", "fused", "torch")
    ]
    for model in found[1:]:
        assert model is not None
        assert found[0] is not None
        for name, value in found[0].tensors.items():
            np.testing.assert_allclose(model.tensors[name], value, rtol=1e-12, atol=1e-12)


def test_an_epoch_equals_the_perceptron_rule_computed_by_hand() -> None:
    """The rule is w += (y − step(z)) x, one row at a time."""
    x, y = separable(60)
    options: dict[str, Any] = {"scaling": "none", "validation": None, "dtype": "float64", "quiet": True}
    first, second = (ml.fit("7-1:step", (x, y), epochs=n, **options).model for n in (1, 2))
    assert first is not None
    assert second is not None
    w, b = first.tensors["linear1.weight"][0].copy(), first.tensors["linear1.bias"].copy()
    plan = Setup.make("7-1", prepare((x, y), validation=None), Config(batch_size=1)).plan
    for row in plan.order(1).rows:
        mistake = y[row] - (x[row] @ w + b[0] > 0)
        w, b = w + mistake * x[row], b + mistake
    assert not np.allclose(w, first.tensors["linear1.weight"][0])
    np.testing.assert_allclose(second.tensors["linear1.weight"][0], w, rtol=1e-12)
    np.testing.assert_allclose(second.tensors["linear1.bias"], b, rtol=1e-12)


def test_a_perceptron_with_seven_inputs_makes_no_mistake_and_can_be_saved(tmp_path: Path) -> None:
    x, y = separable()
    run = ml.fit(ml.neuron(7), (x, y), run=tmp_path / "run", quiet=True)
    assert run.model is not None
    assert (run.model.predict(x) == y).all()
    assert run.metrics["accuracy"] > 0.9
    assert (ml.load(tmp_path / "run").predict(x) == y).all()
    assert (tmp_path / "run" / "report.html").exists()
    run.model.to_onnx(tmp_path / "model.onnx")
    assert (tmp_path / "model.onnx").stat().st_size > 0


def test_options_of_the_user_replace_those_of_the_rule() -> None:
    run = ml.fit("2-1:step", (CORNERS, AND), learning_rate=0.5, epochs=7, quiet=True)
    assert run.events[0]["config"]["learning_rate"] == 0.5
    assert run.events[0]["config"]["epochs"] == 7


def test_a_hidden_step_warns_once_that_it_cannot_learn() -> None:
    with pytest.warns(UserWarning, match="layers before a step activation cannot learn") as caught:
        ml.fit("2-4:step-1", (CORNERS, XOR), epochs=1, quiet=True)
    assert len(caught) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ml.fit("2-4:tanh-1:step", (CORNERS, XOR), epochs=1, quiet=True)


def test_the_report_names_the_last_epoch_of_a_converged_perceptron(tmp_path: Path) -> None:
    x, y = separable()
    run = ml.fit(ml.neuron(7), (x, y), seed=3, quiet=True, run=tmp_path / "run")
    assert run.end.reason == "every training row is classified correctly"
    curves = report(tmp_path / "run", data=(x, y))["curves"]
    lowest = min(curves["epochs"], key=lambda point: point["validation"])
    assert lowest["step"] < run.end.step  # another epoch was better on the held-out rows
    assert [mark["step"] for mark in curves["marks"] if mark["kind"] == "best"] == [run.end.step]


def test_a_deleted_model_of_a_converged_perceptron_is_rebuilt(tmp_path: Path) -> None:
    data, model = separable(), tmp_path / "run" / "model.safetensors"
    run = ml.fit(ml.neuron(7), data, seed=3, quiet=True, run=tmp_path / "run", report=False)
    assert (
        run.end.reason == "every training row is classified correctly"
    )  # not the epoch that was best on held-out rows
    before = model.read_bytes()
    model.unlink()
    ml.resume(tmp_path / "run", data=data, quiet=True, report=False)
    assert model.read_bytes() == before


def test_the_command_trains_a_perceptron(tmp_path: Path) -> None:
    (tmp_path / "and.csv").write_text(
        "a,b,y\n" + "".join(f"{a},{b},{y}\n" for (a, b), y in zip(CORNERS, AND, strict=True))
    )
    command = ["train", str(tmp_path / "and.csv"), "--target", "y", "--arch", "2-1:step", "-q"]
    done = CliRunner().invoke(app, [*command, "--run", str(tmp_path / "run")])
    assert done.exit_code == 0, done.output
    assert "every training row is classified correctly" in done.output
    assert ml.load(tmp_path / "run").predict(CORNERS).tolist() == AND


# Other output activations


@pytest.mark.parametrize(
    ("spec", "raw"), [("30-8:tanh-1:sigmoid", "30-8:tanh-1"), ("30-8:tanh-2:softmax", "30-8:tanh-2")]
)
def test_an_output_sigmoid_or_softmax_is_removed_because_the_loss_applies_it(spec: str, raw: str) -> None:
    """Otherwise, a second sigmoid would give every row a probability of at least 0.5, and thus the same class."""
    run = ml.fit(spec, "breast_cancer", epochs=5, quiet=True)
    assert run.model is not None
    assert str(run.model.spec) == raw
    assert run.metrics["accuracy"] > 0.9
    assert any(f"the network is {raw}" in note for note in run.events[0]["notes"])
    plain = ml.fit(raw, "breast_cancer", epochs=5, quiet=True).model
    assert plain is not None
    assert run.model.to_bytes() == plain.to_bytes()


@pytest.mark.parametrize("spec", ["4-8:tanh-3:relu", "4-8:tanh-3:sigmoid", "4-8:tanh-3:tanh"])
def test_an_output_activation_that_limits_the_outputs_causes_a_warning(spec: str) -> None:
    with pytest.warns(UserWarning, match=r"limits the outputs.*remove it, spec='4-8:tanh-3'"):
        ml.fit(spec, "iris", epochs=1, quiet=True)


def test_a_positive_output_for_standardized_targets_causes_a_warning() -> None:
    x = np.random.default_rng(0).normal(size=(40, 2))
    with pytest.warns(UserWarning, match="relu limits the outputs, but standardized targets have no limits"):
        ml.fit("2-4:tanh-1:relu", (x, x[:, 0] + 5.5), epochs=1, quiet=True)


def test_an_output_sigmoid_is_kept_with_the_squared_error() -> None:
    options: dict[str, Any] = {"loss": "mse", "task": "classification", "epochs": 5, "quiet": True}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        run = ml.fit("30-8:tanh-1:sigmoid", "breast_cancer", **options)
    assert run.model is not None
    assert str(run.model.spec) == "30-8:tanh-1:sigmoid"


# Two outputs for two classes


def test_two_outputs_for_two_classes_use_softmax(tmp_path: Path) -> None:
    options: dict[str, Any] = {"class_weight": "balanced", "calibrate": True, "epochs": 20, "learning_rate": 0.01}
    run = ml.fit("30-16-2", "breast_cancer", run=tmp_path / "run", quiet=True, **options)
    assert run.model is not None
    assert run.model.encoding.loss == "cross_entropy"
    assert run.metrics["accuracy"] > 0.9
    p = run.model.predict_proba("breast_cancer")
    assert p.shape == (569, 2)
    np.testing.assert_allclose(p.sum(1), 1)
    assert (run.model.predict("breast_cancer") == np.array(run.model.encoding.task.classes[0])[p.argmax(1)]).all()
    assert (tmp_path / "run" / "report.html").exists()
    np.testing.assert_array_equal(ml.load(tmp_path / "run").predict_proba("breast_cancer"), p)


@pytest.mark.parametrize("spec", ["7-1:step", "7-4:tanh-1:step", "7-4-2"])
def test_an_exported_model_has_the_predictions_of_predict(spec: str, tmp_path: Path) -> None:
    import onnxruntime

    x, y = separable()
    model = ml.fit(spec, (x, y), epochs=5, quiet=True).model
    assert model is not None
    model.to_onnx(tmp_path / "model.onnx")
    session = onnxruntime.InferenceSession(tmp_path / "model.onnx")
    labels, p = session.run(None, {"x": x})
    assert labels.tolist() == model.predict(x).tolist()
    np.testing.assert_allclose(p, model.predict_proba(x), atol=1e-6)  # float32 against float64


def test_a_stopped_run_with_two_outputs_resumes(tmp_path: Path) -> None:
    whole = ml.fit("30-4-2", "breast_cancer", epochs=3, quiet=True)
    ml.fit("30-4-2", "breast_cancer", epochs=3, quiet=True, run=tmp_path / "run", each_epoch=_after(1))
    log = tmp_path / "run" / "events.jsonl"
    log.write_text("".join(log.read_text().splitlines(keepends=True)[:-1]))
    again = ml.resume(tmp_path / "run", quiet=True)
    assert whole.model is not None
    assert again.model is not None
    for name, value in whole.model.tensors.items():
        np.testing.assert_array_equal(again.model.tensors[name], value)


def _after(epochs: int) -> Any:
    return lambda now: now.epoch >= epochs


def test_three_outputs_for_two_classes_are_refused() -> None:
    with pytest.raises(SpecError, match="need 1 output, or 2 with cross_entropy, but the network has 3"):
        ml.fit("30-4-3", "breast_cancer", quiet=True)


# Options of the recipe with a network, and arguments in the wrong place


@pytest.mark.parametrize(
    ("network", "options", "meant"),
    [
        ("4-16-3", {"dropout": 0.1}, "4-16:dropout(0.1)-3"),
        ("4-16-3", {"hidden": (8, 4), "activation": "tanh"}, "4-8:tanh-4:tanh-3"),
        ("4-8:tanh:dropout(0.2)-3", {"activation": "gelu"}, "4-8:gelu:dropout(0.2)-3"),
    ],
)
def test_options_of_the_recipe_with_a_network_show_what_to_write(
    network: str, options: dict[str, Any], meant: str
) -> None:
    with pytest.raises(MultilayerError) as caught:
        ml.fit(network, "iris", quiet=True, **options)
    assert str(caught.value).endswith(f"got a network too: write spec={meant!r}")
    ml.fit(meant, "iris", epochs=1, quiet=True)


def test_the_command_shows_what_to_write(tmp_path: Path) -> None:
    command = ["train", "iris", "--arch", "4-16-3", "--dropout", "0.1", "--run", str(tmp_path / "run")]
    done = CliRunner().invoke(app, command)
    assert done.exit_code == 2
    assert "write --arch '4-16:dropout(0.1)-3'" in done.output
    assert not (tmp_path / "run").exists()


X = np.ones((4, 2))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("iris", "4-16-3"), r"got them swapped: ml\.fit\('4-16-3', 'iris'\)"),
        ((X, X[:, 0]), r"got ndarray: write ml\.fit\(None, \(X, y\)\)"),
        ((X,), r"got ndarray alone: ml\.fit\(None, data\) chooses the network"),
        (("4-16-3",), r"fit needs data to train on, got the network 4-16-3 alone: ml\.fit\('4-16-3', data\)"),
        ((None, "4-16-3"), r"data must be a table, got the network 4-16-3: ml\.fit\('4-16-3', data\)"),
        (("iris", X[:, 0]), r"got the data 'iris' in its place: ml\.fit\(None, 'iris'\)"),
    ],
)
def test_swapped_arguments_show_the_right_call(arguments: tuple[Any, ...], message: str) -> None:
    with pytest.raises(MultilayerError, match=message):
        ml.fit(*arguments, quiet=True)


def test_a_network_as_the_data_of_the_command() -> None:
    done = CliRunner().invoke(app, ["train", "4-16-3"])
    assert done.exit_code == 2
    assert "got the network 4-16-3: mlp train DATA --arch 4-16-3" in done.output


# Networks that do not fit in memory


@pytest.mark.parametrize("options", [{"hidden": (10**9,)}, {"ensemble": 10**6}])
def test_networks_that_do_not_fit_in_memory_are_refused(options: dict[str, Any], tmp_path: Path) -> None:
    message = r"training [\d,]+ networks? of [\d,]+ parameters needs [\d,.]+ GiB of memory"
    x, y = separable(60)
    with pytest.raises(MultilayerError, match=message):
        ml.fit(None, (x, y), quiet=True, **options)
    with pytest.raises(MultilayerError, match=message):
        ml.MLPClassifier(**options).fit(x, y)
    words = [part for name, value in options.items() for part in (f"--{name}", str(value).strip("(),"))]
    done = CliRunner().invoke(app, ["train", "iris", "--run", str(tmp_path / "run"), *words])
    assert done.exit_code == 2
    assert "GiB of memory" in done.output
    assert not (tmp_path / "run").exists()


def test_a_module_or_a_model_in_the_place_of_the_network_shows_the_right_call() -> None:
    import torch

    with pytest.raises(MultilayerError, match=r"got Linear: write ml\.fit\(ml\.from_torch\(module\)\.spec, data\)"):
        ml.fit(torch.nn.Linear(4, 3), "iris", quiet=True)  # pyright: ignore[reportArgumentType]
    with pytest.raises(MultilayerError, match=r"got Model: write ml\.fit\(model\.spec, data\)"):
        ml.fit(ml.build("4-3"), "iris", quiet=True)  # pyright: ignore[reportArgumentType]
