"""`mlp export`: a model in a format that others run."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Annotated

import typer

from ..errors import OptionError, printable, unknown_name, warn
from .output import console, show

EPILOG = """Examples:

mlp export runs/digits-001

mlp export model.safetensors --to onnx --out model.onnx"""

FORMATS = ("onnx",)


def export(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="A model file, or the folder of a run.")],
    to: Annotated[str, typer.Option(metavar="FORMAT", help=f"One of: {', '.join(FORMATS)}.")] = "onnx",
    out: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Where to write; beside the model, with the format's ending."),
    ] = None,
) -> None:
    """Write a model with its preprocessing to a file. Its inputs are columns, its outputs are labels or numbers."""
    from ..models.trained_model import load
    from ..nn.calibration import combination

    if to not in FORMATS:
        raise OptionError(unknown_name("format", to, FORMATS))
    loaded = load(model)
    out = out or (model / "model" if model.is_dir() else model).with_suffix(f".{to}")
    with warnings.catch_warnings(record=True, action="always") as told:
        loaded.to_onnx(out)
    for one in told:
        warn(str(one.message))
    whole = combination(len(loaded.members), loaded.calibration)
    show(console(), f"written: {printable(str(out))}, {out.stat().st_size:,} bytes: {whole}, with its encoding")
