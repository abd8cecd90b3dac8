"""Train a network on arrays for a number of steps, without held-out rows, scaling or early stopping.

    task = Task(x=x, y=y, loss="mse")                       # float inputs (B, I); numbers (B, O) or classes (B,)
    trained = train("1-32:tanh-1", task, Training(steps=2000, learning_rate=0.01, seed=3))
    trained.network.outputs(x)                              # (B, O), in float64
    trained.losses, trained.gradient_norms                  # one number per step, over its batch

The rows of each epoch are shuffled, unless one batch has all rows. Training stops at a divergence. Experiments that
need validation or a recipe call `ml.fit`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..core import random
from ..data.batches import Data
from ..engines import Order, Settings
from ..engines.config import EngineConfig
from ..engines.make import choose_engine, make_engine
from ..engines.protocol import dropout_layers
from ..nn import losses, schedules
from ..nn.layers import Pass
from ..nn.layers.passes import Gradients, Values, backward_pass, forward_pass
from ..spec import Spec
from ..spec.initialization import initialise

Floats = NDArray[np.float64]
CHUNK = 4096
"""Largest number of steps of one call of the engine."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Task:
    """Rows to learn. `y` has one number per output, or the class of each row for "cross_entropy"."""

    x: NDArray[Any]
    y: NDArray[Any]
    loss: str = "mse"

    def __len__(self) -> int:
        return len(self.x)

    def rows(self, chosen: Any) -> Task:
        """Return some of the rows."""
        return Task(x=self.x[chosen], y=self.y[chosen], loss=self.loss)

    @property
    def targets(self) -> NDArray[Any]:
        """Targets as a loss takes them: classes (B,), or numbers (B, O)."""
        y = np.asarray(self.y)
        if losses.get(self.loss).classes:
            return y.astype(np.int64)
        return y.astype(np.float64).reshape(len(y), -1)


@dataclass(frozen=True, kw_only=True)
class Training:
    """Options of `train`. `batch=None`, or more than all rows, takes all rows in each step. `at` are numbers of steps
    after which the parameters are stored; 0 stands for the initial ones."""

    steps: int
    learning_rate: float = 0.01
    batch: int | None = None
    optimizer: str = "adam"
    schedule: str = "constant"
    weight_decay: float = 0.0
    l2: float = 0.0
    clip_norm: float | None = None
    init: str = "auto"
    engine: str = "auto"
    dtype: str = "float32"
    seed: int = 0
    at: Sequence[int] = ()


@dataclass(frozen=True, eq=False)
class Network:
    """A network with given tensors, computed with numpy in float64 without dropout."""

    spec: Spec
    tensors: dict[str, Floats]
    """Parameters and buffers by name."""

    @staticmethod
    def initial(spec: Spec | str, init: str = "auto", *, seed: int = 0) -> Network:
        """Return an untrained network."""
        own = Spec.parse(spec) if isinstance(spec, str) else spec
        return Network(own, {k: v.astype(np.float64) for k, v in initialise(own, init, seed=seed).items()})

    def outputs(self, x: ArrayLike) -> Floats:
        """Return raw outputs (B, O)."""
        return self.values(x)[1]

    def values(self, x: ArrayLike) -> tuple[dict[str, Values], Floats]:
        """Return inputs and outputs of every layer by its name, and the outputs of the network (B, O)."""
        found: dict[str, Values] = {}
        z = forward_pass(self.spec.layers, np.asarray(x, np.float64), self._places(), Pass(), found, {})
        return found, z

    def gradients(self, task: Task, *, training: bool = False) -> dict[str, Gradients]:
        """Return the gradients of the mean loss by layer. With `training`, a batch norm uses all rows as its batch."""
        caches: dict[str, Any] = {}
        tensors, found = self._places(), dict[str, Gradients]()
        z = forward_pass(self.spec.layers, task.x.astype(np.float64), tensors, Pass(training=training), {}, caches)
        slope = losses.get(task.loss).slope(z, task.targets) / len(task)
        backward_pass(self.spec.layers, slope, tensors, caches, found)
        return found

    def loss(self, task: Task) -> float:
        """Return the mean loss. It is infinite if an output is not finite."""
        with np.errstate(all="ignore"):
            found = float(losses.get(task.loss).rows(self.outputs(task.x), task.targets).mean())
        return found if np.isfinite(found) else np.inf

    def error(self, task: Task) -> float:
        """Return the share of rows whose class is wrong. One output stands for class 1 where it is positive."""
        z = self.outputs(task.x)
        found = z.argmax(axis=1) if z.shape[1] > 1 else (z[:, 0] > 0).astype(np.int64)
        return float((found != np.asarray(task.y).ravel()).mean())

    def _places(self) -> dict[str, Floats]:
        """Return the tensors by their place in the network. Tied layers share one tensor."""
        stored = {place: self.tensors[name] for place, name in self.spec.tensor_names.items()}
        return stored | {name: self.tensors[name] for name in self.spec.buffers}


@dataclass(frozen=True, kw_only=True, eq=False)
class Trained:
    """The network after the last step, and the history of the training."""

    network: Network
    losses: Floats
    """Mean loss of the batch of each step, before its update."""
    gradient_norms: Floats
    """Norm of the gradient of each step, before clipping."""
    diverged_at: int | None
    """Number of steps before the first loss, gradient or parameter that is not finite, or None. After a divergence,
    `network` is the network before the call of the engine that diverged."""
    stored: dict[int, Network] = field(default_factory=dict[int, Network])
    """The networks after the steps of `Training.at`. A run that diverged has only those before."""


def train(spec: Spec | str, task: Task, options: Training, *, start: Network | None = None) -> Trained:
    """Train a network from its initial parameters, or from those of `start`, with one thread.

    >>> x = np.linspace(-1, 1, 32)[:, None]
    >>> trained = train("1-8:tanh-1", Task(x=x, y=x**2), Training(steps=200, learning_rate=0.02))
    >>> bool(trained.losses[-1] < 0.1 * trained.losses[0])
    True
    """
    own = Spec.parse(spec) if isinstance(spec, str) else spec
    dtype = np.float64 if options.dtype == "float64" else np.float32
    y = task.targets if task.targets.dtype == np.int64 else task.targets.astype(dtype)
    data = Data(x=np.ascontiguousarray(task.x, dtype=dtype), y=y)
    engine = make_engine(own, data, _settings(own, task, options), np.arange(len(task)))
    try:
        if start is not None:
            engine.load(_state(engine.state(), start))
        found: list[tuple[Floats, Floats]] = []
        stored: dict[int, Network] = {}
        network, done, diverged = _network(own, engine.state()), 0, None
        if 0 in options.at:
            stored[0] = network
        for order, factors in _orders(task, options, masked=bool(dropout_layers(own))):
            chunk = engine.run(order, rate=factors.rate, decay=factors.decay, dropout=factors.dropout)
            end = order.steps if chunk.bad is None else chunk.bad
            found.append((chunk.loss[:end], chunk.gradient_norm[:end]))
            if chunk.bad is not None or not chunk.finite:
                diverged = done + end
                break
            done += order.steps
            if done in options.at:
                stored[done] = _network(own, engine.state())
        if diverged is None:
            network = _network(own, engine.state())
    finally:
        engine.close()
    every = [np.concatenate(parts) for parts in zip(*found, strict=True)] if found else [np.zeros(0)] * 2
    return Trained(network=network, losses=every[0], gradient_norms=every[1], diverged_at=diverged, stored=stored)


def _settings(spec: Spec, task: Task, options: Training) -> Settings:
    config = EngineConfig(
        engine=options.engine,
        optimizer=options.optimizer,
        l2=options.l2,
        clip_norm=options.clip_norm,
        init=options.init,
        dtype=options.dtype,
        seed=options.seed,
        threads=1,
    )
    chosen = choose_engine(spec, config, loss=task.loss)
    named = replace(config, engine=chosen)
    return Settings.of(named, loss=task.loss, loss_function=None, rate_factors={})


class _Factors(NamedTuple):
    """Learning rate, weight decay and factor on the dropout rate, for each step."""

    rate: Floats
    decay: Floats
    dropout: Floats


def _orders(task: Task, options: Training, *, masked: bool) -> Iterator[tuple[Order, _Factors]]:
    """Yield the steps of the training in pieces that end at the end of an epoch or at a step of `options.at`."""
    n, batch = len(task), min(options.batch or len(task), len(task))
    per_epoch = -(-n // batch)
    schedule = schedules.get(options.schedule)
    stops = sorted({step for step in options.at if 0 < step < options.steps} | {options.steps})
    first = 0
    for stop in stops:
        while first < stop:
            epoch, within = divmod(first, per_epoch)
            if per_epoch == 1:  # one batch holds all rows, so several epochs can be one piece
                count = 1 if masked else min(stop - first, CHUNK)  # masks of dropout depend on epoch and row
                rows = np.tile(np.arange(n), count)
            else:
                count = min(stop - first, per_epoch - within, CHUNK)
                rows = random.permutation(n, seed=options.seed, epoch=epoch)[within * batch : (within + count) * batch]
            at = np.arange(first, first + count)
            rates = options.learning_rate * schedule(at, options.steps)
            decays = np.full(count, options.weight_decay)
            yield Order(epoch=epoch, rows=rows, batch=batch), _Factors(rates, decays, np.ones(count))
            first += count


def _network(spec: Spec, state: Any) -> Network:
    return Network(spec, {k: v.astype(np.float64) for k, v in (state.parameters | state.buffers).items()})


def _state(state: Any, start: Network) -> Any:
    """Return the state of an engine with the tensors of a network. The optimizer starts from zero."""

    def taken(group: dict[str, Any]) -> dict[str, Any]:
        return {name: start.tensors[name].astype(value.dtype) for name, value in group.items()}

    return replace(state, parameters=taken(state.parameters), buffers=taken(state.buffers))
