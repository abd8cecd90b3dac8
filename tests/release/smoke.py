"""Smoke test of an installed package: train, predict, cost, report, explore, export, and messages for missing extras.

    python tests/release/smoke.py             with the optional libraries that are installed
    python tests/release/smoke.py --hide      as if none were installed

It needs only the package, works in a temporary folder and prints one line per check. `make release` and the workflow
for wheels run it after each installation. tests/test_install.py runs it with `--hide`, so it must stay quick.
"""

from __future__ import annotations

import contextlib
import importlib.util
import io
import os
import pickle
import sys
import tempfile
import time
from collections.abc import Callable
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.datasets import load_diabetes, load_iris
from sklearn.model_selection import GroupKFold, cross_val_score

import multilayer as ml
from multilayer.cli.main import app
from multilayer.errors import EXTRAS, MissingExtra

FAST: dict[str, Any] = {"epochs": 3, "quiet": True}
SMALL: dict[str, Any] = {"epochs": 2, "hidden": [16], "ensemble": 1, "random_state": 0}
KAN, MAXOUT = "4-kan(8)-3", "4-maxout(8)-3"


def mlp(*arguments: str, code: int = 0) -> str:
    """Run a command in this process, and return what it prints."""
    out = io.TextIOWrapper(io.BytesIO(), encoding="utf-8")
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
        ended = app(list(arguments), standalone_mode=False)
        out.flush()
    text = out.buffer.getvalue().decode()  # type: ignore[attr-defined]
    assert (ended or 0) == code, f"mlp {' '.join(arguments)}: exit code {ended}\n{text}"
    return text


def commands() -> None:
    """Every command but `export` and `tune`, which need an extra."""
    mlp("train", "digits", "--epochs", "3", "--quiet")
    assert Path("runs/digits-001/report.html").stat().st_size > 100_000
    mlp("train", "iris", "--quiet", "--epochs", "3", "--run", "iris")
    assert len(mlp("predict", "iris", "iris").splitlines()) == 151
    assert "accuracy" in mlp("evaluate", "iris", "iris")
    mlp("resume", "iris", "--quiet")
    mlp("report", "iris", "--out", "report.html")
    mlp("explore", "iris", "--data", "iris", "--out", "explorer.html")
    assert Path("explorer.html").stat().st_size > 100_000
    assert "FLOP" in mlp("cost", "784-256-128-10", "--batch", "32", "--rows", "60000")
    mlp("cost", "784-256-128-10", "--html", "cost.html")
    mlp("cost", "784-256-128-10", "--as", "torchinfo")
    mlp("show", "784-256-128-10")
    mlp("init", "784-256-128-10")
    assert "gelu" in mlp("activations")
    assert "iris" in mlp("runs", "iris")
    assert "mlp" in mlp("--version")


def estimators() -> None:
    """Fit, predict, continue, and cross-validation by groups."""
    X, y = load_iris(return_X_y=True)
    classifier = ml.MLPClassifier(epochs=3, random_state=0).fit(X, y)
    assert classifier.predict_proba(X).shape == (150, 3)
    assert "MLPClassifier" in classifier._repr_html_()
    again = pickle.loads(pickle.dumps(classifier))
    np.testing.assert_array_equal(again.predict(X), classifier.predict(X))
    again = ml.MLPClassifier(**SMALL, warm_start=True).fit(X, y).fit(X, y).partial_fit(X, y)
    assert len(again.classes_) == 3
    scores = cross_val_score(ml.MLPClassifier(**SMALL), X, y, groups=np.arange(150) % 10, cv=GroupKFold(2))
    assert len(scores) == 2
    X, y = load_diabetes(return_X_y=True)
    assert ml.MLPRegressor(**SMALL, loss="quantile(0.9)").fit(X, y).predict(X).shape == (442,)


def functions() -> None:
    """`fit`, `load`, `trace`, `explore` and `cost`, also for a network that the fused engine does not run."""
    ml.fit("4-8:gelu-3", "iris", run="fitted", **FAST)
    model = ml.load("fitted")
    assert model.evaluate("iris")["accuracy"] > 0.3
    assert ml.trace(model, "iris").loss > 0
    assert "<script" in ml.explore(model, "iris").html
    assert ml.cost(model.spec, batch=32).step > 0
    kan = ml.fit(KAN, "iris", engine="numpy", **FAST).model
    assert len(kan.predict("iris")) == 150
    assert ml.cost(MAXOUT).step > 0
    assert callable(ml.build)
    assert ml.build.__doc__


USES: dict[str, dict[str, Callable[[], Any]]] = {
    "torch": {
        "ml.build": lambda: ml.build("4-8-3"),
        "ml.to_torch": lambda: ml.to_torch(ml.load("fitted")),
        "to_torch": lambda: ml.load("fitted").to_torch(),
        "the torch engine": lambda: ml.fit("4-8-3", "iris", engine="torch", **FAST),
        "this network (kan1 has no kernel in the fused engine)": lambda: ml.fit(KAN, "iris", **FAST),
        "this network (maxout1 has no kernel in the fused engine)": lambda: ml.fit(MAXOUT, "iris", **FAST),
        "mlp cost --verify": lambda: mlp("cost", "4-8-3", "--verify"),
    },
    "matplotlib": {"a picture of a network": lambda: ml.draw(ml.Spec.parse("4-8-3"), "network.svg")},
    "onnx": {"export to ONNX": lambda: mlp("export", "fitted", "--out", "model.onnx")},
    "optuna": {"mlp tune": lambda: mlp("tune", "iris", "--trials", "2", "--epochs", "4", "--quiet")},
    "tensorboard": {"logging to tensorboard": lambda: ml.fit("4-8-3", "iris", trackers=["tensorboard"], **FAST)},
}
"""What needs an optional library, by the words that name it in the message."""
SERVICES = ("wandb", "mlflow", "trackio")
"""Trackers that may ask for an account: only their message is checked."""


def extras() -> None:
    """What needs an optional library works if it is installed. Otherwise, its message names the extra to install."""
    for library, uses in USES.items():
        for purpose, use in uses.items():
            if importlib.util.find_spec(library):
                use()
            else:
                refused(library, purpose, use)
    for name in SERVICES:
        if not importlib.util.find_spec(name):
            refused(name, f"logging to {name}", lambda: ml.fit("4-8-3", "iris", trackers=[name], **FAST))  # noqa: B023


def refused(library: str, purpose: str, use: Callable[[], Any]) -> None:
    expected = f"{purpose} needs {library}, which is not installed: pip install 'multilayer[{EXTRAS[library]}]'"
    message = ""
    try:
        use()
    except (MissingExtra, AssertionError) as error:  # a command prints the message
        message = " ".join(str(error).split())
    assert expected in message, f"expected: {expected}\ngot: {message or 'no error'}"


def hide(libraries: set[str]) -> None:
    """Make libraries look as if they were not installed."""
    find = PathFinder.find_spec

    def find_spec(name: str, *rest: Any) -> Any:
        return None if name.partition(".")[0] in libraries else find(name, *rest)

    PathFinder.find_spec = find_spec  # type: ignore[method-assign]


def main() -> None:
    hidden = set(EXTRAS) if "--hide" in sys.argv else set()
    hide(hidden)
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        for check in (commands, estimators, functions, extras):
            began = time.perf_counter()
            check()
            print(f"{check.__name__}: ok in {time.perf_counter() - began:.1f} s")
        os.chdir("/")
    assert not hidden & sys.modules.keys(), f"imported although hidden: {hidden & sys.modules.keys()}"
    absent = [name for name in EXTRAS if not importlib.util.find_spec(name)]
    print(
        f"multilayer {ml.__version__}, Python {sys.version.split()[0]}; not installed: {', '.join(absent) or 'nothing'}"
    )


if __name__ == "__main__":
    main()
