"""The summary of a network has the correct sums, and no text in its picture is hidden."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from matplotlib.patches import Circle

from multilayer.core.formatting import percent
from multilayer.costs import cost
from multilayer.costs.summary import Part, summarize
from multilayer.drawing.picture import draw, network_figure
from multilayer.drawing.plots import save
from multilayer.errors import OptionError
from multilayer.spec import Spec
from support.figures import outside, overlapping, texts_of_svg

RESIDUAL = "20-384:none-[layernorm-1536:gelu:dropout(0.1)-384]*6-10"
NETWORKS = {
    "neurons": "2-3-1",
    "one neuron": "2-1:step",
    "one layer": "3-1",
    "many neurons": "4-8:tanh:dropout(0.1)-12:gelu-5:layernorm:relu-2:sigmoid",
    "autoencoder": "8-4-2-4-8",
    "example": "784-256-128-10",
    "one wide layer": "1000000-1",
    "residual": RESIDUAL,
    "typed": "13+cat(3,12)-columns(pbld)-256:blend(selu)-256-10",
    "codes alone": "cat(3,12)-columns-64-1",
    "gates": "64-swiglu(128)-maxout(64,3)-kan(32)-linear(10, bias=no):softmax",
    "deep": "784-(256)*99-10",
    "pattern": "64-(64:layernorm:relu:dropout(0.2))*10-3",
    "nested": "16-[32-[layernorm-64-32]*2-16]-16-[16:gelu-[8-16]-16]-4",
    "very nested": "4-" + "[" * 40 + "4" + "]" * 40 + "-2",
    "wrapped": "-".join(str(2 ** (k % 9 + 2) + k) for k in range(30)),
    "elided": "-".join(str(20 + k) for k in range(100)),
    "ends in a norm": "100-batchnorm-50-(dropout(0.1))*4-20:sigmoid:rmsnorm",
    "no weights": "5-relu",
    "wide block": "64-[" + "-".join(str(65 + k) for k in range(40)) + "-64]-2",
    "learned": "30-20:kaf(n=5, per=unit)-20:combination(relu, tanh)-2",
}
networks = pytest.mark.parametrize("network", NETWORKS.values(), ids=NETWORKS.keys())


def leaves(parts: Sequence[Part]) -> list[Part]:
    return [leaf for part in parts for leaf in (leaves(part.parts) if part.parts else [part])]


@networks
def test_the_sums_of_a_summary_are_those_of_the_cost(network: str) -> None:
    summary, account = summarize(network), cost(network)
    assert sum(part.parameters for part in summary.parts) == account.parameters
    assert sum(part.parameters for part in leaves(summary.parts)) == account.parameters
    assert sum(part.flops for part in summary.parts) + account.loss.forward == account.step
    assert [p.flops for p in summarize(network, fold=False).parts if not p.parts]


def test_repeats_fold_into_one_part() -> None:
    found = summarize(RESIDUAL).parts
    assert [(p.heading, p.times, p.parameters) for p in found] == [
        ("linear1", 1, 8_064),
        ("residual1…6", 6, 7_094_016),
        ("linear2", 1, 3_850),
    ]
    inner = [(p.heading, p.detail, p.function, p.parameters) for p in found[1].parts]
    assert inner == [
        ("layernorm1", "", "", 6 * 768),
        ("linear1", "", "gelu", 6 * 591_360),
        ("dropout1", "0.1", "", 0),
        ("linear2", "", "", 6 * 590_208),
    ]


def test_a_pattern_of_several_layers_folds_into_a_group() -> None:
    group, last = summarize(NETWORKS["pattern"]).parts
    assert (group.kind, group.times, last.heading) == ("group", 10, "linear11")
    assert [p.heading for p in group.parts] == ["linear1…10", "layernorm1…10", "relu1…10", "dropout1…10"]


def test_different_layers_do_not_fold() -> None:
    assert [p.times for p in summarize("8-8-8:tanh-8-8").parts] == [1, 1, 1, 1]
    # Shared parameters are counted once, so the first of the three layers differs from the others.
    shared = summarize("8-(8:prelu(per=network))*3-1")
    assert sum(p.parameters for p in shared.parts) == shared.cost.parameters


def test_details_are_the_options_other_than_the_width() -> None:
    found = {
        p.label: p.detail for p in summarize("64-swiglu(8)-maxout(64, 3)-kan(32, grid=3)-linear(10, bias=no)").parts
    }
    assert found == {"swiglu": "", "maxout": "k=3", "kan": "grid=3", "linear": "bias=no"}


@networks
def test_no_text_overlaps_or_is_cut(network: str, tmp_path: Path) -> None:
    figure = network_figure(network)
    assert overlapping(figure) == []
    assert outside(figure) == []
    save(figure, tmp_path / "n.svg")
    found = texts_of_svg(tmp_path / "n.svg")
    spec = Spec.parse(network)
    assert {"inputs", "outputs"} <= set(found) or not any(p.mixes for p in summarize(spec).parts)
    assert any(text.startswith(f"{spec.n_parameters:,} parameter") for text in found)
    assert f"(B, {spec.d_out})" in found


def test_small_networks_show_their_neurons(tmp_path: Path) -> None:
    figure = network_figure("2-3-1")
    assert len([patch for patch in figure.axes[0].patches if isinstance(patch, Circle)]) == 6
    (edges,) = [c.get_segments() for c in figure.axes[0].collections[:1]]
    assert len(edges) == 2 * 3
    assert not any(isinstance(p, Circle) for p in network_figure("784-256-128-10").axes[0].patches)


def test_the_numbers_of_a_block_are_in_its_picture(tmp_path: Path) -> None:
    draw(RESIDUAL, tmp_path / "r.svg")
    found = " | ".join(texts_of_svg(tmp_path / "r.svg"))
    for text in ("residual1…6", "×6", "1,182,336 parameters each", "3,548,160", "gelu", "7,105,930 parameters"):
        assert text in found


def test_a_large_network_has_a_bounded_picture() -> None:
    figure = network_figure(NETWORKS["elided"])
    assert figure.get_figwidth() < 12
    assert figure.get_figheight() < 20


@pytest.mark.parametrize("suffix", [".svg", ".png", ".pdf"])
def test_equal_networks_give_equal_bytes(suffix: str, tmp_path: Path) -> None:
    draw(RESIDUAL, tmp_path / f"a{suffix}")
    draw(Spec.parse(RESIDUAL), tmp_path / f"b{suffix}")
    assert (tmp_path / f"a{suffix}").read_bytes() == (tmp_path / f"b{suffix}").read_bytes()


def test_the_file_name_is_checked_first(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match=r"must end in \.svg, \.png, \.pdf"):
        draw("no network", tmp_path / "a.gif")


@pytest.mark.parametrize(
    ("share", "text"), [(0.0, "0 %"), (1.0, "100 %"), (0.099, "9.9 %"), (0.0996, "10 %"), (0.99951, "> 99.9 %")]
)
def test_shares_are_not_rounded_up_to_100_percent(share: float, text: str) -> None:
    assert percent(share) == text


def test_a_picture_without_a_path_is_shown_in_a_notebook() -> None:
    picture = draw("2-3:tanh-1")
    assert picture._repr_svg_().startswith("<svg")
    assert "parameters" in picture._repr_svg_()
    assert repr(picture) == "Picture(2-3:tanh-1)"
    assert draw(picture.spec) == picture
