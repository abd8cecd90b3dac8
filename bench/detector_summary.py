"""The tables of bench/detectors.py: hits and false alarms of the detectors, of torchmortem's rules and of plain rules.

The rules of others are applied to the facts of a case (detector_facts.facts), over the second half of the epochs:

    torchmortem 0.1.1, with its default thresholds
        dead_units              a layer in which over half of the values are below 1e-6, in half of the records
        saturated_units         a layer in which over half of the values are above 0.95, in half of the records
        vanishing_gradients     ‖∂L/∂z‖ of the last layer at least 100 times that of the first
        exploding_gradients     ‖∂L/∂z‖ of a layer over 1000
        rate_too_high           the loss rose by half in the last records, in 80 % of them
        rate_too_low            a loss that changes by less than 1e-5 over 20 records
    plain thresholds
        dead_units              a dead unit
        saturated_units         a layer with half of its values above 0.99
        vanishing_gradients     ‖∂L/∂W‖ of the first layer below 1e-3 of the last
        exploding_gradients     ‖∂L/∂W‖ of a layer over 100 before training
        symmetric_units         two equal units
        rate_too_high           a spike, a rollback or a value that is not finite
        rate_too_low            a training loss over 0.9 of that of a constant
        overfitting             a validation loss 10 % above its best
        underfitting            a training loss over half of that of a constant
        unscaled_inputs         columns whose sizes differ by 100
        label_noise             a held-out row in ten whose label has a probability below 0.1
        leakage                 a column that alone explains 95 % of the target
        batch_norm_small_batch  batch norm with fewer than 8 rows
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from detector_cases import FAULTS, HEALTHY
from detector_facts import Facts
from detector_tables import LEAK
from detector_truth import UNITS, present, worst

Result = dict[str, Any]
Rule = Callable[[Facts], bool]


def late(fact: Facts) -> list[list[Facts]]:
    """Return the layers of the epochs in the second half."""
    epochs = sorted(map(int, fact["layers"]))
    return [fact["layers"][str(epoch)] for epoch in epochs if 2 * epoch >= epochs[-1]]


def _often(fact: Facts, key: str, limit: float) -> bool:
    """Return whether the value of a layer is over the limit in half of the late records."""
    over = np.array([[layer[key] > limit for layer in record] for record in late(fact)])
    return bool((over.mean(0) >= 0.5).any())


def _signals(fact: Facts) -> Any:
    """Return ‖∂L/∂z‖ of each layer with weights, averaged over the late records."""
    return np.array([[layer["signal"] for layer in one if "gradient" in layer] for one in late(fact)]).mean(0)


def _signal_falls(fact: Facts) -> bool:
    signals = _signals(fact)
    return bool(signals[-1] >= 1e-30 and (signals[0] < 1e-30 or signals[-1] / signals[0] >= 100))


def _diverges(fact: Facts) -> bool:
    losses = np.array([float(point[0]) for point in fact["history"]])[-20:]
    if len(losses) < 5 or not np.isfinite(losses).all():
        return len(losses) > 0 and not np.isfinite(losses).all()
    return bool((np.diff(losses) > 0).mean() >= 0.8 and losses[-1] > 1.5 * losses[0])


def _plateau(fact: Facts) -> bool:
    losses = np.array([float(point[0]) for point in fact["history"]])
    parts = [losses[i : i + 20] for i in range(len(losses) // 2, len(losses) - 20, 20)]
    return any((part.max() - part.min()) / max(abs(part.mean()), 1e-30) < 1e-5 for part in parts)


def _weights(fact: Facts) -> list[float]:
    return [layer["gradient"] for layer in fact["layers"]["0"] if "gradient" in layer]


def _rebound(fact: Facts) -> bool:
    curve = [float(point[1]) for point in fact["history"] if point[1] is not None]
    return bool(curve) and curve[-1] > 1.1 * min(curve)


TORCHMORTEM: dict[str, Rule] = {
    "dead_units": lambda fact: _often(fact, "near_zero", 0.5),
    "saturated_units": lambda fact: _often(fact, "large", 0.5),
    "vanishing_gradients": _signal_falls,
    "exploding_gradients": lambda fact: any(layer["signal"] > 1000 for one in fact["layers"].values() for layer in one),
    "rate_too_high": _diverges,
    "rate_too_low": _plateau,
}
PLAIN: dict[str, Rule] = {
    "dead_units": lambda fact: worst(fact, "dead") > 0,
    "saturated_units": lambda fact: any(layer["large"] > 0.5 for layer in fact["model"] if "dead" in layer),
    "vanishing_gradients": lambda fact: _weights(fact)[0] < 1e-3 * _weights(fact)[-1],
    "exploding_gradients": lambda fact: max(_weights(fact)) > 100,
    "symmetric_units": lambda fact: worst(fact, "duplicates") > 0,
    "rate_too_high": lambda fact: fact["accidents"] > 0,
    "rate_too_low": lambda fact: fact["train_last"] > 0.9 * fact["base"],
    "overfitting": _rebound,
    "underfitting": lambda fact: fact["train_last"] > 0.5 * fact["base"],
    "unscaled_inputs": lambda fact: fact["columns"] > 2,
    "label_noise": lambda fact: fact["doubted"] > 0.1,
    "leakage": lambda fact: fact["alone"][0] > 0.95,
    "batch_norm_small_batch": lambda fact: fact["batch_norm"] and fact["batch"] < 8,
}


def rows(results: Iterable[Result]) -> list[dict[str, Any]]:
    """Return a row per detector: hits, first hits and findings of its faults, and false alarms, ours and of others.

    A result has the name and the facts of a verified case, its findings, and their kinds in order.
    """
    results = list(results)
    well = [one for one in results if _kind(one) == HEALTHY]
    found: list[dict[str, Any]] = []
    for kind in FAULTS:
        own = [one for one in results if _kind(one) == kind]
        if not own and not well:
            continue
        row = {
            "kind": kind,
            "cases": len(own),
            "hit": sum(kind in one["kinds"] for one in own),
            "true": sum(bool(present(kind, one["facts"]) & set(one["kinds"])) for one in own),
            "first": sum(one["kinds"][:1] == [kind] for one in own),
            "any": sum(bool(one["kinds"]) for one in own),
            "placed": sum(any(placed(f, one["facts"]) for f in one["findings"] if f["kind"] == kind) for one in own),
            "healthy": len(well),
            "false": sum(kind in one["kinds"] for one in well),
        }
        for name, rules in (("torchmortem", TORCHMORTEM), ("plain", PLAIN)):
            if kind in rules:
                row[name] = sum(_applies(rules[kind], one["facts"]) for one in own)
                row[f"{name} false"] = sum(_applies(rules[kind], one["facts"]) for one in well)
        found.append(row)
    return found


def placed(finding: Mapping[str, Any], fact: Facts) -> bool:
    """Return whether a finding names the right layer or column. Findings of the whole run have no place."""
    kind, where = finding["kind"], finding["where"]
    if kind == "leakage":
        return where.get("column") == LEAK
    share = {"dead_units": "dead", "saturated_units": "saturated"}.get(kind)
    if share is None:
        return True
    own = [one[share] for one in fact["model"] if one["layer"] == where.get("layer") and share in one]
    return max(own, default=0.0) >= UNITS


def _kind(result: Result) -> str:
    return result["name"].split("/")[0]


def _applies(rule: Rule, fact: Facts) -> bool:
    with np.errstate(all="ignore"):
        return bool(rule(fact))


HEADS = (
    "fault",
    "cases",
    "found",
    "right place",
    "or another",
    "first",
    "any finding",
    "false alarms",
    "torchmortem",
    "false",
    "plain rule",
    "false",
)


def table(found: list[dict[str, Any]], *, markdown: bool) -> str:
    """Return the rows as aligned text, or as a table in Markdown."""
    lines = [[*HEADS]]
    for row in found:
        shares = [_share(row[name], row["cases"]) for name in ("hit", "placed", "true", "first", "any")]
        others = []
        for name in ("torchmortem", "plain"):
            others += [_share(row.get(name), row["cases"]), _share(row.get(f"{name} false"), row["healthy"])]
        lines.append([row["kind"], str(row["cases"]), *shares, _share(row["false"], row["healthy"]), *others])
    return laid_out(lines, markdown=markdown)


def _share(count: int | None, of: int) -> str:
    if count is None or not of:
        return "–"
    return f"{100 * count / of:.1f} %" if 0 < count < of else f"{100 * count // of} %"


def laid_out(lines: list[list[str]], *, markdown: bool) -> str:
    """Return lines of cells; the first line is the head.

    >>> print(laid_out([["a", "b"], ["x", "10 %"]], markdown=True))
    | a | b |
    |---|---:|
    | x | 10 % |
    """
    if markdown:
        rule = "|" + "|".join(["---", *["---:"] * (len(lines[0]) - 1)]) + "|"
        head, *rest = ["| " + " | ".join(line) + " |" for line in lines]
        return "\n".join([head, rule, *rest])
    widths = [max(len(line[i]) for line in lines) for i in range(len(lines[0]))]
    return "\n".join(
        "  ".join(
            cell.ljust(w) if i == 0 else cell.rjust(w) for i, (cell, w) in enumerate(zip(line, widths, strict=True))
        )
        for line in lines
    )


def cured(found: Sequence[Mapping[str, Any]], *, markdown: bool) -> str:
    """Return the table of remedies: per fault, cured of tried, errors before and after, and the usual remedy."""
    lines = [
        ["fault", "tried", "cured", "finding gone", "not worse", "test error before", "after", "most frequent remedy"]
    ]
    for kind in FAULTS:
        own = [one for one in found if _kind(dict(one)) == kind]
        if not own:
            continue
        texts = [one["text"] for one in own]
        usual = max(texts, key=texts.count)
        means = [_median([one[name] for one in own]) for name in ("before", "after")]
        counts = [sum(bool(one[name]) for one in own) for name in ("cured", "gone", "not_worse")]
        lines.append([kind, str(len(own)), *[_share(count, len(own)) for count in counts], *means, usual])
    return laid_out(lines, markdown=markdown)


def _median(values: list[float]) -> str:
    return f"{np.median([value if math.isfinite(value) else 1e9 for value in values]):.3g}"


def misses(results: Iterable[Result]) -> list[str]:
    """Return a line for each fault that was not found, and each finding of a healthy case."""
    lines: list[str] = []
    for one in results:
        kind = _kind(one)
        if (kind == HEALTHY and one["kinds"]) or (kind != HEALTHY and kind not in one["kinds"]):
            lines.append(f"{one['name']}: found {', '.join(one['kinds']) or 'nothing'} ({one['why']})")
    return lines


def distribution(results: Iterable[Result], kind: str) -> str:
    """Return the fifth, median and ninety-fifth percentile of each measured number, for a fault and healthy cases."""
    sides = {side: [one for one in results if _kind(one) == side] for side in (kind, HEALTHY)}
    names = sorted({name for own in sides.values() for one in own for name in flat(one["measurements"])})
    lines = [["measurement", *[f"{side} {q} %" for side in sides for q in (5, 50, 95)]]]
    for name in names:
        values = [[flat(one["measurements"]).get(name, math.nan) for one in own] for own in sides.values()]
        if all(np.isfinite(one).any() for one in values):
            lines.append([name, *[f"{np.nanpercentile(one, q):.3g}" for one in values for q in (5, 50, 95)]])
    return laid_out(lines, markdown=False)


def flat(values: Any, place: str = "") -> dict[str, float]:
    """Return the numbers of nested JSON by their place; of a list, the smallest and the largest.

    >>> flat({"a": {"b": 1, "c": [2, 3]}})
    {'a.b': 1.0, 'a.c.min': 2.0, 'a.c.max': 3.0}
    """
    if isinstance(values, bool | int | float):
        return {place: float(values)}
    if isinstance(values, Mapping):
        return {
            name: value
            for key, one in values.items()
            for name, value in flat(one, f"{place}.{key}".lstrip(".")).items()
        }
    if isinstance(values, list) and values:
        inner = [flat(one, place) for one in values]
        keys = {key for one in inner for key in one}
        ends = {key: [one[key] for one in inner if key in one] for key in sorted(keys)}
        return {f"{key}.{end}": pick(own) for key, own in ends.items() for end, pick in (("min", min), ("max", max))}
    return {}
