"""How fast is a training step, against PyTorch, torch.compile, JAX and scikit-learn on the same cores?

Ours is `ml.fit` as a user calls it, shuffling and gathering included: the time of 12 epochs less that of 2, by the
clock outside the call. Peers run in an environment of their own (`--peers PYTHON`; made in .venv-peers where not
given) with the order of rows precomputed, PyTorch at the best of one and all threads. Rounds alternate between all of
them and the best of each counts. The share of peak is of numpy's float32 product of 2048³ in the same rounds; the first
layer's unused dA is not counted as work.

    python bench/step.py [--rounds 5] [--only 784-256-128-10] [--json FILE] [--peers PYTHON]
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import multilayer as ml
from multilayer import machine, random

HERE = Path(__file__).parent
STEPS = 60
MEMBERS = 8


@dataclass(frozen=True)
class Case:
    widths: tuple[int, ...]
    batch: int
    ratio: float
    share: float | None = None
    members: int = 1

    @property
    def text(self) -> str:
        return "-".join(map(str, self.widths))

    @property
    def flops(self) -> int:
        """Matrix products of a step; `actual` leaves out the first layer's dA."""
        cost = ml.cost(self.text, batch=self.batch, optimizer="adam")
        layers = sum(int(x.forward.matmul) + int(x.backward.dW) + int(x.backward.dA) for x in cost.layers)
        return layers * self.members


CASES = (
    Case((784, 256, 128, 10), 32, 2.0, 0.72),
    Case((784, 256, 128, 10), 256, 1.45, 0.80),
    Case((50, 256, 256, 10), 256, 1.5, 0.62),
    Case((20, 64, 64, 2), 32, 3.0),
    Case((20, 64, 64, 2), 256, 2.2),
)


class Peers:
    """The process that times other tools."""

    def __init__(self, python: Path) -> None:
        self.python = python
        self._process = subprocess.Popen(
            [str(python), str(HERE / "peers.py")], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def seconds(self, **request: Any) -> list[float]:
        print(json.dumps(request), file=self._process.stdin, flush=True)
        answer = self._process.stdout.readline() if self._process.stdout else ""
        if not answer:
            raise SystemExit(f"{request['peer']} failed; see above")
        return json.loads(answer)

    def versions(self) -> dict[str, str]:
        done = subprocess.run([str(self.python), str(HERE / "peers.py"), "--versions"], capture_output=True, check=True)
        return json.loads(done.stdout)


def environment() -> Path:
    """An environment with the peers, made once."""
    folder = HERE.parent / ".venv-peers"
    python = folder / "bin" / "python"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
        constraints = str(HERE.parent / "constraints.txt")
        wanted = ["torch", "numpy", "scikit-learn", "jax", "jaxlib"]
        subprocess.run([str(python), "-m", "pip", "install", "-q", "-c", constraints, *wanted], check=True)
    return python


def made(case: Case) -> tuple[np.ndarray, np.ndarray]:
    x = random.normal(0, random.Purpose.DATA, rows=case.batch * STEPS, units=case.widths[0]).astype(np.float32)
    return x, x[:, : case.widths[-1]].argmax(1)


def ours(case: Case, data: tuple[np.ndarray, np.ndarray], threads: int) -> list[float]:
    taken: list[float] = []
    for epochs in (2, 12):
        start = time.perf_counter()
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
        taken.append(time.perf_counter() - start)
    return taken


def peak() -> float:
    """FLOP/s of numpy's product, the best of a few."""
    a = np.ones((2048, 2048), dtype=np.float32)
    best = float("inf")
    for _ in range(3):
        start = time.perf_counter()
        a @ a
        best = min(best, time.perf_counter() - start)
    return 2 * 2048**3 / best


def measure(case: Case, peers: Peers, rounds: int, threads: int) -> dict[str, Any]:
    data = made(case)
    asked = {"widths": case.widths, "batch": case.batch, "steps": STEPS}
    contenders: dict[str, dict[str, Any]] = {"sklearn": {}, "jax": {}}
    for n in sorted({1, threads}):
        contenders |= {f"torch, {n}": {"threads": n}, f"torch.compile, {n}": {"threads": n}}
    times: dict[str, list[list[float]]] = {}
    peaks: list[float] = []
    ours(case, data, threads)  # what is imported and measured once
    for round_ in range(rounds):
        peaks.append(peak())
        times.setdefault("multilayer", []).append(ours(case, data, threads))
        for name, how in contenders.items():
            taken = peers.seconds(peer=name.split(",")[0], warm=round_ == 0, **asked, **how)
            times.setdefault(name, []).append(taken)
    # The best of each length on its own: a disturbed short run must not make a long one look fast.
    shortest = {name: np.min(values, axis=0) for name, values in times.items()}
    best = {name: float(long - short) / (10 * STEPS) for name, (short, long) in shortest.items()}
    peer = min((name for name in best if name != "multilayer"), key=best.__getitem__)
    return {
        "network": case.text,
        "batch": case.batch,
        "microseconds": {name: round(1e6 * value, 1) for name, value in best.items()},
        "best peer": peer,
        "ratio": best[peer] / best["multilayer"],
        "wanted": case.ratio,
        "share of peak": case.flops / best["multilayer"] / max(peaks),
        "share wanted": case.share,
        "peak GFLOP/s": max(peaks) * 1e-9,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", help="one network")
    parser.add_argument("--threads", type=int, default=machine.threads())
    parser.add_argument("--peers", type=Path, help="a Python that has torch, jax and scikit-learn")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    peers = Peers(options.peers or environment())
    results = []
    print(f"µs a step with Adam, best of {options.rounds} rounds, {options.threads} threads\n")
    columns = f"{'ours':>8} {'best peer':>24} {'ratio':>6} {'wanted':>6} {'peak':>5} {'wanted':>6}"
    print(f"{'network':<16} {'batch':>5} {columns}")
    for case in CASES:
        if options.only not in (None, case.text):
            continue
        r = measure(case, peers, options.rounds, options.threads)
        results.append(r)
        mine, theirs = r["microseconds"]["multilayer"], r["microseconds"][r["best peer"]]
        wanted = "" if case.share is None else f"{case.share:.0%}"
        print(
            f"{case.text:<16} {case.batch:>5} {mine:>8.1f} {r['best peer'] + f' {theirs:.1f}':>24} "
            f"{r['ratio']:>6.2f} {case.ratio:>6.2f} {r['share of peak']:>5.0%} {wanted:>6}",
            flush=True,
        )
    about = {
        "processor": machine.processor(),
        "peers": peers.versions(),
        "multilayer": ml.__version__,
        "numpy": np.__version__,
        "load": os.getloadavg()[0],
        "date": time.strftime("%Y-%m-%d"),
    }
    text = json.dumps({"question": "step", "results": results, "about": about}, indent=2, ensure_ascii=False)
    if options.json:
        options.json.write_text(text + "\n")
    else:
        print(f"\n{text}")


if __name__ == "__main__":
    main()
