"""The structure of the compiled core (csrc): which folder may include which, and which files may include Python."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

CORE = next(folder / "csrc" for folder in Path(__file__).parents if (folder / "csrc").is_dir())

MAY_INCLUDE = {
    "runtime": [],
    "formulas": [],
    "program.h": ["runtime", "formulas"],
    "kernels": ["runtime", "formulas", "program.h"],
    "reference": ["runtime", "formulas", "program.h"],
    "fused": ["runtime", "program.h", "kernels"],
    "predict": ["runtime", "program.h", "kernels"],
    "tests": ["runtime", "program.h", "kernels", "reference", "fused", "predict"],
    "bind": ["runtime", "program.h", "kernels", "reference", "fused", "predict"],
}
"""The other parts that each part may include; all of them are listed above it. `runtime` has threads, random numbers
and machine detection. `formulas` has the list and the formulas of activations, losses, optimizers and elementwise
operations. `program.h` is the network as plain data. `reference`, `fused` and `predict` run it and do not include each
other."""

ONE_HEADER = ("kernels", "reference", "fused", "predict")
"""Other parts may include only one header of these parts, the one with the name of the folder."""

FILES = sorted(path for path in CORE.rglob("*") if path.suffix in (".h", ".cpp"))

every_file = pytest.mark.parametrize("path", FILES, ids=lambda path: path.relative_to(CORE).as_posix())


def part_of(path: Path) -> str:
    return path.relative_to(CORE).parts[0]


def complaints(path: Path, text: str) -> Iterator[str]:
    """Yield a message for each include of a core file that is not allowed."""
    part = part_of(path)
    for mark, header in re.findall(r'^\s*#\s*include\s*(["<])([^">]+)[">]', text, re.MULTILINE):
        if part != "bind" and re.match(r"Python\.h|nanobind/|pybind11/|numpy/", header):
            yield f"{header} outside bind"
        if mark == "<":
            continue
        target = CORE / header
        if not target.is_file():
            yield f"{header} is not a file below csrc"
            continue
        other = part_of(target)
        if other == part:
            continue
        if other not in MAY_INCLUDE[part]:
            yield f"{part} includes {other}"
        elif other in ONE_HEADER and header != f"{other}/{other}.h":
            yield f"{header} is private to {other}: include {other}/{other}.h"


def test_every_part_has_its_place() -> None:
    assert {part_of(path) for path in FILES} == set(MAY_INCLUDE)


def test_includes_go_one_way() -> None:
    order = list(MAY_INCLUDE)
    for part, others in MAY_INCLUDE.items():
        assert all(order.index(other) < order.index(part) for other in others), part


@every_file
def test_a_file_includes_what_its_part_may(path: Path) -> None:
    assert list(complaints(path, path.read_text())) == []


@pytest.mark.parametrize(
    ("file", "line", "expected"),
    [
        ("fused/core.cpp", "#include <Python.h>", "Python.h outside bind"),
        ("runtime/machine.cpp", "#include <nanobind/ndarray.h>", "nanobind/ndarray.h outside bind"),
        ("runtime/machine.cpp", '#include "kernels/kernels.h"', "runtime includes kernels"),
        ("predict/predict.cpp", '#include "fused/memory_plan.h"', "predict includes fused"),
        ("reference/core.cpp", '#include "kernels/kernels.h"', "reference includes kernels"),
        ("bind/engine.cpp", '#include "fused/core.h"', "fused/core.h is private to fused: include fused/fused.h"),
        ("fused/core.cpp", '#include "bind/common.h"', "fused includes bind"),
        ("fused/core.cpp", '#include "nowhere.h"', "nowhere.h is not a file below csrc"),
    ],
)
def test_what_a_file_may_not_include_is_found(file: str, line: str, expected: str) -> None:
    assert list(complaints(CORE / file, f"// A file.\n{line}\n")) == [expected]


def test_files_of_the_core_that_python_names_are_there() -> None:
    for path in (CORE.parent / "src").rglob("*.py*"):
        if path.suffix in (".py", ".pyi"):
            for name in re.findall(r"\bcsrc/[\w/]+(?:\.\w+)?", path.read_text()):
                assert (CORE.parent / name).exists(), f"{path} names {name}"


@every_file
def test_files_are_short_and_open_with_what_they_do(path: Path) -> None:
    text = path.read_text()
    assert text.count("\n") <= 500, f"{path} should be split"
    assert re.match(r"// \S.{15,}", text), f"{path} does not say what it does"
