"""The verdict: two or three sentences that a person understands, and what to try next.

    how good     the metric that decided, against a guess that knows only the shares or the mean of training
    the fit      the same metric on rows that were trained on: far better there is overfitting; no better, and still
                 falling at the end, is a run that was too short
    trust        whether probabilities come true as often as they say, allowing for chance
    trouble      divergence, spikes, an early end, no rows held out

Every threshold stands here by name. Sentences are plain text; names of columns and classes stand in them as they are.
"""

from __future__ import annotations

from typing import Any

from ..data.tables import count

CLEARLY = 0.1
"""Of the distance from the guess to perfection that a model must cover to be called better than it."""
GOOD, FAIR = 0.8, 0.4
GAP = 0.15
"""Of that distance between training rows and others that is called overfitting, if it is outside the interval too."""
LITTLE = 0.02
"""What is too small to be called that, but is there."""
STILL = 0.01
"""Share of the validation loss gained in the last tenth of the epochs that is called still falling."""

FEW = 30
"""Rows below which no figure is worth much."""

PERFECT = {"log_loss": 0.0, "rmse": 0.0, "mae": 0.0}
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


def verdict(report: dict[str, Any]) -> dict[str, Any]:
    """Sentences with a tone (good, fair or bad), the first one first; and remedies."""
    told: list[dict[str, str]] = []
    tries: list[str] = []
    found = report.get("evaluation")
    if found is not None:
        _quality(found, told, tries)
        _fit(found, report, told, tries)
        _trust(found, told, tries)
    _trouble(report, told, tries)
    if not told:
        told.append({"tone": "fair", "text": "This run has not been judged yet."})
    return {"sentences": told, "tries": list(dict.fromkeys(tries))[:4]}


def figure(name: str, value: float) -> str:
    """A value as a person writes it.

    >>> figure("accuracy", 0.97512), figure("rmse", 53.1234), figure("rmse", 22968.4)
    ('97.5 %', '53.12', '22,970')
    """
    if name in SHARES:
        return f"{100 * value:.1f} %"
    return f"{float(f'{value:.4g}'):,.0f}" if 1e4 <= abs(value) < 1e9 else f"{value:.4g}"


def _skill(entry: dict[str, Any], value: float | None) -> float | None:
    """0 for the guess, 1 for perfection; of a root mean squared error by its square, as R² is."""
    perfect, base = PERFECT.get(entry["name"], 1.0), entry["baseline"]
    if value is None or base is None or base == perfect:
        return None
    if entry["name"] == "rmse":
        return 1 - (value / base) ** 2
    return (value - base) / (perfect - base)


def _main(found: dict[str, Any]) -> dict[str, Any] | None:
    named = {entry["name"]: entry for entry in found["metrics"]}
    return named.get(found["metric"]) or next(iter(named.values()), None)


def _quality(found: dict[str, Any], told: list[dict[str, str]], tries: list[str]) -> None:
    entry = _main(found)
    if entry is None or entry["value"] is None:
        told.append({"tone": "bad", "text": "The model cannot be judged: its metric has no value on these rows."})
        return
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
        told.append({"tone": "fair", "text": f"{said[0].upper()}{said[1:]}."})
        return
    skill = _skill(entry, entry["value"]) or 0.0  # 0, too, where the guess is perfect already
    guess = "always answering the most frequent class" if found["classifies"] else "always answering the mean"
    against = f"{guess} has {figure(name, entry['baseline'])}"
    edge = entry["low"] if entry["better"] == "higher" else entry["high"]
    certain = edge is None or (_skill(entry, edge) or 0) > 0
    if skill < CLEARLY or not certain:
        tone, how = ("bad", "No") if skill < CLEARLY else ("fair", "Not clearly")
        told.append({"tone": tone, "text": f"{how} better than a guess: {said}; {against}."})
        tries += ["Look whether the columns can tell the target at all: a column may be missing or mixed up."]
    else:
        tone, word = ("good", "Good") if skill >= GOOD else ("fair", "Fair") if skill >= FAIR else ("fair", "Weak")
        told.append({"tone": tone, "text": f"{word}: {said}; {against}."})
        if skill < FAIR:
            tries.append("More rows or more telling columns help most; then a wider network or more epochs.")
    if found["rows"] < FEW:
        told.append({"tone": "fair", "text": f"All of this stands on {rows}: it is rough."})


def _fit(found: dict[str, Any], report: dict[str, Any], told: list[dict[str, str]], tries: list[str]) -> None:
    entry = _main(found)
    if entry is None or found["origin"] == "trained on":
        return
    here, there = _skill(entry, entry["value"]), _skill(entry, entry["train"])
    if here is None or there is None:
        return
    name = entry["name"]
    reached = entry["high"] if entry["better"] == "higher" else entry["low"]
    outside = reached is None or (_skill(entry, reached) or 0) < there
    seen = f"{WORDS[name]} {figure(name, entry['train'])} on rows it was trained on"
    if there - here > GAP and outside:
        told.append({"tone": "bad" if there - here > 2 * GAP else "fair", "text": f"It overfits: {seen}."})
        tries += [
            "Against overfitting: more rows, more dropout or weight decay, a narrower network, or --patience.",
        ]
        return
    if here < CLEARLY and there < CLEARLY:
        return  # what is no better than a guess anywhere has nothing to overfit with
    if _falling(report):
        told.append({"tone": "fair", "text": f"It was still improving when it ended: {seen}."})
        tries.append("Train longer: more --epochs.")
        return
    how_much = "overfits little" if there - here > LITTLE and outside else "does not overfit"
    told.append({"tone": "good", "text": f"It {how_much}: {seen}."})


def _falling(report: dict[str, Any]) -> bool:
    """Whether the validation loss was at its lowest and still falling in the last tenth of the epochs."""
    values = [point["validation"] for point in report["curves"]["epochs"]]
    if len(values) < 5 or any(value is None for value in values) or report["run"]["status"] != "finished":
        return False
    before = values[-1 - max(1, len(values) // 10)]
    return values[-1] == min(values) and before - values[-1] > STILL * abs(before)


def _trust(found: dict[str, Any], told: list[dict[str, str]], tries: list[str]) -> None:
    entry = found.get("calibration")
    if entry is None:
        for one in found.get("coverage") or ():
            if not one["low"] <= one["level"] <= one["high"]:
                text = f"{100 * one['share']:.0f} % of rows are below its {100 * one['level']:g} % quantile"
                told.append({"tone": "fair", "text": f"Its quantiles are off: {text} of {one['target']}."})
                tries.append("Quantiles that are off want more rows, or a recalibration on rows held out.")
                break
        return
    off = f"they are off by {100 * entry['ece']:.1f} points on average"
    if entry["ece"] <= entry["chance"]:
        told.append({"tone": "good", "text": f"Its probabilities can be trusted: {off}, no more than chance would."})
        return
    lean = "too sure" if entry["of"] == "the class predicted" and entry["lean"] > 0 else ""
    lean = lean or ("too timid" if entry["of"] == "the class predicted" else "off")
    told.append({"tone": "fair", "text": f"Its probabilities are {lean}: {off}, more than chance explains."})
    tries.append(
        "For probabilities to rely on: fewer epochs or --patience, label smoothing, or a larger held-out share."
    )


def _trouble(report: dict[str, Any], told: list[dict[str, str]], tries: list[str]) -> None:
    kinds = [mark["kind"] for mark in report["curves"]["marks"]]
    run = report["run"]
    if run["status"] == "running":
        told.insert(0, {"tone": "fair", "text": "This run has not ended."})
    if run["status"] == "interrupted":
        told.insert(0, {"tone": "fair", "text": f"Interrupted after {run['epochs']} epochs; it can be resumed."})
    if "not finite" in kinds or kinds.count("rollback") >= 3:
        told.insert(0, {"tone": "bad", "text": "Training lost its way: values left their range."})
        tries.insert(0, "A lower learning rate, or clipping: --learning-rate, --clip-norm 1.")
    elif "spike" in kinds:
        told.append({"tone": "fair", "text": f"The loss leapt {kinds.count('spike')} times on the way."})
        tries.append("Against spikes: a lower learning rate, --clip-norm 1, or a look at the rows named in the log.")
    found = report.get("evaluation")
    if found is not None and found["origin"] == "trained on":
        told.append({"tone": "bad", "text": "No rows were held out, so nothing here says how it does on new ones."})
        tries.insert(0, "Hold rows out: --validation 0.2.")
