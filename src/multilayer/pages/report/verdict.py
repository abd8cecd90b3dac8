"""The verdict of a report: two or three sentences, and what to try next.

    evidence   measurements: skill on held-out and on training rows, best epoch, slopes of the losses at the end,
               calibration, spikes and divergence
    sentences  quality compared with the baseline and with simple methods (`reachable`), fit (overfitting, too short, or
               neither), whether probabilities are calibrated, and trouble such as divergence
    findings   faults that the diagnosis found; their remedies come first, and they replace weaker sentences (`faults`)
    causes     at most one about the fit (`fit_cause`), one about probabilities, one about stability
    remedies   one per cause; `moves` names the settings that it changes, and the direction

Remedies of one report never contradict each other. Only the remedy for the fit changes epochs, width and
regularization, and there is at most one. The learning rate is raised only if no other remedy lowers it.
Every threshold is a named constant. Skill is 0 for the baseline and 1 for a perfect model. Names of columns and classes
are inserted unchanged.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from ...core.formatting import count
from ...nn import losses
from . import faults, reachable

CLEARLY = 0.1
"""Minimum skill of a model that is clearly better than the baseline."""
GOOD = 0.8
"""Minimum skill of a model that is good, if no simple method is clearly better."""
FAIR = 0.4
"""Below this skill, the verdict looks for a cause of a poor fit."""
GAP = 0.15
"""Difference in skill between training and held-out rows that means overfitting, if it is also outside the interval."""
STILL = 0.1
"""A loss is still falling if at least this fraction of its decrease is in the second half of the epochs. A shorter last
part would not work, because schedules end with a small learning rate, at which losses decrease little."""
LEAST = 0.01
"""Minimum relative decrease of a loss that is falling."""
SLOW = 0.05
"""If a training loss falls in every epoch, but by less than this fraction in total, the learning rate is too low."""
ROWS_PER_PARAMETER = 10
"""A network with fewer than one parameter per this number of rows may be too small for its task."""
FEW_STEPS = 100
"""A run of fewer steps has hardly been trained if it is no better than the baseline on its own training rows. Runs of
many epochs are an exception if the best epoch was in the first half."""
FEWEST_EPOCHS = 3
"""Minimum number of epochs for computing a slope."""
UNRELIABLE = 0.1
"""If random variation alone can cause a calibration error of this size, there are too few rows to evaluate the
probabilities."""
LITTLE = 0.02
"""Difference in skill that is visible, but too small to be called overfitting."""
FEW = 30
"""With fewer rows, the verdict warns that the metrics are uncertain."""

WORDS = {
    "accuracy": "accuracy",
    "balanced_accuracy": "balanced accuracy",
    "log_loss": "log loss",
    "auc": "area under the ROC curve",
    "average_precision": "average precision",
    "f1": "F1",
    "rmse": "root mean squared error",
    "mae": "mean absolute error",
    "r2": "R²",
}

Confidence = Literal["trusted", "unknown", "over", "under", "mixed"]


Sentences = list[tuple[str, str]]
"""Tone (good, fair or bad) and text."""


def verdict(report: dict[str, Any]) -> dict[str, Any]:
    """Return sentences with a tone (good, fair or bad), the most important first, and what to try.

    The remedies of findings have a command. Those of the verdict name options in their text.
    """
    found, seen = report.get("evaluation"), evidence(report)
    findings: faults.Findings = report.get("findings", ())
    replaced = faults.replaced_causes(findings)
    sentences: Sentences = []
    if seen.diverged and "diverged" not in replaced:
        text = "Training diverged: the loss, a gradient or a weight became too large or was not finite."
        sentences.append(("bad", text))
    if seen.status == "interrupted":
        sentences.append(("fair", f"Interrupted after {count(seen.epochs, 'epoch')}; it can be resumed."))
    if seen.status == "running":
        sentences.append(("fair", "This run has not ended."))
    if found is not None:
        no_fit = fit_cause(seen) in replaced or any(one["kind"] in faults.FIT for one in findings)
        sentences += _quality(found, seen) + _reachable(found, seen, findings)
        sentences += ([] if no_fit else _fit(found, seen)) + _trust(found, seen)
    if seen.spikes and not seen.diverged and "spikes" not in replaced:
        sentences.append(("fair", f"The loss spiked {count(seen.spikes, 'time')} during training."))
    if not seen.held_out:
        sentences.append(("bad", "No rows were held out, so the quality on new rows is unknown."))
    if not sentences:
        sentences.append(("fair", "This run has not been evaluated yet."))
    return {
        "sentences": [{"tone": tone, "text": text} for tone, text in sentences],
        "tries": [*faults.remedies(findings), *_own_remedies(seen, findings, replaced)],
    }


def _own_remedies(seen: Evidence, findings: faults.Findings, replaced: frozenset[str]) -> list[dict[str, str]]:
    """Return the remedies of the verdict that findings neither replace nor concern."""
    settings = faults.changed_settings(findings, seen.parameters)
    kept = [one for one in remedies(seen) if one.cause not in replaced and not settings & one.moves.keys()]
    return [{"text": one.text, "command": ""} for one in kept]


def figure(name: str, value: float) -> str:
    """Format the value of a metric.

    >>> figure("accuracy", 0.97512), figure("rmse", 53.1234), figure("rmse", 22968.4)
    ('97.5 %', '53.12', '22,970')
    """
    if name in ("accuracy", "balanced_accuracy"):
        return f"{100 * value:.1f} %"
    return f"{float(f'{value:.4g}'):,.0f}" if 1e4 <= abs(value) < 1e9 else f"{value:.4g}"


def _quality(found: dict[str, Any], seen: Evidence) -> Sentences:
    entry = main_metric(found)
    if entry is None or entry["value"] is None:
        return [("bad", "The model cannot be evaluated: its metric has no value on these rows.")]
    name, rows = entry["name"], count(found["rows"], "row")
    unseen = ", each predicted by the members that did not train on it" if found["in_turn"] else " it has never seen"
    where = {"held out": f"{rows}{unseen}", "given": f"the {rows} given"}.get(
        found["origin"], f"the {rows} it was trained on"
    )
    interval = ""
    if entry["low"] is not None and entry["high"] is not None:
        interval = f" (95 % interval {figure(name, entry['low'])} to {figure(name, entry['high'])})"
    measured = f"{WORDS[name]} {figure(name, entry['value'])} on {where}{interval}"
    if entry["baseline"] is None:
        return [("fair", f"{measured[0].upper()}{measured[1:]}.")]
    skill = seen.skill or 0.0  # also 0 if the baseline is perfect
    guess = "always answering the most frequent class" if found["classifies"] else "always answering the mean"
    against = f"{guess} has {figure(name, entry['baseline'])}"
    if skill < CLEARLY or not seen.certain:
        tone, how = ("bad", "No") if skill < CLEARLY else ("fair", "Not clearly")
        sentences = [(tone, f"{how} better than a guess: {measured}; {against}.")]
    else:
        good = skill >= GOOD and seen.reach != "more"
        tone, words = ("good", "Good") if good else ("fair", "Better than a guess")
        sentences = [(tone, f"{words}: {measured}; {against}.")]
    if found["rows"] < FEW:
        sentences.append(("fair", f"These figures are rough: they come from {rows}."))
    return sentences


def _reachable(found: dict[str, Any], seen: Evidence, findings: faults.Findings) -> Sentences:
    noise = reachable.noise_sentences(findings, _value(found, "accuracy"))
    settled = seen.certain and reachable.fault_free(findings) and fit_cause(seen) in (None, "uninformative")
    reach = "unknown" if seen.reach == "close" and (noise or not settled) else seen.reach
    guess = (seen.skill or 0.0) < CLEARLY
    return reachable.sentences(found.get("references"), reach=reach, rows=found["rows"], guess=guess) + noise


def _value(found: Mapping[str, Any], name: str) -> float | None:
    return next((entry["value"] for entry in found["metrics"] if entry["name"] == name), None)


def _fit(found: dict[str, Any], seen: Evidence) -> Sentences:
    entry = main_metric(found)
    if entry is None or not seen.held_out or seen.skill is None or seen.train_skill is None:
        return []
    trained = f"{WORDS[entry['name']]} {figure(entry['name'], entry['train'])} on rows it was trained on"
    gap = seen.train_skill - seen.skill
    match fit_cause(seen):
        case "hardly trained":
            return [("bad", f"It was hardly trained: {count(seen.steps or 0, 'step')}, {trained}.")]
        case "overfits":
            best = f"; the best epoch was {seen.best_epoch} of {seen.epochs}" if seen.best_epoch is not None else ""
            return [("fair" if gap <= 0.3 else "bad", f"It overfits: {trained}{best}.")]
        case "cut short" | "out of time":
            return [("fair", f"It was still improving when it ended: {trained}.")]
        case "slow":
            return [("fair", f"It learned very slowly: {trained}, and the loss hardly fell.")]
        case _ if max(seen.skill, seen.train_skill) < CLEARLY:
            return []  # no better than the baseline on any rows, so there is no fit to describe
        case _:
            how_much = "overfits little" if gap > LITTLE and seen.outside else "does not overfit"
            return [("good", f"It {how_much}: {trained}.")]


def _trust(found: dict[str, Any], seen: Evidence) -> Sentences:
    missed = first_uncovered(found)
    if missed is not None:
        text = f"{100 * missed['share']:.0f} % of rows are below its {100 * missed['level']:g} % quantile"
        return [("fair", f"Its quantiles are inaccurate: {text} of {missed['target']}.")]
    if seen.confidence is None:
        return []
    off = f"they are off by {100 * found['calibration']['ece']:.1f} points on average"
    if seen.confidence == "trusted":
        return [("good", f"Its probabilities can be trusted: {off}, no more than chance explains.")]
    if seen.confidence == "unknown":
        return [("fair", f"There are too few rows to evaluate its probabilities: {off}, which may be chance.")]
    lean = {"over": "too confident", "under": "not confident enough", "mixed": "off"}[seen.confidence]
    return [("fair", f"Its probabilities are {lean}: {off}, more than chance explains.")]


# Evidence


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """Measurements of a report. None means that a value could not be measured."""

    skill: float | None = None
    certain: bool = True
    """Whether the whole interval of the skill is above the baseline."""
    train_skill: float | None = None
    outside: bool = False
    """Whether the skill on training rows is outside the interval of the held-out rows."""
    reach: reachable.Reach = "unknown"
    """What a comparison with simple methods says about what is reachable."""
    held_out: bool = True
    status: str = "finished"
    timed_out: bool = False
    time_limit: bool = False
    """Whether a time limit was set, which may have reduced the number of epochs."""
    steps: int | None = None
    epochs: int = 0
    best_epoch: int | None = None
    train_loss: Sequence[float] = ()
    """Loss of each epoch; empty if any is unknown."""
    validation_loss: Sequence[float] = ()
    rows: int | None = None
    """Number of training rows."""
    parameters: int | None = None
    """Number of parameters of one ensemble member."""
    learning_rate: float | None = None
    confidence: Confidence | None = None
    calibrated: bool = False
    smoothing: float = 0.0
    coverage_off: bool = False
    diverged: bool = False
    spikes: int = 0


def evidence(report: Mapping[str, Any]) -> Evidence:
    """Read the evidence from the data of a report."""
    found, run, curves = report.get("evaluation"), report["run"], report["curves"]
    config, effective = report.get("config") or {}, report.get("effective") or {}
    kinds = [mark["kind"] for mark in curves["marks"]]
    parameters = (report.get("cost") or {}).get("parameters")
    epochs = curves["epochs"]
    shared: dict[str, Any] = {
        "status": run["status"],
        "timed_out": run["status"] == "stopped" and "time limit" in run.get("reason", ""),
        "time_limit": config.get("time_limit") is not None,
        "steps": run.get("steps"),
        "epochs": run["epochs"],
        "best_epoch": _best_epoch(curves),
        "train_loss": _known([point.get("loss") for point in epochs]),
        "validation_loss": _known([point["validation"] for point in epochs]),
        "rows": run.get("rows"),
        "parameters": parameters // max(1, report.get("members") or 1) if parameters is not None else None,
        "learning_rate": config.get("learning_rate"),
        "calibrated": bool(config.get("calibrate")),
        "smoothing": _smoothing(effective.get("loss") or config.get("loss")),
        "diverged": "not finite" in kinds or kinds.count("rollback") >= 3,
        "spikes": kinds.count("spike"),
    }
    if found is None:
        return Evidence(**shared)
    shared |= {
        "held_out": found["origin"] != "trained on",
        "confidence": confidence(found.get("calibration")),
        "coverage_off": first_uncovered(found) is not None,
        "reach": reachable.reach_of(found.get("references"), run.get("rows")),
    }
    entry = main_metric(found)
    if entry is None:
        return Evidence(**shared)
    better, worse = ("high", "low") if entry["better"] == "higher" else ("low", "high")
    here, there = skill(entry, entry["value"]), skill(entry, entry["train"])
    most = entry[better]
    if most is not None and entry["how"] == "exact":
        most += 0.5 / found["rows"]  # continuity correction: one wrong row among many is not overfitting
    edge, reached = skill(entry, entry[worse]), skill(entry, most)
    return Evidence(
        **shared,
        skill=here,
        certain=edge is None or edge > 0,
        train_skill=there,
        outside=there is not None and (reached is None or reached < there),
    )


def main_metric(found: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the metric that selected the best epoch, or the first one."""
    named = {entry["name"]: entry for entry in found["metrics"]}
    return named.get(found["metric"]) or next(iter(named.values()), None)


def skill(entry: Mapping[str, Any], value: float | None) -> float | None:
    """Return the skill: 0 for the baseline, 1 for a perfect model. It is computed from the squared RMSE, as R² is."""
    perfect, base = {"log_loss": 0.0, "rmse": 0.0, "mae": 0.0}.get(entry["name"], 1.0), entry["baseline"]
    if value is None or base is None or base == perfect:
        return None
    if entry["name"] == "rmse":
        return 1 - (value / base) ** 2
    return (value - base) / (perfect - base)


def confidence(entry: Mapping[str, Any] | None) -> Confidence | None:
    """Return whether probabilities are too extreme (over) or not extreme enough (under), beyond chance."""
    if entry is None:
        return None
    if entry["ece"] <= entry["chance"]:
        return "trusted" if entry["chance"] < UNRELIABLE else "unknown"
    if entry["of"] == "the predicted class":
        error = entry["lean"]
    else:  # for a binary outcome, confidence is the distance from 0.5
        rows = sum(one["rows"] for one in entry["bins"])
        gaps = ((one["rows"], one["given"], one["given"] - one["came"]) for one in entry["bins"])
        error = sum(n * (gap if given > 0.5 else -gap) for n, given, gap in gaps) / rows
    if abs(error) < entry["ece"] / 2:
        return "mixed"
    return "over" if error > 0 else "under"


def first_uncovered(found: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the first quantile whose fraction of rows below it is wrong by more than chance."""
    missed = (one for one in found.get("coverage") or () if not one["low"] <= one["level"] <= one["high"])
    return next(missed, None)


def _best_epoch(curves: Mapping[str, Any]) -> int | None:
    """Return the epoch of the model, else the one with the lowest validation loss."""
    length = curves.get("steps_per_epoch")
    best = [mark["step"] for mark in curves["marks"] if mark["kind"] == "best"]
    if best and length:
        return max(1, round(best[-1] / length))
    points = [(point["validation"], point["epoch"]) for point in curves["epochs"] if point["validation"] is not None]
    return min(points)[1] if points else None


def _known(values: Sequence[float | None]) -> tuple[float, ...]:
    return () if None in values else tuple(value for value in values if value is not None)


def _smoothing(loss: str | None) -> float:
    return 0.0 if loss in (None, "auto") else dict(losses.get(loss).constants).get("label_smoothing", 0.0)


# Causes and remedies


@dataclass(frozen=True, kw_only=True)
class Remedy:
    """`moves` maps a setting to +1 if the remedy raises it, and to -1 if it lowers it."""

    cause: str
    text: str
    moves: Mapping[str, int] = field(default_factory=dict[str, int])


def fit_cause(e: Evidence) -> str | None:
    """Return the cause that limits the fit. None if the model fits well or cannot be evaluated."""
    if e.diverged or not e.held_out or e.skill is None:
        return None
    trained, few = e.train_skill, e.steps is not None and e.steps < FEW_STEPS
    if trained is not None and trained < CLEARLY and few and (e.epochs <= FEWEST_EPOCHS or _late(e)):
        return "hardly trained"
    if trained is not None and trained >= CLEARLY and e.outside and trained - e.skill > GAP and not _slow(e):
        return "overfits"
    if _still_improving(e):
        return "out of time" if e.timed_out else "cut short"
    if e.skill >= FAIR and e.reach != "more":
        return None
    if _slow(e):
        return "slow"
    if e.reach != "unknown":
        return "behind" if e.reach == "more" else "uninformative"
    return "too small" if _small(e) else "uninformative"


def _small(e: Evidence) -> bool:
    return e.rows is not None and e.parameters is not None and e.parameters * ROWS_PER_PARAMETER < e.rows


def _still_improving(e: Evidence) -> bool:
    """Return whether both losses were falling at the end; for one or two epochs, whether the last one was the best."""
    if not _late(e) or not (e.status == "finished" or e.timed_out):
        return False
    if e.epochs < FEWEST_EPOCHS:
        return e.best_epoch == e.epochs and e.skill is not None and e.skill < FAIR
    lowest = bool(e.validation_loss) and e.validation_loss[-1] == min(e.validation_loss)
    return lowest and _falling(e.train_loss) and _falling(e.validation_loss)


def _late(e: Evidence) -> bool:
    """Return whether the best epoch was in the second half."""
    return e.best_epoch is not None and 2 * e.best_epoch > e.epochs


def _falling(curve: Sequence[float]) -> bool:
    if len(curve) < FEWEST_EPOCHS:
        return False
    first, middle, last = curve[0], curve[len(curve) // 2], curve[-1]
    return first - last > LEAST * abs(first) and middle - last > STILL * (first - last)


def _slow(e: Evidence) -> bool:
    """Return whether the training loss falls in every epoch, but very little."""
    if e.spikes or len(e.train_loss) < FEWEST_EPOCHS or e.best_epoch != e.epochs:
        return False
    first, last = e.train_loss[0], e.train_loss[-1]
    steadily = all(after < before for before, after in zip(e.train_loss, e.train_loss[1:], strict=False))
    return steadily and first - last < SLOW * abs(first)


def remedies(e: Evidence) -> list[Remedy]:
    """Return one remedy per cause, the most urgent first."""
    found: list[Remedy] = []
    slower = f" (it is {e.learning_rate:g})" if e.learning_rate is not None else ""
    if e.diverged:
        text = f"Lower the learning rate{slower} or clip gradients: --learning-rate, --clip-norm 1."
        found.append(Remedy(cause="diverged", text=text, moves={"learning_rate": -1}))
    elif e.spikes:
        text = f"Against spikes: lower the learning rate{slower}, or set --clip-norm 1."
        found.append(Remedy(cause="spikes", text=text, moves={"learning_rate": -1}))
    if not e.held_out:
        text = "Hold out rows to measure how good the model is on new rows: --validation 0.2."
        return [Remedy(cause="nothing held out", text=text, moves={"held_out": 1}), *found]
    cause = fit_cause(e)
    if cause is not None:
        found.append(_for_fit(cause, e))
    # Calibration does not help a model that has not learned its task yet.
    if cause not in (None, "overfits"):
        return found
    probabilities = _for_probabilities(e)
    if probabilities is not None and not any(set(remedy.moves) & set(probabilities.moves) for remedy in found):
        found.append(probabilities)
    return found


def _for_fit(cause: str, e: Evidence) -> Remedy:
    match cause:
        case "hardly trained":
            text, moves = (
                f"Train longer: {'a larger --time-limit' if e.time_limit else 'more --epochs'}.",
                {"epochs": 1},
            )
        case "overfits":
            text = "Against overfitting: more rows, more dropout or weight decay, or a narrower network."
            moves = {"regularisation": 1, "width": -1}
        case "cut short":
            text, moves = f"Train longer: --epochs {2 * e.epochs}.", {"epochs": 1}
        case "out of time":
            text, moves = "Train longer: a larger --time-limit.", {"epochs": 1}
        case "slow":
            faster = f": --learning-rate {10 * e.learning_rate:g}" if e.learning_rate is not None else ""
            text, moves = f"Raise the learning rate{faster}.", {"learning_rate": 1}
        case "too small":
            text = f"A wider or deeper network: this one has {e.parameters:,} parameters for {e.rows:,} training rows."
            moves = {"width": 1}
        case "behind":
            text = "Train with the default options and a wider network: a simple method is better than this run."
            moves = {"width": 1}
        case _:
            text = "The columns explain little of the target: check that both are correct, and add informative columns."
            moves = {"columns": 1}
    return Remedy(cause=cause, text=text, moves=moves)


def _for_probabilities(e: Evidence) -> Remedy | None:
    more_rows = "hold out more rows: --validation 0.3."
    if e.coverage_off:
        how = more_rows if e.calibrated else "correct them on held-out rows: --calibrate."
        return Remedy(
            cause="coverage", text=f"For correct quantiles, {how}", moves={"held_out": 1} if e.calibrated else {}
        )
    if e.confidence in (None, "trusted", "unknown"):
        return None
    if e.confidence == "under" and e.smoothing:
        text = f"Use less label smoothing than {e.smoothing:g}: it keeps probabilities away from 0 and 1."
        return Remedy(cause="smoothed", text=text, moves={"smoothing": -1})
    cause = {"over": "overconfident", "under": "underconfident", "mixed": "miscalibrated"}[e.confidence]
    if not e.calibrated:
        return Remedy(cause=cause, text="Calibrate the probabilities on held-out rows: --calibrate.")
    if e.confidence == "mixed" and _small(e):
        text = "One temperature cannot correct the probabilities: try a wider or deeper network."
        return Remedy(cause=cause, text=text, moves={"width": 1})
    return Remedy(cause=cause, text=f"For better calibrated probabilities, {more_rows}", moves={"held_out": 1})
