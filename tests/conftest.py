"""Shared fixtures, the settings of hypothesis, `--no-skips`, and a summary of the cases that reliability tests try."""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from support.long_tests import FULL, memory_folder

# Every run draws the same examples, so that a failure comes from a change. `make soak` draws new and more examples.
# There are no time limits, because a busy machine draws and runs examples slowly.
UNTIMED: dict[str, Any] = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow]}
settings.register_profile("short", derandomize=True, **UNTIMED)
settings.register_profile("full", print_blob=True, **UNTIMED)
settings.load_profile("full" if FULL else "short")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--no-skips", action="store_true", help="count a skipped test as failed")


def _refuse_skip(report: Any, config: pytest.Config) -> None:
    if report.skipped and not hasattr(report, "wasxfail") and config.getoption("no_skips"):
        report.outcome, report.longrepr = "failed", f"skipped, which --no-skips does not allow: {report.longrepr}"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    _refuse_skip(report, item.config)
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector: pytest.Collector) -> Generator[None, Any, Any]:
    report = yield
    _refuse_skip(report, collector.config)
    return report


def pytest_terminal_summary(terminalreporter: Any) -> None:
    counts: Counter[str] = Counter()
    for outcome in ("passed", "failed", "skipped", "xfailed"):
        for report in terminalreporter.stats.get(outcome, []):
            for name, value in getattr(report, "user_properties", ()):  # collection reports have none
                if name.startswith("cases "):
                    counts[name.removeprefix("cases ")] += value
    if counts:
        terminalreporter.section("cases tried")
        for name, count in sorted(counts.items()):
            terminalreporter.line(f"{count:>7}  {name}")


@pytest.fixture
def tried(record_property: Any) -> Any:
    """Return a function; tried("R2: errors of the system", 120) adds 120 cases to the summary of the test run."""
    return lambda name, count: record_property(f"cases {name}", count)


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder in memory. Hooks into storage are removed after the test."""
    from multilayer.core import atomic_files

    with memory_folder() as path:
        yield path
    atomic_files.hook = None


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Any:
    from support.terminals import Clock

    return Clock(monkeypatch)


@pytest.fixture(scope="module")
def one_thread() -> Iterator[None]:
    """Run torch on one thread, so that its sums have a fixed order."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def narrow(monkeypatch: pytest.MonkeyPatch) -> None:
    """Limit searches to networks of at most 32 units, so that a trial takes a fraction of a second."""
    from multilayer.estimators.tuning import SPACE, Dimension

    monkeypatch.setitem(SPACE, "width", Dimension(low=8, high=32, log=True, whole=True, default=16))


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> dict[int, tuple[float, float]]:
    """Set the validation loss and accuracy of each trial of a search. Trials after number 2 get those of number 2."""
    from multilayer.estimators import tuning
    from multilayer.runs.events import EpochEnd

    made = {0: (0.2, 0.6), 1: (0.9, 0.9), 2: (0.1, 0.5)}
    original = tuning._Reporter.notice

    def look(watch: Any, event: Any) -> None:
        if isinstance(event, EpochEnd):
            loss, accuracy = made[min(watch.trial.number, 2)]
            event = replace(event, validation_loss=loss, metrics={"accuracy": accuracy, "log_loss": loss})
        original(watch, event)

    monkeypatch.setattr(tuning._Reporter, "notice", look)
    return made
