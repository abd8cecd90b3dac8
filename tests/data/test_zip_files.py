"""Zip files that are not .npz files."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest

from multilayer.data import read
from multilayer.errors import DataError


@pytest.mark.parametrize(
    ("inside", "what"), [("[Content_Types].xml", "an Excel workbook"), ("table.csv", "a zip file")], ids=["xlsx", "zip"]
)
def test_an_excel_workbook_is_refused_with_what_to_do(inside: str, what: str, tmp_path: Path) -> None:
    path = tmp_path / "sales.xlsx"
    with zipfile.ZipFile(path, "w") as packed:
        packed.writestr(inside, "<Types/>")
    with pytest.raises(DataError, match=f"is {what}, which cannot be read as a table: save it as CSV or Parquet"):
        read(path)
