"""Torch and Hugging Face datasets as X of the estimators."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch
from torch.utils.data import Dataset, TensorDataset

from multilayer import MLPClassifier, MLPRegressor
from multilayer.errors import DataError
from support.quick_estimators import QUICK, classes, numbers


class HuggingFace:
    """A split of a dataset with the parts of its interface that are used."""

    def __init__(self, columns: dict[str, Any]) -> None:
        self.table = pa.table(columns)

    def with_format(self, name: str) -> HuggingFace:
        assert name == "arrow"
        return self

    def __len__(self) -> int:
        return len(self.table)

    def __getitem__(self, rows: slice) -> pa.Table:
        return self.table[rows]


HuggingFace.__module__ = "datasets.arrow_dataset"


class Pairs(Dataset[Any]):
    def __init__(self, x: np.ndarray, y: np.ndarray) -> None:
        self.x, self.y = x, y

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, i: int) -> tuple[np.ndarray, Any]:
        return self.x[i], self.y[i]


@pytest.mark.parametrize("kind", ["tensors", "pairs"])
def test_a_torch_dataset_of_rows_and_targets(kind: str) -> None:
    x, y = classes()
    x = x.astype(np.float32)
    data: Any = Pairs(x, y) if kind == "pairs" else TensorDataset(torch.from_numpy(x), torch.from_numpy(y))
    plain = MLPClassifier(**QUICK).fit(x, y)
    model = MLPClassifier(**QUICK).fit(data)
    assert (model.predict_proba(data) == plain.predict_proba(x)).all()
    assert MLPClassifier(**QUICK).fit(data, X_val=data).n_iter_ == QUICK["epochs"]
    assert MLPClassifier(**QUICK).partial_fit(data, None).n_iter_ == 1


def test_a_hugging_face_dataset_with_the_name_of_its_target() -> None:
    x, y = numbers()
    data = HuggingFace({"a": x[:, 0], "b": x[:, 1], "city": ["Bern", "Basel"] * 60, "price": y})
    model = MLPRegressor(**QUICK).fit(data, "price")
    assert model.feature_names_in_.tolist() == ["a", "b", "city"]
    assert model.model_.encoding.task.names == ("price",)
    without = HuggingFace({"a": x[:, 0], "b": x[:, 1], "city": ["Bern", "Basel"] * 60})
    assert (model.predict(data) == model.predict(without)).all()
    assert (MLPRegressor(**QUICK).fit(without, y).predict(data) == model.predict(data)).all()
    assert MLPRegressor(**QUICK).partial_fit(data, ["price"]).n_iter_ == 1
    with pytest.raises(DataError, match="y: unknown column 'prise': did you mean 'price'"):
        MLPRegressor(**QUICK).fit(data, "prise")


def test_a_target_is_needed() -> None:
    x, _ = classes()
    with pytest.raises(ValueError, match="requires y to be passed, but the target y is None"):
        MLPClassifier(**QUICK).fit(x)
    with pytest.raises(ValueError, match="requires y to be passed"):
        MLPClassifier(**QUICK).fit(TensorDataset(torch.from_numpy(x)))
