"""The house style of every plot, and how a figure becomes a file.

    colours     told apart by people who see fewer of them (after Okabe and Ito 2008), dark enough to write with
    background  a solid light card, so that a picture reads the same on a light page and on a dark one
    text        stays text in SVG; sizes are points, and a figure's coordinates are points too
    bytes       equal plots are equal files: no dates, fixed identifiers, and nothing of the user's own settings

matplotlib is an optional extra, reached only inside functions. Figures are made directly, never through pyplot, so no
backend is chosen and no global state changes: its settings are ours for the length of a `with house():` and then as
they were.
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
"""Lines in the order they are drawn; blue and vermilion first."""
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
"""The kinds of file that `save` writes."""

_SETTINGS: dict[str, Any] = {
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans", "Helvetica", "Arial", "sans-serif"],
    "font.size": TEXT,
    "text.color": INK,
    "text.hinting": "none",  # so that text takes the same room at every resolution
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
def house(purpose: str = "a plot") -> Generator[None]:
    """matplotlib with our settings and none of the user's, put back afterwards."""
    with needed_by(purpose):
        import matplotlib as mpl
    with mpl.rc_context():
        mpl.rcdefaults()
        mpl.rcParams.update(_SETTINGS)  # pyright: ignore
        yield


def new_figure(width: float, height: float) -> Figure:
    """An empty figure, its size in points."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width / 72, height / 72))
    FigureCanvasAgg(figure)
    return figure


def place(figure: Figure, x: float, y: float, width: float, height: float) -> Axes:
    """Axes at a place in points, measured from the top left corner."""
    w, h = figure.get_figwidth() * 72, figure.get_figheight() * 72
    return figure.add_axes((x / w, 1 - (y + height) / h, width / w, height / h))


def heading(figure: Figure, x: float, title: str, subtitle: str = "") -> None:
    """A title at the top of a figure, and a quieter line below it."""
    w, h = figure.get_figwidth() * 72, figure.get_figheight() * 72
    figure.text(x / w, 1 - 22 / h, title, fontsize=TITLE, fontweight="bold")
    figure.text(x / w, 1 - 37 / h, subtitle, fontsize=TEXT, color=MUTED)


def text_width(text: str, size: float = TEXT, *, bold: bool = False) -> float:
    """Points that a line of text takes; call it in our house."""
    from matplotlib.font_manager import FontProperties, findfont, get_font
    from matplotlib.ft2font import LoadFlags

    # Measured large, where rounding to the pixel does not matter.
    font = get_font(findfont(FontProperties(family="sans-serif", weight="bold" if bold else "normal")))
    font.set_size(100, 72)
    font.set_text(text, 0.0, flags=LoadFlags.NO_HINTING)
    return font.get_width_height()[0] / 64 * size / 100


def shorten(text: str, width: float, size: float = TEXT, *, bold: bool = False) -> str:
    """The text, its middle left out if it would take more than `width` points."""
    keep = len(text)
    shown = text
    while keep > 8 and text_width(shown, size, bold=bold) > width:
        keep = min(keep - 1, int(keep * width / text_width(shown, size, bold=bold)))
        shown = f"{text[: (keep + 1) // 2]} … {text[len(text) - keep // 2 :]}"
    return shown


def spread(targets: Sequence[float], gap: float, low: float, high: float) -> list[float]:
    """Places at least `gap` apart and within low..high, in the order of the targets and as near to them as that allows.

    >>> spread([10, 11, 50], 6, 0, 100)
    [7.5, 13.5, 50.0]
    """
    order = sorted(range(len(targets)), key=lambda i: targets[i])
    groups: list[tuple[float, list[int]]] = []  # where the middle of each group wants to be, and who is in it

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
    """Writes a figure as .svg, .png or .pdf, all of it or nothing; equal figures are equal bytes."""
    target = Path(path)
    suffix = check_path(target)
    options = {**_FORMATS[suffix]}
    if title:
        options["metadata"] = {**options["metadata"], "Title": title}
    if "dpi" in options:
        longest = max(figure.get_figwidth(), figure.get_figheight())
        options["dpi"] = min(options["dpi"], _MOST_PIXELS / longest)
    data = io.BytesIO()
    with house():
        figure.savefig(data, format=suffix[1:], **options)
    atomic_files.write(target, data.getvalue())


def check_path(path: str | Path) -> str:
    """The suffix of a picture's file in lower case; refused before any work is done if `save` could not write it."""
    target = Path(path)
    suffix = target.suffix.lower()
    if suffix not in _FORMATS:
        raise OptionError(f"a picture's file must end in {', '.join(SUFFIXES)}, got {str(path)!r}")
    if not target.parent.is_dir():
        raise OptionError(
            f"the folder {str(target.parent)!r} does not exist, so {target.name!r} cannot be written there"
        )
    if target.is_dir():
        raise OptionError(f"{str(path)!r} is a folder, not a file")
    return suffix
