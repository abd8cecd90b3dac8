"""The book: its pages are complete, work offline, and reuse the results of an earlier run."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

from multilayer.lab import NAMES, Result, book, get
from multilayer.lab.criteria import VERDICTS
from multilayer.lab.experiment import Size
from multilayer.lab.rows import Rows

NAME = "vanishing_gradients"


class Links(HTMLParser):
    """Collect the links and the elements of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.elements: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append(tag)
        self.links += [value or "" for name, value in attrs if name in ("href", "src", "xlink:href")]


def made(folder: Path, **options: object) -> list[tuple[str, bool]]:
    done: list[tuple[str, bool]] = []
    book.make(folder, names=[NAME], size="tiny", workers=1, quiet=True,
              finished=lambda result, reused: done.append((result.name, reused)), **options)  # fmt: skip
    return done


def test_the_book_has_a_page_per_experiment_and_a_first_page(tmp_path: Path) -> None:
    made(tmp_path)
    index, page = (tmp_path / f"{name}.html" for name in ("index", NAME))
    assert f'href="{NAME}.html"' in index.read_text()
    for text in ("what the books say", "what we measured", *VERDICTS):
        assert text in index.read_text()
    for text in ("Criteria", "Published results", "How it is measured", "Sources", "Glorot and Bengio 2010", "<svg"):
        assert text in page.read_text()


def test_pages_have_no_scripts_and_make_no_requests(tmp_path: Path) -> None:
    made(tmp_path)
    for path in tmp_path.glob("*.html"):
        found = Links(path.read_text())
        assert "script" not in found.elements
        for link in found.links:
            assert link.startswith(("#", "data:")) or (tmp_path / link).is_file(), link
        assert "default-src 'none'" in path.read_text()


def test_the_colors_of_plots_follow_the_scheme(tmp_path: Path) -> None:
    made(tmp_path)
    svg = re.search(r"<svg.*</svg>", (tmp_path / f"{NAME}.html").read_text(), re.S)
    assert svg is not None
    assert "var(--line-0)" in svg[0]
    assert not re.search(r"#(0b66a8|ffffff|1f2933)", svg[0])


def test_an_earlier_result_is_used_again_only_for_the_same_question(tmp_path: Path) -> None:
    assert made(tmp_path) == [(NAME, False)]
    assert made(tmp_path) == [(NAME, True)]
    assert made(tmp_path, first_seed=7) == [(NAME, False)]
    assert made(tmp_path, first_seed=7, seeds=3) == [(NAME, False)]
    (tmp_path / "results" / f"{NAME}.json").write_text("{")
    assert made(tmp_path, first_seed=7, seeds=3) == [(NAME, False)]


def test_the_first_page_names_the_command_that_repeats_the_book() -> None:
    experiment = get(NAME)

    def command(seeds: range, size: Size = "default") -> str:
        rows = Rows({"seed": seed} for seed in seeds)
        return book._command([Result.of(experiment, experiment.sized(size, {}), rows, seconds=1)])

    assert command(range(experiment.seeds)) == "mlp lab --all --out book"
    assert command(range(100, 103)) == "mlp lab --all --out book --seeds 3 --first-seed 100"
    assert command(range(experiment.full_seeds), "full") == "mlp lab --all --out book --full"


def test_text_is_escaped() -> None:
    assert book.paragraphs("a < b & `c<d>`") == "<p>a &lt; b &amp; <code>c&lt;d&gt;</code></p>"


@pytest.mark.parametrize("name", NAMES)
def test_methods_are_readable_as_pages(name: str) -> None:
    assert "<p>" in book.paragraphs(get(name).method)
