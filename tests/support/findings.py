"""Findings as a run could have them, and an observer that adds findings to a run."""

from __future__ import annotations

from multilayer.diagnostics import Finding, Place, Remedy
from multilayer.runs.events import End, EpochEnd, Event, FindingEvent

DEAD = Finding(
    kind="dead_units",
    severity="warning",
    message="40 units of 64 in relu1 are dead: they output 0 on every training row and no longer learn, and the layer "
    "takes 40 % of the FLOPs.",
    where=Place(layer="relu1", units=tuple(range(0, 64))[:40], epoch=3),
    evidence={"units": 40, "of": 64, "share": 0.625, "flops_share": 0.402},
    remedies=(
        Remedy(
            text="Use gelu instead of relu.",
            command="mlp train digits --arch 64-64:gelu-10",
            changes={"spec": "64-64:gelu-10"},
        ),
        Remedy(
            text="Lower the learning rate to 0.0003.",
            command="mlp train digits --arch 64-64:relu-10 --learning-rate 0.0003",
            changes={"learning_rate": 0.0003},
        ),
    ),
)
RATE_TOO_HIGH = Finding(
    kind="rate_too_high",
    severity="error",
    message="The learning rate 1 is too high: the training loss rose in 7 of 10 epochs.",
    where=Place(epoch=2),
    evidence={"rises": 0.7, "spikes": 2, "rollbacks": 1},
    remedies=(
        Remedy(
            text="Lower the learning rate to 0.01.",
            command="mlp train digits --learning-rate 0.01",
            changes={"learning_rate": 0.01},
        ),
    ),
)
RATE_TOO_LOW = Finding(
    kind="rate_too_low",
    severity="warning",
    message="The learning rate 1e-06 is too low: the training loss fell by only 0.4 % in 20 epochs.",
    evidence={"movement": 0.0021, "fall": 0.004},
    remedies=(
        Remedy(
            text="Raise the learning rate to 0.003.",
            command="mlp train digits --learning-rate 0.003",
            changes={"learning_rate": 0.003},
        ),
    ),
)
SATURATED = Finding(
    kind="saturated_units",
    severity="warning",
    message="12 of 16 units of sigmoid2 are saturated.",
    where=Place(layer="sigmoid2", units=tuple(range(12)), member=2),
    evidence={"units": 12, "of": 16},
    remedies=(Remedy(text="Use tanh instead of sigmoid.", changes={"spec": "8-16:tanh-16:tanh-1"}),),
)
LEAKAGE = Finding(
    kind="leakage",
    severity="error",
    message="Column 'discharge date' alone predicts the target with an accuracy of 99.8 %.",
    where=Place(column="discharge date"),
    evidence={"skill": 0.998, "next_skill": 0.21},
    remedies=(
        Remedy(
            text="Drop the column 'discharge date' if it is not known when the model predicts.",
            changes={"drop_columns": ["discharge date"]},
        ),
    ),
)
OVERFITTING = Finding(
    kind="overfitting",
    severity="warning",
    message="The validation loss rose by 45 % after epoch 6, while the training loss fell.",
    where=Place(epoch=6),
    evidence={"rebound": 0.45, "best_epoch": 6},
    remedies=(
        Remedy(
            text="Stop early, after 5 epochs without improvement.",
            command="mlp train digits --patience 5",
            changes={"patience": 5},
        ),
    ),
)
UNDERFITTING = Finding(
    kind="underfitting",
    severity="warning",
    message="The training accuracy is 61.0 %, and a linear model reaches 78.2 %.",
    evidence={"train": 0.61, "held_out": 0.6, "reference": 0.782},
    remedies=(
        Remedy(
            text="Use a wider network.",
            command="mlp train digits --arch 64-256:gelu-10",
            changes={"spec": "64-256:gelu-10"},
        ),
    ),
)
NOISE = Finding(
    kind="label_noise",
    severity="warning",
    message="About 14 % of the training rows have a wrong label.",
    where=Place(rows=tuple(range(100))),
    evidence={"share": 0.14, "ratio": float("inf")},
    remedies=(Remedy(text="Check the labels of the listed rows.", changes={"drop_rows": [0, 1]}),),
)


def event_of(finding: Finding, step: int = 50) -> FindingEvent:
    return FindingEvent(step=step, finding=finding.to_dict())


class Adds:
    """An observer that answers the end of epoch `after` with the events of findings."""

    def __init__(self, *findings: Finding, after: int = 1) -> None:
        self.findings, self.after = findings, after

    def notice(self, event: Event) -> list[Event]:
        if not isinstance(event, EpochEnd) or event.epoch != self.after:
            return []
        return [event_of(finding, event.step) for finding in self.findings]


def ended(step: int = 50) -> End:
    return End(step=step, status="finished", reason="all epochs are done", epoch=5, seconds=5.0, metrics={})
