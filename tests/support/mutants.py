"""Mutation testing: add one plausible bug at a time to a copy of the source, and check that a test fails.

    python tests/support/mutants.py                 every mutant of tests/support/mutant_table.py
    python tests/support/mutants.py policies loop   only mutants of files whose name contains one of these words
    python tests/support/mutants.py --all-tests     run the whole suite for mutants that survive their own tests

Each worker has a copy of the tree in a temporary folder; your own files are never changed. A `sitecustomize` module in
that folder removes the editable install's import hook, so child processes import the mutated copy as well.

A mutant is caught when a test fails or exceeds the time limit, and survives when all tests pass. The tests of each
mutant first run on the unchanged copy, where they must pass. Results are stored in `.mutants/`, one file per mutant,
under a hash of the mutant, its source file and its test files. An interrupted run continues where it stopped, and a
mutant runs again when one of these files changes. Exit code 1 means that fewer than 95 % were caught.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib.util
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from queue import Queue
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / ".mutants"
SOURCE = Path("src/multilayer")
REQUIRED = 0.95
SHORTEST_LIMIT = 90.0
"""Shortest time limit for the tests of a mutant, in seconds. The limit is five times their duration without a bug."""
COPIED = ("src", "tests")
LEFT_OUT = (".git", ".mutants", "build", "dist", "runs")
UNHOOK = """
import sys
sys.meta_path[:] = [finder for finder in sys.meta_path if not type(finder).__module__.startswith("_editable")]
"""


@dataclass(frozen=True)
class Mutant:
    """One bug: `new` replaces `old`, which `file` (in src/multilayer) contains exactly once. `tests` should fail."""

    file: str
    old: str
    new: str
    tests: str

    def mutated(self, text: str) -> str:
        """Return the source with the bug."""
        found = text.count(self.old)
        if found != 1:
            raise ValueError(f"{self.file} must contain this text exactly once, got {found} times: {self.old!r}")
        return text.replace(self.old, self.new)

    def key(self) -> str:
        """Return a hash of everything that the result directly depends on."""
        digest = hashlib.sha256(json.dumps([self.file, self.old, self.new, self.tests]).encode())
        for path in (SOURCE / self.file, *files_of(self.tests)):
            digest.update((ROOT / path).read_bytes())
        return digest.hexdigest()[:16]

    def __str__(self) -> str:
        return f"{self.file}: {' '.join(self.old.split())[:70]!r} → {' '.join(self.new.split())[:70]!r}"


def files_of(tests: str) -> list[Path]:
    return [Path("tests") / word.partition("::")[0] for word in tests.split() if ".py" in word]


class Tree:
    """A copy of the source tree, to which bugs are added."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        ignored = shutil.ignore_patterns("__pycache__")
        for name in COPIED:
            shutil.copytree(ROOT / name, folder / name, ignore=ignored)
        for path in ROOT.iterdir():
            if path.name not in (*COPIED, *LEFT_OUT):
                (folder / path.name).symlink_to(path)
        core = importlib.util.find_spec("multilayer.core._core")
        assert core is not None, "multilayer is not installed: run make mutants"
        assert core.origin is not None
        shutil.copy(core.origin, folder / SOURCE / "core")
        (folder / "hooks").mkdir()
        (folder / "hooks" / "sitecustomize.py").write_text(UNHOOK)
        self.environment = os.environ | {
            "PYTHONPATH": os.pathsep.join([str(folder / "hooks"), str(folder / "src")]),
            "PYTHONDONTWRITEBYTECODE": "1",
            "OMP_NUM_THREADS": "1",
        }

    def pytest(self, tests: list[str], limit: float) -> tuple[int | None, float, str]:
        """Run tests. Return the exit code (None after the time limit), the seconds and the last lines of output."""
        command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *tests]
        started = time.monotonic()
        process = subprocess.Popen(
            command,
            cwd=self.folder,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        try:
            output, _ = process.communicate(timeout=limit)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)  # also ends every process that the tests started
            output, _ = process.communicate()
            return None, time.monotonic() - started, output[-2000:]
        return process.returncode, time.monotonic() - started, output[-2000:]

    def imports_itself(self) -> None:
        """Raise an error unless child processes import this copy."""
        code = "import multilayer, multilayer.core._core; print(multilayer.__file__, multilayer.core._core.__file__)"
        done = subprocess.run(
            [sys.executable, "-c", code], env=self.environment, capture_output=True, text=True, check=True
        )
        if not all(path.startswith(str(self.folder)) for path in done.stdout.split()):
            raise RuntimeError(f"child processes must import the copy in {self.folder}, got {done.stdout}")

    def run(self, mutant: Mutant, limit: float, *, all_tests: bool, workers: int) -> dict[str, Any]:
        path = self.folder / SOURCE / mutant.file
        original = (ROOT / SOURCE / mutant.file).read_text()
        path.write_text(mutant.mutated(original))
        try:
            code, seconds, output = self.pytest(arguments(mutant.tests), limit)
            if code == 0 and all_tests:
                code, more, output = self.pytest(["-n", str(workers)], 3600)
                seconds += more
        finally:
            path.write_text(original)
        outcome = {None: "timeout", 0: "survived", 1: "caught"}.get(code, f"error {code}")
        last = [line for line in output.splitlines() if line.startswith(("FAILED", "ERROR"))][:1]
        detail = output if outcome.startswith("error") else "".join(last)
        return {"mutant": str(mutant), "outcome": outcome, "seconds": round(seconds, 1), "detail": detail}


def arguments(tests: str) -> list[str]:
    return [f"tests/{word}" for word in tests.split()]


def stored(name: str) -> dict[str, Any] | None:
    path = RESULTS / f"{name}.json"
    return json.loads(path.read_text()) if path.exists() else None


def store(name: str, result: dict[str, Any]) -> None:
    temporary = RESULTS / f".{name}.tmp"
    temporary.write_text(json.dumps(result, ensure_ascii=False, indent=1))
    temporary.replace(RESULTS / f"{name}.json")


def healthy(tree: Tree, tests: str) -> float:
    """Return the seconds that the tests take without a bug. They must pass."""
    digest = hashlib.sha256(tests.encode())
    for path in sorted((ROOT / SOURCE).rglob("*.py")) + [ROOT / path for path in files_of(tests)]:
        digest.update(path.read_bytes())
    name = f"healthy-{digest.hexdigest()[:16]}"
    known = stored(name)
    if known is None:
        code, seconds, output = tree.pytest(arguments(tests), 1800)
        if code != 0:
            raise RuntimeError(f"{tests} must pass without a bug, got exit code {code}:\n{output}")
        known = {"tests": tests, "seconds": round(seconds, 1)}
        store(name, known)
    return float(known["seconds"])


def main() -> int:
    from support.mutant_table import MUTANTS

    parser = argparse.ArgumentParser(description="Put plausible bugs into a copy of the source and test it.")
    parser.add_argument("files", nargs="*", help="only mutants of files whose name contains one of these words")
    parser.add_argument("--all-tests", action="store_true", help="run the whole suite for mutants that survive")
    parser.add_argument("--workers", type=int, default=2)
    options = parser.parse_args()
    chosen = [m for m in MUTANTS if not options.files or any(word in m.file for word in options.files)]
    for mutant in chosen:
        mutant.mutated((ROOT / SOURCE / mutant.file).read_text())  # all snippets are checked before any test runs
    RESULTS.mkdir(exist_ok=True)
    results: dict[Mutant, dict[str, Any]] = {}
    for mutant in chosen:
        found = stored(mutant.key())
        if found is not None and not (options.all_tests and found["outcome"] == "survived"):
            results[mutant] = found
    waiting = [mutant for mutant in chosen if mutant not in results]
    print(f"{len(chosen)} mutants, {len(results)} already known", flush=True)
    with tempfile.TemporaryDirectory(prefix="mutants-") as name:
        trees: Queue[Tree] = Queue()
        for i in range(min(options.workers, len(waiting))):
            tree = Tree(Path(name) / str(i))
            tree.imports_itself()
            trees.put(tree)

        def borrow(work: Any) -> Any:
            tree = trees.get()
            try:
                return work(tree)
            finally:
                trees.put(tree)

        def test(mutant: Mutant, seconds: float) -> dict[str, Any]:
            limit = max(SHORTEST_LIMIT, 5 * seconds)
            options_ = {"all_tests": options.all_tests, "workers": options.workers}
            result = borrow(lambda tree: tree.run(mutant, limit, **options_))
            store(mutant.key(), result)
            return result

        with ThreadPoolExecutor(max(1, options.workers)) as pool:
            sets = list(dict.fromkeys(mutant.tests for mutant in waiting))
            needed = dict(
                zip(sets, pool.map(lambda tests: borrow(lambda tree: healthy(tree, tests)), sets), strict=True)
            )
            futures = {pool.submit(test, mutant, needed[mutant.tests]): mutant for mutant in waiting}
            for future in as_completed(futures):
                mutant, result = futures[future], future.result()
                results[mutant] = result
                print(
                    f"{len(results):>4}/{len(chosen)} {result['outcome']:<8} {result['seconds']:>6} s  {mutant}",
                    flush=True,
                )
    caught = [m for m in chosen if results[m]["outcome"] in ("caught", "timeout")]
    for mutant in chosen:
        if mutant not in caught:
            print(f"{results[mutant]['outcome']}: {mutant}\n    {results[mutant]['detail']}")
    share = len(caught) / max(len(chosen), 1)
    print(f"{len(caught)} of {len(chosen)} mutants caught: {share:.1%}, {REQUIRED:.0%} required")
    return 0 if share >= REQUIRED else 1


if __name__ == "__main__":
    sys.exit(main())
