"""`mlp resume`: goes on with a run that was stopped or killed."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from .train import AsJson, Quiet, Track, events_as_json, tell

EPILOG = """Examples:

mlp resume runs/digits-001"""


def resume(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="The folder of the run.", show_default=False)],
    data: Annotated[str | None, typer.Option(metavar="DATA", help="The same table, if it has moved.")] = None,
    track: Track = None,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Goes on where a run was, to the same bits as if it had never been stopped."""
    from ..training.fit import resume as go_on

    done = go_on(run, data=data, observers=events_as_json(as_json), trackers=track or (), quiet=quiet or as_json)
    tell(done, quiet=quiet, as_json=as_json)
