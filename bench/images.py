"""Measure the test accuracy of 784-256-128-10 on MNIST and Fashion-MNIST after at most 20 epochs.

    python bench/images.py [FOLDER]

FOLDER (default: $MULTILAYER_DATA) contains `mnist` and `fashion_mnist` with four idx files each. Prints the accuracies
and the required ones, and writes bench/results/images.json. The exit code is 1 if an accuracy is too low, and 2 without
a folder.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

import multilayer as ml

REQUIRED = {"mnist": 0.982, "fashion_mnist": 0.895}
OPTIONS = {
    "epochs": 20,
    "batch_size": 128,
    "learning_rate": 2e-3,
    "weight_decay": 0.05,
    "schedule": "cosine(warmup=0.05)",
    "validation": 0.05,
    "metric": "accuracy",
}


def main(folder: Path) -> int:
    found = {}
    for name, required in REQUIRED.items():
        started = time.perf_counter()
        run = ml.fit("784-256-128-10", folder / name, quiet=not sys.stdout.isatty(), **OPTIONS)  # type: ignore[arg-type]
        assert run.model is not None
        accuracy = run.model.evaluate(folder / name / "t10k-images-idx3-ubyte.gz")["accuracy"]
        seconds = time.perf_counter() - started
        found[name] = {"accuracy": accuracy, "required": required, "seconds": seconds}
        word = "ok  " if accuracy >= required else "LOW "
        print(f"{word} {name:14} test accuracy {accuracy:.4f}, required {required}, {seconds:.0f} s", flush=True)
    results = Path(__file__).parent / "results"
    results.mkdir(exist_ok=True)
    (results / "images.json").write_text(json.dumps(found, indent=2))
    return 0 if all(run["accuracy"] >= run["required"] for run in found.values()) else 1


if __name__ == "__main__":
    given = sys.argv[1] if len(sys.argv) > 1 else os.environ.get("MULTILAYER_DATA", "")
    if not given:
        print("name the folder with mnist and fashion_mnist, as an argument or in MULTILAYER_DATA", file=sys.stderr)
        sys.exit(2)
    sys.exit(main(Path(given)))
