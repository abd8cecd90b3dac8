"""`ml.check` and `mlp check` on runs with a fault, on healthy runs, and on bad input."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import multilayer as ml
from multilayer.cli.main import app
from multilayer.diagnostics import Finding
from multilayer.diagnostics.check import DETECTORS, EXPLAINS
from multilayer.diagnostics.findings import KINDS
from multilayer.errors import DataError, OptionError, RunError
from multilayer.training.retraining import retrain


def gaussians(n: int = 600, *, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Two classes that no straight line separates."""
    x = np.random.default_rng(seed).normal(size=(n, 6))
    return x, (x[:, 0] * x[:, 1] > 0).astype(int)


def kinds(run: ml.training.run.Run) -> list[str]:
    return [one.kind for one in run.findings]


X, Y = gaussians()
G = np.random.default_rng(1)
FAULTS: dict[str, tuple[Any, Any, dict[str, Any]]] = {
    "symmetric_units": ("6-16:tanh-2", (X, Y), {"init": "zeros", "epochs": 5}),
    "exploding_gradients": ("6-64-64-64-64-2", (X, Y), {"init": "normal(1)", "epochs": 5}),
    "vanishing_gradients": ("-".join(["6", *["32:sigmoid"] * 9, "2"]), (X, Y), {"epochs": 10, "learning_rate": 1e-3}),
    "dead_units": ("6-64-64-2", (X, Y), {"learning_rate": 3.0, "epochs": 10}),
    "saturated_units": ("6-32:tanh-32:tanh-2", (X, Y), {"init": "normal(1000)", "epochs": 2}),
    "unscaled_inputs": ("6-32-2", (X * [1, 1, 1, 1, 1000, 1], Y), {"scaling": "none", "epochs": 5}),
    "rate_too_low": ("6-64-64-2", (X, Y), {"learning_rate": 1e-7, "epochs": 10}),
    "leakage": ("7-32-2", (np.c_[X, Y + 0.01 * G.normal(size=600)], Y), {"epochs": 30}),
    "label_noise": ("6-32-2", (X[:, :2].repeat(3, 1), np.where(G.random(600) < 0.25, 1 - Y, Y)), {"epochs": 30}),
    "wrong_loss": ("6-32-1", (X, G.poisson(np.exp(X[:, 0]))), {"task": "regression", "epochs": 30}),
    "batch_norm_small_batch": ("6-32:batchnorm-2", (X, Y), {"batch_size": 3, "epochs": 2}),
    "underfitting": ("6-2", (X, Y), {"epochs": 20}),
    "overfitting": (
        "6-256-256-1",
        (X[:120], X[:120, 0] + 1.5 * G.normal(size=120)),
        {"epochs": 300, "weight_decay": 0.0},
    ),
}


@pytest.mark.parametrize("kind", FAULTS)
def test_each_fault_is_found(kind: str) -> None:
    spec, data, options = FAULTS[kind]
    run = ml.fit(spec, data, quiet=True, seed=3, **options)
    assert kind in kinds(run)
    finding = next(one for one in run.findings if one.kind == kind)
    assert Finding.from_dict(json.loads(json.dumps(finding.to_dict()))) == finding
    assert finding.message.endswith(".")
    assert finding.remedies
    assert all(one.text.endswith(".") for one in finding.remedies)


def test_a_network_whose_outputs_are_not_finite_is_checked() -> None:
    run = ml.fit("4-8-8-3", "iris", epochs=5, quiet=True)
    assert run.model is not None
    tensors: Any = run.model.members[0].tensors
    for name in ("linear1.weight", "linear2.weight", "linear3.weight"):
        tensors[name] = tensors[name] * np.float32(1e15)
    found = ml.check(run)
    assert [one.kind for one in found.findings] == ["rate_too_high"]
    assert found.measurements.skills is not None
    assert found.measurements.skills.held_out == 0


def test_hidden_layers_without_activation_underfit() -> None:
    found = ml.fit("6-16:none-16:none-2", (X, Y), epochs=30, quiet=True).findings
    assert [one.kind for one in found] == ["underfitting"]
    assert "with no activation function, ridge regression on random features reaches" in found[0].message


def test_more_epochs_are_not_the_remedy_of_a_network_that_its_options_limit() -> None:
    """The loss of both is still falling, but two units cannot learn the target."""
    texts = {
        spec: next(
            one for one in ml.fit(spec, (X, Y), epochs=4, quiet=True, seed=3).findings if one.kind == "underfitting"
        )
        .remedies[0]
        .text.split()[:2]
        for spec in ("6-2-2", "6-16:tanh-2")
    }
    assert texts == {"6-2-2": ["Train", "a"], "6-16:tanh-2": ["Train", "longer,"]}


def test_label_errors_are_found_where_the_nearest_rows_predict_badly() -> None:
    g = np.random.default_rng(5)
    x = g.normal(size=(900, 5))
    clean = ((x**2).sum(1) > 4.35).astype(int)  # a ball and what is around it
    wrong = g.random(900) < 0.3
    options: dict[str, Any] = {"epochs": 40, "quiet": True, "seed": 3}
    assert kinds(ml.fit("5-32-32-2", (x, clean), **options)) == []
    run = ml.fit("5-32-32-2", (x, np.where(wrong, 1 - clean, clean)), **options)
    assert kinds(run) == ["label_noise"]
    changes = run.findings[0].remedies[0].changes
    assert changes["ensemble"] == 4
    dropped = list(changes["drop_rows"])
    assert len(dropped) > 0.3 * wrong.sum()
    assert wrong[dropped].mean() > 0.9


def test_a_network_that_has_learned_all_it_can_needs_no_higher_rate() -> None:
    """At the end, the gradient and so the step are as small as with a rate that is too low."""
    y = X[:, 0] + 2 * np.random.default_rng(2).normal(size=600)
    options: dict[str, Any] = {"optimizer": "momentum", "weight_decay": 0.0, "batch_size": 480, "schedule": "constant"}
    for rate, low in ((0.05, False), (1e-6, True)):
        run = ml.fit("6-1", (X, y), learning_rate=rate, epochs=150, quiet=True, **options)
        assert ("rate_too_low" in kinds(run)) == low


def test_a_network_that_overfits_without_a_rise_of_the_validation_loss_should_be_smaller() -> None:
    """The temperature corrects overconfident predictions, so the validation loss of the last epochs is the lowest."""
    g = np.random.default_rng(1)
    x = g.normal(size=(140, 40))
    y = (x[:, :3].sum(1) + 1.5 * g.normal(size=140) > 0).astype(int)
    run = ml.fit(
        "40-64:tanh-2", (x, y), epochs=250, weight_decay=0.0, batch_size=16, learning_rate=0.004, quiet=True, seed=1
    )
    finding = next(one for one in run.findings if one.kind == "overfitting")
    assert finding.evidence["best_epoch"] > 200
    assert set(finding.remedies[0].changes) == {"spec", "patience"}


def test_a_rate_at_which_training_diverges_is_too_high() -> None:
    x = np.random.default_rng(0).normal(size=(400, 4))
    run = ml.fit(
        "4-64-64-1", (x, x[:, 0] ** 2), optimizer="sgd", learning_rate=50.0, epochs=20, schedule="constant", quiet=True
    )
    assert "rate_too_high" in kinds(run)


SKEWED = (X, np.exp(2 * np.random.default_rng(1).normal(size=600)))


@pytest.mark.parametrize(
    ("spec", "data", "rate", "default"),
    [
        (None, "iris", 10.0, 0.04),
        (None, "diabetes", 10.0, 0.2),
        (None, "wine", 3.0, 0.04),
        (None, (X, G.poisson(np.exp(X[:, 0]))), 1.0, 0.02),
        ("6-32-32-2", (X, Y), 3.0, None),
        ("10-32-32-1", "diabetes", 10.0, None),
    ],
)
def test_an_absurd_rate_is_too_high_also_if_the_initial_weights_are_unknown(
    spec: str | None, data: Any, rate: float, default: float | None
) -> None:
    options: dict[str, Any] = {"epochs": 40, "quiet": True} | (
        {"ensemble": 1, "hidden": (64, 64)} if spec is None else {"init": "data"}
    )
    if default == 0.02:
        options |= {"task": "regression", "loss": "poisson"}
    run = ml.fit(spec, data, learning_rate=rate, **options)
    assert run.diagnosis is not None
    assert run.diagnosis.measurements.initial is None
    assert run.findings[0].kind == "rate_too_high"
    assert run.findings[0].remedies[0].changes == {"learning_rate": default}
    assert "underfitting" not in kinds(run)
    assert "rate_too_high" not in kinds(ml.fit(spec, data, **options))


@pytest.mark.parametrize("epochs", [2, 5, 20])
def test_the_default_rate_of_the_recipe_is_not_too_high(epochs: int) -> None:
    """Each cycle of the learning rate begins with a spike, and the target has outliers."""
    for data in ("diabetes", SKEWED):
        run = ml.fit(None, data, task="regression", epochs=epochs, ensemble=2, hidden=(64, 64), quiet=True)
        assert "rate_too_high" not in kinds(run)


@pytest.mark.parametrize("noise", [0.0, 0.5, 2.0])
@pytest.mark.parametrize("levels", [3, 5, 10])
def test_ratings_may_be_trained_as_numbers(levels: int, noise: float) -> None:
    z = X[:, 0] + 0.5 * X[:, 1] + noise * np.random.default_rng(4).normal(size=600)
    ratings = 1 + np.digitize(z, np.quantile(z, np.linspace(0, 1, levels + 1)[1:-1]))
    run = ml.fit("6-32-1", (X, ratings), task="regression", epochs=20, quiet=True)
    assert "wrong_loss" not in kinds(run)


@pytest.mark.parametrize("classes", [2, 4, 10, 30])
def test_classes_that_are_trained_as_numbers_have_the_wrong_loss(classes: int) -> None:
    generator = np.random.default_rng(5)
    y = generator.integers(0, classes, 600)
    x = generator.normal(size=(classes, 6))[y] + 0.3 * generator.normal(size=(600, 6))
    run = ml.fit("6-32-1", (x, y), task="regression", epochs=20, quiet=True)
    finding = next(one for one in run.findings if one.kind == "wrong_loss")
    assert ("in no order" in finding.message) == (classes > 2)
    assert finding.remedies[0].changes["spec"] == f"6-32-{classes}"


@pytest.mark.parametrize("data", ["iris", "wine", "digits", "diabetes"])
def test_default_runs_on_the_bundled_tables_have_no_findings(data: str) -> None:
    spec = {"iris": "4-16-3", "wine": "13-16-3", "digits": "64-64-10", "diabetes": "10-16-1"}[data]
    assert kinds(ml.fit(spec, data, quiet=True)) == []


def test_dead_units_have_the_epoch_since_which_they_are_dead() -> None:
    spec, data, options = FAULTS["dead_units"]
    run = ml.fit(spec, data, quiet=True, seed=3, **options)
    for finding in (one for one in run.findings if one.kind == "dead_units"):
        layer, epoch = finding.where.layer, finding.where.epoch
        counted = {event["epoch"]: event["units"][layer] for event in run.events if event.get("units")}
        assert epoch in counted
        most = len(finding.where.units) / 2
        assert len(set(counted[epoch]["dead"]) & set(finding.where.units)) >= most
        assert all(
            len(set(one["dead"]) & set(finding.where.units)) < most for e, one in counted.items() if e == epoch - 1
        )


def test_every_kind_has_a_detector() -> None:
    assert set(DETECTORS) == set(KINDS)
    assert EXPLAINS.keys() <= set(KINDS)
    assert set().union(*EXPLAINS.values()) <= set(KINDS)


def test_a_check_changes_nothing_and_repeats_itself() -> None:
    run = ml.fit("6-16-2", (X, Y), epochs=3, quiet=True)
    before = {name: value.tobytes() for name, value in run.model.tensors.items()}
    first, again = ml.check(run.model, (X, Y)), ml.check(run.model, (X, Y))
    assert first.to_dict() == again.to_dict()
    assert {name: value.tobytes() for name, value in run.model.tensors.items()} == before


def test_findings_are_events_of_a_run_folder(tmp_path: Path) -> None:
    run = ml.fit("4-8-3", "iris", init="zeros", epochs=3, quiet=True, run=tmp_path / "run", report=False)
    found = [event for event in run.events if event["event"] == "finding"]
    assert [event["finding"]["kind"] for event in found] == kinds(run) == ["symmetric_units"]
    assert ml.resume(tmp_path / "run", quiet=True, report=False).findings == run.findings
    assert [one.kind for one in ml.check(tmp_path / "run").findings] == ["symmetric_units"]


def test_the_first_remedy_cures_identical_units(tmp_path: Path) -> None:
    run = ml.fit("4-8-3", "iris", init="zeros", epochs=40, quiet=True, run=tmp_path / "run", report=False)
    new = retrain(tmp_path / "run", run.findings[0])
    assert new.cured
    assert new.after is not None
    assert new.before is not None
    assert new.after < new.before
    assert new.run.metrics["accuracy"] > 0.9


def test_a_column_that_leaks_the_target_is_dropped(tmp_path: Path) -> None:
    table = tmp_path / "table.csv"
    y = np.where(Y == 1, "yes", "no")
    rows = [f"{a:.3f},{b:.3f},{c:.3f},{t}" for a, b, c, t in zip(X[:, 0], X[:, 1], Y + 0.01 * X[:, 2], y, strict=True)]
    table.write_text("\n".join(["a,b,copy,target", *rows]))
    run = ml.fit("3-16-2", table, target="target", epochs=30, quiet=True, run=tmp_path / "run", report=False)
    (finding,) = run.findings
    assert (finding.kind, finding.where.column) == ("leakage", "copy")
    new = retrain(tmp_path / "run", finding)
    assert new.cured
    assert new.run.model.encoding.numeric_names == ("a", "b")


# The command


def mlp(*words: str) -> Any:
    return CliRunner().invoke(app, ["check", *words])


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("runs") / "zeros"
    ml.fit("4-8-3", "iris", init="zeros", epochs=3, quiet=True, run=path, report=False)
    return path


def test_the_command_prints_findings(folder: Path) -> None:
    done = mlp(str(folder))
    assert done.exit_code == 0
    assert "same weights" in done.output
    assert "mlp train iris --arch 4-8-3 --epochs 3 --init auto" in done.output


def test_strict_fails_if_there_is_a_finding(folder: Path, tmp_path: Path) -> None:
    assert mlp(str(folder), "--strict").exit_code == 1
    ml.fit("4-16-3", "iris", quiet=True, run=tmp_path / "run", report=False)
    done = mlp(str(tmp_path / "run"), "--strict")
    assert (done.exit_code, done.output) == (0, "no findings\n")


def test_json_has_findings_and_measurements(folder: Path) -> None:
    found = json.loads(mlp(str(folder), "--json").stdout)
    assert [one["kind"] for one in found["findings"]] == ["symmetric_units"]
    assert found["findings"][0]["remedy"]["command"].startswith("mlp train")
    assert found["measurements"]["members"][0]["weights"][0]["identical"] == 1.0


def test_fix_trains_again_and_compares(folder: Path) -> None:
    found = json.loads(mlp(str(folder), "--fix", "--json").stdout)
    assert found["fixes"][0]["kind"] == "symmetric_units"
    assert found["fixes"][0]["gone"]
    assert "Identical units" in mlp(str(folder), "--fix").output


def test_a_model_file_needs_rows(folder: Path) -> None:
    model = folder / "model.safetensors"
    assert [one.kind for one in ml.check(model, "iris").findings] == ["symmetric_units"]
    with pytest.raises(DataError, match="check needs rows with their target: set data, or pass the folder of a run"):
        ml.check(model)
    done = mlp(str(model))
    assert done.exit_code == 2
    assert "set --data" in done.output
    assert mlp(str(model), "--fix").exit_code == 2


def test_bad_models(tmp_path: Path, folder: Path) -> None:
    assert mlp(str(tmp_path / "missing")).exit_code == 2
    (tmp_path / "run").mkdir()
    for name in ("config.json", "events.jsonl"):
        (tmp_path / "run" / name).write_bytes((folder / name).read_bytes())
    with pytest.raises(RunError, match="has no model yet: resume it"):
        ml.check(tmp_path / "run")
    with pytest.raises(OptionError, match="has no remedy that training again can apply"):
        retrain(folder, Finding(kind="label_noise", severity="warning", message="Labels are wrong."))
