"""Common mistakes on the command line: each gives exit code 2 and one line `error: …` that says what to do."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner

import multilayer as ml
from multilayer.cli.main import COMMANDS, app
from multilayer.errors import unknown_name

GOLDEN = Path(__file__).parents[1] / "golden"
ROWS = "".join(f"{i % 7},{i % 5},{'yes' if i % 2 else 'no'}\n" for i in range(40))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("mistakes")
    (path / "t.csv").write_text(f"a,b,y\n{ROWS}")
    (path / "empty.csv").write_text("")
    (path / "empty.json").write_text("")
    (path / "notes.txt").write_text("nothing to see here\n")
    (path / "net.pt").write_bytes(b"PK\x03\x04" + bytes(40))
    (path / "net.onnx").write_bytes(b"\xab")
    (path / "dir").mkdir()
    shutil.copytree(GOLDEN / "run-v1", path / "golden")
    (path / "golden" / ".lock").touch()  # every run has this file; git does not keep it
    ml.fit("2-4-1", path / "t.csv", target="y", epochs=1, quiet=True, run=path / "run")
    return path


NETWORK = ("cost", "show", "init")
MODEL_FIRST = ("predict run", "evaluate run")

MISTAKES = [
    # Commands that need a network.
    *((f"{c} {text}", message)
      for c in NETWORK
      for text, message in (
          ("missing.pt", "there is no such file: pass widths such as"),
          ("missing.json", "there is no such file"),
          ("net.pt", "ml.from_torch"),
          ("net.onnx", "net.onnx: not UTF-8 text, byte 0 is 0xab: pass widths such as"),
          ("t.csv", "t.csv is a table, not a network"),
          ("notes.txt", "notes.txt: "),
          ("empty.json", "empty.json: "),
          ("dir", "it is a folder without model.safetensors"),
          ("4-gleu-2", "did you mean 'gelu'? nearest of"),
          ("4-3 5-2", "unexpected extra argument"),
          ("4-3 --jsn", "did you mean --json?"),
          ("4-3 --activation rellu", "did you mean 'relu'?"),
          ("ten", "got 'ten'"),
      )),
    ("cost 4-3 --batch ten", "--batch must be a whole number, got 'ten'"),
    ("cost 4-3 --batch=1.5", "--batch must be a whole number, got '1.5'"),
    ("cost 4-3 --batch", "option '--batch' requires an argument"),
    ("cost 4-3 --memory 2", "memory needs a unit, got '2': write 2GB, 2MB or 2B"),
    ("cost 4-3 --memory lots", "memory must be a quantity such as 2GB"),
    ("cost 4-3 --budget memory=2", "the budget for memory needs a unit"),
    ("cost 4-3 --flops many", "flops must be a quantity such as"),
    ("cost 4-3 --epochs 3", "--epochs needs --rows"),
    ("train iris --time sepal", "unknown option --time of mlp train: did you mean --time-column?"),
    ("train iris --weight sepal", "did you mean --sample-weight?"),
    ("tune iris --weight sepal", "did you mean --sample-weight?"),
    ("train iris --network 4-3", "did you mean --arch?"),
    ("train iris --spec 4-3", "did you mean --arch?"),
    ("cost 4-3 --optimizer adma", "did you mean 'adam'?"),
    ("cost 4-3 --sweep depth=1..4", "unknown sweep 'depth'"),
    ("init 4-3 --scheme hee", "did you mean 'he'?"),
    ("init 4-3 --rows 1", "rows must be at least 2, got 1"),
    ("init 4-3 --seed x", "--seed must be a whole number, got 'x'"),
    ("show 4-3 --out picture.xyz", "must end in .svg"),
    ("activations gleu", "did you mean 'gelu'? nearest of"),
    ("activations --plt out.svg", "did you mean --plot?"),
    ("lab paritty", "unknown experiment 'paritty': did you mean 'parity'?"),
    ("lab parity --seeds many", "--seeds must be a whole number, got 'many'"),
    ("lab parity --seed 3", "unknown option --seed of mlp lab: did you mean --seeds?"),
    # Commands that need a table.
    *((f"{c} {text}", message)
      for c in ("train", "tune", "lr", *MODEL_FIRST)
      for text, message in (
          ("missing.csv", "missing.csv: there is no such file: check the path"),
          ("empty.csv", "empty.csv: the file is empty"),
          ("dir", "dir: a folder must contain"),
          ("run", "got the folder of a run"),
          ("iriss", "did you mean 'iris'?"),
          ("net.pt", "net.pt: "),
      )),
    *((f"{c} t.csv {text}", message)
      for c in ("train", "tune")
      for text, message in (
          ("--target z", "t.csv: unknown column 'z'"),
          ("--target y --group z", "unknown column 'z'"),
          ("--targt y", "did you mean --target?"),
          ("--target y --epochs five", "--epochs must be a whole number, got 'five'"),
          ("--target y --epochs 0", "--epochs must be positive, got 0"),
          ("--target y --metric acuracy", "did you mean 'accuracy'?"),
          ("--target y --loss mes", "did you mean 'mse'?"),
          ("y", "unexpected extra argument"),
      )),
    ("train t.csv --target y --dropout x", "--dropout must be a number, got 'x'"),
    ("train t.csv --target y --arch missing.pt", "there is no such file"),
    ("train t.csv --target y --arch 2-1 --dropout 0.1", "it has no hidden layers, so omit --dropout"),
    ("train t.csv --target y --config missing.toml", "missing.toml"),
    ("train t.csv --target y --recipe tabluar", "did you mean 'tabular'?"),
    ("train t.csv --target y --engine fussed", "did you mean 'fused'?"),
    ("lr t.csv --target z", "t.csv: unknown column 'z'"),
    ("lr t.csv --target y --learning-rate 0.1", "unknown option --learning-rate of mlp lr"),
    ("lr t.csv --target y --share 0", "--share must be above 0 and at most 1, got 0.0"),
    ("lr t.csv --target y --plot lr.txt", "must end in .svg"),
    ("tune t.csv --target y --trials 0", "--trials must be at least 1, got '0'"),
    # Commands that need a model.
    *((f"{c} {text}", message)
      for c in ("export", "explore")
      for text, message in (
          ("t.csv", "t.csv: not a model file but text, such as a table"),
          ("missing.safetensors", "there is no such file or folder"),
          ("dir", "dir"),
          ("net.pt", "never read"),
          ("empty.csv", "not a model file"),
          ("run --otu a", "did you mean --out?"),
      )),
    ("predict t.csv run", "t.csv: not a model file but text, such as a table"),
    ("evaluate t.csv run", "t.csv: not a model file but text, such as a table"),
    ("predict run", "mlp predict needs DATA"),
    ("evaluate run", "mlp evaluate needs DATA"),
    ("check missing", "there is no such file"),
    ("check t.csv", "t.csv: not a model file but text, such as a table"),
    ("check t.csv --fix", "--fix needs the folder of a run"),
    ("predict run t.csv --out a.txt", "--out must end in .csv or .parquet, got a.txt"),
    ("predict run t.csv --probs", "did you mean --proba?"),
    ("export run --to onx", "did you mean 'onnx'?"),
    # Commands that need a run.
    *((f"{c} {text}", message)
      for c in ("resume", "report", "runs")
      for text, message in (
          ("missing", "there is no run at missing: pass the folder of a run"),
          ("t.csv", "there is no run at t.csv"),
          ("dir", "dir"),
          ("empty.csv", "there is no run at empty.csv"),
          ("run --jsno", "unknown option --jsno"),
      )),
    ("report golden", "config.json: spec must be there, as training writes it, got only name, seed: restore it"),
    ("resume golden", "config.json: config, data, fingerprint, spec must be there"),
    ("report run --out a.txt", "--out must end in .html"),
    ("report run --data missing.csv --out a.html", "missing.csv: there is no such file"),
    ("resume run t.csv", "unexpected extra argument"),
    ("runs log run --to tensorbord", "did you mean 'tensorboard'?"),
    # Not a command.
    ("cots 4-3", "unknown command 'cots': did you mean 'cost'?"),
    ("--vesion", "did you mean --version?"),
]  # fmt: skip


@pytest.mark.parametrize(("line", "message"), MISTAKES, ids=[line for line, _ in MISTAKES])
def test_a_mistake_is_one_error_line(line: str, message: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    before = sorted(path.name for path in folder.rglob("*"))
    result = CliRunner().invoke(app, line.split())
    assert result.exit_code == 2, result.output
    assert isinstance(result.exception, SystemExit)
    first, *rest = result.stderr.splitlines()
    assert first.startswith("error: ")
    assert message in first
    assert all(text.startswith("  ") for text in rest), result.stderr  # the position in the text of the network
    assert "Traceback" not in result.output
    assert len(first) < 300
    assert sorted(path.name for path in folder.rglob("*")) == before


def test_the_table_of_mistakes_covers_every_command() -> None:
    assert {line.split()[0] for line, _ in MISTAKES} >= set(COMMANDS)


def test_a_long_list_of_names_is_reduced_to_the_nearest_five() -> None:
    message = unknown_name("activation", "gleu", [f"name{i}" for i in range(40)] + ["gelu", "elu"])
    listed = re.search(r"nearest of 42: (.*) \(all: mlp activations\)", message)
    assert listed is not None
    assert listed[1].split(", ")[0] == "gelu"
    assert len(listed[1].split(", ")) == 5
