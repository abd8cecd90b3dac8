"""HTML tables of costs, summaries and networks, as notebooks display them."""

from __future__ import annotations

import re
from html.parser import HTMLParser

import pytest

import multilayer as ml
from multilayer.core.html_tables import MOST_ROWS, bar, notebook
from multilayer.costs.summary import summarize

NETWORKS = ["784-256-128-10", "20-8-[layernorm-32:gelu:dropout(0.1)-8]*2-10", "3+cat(3,12)-8-1", "8-relu"]
VOID = {"rect"}


class Page(HTMLParser):
    """The cells of each table row. Every tag must be closed."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.rows: list[list[str]] = []
        self.open: list[str] = []
        self.feed(text)
        assert not self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in VOID:
            self.open.append(tag)
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self.rows[-1].append("")

    def handle_endtag(self, tag: str) -> None:
        if tag not in VOID:
            assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.rows and self.open[-1] in ("td", "th"):
            self.rows[-1][-1] += data


def rows_of(value: object) -> dict[str, list[str]]:
    return {first: rest for first, *rest in Page(value._repr_html_()).rows}  # type: ignore[attr-defined]


@pytest.mark.parametrize("network", NETWORKS)
def test_the_table_of_a_cost_has_its_numbers(network: str) -> None:
    cost = ml.cost(network, rows=1000)
    rows = rows_of(cost)
    for layer in cost.layers:
        what, parameters, forward, backward, share, _ = rows[layer.name]
        assert (what, parameters) == (layer.what, f"{layer.parameters:,}")
        assert (forward, backward) == (f"{layer.forward.total:,}", f"{layer.backward.total:,}")
        assert share == f"{100 * (layer.forward.total + layer.backward.total) / cost.step:.1f} %"
    assert rows["total"][1:4] == [f"{n:,}" for n in (cost.parameters, cost.forward, cost.backward)]
    assert rows["memory: total"][1] == f"{cost.memory.total:,} B"
    assert cost.epoch is not None
    assert rows[f"epoch of 1,000 rows, {cost.epoch.steps} steps"][1] == f"{cost.epoch.flops:,}"


@pytest.mark.parametrize("network", NETWORKS)
def test_the_table_of_a_summary_adds_up(network: str) -> None:
    summary = summarize(network)
    rows = rows_of(summary)
    for part in summary.parts:
        name = f"{part.heading} ×{part.times}" if part.times > 1 else part.heading
        assert rows[name][2:4] == [f"{part.parameters:,}", f"{part.flops:,}"]
    assert rows["total"][2:4] == [f"{summary.cost.parameters:,}", f"{summary.cost.step:,}"]


@pytest.mark.parametrize("network", [*NETWORKS, "8-(8:prelu(per=network))*3-1"])
def test_the_table_of_a_network_has_its_layers_and_parameters(network: str) -> None:
    spec = ml.Spec.parse(network)
    rows = rows_of(spec)
    assert {entry.name for entry in spec.entries} <= set(rows)
    numbers = [int(rows[entry.name][-1].replace(",", "")) for entry in spec.entries]
    assert sum(numbers) == spec.n_parameters == int(rows["total"][-1].replace(",", ""))


def test_the_parts_of_a_block_are_indented() -> None:
    rows = rows_of(summarize(NETWORKS[1]))
    assert rows["residual1…2 ×2"][1] == "8 → 8"
    assert "\u2003layernorm1" in rows


def test_a_long_network_shows_its_first_and_last_layers() -> None:
    spec = ml.Spec.parse("8-" + "-".join(str(8 + i * i % 97) for i in range(400)) + "-1")
    for value in (spec, ml.cost(spec), summarize(spec)):
        rows = Page(value._repr_html_()).rows
        assert any(re.fullmatch(r"… [\d,]+ more rows …", row[0]) for row in rows)
        names = [row[0] for row in rows]
        assert "linear1" in names
        assert "linear401" in names
        assert len(rows) < MOST_ROWS + 20


def test_tables_escape_text_and_load_nothing() -> None:
    text = notebook("<b>", "<script>")
    assert "&lt;b&gt;" in text
    assert "&lt;script&gt;" in text
    for value in (ml.cost("784-256-10"), ml.Spec.parse("784-256-10"), summarize("784-256-10")):
        html = value._repr_html_()
        assert "http" not in html
        assert "<script" not in html
        assert "\n\n" not in html


def test_a_bar_is_as_long_as_its_share() -> None:
    assert 'class="fill" width="25.00"' in bar(0.25)
