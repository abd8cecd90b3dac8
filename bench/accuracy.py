"""Measure the training time until 784-256-128-10 reaches 98 % test accuracy on MNIST. Peers: PyTorch and JAX.

Batch size 32, Adam with learning rate 1e-3, pixels from 0 to 1. For each seed, all tools start with the same weights
and take the same rows in the same order. The test images are predicted after each epoch; only training is timed. The
result is the median over seeds. PyTorch runs eagerly and compiled, with one and with all threads; after the first
seed, only its fastest variant is measured. Peers run in a separate environment, as in step.py.

    python bench/accuracy.py FOLDER [--seeds 5] [--json FILE] [--peers PYTHON]

FOLDER is `mnist` with its four idx files, or a folder that contains `mnist`.
"""

from __future__ import annotations

import argparse
import gzip
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from contest import Peers, about, environment, report

from multilayer.core import machine, random
from multilayer.data.batches import Data
from multilayer.engines import Order, Settings
from multilayer.engines.fused_engine import FusedEngine
from multilayer.spec import Spec

TEXT = "784-256-128-10"
BATCH, RATE, GOAL, MAX_EPOCHS, REQUIRED = 32, 1e-3, 0.98, 20, 1.8


def images(folder: Path, name: str) -> tuple[np.ndarray, np.ndarray]:
    """Return pixels from 0 to 1, of shape (n, 784), and labels."""
    pixels = gzip.decompress((folder / f"{name}-images-idx3-ubyte.gz").read_bytes())[16:]
    labels = gzip.decompress((folder / f"{name}-labels-idx1-ubyte.gz").read_bytes())[8:]
    x = np.frombuffer(pixels, dtype=np.uint8).reshape(-1, 784).astype(np.float32) / 255
    return x, np.frombuffer(labels, dtype=np.uint8).astype(np.int64)


def ours(parts: dict[str, np.ndarray], engine: FusedEngine, n: int) -> dict[str, float]:
    taken = 0.0
    for epoch, rows in enumerate(parts["orders"]):
        ones = np.ones(len(rows) // BATCH)
        start = time.perf_counter()
        order = Order(epoch=epoch, rows=rows, batch=BATCH)
        engine.run(order, rate=RATE * ones, decay=0 * ones, dropout=ones)
        taken += time.perf_counter() - start
        correct = engine.outputs(np.arange(n, len(engine.data))).argmax(1) == parts["y_test"]
        if correct.mean() >= GOAL:
            return {"seconds": taken, "epochs": epoch + 1}
    return {"seconds": float("inf"), "epochs": MAX_EPOCHS}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=machine.threads())
    parser.add_argument("--peers", type=Path, help="a Python that has torch and jax")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    folder = options.folder / "mnist" if (options.folder / "mnist").is_dir() else options.folder
    (x, y), (x_test, y_test) = images(folder, "train"), images(folder, "t10k")
    data = Data(x=np.concatenate([x, x_test]), y=np.concatenate([y, y_test]))
    peers = Peers(options.peers or environment(), "accuracy_peers.py")
    found: dict[str, list[dict[str, Any]]] = {}
    variants = [(peer, n) for peer in ("torch", "torch.compile") for n in sorted({1, options.threads})]
    for seed in range(options.seeds):
        settings = Settings(loss="cross_entropy", optimizer="adam", seed=seed)
        engine = FusedEngine(Spec.parse(TEXT), data, settings, threads=options.threads)
        orders = np.stack([random.permutation(len(x), seed=seed, epoch=e) for e in range(MAX_EPOCHS)])
        parts = {"x": x, "y": y, "x_test": x_test, "y_test": y_test, "orders": orders}
        parts |= {name.replace(".", "_"): value for name, value in engine.state().parameters.items()}
        with tempfile.TemporaryDirectory() as place:
            np.savez(Path(place) / "parts.npz", **parts)
            request = {"file": f"{place}/parts.npz", "batch": BATCH, "rate": RATE, "goal": GOAL}
            found.setdefault("multilayer", []).append(ours(parts, engine, len(x)))
            for peer, n in variants:
                found.setdefault(f"{peer}, {n}", []).append(peers.ask(peer=peer, threads=n, **request))
            found.setdefault("jax", []).append(peers.ask(peer="jax", **request))
        variants = [min(variants, key=lambda variant: found["{}, {}".format(*variant)][0]["seconds"])]
        latest = {name: f"{runs[-1]['seconds']:.1f} s, {runs[-1]['epochs']} epochs" for name, runs in found.items()}
        print(f"seed {seed}: " + "; ".join(f"{name} {text}" for name, text in latest.items()), flush=True)
    median = {name: float(np.median([run["seconds"] for run in runs])) for name, runs in found.items()}
    peer = min((name for name in median if name != "multilayer"), key=median.__getitem__)
    ratio = median[peer] / median["multilayer"]
    print(f"median {median['multilayer']:.1f} s, {peer} {median[peer]:.1f} s: {ratio:.2f} times (required {REQUIRED})")
    results = {"median seconds": median, "runs": found, "best peer": peer, "ratio": ratio, "required": REQUIRED}
    report("accuracy", results, options, about=about(peers))


if __name__ == "__main__":
    main()
