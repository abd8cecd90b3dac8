"""A grid of panels: lines with intervals, maps and images."""

from __future__ import annotations

import numpy as np
import pytest

from multilayer.drawing.plots import Images, Line, Map, Panel, encoded, panels_figure

X = np.linspace(-1, 1, 5)


def lines(**options: object) -> Panel:
    band = ([0.5, 1.0, 2.0], [2.0, 3.0, 5.0])
    return Panel(title="a", lines=[Line(name="relu", x=[1, 2, 3], y=[1.0, 2.0, 4.0], band=band)], **options)


def plane() -> Map:
    points = [("minimum", 0.0, 0.5)]
    return Map(title="b", values=X[:, None] + X[None], x=(-1, 1), y=(-1, 1), levels=(0.5, -0.5), points=points)


def test_panels_stand_two_in_a_row() -> None:
    figure = panels_figure([lines(), plane(), Images(title="c", images=np.ones((3, 4, 4)))], title="T", subtitle="S")
    titles = {axes.get_title(loc="left"): axes.get_position() for axes in figure.axes}
    assert titles["a"].y0 == pytest.approx(titles["b"].y0)
    assert titles["a"].x1 < titles["b"].x0
    svg = encoded(figure, ".svg", title="T").decode()
    for text in ("T", "S", "relu", "minimum", ">c<"):
        assert text in svg


def test_the_interval_of_a_line_is_an_area() -> None:
    axes = panels_figure([lines()], title="T").axes[0]
    area = axes.collections[0].get_paths()[0].vertices
    assert area[:, 1].min() == 0.5
    assert area[:, 1].max() == 5.0


def test_values_of_categories_are_not_connected() -> None:
    line = Line(name="x", x=[1, 2], y=[1.0, 2.0], band=([0.5, 1.0], [2.0, 3.0]), joined=False)
    axes = panels_figure([Panel(title="a", lines=[line], ticks=("p", "q"))], title="T").axes[0]
    assert axes.lines[0].get_linestyle() == "None"
    assert axes.lines[0].get_marker() == "o"
    assert [segment[:, 1].tolist() for segment in axes.collections[0].get_segments()] == [[0.5, 2.0], [1.0, 3.0]]


def test_intervals_that_reach_below_zero_fit_on_a_logarithmic_axis() -> None:
    panel = Panel(title="a", lines=[Line(name="x", x=[1, 2], y=[1.0, 2.0], band=([-1.0, 1.0], [3.0, 3.0]))], log_y=True)
    area = panels_figure([panel], title="T").axes[0].collections[0].get_paths()[0].vertices
    assert area[:, 1].min() == pytest.approx(0.1)


def test_whole_numbers_have_whole_ticks() -> None:
    ticks = panels_figure([lines()], title="T").axes[0].get_xticks()
    assert all(float(tick).is_integer() for tick in ticks)


def test_marks_and_limits_are_drawn() -> None:
    figure = panels_figure([lines(marks={"threshold": 2.0}, limits=(0.0, 9.0))], title="T")
    assert figure.axes[0].get_ylim() == (0.0, 9.0)
    assert "threshold" in encoded(figure, ".svg").decode()


def test_a_map_of_both_signs_is_white_at_zero() -> None:
    image = panels_figure([plane()], title="T").axes[0].images[0]
    assert image.norm(0.0) == pytest.approx(0.5)
    assert image.get_extent() == [-1.25, 1.25, -1.25, 1.25]


def test_values_that_are_not_finite_leave_holes() -> None:
    values = np.array([[1.0, np.nan], [np.inf, 4.0]])
    image = panels_figure([Map(title="m", values=values, x=(0, 1), y=(0, 1), log=True)], title="T").axes[0].images[0]
    assert np.ma.getmaskarray(image.get_array()).sum() == 2
