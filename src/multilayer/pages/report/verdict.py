"""The verdict of a report: two or three sentences, and what to try next.

    quality      the main metric, compared with a baseline that predicts the most frequent class or the mean
    fit          the same metric on training rows: overfitting, a run that was too short, or neither
    trust        whether the probabilities are calibrated, except for chance
    trouble      divergence, spikes, an early end, no rows held out

Sentences and remedies both follow from the evidence in `report_advice`. Names of columns and classes are inserted
unchanged.
"""

from __future__ import annotations

from typing import Any

from ...core.formatting import count
from .advice import CLEARLY, FAIR, GOOD, Evidence, evidence, first_uncovered, fit_cause, main_metric, remedies

LITTLE = 0.02
"""Difference in skill that is visible, but too small to be called overfitting."""
FEW = 30
"""Rows below which no figure is worth much."""

WORDS = {
    "accuracy": "accuracy",
    "balanced_accuracy": "balanced accuracy",
    "log_loss": "log loss",
    "auc": "area under the ROC curve",
    "f1": "F1",
    "rmse": "root mean squared error",
    "mae": "mean absolute error",
    "r2": "R²",
}
SHARES = ("accuracy", "balanced_accuracy")

Sentences = list[dict[str, str]]


def verdict(report: dict[str, Any]) -> dict[str, Any]:
    """Return sentences with a tone (good, fair or bad), the most important first, and remedies."""
    found, seen = report.get("evaluation"), evidence(report)
    sentences = _trouble(report, seen)
    if found is not None:
        sentences += _quality(found, seen) + _fit(found, seen) + _trust(found, seen)
    if seen.spikes and not seen.diverged:
        sentences.append({"tone": "fair", "text": f"The loss spiked {count(seen.spikes, 'time')} during training."})
    if not seen.held_out:
        sentences.append({"tone": "bad", "text": "No rows were held out, so the quality on new rows is unknown."})
    if not sentences:
        sentences.append({"tone": "fair", "text": "This run has not been evaluated yet."})
    return {"sentences": sentences, "tries": [remedy.text for remedy in remedies(seen)]}


def figure(name: str, value: float) -> str:
    """A value as a person writes it.

    >>> figure("accuracy", 0.97512), figure("rmse", 53.1234), figure("rmse", 22968.4)
    ('97.5 %', '53.12', '22,970')
    """
    if name in SHARES:
        return f"{100 * value:.1f} %"
    return f"{float(f'{value:.4g}'):,.0f}" if 1e4 <= abs(value) < 1e9 else f"{value:.4g}"


def _trouble(report: dict[str, Any], seen: Evidence) -> Sentences:
    sentences: Sentences = []
    if seen.diverged:
        sentences.append(
            {
                "tone": "bad",
                "text": "Training diverged: the loss, a gradient or a weight became too large or was not finite.",
            }
        )
    if seen.status == "interrupted":
        epochs = count(report["run"]["epochs"], "epoch")
        sentences.append({"tone": "fair", "text": f"Interrupted after {epochs}; it can be resumed."})
    if seen.status == "running":
        sentences.append({"tone": "fair", "text": "This run has not ended."})
    return sentences


def _quality(found: dict[str, Any], seen: Evidence) -> Sentences:
    entry = main_metric(found)
    if entry is None or entry["value"] is None:
        return [{"tone": "bad", "text": "The model cannot be evaluated: its metric has no value on these rows."}]
    name, rows = entry["name"], count(found["rows"], "row")
    unseen = "each judged by members that never saw it" if found["in_turn"] else "it has never seen"
    where = {"held out": f"{rows}{',' * found['in_turn']} {unseen}", "given": f"the {rows} given"}.get(
        found["origin"], f"the {rows} it was trained on"
    )
    interval = ""
    if entry["low"] is not None and entry["high"] is not None:
        interval = f" (95 % interval {figure(name, entry['low'])} to {figure(name, entry['high'])})"
    said = f"{WORDS[name]} {figure(name, entry['value'])} on {where}{interval}"
    if entry["baseline"] is None:
        return [{"tone": "fair", "text": f"{said[0].upper()}{said[1:]}."}]
    skill = seen.skill or 0.0  # also 0 if the baseline is perfect
    guess = "always answering the most frequent class" if found["classifies"] else "always answering the mean"
    against = f"{guess} has {figure(name, entry['baseline'])}"
    if skill < CLEARLY or not seen.certain:
        tone, how = ("bad", "No") if skill < CLEARLY else ("fair", "Not clearly")
        sentences = [{"tone": tone, "text": f"{how} better than a guess: {said}; {against}."}]
    else:
        tone, word = ("good", "Good") if skill >= GOOD else ("fair", "Fair") if skill >= FAIR else ("fair", "Weak")
        sentences = [{"tone": tone, "text": f"{word}: {said}; {against}."}]
    if found["rows"] < FEW:
        sentences.append({"tone": "fair", "text": f"These figures are rough: they come from {rows}."})
    return sentences


def _fit(found: dict[str, Any], seen: Evidence) -> Sentences:
    entry = main_metric(found)
    if entry is None or not seen.held_out or seen.skill is None or seen.train_skill is None:
        return []
    trained = f"{WORDS[entry['name']]} {figure(entry['name'], entry['train'])} on rows it was trained on"
    cause, gap = fit_cause(seen), seen.train_skill - seen.skill
    if cause == "hardly trained":
        return [{"tone": "bad", "text": f"It was hardly trained: {count(seen.steps or 0, 'step')}, {trained}."}]
    if cause == "overfits":
        best = "" if seen.best_epoch is None else f"; the best epoch was {seen.best_epoch} of {seen.epochs}"
        return [{"tone": "fair" if gap <= 0.3 else "bad", "text": f"It overfits: {trained}{best}."}]
    if cause in ("cut short", "out of time"):
        return [{"tone": "fair", "text": f"It was still improving when it ended: {trained}."}]
    if cause == "slow":
        return [{"tone": "fair", "text": f"It learned very slowly: {trained}, and the loss hardly fell."}]
    if max(seen.skill, seen.train_skill) < CLEARLY:
        return []  # no better than the baseline on any rows, so there is no fit to describe
    how_much = "overfits little" if gap > LITTLE and seen.outside else "does not overfit"
    return [{"tone": "good", "text": f"It {how_much}: {trained}."}]


def _trust(found: dict[str, Any], seen: Evidence) -> Sentences:
    missed = first_uncovered(found)
    if missed is not None:
        text = f"{100 * missed['share']:.0f} % of rows are below its {100 * missed['level']:g} % quantile"
        return [{"tone": "fair", "text": f"Its quantiles are off: {text} of {missed['target']}."}]
    if seen.confidence is None:
        return []
    off = f"they are off by {100 * found['calibration']['ece']:.1f} points on average"
    if seen.confidence == "trusted":
        return [{"tone": "good", "text": f"Its probabilities can be trusted: {off}, no more than chance explains."}]
    if seen.confidence == "unknown":
        return [
            {
                "tone": "fair",
                "text": f"There are too few rows to evaluate its probabilities: {off}, which may be chance.",
            }
        ]
    lean = {"over": "too confident", "under": "not confident enough", "mixed": "off"}[seen.confidence]
    return [{"tone": "fair", "text": f"Its probabilities are {lean}: {off}, more than chance explains."}]
