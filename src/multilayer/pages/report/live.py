"""The report during a run: read the log once a second, and send the new report to the open pages.

Each read starts where the last one ended and uses complete lines only, so its cost is proportional to the new lines.
The evaluation of the model is added when the run has ended.
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
"""Seconds between two reads of the log."""
BROWSER_START = 10.0
"""Seconds to wait for the browser at the end of a short run."""


class Log:
    """The events of a log that is still being written."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.events: list[Event] = []
        self._position = 0
        self._incomplete = b""

    def look(self) -> bool:
        """Read the new lines. Return whether there are any."""
        if not os.path.lexists(self.path):
            return False
        added = atomic_files.read_from(self.path, self._position, root=self.path.parent)
        self._position += len(added)
        *lines, self._incomplete = (self._incomplete + added).split(b"\n")
        self.events += [event_of(line, str(self.path)) for line in lines if line]
        return bool(lines)


class Watch:
    """Publish the report of a run folder to a feed. `on_start` is called once the folder exists."""

    def __init__(self, path: Path, feed: Feed, on_start: Callable[[], Any]) -> None:
        self.path, self.feed, self.on_start = path, feed, on_start
        self._config: dict[str, Any] | None = None
        self._log = Log(path / "events.jsonl")

    def look(self) -> None:
        """Publish a new report if the log has new events."""
        if self._config is None:
            if not (self.path / "config.json").exists():
                return
            self._config = RunFolder.open(self.path).config
            self.on_start()
        if self._log.look():
            found = report.assemble(self.path.name, self._config, self._log.events, None, None)
            self.feed.publish(html.to_json(found))

    def run(self, stop: threading.Event) -> None:
        """Look once every `EVERY` seconds until `stop` is set."""
        while not stop.wait(EVERY):
            try:
                self.look()
            except MultilayerError:
                return  # training continues; an unreadable log is reported by the commands that open the run

    def end(self) -> None:
        """Publish the complete report, if the run folder exists."""
        self.look()
        if self._config is not None:
            self.feed.publish(html.to_json(report.report(self.path)))


@contextmanager
def watching(path: Path, *, say: Callable[[str], None], open_page: Callable[[str], Any]) -> Generator[None]:
    """Show the report of the run at `path` while the `with` block trains it. At the end, show the complete report.

    The page opens when the run folder exists, so it does not open if the data cannot be read.
    """
    feed, stop = Feed(), threading.Event()
    with Server({"/": Page(make=lambda: report.html([], live=True))}, feed=feed) as server:
        say(f"live: {server.url}")
        opened: list[bool] = []
        watch = Watch(path, feed, on_start=lambda: opened.append(bool(open_page(server.url))))
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
                say(f"the page does not show the end of the run: {error}")
            if any(opened):
                server.wait_for_listener(BROWSER_START)
