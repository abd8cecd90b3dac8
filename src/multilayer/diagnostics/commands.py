"""The command of a remedy: `mlp train` with the options of a run and the changes of the remedy.

    options_of_run      the options of the run that differ from those that `mlp train` would choose
    training_command    the command, or the reason why there is none

The configuration of a run has a value for every option, whether the user set it or not. An option is left out if
`mlp train` would choose the same value.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, cast

from ..core.formatting import listed
from ..data import Encoding
from ..engines.config import AVERAGE
from ..engines.make import choose_engine
from ..nn import losses
from ..runs.config import LEAST_PATIENCE, PATIENCE, Config, learning_rate
from ..runs.stored_data import CommandSource
from ..spec import Spec
from .history import History

NAMES = {"spec": "arch"}
"""Names of options of `mlp train` that differ from those of `ml.fit`."""
TABLE_CHANGES = {"drop_columns": "mlp train uses all columns", "drop_rows": "mlp train uses all rows"}
"""Changes of the table, and why no option of a command makes them."""


def options_of_run(history: History, spec: Spec, encoding: Encoding) -> dict[str, Any]:
    """Return the options of a run that differ from those that `mlp train` would choose for its network."""
    config, usual = _config(history), Config().to_dict()
    known = {name: getattr(config, name) for name in usual if name in history.config}
    usual["engine"] = choose_engine(spec, replace(config, engine="auto"), loss=encoding.loss)
    usual["learning_rate"] = learning_rate(spec)
    usual["calibrate"] = losses.get(encoding.loss).gives_probabilities and history.held_out > 0
    if chosen_length(history):
        usual |= {name: known.get(name) for name in ("epochs", "patience", "average")}
    return {name: value for name, value in sorted(known.items()) if value != usual[name]}


def chosen_length(history: History) -> bool:
    """Return whether the number of epochs was chosen by default: patience and average then have their defaults."""
    config = _config(history)
    patience = max(LEAST_PATIENCE, int(PATIENCE * (config.epochs or 0))) if history.held_out else None
    return config.average == AVERAGE and config.patience == patience


def _config(history: History) -> Config:
    return Config(**{name: history.config[name] for name in Config().to_dict() if name in history.config})


def training_command(
    source: CommandSource, spec: Spec, options: Mapping[str, Any] | None, changes: Mapping[str, Any]
) -> tuple[str, str]:
    """Return the command that trains with changed options, or an empty string and the reason.

    `options` are those of the run. None means that they are unknown.

    Examples
    --------
    >>> training_command(CommandSource(("iris",)), Spec.parse("4-3"), {"epochs": 5}, {"init": "auto"})
    ('mlp train iris --arch 4-3 --epochs 5 --init auto', '')
    >>> training_command(CommandSource(("iris",), ("classes",)), Spec.parse("4-3"), {}, {"init": "auto"})
    ('', 'mlp train has no option for classes')
    """
    for name, why in TABLE_CHANGES.items():
        if name in changes:
            return "", why
    if options is None:
        return "", "the options of the run are unknown"
    missing, words = [*source.missing], ["mlp", "train", *source.words]
    kept = {name: value for name, value in options.items() if name not in changes}
    for name, value in {"spec": str(spec), **kept, **changes}.items():
        if value is None and name != "validation":
            continue  # the default is used
        option, text = f"--{NAMES.get(name, name)}".replace("_", "-"), _text(value)
        if text is None or (name == "spec" and value == str(spec) and Spec.parse(text) != spec):
            missing.append(f"this {name}")
        elif isinstance(value, bool):
            words.append(option if value else option.replace("--", "--no-", 1))
        else:
            words += [option, text]
    return ("", f"mlp train has no option for {listed(missing, 'and')}") if missing else (shlex.join(words), "")


def _text(value: Any) -> str | None:
    """Return the value of an option as the command line takes it, or None if it cannot be written there."""
    if not isinstance(value, Mapping):
        return "none" if value is None else str(value)
    weights = cast("Mapping[str, float]", value)
    if any("," in one or one != one.strip() or not one for one in weights):
        return None
    return ",".join(f"{one}={weight!r}" for one, weight in sorted(weights.items()))
