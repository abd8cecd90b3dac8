"""README and docs say what is true: their Python runs, their commands run, their links lead somewhere."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").glob("*.md"))]
ONE_THREAD = {**os.environ, "OMP_NUM_THREADS": "1"}  # two test processes share two cores
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```", re.M | re.S)


def blocks(language: str) -> list[tuple[str, str]]:
    found = []
    for page in PAGES:
        for i, match in enumerate(m for m in BLOCK.finditer(page.read_text()) if m[1] == language):
            found.append((f"{page.name}:{i}", match[2]))
    return found


CONSOLES = [(where, text) for where, text in blocks("console") if "mlp " in text]


@pytest.mark.parametrize(("where", "code"), blocks("python"), ids=[where for where, _ in blocks("python")])
def test_python_runs(where: str, code: str, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"{where}:\n{code}\n{done.stderr}"


@pytest.mark.parametrize(("where", "text"), CONSOLES, ids=[where for where, _ in CONSOLES])
def test_commands_run(where: str, text: str, tmp_path: Path) -> None:
    """The commands of one block, one after another in one folder."""
    for line in text.splitlines():
        if not line.startswith("mlp "):
            continue
        arguments = [sys.executable, "-m", "multilayer", *shlex.split(line, comments=True)[1:]]
        done = subprocess.run(arguments, cwd=tmp_path, env=ONE_THREAD, capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{where}: {line}\n{done.stdout}\n{done.stderr}"
        assert done.stdout.strip()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
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
        for target in re.findall(r"`?make (\w+)`?", page.read_text()):
            if target in ("sure", "up", "it"):
                continue
            assert f"\n{target}:" in makefile, f"{page.name}: make {target}"


def test_the_grammar_is_the_same_in_the_code_and_on_its_page() -> None:
    from multilayer import text

    page = (ROOT / "docs" / "architecture.md").read_text().split("## Grammar")[1].split("```")[1]
    assert page.strip().splitlines()
    assert [line.strip() for line in page.strip().splitlines()] == [
        line.strip() for line in (text.__doc__ or "").split("\n\n")[1].splitlines()
    ]


def test_every_network_of_the_page_can_be_read() -> None:
    import multilayer as ml

    page = (ROOT / "docs" / "architecture.md").read_text()
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
