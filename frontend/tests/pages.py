"""Writes the explorer pages for the browser tests, and the predictions of Python for the same models.

    python pages.py FOLDER

explorer.html   the explorer without a model
digits.html     a trained classifier of images
table.html      a trained regression on numbers and categories
ensemble.html   the default ensemble of `mlp train` on a table with classes, and its model file
mean.html       the same with a number as target
labels.html     a classifier of two labels, with the targets of its rows
alone.html      one member of an ensemble that is too large for a page
findings.html   an ensemble from the folder of a run with findings
hostile.html    a model whose column names and categories are markup and script
wide.html       784-128-10, for timing
reduced.html    a network that the page cannot compute
notebook.html   a page with the frame that a notebook shows
facts.json      the predictions of Python, for the original rows and with one value changed
"""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch

import multilayer as ml
from multilayer.diagnostics.display import described
from multilayer.pages import explorer_model
from multilayer.pages.explorer import explore

sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))
from multilayer.diagnostics import Finding, Place, Remedy
from support.findings import DEAD, LEAKAGE, OVERFITTING, SATURATED, Adds
from support.payloads import PAYLOADS


def main(folder: Path) -> None:
    torch.set_num_threads(1)
    explore().save(folder / "explorer.html")
    facts: dict[str, Any] = {}
    digits = ml.fit("64-24:relu-10", "digits", epochs=6, quiet=True).model
    page = explore(digits, "digits")
    page.save(folder / "digits.html")
    facts["digits"] = _outputs(page)
    facts["digits"]["shares"] = digits.predict_proba("digits")[facts["digits"]["places"]].tolist()
    digits.save(folder / "digits.safetensors")
    frame = table()
    model = ml.fit("4+cat(3)-columns(pbld)-12:gelu-1", frame, target="price", epochs=4, quiet=True).model
    page = explore(model, frame)
    page.save(folder / "table.html")
    facts["table"] = _outputs(page)
    model.save(folder / "table.safetensors")
    changed = frame.iloc[[page.state["model"]["places"][0]]].assign(area=150.0)
    facts["table"]["changed"] = float(model.predict(changed)[0])
    facts["table"]["predicted"] = float(model.predict(frame.iloc[[page.state["model"]["places"][0]]])[0])
    for name, target in (("ensemble", "place"), ("mean", "price")):
        facts[name] = ensemble(folder, name, target)
    facts |= labels_and_alone(folder)
    findings(folder)
    hostile(folder)
    (folder / "notebook.html").write_text(f"<!doctype html><div id=panel>{explore()._repr_html_()}</div>")
    explore(
        ml.build(
            "3+cat(4)-columns(pbld)-6:batchnorm:gelu-6:prelu(per=network)-[layernorm-5:prelu(per=network)-6]-2", seed=1
        ),
        ([[0.5, -1, 2]], [[3]]),
    ).save(folder / "plain.html")
    explore(ml.build("784-128:relu-10"), np.random.default_rng(0).normal(size=(40, 784))).save(folder / "wide.html")
    explore(ml.build("2-kan(3)-1"), [[0.1, 0.2]]).save(folder / "reduced.html")
    (folder / "facts.json").write_text(json.dumps(facts))


def _outputs(page: Any) -> dict[str, Any]:
    """Return the expected numbers of a page: raw outputs in float64, and predictions."""
    state = page.state["model"]
    return {"outputs": state["predictions"][0], "places": state["places"], "targets": state["targets"]}


def ensemble(folder: Path, name: str, target: str) -> dict[str, Any]:
    """Write the page of a model of the default recipe, an ensemble with a joint calibration."""
    frame = table()
    inputs = frame.drop(columns=target)
    chosen = ml.MLPClassifier if target == "place" else ml.MLPRegressor
    model = chosen(ensemble=8, epochs=12, random_state=0).fit(inputs, frame[target])
    model.model_.save(folder / f"{name}.safetensors")
    page = explore(model, inputs, frame[target])
    page.save(folder / f"{name}.html")
    first = inputs.iloc[[page.state["model"]["places"][0]]]
    rows = {"predicted": first, "changed": first.assign(area=150.0)}
    if target == "place":
        told = {
            k: dict(zip(model.classes_, model.predict_proba(row)[0].tolist(), strict=True)) for k, row in rows.items()
        }
    else:
        told = {k: float(model.predict(row)[0]) for k, row in rows.items()}
    return {"members": page.state["model"]["members"], "score": model.score(inputs, frame[target]), **told}


def labels_and_alone(folder: Path) -> dict[str, Any]:
    """Write two pages. Return `score` of the estimators for their rows."""
    frame = table()
    inputs, labels = frame[["area", "rooms"]], np.stack([frame["price"] > 400, frame["area"] > 90], 1).astype(int)
    model = ml.MLPClassifier(ensemble=2, epochs=4, hidden=(8,), random_state=0).fit(inputs, labels)
    page = explore(model, inputs, labels)
    page.save(folder / "labels.html")
    shown = page.state["model"]["places"]
    right = int((model.predict(inputs) == labels)[shown].all(1).sum())
    facts = {"labels": {"score": model.score(inputs, labels), "right": right}}
    places = frame["place"]
    model = ml.MLPClassifier(ensemble=3, epochs=2, hidden=(8,), random_state=0).fit(inputs, places)
    most, explorer_model.MOST_NUMBERS = explorer_model.MOST_NUMBERS, model.spec_.n_stored
    page = explore(model, inputs, places, member=1)
    explorer_model.MOST_NUMBERS = most
    page.save(folder / "alone.html")
    alone, shown = ml.trace(model, inputs, places, member=1).prediction, page.state["model"]["places"]
    right = int((alone[shown] == places.to_numpy()[shown]).sum())
    first = str(model.predict(inputs.iloc[[shown[0]]])[0])
    return {**facts, "alone": {"score": model.score(inputs, places), "right": right, "whole": first}}


def table() -> pd.DataFrame:
    draw = np.random.default_rng(5)
    area, rooms = draw.uniform(30, 200, 240), draw.integers(1, 7, 240)
    age = np.where(draw.random(240) < 0.1, np.nan, draw.uniform(0, 90, 240))
    place = draw.choice(["centre", "suburb", "village"], 240)
    price = 3 * area + 10 * rooms + (place == "centre") * 90 - np.nan_to_num(age) + draw.normal(0, 5, 240)
    return pd.DataFrame({"area": area, "rooms": rooms, "age": age, "place": place, "price": price})


def findings(folder: Path) -> None:
    """Write the page of an ensemble whose second member has saturated units."""
    saturated = replace(SATURATED, where=Place(layer="relu2", units=(1, 3), member=2), evidence={"units": 2, "of": 16})
    dead = replace(DEAD, where=Place(layer="relu1", units=tuple(range(4, 44))))
    observer = Adds(dead, saturated, LEAKAGE, OVERFITTING)
    options: dict[str, Any] = {"ensemble": 2, "epochs": 2, "quiet": True, "observers": [observer]}
    ml.fit("64-64:relu-16:relu-10", "digits", run=folder / "run", **options)
    page = explore(folder / "run", "digits")
    page.state["model"]["findings"] = page.state["model"]["findings"][:4]  # without what the short training caused
    page.save(folder / "findings.html")


def hostile(folder: Path) -> None:
    """Write a page in which all strings of the user are attacks: columns, categories, classes, the target's name, and
    findings."""
    draw = np.random.default_rng(1)
    n = 8 * len(PAYLOADS)
    columns = {text: draw.normal(size=n) for text in PAYLOADS}
    kinds = pd.Series(PAYLOADS * 8)
    frame = pd.DataFrame(
        {**columns, "<b>kind</b>": kinds, "<img src=x onerror=window.hit=1> y": [f"{t}!" for t in kinds]}
    )
    model = ml.fit(None, frame, target="<img src=x onerror=window.hit=1> y", recipe="plain", epochs=1, quiet=True).model
    page = explore(model, frame)
    found = [
        Finding(
            kind=text,
            severity="error",
            message=text,
            where=Place(layer=layer, units=(0,), column=text),
            evidence={text: 1.0},
            remedies=(Remedy(text=text, command=text),),
        )
        for text, layer in zip(PAYLOADS, [*PAYLOADS[1:], str(model.spec.entries[1].name)], strict=True)
    ]
    page.state["model"]["findings"] = [described(finding.to_dict()) for finding in found]
    page.save(folder / "hostile.html")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
