"""The data of a run as its folder stores it: column names, the path of the file, and what was in memory.

Rows and weights that were in memory are not stored. They must be passed again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

from ..core.formatting import short
from ..data import DataOptions, bundled, is_loader, read
from ..data.readers import means_bundled
from ..errors import RunError


def read_once(data: Any) -> Any:
    """Return the table. A loader is returned unchanged, because it is read in batches."""
    return data if is_loader(data) else read(data)


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
        "path": location(data),
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


def location(data: Any) -> str | None:
    """Return the full path of a file or the name of a bundled data set; None for data in memory."""
    if not isinstance(data, str | Path):
        return None
    return str(data) if means_bundled(data) else str(Path(data).resolve())


@dataclass(frozen=True)
class CommandSource:
    """The table of a run and its columns as words of the command `mlp train`.

    `missing` are the options of the run that the command does not have. Data in memory is the word DATA.
    """

    words: tuple[str, ...] = ("DATA",)
    missing: tuple[str, ...] = ()

    @property
    def own_loss(self) -> bool:
        """Whether the run has a loss function of the user instead of the loss of its model."""
        return LOSS_FUNCTION in self.missing

    def with_table(self, data: object) -> CommandSource:
        """Return the same columns of another table."""
        return replace(self, words=(str(data) if isinstance(data, str | Path) else "DATA", *self.words[1:]))


ANY_TABLE = CommandSource()
LOSS_FUNCTION = "a loss function"
"""A loss function of the user among the options that a command does not have."""


def command_source(saved: Mapping[str, Any], *, missing: Sequence[str] = ()) -> CommandSource:
    """Return the words for `stored` data options. `missing` are other options that the command does not have.

    Examples
    --------
    >>> from multilayer.data import DataOptions
    >>> command_source(stored(DataOptions(target=["a", "b"], group="g"), "iris")).words
    ('iris', '--target', 'a,b', '--group', 'g')
    >>> command_source(stored(DataOptions(keep_constant=True), "iris")).missing
    ('keep_constant',)
    """
    words, without = [saved["path"] or "DATA"], [*missing]
    without += ["a data loader"] if saved.get("loader") else []
    without += ["keep_constant"] if saved.get("keep_constant") else []
    without += [f"{name} in memory" for name in saved["in_memory"] if name != "sample_weight"]
    for name in ("target", "group", "time_column", "sample_weight", "categorical"):
        value: Any = [] if saved.get(name) is None else saved[name]
        names = cast("list[Any]", list(value) if isinstance(value, list | tuple) else [value])
        if name == "target" and names:
            lists_well = all(isinstance(one, str) and one == one.strip() and "," not in one for one in names)
            names = [",".join(names) if lists_well else None]
        if all(isinstance(one, str) for one in names):
            words += [word for one in names for word in (f"--{name.replace('_', '-')}", one)]
        else:
            without.append(f"this {name}")
    without += ["this sample_weight"] if "sample_weight" in saved["in_memory"] else []
    return CommandSource(tuple(words), tuple(without))


def _data_at(location: str) -> Any:
    """Return the data for a result of `location`. Files in the working directory do not hide a bundled data set."""
    return bundled.load(location) if bundled.known(location) else location
