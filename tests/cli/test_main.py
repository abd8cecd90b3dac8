"""The command line: imports, help, exit codes and error messages."""

from __future__ import annotations

import itertools
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

import multilayer as ml
from multilayer.cli.arch import read_network
from multilayer.cli.main import COMMANDS, EXAMPLES, app
from multilayer.core.machine import instruction_sets
from multilayer.errors import SpecError
from multilayer.spec import Spec
from multilayer.spec.spec import MAX_JSON

NET = "784-256-128-10"


def run(*args: str, stdin: str | bytes | None = None, columns: int = 80):
    return CliRunner().invoke(app, list(args), input=stdin, env={"COLUMNS": str(columns), "NO_COLOR": "1"})


def error_of(*args: str, stdin: str | bytes | None = None) -> str:
    """Return the message of a command that must exit with 2 and print nothing else."""
    result = run(*args, stdin=stdin)
    assert result.exit_code == 2, result.output
    assert result.stdout == ""
    assert "Traceback" not in result.stderr
    return result.stderr


def process(*args: str, **options: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *args], capture_output=True, text=True, check=False, **options)  # type: ignore[call-overload]


# Imports and help


@pytest.mark.parametrize(
    "args", [["--help"], ["--version"], ["cost", NET], ["cost", "--help"], ["cost", NET, "--explain", "--json"]]
)
def test_starts_without_heavy_libraries(args: list[str]) -> None:
    heavy = ("torch", "sklearn", "matplotlib", "pandas")
    code = (
        "import sys\nfrom multilayer.cli.main import app\n"
        f"try: app({args!r})\nexcept SystemExit as end: assert not end.code, end.code\n"
        f"print('loaded:', [m for m in {heavy!r} if m in sys.modules])"
    )
    done = process("-c", code)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "loaded: []"


def test_python_dash_m_is_mlp() -> None:
    done = process("-m", "multilayer", "cost", NET, "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["parameters"] == 235_146


def test_version_prints_the_instruction_sets() -> None:
    result = run("--version")
    assert result.exit_code == 0
    assert result.stdout.startswith("mlp 0.")
    assert all(name in result.stdout for name in instruction_sets())


def test_without_arguments_the_help_is_printed() -> None:
    result = run()
    assert "Usage: mlp" in result.output
    assert all(name in result.output for name in COMMANDS)


HELP = [[], *([name] for name in COMMANDS)]


def parameters(command: list[str]) -> list[Any]:
    group: Any = typer.main.get_command(app)
    found = group.get_command(None, command[0]) if command else group
    return found.get_params(found.make_context("mlp", [], resilient_parsing=True))


@pytest.mark.parametrize("columns", [80, 120])
@pytest.mark.parametrize("command", HELP, ids=" ".join)
def test_help_fits_the_terminal_and_fills_its_lines(command: list[str], columns: int) -> None:
    result = run(*command, "--help", columns=columns)
    assert result.exit_code == 0
    assert " ".join(["Usage: mlp", *command]) in result.stdout
    lines = [line.rstrip() for line in result.stdout.splitlines()]
    assert max(map(len, lines)) <= columns
    for line, following in itertools.pairwise(lines):
        if line.startswith(" ") and following.startswith(" "):  # two lines of a paragraph
            assert len(line) + 1 + len(following.split()[0]) >= columns, f"a hard line break after {line!r}"
    for param in parameters(command):
        assert "\n" not in (param.help or "")
    assert not re.search(r"\w…", result.stdout.replace("N,N,…", ""))  # no word is cut


@pytest.mark.parametrize("command", COMMANDS)
def test_help_shows_a_default_for_every_option_with_a_value(command: str) -> None:
    for param in parameters([command]):
        if not param.required and not getattr(param, "is_flag", False):
            assert "[default: " in param.help, param.name


@pytest.mark.parametrize("command", HELP, ids=" ".join)
def test_help_shows_no_python_types(command: list[str]) -> None:
    assert not re.search(r"\bbool\b|<str>|<list|<Path>", run(*command, "--help").stdout)


@pytest.mark.parametrize("command", COMMANDS)
def test_help_begins_with_an_imperative_line(command: str) -> None:
    first = str(getattr(import_module(f"multilayer.cli.{command}"), command).__doc__).splitlines()[0]
    assert first.endswith(".")
    assert len(first) <= 90
    assert not re.match(r"\w+(s|ing)\b", first), first


def examples() -> list[tuple[str, str]]:
    found = [("mlp", example) for example in EXAMPLES]
    for command in COMMANDS:
        found += [(command, example) for example in import_module(f"multilayer.cli.{command}").EXAMPLES]
    return found


@pytest.mark.parametrize("command", ["mlp", *COMMANDS])
def test_every_command_has_three_examples_or_more(command: str) -> None:
    found = [example for name, example in examples() if name == command]
    assert len(found) >= 3
    text = run(*([] if command == "mlp" else [command]), "--help").stdout
    for example in found:
        assert f" {example} " in text  # in one line of 80 columns


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the files that the examples use."""
    path = tmp_path_factory.mktemp("examples")
    (path / "people.csv").write_text("age,income\n" + "".join(f"{i},{i % 3 * i}\n" for i in range(60)))
    (path / "test.csv").write_text((path / "people.csv").read_text())
    (path / "new.csv").write_text("age\n31\n32\n")
    (path / "net.json").write_text(Spec.parse(NET).to_json())
    for name, data, target in (
        ("people", path / "people.csv", "income"),
        ("digits-001", "digits", None),
        ("digits-002", "digits", None),
    ):
        spec = "1-4-1" if target else "64-8-10"
        ml.fit(spec, data, target=target, epochs=1, quiet=True, run=path / "runs" / name)
    shutil.copy(path / "runs" / "people" / "model.safetensors", path)
    return path


@pytest.mark.parametrize("example", [example for _, example in examples()])
def test_an_example_runs(example: str, workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Examples that train for long, or start a server, are only parsed."""
    monkeypatch.chdir(workspace)
    monkeypatch.setattr("webbrowser.open", lambda _: True)
    _, command, *args = shlex.split(example)
    long = command in ("train", "tune", "resume") or "--all" in args or "--data people.csv" in example
    if long or example == "mlp explore":
        group: Any = typer.main.get_command(app)
        assert group.get_command(None, command).make_context(command, args).params
        return
    if "--proba" in args:  # the model predicts numbers
        args[0] = "runs/digits-001"
        args[1] = "digits"
    result = run(command, *args)
    assert result.exit_code == 0, result.output


def test_help_shows_brackets_of_a_network() -> None:
    assert '"20-384-[layernorm-1536:gelu-384]*6-10"' in run("--help").stdout


def test_completion_offers_names() -> None:
    environment = {**os.environ, "_MLP_COMPLETE": "complete_bash", "COMP_CWORD": "4"}
    words = environment | {"COMP_WORDS": "mlp cost 784-10 --optimizer a"}
    done = process("-m", "multilayer", env=words)
    assert done.stdout.split() == ["adam", "adamw"]


# Exit codes


def test_unknown_command_suggests_the_nearest() -> None:
    assert "did you mean 'cost'?" in error_of("csot", NET)


def test_unknown_option_suggests_the_nearest() -> None:
    assert "--batch" in error_of("cost", NET, "--bach", "3")


def test_a_closed_pipe_ends_without_a_message() -> None:
    script = f'"{sys.executable}" -m multilayer cost "4-(4)*1500-2" --explain | head -1; echo "code ${{PIPESTATUS[0]}}"'
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=False)
    assert done.stderr == ""
    assert done.stdout.splitlines()[-1] == "code 141"


if os.path.exists("/dev/full"):

    @pytest.mark.parametrize("command", [f"cost {NET}", f"cost {NET} --json", f"show {NET} --json", "activations"])
    def test_a_full_disk_is_one_clear_error(command: str) -> None:
        script = f'"{sys.executable}" -m multilayer {command} > /dev/full'
        done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=False)
        assert done.stderr == "error: cannot write to standard output: No space left on device\n"
        assert done.returncode == 2


def test_a_closed_output_is_one_clear_error() -> None:
    script = f'"{sys.executable}" -m multilayer cost {NET} >&-'
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=False)
    assert done.stderr == "error: standard output is closed: redirect it to a file or a terminal\n"
    assert done.returncode == 2


def test_too_little_memory_is_one_clear_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def exhaust(*_: object) -> Spec:
        raise MemoryError("Unable to allocate 64.0 GiB")

    monkeypatch.setattr("multilayer.cli.arch.read_network_and_options", exhaust)
    assert error_of("cost", NET) == "error: not enough memory on this machine: Unable to allocate 64.0 GiB\n"


def test_an_interrupt_ends_without_a_message(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: object) -> Spec:
        raise KeyboardInterrupt

    monkeypatch.setattr("multilayer.cli.arch.read_network_and_options", interrupt)
    result = run("cost", NET)
    assert (result.exit_code, result.output) == (130, "")


HANDLE_INTERRUPT = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\n"
"""Handle Ctrl-C, even if the process that runs the tests ignores it."""
INTERRUPT_AT_IMPORT = """
import importlib.abc, os, signal, sys

class Interrupt(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name == os.environ["INTERRUPT_AT"]:
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, Interrupt())
"""


@pytest.mark.parametrize("at", ["multilayer.cli", "numpy", "typer", "multilayer.training.fit", "pyarrow", "rich.live"])
def test_an_interrupt_during_imports_ends_without_a_message(at: str, tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(HANDLE_INTERRUPT + INTERRUPT_AT_IMPORT)
    done = subprocess.run(
        [sys.executable, "-m", "multilayer", "train", "iris", "--epochs", "1"],
        env={**os.environ, "PYTHONPATH": str(tmp_path), "INTERRUPT_AT": at},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr, done.stdout) == (130, "", "")


def test_a_terminal_without_unicode_is_supported() -> None:
    done = process("-m", "multilayer", "cost", NET, env={**os.environ, "PYTHONIOENCODING": "ascii"})
    assert done.returncode == 0, done.stderr
    assert "784?256 relu" in done.stdout


def test_errors_escape_control_characters() -> None:
    message = error_of("cost", "784-\x1b[31m10")
    assert "\x1b" not in message
    assert "\\x1b" in message


def test_output_escapes_control_characters(tmp_path: Path) -> None:
    result = run("cost", "4-4", "--html", f"{tmp_path}/\x1b[31mx.html")
    assert result.stdout == f"saved: {tmp_path}/\\x1b[31mx.html\n"
    assert "\x1b" not in run("cost", "4-4", "--optimizer", "adam\x1c").stdout


# Invalid input


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["784--10"], "a width, a layer or a bracket expected here, got '-'\n  784--10\n      ^"),
        (["784-0-10"], "a width must be a whole number of at least 1, got 0"),
        (["784"], "at least one layer after its inputs"),
        ([""], "a network must begin with its inputs"),
        (["784-256:gelo-10"], "did you mean 'gelu'?"),
        (["784-" + "9" * 5000], "a number of 5000 digits"),
        (["784-" + "[" * 200], "brackets nest at most"),
        ([NET, "--activation", "gelo"], "unknown activation 'gelo': did you mean 'gelu'?"),
        ([NET, "--batch", "0"], "batch must be a whole number of at least 1, got 0"),
        ([NET, "--batch", "x"], "--batch"),
        ([NET, "--rows", "0"], "rows must be a whole number of at least 1, got 0"),
        ([NET, "--optimizer", "adm"], "unknown optimizer 'adm': did you mean 'adam'?"),
        ([NET, "--loss", "mes"], "unknown loss 'mes': did you mean 'mse'?"),
        ([NET, "--engine", "fuse"], "unknown engine 'fuse': did you mean 'fused'?"),
        ([NET, "--dtype", "float"], "unknown dtype 'float'"),
        ([NET, "--convention", "textbok"], "did you mean 'textbook'?"),
        ([NET, "--as", "thopp"], "unknown tool 'thopp': did you mean 'thop'?"),
        ([NET, "--json", "--csv"], "at most one of --json, --csv and --html"),
        ([NET, "--memory", "2XB"], "memory must be a quantity such as 2GB, 512MiB or 1e9, got '2XB'"),
        ([NET, "--memory", "0"], "memory must be at least 1, got '0'"),
        ([NET, "--flops", "1e999999999"], "flops must be a quantity"),
        ([NET, "--parameters", "-5"], "parameters must be a quantity"),
        ([NET, "--epochs", "3"], "--epochs needs --rows"),
        ([NET, "--epochs", "0", "--rows", "9"], "epochs must be a whole number of at least 1, got 0"),
        ([NET, "--plot", "x.svg"], "--plot draws a sweep"),
        ([NET, "--sweep", "batch=9..3"], "a sweep is written batch=1..4096"),
        ([NET, "--sweep", "bach=1..3"], "unknown sweep 'bach': did you mean 'batch'?"),
        ([NET, "--budget", "flop=1"], "unknown budget 'flop': did you mean 'flops'?"),
        ([NET, "--budget", "flops"], "a budget is written name=limit"),
        ([NET, "--budget", "flops=1,flops=2"], "the budget for flops is given twice"),
        ([NET, "--csv", "--memory", "2GB"], "--html and --csv contain only the cost"),
        (["784-10", "--flops", "1e9"], "only a network with a hidden layer can be widened"),
        ([NET, "--html", "/nowhere/at/all.html"], "there is no folder /nowhere/at"),
        (["4-8:combination(relu+"], "a name expected here, got the end of the text\n  4-8:combination(relu+\n"),
        ([NET, "--batch", "9" * 401], "batch must be at most 2^63"),
        ([NET, "--rows", "9" * 401], "rows must be at most 2^63"),
        ([NET, "--epochs", "9" * 401, "--rows", "9"], "epochs must be at most 2^63"),
        (
            ["4-8-3", "--loss", "quantile(0.1,0.9)"],
            "quantile(0.1,0.9) needs 2 outputs for each target, got a network of 3",
        ),
        (["4-8-3", "--loss", "quantile(0.1,0.9)", "--memory", "1GB"], "end it with a multiple of 2"),
        (
            [NET, "--dtype", "float16", "--measure"],
            "--measure times a plain step of PyTorch in float32: omit --dtype",
        ),
        ([NET, "--engine", "fused", "--measure"], "omit --engine fused"),
        ([NET, "--l2", "--measure"], "omit --l2\n"),
        ([NET, "--engine", "fused", "--verify"], "--verify compares with PyTorch: omit --engine fused"),
        ([NET, "--loss", "mse", "--as", "thop"], "--as shows what a tool reports, in float32: omit --loss mse"),
        ([NET, "--dtype", "float16", "--as", "thop"], "omit --dtype float16"),
        (["100000-1000000-10", "--verify"], " GiB of memory, and this machine has "),
        (
            ["4-4-1", "--batch", "99999999999999", "--verify"],
            "a step of 99,999,999,999,999 rows with 25 parameters needs ",
        ),
        (["4-4-1", "--batch", "99999999999999", "--measure"], " GiB of memory, and this machine has "),
    ],
)
def test_bad_input_is_one_clear_error(args: list[str], message: str) -> None:
    found = error_of("cost", *args)
    assert message in found
    if "Usage" not in found:  # typer prints its own message, in a box, for invalid numbers
        assert found.startswith("error: ")


def json_file(folder: Path, **changes: object) -> str:
    path = folder / "net.json"
    path.write_text(json.dumps({**Spec.parse("4-8-2").to_dict(), **changes}), encoding="utf-8")
    return str(path)


def test_json_with_an_unknown_key(tmp_path: Path) -> None:
    message = error_of("cost", json_file(tmp_path, layer=[]))
    assert "net.json" in message
    assert "unknown key 'layer': did you mean 'layers'?" in message


def test_json_of_a_newer_version(tmp_path: Path) -> None:
    message = error_of("cost", json_file(tmp_path, version=2))
    assert "version must be 1, got 2: update multilayer to read it" in message


@pytest.mark.parametrize(
    ("size", "message"), [(10_000_000, f"at most {MAX_JSON:,} bytes"), (100_000, "nested too deeply")]
)
def test_a_file_of_brackets(tmp_path: Path, size: int, message: str) -> None:
    path = tmp_path / "brackets.json"
    path.write_text("[" * size, encoding="utf-8")
    found = error_of("cost", str(path))
    assert message in found
    assert len(found) < 500


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "not JSON"),
        (b"{", "not JSON: "),
        (b'{"format": \xff}', "not UTF-8 text, byte 11 is 0xff"),
        (b'{"format": ' + b"9" * 5000 + b"}", "digits"),
        (b"[]", "the spec must be an object"),
        (b'{"format": "multilayer.spec", "format": 1}', "'format' occurs twice"),
    ],
)
def test_a_broken_file(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "net.json"
    path.write_bytes(content)
    found = error_of("cost", str(path))
    assert message in found
    assert "net.json" in found


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    assert "none.json: there is no such file" in error_of("cost", str(tmp_path / "none.json"))
    assert f"cannot read {tmp_path}: it is a folder" in error_of("cost", str(tmp_path))
    assert "there is no such file" in error_of("cost", f"{tmp_path}/net.txt")


def test_a_file_without_permission(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "net.json"
    path.write_text("{}", encoding="utf-8")

    def forbid(*_: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "open", forbid)  # root can read every file, so permissions have no effect
    with pytest.raises(SpecError, match=r"net\.json: Permission denied"):
        read_network(str(path), "relu")


# Ways to pass a network


def test_all_ways_to_pass_a_network_agree(tmp_path: Path) -> None:
    spec = Spec.parse("13+cat(3,12)-8:gelu-1")
    as_json, as_text = tmp_path / "net.json", tmp_path / "net.txt"
    as_json.write_text("\ufeff" + spec.to_json(), encoding="utf-8")
    as_text.write_text(f"{spec}\n", encoding="utf-8")
    assert read_network(str(as_json), "relu") == spec
    assert read_network(str(as_text), "relu") == spec
    assert read_network(str(spec), "relu") == spec
    for content in (spec.to_json(), str(spec)):
        result = run("cost", "-", "--json", stdin=content)
        assert json.loads(result.stdout)["network"] == str(spec)


def test_the_activation_applies_between_plain_widths() -> None:
    assert read_network("4-8-2", "gelu") == Spec.parse("4-8:gelu-2")


# Files


def test_a_page_is_written_completely_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.html"
    assert run("cost", NET, "--html", str(path)).exit_code == 0
    assert path.stat().st_mode & 0o777 == 0o666 & ~_umask()
    first = path.read_text(encoding="utf-8")

    def fail(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", fail)
    assert "the disk is full" in error_of("cost", "4-8-2", "--html", str(path))
    assert path.read_text(encoding="utf-8") == first
    assert [p.name for p in tmp_path.iterdir()] == ["a.html"]


def test_a_folder_instead_of_a_file_is_an_error(tmp_path: Path) -> None:
    assert "it is a folder" in error_of("cost", NET, "--html", str(tmp_path))


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
