"""A base installation has no optional library, such as torch, and its messages name the extra to install."""

from __future__ import annotations

import copy
import pickle
import re
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest

from multilayer import errors
from multilayer.errors import MissingExtra, needed_by

ROOT = Path(__file__).parents[1]
SMOKE = ROOT / "tests" / "release" / "smoke.py"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS: dict[str, list[str]] = PROJECT["optional-dependencies"]
FOR_DEVELOPERS = {"dev", "docs"}


def names(requirements: list[str]) -> set[str]:
    return {re.split(r"[^\w-]", one)[0] for one in requirements}


def python(*arguments: str, folder: Path) -> str:
    done = subprocess.run([sys.executable, *arguments], cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_everything_works_without_optional_libraries_or_names_the_extra(tmp_path: Path) -> None:
    said = python(str(SMOKE), "--hide", folder=tmp_path)
    assert f"not installed: {', '.join(errors.EXTRAS)}\n" in said


def test_names_that_need_an_extra_can_be_imported_and_raise_when_called() -> None:
    code = """
from smoke import hide

hide({"torch"})
from multilayer import *

import multilayer as ml

for name in ("build", "from_torch", "to_torch"):
    function = getattr(ml, name)
    assert function.__name__ == name
    try:
        function(None)
    except ml.MultilayerError as error:
        assert str(error) == f"ml.{name} needs torch, which is not installed: pip install 'multilayer[torch]'"
    else:
        raise AssertionError(name)
try:
    import multilayer.pytorch
except ImportError as error:
    print(error)
"""
    assert python("-c", code, folder=SMOKE.parent).startswith("multilayer.pytorch needs torch")


def test_the_base_install_has_no_optional_library() -> None:
    assert not names(PROJECT["dependencies"]) & {*errors.EXTRAS, "pandas", "polars"}


def test_every_extra_that_a_message_names_installs_the_library() -> None:
    for library, extra in errors.EXTRAS.items():
        assert library in names(EXTRAS[extra]), f"{extra} does not install {library}"
    assert EXTRAS.keys() - FOR_DEVELOPERS - {"all"} == set(errors.EXTRAS.values())


def test_all_contains_every_extra_of_users() -> None:
    found = re.fullmatch(r"multilayer\[([\w,]+)\]", EXTRAS["all"][0])
    assert found is not None
    assert set(found[1].split(",")) == EXTRAS.keys() - FOR_DEVELOPERS - {"all"}


def test_every_extra_of_users_is_documented() -> None:
    page = (ROOT / "docs" / "install.md").read_text()
    documented = re.findall(r"^\| `(\w+)` \|", page, re.MULTILINE)
    assert sorted(documented) == sorted(EXTRAS.keys() - FOR_DEVELOPERS)


def test_a_library_that_no_extra_installs_is_reported_as_python_does() -> None:
    with pytest.raises(ModuleNotFoundError, match="No module named 'google'") as caught, needed_by("a test"):
        raise ModuleNotFoundError("No module named 'google'", name="google")
    assert not isinstance(caught.value, MissingExtra)


@pytest.mark.parametrize("again", [copy.copy, lambda error: pickle.loads(pickle.dumps(error))])
def test_the_error_can_be_copied_and_pickled(again: Callable[[MissingExtra], MissingExtra]) -> None:
    error = MissingExtra("torch", "ml.build")
    assert str(again(error)) == str(error)


def test_the_size_of_an_environment_is_printed_and_limited(tmp_path: Path) -> None:
    about = tmp_path / "large-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: large\nVersion: 1.0\n")
    (about / "RECORD").write_text("large.bin,,\n")
    for name, size in (("large.bin", 3), ("large.pyc", 2), ("other.bin", 1)):
        (tmp_path / name).write_bytes(b"1" * (size << 20))
    arguments = [sys.executable, str(SMOKE.with_name("size.py")), str(tmp_path), "--limit", "5"]
    done = subprocess.run(arguments, capture_output=True, text=True, check=False)
    lines = [line.split() for line in done.stdout.splitlines()]
    assert lines[:2] == [["large", "3", "MB"], ["bytecode", "2", "MB"]]
    assert lines[-1] == ["total", "6", "MB"]
    assert (done.returncode, done.stderr) == (1, "the environment must have at most 5 MB, got 6 MB\n")


WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))


def test_workflows_follow_the_schema_of_github() -> None:
    assert [one.stem for one in WORKFLOWS] == ["docs", "tests", "wheels"]
    python("-m", "check_jsonschema", "--builtin-schema", "vendor.github-workflows", *map(str, WORKFLOWS), folder=ROOT)


def test_the_citation_follows_its_schema() -> None:
    schema = "vendor.citation-file-format"
    python("-m", "check_jsonschema", "--builtin-schema", schema, "CITATION.cff", folder=ROOT)
