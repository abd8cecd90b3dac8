"""The start of `mlp` and `python -m multilayer`, before slow imports."""

from __future__ import annotations

import os
import signal

TYPE_CHECKING = False  # as type checkers read it, without importing typing
if TYPE_CHECKING:
    from typing import NoReturn

_INTERRUPTED = 128 + 2


def main() -> NoReturn:
    """Run the command line. Ctrl-C during the imports ends the process at once and without a message.

    There is nothing to save yet, and an interrupted import can raise any exception.
    """
    handled = (
        signal.getsignal(signal.SIGINT) is signal.default_int_handler
    )  # False if the parent process ignores Ctrl-C
    if handled:
        signal.signal(signal.SIGINT, lambda *_: os._exit(_INTERRUPTED))
    from .cli.main import main as command

    if handled:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    command()


if __name__ == "__main__":
    main()
