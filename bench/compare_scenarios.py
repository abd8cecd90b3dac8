"""The runs that `compare_commits.py` compares. Separate processes run this file for each commit.

    python compare_scenarios.py OUT RENAMES [SCENARIO …]

`multilayer` is imported from PYTHONPATH. Every scenario runs in a fork with OUT/SCENARIO as its current folder and
writes its results there: run folders, models, JSON, tensors, and `commands.json` with the output and exit code of each
command. RENAMES is a JSON object of old and new names of functions, arguments and options (`names` of renamed.json). It
is empty for the old commit.

Scenarios use only public names of `multilayer` and the command `mlp`, so they still work after files have moved.
Python's clocks are replaced by one that advances by microseconds per reading. Results that depend on the time of day or
on the load of the machine (the number of shuffles of a report, lines of a progress bar) are therefore the same for both
commits.
"""

from __future__ import annotations

import itertools
import json
import math
import os
import pkgutil
import runpy
import shlex
import shutil
import signal
import sys
import time
import traceback
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

PRELOADED = ("numpy", "torch", "typer", "rich.console", "pyarrow", "pandas", "sklearn.datasets", "safetensors.numpy")
"""Modules that are imported once, before the forks."""

RENAMED: dict[str, str] = {}
SCENARIOS: dict[str, Callable[[], None]] = {}


def scenario(function: Callable[[], None]) -> Callable[[], None]:
    SCENARIOS[function.__name__] = function
    return function


# Calls by old names, which are translated to the new ones


def named(name: str, where: str = "") -> str:
    """Return the name that this commit uses. A rename of `where.name` has priority over one of `name`."""
    return RENAMED.get(f"{where}{name}", RENAMED.get(name, name))


def call(owner: Any, function: str, *args: Any, **kwargs: Any) -> Any:
    """Call a function of `multilayer` or a method by its old name, with old names of keyword arguments."""
    arguments = {named(key, f"{function}."): value for key, value in kwargs.items()}
    return getattr(owner, named(function))(*args, **arguments)


def ml(function: str, *args: Any, **kwargs: Any) -> Any:
    import multilayer

    return call(multilayer, function, *args, **kwargs)


def mlp(line: str, before: Callable[[], None] | None = None, expected: int | None = None) -> None:
    """Run a command in a fork, and append its output and exit code to commands.json."""
    command, *words = shlex.split(line)
    words = [named(word, f"{command} ") if word.startswith("-") else word for word in words]
    files = [Path(".stdout"), Path(".stderr")]

    def work() -> None:
        for i, file in enumerate(files, start=1):
            os.dup2(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), i)
        sys.stdout, sys.stderr = os.fdopen(1, "w"), os.fdopen(2, "w")
        if before is not None:
            before()
        sys.argv = ["mlp", named(command), *words]
        runpy.run_module("multilayer", run_name="__main__", alter_sys=True)

    code = in_fork(work)
    output = [file.read_text() for file in files]
    for file in files:
        file.unlink()
    if expected is not None and code != expected:
        raise RuntimeError(f"mlp {line} must end with exit code {expected}, got {code}: {output[1]}")
    log = Path("commands.json")
    commands = json.loads(log.read_text()) if log.exists() else []
    commands.append({"command": f"mlp {line}", "code": code, "stdout": output[0], "stderr": output[1]})
    log.write_text(json.dumps(commands, ensure_ascii=False, indent=1))


def in_fork(work: Callable[[], None]) -> int:
    """Return the exit code of `work`, or 128 + the number of the signal that ended it."""
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            work()
            code = 0
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else 0 if end.code is None else 1
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)
    status = os.waitpid(pid, 0)[1]
    return os.WEXITSTATUS(status) if os.WIFEXITED(status) else 128 + os.WTERMSIG(status)


def keep(name: str, value: Any) -> None:
    Path(f"{name}.json").write_text(json.dumps(plain(value), ensure_ascii=False, indent=1))


def keep_arrays(name: str, arrays: Any) -> None:
    """Write arrays or torch tensors by name. Their bytes are compared."""
    import numpy as np
    from safetensors.numpy import save_file

    save_file({key: np.ascontiguousarray(value) for key, value in arrays.items()}, f"{name}.safetensors")


def plain(value: Any) -> Any:
    import numpy as np

    if isinstance(value, dict):
        return {str(key): plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [plain(inner) for inner in value]
    if isinstance(value, np.ndarray | np.generic):
        return plain(value.tolist())
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value if isinstance(value, str | int | float | bool | None) else repr(value)


# Data: tables with a fixed formula


def mixed(rows: int = 240) -> Path:
    """A table with numbers, categories, dates, missing values, groups, weights and three kinds of target."""
    lines = ["age,income,city,joined,member,group,weight,kind,spent,left"]
    cities = ("Oslo", "Lima", "Cairo", "")
    for i in range(rows):
        a, b = math.sin(1.7 * i) + 0.3 * math.sin(0.37 * i * i), math.cos(2.3 * i)
        city = cities[(i * i + i // 3) % 4]
        income = "" if i % 11 == 0 else f"{3000 + 900 * b:.2f}"
        score = a + 0.5 * b + 0.4 * (city == "Lima")
        kind = "low" if score < -0.4 else "high" if score > 0.5 else "middle"
        day = f"20{10 + i % 9}-0{1 + i % 8}-1{i % 10}"
        row = (f"{40 + 12 * a:.1f}", income, city, day, "yes" if i % 3 else "no", i // 6, 1 + i % 4, kind)
        lines.append(",".join(map(str, (*row, f"{20 + 6 * score + b * a:.3f}", "no" if score > 0 else "yes"))))
    path = Path("mixed.csv")
    path.write_text("\n".join(lines) + "\n")
    return path


def frame() -> Any:
    import pandas as pd

    return pd.read_csv(mixed(), parse_dates=["joined"])


# Training


def two_runs(engine: str) -> None:
    """Train a classifier and a regressor, with the command and with the function."""
    mixed()
    common = f"--engine {engine} --seed 3 --group group --weight weight --checkpoint-every 7"
    arch = "'9+cat(3,2,2)-16:batchnorm:gelu:dropout(0.2)-12:layernorm:tanh-3'"
    mlp(
        f"train mixed.csv --target kind --arch {arch} --epochs 4 --batch-size 32 {common} --run classes "
        "--optimizer 'adamw(beta2=0.95)' --average 0.9 --clip-norm 1 --augment 'noise(0.1)+mixup(0.2)' "
        "--class-weight balanced --statistics-every 6",
        expected=0,
    )
    optimizer = {"optimizer": "momentum", "schedule": "one_cycle", "learning_rate": 0.02, "l2": 0.001}
    choice = {"validation": 0.25, "patience": 3, "seed": 5, "init": "data", "loss": "huber(delta=2)"}
    where = {"target": "spent", "engine": engine, "epochs": 5, "run": "numbers", "quiet": True}
    table = frame()[["age", "income", "group", "weight", "spent"]]
    run = ml("fit", "5-10:selu-1", table, **optimizer, **choice, **where)
    keep("numbers", {"metrics": run.metrics, "repr": repr(run.model)})
    mlp("runs numbers classes --json")
    mlp("train iris --arch 4-8-3 --epochs 2 --json --run shown --seed 1 --engine " + engine, expected=0)


@scenario
def fused() -> None:
    two_runs("fused")


@scenario
def torch() -> None:
    two_runs("torch")
    mlp("train iris --arch '4-kan(6)-maxout(6, k=2)-3' --epochs 2 --engine torch --run kan", expected=0)


@scenario
def numpy() -> None:
    two_runs("numpy")


@scenario
def tabular() -> None:
    """The tabular recipe: held-out members, calibration, conformal intervals, report, prediction, export."""
    mixed()
    mlp("train mixed.csv --target left --epochs 3 --hidden 12,8 --time joined --run binary", expected=0)
    mlp("train mixed.csv --target spent --epochs 3 --hidden 12 --activation gelu --dropout 0.1 --run spent", expected=0)
    mlp("train mixed.csv --target kind --epochs 3 --hidden 12 --categorical group --run kind", expected=0)
    mlp("train digits --recipe plain --epochs 1 --batch-size 256 --run digits -q", expected=0)
    for run in ("binary", "spent", "kind"):
        mlp(f"evaluate {run} mixed.csv", expected=0)
        mlp(f"evaluate {run} mixed.csv --json", expected=0)
        mlp(f"predict {run} mixed.csv", expected=0)
        mlp(f"export {run} --out {run}.onnx", expected=0)
        model = ml("load", f"{run}/model.safetensors")
        answers = {"outputs": call(model, "outputs", "mixed.csv"), "evaluate": call(model, "evaluate", "mixed.csv")}
        keep(run, answers | {"predict": call(model, "predict", "mixed.csv")})
    mlp("predict kind mixed.csv --proba --out proba.csv --escape-formulas", expected=0)
    mlp("report binary", expected=0)
    mlp("report binary kind --out both.html", expected=0)
    mlp("report spent --data mixed.csv --out judged.html", expected=0)
    mlp("runs", expected=0)
    mlp("runs --json", expected=0)
    mlp("show kind")
    mlp("cost kind --json")


@scenario
def ensemble() -> None:
    for engine in ("fused", "torch", "numpy"):
        options = {"ensemble": 3, "epochs": 3, "engine": engine, "run": engine, "quiet": True, "batch_size": 25}
        run = ml("fit", "4-9:silu-3", "iris", **options)
        keep_arrays(f"{engine}-answers", {"proba": call(run.model, "predict_proba", "iris")})
        keep(engine, {"metrics": run.metrics, "trace": call(ml("trace", run.model, "iris", member=1), "to_dict")})
    mlp("evaluate fused iris")


@scenario
def resume() -> None:
    """Runs that are killed or stopped just before the note of a checkpoint is renamed, and an uninterrupted run."""
    arch = "--arch '4-8:batchnorm:relu:dropout(0.2)-3' --epochs 6 --batch-size 16 --checkpoint-every 5 --average 0.9"
    for engine in ("fused", "torch", "numpy"):
        for how, code in (("whole", 0), ("killed", 128 + 9), ("stopped", 128 + 2)):
            number = {"killed": signal.SIGKILL, "stopped": signal.SIGINT}.get(how)
            before = None if number is None else at_checkpoint("00000020-last.json", number)
            mlp(f"train iris {arch} --engine {engine} --run {engine}-{how} -q", before, code)
            if number is not None:
                shutil.copytree(f"{engine}-{how}", f"{engine}-{how}-before")
                mlp(f"resume {engine}-{how} -q", expected=0)
    mlp("resume fused-whole", expected=0)
    Path("fused-whole/model.safetensors").unlink()
    run = ml("resume", "fused-whole", quiet=True)
    keep("rebuilt", run.metrics)


def at_checkpoint(name: str, number: int) -> Callable[[], None]:
    """Return a function that arms a signal: this process gets it just before a file is renamed to `name`."""

    def hook(event: str, args: tuple[Any, ...]) -> None:
        if event == "os.rename" and os.path.basename(os.fspath(args[1])) == name:
            os.kill(os.getpid(), number)

    return lambda: sys.addaudithook(hook)


@scenario
def estimators() -> None:
    table = frame()
    x, weight = table.drop(columns=["kind", "spent", "left", "weight"]), table["weight"]
    options: dict[str, Any] = {"hidden": (10,), "epochs": 3, "random_state": 4, "batch_size": 64}
    for name, target, more in (
        ("MLPClassifier", "kind", {"ensemble": 2, "class_weight": "balanced"}),
        ("MLPClassifier", "left", {"ensemble": 1, "dropout": 0.1, "activation": "gelu"}),
        ("MLPRegressor", "spent", {"ensemble": 3, "learning_rate": 0.01, "loss": "quantile(0.1, 0.5, 0.9)"}),
        ("MLPRegressor", "spent", {}),
    ):
        about: dict[str, Any] = {}
        arrays: dict[str, Any] = {}
        label = f"{name}-{target}-{len(more)}"
        model = ml(name, **options, **more)
        about["repr"], about["params"] = repr(model), call(model, "get_params")
        call(model, "fit", x, table[target], sample_weight=weight)
        call(model, "save", f"{label}.safetensors")
        loaded = call(type(model), "load", f"{label}.safetensors")
        about["predict"] = call(model, "predict", x)
        about["loaded"] = call(loaded, "predict", x)
        about["score"] = call(model, "score", x, table[target]) if "loss" not in more else None
        about["fitted"] = sorted(key for key in vars(model) if key.endswith("_") and not key.startswith("_"))
        about["spec"], about["cost"] = str(model.spec_), str(model.cost_)
        if name == "MLPClassifier":
            arrays["proba"] = call(model, "predict_proba", x)
            arrays["log"] = call(model, "predict_log_proba", x)
        call(model, "partial_fit", x[:100], table[target][:100])
        call(model, "save", f"{label}-after.safetensors")
        begun = ml(name, hidden=(8,), random_state=1)
        first = {"classes": sorted(set(table[target]))} if name == "MLPClassifier" else {}
        call(begun, "partial_fit", x[:120], table[target][:120], **first)
        call(begun, "partial_fit", x[120:], table[target][120:])
        call(begun, "save", f"{label}-begun.safetensors")
        keep_arrays(f"{label}-arrays", arrays | {"after": plain_numbers(call(model, "predict", x))})
        keep(label, about)
    warm = ml("MLPClassifier", warm_start=True, **options)
    for _ in range(2):
        call(warm, "fit", x[["age", "income"]].to_numpy(), table["left"], groups=table["group"])
    call(warm, "save", "warm.safetensors")
    several = ml("MLPRegressor", **options)
    call(several, "fit", x, table[["spent", "age"]].to_numpy(), X_val=x[:50], y_val=table[["spent", "age"]][:50])
    call(several, "save", "several.safetensors")


def plain_numbers(values: Any) -> Any:
    """Return class labels as numbers, in alphabetical order."""
    import numpy as np

    return np.unique(values, return_inverse=True)[1] if np.asarray(values).dtype.kind in "OUT" else values


@scenario
def export() -> None:
    """ONNX graphs and torch modules of an ensemble and of an untrained network; pictures."""
    import torch

    run = ml("fit", "4-9:gelu:dropout(0.1)-[layernorm-9:silu-9]-3", "iris", ensemble=2, epochs=2, quiet=True)
    call(run.model, "to_onnx", "ensemble.onnx")
    call(run.model, "save", "ensemble.safetensors")
    mlp("export ensemble.safetensors --out by-command.onnx")
    for label, options in (("member", {"member": 1}), ("raw", {"preprocessing": True})):
        module = ml("to_torch", run.model, **options)
        x = torch.linspace(0.1, 7, 40, dtype=torch.float64).reshape(10, 4)
        module_x = x if label == "raw" else x.to(next(module.parameters()).dtype)
        keep_arrays(f"torch-{label}", dict(module.state_dict()) | {"output": module(module_x).detach()})
        keep(f"torch-{label}", repr(module).splitlines())
    model = ml("build", "6-12:batchnorm:elu-5-2", seed=7)
    x = torch.sin(torch.arange(48.0)).reshape(8, 6)
    model(x).square().mean().backward()
    grads = {f"{name}.grad": value.grad for name, value in model.named_parameters()}
    keep_arrays("built", dict(model.state_dict()) | grads)
    layers = torch.nn.Sequential(torch.nn.Linear(6, 5), torch.nn.GELU(), torch.nn.Linear(5, 2))
    keep("from-torch", repr(ml("from_torch", layers)))
    ml("draw", "6-12:batchnorm:elu-5-2", "network.svg")


@scenario
def tune() -> None:
    line = "tune iris --trials 3 --epochs 4 --ensemble 1 --seed 2 --run tuned -q"
    mlp(line, expected=0)
    mlp(line.replace("--trials 3", "--trials 4").replace(" -q", " --json"), expected=0)


@scenario
def parts() -> None:
    """Trace, cost, initial tensors, signal propagation: plain calls without training."""
    networks = {
        "plain": "5-7:gelu-4:tanh-3",
        "norms": "5-8:batchnorm:relu-8:layernorm:silu-8:rmsnorm-8:groupnorm(2):selu-3",
        "blocks": "5-8:none-[layernorm-16:gelu:dropout(0.1)-8]*2-3",
        "gated": "5-glu(8)-maxout(6, k=2)-2",
        "kan": "5-kan(4)-2",
        "columns": "5+cat(3,12)-columns(pbld, sigma=0.3):scale-linear(8, scale=tangent):blend(selu)-1",
    }
    import numpy as np

    x = np.sin(np.arange(30.0)).reshape(6, 5)
    found: dict[str, Any] = {}
    for name, text in networks.items():
        spec = parsed(text)
        found[f"{name} spec"] = json.loads(call(spec, "to_json"))
        for scheme in ("auto", "he", "orthogonal", "torch", "depth"):
            keep_arrays(f"{name}-{scheme}", ml("initialise", spec, scheme, seed=11))
        for options in ({}, {"optimizer": "momentum", "l2": True, "clip": True, "rows": 1000}, {"engine": "fused"}):
            for convention in ("actual", "textbook"):
                cost = ml("cost", spec, batch=16, convention=convention, **options)
                found[f"{name} cost {convention} {options}"] = call(cost, "to_dict")
        if name in ("plain", "norms", "blocks"):
            model = ml("build", spec, seed=2)
            goal = np.arange(6) % 3
            traced = ml("trace", model, x.astype(np.float32), goal, optimizer="adam", rate=0.05, l2=0.01)
            found[f"{name} trace"] = call(traced, "to_dict")
            found[f"{name} variance"] = repr(ml("variance", text, "he", seed=3, rows=64))
    keep("found", found)


def parsed(text: str) -> Any:
    import multilayer

    return call(getattr(multilayer, named("Spec")), "parse", text)


@scenario
def reload() -> None:
    """Models and runs of OLD, which both commits load, evaluate and resume. Other scenarios compare their files."""
    old = Path(os.environ["COMPARE_OLD"])
    mixed()
    for run in ("binary", "spent", "kind"):
        shutil.copytree(old / "tabular" / run, run)
        for line in (f"evaluate {run} mixed.csv --json", f"runs {run}", f"report {run} --out {run}.html"):
            mlp(line, expected=0)
        shutil.rmtree(run)
    for run in ("fused-killed", "torch-stopped", "numpy-killed"):
        shutil.copytree(old / "resume" / f"{run}-before", run)
        mlp(f"resume {run} -q", expected=0)
        mlp(f"evaluate {run} iris --json", expected=0)
        shutil.rmtree(run)


@scenario
def commands() -> None:
    mixed(20)
    for command in HELP.split():
        mlp(f"{command} --help", expected=0)
    for line in COMMANDS.strip().splitlines():
        mlp(line.strip())


HELP = "train tune resume predict evaluate export runs report explore cost show activations init"
COMMANDS = """
    --help
    --version
    cost 784-256-128-10 --batch 32 --rows 60000
    cost 784-256-128-10 --convention textbook --explain
    cost '13+cat(3,12)-256:gelu-1' --memory 2GB --json
    cost 784-256-10 --optimizer momentum --l2 --clip --average --dtype float16 --engine fused
    cost 784-256-10 --csv --html cost.html
    cost 784-256-10 --flops 1e9 --json
    cost 784-256-10 --sweep batch=1..64 --plot sweep.svg
    cost 784-256-10 --budget flops=1,memory=1MB
    cost 784-256-10 --verify
    cost 20-32:gelu-10 --as torchinfo
    cost 20-32:gelu-10 --as fvcore
    cost 20-32:gelu-10 --as thop --json
    cost 20-32:batchnorm-10 --as flopcounter
    cost 784-x-10
    cost 784-10 --as nothing
    cost missing.json
    show 784-256-128-10
    show '20-384:none-[layernorm-64:gelu:dropout(0.1)-384]*6-10' --out network.svg
    show '13+cat(3,12)-columns(pbld):scale-(linear(16):blend(selu))*2-1' --json
    activations
    activations gelu 'leaky_relu(0.2)' --plot activations.svg
    activations --json
    activations rellu
    init 64-32:tanh-10 --scheme he
    init '64-(64:tanh)*6-10' --scheme 'normal(0.01)' --plot variance.svg --json
    runs
    train mixed.csv
    train mixed.csv --target nothing
    train mixed.csv --target spent --epochs 0
    train mixed.csv --target kind --loss mse
    train nothing.csv
    train iris --optimizer adamm
    train iris --epoch 3
    evaluate mixed.csv mixed.csv
    tune iris --trials 0
    trian iris
"""


def own_modules() -> list[str]:
    """Return every module of the package. Importing them before the forks halves the time of a short command."""
    import multilayer

    found = pkgutil.walk_packages(multilayer.__path__, "multilayer.")
    return [module.name for module in found if not module.name.endswith(("__main__", "_core"))]


def main() -> int:
    out, renames, chosen = Path(sys.argv[1]), json.loads(sys.argv[2]), sys.argv[3:]
    RENAMED.update(renames)
    for module in (*PRELOADED, *own_modules()):
        import_module(module)
    now = itertools.count(1_700_000_000_000_000, int(os.environ["COMPARE_CLOCK"]))
    for clock in ("time", "monotonic", "perf_counter"):
        setattr(time, clock, lambda: next(now) / 1e6)
        setattr(time, f"{clock}_ns", lambda: next(now) * 1000)
    failed = 0
    for name in chosen or SCENARIOS:
        folder = out / name
        folder.mkdir(parents=True)

        def work(folder: Path = folder, name: str = name) -> None:
            os.chdir(folder)
            try:
                SCENARIOS[name]()
            except BaseException:
                Path("error.txt").write_text(traceback.format_exc())
                raise

        failed += in_fork(work) != 0
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
