"""Events: their format is fixed, and the effective events of a resumed run equal those of an uninterrupted run."""

from __future__ import annotations

import json
import math

import pytest

from multilayer.errors import EventError
from multilayer.runs.events import (
    EVENTS,
    Checkpoint,
    End,
    EpochEnd,
    Event,
    FindingEvent,
    Measured,
    NonFinite,
    Notice,
    Progress,
    Resume,
    RolledBack,
    Spike,
    Start,
    effective,
    from_dict,
    message_for,
    same,
)
from support.findings import DEAD, NOISE, RATE_TOO_HIGH, SATURATED, event_of

ONE_OF_EACH: list[Event] = [
    Start(
        step=0,
        network="4-1",
        parameters=5,
        rows=10,
        engine="numpy",
        seed=0,
        config={"batch": 2},
        versions={"numpy": "2"},
    ),
    Progress(step=5, epoch=1, loss=0.5, gradient_norm=math.inf, learning_rate=1e-3),
    EpochEnd(
        step=5,
        epoch=1,
        loss=0.5,
        seconds=1.5,
        rows_per_second=7.0,
        gradient_norm=2.0,
        validation_loss=math.nan,
        metrics={"r2": 0.5, "bad": -math.inf},
    ),
    Checkpoint(step=5, kind="best", path="checkpoints/5.safetensors", sha256="00"),
    Spike(step=6, loss=9.0, limit=2.0, gradient_norm=50.0, layer="linear1", rows=[3, 4]),
    RolledBack(step=6, to_step=5, rate_factor=0.1, reason="spike"),
    NonFinite(step=7, where="gradient", layer="linear1", unit=None, rows=[1]),
    Measured(step=7, name="activations", values={"dead": 0.25, "rms": [1.0, math.nan]}),
    Notice(step=8, message="the loss has not moved for 5 epochs", remedy="raise the rate"),
    FindingEvent(step=8, finding=DEAD.to_dict()),
    Resume(step=8, checkpoint="checkpoints/8.safetensors", kept=4, notes=[]),
    End(step=9, status="finished", reason="all epochs done", epoch=1, seconds=2.0, metrics={}),
]

KNOWN = {
    "event": "epoch",
    "step": 5,
    "time": None,
    "epoch": 1,
    "loss": 0.5,
    "seconds": 1.5,
    "rows_per_second": 7.0,
    "gradient_norm": 2.0,
    "validation_loss": "nan",
    "metrics": {"r2": 0.5, "bad": "-inf"},
    "units": {},
}
SPIKE, SAVED, MEASURED, FOUND = (ONE_OF_EACH[i].to_dict() for i in (4, 3, 7, 9))


def without(key: str) -> dict[str, object]:
    """Return the event of a finding that lacks a key."""
    return {**FOUND, "finding": {name: value for name, value in FOUND["finding"].items() if name != key}}


def with_(**changes: object) -> dict[str, object]:
    return {**FOUND, "finding": {**FOUND["finding"], **changes}}


def test_every_event_is_in_the_table() -> None:
    assert {event.event for event in ONE_OF_EACH} == set(EVENTS)


@pytest.mark.parametrize("event", ONE_OF_EACH, ids=lambda event: event.event)
def test_events_are_equal_after_writing_and_reading_json(event: Event) -> None:
    line = json.dumps(event.to_dict(), allow_nan=False)
    again = from_dict(json.loads(line))
    assert type(again) is type(event)
    assert again.to_dict() == event.to_dict()


def test_known_answer() -> None:
    assert ONE_OF_EACH[2].to_dict() == KNOWN
    back = from_dict(KNOWN)
    assert isinstance(back, EpochEnd)
    assert back.metrics["bad"] == -math.inf
    assert back.validation_loss is not None
    assert math.isnan(back.validation_loss)
    older = from_dict({name: value for name, value in KNOWN.items() if name != "gradient_norm"})
    assert isinstance(older, EpochEnd)
    assert older.gradient_norm is None


def epoch(step: int, seconds: float = 1.0) -> EpochEnd:
    return EpochEnd(step=step, epoch=step, loss=1 / step, seconds=seconds, rows_per_second=1 / seconds, metrics={})


def test_a_resume_supersedes_events_after_its_checkpoint() -> None:
    resume = Resume(step=2, checkpoint="x", kept=2, notes=[])
    killed = [epoch(1), epoch(2), epoch(3), resume, epoch(3), epoch(4)]
    assert effective(killed) == [epoch(1), epoch(2), epoch(3), epoch(4)]
    twice = [*killed, Resume(step=3, checkpoint="y", kept=3, notes=[]), epoch(4)]
    assert effective(twice) == effective(killed)
    assert same(killed, [epoch(1, 9.0), epoch(2), epoch(3), epoch(4, 3.0)])
    assert not same(killed, [epoch(1), epoch(2), epoch(3)])


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"event": "epok", "step": 1}, "unknown event 'epok': did you mean 'epoch'"),
        ({"step": 1}, "unknown event 'None'"),
        ({**KNOWN, "los": 1}, "event 'epoch': unknown key 'los': did you mean 'loss'"),
        ({"event": "epoch", "step": 1}, "event 'epoch' needs the key 'epoch', got step"),
        ([1], r"an event must be an object, got \[1\]"),
        ({**KNOWN, "step": "x"}, "event 'epoch': step must be a whole number, got 'x'"),
        ({**KNOWN, "step": 1.5}, "event 'epoch': step must be a whole number, got 1.5"),
        ({**KNOWN, "step": True}, "event 'epoch': step must be a whole number, got True"),
        ({**KNOWN, "loss": "abc"}, "event 'epoch': loss must be a number, got 'abc'"),
        ({**KNOWN, "loss": None}, "event 'epoch': loss must be a number, got None"),
        ({**KNOWN, "validation_loss": [1]}, r"event 'epoch': validation_loss must be a number, got \[1\]"),
        ({**KNOWN, "metrics": [1]}, r"event 'epoch': metrics must be an object, got \[1\]"),
        ({**KNOWN, "metrics": {"r2": "x"}}, r"event 'epoch': metrics\['r2'\] must be a number, got 'x'"),
        ({**SPIKE, "rows": [1, "x"]}, r"event 'spike': rows\[1\] must be a whole number, got 'x'"),
        ({**SPIKE, "layer": 3}, "event 'spike': layer must be a string, got 3"),
        ({**SAVED, "kind": "worst"}, "event 'checkpoint': kind must be 'last' or 'best', got 'worst'"),
        ({**MEASURED, "values": {"a": [1, "x"]}}, r"event 'measured': values\['a'\]\[1\] must be a number, got 'x'"),
        ({**MEASURED, "values": {"a": {}}}, r"event 'measured': values\['a'\] must be a number, got {}"),
        ({**FOUND, "finding": "dead"}, "event 'finding': finding must be an object, got 'dead'"),
        (without("message"), "event 'finding': finding needs the key 'message', got kind, severity, where"),
        (with_(severity="bad"), r"finding\['severity'\] must be 'info' or 'warning' or 'error', got 'bad'"),
        (with_(evidence={"units": "40"}), r"finding\['evidence'\]\['units'\] must be a number, got '40'"),
        (with_(where=[]), r"finding\['where'\] must be an object, got \[\]"),
        (with_(remedies=["wait"]), r"finding\['remedies'\]\[0\] must be an object, got 'wait'"),
        (with_(remedies=[{"text": "wait"}]), r"finding\['remedies'\]\[0\]\['command'\] must be a string, got None"),
    ],
)
def test_an_invalid_event_is_an_error(data: dict[str, object], message: str) -> None:
    with pytest.raises(EventError, match=message):
        from_dict(data)


def test_the_message_of_a_finding_has_its_place_and_its_first_remedy() -> None:
    dead = message_for(event_of(DEAD))
    assert dead is not None
    assert dead.level == "warn"
    assert dead.title == "dead units: relu1"
    assert dead.text == f"{DEAD.message} Use gelu instead of relu."
    titles = [message_for(event_of(one)) for one in (RATE_TOO_HIGH, SATURATED)]
    assert [(one.level, one.title) for one in titles if one] == [
        ("error", "rate too high"),
        ("warn", "saturated units: sigmoid2, member 2"),
    ]


def test_infinite_evidence_is_a_number_again_after_reading() -> None:
    written = json.loads(json.dumps(event_of(NOISE).to_dict(), allow_nan=False))
    assert written["finding"]["evidence"]["ratio"] == "inf"
    back = from_dict(written)
    assert isinstance(back, FindingEvent)
    assert back.finding["evidence"]["ratio"] == math.inf
