"""`mlp export`: save a model in a format that other programs can run."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Annotated

from ..errors import OptionError, printable, unknown_name, warn
from . import arch as networks
from .options import OUTPUT, Model, option
from .output import console, show

EXAMPLES = (
    "mlp export runs/digits-001",
    "mlp export runs/people --out people.onnx",
    "mlp export model.safetensors --to onnx",
)

FORMATS = ("onnx",)


def export(
    model: Model,
    to: Annotated[
        str, option("--to", text=f"File format: {', '.join(FORMATS)}.", metavar="FORMAT", panel=OUTPUT, default=True)
    ] = "onnx",
    out: Annotated[
        Path | None,
        option(
            "--out",
            text="File to write.",
            metavar="FILE",
            panel=OUTPUT,
            default="model.onnx in the folder of the model",
        ),
    ] = None,
) -> None:
    """Export a model with its preprocessing.

    The inputs of the exported model are columns of a table. Its outputs are labels, probabilities or numbers.
    """
    from ..models.trained_model import load
    from ..nn.calibration import combination

    if to not in FORMATS:
        raise OptionError(unknown_name("format", to, FORMATS))
    if out is not None and out.suffix.lower() != f".{to}":
        other = ": for a PyTorch module, use ml.to_torch in Python" if out.suffix.lower() in networks.PICKLES else ""
        raise OptionError(f"--out must end in .{to}, got {printable(str(out))}{other}")
    loaded = load(model)
    out = out or (model / "model" if model.is_dir() else model).with_suffix(f".{to}")
    with warnings.catch_warnings(record=True, action="always") as caught:
        loaded.to_onnx(out)
    for one in caught:
        warn(str(one.message))
    whole = combination(len(loaded.members), loaded.calibration)
    show(console(), f"saved: {printable(str(out))}, {out.stat().st_size:,} bytes: {whole}, with its preprocessing")
