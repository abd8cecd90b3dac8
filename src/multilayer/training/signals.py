"""Signals that ask a run to save and stop: Ctrl-C, SIGTERM and SIGHUP. A second Ctrl-C stops it at once.

Python delivers signals only to the main thread; in another thread, they keep their usual effect.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Generator
from contextlib import contextmanager
from types import FrameType

STOP_SIGNALS = tuple(getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name))


class Interrupts:
    """Record the first signal that was received. Calling the object returns its number, or None."""

    def __init__(self) -> None:
        self.signal: int | None = None

    def __call__(self) -> int | None:
        return self.signal

    def handle(self, number: int, frame: FrameType | None) -> None:
        if self.signal is not None and number == signal.SIGINT:
            raise KeyboardInterrupt
        self.signal = self.signal or number


@contextmanager
def catch_signals() -> Generator[Interrupts]:
    """Record signals inside the `with` block, and restore the previous handlers at its end."""
    caught = Interrupts()
    if threading.current_thread() is not threading.main_thread():
        yield caught
        return
    before = {number: signal.signal(number, caught.handle) for number in STOP_SIGNALS}
    try:
        yield caught
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def reraise_signal(number: int | None) -> None:
    """Raise a recorded signal again, for callers that do not return a `Run` with it."""
    if number == signal.SIGINT:
        raise KeyboardInterrupt
    if number is not None:
        signal.raise_signal(number)
