"""A run put together: data prepared, network chosen, engine made, plan drawn up. What `fit` and `resume` share."""

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
from ..data import Encoding, TrainingData
from ..engines import Engine, Settings
from ..engines import make as engines
from ..engines.fused_program import why_not
from ..engines.make import EngineOptions
from ..errors import OptionError, SpecError, option
from ..models import metrics
from ..models.trained_model import TrainedModel
from ..nn import losses, schedules
from ..nn.calibration import Calibration, calibrated, combined, ensemble_temperature, temperature
from ..nn.losses import Loss
from ..runs.config import Config
from ..spec import Spec, networks
from .plan import Plan, chosen_batch, with_defaults
from .policies import EarlyStopping, NoMistakes, OnSpike, Plateau, Policy, Spikes, TimeLimit

LOG_EVERY = 50
BYTES_PER_PARAMETER = 16
"""Bytes for the value, its gradient and two moments, in float32."""
BYTES_PER_MEMBER = 1 << 16
"""Least memory of an ensemble member in addition to its parameters and row indices."""
CHECKPOINT_STEPS = 500
"""Minimum number of steps between two checkpoints, unless the user sets the interval."""
NO_PLANE = "a single neuron learns only classes that a line or plane separates: add a hidden layer, such as 2-8:tanh-1"
PLATEAU_PART = 8
"""An eighth of the epochs without progress is a plateau: an epoch of a small table is too short to judge by."""
SMALL_STEP = 5e7
"""Operations of a step that one core does in about a millisecond: a second thread waits more than it works, and on a
machine that others use it waits for its turn as well."""


class OtherNetwork(OptionError):
    """The network of a run differs from the network of its start model."""

    def __init__(self, members: int, spec: Spec, model: TrainedModel) -> None:
        self.members, self.spec = members, spec
        super().__init__(
            f"a run can begin with a model of its own network, {members} × {spec}, got "
            f"{len(model.members)} × {model.spec}: give a model of that network, or begin without one"
        )


@dataclass(frozen=True, kw_only=True, eq=False)
class Setup:
    """Everything a run needs but where it is kept and who looks on."""

    config: Config
    prepared: TrainingData
    spec: Spec
    loss: Loss
    metric: str
    engine: Engine
    began: float | None = None
    """When the clock of a time limit began, by `time.monotonic`; when training does unless said."""

    @staticmethod
    def make(spec: Spec | str | None, prepared: TrainingData, config: Config, *, began: float | None = None) -> Setup:
        encoding = prepared.encoding
        if prepared.loader_batch is not None:
            config = with_loader(config, prepared.loader_batch)
        loss = losses.get(encoding.loss)
        chosen = choose_network(spec, encoding)
        config = with_defaults(config, chosen, prepared)
        # A resumed run keeps its engine and options.
        config = replace(
            config,
            engine=engines.choose_engine(
                chosen, engine_options(config), loss=encoding.loss, optimizer=config.optimizer
            ),
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
            engine=make_engine(chosen, prepared, config),
            began=began,
        )

    def begin(self, model: TrainedModel) -> None:
        """Takes the parameters of a model of the same network to begin with."""
        state = self.engine.state()
        model.check_alike("a run that starts from a model")
        if model.spec != self.spec or len(model.members) != self.members:
            raise OtherNetwork(self.members, self.spec, model)
        found = model.tensors
        check_alike(self.prepared.encoding, model.encoding)
        parts = [
            {name: np.asarray(found[name]).astype(value.dtype) for name, value in group.items()}
            for group in (state.parameters, state.buffers)
        ]
        averages = {name: value.copy() for name, value in parts[0].items()} if state.averages else {}
        self.engine.load(replace(state, parameters=parts[0], buffers=parts[1], averages=averages))

    def model(self, calibration: Calibration | None = None) -> TrainedModel:
        """Return what the engine holds, as a model."""
        return TrainedModel.of(
            self.spec,
            self.prepared.encoding,
            self.engine.state(),
            averaged=self.averaged,
            members=self.members,
            calibration=calibration,
        )

    def effective(self) -> dict[str, Any]:
        """What was chosen where the configuration says auto or nothing; for people, since nothing reads it back."""
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
        """What the fused engine does not run of the network, loss and optimizer, where PyTorch does."""
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
        config, plan = self.config, self.plan
        ends = np.arange(1, plan.epochs + 1) * plan.steps_per_epoch - 1
        found: list[Policy] = [
            Spikes(on_spike=cast(OnSpike, config.on_spike), most=config.rollbacks),
            Plateau(
                plan.rate_schedule(ends, plan.steps).tolist(),
                epochs=max(10, plan.epochs // PLATEAU_PART),
                remedy=NO_PLANE if self.loss.zero_when_separated and len(self.spec.layers) == 1 else None,
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
        """What the rows held out tell of how far to trust the model, where that is asked for."""
        if not self.config.calibrate:
            return None
        data, rows, loss = self.prepared.data, self.prepared.validation, losses.unsmoothed(self.loss)
        targets = np.zeros((0, 0)) if loss.classes else data.y[self.prepared.train]
        y, weight = data.y[rows], None if data.weight is None else data.weight[rows]
        found = calibrated(loss, engine.outputs(rows, averaged=self.averaged), y, weight, targets)
        if engine.networks > 1 and loss.gives_probabilities and len(rows):
            members = engine.member_outputs(rows, averaged=self.averaged)
            seen = np.stack([np.isin(rows, own) for own in member_rows(self.prepared, engine.networks)])
            together = ensemble_temperature(loss, members, seen, y, weight, found.temperature)
            return replace(found, temperature=together, out_of_fold=found.temperature)
        return found

    def evaluate(self, engine: Engine, calibration: Calibration | None = None) -> tuple[float | None, dict[str, float]]:
        """Loss and metrics on the validation rows; none where there are none."""
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
                z = combined(
                    self.loss, list(members), calibration
                )  # no member trained on these rows, so this is the prediction of the model
            else:
                judged = None if calibration is None else calibration.for_out_of_fold
                z = combined(self.loss, [engine.outputs(rows, averaged=self.averaged)], judged)
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
        """The mean over rows. Where a temperature will be found in the end, it is that at the best temperature, by the
        targets as they are: how sure a network is can be mended, what it confuses cannot (Berta et al. 2025)."""
        loss = self.loss
        if self.config.calibrate and loss.gives_probabilities:
            loss = losses.unsmoothed(loss)
            z = z / temperature(loss, z, y, weight)
        return float((loss.rows(z, y) * weight).sum() / weight.sum())

    def fingerprint(self) -> str:
        """A hash of the encoded rows and how they are split, so that a resume notices other data.

        A loader may give other rows each time: there it is the hash of what they are.
        """
        digest = hashlib.sha256()
        data = self.prepared.data
        if self.prepared.loader_batch is not None:
            about = (data.x.shape, data.y.shape, self.prepared.loader_batch, self.prepared.encoding.task.classes)
            return hashlib.sha256(repr(about).encode()).hexdigest()
        split = (self.prepared.train, self.prepared.validation, *self.prepared.folds)
        for part in pieces(*data.x.shape):
            digest.update(np.ascontiguousarray(data.x[part]).tobytes())
        for array in (data.y, data.codes, data.weight, *split):
            if array is not None:
                digest.update(np.ascontiguousarray(array).tobytes())
        return digest.hexdigest()


def check_alike(encoding: Encoding, other: Encoding) -> None:
    """Refuses to go on with parameters that were trained for other columns, or other values of them."""
    mine, theirs = ([c for c in one.columns if c.kind != "drop"] for one in (encoding, other))
    if [(c.name, c.kind, c.parts, c.indicator) for c in mine] != [
        (c.name, c.kind, c.parts, c.indicator) for c in theirs
    ]:
        had, got = (", ".join(repr(c.name) for c in one[:20]) for one in (theirs, mine))
        raise OptionError(f"a run can begin with a model of the columns {had}, got {got}: begin anew, without it")
    for name, values in encoding.vocabularies.items():
        if not values.equals(other.vocabularies[name]):
            had, got = (short(one.to_pylist()) for one in (other.vocabularies[name], values))
            raise OptionError(
                f"a run can begin with a model of the values {had} of {name!r}, got {got}: begin anew, without it"
            )


def check_loader(config: Config) -> None:
    """Refuses what only a table can have, before a user's own loader is read."""
    if config.engine not in ("auto", "torch"):
        got = f"got engine={config.engine!r}"
        raise OptionError(f"a loader needs the torch engine, {got}: leave engine out, or give its dataset")
    for name in ("augment", "class_weight", "epoch_rows"):
        if getattr(config, name) is not None:
            got = f"got {name}={getattr(config, name)!r}"
            raise OptionError(f"{name} is for tables, {got}: with a loader that is the loader's own work")


def with_loader(config: Config, batch: int) -> Config:
    """The configuration as a loader with batches of so many rows has it."""
    if config.batch_size not in (None, batch):
        raise OptionError(f"the loader makes batches of {batch} rows, got batch_size={config.batch_size}: leave it out")
    return replace(config, engine="torch", batch_size=batch)


def choose_network(spec: Spec | str | None, encoding: Encoding) -> Spec:
    """Return `spec`, checked against the data, or the plain network: 256 and 128 GELU units, dropout 0.1."""
    outputs = encoding.outputs
    if spec is None:
        return networks.mlp(encoding.inputs, (256, 128), outputs, activation="gelu", dropout=0.1)
    spec = Spec.parse(spec) if isinstance(spec, str) else spec
    wanted = encoding.inputs
    if spec.inputs != wanted:
        raise SpecError(
            f"the data has {describe(wanted)} after encoding, but the network takes {describe(spec.inputs)}: "
            f"begin it with {wanted.numeric}"
            + (f"+cat({', '.join(map(str, wanted.categories))})" if wanted.categories else "")
        )
    if spec.d_out != outputs:
        wanted = count(outputs, "output")
        if encoding.task.kind == "binary" and encoding.loss == "binary_cross_entropy":
            wanted = "1 output, or 2 with cross_entropy"
        raise SpecError(f"the data and {encoding.loss} need {wanted}, but the network has {spec.d_out}")
    return spec


def describe(inputs: Any) -> str:
    numbers = count(inputs.numeric, "number")
    sizes = ", ".join(map(str, inputs.categories))
    return f"{numbers} and categories of {sizes} values" if inputs.categories else numbers


def make_engine(spec: Spec, prepared: TrainingData, config: Config) -> Engine:
    """Return an engine, or an ensemble of engines if the configuration has several members."""
    settings = Settings(
        loss=prepared.encoding.loss,
        optimizer=config.optimizer,
        rate_factors=config.rate_factors(spec.parameters),
        seed=config.seed,
        l2=config.l2,
        clip_norm=config.clip_norm,
        clip_value=config.clip_value,
        average=config.average,
        statistics_every=config.statistics_every,
    )
    options = engine_options(config)
    if config.ensemble == 1:
        # Forward and backward are about six operations for each row and parameter.
        small = 6 * chosen_batch(prepared, config) * spec.n_parameters < SMALL_STEP
        if config.engine == "torch" and config.threads is None and small:
            options = replace(options, threads=1)
        return engines.make_engine(spec, prepared.data, settings, options, prepared.train)
    if prepared.loader_batch is not None:
        raise OptionError(f"a loader trains one network, got ensemble={config.ensemble}: give its dataset")
    if prepared.folds and config.augment is not None and "mixup" in config.augment:
        share = option("validation", "0.2")
        raise OptionError(f"mixup would mix in rows that a member holds out: name a share of rows, {share}")
    return engines.make_ensemble(spec, prepared.data, settings, options, member_rows(prepared, config.ensemble))


def engine_options(config: Config) -> EngineOptions:
    return EngineOptions(
        name=config.engine,
        init=config.init,
        dtype=config.dtype,
        device=config.device,
        compile=config.compile,
        threads=config.threads,
    )


def member_rows(prepared: TrainingData, members: int) -> list[NDArray[np.int64]]:
    """Return the training rows of each ensemble member: all rows except those of its fold."""
    folds = prepared.folds or [np.zeros(0, dtype=np.int64)]
    return [np.setdiff1d(prepared.train, folds[i % len(folds)], assume_unique=True) for i in range(members)]


@functools.cache
def versions() -> Mapping[str, str]:
    """What the run was made with, for its log; looking them up takes longer than many a step."""
    from importlib.metadata import PackageNotFoundError, version

    found = {"python": platform.python_version()}
    for name in ("multilayer", "numpy", "torch"):
        with contextlib.suppress(PackageNotFoundError):
            found[name] = version(name)
    return found
