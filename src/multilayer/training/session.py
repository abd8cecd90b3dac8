"""A run put together: data prepared, network chosen, engine made, plan drawn up. What `fit` and `resume` share."""

from __future__ import annotations

import hashlib
import platform
from dataclasses import dataclass
from typing import Any, cast

import numpy as np

from .. import losses, metrics, networks, schedules
from ..data import Encoding, Prepared
from ..engine import Engine, Settings
from ..engine.numpy_engine import NumpyEngine
from ..errors import SpecError
from ..losses import Loss
from ..spec import Spec
from .config import Config
from .loop import Plan
from .policies import EarlyStopping, OnSpike, Plateau, Spikes, TimeLimit
from .protocol import Policy

LOG_EVERY = 50
CHECKPOINT_STEPS = 200


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
        loss = losses.get(encoding.loss)
        chosen = choose_network(spec, encoding)
        metric = encoding.metric if config.metric == "auto" else config.metric
        return Session(
            config=config,
            prepared=prepared,
            spec=chosen,
            loss=loss,
            metric=metric if len(prepared.validation) else "loss",
            engine=make_engine(chosen, prepared, config),
        )

    @property
    def averaged(self) -> bool:
        return self.config.average is not None

    @property
    def larger(self) -> bool:
        return self.metric != "loss" and metrics.get(self.metric).better == "higher"

    def plan(self) -> Plan:
        config = self.config
        rows = len(self.prepared.train)
        batch = batch_size(rows) if config.batch_size is None else config.batch_size
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
        z = engine.outputs(rows, averaged=self.averaged).astype(np.float64)
        batch = self.prepared.data.take(rows)
        values = self.loss.rows(z, batch.y)
        weight = np.ones(len(rows)) if batch.weight is None else batch.weight
        loss = float((values * weight).sum() / weight.sum())
        encoding = self.prepared.encoding
        names = {*metrics.USUAL[encoding.task.kind], *([] if self.metric == "loss" else [self.metric])}
        found = metrics.measure(encoding.task, batch.y, z, loss=encoding.loss, weight=batch.weight, names=sorted(names))
        return loss, found

    def fingerprint(self) -> str:
        """A hash of the encoded rows and how they are split, so that a resume notices other data."""
        digest = hashlib.sha256()
        data = self.prepared.data
        for array in (data.x, data.y, data.codes, data.weight, self.prepared.train, self.prepared.validation):
            if array is not None:
                digest.update(np.ascontiguousarray(array).tobytes())
        return digest.hexdigest()


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
    from ..engine.torch_engine import TorchEngine

    return TorchEngine(
        spec,
        prepared.data,
        settings,
        init=config.init,
        dtype=cast(Any, config.dtype),
        device=config.device,
        compile=config.compile,
        threads=config.threads,
    )


def versions() -> dict[str, str]:
    """What the run was made with, for its log."""
    from importlib.metadata import version

    return {"python": platform.python_version(), **{name: version(name) for name in ("multilayer", "numpy", "torch")}}
