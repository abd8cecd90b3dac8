"""`mlp show`: print a network as a tree, and save a picture of it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from ..core.formatting import count, flops
from ..costs.summary import NetworkSummary, Part, summarize
from ..errors import printable
from ..nn.layers import Inputs
from . import arch as networks
from .drawing import share_bar
from .options import OUTPUT, Arch, AsJson, ImpliedActivation, option
from .output import console, strict_json
from .output import show as print_parts

MOST_LINES = 80

EXAMPLES = (
    "mlp show 784-256-128-10",
    'mlp show "20-384:none-[layernorm-1536:gelu-384]*6-10" --out network.svg',
    "mlp show model.safetensors --json",
)


def show(
    arch: Arch,
    activation: ImpliedActivation = "relu",
    out: Annotated[
        Path | None,
        option("--out", text="Save a picture as .svg, .png or .pdf.", metavar="FILE", panel=OUTPUT),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Print a network as a tree, or save a picture of it.

    The tree shows layers, shapes, parameters, and the share of each layer in the FLOPs of a training step. Equal
    consecutive layers share one line, marked ×n. The numbers of this line are sums over the n layers.
    """
    spec, known = networks.read_network_and_options(arch, activation)
    summary = summarize(spec, loss=known.get("loss", "auto"))
    if out is not None:
        from ..drawing.picture import draw

        draw(spec, out)
    if as_json:
        print(strict_json(summary.to_dict()))
        return
    page = console()
    print_parts(page, heading(summary), "", tree(summary, page.width))
    if out is not None:
        print_parts(page, Text(f"saved: {printable(str(out))}", style="dim"))


def heading(summary: NetworkSummary) -> Text:
    name = str(summary.spec)
    name = name if len(name) <= 400 else f"{name[:200]} … {name[-190:]}"
    parameters, step = count(summary.cost.parameters, "parameter"), flops(summary.cost.step)
    about = f"{parameters} · {step} per training step of {summary.cost.batch} rows"
    return Text.assemble((name, "bold"), "\n", (about, "dim"), overflow="fold")


def tree(summary: NetworkSummary, width: int = 80) -> RenderableType:
    length = 16 if width >= 90 else 8
    table = Table(box=None, header_style="dim", padding=(0, 2, 0, 0), pad_edge=False)
    table.add_column("layer", no_wrap=True)
    table.add_column("", overflow="fold")
    table.add_column("shape", no_wrap=True)
    table.add_column("parameters", justify="right", no_wrap=True)
    table.add_column("share of the step", no_wrap=True)
    table.add_row(Text("inputs", style="dim"), "", _inputs(summary.spec.inputs), "", "")
    lines = list(_lines(summary.parts, ""))
    half = MOST_LINES // 2
    hidden = lines[half:-half] if len(lines) > MOST_LINES else []
    for i, (prefix, part) in enumerate(lines):
        if half <= i < half + len(hidden):
            if i == half:
                table.add_row("…", Text(f"{len(hidden):,} more lines", style="dim"), "", "", "")
            continue
        times = f" ×{part.times}" if part.times > 1 else ""
        table.add_row(
            Text.assemble((prefix, "dim"), "repeat" if part.kind == "group" else part.heading, (times, "bold yellow")),
            _chosen(part),
            f"(B, {part.d_out})",
            Text(f"{part.parameters:,}", style="" if part.parameters else "dim"),
            share_bar(summary.share(part), width=length),
        )
    loss = summary.cost.loss
    share = loss.forward / summary.cost.step
    table.add_row(Text("loss", style="dim"), Text(loss.name, style="dim"), "", "", share_bar(share, width=length))
    return table


def _lines(parts: Sequence[Part], prefix: str) -> Iterator[tuple[str, Part]]:
    """Yield each part with its prefix of branches. Parts at the top level have no prefix."""
    for part in parts:
        yield prefix, part
        stem = prefix.replace("├─ ", "│  ").replace("└─ ", "   ")
        for i, inner in enumerate(part.parts):
            branch = "└─ " if i == len(part.parts) - 1 else "├─ "
            yield from _lines([inner], stem + branch)


def _chosen(part: Part) -> Text:
    """Return the options and the activation of a part. For equal layers, add the parameters of each."""
    words = [Text(part.detail)] if part.detail else []
    words += [Text(part.function, style="cyan")] if part.function and part.kind != "activation" else []
    if part.times > 1 and part.parameters and part.parameters % part.times == 0:
        words.append(Text(f"{part.parameters // part.times:,} each", style="dim"))
    return Text("  ").join(words)


def _inputs(inputs: Inputs) -> str:
    numbers = f"(B, {inputs.numeric})" if inputs.numeric else ""
    codes = f"(B, {len(inputs.categories)}) codes" if inputs.categories else ""
    return " + ".join(word for word in (numbers, codes) if word)
