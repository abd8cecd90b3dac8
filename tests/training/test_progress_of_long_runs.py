"""Progress with `quiet="auto"`, as the estimators show it: only of long runs, in a terminal or a notebook."""

from __future__ import annotations

import io
import multiprocessing
from typing import Any

import pytest
from rich.console import Console

import multilayer as ml
from multilayer import MLPClassifier
from multilayer.training.progress import ProgressDisplay
from support.quick_estimators import QUICK, classes
from support.terminals import START, Clock, end, epoch, shown, terminal


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


def test_a_long_fit_shows_its_progress_after_five_seconds_and_removes_it_at_the_end(clock: Clock) -> None:
    console, stream = terminal()
    with ProgressDisplay(50, 5, 10, console=console, quiet="auto") as display:
        display.notice(START)
        clock.now += 4
        display.notice(epoch(0))
        assert stream.getvalue() == ""
        clock.now += 4
        display.notice(epoch(1))
        text = shown(stream.getvalue())
        assert "epoch" in text
        assert "left" in text
        display.notice(end())
    assert stream.getvalue().endswith("\x1b[2K")  # the last lines of the block are erased


def test_a_short_fit_shows_nothing(clock: Clock) -> None:
    console, stream = terminal()
    with ProgressDisplay(50, 5, 10, console=console, quiet="auto") as display:
        for event in (START, epoch(0), epoch(1), end()):
            display.notice(event)
    assert stream.getvalue() == ""


@pytest.mark.parametrize("place", ["file", "worker process"])
def test_a_long_fit_is_silent_if_nobody_watches(place: str, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    console, stream = terminal()
    if place == "file":
        stream = io.StringIO()
        console = Console(file=stream)
    else:
        monkeypatch.setattr(multiprocessing, "parent_process", object)
    with ProgressDisplay(50, 5, 10, console=console, quiet="auto") as display:
        for event in (START, epoch(0), epoch(1), end()):
            clock.now += 10
            display.notice(event)
    assert stream.getvalue() == ""


def test_a_notebook_shows_a_block_that_is_replaced(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    outputs: list[dict[str, Any]] = []

    class Handle:
        def update(self, data: dict[str, Any], *, raw: bool) -> None:
            outputs.append(data)

    def display(data: dict[str, Any], *, raw: bool, display_id: bool) -> Handle:
        outputs.append(data)
        return Handle()

    monkeypatch.setattr("IPython.display.display", display)
    console = Console(file=io.StringIO(), force_jupyter=True)
    with ProgressDisplay(50, 5, 10, console=console, quiet="auto") as bar:
        for event in (START, epoch(0), epoch(1)):
            clock.now += 10
            bar.notice(event)
        assert "train loss" in outputs[-1]["text/plain"]
        assert outputs[-1]["text/html"].startswith("<pre")
        bar.notice(end())
    assert outputs[-1] == {"text/plain": ""}


@pytest.mark.parametrize(("verbose", "quiet"), [("auto", "auto"), (False, True), (0, True), (True, False), (1, False)])
def test_verbose_of_an_estimator(verbose: Any, quiet: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[Any] = []
    original = ProgressDisplay.__init__

    def begin(self: ProgressDisplay, *arguments: Any, **options: Any) -> None:
        given.append(options["quiet"])
        original(self, *arguments, **{**options, "quiet": True})

    monkeypatch.setattr(ProgressDisplay, "__init__", begin)
    MLPClassifier(**{**QUICK, "epochs": 1}, verbose=verbose).fit(*classes())
    assert given == [quiet]


def test_fit_is_silent_without_a_terminal_if_quiet_is_auto(capsys: pytest.CaptureFixture[str]) -> None:
    ml.fit("4-8-3", "iris", epochs=1, quiet="auto")
    assert capsys.readouterr() == ("", "")
