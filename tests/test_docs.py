"""README and docs are correct: their Python examples run, their commands run, their links exist.

The examples of a page in `docs` run in order, in one session per page, as in the build of the site
(`docs/hooks/page_examples.py`). Each example of README, CONTRIBUTING and CHANGELOG runs in a separate process.
tests/docs/test_site.py builds the site.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from support.site import DOCS, ROOT, page_examples

STANDALONE = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md"]
SITE = sorted(DOCS.rglob("*.md"))
PAGES = [*STANDALONE, *SITE]
ONE_THREAD = {**os.environ, "OMP_NUM_THREADS": "1"}  # two test processes share two cores
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```", re.M | re.S)


def blocks(language: str) -> list[tuple[str, str]]:
    found = []
    for page in STANDALONE:
        for i, match in enumerate(m for m in BLOCK.finditer(page.read_text()) if m[1] == language):
            found.append((f"{page.name}:{i}", match[2]))
    return found


HIDE = """
from importlib.machinery import PathFinder

find = PathFinder.find_spec
hidden = {names!r}
PathFinder.find_spec = lambda name, *rest: None if name.partition(".")[0] in hidden else find(name, *rest)
"""
"""Source of a sitecustomize module that hides some installed packages."""


def optional_packages() -> set[str]:
    """Return the import names of the packages of all extras that `make run` does not install."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]

    def names(requirements: list[str]) -> set[str]:
        return {re.split(r"[^\w-]", one)[0].replace("-", "_") for one in requirements}

    own = {project["name"]}  # an extra can contain other extras of the package
    return names([one for extra in extras.values() for one in extra]) - names(project["dependencies"]) - own


def environment(where: str, text: str, folder: Path) -> dict[str, str]:
    """Return the environment variables for an example. Examples in the README see only the packages of `make run` and
    those that their first line names: `# needs pandas: pip install pandas`."""
    if not where.startswith("README"):
        return ONE_THREAD
    needs = re.match(r"# needs ([\w, ]+): pip install ([\w ]+)\n", text)
    named = set() if needs is None else set(re.split(r"\W+", needs[1]))
    assert needs is None or named == set(needs[2].split()), (
        f"{where}: the first line names and installs different packages"
    )
    hooks = folder / "hooks"
    hooks.mkdir()
    (hooks / "sitecustomize.py").write_text(HIDE.format(names=optional_packages() - named))
    return ONE_THREAD | {"PYTHONPATH": str(hooks)}


CONSOLES = [(where, text) for where, text in blocks("console") if "mlp " in text]


@pytest.mark.parametrize(("where", "code"), blocks("python"), ids=[where for where, _ in blocks("python")])
def test_python_runs(where: str, code: str, tmp_path: Path) -> None:
    env = environment(where, code, tmp_path)
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code], cwd=tmp_path, env=env, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"{where}:\n{code}\n{done.stderr}"


@pytest.mark.parametrize(("where", "text"), CONSOLES, ids=[where for where, _ in CONSOLES])
def test_commands_run(where: str, text: str, tmp_path: Path) -> None:
    """The commands of one block, one after another in one folder."""
    env = environment(where, text, tmp_path)
    for line in text.splitlines():
        if not line.startswith("mlp "):
            continue
        arguments = [sys.executable, "-m", "multilayer", *shlex.split(line, comments=True)[1:]]
        done = subprocess.run(arguments, cwd=tmp_path, env=env, capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{where}: {line}\n{done.stdout}\n{done.stderr}"
        assert done.stdout.strip()


WITH_EXAMPLES = [page for page in SITE if page_examples.examples(page.read_text())]


@pytest.mark.parametrize("page", WITH_EXAMPLES, ids=lambda page: str(page.relative_to(DOCS)))
def test_examples_of_a_page_run(page: Path) -> None:
    text = page.read_text()
    outputs, _ = page_examples.run(str(page.relative_to(DOCS)), text)
    assert len(outputs) == len(page_examples.examples(text))


def test_an_example_that_does_not_name_its_extra_package_fails(tmp_path: Path) -> None:
    assert {"pandas", "onnx", "optuna", "tensorboard", "torch", "matplotlib"} <= optional_packages()
    assert not {"numpy", "scipy", "pyarrow"} & optional_packages()
    code = "import numpy, scipy, pandas"
    silent, named = tmp_path / "silent", tmp_path / "named"
    for folder in (silent, named):
        folder.mkdir()
    for example, folder, found in (
        (code, silent, False),
        (f"# needs pandas: pip install pandas\n{code}", named, True),
    ):
        env = environment("README.md:0", example, folder)
        done = subprocess.run([sys.executable, "-c", example], env=env, capture_output=True, text=True, check=False)
        assert (done.returncode == 0) is found
        assert ("No module named 'pandas'" in done.stderr) is not found


@pytest.mark.parametrize("page", STANDALONE, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)]+)\)", page.read_text()):
        if not target.startswith("http"):
            assert (page.parent / target.split("#")[0]).exists(), target


def test_readme_shows_the_two_commands() -> None:
    text = (ROOT / "README.md").read_text()
    for command in ("make run", "make test"):
        assert command in text


def test_make_targets_named_in_the_docs_exist() -> None:
    makefile = (ROOT / "Makefile").read_text()
    for page in PAGES:
        for target in re.findall(r"(?m)(?:^|`)make (\w+)", page.read_text()):
            assert f"\n{target}:" in makefile, f"{page.name}: make {target}"


def test_every_network_of_the_page_can_be_read() -> None:
    import multilayer as ml

    page = (DOCS / "reference" / "network-grammar.md").read_text()
    networks = re.findall(r"`((?:[0-9]+|cat\()[^`]*-[^`]*)`", page)
    assert len(networks) > 12
    for network in networks:
        assert ml.Spec.parse(str(ml.Spec.parse(network))) == ml.Spec.parse(network)


def test_the_documented_parameter_counts() -> None:
    import multilayer as ml

    d, width, k = 10, 7, 3
    for text, parameters in {
        f"{d}-linear({width})": width * d + width,
        f"{d}-swiglu({width})": 2 * width * (d + 1),
        f"{d}-maxout({width}, {k})": k * width * (d + 1),
        f"{d}-kan({width})": width * d * (8 + 1),
        f"{d}-scale": d,
        f"{d}-layernorm": 2 * d,
        f"{d}-rmsnorm": d,
    }.items():
        assert ml.Spec.parse(text).n_parameters == parameters, text
