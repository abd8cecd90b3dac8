"""R9: invalid and unusual tables. Each is read correctly, or gives a clear error.

The error must be a DataError. It begins with the file, and names row and column if the problem is at a single value.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from multilayer.errors import DataError
from support.bad_tables import CASES, Case
from support.training_rows import prepare


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_bad_tables_are_read_correctly_or_rejected(case: Case, tmp_path: Path) -> None:
    path = tmp_path / f"table{case.suffix}"
    path.write_bytes(case.data)
    options = {"target": "y", **case.options}
    if case.fault is None:
        ready = prepare(path, **options)
        assert case.rows is None or len(ready.data) == case.rows
        assert re.search(case.note, "\n".join(ready.notes))
        assert np.isfinite(ready.data.x).all()
    else:
        with pytest.raises(DataError, match=case.fault) as caught:
            prepare(path, **options)
        assert str(caught.value).startswith(str(path)) or "unknown kind" in str(caught.value)


WHOLE = [(case.suffix, case.data) for case in CASES if case.fault is None and len(case.data) < 20_000]


@settings(deadline=None, max_examples=150)
@given(which=st.integers(0, 10**6), place=st.floats(0, 1), bad=st.binary(max_size=12), cut=st.booleans())
def test_damaged_files_are_read_or_rejected(which: int, place: float, bad: bytes, cut: bool) -> None:
    """Replace, insert or cut bytes. The result must be rows of finite numbers, or a DataError that names the file."""
    suffix, data = WHOLE[which % len(WHOLE)]
    i = int(place * len(data))
    data = data[:i] + bad + (b"" if cut else data[i + len(bad) // 2 :])
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"table{suffix}"
        path.write_bytes(data)
        message = ""
        try:
            found = prepare(path, target="y").data
        except DataError as error:
            message = str(error)
        assert message.startswith(str(path)) if message else len(found) and np.isfinite(found.x).all()


def test_number_of_cases(tried: Callable[[str, int], None]) -> None:
    tried("R9: bad tables", len(CASES))
    assert len(CASES) >= 250
    assert len({case.name for case in CASES}) == len(CASES)
