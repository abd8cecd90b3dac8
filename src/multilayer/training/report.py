"""Write the report at the end of a run, while its data is in memory and its folder is locked.

The model has been saved before. If the report cannot be written, a warning is raised, and the run is not affected.
"""

from __future__ import annotations

import sys
import threading
from pathlib import Path
from typing import Any

from ..core import atomic_files
from ..errors import MultilayerError, is_command_line, warn
from .run import Run
from .setup import Setup

SOON = 1.0
"""Seconds after which the command line says that the report is still being written."""
AFTER_A_SIGNAL = 0.1
"""Seconds for column importance if a signal stopped the run."""


def write_report(run: Run, setup: Setup, source: Any, validation: Any, *, quiet: bool) -> None:
    """Write report.json and report.html into the run's folder, if it has one."""
    if run.path is None or run.model is None:
        return
    soon = threading.Timer(SOON, print, args=["writing the report …"], kwargs={"file": sys.stderr, "flush": True})
    soon.daemon = True
    if is_command_line() and not quiet:
        soon.start()
    try:
        _write(run, run.path, setup, source, validation)
    except (MultilayerError, OSError, ArithmeticError, LookupError, TypeError, ValueError) as error:
        warn(f"the run is complete, but its report could not be written: {error}")
    except (KeyboardInterrupt, MemoryError) as error:
        warn(f"the run is complete, but has no report: {type(error).__name__}; mlp report {run.path} makes it")
    finally:
        soon.cancel()


def _write(run: Run, path: Path, setup: Setup, source: Any, validation: Any) -> None:
    from ..pages.report import report, run_summary

    assert run.model is not None
    found = report.of_run(
        run.model,
        setup.prepared,
        source,
        validation,
        metric=setup.metric,
        seconds=report.SECONDS if run.signal is None else AFTER_A_SIGNAL,
    )
    found["predicted"] = run_summary.predicted_seconds(
        setup.spec, setup.config.to_dict(), setup.effective(), setup.engine.name, setup.members
    )
    report.store(path, found)
    atomic_files.write(path / "report.html", report.html([report.report(path)]).encode())
