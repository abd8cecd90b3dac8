"""Compare how much work two commits do to start: `import multilayer`, `mlp --help` and `mlp cost`.

    python bench/startup.py OLD NEW

The unit is processor instructions, counted by `valgrind --tool=callgrind`. Unlike seconds, the count does not depend on
what else the machine does. Both commits are checked out as git worktrees, as in `compare_commits.py`, and use the
packages of the current environment. The exit code is 1 if NEW needs more than 3 % more instructions than OLD.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from compare_commits import Side, git

LIMIT = 1.03
COMMANDS = {
    "import multilayer": ["-c", "import multilayer"],
    "mlp --help": ["-m", "multilayer", "--help"],
    "mlp cost": ["-m", "multilayer", "cost", "784-256-128-10"],
}


def instructions(side: Side, command: list[str]) -> int:
    """Return the instructions of a command. Its bytecode files exist before the count."""
    environment = {name: value for name, value in side.environment.items() if name != "PYTHONDONTWRITEBYTECODE"}
    python = [sys.executable, *command]
    subprocess.run(python, env=environment, check=True, capture_output=True)
    valgrind = ["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null"]
    done = subprocess.run([*valgrind, *python], env=environment, check=True, capture_output=True, text=True)
    found = re.search(r"Collected : (\d+)", done.stderr)
    if found is None:
        raise SystemExit(f"callgrind must print the number of instructions, got {done.stderr[-500:]!r}")
    return int(found[1])


def main() -> int:
    parser = argparse.ArgumentParser(description="Compare the instructions that two commits need to start.")
    parser.add_argument("old")
    parser.add_argument("new")
    options = parser.parse_args()
    if shutil.which("valgrind") is None:
        parser.error("valgrind is not installed: apt-get install valgrind")
    worst = 0.0
    with tempfile.TemporaryDirectory(prefix="startup-") as name:
        folder = Path(name).resolve()
        try:
            sides = [Side(side, git("rev-parse", getattr(options, side)), folder, folder) for side in ("old", "new")]
            for title, command in COMMANDS.items():
                old, new = (instructions(side, command) for side in sides)
                worst = max(worst, new / old)
                print(f"{title:<18} {old / 1e6:>8,.1f} → {new / 1e6:>8,.1f} million instructions, {new / old:.3f}")
        finally:
            for tree in folder.glob("*-tree"):
                git("worktree", "remove", "--force", str(tree))
    return int(worst > LIMIT)


if __name__ == "__main__":
    sys.exit(main())
