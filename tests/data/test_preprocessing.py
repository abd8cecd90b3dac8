"""Preprocessing steps: an encoding applies them in order, and every export has all steps or lists the missing ones."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest

from multilayer.data.preprocessing import (
    STEPS,
    Codes,
    DateParts,
    FillMissing,
    SmoothClip,
    Standardise,
    Unlearned,
    apply_steps,
)
from multilayer.export.onnx import columns as onnx_columns
from support.training_rows import prepare


def table(rows: int = 60) -> pd.DataFrame:
    generator = np.random.default_rng(0)
    frame = pd.DataFrame(
        {
            "size": generator.normal(size=rows),
            "price": np.where(np.arange(rows) % 7 == 0, np.nan, generator.lognormal(size=rows)),
            "city": np.array(["Basel", "Bern", None], dtype=object)[np.arange(rows) % 3],
            "since": pd.Timestamp("2024-02-29 06:30") + pd.to_timedelta(37 * np.arange(rows), unit="h"),
        }
    )
    return frame.assign(y=np.arange(rows) % 2)


def test_every_step_is_written_as_onnx() -> None:
    assert onnx_columns.COLUMN_WRITERS.keys() | onnx_columns.NUMBER_WRITERS.keys() == set(STEPS)


def test_every_step_is_in_torch_or_listed_as_missing_there() -> None:
    from multilayer.export import torch_module

    assert {*torch_module.NUMBER_STEPS, *torch_module.NOT_IN_TORCH} == set(STEPS)
    assert not {*torch_module.NUMBER_STEPS} & {*torch_module.NOT_IN_TORCH}


@pytest.mark.parametrize("scaling", ["standard", "robust", "none"])
def test_encoding_applies_the_steps_of_each_column_in_order(scaling: str) -> None:
    frame = table()
    encoding = prepare(frame, target="y", scaling=scaling).encoding
    x, codes = encoding.apply(frame.drop(columns="y"))
    steps = {column.name: encoding.steps_of(column) for column in encoding.columns}
    shared = [FillMissing, Standardise, *([SmoothClip] if scaling == "robust" else [])]
    assert [type(step) for step in steps["size"]] == shared
    assert [type(step) for step in steps["since"]] == [DateParts, *shared]
    assert [type(step) for step in steps["city"]] == [Codes]
    seconds = frame["since"].astype("datetime64[us]").astype("int64").to_numpy() / 1e6
    values: dict[str, Any] = {"size": frame[["size"]].to_numpy(), "price": frame[["price"]].to_numpy()}
    made = [apply_steps(steps[name], given, np.float32) for name, given in {**values, "since": seconds}.items()]
    indicators = frame[["price"]].isna().to_numpy(np.float32)
    np.testing.assert_array_equal(x, np.concatenate([*made, indicators], axis=1))
    assert codes is not None
    assert codes[:6, 0].tolist() == [1, 2, 0, 1, 2, 0]


def test_unlearned_columns_are_always_0() -> None:
    frame = pd.DataFrame({"a": [7.0] * 30, "y": np.arange(30) % 2})
    encoding = prepare(frame, target="y", keep_constant=True).encoding
    (column,) = encoding.columns
    assert isinstance(encoding.steps_of(column)[0], Unlearned)
    x, _ = encoding.apply(pd.DataFrame({"a": [1e30, np.nan, -3.0]}))
    assert x.tolist() == [[0.0]] * 3


def test_standardise_can_be_inverted() -> None:
    step = Standardise(center=np.array([1.0, -2.0]), scale=np.array([4.0, 0.5]))
    values = np.array([[3.0, 5.0], [-1.0, 0.25]])
    np.testing.assert_array_equal(step.apply(values), [[0.5, 14.0], [-0.5, 4.5]])
    np.testing.assert_array_equal(step.invert(step.apply(values)), values)
    np.testing.assert_array_equal(step.at(np.array([1])).apply(values[:, 1:]), [[14.0], [4.5]])
