"""Parts shared by the benches against other tools: processes of peers, their environment, networks, numpy's peak."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

import multilayer as ml
from multilayer.core import machine, random

HERE = Path(__file__).parent
PEERS = ("torch", "numpy", "scikit-learn", "jax", "jaxlib", "onnx", "onnxruntime")

LENGTHS = (2, 2, 12)
"""Epochs of the runs of a round. The first run is not counted, because an idle processor needs time to speed up."""

CATEGORIES = (2, 2, 3, 5, 8, 12, 20, 40)
RECIPE = (
    f"14+cat({', '.join(map(str, CATEGORIES))})-columns(pbld)-scale-"
    "(linear(256, scale=tangent):blend(selu):dropout(0.15))*3-linear(2, scale=tangent)"
)
"""The tabular recipe's network: 14 numbers and 8 categories, two classes."""


class Peers:
    """Processes that time other tools. A request and its answer are one line of JSON each.

    Each combination of tool, network and options has a separate process. Threads of several tools would slow each other
    down, and a compiler reuses decisions of an earlier network, batch size or number of threads.
    """

    def __init__(self, python: Path, script: str = "peers.py") -> None:
        self.python, self.script = python, HERE / script
        self._processes: dict[tuple[Any, ...], subprocess.Popen[str]] = {}

    def ask(self, **request: Any) -> Any:
        key = tuple(request.get(name) for name in ("peer", "threads", "network", "batch", "rows", "members"))
        if key not in self._processes:
            self._processes[key] = subprocess.Popen(
                [str(self.python), str(self.script)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
            )
        process = self._processes[key]
        print(json.dumps(request), file=process.stdin, flush=True)
        answer = process.stdout.readline() if process.stdout else ""
        if not answer:
            raise SystemExit(f"{request['peer']} failed; see above")
        return json.loads(answer)

    def close(self) -> None:
        """End all processes."""
        for process in self._processes.values():
            process.communicate()
        self._processes.clear()

    def versions(self) -> dict[str, str]:
        done = subprocess.run([str(self.python), str(self.script), "--versions"], capture_output=True, check=True)
        return json.loads(done.stdout)


def environment() -> Path:
    """Return the Python of an environment with the peers. It is created on the first call."""
    folder = HERE.parent / ".venv-peers"
    python = folder / "bin" / "python"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
        constraints = str(HERE.parent / "constraints.txt")
        subprocess.run([str(python), "-m", "pip", "install", "-q", "-c", constraints, *PEERS], check=True)
    return python


def rest() -> None:
    """Wait until idle threads of the previous tool have stopped spinning, so that the next tool has all cores."""
    time.sleep(0.2)


def peak() -> float:
    """Return the FLOP/s of numpy's float32 matrix product, the best of three."""
    a = np.ones((2048, 2048), dtype=np.float32)
    best = float("inf")
    for _ in range(3):
        start = time.perf_counter()
        a @ a
        best = min(best, time.perf_counter() - start)
    return 2 * 2048**3 / best


def numbers(rows: int, units: int) -> np.ndarray:
    return random.normal(0, random.Purpose.DATA, rows=rows, units=units).astype(np.float32)


def codes(rows: int) -> np.ndarray:
    """Return category codes that cycle through all values of each column, including 0."""
    return np.stack([np.arange(rows) * (2 * i + 1) % (n + 1) for i, n in enumerate(CATEGORIES)], axis=1)


def about(peers: Peers | None = None) -> dict[str, Any]:
    """Return the facts that results depend on besides the code: processor, versions, load and date."""
    found: dict[str, Any] = {
        "processor": machine.processor(),
        "multilayer": ml.__version__,
        "numpy": np.__version__,
        "load": os.getloadavg()[0],
        "date": time.strftime("%Y-%m-%d"),
    }
    return found | ({"peers": peers.versions()} if peers else {})


def report(question: str, results: Any, options: Any, **more: Any) -> None:
    text = json.dumps({"question": question, "results": results, **more}, indent=2, ensure_ascii=False)
    if options.json:
        options.json.write_text(text + "\n")
    else:
        print(f"\n{text}")
