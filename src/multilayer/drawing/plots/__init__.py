"""Plots with a common style. They need matplotlib (the extra `plot`), which is imported only when a plot is drawn."""

from __future__ import annotations

from .activations import activation_figure
from .learning_rate import learning_rate_figure
from .lines import Line, Panel, lines_figure
from .panels import AnyPanel, Images, Map, panels_figure
from .search import Point, search_figure
from .style import SUFFIXES, check_path, encoded, plot_style, save
from .variance import variance_figure

__all__ = [
    "SUFFIXES",
    "AnyPanel",
    "Images",
    "Line",
    "Map",
    "Panel",
    "Point",
    "activation_figure",
    "check_path",
    "encoded",
    "learning_rate_figure",
    "lines_figure",
    "panels_figure",
    "plot_style",
    "save",
    "search_figure",
    "variance_figure",
]
