"""Compare the results of two commits: masks, the key map, and the comparison of files by their type.

Values that differ between two runs of the same code are masked by the lists below. Everything else must be equal: bytes
of tensors, types and values in JSON, words of text. There are no tolerances.
"""

from __future__ import annotations

import hashlib
import json
import re
import struct
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

NUMBERS_MASKED = {
    "time": "time of day of an event",
    "seconds": "duration",
    "rows_per_second": "speed",
    "step_seconds": "duration of a step in a report",
}
"""JSON keys whose numbers are masked, and why. Strings and lists under these keys are compared."""

TEXT_MASKED = (
    (r"\b\d[\d,.]*(e[+-]?\d+)? rows/s", "<speed> rows/s", "speed"),
    (r"\b\d+:\d\d(:\d\d)? left", "<time> left", "time left"),
    (r"\b\d+(\.\d+)? (s|ms|µs|min|h)\b", "<duration>", "duration"),
    (r"-(last|best)-[0-9a-f]{8}\.safetensors", r"-\1-<hash>.safetensors", "hash in the name of a checkpoint"),
    (r"\b[0-9a-f]{64}\b", "<hash>", "hash of a file that is compared itself"),
    (r"'sha256-[A-Za-z0-9+/=]{44}'", "<hash>", "hash of the page's script and style"),
    (r"\.[0-9a-f]{12}\.tmp", ".<random>.tmp", "random part in the name of a temporary file"),
    (r"\b[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}-\d+", "<worker>", "Optuna's random name of a process"),
    (r"\b\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}", "<time>", "time of day in Optuna's log"),
    (r"writing the report …\s*", "", "printed if a report takes more than a second"),
    (r"0x[0-9a-f]{6,}", "<address>", "address of an object"),
)
"""What is masked in command output, file names and string values: pattern, replacement and why. Paths of the two
worktrees and of their results are masked as well."""


NOT_MASKED = ("fingerprint",)
"""Keys whose strings are compared unmasked: the hash of the data does not depend on names or times."""

SKIPPED = (".lock",)
"""Files that are not compared: a lock holds the process id."""

SAME, RENAMED, DIFFERENT = "same", "renamed keys only", "DIFFERENT"
Verdict = tuple[str, str]
Values = dict[tuple[str, ...], Any]
Lines = Iterator[tuple[str, str, str]]
Folders = Mapping[str, str]
"""Paths to mask, each with its replacement."""


# Masks and the key map


def masked(text: str, folders: Folders = MappingProxyType({})) -> str:
    for folder, name in folders.items():
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

    def file(self, name: str) -> str:
        """Return the new path of a file that a scenario left."""
        return "/".join(self.path(tuple(self.text(name).split("/"))) or (name,))

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
    """Yield each value in nested JSON with its path of keys and list positions. Empty objects and lists are values."""
    if isinstance(value, dict) and value:
        for key, inner in value.items():
            yield from flat(inner, (*path, key))
    elif isinstance(value, list) and value:
        for i, inner in enumerate(value):
            yield from flat(inner, (*path, f"[{i}]"))
    else:
        yield path, value


# Comparisons


def compare_values(old: Values, new: Values, renames: Renames, folders: Folders = MappingProxyType({})) -> Verdict:
    """Return the verdict on two flat JSON values, and the first difference."""
    numbers = set(NUMBERS_MASKED)
    old = {path: hidden(path, value, numbers, folders) for path, value in old.items()}
    numbers |= {found[-1] for key in NUMBERS_MASKED if (found := renames.path((key,)))}
    new = {path: hidden(path, value, numbers, folders) for path, value in new.items()}
    if list(old) == list(new) and all(equal(old[path], new[path]) for path in old):
        return SAME, ""
    mapped = {moved: renames.value(path, value) for path, value in old.items() if (moved := renames.path(path))}
    new = {path: value for path, value in new.items() if not set(renames.added) & set(path)}
    for path in [*mapped, *new]:
        if path not in new or path not in mapped or not equal(mapped[path], new[path]):
            left, right = (short(side[path]) if path in side else "(absent)" for side in (mapped, new))
            return DIFFERENT, f"{'/'.join(path)}: {left} → {right}"
    return RENAMED, "" if mapped.keys() != old.keys() else "another order of keys"


def hidden(path: tuple[str, ...], value: Any, numbers: set[str], folders: Folders) -> Any:
    """Return a JSON value, masked if it differs between two runs of the same code."""
    if isinstance(value, str) and not set(path) & set(NOT_MASKED):
        return masked(value, folders)
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return "<masked>" if number and path and path[-1] in numbers else value


def equal(a: Any, b: Any) -> bool:
    """Whether two values have the same type and value: 1 is not equal to 1.0 or true."""
    return type(a) is type(b) and (a == b or (a != a and b != b))


def compare_text(old: str, new: str, renames: Renames) -> Verdict:
    """Return the verdict on two masked strings. Whitespace and box borders may differ in renamed text."""
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


def compare_files(old: Path, new: Path, renames: Renames, folders: Folders = MappingProxyType({})) -> Verdict:
    """Return the verdict on two files, by their type."""
    before, after = old.read_bytes(), new.read_bytes()
    kind = old.suffix
    if kind in (".safetensors", ".onnx"):
        read = tensors if kind == ".safetensors" else graph
        return compare_values(read(before), read(after), renames, folders)
    try:
        return compare_output(before.decode(), after.decode(), renames, folders)
    except UnicodeDecodeError:
        return (SAME, "") if before == after else (DIFFERENT, f"{len(before)} and {len(after)} bytes")


def compare_output(old: str, new: str, renames: Renames, folders: Folders = MappingProxyType({})) -> Verdict:
    """Return the verdict on two strings. JSON, lines of JSON and the data of a page are compared as values."""
    if "<script" in old and "<script" in new:
        texts, values = zip(*(page(side) for side in (old, new)), strict=True)
        verdicts = [compare_text(*(masked(text, folders) for text in texts), renames)]
        verdicts.append(compare_values(*(dict(flat(value)) for value in values), renames, folders))
        return min(verdicts, key=lambda verdict: (DIFFERENT, RENAMED, SAME).index(verdict[0]))
    found = [json_in(side) for side in (old, new)]
    if None not in found:
        return compare_values(*(dict(flat(value)) for value in found), renames, folders)
    return compare_text(masked(old, folders), masked(new, folders), renames)


def json_in(text: str) -> Any:
    """Return a list of the JSON values of a string, which is JSON or lines of JSON; None if it is neither."""
    for parts in ([text], text.splitlines()):
        try:
            return [json.loads(part) for part in parts] or None
        except ValueError:
            continue
    return None


def page(text: str) -> tuple[str, list[Any]]:
    """Split a page into its text and its JSON data."""
    parts = re.split(r'(?s)<script type="application/json"[^>]*>(.*?)</script>', text)
    return "".join(parts[::2]), [json.loads(part) for part in parts[1::2]]


def compare_commands(old: list[Any], new: list[Any], renames: Renames, folders: Folders) -> Lines:
    """Compare the exit code, output and errors of each command. Yield a line per command."""
    for before, after in zip(old, new, strict=False):
        verdicts = [
            compare_output(before[part], after[part], renames, folders)
            for part in ("stdout", "stderr")
            if before[part] or after[part]
        ]
        verdicts += [compare_text(f"exit code {before['code']}", f"exit code {after['code']}", renames)]
        worst = min(verdicts, key=lambda verdict: (DIFFERENT, RENAMED, SAME).index(verdict[0]))
        yield f"`{before['command']}`", *worst
    if len(old) != len(new):
        yield "commands", DIFFERENT, f"{len(old)} → {len(new)}"


def compare_tests(old: list[str], new: list[str], renames: Renames) -> tuple[str, str, str]:
    """Return the verdict on test identifiers. A missing test is a difference; new tests are only counted."""
    mapped = [renames.test(renames.text(name)) for name in old]
    gone, come = Counter(mapped) - Counter(new), Counter(new) - Counter(mapped)

    def place(name: str) -> str:
        path, _, test = name.partition("::")
        return f"{Path(path).name}::{test}"

    moved = Counter(map(place, gone.elements())) & Counter(map(place, come.elements()))
    lost = [name for name in gone if place(name) not in moved]
    found = [name for name in come if place(name) not in moved]
    changes = "".join(f"\n    vanished: {name}" for name in lost[:50]) + "".join(
        f"\n    new: {name}" for name in found[:50]
    )
    counts = f"{len(old)} → {len(new)} tests, {len(lost)} vanished, {len(found)} new, {moved.total()} moved"
    verdict = DIFFERENT if lost else SAME if set(old) <= set(new) else RENAMED
    return "test identifiers", verdict, counts + changes


def files_in(side: Path) -> dict[str, Path]:
    """Return the files below a folder by their masked paths. If masked paths are equal, later ones get a number."""
    found: dict[str, Path] = {}
    for path in sorted(side.rglob("*")):
        if path.is_file() and path.name not in SKIPPED:
            name = masked(path.relative_to(side).as_posix())
            number = sum(other == name or other.startswith(f"{name} #") for other in found)
            found[f"{name} #{number + 1}" if number else name] = path
    return found


def compare_sides(old: Path, new: Path, renames: Renames, folders: Folders = MappingProxyType({})) -> Lines:
    """Compare every file below two folders."""
    before, after = files_in(old), files_in(new)
    for name, path in before.items():
        twin = after.pop(name, None) or after.pop(renames.file(name), None)
        if path.name == "error.txt":
            yield name, DIFFERENT, "the scenario failed: " + path.read_text().strip().splitlines()[-1]
        elif twin is None:
            yield name, DIFFERENT, "only in OLD"
        elif path.name == "commands.json":
            lists = [json.loads(side.read_text()) for side in (path, twin)]
            for line, verdict, detail in compare_commands(*lists, renames, folders):
                yield f"{path.parent.name}: {line}", verdict, detail
        elif path.name == "tests.txt":
            yield compare_tests(path.read_text().splitlines(), twin.read_text().splitlines(), renames)
        else:
            yield name, *compare_files(path, twin, renames, folders)
    for name, path in after.items():
        failed = path.name == "error.txt"
        last = path.read_text().strip().splitlines()[-1] if failed else ""
        yield name, DIFFERENT, f"the scenario failed in NEW: {last}" if failed else "only in NEW"
