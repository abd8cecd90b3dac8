"""The Python side of the explorer: the data of the page, its safe encoding, and the ways to open it."""

from __future__ import annotations

import base64
import hashlib
import html
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from torch import nn
from typer.testing import CliRunner

import multilayer as ml
from multilayer.cli.main import app
from multilayer.errors import DataError, OptionError, StorageError
from multilayer.pages import explorer_model
from multilayer.pages import html as page
from multilayer.pages.explorer import Explorer, catalogue, explore
from support.cases import ALL, Case
from support.quick_estimators import QUICK, classes, numbers, people

pytestmark = pytest.mark.filterwarnings("ignore:columns dropped")


def state_of(text: str) -> Any:
    found = re.search(r'<script type="application/json" id="state">(.*?)</script>', text, re.DOTALL)
    assert found is not None
    return json.loads(found[1])


def unpacked(packed: dict[str, Any]) -> np.ndarray:
    raw = np.frombuffer(base64.b64decode(packed["data"]), dtype=f"<{packed['type']}")
    return raw.astype(np.float64).reshape(packed["shape"])


@pytest.fixture(scope="module")
def digits() -> Any:
    return ml.fit("64-8:relu-10", "digits", epochs=1, quiet=True).model


# The page as a whole


@pytest.mark.parametrize("name", ["explorer", "report"])
def test_the_policy_allows_only_the_script_and_style_of_the_page_by_hash(name: str) -> None:
    text = page.fill(name, {})
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', text)
    assert policy is not None
    rules = dict(rule.split(" ", 1) for rule in policy[1].split("; "))
    assert rules["default-src"] == "'none'"
    assert "unsafe" not in policy[1]
    assert "connect-src" not in rules
    for rule, start, end in (
        ("script-src", '<script type="module">', "</script>"),
        ("style-src", "<style>", "</style>"),
    ):
        inside = text.split(start)[1].split(end)[0]
        assert rules[rule] == f"'sha256-{base64.b64encode(hashlib.sha256(inside.encode()).digest()).decode()}'"
    assert "connect-src 'self'" in page.fill(name, {}, live=True)
    markup = re.sub(r"<(script|style).*?</\1>", "", text, flags=re.DOTALL)
    assert " style=" not in markup
    assert "http" not in markup.replace("http-equiv", "")


PAYLOADS = [
    "</script><script>alert(1)</script>",
    "<!--<script>",
    "<img src=x onerror=alert(1)>",
    "&lt;script&gt;",
    "\u2028\u2029",
    "__STATE__ __POLICY__",
    '"}</script>',
    "\x00\x1b[31m",
    "]]>",
    "$& $1 \\0",
]


@pytest.mark.parametrize("payload", PAYLOADS)
@pytest.mark.parametrize("place", ["{}", "a {} b", "{}{}", "é {}", "{}\n{}", "'{}"])
def test_no_string_of_the_data_becomes_markup(payload: str, place: str) -> None:
    text = place.replace("{}", payload)
    filled = page.fill("explorer", {"a": [text, {text: text}]})
    assert state_of(filled) == {"a": [text, {text: text}]}
    empty = page.fill("explorer", {})
    assert re.findall("<[a-zA-Z!/]+", filled.split('id="state">')[1]) == re.findall(
        "<[a-zA-Z!/]+", empty.split('id="state">')[1]
    )


def test_nan_and_infinity_become_strings() -> None:
    assert json.loads(page.to_json({"x": np.array([1.5, np.nan, -np.inf]), "n": np.int64(3)})) == {
        "x": [1.5, "nan", "-inf"],
        "n": 3,
    }


def test_a_missing_template_is_an_error_with_the_command_that_builds_it() -> None:
    with pytest.raises(StorageError, match=r"has not been built .* run `make pages`"):
        page.fill("nothing", {})


def test_the_page_is_small() -> None:
    import gzip

    assert len(gzip.compress(page.fill("explorer", {}).encode())) < 200_000


# The gallery


def test_the_catalogue_has_the_properties_of_the_activations() -> None:
    found = {entry["name"]: entry for entry in catalogue()}
    assert found["sigmoid"]["max_slope"] == pytest.approx(0.25)
    assert found["polynomial"]["max_slope"] is None
    assert found["relu"]["dies"]
    assert found["relu"]["flat_below"] == 0
    assert "prelu" not in found
    assert "softmax" not in found


# Networks of the user


def test_the_page_has_the_exact_parameters_and_predictions_of_a_model(digits: Any) -> None:
    state = explore(digits, "digits").state["model"]
    for name, value in digits.tensors.items():
        assert np.array_equal(unpacked(state["tensors"][0][name]), value)
    assert state["output"]["kind"] == "multiclass"
    assert state["image"] == [8, 8, 1]
    assert len(state["features"]) == 64
    rows = unpacked(state["rows"])
    assert rows.shape == (explorer_model.MOST_ROWS, 64)
    assert len(state["targets"]) == explorer_model.MOST_ROWS
    assert state["cost"]["parameters"] == digits.spec.n_parameters
    traced = ml.trace(digits, "digits").output[state["places"]]
    np.testing.assert_allclose(state["predictions"], [traced], rtol=0, atol=1e-12)  # sums of 64 terms in another order


def test_rows_without_targets_and_no_rows(digits: Any) -> None:
    pixels = np.zeros((3, 64))
    state = explorer_model.model_state(digits, pixels)
    assert state["targets"] is None
    assert state["places"] == [0, 1, 2]
    assert explorer_model.model_state(digits, pixels, [1, 2, 3])["targets"] == [1, 2, 3]
    alone = explorer_model.model_state(digits)
    assert alone["places"] == []
    assert unpacked(alone["rows"]).shape == (1, 64)


def test_columns_have_their_names_scaling_and_categories() -> None:
    import pandas as pd

    frame = pd.DataFrame({"size": [1.0, 2, 3, 4] * 10, "kind": ["a", "b", "c", "a"] * 10, "y": [1.0, 2.5, 3, 4.5] * 10})
    model = ml.fit(None, frame, target="y", recipe="plain", epochs=1, quiet=True).model
    state = explorer_model.model_state(model, frame)
    names = [feature["name"] for feature in state["features"]]
    assert names == ["size", "kind"]
    assert state["features"][1]["values"] == ["a", "b", "c"]
    rows = unpacked(state["rows"])
    units = rows[:, 0] * state["features"][0]["scale"] + state["features"][0]["center"]
    np.testing.assert_allclose(units[:4], [1, 2, 3, 4])
    assert state["targets"][:4] == pytest.approx([1.0, 2.5, 3.0, 4.5])


def test_torch_modules_and_untrained_networks_are_accepted() -> None:
    state = explore(nn.Sequential(nn.Linear(3, 2), nn.ReLU(), nn.Linear(2, 1)), [[1.0, 2, 3]]).state["model"]
    assert state["text"] == "3-2-1"
    assert [feature["name"] for feature in state["features"]] == ["x1", "x2", "x3"]
    import pandas as pd

    named = explore(ml.build("2-1"), pd.DataFrame({"a": [1.0], "b": [2.0]})).state["model"]
    assert [feature["name"] for feature in named["features"]] == ["a", "b"]
    with pytest.raises(DataError, match="rows of 2 numbers"):
        explore(ml.build("2-1"), [[1.0]])


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("2-kan(3)-1", "kan1 is a layer of kind kan"),
        ("2-3:apl-1", "apl1 is an activation that the page cannot compute"),
        ("2-2000-1", "linear1 has 2,000 units"),
        ("1024-1024*5-10", "numbers, and the page takes up to"),
        ("784-1024-10", ""),
    ],
)
def test_the_reason_for_a_reduced_page(text: str, reason: str) -> None:
    found = explorer_model.reduced(ml.Spec.parse(text))
    assert reason in found
    assert bool(found) == bool(reason)


@pytest.mark.parametrize("case", ALL, ids=lambda case: case.name)
def test_the_page_is_reduced_for_the_layers_that_the_table_of_cases_lists(case: Case) -> None:
    assert bool(explorer_model.reduced(case.spec)) == (case.page != "yes")


def test_a_reduced_page_has_predictions_and_no_weights() -> None:
    state = explorer_model.model_state(ml.build("2-kan(3)-1"), [[0.5, -0.5]])
    assert state["tensors"] == []
    assert np.shape(state["predictions"]) == (1, 1, 1)


def test_the_page_has_all_members_of_an_ensemble_or_one_if_they_are_too_large(monkeypatch: pytest.MonkeyPatch) -> None:
    model = ml.fit("4-3:relu-3", "iris", epochs=1, ensemble=2, quiet=True).model
    one, two = (explorer_model.model_state(model, "iris", member=i) for i in range(2))
    assert (one["member"], two["member"], one["members"]) == (0, 1, 2)
    assert one["tensors"] == two["tensors"]
    for i, tensors in enumerate(one["tensors"]):
        for name, value in model.members[i].tensors.items():
            assert np.array_equal(unpacked(tensors[name]), value)
    assert np.shape(one["predictions"]) == (2, explorer_model.MOST_ROWS, 3)
    monkeypatch.setattr(explorer_model, "MOST_NUMBERS", model.spec.n_stored)
    alone = explorer_model.model_state(model, "iris", member=1)
    assert alone["tensors"] == [two["tensors"][1]]
    with pytest.raises(OptionError, match="member must be from 0 to 1, got 2"):
        explorer_model.model_state(model, "iris", member=2)


@pytest.mark.filterwarnings("ignore:columns dropped")
def test_the_score_on_the_page_is_that_of_the_model_on_all_rows() -> None:
    frame, y = people()
    model = ml.MLPClassifier(**QUICK).fit(frame, y)
    state = explore(model, frame, y).state["model"]
    assert state["score"] == {"name": "accuracy", "value": model.score(frame, y), "rows": len(y)}
    assert state["made_of"] == "calibrated average of 2 members"
    assert state["targets"] == y.tolist()
    assert explore(model, frame).state["model"]["score"] is None
    x, target = numbers(200)
    regressor = ml.MLPRegressor(**QUICK).fit(x, 1000 + 50 * target)
    state = explore(regressor, x, 1000 + 50 * target).state["model"]
    assert state["score"]["name"] == "R²"
    assert state["score"]["value"] == pytest.approx(regressor.score(x, 1000 + 50 * target), abs=1e-12)
    np.testing.assert_allclose(state["targets"], (1000 + 50 * target)[state["places"]], rtol=1e-12)


def test_models_with_several_labels_or_targets() -> None:
    x, y = classes()
    both = np.stack([y > 0, y > 1], 1).astype(int)
    model = ml.MLPClassifier(**QUICK).fit(x, both)
    state = explore(model, x, both).state["model"]
    assert state["score"]["value"] == model.score(x, both)
    names = {(0, 0): "none", (1, 0): "y0", (1, 1): "y0, y1"}
    assert state["targets"] == [names[a, b] for a, b in both.tolist()]
    several = ml.MLPRegressor(**QUICK).fit(x, both * [10.0, 1000.0])
    np.testing.assert_allclose(explore(several, x, both * [10.0, 1000.0]).state["model"]["targets"], both * [10, 1000])


def test_classes_of_a_model_with_squared_error_are_shown_by_name() -> None:
    x, y = classes()
    model = ml.fit("4-6-3", (x, np.array(["a", "b", "c"])[y]), loss="mse", epochs=1, quiet=True).model
    assert explore(model, (x, np.array(["a", "b", "c"])[y])).state["model"]["targets"] == ["abc"[i] for i in y]


def test_targets_that_do_not_fit_the_model_are_an_error() -> None:
    x, y = classes()
    model = ml.MLPClassifier(**QUICK).fit(x, y)
    with pytest.raises(DataError, match="must be int64 as in training"):
        explore(model, x, ["a"] * len(x))
    with pytest.raises(DataError, match="the same number of rows"):
        explore(model, x, y[:5])


def test_different_models_have_different_marks(digits: Any) -> None:
    models = (digits, digits, ml.build("64-8-10"), ml.build("64-8-10", seed=1))
    marks = [explorer_model.model_state(model)["mark"] for model in models]
    assert marks[0] == marks[1]
    assert len(set(marks)) == 3


# Ways to open the page


def test_a_notebook_shows_the_page_in_a_sandboxed_frame_without_an_origin() -> None:
    shown = explore()._repr_html_()
    inside = re.search(r'srcdoc="([^"]*)"', shown)
    assert inside is not None
    assert html.unescape(inside[1]) == explore().html
    assert 'sandbox="allow-scripts' in shown
    assert "allow-same-origin" not in shown


def test_the_command_writes_the_page(tmp_path: Path, digits: Any) -> None:
    digits.save(tmp_path / "model.safetensors")
    out = tmp_path / "page.html"
    arguments = ["explore", str(tmp_path / "model.safetensors"), "--data", "digits", "--out", str(out)]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, result.output
    assert state_of(out.read_text())["model"]["text"] == "64-8-10"
    assert "predictions: one calibrated network" in " ".join(result.output.split())
    result = CliRunner().invoke(app, ["explore", "--out", str(tmp_path / "lessons.html")])
    assert result.exit_code == 0, result.output
    assert "model" not in state_of((tmp_path / "lessons.html").read_text())


def test_the_command_serves_the_page_without_out(monkeypatch: pytest.MonkeyPatch) -> None:
    served: list[str] = []
    monkeypatch.setattr("multilayer.pages.server.serve", lambda text, **_: served.append(text))
    result = CliRunner().invoke(app, ["explore"])
    assert result.exit_code == 0, result.output
    assert served == [explore().html]


def test_show_writes_a_file_and_opens_it(monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []
    monkeypatch.setattr("webbrowser.open", lambda address: opened.append(address))
    path = Explorer({}).show()
    assert opened == [path.as_uri()]
