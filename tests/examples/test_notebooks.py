"""The notebooks of `examples/`: each runs from top to bottom without a warning and shows its tables and pictures."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import nbformat
import pytest

from support.site import notebooks

NOTEBOOKS = notebooks.paths()
SHOWN = {
    "cost": {"text/html", "image/png"},
    "explorer": {"text/html", "image/svg+xml"},
    "onnx": {"text/html"},
    "own_torch_module": {"image/png"},
    "table": {"text/html", "image/png"},
    "uncertainty": {"image/png"},
}
"""The kinds of output of each notebook, other than text."""
FRAMES = {"explorer": "multilayer explorer", "table": "report"}
"""Titles of the pages that notebooks show in a frame."""


def read(path: Path) -> Any:
    return nbformat.read(path, as_version=4)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs_and_shows_its_outputs(path: Path) -> None:
    cells = read(notebooks.run(path)).cells
    outputs = [output for cell in cells if cell.cell_type == "code" for output in cell.outputs]
    assert not [output.text for output in outputs if output.output_type == "stream" and output.name == "stderr"]
    shown = [output.data for output in outputs if output.output_type in ("display_data", "execute_result")]
    assert SHOWN[path.stem] <= {kind for data in shown for kind in data}
    frames = [data["text/html"] for data in shown if "<iframe" in data.get("text/html", "")]
    assert len(frames) == (path.stem in FRAMES)
    assert all(f'title="{FRAMES[path.stem]}"' in frame for frame in frames)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_is_stored_without_outputs(path: Path) -> None:
    notebook = read(path)
    nbformat.validate(notebook)
    for cell in notebook.cells:
        assert not cell.metadata
        assert cell.cell_type == "markdown" or (cell.execution_count is None and not cell.outputs)
    assert notebook.metadata.keys() == {"kernelspec", "language_info"}


def test_every_notebook_is_listed() -> None:
    assert {path.stem for path in NOTEBOOKS} == SHOWN.keys()
    listed = (notebooks.EXAMPLES / "README.md").read_text()
    for path in NOTEBOOKS:
        assert f"]({path.name})" in listed, f"examples/README.md does not list {path.name}"
        assert "".join(read(path).cells[0].source).startswith("# ")
