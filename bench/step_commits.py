"""Compare the time of a training step between two commits on the fused engine.

    python bench/step_commits.py OLD NEW [--rounds 7] [--only 784-256-128-10]

Both commits are checked out as git worktrees, as in `compare_commits.py`. One process of each commit stays open for a
network. The processes alternate, and the best round of each counts. Only `ml.fit` is called, so the commits may differ
in everything else. The time of a step is that of a fit with 12 epochs minus one with 2 epochs, as in `step.py`. The
exit code is 1 if a network takes more than 3 % longer with NEW.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from compare_commits import Side, git

LIMIT = 1.03
CASES = (
    ("784-256-128-10", 32),
    ("784-256-128-10", 256),
    ("50-256-256-10", 256),
    ("20-64-64-2", 32),
    ("20-64-64-2", 256),
    ("20-128:none-[layernorm-512:gelu:dropout(0.1)-128]*4-10", 128),
)
STEPS = 60
WORKER = """
import json, sys, time
import numpy as np
import multilayer as ml
text, batch, steps, inputs = json.loads(sys.argv[1])
x = np.random.default_rng(0).standard_normal((batch * steps, inputs)).astype(np.float32)
y = x[:, : int(text.rsplit("-", 1)[1])].argmax(1)
for line in sys.stdin:
    started = time.perf_counter()
    ml.fit(text, (x, y), engine="fused", loss="cross_entropy", optimizer="adam", batch_size=batch, epochs=int(line),
           validation=None, quiet=True)
    print(time.perf_counter() - started, flush=True)
"""


class Worker:
    """A process of one commit that fits one network for the requested number of epochs and answers with the seconds."""

    def __init__(self, side: Side, text: str, batch: int) -> None:
        case = json.dumps([text, batch, STEPS, int(text.split("-")[0])])
        pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        self.process = subprocess.Popen([sys.executable, "-c", WORKER, case], env=side.environment, **pipes)
        self.ask(2)  # imports and measurements that happen only once

    def ask(self, epochs: int) -> float:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        print(epochs, file=self.process.stdin, flush=True)
        answer = self.process.stdout.readline()
        if not answer:
            raise SystemExit("a commit stopped during `ml.fit`, see the error above")
        return float(answer)

    def close(self) -> None:
        self.process.communicate()


def main() -> int:
    parser = argparse.ArgumentParser(description="Compare the time of a training step between two commits.")
    parser.add_argument("old")
    parser.add_argument("new")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--only", choices=sorted({text for text, _ in CASES}), help="one network")
    options = parser.parse_args()
    worst = 0.0
    with tempfile.TemporaryDirectory(prefix="step-") as name:
        folder = Path(name).resolve()
        try:
            sides = [Side(side, git("rev-parse", getattr(options, side)), folder, folder) for side in ("old", "new")]
            for text, batch in CASES:
                if options.only not in (None, text):
                    continue
                workers = [Worker(side, text, batch) for side in sides]
                best = [[float("inf"), float("inf")] for _ in workers]
                for _ in range(options.rounds):
                    for worker, times in zip(workers, best, strict=True):
                        for i, epochs in enumerate((2, 12)):
                            times[i] = min(times[i], worker.ask(epochs))
                for worker in workers:
                    worker.close()
                old, new = (1e6 * (long - short) / (10 * STEPS) for short, long in best)
                worst = max(worst, new / old)
                print(f"{text:<56} {batch:>4} {old:>8.1f} → {new:>8.1f} µs per step, {new / old:.3f}", flush=True)
        finally:
            for tree in folder.glob("*-tree"):
                git("worktree", "remove", "--force", str(tree))
    return int(worst > LIMIT)


if __name__ == "__main__":
    sys.exit(main())
