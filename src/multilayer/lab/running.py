"""Run an experiment: the parts of all seeds in worker processes, with a progress bar.

A worker gets the name of the experiment, its settings, a part and a seed. Its result depends only on these, so the
number of workers does not change the rows. Each worker uses one thread. Experiments that measure time run in this
process, one part after another. Ctrl-C ends the run. Complete seeds are kept.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from threadpoolctl import threadpool_limits

from ..core import machine
from ..errors import OptionError, warn
from .catalog import get
from .experiment import Experiment
from .result import Result
from .rows import Row, Rows

SHOWN_AFTER = 2.0
"""Seconds after which the progress bar appears."""


class _Job(NamedTuple):
    seed: int
    part: int


def run(
    name: str,
    *,
    seeds: int | None = None,
    first_seed: int = 0,
    full: bool = False,
    workers: int | None = None,
    quiet: bool = False,
    **settings: Any,
) -> Result:
    """Run an experiment. `ml.lab.NAME(...)` is this function with the name.

    Parameters
    ----------
    name : str
        Name of the experiment.
    seeds : int, optional
        Number of seeds. Each is an independent repetition.
    first_seed : int
        The seeds are first_seed, first_seed + 1, …
    full : bool
        Whether to use the sizes for a publication, which take longer.
    workers : int, optional
        Number of processes. By default, one per core.
    quiet : bool
        Whether to show no progress.
    **settings
        Settings to change, such as ``widths=(2, 8)``. If the experiment can use another table, ``data="table.csv"``
        replaces its table.

    Returns
    -------
    Result
        Verdict, criteria with intervals, rows and plot. After Ctrl-C, only the complete seeds are in the result.

    Examples
    --------
    >>> import multilayer as ml
    >>> result = ml.lab.vanishing_gradients(seeds=3, depths=(2, 10), workers=1)
    >>> result.verdict
    'holds'
    """
    experiment = get(name)
    count = (experiment.full_seeds if full else experiment.seeds) if seeds is None else seeds
    chosen = experiment.sized("full" if full else "default", settings)
    return measure(experiment, chosen, seeds=count, first_seed=first_seed, workers=workers, quiet=quiet)


def measure(
    experiment: Experiment, settings: Any, *, seeds: int, first_seed: int = 0, workers: int | None = None, quiet: bool
) -> Result:
    """Run an experiment with given settings."""
    if seeds < 1 or first_seed < 0:
        raise OptionError(f"seeds must be at least 1 and first_seed at least 0, got {seeds!r} and {first_seed!r}")
    if workers is not None and workers < 1:
        raise OptionError(f"workers must be at least 1, got {workers!r}")
    parts = experiment.parts(settings)
    jobs = [_Job(seed, part) for seed in range(first_seed, first_seed + seeds) for part in range(len(parts))]
    count = 1 if experiment.exclusive else min(len(jobs), workers or machine.threads())
    found: dict[_Job, list[Row]] = {}
    began = time.monotonic()
    try:
        with _progress(experiment.title, len(jobs), quiet=quiet) as advance:
            for job, rows in _results(experiment, settings, jobs, workers=count):
                found[job] = rows
                advance()
    except KeyboardInterrupt:
        if not _complete(found, jobs):
            raise
        warn(f"{experiment.name} was interrupted: the result has {len(_complete(found, jobs))} of {seeds} seeds")
    complete = _complete(found, jobs)
    return Result.of(
        experiment,
        settings,
        Rows(row for job in jobs if job.seed in complete for row in found[job]),
        seconds=time.monotonic() - began,
        interrupted=len(complete) < seeds,
    )


def _complete(found: dict[_Job, list[Row]], jobs: list[_Job]) -> list[int]:
    """Return the seeds whose parts are all measured."""
    missing = {job.seed for job in jobs if job not in found}
    return [seed for seed in dict.fromkeys(job.seed for job in jobs) if seed not in missing]


def _results(
    experiment: Experiment, settings: Any, jobs: list[_Job], *, workers: int
) -> Iterator[tuple[_Job, list[Row]]]:
    """Yield the rows of each job, in the order in which the jobs end."""
    if workers == 1:
        for job in jobs:
            yield work(experiment.name, settings, job)
        return
    from joblib import Parallel, delayed

    pool: Any = Parallel(n_jobs=workers, return_as="generator_unordered", pre_dispatch="2*n_jobs")
    yield from pool(delayed(work)(experiment.name, settings, job) for job in jobs)


def work(name: str, settings: Any, job: _Job) -> tuple[_Job, list[Row]]:
    """Measure one part for one seed. Workers call it."""
    experiment = get(name)
    part = experiment.parts(settings)[job.part]
    with threadpool_limits(1):  # products of several threads are rounded differently
        return job, [{"seed": job.seed, **row} for row in experiment.measure(settings, part, job.seed)]


@contextmanager
def _progress(title: str, total: int, *, quiet: bool) -> Generator[Callable[[], None]]:
    """Yield a function to call after each job. In a terminal, a bar appears after two seconds."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    terminal = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    bar = Progress(*columns, console=terminal, transient=True, disable=quiet or not terminal.is_terminal)
    task = bar.add_task(title, total=total)
    timer = threading.Timer(SHOWN_AFTER, bar.start)
    timer.daemon = True
    timer.start()
    try:
        yield lambda: bar.advance(task)
    finally:
        timer.cancel()
        timer.join()
        bar.stop()
