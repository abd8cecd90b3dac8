"""Findings of runs with unusual networks, losses and tables: no false ones, and commands that work as they are."""

from __future__ import annotations

import json
import shlex
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import multilayer as ml
from multilayer.cli.main import app
from multilayer.diagnostics.case import Case
from multilayer.diagnostics.check import DETECTORS
from multilayer.diagnostics.fit_detectors import _longer
from multilayer.errors import RunError
from multilayer.training.fit import fit
from multilayer.training.retraining import retrain

G = np.random.default_rng(0)
X = G.normal(size=(600, 5))
CURVED = 2 * X[:, 0] + X[:, 1] ** 2 + 0.3 * G.normal(size=600)
SEPARATED = (X[:, 0] + X[:, 1] > 0).astype(int)


def kinds(run: ml.training.run.Run) -> list[str]:
    return [one.kind for one in run.findings]


def case_of(run: ml.training.run.Run) -> Case:
    assert run.model is not None
    return Case(model=run.model, measured=ml.check(run).measurements)


def write_table(path: Path) -> Path:
    """A table whose file, target and columns have names that a shell must quote."""
    names = ["a b", "it's <script>", "epochs", "w", "g", "in come"]
    target = np.where(X[:, 0] * X[:, 1] > 0, "yes", "no")
    columns = [*X[:, :3].T.round(3).astype(str), G.random(600).round(3).astype(str), np.arange(600) // 10, target]
    rows = [",".join(map(str, row)) for row in zip(*columns, strict=True)]
    path.write_text("\n".join([",".join(f'"{name}"' for name in names), *rows]))
    return path


@pytest.mark.parametrize(
    ("network", "options"),
    [
        ("3-16-2", {"group": "g", "sample_weight": "w", "class_weight": {"yes": 2, "no": 1}}),
        ("4+cat(60)-8-2", {"categorical": ["g"], "validation": None, "clip_norm": 1.0}),
    ],
)
def test_the_command_of_a_remedy_trains_the_same_table_with_the_same_options(
    tmp_path: Path, network: str, options: dict[str, Any]
) -> None:
    table = write_table(tmp_path / "pe ople.csv")
    run = ml.fit(
        network, table, target="in come", init="zeros", epochs=3, run=tmp_path / "run", quiet=True, report=False,
        **options,
    )  # fmt: skip
    command = run.findings[0].remedies[0].command
    assert ml.check(tmp_path / "run").findings == run.findings
    words = shlex.split(command)
    assert words[:2] == ["mlp", "train"]
    done = CliRunner().invoke(app, [*words[1:], "--run", str(tmp_path / "new"), "--quiet"])
    assert done.exit_code == 0, done.output
    first, second = (ml.resume(tmp_path / name, quiet=True, report=False) for name in ("run", "new"))
    start, again = first.log[0].to_dict(), second.log[0].to_dict()
    assert {name for name, value in start["config"].items() if value != again["config"][name]} <= {"init", "calibrate"}
    assert (start["rows"], start["held_out"]) == (again["rows"], again["held_out"])


def test_an_error_in_the_diagnosis_does_not_destroy_a_finished_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(case: Any) -> Any:
        raise RuntimeError("a detector failed")

    monkeypatch.setitem(DETECTORS, "dead_units", fails)  # type: ignore[index]
    with pytest.warns(UserWarning, match="could not be checked: RuntimeError: a detector failed"):
        run = ml.fit("4-8-3", "iris", epochs=2, run=tmp_path / "run", quiet=True, report=False)
    assert (run.end.status, run.findings) == ("finished", ())
    assert ml.resume(tmp_path / "run", quiet=True, report=False).metrics == run.metrics


def test_spline_coefficients_start_near_zero_and_may_grow() -> None:
    assert kinds(ml.fit("5-kan(8)-kan(1)", (X, CURVED), epochs=30, quiet=True)) == []


@pytest.mark.parametrize("layer", ["kan(4)", "maxout(4)", "swiglu(4)"])
def test_layers_without_an_activation_of_their_own_are_hidden_layers(layer: str) -> None:
    run = ml.fit(f"5-{layer}-1", (X, CURVED), epochs=1, quiet=True)
    assert "underfitting" in kinds(run)
    assert not any("no hidden layer" in one.message for one in run.findings)


@pytest.mark.parametrize(("network", "init"), [("5-1", "zeros"), ("5-1", "auto"), ("5-16-1", "auto")])
def test_a_perceptron_that_separates_the_classes_has_no_findings(network: str, init: str) -> None:
    run = ml.fit(network, (X, SEPARATED), loss="perceptron", optimizer="adam", init=init, epochs=20, quiet=True)
    assert run.metrics["accuracy"] > 0.95
    assert kinds(run) == []


@pytest.mark.parametrize("network", ["5-1", "5-2-1", "5-64-dropout(0.6)-1"])
def test_a_small_network_that_is_as_good_as_all_simple_methods_does_not_underfit(network: str) -> None:
    noisy = X[:, 0] + np.random.default_rng(1).normal(size=600)
    assert kinds(ml.fit(network, (X, noisy), quiet=True)) == []


@pytest.mark.parametrize("target", [X[:, 0] ** 3, np.exp(X[:, 0])])
def test_a_regression_with_small_residuals_has_the_right_loss(target: Any) -> None:
    run = ml.fit("5-32-1", (X, target), quiet=True)
    facts = ml.check(run).measurements.columns.target
    assert facts is not None
    assert facts.residual_kurtosis > 20
    assert run.metrics["r2"] > 0.9
    assert "wrong_loss" not in kinds(run)


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_class_weights_count_in_the_comparison_with_simple_methods(seed: int) -> None:
    rare = (X[:, 0] + 0.5 * np.random.default_rng(seed).normal(size=600) > 1.5).astype(int)
    run = ml.fit("5-32-2", (X, rare), class_weight="balanced", quiet=True, seed=seed)
    skills = ml.check(run).measurements.skills
    assert skills is not None
    assert skills.scores["network"] == pytest.approx(run.metrics["accuracy"])
    assert skills.held_out > 0.5
    assert kinds(run) == []


@pytest.mark.parametrize("network", ["5-32-1", "5-1"])
def test_a_high_quantile_is_not_compared_with_methods_that_predict_the_mean(network: str, tmp_path: Path) -> None:
    noisy = X[:, 0] + 2 * np.random.default_rng(1).normal(size=600)
    run = ml.fit(network, (X, noisy), loss="quantile(0.95)", quiet=True, run=tmp_path / "run")
    assert ml.check(run).measurements.skills is None
    assert kinds(run) == []
    assert json.loads((tmp_path / "run" / "report.json").read_text())["references"] is None


def test_a_run_that_diverged_or_hardly_began_says_nothing_about_labels_and_columns() -> None:
    labels = (X[:, 0] * X[:, 1] > 0).astype(int)
    begun = ml.fit("5-8-2", (X, labels), epochs=1, quiet=True)
    assert kinds(begun) == ["underfitting"]
    diverged = ml.fit(
        "5-64-64-1", (X, X[:, 0]), optimizer="sgd", learning_rate=1e30, epochs=3, on_spike="ignore", quiet=True
    )
    assert kinds(diverged) == ["rate_too_high"]
    for run in (begun, diverged):
        assert ml.check(run).findings == run.findings


def test_a_run_too_short_to_be_stopped_early_does_not_overfit() -> None:
    random_labels = np.random.default_rng(5).integers(0, 2, 100)
    run = ml.fit("200-16-2", (np.random.default_rng(6).normal(size=(100, 200)), random_labels), epochs=10, quiet=True)
    losses = [event for event in run.events if event["event"] == "epoch"]
    assert losses[-1]["loss"] < 0.1 < min(one["validation_loss"] for one in losses)
    assert "overfitting" not in kinds(run)


def test_a_recipe_that_memorizes_rows_but_predicts_well_does_not_overfit() -> None:
    """Early stopping would keep the same model, which is that of the best epoch."""
    g = np.random.default_rng(0)
    city, effects, x = g.integers(0, 150, 600), g.normal(size=150), g.normal(size=(600, 3))
    label = np.where(2.5 * effects[city] + x[:, 0] + 0.2 * g.logistic(size=600) > 0, "yes", "no")
    table = {"city": [f"c{one:03}" for one in city], "a": x[:, 0], "b": x[:, 1], "y": label}
    run = ml.fit(None, table, target="y", epochs=60, hidden=64, ensemble=2, quiet=True)
    facts = ml.check(run).measurements.history
    assert facts is not None
    assert facts.losses[-1] < 0.1 * facts.validation[-1]
    assert kinds(run) == []


# Runs whose data was in memory, moved, or stopped


def zeros(data: Any, path: Path, **options: Any) -> ml.training.run.Run:
    return ml.fit("5-16-2", data, init="zeros", epochs=3, run=path, quiet=True, report=False, **options)


def test_a_run_on_data_in_memory_needs_the_data(tmp_path: Path) -> None:
    (finding,) = zeros((X, SEPARATED), tmp_path / "run").findings
    for call in (lambda: ml.check(tmp_path / "run"), lambda: retrain(tmp_path / "run", finding)):
        with pytest.raises(RunError, match="was trained on data in memory: set data to"):
            call()
    assert [one.kind for one in ml.check(tmp_path / "run", (X, SEPARATED)).findings] == ["symmetric_units"]
    assert retrain(tmp_path / "run", finding, data=(X, SEPARATED)).gone


def test_weights_and_validation_rows_in_memory_are_not_needed_for_a_check(tmp_path: Path) -> None:
    held_out = (np.ones((3, 4)), np.array(["setosa"] * 3))
    run = ml.fit("4-8-3", "iris", init="zeros", epochs=3, run=tmp_path / "run", validation=held_out, quiet=True)
    assert [one.kind for one in ml.check(tmp_path / "run").findings] == ["symmetric_units"]
    with pytest.raises(RunError, match=r"was trained with validation in memory, .*: apply the remedy in your own code"):
        retrain(tmp_path / "run", run.findings[0])


def test_a_table_that_was_moved_can_be_named(tmp_path: Path) -> None:
    table = write_table(tmp_path / "table.csv")
    ml.fit("4-8-2", table, target="in come", group="g", init="zeros", epochs=3, run=tmp_path / "run", quiet=True)
    moved = table.rename(tmp_path / "moved.csv")
    assert CliRunner().invoke(app, ["check", str(tmp_path / "run"), "--fix"]).exit_code == 2
    done = CliRunner().invoke(app, ["check", str(tmp_path / "run"), "--data", str(moved), "--fix"])
    assert done.exit_code == 0
    assert "Identical units: cured" in done.output


def test_a_run_that_had_ended_is_checked_from_its_folder(tmp_path: Path) -> None:
    ml.fit("4-8-3", "iris", init="zeros", epochs=3, run=tmp_path / "run", quiet=True, report=False)
    ended = ml.resume(tmp_path / "run", quiet=True, report=False)
    assert ml.check(ended).findings == ended.findings != ()


def test_a_signal_stops_all_fixes_and_cures_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ml.fit("4-8-3", "iris", init="zeros", epochs=3, run=tmp_path / "run", quiet=True, report=False)
    finding = ml.check(tmp_path / "run").findings[0]

    def stops(progress: Any) -> bool:
        if progress.epoch:
            signal.raise_signal(signal.SIGINT)
        return False

    def interrupted(*given: Any, **options: Any) -> Any:
        return fit(*given, **options, each_epoch=stops)

    monkeypatch.setattr("multilayer.training.retraining.fit", interrupted)
    new = retrain(tmp_path / "run", finding)
    assert (new.run.end.status, new.gone, new.cured) == ("interrupted", False, False)
    done = CliRunner().invoke(app, ["check", str(tmp_path / "run"), "--fix"])
    assert done.exit_code not in (0, 1, 2)
    assert "Identical units (linear1)" in done.output
    assert "cured" not in done.output


def test_a_table_that_has_changed_is_an_error(tmp_path: Path) -> None:
    table = tmp_path / "table.csv"
    table.write_text(
        "\n".join(["a,b,y", *(f"{a:.3f},{b:.3f},{'pq'[c]}" for a, b, c in zip(*X.T[:2], SEPARATED, strict=True))])
    )
    ml.fit("2-8-2", table, target="y", init="zeros", epochs=3, run=tmp_path / "run", quiet=True, report=False)
    assert ml.check(tmp_path / "run").findings
    lines = table.read_text().splitlines()
    for changed in (lines[:300], [lines[0].replace("a", "c"), *lines[1:]], [*lines, "0,0,r", "0,0,r"]):
        table.write_text("\n".join(changed))
        with pytest.raises(RunError, match=r"table\.csv differs from the training data of .*: set data to rows"):
            ml.check(tmp_path / "run")


def test_the_command_of_a_check_on_other_rows_names_them_and_the_columns_of_the_run(tmp_path: Path) -> None:
    table = write_table(tmp_path / "table.csv")
    ml.fit("4-8-2", table, target="in come", group="g", init="zeros", epochs=3, run=tmp_path / "run", quiet=True)
    moved = table.rename(tmp_path / "moved.csv")
    words = shlex.split(ml.check(tmp_path / "run", moved).findings[0].remedies[0].command)
    assert words[:7] == ["mlp", "train", str(moved), "--target", "in come", "--group", "g"]
    run = ml.fit("4-8-2", moved, target="in come", group="g", init="zeros", epochs=3, quiet=True)
    for data, name in ((moved, str(moved)), (ml.data.read(moved), "DATA")):
        words = shlex.split(ml.check(run, data).findings[0].remedies[0].command)
        assert words[2:5] == [name, "--target", "in come"]


def test_a_few_other_rows_do_not_show_dead_units(tmp_path: Path) -> None:
    run = ml.fit("5-16-2", (X, SEPARATED), epochs=3, quiet=True)
    for rows in (1, 5):
        assert ml.check(run, (X[:rows], SEPARATED[:rows])).findings == ()
        assert run.model is not None
        assert ml.check(run.model, (X[:rows], SEPARATED[:rows])).findings == ()


def test_units_that_are_dead_on_all_of_a_few_training_rows_are_found() -> None:
    run = ml.fit("5-16-1", (X[:12], X[:12, 0]), learning_rate=10.0, epochs=30, optimizer="adam", quiet=True, seed=1)
    layer = ml.check(run).measurements.members[0].activations[0]
    assert len(layer.dead) >= 8
    assert "dead_units" in kinds(run)


# Losses and targets


def fourth_power(z: Any, y: Any) -> Any:
    return ((z - y) ** 4).mean(1)


def test_a_loss_function_of_the_user_has_another_scale_than_that_of_the_model() -> None:
    run = ml.fit("5-16-1", (X, CURVED), loss=fourth_power, epochs=20, quiet=True)
    assert kinds(run) == []
    skewed = np.exp(2 * X[:, 1])
    run = ml.fit("5-16-1", (X, skewed), loss=fourth_power, epochs=20, learning_rate=1e-4, quiet=True)
    assert not {"wrong_loss", "rate_too_low", "rate_too_high", "overfitting"} & set(kinds(run))


def test_a_constant_target_next_to_others_does_not_count() -> None:
    targets = np.stack([X[:, 0], np.full(600, 0.1), 1e6 * X[:, 1]], axis=1)
    run = ml.fit("5-16-3", (X, targets), epochs=30, quiet=True)
    skills = ml.check(run).measurements.skills
    assert skills is not None
    assert 0.9 < skills.held_out <= 1
    assert 0.9 < skills.linear <= 1
    assert kinds(run) == []


def test_outliers_are_not_judged_by_a_network_that_was_hardly_trained() -> None:
    target = X[:, 1] ** 2 + np.where(np.arange(600) % 50 == 0, 30.0, 0.0)
    short = ml.fit("5-16-1", (X, target), epochs=3, batch_size=64, quiet=True)
    assert short.end.step < 100
    assert "wrong_loss" not in kinds(short)
    assert "wrong_loss" in kinds(ml.fit("5-16-1", (X, target), epochs=40, batch_size=64, quiet=True))


@pytest.mark.parametrize(
    ("network", "options"),
    [("8-2", {}), ("8-8:batchnorm-2", {"epochs": 2, "batch_size": 2})],
)
@pytest.mark.parametrize("seed", [0, 2])
def test_labels_that_follow_a_product_of_columns_are_not_noisy(
    seed: int, network: str, options: dict[str, Any]
) -> None:
    """The nearest rows and random features cannot predict them, and neither can these networks."""
    x = np.random.default_rng(seed).normal(size=(300, 8))
    run = ml.fit(network, (x, (x[:, 0] * x[:, 1] > 0).astype(int)), quiet=True, **options)
    assert kinds(run) == ["underfitting" if network == "8-2" else "batch_norm_small_batch"]


# Remedies


def test_a_run_that_its_time_limit_stopped_needs_no_other_number_of_epochs() -> None:
    with pytest.warns(UserWarning, match="hardly been trained"):
        run = ml.fit("5-16-1", (X, CURVED), time_limit=1e-4, quiet=True)
    (finding,) = run.findings
    assert finding.kind == "underfitting"
    assert finding.remedies[0].changes == {"time_limit": None}
    assert "--time-limit" not in finding.remedies[0].command


def test_a_run_of_the_default_length_is_told_to_train_for_more_epochs() -> None:
    low = ml.fit("5-16-1", (X[:240], CURVED[:240]), learning_rate=3e-5, schedule="constant", quiet=True)
    finding = next(iter(DETECTORS["underfitting"](case_of(low))))
    assert finding.remedies[0].changes == {"learning_rate": None}
    epochs = next(event for event in low.events if event["event"] == "start")["config"]["epochs"]
    assert _longer(case_of(low), other_options=False)[1] == {"epochs": 4 * epochs}
    short = ml.fit("5-16-1", (X[:240], CURVED[:240]), epochs=3, quiet=True)
    assert _longer(case_of(short), other_options=False)[1] == {"epochs": None}


def test_a_remedy_keeps_the_layers_of_the_recipe() -> None:
    """Its learning rate and its other options fit no other layers."""
    run = ml.fit(None, (X[:60], X[:60, 1] ** 2), epochs=3, hidden=(32, 16), ensemble=1, quiet=True)
    case = case_of(run)
    assert case.wider() == str(run.model.spec).replace("32", "64").replace("16", "32")
    assert "linear(8, scale=tangent):blend(mish):dropout(0.15))*2-linear(1, scale=tangent)" in case.narrower()


def test_a_short_run_of_the_recipe_is_told_to_be_longer() -> None:
    run = ml.fit(None, (X[:400, :1], X[:400, 0] + X[:400, 1]), epochs=5, quiet=True)
    losses = [event["loss"] for event in run.events if event["event"] == "epoch"]
    assert losses[-1] > 5 * losses[0]
    (finding,) = run.findings
    assert finding.kind == "underfitting"
    assert finding.remedies[0].changes == {"epochs": None}


def test_a_rate_far_from_the_default_is_no_remedy() -> None:
    run = ml.fit("5-16-1", (X, CURVED), learning_rate=1e6, optimizer="sgd", epochs=5, quiet=True)
    finding = next(one for one in run.findings if one.kind == "rate_too_high")
    assert [one.changes for one in finding.remedies] == [{"learning_rate": None}]
