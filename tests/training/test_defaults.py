"""Default options for a network that the user describes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import multilayer as ml
from multilayer.data import DataOptions
from multilayer.runs import config as config_rules
from multilayer.runs.config import Config
from multilayer.training import plan as defaults
from multilayer.training.fit import fit, resume
from multilayer.training.inputs import encode
from multilayer.training.plan import batch_size, epochs, learning_rate, with_defaults
from support.run_folders import unfinished


def chosen(text: str, *, rows: int = 400, target: str = "classes", **options: Any) -> Config:
    """Return the options of a network on a table with this many training rows, and 50 rows held out."""
    x = np.random.default_rng(0).normal(size=(rows, int(text.partition("-")[0])))
    y = x[:, 0] if target == "numbers" else (x[:, 0] > 0).astype(int) + (x[:, 0] > 1) * (target == "classes")
    config = Config.from_dict({"validation": None, **options})
    prepared = encode((x, y), DataOptions(validation_data=(x[:50], y[:50])), config)
    return with_defaults(config, ml.Spec.parse(text), prepared)


def test_given_options_are_kept() -> None:
    given = {"epochs": 7, "learning_rate": 0.3, "patience": 2, "calibrate": False, "batch_size": 5}
    found = chosen("4-8-3", **given)
    assert {name: getattr(found, name) for name in given} == given


def test_a_given_learning_rate_does_not_change_the_epochs() -> None:
    found = chosen("4-8-3", learning_rate=0.3)
    assert (found.learning_rate, found.epochs) == (0.3, 320)


def test_given_epochs_do_not_change_the_learning_rate() -> None:
    found = chosen("256-8-3", epochs=7)
    assert (found.learning_rate, found.epochs) == (0.005, 7)


@pytest.mark.parametrize(
    ("rows", "batch", "expected"),
    [
        (1, 16, 1500),
        (64, 16, 1500),
        (400, 16, 320),
        (400, 400, 1500),
        (4_000, 16, 32),
        (10**6, 16, 20),
        (10**6, 256, 20),
    ],
)
def test_epochs_make_eight_thousand_steps_within_bounds(rows: int, batch: int, expected: int) -> None:
    assert epochs(rows, batch) == expected


@pytest.mark.parametrize(
    ("rows", "expected"), [(1, 16), (1279, 16), (1280, 32), (10_239, 128), (10_240, 256), (10**7, 256)]
)
def test_the_batch_grows_with_the_rows_up_to_a_bound(rows: int, expected: int) -> None:
    assert batch_size(rows) == expected


def test_a_given_batch_size_determines_the_epochs() -> None:
    assert chosen("4-8-3", rows=800, batch_size=16).epochs == 160
    assert chosen("4-8-3", rows=800, batch_size=32).epochs == 320


def test_epochs_count_the_rows_of_an_epoch() -> None:
    assert chosen("4-8-3", rows=800, batch_size=16, epoch_rows=400).epochs == 320


@pytest.mark.parametrize(
    ("text", "expected"), [("1-1", 0.01), ("64-64-3", 0.01), ("256-8-3", 0.005), ("4-1024-3", 0.0025)]
)
def test_the_learning_rate_falls_with_the_root_of_the_widest_input_of_a_layer(text: str, expected: float) -> None:
    assert learning_rate(ml.Spec.parse(text)) == pytest.approx(expected)


def test_training_stops_early_only_if_the_number_of_epochs_is_not_given() -> None:
    assert chosen("4-8-3").patience == 96  # 30 % of 320 epochs
    assert chosen("4-8-3", batch_size=1, rows=800).patience == 10
    assert chosen("4-8-3", epochs=320).patience is None
    assert chosen("4-8-3", patience=3).patience == 3


def test_only_probabilities_are_calibrated() -> None:
    assert chosen("4-8-3").calibrate is True
    assert chosen("4-8-1", target="yes or no").calibrate is True
    assert chosen("4-8-1", target="numbers").calibrate is False
    assert chosen("4-8-1", target="numbers", calibrate=True).calibrate is True


def test_a_resumed_run_keeps_the_values_that_were_chosen_at_its_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    x = np.random.default_rng(0).normal(size=(64, 3)).round(3)
    table = tmp_path / "table.csv"
    table.write_text("a,b,c,y\n" + "".join(f"{a},{b},{c},{'no' if a < b else 'yes'}\n" for a, b, c in x))
    monkeypatch.setattr(defaults, "MOST_EPOCHS", 6)
    fit("3-4:tanh-1", table, run=tmp_path / "run", engine="numpy", quiet=True)
    for note in (tmp_path / "run" / "checkpoints").glob("*.json"):
        if int(note.name.partition("-")[0]) > 12:
            note.unlink()  # simulates a process that was killed in epoch 4
    unfinished(tmp_path / "run")
    monkeypatch.setattr(defaults, "MOST_EPOCHS", 9)
    monkeypatch.setattr(config_rules, "RATE", 1.0)
    run = resume(tmp_path / "run", quiet=True)
    assert run.end.epoch == 6
    assert json.loads((tmp_path / "run" / "config.json").read_text())["config"]["config"]["learning_rate"] == 0.01
