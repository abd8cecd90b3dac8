"""Measure what the torch engine and the training loop add to a hand-written PyTorch loop.

Three variants do the same work (select rows, forward, cross-entropy, backward, fused Adam):

    bare     a loop over `nn.Sequential` and nothing else
    engine   also reports the loss and gradient norm of every step, and stops before an invalid update
    loop     also everything that `fit` does without a run folder and held-out rows: order, schedules, snapshots,
             policies, events

A run folder adds a checkpoint about every 200 steps. The time of an evaluation is proportional to its rows. Epochs of
the variants alternate. A ratio is the median over neighbouring epochs, so that other processes affect all variants; the
quartiles show their influence. The script checks that all variants end with the same parameters.

The exit code is 1 if the median of a ratio is over its limit.

    python bench/overhead.py [--json FILE] [--rounds 60] [--threads 1,2]
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import time
from pathlib import Path

import numpy as np
import torch
from torch.nn import functional

from multilayer import to_torch
from multilayer.core import random
from multilayer.data.batches import Data
from multilayer.engines import Order, Settings
from multilayer.engines.torch_engine import TorchEngine
from multilayer.nn import schedules
from multilayer.spec import Spec
from multilayer.training import Loop, Plan
from multilayer.training.policies import Plateau, Spikes

LIMIT = 1.05
CASES = (("784-256-128-10", 40), ("20-64-64-2", 200))
"""Networks and steps per epoch. An epoch takes some tens of milliseconds, like the chunks of the loop."""
BATCH = 256
RATE = 1e-3


def made(spec: Spec, steps: int) -> Data:
    """Return normal inputs and a class that depends on them, from the package's random numbers."""
    n = steps * BATCH
    x = random.normal(0, random.Purpose.DATA, rows=n, units=spec.inputs.numeric)
    y = x[:, : spec.d_out].argmax(1)
    return Data(x=x.astype(np.float32), y=y)


def looped(engine: TorchEngine, rounds: int) -> Loop:
    """Return the loop of `fit`, with its policies and an observer that stores the events."""
    events: list[object] = []

    class Log:
        def notice(self, event: object) -> None:
            events.append(event)

    always, rows = schedules.get("constant"), np.arange(len(engine.data))
    plan = Plan(
        rows=rows,
        batch=BATCH,
        epochs=rounds,
        seed=0,
        rate=RATE,
        decay=0.0,
        rate_schedule=always,
        decay_schedule=always,
        dropout_schedule=always,
        log_every=50,
        checkpoint_every=200,
        metric="loss",
        larger=False,
    )
    policies = [Spikes(), Plateau()]
    return Loop(
        plan=plan,
        spec=engine.spec,
        engine=engine,
        policies=policies,
        observers=[Log()],
        evaluate=lambda _: (None, {}),
        save=lambda *_: None,
    )


def measure(text: str, steps: int, rounds: int, threads: int) -> dict[str, float | str | int]:
    spec = Spec.parse(text)
    data = made(spec, steps)
    torch.set_num_threads(threads)
    engine, other = (TorchEngine(spec, data, Settings(loss="cross_entropy")) for _ in range(2))
    loop = looped(other, rounds)
    loop.good = loop._snapshot()
    model = to_torch(engine.model).train()
    optimizer = torch.optim.Adam(model.parameters(), lr=RATE, fused=True)
    x, y = torch.from_numpy(data.x), torch.from_numpy(data.y)
    ones = np.ones(steps)

    def bare(rows: np.ndarray) -> None:
        for index in torch.from_numpy(rows).split(BATCH):
            optimizer.zero_grad()
            loss = functional.cross_entropy(model(x.index_select(0, index)), y.index_select(0, index))
            loss.backward()
            optimizer.step()

    def ours(rows: np.ndarray, epoch: int) -> None:
        order = Order(epoch=epoch, rows=rows, batch=BATCH)
        engine.run(order, rate=RATE * ones, decay=0 * ones, dropout=ones)

    def whole(epoch: int) -> None:
        while loop.position.epoch == epoch:
            loop._chunk()

    def slices(epoch: int, name: str) -> None:
        rows = random.permutation(len(data), seed=0, epoch=epoch)  # the loop draws its own order
        bare(rows) if name == "bare" else ours(rows, epoch)

    times: dict[str, list[float]] = {"bare": [], "engine": [], "loop": []}
    for epoch in range(rounds):
        names = ("bare", "engine", "loop")
        for name in names[epoch % 3 :] + names[: epoch % 3]:
            start = time.perf_counter()
            whole(epoch) if name == "loop" else slices(epoch, name)
            times[name].append(time.perf_counter() - start)
    for in_engine, in_loop, in_bare in zip(
        engine.model.parameters(), other.model.parameters(), model.parameters(), strict=True
    ):
        assert torch.equal(in_engine, in_bare), "the engine has other parameters"
        assert torch.equal(in_loop, in_bare), "the loop has other parameters"
    found: dict[str, float | str | int] = {"network": text, "threads": threads}
    for name, taken in times.items():
        found[name] = 1e6 * float(np.median(taken)) / steps
        low, middle, high = np.percentile(np.divide(taken, times["bare"]), [25, 50, 75])
        if name != "bare":
            found |= {f"{name} ratio": middle, f"{name} quartiles": f"{low:.3f} to {high:.3f}"}
    return found


def over(results: list[dict[str, float | str | int]]) -> list[str]:
    """Return a message for each ratio over the limit."""
    return [
        f"{r['network']}, {r['threads']} threads: {name} {r[name]:.3f} is over {LIMIT}"
        for r in results
        for name in ("engine ratio", "loop ratio")
        if not float(r[name]) <= LIMIT
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--threads", default="1,2")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    threads = [int(part) for part in options.threads.split(",")]
    results = [measure(text, steps, options.rounds, n) for n in threads for text, steps in CASES]
    print(f"µs per step, batch {BATCH}; ratios to the bare loop, required: at most {LIMIT}\n")
    print(f"{'network':<16} threads {'bare':>8} {'engine':>8} {'ratio':>6} {'loop':>8} {'ratio':>6}  quartiles")
    for r in results:
        print(
            f"{r['network']:<16} {r['threads']:>7} {r['bare']:>8.1f} {r['engine']:>8.1f} {r['engine ratio']:>6.3f} "
            f"{r['loop']:>8.1f} {r['loop ratio']:>6.3f}  {r['loop quartiles']}"
        )
    about = {
        "torch": torch.__version__,
        "numpy": np.__version__,
        "python": platform.python_version(),
        "cpu": platform.processor() or platform.machine(),
        "batch": BATCH,
        "load": os.getloadavg()[0],
    }
    text = json.dumps(
        {"question": "overhead", "limit": LIMIT, "results": results, "about": about}, indent=2, ensure_ascii=False
    )
    if options.json:
        options.json.write_text(text + "\n")
    else:
        print(f"\n{text}")
    for line in over(results):
        print(line, file=sys.stderr)
    return 1 if over(results) else 0


if __name__ == "__main__":
    sys.exit(main())
