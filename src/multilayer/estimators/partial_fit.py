"""Incremental training for `partial_fit`: each call makes one pass over its rows.

The first call fits the encoding. Later calls continue with the parameters and the optimizer state of the previous call.
The learning rate is constant. If the loss or a parameter is not finite after a pass, the pass is undone.

Not included: held-out rows, hence no best epoch and no calibration. Use `fit` for these.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from ..core import tensor_file
from ..data import DataOptions, TrainingData, make_training_data, read
from ..data.batches import Data
from ..data.encoding_fit import with_variation
from ..data.table import Rows, Table
from ..data.weights import weights_within
from ..engines import Order, State
from ..errors import DataError, OptionError, warn
from ..models.trained_model import TrainedModel
from ..runs.config import RECIPE_RATE, Config, kind_of
from ..training.plan import learning_rate
from ..training.recipe import OPTIONS, Recipe, batch_size, complete, options_for
from ..training.setup import Setup

CONSTANT_RATE = 0.1
"""Constant learning rate, as a fraction of the peak learning rate of the recipe."""
RATE_AFTER_FIT = 0.01
"""The same fraction after `fit` and `load`. It is smaller for two reasons: training ended at a learning rate of almost
0, and the first steps are large, because the optimizer state is new. With 0.1, one pass over the 120 rows of a fit
decreased R² from 0.96 to 0.65."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Partial:
    """The state of training between two calls."""

    model: TrainedModel
    state: State | None
    """None after `fit` and `load`: the next pass starts with the parameters of the model and a new optimizer state."""
    config: Config
    passes: int = 0
    losses: tuple[float, ...] = ()
    """The mean loss of each pass."""

    @staticmethod
    def begin(
        recipe: Recipe,
        table: Table,
        weight: Any,
        given: Mapping[str, Any],
        *,
        classes: Sequence[int] | None = None,
        categorical: Any = None,
    ) -> Partial:
        """Train on the first rows. `classes` are all classes of the target; these rows may lack some of them."""
        config = Config.from_dict({**options_for(recipe, table), **given, "validation": None, "calibrate": False})
        options = DataOptions(categorical=categorical, sample_weight=weight, keep_constant="all", classes=classes)
        prepared = make_training_data(table, options, config)
        for note in prepared.warnings:
            warn(note)
        spec, config, _ = complete(recipe, prepared, config, given.keys())
        if "learning_rate" not in given:
            config = replace(config, learning_rate=CONSTANT_RATE * cast(float, config.learning_rate))
        setup = Setup.make(spec, prepared, config)
        return Partial(model=setup.model(), state=setup.engine.state(), config=config)._pass(setup)

    @staticmethod
    def after_fit(model: TrainedModel, config: Mapping[str, Any]) -> Partial:
        """Return the state after `fit`, with the configuration of the fit."""
        changed = {"validation": None, "calibrate": False, "learning_rate": RATE_AFTER_FIT * config["learning_rate"]}
        return Partial(model=model, state=None, config=Config.from_dict({**config, **changed}))

    @staticmethod
    def after_load(model: TrainedModel, *, rows: int, seed: int) -> Partial:
        """Return the state after `load`, with the options of the recipe for this number of rows."""
        encoding = model.encoding
        image = encoding.image is not None
        recipe = {
            **({} if image else OPTIONS),
            "learning_rate": RATE_AFTER_FIT * (learning_rate(model.spec) if image else RECIPE_RATE[kind_of(encoding)]),
        }
        of_model = {"ensemble": len(model.members), "loss": encoding.loss, "task": encoding.task.kind, "seed": seed}
        no_rows = {"validation": None, "calibrate": False}
        config = Config.from_dict({**recipe, "batch_size": batch_size(rows), **of_model, **no_rows})
        return Partial(model=model, state=None, config=config)

    def with_options(self, given: Mapping[str, Any]) -> Partial:
        """Return the state with changed training options. The network and the loss cannot change."""
        for name, current in (("ensemble", len(self.model.members)), ("loss", self.model.encoding.loss)):
            if given.get(name, current) not in (current, "auto"):
                raise OptionError(
                    f"partial_fit continues with the current model, {name}={current!r}, got {name}={given[name]!r}: "
                    f"omit {name}, or call fit"
                )
        moved = given.get("device", self.config.device) != self.config.device
        engine = "auto" if moved else self.config.engine
        return replace(self, config=replace(self.config, **{**given, "engine": engine}))

    def train(self, rows: Any, weight: Any) -> Partial:
        """Make one pass over (X, y). Targets are numbers, or class numbers."""
        weighted, task = _without_zero_weights(rows, weight), self.model.encoding.task
        numbers = replace(task, classes=tuple(tuple(range(len(names))) for names in task.classes))
        encoding = with_variation(replace(self.model.encoding, task=numbers), weighted)
        found = encoding.encode(weighted, targets=True)
        assert found.y is not None
        weights = None if weight is None else weights_within(np.asarray(weight, np.float64)[found.rows], np.float32)
        order = np.arange(len(found.x), dtype=np.int64)
        prepared = TrainingData(
            data=Data(x=found.x, y=found.y, codes=found.codes, weight=weights),
            train=order,
            validation=order[:0],
            encoding=replace(encoding, task=task),
            notes=(),
            origin=found.rows,
        )
        setup = Setup.make(self.model.spec, prepared, replace(self.config, init="auto"))
        if self.state is None:
            setup.load_start(self.model)
        else:
            setup.engine.load(self.state)
        return self._pass(setup)

    def _pass(self, setup: Setup) -> Partial:
        plan, config = setup.plan, replace(self.config, engine=setup.config.engine)
        rows = plan.order(self.passes).rows if setup.members == 1 else plan.rows
        order = Order(epoch=self.passes, rows=rows, batch=min(plan.batch, len(rows)))
        steps = np.ones(order.steps)
        chunk = setup.engine.run(
            order, rate=steps * cast(float, config.learning_rate), decay=steps * config.weight_decay, dropout=steps
        )
        finite = chunk.bad is None and chunk.finite and _has_loss(setup, setup.prepared.train[-order.batch :])
        state, model = setup.engine.state(), setup.model()
        setup.engine.close()
        if not finite:
            message = "partial_fit: loss, gradient or parameters were not finite, so the model was not changed"
            warn(f"{message}; try a lower learning_rate", ConvergenceWarning)
            return replace(self, config=config)
        losses = (*self.losses, float(chunk.loss.mean()))
        return replace(self, model=model, state=state, config=config, passes=self.passes + 1, losses=losses)

    # Pickles

    def to_bytes(self) -> bytes:
        assert self.state is not None, "an estimator stores a state only after a pass"
        extra = {"config": self.config.to_dict(), "passes": self.passes, "losses": [repr(one) for one in self.losses]}
        meta = {"extra": extra, "purpose": "last", "step": self.state.step}
        model = self.model.to_bytes()
        state = tensor_file.encode(self.state.tensors(), meta, kind="checkpoint")
        return len(model).to_bytes(8, "little") + model + state

    @staticmethod
    def from_bytes(data: bytes) -> Partial:
        size = int.from_bytes(data[:8], "little")
        model = TrainedModel.from_bytes(data[8 : 8 + size])
        tensors, meta = tensor_file.decode(data[8 + size :], kind="checkpoint")
        extra = meta["extra"]
        return Partial(
            model=model,
            state=State.from_tensors(tensors),
            config=Config.from_dict(extra["config"]),
            passes=int(extra["passes"]),
            losses=tuple(float(one) for one in extra.get("losses", ())),
        )


def _without_zero_weights(rows: Any, weight: Any) -> Any:
    """Return (X, y) without the targets of rows of weight 0. The encoding drops rows without a target."""
    if weight is None or np.all(weight):
        return rows
    if not np.any(weight):
        raise DataError(
            f"{read(rows).name}: no row has a target and a weight above 0: check the target and the weights"
        )
    x, y = rows
    return x, np.where(np.reshape(weight, (-1, *[1] * (y.ndim - 1))) > 0, y, np.nan)


def _has_loss(setup: Setup, rows: Rows) -> bool:
    """Return whether the loss of the network on some rows is finite. With huge parameters, it may not be."""
    with np.errstate(over="ignore", invalid="ignore"):
        z = np.asarray(setup.engine.outputs(rows, averaged=setup.averaged), np.float64)
        return bool(np.isfinite(setup.loss.rows(z, setup.prepared.data.y[rows])).all())
