"""Compare the verdicts of two books of experiments that were measured with different seeds.

    mlp lab --all --out book && mlp lab --all --first-seed 100 --out again
    python bench/verdicts.py book again

It prints a line per experiment with both verdicts and times, and how many agree. The exit code is 1 if more than a
tenth differ, or if an experiment is missing in a book.
"""

from __future__ import annotations

import sys
from pathlib import Path

from multilayer.lab import NAMES, Result


def main(first: Path, second: Path) -> int:
    """Print the comparison and return the exit code."""
    agree, missing, seconds = 0, list[str](), [0.0, 0.0]
    for name in NAMES:
        paths = [folder / "results" / f"{name}.json" for folder in (first, second)]
        if not all(path.exists() for path in paths):
            missing.append(name)
            continue
        found = [Result.read(path) for path in paths]
        if set(found[0].seeds) & set(found[1].seeds):
            raise SystemExit(f"both books have the same seeds of {name}: measure one of them with --first-seed 100")
        same = found[0].verdict == found[1].verdict
        agree += same
        seconds = [total + one.seconds for total, one in zip(seconds, found, strict=True)]
        times = ", ".join(f"{one.seconds:.0f} s" for one in found)
        print(f"{'same' if same else 'DIFFERENT':10}{name:26}{' | '.join(one.verdict for one in found)} ({times})")
    minutes = " and ".join(f"{one / 60:.1f}" for one in seconds)
    print(f"{agree} of {len(NAMES) - len(missing)} verdicts agree; {minutes} minutes")
    if missing:
        print(f"missing in a book: {', '.join(missing)}")
    return int(bool(missing) or agree < 0.9 * len(NAMES))


if __name__ == "__main__":
    sys.exit(main(*map(Path, sys.argv[1:])))
