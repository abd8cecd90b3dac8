"""A run put together: data prepared, network chosen, engine made, plan drawn up. What `fit` and `resume` share."""

from __future__ import annotations

import hashlib
import platform
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np

from .. import losses, metrics, networks, schedules
from ..data import Encoding, Prepared
from ..engine import Engine, Settings
from ..engine.fused_engine import FusedEngine
from ..engine.fused_program import why_not
from ..engine.numpy_engine import NumpyEngine
from ..errors import OptionError, SpecError
from ..losses import Loss
from ..spec import Spec
from .config import Config
from .loop import Plan
from .policies import EarlyStopping, OnSpike, Plateau, Spikes, TimeLimit
from .protocol import Policy

LOG_EVERY = 50
CHECKPOINT_STEPS = 200
SMALL_STEP = 5e7
"""Operations of a step that one core does in about a millisecond: a second thread waits more than it works, and on a
machine that others use it waits for its turn as well."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Session:
    """Everything a run needs but where it is kept and who looks on."""

    config: Config
    prepared: Prepared
    spec: Spec
    loss: Loss
    metric: str
    engine: Engine

    @staticmethod
    def make(spec: Spec | str | None, prepared: Prepared, config: Config) -> Session:
        encoding = prepared.encoding
        if prepared.loader_batch is not None:
            config = with_loader(config, prepared.loader_batch)
        loss = losses.get(encoding.loss)
        chosen = choose_network(spec, encoding)
        config = replace(config, engine=choose_engine(chosen, config))  # a run goes on with the engine it began with
        metric = encoding.metric if config.metric == "auto" else config.metric
        return Session(
            config=config,
            prepared=prepared,
            spec=chosen,
            loss=loss,
            metric=metric if len(prepared.validation) else "loss",
            engine=make_engine(chosen, prepared, config),
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
            "threads": getattr(self.engine, "threads", 1),
            "network": str(self.spec),
        }

    @property
    def averaged(self) -> bool:
        return self.config.average is not None

    @property
    def larger(self) -> bool:
        return self.metric != "loss" and metrics.get(self.metric).better == "higher"

    def plan(self) -> Plan:
        config = self.config
        rows, batch = len(self.prepared.train), chosen_batch(self.prepared, config)
        steps = -(-rows // batch)
        every = config.checkpoint_every or steps * max(1, -(-CHECKPOINT_STEPS // steps))
        return Plan(
            rows=self.prepared.train,
            batch=batch,
            epochs=config.epochs,
            seed=config.seed,
            rate=config.learning_rate,
            decay=config.weight_decay,
            rate_schedule=schedules.get(config.schedule),
            decay_schedule=schedules.get(config.decay_schedule),
            dropout_schedule=schedules.get(config.dropout_schedule),
            log_every=LOG_EVERY,
            checkpoint_every=every,
            metric=self.metric,
            larger=self.larger,
            shuffled=self.prepared.loader_batch is None,
        )

    def policies(self) -> list[Policy]:
        config = self.config
        found: list[Policy] = [
            Spikes(on_spike=cast(OnSpike, config.on_spike), most=config.rollbacks),
            Plateau(),
        ]
        if config.patience is not None:
            found.append(EarlyStopping(self.metric, larger=self.larger, patience=config.patience))
        if config.time_limit is not None:
            found.append(TimeLimit(config.time_limit))
        return found

    def evaluate(self, engine: Engine) -> tuple[float | None, dict[str, float]]:
        """Loss and metrics on the validation rows; none where there are none."""
        rows = self.prepared.validation
        if not len(rows):
            return None, {}
        batch = self.prepared.data.take(rows)
        weight = np.ones(len(rows)) if batch.weight is None else batch.weight
        encoding = self.prepared.encoding
        names = {*metrics.USUAL[encoding.task.kind], *([] if self.metric == "loss" else [self.metric])}
        # A network that has left its senses is measured as such: infinite.
        with np.errstate(over="ignore", invalid="ignore"):
            z = engine.outputs(rows, averaged=self.averaged).astype(np.float64)
            loss = float((self.loss.rows(z, batch.y) * weight).sum() / weight.sum())
            found = metrics.measure(
                encoding.task, batch.y, z, loss=encoding.loss, weight=batch.weight, names=sorted(names)
            )
        return loss, found

    def fingerprint(self) -> str:
        """A hash of the encoded rows and how they are split, so that a resume notices other data.

        A loader may give other rows each time: there it is the hash of what they are.
        """
        digest = hashlib.sha256()
        data = self.prepared.data
        if self.prepared.loader_batch is not None:
            about = (data.x.shape, data.y.shape, self.prepared.loader_batch, self.prepared.encoding.task.classes)
            return hashlib.sha256(repr(about).encode()).hexdigest()
        for array in (data.x, data.y, data.codes, data.weight, self.prepared.train, self.prepared.validation):
            if array is not None:
                digest.update(np.ascontiguousarray(array).tobytes())
        return digest.hexdigest()


def check_loader(config: Config) -> None:
    """Refuses what only a table can have, before a user's own loader is read."""
    if config.engine not in ("auto", "torch"):
        got = f"got engine={config.engine!r}"
        raise OptionError(f"a loader needs the torch engine, {got}: leave engine out, or give its dataset")
    for name in ("augment", "class_weight"):
        if getattr(config, name) is not None:
            got = f"got {name}={getattr(config, name)!r}"
            raise OptionError(f"{name} is for tables, {got}: with a loader that is the loader's own work")


def with_loader(config: Config, batch: int) -> Config:
    """The configuration as a loader with batches of so many rows has it."""
    if config.batch_size not in (None, batch):
        raise OptionError(f"the loader makes batches of {batch} rows, got batch_size={config.batch_size}: leave it out")
    return replace(config, engine="torch", batch_size=batch)


def chosen_batch(prepared: Prepared, config: Config) -> int:
    return batch_size(len(prepared.train)) if config.batch_size is None else config.batch_size


def batch_size(rows: int) -> int:
    """256, or the power of two that makes an epoch of about 40 steps where rows are few; at least 16."""
    return max(16, min(256, 1 << max(0, (rows // 40).bit_length() - 1)))


def choose_network(spec: Spec | str | None, encoding: Encoding) -> Spec:
    """The network asked for, checked against the data; or the plain recipe: 256 and 128 GELU units, dropout 0.1."""
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
        raise SpecError(f"the data and {encoding.loss} need {outputs} outputs, but the network has {spec.d_out}")
    return spec


def describe(inputs: Any) -> str:
    numbers = f"{inputs.numeric} numbers"
    return f"{numbers} and {len(inputs.categories)} category columns" if inputs.categories else numbers


def choose_engine(spec: Spec, config: Config) -> str:
    """The fused engine wherever it can run what is asked for; PyTorch is for the rest, and for other devices."""
    if config.engine == "fused" and (config.device == "cuda" or config.compile):
        asked = "device='cuda'" if config.device == "cuda" else "compile=True"
        raise OptionError(f"the fused engine runs on the processor alone, got {asked}: use engine='torch' for it")
    if config.engine != "auto":
        return config.engine
    plain = config.device in ("auto", "cpu") and config.dtype != "bfloat16" and not config.compile
    return "fused" if plain and why_not(spec) is None else "torch"


def make_engine(spec: Spec, prepared: Prepared, config: Config) -> Engine:
    settings = Settings(
        loss=prepared.encoding.loss,
        optimizer=config.optimizer,
        seed=config.seed,
        l2=config.l2,
        clip_norm=config.clip_norm,
        clip_value=config.clip_value,
        average=config.average,
    )
    if config.engine == "numpy":
        dtype = {"float32": np.float32, "float64": np.float64}.get(config.dtype, np.float32)
        return NumpyEngine(spec, prepared.data, settings, init=config.init, dtype=dtype)
    if config.engine == "fused":
        return FusedEngine(spec, prepared.data, settings, init=config.init, dtype=config.dtype, threads=config.threads)
    from ..engine.torch_engine import TorchEngine

    # Forward and backward are about six operations for each row and parameter.
    small = 6 * chosen_batch(prepared, config) * spec.n_parameters < SMALL_STEP
    return TorchEngine(
        spec,
        prepared.data,
        settings,
        init=config.init,
        dtype=cast(Any, config.dtype),
        device=config.device,
        compile=config.compile,
        threads=1 if config.threads is None and small else config.threads,
    )


def versions() -> dict[str, str]:
    """What the run was made with, for its log."""
    from importlib.metadata import version

    return {"python": platform.python_version(), **{name: version(name) for name in ("multilayer", "numpy", "torch")}}
