"""`mlp resume`: goes on with a run that was stopped or killed."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ..errors import printable
from ..runs.events import Event, Resume
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

    observers = [*events_as_json(as_json), *([_Warnings()] if quiet else [])]
    done = go_on(run, data=data, observers=observers, trackers=track or (), quiet=quiet or as_json)
    tell(done, quiet=quiet, as_json=as_json)


class _Warnings:
    """Says what was wrong with a run, which matters however quiet it is to be."""

    def notice(self, event: Event) -> None:
        if isinstance(event, Resume):
            for note in event.notes:
                typer.echo(f"warning: {printable(note)}", err=True)
