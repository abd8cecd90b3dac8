"""The output of `mlp cost`: a worked example, and every format."""

from __future__ import annotations

import csv
import io
import json
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

import multilayer as ml
from multilayer.cli import cost_table
from multilayer.core.counts import Count
from multilayer.costs import cost
from multilayer.costs.formulas import explain, legend
from multilayer.costs.html import page
from multilayer.spec import Spec
from support.cost_command import NET, data, printed, run

BLOCKS = "20-384-[layernorm-1536:gelu:dropout(0.1)-384]*2-10"
TEXTBOOK = ("cost", NET, "--batch", "32", "--optimizer", "adam", "--convention", "textbook", "--rows", "60000")


# The worked example


def test_worked_example_has_the_exact_numbers() -> None:
    found = json.loads(run(*TEXTBOOK, "--json").stdout)
    layers = found["layers"]
    assert found["parameters"] == 235_146
    assert [layer["parameters"] for layer in layers] == [200_960, 32_896, 1_290]

    forward = [[layer["forward"][part] for part in ("matmul", "bias", "activation", "total")] for layer in layers]
    assert forward == [
        [12_845_056, 8_192, 8_192, 12_861_440],
        [2_097_152, 4_096, 4_096, 2_105_344],
        [81_920, 320, 1_600, 83_840],
    ]
    backward = [[layer["backward"][p] for p in ("dW", "db", "dA", "activation", "total")] for layer in layers]
    assert backward == [
        [12_845_056, 8_192, 12_845_056, 0, 25_698_304],
        [2_097_152, 4_096, 2_097_152, 8_192, 4_206_592],
        [81_920, 320, 81_920, 4_096, 168_256],
    ]
    assert found["loss"]["forward"] == 640
    assert found["loss"]["backward"] == 640
    assert (found["forward"], found["backward"], found["step"]) == (15_051_264, 30_073_152, 45_124_416)
    memory = found["memory"]
    assert (memory["parameters"], memory["gradients"], memory["optimizer"]) == (940_584, 940_584, 1_881_168)
    assert memory["activations"] == 100_352 + 32_768 + 16_384 + 1_280
    assert memory["total"] == 3_913_120
    assert found["epoch"] == {"rows": 60_000, "steps": 1_875, "flops": 1_875 * 45_124_416}
    assert found["left_out"] == []


def test_json_numbers_are_integers() -> None:
    def numbers(value: object):
        if isinstance(value, dict):
            for item in value.values():
                yield from numbers(item)
        elif isinstance(value, list):
            for item in value:
                yield from numbers(item)
        elif not isinstance(value, str) and value is not None:
            yield value

    found = list(numbers(data(BLOCKS, "--rows", "1000", "--optimizer", "adamw", "--average", "--clip", "--l2")))
    assert len(found) > 100
    assert all(type(number) is int for number in found)


def test_worked_example_as_a_table() -> None:
    text = run(*TEXTBOOK).stdout
    for figure in (
        "12,845,056",
        "25,698,304",
        "15,051,264",
        "30,073,152",
        "45,124,416",
        "3,913,120 B",
        "84,608,280,000",
    ):
        assert figure in text
    for unit in ("45.1 MFLOP", "3.73 MiB", "84.6 GFLOP", "2.00 × forward", "60,000 rows, 1,875 steps"):
        assert unit in text
    assert re.search(r"linear1 .* 85\.5 % █", text)


# The table


@pytest.mark.parametrize("columns", [80, 100, 120])
@pytest.mark.parametrize("network", [NET, BLOCKS, "2-1", "4-(8)*100-2"])
def test_table_fits_the_terminal_and_no_number_is_cut(network: str, columns: int) -> None:
    text = printed(network, "--rows", "60000", columns=columns)
    lines = text.splitlines()[2:]
    assert max(map(len, lines)) <= columns
    assert "\x1b" not in text
    assert not re.search(r"[0-9.,]…", text)
    assert all(line == line.rstrip() for line in lines)


def test_table_wider_than_the_terminal_is_not_cut() -> None:
    text = printed(NET, columns=40)
    assert "128→10 softmax" in text
    assert "…" not in text
    assert "15,051,264" in text


def test_numbers_are_exact_if_they_fit_and_short_otherwise() -> None:
    assert "37,748,736" in printed(BLOCKS, columns=120)
    assert "37.7M" in printed(BLOCKS, columns=80)


def test_blocks_are_drawn() -> None:
    lines = [line.split("  ")[0].rstrip() for line in printed(BLOCKS, columns=120).splitlines()]
    at = lines.index("┌ layernorm1")
    assert lines[at : at + 5] == ["┌ layernorm1", "│ linear1", "│ dropout1", "│ linear2", "└ residual1"]


def test_nested_blocks_are_drawn() -> None:
    names = ["a", "r1.b", "r1.r1.c", "r1.r1", "r1", "r2.d", "r2"]
    assert cost_table.tree(names) == ["a", "┌ b", "│ ┌ c", "│ └ r1", "└ r1", "┌ d", "└ r2"]
    assert cost_table.tree(["r1.r1.c", "r1.r1", "r1"]) == ["┌ ┌ c", "│ └ r1", "└ r1"]


def test_the_middle_of_many_layers_is_summed_up() -> None:
    found = cost("4-(8)*500-2")
    shown = cost_table.shown_rows(found)
    assert len(shown) == cost_table.MOST_ROWS + 1
    assert sum(int(row.parameters) for row in shown) == found.parameters
    assert sum(row.forward.total for row in shown) + found.loss.forward == found.forward
    assert sum(row.backward.total for row in shown) == found.backward


def test_actual_lists_the_differences_from_the_textbook_convention() -> None:
    text = printed(NET)
    assert "The textbook convention also counts" in text
    assert "+12,845,056  dA of the first layer" in text
    assert "−12,288  σ′ at its actual cost" in text
    assert "step by the textbook convention: 45.1 MFLOP (45,124,416)" in text
    assert "also counts" not in run(*TEXTBOOK).stdout


def test_options_change_the_cost() -> None:
    plain, more = data(NET), data(NET, "--l2", "--clip", "--average", "--optimizer", "adamw")
    P, W = 235_146, 784 * 256 + 256 * 128 + 128 * 10
    assert plain["optimizer_flops"] == 14 * P
    assert more["optimizer_flops"] == (14 + 3 + 3) * P + 2 * 2 * W
    assert more["memory"]["averages"] == 4 * P
    assert 0 < data(NET, "--engine", "fused")["memory"]["gradients"] < 4 * P / 10
    assert data(NET, "--dtype", "float64")["memory"]["parameters"] == 8 * P
    assert data("784-8-1")["loss"]["name"] == "mse"
    assert data("784-8-1", "--activation", "tanh")["network"] == "784-8:tanh-1"


# CSV and HTML


@pytest.fixture(scope="module")
def a_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a run with batches of 24 rows, SGD with momentum, clipping, averaged weights and the fused engine."""
    folder = tmp_path_factory.mktemp("runs") / "iris"
    options = {"batch_size": 24, "optimizer": "momentum", "clip_norm": 1.0, "average": 0.9, "engine": "fused"}
    ml.fit("4-8-3", "iris", epochs=1, run=folder, quiet=True, report=False, **options)
    return folder


@pytest.mark.parametrize("name", ["", "model.safetensors"], ids=["folder", "model file"])
def test_the_cost_of_a_run_is_that_of_its_steps(a_run: Path, name: str) -> None:
    found = data(str(a_run / name))
    expected = cost(
        "4-8-3", batch=24, optimizer="momentum", loss="cross_entropy", engine="fused", clip=True, average=True
    )
    assert found == json.loads(expected.to_json())


def test_options_that_are_given_replace_those_of_the_run(a_run: Path) -> None:
    found = data(str(a_run), "--batch", "32", "--optimizer", "adam", "--engine", "torch", "--dtype", "float64")
    assert [found[name] for name in ("batch", "optimizer", "engine", "dtype")] == [32, "adam", "torch", "float64"]


def test_a_question_about_pytorch_ignores_the_engine_of_the_run(a_run: Path) -> None:
    found = data(str(a_run), "--as", "torchinfo")
    assert (found["batch"], found["engine"]) == (24, "torch")


def test_a_model_file_outside_of_its_run_has_the_usual_step(a_run: Path, tmp_path: Path) -> None:
    copied = tmp_path / "model.safetensors"
    copied.write_bytes((a_run / "model.safetensors").read_bytes())
    found = data(str(copied))
    assert [found[name] for name in ("batch", "optimizer", "engine")] == [32, "adam", "torch"]
    (tmp_path / "config.json").write_text("{}")  # of another program
    assert data(str(copied)) == found


def test_csv_has_a_line_per_layer_and_a_total() -> None:
    rows = list(csv.DictReader(io.StringIO(printed(NET, "--csv"))))
    assert [row["layer"] for row in rows] == ["linear1", "linear2", "linear3", "loss", "total"]
    total = rows[-1]
    assert total["what"] == NET
    for key in total:
        if key not in ("layer", "what"):
            assert int(total[key]) == sum(int(row[key]) for row in rows[:-1]), key
    assert (int(total["forward.total"]), int(total["parameters"])) == (15_051_264, 235_146)


class _Reader(HTMLParser):
    """Check that tags are closed in order, and collect tags, attributes and text."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: set[str] = set()
        self.attributes: set[str] = set()
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs}
        if tag not in ("meta", "br", "rect"):
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def read_page(text: str) -> _Reader:
    reader = _Reader()
    reader.feed(text)
    reader.close()
    assert reader.open == []
    return reader


def test_html_is_one_self_contained_page(tmp_path: Path) -> None:
    path = tmp_path / "cost.html"
    assert printed(NET, "--rows", "60000", "--html", str(path)) == f"saved: {path}\n"
    assert [p.name for p in tmp_path.iterdir()] == ["cost.html"]
    text = path.read_text(encoding="utf-8")
    reader = read_page(text)
    assert not reader.tags & {"script", "link", "img", "iframe"}
    assert not reader.attributes & {"style", "src", "href", "onclick"}
    assert "default-src 'none'" in text
    assert "prefers-color-scheme: dark" in text
    for figure in ("12,845,056", "15,051,264", "3,913,124 B", "235,146", "60.5 GFLOP"):
        assert figure in reader.text


def test_html_escapes_the_network(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Spec, "__str__", lambda _: "<script>alert(1)</script>&")
    text = page(cost("4-8-2"))
    assert "<script>" not in text
    assert "&lt;script&gt;alert(1)&lt;/script&gt;&amp;" in text


def test_html_with_formulas(tmp_path: Path) -> None:
    path = tmp_path / "cost.html"
    printed(NET, "--explain", "--html", str(path))
    assert "2·B·I·O = 2·32·784·256" in read_page(path.read_text(encoding="utf-8")).text


# Formulas


@pytest.mark.parametrize("convention", ["actual", "textbook"])
@pytest.mark.parametrize(
    "network",
    [
        NET,
        BLOCKS,
        "13+cat(3,12)-8-1",
        "10-swiglu(32)-maxout(8,3)-kan(4)-3",
        "4-8:prelu(per=unit)-8:blend(selu):batchnorm-2",
    ],
)
def test_every_formula_gives_its_number(network: str, convention: str) -> None:
    found = cost(network, batch=7, rows=100, convention=convention, optimizer="adamw", clip=True, average=True)
    lines = explain(found)
    computed = 0
    for line in lines:
        if re.fullmatch(r"[0-9·+−() ]+", line.numbers):
            expression = line.numbers.replace("·", "*").replace("−", "-")
            assert eval(expression) == line.value, line
            computed += 1
    assert computed >= len(lines) - 4
    letters = {
        letter for line in lines for letter in re.findall(r"(?<![\w.])(?:Σn|[A-Za-z]′?)(?![\w′.])", line.formula)
    }
    assert letters == set(legend(lines))


def test_every_number_of_a_cost_has_a_formula() -> None:
    found = cost(NET, rows=60_000, average=True)
    parts = [getattr(row.forward, p) for row in found.layers for p in ("matmul", "bias", "activation")]
    parts += [row.parameters for row in found.layers]
    parts += [found.loss.forward, found.loss.backward, found.optimizer_flops]
    assert found.epoch is not None
    parts += [found.epoch.flops, found.memory.parameters, found.memory.activations, found.memory.temporary]
    assert all(isinstance(part, Count) for part in parts)
    assert isinstance(found.memory.activations, Count)
    assert found.memory.activations.formula == "s·(B·(Σn + e) + f)"


def test_explain_as_a_table_and_as_json() -> None:
    text = printed(NET, "--explain")
    assert re.search(r"forward\.matmul +12,845,056 +2·B·I·O = 2·32·784·256", text)
    assert re.search(r"backward\.dA +0 +not computed: nothing below has parameters", text)
    assert re.search(r"optimizer +3,292,044 +14·P = 14·235,146", text)
    assert re.search(r"^B +rows in a batch$", text, re.MULTILINE)
    assert max(map(len, text.splitlines())) <= 80
    lines = data(NET, "--explain")["explain"]
    assert lines[1] == {
        "where": "linear1",
        "what": "forward.matmul",
        "value": 12_845_056,
        "formula": "2·B·I·O",
        "numbers": "2·32·784·256",
    }
    rows = list(csv.DictReader(io.StringIO(printed(NET, "--explain", "--csv"))))
    assert [dict(row) for row in rows] == [{k: str(v) for k, v in line.items()} for line in lines]
