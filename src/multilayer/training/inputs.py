"""The inputs of `fit`: the network, the data, and the options that describe the data."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np

from ..data import DataOptions, TrainingData, is_loader, make_training_data, read_loader
from ..data.readers import means_bundled
from ..errors import DataError, OptionError, SpecError, option_name
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
            write = "ml.fit(ml.from_torch(module).spec, data) to train a network like an nn.Sequential"
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
