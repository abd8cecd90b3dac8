"""How accurate is 784-256-128-10 on MNIST and Fashion-MNIST in at most 20 epochs?   python bench/images.py [FOLDER]

FOLDER, $MULTILAYER_DATA unless given, holds `mnist` and `fashion_mnist` with the four idx files each. Prints test
accuracy against what must be reached and writes bench/results/images.json. Exit 1 where one is below it, 2 without a
folder.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

import multilayer as ml

WANTED = {"mnist": 0.982, "fashion_mnist": 0.895}
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
    for name, wanted in WANTED.items():
        started = time.perf_counter()
        run = ml.fit("784-256-128-10", folder / name, quiet=not sys.stdout.isatty(), **OPTIONS)  # type: ignore[arg-type]
        assert run.model is not None
        accuracy = run.model.evaluate(folder / name / "t10k-images-idx3-ubyte.gz")["accuracy"]
        seconds = time.perf_counter() - started
        found[name] = {"accuracy": accuracy, "wanted": wanted, "seconds": seconds}
        word = "ok  " if accuracy >= wanted else "LOW "
        print(f"{word} {name:14} test accuracy {accuracy:.4f}, wanted {wanted}, {seconds:.0f} s", flush=True)
    results = Path(__file__).parent / "results"
    results.mkdir(exist_ok=True)
    (results / "images.json").write_text(json.dumps(found, indent=2))
    return 0 if all(run["accuracy"] >= run["wanted"] for run in found.values()) else 1


if __name__ == "__main__":
    given = sys.argv[1] if len(sys.argv) > 1 else os.environ.get("MULTILAYER_DATA", "")
    if not given:
        print("needed: the folder of mnist and fashion_mnist, as an argument or in MULTILAYER_DATA", file=sys.stderr)
        sys.exit(2)
    sys.exit(main(Path(given)))
