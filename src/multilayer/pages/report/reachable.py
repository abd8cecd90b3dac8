"""What is reachable on a table: the model compared with simple methods, and the share of wrong labels.

The simple methods are those of `diagnostics.references`. Each is fitted on training rows of the run, and compared with
the model on the same held-out rows:

    worse     a method has clearly more skill than the model, so more is reachable
    equal     the difference from the best method is not certain
    better    the model has clearly more skill than each method

A difference is certain if it is larger than two standard errors. If a network and simple methods of different types
reach nearly the same, this is probably close to what the columns allow. A model that is much better than all methods
does not show how much more is possible. Wrong labels limit the accuracy that can be measured on them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from ...core.formatting import percent
from ...data import TrainingData
from ...diagnostics.case import BEHIND
from ...diagnostics.references import GOOD, REFERENCES, Skills, has_middle, measure_skills
from ...diagnostics.rows import MOST_HELD_OUT, MOST_TRAIN, Samples
from ...models.trained_model import TrainedModel

CERTAIN = 2.0
"""Standard errors of a difference that is certain."""
MUCH = BEHIND
"""A difference in skill that is large."""
LITTLE = 0.1
"""If no method has more skill than this, the columns may say little about the target."""
FEWEST_ROWS = 30
"""With fewer held-out rows, the methods are not compared."""
FEWEST_FITTED = 0.5
"""Methods that were fitted on a smaller share of the training rows do not show what the whole table allows."""
TELLS_LITTLE = frozenset({"leakage", "label_noise"})
"""Findings that do not mean that training went wrong."""

FIELDS = {"network": "held_out"} | {name: name for name in REFERENCES}
"""The fields of `Skills` of the model and the methods."""
METRICS = {"accuracy": "accuracy", "r2": "R²"}

Reach = Literal["more", "close", "unknown"]
"""More is reachable, the model is close to what is reachable, or it is unknown."""
Sentences = list[tuple[str, str]]


def compare(model: TrainedModel, prepared: TrainingData) -> dict[str, Any] | None:
    """Return the skills and scores of the model and of simple methods on held-out rows of a run.

    If the members of an ensemble hold out different folds, the methods are fitted once per fold, on the other rows, and
    the result is the mean over the folds. None if too few rows were held out, or if rows have weights, which the
    methods do not use, or if the model predicts a high or a low quantile, which they do not.
    """
    if len(prepared.validation) < FEWEST_ROWS or prepared.data.weight is not None:
        return None
    if not has_middle(model.encoding.loss):
        return None
    folds = max(1, len(prepared.folds)) if len(model.members) > 1 else 1
    found = [_skills(Samples.of_training(model, prepared, fold=fold)) for fold in range(folds)]
    rows = np.array([one.rows for one in found])
    skills = {name: _mean([getattr(one, field) for one in found], rows) for name, field in FIELDS.items()}
    scores = {name: _mean([one.scores[name] for one in found], rows) for name in FIELDS}
    error = float(np.sqrt(((rows * [one.error for one in found]) ** 2).sum()) / rows.sum())
    if not np.isfinite([*skills.values(), *scores.values(), error]).all():
        return None
    return {
        "metric": found[0].metric,
        "scores": scores,
        "skills": skills,
        "error": error,
        "rows": int(rows.sum()),
        "train_rows": min(one.train_rows for one in found),
    }


def _skills(samples: Samples) -> Skills:
    assert samples.held_out is not None
    return measure_skills(samples.train, samples.held_out, most_train=MOST_TRAIN, most_held_out=MOST_HELD_OUT)


def _mean(values: list[float], rows: NDArray[np.int64]) -> float:
    return float(np.average(values, weights=rows))


def reach_of(references: Mapping[str, Any] | None, rows: int | None) -> Reach:
    """Return what the comparison says. `rows` is the number of training rows of the run."""
    if references is None:
        return "unknown"
    lead, certain = _lead(references)
    if certain and lead > MUCH:
        return "more"
    own, fitted = references["skills"]["network"], references["train_rows"]
    agree = abs(lead) <= MUCH and not (certain and lead > 0) and LITTLE <= own < GOOD
    return "close" if agree and rows is not None and fitted >= FEWEST_FITTED * rows else "unknown"


def sentences(references: Mapping[str, Any] | None, *, reach: Reach, rows: int, guess: bool) -> Sentences:
    """Return how the model compares with simple methods.

    `reach` is "close" only if, in addition, training shows no fault. `rows` is the number of evaluated rows of the
    report, and `guess` is whether the model is no better than a guess on them.
    """
    if references is None:
        return []
    lead, certain = _lead(references)
    if max(references["skills"].values()) < LITTLE:
        text = "Simple methods are no better than a guess either: the columns may say little about the target."
        return [("fair", text)] if guess else []
    best, where = _best(references), _on_rows(references, rows)
    reached = f"{REFERENCES[best]}, which reaches {_with_name(references, best)}{where}"
    if certain and lead > 0:
        tone, how = ("bad", "Worse") if lead > MUCH else ("fair", "Slightly worse")
        return [(tone, f"{how} than {reached}: more is reachable on this table.")]
    close = ": this is probably close to what this table allows" if reach == "close" else ""
    if not certain:
        return [("good" if close else "fair", f"About as good as {reached}{close}.")]
    others = [f"{REFERENCES[name]} ({_score(references, name)})" for name in _ranked(references)]
    metric = METRICS[references["metric"]]
    return [("good", f"Better in {metric} than {', '.join(others[:-1])} and {others[-1]}{where}{close}.")]


def noise_sentences(findings: Sequence[Mapping[str, Any]], accuracy: float | None) -> Sentences:
    """Return what wrong labels allow. `accuracy` is that of the model."""
    share = next((one["evidence"].get("share") for one in findings if one["kind"] == "label_noise"), None)
    if share is None:
        return []
    text = f"About {percent(share)} of the labels are probably wrong"
    if accuracy is not None and accuracy > 1 - share:
        return [("fair", f"{text}: its accuracy is about the highest that can be reached on such labels.")]
    return [("fair", f"{text}, so an accuracy above about {percent(1 - share)} is not reachable on such labels.")]


def fault_free(findings: Sequence[Mapping[str, Any]]) -> bool:
    """Return whether no finding means that training went wrong."""
    return all(one["kind"] in TELLS_LITTLE for one in findings)


def _lead(references: Mapping[str, Any]) -> tuple[float, bool]:
    """Return the skill of the best method minus that of the model, and whether the difference is certain."""
    lead = references["skills"][_best(references)] - references["skills"]["network"]
    return lead, abs(lead) > CERTAIN * references["error"]


def _best(references: Mapping[str, Any]) -> str:
    return _ranked(references)[0]


def _ranked(references: Mapping[str, Any]) -> list[str]:
    """Return the methods, the best first."""
    return sorted(REFERENCES, key=lambda name: -references["skills"][name])


def _score(references: Mapping[str, Any], name: str) -> str:
    value = references["scores"][name]
    return f"{100 * value:.1f} %" if references["metric"] == "accuracy" else f"{value:.2f}"


def _with_name(references: Mapping[str, Any], name: str) -> str:
    return f"an {METRICS[references['metric']]} of {_score(references, name)}"


def _on_rows(references: Mapping[str, Any], rows: int) -> str:
    """Return on which rows the methods are compared, if these are not the evaluated rows."""
    if references["rows"] == rows:
        return ""
    return f" on {references['rows']:,} of these rows, where the model has {_with_name(references, 'network')}"
