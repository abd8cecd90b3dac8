"""The common style of all plots, and saving figures to files.

    colors      distinguishable for color-blind people (Okabe and Ito 2008), and dark enough for text
    background  white, so that a picture looks the same on a light page and on a dark page
    text        remains text in SVG; sizes and coordinates are in points
    bytes       equal plots give equal files: no dates, fixed identifiers, and no settings of the user

matplotlib is an optional dependency, which is imported in functions only. Figures are created without pyplot, so no
backend is selected. The settings of matplotlib change only within `with plot_style():`.
"""

from __future__ import annotations

import io
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...core import atomic_files
from ...errors import OptionError, needed_by

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLOURS = ("#0b66a8", "#c24a00", "#0a7f5e", "#9b4488", "#8a6100", "#3f5bd6")
"""Colors of lines, in this order."""
INK = "#1f2933"
MUTED = "#5b6672"
FAINT = "#c9d0d7"
GRID = "#e6eaee"
SHADE = "#eef1f4"
CARD = "#ffffff"

TITLE, TEXT, SMALL = 11.0, 9.0, 8.0

_FORMATS: dict[str, dict[str, Any]] = {
    ".svg": {"metadata": {"Date": None, "Creator": "multilayer"}},
    ".png": {"metadata": {"Software": None}, "dpi": 200},
    ".pdf": {"metadata": {"CreationDate": None, "Creator": "multilayer", "Producer": None}},
}
_MOST_PIXELS = 20_000
SUFFIXES = tuple(_FORMATS)
"""Suffixes of the files that `save` can write."""

_SETTINGS: dict[str, Any] = {
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans", "Helvetica", "Arial", "sans-serif"],
    "font.size": TEXT,
    "text.color": INK,
    "text.hinting": "none",  # fixed, so that text widths do not depend on the resolution
    "axes.facecolor": CARD,
    "axes.edgecolor": FAINT,
    "axes.labelcolor": MUTED,
    "axes.linewidth": 0.8,
    "axes.axisbelow": True,
    "axes.grid": True,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlesize": TEXT + 0.5,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.labelsize": SMALL + 0.5,
    "grid.color": GRID,
    "grid.linewidth": 0.7,
    "xtick.color": FAINT,
    "ytick.color": FAINT,
    "xtick.labelcolor": MUTED,
    "ytick.labelcolor": MUTED,
    "xtick.labelsize": SMALL,
    "ytick.labelsize": SMALL,
    "xtick.minor.visible": False,
    "ytick.minor.visible": False,
    "lines.linewidth": 1.8,
    "lines.solid_capstyle": "round",
    "figure.facecolor": CARD,
    "savefig.facecolor": CARD,
    "svg.fonttype": "none",
    "svg.hashsalt": "multilayer",
    "pdf.fonttype": 42,
}


@contextmanager
def plot_style(purpose: str = "a plot") -> Generator[None]:
    """Use the settings of this package in matplotlib, and restore those of the user afterward."""
    with needed_by(purpose):
        import matplotlib as mpl
    with mpl.rc_context():
        mpl.rcdefaults()
        mpl.rcParams.update(_SETTINGS)  # pyright: ignore
        yield


def new_figure(width: float, height: float) -> Figure:
    """Return an empty figure. The size is in points."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width / 72, height / 72))
    FigureCanvasAgg(figure)
    return figure


def place(figure: Figure, x: float, y: float, width: float, height: float) -> Axes:
    """Add axes at a position in points from the top left corner."""
    w, h = figure.get_figwidth() * 72, figure.get_figheight() * 72
    return figure.add_axes((x / w, 1 - (y + height) / h, width / w, height / h))


def heading(figure: Figure, x: float, title: str, subtitle: str = "") -> None:
    """Write the title of a figure, and a subtitle below it."""
    w, h = figure.get_figwidth() * 72, figure.get_figheight() * 72
    figure.text(x / w, 1 - 22 / h, title, fontsize=TITLE, fontweight="bold")
    figure.text(x / w, 1 - 37 / h, subtitle, fontsize=TEXT, color=MUTED)


def text_width(text: str, size: float = TEXT, *, bold: bool = False) -> float:
    """Return the width of a line of text in points. Call it within `plot_style`."""
    from matplotlib.font_manager import FontProperties, findfont, get_font
    from matplotlib.ft2font import LoadFlags

    # Measure at size 100, where rounding to pixels has little effect.
    font = get_font(findfont(FontProperties(family="sans-serif", weight="bold" if bold else "normal")))
    font.set_size(100, 72)
    font.set_text(text, 0.0, flags=LoadFlags.NO_HINTING)
    return font.get_width_height()[0] / 64 * size / 100


def shorten(text: str, width: float, size: float = TEXT, *, bold: bool = False) -> str:
    """Return the text. Omit its middle if it is wider than `width` points."""
    keep = len(text)
    shown = text
    while keep > 8 and text_width(shown, size, bold=bold) > width:
        keep = min(keep - 1, int(keep * width / text_width(shown, size, bold=bold)))
        shown = f"{text[: (keep + 1) // 2]} … {text[len(text) - keep // 2 :]}"
    return shown


def spread(targets: Sequence[float], gap: float, low: float, high: float) -> list[float]:
    """Return positions near the targets with a distance of at least `gap`, within low … high, in the same order.

    >>> spread([10, 11, 50], 6, 0, 100)
    [7.5, 13.5, 50.0]
    """
    order = sorted(range(len(targets)), key=lambda i: targets[i])
    groups: list[tuple[float, list[int]]] = []  # the target of the middle of each group, and its members

    def top(group: tuple[float, list[int]]) -> float:
        half = gap * (len(group[1]) - 1) / 2
        return min(max(group[0] - half, low), max(high - 2 * half, low))

    for i in order:
        groups.append((targets[i], [i]))
        while len(groups) > 1 and top(groups[-1]) < top(groups[-2]) + gap * len(groups[-2][1]):
            (a, left), (b, right) = groups[-2:]
            merged = left + right
            groups[-2:] = [((a * len(left) + b * len(right)) / len(merged), merged)]
    places = [0.0] * len(targets)
    for group in groups:
        for k, i in enumerate(group[1]):
            places[i] = top(group) + k * gap
    return places


def save(figure: Figure, path: str | Path, *, title: str = "") -> None:
    """Save a figure as .svg, .png or .pdf, completely or not at all. Equal figures give equal bytes."""
    suffix = check_path(path)
    atomic_files.write(Path(path), encoded(figure, suffix, title=title))


def encoded(figure: Figure, suffix: str, *, title: str = "") -> bytes:
    """Return the content of a file with this suffix."""
    options = {**_FORMATS[suffix]}
    if title:
        options["metadata"] = {**options["metadata"], "Title": title}
    if "dpi" in options:
        longest = max(figure.get_figwidth(), figure.get_figheight())
        options["dpi"] = min(options["dpi"], _MOST_PIXELS / longest)
    data = io.BytesIO()
    with plot_style():
        figure.savefig(data, format=suffix[1:], **options)
    return data.getvalue()


def check_path(path: str | Path) -> str:
    """Return the suffix of the file in lower case. Raise an error if `save` cannot write the file."""
    target = Path(path)
    suffix = target.suffix.lower()
    if suffix not in _FORMATS:
        raise OptionError(f"the file of a picture must end in {', '.join(SUFFIXES)}, got {str(path)!r}")
    if not target.parent.is_dir():
        raise OptionError(f"cannot write {target.name!r}: the folder {str(target.parent)!r} does not exist: create it")
    if target.is_dir():
        raise OptionError(f"{str(path)!r} is a folder, not a file: use another name")
    return suffix
