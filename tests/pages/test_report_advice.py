"""The causes and remedies of a report: which evidence leads to which cause, and that remedies never contradict."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from multilayer.pages.report.verdict import Evidence, confidence, evidence, fit_cause, remedies

FALLING = tuple(0.9**i for i in range(10))
FLAT = (1.0, 0.9, *(0.85,) * 8)
RISING = tuple(0.5 + 0.05 * i for i in range(10))
CREEPING = tuple(1 - 0.001 * i for i in range(10))
WEAK = dict(skill=0.2, train_skill=0.25, epochs=10, rows=1000)


@pytest.mark.parametrize(
    ("seen", "causes"),
    [
        (Evidence(skill=0.9, train_skill=0.95, outside=True), []),
        (Evidence(skill=0.5, train_skill=0.9, outside=True), ["overfits"]),
        (Evidence(skill=0.5, train_skill=0.9, outside=False), []),
        # Worse than the baseline on the training rows too: this is not overfitting.
        (Evidence(skill=-1.6, train_skill=-1.1, outside=True, epochs=3, best_epoch=1, steps=6), ["hardly trained"]),
        (Evidence(skill=-1.6, train_skill=-1.1, outside=True, epochs=300, best_epoch=1, steps=600), ["uninformative"]),
        (Evidence(skill=-1.6, train_skill=-1.1, epochs=10, best_epoch=1, steps=60), ["uninformative"]),
        (Evidence(skill=0.0, train_skill=0.0, epochs=10, best_epoch=9, steps=60), ["hardly trained"]),
        (Evidence(skill=0.0, train_skill=0.0, steps=1, status="stopped", timed_out=True), ["hardly trained"]),
        (Evidence(skill=0.5, train_skill=0.9, outside=True, steps=6), ["overfits"]),
        # Best epoch 1 of 10, and the training loss falls while the validation loss rises: more epochs do not help.
        (
            Evidence(**WEAK, best_epoch=1, train_loss=FALLING, validation_loss=RISING, parameters=5000),
            ["uninformative"],
        ),
        (Evidence(skill=0.2, train_skill=0.9, outside=True, epochs=10, best_epoch=1, train_loss=FALLING), ["overfits"]),
        (Evidence(**WEAK, best_epoch=10, train_loss=FALLING, validation_loss=FALLING), ["cut short"]),
        (
            Evidence(
                **WEAK, best_epoch=10, train_loss=FALLING, validation_loss=FALLING, status="stopped", timed_out=True
            ),
            ["out of time"],
        ),
        (
            Evidence(
                skill=0.2,
                train_skill=0.9,
                outside=True,
                epochs=10,
                best_epoch=10,
                train_loss=FALLING,
                validation_loss=FALLING,
            ),
            ["overfits"],
        ),
        (
            Evidence(**WEAK, best_epoch=10, train_loss=FALLING, validation_loss=FALLING, status="interrupted"),
            ["uninformative"],
        ),
        (Evidence(**WEAK, best_epoch=10, train_loss=CREEPING, validation_loss=CREEPING, learning_rate=1e-6), ["slow"]),
        # After little training, rows may fit by chance. This is not overfitting if the loss hardly fell.
        (
            Evidence(
                skill=0.05, train_skill=0.36, outside=True, epochs=10, best_epoch=10, steps=80, train_loss=CREEPING
            ),
            ["slow"],
        ),
        (Evidence(**WEAK, best_epoch=10, train_loss=CREEPING, spikes=1), ["spikes", "uninformative"]),
        (Evidence(**WEAK, best_epoch=4, train_loss=FLAT, validation_loss=FLAT, parameters=9), ["too small"]),
        (Evidence(**WEAK, best_epoch=4, train_loss=FLAT, validation_loss=FLAT, parameters=9000), ["uninformative"]),
        (Evidence(skill=0.1, train_skill=0.1, epochs=1, best_epoch=1), ["cut short"]),
        (Evidence(skill=0.1, train_skill=0.1, epochs=2, best_epoch=1), ["uninformative"]),
        (Evidence(**WEAK, best_epoch=4, train_loss=FLAT, parameters=9, confidence="over"), ["too small"]),
        (Evidence(**WEAK, best_epoch=4, train_loss=FLAT, parameters=9, reach="close"), ["uninformative"]),
        (Evidence(**WEAK, best_epoch=4, train_loss=FLAT, parameters=9, reach="more"), ["behind"]),
        (Evidence(skill=0.7, train_skill=0.7, reach="more"), ["behind"]),
        (Evidence(skill=0.7, train_skill=0.7, reach="close"), []),
        (Evidence(skill=0.7, train_skill=0.95, outside=True, reach="more"), ["overfits"]),
        (Evidence(skill=0.9, confidence="over"), ["overconfident"]),
        (Evidence(skill=0.9, confidence="under"), ["underconfident"]),
        (Evidence(skill=0.9, confidence="under", smoothing=0.1), ["smoothed"]),
        (Evidence(skill=0.9, confidence="over", smoothing=0.1), ["overconfident"]),
        (Evidence(skill=0.9, confidence="mixed"), ["miscalibrated"]),
        (Evidence(skill=0.9, confidence="trusted", smoothing=0.1), []),
        (Evidence(skill=0.9, coverage_off=True), ["coverage"]),
        (Evidence(skill=0.9, held_out=False, confidence="over"), ["nothing held out"]),
        (Evidence(skill=0.1, diverged=True, spikes=3), ["diverged"]),
        (Evidence(diverged=True, held_out=False), ["nothing held out", "diverged"]),
    ],
)
def test_the_causes_for_each_evidence(seen: Evidence, causes: list[str]) -> None:
    assert [remedy.cause for remedy in remedies(seen)] == causes


def test_the_remedy_for_too_few_steps_depends_on_the_time_limit() -> None:
    few: dict[str, Any] = {"skill": 0.0, "train_skill": 0.0, "steps": 1}
    assert [one.text for one in remedies(Evidence(**few))] == ["Train longer: more --epochs."]
    assert [one.text for one in remedies(Evidence(**few, time_limit=True))] == ["Train longer: a larger --time-limit."]


def test_no_remedy_smooths_labels_of_a_model_that_is_not_confident_enough() -> None:
    for seen in (Evidence(skill=0.9, confidence="under"), Evidence(skill=0.9, confidence="under", smoothing=0.2)):
        text = " ".join(remedy.text for remedy in remedies(seen))
        assert "smoothing" not in text or "less label smoothing" in text


def test_miscalibration_that_a_temperature_cannot_correct_needs_a_larger_network_or_more_rows() -> None:
    mixed: dict[str, Any] = {"skill": 0.7, "confidence": "mixed", "calibrated": True, "rows": 1600}
    (small,) = remedies(Evidence(**mixed, parameters=9))
    assert "a wider or deeper network" in small.text
    (large,) = remedies(Evidence(**mixed, parameters=9000))
    assert "hold out more rows" in large.text


@pytest.mark.parametrize(("high", "outside"), [(0.9998, False), (0.98, True)])
def test_one_wrong_row_is_not_overfitting(high: float, outside: bool) -> None:
    """With 119 of 120 rows correct, the interval ends below 1, the accuracy on the training rows."""
    entry = dict(name="accuracy", value=0.99, low=0.95, high=high, train=1.0, baseline=0.98, better="higher")
    evaluation = dict(metrics=[{**entry, "how": "exact"}], metric="accuracy", origin="held out", rows=120)
    run = {"status": "finished", "epochs": 5}
    found = evidence({"evaluation": evaluation, "run": run, "curves": {"epochs": [], "marks": []}})
    assert found.outside is outside


share = st.none() | st.floats(-0.5, 1)
curve = st.sampled_from([(), FALLING, FLAT, RISING, CREEPING]) | st.lists(st.floats(0, 9), max_size=12).map(tuple)


@given(
    st.builds(
        Evidence,
        skill=share,
        certain=st.booleans(),
        reach=st.sampled_from(["more", "close", "unknown"]),
        train_skill=share,
        outside=st.booleans(),
        held_out=st.booleans(),
        status=st.sampled_from(["finished", "stopped", "interrupted", "running"]),
        timed_out=st.booleans(),
        time_limit=st.booleans(),
        steps=st.sampled_from([None, 1, 1000]),
        epochs=st.sampled_from([0, 1, 10]),
        best_epoch=st.sampled_from([None, 1, 10]),
        train_loss=curve,
        validation_loss=curve,
        rows=st.sampled_from([None, 10, 1000]),
        parameters=st.sampled_from([None, 5, 5000]),
        learning_rate=st.sampled_from([None, 1e-3]),
        confidence=st.sampled_from([None, "trusted", "unknown", "over", "under", "mixed"]),
        calibrated=st.booleans(),
        smoothing=st.sampled_from([0.0, 0.1]),
        coverage_off=st.booleans(),
        diverged=st.booleans(),
        spikes=st.integers(0, 2),
    )
)
def test_no_two_remedies_contradict_each_other(seen: Evidence) -> None:
    found = remedies(seen)
    for one, other in itertools.combinations(found, 2):
        assert one.cause != other.cause
        for setting in one.moves.keys() & other.moves.keys():
            assert one.moves[setting] == other.moves[setting], (one, other)
    moves = {setting: move for remedy in found for setting, move in remedy.moves.items()}
    if moves.get("epochs") and not (fit_cause(seen) == "hardly trained" and seen.epochs <= 3):
        assert seen.best_epoch is not None
        assert 2 * seen.best_epoch > seen.epochs
    if seen.confidence == "under":
        assert moves.get("smoothing", -1) < 0
    assert len(found) <= 4
    if fit_cause(seen) in ("too small", "uninformative"):
        assert seen.skill is not None
        assert seen.skill < 0.4


def bins(*pairs: tuple[float, float]) -> dict[str, Any]:
    entry = {"of": "yes", "chance": 0.01, "lean": 0.0, "bins": [dict(rows=50, given=p, came=t) for p, t in pairs]}
    return {**entry, "ece": sum(abs(p - t) for p, t in pairs) / len(pairs)}


@pytest.mark.parametrize(
    ("entry", "found"),
    [
        (bins((0.1, 0.3), (0.9, 0.7)), "over"),
        (bins((0.3, 0.1), (0.7, 0.9)), "under"),
        (bins((0.3, 0.1), (0.9, 0.7)), "mixed"),
        (bins((0.1, 0.1), (0.9, 0.9)), "trusted"),
        ({"of": "the predicted class", "ece": 0.1, "chance": 0.02, "lean": -0.09}, "under"),
        ({"of": "the predicted class", "ece": 0.1, "chance": 0.02, "lean": 0.09}, "over"),
        (None, None),
    ],
)
def test_the_direction_of_a_calibration_error(entry: Any, found: str | None) -> None:
    assert confidence(entry) == found
