"""`mlp activations`: a table of all activations, or the properties and plots of selected ones."""

from __future__ import annotations

import inspect
import math
from collections.abc import Sequence
from typing import Annotated, Any

import numpy as np
import typer
from numpy.typing import NDArray
from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from ..drawing.plots.activations import caption, curve
from ..errors import OptionError, SpecError, printable
from ..nn import activations as catalogue
from ..nn.activations import ActivationFunction, properties
from ..nn.layers import Activation
from ..spec import Spec
from . import drawing
from .options import AsJson, Plot, starting_with
from .output import console, show, strict_json

EXAMPLES = (
    "mlp activations",
    'mlp activations gelu "leaky_relu(0.2)"',
    "mlp activations gelu relu --plot out.svg",
)
NOTE = """In JSON, an infinite bound is the string "inf" or "-inf". null marks a value that does not exist, for example
no saturation."""

_WIDE = 150
_INDENT, _GAP = 2, 3
_LEGEND = (
    "FLOPs: per element, forward and for f′. gain: 1/√E f(z)² for z ~ N(0, 1). saturates: slope at most "
    f"{100 * properties.SATURATED_SLOPE:g} % of the largest slope. vanishes: f′ → 0 on both sides. dies: f′ = 0 over a "
    "half-line. learns: number of learned parameters. cached: kept for the backward pass, a = f(z)."
)


def activations(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="NAME",
            help="Activations, with constants if needed: leaky_relu(0.2).",
            show_default="list all activations",
            autocompletion=starting_with(catalogue.catalogue),
        ),
    ] = None,
    plot: Plot = None,
    as_json: AsJson = False,
) -> None:
    """List activations with their formula, cost and properties.

    The properties are range, largest slope, gain, and the inputs for which an activation saturates or dies (its
    derivative is 0). With names, print all properties of these activations, and plot f and f′.
    """
    functions = [read_activation(name) for name in names or catalogue.catalogue]
    if plot is not None:
        from ..drawing.plots import activation_figure, check_path, save

        check_path(plot)
        save(activation_figure(functions), plot, title=", ".join(caption(fn) for fn in functions))
    if as_json:
        print(strict_json({"activations": [to_dict(fn) for fn in functions]}))
        return
    out = console()
    if names:
        show(out, *(part for fn in functions for part in _details(fn, out)))
    else:
        show(out, *_listing(functions, out))
    if plot is not None:
        show(out, Text(f"saved: {printable(str(plot))}", style="dim"))


def read_activation(text: str) -> ActivationFunction:
    """Parse an activation in the notation of networks: `gelu`, `leaky_relu(0.2)`, `kaf(n=10, target=relu)`."""
    name, bracket, _ = text.strip().lower().partition("(")
    function = catalogue.get(name.strip())
    if not bracket:
        return function
    try:
        layers = Spec.parse(f"1-1:{text.strip().lower()}").layers
    except SpecError as error:
        reason = str(error).partition("\n")[0]
        raise OptionError(f"{text.strip()!r} is not an activation: {reason}") from None
    if len(layers) != 2 or not isinstance(layers[1], Activation):
        raise OptionError(f"{text.strip()!r} is not one activation: write it like leaky_relu(0.2)")
    return layers[1].function


def to_dict(fn: ActivationFunction) -> dict[str, Any]:
    """Return every property as plain data."""
    below, above = properties.saturates(fn)
    return {
        "name": fn.name,
        "text": caption(fn),
        "constants": dict(fn.constants),
        "formula": fn.formula,
        "latex": fn.latex,
        "notes": _notes(fn),
        "flops": fn.flops,
        "flops_backward": fn.flops_backward,
        "cached": fn.cached,
        "cached_bits": fn.cached_bits,
        "range": list(properties.extent(fn)),
        "max_slope": properties.max_slope(fn),
        "gain": properties.gain(fn),
        "gain_backward": properties.gain_backward(fn),
        "saturates": {"below": below, "above": above},
        "vanishes": fn.vanishes,
        "dies": fn.dies,
        "kinks": list(fn.kinks),
        "learned": {name: value.tolist() for name, value in fn.learned.items()},
        "elementwise": fn.elementwise,
    }


def _notes(fn: ActivationFunction) -> str:
    text = inspect.getdoc(catalogue.catalogue[fn.name]) or ""
    return " ".join(text.replace("\n\n", "\n").split("\n"))


# The table of all activations


def _listing(functions: Sequence[ActivationFunction], out: Console) -> list[RenderableType]:
    """Return a table with one line per activation. In a narrow terminal, a second table has the formulas."""
    wide = out.width >= _WIDE
    table = Table(box=None, header_style="dim", padding=(0, 2 if wide else 1, 0, 0), pad_edge=False)
    table.add_column("activation", no_wrap=True, style="bold")
    table.add_column("FLOPs", justify="right", no_wrap=True)
    table.add_column("range", no_wrap=True)
    table.add_column("|f′| ≤", no_wrap=True, justify="right")
    table.add_column("gain", no_wrap=True, justify="right")
    table.add_column("saturates", no_wrap=True)
    table.add_column("", min_width=13)
    formulas = table if wide else Table(box=None, header_style="dim", padding=(0, 2, 0, 0), pad_edge=False)
    if not wide:
        formulas.add_column("activation", no_wrap=True, style="bold")
    formulas.add_column("cached", no_wrap=True)
    formulas.add_column("formula", overflow="fold")
    for fn in functions:
        slope, gain = _number(properties.max_slope(fn)), _number(properties.gain(fn))
        cells = (f"{fn.flops}/{fn.flops_backward}", _range(fn), slope, gain, _saturation(fn), _traits(fn))
        more = fn.cached, fn.formula
        table.add_row(caption(fn), *cells, *(more if wide else ()))
        if not wide:
            formulas.add_row(caption(fn), *more)
    return [*([table] if wide else [table, "", formulas]), "", Text(_LEGEND, style="dim")]


def _number(value: float | None) -> str:
    if value is None:
        return "–"
    return f"{value:.3f}" if math.isfinite(value) else _end(value)


def _end(value: float) -> str:
    if math.isinf(value):
        return "∞" if value > 0 else "−∞"
    return f"{value:.3g}".replace("-", "−")


def _range(fn: ActivationFunction) -> str:
    low, high = properties.extent(fn)
    return f"{_end(low)} … {_end(high)}"


def _saturation(fn: ActivationFunction) -> str:
    below, above = properties.saturates(fn)
    if below is None and above is None:
        return "–"
    if above is None or below is None:
        return f"z > {_end(above)}" if above is not None else f"z < {_end(below or 0.0)}"
    if math.isclose(-below, above, rel_tol=1e-6):
        return f"|z| > {_end(above)}"
    return f"z < {_end(below)}, > {_end(above)}"


def _traits(fn: ActivationFunction) -> Text:
    learned = sum(int(np.size(value)) for value in fn.learned.values())
    words = [("vanishes", "yellow")] if fn.vanishes else []
    words += [("dies", "red")] if fn.dies else []
    words += [(f"learns {learned}", "green")] if learned else []
    return Text(" ").join([Text(word, style=style) for word, style in words])


# The details of one activation


def _details(fn: ActivationFunction, out: Console) -> list[RenderableType]:
    grid = Table.grid(padding=(0, 2, 0, 0))
    grid.add_column(style="dim", no_wrap=True)
    grid.add_column(overflow="fold")
    below, above = properties.saturates(fn)
    learned = [f"{name} = {_values(value)}" for name, value in fn.learned.items()]
    constants = [
        f"{key} = {value:g}" if isinstance(value, float) else f"{key} = {value}" for key, value in fn.constants
    ]
    back, most = properties.gain_backward(fn), f"{100 * properties.SATURATED_SLOPE:g}"
    for name, value in (
        ("f(z)", fn.formula),
        ("LaTeX", fn.latex),
        ("constants", ", ".join(constants)),
        ("learned", ", ".join(learned)),
        ("FLOPs per element", f"{fn.flops} forward, {fn.flops_backward} for f′"),
        ("cached", f"{fn.cached} ({fn.cached_bits} bit)" if fn.cached_bits else fn.cached),
        ("range", _range(fn)),
        ("max |f′|", f"{properties.max_slope(fn):.6g}".replace("inf", "∞")),
        ("gain", f"{_precise(properties.gain(fn))} forward, {_precise(back)} backward"),
        ("kinks", ", ".join(f"z = {_end(kink)}" for kink in fn.kinks)),
        (
            "saturates",
            ""
            if below is None and above is None
            else f"{_saturation(fn)} (slope at most {most} % of the largest slope)",
        ),
        ("vanishes", "f′ tends to 0 on both sides" if fn.vanishes else ""),
        ("dies", "f′ is exactly 0 over a half-line" if fn.dies else ""),
    ):
        if value:
            grid.add_row(name, value)
    title = Text.assemble((caption(fn), "bold cyan"), "  ", (_notes(fn), ""), overflow="fold")
    return [title, Padding(Group(grid, "", _plots(fn, out)), (0, 0, 1, _INDENT))]


def _precise(value: float | None) -> str:
    return f"{value:.6g}" if value is not None else "none"


def _values(value: Any) -> str:
    flat = np.ravel(value)
    shown = ", ".join(f"{number:g}" for number in flat[:6])
    return shown if np.ndim(value) == 0 else f"[{shown}{', …' if len(flat) > 6 else ''}]"


def _ends(y: NDArray[np.floating]) -> tuple[float, float]:
    """Return the lowest and the highest value on the axis of a plot of y."""
    known = y[np.isfinite(y)]
    return min(max(float(known.min()), -4.5), 0.0), max(min(float(known.max()), 4.5), 0.25)


def _plots(fn: ActivationFunction, out: Console) -> RenderableType:
    """Return plots of f and f′ over −4 … 4 next to each other, in braille characters."""
    ends = [_ends(curve(fn, np.linspace(-4, 4, 400), slope=slope)) for slope in (False, True)]
    sides = [max(len(_end(end)) for end in pair) for pair in ends]
    room = out.width - _INDENT - sum(sides) - 2 * len(" │") - _GAP
    width, height = (30, 8) if room >= 60 else (max(room // 2, 10), 8 if room >= 44 else 6)
    z = np.linspace(-4, 4, 2 * width)
    table = Table.grid(padding=(0, _GAP, 0, 0), pad_edge=False)
    for _ in ends:
        table.add_column(no_wrap=True)
    cells: list[Text] = []
    for slope, style, (low, high), side in zip((False, True), ("cyan", "yellow"), ends, sides, strict=True):
        y = curve(fn, z, slope=slope)
        near = (high - low) / (8 * height)  # half a dot, because the range comes from other values of z
        y = np.where((y > low - near) & (y < high + near), np.clip(y, low, high), y)
        lines = drawing.curve(y, low, high, width=width, height=height)
        labels = {0: _end(high), height - 1: _end(low)}
        text = Text(f"{'':{side}}  {'f′(z)' if slope else 'f(z)'}\n", style=style)
        for i, line in enumerate(lines):
            text.append(f"{labels.get(i, ''):>{side}} ", style="dim").append("│", style="dim").append(line, style=style)
            text.append("\n")
        text.append(f"{'':{side}} └{'─' * width}\n{'':{side}}  −4{'0':^{width - 4}}4", style="dim")
        cells.append(text)
    table.add_row(*cells)
    return table
