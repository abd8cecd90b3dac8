"""Text columns are read in the same way from every source: same encoding, same numbers, same predictions."""

from __future__ import annotations

import csv
import json
import re
import warnings
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as parquet
import pytest

import multilayer as ml
from multilayer import MLPClassifier, MLPRegressor
from multilayer.errors import DataError, OptionError
from support.quick_estimators import QUICK
from support.training_rows import prepare

START = datetime(2024, 1, 30)
FAST: dict[str, Any] = {"epochs": 2, "quiet": True}


def row(i: int) -> dict[str, str]:
    moment = START + timedelta(days=3 * i, hours=i)
    return {
        "day": str(moment.date()),
        "moment": str(moment),
        "zoned": f"{moment.isoformat()}Z",
        "clock": str(moment.time()),
        "flag": ("true", "false")[i % 2],
        "answer": ("yes", "no", "yes", "maybe")[i % 4],
        "price": str(1.5 * i),
        "count": str(i * i),
        "holes": ("NA", "1.5", "?", "2", "")[i % 5],
        "city": ("Ulm", "Bonn", "NA", "")[i % 4],
        "zip": f"{i % 7:05d}",
        "y": ("a", "b")[i % 3 == 0],
    }


ROWS = [row(i) for i in range(60)]
COLUMNS = {name: [one[name] for one in ROWS] for name in ROWS[0]}
KINDS = {
    **{"day": "date", "moment": "datetime", "zoned": "datetime", "clock": "time", "flag": "categorical"},
    **{"answer": "categorical", "price": "numeric", "count": "numeric", "holes": "numeric"},
    **{"city": "categorical", "zip": "categorical"},
}


def write_csv(path: Path, rows: list[dict[str, str]]) -> Path:
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    return path


def write_parquet(path: Path, rows: list[dict[str, str]]) -> Path:
    parquet.write_table(pa.table({name: [one[name] for one in rows] for name in rows[0]}), path)
    return path


def write_json(path: Path, rows: list[dict[str, str]]) -> Path:
    path.write_text("".join(json.dumps(one) + "\n" for one in rows))
    return path


SOURCES: dict[str, Any] = {
    "csv": lambda rows, folder: write_csv(folder / "t.csv", rows),
    "parquet": lambda rows, folder: write_parquet(folder / "t.parquet", rows),
    "json lines": lambda rows, folder: write_json(folder / "t.jsonl", rows),
    "pandas": lambda rows, folder: pd.DataFrame(rows),
    "pandas object": lambda rows, folder: pd.DataFrame(rows, dtype=object),
    "pandas string": lambda rows, folder: pd.DataFrame(rows).astype("string[python]"),
    "pandas with pyarrow": lambda rows, folder: pd.DataFrame(rows).astype(pd.ArrowDtype(pa.string())),
    "polars": lambda rows, folder: pl.DataFrame(rows),
    "arrow": lambda rows, folder: pa.Table.from_pylist(rows),
    "rows": lambda rows, folder: rows,
    "columns": lambda rows, folder: {name: [one[name] for one in rows] for name in rows[0]},
}


@pytest.mark.parametrize("source", SOURCES)
def test_a_table_of_text_has_the_same_encoding_from_every_source(source: str, tmp_path: Path) -> None:
    expected = prepare(write_csv(tmp_path / "expected.csv", ROWS), target="y")
    assert {column.name: column.kind for column in expected.encoding.columns} == KINDS
    found = prepare(SOURCES[source](ROWS, tmp_path), target="y")
    assert found.encoding == expected.encoding
    assert np.asarray(found.data.x[:]).tobytes() == np.asarray(expected.data.x[:]).tobytes()
    np.testing.assert_array_equal(found.data.codes, expected.data.codes)
    one = expected.encoding.apply(SOURCES[source](ROWS[7:8], tmp_path))
    for whole, alone in zip(expected.encoding.apply(tmp_path / "expected.csv"), one, strict=True):
        assert whole is not None
        assert alone is not None
        assert whole[7:8].tobytes() == alone.tobytes()


def test_an_array_of_text_has_the_encoding_of_the_file(tmp_path: Path) -> None:
    inputs = [{name: value for name, value in one.items() if name != "y"} for one in ROWS]
    expected = prepare((write_csv(tmp_path / "t.csv", inputs), COLUMNS["y"])).encoding
    array = np.array([list(one.values()) for one in inputs], dtype=object)
    for given in (array, array.astype(str), array.tolist()):
        found = prepare((given, COLUMNS["y"])).encoding
        assert [column.kind for column in found.columns] == [column.kind for column in expected.columns]
        np.testing.assert_array_equal(found.center, expected.center)
        model = MLPClassifier(**QUICK).fit(given, COLUMNS["y"])
        assert [column.kind for column in model.model_.encoding.columns] == list(KINDS.values())


def test_training_on_a_file_and_predicting_from_a_frame(tmp_path: Path) -> None:
    file, frame = write_csv(tmp_path / "t.csv", ROWS), pd.DataFrame(ROWS)
    trained = {"file": ml.fit(None, file, target="y", **FAST), "frame": ml.fit(None, frame, target="y", **FAST)}
    for run in trained.values():
        assert run.model is not None
        p = run.model.predict_proba(file)
        np.testing.assert_array_equal(run.model.predict_proba(frame), p)
        np.testing.assert_array_equal(run.model.predict_proba(frame[3:4]), p[3:4])
        np.testing.assert_array_equal(run.model.predict_proba([ROWS[3]]), p[3:4])
        assert run.model.evaluate(frame) == run.model.evaluate(file)


def test_columns_declared_as_categories_stay_categories() -> None:
    names = ["day", "price", "flag"]
    frame = pd.DataFrame(ROWS)
    declared = prepare(frame.astype(dict.fromkeys(names, "category")), target="y", validation=None).encoding
    kinds = {column.name: column.kind for column in declared.columns}
    assert {kinds[name] for name in names[2:]} == {"categorical"}
    assert all(kinds[name] in ("categorical", "drop") for name in names)  # 60 values in 60 rows are too many
    for source in (frame, ROWS):
        by_name = prepare(source, target="y", validation=None, categorical=names).encoding
        assert all(column.kind == "categorical" for column in by_name.columns if column.name in names)
        assert by_name.vocabularies["day"].to_pylist() == sorted(COLUMNS["day"])


def test_labels_in_y_are_not_converted() -> None:
    run = ml.fit("1-4-1", (np.arange(40.0)[:, None], ["1", "2"] * 20), **FAST)
    assert run.model is not None
    assert set(run.model.predict(np.zeros((1, 1))).tolist()) <= {"1", "2"}


def test_text_that_does_not_fit_training_is_rejected_with_its_row() -> None:
    encoding = prepare(pd.DataFrame(ROWS), target="y").encoding
    for name, value in (("day", "soon"), ("price", "cheap"), ("flag", "perhaps")):
        rows = [ROWS[0], {**ROWS[1], name: value}]
        with pytest.raises(DataError, match=rf"row 2, column '{name}': .* in training, got .*'{value}'"):
            encoding.apply(rows)


def test_one_word_among_numbers_is_rejected_from_every_source(tmp_path: Path) -> None:
    rows = [{"n": str(i), "y": str(i % 2)} for i in range(40)]
    rows[30]["n"] = "x"
    for source in ("csv", "pandas", "rows", "parquet"):
        with pytest.raises(DataError, match=r"row 31, column 'n': 39 of 40 different values are numbers, got 'x'"):
            prepare(SOURCES[source](rows, tmp_path), target="y")


# Columns that are dropped

MIXED = pd.DataFrame(
    {"x": np.arange(60.0) % 7, "same": 1, "note": [f"text {i}" for i in range(60)], "empty": [None] * 60}
)
DROPPED = (
    r"columns dropped: 'same' \(constant: remove the column.*\); 'note' \(text with many different values.*: group its "
    r"values.*categorical='note'\); 'empty' \(empty: remove the column"
)


def test_every_fit_in_python_warns_once_about_dropped_columns() -> None:
    y = np.arange(60) % 2
    fits: dict[str, Any] = {
        "quiet": lambda: ml.fit("1-4-1", (MIXED, y), epochs=1, quiet=True),
        "shown": lambda: ml.fit("1-4-1", (MIXED, y), epochs=1),
        "recipe": lambda: ml.fit(None, (MIXED, y), epochs=1, quiet=True),
        "classifier": lambda: MLPClassifier(**QUICK).fit(MIXED, y),
        "regressor": lambda: MLPRegressor(**QUICK).fit(MIXED, 1.0 * y),
    }
    for fit in fits.values():
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            fit()
        dropped = [str(one.message) for one in caught if "dropped" in str(one.message)]
        assert len(dropped) == 1
        assert re.search(DROPPED, dropped[0])


def test_estimators_recommend_their_option_categorical() -> None:
    y = np.arange(60) % 2
    for fit in (MLPClassifier(**QUICK).fit, MLPRegressor(**QUICK).fit, MLPClassifier(**QUICK).partial_fit):
        with pytest.warns(UserWarning, match="'note'.*or use all as categories: categorical='note'"):
            fit(MIXED, y)
    codes = pd.DataFrame({"x": np.arange(60.0), "code": [str(i) for i in range(59)] + ["none"]})
    with pytest.raises(DataError, match="treat all its values as categories: categorical='code'"):
        MLPClassifier(**QUICK).fit(codes, y)


@pytest.mark.parametrize("form", ["%d.%m.%Y", "%m/%d/%Y", "%Y/%m/%d", "%d %b %Y", "%d.%m.%Y %H:%M"])
def test_dates_in_another_format_are_dropped_with_a_remedy(form: str, tmp_path: Path) -> None:
    frame = pd.DataFrame(
        {"when": pd.date_range("2021-03-01", periods=60, freq="9D").strftime(form), "x": np.arange(60)}
    )
    frame["y"] = frame.x % 2
    frame.to_csv(tmp_path / "t.csv", index=False)
    said = "'when' .dates in another format than 2024-12-31: write dates as 2024-12-31, or convert the column"
    for table in (frame, tmp_path / "t.csv"):
        with pytest.warns(UserWarning, match=said):
            ml.fit(None, table, target="y", recipe="plain", epochs=1, quiet=True)


def test_dropped_columns_are_shown_once(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.warns(UserWarning, match=DROPPED):
        ml.fit("1-4-1", (MIXED, np.arange(60) % 2), epochs=1)
    shown = capsys.readouterr()
    assert "columns dropped" not in shown.out + shown.err


LABELS = {
    "digits": ["1", "2"],
    "digits with a leading zero": ["01", "1"],
    "words": ["no", "yes"],
    "true and false": ["False", "True"],
    "numbers": [1, 2],
    "booleans": [False, True],
}


@pytest.mark.parametrize("labels", LABELS.values(), ids=LABELS)
def test_predicted_labels_have_the_type_of_the_labels_that_were_given(labels: list[Any], tmp_path: Path) -> None:
    """Also strings of digits in the target column of a frame: accuracy is the mean of `predicted == given`."""
    x = np.linspace(-1, 1, 40)
    y = [labels[int(value > 0)] for value in x]
    frame = pd.DataFrame({"x": x, "y": y})
    parquet.write_table(pa.table({"x": x, "y": y}), tmp_path / "t.parquet")
    sources = [frame, frame.astype({"y": "category"}), pl.DataFrame({"x": x, "y": y}), {"x": x, "y": y}]
    for source in (*sources, tmp_path / "t.parquet"):
        model = ml.fit(None, source, target="y", epochs=20, ensemble=1, hidden=(8,), quiet=True).model
        assert model is not None
        assert list(model.encoding.task.classes[0]) == labels
        assert float(np.mean(model.predict(source) == np.array(y))) == model.evaluate(source)["accuracy"] > 0.9
    assert set(MLPClassifier(**QUICK).fit(x[:, None], y).predict(x[:, None])) <= set(labels)


def test_spellings_of_one_number_are_one_class() -> None:
    frame = pd.DataFrame({"x": np.arange(40.0), "y": ["1", "1.0", "2", " 2"] * 10})
    model = ml.fit(None, frame, target="y", epochs=1, ensemble=1, hidden=(8,), quiet=True).model
    assert model is not None
    assert model.encoding.task.classes == ((1, 2),)


def test_a_regression_takes_numbers_that_a_frame_has_as_text() -> None:
    frame = pd.DataFrame({"x": np.arange(40.0), "y": [f"{value:.2f}" for value in np.arange(40) / 7]})
    model = ml.fit(None, frame, target="y", epochs=1, ensemble=1, hidden=(8,), quiet=True).model
    assert model is not None
    assert model.predict(frame).dtype == np.float64
    frame["y"] = ["1", "2"] * 20
    with pytest.raises(OptionError, match="mse is a loss for numbers, but the target has 2 values, like classes: set"):
        ml.fit(None, frame, target="y", loss="mse", quiet=True)
