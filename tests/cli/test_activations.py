"""`mlp activations` and `mlp init`: output at several widths, JSON, plots and error messages."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from multilayer.cli.main import app
from multilayer.nn.activations import catalogue


def run(*arguments: str, width: int = 80, code: int = 0) -> str:
    result = CliRunner().invoke(app, list(arguments), env={"COLUMNS": str(width)})
    assert result.exit_code == code, result.output
    return result.output


@pytest.mark.parametrize("width", [80, 100, 120, 160])
def test_the_table_fits_the_terminal_and_has_every_activation(width: int) -> None:
    output = run("activations", width=width)
    assert max(len(line) for line in output.splitlines()) <= width
    words = output.split()
    assert set(catalogue) <= set(words)
    for fact in ("1.129", "−0.278", "1.846", "dies", "vanishes", "max(0, z)", "119/140"):
        assert fact in output


def test_a_named_activation_is_printed_with_all_properties() -> None:
    output = run("activations", "gelu", "leaky_relu(0.2)")
    for fact in ("z·(1 + erf(z/√2))/2", r"\operatorname{erf}", "1.1289", "1.53353 forward", "alpha = 0.2", "z = 0"):
        assert fact in output
    assert any("⠀" <= c <= "⣿" for c in output)  # plots in braille characters
    assert max(len(line) for line in output.splitlines()) <= 80


@pytest.mark.parametrize("width", [60, 80, 120])
def test_every_activation_can_be_named(width: int) -> None:
    output = run("activations", *catalogue, width=width)
    assert max(len(line) for line in output.splitlines()) <= max(width, 60)


@pytest.mark.parametrize("width", [80, 60])
@pytest.mark.parametrize("name", catalogue)
def test_the_plots_are_complete(name: str, width: int) -> None:
    """Each line of the two plots has both axes and the same number of dots, for long axis labels too."""
    lines = run("activations", name, width=width).splitlines()
    plots = [line for line in lines if any("⠀" <= c <= "⣿" for c in line)]
    assert len(plots) in (6, 8)
    dots = {tuple(sum("⠀" <= c <= "⣿" for c in part) for part in line.split("│")) for line in plots}
    (widths,) = dots
    assert widths[0] == 0
    assert widths[1] == widths[2] >= 10
    assert "…" not in "".join(plots)
    axes = lines[lines.index(plots[-1]) + 1 :][:2]
    assert axes[0].count("└" + "─" * widths[1]) == 2
    assert axes[1].split() == ["−4", "0", "4"] * 2


def test_saturation_says_that_the_slope_is_small() -> None:
    assert "z < −6.14 (slope at most 1 % of the largest slope)" in run("activations", "silu")
    assert "saturates: slope at most 1 % of the largest slope" in " ".join(run("activations").split())


def test_json_has_every_property() -> None:
    data = json.loads(run("activations", "--json"))["activations"]
    found: dict[str, Any] = {item["name"]: item for item in data}
    assert list(found) == list(catalogue)
    assert found["relu"]["range"] == [0.0, "inf"]
    assert found["relu"]["dies"] is True
    assert found["relu"]["saturates"] == {"below": 0.0, "above": None}
    assert math.isclose(found["relu"]["gain"], math.sqrt(2))
    assert found["polynomial"]["max_slope"] == "inf"
    assert found["sqrt"]["gain"] is None
    assert found["trainable_swish"]["learned"] == {"a": 1.0, "b": 0.0, "c": 1.0, "d": 0.0}
    assert (found["sigmoid"]["flops"], found["sigmoid"]["flops_backward"]) == (4, 2)


def test_constants_are_read_as_in_a_network() -> None:
    data = json.loads(run("activations", "kaf(n=5, target=relu)", "NONE", "--json"))["activations"]
    assert data[0]["constants"] == {"n": 5, "bound": 3.0, "target": "relu"}
    assert [item["text"] for item in data] == ["kaf(5, target=relu)", "identity"]


def test_the_plot_is_saved(tmp_path: Path) -> None:
    target = tmp_path / "out.svg"
    assert "saved:" in run("activations", "gelu", "relu", "--plot", str(target))
    assert ">gelu<" in target.read_text()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["gelo"], "unknown activation 'gelo': did you mean 'gelu'?"),
        (["relu-5"], "did you mean 'relu'?"),
        (["relu(3)"], "relu takes no arguments"),
        (["leaky_relu(beta=2)"], "option of leaky_relu 'beta'"),
        (["leaky_relu(0.2)-5"], "is not one activation"),
        (["leaky_relu("], "is not an activation"),
        (["relu", "--plot", "out.jpg"], "must end in .svg, .png, .pdf"),
    ],
)
def test_invalid_arguments_are_errors(arguments: list[str], message: str) -> None:
    result = CliRunner().invoke(app, ["activations", *arguments])
    assert result.exit_code == 2
    assert message in result.output
    assert "Traceback" not in result.output


# init


@pytest.mark.parametrize("width", [80, 120])
def test_init_prints_sizes_and_a_verdict(width: int) -> None:
    output = run("init", "784-256-128-10", "--scheme", "he", width=width)
    assert max(len(line) for line in output.splitlines()) <= width
    for text in ("scheme he", "linear1", "relu2", "predicted", "measured", "stay steady"):
        assert text in output


def test_init_shows_exploding_activations_and_zeros() -> None:
    assert "activations explode" in run("init", "64-(64)*5-10", "--scheme", "normal(1)")
    assert "◀" in run("init", "4-3-1", "--scheme", "zeros")
    long = run("init", "4-(4)*60-1", "--rows", "4")
    assert "…" in long
    assert "linear61" in long


def test_init_prints_the_standard_deviation_of_the_weights() -> None:
    table = run("init", "64-64-10", "--scheme", "normal(0.01)")
    assert [line.split()[1] for line in table.splitlines() if line.startswith("linear")] == ["0.1", "0.1"]
    layers = json.loads(run("init", "64-64-10", "--scheme", "he", "--json"))["layers"]
    assert [layer["weight_std"] for layer in layers] == [math.sqrt(2 / 64), None, math.sqrt(2 / 64)]


def test_init_json_is_valid_with_infinite_sizes() -> None:
    data = json.loads(
        run("init", "4-4:polynomial(16)-4:polynomial(16)-4:polynomial(16)-1", "--scheme", "normal(9)", "--json")
    )
    assert data["layers"][0]["name"] == "linear1"
    assert data["layers"][-1]["measured_forward"] in ("inf", "nan")
    assert json.loads(run("init", "4-maxout(3)-1", "--json"))["layers"][0]["predicted_forward"] is None


def test_init_is_reproducible() -> None:
    first, again, other = (run("init", "8-8-1", "--seed", seed, "--json") for seed in ("1", "1", "2"))
    assert first == again != other


def test_init_plots(tmp_path: Path) -> None:
    run("init", "8-8-1", "--plot", str(tmp_path / "v.svg"))
    assert "measured" in (tmp_path / "v.svg").read_text()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["8-8-1", "--scheme", "hee"], "did you mean 'he'?"),
        (["8-8-1", "--rows", "1"], "rows must be at least 2"),
        (["8--1"], "expected here"),
        (["8-8-1", "--plot", "v.txt"], "must end in .svg"),
    ],
)
def test_invalid_arguments_of_init_are_errors(arguments: list[str], message: str) -> None:
    result = CliRunner().invoke(app, ["init", *arguments])
    assert result.exit_code == 2
    assert message in result.output
