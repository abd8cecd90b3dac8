"""`mlp init`: the mean squares of activations and gradients at initialization, per layer, predicted and measured."""

from __future__ import annotations

import math
from dataclasses import asdict
from typing import Annotated, Any

from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from ..core.formatting import listed
from ..errors import printable
from ..spec.initialization import SCHEMES
from ..spec.propagation import EXTREME, LayerVariance, Variance, variance
from . import arch as networks
from . import drawing
from .options import NETWORK, Arch, AsJson, ImpliedActivation, Plot, option
from .output import console, strict_json
from .output import show as print_parts

MOST_LINES = 80
_MEASUREMENT = "Measurement"

EXAMPLES = (
    "mlp init 784-256-128-10 --scheme he",
    'mlp init "64-(64:tanh)*20-10" --scheme "normal(0.01)" --plot variance.svg',
    "mlp init 784-256-128-10 --activation gelu --json",
)
NOTE = """In JSON, a value that cannot be predicted is null. A value that is not finite is the string "inf" or "nan"."""


def init(
    arch: Arch,
    scheme: Annotated[
        str,
        option(
            "--scheme",
            text=f"Initialization: {listed(SCHEMES)}. normal(v) and uniform(v) have variance v.",
            metavar="NAME",
            panel=NETWORK,
            default=True,
            complete=SCHEMES,
        ),
    ] = "auto",
    activation: ImpliedActivation = "relu",
    seed: Annotated[
        int, option("--seed", text="Seed of the weights and the rows.", metavar="N", panel=_MEASUREMENT, default=True)
    ] = 0,
    rows: Annotated[
        int,
        option("--rows", text="Number of random rows, from N(0, 1).", metavar="N", panel=_MEASUREMENT, default=True),
    ] = 512,
    plot: Plot = None,
    as_json: AsJson = False,
) -> None:
    """Measure activations and gradients at initialization.

    The table lists mean squares per layer, predicted and measured: E[a²] of the activations for inputs from N(0, 1),
    and E[δ²] of the gradients for gradients from N(0, 1) at the outputs. With a suitable scheme, both stay near 1.

    "weight std" is the standard deviation of the initial weights. For normal(0.01), it is 0.1, because 0.01 is the
    variance.
    """
    spec = networks.read_network(arch, activation)
    if plot is not None:
        from ..drawing.plots import check_path

        check_path(plot)
    found = variance(spec, scheme, seed=seed, rows=rows)
    if plot is not None:
        from ..drawing.plots import save, variance_figure

        save(variance_figure(found), plot, title=f"{spec}, {found.scheme}")
    if as_json:
        print(strict_json(to_dict(found, str(spec), seed=seed, rows=rows)))
        return
    page = console()
    print_parts(page, _heading(found, str(spec), seed, rows), "", table(found, page), "", _verdict(found))
    if plot is not None:
        print_parts(page, Text(f"saved: {printable(str(plot))}", style="dim"))


def to_dict(found: Variance, network: str, *, seed: int, rows: int) -> dict[str, Any]:
    return {
        "network": network,
        "scheme": found.scheme,
        "seed": seed,
        "rows": rows,
        "verdict": found.verdict,
        "note": found.note,
        "layers": [asdict(layer) for layer in found.layers],
    }


def _heading(found: Variance, network: str, seed: int, rows: int) -> Text:
    name = network if len(network) <= 400 else f"{network[:200]} … {network[-190:]}"
    about = f"scheme {found.scheme} · seed {seed} · {rows:,} rows · mean squares"
    return Text.assemble((name, "bold"), "\n", (about, "dim"), overflow="fold")


def table(found: Variance, page: Console) -> RenderableType:
    """Return a table with one line per layer. Bars go to the right for values above 1, otherwise to the left."""
    sheet = Table(box=None, header_style="dim", padding=(0, 1, 0, 0), pad_edge=False)
    roomy = page.width >= 96
    sheet.add_column("\nlayer", no_wrap=True)
    if roomy:
        sheet.add_column("", no_wrap=True)
    sheet.add_column("weight\nstd", justify="right", no_wrap=True)
    width = 15 if roomy else 9
    for name in ("E[a²]", "E[δ²]"):
        sheet.add_column(f"{name}\npredicted", justify="right", no_wrap=True)
        sheet.add_column("\nmeasured", justify="right", no_wrap=True)
        sheet.add_column("\n" + "← 1 →".center(width), no_wrap=True)
    decades = _decades(found)
    layers = list(found.layers)
    half = MOST_LINES // 2
    hidden = layers[half:-half] if len(layers) > MOST_LINES else []
    blanks = [""] * 7
    for i, layer in enumerate(layers):
        if half <= i < half + len(hidden):
            if i == half:
                sheet.add_row("…", *([f"{len(hidden):,} more"] if roomy else []), *blanks)
            continue
        cells: list[RenderableType] = [_name(layer), *([Text(layer.what, style="dim")] if roomy else [])]
        cells.append("" if layer.weight_std is None else _size(layer.weight_std))
        for predicted, measured in (
            (layer.predicted_forward, layer.measured_forward),
            (layer.predicted_backward, layer.measured_backward),
        ):
            expected = Text(_size(predicted) if predicted is not None else "–", style="dim")
            cells += [expected, _size(measured), drawing.log_bar(measured, decades, width=width, limit=EXTREME)]
        sheet.add_row(*cells)
    return sheet


def _name(layer: LayerVariance) -> Text:
    block, dot, last = layer.name.rpartition(".")
    return Text.assemble((f"{block}{dot}", "dim"), last)


def _decades(found: Variance) -> float:
    """Return how many powers of ten a bar covers: enough for every measured value, and at least one."""
    sizes = [size for layer in found.layers for size in (layer.measured_forward, layer.measured_backward)]
    return max([1.0, *(abs(math.log10(size)) for size in sizes if 0 < size < math.inf)])


def _size(value: float) -> str:
    if value != 0 and math.isfinite(value) and not 1e-3 <= abs(value) < 1e4:
        return f"{value:.1e}"
    return f"{value:,.0f}" if 1000 <= value < 1e4 else f"{value:.3g}"


def _verdict(found: Variance) -> Text:
    steady = found.verdict.startswith("activations stay steady, gradients stay steady")
    text = Text(found.verdict, style="green" if steady else "yellow", overflow="fold")
    return text.append(f"\n{found.note}", style="dim") if found.note else text
