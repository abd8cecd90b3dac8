"""`fit` and `resume`: from a table to a model, in memory and in a folder, whole and interrupted."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import csv

import multilayer as ml
from multilayer.errors import DataError, MultilayerError, OptionError, RunError, SpecError
from multilayer.models.metrics import shown
from multilayer.models.trained_model import TrainedModel
from multilayer.runs import RunFolder
from multilayer.runs.config import Config, Options
from multilayer.runs.events import Checkpoint, End, EpochEnd, Resume, Start, same
from multilayer.training.fit import Run, fit, resume
from multilayer.training.plan import batch_size
from support.run_folders import unfinished

pytestmark = pytest.mark.filterwarnings("ignore:columns dropped")

FAST: dict[str, Any] = {"recipe": "plain", "engine": "numpy", "epochs": 3, "quiet": True}


def people(rows: int = 120, seed: int = 0) -> pa.Table:
    """Write a table with numbers, categories, missing values, and a target that depends on both."""
    generator = np.random.default_rng(seed)
    age = generator.uniform(18, 80, rows)
    job = generator.choice(["nurse", "clerk", "baker", "pilot"], rows)
    income = np.where(age < 30, 20, 40) + np.where(job == "pilot", 25, 0) + generator.normal(0, 1, rows)
    gaps = np.where(generator.random(rows) < 0.1, None, age.round(1).astype(object))
    return pa.table({"age": list(gaps), "job": job, "income": income.round(2), "rich": income > 45})


@pytest.fixture
def table(tmp_path: Path) -> Path:
    path = tmp_path / "people.csv"
    csv.write_csv(people(), path)
    return path


@pytest.mark.parametrize("engine", ["fused", "numpy", "torch"])
def test_a_table_becomes_a_model(table: Path, tmp_path: Path, engine: str) -> None:
    run = fit(
        None,
        table,
        target="rich",
        run=tmp_path / "run",
        recipe="plain",
        engine=engine,
        epochs=30,
        quiet=True,
        learning_rate=0.01,
    )
    assert run.metrics["accuracy"] > 0.8
    assert run.model is not None
    assert run.path == tmp_path / "run"
    assert run.events[0]["event"] == "start"
    epoch = next(event for event in run.events if event["event"] == "epoch")
    assert {"epoch", "seconds", "loss", "validation_loss", "metrics"} <= epoch.keys()
    loaded = ml.load(tmp_path / "run")
    np.testing.assert_array_equal(loaded.predict(table), run.model.predict(table))
    new = people(50, seed=9).select(["job", "income", "age"])  # other order, no target
    changed = new.set_column(0, "job", pa.array(["astronaut", None, *new["job"].to_pylist()[2:]]))
    with pytest.warns(UserWarning, match="'job': 1 row with 1 value that training did not see"):
        assert loaded.predict(changed).shape == (50,)
    with pytest.warns(UserWarning, match="'job': 1 row"):
        assert loaded.predict_proba(changed).shape == (50, 2)


def test_regression_in_its_own_units(table: Path) -> None:
    run = fit("2+cat(4, 2)-columns-16:tanh-1", table, target="income", **FAST | {"epochs": 60, "learning_rate": 0.01})
    assert run.model is not None
    found = run.model.evaluate(table)
    assert found["r2"] > 0.7
    assert 20 < run.model.predict(table).mean() < 60


def test_several_quantiles(table: Path) -> None:
    run = fit(
        None, table, target="income", loss="quantile(0.1, 0.5, 0.9)", **FAST | {"epochs": 40, "learning_rate": 0.01}
    )
    assert run.model is not None
    assert run.model.spec.d_out == 3
    assert run.model.predict(table).reshape(120, -1).shape == (120, 3)


def test_arrays_in_memory() -> None:
    x = np.random.default_rng(0).normal(size=(80, 3))
    run = fit("3-8:tanh-1", (x, x[:, 0] * x[:, 1]), **FAST | {"epochs": 5})
    assert run.path is None
    assert isinstance(run.log[-1], End)
    assert {event.path for event in run.log if isinstance(event, Checkpoint)} == {""}


def test_the_best_epoch_is_the_model(table: Path) -> None:
    options = {"epochs": 25, "learning_rate": 0.05, "metric": "log_loss", "calibrate": False}
    run = fit(None, table, target="rich", **FAST | options)
    values = [event.metrics["log_loss"] for event in run.log if isinstance(event, EpochEnd)]
    assert run.metrics["log_loss"] == pytest.approx(min(values), rel=1e-12)


def test_without_validation_the_last_epoch_is_the_model(table: Path) -> None:
    run = fit(None, table, target="rich", validation=None, **FAST)
    assert run.metrics == {}
    assert run.model is not None


def test_a_run_is_the_same_in_memory_and_in_a_folder(table: Path, tmp_path: Path) -> None:
    options = FAST | {"epochs": 6, "patience": 3, "average": 0.9}
    memory, folder = (fit(None, table, target="rich", run=where, **options) for where in (None, tmp_path / "run"))
    kept = [replace(e, path="", sha256="") if isinstance(e, Checkpoint) else e for e in folder.log]
    assert any(isinstance(event, Checkpoint) for event in kept)
    assert same(memory.log, kept)
    assert memory.model is not None
    assert folder.model is not None
    memory.model.save(tmp_path / "a.safetensors")
    assert (tmp_path / "a.safetensors").read_bytes() == (tmp_path / "run" / "model.safetensors").read_bytes()


@pytest.mark.parametrize("engine", ["fused", "numpy", "torch"])
def test_reruns_are_byte_identical(table: Path, tmp_path: Path, engine: str) -> None:
    made = []
    for i in range(3):
        fit(
            None,
            table,
            target="rich",
            run=tmp_path / f"run{i}",
            **FAST | {"engine": engine, "threads": 1 if engine == "torch" else None},
        )
        made.append((tmp_path / f"run{i}" / "model.safetensors").read_bytes())
    assert made[0] == made[1] == made[2]


SCRIPT = """
import sys
from multilayer.training.fit import fit
how = {"engine": "numpy", "recipe": "plain", "quiet": True, "checkpoint_every": 7}
fit(None, sys.argv[1], target="rich", run=sys.argv[2], epochs=400, **how)
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGKILL])
def test_a_run_stopped_by_a_signal_resumes_to_the_same_result(
    table: Path, tmp_path: Path, number: signal.Signals
) -> None:
    """Model, log and checkpoints of a stopped and resumed run equal those of an uninterrupted run."""
    options: dict[str, Any] = {"recipe": "plain", "engine": "numpy", "epochs": 40, "quiet": True, "checkpoint_every": 7}
    script = SCRIPT.replace("epochs=400", "epochs=40")
    fit(None, table, target="rich", run=tmp_path / "whole", **options)
    child = subprocess.Popen([sys.executable, "-c", script, str(table), str(tmp_path / "cut")])
    log = tmp_path / "cut" / "events.jsonl"
    while child.poll() is None and (not log.exists() or log.read_bytes().count(b"\n") < 12):
        os.sched_yield()
    child.send_signal(number)
    child.wait(60)
    run = resume(tmp_path / "cut", quiet=True)
    whole, cut = RunFolder.open(tmp_path / "whole"), RunFolder.open(tmp_path / "cut")
    assert run.end.status == "finished"
    assert whole.model.read_bytes() == cut.model.read_bytes()
    assert same(whole.events(), cut.events())
    assert any(isinstance(event, Resume) for event in cut.events())
    names = [sorted(path.name for path in folder.checkpoints.iterdir()) for folder in (whole, cut)]
    assert names[0] == names[1]


def test_resuming_a_finished_run_changes_nothing(table: Path, tmp_path: Path) -> None:
    first = fit(None, table, target="rich", run=tmp_path / "run", **FAST)
    before = {path.name: path.read_bytes() for path in (tmp_path / "run").iterdir() if path.is_file()}
    again = resume(tmp_path / "run", quiet=True)
    assert {path.name: path.read_bytes() for path in (tmp_path / "run").iterdir() if path.is_file()} == before
    assert again.metrics == first.metrics
    assert again.model is not None


def test_resuming_a_run_that_was_stopped_early_warns_that_it_is_not_continued(table: Path, tmp_path: Path) -> None:
    run = fit(None, table, target="rich", run=tmp_path / "run", each_epoch=lambda epoch: True, **FAST)
    with pytest.warns(UserWarning, match=r"has ended, .*, so it is returned as it is: .* pass it to ml\.fit as start"):
        again = resume(tmp_path / "run", quiet=True)
    assert again.end == run.end


def test_an_incomplete_log_is_an_error(table: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    fit(None, table, target="rich", run=run, checkpoint_every=2, **FAST)
    (run / "events.jsonl").write_text("")
    with pytest.raises(
        RunError, match=r"events.jsonl is incomplete: it has 0 events, but .* after \d+ events: restore"
    ):
        resume(run, quiet=True)
    (run / "events.jsonl").unlink()
    for _ in range(2):  # the error does not create the file
        with pytest.raises(RunError, match=r"events.jsonl is missing, but there are checkpoints: restore it from a"):
            resume(run, quiet=True)
    shutil.rmtree(run / "checkpoints")
    again = resume(run, quiet=True)
    assert again.end.status == "finished"
    assert [event.notes for event in again.log if isinstance(event, Resume)] == [[]]


def test_missing_checkpoints_are_reported(table: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    first = fit(None, table, target="rich", run=run, checkpoint_every=2, **FAST)
    unfinished(run)
    shutil.rmtree(run / "checkpoints")
    again = resume(run, quiet=True)
    event = next(event for event in again.log if isinstance(event, Resume))
    assert (event.step, event.kept) == (0, 0)
    assert event.notes == [f"the log lists checkpoints, but {run / 'checkpoints'} has none: training starts again"]
    assert again.metrics == first.metrics


def test_a_run_on_constant_columns_resumes(tmp_path: Path) -> None:
    x, y = np.ones((40, 2)), np.arange(40) % 2
    first = fit("1-1", (x, y), keep_constant=True, run=tmp_path / "run", **FAST)
    unfinished(tmp_path / "run")
    again = resume(tmp_path / "run", data=(x, y), quiet=True)
    assert first.model is not None
    assert again.model is not None
    assert again.model.predict(x).tolist() == first.model.predict(x).tolist()


def test_resuming_with_other_data_is_an_error(table: Path, tmp_path: Path) -> None:
    fit(None, table, target="rich", run=tmp_path / "run", **FAST)
    unfinished(tmp_path / "run")
    csv.write_csv(people(seed=4), table)
    with pytest.raises(RunError, match=r"the data differs from the training data of"):
        resume(tmp_path / "run", quiet=True)


def test_data_in_memory_must_be_passed_again(tmp_path: Path) -> None:
    x = np.random.default_rng(0).normal(size=(60, 2))
    data = (x, x.sum(1))
    fit("2-1", data, run=tmp_path / "run", **FAST)
    unfinished(tmp_path / "run")
    with pytest.raises(RunError, match="was trained on data in memory: pass it again"):
        resume(tmp_path / "run", quiet=True)
    assert resume(tmp_path / "run", data=data, quiet=True).end.status == "finished"


def test_validation_data_in_memory_may_be_passed_as_a_file(table: Path, tmp_path: Path) -> None:
    validation = tmp_path / "validation.csv"
    csv.write_csv(people(seed=4), validation)
    fit(None, table, target="income", validation=csv.read_csv(validation), run=tmp_path / "run", **FAST)
    unfinished(tmp_path / "run")
    with pytest.raises(RunError, match="was validated on data in memory: pass it again"):
        resume(tmp_path / "run", quiet=True)
    assert resume(tmp_path / "run", validation=str(validation), quiet=True).end.status == "finished"


def test_repr_of_a_run_and_its_model(table: Path, tmp_path: Path) -> None:
    run = fit("3+cat(4)-columns-4:tanh-1", table, target="rich", run=tmp_path / "run", **FAST | {"epochs": 1})
    values = ", ".join(f"{name} {value:.4g}" for name, value in shown(run.metrics).items())
    assert repr(run) == f"Run({tmp_path / 'run'}: finished after 1 epoch, {values})"
    described = "binary classification of 'rich': False or True"
    assert (
        repr(run.model)
        == f"TrainedModel(3+cat(4)-columns-4:tanh-1, {run.model.spec.n_parameters} parameters: {described})"
    )
    assert repr(Run()) == "Run(in memory: not ended)"


def test_an_empty_path_is_an_error(table: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(table.parent)
    with pytest.raises(RunError, match="needs the path of a new or empty folder, got an empty string"):
        fit(None, table, target="rich", run="", **FAST)
    with pytest.raises(RunError, match=f"a new run needs a new or empty folder, .* has {table.name}"):
        fit(None, table, target="rich", run=".", **FAST)
    assert [path.name for path in table.parent.iterdir()] == [table.name]


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"epoch": 3}, OptionError, "fit: unknown option 'epoch': did you mean 'epochs'"),
        ({"epochs": 0}, OptionError, "epochs must be positive, got 0"),
        ({"epochs": 1.5}, OptionError, "epochs must be a whole number, got 1.5"),
        ({"optimizer": "adm"}, OptionError, "did you mean 'adam'"),
        ({"schedule": "cosin"}, OptionError, "did you mean 'cosine'"),
        ({"validation": 1.5}, OptionError, "validation must be a fraction between 0 and 1, got 1.5"),
        ({"on_spike": "rollbak"}, OptionError, "did you mean 'rollback'"),
        ({"metric": "acuracy"}, OptionError, "did you mean 'accuracy'"),
        ({"metric": "rmse"}, OptionError, "rmse does not fit a binary task"),
        ({"target": "ritch"}, DataError, "rich"),
        ({"spec": "7-1"}, SpecError, "but the network takes 7 numbers"),
        ({"spec": "9+cat(2)-6-3"}, SpecError, r"categories of 2 values: write spec='3\+cat\(4\)-columns-6-1'"),
        ({"spec": "9-6:tanh-3"}, SpecError, r"takes 9 numbers: write spec='3\+cat\(4\)-columns-6:tanh-1'"),
        ({"spec": "3+cat(4)-3"}, SpecError, r"but the network has 3: write spec='3\+cat\(4\)-columns-1'"),
        ({"run": "/proc/nothing"}, MultilayerError, "/proc/nothing"),
    ],
)
def test_invalid_input_is_one_clear_error(table: Path, options: dict[str, Any], error: type, message: str) -> None:
    given: dict[str, Any] = {"target": "rich", "spec": None, **FAST, **options}
    with pytest.raises(error, match=message):
        fit(given.pop("spec"), table, **given)


def test_options_are_the_fields_of_the_configuration() -> None:
    assert set(Options.__annotations__) == {field.name for field in fields(Config)}
    assert Config.from_dict(Config(epochs=3).to_dict()) == Config(epochs=3)
    with pytest.raises(OptionError, match="the configuration: unknown option 'epoch': did you mean 'epochs'"):
        Config.from_dict({"epoch": 3})


def test_options_may_be_numpy_numbers_or_the_string_none(table: Path, tmp_path: Path) -> None:
    numbers: dict[str, Any] = {"epochs": np.int64(2), "learning_rate": np.float32(0.5), "compile": np.bool_(False)}
    config = Config(**numbers, validation=np.float32(0.25))
    assert config == Config(epochs=2, learning_rate=0.5, validation=0.25)
    assert {type(value) for value in config.to_dict().values()} <= {int, float, str, bool, type(None)}
    with pytest.raises(OptionError, match=r"epochs must be a whole number, got 2\.5"):
        Config(epochs=np.float64(2.5))  # type: ignore[arg-type]
    (tmp_path / "none.toml").write_text('validation = "none"')
    assert Config.from_dict(Config.from_toml(tmp_path / "none.toml")).validation is None
    run = fit(None, table, target="rich", **{**FAST, **numbers, "validation": "none"})
    assert run.metrics == {}
    run = fit(None, table, target="rich", **{**FAST, **numbers, "validation": np.float32(0.25)})
    assert "accuracy" in run.metrics


def test_batches_are_smaller_if_there_are_few_rows() -> None:
    assert [batch_size(rows) for rows in (1, 100, 1_437, 5_000, 10_240, 10**6)] == [16, 16, 32, 64, 256, 256]


def test_the_start_event_describes_the_run(table: Path) -> None:
    start = fit(None, table, target="rich", **FAST).log[0]
    assert isinstance(start, Start)
    assert start.parameters == ml.Spec.parse(start.network).n_parameters
    assert start.config["epochs"] == 3
    assert "numpy" in start.versions
    assert (start.task, start.metric, start.rows, start.held_out, start.dropped) == ("binary", "loss", 96, 24, 0)


def test_the_start_event_reports_dropped_rows() -> None:
    rows = people()
    gaps = rows.set_column(3, "rich", pa.array([None, None, *rows["rich"].to_pylist()[2:]]))
    run = fit(None, gaps, target="rich", **FAST)
    start = run.events[0]
    assert (start["rows"] + start["held_out"], start["dropped"]) == (118, 2)
    assert "2 rows without a target left out" in start["notes"]
    assert tuple(start["notes"]) == run.notes


@pytest.mark.parametrize("kept", [True, False])
def test_every_event_has_its_time_and_epochs_count_from_1(table: Path, tmp_path: Path, kept: bool) -> None:
    before = time.time()
    run = fit(None, table, target="rich", run=tmp_path / "run" if kept else None, batch_size=2, **FAST)
    times = [before, *(event["time"] for event in run.events), time.time()]
    assert times == sorted(times)
    assert [event["epoch"] for event in run.events if event["event"] == "epoch"] == [1, 2, 3]
    assert {event["epoch"] for event in run.events if event["event"] == "progress"} == {2, 3}  # steps 50 and 100 of 144
    assert run.end.epoch == 3
    if kept:
        assert RunFolder.open(tmp_path / "run").events() == run.log


@pytest.mark.parametrize("name", ["xor", "songs"])
def test_xor_and_songs_are_solved_from_every_seed(name: str) -> None:
    solved = 0
    for seed in range(20):
        run = fit(
            "2-8:tanh-1",
            name,
            seed=seed,
            engine="numpy",
            epochs=300,
            batch_size=16,
            learning_rate=0.05,
            validation=None,
            schedule="constant",
            weight_decay=0.0,
            quiet=True,
        )
        assert run.model is not None
        solved += run.model.evaluate(name)["accuracy"] == 1.0
    assert solved == 20


def test_predicting_imports_no_torch(table: Path, tmp_path: Path) -> None:
    fit(None, table, target="rich", run=tmp_path / "run", **FAST)
    code = "import sys, multilayer as ml; ml.load(sys.argv[1]).predict(sys.argv[2]); assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code, str(tmp_path / "run"), str(table)], check=True)


def test_an_inconsistent_model_file_is_an_error(table: Path, tmp_path: Path) -> None:
    run = fit(None, table, target="rich", **FAST)
    assert run.model is not None
    spec = ml.Spec.parse("9-256:gelu:dropout(0.1)-128:gelu:dropout(0.1)-1")
    other = replace(run.model, members=(replace(run.model.members[0], spec=spec),))
    other.save(tmp_path / "bad.safetensors")
    with pytest.raises(MultilayerError, match=r"must have the shape|does not belong"):
        TrainedModel.load(tmp_path / "bad.safetensors")
