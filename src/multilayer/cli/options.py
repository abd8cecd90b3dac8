"""Options that several commands share, and how options are described: help text, default and panel."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Annotated, Any

import typer

from ..errors import OptionError

DATA, NETWORK, OUTPUT, MACHINE = "Data", "Network", "Output", "Machine"
"""Panels of the help that several commands have."""


def option(
    *names: str,
    text: str,
    metavar: str,
    panel: str | None = None,
    default: str | bool = "none",
    complete: Iterable[str] = (),
    least: int | None = None,
) -> Any:
    """Return an option that takes a value. `default` describes the default if the signature says None."""
    return typer.Option(
        *names,
        help=text,
        metavar=metavar,
        rich_help_panel=panel,
        show_default=default,
        autocompletion=starting_with(complete) if complete else None,
        min=least,
    )


def flag(*names: str, text: str, panel: str | None = OUTPUT) -> Any:
    """Return an option that takes no value."""
    return typer.Option(*names, help=text, rich_help_panel=panel, metavar="")


def columns_in(text: str | None) -> str | list[str] | None:
    """Split the value of --target into column names.

    >>> columns_in("income"), columns_in("low, high")
    ('income', ['low', 'high'])
    """
    return [part.strip() for part in text.split(",")] if text is not None and "," in text else text


def class_weights(text: str) -> str | dict[str, float]:
    """Parse the value of --class-weight.

    >>> class_weights("balanced"), class_weights("yes=2, no=0.5")
    ('balanced', {'yes': 2.0, 'no': 0.5})
    """
    if text == "balanced":
        return text
    found: dict[str, float] = {}
    for part in text.split(","):
        name, _, value = (word.strip() for word in part.rpartition("="))
        try:
            weight = float(value)
        except ValueError:
            weight = None
        if weight is None or not name or name in found:
            expected = "balanced, or each class once with its weight, such as yes=2,no=1"
            raise OptionError(f"--class-weight must be {expected}, got {text!r}")
        found[name] = weight
    return found


def starting_with(names: Iterable[str]) -> Callable[[str], list[str]]:
    """Return the completion function for an option whose values are `names`."""
    return lambda incomplete: [name for name in names if name.startswith(incomplete)]


Arch = Annotated[
    str,
    typer.Argument(
        metavar="ARCH",
        help="A network: widths (784-256-128-10), a file (JSON, text or model), a run, or - for standard input.",
        show_default=False,
    ),
]
ImpliedActivation = Annotated[
    str, option(text="Activation between plain widths.", metavar="NAME", panel=NETWORK, default=True)
]
Model = Annotated[
    Path, typer.Argument(metavar="MODEL", help="A model file, or the folder of a run.", show_default=False)
]
Data = Annotated[
    str, typer.Argument(metavar="DATA", help="A table, or the name of a bundled data set.", show_default=False)
]
AsJson = Annotated[bool, flag("--json", text="Print JSON.")]
Plot = Annotated[Path | None, option("--plot", text="Save a plot as .svg, .png or .pdf.", metavar="FILE", panel=OUTPUT)]

Target = Annotated[
    str | None,
    option(
        "--target",
        text="Column to predict. Separate several columns by commas.",
        metavar="COL",
        panel=DATA,
        default="the column named target, label, class, y or outcome",
    ),
]
Group = Annotated[
    str | None,
    option("--group", text="Column of groups. Rows of a group are held out together.", metavar="COL", panel=DATA),
]
TimeColumn = Annotated[
    str | None,
    option("--time-column", text="Column of times. The latest rows are held out.", metavar="COL", panel=DATA),
]
SampleWeight = Annotated[
    str | None,
    option("--sample-weight", text="Column of sample weights. It is not used as an input.", metavar="COL", panel=DATA),
]
Categorical = Annotated[
    list[str] | None,
    option(
        "--categorical",
        text="Column to treat as categorical, even if it contains numbers or dates. Repeat for more columns.",
        metavar="COL",
        panel=DATA,
    ),
]
Track = Annotated[
    list[str] | None,
    option(
        "--track",
        text="Also log to tensorboard, wandb, trackio or mlflow. Repeat for more trackers.",
        metavar="TRACKER",
        panel=OUTPUT,
    ),
]
Quiet = Annotated[bool, flag("--quiet", "-q", text="Print only decisions about the data and the result.")]
EventsAsJson = Annotated[bool, flag("--json", text="Print each event as one line of JSON.")]
