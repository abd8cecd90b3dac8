"""Run the notebooks of `examples/` and turn each into a page with its outputs.

Each notebook runs in its own kernel, in a temporary folder. The result is stored as the results of the examples of
pages are (`page_examples.py`), so the tests and the build run each notebook once.

| output | on the page |
|---|---|
| text | a block of text |
| picture | a file next to the page |
| HTML | as it is; a page in a frame (the explorer, a report) becomes a file next to the page |

Of an output in several formats, the richest is shown.
"""

from __future__ import annotations

import base64
import html
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from page_examples import ROOT, ExampleError, stored

EXAMPLES = ROOT / "examples"
SECONDS = 120
"""Longest time for one cell. It only ends a cell that hangs."""

_EXECUTE = "from nbclient.cli import main; main()"
"""The command `jupyter execute`."""
_FRAME = re.compile(r'^<iframe srcdoc="([^"]*)"')

Output = dict[str, Any]
Files = dict[str, str | bytes]


def paths() -> list[Path]:
    """Return the notebooks of `examples/`."""
    return sorted(EXAMPLES.glob("*.ipynb"))


def run(path: Path) -> Path:
    """Run a copy of a notebook, or find the stored result. Return the path of the notebook with its outputs."""
    key = Path(__file__).read_text() + path.read_text()
    return stored(f"examples-{path.stem}", key, lambda folder: _execute(path, folder)) / path.name


def _execute(path: Path, folder: Path) -> None:
    with tempfile.TemporaryDirectory() as made:
        copy = Path(shutil.copy(path, made))
        settings = {"OMP_NUM_THREADS": "1", "IPYTHONDIR": made, "JUPYTER_RUNTIME_DIR": f"{made}/runtime"}
        done = subprocess.run(
            [sys.executable, "-c", _EXECUTE, "--inplace", f"--timeout={SECONDS}", str(copy)],
            cwd=made,
            env=os.environ | settings,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise ExampleError(f"examples/{path.name} failed\n{done.stderr[-4000:]}")
        shutil.copy(copy, folder)


def page(path: Path, fenced: Callable[[str], str]) -> tuple[str, Files]:
    """Return the Markdown of a notebook and the files that it shows.

    Parameters
    ----------
    path : Path
        The notebook as it is stored in `examples/`.
    fenced : callable
        Turns the text of an output into a block of Markdown.
    """
    import nbformat

    files: Files = {}
    parts: list[str] = []
    for number, cell in enumerate(nbformat.read(run(path), as_version=4).cells, 1):
        if cell.cell_type == "markdown":
            parts.append(cell.source)
            continue
        parts.append(f"```python\n{cell.source}\n```")
        parts += [
            _shown(output, f"{path.stem}/output-{number}-{index}", files, fenced)
            for index, output in enumerate(_joined(cell.outputs), 1)
        ]
    link = f"This page is the notebook `examples/{path.name}` with its output: [download it]({path.name})."
    title, _, rest = parts[0].partition("\n")
    return "\n\n".join([title, link, rest.strip(), *parts[1:]]) + "\n", files


def _joined(outputs: list[Output]) -> Iterator[Output]:
    """Yield the outputs of a cell, with all its printed text as one output."""
    printed = "".join(one["text"] for one in outputs if one["output_type"] == "stream")
    if printed.strip():
        yield {"text/plain": printed}
    yield from (one["data"] for one in outputs if one["output_type"] in ("display_data", "execute_result"))


def _shown(output: Output, name: str, files: Files, fenced: Callable[[str], str]) -> str:
    """Return the Markdown of one output, and add the files that it needs to `files`."""
    text = output.get("text/html")
    if "image/svg+xml" in output:
        files[f"{name}.svg"] = output["image/svg+xml"]
        return f"![Output of the cell]({name}.svg)"
    if "image/png" in output:
        files[f"{name}.png"] = base64.b64decode(output["image/png"])
        return f"![Output of the cell]({name}.png)"
    if text is None:
        return fenced(output["text/plain"])
    if frame := _FRAME.match(text):
        files[f"{name}.html"] = html.unescape(frame[1])
        text = f'<iframe src="{Path(name).name}.html" loading="lazy"{text[frame.end() :]}'
    return f'<div class="output">{text}</div>'
