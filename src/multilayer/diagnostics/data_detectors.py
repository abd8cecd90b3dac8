"""Faults of the data and of the options that do not fit it: scale, leakage, labels, loss, batch size."""

from __future__ import annotations

from collections.abc import Iterator

from ..core.formatting import count, number, percent
from ..nn.layers import BatchNorm
from .case import Case, batch_to_layer_norm
from .findings import MOST_LISTED, Finding, Place
from .labels import NOISY_MODEL
from .measurements import FEWEST_STEPS, LEAKED

LARGE_SCALE = 20.0
"""Root mean square of an encoded column that is too large."""
SCALE_RATIO = 1000.0
"""Ratio of the largest to the smallest root mean square that is too large."""
LEAKS = ((0.9, 0.6), (0.94, 0.3), (0.96, 0.1))
"""A column is suspicious if its skill alone, and the lead over the skill of the next column, are at least one of
these."""
NOISY_QUARTER, NOISY_HALF = 0.13, 0.15
"""Error rates of the best simple method, in its most confident quarter and half of the rows, that suggest wrong
labels."""
OVERLAP = 2.3
"""Classes overlap if the less confident half of the rows has more than this many times the errors of the other half."""
MEMBERS = 4
"""Networks of the ensemble that is trained without suspects. Labels that are still wrong change its average less."""
MANY_CLASSES, AGREEING, UNORDERED = 50, 0.4, 0.6
"""Up to this number of whole numbers are probably classes if the agreement and the disorder of the target are at least
these. Ratings and other amounts are ordered."""
HEAVY_TAILS = 20.0
"""Excess kurtosis of residuals that squared errors cannot handle."""
NO_MATTER = 0.9
"""From this skill on held-out rows on, the residuals are too small for outliers to matter."""
SMALL_BATCH = 8
"""Batch norm needs batches of more rows than this."""
LONG_TAIL, DISPERSED = 1.5, 50.0
"""Whole numbers from 0 are counts if their skewness is above the first number, and variance / mean below the second."""


def unscaled_inputs(case: Case) -> Iterator[Finding]:
    """Yield a finding if the network reads numbers of very different or very large size."""
    facts = case.measured.columns
    ratio = facts.largest_scale / facts.smallest_scale if facts.smallest_scale > 0 else 1.0
    entries = case.spec.entries
    if entries and entries[0].layer.normalises:
        return
    if facts.largest_scale < LARGE_SCALE and (ratio < SCALE_RATIO or facts.largest_scale < 3):
        return
    yield Finding(
        kind="unscaled_inputs",
        severity="warning",
        message=f"The network reads numbers of size {number(facts.largest_scale)} in column {facts.largest_column!r} "
        f"and of size {number(facts.smallest_scale)} in another: the largest column dominates the first layer.",
        where=Place(column=facts.largest_column),
        evidence={"largest": facts.largest_scale, "smallest": facts.smallest_scale},
        remedies=(case.train_with("Train with scaled columns.", scaling="auto", **case.usual_rate()),),
    )


def leakage(case: Case) -> Iterator[Finding]:
    """Yield a finding if one column predicts the target nearly perfectly, no other does, and the model learned it."""
    alone, skills = case.measured.columns.alone, case.measured.skills
    if len(alone) < 2 or (skills is not None and max(skills.train, skills.held_out) < LEAKED):
        return
    (name, best), (_, second), *_ = alone.items()
    lead = best - max(second, 0.0)
    if not any(best >= skill and lead >= least for skill, least in LEAKS):
        return
    yield Finding(
        kind="leakage",
        severity="error",
        message=f"Column {name!r} alone predicts the target with a skill of {best:.3f}, the next column with "
        f"{max(second, 0.0):.3f}: check that it is known before the target.",
        where=Place(column=name),
        evidence={"skill": best, "next_skill": second},
        remedies=(case.train_with(f"Train without column {name!r}.", drop_columns=[name]),),
    )


def label_noise(case: Case) -> Iterator[Finding]:
    """Yield a finding if even confident predictions are often wrong, those of the model and of all simple methods.

    Predictions near the boundary between classes may be worse, but not much worse: otherwise, the classes overlap.
    """
    facts = case.measured.labels
    if facts is None or case.fact("steps", FEWEST_STEPS) < FEWEST_STEPS:
        return
    if facts.model_error < NOISY_MODEL or facts.lowest_quarter < NOISY_QUARTER:
        return
    share, others = facts.confident_errors
    if share < NOISY_HALF or others > OVERLAP * share:
        return
    yield Finding(
        kind="label_noise",
        severity="warning",
        message=f"About {percent(share)} of the labels contradict similar rows even where predictions are most "
        "confident: these labels are wrong, or what decides them is not in the columns. "
        f"{count(len(facts.suspects), 'row')} should be checked.",
        where=Place(rows=facts.suspects[:MOST_LISTED]),
        evidence={"share": share, "suspects": len(facts.suspects), "rows": facts.rows},
        remedies=(
            case.train_with(
                "Check the labels of the listed rows, and train an ensemble without those that are wrong.",
                drop_rows=list(facts.suspects),
                ensemble=max(MEMBERS, case.option("ensemble", 1)),
            ),
        ),
    )


def wrong_loss(case: Case) -> Iterator[Finding]:
    """Yield a finding if the loss does not fit the values of the target."""
    facts, loss, skills = case.measured.columns.target, case.model.encoding.loss, case.measured.skills
    if facts is None or loss != "mse" or case.source.own_loss:
        return
    unordered = facts.agreement >= AGREEING and facts.disorder >= UNORDERED
    if facts.whole and (facts.values == 2 or (unordered and facts.values <= MANY_CLASSES)):
        yield Finding(
            kind="wrong_loss",
            severity="warning",
            message=f"The target has only {facts.values} different whole numbers"
            f"{', in no order' if unordered else ''}, but is trained as a number: if they are classes, train a "
            "classification.",
            evidence={"values": facts.values, "agreement": facts.agreement, "disorder": facts.disorder},
            remedies=(
                case.train_with(
                    "Train a classification.",
                    task="binary" if facts.values == 2 else "multiclass",
                    loss="cross_entropy",
                    spec=case.spec_for(facts.values),
                ),
            ),
        )
    elif facts.whole and facts.positive and facts.skewness > LONG_TAIL and facts.dispersion < DISPERSED:
        yield Finding(
            kind="wrong_loss",
            severity="warning",
            message="The target looks like a count: whole numbers from 0 with a long tail. Squared errors do not fit "
            "it.",
            evidence={"values": facts.values, "skewness": facts.skewness, "dispersion": facts.dispersion},
            remedies=(case.train_with("Train with the loss for counts.", loss="poisson"),),
        )
    elif (
        facts.residual_kurtosis > HEAVY_TAILS
        and case.fact("steps", FEWEST_STEPS) >= FEWEST_STEPS
        and not (skills is not None and skills.held_out >= NO_MATTER)
    ):
        yield Finding(
            kind="wrong_loss",
            severity="warning",
            message=f"A few residuals are very large (excess kurtosis {number(facts.residual_kurtosis)}): squared "
            "errors let them dominate.",
            evidence={"residual_kurtosis": facts.residual_kurtosis},
            remedies=(
                case.train_with("Train with the mean absolute error, which limits the effect of outliers.", loss="mae"),
            ),
        )


def batch_norm_small_batch(case: Case) -> Iterator[Finding]:
    """Yield a finding if batch norm computes its statistics from a few rows."""
    layer = next((entry for entry in case.spec.entries if isinstance(entry.layer, BatchNorm)), None)
    if layer is None or case.history is None:
        return
    batch = case.history.batch_size()
    if batch > SMALL_BATCH:
        return
    yield Finding(
        kind="batch_norm_small_batch",
        severity="warning",
        message=f"{layer.name} computes means and variances from batches of {count(batch, 'row')}, which is too few.",
        where=Place(layer=layer.name),
        evidence={"batch_size": batch},
        remedies=(
            case.train_with(
                "Train with layer norm, which does not depend on the batch.", spec=case.spec_with(batch_to_layer_norm)
            ),
            case.train_with("Train with batches of 32 rows.", batch_size=32),
        ),
    )
