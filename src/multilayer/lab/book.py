"""The book: an offline page per experiment, and a first page with each claim, its measurement and its verdict.

    index.html    one line per experiment: claim, measurement, verdict
    NAME.html     claim, verdict, plot, criteria, published results, method, settings
    results/      the results as JSON, CSV, SVG and PNG

The pages contain no scripts and make no requests. The plots are SVG, and their colors follow the light or dark scheme
of the reader. A result in the folder is used again if experiment, settings, seeds and version are the same. So the same
command continues an interrupted book.
"""

from __future__ import annotations

import html
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict
from pathlib import Path

from ..core import atomic_files
from ..core.canonical_json import plain
from ..core.formatting import count, duration
from ..core.version import __version__
from ..drawing.plots import style
from ..errors import FileError
from .catalog import NAMES, get
from .criteria import VERDICTS
from .experiment import Size
from .result import Result, check_folder
from .running import measure

_PLOT_COLOURS = {
    style.INK: "plot-ink",
    style.MUTED: "plot-muted",
    style.FAINT: "plot-faint",
    style.GRID: "plot-grid",
    style.CARD: "plot-card",
} | {colour: f"line-{i}" for i, colour in enumerate(style.COLOURS)}
_COLOUR = re.compile("|".join(_PLOT_COLOURS))
_TERM = re.compile(r" {4,}(\S.*?) {2,}(\S.*)$")
_CODE = re.compile(r"`([^`]+)`")


def make(
    folder: str | Path,
    *,
    names: Sequence[str] = NAMES,
    size: Size = "default",
    seeds: int | None = None,
    first_seed: int = 0,
    workers: int | None = None,
    quiet: bool = False,
    finished: Callable[[Result, bool], None] = lambda result, reused: None,
) -> list[Result]:
    """Run experiments and write the book. Return the results.

    Parameters
    ----------
    folder : str or Path
        Folder of the book. It is created.
    names : sequence of str
        The experiments. By default, all.
    size, seeds, first_seed, workers, quiet
        As for one experiment. All seeds of an interrupted experiment are measured again.
    finished : callable, optional
        Called after each experiment with its result, and whether the result is from an earlier run.
    """
    target = Path(folder)
    check_folder(target)
    check_folder(target / "results")
    results: list[Result] = []
    for name in names:
        experiment = get(name)
        settings = experiment.sized(size, {})
        own = {"default": experiment.seeds, "full": experiment.full_seeds, "tiny": 2}[size]
        number = own if seeds is None else seeds
        wanted = range(first_seed, first_seed + number)
        result = _earlier(target / "results" / f"{name}.json", settings, wanted)
        reused = result is not None
        if result is None:
            result = measure(experiment, settings, seeds=number, first_seed=first_seed, workers=workers, quiet=quiet)
            result.save(target / "results")
        results.append(result)
        finished(result, reused)
        write(results, target)  # after each experiment, so that an interrupted book can be read
        if result.interrupted:
            raise KeyboardInterrupt
    return results


def _earlier(path: Path, settings: object, seeds: range) -> Result | None:
    """Return the result of an earlier run with the same settings, seeds and version."""
    if not path.exists():
        return None
    try:
        found = Result.read(path)
    except FileError:  # of another version, or not complete: the experiment runs again
        return None
    same = found.settings == plain(asdict(settings)) and found.seeds == list(seeds)  # pyright: ignore[reportArgumentType]
    return found if same and found.version == __version__ and not found.interrupted else None


def write(results: Sequence[Result], folder: Path) -> None:
    """Write the first page, and a page per result."""
    atomic_files.write(folder / "index.html", index(results).encode())
    for i, result in enumerate(results):
        before = results[i - 1] if i else None
        after = results[i + 1] if i + 1 < len(results) else None
        atomic_files.write(folder / f"{result.name}.html", page(result, before, after, contents=True).encode())


# Pages


def index(results: Sequence[Result]) -> str:
    """Return the first page: the claims, and what was measured."""
    counts = ", ".join(f"{sum(one.verdict == kind for one in results)} {kind}" for kind in VERDICTS)
    rows = [
        (
            f'<a href="{one.name}.html">{html.escape(one.experiment.title)}</a>',
            html.escape(one.experiment.claim),
            html.escape(one.summary),
            _badge(one.verdict),
        )
        for one in results
    ]
    table = _table(("experiment", "what the books say", "what we measured", "verdict"), rows, kind="contents")
    seconds = sum(one.seconds for one in results)
    return _document(
        "What textbooks claim, measured",
        f"<h1>What textbooks claim about feed-forward networks, measured</h1>"
        f'<p class="lead">{count(len(results), "claim")}: {counts}.</p>'
        "<p>Each claim has criteria that were written before the measurement. A criterion is met if the whole "
        "95 % interval over the seeds is on the right side of its bound. A claim holds if all its criteria are met, "
        f"holds partly if some are met, and does not hold here if none is met.</p>{table}"
        f'<p class="muted">Measured in {duration(seconds)} with multilayer {__version__}: '
        f"<code>{html.escape(_command(results))}</code></p>",
    )


def _command(results: Sequence[Result]) -> str:
    """Return the command that repeats the book."""
    first = min(seed for one in results for seed in one.seeds)
    numbers = {len(one.seeds) for one in results}
    full = any("--full" in one.command for one in results)
    usual = all(len(one.seeds) == (one.experiment.full_seeds if full else one.experiment.seeds) for one in results)
    seeds = "" if usual or len(numbers) > 1 else f" --seeds {numbers.pop()}"
    return f"mlp lab --all --out book{seeds}{f' --first-seed {first}' if first else ''}{' --full' if full else ''}"


def page(result: Result, before: Result | None = None, after: Result | None = None, *, contents: bool = False) -> str:
    """Return the page of one experiment, with links to its neighbors in the book."""
    experiment = result.experiment
    links = ['<a href="index.html">Contents</a>'] if contents else []
    links += [f'<a href="{one.name}.html">{arrow} {html.escape(one.experiment.title)}</a>'
              for one, arrow in ((before, "←"), (after, "→")) if one is not None]  # fmt: skip
    parts = [
        f"<h1>{html.escape(experiment.title)}</h1>",
        f'<p class="lead">{html.escape(experiment.claim)}</p>',
        f"<p>{_badge(result.verdict)} {html.escape(result.summary)}</p>",
        f'<figure class="wide">{_themed(result.svg())}</figure>',
        "<h2>Criteria</h2>",
        _criteria(result),
        f'<p class="muted">{html.escape(result.basis)}. The criteria were written before the measurement.</p>',
    ]
    if experiment.published:
        rows = [
            (
                html.escape(one.what),
                html.escape(one.theirs),
                html.escape(one.ours(result.rows)),
                html.escape(one.source),
            )
            for one in experiment.published
        ]
        parts += ["<h2>Published results</h2>", _table(("", "published", "measured here", "source"), rows)]
    parts += ["<h2>How it is measured</h2>", paragraphs(experiment.method), _settings(result)]
    parts += ["<h2>Sources</h2><ul>", *(f"<li>{html.escape(source)}</li>" for source in experiment.sources), "</ul>"]
    return _document(experiment.title, "".join(parts), nav="".join(links))


def _criteria(result: Result) -> str:
    rows = [
        (html.escape(one.statement), html.escape(one.measured), html.escape(one.bound), _badge(one.outcome))
        for one in result.criteria
    ]
    return _table(("criterion", "measured (95 % interval)", "bound", ""), rows, numbers=(1, 2))


def _settings(result: Result) -> str:
    values = ", ".join(f"{name} = {value}" for name, value in result.settings.items())
    return (
        f'<p class="muted">Settings: {html.escape(values)}. Measured in {duration(result.seconds)}. '
        f"Run it again: <code>{html.escape(result.command)}</code></p>"
    )


def paragraphs(text: str) -> str:
    """Return a docstring as HTML: paragraphs, lists of terms, other indented blocks, and `code`.

    >>> paragraphs("One `a`.\\n\\n    x = 1")
    '<p>One <code>a</code>.</p><pre>x = 1</pre>'
    >>> paragraphs("    slope   the derivative\\n            of f")
    '<dl><dt>slope</dt><dd>the derivative of f</dd></dl>'
    """
    found: list[str] = []
    for block in re.split(r"\n\s*\n", text.strip("\n")):
        listed = terms(block)
        if listed:
            items = "".join(f"<dt>{_prose(term)}</dt><dd>{_prose(meaning)}</dd>" for term, meaning in listed)
            found.append(f"<dl>{items}</dl>")
        elif block.startswith("    "):
            lines = [line.removeprefix("    ") for line in block.splitlines()]
            found.append(f"<pre>{html.escape(chr(10).join(lines), quote=False)}</pre>")
        else:
            found.append(f"<p>{_prose(block)}</p>")
    return "".join(found)


def terms(block: str) -> list[tuple[str, str]]:
    """Return the terms of an indented block with their meanings, or nothing if it is not such a list.

    A term is indented, and two or more spaces separate it from its meaning. Other lines continue the meaning, and must
    be indented further than the first term.
    """
    found: list[tuple[str, str]] = []
    for line in block.splitlines():
        match = _TERM.match(line)
        if match:
            found.append((match[1], match[2]))
        elif found and line.startswith(" " * 6):
            found[-1] = (found[-1][0], f"{found[-1][1]} {line.strip()}")
        else:
            return []
    return found


def _prose(text: str) -> str:
    return _CODE.sub(r"<code>\1</code>", html.escape(" ".join(text.split()), quote=False))


def _badge(text: str) -> str:
    return f'<span class="verdict {text.replace(" ", "-")}">{text}</span>'


def _table(head: Iterable[str], rows: Iterable[Iterable[str]], *, kind: str = "", numbers: Sequence[int] = ()) -> str:
    cells = "".join(f"<th>{title}</th>" for title in head)
    body = "".join(
        "<tr>" + "".join(f"<td{' class=number' if i in numbers else ''}>{c}</td>" for i, c in enumerate(row)) + "</tr>"
        for row in rows
    )
    return f'<div class="wide"><table class="{kind}"><thead><tr>{cells}</tr></thead><tbody>{body}</tbody></table></div>'


def _themed(svg: str) -> str:
    """Return the SVG element of a plot, with the colors of the page instead of its own."""
    return _COLOUR.sub(lambda match: f"var(--{_PLOT_COLOURS[match[0]]})", svg[svg.index("<svg") :])


def _document(title: str, body: str, *, nav: str = "") -> str:
    css = (Path(__file__).parent / "book.css").read_text(encoding="utf-8")
    policy = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'"
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{html.escape(title)}</title>'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}"><style>{css}</style></head>'
        f"<body><header><nav>{nav}</nav></header><main>{body}</main><footer></footer></body></html>\n"
    )
