"""The pages about the experiments: a table of all of them, and a page per experiment with its plot.

They show the results in docs/measured/experiments, which are those of the book with fewer digits:

    mlp lab --all --out book && python docs/hooks/experiment_pages.py book/results
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import cache, partial
from pathlib import Path

from multilayer.lab import NAMES, Result, get
from multilayer.lab.book import terms
from multilayer.lab.rows import Rows

FOLDER = "explanation/experiments"
MEASURED = Path(__file__).parents[1] / "measured" / "experiments"
COMMAND = "mlp lab --all --out book && python docs/hooks/experiment_pages.py book/results"
DIGITS = 5
"""Significant digits of the stored numbers."""


@cache
def results() -> dict[str, Result]:
    """Return the stored result of each experiment, in the order of the book."""
    return {name: Result.read(MEASURED / f"{name}.json") for name in NAMES if (MEASURED / f"{name}.json").exists()}


def pages() -> dict[str, Callable[[], str]]:
    """Return a function for the content of each page."""
    found = {f"{FOLDER}/{name}.md": partial(_page, name) for name in NAMES}
    return {f"{FOLDER}/index.md": _index, **found}


def pictures() -> dict[str, Callable[[], str]]:
    """Return a function for each plot as SVG."""
    return {f"{FOLDER}/{name}.svg": result.svg for name, result in results().items()}


def _index() -> str:
    rows = [
        f"| [{result.experiment.title}]({name}.md) | {_cell(result.experiment.claim)} | {_cell(result.summary)} "
        f"| {result.verdict} |"
        for name, result in results().items()
    ]
    return "\n".join(
        [
            "# What textbooks claim, measured",
            "",
            "Each experiment measures a claim over several seeds. Its criteria are code, and were written before the "
            "measurement. A criterion is met if the whole 95 % interval over the seeds is on the right side of its "
            "bound. A claim holds if all its criteria are met, holds partly if some are met, and does not hold here if "
            "none is met.",
            "",
            "`mlp lab NAME` runs one experiment, and `mlp lab --all --out book` runs all of them and writes them as "
            "offline pages. [Running an experiment](../../how-to/run-an-experiment.md) shows how, also in Python and "
            "with other settings.",
            "",
            "| experiment | what the books say | what we measured | verdict |",
            "|---|---|---|---|",
            *rows,
            "",
        ]
    )


def _page(name: str) -> str:
    experiment = get(name)
    result = results().get(name)
    lines = [f"# {experiment.title}", "", f"**What the books say.** {experiment.claim}", ""]
    if result is None:
        return "\n".join([*lines, f"This checkout has no measurement. `{COMMAND}` makes it.", ""])
    lines += [f"**What we measured: {result.verdict}.** {result.summary}", "", f"![{experiment.title}]({name}.svg)", ""]
    lines += ["## Criteria", "", "| criterion | measured (95 % interval) | bound | |", "|---|---|---|---|"]
    lines += [f"| {_cell(one.statement)} | {one.measured} | {one.bound} | {one.outcome} |" for one in result.criteria]
    lines += ["", f"{result.basis}.", ""]
    if experiment.published:
        lines += ["## Published results", "", "| | published | measured here | source |", "|---|---|---|---|"]
        lines += [
            f"| {_cell(one.what)} | {_cell(one.theirs)} | {_cell(one.ours(result.rows))} | {_cell(one.source)} |"
            for one in experiment.published
        ]
    lines += ["", "## How it is measured", "", _method(experiment.method), "", "## Run it", "", "```console"]
    lines += [f"mlp lab {name} --seeds {len(result.seeds)} --out results", "```", ""]
    lines += ["## Sources", "", *(f"- {source}" for source in experiment.sources), ""]
    return "\n".join(lines)


def _method(text: str) -> str:
    """Return the method as Markdown: lists of terms become definition lists."""
    blocks = re.split(r"\n\s*\n", text.strip("\n"))
    found = [(block, terms(block)) for block in blocks]
    return "\n\n".join(
        "\n\n".join(f"{term}\n:   {meaning}" for term, meaning in listed) if listed else block
        for block, listed in found
    )


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def store(folder: Path) -> None:
    """Store the results of a book for the pages."""
    MEASURED.mkdir(parents=True, exist_ok=True)
    for path in sorted(folder.glob("*.json")):
        result = Result.read(path)
        rows = ({name: _rounded(value) for name, value in row.items()} for row in result.rows)
        (MEASURED / path.name).write_text(replace(result, rows=Rows(rows)).to_json())


def _rounded(value: object) -> object:
    return float(f"{value:.{DIGITS}g}") if isinstance(value, float) else value


if __name__ == "__main__":
    store(Path(sys.argv[1]))
