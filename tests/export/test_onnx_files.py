"""ONNX files: equal bytes, all members, errors, and the command."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from typer.testing import CliRunner

import multilayer as ml
from multilayer import MLPClassifier
from multilayer.cli.main import app
from multilayer.core import atomic_files
from multilayer.errors import MissingExtra, OptionError, StorageError
from multilayer.export.onnx import model as exporting
from multilayer.nn.calibration import Calibration
from multilayer.spec import Spec
from support.models import with_tensors
from support.onnx_sessions import (
    assert_close,
    assert_same,
    feed,
    opened,
    predictor_of,
    session_of,
)
from support.quick_estimators import QUICK, classes, people

pytestmark = pytest.mark.filterwarnings("ignore:columns dropped")


def test_equal_models_give_equal_bytes(tmp_path: Path) -> None:
    model = predictor_of(Spec.parse("3+cat(2, 9)-columns(pbld)-4:tanh-2"), members=2)
    model.save(tmp_path / "model.safetensors")
    again = ml.load(tmp_path / "model.safetensors")
    for name, one in (("a", model), ("b", again)):
        one.to_onnx(tmp_path / f"{name}.onnx")
    assert (tmp_path / "a.onnx").read_bytes() == (tmp_path / "b.onnx").read_bytes()
    made = onnx.load(tmp_path / "a.onnx")
    constants = {one.name: onnx.numpy_helper.to_array(one) for one in made.graph.initializer}
    for name, value in model.tensors.items():
        np.testing.assert_array_equal(constants[f"network/{name}"], value)
    assert made.graph.input[0].doc_string == "numbers, NaN for missing values"


def test_members_are_averaged_as_probabilities(tmp_path: Path) -> None:
    """The probabilities are extreme, and the temperature is far from 1."""
    x, y = classes()
    model = MLPClassifier(**QUICK).fit(x, y).model_
    sure = with_tensors(model, lambda name, value: 20 * value if "linear2" in name else value)
    cold = replace(sure, calibration=Calibration(temperature=0.5))
    assert_same(cold, x, tmp_path / "model.onnx")


def test_a_run_a_model_and_an_estimator_are_exported_with_all_members(tmp_path: Path) -> None:
    frame, y = people()
    run = ml.fit(None, frame.assign(outcome=y), target="outcome", ensemble=3, epochs=2, quiet=True)
    assert run.model is not None
    estimator = MLPClassifier(**QUICK).fit(frame, y)
    path = tmp_path / "model.onnx"
    for given, model, members in ((run, run.model, 3), (run.model, run.model, 3), (estimator, estimator, 2)):
        session = session_of(given, path)
        label, probabilities = session.run(None, feed(session, frame))
        assert (label == model.predict(frame)).all()
        assert_close(probabilities, model.predict_proba(frame))
        assert onnx.load(path).graph.doc_string.split(";")[0].endswith(f"average of {members} members")


def test_a_failed_write_keeps_the_existing_file(folder: Path) -> None:
    path = folder / "model.onnx"
    path.write_bytes(b"before")

    def full(name: str) -> None:
        if name == "write.rename":
            raise OSError(28, "No space left on device")

    atomic_files.hook = full
    with pytest.raises(StorageError, match="the disk is full"):
        predictor_of(Spec.parse("2-1")).to_onnx(path)
    assert path.read_bytes() == b"before"
    assert [one.name for one in folder.iterdir()] == ["model.onnx"]


def test_models_that_cannot_be_exported_are_errors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "model.onnx"
    remedy = r"export the module of an untrained network, such as ml\.build\(spec\), with torch\.onnx\.export"
    with pytest.raises(OptionError, match=rf"a trained model is needed .* got Spec\('2-1'\): {remedy}"):
        ml.to_onnx(Spec.parse("2-1"), path)
    with pytest.raises(OptionError, match=f"a trained model is needed .* got an untrained Model: {remedy}"):
        ml.to_onnx(ml.build("2-1"), path)
    alone = MLPClassifier().fit(np.zeros((5, 1)), ["a"] * 5)
    with pytest.raises(OptionError, match="there is no network"):
        alone.to_onnx(path)
    monkeypatch.setattr(exporting, "LARGEST", 10)
    with pytest.raises(OptionError, match="must hold at most 10 bytes of numbers, got"):
        predictor_of(Spec.parse("2-1")).to_onnx(path)
    monkeypatch.undo()
    monkeypatch.setitem(sys.modules, "onnx", None)
    with pytest.raises(MissingExtra, match=r"export to ONNX needs onnx.*pip install 'multilayer\[onnx\]'"):
        predictor_of(Spec.parse("2-1")).to_onnx(path)
    assert not path.exists()


def test_the_command(tmp_path: Path) -> None:
    model = predictor_of(Spec.parse("3-2"))
    model.save(tmp_path / "model.safetensors")

    def run(*args: str) -> Any:
        return CliRunner().invoke(app, ["export", *args], env={"COLUMNS": "300"})

    done = run(str(tmp_path / "model.safetensors"))
    assert done.exit_code == 0, done.output
    assert "saved: " in done.stdout
    assert ": one network, with its preprocessing" in done.stdout
    x = np.ones((2, 3))
    assert_close(opened(tmp_path / "model.onnx").run(None, {"x": x})[0], model.outputs(x))
    assert (
        run(str(tmp_path), "--to", "onnx", "--out", str(tmp_path / "b.onnx")).exit_code == 0
    )  # a folder, such as that of a run
    assert (tmp_path / "b.onnx").read_bytes() == (tmp_path / "model.onnx").read_bytes()
    failed = run(str(tmp_path), "--to", "onx")
    assert failed.exit_code == 2
    assert "unknown format 'onx': did you mean 'onnx'?" in failed.stderr
    assert run(str(tmp_path / "none.safetensors")).exit_code == 2


def test_export_needs_no_torch(tmp_path: Path) -> None:
    predictor_of(Spec.parse("3-2")).save(tmp_path / "model.safetensors")
    code = (
        "import sys, multilayer as ml\n"
        "ml.to_onnx(ml.load('model.safetensors'), 'model.onnx')\n"
        "assert not {'torch', 'sklearn', 'onnxruntime'} & set(sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "model.onnx").exists()
