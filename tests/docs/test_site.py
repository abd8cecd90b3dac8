"""The documentation site builds strictly, lists every public name and option, and loads nothing from other hosts."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest

import multilayer as ml
from support.site import DOCS, ROOT, page_examples, reference


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)],
        cwd=ROOT,
        env=os.environ | {"NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


class Loaded(HTMLParser):
    """The addresses that a page loads when it is opened. Links that a reader follows are not among them."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attrs}
        if "src" in values:
            self.found.append(values["src"])
        if tag == "link" and values.get("rel") not in ("canonical", "next", "prev"):
            self.found.append(values.get("href", ""))


def test_the_site_has_every_name_command_and_option_and_loads_nothing_from_other_hosts(site: Path) -> None:
    pages = {str(path.relative_to(site)): path.read_text() for path in site.rglob("index.html")}
    assert len(pages) > 60
    python = "".join(text for name, text in pages.items() if name.startswith("reference/python/"))
    for name in ml.__all__:
        assert f">ml.{name}<" in re.sub(r"<wbr>|\s", "", python), name
    for name, command in reference._commands().items():
        page = pages[f"reference/commands/{name}/index.html"]
        for option in command.params:
            written = option.opts[0] if option.opts[0].startswith("-") else reference._metavar(option)
            assert option.name == "help" or option.hidden or f"<code>{written}</code>" in page, (name, written)
    for name, text in pages.items():
        for address in Loaded(text).found:
            assert not re.match(r"(https?:)?//", address), f"{name} loads {address}"
        assert "<!-- generated" not in text, name
    for sheet in [*site.rglob("*.css"), *site.rglob("config.js")]:
        assert not re.search(r"url\(['\"]?https?:", sheet.read_text()), sheet
    exact = pages["explanation/cost/index.html"]
    assert "backward.activation" in exact  # the output of its example


def test_every_public_name_has_a_page() -> None:
    assert not reference.other_names()


def test_every_generated_part_is_used_and_known() -> None:
    used = {
        name for page in DOCS.rglob("*.md") for name in re.findall(r"<!-- generated: ([\w-]+) -->", page.read_text())
    }
    assert used == set(reference.PARTS)
    with pytest.raises(ValueError, match="unknown generated part 'tables'; valid: activations"):
        reference.part("tables")


def test_every_promise_has_tests() -> None:
    text = (DOCS / "explanation" / "promises.md").read_text()
    by_page = {f"R{number}" for number in range(1, 16)}
    assert set(re.findall(r"^\| (R\d+) \|", text, re.M)) == by_page
    found = set(re.findall(r"^\| (R\d+) \|", reference.promise_tests(), re.M))
    assert by_page - found <= set(re.findall(r"^- (R\d+) is ", text, re.M))


def test_files_that_pages_name_exist() -> None:
    missing: list[str] = []
    for page in [*DOCS.rglob("*.md"), ROOT / "README.md", ROOT / "CONTRIBUTING.md"]:
        for name in re.findall(r"`((?:[\w.-]+/)+[\w.-]+\.(?:py|h|cpp|ts))`", page.read_text()):
            if not any((folder / name).exists() for folder in (ROOT, ROOT / "src/multilayer", ROOT / "csrc")):
                missing.append(f"{page.relative_to(ROOT)}: {name}")
    assert not missing


def test_the_file_tree_of_the_readme_has_every_package() -> None:
    text = (ROOT / "README.md").read_text()
    packages = re.findall(r"^\| `([\w./]+)` \|", reference.part("packages"), re.M)
    assert len(packages) > 10
    assert re.findall(r"^  ([a-z]+(?:/|\.py))  ", text, re.M) == packages


def test_decisions_are_numbered_and_have_three_parts() -> None:
    pages = sorted((DOCS / "decisions").glob("[0-9]*.md"))
    assert [int(page.name[:4]) for page in pages] == list(range(1, len(pages) + 1))
    for page in pages:
        text = page.read_text()
        assert re.match(r"# .+\n\nDate: 20\d\d-\d\d-\d\d\n\n## Context\n", text), page.name
        assert re.findall(r"^## (\w+)", text, re.M) == ["Context", "Decision", "Consequences"], page.name


@pytest.mark.parametrize(
    ("page", "shown"),
    [
        ("```python\nprint(1)\n```\n", [[{"text": "1\n"}]]),
        ("```python\nx = 2\n```\n\n```python\nx + 1\n```\n", [[], [{"text": "3"}]]),
        ("<!-- run: no -->\n```python\n1 / 0\n```\n", []),
        ("````text\n```python\n1 / 0\n```\n````\n", []),
        ("```console\npip install x\n```\n", []),
    ],
)
def test_outputs_of_examples(
    page: str, shown: list[list[dict[str, str]]], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(page_examples, "STORE", tmp_path)
    assert page_examples.run("page", page)[0] == shown


def test_an_example_that_fails_names_the_page_and_the_code(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(page_examples, "STORE", tmp_path)
    for code, message in (("1 / 0", "ZeroDivisionError"), ("import warnings; warnings.warn('w')", "UserWarning: w")):
        with pytest.raises(page_examples.ExampleError, match=rf"(?s)page: an example failed\nexample 1:\n.*{message}"):
            page_examples.run("page", f"```python\n{code}\n```\n")
