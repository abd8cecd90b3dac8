"""`mlp train`, `resume`, `predict`, `evaluate` and `runs`, from a file to predictions."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import csv, parquet
from typer.testing import CliRunner

import multilayer as ml
from multilayer.cli.main import app
from multilayer.runs.config import Config
from support.run_folders import unfinished

FAST = ["--recipe", "plain", "--engine", "numpy", "--epochs", "3", "--quiet"]


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def mlp(*args: str, code: int = 0) -> str:
    done = CliRunner().invoke(app, list(args))
    assert done.exit_code == code, f"{done.output}\n{done.exception!r}"
    return done.output


def table(path: Path, rows: int = 80) -> Path:
    generator = np.random.default_rng(0)
    x = generator.normal(size=rows)
    kind = generator.choice(["a", "b", "c"], rows)
    csv.write_csv(pa.table({"x": x, "kind": kind, "y": np.where(kind == "a", x, -x) > 0}), path)
    return path


@pytest.mark.parametrize(("target", "rows"), [("y", "x,price\n1,3\n2,6\n"), ("price", "x,y\n1,false\n2,true\n")])
def test_evaluating_rows_without_a_target_is_an_error(here: Path, target: str, rows: str) -> None:
    """The target column is empty or missing, for classes and for numbers."""
    x = np.arange(80.0)
    csv.write_csv(pa.table({"x": x, "y": x % 2 > 0, "price": 3 * x}), here / "t.csv")
    mlp("train", "t.csv", "--target", target, "--run", "r", *FAST)
    (here / "none.csv").write_text(rows)
    header, *others = rows.splitlines()
    (here / "empty.csv").write_text("\n".join([f"{header},{target}", *(f"{row}," for row in others)]) + "\n")
    for name, message in (("empty.csv", "no row has a target"), ("none.csv", f"the target '{target}' is missing")):
        assert message in " ".join(mlp("evaluate", "r", name, code=2).split())


def test_evaluating_another_table_lists_all_missing_columns(here: Path) -> None:
    table(here / "t.csv")
    mlp("train", "t.csv", "--target", "y", "--run", "r", *FAST)
    (here / "other.csv").write_text("u,v\n1,2\n3,4\n")
    message = "other.csv: the target 'y' and 2 columns of training are missing: 'x', 'kind': pass a table with the"
    assert message in " ".join(mlp("evaluate", "r", "other.csv", code=2).split())


def test_from_a_file_to_predictions(here: Path) -> None:
    table(here / "t.csv")
    out = mlp("train", "t.csv", "--target", "y", *FAST)
    assert "task: binary classification of 'y'" in out
    assert "on held-out rows: accuracy" in out
    assert "model: runs/t-001/model.safetensors" in " ".join(out.split())
    found = mlp("predict", "runs/t-001", "t.csv").splitlines()
    assert found[0] == '"y"'
    assert len(found) == 81
    mlp("predict", "runs/t-001", "t.csv", "--proba", "--out", "p.parquet")
    answers = parquet.read_table(here / "p.parquet")
    assert answers.column_names == ["y", "y=False", "y=True"]
    assert json.loads(mlp("evaluate", "runs/t-001", "t.csv", "--json"))["accuracy"] <= 1
    assert "accuracy" in mlp("evaluate", "runs/t-001/model.safetensors", "t.csv")
    mlp("train", "t.csv", "--target", "y", *FAST, "--seed", "1")
    listed = json.loads(mlp("runs", "--json"))
    assert {run["run"] for run in listed} == {"runs/t-001", "runs/t-002"}
    assert [run["metrics"]["accuracy"] for run in listed] == sorted(
        (r["metrics"]["accuracy"] for r in listed), reverse=True
    )
    assert "runs/t-002" in mlp("runs", "runs/t-002")


def test_options_of_the_command_override_those_of_the_file(here: Path) -> None:
    (here / "c.toml").write_text('epochs = 2\nengine = "numpy"\nbatch_size = 8\n')
    mlp("train", "iris", "--config", "c.toml", "--epochs", "1", "--quiet")
    saved = json.loads((here / "runs" / "iris-001" / "config.json").read_text())
    chosen = saved["config"]["config"] if "config" in saved["config"] else saved["config"]
    assert (chosen["epochs"], chosen["batch_size"]) == (1, 8)


def test_automatic_choices_are_saved(here: Path) -> None:
    mlp("train", "iris", *FAST)
    chosen = json.loads((here / "runs" / "iris-001" / "config.json").read_text())["config"]["effective"]
    assert (chosen["task"], chosen["loss"], chosen["batch_size"]) == ("multiclass", "cross_entropy", 16)
    assert (chosen["rows"], chosen["validation_rows"]) == (120, 30)


def test_notes_name_options_as_on_the_command_line(here: Path) -> None:
    table(here / "t.csv", rows=9)
    out = mlp("train", "t.csv", *FAST, "--epochs", "1")
    assert "data: target: 'y' (by its name; --target … overrides)" in out
    assert "(inferred; --task … overrides)" in out
    assert "9 rows are fewer than 10 (--validation 0.2 overrides)" in out
    assert "after 1 epoch and 1 step" in out


def test_every_field_is_an_option() -> None:
    text = mlp("train", "--help")
    for name in Config.__dataclass_fields__:
        assert "--" + name.replace("_", "-") in text


def test_help_shows_the_defaults_for_tables() -> None:
    text = " ".join(mlp("train", "--help").replace("│", " ").split())
    for default in (
        "256 for tables, otherwise auto",
        "0.04 or 0.2 or 0.02 for tables, otherwise auto",
        "none for tables, otherwise auto",
        "yes for tables, otherwise auto",
        "4 for tables, otherwise 1",
        "ignore for tables, otherwise rollback",
        "0.02 for tables, otherwise 0.1",
        "default of the task. [default: loss]",
    ):
        assert default in text
    assert "otherwise none]" not in text.replace("columns.bias=0.1 for tables, otherwise none]", "")


def test_network_options_of_the_recipe_work_as_in_the_estimator(here: Path) -> None:
    import pandas as pd

    import multilayer as ml

    table(here / "t.csv")
    quick = ["--target", "y", "--epochs", "2", "--ensemble", "2", "-q"]
    shape = ["--hidden", "16,16", "--activation", "gelu,relu", "--dropout", "0.1"]
    mlp("train", "t.csv", "--run", "r", *quick, *shape)
    mlp("train", "t.csv", "--run", "w", *quick, "--hidden", "16,16")
    frame = pd.read_csv(here / "t.csv")
    for run, options in (("w", {}), ("r", {"activation": ("gelu", "relu"), "dropout": 0.1})):
        model = ml.MLPClassifier(hidden=(16, 16), epochs=2, ensemble=2, random_state=0, **options)
        ours = model.fit(frame.drop(columns="y"), frame["y"]).model_.tensors
        theirs = ml.load(here / run).tensors
        assert {n: v.tobytes() for n, v in theirs.items()} == {n: v.tobytes() for n, v in ours.items()}
    log = here / "r" / "events.jsonl"
    log.write_text("".join(log.read_text().splitlines(keepends=True)[:-1]))
    whole = (here / "r" / "model.safetensors").read_bytes()
    mlp("resume", "r", "-q")
    assert (here / "r" / "model.safetensors").read_bytes() == whole
    for more, message in (
        (
            ["--arch", "2-4-1", "--hidden", "4", "--dropout", "0"],
            "--hidden and --dropout can only change the recipe's network, got a network too: write --arch",
        ),
        (["--recipe", "plain", "--hidden", "4"], "got --recipe plain too: omit one of them"),
        (["--hidden", "4,a"], "--hidden must be widths such as 128,128, got '4,a'"),
    ):
        assert message in " ".join(mlp("train", "t.csv", *quick, *more, code=2).split())
    assert "--hidden apply to tables, got images: write the network, --arch …" in " ".join(
        mlp("train", "digits", "--hidden", "4", code=2).split()
    )


BAD = {
    "engine": "fast",
    "optimizer": "adm",
    "loss": "mze",
    "learning_rate": "-1",
    "schedule": "wavy",
    "weight_decay": "-1",
    "decay_schedule": "wavy",
    "dropout_schedule": "cosine(warmup=1.5)",
    "l2": "-1",
    "clip_norm": "0",
    "clip_value": "-2",
    "average": "1",
    "batch_size": "0",
    "epochs": "0",
    "epoch_rows": "0",
    "validation": "1.5",
    "metric": "accurcy",
    "patience": "0",
    "time_limit": "0",
    "on_spike": "explode",
    "rollbacks": "-1",
    "augment": "nois",
    "task": "multi",
    "class_weight": "balance",
    "init": "hee",
    "scaling": "big",
    "ensemble": "0",
    "rates": "bias",
    "seed": "-1",
    "dtype": "float8",
    "device": "gpu",
    "threads": "0",
    "checkpoint_every": "0",
    "statistics_every": "0",
}
WORDS = {"metric": "metric", "augment": "augmentation", "task": "task"}
"""Words for these options in messages."""


@pytest.mark.parametrize(("name", "value"), BAD.items())
def test_an_invalid_value_is_an_error_that_names_the_option(here: Path, name: str, value: str) -> None:
    option = "--" + name.replace("_", "-")
    out = " ".join(mlp("train", "iris", "--recipe", "plain", option, value, code=2).split())
    assert re.match(rf"error: (unknown )?{WORDS.get(name, option)}[ :]", out)
    assert "_" not in re.split(" valid: | nearest of ", out)[0]


def test_every_option_with_a_value_has_an_invalid_one() -> None:
    assert set(BAD) | {"calibrate", "compile"} == set(Config.__dataclass_fields__)


def test_an_unsupported_option_of_the_fused_engine_is_an_error(here: Path) -> None:
    out = " ".join(mlp("train", "iris", *FAST, "--engine", "fused", "--compile", code=2).split())
    assert "got --compile: use --engine torch for it" in out


@pytest.mark.parametrize(
    ("hidden", "engine"),
    [
        ("kan(4)", "torch engine (kan1 has no kernel in the fused engine)"),
        ("4:apl", "torch engine (apl1 has no kernel in the fused engine)"),
        ("4", "fused engine"),
    ],
)
def test_the_reason_for_the_torch_engine_is_printed(here: Path, hidden: str, engine: str) -> None:
    out = mlp("train", "iris", "--arch", f"4-{hidden}-3", "--epochs", "1")
    assert f" · 120 rows · {engine}\n" in out


def test_a_run_folder_named_like_its_data(here: Path) -> None:
    mlp("train", "iris", "--run", "iris", *FAST)
    log = here / "iris" / "events.jsonl"
    log.write_text("".join(log.read_text().splitlines(keepends=True)[:-1]))
    whole = (here / "iris" / "model.safetensors").read_bytes()
    mlp("resume", "iris", "-q")
    assert (here / "iris" / "model.safetensors").read_bytes() == whole
    assert len(mlp("predict", "iris", "iris").splitlines()) == 151
    mlp("train", "iris", *FAST)
    assert json.loads((here / "runs/iris-001/config.json").read_text())["config"]["data"]["path"] == "iris"


def test_a_run_on_a_bundled_data_set_ignores_a_new_file_of_that_name(here: Path) -> None:
    mlp("train", "iris", "--run", "r", *FAST)
    table(here / "iris")
    mlp("resume", "r", "-q")
    assert "iris: unknown kind of file" in mlp("train", "iris", *FAST, code=2)


def test_events_as_json_lines(here: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "multilayer", "train", "iris", "--json", *FAST[:-1]],
        capture_output=True,
        text=True,
        check=True,
    )
    events = [json.loads(line) for line in done.stdout.splitlines()]
    assert events[0]["event"] == "start"
    assert events[-1]["event"] == "end"
    assert [event["epoch"] for event in events if event["event"] == "epoch"] == [1, 2, 3]
    assert {event["event"] for event in events} == {"start", "epoch", "checkpoint", "end"}
    assert all(event["time"] for event in events)
    assert (events[0]["task"], events[0]["held_out"], events[0]["dropped"]) == ("multiclass", 30, 0)
    assert any(note.startswith("30 of 150 rows held out") for note in events[0]["notes"])


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130), (signal.SIGHUP, 129)])
def test_a_signal_saves_the_run_and_sets_the_exit_code(here: Path, number: signal.Signals, code: int) -> None:
    command = [
        sys.executable,
        "-m",
        "multilayer",
        "train",
        "iris",
        "--engine",
        "numpy",
        "--epochs",
        "100000",
        "--run",
        "r",
        "--quiet",
    ]
    child = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    log = here / "r" / "events.jsonl"
    while child.poll() is None and (not log.exists() or log.read_bytes().count(b"\n") < 5):
        os.sched_yield()
    child.send_signal(number)
    out, _ = child.communicate(timeout=60)
    assert child.returncode == code
    assert "to continue: mlp resume r" in " ".join(out.split())
    assert '"interrupted"' in log.read_text()


def test_a_run_is_replayed_into_tensorboard(here: Path) -> None:
    mlp("train", "iris", *FAST)
    assert "logged runs/iris-001 to tensorboard" in mlp("runs", "log", "runs/iris-001", "--to", "tensorboard")


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["train", "nothing.csv", "--target", "y"], "nothing.csv"),
        (["train", "digit"], "digits"),
        (["train", "t.csv", "--target", "z"], "z"),
        (["train", "t.csv", "--target", "y", "--optimizer", "adm"], "did you mean 'adam'"),
        (["train", "t.csv", "--target", "y", "--arch", "9-1"], "but the network takes 9 numbers"),
        (["train", "t.csv", "--target", "y", "--config", "no.toml"], "cannot read no.toml"),
        (["train", "t.csv", "--target", "y", "--group", "y"], "group must not be the target, got 'y'"),
        (["train", "t.csv", "--target", "y", "--time-column", "y"], "time-column must not be the target, got 'y'"),
        (["train", "t.csv", "--target", "y", "--sample-weight", "y"], "sample-weight must not be the target"),
        (["resume", "nowhere"], "there is no run at nowhere"),
        (
            ["predict", "t.csv", "t.csv"],
            "t.csv: not a model file but text, such as a table: pass a .safetensors file or the",
        ),
        (["train", "t.csv", "--target", "Y"], "unknown column 'Y': did you mean 'y'?"),
        (["train", "t.csv", "--epoch", "3"], "unknown option --epoch of mlp train: did you mean --epochs?"),
        (["train", "t.csv", "--lr", "0.1"], "unknown option --lr of mlp train: did you mean --learning-rate?"),
        (["train", "t.csv", "--target", "y", "--arch", "1-8:gleu-1"], "did you mean 'gelu'?"),
        (["train", "t.csv", "--target", "y", "--metric", "los"], "did you mean 'loss'? valid: accuracy, auc,"),
        (["train", "t.csv", "--target", "y", "--metric", "r2"], "r2 does not fit a binary task: it has accuracy,"),
        (["train", "nameless.csv"], "nameless.csv: name the target: --target …, one of 'a', 'b'"),
        (
            ["train", "t.csv", "--target", "y", "--arch", "9+cat(4)-1"],
            "1 number and categories of 3 values after encoding, but the network takes 9 numbers and categories of 4",
        ),
        (
            ["train", "t.csv", "--target", "y", "--arch", "1+cat(3)-columns-3"],
            "need 1 output, or 2 with cross_entropy, but the network has 3: write --arch '1+cat(3)-columns-1'",
        ),
        (["predict", "nowhere", "t.csv"], "nowhere"),
        (["predict", "m", "t.csv", "--out", "x.txt"], "--out must end in .csv or .parquet, got x.txt"),
        (["runs", "nowhere"], "there is no run at nowhere"),
        (["runs", "log", "nowhere"], "mlp runs log needs a run and a tracker"),
        (["runs", "--to", "wandb"], "--to can only be used with log"),
    ],
)
def test_bad_input_is_one_clear_error(here: Path, args: list[str], message: str) -> None:
    table(here / "t.csv")
    (here / "nameless.csv").write_text("a,b\n1,2\n3,4\n")
    before = sorted(path.name for path in here.iterdir())
    out = mlp(*args, code=2)
    assert "Traceback" not in out
    assert message in " ".join(out.split())
    assert sorted(path.name for path in here.iterdir()) == before


def test_resume_warns_of_damaged_checkpoints_with_quiet_too(here: Path) -> None:
    table(here / "t.csv")
    mlp("train", "t.csv", "--target", "y", "--run", "r", "--checkpoint-every", "2", *FAST)
    log = here / "r" / "events.jsonl"
    log.write_text("".join(log.read_text().splitlines(keepends=True)[:-1]))
    newest = max((here / "r" / "checkpoints").glob("*-last-*.safetensors"))
    newest.write_bytes(newest.read_bytes()[:-1])
    done = CliRunner().invoke(app, ["resume", "r", "-q"])
    assert done.exit_code == 0, done.output
    assert re.search(r"^warning: the last checkpoint of step \d+ was skipped: ", done.stderr)
    assert "warning" not in done.stdout


def test_runs_of_other_data_and_tasks_are_not_ranked_together(here: Path) -> None:
    table(here / "t.csv")
    for args in (["t.csv", "--target", "y"], ["diabetes"], ["iris"], ["iris", "--metric", "log_loss"]):
        mlp("train", *args, *FAST)
    mlp("train", "iris", *FAST, "--epochs", "1")
    listed = json.loads(mlp("runs", "--json"))
    assert [(run["data"], run["task"], run["metric"]) for run in listed] == [
        ("diabetes", "regression", "loss"),
        ("iris", "multiclass", "log_loss"),
        ("iris", "multiclass", "loss"),
        ("iris", "multiclass", "loss"),
        ("t.csv, y", "binary", "loss"),
    ]
    assert listed[2]["metrics"]["log_loss"] <= listed[3]["metrics"]["log_loss"]
    shown = mlp("runs").splitlines()
    headings = [line for line in shown if " · " in line]
    assert headings == [
        "diabetes · regression · best by loss",
        "iris · multiclass · best by log_loss",
        "iris · multiclass · best by loss",
        "t.csv, y · binary · best by loss",
    ]
    assert "rmse" not in "".join(shown[shown.index(headings[1]) :])


def test_runs_selected_by_loss_are_ranked_by_log_loss_not_by_accuracy(here: Path) -> None:
    mlp("train", "iris", *FAST, "--seed", "1")
    mlp("train", "iris", *FAST, "--seed", "2")
    logs = [path / "events.jsonl" for path in sorted((here / "runs").iterdir())]
    for log, accuracy, log_loss in zip(logs, (0.9, 0.8), (0.7, 0.3), strict=True):
        *others, end = log.read_text().splitlines()
        changed = json.loads(end) | {"metrics": {"accuracy": accuracy, "log_loss": log_loss}}
        log.write_text("\n".join([*others, json.dumps(changed)]) + "\n")
    assert [run["metrics"]["log_loss"] for run in json.loads(mlp("runs", "--json"))] == [0.3, 0.7]


def test_a_damaged_run_does_not_hide_the_others(here: Path) -> None:
    for name in ("a", "b", "c"):
        mlp("train", "iris", *FAST, "--run", f"runs/{name}")
    (here / "runs" / "a" / "events.jsonl").write_text("{}\n")
    (here / "runs" / "b" / "config.json").write_text("{")
    done = CliRunner().invoke(app, ["runs"])
    assert done.exit_code == 0
    assert "runs/c" in done.stdout
    assert "runs/a" not in done.stdout
    lines = done.stderr.splitlines()
    assert [line.split(":")[:2] for line in lines] == [
        ["warning", " runs/a/events.jsonl, line 1"],
        ["warning", " runs/b/config.json"],
    ]
    found = json.loads(CliRunner().invoke(app, ["runs", "--json"]).stdout)
    assert [(run["run"], run["status"]) for run in found] == [
        ("runs/c", "finished"),
        ("runs/a", "damaged"),
        ("runs/b", "damaged"),
    ]
    named = CliRunner().invoke(app, ["runs", "runs/a", "runs/c"])
    assert (named.exit_code, "runs/c" in named.stdout) == (2, True)


def test_a_folder_of_runs_lists_the_runs_in_it(here: Path) -> None:
    for name in ("a", "b"):
        mlp("train", "iris", *FAST, "--run", f"tries/{name}")
    assert {run["run"] for run in json.loads(mlp("runs", "tries", "--json"))} == {"tries/a", "tries/b"}
    assert [run["run"] for run in json.loads(mlp("runs", "tries/a", "--json"))] == ["tries/a"]
    (here / "empty").mkdir()
    assert "empty is not a run: it has no config.json" in mlp("runs", "empty", code=2)


def test_class_weights_as_text_are_those_of_a_mapping(here: Path) -> None:
    table(here / "t.csv")
    mlp("train", "t.csv", "--target", "y", *FAST, "--class-weight", "true=3, false=0.5", "--run", "w")
    assert json.loads((here / "w" / "config.json").read_text())["config"]["config"]["class_weight"] == {
        "true": 3.0,
        "false": 0.5,
    }


@pytest.mark.parametrize("text", ["yes", "yes=", "=2", "yes=2,yes=3", "yes=two", "yes=2,", ""])
def test_class_weights_that_cannot_be_read(here: Path, text: str) -> None:
    table(here / "t.csv")
    out = mlp("train", "t.csv", "--target", "y", "--class-weight", text, code=2)
    message = f"--class-weight must be balanced, or each class once with its weight, such as yes=2,no=1, got {text!r}"
    assert message in " ".join(out.split())


@pytest.mark.parametrize(
    ("out", "message"),
    [
        ("r.pt", "--out must end in .onnx, got r.pt: for a PyTorch module, use ml.to_torch in Python"),
        ("r.safetensors", "--out must end in .onnx, got r.safetensors"),
        ("r", "--out must end in .onnx, got r"),
    ],
)
def test_an_export_needs_the_suffix_of_its_format(here: Path, out: str, message: str) -> None:
    assert message in " ".join(mlp("export", "model.safetensors", "--out", out, code=2).split())
    assert not (here / out).exists()


def test_no_runs_yet(here: Path) -> None:
    assert "no runs in ./runs yet" in mlp("runs")


def test_proba_of_a_regressor_is_an_error(here: Path) -> None:
    mlp("train", "diabetes", *FAST)
    assert "--proba needs a classifier" in mlp("predict", "runs/diabetes-001", "diabetes", "--proba", code=2)


def test_a_run_that_diverges_exits_with_1_and_leaves_a_model_with_finite_metrics(here: Path) -> None:
    wild = ["--optimizer", "sgd", "--learning-rate", "1e30", "--schedule", "constant", "--run", "wild"]
    assert "not finite" in mlp("train", "diabetes", "-q", *wild, code=1)
    metrics = json.loads(mlp("evaluate", "wild", "diabetes", "--json"))
    assert all(np.isfinite(list(metrics.values())))


def test_an_unfinished_run_is_listed_with_the_seconds_of_its_epochs(here: Path) -> None:
    ml.fit("4-3", "iris", epochs=3, quiet=True, run=here / "runs" / "cut")
    unfinished(here / "runs" / "cut")
    (listed,) = json.loads(mlp("runs", "--json"))
    assert listed["status"] == "unfinished"
    assert listed["seconds"] > 0
