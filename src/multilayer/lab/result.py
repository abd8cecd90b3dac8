"""The result of an experiment: verdict, criteria, rows and plot. It is stored as JSON and read again."""

from __future__ import annotations

import html
import json
import shlex
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..core import atomic_files
from ..core.canonical_json import plain
from ..core.formatting import count, percent
from ..core.version import __version__
from ..errors import FileError
from .catalog import get
from .criteria import LEVEL, Judgement, Verdict, verdict
from .experiment import Experiment
from .rows import Rows

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LARGEST = 1 << 28
"""Largest file of a result, in bytes."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Result:
    """What an experiment measured.

    Attributes
    ----------
    verdict : str
        "holds", "holds partly" or "does not hold here".
    criteria : tuple of Judgement
        Each criterion with its mean and its interval over the seeds.
    rows : Rows
        The measurements as a tidy table. `rows.to_arrow()` returns it as a `pyarrow.Table`.
    settings : dict
        The settings of the experiment.
    seconds : float
        Time of the measurement.
    interrupted : bool
        Whether Ctrl-C ended the run before all seeds were complete.
    version : str
        Version of the package that measured.
    """

    experiment: Experiment
    settings: Mapping[str, Any]
    rows: Rows
    criteria: tuple[Judgement, ...]
    verdict: Verdict
    seconds: float
    interrupted: bool = False
    version: str = __version__

    @staticmethod
    def of(experiment: Experiment, settings: Any, rows: Rows, *, seconds: float, interrupted: bool = False) -> Result:
        """Judge the rows of an experiment."""
        judged = tuple(criterion.judge(rows) for criterion in experiment.criteria)
        return Result(
            experiment=experiment,
            settings=plain(asdict(settings)),
            rows=rows,
            criteria=judged,
            verdict=verdict(judged),
            seconds=seconds,
            interrupted=interrupted,
        )

    @property
    def name(self) -> str:
        return self.experiment.name

    @property
    def seeds(self) -> list[int]:
        return self.rows.distinct("seed")

    @property
    def summary(self) -> str:
        """The most important numbers in one or two sentences."""
        return self.experiment.summary(self.rows)

    @property
    def basis(self) -> str:
        """Number of seeds and level of the intervals, and number of criteria that need more seeds."""
        unclear = sum(one.outcome == "unclear" for one in self.criteria)
        if len(self.seeds) == 1:
            return "1 seed: there are no intervals with fewer than two seeds"
        text = f"{count(len(self.seeds), 'seed')}, {percent(LEVEL)} intervals"
        return (
            f"{text}; {unclear} of {len(self.criteria)} criteria are unclear: more seeds are needed"
            if unclear
            else text
        )

    @property
    def command(self) -> str:
        """The command or the call that repeats the measurement."""
        experiment, seeds = self.experiment, f"--seeds {len(self.seeds)} --first-seed {min(self.seeds)}"
        for base, flag in ((experiment.settings, ""), (experiment.full, " --full")):
            own = plain(asdict(base))
            match [(name, value) for name, value in self.settings.items() if value != own.get(name)]:
                case []:
                    return f"mlp lab {self.name} {seeds}{flag}"
                case [("data", str(table))] | [("tables", [str(table)])]:
                    return f"mlp lab {self.name} {seeds}{flag} --data {shlex.quote(table)}"
                case _:
                    continue
        values = [f"{name}={value!r}" for name, value in self.settings.items()]
        ends = [f"seeds={len(self.seeds)}", f"first_seed={min(self.seeds)}"]
        return f"ml.lab.{self.name}({', '.join([*ends, *values])})"

    def figure(self) -> Figure:
        """Return the plot as a matplotlib figure. It needs the extra `plot`."""
        from ..drawing.plots import panels_figure

        return panels_figure(self.experiment.panels(self.rows), title=self.experiment.title, subtitle=self.basis)

    def plot(self, path: str | Path) -> None:
        """Save the plot as .svg, .png or .pdf."""
        from ..drawing.plots import save

        save(self.figure(), path, title=self.experiment.title)

    def svg(self) -> str:
        """Return the plot as SVG."""
        from ..drawing.plots import encoded

        return encoded(self.figure(), ".svg", title=self.experiment.title).decode()

    def save(self, folder: str | Path) -> list[Path]:
        """Write NAME.json, NAME.csv, NAME.svg and NAME.png into a folder. Return the paths."""
        target = Path(folder)
        atomic_files.make_folder(target)
        paths = [target / f"{self.name}{suffix}" for suffix in (".json", ".csv", ".svg", ".png")]
        atomic_files.write(paths[0], self.to_json().encode())
        atomic_files.write(paths[1], self.rows.to_csv().encode())
        self.plot(paths[2])
        self.plot(paths[3])
        return paths

    def to_dict(self) -> dict[str, Any]:
        """Return the result as JSON types, with the rows as `data`."""
        experiment = self.experiment
        return {
            "name": self.name,
            "title": experiment.title,
            "claim": experiment.claim,
            "verdict": self.verdict,
            "summary": self.summary,
            "criteria": [one.to_dict() for one in self.criteria],
            "published": [
                {"what": one.what, "theirs": one.theirs, "ours": one.ours(self.rows), "source": one.source}
                for one in experiment.published
            ],
            "settings": dict(self.settings),
            "seeds": self.seeds,
            "seconds": round(self.seconds, 2),
            "interrupted": self.interrupted,
            "version": self.version,
            "data": list(self.rows),
        }

    def to_json(self) -> str:
        """Return the result as JSON, with one row of `data` per line."""
        found = plain(self.to_dict())
        rows = ",\n".join(json.dumps(row, ensure_ascii=False, allow_nan=False) for row in found.pop("data"))
        head = json.dumps(found, ensure_ascii=False, allow_nan=False, indent=1).removesuffix("\n}")
        return f'{head},\n "data": [\n{rows}\n]}}\n'

    @staticmethod
    def read(path: str | Path) -> Result:
        """Read a result that `save` wrote. Its rows are judged again with the criteria of this version."""
        try:
            stored = json.loads(atomic_files.read(Path(path), limit=LARGEST))
            experiment = get(stored["name"])
            return _stored(experiment, stored)
        except (ValueError, KeyError, TypeError) as error:
            raise FileError(f"{str(path)!r} is not the result of an experiment of this version: {error}") from None

    def __str__(self) -> str:
        lines = [f"{self.experiment.title}: {self.verdict}", f"claim: {self.experiment.claim}", self.summary]
        lines += [f"{one.outcome}: {one.statement} measured {one.measured}" for one in self.criteria]
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        rows = "".join(
            f"<tr><td>{html.escape(one.statement)}</td><td>{html.escape(one.measured)}</td><td>{one.outcome}</td></tr>"
            for one in self.criteria
        )
        head = f"<b>{html.escape(self.experiment.title)}: {self.verdict}</b><p>{html.escape(self.summary)}</p>"
        return f"{head}<table><tr><th>criterion</th><th>measured</th><th></th></tr>{rows}</table>"


def check_folder(folder: str | Path) -> None:
    """Create a folder for results. Raise an error if they could not be saved there. Call it before a measurement."""
    from ..drawing.plots import plot_style

    with plot_style("the plot of an experiment"):
        target = Path(folder)
    atomic_files.make_folder(target)
    probe = target / f".check{atomic_files.TEMPORARY}"
    atomic_files.write(probe, b"")
    atomic_files.remove([probe])


def _stored(experiment: Experiment, stored: Mapping[str, Any]) -> Result:
    """Return the result of a file. The strings "nan", "inf" and "-inf" become numbers."""
    rows = Rows({name: _NUMBERS.get(value, value) for name, value in row.items()} for row in stored["data"])
    judged = tuple(criterion.judge(rows) for criterion in experiment.criteria)
    return Result(
        experiment=experiment,
        settings=stored["settings"],
        rows=rows,
        criteria=judged,
        verdict=verdict(judged),
        seconds=float(stored["seconds"]),
        interrupted=bool(stored["interrupted"]),
        version=str(stored["version"]),
    )


_NUMBERS: dict[Any, Any] = {"nan": float("nan"), "inf": float("inf"), "-inf": float("-inf")}
"""Numbers that JSON stores as strings."""
