"""Symbolic links, pipes and devices in an untrusted run folder do not redirect reads or writes."""

from __future__ import annotations

import json
import os
import shutil
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import multilayer as ml
from multilayer.cli.main import app
from multilayer.core import atomic_files
from multilayer.errors import MultilayerError, RunError, StorageError
from multilayer.pages.report.live import Log
from multilayer.runs import RunFolder
from support.run_folders import unfinished

SECRET = b"a file of somebody else\n"
OPTIONS: Any = {"epochs": 3, "quiet": True, "checkpoint_every": 5}
FILES = (".lock", "config.json", "events.jsonl", "model.safetensors", "report.json", "report.html")


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    x = np.random.default_rng(0).normal(size=(80, 2))
    path = tmp_path_factory.mktemp("data") / "t.csv"
    path.write_text("a,b,y\n" + "".join(f"{a:.3f},{b:.3f},{'yes' if a > b else 'no'}\n" for a, b in x))
    return path


@pytest.fixture(scope="module")
def finished(table: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("runs") / "run"
    ml.fit("2-4-1", table, target="y", run=path, **OPTIONS)
    return path


@pytest.fixture
def run(finished: Path, tmp_path: Path) -> Path:
    return shutil.copytree(finished, tmp_path / "run")


@pytest.fixture
def target(tmp_path: Path) -> Path:
    path = tmp_path / "elsewhere" / "target"
    path.parent.mkdir()
    path.write_bytes(SECRET)
    return path


@pytest.fixture(autouse=True)
def _no_hook() -> Iterator[None]:
    yield
    atomic_files.hook = None


def mlp(*words: Any) -> Any:
    return CliRunner().invoke(app, [str(word) for word in words])


def link(path: Path, target: Path) -> None:
    path.unlink(missing_ok=True)
    path.symlink_to(target)


def untouched(target: Path) -> bool:
    return target.read_bytes() == SECRET and os.listdir(target.parent) == [target.name]


def refused(done: Any, name: str) -> None:
    """Expect one error that names the link and says what to do."""
    assert done.exit_code == 2, done.output
    assert "Traceback" not in done.output
    output = " ".join(done.output.split())
    assert name in output.replace(" ", ""), output
    assert "is a symbolic link" in output
    assert "delete it" in output


def checkpoint_names(run: Path) -> list[str]:
    return [f"checkpoints/{name}" for name in sorted(os.listdir(run / "checkpoints"))]


@pytest.mark.parametrize("ended", [True, False], ids=["finished", "killed"])
def test_resuming_a_run_with_a_link_in_its_folder(run: Path, target: Path, ended: bool) -> None:
    if not ended:
        unfinished(run)
    for name in (*FILES, *checkpoint_names(run)):
        whole = (run / name).read_bytes()
        link(run / name, target)
        refused(mlp("resume", run, "--quiet"), name)
        with pytest.raises(StorageError, match="is a symbolic link"):
            ml.resume(run, quiet=True)
        assert untouched(target), name
        (run / name).unlink()
        (run / name).write_bytes(whole)
    assert mlp("resume", run, "--quiet").exit_code == 0


def test_making_the_report_of_a_run_with_a_link_in_its_folder(run: Path, target: Path) -> None:
    for name in FILES[1:]:
        whole = (run / name).read_bytes()
        link(run / name, target)
        refused(mlp("report", run), name)
        assert untouched(target), name
        (run / name).unlink()
        (run / name).write_bytes(whole)
    link(run / "report.html", target)
    refused(mlp("report", run, "--out", run / "report.html"), "report.html")
    assert untouched(target)


@pytest.mark.parametrize("name", ["checkpoints", "tensorboard"])
def test_resuming_a_run_with_a_folder_that_is_a_link(run: Path, target: Path, name: str) -> None:
    unfinished(run)
    shutil.rmtree(run / name, ignore_errors=True)
    (run / name).symlink_to(target.parent)
    refused(mlp("resume", run, "--quiet", "--track", "tensorboard"), name)
    assert untouched(target)


def test_loading_the_model_of_a_run_that_is_a_link(run: Path, tmp_path: Path) -> None:
    (run / "model.safetensors").rename(tmp_path / "model.safetensors")
    (run / "model.safetensors").symlink_to(tmp_path / "model.safetensors")
    for action in (lambda: ml.load(run), lambda: ml.resume(run, quiet=True)):
        with pytest.raises(StorageError, match=r"model\.safetensors \(ELOOP\): it is a symbolic link"):
            action()
    refused(mlp("runs", "log", run, "--to", "tensorboard"), "model.safetensors")


def test_a_run_opened_through_a_link_of_the_user(run: Path, tmp_path: Path) -> None:
    (tmp_path / "latest").symlink_to(run)
    unfinished(run)
    assert mlp("resume", tmp_path / "latest", "--quiet").exit_code == 0
    assert mlp("report", tmp_path / "latest").exit_code == 0
    assert ml.load(tmp_path / "latest").predict([[1.0, 0.0]]).tolist() == ["yes"]


@pytest.mark.parametrize("live", [False, True], ids=["plain", "live"])
def test_training_into_a_folder_with_a_link_in_it(
    table: Path, tmp_path: Path, target: Path, live: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("webbrowser.open", lambda url: False)
    for name in (".lock", "config.json", "events.jsonl", "checkpoints"):
        folder = tmp_path / f"new{name}"
        folder.mkdir()
        (folder / name).symlink_to(target)
        words = ["train", table, "--target", "y", "--arch", "2-4-1", "--epochs", 1, "--run", folder, "--quiet"]
        done = mlp(*words, *(["--live"] if live else []))
        assert done.exit_code == 2, done.output
        assert name in "".join(done.output.split())
        with pytest.raises(MultilayerError):
            ml.fit("2-4-1", table, target="y", run=folder, **OPTIONS)
        assert untouched(target)


@pytest.mark.parametrize("name", ["tune.json", "study.log"])
def test_a_search_in_a_folder_with_a_link_in_it(table: Path, tmp_path: Path, target: Path, name: str) -> None:
    (tmp_path / "search").mkdir()
    (tmp_path / "search" / name).symlink_to(target)
    refused(mlp("tune", table, "--target", "y", "--run", tmp_path / "search", "--trials", 1, "--quiet"), name)
    assert untouched(target)


def test_showing_a_run_in_a_notebook_whose_report_is_a_link(run: Path, target: Path) -> None:
    done = ml.resume(run, quiet=True)
    assert "iframe" in done._repr_html_()
    link(run / "report.html", target)
    assert "iframe" not in done._repr_html_()


@pytest.mark.parametrize("name", ["model.safetensors", "report.html", "checkpoints"])
def test_a_link_created_while_training_runs_is_not_followed(
    table: Path, tmp_path: Path, target: Path, name: str
) -> None:
    run = tmp_path / "run"

    def swap(now: Any) -> bool:
        if now.epoch == 1:
            if (run / name).exists():
                (run / name).rename(tmp_path / "moved")
            (run / name).symlink_to(target.parent if name == "checkpoints" else target)
        return False

    if name == "report.html":  # a report that cannot be written does not fail the run
        with pytest.warns(UserWarning, match=r"its report could not be written: .*report\.html .*is a symbolic link"):
            ml.fit("2-4-1", table, target="y", run=run, each_epoch=swap, **OPTIONS)
    else:
        with pytest.raises(StorageError, match=rf"{name} \(ELOOP\): it is a symbolic link"):
            ml.fit("2-4-1", table, target="y", run=run, each_epoch=swap, **OPTIONS)
    assert untouched(target)


def test_a_search_with_a_hard_link_a_pipe_or_another_file_as_its_study(
    table: Path, tmp_path: Path, target: Path
) -> None:
    words = ["tune", table, "--target", "y", "--run", tmp_path / "search", "--trials", 1, "--quiet"]
    study = tmp_path / "search" / "study.log"
    study.parent.mkdir()
    study.hardlink_to(target)
    done = mlp(*words)
    assert done.exit_code == 2
    assert "study.log:itisahardlink" in "".join(done.output.split())
    assert target.read_bytes() == SECRET
    study.unlink()
    os.mkfifo(study)
    assert within(20, lambda: mlp(*words)) is None
    assert "study.log:itisnotaregularfile" in "".join(mlp(*words).output.split())
    for text in (SECRET.decode(), "1\n", '{"op_code": 0}\n', "[]\n", '{"op_code": "0", "worker_id": "w"}\n'):
        study.unlink()
        study.write_text(text)
        done = mlp(*words)
        assert done.exit_code == 2, done.output
        assert "study.logisnotatrialsfileofasearch" in "".join(done.output.split())


@pytest.mark.parametrize("name", [".lock", "events.jsonl"])
def test_resuming_a_run_with_a_hard_link_to_another_file(run: Path, target: Path, name: str) -> None:
    unfinished(run)
    (run / name).unlink()
    (run / name).hardlink_to(target)
    with pytest.raises(StorageError, match=rf"cannot open .*{name}: it is a hard link.*replace it by a copy"):
        ml.resume(run, quiet=True)
    assert target.read_bytes() == SECRET


def within(seconds: float, action: Callable[[], Any]) -> BaseException | None:
    """Return the exception that an action raised. It must end within the given seconds."""
    raised: list[BaseException] = []

    def act() -> None:
        try:
            action()
        except BaseException as error:
            raised.append(error)

    thread = threading.Thread(target=act, daemon=True)
    thread.start()
    thread.join(seconds)
    assert not thread.is_alive(), "it hangs"
    return raised[0] if raised else None


@pytest.mark.parametrize("name", FILES)
def test_a_pipe_or_a_device_in_a_run_folder_does_not_hang(run: Path, name: str) -> None:
    unfinished(run)
    (run / name).unlink()
    os.mkfifo(run / name)
    actions: dict[str, Callable[[], Any]] = {
        "resume": lambda: ml.resume(run, quiet=True),
        "report": lambda: mlp("report", run),
        "runs": lambda: mlp("runs", run),
        "load": lambda: ml.load(run),
        "live": lambda: Log(run / name).look(),
    }
    for what, action in actions.items():
        error = within(20, action)
        assert error is None or isinstance(error, MultilayerError | UserWarning), (what, error)
    assert isinstance(within(20, actions["live"]), StorageError)
    link(run / ".lock", Path("/dev/null"))
    assert isinstance(within(20, actions["resume"]), StorageError)


# Edited files and files of another run


def edited(run: Path, change: Callable[[dict[str, Any]], Any]) -> None:
    about = json.loads((run / "config.json").read_text())
    change(about)
    (run / "config.json").write_text(json.dumps(about))


def test_resuming_a_run_whose_configuration_was_edited(run: Path) -> None:
    unfinished(run)
    whole = (run / "config.json").read_bytes()
    edited(run, lambda about: about["config"]["config"].update(epochs=5))
    done = mlp("resume", run, "--quiet")
    assert done.exit_code == 2
    assert "config.json was changed after the run began: restore it from a copy" in " ".join(done.output.split())
    edited(run, lambda about: about.pop("sha256"))  # like an old folder, but the log contains the id of the run
    with pytest.raises(RunError, match=r"events\.jsonl is the log of another run"):
        ml.resume(run, quiet=True)
    (run / "config.json").write_bytes(whole)
    edited(run, lambda about: None)  # the same content with another layout
    assert ml.resume(run, quiet=True).end.status == "finished"


def test_resuming_a_run_made_before_its_configuration_had_a_hash(run: Path, finished: Path) -> None:
    unfinished(run)
    edited(run, lambda about: about.pop("sha256"))
    log = [json.loads(line) for line in (run / "events.jsonl").read_text().splitlines()]
    log[0].pop("run")
    (run / "events.jsonl").write_text("".join(json.dumps(event) + "\n" for event in log))
    ml.resume(run, quiet=True)
    assert (run / "model.safetensors").read_bytes() == (finished / "model.safetensors").read_bytes()


def test_resuming_a_run_with_the_checkpoints_of_another(run: Path, table: Path, tmp_path: Path) -> None:
    unfinished(run)
    ml.fit("2-4-1", table, target="y", run=tmp_path / "other", seed=1, **OPTIONS)
    shutil.rmtree(run / "checkpoints")
    shutil.copytree(tmp_path / "other" / "checkpoints", run / "checkpoints")
    before = {path.name: path.read_bytes() for path in run.iterdir() if path.is_file()}
    done = mlp("resume", run, "--quiet")
    assert done.exit_code == 2
    assert "is a checkpoint of another run" in " ".join(done.output.split())
    assert {path.name: path.read_bytes() for path in run.iterdir() if path.is_file()} == before


def test_resuming_a_run_with_the_log_of_another(run: Path, table: Path, tmp_path: Path) -> None:
    ml.fit("2-4-1", table, target="y", run=tmp_path / "other", seed=1, **OPTIONS)
    for path in (tmp_path / "other" / "events.jsonl", tmp_path / "other" / "checkpoints"):
        shutil.rmtree(run / path.name) if path.is_dir() else (run / path.name).unlink()
        shutil.copytree(path, run / path.name) if path.is_dir() else shutil.copy(path, run)
    for command in ("resume", "report", "runs"):
        done = mlp(command, run)
        assert done.exit_code == 2
        assert "events.jsonl is the log of another run, with another config.json" in " ".join(done.output.split())


def test_resuming_a_finished_run_whose_log_lost_its_start(run: Path) -> None:
    """Without its start event, the log does not show which configuration it belongs to."""
    (run / "events.jsonl").write_text("".join((run / "events.jsonl").read_text().splitlines(keepends=True)[1:]))
    edited(run, lambda about: (about.pop("sha256"), about["config"]["config"].update(epochs=5)))
    with pytest.raises(
        RunError, match=r"events\.jsonl must begin with a start event, got only an end event: restore it"
    ):
        ml.resume(run, quiet=True)


def test_resuming_a_finished_run_with_the_model_of_another_network(run: Path, table: Path) -> None:
    other = ml.fit("2-8-1", table, target="y", **OPTIONS).model
    assert other is not None
    other.save(run / "model.safetensors")
    with pytest.raises(RunError, match=r"model\.safetensors must contain the network 2-4-1, got 2-8-1: restore it"):
        ml.resume(run, quiet=True)


# A deleted model file


@pytest.mark.parametrize(
    "options",
    [{}, {"validation": None}, {"ensemble": 2, "calibrate": True}, {"validation": None, "checkpoint_every": 4}],
    ids=["best epoch", "last epoch", "ensemble", "between checkpoints"],
)
def test_resuming_a_finished_run_rebuilds_its_model_file(table: Path, tmp_path: Path, options: Any) -> None:
    run = tmp_path / "run"
    ml.fit("2-4-1", table, target="y", run=run, **OPTIONS | options)
    before = {path.name: path.read_bytes() for path in run.iterdir() if path.suffix in (".safetensors", ".jsonl")}
    (run / "model.safetensors").unlink()
    with pytest.raises(RunError, match=rf"{run} has no model.safetensors: `mlp resume {run}` finishes .* or rebuilds"):
        ml.load(run)
    reported = mlp("report", run)
    assert reported.exit_code == 0
    assert "or rebuilds the file" in " ".join(reported.output.split())
    assert mlp("resume", run, "--quiet").exit_code == 0
    assert {path.name: path.read_bytes() for path in run.iterdir() if path.name in before} == before


def test_rebuilding_a_model_file_without_its_checkpoint(run: Path) -> None:
    (run / "model.safetensors").unlink()
    for path in (run / "checkpoints").glob("*-best-*"):
        path.write_bytes(b"")
    with pytest.raises(RunError, match="no valid best checkpoint"):
        ml.resume(run, quiet=True)
    shutil.rmtree(run / "checkpoints")
    with pytest.raises(RunError, match=r"the model cannot be rebuilt without checkpoints/.*: restore it from a copy"):
        ml.resume(run, quiet=True)
    assert not (run / "model.safetensors").exists()
    assert RunFolder.open(run).events()
