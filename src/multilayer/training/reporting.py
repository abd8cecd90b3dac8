"""`ml.fit` and `ml.resume` as people call them: training, and the report that every run with a folder leaves behind.

Training knows nothing of pages, and pages nothing of the loop; this is where they meet. The model is saved before the
report is begun, and whatever goes wrong with the report is told and changes nothing else.
"""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any, ParamSpec, cast

from ..core import atomic_files
from ..errors import MultilayerError
from . import fit as _training
from .fit import Ended, Run

P = ParamSpec("P")

SOON = 1.0
"""Seconds after which a report that is still being written is worth a word."""
IN_A_HURRY = 0.1
"""Seconds for the importance of columns where someone asked the run to stop."""


def _reporting(function: Callable[P, Run]) -> Callable[P, Run]:
    @wraps(function)
    def reporting(*args: P.args, **kwargs: P.kwargs) -> Run:
        given = cast("dict[str, Any]", kwargs)
        given.setdefault("ended", leave_report)
        return function(*args, **kwargs)

    return reporting


fit = _reporting(_training.fit)
resume = _reporting(_training.resume)


def leave_report(
    ended: Ended, *, warn: Callable[[str], None] | None = None, say: Callable[[str], None] | None = None
) -> None:
    """Writes report.json and report.html into the run's folder.

    `warn` gets what went wrong, `say` hears of it where it takes long.
    """
    path = ended.run.path
    if path is None or ended.run.model is None:
        return
    soon = threading.Timer(SOON, lambda: None if say is None else say("writing the report …"))
    soon.daemon = True
    soon.start()
    try:
        _write(ended, path)
    except (MultilayerError, OSError, ArithmeticError, LookupError, TypeError, ValueError) as error:
        said = f"the run is complete, but its report could not be written: {error}"
        warn(said) if warn is not None else warnings.warn(said, UserWarning, stacklevel=4)
    except (KeyboardInterrupt, MemoryError) as error:
        said = f"the run is complete, but has no report: {type(error).__name__}; mlp report {path} makes it"
        warn(said) if warn is not None else warnings.warn(said, UserWarning, stacklevel=4)
    finally:
        soon.cancel()


def _write(ended: Ended, path: Path) -> None:
    from ..pages.report import report, run_summary

    run, session = ended.run, ended.session
    assert run.model is not None
    config, effective = session.config.to_dict(), session.effective()
    found = report.of_run(
        run.model,
        session.prepared,
        ended.source,
        ended.validation,
        metric=session.metric,
        seconds=report.SECONDS if run.signal is None else IN_A_HURRY,
    )
    found["predicted"] = run_summary.predicted_seconds(
        session.spec, config, effective, session.engine.name, session.members
    )
    report.store(path, found)
    atomic_files.write(path / "report.html", report.html([report.report(path)]).encode())
