"""The inputs of `fit`: the network, the data, and the options that describe the data.

A run folder stores the data options as JSON: column names, and whether rows or weights were in memory.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ..core.formatting import short
from ..data import DataOptions, TrainingData, bundled, is_loader, make_training_data, read, read_loader
from ..data.readers import means_bundled
from ..errors import DataError, OptionError, RunError, SpecError, option_name
from ..models.trained_model import TrainedModel
from ..runs.config import Config
from ..spec import Spec
from .recipe import Recipe
from .setup import check_loader


def check_order(spec: Any, data: Any) -> None:
    """Raise an error if the network and the data are swapped, or if one of them is missing."""
    if data is None:
        if isinstance(spec, Spec) or _is_network(spec):
            network = spec if isinstance(spec, Spec) else Spec.parse(spec)
            raise OptionError(
                f"fit needs data to train on, got the network {network} alone: ml.fit({str(network)!r}, data)"
            )
        raise OptionError(
            f"fit takes the network first, then the data, got {type(spec).__name__} alone: ml.fit(None, data) chooses "
            "the network"
        )
    if isinstance(data, Spec) or _is_network(data):
        if spec is None or isinstance(spec, Spec):
            raise DataError(f"data must be a table, got the network {data}: {_call(data)}")
        raise OptionError(f"fit takes the network first, then the data, got them swapped: {_call(data, spec)}")
    if isinstance(spec, str) and not _is_network(spec) and (means_bundled(spec) or Path(spec).is_file()):
        raise OptionError(f"the network comes first, got the data {spec!r} in its place: ml.fit(None, {spec!r})")
    if spec is not None and not isinstance(spec, str | Spec | Recipe):
        torch = sys.modules.get("torch")
        write = "ml.fit(None, (X, y)), or ml.fit('4-16-3', (X, y))"
        if isinstance(getattr(spec, "spec", None), Spec):
            write = "ml.fit(model.spec, data) to train a new network like it"
        elif torch is not None and isinstance(spec, torch.nn.Module):
            write = "ml.fit(ml.from_torch(module).spec, data) to train a network like a nn.Sequential"
        raise OptionError(
            f"the network must be a string such as '4-16-3', a Spec or None, got {type(spec).__name__}: write {write}"
        )


def _is_network(text: Any) -> bool:
    """Return whether a string describes a network and is not the name of a data set or file."""
    if not isinstance(text, str) or means_bundled(text) or Path(text).exists():
        return False
    try:
        Spec.parse(text)
    except SpecError:
        return False
    return True


def _call(network: Any, data: Any = None) -> str:
    """Return the correct call, for the error message."""
    if option_name("spec") != "spec":
        return f"mlp train DATA --arch {network}"
    return f"ml.fit({str(network)!r}, {repr(data) if isinstance(data, str) else 'data'})"


def read_once(data: Any) -> Any:
    """Return the table. A loader is returned unchanged, because it is read in batches."""
    return data if is_loader(data) else read(data)


def in_memory(validation: Any) -> bool:
    """Return whether `validation` is data in memory, which a configuration cannot store."""
    return not (validation is None or isinstance(validation, str | int | float | np.generic))


def encode(source: Any, options: DataOptions, config: Config) -> TrainingData:
    """Return the rows of a table or a loader as training data."""
    if is_loader(source):
        check_loader(config)
        return read_loader(source, options, config)
    return make_training_data(source, options, config)


# In a run folder


def check_storable(options: DataOptions, *, start: TrainedModel | None) -> None:
    """Raise an error if a run folder cannot store the options."""
    named = all(one is None or isinstance(one, str) for one in (options.group, options.time_column))
    if options.classes is not None or options.sample_weight_val is not None or start is not None or not named:
        raise OptionError(
            "classes, start and per-row arrays cannot be saved in a run folder: pass column names instead, or train "
            "without run"
        )


def stored(options: DataOptions, data: Any) -> dict[str, Any]:
    """Return the data options as a run folder stores them. `from_stored` reads them."""
    weight = options.sample_weight
    named = weight is None or isinstance(weight, str)
    return {
        "target": options.target,
        "group": options.group,
        "time_column": options.time_column,
        "keep_constant": options.keep_constant,
        "categorical": options.categorical or None,
        "sample_weight": weight if named else None,
        "path": _location(data),
        "loader": is_loader(data),
        "in_memory": [
            *([] if named else ["sample_weight"]),
            *(["validation"] if options.validation_data is not None else []),
        ],
    }


def from_stored(
    saved: Mapping[str, Any], path: Any, *, data: Any, validation: Any, sample_weight: Any
) -> tuple[Any, DataOptions]:
    """Return the data and data options of the run in folder `path`. Data that was in memory must be passed again."""
    loader, validated = saved.get("loader", False), "validation" in saved["in_memory"]
    weighted = "sample_weight" in saved["in_memory"]
    if loader and data is None:
        raise RunError(f"{path} was trained from your own loader: pass it again, ml.resume(path, data=loader)")
    if data is None and saved["path"] is None:
        raise RunError(f"{path} was trained on data in memory: pass it again, ml.resume(path, data=…)")
    if validated and validation is None:
        raise RunError(f"{path} was validated on data in memory: pass it again, ml.resume(path, validation=…)")
    if weighted and sample_weight is None:
        raise RunError(f"{path} was trained with weights in memory: pass them again, ml.resume(path, sample_weight=…)")
    if not weighted and sample_weight is not None:
        raise RunError(f"{path} has its weights in the data: omit sample_weight, got {short(sample_weight)}")
    if loader and not is_loader(data):
        raise RunError(f"{path} was trained from a loader: resume needs one, got {type(data).__name__}")
    if isinstance(validation, str):
        validation = read_once(validation)
    options = DataOptions(
        target=saved.get("target"),
        group=saved.get("group"),
        time_column=saved.get("time_column"),
        keep_constant=saved.get("keep_constant", False),
        categorical=saved.get("categorical") or (),
        sample_weight=saved.get("sample_weight") if sample_weight is None else sample_weight,
        validation_data=validation if validated else None,
    )
    return _data_at(saved["path"]) if data is None else data, options


def _location(data: Any) -> str | None:
    """Return the full path of a file or the name of a bundled data set; None for data in memory."""
    if not isinstance(data, str | Path):
        return None
    return str(data) if means_bundled(data) else str(Path(data).resolve())


def _data_at(location: str) -> Any:
    """Return the data for a result of `_location`. Files in the working directory do not hide a bundled data set."""
    return bundled.load(location) if bundled.known(location) else location
