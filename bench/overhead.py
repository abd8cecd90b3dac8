"""What does the torch engine add to a training loop written by hand?

The same work twice: rows by index, forward, cross-entropy, backward, fused Adam. The bare loop uses `nn.Sequential` and
does nothing else; the engine also reports every step's loss and gradient norm and stops before a bad update. Slices of
about 15 ms alternate between the two, and the ratio is the median over pairs of neighbours, so that a busy machine
disturbs both alike; the quartiles say how busy it was. Both end with the same parameters, which is checked.

    python bench/overhead.py [--json FILE] [--rounds 250] [--threads 1]
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import time
from pathlib import Path

import numpy as np
import torch
from torch.nn import functional

from multilayer import random, to_torch
from multilayer.engine import Data, Order, Settings
from multilayer.engine.torch_engine import TorchEngine
from multilayer.spec import Spec

LIMIT = 1.05
CASES = (("784-256-128-10", 4), ("20-64-64-2", 20))
BATCH = 256
RATE = 1e-3


def made(spec: Spec, steps: int) -> Data:
    """Normal inputs and a class that depends on them, from the package's own stream."""
    n = steps * BATCH
    x = random.normal(0, random.Purpose.DATA, rows=n, units=spec.inputs.numeric)
    y = x[:, : spec.d_out].argmax(1)
    return Data(x=x.astype(np.float32), y=y)


def measure(text: str, steps: int, rounds: int) -> dict[str, float | str | int]:
    spec = Spec.parse(text)
    data = made(spec, steps)
    engine = TorchEngine(spec, data, Settings(loss="cross_entropy"))
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

    times: dict[str, list[float]] = {"bare": [], "engine": []}
    for epoch in range(rounds):
        rows = random.permutation(len(data), seed=0, epoch=epoch)
        for name in ("bare", "engine") if epoch % 2 else ("engine", "bare"):
            start = time.perf_counter()
            bare(rows) if name == "bare" else ours(rows, epoch)
            times[name].append(time.perf_counter() - start)
    for mine, theirs in zip(engine.model.parameters(), model.parameters(), strict=True):
        assert torch.equal(mine, theirs), "the two did different work"
    low, middle, high = np.percentile(np.divide(times["engine"], times["bare"]), [25, 50, 75])
    return {
        "network": text,
        "bare": 1e6 * float(np.median(times["bare"])) / steps,
        "engine": 1e6 * float(np.median(times["engine"])) / steps,
        "ratio": middle,
        "quartiles": f"{low:.3f} to {high:.3f}",
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=250)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    results = [measure(text, steps, options.rounds) for text, steps in CASES]
    print(f"µs a step, batch {BATCH}, {options.threads} thread(s); the ratio should be at most {LIMIT}\n")
    print(f"{'network':<16} {'bare':>8} {'engine':>8} {'ratio':>7}  quartiles")
    for r in results:
        print(f"{r['network']:<16} {r['bare']:>8.1f} {r['engine']:>8.1f} {r['ratio']:>7.3f}  {r['quartiles']}")
    about = {
        "torch": torch.__version__,
        "numpy": np.__version__,
        "python": platform.python_version(),
        "cpu": platform.processor() or platform.machine(),
        "threads": options.threads,
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


if __name__ == "__main__":
    main()
