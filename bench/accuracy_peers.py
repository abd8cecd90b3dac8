"""Train PyTorch and JAX networks up to an accuracy. `accuracy.py` runs this script.

The script reads one JSON request per line, {"peer": "torch", "file": "a.npz", "batch": 32, "rate": 0.001,
"goal": 0.98, "threads": 2}, and answers with the training time and the number of epochs. The file contains the initial
weights and the order of rows. Compilation is not timed.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

Parts = dict[str, np.ndarray]


def torch_epochs(
    parts: Parts, batch: int, rate: float, threads: int, compiled: bool
) -> tuple[Callable[[Any], None], Callable[[], Any]]:
    import torch
    from torch import nn
    from torch.nn import functional

    torch.set_num_threads(threads)
    model = nn.Sequential(nn.Linear(784, 256), nn.ReLU(), nn.Linear(256, 128), nn.ReLU(), nn.Linear(128, 10))
    with torch.no_grad():
        for i, layer in enumerate((model[0], model[2], model[4])):
            layer.weight.copy_(torch.from_numpy(parts[f"linear{i + 1}_weight"]))
            layer.bias.copy_(torch.from_numpy(parts[f"linear{i + 1}_bias"]))
    optimizer = torch.optim.Adam(model.parameters(), lr=rate, fused=True)
    x, y, x_test = (torch.from_numpy(parts[name]) for name in ("x", "y", "x_test"))

    def loss_of(rows: Any, targets: Any) -> Any:
        return functional.cross_entropy(model(rows), targets)

    forward = torch.compile(loss_of) if compiled else loss_of
    forward(x[:batch], y[:batch]).backward()  # compile before timing; the gradients are dropped

    def epoch(order: np.ndarray) -> None:
        for index in torch.from_numpy(order).split(batch):
            optimizer.zero_grad(set_to_none=True)
            forward(x.index_select(0, index), y.index_select(0, index)).backward()
            optimizer.step()

    def predicted() -> Any:
        with torch.inference_mode():
            return model(x_test).argmax(1).numpy()

    return epoch, predicted


def jax_epochs(parts: Parts, batch: int, rate: float) -> tuple[Callable[[Any], None], Callable[[], Any]]:
    import jax
    import jax.numpy as jnp

    x, y, x_test = (jnp.asarray(parts[name]) for name in ("x", "y", "x_test"))
    first = [
        (jnp.asarray(parts[f"linear{i}_weight"].T.copy()), jnp.asarray(parts[f"linear{i}_bias"])) for i in (1, 2, 3)
    ]
    zeros = jax.tree.map(jnp.zeros_like, first)

    def logits(parameters: Any, a: Any) -> Any:
        for w, b in parameters[:-1]:
            a = jax.nn.relu(a @ w + b)
        return a @ parameters[-1][0] + parameters[-1][1]

    def loss_of(parameters: Any, rows: Any, targets: Any) -> Any:
        return -jnp.take_along_axis(jax.nn.log_softmax(logits(parameters, rows)), targets[:, None], 1).mean()

    def step(state: Any, rows: Any) -> Any:
        parameters, means, squares, t = state
        gradients = jax.grad(loss_of)(parameters, x[rows], y[rows])
        t = t + 1
        means = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, means, gradients)
        squares = jax.tree.map(lambda v, g: 0.999 * v + 0.001 * g * g, squares, gradients)
        root = jnp.sqrt(1 - 0.999**t)
        scaled = rate * root / (1 - 0.9**t)
        moved = jax.tree.map(lambda p, m, v: p - scaled * m / (jnp.sqrt(v) + 1e-8 * root), parameters, means, squares)
        return (moved, means, squares, t), None

    program = jax.jit(lambda state, order: jax.lax.scan(step, state, order)[0])
    predict = jax.jit(logits)
    held = [(first, zeros, zeros, jnp.float32(0))]
    shaped = parts["orders"][0].reshape(-1, batch)
    jax.block_until_ready(program(held[0], shaped))  # compile before timing; the result is dropped

    def epoch(order: np.ndarray) -> None:
        held[0] = jax.block_until_ready(program(held[0], order.reshape(-1, batch)))

    return epoch, lambda: np.asarray(predict(held[0][0], x_test)).argmax(1)


def trained(request: dict[str, Any]) -> dict[str, float]:
    parts = dict(np.load(request["file"]))
    batch, rate = request["batch"], request["rate"]
    if request["peer"] in ("torch", "torch.compile"):
        epoch, predicted = torch_epochs(parts, batch, rate, request["threads"], request["peer"] == "torch.compile")
    else:
        epoch, predicted = jax_epochs(parts, batch, rate)
    taken = 0.0
    for i, order in enumerate(parts["orders"]):
        start = time.perf_counter()
        epoch(order)
        taken += time.perf_counter() - start
        if (predicted() == parts["y_test"]).mean() >= request["goal"]:
            return {"seconds": taken, "epochs": i + 1}
    return {"seconds": float("inf"), "epochs": len(parts["orders"])}


def main() -> None:
    if "--versions" in sys.argv:
        from importlib import metadata

        print(json.dumps({name: metadata.version(name) for name in ("torch", "jax", "jaxlib", "numpy")}))
        return
    for line in sys.stdin:
        print(json.dumps(trained(json.loads(line))), flush=True)


if __name__ == "__main__":
    main()
