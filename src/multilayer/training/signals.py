"""Signals that ask for the end: the run saves and stops, the second Ctrl-C stops at once.

Only the main thread of a process hears signals; in any other (a notebook's kernel may run cells there) nothing changes
and Ctrl-C is Python's own.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Generator
from contextlib import contextmanager
from types import FrameType

ASKS = tuple(getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name))


class Interrupts:
    """Remembers the first signal that came; call it to ask which."""

    def __init__(self) -> None:
        self.signal: int | None = None

    def __call__(self) -> int | None:
        return self.signal

    def _hear(self, number: int, frame: FrameType | None) -> None:
        if self.signal is not None and number == signal.SIGINT:
            raise KeyboardInterrupt
        self.signal = self.signal or number


@contextmanager
def listening() -> Generator[Interrupts]:
    """Signals are heard inside, and as before outside."""
    heard = Interrupts()
    if threading.current_thread() is not threading.main_thread():
        yield heard
        return
    before = {number: signal.signal(number, heard._hear) for number in ASKS}
    try:
        yield heard
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def obey(number: int | None) -> None:
    """Does what a signal that was heard would have done: for callers who give back no run to tell of it."""
    if number == signal.SIGINT:
        raise KeyboardInterrupt
    if number is not None:
        signal.raise_signal(number)
