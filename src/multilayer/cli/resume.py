"""`mlp resume`: resume a run that was stopped or killed."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ..errors import printable
from ..runs.events import Event, Resume
from .options import EventsAsJson, Quiet, Track, option
from .train import events_as_json, print_result

EXAMPLES = (
    "mlp resume runs/digits-001",
    "mlp resume runs/people --data moved/people.csv",
    "mlp resume runs/digits-001 --track tensorboard --quiet",
)


def resume(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="Folder of the run.", show_default=False)],
    data: Annotated[
        str | None,
        option(
            "--data", text="Path of the same table, if it was moved.", metavar="DATA", default="the path in the run"
        ),
    ] = None,
    track: Track = None,
    quiet: Quiet = False,
    as_json: EventsAsJson = False,
) -> None:
    """Resume a run that was stopped or killed.

    The result is bit-identical to an uninterrupted run.
    """
    from ..training.fit import resume as resume_run

    observers = [*events_as_json(as_json), *([_Warnings()] if quiet else [])]
    done = resume_run(run, data=data, observers=observers, trackers=track or (), quiet=quiet or as_json)
    print_result(done, quiet=quiet, as_json=as_json)


class _Warnings:
    """Print problems with the files of the run, even with --quiet."""

    def notice(self, event: Event) -> None:
        if isinstance(event, Resume):
            for note in event.notes:
                typer.echo(f"warning: {printable(note)}", err=True)
