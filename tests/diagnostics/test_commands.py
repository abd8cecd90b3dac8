"""The command of a remedy trains the same run again, except for the changes of the remedy."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

import multilayer as ml
from multilayer.cli.main import app
from multilayer.diagnostics.case import Case
from multilayer.errors import OptionError
from multilayer.runs.config import Config
from multilayer.training import fit as fit_module
from multilayer.training.fit import given_options, read_and_choose
from multilayer.training.recipe import Recipe
from multilayer.training.setup import Setup

G = np.random.default_rng(0)
ROWS = 90
TABLE = pd.DataFrame(
    {
        "age": G.normal(size=ROWS),
        "-size of it": G.normal(size=ROWS),
        "zip": G.integers(10, 14, ROWS),
        "shop": G.integers(0, 9, ROWS),
        "day": pd.date_range("2026-01-01", periods=ROWS).astype(str),
        "weight": G.random(ROWS) + 0.5,
        "kind": G.choice(["a = b", "c"], ROWS),
        "price": G.normal(size=ROWS),
        "costs": G.normal(size=ROWS),
    }
)
PLAIN = TABLE[["age", "-size of it", "kind"]]
ARCH, SHORT = "2-3:relu-2", {"epochs": 2}
NUMBERS = {"target": "price", "task": "regression"}


RUNS: dict[str, tuple[str | None, pd.DataFrame | str, dict[str, Any]]] = {
    "all by default": ("4-3", "iris", {"time_limit": 60.0}),
    "epochs": (ARCH, PLAIN, {**SHORT, "target": "kind"}),
    "epochs and patience": (ARCH, PLAIN, {**SHORT, "target": "kind", "patience": 5}),
    "patience without epochs": ("4-3", "iris", {"patience": 2}),
    "average": (ARCH, PLAIN, {**SHORT, "target": "kind", "average": 0.9}),
    "average by default with epochs": (ARCH, PLAIN, {**SHORT, "target": "kind", "average": 0.99}),
    "nothing held out": (ARCH, PLAIN, {**SHORT, "target": "kind", "validation": None}),
    "a share held out": (ARCH, PLAIN, {**SHORT, "target": "kind", "validation": 1 / 3, "metric": "accuracy"}),
    "class weights": (ARCH, PLAIN, {**SHORT, "target": "kind", "class_weight": {"a = b": 1 / 3, "c": 2}}),
    "balanced": (ARCH, PLAIN, {**SHORT, "target": "kind", "class_weight": "balanced"}),
    "no calibration": (ARCH, PLAIN, {**SHORT, "target": "kind", "calibrate": False}),
    "calibrated intervals": (
        "2-3-1",
        TABLE[["age", "zip", "price"]],
        {**SHORT, **NUMBERS, "calibrate": True, "loss": "huber(delta=0.3)"},
    ),
    "optimization": (
        ARCH,
        PLAIN,
        {
            **{**SHORT, "target": "kind", "optimizer": "adam(beta2=0.95)", "learning_rate": 1 / 3, "l2": 1e-5},
            **{"schedule": "one_cycle", "weight_decay": 0.0, "decay_schedule": "cosine", "clip_norm": 1.0},
            **{"clip_value": 0.5, "batch_size": 7, "on_spike": "stop", "rollbacks": 1, "rates": "bias=0.1"},
            **{"dropout_schedule": "cosine", "epoch_rows": 20, "augment": "noise(0.1)+mask(0.1)", "init": "data"},
        },
    ),
    "machine": (
        ARCH,
        PLAIN,
        {
            **{**SHORT, "target": "kind", "engine": "numpy", "seed": 7, "dtype": "float64", "threads": 1},
            **{"device": "cpu", "checkpoint_every": 3, "statistics_every": 5, "scaling": "none"},
        },
    ),
    "torch": (ARCH, PLAIN, {**SHORT, "target": "kind", "engine": "torch"}),
    "torch by necessity": ("2-maxout(3)-2", PLAIN, {**SHORT, "target": "kind"}),
    "ensemble": (ARCH, PLAIN, {**SHORT, "target": "kind", "ensemble": 3}),
    "several targets": ("1-3-2", TABLE[["age", "price", "costs"]], {**SHORT, "target": ["price", "costs"]}),
    "groups, weights, a name with a dash": (
        ARCH,
        TABLE[["age", "-size of it", "shop", "weight", "kind"]],
        {**SHORT, "target": "kind", "group": "shop", "sample_weight": "weight"},
    ),
    "time, categories": (
        "1+cat(4, 9)-columns-3-2",
        TABLE[["age", "zip", "shop", "day", "kind"]],
        {**SHORT, "target": "kind", "time_column": "day", "categorical": ["zip", "shop"]},
    ),
    "a perceptron": ("2-1:step", PLAIN, {"target": "kind"}),
    "the recipe": (None, TABLE.drop(columns="day"), {**SHORT, "target": "kind", "hidden": (8, 4), "ensemble": 2}),
    "the recipe for numbers": (None, "diabetes", {"epochs": 1, "hidden": 8, "ensemble": 1, "learning_rate": 10.0}),
    "the plain recipe": (None, "iris", {"epochs": 1, "recipe": "plain"}),
}


def case_of(run: ml.training.run.Run) -> Case:
    assert run.diagnosis is not None
    assert run.model is not None
    return Case(model=run.model, measured=run.diagnosis.measurements, source=run.source)


def setup_of(spec: Any, data: Any, *, recipe: Any = None, hidden: Any = None, **options: Any) -> dict[str, Any]:
    """Return what the folder of a run with these arguments of `fit` would store."""
    given = given_options("fit", [], {name: value for name, value in options.items() if name != "run"})
    _, made = read_and_choose(spec, data, recipe=recipe, shape=Recipe(hidden=hidden), given=given, began=0.0)
    setup = Setup.make(made.spec, made.prepared, made.config)
    return fit_module._saved(setup, made.options, data)


def setup_by_command(command: str, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Return the same for a command line, as the command itself parses it."""
    called: list[tuple[Any, ...]] = []

    def fit(spec: Any, data: Any, **options: Any) -> None:
        without = ("observers", "trackers", "quiet", "activation", "dropout")
        called.append((spec, data, {name: value for name, value in options.items() if name not in without}))
        raise OptionError("enough")

    monkeypatch.setattr(fit_module, "fit", fit)
    program, *words = shlex.split(command)
    assert program == "mlp"
    done = CliRunner().invoke(app, words)
    assert called, done.output
    spec, data, options = called[0]
    return setup_of(spec, data, **options)


@pytest.mark.parametrize("name", RUNS)
def test_the_command_repeats_the_run(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spec, data, options = RUNS[name]
    if isinstance(data, pd.DataFrame):
        data.to_csv(tmp_path / "a table.csv", index=False)
        data = str(tmp_path / "a table.csv")
    monkeypatch.chdir(tmp_path)
    run = ml.fit(spec, data, quiet=True, run=tmp_path / "run", report=False, **options)
    expected = setup_of(spec, data, **options)
    case = case_of(run)
    remedy = case.train_with("Train again.")
    assert remedy.text == "Train again."
    found = setup_by_command(remedy.command, monkeypatch)
    for part in ("config", "effective", "spec", "data", "fingerprint"):
        assert found[part] == expected[part], remedy.command
    checked = ml.check(tmp_path / "run")
    again = Case(model=case.model, measured=checked.measurements, source=case.source).train_with("Train again.")
    assert again.command == remedy.command
    changed = case.train_with("Train again.", seed=1234, init="auto")
    found = setup_by_command(changed.command, monkeypatch)
    assert found["config"] == expected["config"] | {"seed": 1234, "init": "auto"}


def test_every_option_is_in_some_run() -> None:
    used = {name for _, _, options in RUNS.values() for name in options}
    assert set(Config().to_dict()) - used == {"compile"}, "compile is slow"


def test_options_with_their_default_are_left_out() -> None:
    case = case_of(ml.fit("4-3", "iris", time_limit=60.0, quiet=True))
    assert case.train_with("", loss="mae").command == "mlp train iris --arch 4-3 --time-limit 60.0 --loss mae"


X, Y = TABLE[["age", "price"]].to_numpy(), (TABLE["kind"] == "c").to_numpy().astype(int)
NOT_IN_A_COMMAND: dict[str, tuple[Any, dict[str, Any]]] = {
    "classes": ((X, Y), {"classes": [0, 1, 2], "spec": "2-3-3"}),
    "keep_constant": ((X, Y), {"keep_constant": True}),
    "validation in memory": ((X, Y), {"validation": (X, Y)}),
    "this sample_weight": ((X, Y), {"sample_weight": np.ones(ROWS)}),
    "this group": ((X, Y), {"group": np.arange(ROWS) // 3}),
    "this time_column": ((X, Y), {"time_column": np.arange(ROWS)}),
    "this target": (TABLE[["age", "price"]].rename(columns={"price": "a,b"}), {"target": "a,b", "spec": "1-1"}),
    "this class_weight": (
        PLAIN.assign(kind=np.where(PLAIN["kind"] == "c", "x,y", "z")),
        {"class_weight": {"x,y": 1.0, "z": 2.0}, "target": "kind"},
    ),
    "start": ((X, Y), {"start": ml.fit("2-3-2", (X, Y), epochs=1, quiet=True).model}),
    "a loss function": ((X, Y), {"loss": lambda z, y: (z[:, 0] - y) ** 2}),
    "classes and a loss function": (
        (X, Y),
        {"loss": lambda z, y: (z[:, 0] - y) ** 2, "classes": [0, 1, 2], "spec": "2-3-3"},
    ),
}


@pytest.mark.parametrize("name", NOT_IN_A_COMMAND)
def test_without_a_command_the_text_says_why(name: str) -> None:
    data, options = NOT_IN_A_COMMAND[name]
    run = ml.fit(options.pop("spec", "2-3-2"), data, epochs=1, quiet=True, **options)
    remedy = case_of(run).train_with("Train with gelu.", spec="2-3:gelu-2")
    assert remedy.command == ""
    assert remedy.text == f"Train with gelu. There is no command, because mlp train has no option for {name}."


def test_a_model_file_has_no_options_to_repeat(tmp_path: Path) -> None:
    ml.fit("4-8-3", "iris", init="zeros", epochs=2, quiet=True, run=tmp_path / "run", report=False)
    (finding,) = ml.check(tmp_path / "run" / "model.safetensors", "iris").findings
    assert finding.remedies[0].command == ""
    assert finding.remedies[0].text.endswith(" There is no command, because the options of the run are unknown.")


def test_a_command_cannot_drop_rows_or_columns() -> None:
    case = case_of(ml.fit("4-3", "iris", epochs=1, quiet=True))
    for name, what in (("drop_columns", "columns"), ("drop_rows", "rows")):
        remedy = case.train_with("Train without them.", **{name: [1]})
        assert (remedy.command, remedy.changes) == ("", {name: [1]})
        assert remedy.text == f"Train without them. There is no command, because mlp train uses all {what}."
