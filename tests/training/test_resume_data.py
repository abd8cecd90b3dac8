"""Resuming a run with data that differs only in units or names, and with the fingerprint of an older version."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from multilayer.errors import RunError
from multilayer.runs import RunFolder
from multilayer.training.fit import fit, resume
from multilayer.training.setup import Setup
from support.run_folders import unfinished

X = np.random.default_rng(0).normal(size=(60, 2))
Y = X.sum(1)
NAMES = np.where(Y > 0, "yes", "no")


@pytest.mark.parametrize(
    "changed",
    [(X, Y + 1), (X, 2 * Y), (2 * X, Y), (X + 1, Y)],
    ids=["shifted target", "scaled target", "scaled inputs", "shifted inputs"],
)
@pytest.mark.parametrize("spec", ["2-4-1", None])
def test_data_in_other_units_is_an_error(spec: str | None, changed: tuple[Any, Any], tmp_path: Path) -> None:
    fit(spec, (X, Y), epochs=2, seed=0, run=tmp_path / "run", quiet=True)
    unfinished(tmp_path / "run")
    with pytest.raises(RunError, match="the data differs from the training data of"):
        resume(tmp_path / "run", data=changed, quiet=True)


def test_other_class_names_are_an_error(tmp_path: Path) -> None:
    fit("2-4-1", (X, NAMES), epochs=2, seed=0, run=tmp_path / "run", quiet=True)
    unfinished(tmp_path / "run")
    with pytest.raises(RunError, match="the data differs from the training data of"):
        resume(tmp_path / "run", data=(X, np.where(Y > 0, "high", "a")), quiet=True)


def test_a_run_of_an_older_version_still_resumes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Setup, "fingerprint", lambda setup: setup._row_digest().hexdigest())
    first = fit("2-4-1", (X, Y), epochs=2, seed=0, run=tmp_path / "run", quiet=True)
    monkeypatch.undo()
    assert len(RunFolder.open(tmp_path / "run").config["fingerprint"]) == 64
    unfinished(tmp_path / "run")
    assert resume(tmp_path / "run", data=(X, Y), quiet=True).metrics == first.metrics
