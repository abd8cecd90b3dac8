"""Other tools' training steps, timed in an environment of their own; `step.py` starts this and asks.

Reads one JSON request a line, {"peer": "torch", "widths": [784, 256, 128, 10], "batch": 32, "steps": 60, "threads": 2},
and answers with the seconds of two epochs and of twelve. Every peer gets its rows' order
precomputed, trains with Adam on cross-entropy, and keeps what it compiled from one request to the next.

    python bench/peers.py --versions        what is installed
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from functools import cache
from itertools import pairwise
from typing import Any

import numpy as np

Epochs = Callable[[int], None]


def table(widths: tuple[int, ...], rows: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    generator = np.random.default_rng(0)
    x = generator.normal(size=(rows, widths[0])).astype(np.float32)
    return x, x[:, : widths[-1]].argmax(1), generator.permutation(rows)


@cache
def torch_epochs(widths: tuple[int, ...], batch: int, steps: int, threads: int, compiled: bool) -> Epochs:
    import torch
    from torch import nn
    from torch.nn import functional

    torch.set_num_threads(threads)
    x, y, order = (torch.from_numpy(a) for a in table(widths, batch * steps))
    torch.manual_seed(0)
    layers: list[nn.Module] = []
    for d_in, d_out in pairwise(widths):
        layers += [nn.Linear(d_in, d_out), nn.ReLU()]
    model = nn.Sequential(*layers[:-1])
    optimizer = torch.optim.Adam(model.parameters(), fused=True)

    def loss_of(rows: Any, targets: Any) -> Any:
        return functional.cross_entropy(model(rows), targets)

    forward = torch.compile(loss_of) if compiled else loss_of
    batches = order.split(batch)

    def epochs(n: int) -> None:
        torch.set_num_threads(threads)
        for _ in range(n):
            for index in batches:
                optimizer.zero_grad(set_to_none=True)
                forward(x.index_select(0, index), y.index_select(0, index)).backward()
                optimizer.step()

    return epochs


@cache
def jax_epochs(widths: tuple[int, ...], batch: int, steps: int, members: int = 1) -> Epochs:
    """The whole epoch is one compiled program: lax.scan over batches; members are vmapped."""
    import jax
    import jax.numpy as jnp

    x, y, order = (jnp.asarray(a) for a in table(widths, batch * steps))
    generator = np.random.default_rng(0)

    def first() -> list[Any]:
        return [
            (jnp.asarray(generator.normal(size=(i, o)) * np.sqrt(2 / i), dtype=jnp.float32), jnp.zeros(o))
            for i, o in pairwise(widths)
        ]

    def loss_of(parameters: Any, rows: Any, targets: Any) -> Any:
        a = rows
        for w, b in parameters[:-1]:
            a = jax.nn.relu(a @ w + b)
        w, b = parameters[-1]
        logits = jax.nn.log_softmax(a @ w + b)
        return -jnp.take_along_axis(logits, targets[:, None], 1).mean()

    def step(state: Any, rows: Any) -> Any:
        parameters, means, squares, t = state
        gradients = jax.grad(loss_of)(parameters, x[rows], y[rows])
        t = t + 1
        means = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, means, gradients)
        squares = jax.tree.map(lambda v, g: 0.999 * v + 0.001 * g * g, squares, gradients)
        rate, root = 1e-3 / (1 - 0.9**t), jnp.sqrt(1 - 0.999**t)
        parameters = jax.tree.map(
            lambda p, m, v: p - rate * m / (jnp.sqrt(v) / root + 1e-8), parameters, means, squares
        )
        return (parameters, means, squares, t), None

    def epoch(state: Any) -> Any:
        return jax.lax.scan(step, state, order.reshape(steps, batch))[0]

    zeros = lambda tree: jax.tree.map(jnp.zeros_like, tree)  # noqa: E731
    parameters = first()
    state = (parameters, zeros(parameters), zeros(parameters), jnp.float32(0))
    if members > 1:
        several = [first() for _ in range(members)]
        stacked = jax.tree.map(lambda *p: jnp.stack(p), *several)
        state = (stacked, zeros(stacked), zeros(stacked), jnp.zeros(members))
        program = jax.jit(jax.vmap(epoch), donate_argnums=0)
    else:
        program = jax.jit(epoch, donate_argnums=0)
    held = [state]

    def epochs(n: int) -> None:
        for _ in range(n):
            held[0] = program(held[0])
        jax.block_until_ready(held[0])

    return epochs


@cache
def sklearn_epochs(widths: tuple[int, ...], batch: int, steps: int) -> Epochs:
    import warnings

    from sklearn.neural_network import MLPClassifier

    x, y, _ = table(widths, batch * steps)

    def epochs(n: int) -> None:
        model = MLPClassifier(widths[1:-1], batch_size=batch, max_iter=n, n_iter_no_change=n + 1, random_state=0)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model.fit(x, y)

    return epochs


def epochs_of(request: dict[str, Any]) -> Epochs:
    widths, batch, steps = tuple(request["widths"]), request["batch"], request["steps"]
    match request["peer"]:
        case "torch":
            return torch_epochs(widths, batch, steps, request["threads"], compiled=False)
        case "torch.compile":
            return torch_epochs(widths, batch, steps, request["threads"], compiled=True)
        case "jax":
            return jax_epochs(widths, batch, steps)
        case "jax vmap":
            return jax_epochs(widths, batch, steps, request["members"])
        case "sklearn":
            return sklearn_epochs(widths, batch, steps)
        case other:
            raise ValueError(f"unknown peer {other!r}")


def seconds(epochs: Epochs) -> list[float]:
    """Of two epochs and of twelve."""
    taken = []
    for n in (2, 12):
        start = time.perf_counter()
        epochs(n)
        taken.append(time.perf_counter() - start)
    return taken


def versions() -> dict[str, str]:
    from importlib import metadata

    return {name: metadata.version(name) for name in ("torch", "jax", "jaxlib", "scikit-learn", "numpy")}


def main() -> None:
    if "--versions" in sys.argv:
        print(json.dumps(versions()))
        return
    for line in sys.stdin:
        request = json.loads(line)
        epochs = epochs_of(request)
        if request.get("warm"):
            epochs(1)
        print(json.dumps(seconds(epochs)), flush=True)


if __name__ == "__main__":
    main()
