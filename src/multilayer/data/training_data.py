"""`make_training_data` reads, splits and encodes a table, so that an engine can train on it.

    read → target and task → usable rows → split → encoding fitted on training rows → x, codes, y, weights

`notes` describe all automatic choices and all dropped rows and columns. Rows without a target and rows of weight 0 are
not used. Columns of groups, times or weights are not inputs, unless `columns` or `categorical` specifies their kind.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ..core.formatting import count, short
from ..core.sparse import joined
from ..errors import DataError, OptionError, option, option_name, unknown_name
from . import columns as C
from . import splits, targets
from . import weights as sample_weights
from .batches import Augment, Data
from .encoding import Encoding, usable
from .encoding_fit import dropped_note, fit
from .options import DataConfig, DataOptions, is_separate
from .preprocessing import Codes
from .readers import read
from .table import Rows, Table, where
from .type_inference import first_invalid, without_missing

FEWEST_PARTS = 5
"""Smallest number of parts into which the rows are divided for the members of an ensemble."""
TARGETS = ("target", "label", "labels", "class", "y", "outcome")
"""Names of the target column, if the user specifies none."""


@dataclass(frozen=True, kw_only=True, eq=False)
class TrainingData:
    """Encoded rows, their split, and the encoding.

    Parameters
    ----------
    data : Data
        All usable rows of the source, followed by the rows of separate validation data.
    train, validation : array of int
        Rows of `data` for training and for validation.
    encoding : Encoding
        The fitted encoding, which is stored with the model.
    notes : tuple of str
        Messages for the user about automatic choices and dropped rows and columns.
    origin : array of int
        Position of each row of `data` in its source, from 0.
    folds : tuple of arrays of int
        Rows that the ensemble members hold out, if each holds out a different part of `train`. Together they are
        `validation`.
    loader_batch : int, optional
        Batch size of the loader, if the data is a loader.
    warnings : tuple of str
        The notes that the user must also see if nothing else is shown: dropped columns.
    untrained : tuple
        Classes without a training row after the split.
    dropped : int
        Number of rows of the source that are not used: without a target, or of weight 0.
    """

    data: Data
    train: Rows
    validation: Rows
    encoding: Encoding
    notes: tuple[str, ...]
    origin: Rows
    folds: tuple[Rows, ...] = ()
    loader_batch: int | None = None
    warnings: tuple[str, ...] = ()
    untrained: tuple[targets.Class, ...] = ()
    dropped: int = 0


def make_training_data(
    source: Any, options: DataOptions | None = None, config: DataConfig | None = None
) -> TrainingData:
    """Read, split and encode a table. `source` is anything that `read` accepts.

    >>> made = make_training_data("iris")
    >>> made.encoding.inputs, made.encoding.outputs, len(made.train), len(made.validation)
    (Inputs(numeric=4, categories=()), 3, 120, 30)
    """
    options, config = DataOptions() if options is None else options, DataConfig() if config is None else config
    validation, weight = options.validation(config), options.sample_weight
    group, time, columns, dtype = options.group, options.time_column, options.columns, config.encoded_dtype
    table = read(source)
    notes, given = list(table.notes), len(table)
    names = target_names(table, options.target, notes)
    for what, name in (("group", group), ("time_column", time), ("sample_weight", weight)):
        if isinstance(name, str) and name in names:
            raise OptionError(f"{option_name(what)} must not be the target, got {name!r}: name another column, or none")
    if options.categorical:
        columns = {**(columns or {}), **dict.fromkeys(_categories(table, options.categorical, names), "categorical")}
    if group is not None and not isinstance(group, str):
        group = splits.group_numbers(group, table)
    if time is not None and not isinstance(time, str):
        time = splits.moments(time, table)
    table, origin, weights = _usable_rows(table, names, weight, notes)
    found = targets.infer(table, names, config.task, options.classes)
    if config.task == "auto" and options.classes is None and config.given_loss is not None:
        targets.check_loss(table, found, config.given_loss)
    if options.classes is None:
        table, found = _labels_as_written(table, found, config.task)
    loss = config.given_loss or found.usual_loss(options.outputs)
    if config.task == "auto":
        notes.append(f"{found.describe()} (inferred; {option('task')} overrides)")
    factor = None
    if config.class_weight is not None:
        table, origin, weights, factor = sample_weights.by_class(
            config.class_weight, found, table, origin, weights, notes
        )
    group, time = (one if one is None or isinstance(one, str) else one[origin] for one in (group, time))
    dropped = given - len(table)
    parts = _folds(table, found, validation, config, group, time, notes)
    if parts:
        train, held_out, untrained = np.arange(len(table), dtype=np.int64), np.sort(np.concatenate(parts)), ()
    else:
        train, held_out, untrained = _split(table, found, validation, config, group, time, notes)
    found, more = targets.standardise(found, table, train, loss)
    reserved = {*names, *(name for name in (group, time, weight) if isinstance(name, str))} - set(columns or {})
    inputs = tuple(name for name in table.names if name not in reserved and name not in names)
    encoding, said = fit(
        table,
        train,
        inputs=inputs,
        task=found,
        loss=loss,
        scaling=config.scaling,
        kinds=columns,
        keep_constant=options.keep_constant,
        network=options.inputs,
    )
    notes += [*more, *said]
    x, codes, _ = encoding.transform(table, dtype)
    y = targets.encode(found, table, loss, dtype)
    if weights is not None:
        weights = sample_weights.weights_within(weights, dtype)
    if is_separate(validation):
        counting = count_as = None
        with _named_validation():
            if options.sample_weight_val is not None:
                validation = encoding.read(validation, targets=True)
                counting, count_as = sample_weights.counting_rows(validation, options.sample_weight_val, notes)
                validation = validation.take(counting)
            own = encoding.encode(validation, targets=True, dtype=dtype)
        notes += [f"validation: {note}" for note in own.notes]
        held_out = np.arange(len(x), len(x) + len(own.x), dtype=np.int64)
        origin = np.concatenate([origin, own.rows if counting is None else counting[own.rows]])
        count_as = sample_weights.validation_weights(None if count_as is None else count_as[own.rows], factor, own)
        if weights is not None or count_as is not None:
            both = (
                np.ones(len(x), dtype) if weights is None else weights,
                np.ones(len(own.x), dtype) if count_as is None else sample_weights.weights_within(count_as, dtype),
            )
            weights = np.concatenate(both)
        x, y = joined(x, own.x), np.concatenate([y, cast("NDArray[Any]", own.y)])
        codes = None if codes is None else np.concatenate([codes, cast("NDArray[np.int64]", own.codes)])
    data = Data(
        x=x,
        y=y,
        codes=codes,
        weight=weights,
        augment=_augment(config, encoding, train),
    )
    return TrainingData(
        data=data,
        train=train,
        validation=held_out,
        folds=parts,
        encoding=_named(encoding, table),
        notes=tuple(notes),
        origin=origin,
        warnings=() if (note := dropped_note(encoding)) is None else (note,),
        untrained=untrained,
        dropped=dropped,
    )


@contextmanager
def _named_validation() -> Generator[None]:
    """Begin the message of each DataError in this context with the word validation."""
    try:
        yield
    except DataError as error:
        raise DataError(f"validation: {error}") from None


def _named(encoding: Encoding, table: Table) -> Encoding:
    """Return the encoding with the target and class names that the table specifies."""
    task = encoding.task
    if table.target_names:
        task = replace(task, names=table.target_names)
    if table.class_names:
        assert len(table.class_names) == len(task.classes[0]), "one name for each class number"
        task = replace(task, classes=(table.class_names,))
    columns = encoding.columns
    if table.numbered and not encoding.positional:
        columns = tuple(replace(column, numbered=True) for column in columns)
    return replace(encoding, task=task, columns=columns)


def target_names(table: Table, target: str | int | Sequence[str] | None, notes: list[str]) -> tuple[str, ...]:
    """Return the target columns: those of the user, those that the source declares, or one with a usual name."""
    if target is None and table.targets:
        return table.targets
    if target is None:
        usual = [name for name in table.names if name.strip().lower() in TARGETS]
        if len(usual) != 1:
            words = ", ".join(repr(name) for name in table.names[:12]) + (", …" if len(table.names) > 12 else "")
            raise DataError(f"{table.name}: name the target: {option('target')}, one of {words}")
        notes.append(f"target: {usual[0]!r} (by its name; {option('target')} overrides)")
        return (usual[0],)
    if isinstance(target, (int, np.integer)) and not isinstance(target, bool):
        if not -len(table.names) <= target < len(table.names):
            raise DataError(
                f"{table.name}: the number of the target must be below {len(table.names)}, the number of columns, "
                f"got {target}"
            )
        return (table.names[target],)
    names = (target,) if isinstance(target, str) else tuple(cast("Sequence[str]", target))
    if not names:
        raise DataError(f"{table.name}: there must be at least one target, got none: name a column")
    if isinstance(target, str) and target not in table.names and "," in target:
        names = tuple(part.strip() for part in target.split(","))
    if len(set(names)) < len(names):
        raise DataError(f"{table.name}: targets must be distinct, got {', '.join(names)}: name each column once")
    for name in names:
        table.column(name)  # raises an error for an unknown name
    return names


def _categories(table: Table, categorical: Iterable[str], excluded: tuple[str, ...]) -> list[str]:
    """Return the names of the columns in the option `categorical`. `excluded` are the targets."""
    found: list[str] = []
    for name in categorical:
        generated = f"x{name}"
        known = generated if table.positional and name not in table.names and generated in table.names else name
        if known in excluded:
            raise OptionError(
                f"{option_name('categorical')} must not be the target, got {name!r}: name another column, or none"
            )
        if known not in table.names:
            inputs = [one for one in table.names if one not in excluded]
            raise OptionError(f"{option_name('categorical')}: {table.name}: {unknown_name('column', name, inputs)}")
        found.append(known)
    return found


def _labels_as_written(table: Table, found: targets.Task, task: str) -> tuple[Table, targets.Task]:
    """Keep class labels that are strings in the source, such as "1" and "2", so that predictions can be compared with
    them. Different strings for one number, such as "1" and "1.0", are one class, and are converted."""
    for name, classes in zip(found.names, found.classes, strict=False):
        if found.kind == "multilabel" or name not in table.written:
            continue
        text = without_missing(table.written[name])
        if len(C.vocabulary(text)) == len(classes):
            table = replace(table, columns={**table.columns, name: text})
            found = targets.infer(table, found.names, task)
    return table, found


def _usable_rows(
    table: Table, names: tuple[str, ...], weight: Any, notes: list[str]
) -> tuple[Table, Rows, NDArray[np.float64] | None]:
    keep = usable(table, names)
    weights = None
    if not keep.all():
        notes.append(f"{count(int((~keep).sum()), 'row')} without a target left out")
    if weight is not None:
        weights = sample_weights.weights_of(table, weight)
        nothing = keep & (weights == 0)
        if nothing.any():
            notes.append(f"{count(int(nothing.sum()), 'row')} of weight 0 left out")
        keep &= weights > 0
    rows = np.flatnonzero(keep).astype(np.int64)
    if not len(rows):
        if weights is None:
            raise DataError(f"{table.name}: no row has a target: check the target column")
        raise DataError(f"{table.name}: no row has a target and a weight above 0: check the target and the weights")
    if len(rows) < len(table):
        table = table.take(rows)
    return table, rows, None if weights is None else weights[rows]


def _folds(
    table: Table,
    task: targets.Task,
    validation: Any,
    config: DataConfig,
    group: Any,
    time: Any,
    notes: list[str],
) -> tuple[Rows, ...]:
    """Return the parts of the rows that the ensemble members hold out, one part per member, repeated if necessary.

    The result is empty if there are few rows, if the user requests one split, or if the latest rows are held out.
    If there are fewer members than parts, some parts are never held out. If groups have unequal sizes, these are the
    largest parts.
    """
    n, members, seed = len(table), config.ensemble, config.seed
    k = min(max(members, FEWEST_PARTS), n // 2) if members > 1 else 1
    if n < splits.TINY or k < 2 or not (isinstance(validation, str) and validation == "auto") or time is not None:
        return ()
    if group is not None:
        if isinstance(group, str):
            _check_no_missing(table, group)
        part, how = splits.grouped_folds(_groups(table, group), k, seed=seed), _whole_groups(group)
    elif task.kind in ("binary", "multiclass"):
        classes = targets.class_numbers(table, task.names[0], task.classes[0])
        part, how = splits.folds(n, k, seed=seed, strata=classes), "stratified by class"
    elif task.kind == "regression":
        numbers = targets.target_numbers(table, task.names[0])
        part, how = splits.folds(n, k, seed=seed, strata=numbers), "stratified by target value"
    else:
        part, how = splits.folds(n, k, seed=seed), "at random"
    sizes = np.bincount(part)
    chosen = np.arange(len(sizes)) if group is None else np.argsort(sizes, kind="stable")
    parts = tuple(np.flatnonzero(part == i).astype(np.int64) for i in sorted(chosen[:members].tolist()))
    held_out = sum(map(len, parts))
    which = f"{n:,} rows, each" if held_out == n else f"{held_out:,} of {n:,} rows, each"
    notes.append(f"{which} held out by {_times(members, len(parts))} of {members} members, {how}")
    return parts


def _times(members: int, parts: int) -> str:
    """Describe how many of the members hold out the same part.

    >>> _times(5, 5), _times(8, 5), _times(8, 4)
    ('one', '1 or 2', '2')
    """
    least, more = divmod(members, parts)
    return f"{least} or {least + 1}" if more else "one" if least == 1 else str(least)


def _whole_groups(group: Any) -> str:
    return f"whole groups of {group!r}" if isinstance(group, str) else "whole groups"


def _groups(table: Table, group: Any) -> NDArray[np.int64]:
    """Return the group number of each row, from 0."""
    if not isinstance(group, str):
        return np.unique(group, return_inverse=True)[1].astype(np.int64)  # dropped rows may leave gaps in the numbers
    keys = C.keys_of(table.column(group), table, group)
    codes, _ = Codes(vocabulary=C.vocabulary(keys)).apply(keys)
    return codes - 1


def _split(
    table: Table,
    task: targets.Task,
    validation: Any,
    config: DataConfig,
    group: Any,
    time: Any,
    notes: list[str],
) -> tuple[Rows, Rows, tuple[targets.Class, ...]]:
    """Return training rows, held-out rows, and the classes without a training row.

    Without a split, all rows are for training.
    """
    n, every, none = len(table), np.arange(len(table), dtype=np.int64), np.zeros(0, dtype=np.int64)
    seed = config.seed
    for name in (group, time):
        if isinstance(name, str):
            _check_no_missing(table, name)
    if validation is None or is_separate(validation):
        return every, none, ()
    if validation == "auto":
        if n < splits.TINY and group is None and time is None:
            few = f"{count(n, 'row')} are fewer than {splits.TINY}"
            notes.append(f"no rows held out: {few} ({option('validation', '0.2')} overrides)")
            return every, none, ()
        validation = splits.AUTO
    share = splits.check_share(float(validation))
    if group is not None:
        pair = splits.grouped(_groups(table, group), share, seed=seed)
        how = _whole_groups(group)
    elif time is not None and not isinstance(time, str):
        pair, how = splits.by_time(time, share), "the last by time"
    elif time is not None:
        family = C.family_of(table.column(time), where(table, time))
        if family not in ("number", "date", "datetime", "time"):
            raise _not_a_time(table, time, family)
        kind = C.DEFAULT_KIND[family]
        pair = splits.by_time(C.numbers(table, time, kind)[:, 0], share)
        how = f"the last by {time!r}"
    elif task.kind in ("binary", "multiclass"):
        classes = targets.class_numbers(table, task.names[0], task.classes[0])
        pair = splits.stratified(classes, share, seed=seed)
        how = "stratified by class"
    else:
        pair = splits.holdout(n, share, seed=seed)
        how = "at random"
    notes.append(f"{len(pair[1]):,} of {n:,} rows held out for validation, {how}")
    untrained: tuple[targets.Class, ...] = ()
    if task.kind in ("binary", "multiclass"):
        place = targets.class_numbers(table, task.names[0], task.classes[0])
        absent = sorted(set(range(len(task.classes[0]))) - set(np.unique(place[pair[0]]).tolist()))
        untrained = tuple(task.classes[0][i] for i in absent)
        notes += [f"class {name!r} has no training row" for name in untrained]
    return *pair, untrained


def _not_a_time(table: Table, name: str, family: C.Family) -> DataError:
    """Return the error for a column by which rows cannot be split. It shows the first text that is not a date."""
    place, got = where(table, name), C.FAMILY_NAMES[family]
    if family == "text":
        row = first_invalid(C.plain(table.column(name)), pa.timestamp("us")) or 0
        place, got = where(table, name, row), short(table.column(name)[row].as_py())
    return DataError(
        f"{place}: a split by time needs numbers or dates such as 2024-12-31, got {got}: convert the column"
    )


def _check_no_missing(table: Table, name: str) -> None:
    nothing = C.missing(table.column(name))
    if nothing.any():
        row = int(np.flatnonzero(nothing)[0])
        raise DataError(f"{where(table, name, row)}: a column for the split must not have missing values: fill it")


def _augment(config: DataConfig, encoding: Encoding, train: Rows) -> Augment | None:
    if config.augment is None:
        return None
    from . import augmentation

    background = 0.0 if encoding.image is None else float((0 - encoding.center[0]) / encoding.scale[0])
    n_classes = len(encoding.task.classes[0]) if encoding.task.kind in ("binary", "multiclass") else None
    scene = augmentation.Scene(
        seed=config.seed, train=train, image=encoding.image, background=background, n_classes=n_classes
    )
    return augmentation.build(config.augment, scene)
