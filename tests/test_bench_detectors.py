"""bench/detectors.py: cases, what is true of them, and the tables of hand-made results."""

from __future__ import annotations

import doctest
import importlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

BENCH = Path(__file__).parents[1] / "bench"


@pytest.fixture(autouse=True)
def on_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(BENCH))


@pytest.mark.parametrize("name", ["detector_cases", "detector_summary"])
def test_examples(name: str) -> None:
    found = doctest.testmod(importlib.import_module(name))
    assert found.attempted
    assert not found.failed


def test_a_case_is_rebuilt_from_its_name() -> None:
    from detector_cases import FAULTS, HEALTHY, case

    for kind in (*FAULTS, HEALTHY):
        assert case(f"{kind}/choose/1").describe() == case(f"{kind}/choose/1").describe()
        assert case(f"{kind}/choose/1").describe() != case(f"{kind}/choose/2").describe()
    assert len(FAULTS) >= 14


def test_the_reported_set_has_other_tables_and_widths_than_those_where_thresholds_are_chosen() -> None:
    from detector_cases import SETS, WIDTHS
    from detector_families import FAMILIES
    from detector_tables import BUNDLED, CLASSES, NUMBERS

    for choices in (WIDTHS, CLASSES, NUMBERS):
        assert set(choices) == set(SETS)
        assert not {*choices["choose"], *choices["earlier"]} & set(choices["report"])
    listed = {family for choices in (CLASSES, NUMBERS) for families in choices.values() for family in families}
    assert listed | {"many"} == {*FAMILIES, *BUNDLED}


def test_the_generated_tables_have_several_classes_or_numbers() -> None:
    from detector_tables import CLASSES, NUMBERS, TableSpec, load

    for family in CLASSES["report"] + NUMBERS["report"]:
        table = load(TableSpec(family=family, seed=5, rows=300))
        assert np.isfinite(table.train).all(axis=None)
        shares = table.train["y"].value_counts(normalize=True)
        if family in CLASSES["report"]:
            assert len(shares) == table.classes >= 2
            assert shares.min() > 0.05
        else:
            assert (table.classes, len(shares)) == (0, 300)


def test_faults_of_tables() -> None:
    from detector_tables import LEAK, TableSpec, load

    plain = TableSpec(family="blobs", seed=3, rows=200)
    noisy = load(replace(plain, flipped=0.3))
    assert len(noisy.flipped) == 60
    differs = np.flatnonzero(noisy.train["y"] != load(plain).train["y"])
    assert set(differs) == set(noisy.flipped)
    assert (noisy.test == load(plain).test).all(axis=None)
    leaky = load(replace(plain, leak="code")).train
    assert leaky.groupby(LEAK)["y"].agg(lambda y: y.value_counts(normalize=True).max()).min() > 0.9
    less = load(replace(plain, leak="code")).without((LEAK,), (0, 1))
    assert (len(less.train), less.numbers) == (198, load(plain).numbers)
    counts = load(TableSpec(family="waves", seed=3, target="counts")).train["y"]
    assert ((counts >= 0) & (counts == counts.round())).all()


def test_a_fault_counts_only_if_it_is_there() -> None:
    from detector_cases import case
    from detector_facts import facts, trained
    from detector_truth import verdict

    made = case("symmetric_units/choose/1")
    there, why = verdict(made.kind, facts(trained(made)), {})
    assert there, why
    there, why = verdict(made.kind, facts(trained(made.with_options(init="auto"))), {})
    assert not there
    assert why.startswith("not: duplicates")


def test_dead_units_are_those_that_are_zero_on_all_training_rows() -> None:
    from detector_cases import case
    from detector_facts import facts, trained

    one = trained(replace(case("dead_units/choose/3"), hidden="24:relu-8:relu").with_options(learning_rate=0.3))
    x, tensors = one.prepared.data.x[one.prepared.train], one.run.model.members[0].tensors
    z = x @ tensors["linear1.weight"].T + tensors["linear1.bias"]
    first = next(layer for layer in facts(one)["model"] if layer["layer"] == "relu1")
    assert first["dead"] == (z <= 0).all(0).mean() > 0


def result(name: str, *kinds: str, **facts: Any) -> dict[str, Any]:
    layer: dict[str, Any] = {
        "layer": "relu1",
        "near_zero": 0.6,
        "large": 0.0,
        "signal": 1.0,
        "dead": 0.5,
        "saturated": 0.0,
    }
    fact = {
        "layers": {"0": [{**layer, "gradient": 1.0}], "4": [layer | {"gradient": 1.0}]},
        "model": [{**layer, "duplicates": 0.0}],
        "history": [[1.0, 0.5, 1.0]] * 4,
        "accidents": 0,
        "train_last": 0.1,
        "base": 1.0,
        "columns": 0.0,
        "alone": [0.5],
        "doubted": 0.0,
        "batch_norm": False,
        "batch": 32,
        **facts,
    }
    found = [{"kind": kind, "where": {"layer": "relu1"}} for kind in kinds]
    return {"name": name, "facts": fact, "findings": found, "kinds": list(kinds), "why": "dead 0.5"}


def test_hits_and_false_alarms_are_counted() -> None:
    import detector_summary

    results = [
        result("dead_units/choose/0", "dead_units"),
        result("dead_units/choose/1", "rate_too_high", "dead_units"),
        result("dead_units/choose/2"),
        result("healthy/choose/0", "dead_units"),
        result("healthy/choose/1", accidents=2),
    ]
    rows = {row["kind"]: row for row in detector_summary.rows(results)}
    row = rows["dead_units"]
    assert (row["cases"], row["hit"], row["placed"], row["first"], row["any"]) == (3, 2, 2, 1, 2)
    assert (row["healthy"], row["false"]) == (2, 1)
    assert (row["torchmortem"], row["torchmortem false"]) == (3, 2)
    assert rows["rate_too_high"]["plain false"] == 1
    text = detector_summary.table(list(rows.values()), markdown=True)
    assert (
        "| dead_units | 3 | 66.7 % | 66.7 % | 66.7 % | 33.3 % | 66.7 % | 50.0 % | 100 % | 100 % | 100 % | 100 % |"
        in text
    )
    assert len({line.count("|") for line in text.splitlines()}) == 1
    assert detector_summary.table(list(rows.values()), markdown=False).count("\n") == len(rows)
    assert detector_summary.misses(results) == [
        "dead_units/choose/2: found nothing (dead 0.5)",
        "healthy/choose/0: found dead_units (dead 0.5)",
    ]


def test_cured_of_tried() -> None:
    import detector_summary

    about = {"text": "Use gelu.", "before": 0.5, "not_worse": True}
    found = [
        {"name": "dead_units/choose/0", "cured": True, "gone": True, "after": 0.1, **about},
        {"name": "dead_units/choose/1", "cured": False, "gone": False, "after": 0.3, **about},
    ]
    text = detector_summary.cured(found, markdown=True)
    assert "| dead_units | 2 | 50.0 % | 50.0 % | 100 % | 0.5 | 0.2 | Use gelu. |" in text


def test_results_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import detectors

    monkeypatch.setattr(detectors, "RESULTS", tmp_path)
    asked: list[str] = []

    def measure(name: str) -> dict[str, Any]:
        asked.append(name)
        return {"name": name, "key": detectors.key_of(name)}

    names = ["healthy/choose/0", "healthy/choose/1"]
    for wanted in (names[:1], names, names):
        detectors.Store("facts.jsonl", measure, with_detectors=False).fill(wanted, 1)
    assert asked == names
    assert len((tmp_path / "facts.jsonl").read_text().splitlines()) == 2
