"""The setup of a run, for `fit` and `resume`: encoded data, network, engine, plan, policies, and how to evaluate.

`Setup.make` checks the network against the data, fills in default options, checks the memory, and makes the engine.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import platform
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from ..core import machine
from ..core.formatting import count, short
from ..core.sparse import pieces
from ..core.version import __version__
from ..data import Encoding, TrainingData
from ..engines import Engine, Settings
from ..engines import make as engines
from ..engines.fused_program import why_not
from ..engines.protocol import LossFunction
from ..errors import OptionError, option
from ..models import metrics
from ..models.trained_model import TrainedModel
from ..nn import losses, schedules
from ..nn.calibration import Calibration, calibrated, combined, ensemble_temperature, temperature
from ..nn.losses import Loss
from ..runs.config import CHECKPOINT_STEPS, Config, OnSpike
from ..spec import Spec
from .plan import Plan, chosen_batch, with_defaults
from .policies import EarlyStopping, NoMistakes, Plateau, Policy, Spikes, TimeLimit
from .recipe import choose_network

LOG_EVERY = 50
"""Steps between two `Progress` events."""
BYTES_PER_PARAMETER = 16
"""Bytes for the value, its gradient and two moments, in float32."""
BYTES_PER_MEMBER = 1 << 16
"""Least memory of an ensemble member in addition to its parameters and row indices."""
"""Minimum number of steps between two checkpoints, unless the user sets the interval."""
NOT_SEPARABLE = (
    "a single neuron learns only classes that a line or plane separates: add a hidden layer, such as 2-8:tanh-1"
)
PLATEAU_FRACTION = 8
"""A plateau is 1 / PLATEAU_FRACTION of the epochs without progress, and at least ten epochs."""
_WITH_ENCODING = "rows+encoding:"
"""Prefix of the fingerprints that include the encoding."""
SINGLE_THREAD_FLOPS = 5e7
"""Largest number of FLOPs of a step that PyTorch runs with one thread. One core needs about a millisecond for them, and
synchronizing a second thread would take longer than it saves."""


class OtherNetwork(OptionError):
    """The network of a run differs from the network of its start model."""

    def __init__(self, members: int, spec: Spec, model: TrainedModel) -> None:
        self.members, self.spec = members, spec
        super().__init__(
            f"the start model must have the network of the run, {members} × {spec}, got "
            f"{len(model.members)} × {model.spec}: pass a model of that network, or train without start"
        )


@dataclass(frozen=True, kw_only=True, eq=False)
class Setup:
    """Everything that a run needs except its folder and its observers."""

    config: Config
    prepared: TrainingData
    spec: Spec
    loss: Loss
    metric: str
    engine: Engine
    began: float | None = None
    """Start of the time limit, by `time.monotonic`. None for the start of training."""

    @staticmethod
    def make(
        spec: Spec | str | None,
        prepared: TrainingData,
        config: Config,
        *,
        began: float | None = None,
        loss_function: LossFunction | None = None,
    ) -> Setup:
        """Choose everything that `config` leaves open, check it, and make the engine."""
        encoding = prepared.encoding
        if prepared.loader_batch is not None:
            config = with_loader(config, prepared.loader_batch)
        loss = losses.get(encoding.loss)
        chosen = choose_network(spec, encoding)
        config = with_defaults(config, chosen, prepared)
        # A resumed run keeps its engine and options.
        config = replace(
            config,
            engine=engines.choose_engine(chosen, config, loss=encoding.loss),
        )
        members = count(config.ensemble, "network")
        each = BYTES_PER_PARAMETER * chosen.n_stored + 8 * len(prepared.train) + BYTES_PER_MEMBER
        machine.require_memory(config.ensemble * each, f"training {members} of {chosen.n_parameters:,} parameters")
        metric = encoding.metric if config.metric == "auto" else config.metric
        if metric != "loss":
            metrics.fitting(metric, encoding.task)
        return Setup(
            config=config,
            prepared=prepared,
            spec=chosen,
            loss=loss,
            metric=metric if len(prepared.validation) else "loss",
            engine=make_engine(chosen, prepared, config, loss_function),
            began=began,
        )

    def load_start(self, model: TrainedModel) -> None:
        """Load the initial parameters from a model with the same network, members and columns."""
        if not hasattr(model, "check_alike"):
            raise OptionError(
                f"start must be a trained model, as ml.fit(…).model or ml.load(path), got {type(model).__name__}"
            )
        state = self.engine.state()
        model.check_alike("a run with a start model")
        if model.spec != self.spec or len(model.members) != self.members:
            raise OtherNetwork(self.members, self.spec, model)
        tensors = model.tensors
        check_alike(self.prepared.encoding, model.encoding)
        parts = [
            {name: np.asarray(tensors[name]).astype(value.dtype) for name, value in group.items()}
            for group in (state.parameters, state.buffers)
        ]
        averages = {name: value.copy() for name, value in parts[0].items()} if state.averages else {}
        self.engine.load(replace(state, parameters=parts[0], buffers=parts[1], averages=averages))

    def model(self, calibration: Calibration | None = None) -> TrainedModel:
        """Return the model with the current parameters of the engine."""
        return TrainedModel.of(
            self.spec,
            self.prepared.encoding,
            self.engine.state(),
            averaged=self.averaged,
            members=self.members,
            calibration=calibration,
        )

    def effective(self) -> dict[str, Any]:
        """Return the values that were chosen for automatic options, for the reader of a run folder."""
        prepared = self.prepared
        return {
            "task": prepared.encoding.task.kind,
            "loss": prepared.encoding.loss,
            "metric": self.metric,
            "batch_size": chosen_batch(prepared, self.config),
            "rows": len(prepared.train),
            "validation_rows": len(prepared.validation),
            "threads": self.engine.threads,
            "network": str(self.spec),
        }

    @property
    def why_torch(self) -> str | None:
        """The reason why PyTorch trains the network instead of the fused engine. None for other engines."""
        chosen = self.prepared.encoding.loss, self.config.optimizer
        return why_not(self.spec, *chosen) if self.engine.name == "torch" else None

    @property
    def members(self) -> int:
        return self.engine.networks

    @property
    def averaged(self) -> bool:
        return self.config.average is not None

    @functools.cached_property
    def plan(self) -> Plan:
        config = self.config
        batch = chosen_batch(self.prepared, config)
        places = self.engine.places
        rows = self.prepared.train if places is None else np.arange(places)
        steps = -(-min(len(rows), config.epoch_rows or len(rows)) // batch)
        every = config.checkpoint_every or steps * max(1, -(-CHECKPOINT_STEPS // steps))
        return Plan(
            rows=rows,
            batch=batch,
            epochs=cast(int, config.epochs),
            seed=config.seed,
            rate=cast(float, config.learning_rate),
            decay=config.weight_decay,
            rate_schedule=schedules.get(config.schedule),
            decay_schedule=schedules.get(config.decay_schedule),
            dropout_schedule=schedules.get(config.dropout_schedule),
            log_every=LOG_EVERY,
            checkpoint_every=every,
            checkpoints_thin_out=config.checkpoint_every is None,
            metric=self.metric,
            larger=metrics.larger(self.metric),
            seen=config.epoch_rows,
            shuffled=self.prepared.loader_batch is None and places is None,
            repeats=self.prepared.loader_batch is None,
        )

    def policies(self) -> list[Policy]:
        """Return the policies that the configuration and the loss need."""
        config, plan = self.config, self.plan
        ends = np.arange(1, plan.epochs + 1) * plan.steps_per_epoch - 1
        found: list[Policy] = [
            Spikes(on_spike=cast(OnSpike, config.on_spike), most=config.rollbacks),
            Plateau(
                plan.rate_schedule(ends, plan.steps).tolist(),
                epochs=max(10, plan.epochs // PLATEAU_FRACTION),
                remedy=NOT_SEPARABLE if self.loss.zero_when_separated and len(self.spec.layers) == 1 else None,
            ),
        ]
        if self.loss.zero_when_separated:
            found.append(NoMistakes())
        if config.patience is not None:
            found.append(EarlyStopping(self.metric, larger=plan.larger, patience=config.patience))
        if config.time_limit is not None:
            found.append(TimeLimit(config.time_limit, began=self.began))
        return found

    def calibration(self, engine: Engine) -> Calibration | None:
        """Calibrate the model on the held-out rows. None if the configuration has no calibration.

        The temperature of an ensemble is fitted on predictions for rows on which a member did not train.
        """
        if not self.config.calibrate:
            return None
        data, rows, loss = self.prepared.data, self.prepared.validation, losses.unsmoothed(self.loss)
        targets = np.zeros((0, 0)) if loss.classes else data.y[self.prepared.train]
        y, weight = data.y[rows], None if data.weight is None else data.weight[rows]
        found = calibrated(loss, engine.outputs(rows, averaged=self.averaged), y, weight, targets)
        if engine.networks > 1 and loss.gives_probabilities and len(rows):
            members = engine.member_outputs(rows, averaged=self.averaged)
            trained = member_rows(self.prepared, engine.networks)
            seen = np.stack([np.isin(rows, member) for member in trained])
            joint = ensemble_temperature(loss, members, seen, y, weight, found.temperature)
            return replace(found, temperature=joint, out_of_fold=found.temperature)
        return found

    def evaluate(self, engine: Engine, calibration: Calibration | None = None) -> tuple[float | None, dict[str, float]]:
        """Return the loss and the metrics on the validation rows, or None and an empty dictionary without such rows."""
        rows = self.prepared.validation
        if not len(rows):
            return None, {}
        data = self.prepared.data
        y, weight = data.y[rows], np.ones(len(rows)) if data.weight is None else data.weight[rows]
        encoding = self.prepared.encoding
        names = {*metrics.USUAL[encoding.task.kind], *([] if self.metric == "loss" else [self.metric])}
        # The metrics of a network that has diverged are infinite.
        with np.errstate(over="ignore", invalid="ignore"):
            if calibration is not None and engine.networks > 1 and not self.prepared.folds:
                members = engine.member_outputs(rows, averaged=self.averaged)
                # No member trained on these rows, so this is the prediction of the model.
                z = combined(self.loss, list(members), calibration)
            else:
                out_of_fold = None if calibration is None else calibration.for_out_of_fold
                z = combined(self.loss, [engine.outputs(rows, averaged=self.averaged)], out_of_fold)
            loss = self._loss(z, y, weight)
            found = metrics.measure(
                encoding.task,
                y,
                z,
                loss=encoding.loss,
                weight=None if data.weight is None else weight,
                names=sorted(names),
            )
        return loss, found

    def _loss(self, z: NDArray[np.float64], y: NDArray[Any], weight: NDArray[Any]) -> float:
        """Return the mean loss over rows.

        With calibration, this is the loss at the best temperature and without label smoothing: calibration at the end
        corrects the confidence of a network, so only its wrong classes should select the epoch (Berta et al. 2025).
        """
        loss = self.loss
        if self.config.calibrate and loss.gives_probabilities:
            loss = losses.unsmoothed(loss)
            z = z / temperature(loss, z, y, weight)
        return float((loss.rows(z, y) * weight).sum() / weight.sum())

    def fingerprint(self) -> str:
        """Return a hash of the encoded rows, their split and the encoding. `resume` uses it to detect changed data.

        The encoding matters because rows that are multiplied by 2 are equal after scaling. A loader may return other
        rows each time, so its hash covers only shapes, batch size and classes.
        """
        if self.prepared.loader_batch is not None:
            data, classes = self.prepared.data, self.prepared.encoding.task.classes
            facts = (data.x.shape, data.y.shape, self.prepared.loader_batch, classes)
            return hashlib.sha256(repr(facts).encode()).hexdigest()
        digest, encoding = self._row_digest(), self.prepared.encoding
        task, numbers = encoding.task, (encoding.center, encoding.scale, encoding.fill)
        for array in (*numbers, np.asarray(task.mean), np.asarray(task.std)):
            digest.update(array.astype(np.float64).tobytes())
        values = [[str(value) for value in words.to_pylist()] for words in encoding.vocabularies.values()]
        digest.update(repr(([[str(name) for name in names] for names in task.classes], values)).encode())
        return f"{_WITH_ENCODING}{digest.hexdigest()}"

    def matches(self, fingerprint: str) -> bool:
        """Return whether a run with this fingerprint was trained on the same data. Older runs hashed only the rows."""
        if self.prepared.loader_batch is None and not fingerprint.startswith(_WITH_ENCODING):
            return self._row_digest().hexdigest() == fingerprint
        return self.fingerprint() == fingerprint

    def _row_digest(self) -> Any:
        digest, data = hashlib.sha256(), self.prepared.data
        split = (self.prepared.train, self.prepared.validation, *self.prepared.folds)
        for part in pieces(*data.x.shape):
            digest.update(np.ascontiguousarray(data.x[part]).tobytes())
        for array in (data.y, data.codes, data.weight, *split):
            if array is not None:
                digest.update(np.ascontiguousarray(array).tobytes())
        return digest


def check_alike(encoding: Encoding, other: Encoding) -> None:
    """Raise an error if a start model was trained on other columns, or on other categories of a column."""
    ours, theirs = ([c for c in one.columns if c.kind != "drop"] for one in (encoding, other))
    if [(c.name, c.kind, c.parts, c.indicator) for c in ours] != [
        (c.name, c.kind, c.parts, c.indicator) for c in theirs
    ]:
        had, got = (", ".join(repr(c.name) for c in one[:20]) for one in (theirs, ours))
        raise OptionError(f"the start model has the columns {had}, but the data has {got}: train without it")
    for name, values in encoding.vocabularies.items():
        if not values.equals(other.vocabularies[name]):
            had, got = (short(one.to_pylist()) for one in (other.vocabularies[name], values))
            raise OptionError(
                f"the start model has the values {had} of {name!r}, but the data has {got}: train without it"
            )


def check_loader(config: Config) -> None:
    """Raise an error for options that need a table. It is called before the loader is read."""
    if config.engine not in ("auto", "torch"):
        got = f"got engine={config.engine!r}"
        raise OptionError(f"a loader needs the torch engine, {got}: omit engine, or pass the dataset of the loader")
    for name in ("augment", "class_weight", "epoch_rows"):
        if getattr(config, name) is not None:
            got = f"got {name}={getattr(config, name)!r}"
            raise OptionError(f"{name} is for tables, {got}: let the loader do it")


def with_loader(config: Config, batch: int) -> Config:
    """Return the configuration for a loader with `batch` rows per batch."""
    if config.batch_size not in (None, batch):
        raise OptionError(f"the loader makes batches of {batch} rows, got batch_size={config.batch_size}: omit it")
    return replace(config, engine="torch", batch_size=batch)


def make_engine(
    spec: Spec, prepared: TrainingData, config: Config, loss_function: LossFunction | None = None
) -> Engine:
    """Return an engine, or an ensemble of engines if the configuration has several members."""
    settings = Settings.of(
        config,
        loss=prepared.encoding.loss,
        loss_function=loss_function,
        rate_factors=config.rate_factors(spec.parameters),
    )
    if config.ensemble == 1:
        # Forward and backward pass need about six FLOPs per row and parameter.
        small = 6 * chosen_batch(prepared, config) * spec.n_parameters < SINGLE_THREAD_FLOPS
        if config.engine == "torch" and config.threads is None and small:
            settings = replace(settings, threads=1)
        return engines.make_engine(spec, prepared.data, settings, prepared.train)
    if prepared.loader_batch is not None:
        raise OptionError(f"a loader trains one network, got ensemble={config.ensemble}: give its dataset")
    if prepared.folds and config.augment is not None and "mixup" in config.augment:
        share = option("validation", "0.2")
        raise OptionError(f"mixup would use rows that a member holds out: hold out the same rows for all, {share}")
    return engines.make_ensemble(spec, prepared.data, settings, member_rows(prepared, config.ensemble))


def member_rows(prepared: TrainingData, members: int) -> list[NDArray[np.int64]]:
    """Return the training rows of each ensemble member: all rows except those of its fold."""
    folds = prepared.folds or [np.zeros(0, dtype=np.int64)]
    return [np.setdiff1d(prepared.train, folds[i % len(folds)], assume_unique=True) for i in range(members)]


@functools.cache
def versions() -> Mapping[str, str]:
    """Return the versions of Python and the packages, for the log. Cached, because the lookup of torch is slow."""
    from importlib.metadata import PackageNotFoundError, version

    found = {"python": platform.python_version(), "multilayer": __version__, "numpy": np.__version__}
    with contextlib.suppress(PackageNotFoundError):  # without importing torch
        found["torch"] = version("torch")
    return found
