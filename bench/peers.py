"""Time training steps of other tools in a separate environment. `step.py` runs this script.

The script reads one JSON request per line, {"peer": "torch", "network": "784-256-128-10", "batch": 32, "steps": 60,
"threads": 2}, and answers with the seconds of two epochs and of twelve. A network is a string of widths, "recipe" or
"residual". Every peer gets a precomputed order of rows, trains with Adam on cross-entropy, and keeps its compiled
programs for later requests. PyTorch trains the members of an ensemble one after another (step.py also starts several
processes); JAX uses vmap.

    python bench/peers.py --versions        print the installed versions
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


def widths_of(network: str) -> tuple[int, ...]:
    named = {"recipe": (14, 2), "residual": (20, 10)}
    return named.get(network) or tuple(map(int, network.split("-")))


def table(network: str, rows: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    widths = widths_of(network)
    generator = np.random.default_rng(0)
    x = generator.normal(size=(rows, widths[0])).astype(np.float32)
    return x, x[:, : widths[-1]].argmax(1), generator.permutation(rows)


def module_of(network: str) -> Any:
    from torch import nn

    if network == "recipe":
        from recipe_torch import Recipe

        return Recipe()
    if network == "residual":
        from residual_torch import Residual

        return Residual()
    layers: list[nn.Module] = []
    for d_in, d_out in pairwise(widths_of(network)):
        layers += [nn.Linear(d_in, d_out), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


@cache
def torch_epochs(network: str, batch: int, steps: int, threads: int, compiled: bool, members: int) -> Epochs:
    import torch
    from torch.nn import functional

    torch.set_num_threads(threads)
    x, y, order = (torch.from_numpy(a) for a in table(network, batch * steps))
    given = [x]
    if network == "recipe":
        from recipe_torch import CATEGORIES

        given.append(torch.stack([torch.arange(len(x)) % (n + 1) for n in CATEGORIES], 1))
    torch.manual_seed(0)
    batches = order.split(batch)

    def member() -> Callable[[], None]:
        model = module_of(network)
        optimizer = torch.optim.Adam(model.parameters(), fused=True)

        def loss_of(targets: Any, *rows: Any) -> Any:
            return functional.cross_entropy(model(*rows), targets)

        forward = torch.compile(loss_of, dynamic=False) if compiled else loss_of

        def epoch() -> None:
            for index in batches:
                optimizer.zero_grad(set_to_none=True)
                rows = [a.index_select(0, index) for a in given]
                forward(y.index_select(0, index), *rows).backward()
                optimizer.step()

        return epoch

    all_members = [member() for _ in range(members)]

    def epochs(n: int) -> None:
        torch.set_num_threads(threads)
        for epoch in all_members:
            for _ in range(n):
                epoch()

    return epochs


@cache
def jax_epochs(network: str, batch: int, steps: int, members: int = 1) -> Epochs:
    """Return epochs that are one compiled program: lax.scan over batches, vmap over members."""
    import jax
    import jax.numpy as jnp

    x, y, order = (jnp.asarray(a) for a in table(network, batch * steps))
    generator = np.random.default_rng(0)
    residual = network == "residual"
    widths = (20, *[128, 512] * 4, 128, 10) if residual else widths_of(network)
    keys = jax.random.split(jax.random.key(0, impl="unsafe_rbg"), steps)

    def first() -> list[Any]:
        return [
            (jnp.asarray(generator.normal(size=(i, o)) * np.sqrt(2 / i), dtype=jnp.float32), jnp.zeros(o))
            for i, o in pairwise(widths)
        ] + ([(jnp.ones(128), jnp.zeros(128)) for _ in range(4)] if residual else [])

    def plain(parameters: Any, a: Any, key: Any) -> Any:
        for w, b in parameters[:-1]:
            a = jax.nn.relu(a @ w + b)
        w, b = parameters[-1]
        return a @ w + b

    def blocks(parameters: Any, a: Any, key: Any) -> Any:
        (w, b), inner, (last, bias) = parameters[0], parameters[1:9], parameters[9]
        a = a @ w + b
        for i, (scale, shift) in enumerate(parameters[10:]):
            mean, variance = a.mean(1, keepdims=True), a.var(1, keepdims=True)
            h = (a - mean) * jax.lax.rsqrt(variance + 1e-5) * scale + shift
            h = jax.nn.gelu(h @ inner[2 * i][0] + inner[2 * i][1], approximate=False)
            keep = jax.random.bernoulli(jax.random.fold_in(key, i), 0.9, h.shape)
            a = a + jnp.where(keep, h / 0.9, 0.0) @ inner[2 * i + 1][0] + inner[2 * i + 1][1]
        return a @ last + bias

    def loss_of(parameters: Any, rows: Any, targets: Any, key: Any) -> Any:
        logits = jax.nn.log_softmax((blocks if residual else plain)(parameters, rows, key))
        return -jnp.take_along_axis(logits, targets[:, None], 1).mean()

    def step(state: Any, given: Any) -> Any:
        parameters, means, squares, t = state
        rows, key = given
        gradients = jax.grad(loss_of)(parameters, x[rows], y[rows], key)
        t = t + 1
        means = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, means, gradients)
        squares = jax.tree.map(lambda v, g: 0.999 * v + 0.001 * g * g, squares, gradients)
        root = jnp.sqrt(1 - 0.999**t)
        rate = 1e-3 * root / (1 - 0.9**t)
        parameters = jax.tree.map(
            lambda p, m, v: p - rate * m / (jnp.sqrt(v) + 1e-8 * root), parameters, means, squares
        )
        return (parameters, means, squares, t), None

    def epoch(state: Any) -> Any:
        return jax.lax.scan(step, state, (order.reshape(steps, batch), keys))[0]

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
def sklearn_epochs(network: str, batch: int, steps: int) -> Epochs:
    import warnings

    from sklearn.neural_network import MLPClassifier

    x, y, _ = table(network, batch * steps)
    widths = widths_of(network)

    def epochs(n: int) -> None:
        model = MLPClassifier(widths[1:-1], batch_size=batch, max_iter=n, n_iter_no_change=n + 1, random_state=0)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model.fit(x, y)

    return epochs


def epochs_of(request: dict[str, Any]) -> Epochs:
    shape = request["network"], request["batch"], request["steps"]
    threads, members = request.get("threads", 1), request.get("members", 1)
    match request["peer"]:
        case "torch" | "torch.compile" as peer:
            return torch_epochs(*shape, threads, peer == "torch.compile", members)
        case "jax" | "jax vmap":
            return jax_epochs(*shape, members)
        case "sklearn":
            return sklearn_epochs(*shape)
        case "pytabkit":
            from pytabkit_epochs import pytabkit_epochs

            return pytabkit_epochs(request["batch"], request["steps"], threads)
        case other:
            raise ValueError(f"unknown peer {other!r}")


def seconds(epochs: Epochs, lengths: list[int]) -> list[float]:
    """Return the seconds of runs with these numbers of epochs. The first run is not counted."""
    taken = []
    for n in lengths:
        start = time.perf_counter()
        epochs(n)
        taken.append(time.perf_counter() - start)
    return taken[1:]


def versions() -> dict[str, str]:
    from importlib import metadata

    names = ("torch", "jax", "jaxlib", "scikit-learn", "numpy", "pytabkit")
    installed = {found.metadata["Name"].lower(): found.version for found in metadata.distributions()}
    return {name: installed[name] for name in names if name in installed}


def main() -> None:
    if "--versions" in sys.argv:
        print(json.dumps(versions()))
        return
    answers, sys.stdout = sys.stdout, sys.stderr  # output of the tools must not mix with the answers
    for line in sys.stdin:
        request = json.loads(line)
        epochs = epochs_of(request)
        if request.get("warm"):
            epochs(1)
        print(json.dumps(seconds(epochs, request["lengths"])), file=answers, flush=True)


if __name__ == "__main__":
    main()
