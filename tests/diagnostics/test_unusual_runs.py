"""Findings of runs with unusual networks, losses and tables: no false ones, and commands that work as they are."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import multilayer as ml
from multilayer.cli.main import app
from multilayer.diagnostics.check import DETECTORS

G = np.random.default_rng(0)
X = G.normal(size=(600, 5))
CURVED = 2 * X[:, 0] + X[:, 1] ** 2 + 0.3 * G.normal(size=600)
SEPARATED = (X[:, 0] + X[:, 1] > 0).astype(int)


def kinds(run: ml.training.run.Run) -> list[str]:
    return [one.kind for one in run.findings]


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
