"""Tells at the end how many cases the tables of the reliability tests tried; says how random tests draw."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import settings

from soak import FULL

# The same draws in every run, so that a red run is the change's own; `make soak` draws anew and looks further.
settings.register_profile("short", derandomize=True)
settings.register_profile("full", print_blob=True)
settings.load_profile("full" if FULL else "short")


def pytest_terminal_summary(terminalreporter: Any) -> None:
    counts: Counter[str] = Counter()
    for outcome in ("passed", "failed"):
        for report in terminalreporter.stats.get(outcome, []):
            for name, value in report.user_properties:
                if name.startswith("cases "):
                    counts[name.removeprefix("cases ")] += value
    if counts:
        terminalreporter.section("cases tried")
        for name, count in sorted(counts.items()):
            terminalreporter.line(f"{count:>7}  {name}")


@pytest.fixture
def tried(record_property: Any) -> Any:
    """tried("R2: errors of the system", 120) has the number of cases printed at the end."""
    return lambda name, count: record_property(f"cases {name}", count)
