"""A model and a run folder that an earlier version wrote. Every later version must load them and predict the same.

Numbers agree to 1e-5: the bits of float32 networks may differ between processors.
"""

from __future__ import annotations

import json
import runpy
import shutil
from pathlib import Path

import numpy as np
import pytest

import multilayer as ml
from multilayer.pages.report import report
from multilayer.runs import RunFolder
from multilayer.runs.events import End, Progress

GOLDEN = Path(__file__).parents[1] / "golden"
CLOSE = {"rtol": 1e-5, "atol": 1e-6}


def test_a_model_file_of_an_earlier_version() -> None:
    path = GOLDEN / "trained-model-v1.safetensors"
    rows = runpy.run_path(str(GOLDEN / "write.py"))["table"]()
    model = ml.load(path)
    expected = [
        [0.366039280897113, 0.633960719102887],
        [0.1076484648280237, 0.8923515351719763],
        [0.8540275458751204, 0.14597245412487958],
    ]
    np.testing.assert_allclose(model.predict_proba(rows.slice(6, 3)), expected, **CLOSE)
    measured = {"accuracy": 0.975, "log_loss": 0.13123444701449385}
    found = model.evaluate(rows)
    assert {name: found[name] for name in measured} == pytest.approx(measured, rel=1e-5)
    assert model.to_bytes() == path.read_bytes()


def test_a_run_folder_of_an_earlier_version(tmp_path: Path) -> None:
    path = tmp_path / "run"
    shutil.copytree(GOLDEN / "trained-run-v1", path)
    expected = [
        [0.34926523067132653, 0.32091661253119386, 0.3298181567974795],
        [0.3255848458843529, 0.3542312102754907, 0.3201839438401564],
    ]
    np.testing.assert_allclose(ml.load(path).predict_proba([[5.1, 0.2], [6, 2]]), expected, **CLOSE)
    run = ml.resume(path, quiet=True)
    assert run.metrics["log_loss"] == pytest.approx(1.1419234396058027)
    assert isinstance(run.log[-1], End)
    steps = [event for event in run.log if isinstance(event, Progress)]
    assert [event.learning_rate for event in steps] == pytest.approx([0.0014192390584280346])
    assert json.loads((path / "report.json").read_text())["rows"] == 30


def test_old_keys_of_the_data_are_read() -> None:
    saved = json.loads((GOLDEN / "trained-run-v1" / "config.json").read_text())["config"]["data"]
    assert saved["time"] == "petal length (cm)"
    data = RunFolder.open(GOLDEN / "trained-run-v1").config["data"]
    assert data["time_column"] == "petal length (cm)"
    assert data["sample_weight"] == "sepal width (cm)"
    assert data["in_memory"] == []
    assert not {"time", "weight", "weights", "validation"} & data.keys()
    spec = ml.load(GOLDEN / "trained-run-v1").spec
    command = report.again(RunFolder.open(GOLDEN / "trained-run-v1").config, spec)["command"]
    assert "--time-column 'petal length (cm)' --sample-weight 'sepal width (cm)'" in command
