"""`python -m multilayer` is the command `mlp`; this is where both begin, before anything slow is imported."""

from __future__ import annotations

import os
import signal

TYPE_CHECKING = False  # as type checkers read it, without importing typing
if TYPE_CHECKING:
    from typing import NoReturn

_INTERRUPTED = 128 + 2


def main() -> NoReturn:
    """Ctrl-C while libraries load ends at once and quietly: there is nothing to save yet, and an import that is cut
    short raises whatever its library makes of it."""
    ours = signal.getsignal(signal.SIGINT) is signal.default_int_handler  # or the shell has it ignored
    if ours:
        signal.signal(signal.SIGINT, lambda *_: os._exit(_INTERRUPTED))
    from .cli.main import main as command

    if ours:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    command()


if __name__ == "__main__":
    main()
