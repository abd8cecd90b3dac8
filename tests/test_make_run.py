"""The commands of `make run`, in a temporary folder and with few epochs: they save a model and print score and cost."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import multilayer as ml
from multilayer.runs import RunFolder

MAKEFILE = Path(__file__).parents[1] / "Makefile"
EPOCHS = ("--epochs", "3")


def commands() -> list[list[str]]:
    """Return the commands of the target `run`, each as a list of words after `mlp`."""
    recipe = re.search(r"^run:.*\n((?:\t.*\n)+)", MAKEFILE.read_text(), re.MULTILINE)
    assert recipe is not None
    lines = [shlex.split(line) for line in recipe[1].splitlines()]
    assert {line[0] for line in lines} == {"$(bin)/mlp"}
    return [line[1:] for line in lines]


def test_make_run_leaves_a_model_tells_how_good_it_is_and_what_it_costs(tmp_path: Path) -> None:
    train, cost = commands()
    assert (train[0], cost[0]) == ("train", "cost")
    printed: list[str] = []
    for words in ([*train, *EPOCHS], cost):
        done = subprocess.run(
            [sys.executable, "-m", "multilayer", *words], cwd=tmp_path, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        printed.append(done.stdout)
    accuracy = re.search(r"^on held-out rows: accuracy ([\d.]+)", printed[0], re.MULTILINE)
    assert accuracy is not None
    assert float(accuracy[1]) > 0.85
    assert re.search(r"^cost: [\d.]+ kFLOP to predict a row, [\d.]+ s to train$", printed[0], re.MULTILINE)
    place = re.search(r"^model: (.+)$", printed[0], re.MULTILINE)
    assert place is not None
    model = ml.load(tmp_path / place[1])
    assert model.evaluate(train[1])["accuracy"] > 0.85
    start = RunFolder.open((tmp_path / place[1]).parent).events()[0].to_dict()
    assert cost[1] == start["network"] == str(model.spec)  # the cost is for the trained network
    assert cost[cost.index("--rows") + 1] == str(start["rows"])
    assert "FLOP" in printed[1]
