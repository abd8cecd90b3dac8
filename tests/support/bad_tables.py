"""A list of invalid and unusual tables as bytes of files, each with the expected error or note."""

from __future__ import annotations

import gzip
import io
import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.feather as feather
import pyarrow.ipc as ipc
import pyarrow.parquet as parquet

HEADER = ["a", "b", "c", "y"]
GOOD = [[i % 7, i * 0.5 + 0.25, "uvw"[i % 3], "ab"[i % 2]] for i in range(24)]


@dataclass(frozen=True, kw_only=True)
class Case:
    """One table. `fault` is the expected error; without it, the table is accepted, and `note` is the expected note."""

    name: str
    data: bytes
    suffix: str = ".csv"
    fault: str | None = None
    note: str = ""
    rows: int | None = None
    options: dict[str, Any] = field(default_factory=dict)


def csv(rows: list[list[Any]] | None = None, header: list[str] | None = None, delimiter: str = ",") -> bytes:
    lines = [HEADER if header is None else header, *(GOOD if rows is None else rows)]
    return "".join(delimiter.join(map(str, line)) + "\n" for line in lines).encode()


def changed(row: int, column: int, value: Any) -> list[list[Any]]:
    """Return the good rows with one changed value. Rows are counted from 1."""
    rows = [list(line) for line in GOOD]
    rows[row - 1][column] = value
    return rows


def arrow(**columns: Any) -> pa.Table:
    good = {name: [row[i] for row in GOOD] for i, name in enumerate(HEADER)}
    return pa.table(good | columns)


def written(write: Callable[..., Any], table: Any) -> bytes:
    out = io.BytesIO()
    write(table, out)
    return out.getvalue()


def stream(table: pa.Table) -> bytes:
    out = io.BytesIO()
    with ipc.new_stream(out, table.schema) as writer:
        writer.write_table(table)
    return out.getvalue()


def lines(*rows: dict[str, Any]) -> bytes:
    good = [dict(zip(HEADER, row, strict=True)) for row in GOOD]
    return "".join(json.dumps(row) + "\n" for row in [*good, *rows]).encode()


def npz(**arrays: Any) -> bytes:
    out = io.BytesIO()
    np.savez(out, **arrays)
    return out.getvalue()


def npy(array: Any, **how: Any) -> bytes:
    out = io.BytesIO()
    np.save(out, array, **how)
    return out.getvalue()


def at(row: int, column: str) -> str:
    return rf"row {row}, column '{column}'"


def text_cases() -> Iterator[Case]:
    good = csv()
    yield Case(name="good", data=good, rows=24)
    yield Case(name="byte order mark", data=b"\xef\xbb\xbf" + good, rows=24)
    yield Case(name="CRLF", data=good.replace(b"\n", b"\r\n"), rows=24)
    yield Case(name="CR", data=good.replace(b"\n", b"\r"), rows=24)
    yield Case(name="no newline at the end", data=good.rstrip(b"\n"), rows=24)
    yield Case(name="blank lines", data=good.replace(b"\n", b"\n\n"), rows=24)
    for delimiter in ",;\t|":
        yield Case(name=f"delimiter {delimiter!r}", data=csv(delimiter=delimiter), rows=24)
    yield Case(name="tsv", data=csv(delimiter="\t"), suffix=".tsv", rows=24)
    yield Case(name="tsv with commas", data=good, suffix=".tsv", rows=24)
    comma = csv(delimiter=";").replace(b".", b",")
    yield Case(name="decimal comma", data=comma, note="decimal comma", rows=24)
    yield Case(name="gzip", data=gzip.compress(good), suffix=".csv.gz", rows=24)
    yield Case(name="gzip without its name", data=gzip.compress(good), rows=24)
    for cut in (3, 9, 12, 30, len(gzip.compress(good)) - 1, len(gzip.compress(good)) - 8):
        yield Case(
            name=f"gzip cut at {cut}",
            data=gzip.compress(good)[:cut],
            suffix=".csv.gz",
            fault="check that the file is complete",
        )
    broken = bytearray(gzip.compress(good))
    broken[-6] ^= 0xFF
    yield Case(name="gzip checksum", data=bytes(broken), suffix=".csv.gz", fault="check that the file is complete")
    for data in (b"", b"\n", b"  \n \n", b"\xef\xbb\xbf"):
        yield Case(name=f"empty {data!r}", data=data, fault="the file is empty")
    yield Case(name="header alone", data=csv([]), fault="at least one row")
    yield Case(name="header alone, no newline", data=b"a,b,y", fault="at least one row")
    yield Case(name="one row", data=csv(GOOD[:1]), fault="at least two classes")
    yield Case(name="two rows", data=csv(GOOD[:2]), rows=2)
    yield Case(name="one column", data=b"y\n1\n2\n", fault="a column besides its target")
    for encoding in ("utf-16", "utf-16-be", "utf-32"):
        yield Case(name=encoding, data=good.decode().encode(encoding), fault="UTF-8|NUL")
    for line in (1, 2, 13, 25):
        parts = good.split(b"\n")
        parts[line - 1] += b"\x00"
        yield Case(name=f"NUL in line {line}", data=b"\n".join(parts), fault=f"line {line}: .*NUL")
        parts[line - 1] = parts[line - 1][:-1].replace(b",", b"\xe9,", 1)
        yield Case(
            name=f"Latin-1 in line {line}", data=b"\n".join(parts), fault=f"line {line}: .*UTF-8, got the byte 0xe9"
        )
    for bad in (b"\xff", b"\xc0\xaf", b"\xed\xa0\x80", b"\xf8\x88\x80\x80\x80"):
        data = csv(changed(5, 2, "@")).replace(b"@", bad)
        yield Case(name=f"UTF-8 {bad!r}", data=data, fault="line 6: .*UTF-8")
    late = csv(GOOD * 9000) + b"1,2,caf\xe9,a\n"
    yield Case(name="Latin-1 past the first megabytes", data=late, fault=r"(line 216,002|row 216,001).*UTF-8")
    for row in (1, 2, 12, 24):
        for delimiter in ",;":
            short = [list(line) for line in GOOD]
            short[row - 1] = short[row - 1][:-1]
            long = [list(line) for line in GOOD]
            long[row - 1] = [*long[row - 1], 9]
            fault = f"row {row} has {{}} values, but the header has 4"
            yield Case(name=f"short row {row} {delimiter}", data=csv(short, delimiter=delimiter), fault=fault.format(3))
            yield Case(name=f"long row {row} {delimiter}", data=csv(long, delimiter=delimiter), fault=fault.format(5))
    yield Case(name="open quote", data=csv(changed(3, 2, '"u')), fault="a quote must be closed|has .* values, but")
    yield Case(name="open quote at the end", data=good + b'1,2,u,"a\n', fault="row 25.*a quote must be closed")
    yield Case(name="quote inside", data=csv(changed(3, 2, 'u"v')), rows=24)
    yield Case(name="delimiter in quotes", data=csv(changed(3, 2, '"u,v"')), rows=24)
    yield Case(name="newline in quotes", data=csv(changed(3, 2, '"u\nv"')), rows=24)
    yield Case(name="doubled quotes", data=csv(changed(3, 2, '"u""v"')), rows=24)


def header_cases() -> Iterator[Case]:
    yield Case(name="twice a", data=csv(header=["a", "a", "c", "y"]), fault="columns 1 and 2 are both called 'a'")
    yield Case(name="twice y", data=csv(header=["a", "y", "c", "y"]), fault="columns 2 and 4 are both called 'y'")
    yield Case(name="twice but for blanks", data=csv(header=["a", " a", "c", "y"]), fault="columns 1 and 2 are both")
    yield Case(name="blanks around names", data=csv(header=["a ", " b", "c", " y"]), rows=24)
    for i in range(3):
        header = [*HEADER[:i], "", *HEADER[i + 1 :]]
        yield Case(name=f"no name {i + 1}", data=csv(header=header), fault=f"column {i + 1} has no name")
        yield Case(name=f"blank name {i + 1}", data=csv(header=[n or "  " for n in header]), fault="has no name")
    rows = [[i, *line] for i, line in enumerate(GOOD)]
    yield Case(name="pandas' index", data=csv(rows, ["", *HEADER]), note="only numbers the rows: ignored", rows=24)
    rows = [[i * 2, *line] for i, line in enumerate(GOOD)]
    yield Case(name="nameless numbers", data=csv(rows, ["", *HEADER]), fault="column 1 has no name")
    yield Case(name="trailing delimiter", data=csv([[*r, ""] for r in GOOD], [*HEADER, ""]), note="no values", rows=24)
    yield Case(name="id", data=csv([[i, *r] for i, r in enumerate(GOOD)], ["id", *HEADER]), note="'id' .row numbers")
    yield Case(name="no header", data=b"5.1,3.5,1.4,s\n4.9,3.0,1.4,t\n", fault="the column names, got '5.1")
    yield Case(name="all numbers", data=b"5.1,3.5,1.4\n4.9,3.0,1.2\n", fault="the column names")
    yield Case(name="names that are whole numbers", data=csv(header=["0", "1", "2", "y"]), rows=24)
    many = [f"c{i}" for i in range(10_000)]
    values = [[(i * j) % 13 for j in range(10_000)] + ["ab"[i % 2]] for i in range(6)]
    yield Case(name="10,000 columns", data=csv(values, [*many, "y"]), rows=6)
    yield Case(
        name="10,000 columns, one twice", data=csv(values, [*many[:-1], "c7", "y"]), fault="8 and 10000 are both"
    )
    yield Case(
        name="10,000 columns, one short", data=csv([*values, values[0][1:]], [*many, "y"]), fault="row 7 has 10,000"
    )
    yield Case(name="a very long value", data=csv(changed(2, 2, "x" * 9_000_000)), rows=24)
    for target in ("z", "Y", "a b"):
        yield Case(
            name=f"no target {target}", data=csv(), options={"target": target}, fault="unknown column.*valid: a, b"
        )
    yield Case(
        name="target not named", data=csv(header=["a", "b", "c", "d"]), options={"target": None}, fault="name the"
    )
    yield Case(name="usual target", data=csv(), options={"target": None}, note="target: 'y' .by its name")
    yield Case(name="duplicate targets", data=csv(), options={"target": ["y", "y"]}, fault="targets must be distinct")
    yield Case(name="no targets", data=csv(), options={"target": []}, fault="at least one target, got none")
    yield Case(
        name="target 9", data=csv(), options={"target": 9}, fault="must be below 4, the number of columns, got 9"
    )


INFINITE = ("inf", "-inf", "+inf", "Inf", "INF", "Infinity", "-Infinity", "1e400", "-1e999")
HUGE = ("1e39", "-3.5e38", "1e300")


def value_cases() -> Iterator[Case]:
    for text in INFINITE:
        yield Case(
            name=f"feature {text}", data=csv(changed(7, 1, text)), fault=rf"{at(7, 'b')}: numbers must be finite"
        )
        target = csv([[*row[:3], i + 0.5] for i, row in enumerate(GOOD)] + [[1, 2, "u", text]])
        yield Case(name=f"target {text}", data=target, fault=rf"{at(25, 'y')}: numbers must be finite")
    for text in HUGE:
        yield Case(name=f"feature {text}", data=csv(changed(7, 1, text)), fault=rf"{at(7, 'b')}: .*float32")
    yield Case(name="row after one left out", data=csv([*changed(3, 3, ""), [1, "inf", "u", "a"]]), fault=at(25, "b"))
    for text in ("", "NA", "N/A", "NaN", "nan", "null", "NULL", "?", " ", "<NA>", "#N/A"):
        yield Case(name=f"missing number {text!r}", data=csv(changed(7, 1, text)), rows=24)
        yield Case(name=f"missing word {text!r}", data=csv(changed(7, 2, text)), rows=24)
        yield Case(
            name=f"missing target {text!r}", data=csv(changed(7, 3, text)), note="1 row without a target", rows=23
        )
    yield Case(name="no target at all", data=csv([[*row[:3], ""] for row in GOOD]), fault="no row has a target")
    yield Case(name="past int64", data=csv(changed(7, 0, 10**20)), rows=24)
    for word in ("oops", "1.2.3", "12x", "--", "1 000", "0x1F", "1,5"):
        quoted = f'"{word}"'
        fault = rf"{at(9, 'b')}: .* are numbers, got '{re.escape(word)}'"
        yield Case(name=f"{word} among numbers", data=csv(changed(9, 1, quoted)), fault=fault)
        rows = [[*row[:3], i + 0.5] for i, row in enumerate(GOOD)]
        rows[8][3] = quoted
        yield Case(name=f"{word} in the target", data=csv(rows), fault=rf"{at(9, 'y')}: .* are numbers")
    words = {"options": {"columns": {"b": "categorical"}}}
    yield Case(name="declared categorical", data=csv(changed(9, 1, "oops")), rows=24, **words)
    yield Case(
        name="declared numeric", data=csv(), options={"columns": {"c": "numeric"}}, fault=f"{at(1, 'c')}.*a number"
    )
    yield Case(name="declared date", data=csv(), options={"columns": {"c": "date"}}, fault=f"{at(1, 'c')}.*a date")
    yield Case(name="unknown kind", data=csv(), options={"columns": {"c": "wrod"}}, fault=r"column 'c': unknown kind")
    yield Case(
        name="kind of no column", data=csv(), options={"columns": {"q": "drop"}}, fault="unknown input column 'q'"
    )
    yield Case(name="constant", data=csv([[5, *row[1:]] for row in GOOD]), note="'a' .constant", rows=24)
    yield Case(name="empty column", data=csv([["", *row[1:]] for row in GOOD]), note="'a' .empty", rows=24)
    yield Case(name="nothing varies", data=csv([[5, 5, "u", row[3]] for row in GOOD]), fault="all columns were dropped")
    one = csv([[*row[:3], "a"] for row in GOOD])
    yield Case(name="one class", data=one, fault=r"column 'y': a classification needs at least two classes")
    free = csv([[f"name {i * 7919}", *row[1:]] for i, row in enumerate(GOOD)])
    note = "'a' .text with many different values"
    yield Case(name="free text", data=free, note=note, rows=24, options={"validation": None})
    unique = csv([[*row[:3], f"name {i}"] for i, row in enumerate(GOOD)])
    yield Case(
        name="free text as target", data=unique, fault="few different values, got 24 different strings in 24 rows"
    )
    dates = csv([[*row[:3], f"2024-01-{i + 1:02}"] for i, row in enumerate(GOOD)])
    yield Case(name="dates as target", data=dates, fault="column 'y': a target must be numbers, text or booleans")
    three = csv([[*row[:3], "abc"[i % 3]] for i, row in enumerate(GOOD)])
    yield Case(name="three are not two", data=three, options={"task": "binary"}, fault="needs two classes, got 3")
    yield Case(
        name="words are no numbers", data=csv(), options={"task": "regression"}, fault=rf"{at(1, 'y')}.*be numbers"
    )
    counts = csv([[*row[:3], i - 1] for i, row in enumerate(GOOD)])
    yield Case(
        name="negative counts",
        data=counts,
        options={"task": "regression", "loss": "poisson"},
        fault=rf"{at(1, 'y')}: poisson needs numbers of 0 or more",
    )
    negative = {"options": {"sample_weight": "a"}}
    yield Case(
        name="negative weight", data=csv(changed(4, 0, -1)), fault=rf"{at(4, 'a')}: weights must be 0", **negative
    )
    yield Case(
        name="missing weight", data=csv(changed(4, 0, "")), fault=rf"{at(4, 'a')}: weights must be 0", **negative
    )
    yield Case(
        name="weight in words", data=csv(), options={"sample_weight": "c"}, fault="column 'c': weights must be numbers"
    )
    yield Case(
        name="missing group",
        data=csv(changed(4, 2, "")),
        options={"group": "c"},
        fault=f"{at(4, 'c')}.*must not have missing values",
    )
    yield Case(
        name="missing time",
        data=csv(changed(4, 1, "")),
        options={"time_column": "b"},
        fault=f"{at(4, 'b')}.*must not have missing values",
    )
    yield Case(
        name="time in words",
        data=csv(),
        options={"time_column": "c"},
        fault="needs numbers or dates such as 2024-12-31, got",
    )


def binary_cases() -> Iterator[Case]:
    for suffix, data in (
        (".parquet", written(parquet.write_table, arrow())),
        (".feather", written(feather.write_feather, arrow())),
        (".arrow", stream(arrow())),
    ):
        yield Case(name=f"good {suffix}", data=data, suffix=suffix, rows=24)
        for cut in (0, 3, 4, 8, 13, len(data) // 3, len(data) // 2, len(data) - 9, len(data) - 4, len(data) - 1):
            if suffix == ".arrow" and cut > len(data) // 2:
                continue  # a stream is valid without its end marker
            yield Case(
                name=f"{suffix} cut at {cut}", data=data[:cut], suffix=suffix, fault="cannot be read|complete|empty"
            )
        for i, value in enumerate((np.inf, -np.inf, 1e39)):
            column = [row[1] for row in GOOD]
            column[10] = value
            table = arrow(b=pa.array(column, pa.float64()))
            made = {".parquet": lambda t: written(parquet.write_table, t), ".arrow": stream}
            made[".feather"] = lambda t: written(feather.write_feather, t)
            yield Case(name=f"{suffix} {value} {i}", data=made[suffix](table), suffix=suffix, fault=at(11, "b"))
    parquets = [
        ("list", arrow(b=[[1.0]] * 24), "column 'b': must contain numbers"),
        ("struct", arrow(b=[{"q": 1}] * 24), "column 'b': must contain numbers"),
        ("binary", arrow(b=[b"q"] * 24), "column 'b': must contain numbers"),
        ("no rows", arrow().slice(0, 0), "at least one row"),
        ("twice a", arrow().rename_columns(["a", "a", "c", "y"]), "columns 1 and 2 are both called 'a'"),
        ("no name", arrow().rename_columns(["a", "", "c", "y"]), "column 2 has no name"),
    ]
    for name, table, fault in parquets:
        yield Case(name=f"Parquet {name}", data=stream(table), suffix=".arrow", fault=fault)
    footer = bytearray(written(parquet.write_table, arrow()))
    for place in (-1, -5, -6, -7, -8):
        bad = bytearray(footer)
        bad[place] ^= 0xFF
        yield Case(name=f"Parquet footer {place}", data=bytes(bad), suffix=".parquet", fault="cannot be read")
    good = lines()
    yield Case(name="JSON lines", data=good, suffix=".jsonl", rows=24)
    yield Case(name="JSON lines, gzip", data=gzip.compress(good), suffix=".jsonl.gz", rows=24)
    yield Case(name="JSON with missing keys", data=lines({"y": "a"}), suffix=".jsonl", rows=25)
    faults = [
        (lines({"a": "x", "y": "a"}), "column 'a' changed from number to string in row 25"),
        (good + b'{"a": 1, "a": 2}\n', "column 'a' was specified twice in row 25"),
        (good + b'{"a": \n', "in row 25"),
        (good + b"[1, 2]\n", "in row 25"),
        (good + b"7\n", "in row 25"),
        (good + b'{"a": 1e999, "y": "a"}\n', "in row 25"),
        (good + b'{"a": "\xff"}\n', "line 25: .*UTF-8"),
        (lines({"b": float("inf"), "y": "a"}), at(25, "b")),
        (lines({"b": float("-inf"), "y": "a"}), at(25, "b")),
        (b'[{"a": 1}]', "one object per line, got a list"),
        (b"{}\n{}\n", "at least one row and one column"),
        (b"", "the file is empty"),
        (lines({"q": {"deep": 1}, "y": "a"}), "column 'q': must contain numbers"),
        (b'{"a":' + b"[" * 50_000 + b"\n", "JSON"),
    ]
    for i, (data, fault) in enumerate(faults):
        yield Case(name=f"JSON lines {i}", data=data, suffix=".jsonl", fault=fault)


def array_cases() -> Iterator[Case]:
    X, y = np.arange(48.0).reshape(24, 2), np.arange(24) % 2
    own: dict[str, Any] = {"options": {"target": None}}
    yield Case(name="npz", data=npz(X=X, y=y), suffix=".npz", rows=24, **own)
    yield Case(name="npz of columns", data=npz(a=X[:, 0], y=y), suffix=".npz", rows=24)
    table = npy(np.concatenate([X, y[:, None]], 1))
    yield Case(name="npy", data=table, suffix=".npy", rows=24, options={"target": -1})
    whole = npz(X=X, y=y)
    bad_x = X.copy()
    bad_x[4, 1] = np.inf
    objects = np.array([[1, "a"], [2, "b"]], dtype=object)
    faults = [
        (".npz", npz(X=bad_x, y=y), at(5, "x1")),
        (".npz", npz(X=X, y=y[:-1]), "same number of rows, got 24 and 23"),
        (".npz", npz(X=X[:, 0], y=y), "2 dimensions"),
        (".npz", npz(X=X[:0], y=y[:0]), "at least one row"),
        (".npz", npz(X=X, y=np.zeros((24, 2, 2))), "one or two dimensions"),
        (".npz", npz(q=X, r=y[:3]), "arrays X and y, or columns"),
        (".npz", npz(X=objects, y=y[:2]), "Python objects, which could run code"),
        (".npz", whole[: len(whole) // 2], "cannot be read as .npz"),
        (".npz", whole[:-4], "cannot be read as .npz"),
        (".npy", npy(objects, allow_pickle=True), "Python objects, which could run code"),
        (".npy", table[:60], "cannot be read as .npy"),
        (".npy", table[:-1], "cannot be read as .npy"),
        (".npy", table.replace(b"(24, 3)", b"(99, 3)"), "cannot be read as .npy"),
        (".npy", table.replace(b"'<f8'", b"'|O8'"), "Python objects|cannot be read"),
        (".npy", npy(np.zeros((2, 2), dtype=complex)), "numbers must be real, got complex128"),
        (".npy", b"\x93NUMPY", "cannot be read as .npy"),
        (".npy", b"junk", "does not begin like a npy file"),
    ]
    for i, (suffix, data, fault) in enumerate(faults):
        yield Case(name=f"{suffix} {i} {fault}", data=data, suffix=suffix, fault=fault, options={"target": None})
    images = bytes([0, 0, 8, 3]) + b"".join(n.to_bytes(4, "big") for n in (24, 2, 3)) + bytes(range(144))
    for i, (data, fault) in enumerate(
        [
            (images[:-1], "needs 144 bytes after the header, got 143"),
            (images + b"\0", "needs 144 bytes after the header, got 145"),
            (images[:10], "ends inside its header"),
            (b"\0\0\x08\x07" + images[4:], "not an idx file"),
            (b"\0\0\x08\x01" + (144).to_bytes(4, "big") + bytes(144), "contains labels only"),
            (b"\0\0\x08\x03" + b"\xff" * 12 + bytes(9), "bytes after the header, got 9"),
            (b"", "idx"),
        ]
    ):
        yield Case(name=f"idx {i}", data=data, suffix="-images-idx3-ubyte", fault=fault + "|complete", **own)
    for suffix in (".xlsx", ".pkl", ".joblib", ".db", ""):
        yield Case(name=f"kind of file {suffix!r}", data=csv(), suffix=suffix, fault="unknown kind of file")


CASES = [*text_cases(), *header_cases(), *value_cases(), *binary_cases(), *array_cases()]
