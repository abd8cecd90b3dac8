"""`make_training_data` reads, splits and encodes a table, so that an engine can train on it.

    read → target and task → rows that can be used → split → encoding fitted on training rows → x, codes, y, weights

Everything that was decided or left out is said in `notes`. Rows without a target or of weight 0 are left out. Columns
named as group, time or weight are not inputs unless `columns` or `categorical` gives them a kind.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from ..core.formatting import count, short
from ..core.sparse import joined
from ..errors import DataError, OptionError, called, option, unknown_name
from . import augmentation, class_weights, groups_and_times, splits
from . import columns as C
from . import targets as tasks
from .batches import Augment, Data
from .encoding import Encoded, Encoding, usable
from .encoding_fit import fit
from .options import DataOptions, is_separate
from .readers import read
from .steps import Codes
from .table import Rows, Table, where
from .text_values import without_missing

FEWEST_PARTS = 5
"""Into which rows are cut for members to hold out."""
ORDINARY = (1e-20, 1e20)
"""Weights whose sums and products stay within float32."""
TARGETS = ("target", "label", "labels", "class", "y", "outcome")
"""Names that are the target where none is given."""


@dataclass(frozen=True, kw_only=True, eq=False)
class TrainingData:
    """`data` holds every usable row: those of the source, then those of a validation source of its own.

    `origin` is where each row of `data` stood in its source, from 0.
    """

    data: Data
    train: Rows
    validation: Rows
    encoding: Encoding
    notes: tuple[str, ...]
    origin: Rows
    folds: tuple[Rows, ...] = ()
    """Where an ensemble's members each hold out a part of their own: those parts, of rows of `train`. Together they are
    the rows of `validation`."""
    loader_batch: int | None = None
    """Rows of a batch where a user's own loader makes them, in its own order."""
    dropped: int = 0
    """Rows of the source that were left out: without a target, or of weight 0."""


def make_training_data(source: Any, options: DataOptions | None = None) -> TrainingData:
    """Read, split and encode a table.

    >>> made = make_training_data("iris")
    >>> made.encoding.inputs, made.encoding.outputs, len(made.train), len(made.validation)
    (Inputs(numeric=4, categories=()), 3, 120, 30)
    """
    options = DataOptions() if options is None else options
    validation, group, time, weight = options.validation, options.group, options.time_column, options.sample_weight
    columns, dtype = options.columns, options.dtype
    table = read(source)
    notes, given = list(table.notes), len(table)
    names = target_names(table, options.target, notes)
    for what, name in (("group", group), ("time_column", time), ("sample_weight", weight)):
        if isinstance(name, str) and name in names:
            raise OptionError(
                f"{called(what)} must be another column than the target, got {name!r}: name another, or none"
            )
    if options.categorical is not None:
        columns = {**(columns or {}), **dict.fromkeys(_categories(table, options.categorical, names), "categorical")}
    if group is not None and not isinstance(group, str):
        group = groups_and_times.group_numbers(group, table)
    if time is not None and not isinstance(time, str):
        time = groups_and_times.moments(time, table)
    table, origin, weights = _usable_rows(table, names, weight, notes)
    found = tasks.infer(table, names, options.task, options.classes)
    if options.task == "auto" and options.classes is None and options.loss is not None:
        tasks.check_meant(table, found, options.loss)
    if options.classes is None:
        table, found = _labels_as_written(table, found, options.task)
    loss = options.loss or found.usual_loss(options.outputs)
    if options.task == "auto":
        notes.append(f"{found.said()} (inferred; {option('task')} overrides)")
    factor = None
    if options.class_weight is not None:
        table, origin, weights, factor = _by_class(options.class_weight, found, table, origin, weights, notes)
    group, time = (one if one is None or isinstance(one, str) else one[origin] for one in (group, time))
    dropped = given - len(table)
    parts = _folds(table, found, options, group, time, notes)
    if parts:
        train, held_out = np.arange(len(table), dtype=np.int64), np.sort(np.concatenate(parts))
    else:
        train, held_out = _split(table, found, options, group, time, notes)
    found, more = tasks.standardise(found, table, train, loss)
    reserved = {*names, *(name for name in (group, time, weight) if isinstance(name, str))} - set(columns or {})
    inputs = tuple(name for name in table.names if name not in reserved and name not in names)
    encoding, said = fit(
        table,
        train,
        inputs=inputs,
        task=found,
        loss=loss,
        scaling=options.scaling,
        kinds=columns,
        keep_constant=options.keep_constant,
    )
    notes += [*more, *said]
    x, codes, _ = encoding.transform(table, dtype)
    y = tasks.encode(found, table, loss, dtype)
    if weights is not None:
        weights = weights_within(weights, dtype)
    if is_separate(validation):
        counting = count_as = None
        if options.validation_weight is not None:
            validation = encoding.read(validation, targets=True)
            counting, count_as = _counting(validation, options.validation_weight, notes)
            validation = validation.take(counting)
        own = encoding.encode(validation, targets=True, dtype=dtype)
        notes += [f"validation: {note}" for note in own.notes]
        held_out = np.arange(len(x), len(x) + len(own.x), dtype=np.int64)
        origin = np.concatenate([origin, own.rows if counting is None else counting[own.rows]])
        count_as = _validation_weights(None if count_as is None else count_as[own.rows], factor, own)
        if weights is not None or count_as is not None:
            both = (
                np.ones(len(x), dtype) if weights is None else weights,
                np.ones(len(own.x), dtype) if count_as is None else weights_within(count_as, dtype),
            )
            weights = np.concatenate(both)
        x, y = joined(x, own.x), np.concatenate([y, cast("NDArray[Any]", own.y)])
        codes = None if codes is None else np.concatenate([codes, cast("NDArray[np.int64]", own.codes)])
    data = Data(
        x=x,
        y=y,
        codes=codes,
        weight=weights,
        augment=_augment(options.augment, encoding, train, options.seed),
    )
    return TrainingData(
        data=data,
        train=train,
        validation=held_out,
        folds=parts,
        encoding=_named(encoding, table),
        notes=tuple(notes),
        origin=origin,
        dropped=dropped,
    )


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
    """The target columns: those asked for, those the source knows, or one with a usual name."""
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
            raise DataError(f"{table.name}: target column {target} of {len(table.names)}")
        return (table.names[target],)
    names = (target,) if isinstance(target, str) else tuple(cast("Sequence[str]", target))
    if not names:
        raise DataError(f"{table.name}: a target is needed, got none")
    if isinstance(target, str) and target not in table.names and "," in target:
        names = tuple(part.strip() for part in target.split(","))
    if len(set(names)) < len(names):
        raise DataError(f"{table.name}: targets must differ, got {', '.join(names)}")
    for name in names:
        table.column(name)  # refuses an unknown name
    return names


def _categories(table: Table, categorical: Iterable[str], targets: tuple[str, ...]) -> list[str]:
    """The names of columns that are categories, whatever they hold."""
    found: list[str] = []
    for name in categorical:
        made_up = f"x{name}"
        known = made_up if table.positional and name not in table.names and made_up in table.names else name
        if known in targets:
            raise OptionError(
                f"{called('categorical')} must be another column than the target, got {name!r}: name another, or none"
            )
        if known not in table.names:
            inputs = [one for one in table.names if one not in targets]
            raise OptionError(f"{called('categorical')}: {table.name}: {unknown_name('column', name, inputs)}")
        found.append(known)
    return found


def _labels_as_written(table: Table, found: tasks.Task, task: str) -> tuple[Table, tasks.Task]:
    """Class labels that a frame has as text, such as "1" and "2", stay text, so that predictions can be compared with
    them. Spellings of one number, such as "1" and "1.0", are one class."""
    for name, classes in zip(found.names, found.classes, strict=False):
        if found.kind == "multilabel" or name not in table.written:
            continue
        text = without_missing(table.written[name])
        if len(C.vocabulary(text)) == len(classes):
            table = replace(table, columns={**table.columns, name: text})
            found = tasks.infer(table, found.names, task)
    return table, found


def _usable_rows(
    table: Table, names: tuple[str, ...], weight: Any, notes: list[str]
) -> tuple[Table, Rows, NDArray[np.float64] | None]:
    keep = usable(table, names)
    weights = None
    if not keep.all():
        notes.append(f"{count(int((~keep).sum()), 'row')} without a target left out")
    if weight is not None:
        weights = _weights(table, weight)
        nothing = keep & (weights == 0)
        if nothing.any():
            notes.append(f"{count(int(nothing.sum()), 'row')} of weight 0 left out")
        keep &= weights > 0
    rows = np.flatnonzero(keep).astype(np.int64)
    if not len(rows):
        what = "a target" if weight is None else "a target and a weight above 0"
        raise DataError(f"{table.name}: no row has {what}: nothing can be learned")
    if len(rows) < len(table):
        table = table.take(rows)
    return table, rows, None if weights is None else weights[rows]


def _weights(table: Table, weight: Any) -> NDArray[np.float64]:
    name = weight if isinstance(weight, str) else "the weights"
    if isinstance(weight, str):
        column = C.plain(table.column(weight))
        if C.family_of(column, where(table, weight)) != "number":
            raise DataError(f"{where(table, weight)}: weights must be numbers, got {column.type}")
        values = C.floats(column)
    else:
        try:
            values = np.asarray(weight, dtype=np.float64)
        except (TypeError, ValueError):
            raise DataError(f"{table.name}: weights must be one number a row, got {short(weight)}") from None
        if values.shape != (len(table),):
            raise DataError(f"{table.name}: weights must be one number a row, {len(table):,}, got {values.shape}")
    bad = ~(np.isfinite(values) & (values >= 0))
    if bad.any():
        row = int(np.flatnonzero(bad)[0])
        raise DataError(f"{where(table, name, row)}: weights must be 0 or more and finite, got {values[row]:g}")
    return values


def weights_within(weights: NDArray[np.float64], dtype: Any) -> NDArray[Any]:
    """Weights as a network's numbers. Their ratios alone count, so that those beyond `ORDINARY` are divided by the
    largest; what is then too small for the type is the smallest that it has."""
    low, high = ORDINARY
    if not len(weights) or (weights[weights > 0].min(initial=high) >= low and weights.max() <= high):
        return weights.astype(dtype)
    shares = weights / weights.max()
    return np.where(weights > 0, np.maximum(shares, np.finfo(dtype).tiny / np.finfo(dtype).eps), 0).astype(dtype)


def _counting(table: Table, weight: Any, notes: list[str]) -> tuple[Rows, NDArray[np.float64]]:
    """The rows of a validation source that count, and what each does."""
    values = _weights(table, weight)
    rows = np.flatnonzero(values).astype(np.int64)
    if not len(rows):
        raise DataError(f"{table.name}: validation weights must not all be 0, got {short(weight)}: give some weight")
    if len(rows) < len(table):
        notes.append(f"validation: {count(len(table) - len(rows), 'row')} of weight 0 left out")
    return rows, values[rows]


def _validation_weights(
    weights: NDArray[np.float64] | None, factor: NDArray[np.float64] | None, own: Encoded
) -> NDArray[np.float64] | None:
    """What the usable rows of a validation source count, by themselves and by their classes."""
    if factor is None:
        return weights
    weights = class_weights.weighed(weights, factor, tasks.classes_in(cast("NDArray[Any]", own.y)))
    if not weights.any():
        raise DataError("validation weights must not all be 0, got rows of classes of weight 0: give some weight")
    return weights


def _folds(
    table: Table, task: tasks.Task, options: DataOptions, group: Any, time: Any, notes: list[str]
) -> tuple[Rows, ...]:
    """The parts that members hold out in turn; none where rows are few, one split is asked for, or the latest rows must
    be it. Few members hold out no more of the rows each than one split would: of unequal groups the smallest parts."""
    n, members, seed, validation = len(table), options.ensemble, options.seed, options.validation
    k = min(max(members, FEWEST_PARTS), n // 2) if members > 1 else 1
    if n < splits.TINY or k < 2 or not (isinstance(validation, str) and validation == "auto") or time is not None:
        return ()
    if group is not None:
        if isinstance(group, str):
            _refuse_missing(table, group)
        part, how = splits.grouped_folds(_groups(table, group), k, seed=seed), _whole_groups(group)
    elif task.kind in ("binary", "multiclass"):
        classes = tasks.class_numbers(table, task.names[0], task.classes[0])
        part, how = splits.folds(n, k, seed=seed, strata=classes), "stratified by class"
    elif task.kind == "regression":
        numbers = tasks.target_numbers(table, task.names[0])
        part, how = splits.folds(n, k, seed=seed, strata=numbers), "alike in the target"
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
    """How many of the members hold out a part, where they take them in turn.

    >>> _times(5, 5), _times(8, 5), _times(8, 4)
    ('one', '1 or 2', '2')
    """
    least, more = divmod(members, parts)
    return f"{least} or {least + 1}" if more else "one" if least == 1 else str(least)


def _whole_groups(group: Any) -> str:
    return f"whole groups of {group!r}" if isinstance(group, str) else "whole groups"


def _groups(table: Table, group: Any) -> NDArray[np.int64]:
    """The number, from 0, of each row's group."""
    if not isinstance(group, str):
        return np.unique(group, return_inverse=True)[1].astype(np.int64)  # some may have lost every row
    keys = C.keys_of(table.column(group), table, group)
    codes, _ = Codes(vocabulary=C.vocabulary(keys)).apply(keys)
    return codes - 1


def _split(
    table: Table, task: tasks.Task, options: DataOptions, group: Any, time: Any, notes: list[str]
) -> splits.Pair:
    n, every, none = len(table), np.arange(len(table), dtype=np.int64), np.zeros(0, dtype=np.int64)
    seed, validation = options.seed, options.validation
    for name in (group, time):
        if isinstance(name, str):
            _refuse_missing(table, name)
    if validation is None or is_separate(validation):
        return every, none
    if validation == "auto":
        if n < splits.TINY and group is None and time is None:
            few = f"{count(n, 'row')} are fewer than {splits.TINY}"
            notes.append(f"no rows held out: {few} ({option('validation', '0.2')} would)")
            return every, none
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
            raise DataError(f"{where(table, time)}: a split by time needs dates or numbers, got {family}")
        kind = C.DEFAULT_KIND[family]
        pair = splits.by_time(C.numbers(table, time, kind)[:, 0], share)
        how = f"the last by {time!r}"
    elif task.kind in ("binary", "multiclass"):
        classes = tasks.class_numbers(table, task.names[0], task.classes[0])
        pair = splits.stratified(classes, share, seed=seed)
        how = "stratified by class"
    else:
        pair = splits.holdout(n, share, seed=seed)
        how = "at random"
    notes.append(f"{len(pair[1]):,} of {n:,} rows held out for validation, {how}")
    if task.kind in ("binary", "multiclass"):
        place = tasks.class_numbers(table, task.names[0], task.classes[0])
        absent = sorted(set(range(len(task.classes[0]))) - set(np.unique(place[pair[0]]).tolist()))
        notes += [tasks.untrained(task.classes[0][i]) for i in absent]
    return pair


def _refuse_missing(table: Table, name: str) -> None:
    nothing = C.missing(table.column(name))
    if nothing.any():
        row = int(np.flatnonzero(nothing)[0])
        raise DataError(f"{where(table, name, row)}: must have a value in every row to split by, got none")


def _by_class(
    class_weight: str | Mapping[Any, float],
    task: tasks.Task,
    table: Table,
    origin: Rows,
    weights: NDArray[np.float64] | None,
    notes: list[str],
) -> tuple[Table, Rows, NDArray[np.float64], NDArray[np.float64]]:
    """The rows that count, what each counts by itself and its class, and the factors of the classes."""
    if task.kind not in ("binary", "multiclass"):
        raise OptionError(f"{called('class_weight')} needs a task with classes, got {task.kind}")
    classes = task.classes[0]
    place = tasks.class_numbers(table, task.names[0], classes)
    factor = class_weights.factors(class_weight, classes, place, weights)
    weights = class_weights.weighed(weights, factor, place)
    words = ", ".join(f"{name!r} {value:.3g}" for name, value in zip(classes[:5], factor, strict=False))
    notes.append(f"what a row counts by its class, held out or not: {words}{', …' if len(classes) > 5 else ''}")
    rows = np.flatnonzero(weights > 0)
    if not len(rows):
        raise DataError(f"{table.name}: no row has a class of weight above 0: nothing can be learned")
    if len(rows) < len(table):
        notes.append(f"{count(len(table) - len(rows), 'row')} of classes of weight 0 left out")
        table = table.take(rows)
    return table, origin[rows], weights[rows], factor


def _augment(given: str | Sequence[str] | Augment | None, encoding: Encoding, train: Rows, seed: int) -> Augment | None:
    if given is None or callable(given):
        return given
    background = 0.0 if encoding.image is None else float((0 - encoding.center[0]) / encoding.scale[0])
    n_classes = len(encoding.task.classes[0]) if encoding.task.kind in ("binary", "multiclass") else None
    scene = augmentation.Scene(seed=seed, train=train, image=encoding.image, background=background, n_classes=n_classes)
    return augmentation.build(given, scene)
