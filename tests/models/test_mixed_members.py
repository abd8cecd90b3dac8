"""Members with different networks and encodings: every prediction is the average of the members."""

from __future__ import annotations

import json
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import multilayer as ml
from multilayer.cli.main import app
from multilayer.core import tensor_file
from multilayer.data import Encoding
from multilayer.errors import FileError, OptionError
from multilayer.models.model_file import to_parts
from multilayer.models.trained_model import TrainedModel
from multilayer.nn import losses

N = 240
TASKS = {"softmax": "cross_entropy", "sigmoid": "binary_cross_entropy", "exp": "poisson", "none": "mse"}


def table(link: str) -> Any:
    import pandas as pd

    random = np.random.default_rng(3)
    a, b = random.normal(size=N), random.normal(size=N) * 100 + 7
    city = np.array(["Rome", "Oslo", "Bonn"])[random.integers(0, 3, N)]
    day = pd.Timestamp("2024-01-01") + pd.to_timedelta(random.integers(0, 900, N), unit="D")
    score = a + b / 100 + (city == "Rome")
    y: Any = np.digitize(score, [-0.5, 1.5]).astype(str) if link == "softmax" else np.where(score > 0, "yes", "no")
    if link in ("exp", "none"):
        y = np.abs(np.round(score, 2))
    return pd.DataFrame({"a": a, "b": b, "city": city, "day": day, "y": y})


def mixed(link: str) -> tuple[TrainedModel, Any]:
    """Two members with a small network, and one with fewer cities, missing values and another scale."""
    rows = table(link)
    given: dict[str, Any] = {"target": "y", "quiet": True, "epochs": 3, "loss": TASKS[link]}
    given |= {"task": "regression"} if link in ("exp", "none") else {}
    first = ml.fit(None, rows, ensemble=2, hidden=(6,), **given).model
    less = rows[rows["city"] != "Bonn"].copy()
    less.loc[less.index[::5], "a"] = np.nan
    other = ml.fit(None, less, recipe="plain", **given).model
    assert first is not None
    assert other is not None
    last = other.members[0]
    task = first.encoding.task
    last = replace(last, encoding=replace(last.encoding, task=task), weight=2.0)
    model = replace(first, members=(*first.members, last))
    assert model.members[2].spec != model.spec
    assert model.members[2].encoding != model.encoding
    return model, rows


def averaged(model: TrainedModel, rows: Any) -> np.ndarray:
    """Return the weighted average of the predictions of the members, in plain numpy."""
    z = []
    for one in model.members:
        x, codes = one.encoding.apply(rows, dtype=np.float64)
        found = one.encoding.encode(rows, dtype=np.float64)
        found = replace(found, x=x, codes=codes)
        z.append(one.outputs_in_numpy(found).astype(np.float64))
    calibration, loss = model.calibration, losses.get(model.encoding.loss)
    t = 1.0 if calibration is None or loss.link not in ("softmax", "sigmoid") else calibration.temperature
    if loss.link == "softmax":
        p = [np.exp(one / t) / np.exp(one / t).sum(1, keepdims=True) for one in z]
    elif loss.link == "sigmoid":
        p = [1 / (1 + np.exp(-one / t)) for one in z]
    else:
        p = [np.exp(one) for one in z] if loss.link == "exp" else z
    mean = np.average(p, axis=0, weights=[one.weight for one in model.members])
    if loss.link in ("softmax", "sigmoid"):
        return np.concatenate([1 - mean, mean], 1) if loss.link == "sigmoid" else mean
    if calibration is not None and len(calibration.low):
        low, high = calibration.low, calibration.high
        mean = np.clip(mean, *(np.exp([low, high]) if loss.link == "exp" else (low, high)))
    return (mean * np.array(model.encoding.task.std) + np.array(model.encoding.task.mean))[:, 0]


def answer(model: TrainedModel, rows: Any) -> np.ndarray:
    return model.predict_proba(rows) if model.encoding.task.classifies else model.predict(rows)


@pytest.mark.parametrize("link", TASKS)
def test_all_predictions_are_the_average_of_the_members(link: str, tmp_path: Path) -> None:
    import onnxruntime

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # cities and missing values that one member did not see
        model, rows = mixed(link)
        expected = averaged(model, rows)
        np.testing.assert_allclose(answer(model, rows), expected, rtol=1e-4, atol=1e-5)
        assert set(model.evaluate(rows)) >= ({"accuracy"} if model.encoding.task.classifies else {"rmse"})

        model.save(tmp_path / "model.safetensors")
        again = ml.load(tmp_path / "model.safetensors")
        assert again.to_bytes() == model.to_bytes() == TrainedModel.from_bytes(model.to_bytes()).to_bytes()
        assert repr(again) == repr(model)
        np.testing.assert_array_equal(answer(again, rows), answer(model, rows))

        net: Any = model.to_torch()
        inputs = net.encode(rows)
        assert len(net.columns) == inputs[0].shape[1]
        assert len(net.category_columns) == inputs[1].shape[1]
        z = net(*inputs).detach().numpy()
        np.testing.assert_allclose(z, model.outputs(rows), rtol=1e-3, atol=1e-4)
        alone: Any = model.to_torch(member=2, preprocessing=True)
        one = replace(model, members=model.members[2:], calibration=None)
        np.testing.assert_allclose(alone(*alone.encode(rows)).detach().numpy(), one.outputs(rows), rtol=1e-3, atol=1e-4)

        found = ml.trace(model, rows.iloc[:20], member=2)
        assert found.model is not None
        assert len(found.steps) == len(model.members[2].spec.entries)
        np.testing.assert_array_equal(found.model.output, model.outputs(rows.iloc[:20]))
        model.to_onnx(tmp_path / "model.onnx")
    with pytest.warns(UserWarning, match="'city': .* training did not see"):
        model.predict(rows)
    session = onnxruntime.InferenceSession(tmp_path / "model.onnx")
    seconds = rows["day"].astype("datetime64[s]").astype(np.int64).to_numpy().astype(np.float64)
    columns = {"a": rows["a"].to_numpy(), "b": rows["b"].to_numpy(), "day": seconds, "city": rows["city"].to_numpy()}
    columns["city"] = columns["city"].astype(object)
    np.testing.assert_allclose(session.run(None, columns)[-1].reshape(expected.shape), expected, rtol=1e-4, atol=1e-4)


def test_commands_accept_mixed_members(tmp_path: Path) -> None:
    model, rows = mixed("none")
    model.save(tmp_path / "model.safetensors")
    rows.to_csv(tmp_path / "rows.csv", index=False)
    file, table = str(tmp_path / "model.safetensors"), str(tmp_path / "rows.csv")
    done = CliRunner().invoke(app, ["predict", file, table])
    assert done.exit_code == 0, done.output
    assert "'city'" in done.stderr
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = [float(line) for line in done.stdout.splitlines()[1:]]
        np.testing.assert_allclose(found, model.predict(rows), rtol=1e-12)
        measured = json.loads(CliRunner().invoke(app, ["evaluate", file, table, "--json"]).stdout)
        assert measured == pytest.approx(model.evaluate(rows))
    done = CliRunner().invoke(app, ["cost", file])
    assert done.exit_code == 2
    assert "needs members with the same network, but that of member 3 differs" in " ".join(done.stderr.split())


def test_an_error_names_the_member_that_differs() -> None:
    model, rows = mixed("none")
    with pytest.raises(OptionError, match="the explorer needs members with the same network, but that of member 3"):
        ml.explore(model)
    with pytest.raises(OptionError, match="preprocessing=True needs members with one encoding, but that of member 2"):
        model.to_torch(preprocessing=True)
    with pytest.raises(OptionError, match="a run with a start model needs members with the same network"):
        ml.fit(model.spec, rows, target="y", start=model, ensemble=3, quiet=True)
    with pytest.raises(OptionError, match="rows with one encoding needs members with the same encoding, but that of"):
        model.forward(model.encoding.encode(rows))
    shifted = replace(model.encoding.task, mean=(1.0,))
    strange = replace(model.members[0], encoding=replace(model.encoding, task=shifted))
    with pytest.raises(OptionError, match="all members must have the same task, but that of member 4 differs"):
        replace(model, members=(*model.members, strange))


def test_equal_encodings_are_encoded_and_stored_once(monkeypatch: pytest.MonkeyPatch) -> None:
    model, rows = mixed("none")
    copies = tuple(replace(one, encoding=replace(one.encoding)) for one in model.members)
    again = replace(model, members=copies)
    assert again.to_bytes() == model.to_bytes()
    assert again.members[0].encoding is again.members[1].encoding is not again.members[2].encoding
    _, meta = to_parts(again)
    assert (len(meta["other_specs"]), len(meta["other_encodings"])) == (1, 1)
    assert meta["members"] == [[1, 1], [1, 1], [2, 2]]
    calls: list[Encoding] = []
    encode = Encoding.encode

    def counted(self: Encoding, *args: Any, **options: Any) -> Any:
        calls.append(self)
        return encode(self, *args, **options)

    monkeypatch.setattr(Encoding, "encode", counted)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        again.predict(rows)
    assert len(calls) == 2


def test_a_file_of_mixed_members_is_checked(tmp_path: Path) -> None:
    model, _ = mixed("none")
    tensors, meta = to_parts(model)
    path = tmp_path / "model.safetensors"
    third = r"each member must be a pair \[network, encoding\] with indices up to 2 and 2, got"
    for change, message in (
        ({"members": [[1, 1], [1, 1], [3, 2]]}, third),
        ({"members": [[1, 1], [1, 1], [2, True]]}, third),
        ({"members": [[1, 1], [1, 1], 2]}, third),
        ({"members": [[1, 1], [1, 1], [1, 2]]}, "must have the shape|does not belong|no tensor|unknown tensor"),
        ({"members": [[1, 1]]}, "a file with different members must have at least 2 members, got 1"),
        ({"other_specs": 3}, "other_specs must be a list"),
        ({"other_encodings": []}, "belongs to none of the 1 encodings"),
    ):
        tensor_file.save(path, tensors, {**meta, **change})
        with pytest.raises(FileError, match=message):
            ml.load(path)
    other = {**meta["other_encodings"][0], "task": {**meta["other_encodings"][0]["task"], "mean": [9.0]}}
    tensor_file.save(path, tensors, {**meta, "other_encodings": [other]})
    with pytest.raises(FileError, match="all members must have the same task, but that of member 3 differs"):
        ml.load(path)
