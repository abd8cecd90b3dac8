"""The command line: what it starts, what it refuses, and how it ends."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from multilayer.cli.arch import read_network
from multilayer.cli.main import COMMANDS, app
from multilayer.core.machine import instruction_sets
from multilayer.errors import SpecError
from multilayer.spec import Spec
from multilayer.spec.spec import MAX_JSON

NET = "784-256-128-10"


def run(*args: str, stdin: str | bytes | None = None, columns: int = 80):
    return CliRunner().invoke(app, list(args), input=stdin, env={"COLUMNS": str(columns), "NO_COLOR": "1"})


def refused(*args: str, stdin: str | bytes | None = None) -> str:
    """The one message of a command that must exit with 2 and print nothing else."""
    result = run(*args, stdin=stdin)
    assert result.exit_code == 2, result.output
    assert result.stdout == ""
    assert "Traceback" not in result.stderr
    return result.stderr


def process(*args: str, **options: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *args], capture_output=True, text=True, check=False, **options)  # type: ignore[call-overload]


# Starting


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


def test_version_tells_the_instruction_sets() -> None:
    result = run("--version")
    assert result.exit_code == 0
    assert result.stdout.startswith("mlp 0.")
    assert all(name in result.stdout for name in instruction_sets())


def test_no_arguments_give_help() -> None:
    result = run()
    assert "Usage: mlp" in result.output
    assert all(name in result.output for name in COMMANDS)


@pytest.mark.parametrize("command", COMMANDS)
def test_help_of_every_command_fits_80_columns(command: str) -> None:
    result = run(command, "--help")
    assert result.exit_code == 0
    assert f"Usage: mlp {command}" in result.stdout
    assert max(len(line) for line in result.stdout.splitlines()) <= 80


@pytest.mark.parametrize("command", [[], *([name] for name in COMMANDS)], ids=" ".join)
def test_help_shows_no_type_behind_a_flag(command: list[str]) -> None:
    assert "bool" not in run(*command, "--help").stdout


def test_help_shows_brackets_of_a_network() -> None:
    assert '"20-384-[layernorm-1536:gelu-384]*6-10"' in run("--help").stdout


def test_completion_offers_names() -> None:
    environment = {**os.environ, "_MLP_COMPLETE": "complete_bash", "COMP_CWORD": "4"}
    words = environment | {"COMP_WORDS": "mlp cost 784-10 --optimizer a"}
    done = process("-m", "multilayer", env=words)
    assert done.stdout.split() == ["adam", "adamw"]


# Ending


def test_unknown_command_suggests_the_nearest() -> None:
    assert "did you mean 'cost'?" in refused("csot", NET)


def test_unknown_option_suggests_the_nearest() -> None:
    assert "--batch" in refused("cost", NET, "--bach", "3")


def test_a_closed_pipe_ends_quietly() -> None:
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
    assert done.stderr == "error: standard output is closed: there is nowhere to write to\n"
    assert done.returncode == 2


def test_too_little_memory_is_one_clear_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def exhaust(*_: object) -> Spec:
        raise MemoryError("Unable to allocate 64.0 GiB")

    monkeypatch.setattr("multilayer.cli.arch.read_network", exhaust)
    assert refused("cost", NET) == "error: this machine's memory does not hold it: Unable to allocate 64.0 GiB\n"


def test_interrupt_ends_quietly(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: object) -> Spec:
        raise KeyboardInterrupt

    monkeypatch.setattr("multilayer.cli.arch.read_network", interrupt)
    result = run("cost", NET)
    assert (result.exit_code, result.output) == (130, "")


HEARS = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\n"
"""Where whoever runs the tests ignores Ctrl-C, its children would too."""
PRESSED = """
import importlib.abc, os, signal, sys

class Press(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name == os.environ["PRESS_AT"]:
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, Press())
"""


@pytest.mark.parametrize("at", ["multilayer.cli", "numpy", "typer", "multilayer.training.fit", "pyarrow", "rich.live"])
def test_interrupt_while_libraries_load_ends_quietly(at: str, tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(HEARS + PRESSED)
    done = subprocess.run(
        [sys.executable, "-m", "multilayer", "train", "iris", "--epochs", "1"],
        env={**os.environ, "PYTHONPATH": str(tmp_path), "PRESS_AT": at},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr, done.stdout) == (130, "", "")


def test_a_terminal_without_unicode_is_no_error() -> None:
    done = process("-m", "multilayer", "cost", NET, env={**os.environ, "PYTHONIOENCODING": "ascii"})
    assert done.returncode == 0, done.stderr
    assert "784?256 relu" in done.stdout


def test_an_error_cannot_steer_the_terminal() -> None:
    message = refused("cost", "784-\x1b[31m10")
    assert "\x1b" not in message
    assert "\\x1b" in message


def test_what_was_written_cannot_steer_the_terminal(tmp_path: Path) -> None:
    result = run("cost", "4-4", "--html", f"{tmp_path}/\x1b[31mx.html")
    assert result.stdout == f"wrote {tmp_path}/\\x1b[31mx.html\n"
    assert "\x1b" not in run("cost", "4-4", "--optimizer", "adam\x1c").stdout


# Bad input, one clear error each


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
        ([NET, "--csv", "--memory", "2GB"], "--html and --csv hold the account"),
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
            "--measure times a plain step of PyTorch in float32: leave out --dtype",
        ),
        ([NET, "--engine", "fused", "--measure"], "leave out --engine fused"),
        ([NET, "--l2", "--measure"], "leave out --l2\n"),
        ([NET, "--engine", "fused", "--verify"], "--verify checks what PyTorch does: leave out --engine fused"),
        ([NET, "--loss", "mse", "--as", "thop"], "--as reports what a tool says, in float32: leave out --loss mse"),
        ([NET, "--dtype", "float16", "--as", "thop"], "leave out --dtype float16"),
        (["100000-1000000-10", "--verify"], " GiB of memory, and this machine has "),
        (
            ["4-4-1", "--batch", "99999999999999", "--verify"],
            "a step of 99,999,999,999,999 rows with 25 parameters needs ",
        ),
        (["4-4-1", "--batch", "99999999999999", "--measure"], " GiB of memory, and this machine has "),
    ],
)
def test_bad_input_is_one_clear_error(args: list[str], message: str) -> None:
    found = refused("cost", *args)
    assert message in found
    if "Usage" not in found:  # typer's own message, in a box, for what is no number
        assert found.startswith("error: ")


def json_file(folder: Path, **changes: object) -> str:
    path = folder / "net.json"
    path.write_text(json.dumps({**Spec.parse("4-8-2").to_dict(), **changes}), encoding="utf-8")
    return str(path)


def test_json_with_an_unknown_key(tmp_path: Path) -> None:
    message = refused("cost", json_file(tmp_path, layer=[]))
    assert "net.json" in message
    assert "unknown key 'layer': did you mean 'layers'?" in message


def test_json_of_a_newer_version(tmp_path: Path) -> None:
    message = refused("cost", json_file(tmp_path, version=2))
    assert "version must be 1, got 2: update multilayer to read it" in message


@pytest.mark.parametrize(
    ("size", "message"), [(10_000_000, f"at most {MAX_JSON:,} bytes"), (100_000, "nested too deeply")]
)
def test_a_file_of_brackets(tmp_path: Path, size: int, message: str) -> None:
    path = tmp_path / "brackets.json"
    path.write_text("[" * size, encoding="utf-8")
    found = refused("cost", str(path))
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
        (b'{"format": "multilayer.spec", "format": 1}', "'format' stands twice"),
    ],
)
def test_a_broken_file(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "net.json"
    path.write_bytes(content)
    found = refused("cost", str(path))
    assert message in found
    assert "net.json" in found


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    assert "none.json: there is no such file" in refused("cost", str(tmp_path / "none.json"))
    assert f"cannot read {tmp_path}: it is a folder" in refused("cost", str(tmp_path))
    assert "there is no such file" in refused("cost", f"{tmp_path}/net.txt")


def test_a_file_without_permission(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "net.json"
    path.write_text("{}", encoding="utf-8")

    def forbid(*_: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "open", forbid)  # root may read anything, so the system cannot be asked
    with pytest.raises(SpecError, match=r"net\.json: Permission denied"):
        read_network(str(path), "relu")


# Ways in


def test_ways_in_give_the_same_network(tmp_path: Path) -> None:
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


def test_activation_is_the_implied_one() -> None:
    assert read_network("4-8-2", "gelu") == Spec.parse("4-8:gelu-2")


# Files


def test_a_page_is_written_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.html"
    assert run("cost", NET, "--html", str(path)).exit_code == 0
    assert path.stat().st_mode & 0o777 == 0o666 & ~_umask()
    first = path.read_text(encoding="utf-8")

    def fail(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", fail)
    assert "the disk is full" in refused("cost", "4-8-2", "--html", str(path))
    assert path.read_text(encoding="utf-8") == first
    assert [p.name for p in tmp_path.iterdir()] == ["a.html"]


def test_a_folder_is_no_file(tmp_path: Path) -> None:
    assert "it is a folder" in refused("cost", NET, "--html", str(tmp_path))


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
