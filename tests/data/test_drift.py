"""R9: tables that differ from the training table. Each is read correctly, or gives a clear error."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from multilayer.data import Encoding
from multilayer.errors import DataError
from multilayer.training.fit import fit
from support.bad_tables import at, csv
from support.training_rows import prepare

TRAINED = {
    "n": [i * 0.5 for i in range(24)],
    "k": list(range(24)),
    "s": ["uvw"[i % 3] for i in range(24)],
    "f": [i % 2 == 0 for i in range(24)],
    "d": [f"2024-01-{i + 1:02}" for i in range(24)],
    "y": ["ab"[i % 2] for i in range(24)],
}


def new(**columns: Any) -> dict[str, Any]:
    return {name: values for name, values in ({**TRAINED, **columns}).items() if values is not None}


def same(value: Any) -> list[Any]:
    return [value] * 24


@dataclass(frozen=True, kw_only=True)
class Drift:
    name: str
    columns: dict[str, Any]
    fault: str | None = None
    note: str = "^$"


DRIFTS = [
    Drift(name="as trained", columns=new()),
    Drift(name="reordered", columns=dict(reversed(list(new().items())))),
    Drift(name="one more", columns=new(extra=same("x"))),
    Drift(name="without target", columns=new(y=None)),
    Drift(name="text that is all digits", columns=new(s=same(7)), note="'s': 24 rows with 1 value"),
    Drift(
        name="unseen", columns=new(s=["u", "q", "r"] * 8), note="'s': 16 rows with 2 values that training did not see"
    ),
    Drift(name="no text", columns=new(s=same(""))),
    Drift(name="no numbers", columns=new(n=same("")), note="'n': 24 missing values, none in training"),
    Drift(name="no booleans", columns=new(f=same(""))),
    Drift(name="1 and 0", columns=new(f=same(1))),
    Drift(name="whole numbers", columns=new(n=same(3))),
    Drift(name="decimals", columns=new(k=same(3.5))),
    Drift(
        name="booleans as numbers",
        columns=new(n=same("true")),
        fault=rf"{at(1, 'n')}: was numbers in training, got true or false, True: convert",
    ),
    *(Drift(name=f"no {c}", columns=new(**{c: None}), fault=f"1 column of training missing: '{c}'") for c in "nksfd"),
    Drift(name="none of them", columns={"q": [1, 2]}, fault="5 columns of training missing: 'n', 'k', 's', 'f', 'd'"),
    Drift(name="a word among numbers", columns=new(n=[*same(1)[:-1], "x"]), fault=rf"{at(24, 'n')}: was numbers .*'x'"),
    Drift(name="words", columns=new(k=same("x")), fault=rf"{at(1, 'k')}: was numbers in training, got text"),
    Drift(name="dates for numbers", columns=new(k=same("2024-01-01")), fault=rf"{at(1, 'k')}: was numbers .* dates"),
    Drift(name="yes and no", columns=new(f=same("yes")), fault=rf"{at(1, 'f')}: must be true or false as in training"),
    Drift(name="two", columns=new(f=[*same(1)[:-1], 2]), fault=rf"{at(24, 'f')}: must be true or false"),
    Drift(name="no date", columns=new(d=[*same("2024-01-01")[:-1], "soon"]), fault=rf"{at(24, 'd')}: must be a date"),
    Drift(name="infinite", columns=new(n=[*same(1)[:-1], "inf"]), fault=rf"{at(24, 'n')}: numbers must be finite"),
    Drift(name="too large", columns=new(n=[*same(1)[:-1], 1e39]), fault=rf"{at(24, 'n')}: .*float32"),
]


def file_of(columns: dict[str, Any], path: Path) -> Path:
    rows = [list(row) for row in zip(*columns.values(), strict=True)]
    path.write_bytes(csv([[str(v).lower() if isinstance(v, bool) else v for v in r] for r in rows], list(columns)))
    return path


@pytest.mark.parametrize("drift", DRIFTS, ids=lambda drift: drift.name)
def test_drift_of_files(drift: Drift, tmp_path: Path) -> None:
    encoding = prepare(file_of(TRAINED, tmp_path / "train.csv"), target="y").encoding
    path = file_of(drift.columns, tmp_path / "new.csv")
    if drift.fault is None:
        found = encoding.encode(path)
        assert len(found.x) == 24
        assert np.isfinite(found.x).all()
        assert re.search(drift.note, "\n".join(found.notes))
    else:
        with pytest.raises(DataError, match=drift.fault) as caught:
            encoding.encode(path)
        assert str(caught.value).startswith(str(path))


NOTHING = [pa.timestamp("us"), pa.bool_(), pa.time32("s"), pa.date32(), pa.string()]
TYPED = [
    ("whole as float", {"k": pa.array(range(24), pa.float64())}, None),
    ("float as whole", {"n": pa.array(range(24), pa.int8())}, None),
    ("float32", {"n": pa.array(range(24), pa.float32())}, None),
    ("decimal", {"n": pa.array(range(24), pa.decimal128(9, 2))}, None),
    ("dictionary", {"s": pa.array(TRAINED["s"]).dictionary_encode()}, None),
    ("large text", {"s": pa.array(TRAINED["s"], pa.large_string())}, None),
    ("nulls", {"s": pa.nulls(24), "n": pa.nulls(24), "d": pa.nulls(24), "f": pa.nulls(24)}, None),
    ("NaN for all", {c: pa.array([np.nan] * 24) for c in "nksfd"}, None),
    ("nothing of every type", {c: pa.nulls(24, t) for c, t in zip("nksfd", NOTHING, strict=True)}, None),
    ("nothing with a zone", {c: pa.nulls(24, pa.timestamp("s", tz="UTC")) for c in "nksfd"}, None),
    ("0 and 1", {"f": pa.array([0, 1] * 12)}, None),
    ("moments", {"d": pa.array([0] * 24, pa.timestamp("s"))}, None),
    ("numbers as text", {"n": pa.array(["3"] * 24)}, None),
    ("a word for a number", {"n": pa.array(["3", "x"] * 12)}, rf"{at(2, 'n')}: was numbers in training, got text, 'x'"),
    ("text as numbers", {"s": pa.array(range(24))}, rf"{at(1, 's')}: was text in training, got numbers, 0"),
    ("dates as text", {"d": pa.array(["2024-01-01"] * 24)}, None),
    ("a word for a date", {"d": pa.array(["2024-01-01", "x"] * 12)}, rf"{at(2, 'd')}: must be a date as in training"),
    ("2 for true", {"f": pa.array([2] * 24)}, rf"{at(1, 'f')}: was true or false in training, got 2"),
    ("booleans as text", {"f": pa.array(["true"] * 24)}, None),
    (
        "a word for true",
        {"f": pa.array(["yes"] * 24)},
        rf"{at(1, 'f')}: must be true or false as in training, got 'yes'",
    ),
    ("text as booleans", {"s": pa.array([True] * 24)}, rf"{at(1, 's')}: was text in training, got true or false"),
    ("lists", {"n": pa.array([[1.0]] * 24)}, "column 'n': must contain numbers"),
    ("times for dates", {"d": pa.array([0] * 24, pa.time32("s"))}, rf"{at(1, 'd')}: was dates in training, got times"),
]


@pytest.mark.parametrize(("name", "columns", "fault"), TYPED, ids=[name for name, _, _ in TYPED])
def test_drift_of_types(name: str, columns: dict[str, Any], fault: str | None) -> None:
    table = pa.table(TRAINED | {"d": pa.array(TRAINED["d"]).cast(pa.date32())})
    encoding = prepare(table, target="y").encoding
    drifted = pa.table({c: columns.get(c, table[c]) for c in table.column_names})
    if fault is None:
        assert np.isfinite(encoding.apply(drifted)[0]).all()
    else:
        with pytest.raises(DataError, match=fault):
            encoding.apply(drifted)


MOMENTS = [0, 3_600, 90_000, 200_000] * 6


@pytest.mark.parametrize("trained", [None, "UTC"])
def test_timestamps_that_gain_or_lose_a_time_zone_are_rejected(trained: str | None) -> None:
    def table(zone: str | None) -> Any:
        return pa.table({"when": pa.array(MOMENTS, pa.timestamp("s", tz=zone)), "y": TRAINED["y"]})

    encoding = prepare(table(trained), target="y").encoding
    other, before, now = ("UTC", "without", "with") if trained is None else (None, "with", "without")
    fault = f"'when': was timestamps {before} a time zone in training, got timestamps {now} a time zone, timestamp"
    saved, arrays = encoding.to_parts()
    for one in (encoding, Encoding.from_parts(saved, arrays)):
        one.apply(table(trained))
        with pytest.raises(DataError, match=fault):
            one.apply(table(other))
    if trained is not None:  # the same times in another time zone
        np.testing.assert_array_equal(encoding.apply(table("Asia/Tokyo"))[0], encoding.apply(table(trained))[0])
    old = {**saved, "columns": [{k: v for k, v in c.items() if k != "zone"} for c in saved["columns"]]}
    Encoding.from_parts(old, arrays).apply(table(other))  # a model that was saved before zones were stored
    wrong = {**saved, "columns": [{**c, "zone": "UTC"} for c in saved["columns"]]}
    with pytest.raises(DataError, match="column 'when' of family datetime has the zone 'UTC'"):
        Encoding.from_parts(wrong, arrays)


def test_each_kind_of_drift_gives_one_warning() -> None:
    columns = {f"c{i}": TRAINED["s"] for i in range(7)} | {"n": TRAINED["n"], "y": TRAINED["y"]}
    model = fit(None, pa.table(columns), target="y", epochs=1, validation=None, quiet=True).model
    assert model is not None
    drifted = pa.table({f"c{i}": same("q") for i in range(7)} | {"n": [None, *TRAINED["n"][1:]], "y": TRAINED["y"]})
    for call in (model.predict, model.predict_proba, model.outputs, model.evaluate):
        with pytest.warns(UserWarning, match="training") as warned:
            call(drifted)
        assert [str(one.message).split(";")[0] for one in warned] == [
            "'n': 1 missing value, none in training: read as the median",
            "'c0': 24 rows with 1 value that training did not see: read as unknown",
        ]
        assert str(warned[1].message).endswith("; and 2 more")
        assert {one.filename for one in warned} == {__file__}


def test_number_of_drifts(tried: Callable[[str, int], None]) -> None:
    tried("R9: drift", len(DRIFTS) + len(TYPED))
    assert len(DRIFTS) + len(TYPED) >= 40
