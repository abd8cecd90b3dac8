"""Measure predictions of one row and of 10,000 rows. Peers: ONNX Runtime, PyTorch and scikit-learn on the same cores.

All tools are called with arrays that are ready. We call the packed program. ONNX Runtime runs a hand-written graph, and
PyTorch runs in inference mode, eagerly and compiled. Each peer is measured with one and with all threads, and the
better result counts. Peers run in a separate environment (`--peers PYTHON`; default: .venv-peers, which is created).
Rounds alternate between all tools, and the best round of each counts. The script checks that the prediction of one row
is bit-identical to its prediction in a batch.

    python bench/predict.py [--rounds 8] [--only recipe] [--json FILE] [--peers PYTHON]
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

import numpy as np
from contest import RECIPE, Peers, about, codes, environment, numbers, report, rest

from multilayer.core import machine
from multilayer.engines.fused_engine import PredictProgram
from multilayer.spec import Spec
from multilayer.spec.initialization import initialise

NETWORKS = {"784-256-128-10": "784-256-128-10", "recipe": RECIPE}
ROWS = {1: (1.5, 200), 10_000: (1.0, 1)}
"""For each number of rows: the required ratio, and the number of calls that are timed together."""


class Ours:
    def __init__(self, text: str, threads: int) -> None:
        spec = Spec.parse(text)
        values = {name: a.astype(np.float32) for name, a in initialise(spec, "auto", seed=0).items()}
        self.program = PredictProgram(spec, values, threads=threads)
        self.x = numbers(max(ROWS), spec.inputs.numeric)
        self.codes = codes(max(ROWS)) if spec.inputs.categories else None
        everything = self._call(len(self.x))()
        for row in (0, 17, 9_999):
            one = self.program.outputs(self.x[row : row + 1], None if self.codes is None else self.codes[row : row + 1])
            assert (one == everything[row]).all(), "one row must give the same bits as the batch"

    def _call(self, rows: int) -> Any:
        x, c = self.x[:rows], None if self.codes is None else self.codes[:rows]
        core = self.program.core
        return lambda: core.outputs(x, c)

    def seconds(self, rows: int, calls: int) -> float:
        call, best = self._call(rows), float("inf")
        for _ in range(5):
            start = time.perf_counter()
            for _ in range(calls):
                call()
            best = min(best, (time.perf_counter() - start) / calls)
        return best


def measure(name: str, rows: int, peers: Peers, rounds: int, threads: int) -> dict[str, Any]:
    required, calls = ROWS[rows]
    ours = Ours(NETWORKS[name], threads)
    contenders: dict[str, dict[str, Any]] = {}
    for n in sorted({1, threads}):
        for peer in ("onnxruntime", "torch", "torch.compile"):
            contenders[f"{peer}, {n}"] = {"threads": n}
    if name != "recipe":
        contenders["sklearn"] = {}
    best: dict[str, float] = {}
    for _ in range(rounds):
        rest()
        found = {"multilayer": ours.seconds(rows, calls)}
        for peer, how in contenders.items():
            rest()
            found[peer] = peers.ask(peer=peer.split(",")[0], network=name, rows=rows, calls=calls, **how)
        best = {key: min(value, best.get(key, float("inf"))) for key, value in found.items()}
    peers.close()
    peer = min((key for key in best if key != "multilayer"), key=best.__getitem__)
    return {
        "network": name,
        "rows": rows,
        "microseconds": {key: round(1e6 * value, 2) for key, value in best.items()},
        "best peer": peer,
        "ratio": best[peer] / best["multilayer"],
        "required": required,
        "bytes": ours.program.bytes,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--only", choices=list(NETWORKS))
    parser.add_argument("--threads", type=int, default=machine.threads())
    parser.add_argument("--peers", type=Path, help="a Python that has torch, onnx, onnxruntime and scikit-learn")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    peers = Peers(options.peers or environment(), "predict_peers.py")
    results = []
    print(f"µs per call, best of {options.rounds} rounds, {options.threads} threads\n")
    print(f"{'network':<16} {'rows':>6} {'ours':>10} {'best peer':>28} {'ratio':>6} {'required':>8}")
    for name in NETWORKS:
        for rows in ROWS:
            if options.only not in (None, name):
                continue
            r = measure(name, rows, peers, options.rounds, options.threads)
            results.append(r)
            ours, theirs = r["microseconds"]["multilayer"], r["microseconds"][r["best peer"]]
            peer = f"{r['best peer']} {theirs:.1f}"
            print(f"{name:<16} {rows:>6} {ours:>10.1f} {peer:>28} {r['ratio']:>6.2f} {r['required']:>8.2f}", flush=True)
    report("predict", results, options, about=about(peers))


if __name__ == "__main__":
    main()
