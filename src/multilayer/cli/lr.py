"""`mlp lr`: suggest a learning rate from short runs on a table."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from ..errors import printable
from . import arch as networks
from .options import (
    AsJson,
    Categorical,
    Data,
    Group,
    Plot,
    SampleWeight,
    Target,
    TimeColumn,
    columns_in,
    flag,
    option,
)
from .output import console, show, strict_json
from .train import PANELS as TRAIN
from .train import (
    Hidden,
    HiddenActivation,
    HiddenDropout,
    Network,
    RecipeName,
    chosen_options,
    shape,
    with_options,
)

if TYPE_CHECKING:
    from rich.table import Table

    from ..training.learning_rate_finder import LearningRateSuggestion

EXAMPLES = (
    "mlp lr digits --arch 64-64-10 --plot lr.svg",
    "mlp lr diabetes --arch 10-32-1 --optimizer momentum --epochs 200",
    "mlp lr iris --share 1 --json",
)
NOTE = """The exit code is 1 if there is no suggestion. The reason is printed: for example, the training is too short,
or the loss does not clearly fall at any learning rate."""

WITHOUT = (
    *("learning_rate", "average", "on_spike", "rollbacks", "metric", "patience", "time_limit", "ensemble", "calibrate"),
    *("checkpoint_every", "statistics_every"),
)
"""Options of `mlp train` that change neither a step of one network nor the number of steps."""
PANELS = {panel: tuple(name for name in names if name not in WITHOUT) for panel, names in TRAIN.items()}


def lr(
    data: Data,
    target: Target = None,
    group: Group = None,
    time_column: TimeColumn = None,
    sample_weight: SampleWeight = None,
    categorical: Categorical = None,
    arch: Network = None,
    recipe: RecipeName = None,
    hidden: Hidden = None,
    activation: HiddenActivation = None,
    dropout: HiddenDropout = None,
    share: Annotated[
        float,
        option(
            "--share",
            text="Maximum number of steps of the search, as a fraction of the steps of the training.",
            metavar="X",
            default=True,
        ),
    ] = 0.1,
    config: Annotated[
        Path | None, option("--config", text="Read options of the training from a file.", metavar="FILE.toml")
    ] = None,
    plot: Plot = None,
    quiet: Annotated[bool, flag("--quiet", "-q", text="Print only the learning rate.")] = False,
    as_json: AsJson = False,
    **options: Any,
) -> None:
    """Suggest a learning rate for a network and a table.

    Pass the options that you would pass to mlp train. Short runs with up to nine rates around the default are compared
    by their loss on held-out rows. They take about a tenth of the time of the training. The plot also shows a range
    test: the loss while the learning rate grows.
    """
    from ..training.learning_rate_finder import find_learning_rate

    if plot is not None:
        from ..drawing.plots import check_path

        check_path(plot)
    chosen, categories = chosen_options(config, options)
    chosen.pop("learning_rate", None)  # a file can contain the rate of an earlier training
    found = find_learning_rate(
        None if arch is None else networks.read_network(arch),
        data,
        recipe=recipe,
        **shape(hidden, activation, dropout),
        share=share,
        quiet=quiet or as_json,
        target=columns_in(target),
        group=group,
        time_column=time_column,
        sample_weight=sample_weight,
        categorical=categorical or categories,
        **cast(Any, chosen),
    )
    plotted = plot is not None and bool(found.rates)
    if plotted:
        found.plot(plot)
    if as_json:
        print(strict_json(found.to_dict()))
    elif quiet:
        typer.echo(f"{found.learning_rate:g}" if found.learning_rate is not None else "none")
    else:
        _print(found, data, plot if plotted else None)
    if found.learning_rate is None:
        raise typer.Exit(1)


def _print(found: LearningRateSuggestion, data: str, plot: Path | None) -> None:
    out = console()
    rate = f"learning rate {found.learning_rate:g}" if found.learning_rate is not None else "no suggestion"
    out.print(printable(f"{rate}: {found.reason}"), soft_wrap=True)
    if found.trials:
        show(out, "", _table(found), "")
    if found.diverged_at is not None:
        out.print(f"range test: the loss diverged at {found.diverged_at:.2g}")
    if plot is not None:
        out.print(printable(f"plot: {plot}"), soft_wrap=True)
    if found.learning_rate is not None:
        out.print(printable(f"to use it: mlp train {data} … --learning-rate {found.learning_rate:g}"), soft_wrap=True)


def _table(found: LearningRateSuggestion) -> Table:
    """Return a table with a line per rate and a column per round."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    rounds = sorted({one.steps for one in found.trials})
    losses = {(one.learning_rate, one.steps): one.loss for one in found.trials}
    sheet = Table(box=SIMPLE_HEAD, pad_edge=False)
    sheet.add_column("learning rate", justify="right")
    for steps in rounds:
        sheet.add_column(f"loss after {steps:,} steps", justify="right")
    sheet.add_column("")
    for rate in sorted({rate for rate, _ in losses}):
        cells = [f"{losses[rate, steps]:.4g}" if (rate, steps) in losses else "" for steps in rounds]
        marks = ["suggested"] if rate == found.learning_rate else []
        marks += ["default"] if rate == found.default else []
        sheet.add_row(f"{rate:g}", *cells, ", ".join(marks))
    return sheet


lr = with_options(lr, PANELS)
