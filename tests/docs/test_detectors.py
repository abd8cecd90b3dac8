"""The tables of the page about diagnostics are read from the detectors."""

from __future__ import annotations

import re
from typing import Any

import pytest

from multilayer.diagnostics import KINDS, fit_detectors, unit_detectors
from support.site import DOCS, detector_pages, reference


def names(detector: Any) -> set[str]:
    return {name for _, name in detector_pages.thresholds(detector)}


def test_the_table_of_rules_has_every_kind_with_its_thresholds() -> None:
    lines = reference.part("detectors").splitlines()[2:]
    assert [re.findall(r"<br>`(\w+)`", line)[0] for line in lines] == list(KINDS)
    dead = next(line for line in lines if "`dead_units`" in line)
    assert f"`DEAD_SHARE` = {unit_detectors.DEAD_SHARE:g}: share of the units of a layer that must be dead" in dead
    for line in lines:
        cells = line.split(" | ")
        assert cells[1].startswith(("if ", "for each "))
        assert re.search(r"`[A-Z_]+` = ", cells[2]), line


def test_thresholds_include_those_of_helpers_but_not_those_of_remedies() -> None:
    assert {"LEAST_LEAD", "BEHIND"} <= names(fit_detectors.underfitting)  # BEHIND is read by Case.behind
    assert "FEW_STEPS" not in names(fit_detectors.underfitting)
    assert "MOST_LISTED" not in names(unit_detectors.dead_units)


def test_every_threshold_is_explained() -> None:
    for kind, detector in detectors_by_kind().items():
        for module, name in detector_pages.thresholds(detector):
            assert name in detector_pages.documented(module), f"{kind}: put a string below {module.__name__}.{name}"


def detectors_by_kind() -> Any:
    from multilayer.diagnostics.check import DETECTORS

    return DETECTORS


def test_constants_of_a_page_are_replaced_by_their_values() -> None:
    text = detector_pages.constants(
        "{{unit_detectors.DEAD_SHARE:%}}, {{rows.MOST_TRAIN:,}}, {{training.plan.COUNTED_EPOCHS}}"
    )
    assert text == "25 %, 2,000, 8"
    assert detector_pages.constants("{{ x }} {y.Z}") == "{{ x }} {y.Z}"
    with pytest.raises(ValueError, match="unknown constant 'DEAD'"):
        detector_pages.constants("{{unit_detectors.DEAD}}")
    with pytest.raises(ValueError, match="unknown module 'units'"):
        detector_pages.constants("{{units.DEAD}}")


def test_only_the_tables_of_the_last_set_are_shown() -> None:
    first = "== set choose\n| a |\n|---|\n\n"
    output = f"{first}== set report\nleakage: 2 cases\n\n| b |\n|---|\n| 1 |\n\nmissed\n\n| c |\n|---|"
    assert detector_pages.tables_in(output) == "| b |\n|---|\n| 1 |\n\n| c |\n|---|"


def test_the_guide_lists_every_finding_in_order() -> None:
    page = (DOCS / "how-to" / "find-out-what-went-wrong.md").read_text().partition("## All findings")[2]
    assert re.findall(r"^\| `(\w+)` \|", page, re.M) == list(KINDS)
