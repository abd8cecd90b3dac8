"""`mlp show`: the tree, JSON and pictures, and the functions that draw with characters."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from multilayer.cli.drawing import curve, log_bar, share_bar
from multilayer.cli.main import app
from multilayer.training.fit import fit

RESIDUAL = "20-384:none-[layernorm-1536:gelu:dropout(0.1)-384]*6-10"


def run(*arguments: str, width: int = 80) -> str:
    result = CliRunner().invoke(app, ["show", *arguments], env={"COLUMNS": str(width)})
    assert result.exit_code == 0, result.output
    return result.output


@pytest.mark.parametrize("width", [80, 120])
def test_a_residual_network_as_a_tree(width: int) -> None:
    output = run(RESIDUAL, width=width)
    assert max(len(line) for line in output.splitlines()) <= width
    lines = {line.split("  ")[0].strip(): line for line in output.splitlines()}
    assert "7,094,016" in lines["residual1…6 ×6"]
    assert "1,182,336 each" in lines["residual1…6 ×6"]
    assert "gelu" in lines["├─ linear1"]
    assert "(B, 1536)" in lines["├─ linear1"]
    assert "3,541,248" in lines["└─ linear2"]
    assert "7,105,930 parameters" in output


@pytest.mark.parametrize(
    "network", ["3-1", "784-256-128-10", "13+cat(3,12)-columns(pbld)-256:blend(selu)-10", "784-(256)*99-10", "5-relu"]
)
def test_the_tree_fits_the_terminal(network: str) -> None:
    output = run(network)
    assert max(len(line) for line in output.splitlines()) <= 80
    assert "inputs" in output
    assert "loss" in output


def test_long_networks_are_cut_in_the_middle() -> None:
    output = run("-".join(str(5 + k) for k in range(200)))
    assert "more lines" in output
    assert "linear199" in output


def test_json_nests_and_adds_up() -> None:
    data = json.loads(run(RESIDUAL, "--json"))
    assert data["parameters"] == 7_105_930 == sum(layer["parameters"] for layer in data["layers"])
    block = data["layers"][1]
    assert (block["kind"], block["times"], block["last"]) == ("residual", 6, "residual6")
    assert [layer["name"] for layer in block["layers"]][:2] == ["residual1.layernorm1", "residual1.linear1"]
    assert block["layers"][1]["activation"] == "gelu"


def test_the_activation_between_plain_widths_is_an_option() -> None:
    assert "tanh" in run("4-3-1", "--activation", "tanh")


@pytest.mark.parametrize("suffix", [".svg", ".png", ".pdf"])
def test_a_picture_is_saved(suffix: str, tmp_path: Path) -> None:
    target = tmp_path / f"n{suffix}"
    assert "saved:" in run("2-3-1", "--out", str(target))
    assert target.stat().st_size > 1000


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["784--10"], "expected here"),
        (["784"], "at least one layer"),
        (["784-10", "--out", "n.gif"], "must end in .svg, .png, .pdf"),
        (["784-10", "--activation", "rely"], "did you mean 'relu'?"),
    ],
)
def test_invalid_arguments_are_errors(arguments: list[str], message: str) -> None:
    result = CliRunner().invoke(app, ["show", *arguments])
    assert result.exit_code == 2
    assert message in result.output


def test_showing_a_run_trained_with_binary_cross_entropy_prints_its_loss(tmp_path: Path) -> None:
    x = np.arange(24.0)[:, None]
    fit("1-1", (x, x[:, 0] > 11), epochs=1, quiet=True, report=False, run=tmp_path / "run")
    for path in (tmp_path / "run", tmp_path / "run" / "model.safetensors"):
        assert "binary_cross_entropy" in run(str(path))
        for loss, options in (("binary_cross_entropy", []), ("huber", ["--loss", "huber"])):
            result = CliRunner().invoke(app, ["cost", str(path), "--json", *options])
            assert json.loads(result.output)["loss"]["name"] == loss
    assert "mse" in run("1-1")


# Drawings


def test_curves_have_gaps_at_values_that_cannot_be_plotted() -> None:
    y = np.array([math.nan, math.nan, 0.0, 1.0, 5.0, math.inf])
    (line,) = curve(y, 0, 1, width=3, height=1)
    assert line == "⠀⣸⠀"[:1] + line[1] + "⠀"
    assert line[1] != "⠀"


def test_steep_curves_are_joined() -> None:
    lines = curve(np.array([0.0, 1.0]), 0, 1, width=1, height=2)
    assert lines == ["⢸", "⡸"]


@pytest.mark.parametrize("value", [0.0, 1e-9, 0.5, 1.0, 2.0, 1e9, math.inf, math.nan])
def test_log_bars_keep_their_width(value: float) -> None:
    assert len(log_bar(value, 3.0, width=11, limit=1e3).plain) == 11


def test_small_shares_are_printed_as_less_than_a_tenth_of_a_percent() -> None:
    assert share_bar(1e-6, width=8).plain.startswith(" <0.1 %")
    assert share_bar(0.0, width=8).plain == "  0.0 % "
