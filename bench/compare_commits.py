"""Compare what two commits compute: every tensor, event, file, command output and test name.

    python bench/compare_commits.py OLD NEW [--keys FILE] [--only NAME] [--out DIR] [--jobs N]

Both commits are checked out as git worktrees in a temporary folder. For each commit, processes run the scenarios of
`compare_scenarios.py`. Their PYTHONPATH starts with that worktree's `src`, and a `sitecustomize` module removes the
import hook of the editable install. The current environment is not changed. Then every file that the scenarios wrote
for OLD is compared with the file of NEW. The output has one line per comparison:

    same                 equal after masking
    renamed keys only    equal after masking and renaming, by the rules of the key map
    DIFFERENT            not equal: the first difference is printed, and the exit code is 1

The compiled module comes from the current environment. If the csrc/ or CMake files of a commit differ from the current
tree, its module is built with CMake in build/compare/HASH and kept there for the next run. Both commits use the built
pages of the current tree, so a change in frontend/ is not compared, and a line in the output reports this.

NUMBERS_MASKED, TEXT_MASKED and SKIPPED in `compare_results.py` list what is masked, and why. No comparison has a
tolerance. The two commits run with different clocks, so a time that is not masked is reported as a difference.

The key map (default: bench/renamed.json) is a JSON object with these sections, each of which may be absent:

    keys     {"rate": "learning_rate", "config/config": "config/training", "judges": null}
             Keys in events, configurations, reports, metadata, and parts of tensor names. A rule applies wherever its
             parts follow each other in the path to a value; longer rules come first. null: the key was removed.
    added    ["step_time"]                       keys that only NEW has
    values   {"event": {"epoch": "epoch_end"}}   values of one key
    words    {"Predictor": "TrainedModel"}       whole words in command output, string values and file names
    names    {"trace.rate": "learning_rate", "train --time": "--time-column"}
             Functions, arguments and options that the scenarios use: NAME, FUNCTION.ARGUMENT or COMMAND --OPTION.
    tests    {"tests/test_kept.py": "tests/estimators/test_save.py", "tests/a.py::old": "tests/a.py::new"}
             Beginnings of test identifiers. A test file that only moved, under the same name, needs no rule.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from compare_results import DIFFERENT, RENAMED, SAME, Renames, compare_sides

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
UNHOOK = """
import sys
sys.meta_path[:] = [finder for finder in sys.meta_path if not type(finder).__module__.startswith("_editable")]
"""
CORE = ("csrc", "CMakeLists.txt")
ALONE = ("tests", "commands")
NEEDED = ("resume", "tabular")
"""Scenarios whose results the scenario `reload` loads. Like the scenarios in ALONE, each runs in a separate process."""

# Worktrees


def git(*words: str, folder: Path = ROOT) -> str:
    done = subprocess.run(["git", "-C", str(folder), *words], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def pages_folder(tree: Path) -> Path:
    """Return the folder of the built pages, as listed in .gitignore."""
    lines = (tree / ".gitignore").read_text().splitlines()
    return tree / next(line.strip("/") for line in lines if line.startswith("/src/multilayer/"))


def core_of(tree: Path, commit: str) -> Path:
    """Return the compiled module for a commit: from the current environment, or built if the sources differ."""
    differs = subprocess.run(["git", "-C", str(ROOT), "diff", "--quiet", commit, "--", *CORE], check=False).returncode
    if not differs:
        found = [path for path in (ROOT / "src/multilayer").rglob("_core*.so")]
        found += [Path(place) / name for place in sys.path for name in installed_cores(place)]
        if not found:
            raise SystemExit("the compiled module is not installed: run make first")
        return found[0]
    sources = "\n".join(git("rev-parse", f"{commit}:{path}") for path in CORE)
    kept = ROOT / "build/compare" / hashlib.sha256(sources.encode()).hexdigest()[:16]
    if not (built := list(kept.glob("_core*.so"))):
        print(f"building the compiled module of {commit} …", flush=True)
        kept.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=f"{kept.name}-", dir=kept.parent) as temporary:
            build_core(tree, build := Path(temporary) / "build")
            keep_build(build, kept)
        built = list(kept.glob("_core*.so"))
    return built[0]


def build_core(tree: Path, build: Path) -> None:
    """Build the compiled module of a worktree in the folder `build`."""
    import cmake
    import nanobind
    import ninja

    options = {
        "CMAKE_BUILD_TYPE": "Release",
        "SKBUILD_PROJECT_VERSION": "0.1.0",
        "nanobind_DIR": nanobind.cmake_dir(),
        "CMAKE_MAKE_PROGRAM": str(Path(ninja.BIN_DIR) / "ninja"),
        "Python_EXECUTABLE": sys.executable,
    }
    flags = [f"-D{key}={value}" for key, value in options.items()]
    tool = str(Path(cmake.CMAKE_BIN_DIR) / "cmake")
    for command in (
        [tool, "-G", "Ninja", "-S", str(tree), "-B", str(build), *flags],
        [tool, "--build", str(build)],
    ):
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise SystemExit(f"{' '.join(command)} failed:\n{done.stdout[-3000:]}{done.stderr[-3000:]}")


def keep_build(build: Path, kept: Path) -> None:
    """Rename a finished build to `kept`. If another process has built the same module, its build is kept instead.

    A folder without a module is what an interrupted build of an older version of this script left. It is replaced.
    """
    if kept.is_dir() and not any(kept.glob("_core*.so")):
        shutil.rmtree(kept, ignore_errors=True)
    try:
        build.replace(kept)
    except OSError:
        if not any(kept.glob("_core*.so")):
            raise


def installed_cores(place: str) -> list[Path]:
    package = Path(place or ".") / "multilayer"
    return [path.relative_to(place or ".") for path in package.rglob("_core*.so")] if package.is_dir() else []


class Side:
    """One commit: its worktree, its environment, and the folder of its results."""

    def __init__(self, name: str, commit: str, folder: Path, out: Path) -> None:
        self.name, self.commit = name, commit
        self.tree, self.out, self.hooks = folder / f"{name}-tree", out / name, folder / f"{name}-hooks"
        git("worktree", "add", "--detach", "--quiet", str(self.tree), commit)
        self.hooks.mkdir()
        (self.hooks / "sitecustomize.py").write_text(UNHOOK)
        self.environment = os.environ | {
            "PYTHONPATH": os.pathsep.join([str(self.hooks), str(self.tree / "src")]),
            "PYTHONDONTWRITEBYTECODE": "1",
            "PYTHONHASHSEED": "0",
            "OMP_NUM_THREADS": "1",
            "COLUMNS": "200",
            "XDG_CACHE_HOME": str(folder / f"{name}-cache"),
            "COMPARE_OLD": str(out / "old"),
            "COMPARE_CLOCK": "1" if name == "old" else "3",
        }
        pages = pages_folder(self.tree)
        pages.mkdir(parents=True, exist_ok=True)
        for page in pages_folder(ROOT).glob("*.html"):
            shutil.copy(page, pages)
        core = core_of(self.tree, commit)
        stub = next((self.tree / "src/multilayer").rglob("_core.pyi"))
        shutil.copy(core, stub.parent)
        code = "import multilayer; print(multilayer.__file__)"
        place = subprocess.run([sys.executable, "-c", code], env=self.environment, capture_output=True, text=True)
        if not place.stdout.startswith(str(self.tree)):
            raise SystemExit(f"{name} must import {self.tree}, got {place.stdout}{place.stderr}")

    def run(self, job: str, renames: Renames) -> None:
        """Run scenarios, or list the tests."""
        self.out.mkdir(parents=True, exist_ok=True)
        if job == "tests":
            command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider"]
            done = subprocess.run(command, cwd=self.tree, env=self.environment, capture_output=True, text=True)
            if done.returncode:
                (self.out / "error.txt").write_text(f"{done.stdout[-3000:]}{done.stderr[-3000:]}")
            names = [line for line in done.stdout.splitlines() if "::" in line]
            (self.out / "tests.txt").write_text("\n".join(names))
            return
        names = renames.names if self.name == "new" else {}
        script = [sys.executable, str(HERE / "compare_scenarios.py"), str(self.out), json.dumps(names), *job.split()]
        done = subprocess.run(script, env=self.environment, capture_output=True, text=True)
        (self.out.parent / f"{self.name}-{job.split()[0]}.log").write_text(done.stdout + done.stderr)


def scenario_names() -> list[str]:
    spec = importlib.util.spec_from_file_location("compare_scenarios", HERE / "compare_scenarios.py")
    assert spec is not None
    assert spec.loader is not None
    found = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(found)
    return list(found.SCENARIOS)


def main() -> int:
    parser = argparse.ArgumentParser(description="Compare what two commits compute.")
    parser.add_argument("old")
    parser.add_argument("new")
    parser.add_argument("--keys", type=Path, default=HERE / "renamed.json", help="key map")
    parser.add_argument("--only", action="append", metavar="NAME", help="one scenario, or tests; may be repeated")
    parser.add_argument("--out", type=Path, help="folder to keep the results of both sides in")
    parser.add_argument("--jobs", type=int, default=2, help="processes at a time")
    options = parser.parse_args()
    started = time.monotonic()
    renames = Renames(**json.loads(options.keys.read_text()))
    known = [*scenario_names(), "tests"]
    chosen = options.only or known
    if unknown := set(chosen) - set(known):
        parser.error(f"--only must be one of {', '.join(known)}, got {', '.join(sorted(unknown))}")
    if "reload" in chosen:
        chosen = list(dict.fromkeys([*NEEDED, *chosen]))
    jobs = [name for name in (*ALONE, *NEEDED) if name in chosen]
    if rest := [name for name in chosen if name not in (*jobs, "reload")]:
        jobs.append(" ".join(rest))
    counts: Counter[str] = Counter()
    with tempfile.TemporaryDirectory(prefix="compare-") as name:
        folder = Path(name).resolve()
        out = (options.out or folder / "out").resolve()
        for side in ("old", "new"):
            shutil.rmtree(out / side, ignore_errors=True)
        try:
            commits = {"old": options.old, "new": options.new}
            if git("diff", "--stat", options.old, options.new, "--", "frontend"):
                print("frontend/ differs: both commits get the pages of the current tree")
            sides = [Side(side, git("rev-parse", commit), folder, out) for side, commit in commits.items()]
            with ThreadPoolExecutor(options.jobs) as pool:
                for batch in (jobs, ["reload"] if "reload" in chosen else []):
                    list(
                        pool.map(lambda work: work[0].run(work[1], renames), [(s, job) for job in batch for s in sides])
                    )
            places = {str(path): f"<{label}>" for s in sides for label, path in (("tree", s.tree), ("out", s.out))}
            for line, verdict, detail in compare_sides(*(s.out for s in sides), renames, places):
                counts[verdict] += 1
                print(f"{verdict:<17}  {line}" + (f": {detail}" if detail else ""), flush=True)
        finally:
            for tree in folder.glob("*-tree"):
                git("worktree", "remove", "--force", str(tree))
    summary = ", ".join(f"{counts[verdict]} {verdict}" for verdict in (SAME, RENAMED, DIFFERENT))
    print(f"{summary}; {time.monotonic() - started:.0f} s")
    return 1 if counts[DIFFERENT] or not counts else 0


if __name__ == "__main__":
    sys.exit(main())
