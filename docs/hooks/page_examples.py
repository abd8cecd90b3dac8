"""Run the examples of a page and collect what they print, return and draw.

Each fenced ``python`` block, and each ``mlp …`` line of a ``console`` block, is an example. All examples of a page run
in order, in one Python session and one temporary folder, so a later example can use the names and files of an earlier
one. Warnings are errors.

| written above a block | effect |
|---|---|
| `<!-- output: hide -->` | run the block, but do not show its output |
| `<!-- run: no -->` | show the block, but do not run it |

A command that is expected to fail ends with a comment such as ``# exit code 1``.

Results are stored in `build/docs/examples` under a hash of the examples, with a hash of the package's source, so the
tests and the build run each page once. With `STORED_EXAMPLES=1` in the environment, results of another version of the
source are used too: this is quick while you write a page. This module does not format anything for the site; `pages.py`
does.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
STORE = ROOT / "build" / "docs" / "examples"
SECONDS = 300
"""Longest time for the examples of one page."""

_BLOCK = re.compile(r"^```(python|console)[^\S\n]*\n(.*?)^```[^\S\n]*$", re.M | re.S)
_FENCE = re.compile(r"^```", re.M)
_NOTE = re.compile(r"<!-- (output|run): (\w+) -->\s*\Z")


@dataclass(frozen=True)
class Example:
    """One block of a page that runs."""

    language: str
    code: str
    end: int
    """Position in the page directly after the block."""
    hidden: bool


class ExampleError(Exception):
    """An example of a page failed."""


def examples(markdown: str) -> list[Example]:
    """Return the examples of a page in order."""
    found: list[Example] = []
    for block in _BLOCK.finditer(markdown):
        before = markdown[: block.start()]
        if len(_FENCE.findall(before)) % 2:
            continue  # inside another fence
        note = _NOTE.search(before)
        noted = None if note is None else (note[1], note[2])
        if noted == ("run", "no") or (block[1] == "console" and not _commands(block[2])):
            continue
        found.append(Example(block[1], block[2], block.end(), noted == ("output", "hide")))
    return found


def run(name: str, markdown: str) -> tuple[list[list[dict[str, Any]]], Path]:
    """Run the examples of a page, or read the stored result.

    Parameters
    ----------
    name : str
        Name of the page, for messages and for the folder of the result.
    markdown : str
        Text of the page.

    Returns
    -------
    outputs : list of list of dict
        For each example, its outputs in order: ``{"text": …}``, ``{"html": …}`` or ``{"picture": file name}``.
    folder : Path
        Files that the examples wrote, pictures included.

    Raises
    ------
    ExampleError
        If an example fails, with the page, the code and the last lines of the error.
    """
    blocks = [[one.language, one.code] for one in examples(markdown)]
    folder = stored(name, json.dumps([name, blocks]), lambda folder: _run(name, blocks, folder))
    return json.loads((folder / "outputs.json").read_text()), folder / "files"


def stored(name: str, content: str, make: Callable[[Path], None]) -> Path:
    """Return the folder with the stored results of `content`. If it is missing or old, `make` writes them into it."""
    slug = re.sub(r"\W+", "-", name)
    folder = STORE / f"{slug}-{hashlib.sha256(content.encode()).hexdigest()[:16]}"
    STORE.mkdir(parents=True, exist_ok=True)
    with (STORE / f"{slug}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # another process may be running the same page
        if not _is_stored(folder):
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
            make(folder)
            (folder / "source").write_text(_source())
        for old in STORE.glob(f"{slug}-*"):
            if old != folder and re.fullmatch(rf"{slug}-[0-9a-f]{{16}}", old.name):
                shutil.rmtree(old, ignore_errors=True)
    return folder


def _is_stored(folder: Path) -> bool:
    source = folder / "source"
    return source.exists() and (bool(os.environ.get("STORED_EXAMPLES")) or source.read_text() == _source())


def _run(name: str, blocks: list[list[str]], folder: Path) -> None:
    with tempfile.TemporaryDirectory() as made:
        work = Path(made)
        (work / "files").mkdir()
        (work / "blocks.json").write_text(json.dumps(blocks))
        settings = {"OMP_NUM_THREADS": "1", "MPLBACKEND": "agg", "COLUMNS": "82", "NO_COLOR": "1", "TERM": "dumb"}
        try:
            done = subprocess.run(
                [sys.executable, "-W", "error", __file__, str(work)],
                cwd=work / "files",
                env=os.environ | settings,
                capture_output=True,
                text=True,
                check=False,
                timeout=SECONDS,
            )
        except subprocess.TimeoutExpired:
            raise ExampleError(f"{name}: the examples took longer than {SECONDS} seconds") from None
        if done.returncode:
            raise ExampleError(f"{name}: an example failed\n{done.stderr[-4000:]}")
        shutil.copytree(work / "files", folder / "files")
        shutil.copy(work / "outputs.json", folder / "outputs.json")


@cache
def _source() -> str:
    """Return a hash of everything that the output of an example depends on."""
    digest = hashlib.sha256(sys.version.encode())
    package = ROOT / "src" / "multilayer"
    for path in [Path(__file__), *sorted(package.rglob("*.py")), *sorted(package.glob("pages/built/*.html"))]:
        digest.update(path.read_bytes())
    return digest.hexdigest()


def _commands(text: str) -> list[str]:
    return [line for line in text.splitlines() if line.startswith("mlp ")]


# The rest runs in the session of a page: `python page_examples.py FOLDER`.


def _session(work: Path) -> None:
    space: dict[str, Any] = {"__name__": "__main__"}
    outputs: list[list[dict[str, Any]]] = []
    for number, (language, code) in enumerate(json.loads((work / "blocks.json").read_text()), 1):
        try:
            run_one = _python(code, space, number) if language == "python" else _console(code)
            outputs.append([one for one in run_one if one.get("text", "x").strip()])
        except BaseException:
            print(f"example {number}:\n{code}", file=sys.stderr)
            raise
    (work / "outputs.json").write_text(json.dumps(outputs))


def _python(code: str, space: dict[str, Any], number: int) -> Iterator[dict[str, Any]]:
    """Run a block. Yield what it printed, the value of a last expression, and the matplotlib figures that are open."""
    import ast
    import contextlib
    import io

    tree = ast.parse(code)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    printed, value = io.StringIO(), None
    with contextlib.redirect_stdout(printed):
        exec(compile(tree, f"<example {number}>", "exec"), space)
        if last is not None:
            value = eval(compile(ast.Expression(last.value), f"<example {number}>", "eval"), space)
    yield {"text": printed.getvalue()}
    if value is not None:
        yield from _shown(value, number)
    plots = sys.modules.get("matplotlib.pyplot")
    for index in [] if plots is None else plots.get_fignums():
        file = f"figure-{number}-{index}.svg"
        plots.figure(index).savefig(file, bbox_inches="tight")
        yield {"picture": file}
    if plots is not None:
        plots.close("all")


def _shown(value: Any, number: int) -> Iterator[dict[str, Any]]:
    """Yield the value of a last expression in the form that a notebook shows."""
    html = getattr(value, "_repr_html_", lambda: None)()
    svg = getattr(value, "_repr_svg_", lambda: None)()
    if svg is not None:
        Path(f"value-{number}.svg").write_text(svg)
        yield {"picture": f"value-{number}.svg"}
    elif html is not None and len(html) < 200_000:
        yield {"html": html}
    else:
        yield {"text": repr(value)}


def _console(text: str) -> Iterator[dict[str, Any]]:
    """Run the commands of a block. Each must end with exit code 0, or with the one that its comment names."""
    import shlex

    for line in _commands(text):
        expected = re.search(r"# exit code (\d+)", line)
        done = subprocess.run(
            [sys.executable, "-m", "multilayer", *shlex.split(line, comments=True)[1:]],
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode != (int(expected[1]) if expected else 0):
            raise ExampleError(f"{line}: exit code {done.returncode}\n{done.stdout}\n{done.stderr}")
        shown = done.stdout if done.returncode == 0 else done.stdout + done.stderr
        yield {"text": shown, "command": line}


if __name__ == "__main__":
    _session(Path(sys.argv[1]))
