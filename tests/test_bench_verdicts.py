"""bench/verdicts.py compares two books and notices missing experiments and equal seeds."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

from multilayer.lab import NAMES, Result
from support.experiments import tiny

BENCH = runpy.run_path(str(Path(__file__).parents[1] / "bench" / "verdicts.py"))


def book(folder: Path, first_seed: int) -> Path:
    (folder / "results").mkdir(parents=True)
    result = tiny("vanishing_gradients", first_seed=first_seed)
    (folder / "results" / "vanishing_gradients.json").write_text(result.to_json())
    return folder


def test_verdicts_are_compared(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    books = book(tmp_path / "a", 0), book(tmp_path / "b", 100)
    same = len({Result.read(one / "results" / "vanishing_gradients.json").verdict for one in books}) == 1
    assert BENCH["main"](*books) == 1
    printed = capsys.readouterr().out
    assert f"{int(same)} of 1 verdicts agree" in printed
    assert f"missing in a book: {NAMES[0]}" in printed
    monkeypatch.setitem(BENCH["main"].__globals__, "NAMES", ("vanishing_gradients",))
    assert BENCH["main"](*books) == int(not same)


def test_equal_seeds_are_refused(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="the same seeds"):
        BENCH["main"](book(tmp_path / "a", 0), book(tmp_path / "b", 1))
