"""Read the argument ARCH of the commands: a network as text, or the name of a file that contains one.

| ARCH | read as |
|---|---|
| `784-256-10` | the text of a network |
| `-` | the text or JSON of a network on standard input |
| `FILE.safetensors`, or the folder of a run | the network of a trained model |
| any other file | the text or JSON of a network |
"""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path
from typing import Any, BinaryIO

from ..errors import MultilayerError, RunError, SpecError
from ..spec import Spec
from ..spec.spec import MAX_JSON

MODEL = "model.safetensors"
_EXPECTED = "pass widths such as 784-256-10, a .json or .safetensors file, or the folder of a run"
_FILE_NAME = re.compile(r"\.[A-Za-z][A-Za-z0-9]*$")
PICKLES = (".pt", ".pth", ".ckpt", ".bin", ".pkl", ".pickle", ".joblib")
_TABLES = (".csv", ".tsv", ".parquet", ".arrow", ".feather", ".jsonl", ".npy", ".npz", ".gz", ".xlsx")


def read_network(arch: str, activation: str = "relu") -> Spec:
    """Return the network that ARCH specifies. `activation` is the activation between plain widths of a text."""
    return read_network_and_options(arch, activation)[0]


def read_network_and_options(arch: str, activation: str = "relu") -> tuple[Spec, dict[str, Any]]:
    """Return the network that ARCH specifies, and the options of `ml.cost` that are known from its training.

    A trained model has a loss. If it is in the folder of a run, all options of the run's steps are known.
    """
    if os.path.isfile(os.path.join(arch, MODEL)) or (arch.endswith(".safetensors") and os.path.isfile(arch)):
        from ..models.trained_model import load

        model = load(arch)
        model.check_alike(f"{arch}: reading one network", encodings=False)
        return model.spec, {**_options_of_run(Path(arch)), "loss": model.encoding.loss}
    return _read_untrained(arch, activation), {}


def _options_of_run(path: Path) -> dict[str, Any]:
    """Return the options of `ml.cost` for a step of the run at `path`, a folder or its model file."""
    from ..costs import options_of_run
    from ..runs import RunFolder

    try:
        saved = RunFolder.open(path if path.is_dir() else path.parent).config
    except RunError:
        if path.is_dir() and (path / "config.json").exists():
            raise
        return {}  # a model file that was copied from its run
    config, effective = saved.get("config", {}), saved.get("effective", {})
    batch = effective.get("batch_size") or config.get("batch_size")
    return {**options_of_run(config), **({"batch": batch} if batch else {})}


def _read_untrained(arch: str, activation: str) -> Spec:
    if arch == "-":
        return _interpret(_read(sys.stdin.buffer, "standard input"), "standard input", activation)
    # The text of a network has no slash and no file extension. Anything else is a path, even if the file is missing.
    if not _FILE_NAME.search(arch) and os.sep not in arch and not os.path.exists(arch):
        return Spec.parse(arch, activation=activation)
    suffix = Path(arch).suffix.lower()
    if os.path.exists(arch) and suffix in PICKLES:
        raise SpecError(
            f"{arch} is a PyTorch or pickle file. Such files can run code, so they are never read: "
            "load it in Python and convert it with ml.from_torch"
        )
    if os.path.isfile(arch) and suffix in _TABLES:
        raise SpecError(f"{arch} is a table, not a network: {_EXPECTED}")
    try:
        with Path(arch).open("rb") as file:
            content = _read(file, arch)
    except IsADirectoryError:
        raise SpecError(f"cannot read {arch}: it is a folder without {MODEL}: {_EXPECTED}") from None
    except FileNotFoundError:
        raise SpecError(f"cannot read {arch}: there is no such file: {_EXPECTED}") from None
    except (OSError, ValueError) as error:
        if isinstance(error, MultilayerError):
            raise
        reason = error.strerror if isinstance(error, OSError) else error
        raise SpecError(f"cannot read {arch}: {reason}") from None
    return _interpret(content, arch, activation)


def _read(file: BinaryIO, name: str) -> str:
    content = file.read(MAX_JSON + 1)
    if len(content) > MAX_JSON:
        raise SpecError(f"cannot read {name}: a file with a network may have at most {MAX_JSON:,} bytes")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise SpecError(
            f"cannot read {name}: not UTF-8 text, byte {error.start} is {content[error.start]:#04x}: {_EXPECTED}"
        ) from None


def _interpret(content: str, name: str, activation: str) -> Spec:
    is_json = name.lower().endswith(".json") or content.lstrip()[:1] in ("{", "[")
    try:
        return Spec.from_json(content) if is_json else Spec.parse(content.strip(), activation=activation)
    except SpecError as error:
        raise SpecError(f"{name}: {error}") from None
