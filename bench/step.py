"""Measure the time of a training step. Peers: PyTorch, torch.compile, JAX and scikit-learn on the same cores.

We call `ml.fit` like a user, with shuffling and gathering of rows. The time of 10 epochs is the time of a call with 12
epochs minus that of a call with 2. The members of an ensemble are engines with one thread each that run in parallel.

Peers run in a separate environment (`--peers PYTHON`; default: .venv-peers, which is created), with a precomputed order
of rows. PyTorch is measured with one and with all threads, and the better result counts. For ensembles, it also runs
in several processes that share the members. pytabkit is measured if that environment contains it. The hand-written
network of the recipe is measured with PyTorch and torch.compile.

Rounds alternate between all tools, and the best round of each counts. The share of peak is relative to numpy's
float32 matrix product of 2048³ in the same rounds. The unused dA of the first layer does not count as work.

    python bench/step.py [--rounds 5] [--only 784-256-128-10] [--json FILE] [--peers PYTHON]
"""

from __future__ import annotations

import argparse
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from contest import LENGTHS, RECIPE, Peers, about, codes, environment, numbers, peak, report, rest

import multilayer as ml
from multilayer.core import machine, random
from multilayer.data.batches import Data
from multilayer.engines import Order, Settings
from multilayer.engines.fused_engine import FusedEngine
from multilayer.spec import Spec

STEPS = 60
"""The default of `--steps`."""


@dataclass(frozen=True)
class Case:
    name: str
    text: str
    batch: int
    required: dict[str, float]
    """The required ratio for each peer, or for the best peer."""
    share: float | None = None
    peers: tuple[str, ...] = ("torch", "torch.compile", "jax", "sklearn")
    members: int = 1

    @property
    def flops(self) -> int:
        """Matrix products of a step, without the first layer's dA."""
        cost = ml.cost(self.text, batch=self.batch, optimizer="adam")
        layers = sum(int(x.forward.matmul) + int(x.backward.dW) + int(x.backward.dA) for x in cost.layers)
        return layers * self.members


def plain(text: str, batch: int, ratio: float, share: float | None = None) -> Case:
    return Case(text, text, batch, {"best": ratio}, share)


CASES = (
    plain("784-256-128-10", 32, 2.0, 0.72),
    plain("784-256-128-10", 256, 1.45, 0.80),
    plain("50-256-256-10", 256, 1.5, 0.62),
    plain("20-64-64-2", 32, 3.0),
    plain("20-64-64-2", 256, 2.2),
    Case("8 × 20-64-64-2", "20-64-64-2", 256, {"best": 3.0}, peers=("torch", "jax vmap"), members=8),
    Case(
        "recipe",
        RECIPE,
        256,
        {"torch": 2.5, "torch.compile": 2.5, "pytabkit": 6.0},
        0.50,
        ("torch", "torch.compile", "pytabkit"),
    ),
    Case(
        "residual",
        "20-128:none-[layernorm-512:gelu:dropout(0.1)-128]*4-10",
        128,
        {"best": 1.5},
        None,
        ("torch", "torch.compile", "jax"),
    ),
)


def made(case: Case, steps: int) -> Any:
    """Rows and classes; a table with columns of categories for the recipe."""
    rows, spec = case.batch * steps, Spec.parse(case.text)
    x = numbers(rows, spec.inputs.numeric)
    y = x[:, : spec.d_out].argmax(1)
    if case.members > 1 or spec.inputs.categories:
        return Data(x=x, codes=codes(rows) if spec.inputs.categories else None, y=y)
    return x, y


def fitted(case: Case, data: Any, epochs: int, threads: int) -> None:
    ml.fit(
        case.text,
        data,
        engine="fused",
        loss="cross_entropy",
        optimizer="adam",
        batch_size=case.batch,
        epochs=epochs,
        validation=None,
        threads=threads,
        quiet=True,
    )


def engines(case: Case, data: Data, epochs: int, threads: int) -> None:
    """Train engines without `fit`: members in parallel, or one engine on all threads. Orders are those of `fit`."""

    def member(seed: int) -> None:
        settings = Settings(loss="cross_entropy", optimizer="adam", seed=seed)
        engine = FusedEngine(Spec.parse(case.text), data, settings, threads=1 if case.members > 1 else threads)
        ones = np.ones(len(data) // case.batch)
        for epoch in range(epochs):
            rows = random.permutation(len(data), seed=seed, epoch=epoch)
            order = Order(epoch=epoch, rows=rows, batch=case.batch)
            engine.run(order, rate=1e-3 * ones, decay=0 * ones, dropout=ones)

    with ThreadPoolExecutor(min(threads, case.members)) as pool:
        list(pool.map(member, range(case.members)))


def ours(case: Case, data: Any, threads: int) -> list[float]:
    taken: list[float] = []
    for epochs in LENGTHS:
        start = time.perf_counter()
        (engines if isinstance(data, Data) else fitted)(case, data, epochs, threads)
        taken.append(time.perf_counter() - start)
    return taken[1:]


def contenders_of(case: Case, peers: Peers, threads: int) -> dict[str, dict[str, Any]]:
    """Return the request options by name of contender. PyTorch has one for each number of threads, and of processes."""
    installed = peers.versions()
    found: dict[str, dict[str, Any]] = {}
    for peer in case.peers:
        if peer in installed or peer != "pytabkit":
            several = sorted({1, threads}) if peer.startswith("torch") else [threads]
            found |= {f"{peer}, {n}" if len(several) > 1 else peer: {"peer": peer, "threads": n} for n in several}
    processes = min(threads, case.members)
    if processes > 1:
        found[f"torch, {processes} processes"] = {"peer": "torch", "threads": 1, "processes": processes}
    return found


def ask(peers: list[Peers], members: int, processes: int = 1, **request: Any) -> list[float]:
    """Distribute the members over parallel processes. The slowest process counts."""
    parts = [len(range(i, members, processes)) for i in range(processes)]
    with ThreadPoolExecutor(processes) as pool:
        found = pool.map(lambda one, part: one.ask(members=part, **request), peers, parts)
        return np.max(list(found), axis=0).tolist()


def measure(case: Case, peers: Peers, rounds: int, threads: int, steps: int) -> dict[str, Any]:
    data = made(case, steps)
    network = case.name if case.name in ("recipe", "residual") else case.text
    request = {"network": network, "batch": case.batch, "steps": steps}
    contenders = contenders_of(case, peers, threads)
    helpers = [peers, *(Peers(peers.python) for _ in range(1, min(threads, case.members)))]
    times: dict[str, list[list[float]]] = {}
    peaks: list[float] = []
    ours(case, data, threads)  # imports and measurements that happen only once
    for round_ in range(rounds):
        peaks.append(peak())
        rest()
        times.setdefault("multilayer", []).append(ours(case, data, threads))
        for name, how in contenders.items():
            rest()
            found = ask(helpers, case.members, warm=round_ == 0, lengths=LENGTHS, **request, **how)
            times.setdefault(name, []).append(found)
    for helper in helpers:
        helper.close()
    # The minimum for each length: a slow short run must not make a long one look fast.
    shortest = {name: np.min(values, axis=0) for name, values in times.items()}
    best = {name: float(long - short) / (10 * steps) for name, (short, long) in shortest.items()}
    theirs = {name: value for name, value in best.items() if name != "multilayer"}
    against = {}
    for peer, ratio in case.required.items():
        of = {name: value for name, value in theirs.items() if peer in ("best", name.split(",")[0])}
        if of:
            fastest = min(of, key=of.__getitem__)
            against[peer] = {"peer": fastest, "ratio": of[fastest] / best["multilayer"], "required": ratio}
    return {
        "network": case.name,
        "batch": case.batch,
        "microseconds": {name: round(1e6 * value, 1) for name, value in best.items()},
        "against": against,
        "share of peak": case.flops / best["multilayer"] / max(peaks),
        "required share": case.share,
        "peak GFLOP/s": max(peaks) * 1e-9,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", choices=sorted({case.name for case in CASES}), help="one network")
    parser.add_argument("--steps", type=int, default=STEPS, help="steps per epoch")
    parser.add_argument("--batch", type=int, help="one batch size")
    parser.add_argument("--threads", type=int, default=machine.threads())
    parser.add_argument("--peers", type=Path, help="a Python that has torch, jax and scikit-learn")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    peers = Peers(options.peers or environment())
    results = []
    print(f"µs per step with Adam, best of {options.rounds} rounds, {options.threads} threads\n")
    columns = f"{'ours':>8} {'best peer':>24} {'ratio':>6} {'required':>8} {'peak':>5} {'required':>8}"
    print(f"{'network':<16} {'batch':>5} {columns}")
    for case in CASES:
        if options.only not in (None, case.name) or options.batch not in (None, case.batch):
            continue
        r = measure(case, peers, options.rounds, options.threads, options.steps)
        results.append(r)
        own = r["microseconds"]["multilayer"]
        share = "" if case.share is None else f"{case.share:.0%}"
        for i, found in enumerate(r["against"].values()):
            peer = f"{found['peer']} {r['microseconds'][found['peer']]:.1f}"
            line = f"{peer:>24} {found['ratio']:>6.2f} {found['required']:>8.2f}"
            row = f"{case.name:<16} {case.batch:>5} {own:>8.1f}" if i == 0 else " " * 31
            print(f"{row} {line} {r['share of peak']:>5.0%} {share:>8}" if i == 0 else f"{row} {line}", flush=True)
    report("step", results, options, about=about(peers))


if __name__ == "__main__":
    main()
