"""The encoding: kinds, scales and vocabularies are fitted on training rows, applied to new rows, and stored exactly."""

from __future__ import annotations

import datetime
import json
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from multilayer.core import tensor_file
from multilayer.data import Encoding
from multilayer.errors import DataError, OptionError
from multilayer.nn.layers import Inputs
from support.training_rows import prepare

N = 60
DAYS = [datetime.date(2024, 1, 1) + datetime.timedelta(days=5 * i) for i in range(N)]
MOMENTS = [datetime.datetime(2024, 1, 1) + datetime.timedelta(hours=31 * i) for i in range(N)]
COLUMNS: dict[str, Any] = {
    "number": [i * 0.5 - 3 for i in range(N)],
    "holes": [None if i % 4 == 0 else float(i) for i in range(N)],
    "flag": [i % 3 == 0 for i in range(N)],
    "word": [("é", "b", "a", None)[i % 4] for i in range(N)],
    "code": pa.array([i % 5 for i in range(N)]).dictionary_encode(),
    "day": DAYS,
    "moment": MOMENTS,
    "clock": pa.array([i * 1000 for i in range(N)], pa.time32("s")),
    "span": pa.array([i * 60 for i in range(N)], pa.duration("s")),
    "same": [7] * N,
    "nothing": pa.nulls(N),
    "y": [("no", "yes")[i % 2] for i in range(N)],
}
TABLE = pa.table(COLUMNS)


def fitted(source: Any = TABLE, target: str | None = "y", **options: Any) -> Encoding:
    return prepare(source, target=target, **options).encoding


def test_kinds_of_columns() -> None:
    ready = prepare(TABLE, target="y", validation=None)
    encoding = ready.encoding
    assert {c.name: c.kind for c in encoding.columns} == {
        "number": "numeric",
        "holes": "numeric",
        "flag": "categorical",
        "word": "categorical",
        "code": "categorical",
        "day": "date",
        "moment": "datetime",
        "clock": "time",
        "span": "numeric",
        "same": "drop",
        "nothing": "drop",
    }
    assert encoding.inputs == Inputs(numeric=3 + 5 + 7 + 3 + 1, categories=(2, 3, 5))
    assert encoding.numeric_names[:3] == ("number", "holes", "day (days)")
    assert encoding.numeric_names[-1] == "holes (missing)"
    assert any(note.startswith("columns dropped: 'same' (constant: remove the column") for note in ready.notes)


def test_numbers_are_standardised_and_missing_values_are_the_median() -> None:
    ready = prepare(TABLE, target="y", validation=None, dtype="float64")
    x = ready.data.x
    holes = np.array([np.nan if v is None else v for v in COLUMNS["holes"]])
    present = holes[~np.isnan(holes)]
    filled = np.where(np.isnan(holes), np.median(present), holes)
    np.testing.assert_allclose(x[:, 1], (filled - present.mean()) / present.std(), rtol=1e-12)
    np.testing.assert_array_equal(x[:, -1], np.isnan(holes))
    np.testing.assert_allclose(x[:, 0].mean(), 0, atol=1e-12)
    np.testing.assert_allclose(x[:, 0].std(), 1, rtol=1e-12)


def test_categories_are_numbered_in_sorted_order_and_0_is_missing() -> None:
    ready = prepare(TABLE, target="y", validation=None)
    assert ready.data.codes is not None
    flag, word, code = ready.data.codes.T
    assert word[:4].tolist() == [3, 2, 1, 0]  # é, b, a, none
    assert flag[:3].tolist() == [2, 1, 1]
    assert code[:6].tolist() == [1, 2, 3, 4, 5, 1]


def test_dates_become_a_number_and_circles() -> None:
    encoding = fitted(validation=None, scaling="none")
    x, _ = encoding.apply(TABLE, dtype=np.float64)
    at = {name: x[:, i] for i, name in enumerate(encoding.numeric_names)}
    assert at["day (days)"][0] == (DAYS[0] - datetime.date(1970, 1, 1)).days
    # Monday 1 January 2024 begins a week; a Monday is four days after a Thursday.
    np.testing.assert_allclose(at["day (week, sin)"][0], 0, atol=1e-9)
    np.testing.assert_allclose(at["day (week, cos)"][0], 1, atol=1e-9)
    np.testing.assert_allclose(at["moment (day, cos)"][1], np.cos(2 * np.pi * 7 / 24), atol=1e-9)
    np.testing.assert_allclose(at["clock (hours)"], np.arange(N) / 3.6, rtol=1e-12)
    np.testing.assert_allclose(at["span"], np.arange(N) * 60.0)
    circles = [name for name in at if name.endswith("sin)")]
    for name in circles:
        np.testing.assert_allclose(at[name] ** 2 + at[name.replace("sin", "cos")] ** 2, 1, rtol=1e-12)


def test_timestamps_do_not_depend_on_unit_and_time_zone() -> None:
    def table(unit: str, zone: str | None) -> Any:
        return pa.table({"t": pa.array(MOMENTS, pa.timestamp(unit, tz=zone)), "y": COLUMNS["y"]})

    plain, zoned = (fitted(table("us", zone)) for zone in (None, "UTC"))
    np.testing.assert_array_equal(plain.apply(table("us", None))[0], zoned.apply(table("us", "UTC"))[0])
    assert plain != zoned  # the encoding stores whether there was a time zone
    for unit in ("s", "ms", "ns"):
        assert fitted(table(unit, None)) == plain
        assert fitted(table(unit, "UTC")) == zoned


def test_scalings() -> None:
    values = np.concatenate([np.arange(50.0), [1e6]])
    table = {"a": values, "same_quartiles": [0.0] * 45 + [1.0, 2.0, 3.0, 4.0, 5.0, 9.0], "y": np.arange(51) % 2}
    none, _ = fitted(table, validation=None, scaling="none").apply(table, dtype=np.float64)
    np.testing.assert_array_equal(none[:, 0], values)
    robust, _ = fitted(table, validation=None, scaling="robust").apply(table, dtype=np.float64)
    r = (values - np.median(values)) / np.subtract(*np.quantile(values, (0.75, 0.25)))
    np.testing.assert_allclose(robust[:, 0], r / np.sqrt(1 + (r / 3) ** 2), rtol=1e-12)
    assert np.abs(robust).max() < 3
    with pytest.raises(OptionError, match="unknown scaling 'quantile'"):
        fitted(scaling="quantile")


def test_only_training_rows_are_fitted() -> None:
    """The values of validation rows do not change the encoding."""
    ready = prepare(TABLE, target="y", seed=3)
    changed = {name: TABLE[name].to_pylist() for name in TABLE.column_names if name not in ("clock", "span", "code")}
    other = {name: list(values) for name, values in changed.items()}
    for row in ready.validation:
        other["number"][row], other["word"][row], other["holes"][row] = 1e6, "unseen", 77.0
    before, after = prepare(pa.table(changed), target="y", seed=3), prepare(pa.table(other), target="y", seed=3)
    assert before.encoding == after.encoding
    np.testing.assert_array_equal(before.train, after.train)


def test_rows_do_not_depend_on_each_other() -> None:
    encoding = fitted()
    x, codes = encoding.apply(TABLE)
    assert codes is not None
    for rows in ([5], [59, 0, 7], list(range(59, -1, -1))):
        part = TABLE.take(rows)
        found, numbers = encoding.apply(part)
        assert found.tobytes() == x[rows].tobytes()
        assert numbers is not None
        assert numbers.tobytes() == codes[rows].tobytes()


def test_columns_of_arrays_are_found_by_position_and_of_frames_by_name() -> None:
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(N, 3)), np.arange(N) % 2
    X[7, 1] = np.nan
    encoding = prepare((X, y), validation=None).encoding
    x, _ = encoding.apply(X)
    frame = {f"col{i}": X[:, i] for i in range(3)}
    assert encoding.apply(frame)[0].tobytes() == x.tobytes()
    named = prepare((frame, y), validation=None).encoding
    assert named.apply(X)[0].tobytes() == x.tobytes()
    assert named.apply(dict(reversed(frame.items())))[0].tobytes() == x.tobytes()
    for bad in (X[:, :2], np.ones((4, 5))):
        with pytest.raises(DataError, match="must have 3 columns as in training, got"):
            encoding.apply(bad)
    with pytest.raises(DataError, match="so far from the training rows that its scaled value does not fit in float32"):
        prepare((X * 1e-30, y)).encoding.apply(X * 1e38)


def test_robust_scaling_of_extreme_values() -> None:
    """The result is ±3 for all extreme values, and bit-identical to the formula for others."""
    y = np.arange(N) % 2
    small = np.linspace(-1, 1, N)[:, None] * 1e-200
    found = prepare((small, y), validation=None, scaling="robust").encoding.apply([[1e30], [-1e30], [1e-200]])[0][:, 0]
    assert found[:2].tolist() == [3, -3]
    assert 0 < found[2] < 3
    smaller = prepare((small * 1e-120, y), validation=None, scaling="robust").encoding
    assert smaller.apply([[1e30], [-1e30]])[0][:, 0].tolist() == [3, -3]
    unit = prepare((np.repeat([-1.0, 0.0, 1.0], [10, 40, 10])[:, None], y), validation=None, scaling="robust").encoding
    assert (unit.center.tolist(), unit.scale.tolist()) == ([0], [1])
    rng = np.random.default_rng(0)
    r = rng.normal(size=1_000_000) * 10 ** rng.uniform(-300, 37, 1_000_000)
    plain = r / np.sqrt(1 + (r / 3) ** 2)
    assert unit.apply(r[:, None], dtype=np.float64)[0].tobytes() == plain.tobytes()


def test_images_keep_every_pixel() -> None:
    pixels = np.zeros((N, 4, 5), dtype=np.uint8)
    pixels[:, 1:3, 1:4] = np.arange(N)[:, None, None]
    y = np.arange(N) % 3
    encoding = prepare((pixels, y)).encoding
    assert (encoding.image, encoding.inputs.numeric, encoding.scaling) == ((4, 5, 1), 20, "range")
    x, _ = encoding.apply(pixels)
    np.testing.assert_array_equal(x, (pixels.reshape(N, 20) / 255).astype(np.float32))
    np.testing.assert_array_equal(encoding.apply(pixels.astype(np.float64))[0], x)
    with pytest.raises(DataError, match="pixels were whole numbers from 0 to 255 in training, got 0"):
        encoding.apply(pixels / 255)
    with pytest.raises(DataError, match=r"images must have the shape of training \(4, 5, 1\), got \(5, 4, 1\)"):
        encoding.apply(pixels.transpose(0, 2, 1))
    floats = prepare((pixels / 255, y)).encoding
    assert floats.image == (4, 5, 1)
    shares = pixels[prepare((pixels / 255, y)).train] / 255
    np.testing.assert_allclose([floats.center, floats.scale], [[shares.mean()] * 20, [shares.std()] * 20])


def test_declared_kinds() -> None:
    table = {"zip": [10115, 80331, 10115, 50667] * 15, "n": ["1", "2.5", None, "4"] * 15, "y": COLUMNS["y"]}
    encoding = fitted(table, columns={"zip": "categorical", "n": "numeric"})
    assert encoding.inputs == Inputs(numeric=2, categories=(3,))
    assert encoding.apply({"zip": [80331.0, 1], "n": ["7", None]})[1].tolist() == [[3], [0]]  # type: ignore[union-attr]
    assert fitted(table, columns={"n": "drop"}).inputs == Inputs(numeric=1)
    with pytest.raises(DataError, match="row 2, column 'n': was numbers in training, got text, 'x'"):
        encoding.apply({"zip": [1, 2], "n": ["7", "x"]})


# As data


def test_parts_round_trip_exactly_through_json_and_a_file(tmp_path: Any) -> None:
    for source, options in (
        (TABLE, {}),
        (TABLE, {"scaling": "robust", "class_weight": "balanced"}),
        ("digits", {"target": None}),
        ("diabetes", {"target": None}),
        ((np.random.default_rng(0).normal(size=(N, 3)), np.arange(3 * N).reshape(N, 3) % 2), {"target": None}),
    ):
        encoding = fitted(source, **options)
        data, arrays = encoding.to_parts()
        path = tmp_path / "encoding.safetensors"
        meta = {"spec": {}, "encoding": json.loads(json.dumps(data)), "loss": encoding.loss}
        tensor_file.save(path, {f"encoding/{name}": value for name, value in arrays.items()}, meta)
        stored, meta = tensor_file.load(path)
        again = Encoding.from_parts(
            meta["encoding"], {name.removeprefix("encoding/"): value for name, value in stored.items()}
        )
        assert again == encoding
        assert again.task == encoding.task
        if source is TABLE:
            assert again.apply(TABLE)[0].tobytes() == encoding.apply(TABLE)[0].tobytes()
            assert again != fitted(validation=None)


BROKEN: list[tuple[str, Any, str]] = [
    ("version", 2, "version 2"),
    ("format", "x", "not an encoding"),
    ("extra", 1, "not an encoding"),
    ("loss", "nope", "unknown loss"),
    ("task", {"kind": "binary"}, "a task must have kind, names"),
    ("columns", [{"name": "a"}], "not an encoding: KeyError"),
    ("columns", [], "unknown arrays"),
    ("image", ["x"], "three positive whole numbers"),
]


@pytest.mark.parametrize(("key", "value", "fault"), BROKEN, ids=[f"{key} {fault}" for key, _, fault in BROKEN])
def test_inconsistent_stored_encodings_are_rejected(key: str, value: Any, fault: str) -> None:
    data, arrays = fitted().to_parts()
    with pytest.raises((DataError, OptionError), match=fault):
        Encoding.from_parts({**data, key: value}, arrays)


def test_inconsistent_stored_arrays_are_rejected() -> None:
    data, arrays = fitted().to_parts()
    text = next(name for name in arrays if name.endswith(".text"))
    ends = text.replace(".text", ".ends")
    for change, fault in (
        ({"scale": arrays["scale"] * 0}, "scale of an encoding"),
        ({"center": arrays["center"][1:]}, "center of an encoding"),
        ({"fill": arrays["fill"] * np.nan}, "fill of an encoding"),
        ({"more": arrays["fill"]}, "unknown arrays"),
        ({text: arrays[text][1:]}, "must end where its bytes end"),
        ({ends: arrays[ends][::-1].copy()}, "must end where its bytes end"),
        ({text: np.full_like(arrays[text], 255)}, "not an encoding"),
    ):
        with pytest.raises(DataError, match=fault):
            Encoding.from_parts(data, {**arrays, **change})


def test_declared_categories_keep_their_most_frequent_values() -> None:
    names = [f"n{i:05}" for i in range(10_200)]
    rows = [*names, *names, *names[150:], "n10199"]
    frame = pd.DataFrame({"name": pd.Categorical(rows), "y": np.arange(len(rows)) % 2})
    ready = prepare(frame, target="y", validation=None)
    known = ready.encoding.vocabularies["name"].to_pylist()
    assert known == [*names[150:10_149], "n10199"]  # four times, then three times, the first in order
    assert (
        "'name': the 10,000 most frequent of 10,200 values are categories, all others are read as unknown"
        in ready.notes
    )


@pytest.mark.parametrize("scaling", ["standard", "robust"])
def test_scales_of_an_array_come_from_training_rows(scaling: str) -> None:
    x = np.random.default_rng(0).normal(size=(80, 3))
    y = np.arange(80) % 2
    before = prepare((x, y), scaling=scaling, seed=3)
    x[before.validation] += 1000.0
    after = prepare((x, y), scaling=scaling, seed=3)
    np.testing.assert_array_equal(before.train, after.train)
    assert before.encoding == after.encoding
