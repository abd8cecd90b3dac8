"""Tables as tasks of the laboratory."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from multilayer.errors import DataError
from multilayer.lab.tables import class_count, classification, divided, images


def test_rows_are_scaled_and_divided_without_overlap() -> None:
    task = classification("wine")
    np.testing.assert_allclose(task.x.mean(0), 0, atol=1e-5)
    np.testing.assert_allclose(task.x.std(0), 1, atol=1e-3)
    assert class_count(task) == 3
    training, test = divided(task, rows=100, seed=3, test_rows=50)
    assert (len(training), len(test)) == (100, 50)
    every = np.concatenate([training.x, test.x])
    assert len(np.unique(every, axis=0)) == len(every)
    assert (divided(task, rows=100, seed=4)[0].x != training.x).any()


def test_a_category_is_one_input_per_value(tmp_path: Path) -> None:
    path = tmp_path / "people.csv"
    lines = [f"{('red', 'blue', 'green')[i % 3]},{i % 7},{'yes' if i % 2 else 'no'}" for i in range(40)]
    path.write_text("\n".join(["color,size,class", *lines]))
    task = classification(str(path))
    assert task.x.shape[1] >= 4
    assert set(task.y) == {0, 1}


def test_a_target_of_numbers_and_too_few_rows_are_errors() -> None:
    with pytest.raises(DataError, match="needs a target with classes, got task: regression"):
        classification("diabetes")
    with pytest.raises(DataError, match="needs a table of 20 or more rows, got 5"):
        divided(classification("iris").rows(slice(5)), rows=3, seed=0)


def test_test_rows_are_left_in_a_small_table() -> None:
    training, test = divided(classification("iris"), rows=1000, seed=0)
    assert (len(training), len(test)) == (112, 38)


def test_a_changed_file_is_read_again(tmp_path: Path) -> None:
    path = tmp_path / "table.csv"
    for rows in (40, 60):
        path.write_text("\n".join(["size,class", *(f"{i % 7},{'yes' if i % 2 else 'no'}" for i in range(rows))]))
        os.utime(path, ns=(rows, rows))
        assert len(classification(str(path))) == rows


def test_images_are_centered_and_keep_the_relation_of_their_pixels() -> None:
    task, (height, width) = images("digits")
    assert task.x.shape[1] == height * width
    np.testing.assert_allclose(task.x.mean(0), 0, atol=1e-12)
    assert task.x.std() == pytest.approx(1)
    assert (task.x.std(0) == 0).any(), "a pixel that is always empty stays so"
    assert class_count(task) == 10
    with pytest.raises(DataError, match="needs images with classes, such as digits"):
        images("iris")
