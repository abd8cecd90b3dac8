"""The report while a run is going on: the log is looked at once a second, and a page that listens hears what is new.

Whole lines alone are read, from where the last look ended, so a look costs as much as what was added. The judgement of
the model is not there yet; it follows when the run has ended.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ...core import atomic_files
from ...errors import MultilayerError
from ...runs import RunFolder
from ...runs.events import Event
from ...runs.folder import event_of
from .. import html
from ..server import Feed, Page, Server
from . import report

EVERY = 1.0
"""Seconds between two looks."""
LATE = 10.0
"""Seconds that a browser may take to ask for the page of a run that is over already."""


class Log:
    """A log that is being written: what was told since the last look."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.told: list[Event] = []
        self._place = 0
        self._rest = b""

    def look(self) -> bool:
        """Whether there was anything new."""
        if not os.path.lexists(self.path):
            return False
        added = atomic_files.read_from(self.path, self._place, root=self.path.parent)
        self._place += len(added)
        *lines, self._rest = (self._rest + added).split(b"\n")
        self.told += [event_of(line, str(self.path)) for line in lines if line]
        return bool(lines)


class Watch:
    """Tells a feed how a run is going."""

    def __init__(self, path: Path, feed: Feed, begun: Callable[[], Any]) -> None:
        self.path, self.feed, self.begun = path, feed, begun
        self._config: dict[str, Any] | None = None
        self._log = Log(path / "events.jsonl")

    def look(self) -> None:
        if self._config is None:
            if not (self.path / "config.json").exists():
                return
            self._config = RunFolder.open(self.path).config
            self.begun()
        if self._log.look():
            found = report.assemble(self.path.name, self._config, self._log.told, None, None)
            self.feed.tell(html.to_json(found))

    def run(self, stop: threading.Event) -> None:
        while not stop.wait(EVERY):
            try:
                self.look()
            except MultilayerError:
                return  # a log that cannot be read is said by whoever opens the run; training goes on

    def end(self) -> None:
        """The whole report, if the run left one."""
        self.look()
        if self._config is not None:
            self.feed.tell(html.to_json(report.report(self.path)))


@contextmanager
def watching(path: Path, *, say: Callable[[str], None], open_page: Callable[[str], Any]) -> Generator[None]:
    """While inside, a page shows the run that is being made at `path`; at the end it gets the whole report.

    It is opened once there is a run: data that cannot be read opens nothing.
    """
    feed, stop = Feed(), threading.Event()
    with Server({"/": Page(make=lambda: report.html([], live=True))}, feed=feed) as server:
        say(f"live: {server.url}")
        opened: list[bool] = []
        watch = Watch(path, feed, begun=lambda: opened.append(bool(open_page(server.url))))
        thread = threading.Thread(target=watch.run, args=(stop,), daemon=True)
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join()
            try:
                watch.end()
            except MultilayerError as error:
                say(f"the page does not have the end of the run: {error}")
            if any(opened):
                server.wait_for_listener(LATE)
