"""The comparison of two commits finds all differences except those that its masks and its key map allow."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save

sys.path.insert(0, str(Path(__file__).parents[1] / "bench"))

from compare_commits import keep_build
from compare_results import (
    DIFFERENT,
    RENAMED,
    SAME,
    Renames,
    compare_output,
    compare_sides,
    compare_tests,
    compare_values,
    flat,
    masked,
    tensors,
)

NONE = Renames()


def values(old: Any, new: Any, renames: Renames = NONE) -> str:
    return compare_values(dict(flat(old)), dict(flat(new)), renames)[0]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("epoch 2/3  4,478 rows/s  0:03 left", "epoch 2/3  <speed> rows/s  <time> left"),
        ("0.2 s to train, 152 FLOP", "<duration> to train, 152 FLOP"),
        ("checkpoints/00000003-best-e4b90592.safetensors", "checkpoints/00000003-best-<hash>.safetensors"),
        (".00000020-last.json.2fc2b37b3ab6.tmp", ".00000020-last.json.<random>.tmp"),
        ("/tmp/a/run/x.csv", "<out>/run/x.csv"),
        ("accuracy 0.9167, 24 steps, 2011-02-11", "accuracy 0.9167, 24 steps, 2011-02-11"),
    ],
)
def test_masks(text: str, expected: str) -> None:
    assert masked(text, {"/tmp/a": "<out>"}) == expected


def test_numbers_of_clocks_are_masked_but_not_columns_of_that_name() -> None:
    assert values({"time": 1.5, "loss": 2.0}, {"time": 2.5, "loss": 2.0}) == SAME
    assert values({"data": {"time": "joined"}}, {"data": {"time": "left"}}) == DIFFERENT


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ({"loss": 0.1}, {"loss": 0.10000000000000002}),
        ({"n": 1}, {"n": 1.0}),
        ({"n": 1}, {"n": True}),
        ({"a": []}, {"a": {}}),
        ({"a": [1, 2]}, {"a": [2, 1]}),
        ({"a": 1}, {}),
        ({}, {"a": 1}),
        ({"fingerprint": "0" * 64}, {"fingerprint": "1" * 64}),
    ],
)
def test_any_other_difference_is_found(old: Any, new: Any) -> None:
    assert values(old, new) == DIFFERENT


def test_keys_are_renamed_where_the_rule_applies() -> None:
    renames = Renames(keys={"progress/rate": "progress/learning_rate", "judges": None}, added=["step_time"])
    old = {"progress": {"rate": 1.0}, "rate": 2.0, "judges": 4}
    new = {"progress": {"learning_rate": 1.0}, "rate": 2.0, "step_time": 3}
    assert values(old, new, renames) == RENAMED
    assert values(old, new) == DIFFERENT
    assert values(old, {**new, "rate": 3.0}, renames) == DIFFERENT


def test_a_renamed_key_of_a_clock_stays_masked() -> None:
    assert values({"seconds": 1.0}, {"duration": 2.0}, Renames(keys={"seconds": "duration"})) == RENAMED


def test_values_and_words_are_renamed() -> None:
    renames = Renames(values={"event": {"epoch": "epoch_end"}}, words={"Predictor": "TrainedModel"})
    old = [{"event": "epoch", "epoch": 1, "note": "a Predictor, not Predictors"}]
    assert (
        values(old, [{"event": "epoch_end", "epoch": 1, "note": "a TrainedModel, not Predictors"}], renames) == RENAMED
    )
    assert values(old, [{"event": "epoch_end", "epoch": 1, "note": "a TrainedModel, not any"}], renames) == DIFFERENT


def test_output_is_compared_as_text_or_as_json() -> None:
    assert compare_output('{"time": 1}\n{"loss": 2}\n', '{"time": 3}\n{"loss": 2}\n', NONE)[0] == SAME
    assert compare_output('{"time": 1}\n{"loss": 2}\n', '{"time": 3}\n{"loss": 1}\n', NONE)[0] == DIFFERENT
    assert compare_output("took 1.2 s", "took 3 s", NONE)[0] == SAME
    assert compare_output("a  b", "a b", NONE)[0] == RENAMED  # only whitespace differs
    option = Renames(names={"train --time": "--time-column"})
    assert compare_output("│ --time   COL │", "│ --time-column COL │", option)[0] == RENAMED
    assert compare_output("│ --time-limit │", "│ --time-column-limit │", option)[0] == DIFFERENT


def test_the_data_of_a_page_is_compared() -> None:
    page = '<script type="application/json" id="state">{}</script><p>text</p>'
    other = [page.replace("{}", json.dumps(data)) for data in ({"loss": 1}, {"loss": 2}, {"loss": 1})]
    assert compare_output(other[0], other[1], NONE)[0] == DIFFERENT
    assert compare_output(other[0], other[2], NONE)[0] == SAME
    assert compare_output(other[0], other[2].replace("text", "else"), NONE)[0] == DIFFERENT


def test_every_bit_of_a_tensor_counts() -> None:
    weight = np.arange(6, dtype=np.float32).reshape(2, 3)
    other = weight.copy()
    other[1, 2] = np.nextafter(other[1, 2], np.float32(9))
    about = {"multilayer": json.dumps({"judges": 3.5, "sha256": "a" * 64})}
    files = [tensors(save({"net/w": array}, about)) for array in (weight, other, weight.reshape(3, 2))]
    assert compare_values(files[0], files[0], NONE)[0] == SAME
    assert "net/w" in compare_values(files[0], files[1], NONE)[1]
    assert compare_values(files[0], files[2], NONE)[0] == DIFFERENT
    renamed = tensors(save({"network/w": weight}, {"multilayer": about["multilayer"].replace("judges", "rows")}))
    assert compare_values(files[0], renamed, Renames(keys={"net": "network", "judges": "rows"}))[0] == RENAMED
    assert compare_values(files[0], renamed, Renames(keys={"net": "network"}))[0] == DIFFERENT


def test_test_identifiers_may_move_but_not_vanish() -> None:
    old = ["tests/test_a.py::test_x[1]", "src/multilayer/training/reporting.py::multilayer.training.reporting.fit"]
    new = [
        "tests/nn/test_a.py::test_x[1]",
        "src/multilayer/training/fit.py::multilayer.training.fit.fit",
        "tests/b.py::t",
    ]
    renames = Renames(tests={"src/multilayer/training/reporting.py": "src/multilayer/training/fit.py"})
    assert compare_tests(old, old, NONE)[1] == SAME
    name, verdict, detail = compare_tests(old, new, renames)
    assert (name, verdict) == ("test identifiers", RENAMED)
    assert "0 vanished, 1 new, 1 moved" in detail
    _, verdict, detail = compare_tests(old, new, NONE)
    assert verdict == DIFFERENT
    assert "vanished: src/multilayer/training/reporting.py::multilayer.training.reporting.fit" in detail


def test_files_of_one_side_and_failed_scenarios_are_differences(tmp_path: Path) -> None:
    for side in ("old", "new"):
        (tmp_path / side).mkdir()
        (tmp_path / side / "same.json").write_text("{}")
        (tmp_path / side / ".lock").write_text(side)
        (tmp_path / side / "error.txt").write_text("Traceback\nValueError: both failed")
    (tmp_path / "old" / "gone.csv").write_text("1")
    (tmp_path / "new" / "new.csv").write_text("1")
    found = {
        name: (verdict, detail) for name, verdict, detail in compare_sides(tmp_path / "old", tmp_path / "new", NONE)
    }
    assert found == {
        "same.json": (SAME, ""),
        "error.txt": (DIFFERENT, "the scenario failed: ValueError: both failed"),
        "gone.csv": (DIFFERENT, "only in OLD"),
        "new.csv": (DIFFERENT, "only in NEW"),
    }


def test_the_key_map_has_known_sections() -> None:
    file = Path(__file__).parents[1] / "bench" / "renamed.json"
    Renames(**json.loads(file.read_text()))


def test_a_build_replaces_what_an_interrupted_build_left_but_not_a_finished_one(tmp_path: Path) -> None:
    kept = tmp_path / "kept"

    def build(name: str) -> Path:
        folder = tmp_path / name
        folder.mkdir()
        (folder / "_core.so").write_text(name)
        return folder

    kept.mkdir()
    (kept / "CMakeCache.txt").touch()
    keep_build(build("first"), kept)
    assert [path.name for path in kept.iterdir()] == ["_core.so"]
    keep_build(build("second"), kept)
    assert (kept / "_core.so").read_text() == "first"
    with pytest.raises(FileNotFoundError):
        keep_build(tmp_path / "missing", tmp_path / "other")
