"""How fast is a prediction, one row and ten thousand, against ONNX Runtime, PyTorch and scikit-learn on the same cores?

Ours is the packed program's own call on arrays that are ready, as the peers' calls are: ONNX Runtime with the graph
written by hand, PyTorch in inference mode, eager and compiled, all at the best of one and all threads. Peers run in an
environment of their own (`--peers PYTHON`; made in .venv-peers where not given). Rounds alternate between all of them
and the best of each counts. That one row has the bits it has in a batch is checked.

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
"""Rows, the ratio wanted, and calls that are timed together."""


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
            assert (one == everything[row]).all(), "one row must have the bits of the batch"

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
    wanted, calls = ROWS[rows]
    mine = Ours(NETWORKS[name], threads)
    contenders: dict[str, dict[str, Any]] = {}
    for n in sorted({1, threads}):
        for peer in ("onnxruntime", "torch", "torch.compile"):
            contenders[f"{peer}, {n}"] = {"threads": n}
    if name != "recipe":
        contenders["sklearn"] = {}
    best: dict[str, float] = {}
    for _ in range(rounds):
        rest()
        found = {"multilayer": mine.seconds(rows, calls)}
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
        "wanted": wanted,
        "bytes": mine.program.bytes,
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
    print(f"µs a call, best of {options.rounds} rounds, {options.threads} threads\n")
    print(f"{'network':<16} {'rows':>6} {'ours':>10} {'best peer':>28} {'ratio':>6} {'wanted':>6}")
    for name in NETWORKS:
        for rows in ROWS:
            if options.only not in (None, name):
                continue
            r = measure(name, rows, peers, options.rounds, options.threads)
            results.append(r)
            mine, theirs = r["microseconds"]["multilayer"], r["microseconds"][r["best peer"]]
            peer = f"{r['best peer']} {theirs:.1f}"
            print(f"{name:<16} {rows:>6} {mine:>10.1f} {peer:>28} {r['ratio']:>6.2f} {r['wanted']:>6.2f}", flush=True)
    report("predict", results, options, about=about(peers))


if __name__ == "__main__":
    main()
