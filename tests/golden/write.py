"""Write the golden files of the current file versions. Existing files are kept, because every version must still load.

Run `python tests/golden/write.py` after a version number has increased, and commit the new files.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

import multilayer as ml
from multilayer.core import tensor_file
from multilayer.engines import State
from multilayer.runs import RunFolder, events
from multilayer.runs.checkpoints import Kind
from multilayer.spec import Spec

HERE = Path(__file__).parent


def model() -> tuple[dict[str, np.ndarray[Any, Any]], dict[str, Any]]:
    """Return the content of a model file: every number type, empty and scalar tensors, and non-ASCII text."""
    spec = Spec.parse("2-3:tanh-1")
    tensors: dict[str, np.ndarray[Any, Any]] = {
        f"network/{name}": np.linspace(-1, 1, parameter.size, dtype=np.float32).reshape(parameter.shape)
        for name, parameter in spec.parameters.items()
    }
    for code in ("f8", "f4", "f2", "i8", "i4", "i2", "i1", "u8", "u4", "u2", "u1", "?"):
        tensors[f"encoding/{np.dtype(code).name}"] = np.arange(3).astype(code)
    tensors["encoding/empty"] = np.zeros((0, 2), np.float64)
    tensors["encoding/scalar"] = np.array(np.pi)
    tensors["encoding/special"] = np.array([np.nan, np.inf, -np.inf, -0.0, 5e-324])
    return tensors, {"spec": spec.to_dict(), "encoding": {"columns": ["größe", "重さ"], "ratio": 0.1}, "loss": "mse"}


def state(step: int) -> State:
    w = np.arange(6, dtype=np.float32).reshape(3, 2) / (step + 1)
    return State(
        parameters={"linear1.weight": w},
        buffers={"norm1.mean": w[0]},
        optimizer={"mean": {"linear1.weight": -w}, "square": {"linear1.weight": w * w}},
        averages={"linear1.weight": w / 2},
        step=step,
        rate_factor=0.1,
    )


def table() -> Any:
    """Return a table with numbers (one is missing), categories and dates."""
    import pyarrow as pa

    n = 40
    days = np.datetime64("2024-01-01", "D") + np.arange(n) * 9
    columns = {
        "size": pa.array([None if i == 7 else (i * 37 % 40) / 4 for i in range(n)]),
        "größe": pa.array(["klein", "mittel", "groß"][i % 3] for i in range(n)),
        "day": pa.array(days),
        "kind": pa.array("ab"[i * 37 % 40 > 17] for i in range(n)),
    }
    return pa.table(columns)


def train_model(path: Path) -> None:
    """Train and save a calibrated ensemble on `table`."""
    ml.fit(
        "7+cat(3)-columns-3:tanh-1",
        table(),
        target="kind",
        ensemble=2,
        epochs=40,
        learning_rate=0.05,
        seed=1,
        quiet=True,
    ).model.save(path)


def train_run(path: Path) -> None:
    """Save a finished run whose table has a column of sample weights and a time column."""
    columns = {"target": "species", "time_column": "petal length (cm)", "sample_weight": "sepal width (cm)"}
    ml.fit("2-3:tanh-3", "iris", **columns, epochs=8, seed=1, quiet=True, report=False, run=path)
    (path / ".lock").unlink()


EXTRA = {"policies": [{"best": 0.25, "waited": 3}], "position": {"epoch": 1}}


if __name__ == "__main__":
    path = HERE / f"model-v{tensor_file.FORMS['model'].version}.safetensors"
    if not path.exists():
        tensor_file.save(path, *model())
    run = HERE / f"run-v{tensor_file.FORMS['checkpoint'].version}"
    if not run.exists():
        with RunFolder.create(run, config={"seed": 1, "name": "größe"}) as folder:
            folder.append(events.Notice(step=0, message="größe", remedy="", time=1.5))
            saves: list[tuple[int, Kind]] = [(10, "last"), (10, "best"), (20, "last")]
            for step, kind in saves:
                folder.append(replace(folder.checkpoint(state(step), EXTRA, kind), time=2.5))
        (run / ".lock").unlink()
    for name, train in (
        (f"trained-model-v{tensor_file.FORMS['model'].version}.safetensors", train_model),
        ("trained-run-v1", train_run),
    ):
        if not (HERE / name).exists():
            train(HERE / name)
