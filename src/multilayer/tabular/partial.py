"""Training a piece at a time: the encoding is that of the first piece, the members go on where they were.

Each call is one pass over its rows at a constant rate. No rows are held out, so there is no best epoch and no
calibration; that is what `fit` is for.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from .. import files
from ..data import Prepared, read
from ..engine import Data, Order, State
from ..predictor import Predictor
from ..training.config import Config
from ..training.fit import prepare
from ..training.session import Session
from .recipe import Recipe

CALM = 0.1
"""Of the recipe's highest rate: a rate that need not fall."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Partial:
    """Where training is between two pieces."""

    model: Predictor
    state: State | None
    """None after `fit`: the optimiser begins anew with the model's parameters."""
    config: Config
    passes: int = 0

    @staticmethod
    def begin(recipe: Recipe, piece: Any, weight: Any, asked: Mapping[str, Any], *, classes: int = 0) -> Partial:
        """With the first piece. Where there are `classes`, its targets are their numbers, and it may lack some."""
        table = read(piece)
        config = Config.from_dict({**recipe.before(table), **asked, "validation": None, "calibrate": False})
        prepared = prepare(table, config, validation=None, weight=weight, keep_constant=True)
        if classes:
            task = replace(prepared.encoding.task, kind="multiclass", classes=(tuple(range(classes)),))
            prepared = replace(prepared, encoding=replace(prepared.encoding, task=task))
        spec, config = recipe.network(prepared, config, asked.keys())
        if "learning_rate" not in asked:
            config = replace(config, learning_rate=CALM * config.learning_rate)
        session = Session.make(spec, prepared, config)
        model = Predictor.of(
            session.spec, prepared.encoding, session.engine.state(), averaged=False, members=session.members
        )
        return Partial(model=model, state=session.engine.state(), config=config)._pass(session)

    @staticmethod
    def after(model: Predictor, config: Mapping[str, Any], *, classes: int = 0) -> Partial:
        """Goes on with a model that `fit` made, by its configuration; its targets are class numbers again."""
        if classes and model.encoding.task.kind != "multilabel":
            task = replace(model.encoding.task, classes=(tuple(range(classes)),))
            model = replace(model, encoding=replace(model.encoding, task=task))
        calm = {"validation": None, "calibrate": False, "learning_rate": CALM * config["learning_rate"]}
        return Partial(model=model, state=None, config=Config.from_dict({**config, **calm}))

    def go_on(self, piece: Any, weight: Any) -> Partial:
        """One pass over another piece."""
        found = self.model.encoding.encode(piece, targets=True)
        assert found.y is not None
        weights = None if weight is None else np.asarray(weight, dtype=np.float32)[found.rows]
        rows = np.arange(len(found.x), dtype=np.int64)
        prepared = Prepared(
            data=Data(x=found.x, y=found.y, codes=found.codes, weight=weights),
            train=rows,
            validation=rows[:0],
            encoding=self.model.encoding,
            notes=(),
            origin=found.rows,
        )
        session = Session.make(self.model.spec, prepared, replace(self.config, init="auto"))
        if self.state is None:
            session.begin(self.model)
        else:
            session.engine.load(self.state)
        return self._pass(session)

    def _pass(self, session: Session) -> Partial:
        plan, config = session.plan(), self.config
        rows = plan.order(self.passes).rows if session.members == 1 else plan.rows
        order = Order(epoch=self.passes, rows=rows, batch=min(plan.batch, len(rows)))
        steps = np.ones(order.steps)
        session.engine.run(order, rate=steps * config.learning_rate, decay=steps * config.weight_decay, dropout=steps)
        state = session.engine.state()
        getattr(session.engine, "close", lambda: None)()
        model = Predictor.of(
            session.spec, session.prepared.encoding, state, averaged=session.averaged, members=session.members
        )
        return replace(self, model=model, state=state, passes=self.passes + 1)

    # As bytes

    def to_bytes(self) -> bytes:
        assert self.state is not None, "an estimator keeps what has made a pass"
        extra = {"config": self.config.to_dict(), "passes": self.passes}
        meta = {"extra": extra, "purpose": "last", "step": self.state.step}
        model = self.model.to_bytes()
        state = files.encode(self.state.tensors(), meta, kind="checkpoint")
        return len(model).to_bytes(8, "little") + model + state

    @staticmethod
    def from_bytes(data: bytes) -> Partial:
        size = int.from_bytes(data[:8], "little")
        model = Predictor.from_bytes(data[8 : 8 + size])
        tensors, meta = files.decode(data[8 + size :], kind="checkpoint")
        config = Config.from_dict(meta["extra"]["config"])
        state = State.from_tensors(tensors)
        return Partial(model=model, state=state, config=config, passes=int(meta["extra"]["passes"]))
