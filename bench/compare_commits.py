"""Compare what two commits compute: every tensor, event, file, command output and test name.

    python bench/compare_commits.py OLD NEW [--keys FILE] [--only NAME] [--out DIR] [--jobs N]

Both commits are checked out as git worktrees in a temporary folder. For each of them, one process runs the scenarios
of `compare_scenarios.py`; its PYTHONPATH starts with that worktree's `src`, and a `sitecustomize` module removes the
editable install's import hook. Nothing in the current environment changes. Then every file that the scenarios left is
compared with its twin. One line per comparison:

    same                 equal after masking
    renamed keys only    equal after masking and renaming, by the rules of the key map
    DIFFERENT            with the first difference; the exit code is 1

The compiled module comes from the current environment. For a commit whose csrc/ or CMake files differ from the current
tree's, it is built with CMake, in build/compare/HASH, and kept there for the next run. The built pages are
those of the current tree for both commits: a change of frontend/ is not compared (a line says so).

What is masked, and why: KEYS_MASKED and TEXT_MASKED below. Nothing is compared with a tolerance.

The key map (default: bench/renamed.json) is a JSON object with these sections, each of which may be absent:

    keys     {"rate": "learning_rate", "config/config": "config/training", "judges": null}
             Keys in events, configurations, reports, metadata, and parts of tensor names. A rule applies wherever its
             parts follow each other on the way to a value; longer rules come first. null: the key is gone.
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
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
UNHOOK = """
import sys
sys.meta_path[:] = [finder for finder in sys.meta_path if not type(finder).__module__.startswith("_editable")]
"""
CORE = ("csrc", "CMakeLists.txt")

KEYS_MASKED = {
    "time": "time of day of an event",
    "seconds": "duration",
    "rows_per_second": "speed",
    "sha256": "hash of a file or of tensors that are compared themselves; renamed keys change it",
    "run": "hash of the configuration, which is compared itself",
    "fingerprint": "",
    "predicted": "time that a measurement of this machine predicts",
}
del KEYS_MASKED["fingerprint"]  # the hash of the data is compared: it depends on no name
"""Keys of JSON whose values are masked, and why."""

TEXT_MASKED = (
    (r"\b\d[\d,.]*(e[+-]?\d+)? rows/s", "<speed> rows/s", "speed"),
    (r"\b\d+:\d\d(:\d\d)? left", "<time> left", "time left"),
    (r"\b\d+(\.\d+)? (s|ms|µs|min|h)\b", "<duration>", "duration"),
    (r"-(last|best)-[0-9a-f]{8}\.safetensors", r"-\1-<hash>.safetensors", "hash in the name of a checkpoint"),
    (r"\b[0-9a-f]{64}\b", "<hash>", "hash of a file that is compared itself"),
    (r"'sha256-[A-Za-z0-9+/=]{44}'", "<hash>", "hash of the page's script and style"),
    (r"0x[0-9a-f]{6,}", "<address>", "address of an object"),
)
"""What is masked in command output, file names and string values: pattern, replacement and why. Paths of the two
worktrees and of their results are masked as well."""


# Masks and the key map


def masked(text: str, folders: Mapping[str, str] | None = None) -> str:
    for folder, name in (folders or {}).items():
        text = text.replace(folder, name)
    for pattern, replacement, _ in TEXT_MASKED:
        text = re.sub(pattern, replacement, text)
    return text


@dataclass(frozen=True)
class Renames:
    """The key map."""

    keys: dict[str, str | None] = field(default_factory=dict)
    added: list[str] = field(default_factory=list)
    values: dict[str, dict[str, str]] = field(default_factory=dict)
    words: dict[str, str] = field(default_factory=dict)
    names: dict[str, str] = field(default_factory=dict)
    tests: dict[str, str] = field(default_factory=dict)

    def path(self, path: tuple[str, ...]) -> tuple[str, ...] | None:
        """Return the new path of keys to a value, or None if a key on it is gone."""
        for old, new in sorted(self.keys.items(), key=lambda rule: -len(rule[0].split("/"))):
            parts, i = tuple(old.split("/")), 0
            while i + len(parts) <= len(path):
                if path[i : i + len(parts)] != parts:
                    i += 1
                    continue
                if new is None:
                    return None
                put = tuple(new.split("/"))
                path = (*path[:i], *put, *path[i + len(parts) :])
                i += len(put)
        return path

    def text(self, text: str) -> str:
        options = {old.split()[-1]: new for old, new in self.names.items() if old.split()[-1].startswith("--")}
        for old, new in (options | self.words).items():
            text = re.sub(rf"(?<![\w-]){re.escape(old)}(?![\w-])", lambda _, new=new: new, text)
        return text

    def value(self, path: tuple[str, ...], value: Any) -> Any:
        if not isinstance(value, str):
            return value
        return self.values.get(path[-1] if path else "", {}).get(value) or self.text(value)

    def test(self, name: str) -> str:
        for old, new in sorted(self.tests.items(), key=lambda rule: -len(rule[0])):
            if name == old or (name.startswith(old) and name[len(old)] in ":[/"):
                moved = new + name[len(old) :]
                return moved.replace(f"::{module(old)}", f"::{module(new)}")
        return name


def module(path: str) -> str:
    """Return the module of a source file, by which pytest names its doctests."""
    return path.removeprefix("src/").removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def flat(value: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """The values in nested JSON, each with the keys and list positions to it. An empty object or list is a value."""
    if isinstance(value, dict) and value:
        for key, inner in value.items():
            yield from flat(inner, (*path, key))
    elif isinstance(value, list) and value:
        for i, inner in enumerate(value):
            yield from flat(inner, (*path, f"[{i}]"))
    else:
        yield path, value


# Comparisons

SAME, RENAMED, DIFFERENT = "same", "renamed keys only", "DIFFERENT"
Values = dict[tuple[str, ...], Any]


def compare_values(old: Values, new: Values, renames: Renames) -> tuple[str, str]:
    """Return the verdict on two flat JSON values, and the first difference."""
    hidden = set(KEYS_MASKED)
    old = {path: "<masked>" if hidden & set(path) else value for path, value in old.items()}
    hidden |= {found[-1] for key in KEYS_MASKED if (found := renames.path((key,)))}
    new = {path: "<masked>" if hidden & set(path) else value for path, value in new.items()}
    if old == new:
        return SAME, ""
    mapped = {moved: renames.value(path, value) for path, value in old.items() if (moved := renames.path(path))}
    new = {path: value for path, value in new.items() if not set(renames.added) & set(path)}
    for path in [*mapped, *new]:
        if path not in new or path not in mapped or not equal(mapped[path], new[path]):
            left, right = (side.get(path, "(absent)") for side in (mapped, new))
            return DIFFERENT, f"{'/'.join(path)}: {short(left)} → {short(right)}"
    return RENAMED, ""


def equal(a: Any, b: Any) -> bool:
    """Numbers of other types differ: 1 is neither 1.0 nor true."""
    return type(a) is type(b) and (a == b or a != a and b != b)


def compare_text(old: str, new: str, renames: Renames) -> tuple[str, str]:
    """Return the verdict on two masked texts. Renamed text may be laid out in another way."""
    if old == new:
        return SAME, ""
    before, after = (re.sub(r"[\s─│╭╮╰╯━┃]+", " ", text).strip() for text in (renames.text(old), new))
    if before == after:
        return RENAMED, ""
    at = next((i for i, (a, b) in enumerate(zip(before, after, strict=False)) if a != b), min(len(before), len(after)))
    window = slice(max(0, at - 40), at + 60)
    return DIFFERENT, f"…{before[window]!r} → …{after[window]!r}"


def short(value: Any) -> str:
    text = value if isinstance(value, str) and value.startswith(("<", "(")) else repr(value)
    return text if len(text) <= 100 else text[:97] + "…"


def tensors(data: bytes) -> Values:
    """A safetensors file as flat values: metadata, and dtype, shape and a digest of the bytes of each tensor."""
    length = struct.unpack("<Q", data[:8])[0]
    header, body = json.loads(data[8 : 8 + length]), data[8 + length :]
    values: Values = {}
    for key, text in header.pop("__metadata__", {}).items():
        values |= {("metadata", *path): value for path, value in flat(unpacked(text), (key,))}
    for name, about in header.items():
        begin, end = about["data_offsets"]
        digest = hashlib.sha256(body[begin:end]).hexdigest()[:16]
        values["tensors", *name.split("/")] = f"{about['dtype']} {about['shape']} bytes {digest}"
    return values


def unpacked(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


def graph(data: bytes) -> Values:
    """An ONNX file as flat values."""
    import onnx
    from google.protobuf.json_format import MessageToDict

    return dict(flat(MessageToDict(onnx.load_from_string(data))))


def compare_files(old: Path, new: Path, folders: Mapping[str, str], renames: Renames) -> tuple[str, str]:
    """Return the verdict on two files, by their type."""
    before, after = old.read_bytes(), new.read_bytes()
    kind = old.suffix
    if kind in (".safetensors", ".onnx"):
        read = tensors if kind == ".safetensors" else graph
        return compare_values(read(before), read(after), renames)
    if kind not in (".json", ".jsonl", ".html", ".txt", ".csv", ".svg", ".toml", ".md", ".lock", ""):
        return (SAME, "") if before == after else (DIFFERENT, f"{len(before)} and {len(after)} bytes")
    texts = [data.decode() for data in (before, after)]
    if kind == ".jsonl":
        texts = [json.dumps([json.loads(line) for line in text.splitlines()]) for text in texts]
    if kind == ".html":
        pages = [re.split(r'(?s)<script type="application/json"[^>]*>(.*?)</script>', text) for text in texts]
        texts = [json.dumps({"data": [unpacked(part) for part in page[1::2]]}) for page in pages]
        around = [masked("".join(page[::2]), folders) for page in pages]
        verdict = compare_text(*around, renames)
        if verdict[0] == DIFFERENT:
            return verdict
    if kind in (".json", ".jsonl", ".html"):
        values = [
            {
                path: masked(value, folders) if isinstance(value, str) else value
                for path, value in flat(json.loads(text))
            }
            for text in texts
        ]
        return compare_values(*values, renames)
    return compare_text(*(masked(text, folders) for text in texts), renames)


def compare_commands(old: list[dict[str, Any]], new: list[dict[str, Any]], folders: Any, renames: Renames) -> Lines:
    """A line per command: its exit code, output and errors."""
    for before, after in zip(old, new, strict=False):
        texts = [
            masked(f"exit code {told['code']}\n{told['stdout']}{told['stderr']}", folders) for told in (before, after)
        ]
        verdict = compare_text(*texts, renames)
        yield f"`{before['command']}`", *verdict
    if len(old) != len(new):
        yield "commands", DIFFERENT, f"{len(old)} → {len(new)}"


def compare_tests(old: list[str], new: list[str], renames: Renames) -> Lines:
    """Vanished tests are a difference. New tests are counted."""
    mapped = [renames.test(renames.text(name)) for name in old]
    gone, come = Counter(mapped) - Counter(new), Counter(new) - Counter(mapped)

    def place(name: str) -> str:
        path, _, test = name.partition("::")
        return f"{Path(path).name}::{test}"

    moved = Counter(map(place, gone.elements())) & Counter(map(place, come.elements()))
    lost = [name for name in gone if place(name) not in moved]
    found = [name for name in come if place(name) not in moved]
    told = "".join(f"\n    vanished: {name}" for name in lost[:50]) + "".join(
        f"\n    new: {name}" for name in found[:50]
    )
    counts = f"{len(old)} → {len(new)} tests, {len(lost)} vanished, {len(found)} new, {moved.total()} moved"
    verdict = DIFFERENT if lost else SAME if set(old) <= set(new) else RENAMED
    yield "test identifiers", verdict, counts + told


Lines = Iterator[tuple[str, str, str]]


def compare_sides(old: Path, new: Path, folders: Mapping[str, str], renames: Renames) -> Lines:
    """Compare every file below two folders."""
    files = [
        {masked(path.relative_to(side).as_posix()): path for path in sorted(side.rglob("*")) if path.is_file()}
        for side in (old, new)
    ]
    left: dict[str, tuple[str, Path]] = {}
    for name, path in files[0].items():
        moved = "/".join(renames.path(tuple(renames.text(name).split("/"))) or ()) or name
        left[name if name in files[1] else moved] = name, path
    for name in sorted(left.keys() | files[1].keys()):
        path, other = left.get(name, (name, None))[1], files[1].get(name)
        if path is None or other is None:
            yield name, DIFFERENT, "only in " + ("NEW" if path is None else "OLD")
        elif path.name == "commands.json":
            lists = [json.loads(side.read_text()) for side in (path, other)]
            for line, verdict, detail in compare_commands(*lists, folders, renames):
                yield f"{path.parent.name}: {line}", verdict, detail
        elif path.name == "error.txt":
            yield name, DIFFERENT, "the scenario failed: " + path.read_text().strip().splitlines()[-1]
        elif path.name == "tests.txt":
            yield from compare_tests(path.read_text().splitlines(), other.read_text().splitlines(), renames)
        else:
            yield name, *compare_files(path, other, folders, renames)


# Worktrees


def git(*words: str, folder: Path = ROOT) -> str:
    done = subprocess.run(["git", "-C", str(folder), *words], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def pages_folder(tree: Path) -> Path:
    """The folder of the built pages, which .gitignore names."""
    lines = (tree / ".gitignore").read_text().splitlines()
    return tree / next(line.strip("/") for line in lines if line.startswith("/src/multilayer/"))


def core_of(tree: Path, commit: str, environment: Mapping[str, str]) -> Path:
    """The compiled module for a commit: of the current environment, or built if its sources differ."""
    differs = subprocess.run(["git", "-C", str(ROOT), "diff", "--quiet", commit, "--", *CORE], check=False).returncode
    if not differs:
        found = [path for path in (ROOT / "src/multilayer").rglob("_core*.so")]
        found += [Path(place) / name for place in sys.path for name in installed_cores(place)]
        if not found:
            raise SystemExit("the compiled module is not installed: run make first")
        return found[0]
    sources = "\n".join(git("rev-parse", f"{commit}:{path}") for path in CORE)
    build = ROOT / "build/compare" / hashlib.sha256(sources.encode()).hexdigest()[:16]
    if not (built := list(build.glob("_core*.so"))):
        print(f"building the compiled module of {commit} …", flush=True)
        import nanobind

        options = {
            "CMAKE_BUILD_TYPE": "Release",
            "SKBUILD_PROJECT_VERSION": "0.1.0",
            "nanobind_DIR": nanobind.cmake_dir(),
            "Python_EXECUTABLE": sys.executable,
        }
        flags = [f"-D{key}={value}" for key, value in options.items()]
        for command in (
            ["cmake", "-S", str(tree), "-B", str(build), *flags],
            ["cmake", "--build", str(build), "-j", "2"],
        ):
            done = subprocess.run(command, capture_output=True, text=True, check=False, env=dict(environment))
            if done.returncode:
                raise SystemExit(f"{' '.join(command)} failed:\n{done.stdout[-3000:]}{done.stderr[-3000:]}")
        built = list(build.glob("_core*.so"))
    return built[0]


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
            "PATH": os.pathsep.join(
                [
                    *(str(Path(place).parents[2] / "bin") for place in sys.path if place.endswith("site-packages")),
                    os.environ["PATH"],
                ]
            ),
            "PYTHONPATH": os.pathsep.join([str(self.hooks), str(self.tree / "src")]),
            "PYTHONDONTWRITEBYTECODE": "1",
            "PYTHONHASHSEED": "0",
            "OMP_NUM_THREADS": "1",
            "COLUMNS": "200",
            "XDG_CACHE_HOME": str(folder / f"{name}-cache"),
            "COMPARE_TREE": str(self.tree),
        }
        pages = pages_folder(self.tree)
        pages.mkdir(parents=True, exist_ok=True)
        for page in pages_folder(ROOT).glob("*.html"):
            shutil.copy(page, pages)
        core = core_of(self.tree, commit, self.environment)
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
    jobs = [name for name in ("tests", "commands", "resume", "tabular") if name in chosen]
    if rest := [name for name in chosen if name not in jobs]:
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
                list(pool.map(lambda work: work[0].run(work[1], renames), [(s, job) for job in jobs for s in sides]))
            places = {str(path): f"<{label}>" for s in sides for label, path in (("tree", s.tree), ("out", s.out))}
            for line, verdict, detail in compare_sides(*(s.out for s in sides), places, renames):
                counts[verdict] += 1
                print(f"{verdict:<17}  {line}" + (f": {detail}" if detail else ""), flush=True)
        finally:
            for tree in folder.glob("*-tree"):
                git("worktree", "remove", "--force", str(tree))
    told = ", ".join(f"{counts[verdict]} {verdict}" for verdict in (SAME, RENAMED, DIFFERENT))
    print(f"{told}; {time.monotonic() - started:.0f} s")
    return 1 if counts[DIFFERENT] or not counts else 0


if __name__ == "__main__":
    sys.exit(main())
