"""Training a piece at a time: the encoding is that of the first piece, the members go on where they were.

Each call is one pass over its rows at a constant rate. No rows are held out, so there is no best epoch and no
calibration; that is what `fit` is for. A pass after which numbers are not finite is taken back.
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
from ..data.encoding_fit import warn_of_dropped, with_variation
from ..data.table import Rows, Table
from ..data.weights import weights_within
from ..engines import Order, State
from ..errors import DataError, OptionError, warn
from ..models.trained_model import TrainedModel
from ..runs.config import Config
from ..training.inputs import with_config
from ..training.plan import learning_rate
from ..training.recipe import OPTIONS, RATE, Recipe, batch_size, complete, kind_of, options_for
from ..training.setup import Setup

FIRST_RATE_SHARE = 0.1
"""Of the recipe's highest rate: a rate that need not fall."""
RATE_SHARE_AFTER_FIT = 0.01
"""The same after `fit` and `load`: the rate had fallen to nothing, and an optimiser that begins anew takes steps of the
full rate. At ten times as much one pass over the 120 rows of a fit took R² from 0.96 to 0.65."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Partial:
    """Where training is between two pieces."""

    model: TrainedModel
    state: State | None
    """None after `fit` and `load`: the optimiser begins anew with the model's parameters."""
    config: Config
    passes: int = 0
    losses: tuple[float, ...] = ()
    """The mean loss of each pass."""

    @staticmethod
    def begin(
        recipe: Recipe, table: Table, weight: Any, asked: Mapping[str, Any], *, classes: Sequence[int] | None = None
    ) -> Partial:
        """With the first piece. Where there are `classes`, its targets are among them, and it may lack some."""
        config = Config.from_dict({**options_for(recipe, table), **asked, "validation": None, "calibrate": False})
        options = DataOptions(categorical=None, sample_weight=weight, keep_constant="all", classes=classes)
        prepared = make_training_data(table, with_config(options, config))
        warn_of_dropped(prepared.encoding, declarable=False)
        spec, config, _ = complete(recipe, prepared, config, asked.keys())
        if "learning_rate" not in asked:
            config = replace(config, learning_rate=FIRST_RATE_SHARE * cast(float, config.learning_rate))
        setup = Setup.make(spec, prepared, config)
        return Partial(model=setup.model(), state=setup.engine.state(), config=config)._pass(setup)

    @staticmethod
    def after(model: TrainedModel, config: Mapping[str, Any]) -> Partial:
        """Continue with a model that `fit` made, by its configuration."""
        calm = {"validation": None, "calibrate": False, "learning_rate": RATE_SHARE_AFTER_FIT * config["learning_rate"]}
        config = {**config, **calm}
        return Partial(model=model, state=None, config=Config.from_dict(config))

    @staticmethod
    def of_model(model: TrainedModel, *, rows: int, seed: int) -> Partial:
        """Continue with a model from a file: the options are those of the recipe for this number of rows."""
        encoding = model.encoding
        image = encoding.image is not None
        recipe = {
            **({} if image else OPTIONS),
            "learning_rate": RATE_SHARE_AFTER_FIT * (learning_rate(model.spec) if image else RATE[kind_of(encoding)]),
        }
        held = {"ensemble": len(model.members), "loss": encoding.loss, "task": encoding.task.kind, "seed": seed}
        no_rows = {"validation": None, "calibrate": False}
        config = Config.from_dict({**recipe, "batch_size": batch_size(rows), **held, **no_rows})
        return Partial(model=model, state=None, config=config)

    def with_options(self, asked: Mapping[str, Any]) -> Partial:
        """The same by what is asked for since: all but what the network is made of."""
        for name, had in (("ensemble", len(self.model.members)), ("loss", self.model.encoding.loss)):
            if asked.get(name, had) not in (had, "auto"):
                raise OptionError(
                    f"partial_fit goes on with the model that is there, {name}={had!r}, got {name}={asked[name]!r}: "
                    "leave it out, or fit anew"
                )
        moved = asked.get("device", self.config.device) != self.config.device
        engine = "auto" if moved else self.config.engine
        return replace(self, config=replace(self.config, **{**asked, "engine": engine}))

    def go_on(self, piece: Any, weight: Any) -> Partial:
        """One pass over another piece. Its targets are numbers, or numbers of classes."""
        counted, task = _counting(piece, weight), self.model.encoding.task
        numbers = replace(task, classes=tuple(tuple(range(len(names))) for names in task.classes))
        encoding = with_variation(replace(self.model.encoding, task=numbers), counted)
        found = encoding.encode(counted, targets=True)
        assert found.y is not None
        weights = None if weight is None else weights_within(np.asarray(weight, np.float64)[found.rows], np.float32)
        rows = np.arange(len(found.x), dtype=np.int64)
        prepared = TrainingData(
            data=Data(x=found.x, y=found.y, codes=found.codes, weight=weights),
            train=rows,
            validation=rows[:0],
            encoding=replace(encoding, task=task),
            notes=(),
            origin=found.rows,
        )
        setup = Setup.make(self.model.spec, prepared, replace(self.config, init="auto"))
        if self.state is None:
            setup.begin(self.model)
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
            said = "partial_fit: loss, gradient or parameters were not finite, and the model is that before these rows"
            warn(f"{said}; try a lower learning_rate", ConvergenceWarning)
            return replace(self, config=config)
        losses = (*self.losses, float(chunk.loss.mean()))
        return replace(self, model=model, state=state, config=config, passes=self.passes + 1, losses=losses)

    # As bytes

    def to_bytes(self) -> bytes:
        assert self.state is not None, "an estimator keeps what has made a pass"
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


def _counting(piece: Any, weight: Any) -> Any:
    """The rows, of which those of weight 0 have no target: such are left out."""
    if weight is None or np.all(weight):
        return piece
    if not np.any(weight):
        raise DataError(f"{read(piece).name}: no row has a target and a weight above 0: nothing can be learned")
    x, y = piece
    return x, np.where(np.reshape(weight, (-1, *[1] * (y.ndim - 1))) > 0, y, np.nan)


def _has_loss(setup: Setup, rows: Rows) -> bool:
    """Whether the network's loss on some rows is finite: where parameters are so large, none may be."""
    with np.errstate(over="ignore", invalid="ignore"):
        z = np.asarray(setup.engine.outputs(rows, averaged=setup.averaged), np.float64)
        return bool(np.isfinite(setup.loss.rows(z, setup.prepared.data.y[rows])).all())
