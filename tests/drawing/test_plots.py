"""Plots: no text is hidden or cut, kinks and gaps are shown, and equal plots give equal bytes."""

from __future__ import annotations

import math
import subprocess
import sys
from pathlib import Path

import matplotlib as mpl
import pytest

from multilayer.drawing.plots import Line, Panel, activation_figure, lines_figure, save, variance_figure
from multilayer.drawing.plots.activations import caption
from multilayer.drawing.plots.style import COLOURS, MUTED, plot_style, shorten, spread, text_width
from multilayer.errors import MissingExtra, OptionError, StorageError
from multilayer.nn.activations import catalogue, get
from multilayer.spec.propagation import LayerVariance, Variance, variance
from support.figures import outside, overlapping, texts_of_svg

TOGETHER = [
    ["relu"],
    ["sigmoid"],
    ["step"],
    ["sqrt"],
    ["softmax"],
    ["gelu", "relu"],
    ["gelu", "gelu_tanh", "silu", "mish"],
    ["identity", "identity", "identity", "identity"],
    ["polynomial", "sqrt", "trainable_swish"],
]


@pytest.mark.parametrize("names", TOGETHER, ids="+".join)
def test_activations_are_named_at_the_end_of_their_curves(names: list[str], tmp_path: Path) -> None:
    figure = activation_figure([get(name) for name in names])
    assert overlapping(figure) == []
    assert outside(figure) == []
    save(figure, tmp_path / "a.svg")
    found = texts_of_svg(tmp_path / "a.svg")
    for name in names:
        assert found.count(name) >= 2  # once for f, once for f′
    assert "f(z)" in found


def test_the_gallery_has_a_panel_for_each(tmp_path: Path) -> None:
    figure = activation_figure([get(name) for name in catalogue])
    assert len(figure.axes) == len(catalogue)
    assert overlapping(figure) == []
    assert outside(figure) == []
    save(figure, tmp_path / "all.svg")
    assert set(catalogue) <= set(texts_of_svg(tmp_path / "all.svg"))


def test_no_line_crosses_a_jump() -> None:
    slopes = activation_figure([get("relu")]).axes[1].lines
    curve = max(slopes, key=lambda line: len(line.get_xdata()))
    assert any(math.isnan(y) for x, y in zip(curve.get_xdata(), curve.get_ydata(), strict=True) if x == 0)


def test_a_function_is_named_as_in_the_text_of_a_network() -> None:
    assert caption(get("kaf", n=10, target="relu")) == "kaf(10, target=relu)"
    assert caption(get("sigmoid", a=1)) == "sigmoid"


def test_a_plot_of_no_activation_is_an_error() -> None:
    with pytest.raises(OptionError, match="at least one, got none"):
        activation_figure([])


@pytest.mark.parametrize(
    ("network", "scheme"),
    [
        ("784-256-128-10", "he"),
        ("64-(64)*50-10", "normal(0.01)"),
        ("64-(64)*20-10", "normal(1)"),
        ("20-64:none-[layernorm-128:gelu-64]*6-10", "auto"),
        ("4-3", "zeros"),
        ("3-1", "torch"),
        ("8-maxout(4)-2", "he"),
    ],
)
def test_variance_by_depth(network: str, scheme: str, tmp_path: Path) -> None:
    figure = variance_figure(variance(network, scheme, rows=16))
    assert overlapping(figure) == []
    assert outside(figure) == []
    save(figure, tmp_path / "v.svg")
    found = texts_of_svg(tmp_path / "v.svg")
    assert {"activations, E[a²]", "gradients, E[δ²]"} <= set(found)
    assert any(scheme in text for text in found)


def test_sizes_that_cannot_be_plotted_leave_gaps() -> None:
    sizes = (1.0, math.inf, math.nan, 0.0, 1e308, 1e-320)
    layers = tuple(
        LayerVariance(
            name=f"linear{i}",
            what="2→2",
            predicted_forward=None,
            measured_forward=size,
            predicted_backward=size,
            measured_backward=size,
        )
        for i, size in enumerate(sizes, 1)
    )
    figure = variance_figure(Variance(scheme="he", layers=layers, verdict="."))
    assert overlapping(figure) == []


def test_lines_have_units_and_names(tmp_path: Path) -> None:
    batches = [2**k for k in range(13)]
    panels = [
        Panel(
            title="FLOPs",
            lines=[
                Line(name=name, x=batches, y=[c * b for b in batches]) for name, c in (("forward", 4e5), ("step", 1e6))
            ],
            unit="FLOP",
            log_x=True,
            log_y=True,
            x_label="batch",
        ),
        Panel(title="memory", lines=[Line(name="total", x=batches, y=[3e6 + 5e3 * b for b in batches])], unit="B"),
    ]
    figure = lines_figure(panels, title="784-256-128-10", subtitle="batch 1 to 4,096")
    assert overlapping(figure) == []
    assert outside(figure) == []
    save(figure, tmp_path / "l.svg")
    found = texts_of_svg(tmp_path / "l.svg")
    assert {"forward", "step", "total", "4,096", "batch"} <= set(found)
    assert any(text.endswith(" GFLOP") for text in found)


@pytest.mark.parametrize("suffix", [".svg", ".png", ".pdf"])
def test_equal_plots_give_equal_bytes_with_any_settings_of_the_user(suffix: str, tmp_path: Path) -> None:
    first, second = tmp_path / f"a{suffix}", tmp_path / f"b{suffix}"
    save(activation_figure([get("gelu"), get("relu")]), first)
    with mpl.rc_context({"font.size": 20, "axes.facecolor": "red", "svg.fonttype": "path"}):
        before = dict(mpl.rcParams)
        save(activation_figure([get("gelu"), get("relu")]), second)
        assert dict(mpl.rcParams) == before
    assert first.read_bytes() == second.read_bytes()
    assert sorted(p.name for p in tmp_path.iterdir()) == [first.name, second.name]


@pytest.mark.parametrize(
    ("name", "match"),
    [
        ("a.jpg", r"must end in \.svg, \.png, \.pdf, got '.*a\.jpg'"),
        ("a", "must end in"),
        ("nowhere/a.svg", "folder '.*nowhere' does not exist"),
        ("folder.svg", "is a folder, not a file"),
    ],
)
def test_an_invalid_file_name_is_an_error(name: str, match: str, tmp_path: Path) -> None:
    (tmp_path / "folder.svg").mkdir()
    with pytest.raises(OptionError, match=match):
        save(activation_figure([get("relu")]), tmp_path / name)


def test_a_failed_write_keeps_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = tmp_path / "a.svg"
    target.write_text("old")

    def refuse(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.replace", refuse)
    with pytest.raises(StorageError, match=r"cannot write .*a\.svg \(ENOSPC\): the disk is full"):
        save(activation_figure([get("relu")]), target)
    assert target.read_text() == "old"
    assert list(tmp_path.iterdir()) == [target]


def test_without_matplotlib_the_message_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(MissingExtra, match=r"plot of activations needs matplotlib.*pip install 'multilayer\[plot\]'"):
        activation_figure([get("relu")])


def test_imports_do_not_import_matplotlib() -> None:
    code = (
        "import sys, multilayer.drawing.plots, multilayer.drawing.picture, multilayer.cli.show, "
        "multilayer.cli.activations, multilayer.cli.init; "
        "print([m for m in ('matplotlib', 'torch') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_colours_have_enough_contrast_with_white() -> None:
    def luminance(colour: str) -> float:
        parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
        linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    for colour in (*COLOURS, MUTED):
        assert 1.05 / (luminance(colour) + 0.05) >= 4.5  # WCAG AA for small text


def test_labels_do_not_overlap_and_stay_within_the_limits() -> None:
    places = spread([5.0, 5.0, 5.0, 99.0], 10, 0, 100)
    assert places == [0.0, 10.0, 20.0, 99.0]
    assert spread([], 10, 0, 100) == []
    assert spread([50.0] * 3, 10, 0, 100) == [40.0, 50.0, 60.0]


def test_long_text_is_shortened_in_the_middle() -> None:
    with plot_style():
        shown = shorten("784-" + "256-" * 99 + "10", 200)
        assert shown.startswith("784-")
        assert shown.endswith("-10")
        assert text_width(shown) <= 200
        assert shorten("784-10", 200) == "784-10"


def test_the_name_of_a_line_is_next_to_its_end_also_if_an_area_sets_the_limits() -> None:
    line = Line(name="wide", x=[0, 1], y=[1, 1], band=([0, -3], [2, 9]))
    figure = lines_figure([Panel(title="a", lines=[line])], title="b")
    ax = figure.axes[0]
    (name,) = (text for text in ax.texts if text.get_text() == "wide")
    figure.canvas.draw()
    end = ax.transData.transform((1, 1))[1] * 72 / figure.dpi
    assert name.xyann[1] == pytest.approx(end, abs=1)
