"""How often do the detectors of `ml.check` find a fault, and how often do they find one in a healthy run?

    python bench/detectors.py [--set choose|earlier|report|all] [--only KIND,…] [--workers N] [--markdown] [--remedies]

A case is a table, a network and options of `ml.fit`, with one of 14 seeded faults or healthy (detector_cases.py). A
case counts only if independent measurements show that the fault is really there, or that nothing is wrong: brute-force
passes, other learning rates, other networks, test rows that no run sees (detector_facts.py, detector_truth.py). Others
are dropped and counted.

Thresholds were chosen on the sets "choose" and "earlier". The set "report" has other seeds, tables and widths. The
table shows per fault how many of its cases have this finding; name the right layer or column; have this finding or one
of another fault that is there as well; have it first; or have any finding. Next to them is in how many healthy cases it
is a false alarm, and the same for the rules of others (detector_summary.py). With --remedies, the first remedy of each
finding is applied, and the case is trained and checked again. It is cured if the finding is gone and the test loss is
not worse.

Everything is stored in bench/results: facts of cases, and findings with all measurements, as lines of JSON; and the
runs. A second run continues there. If a detector has changed, the stored runs are checked again without training.
--from-results only prints what is stored. --measurements KIND prints the distribution of every measurement in the cases
of a fault and in healthy cases. Delete bench/results/detector_* if training has changed.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import pickle
import time
import zlib
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import cache
from pathlib import Path
from typing import Any

for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(variable, "1")

import detector_summary as summary  # noqa: E402
from detector_cases import FAULTS, HEALTHY, SETS, case  # noqa: E402
from detector_facts import facts, scores, trained  # noqa: E402
from detector_truth import others, verdict  # noqa: E402

import multilayer as ml  # noqa: E402

RESULTS = Path(__file__).parent / "results"
WANTED = {HEALTHY: 200} | dict.fromkeys(FAULTS, 24)
"""Number of verified cases of each kind in each set."""
DRAFTS = 3
"""At most this many times as many cases are tried."""
SAME = 0.02
"""A test loss is not worse if it is higher by at most this share of the loss of a constant."""
Line = dict[str, Any]


# Files of results: a line per case; a later line replaces an earlier one


def read(path: Path) -> dict[str, Line]:
    lines = path.read_text().splitlines() if path.exists() else []
    return {one["name"]: one for one in map(json.loads, lines)}


def append(path: Path, line: Line) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file:
        file.write(json.dumps(line) + "\n")


def key_of(name: str) -> str:
    """Return a hash of the description of a case."""
    return hashlib.sha256(json.dumps(case(name).describe(), sort_keys=True).encode()).hexdigest()[:16]


@cache
def detectors_key() -> str:
    """Return a hash of the code of the detectors."""
    digest = hashlib.sha256()
    for path in sorted((Path(ml.__file__).parent / "diagnostics").glob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


# One case


def stored_run(name: str) -> Any:
    """Return the run of a case as it was stored, or train it. It has the rows that `ml.check` measures."""
    path = RESULTS / "detector_runs" / f"{name.replace('/', '-')}.pickle"
    if path.exists():
        stored = pickle.loads(zlib.decompress(path.read_bytes()))
        if stored["key"] == key_of(name):
            return stored["run"]
    return keep(name, trained(case(name), snapshots=False).run)


def keep(name: str, run: Any) -> Any:
    """Store a run, and return it."""
    path = RESULTS / "detector_runs" / f"{name.replace('/', '-')}.pickle"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(zlib.compress(pickle.dumps({"key": key_of(name), "run": run})))
    return run


def measured(name: str) -> Line:
    """Return the facts of a case, and the scores of what it is compared with."""
    start, made = time.perf_counter(), case(name)
    try:
        one = trained(made)
        keep(name, one.run)
        fact = facts(one)
        other = {label: scores(trained(one, snapshots=False)) for label, one in others(made, fact["rate"]).items()}
        found: Line = {"facts": fact, "others": other}
    except ml.MultilayerError as error:
        found = {"failed": f"{type(error).__name__}: {error}"}
    return {"name": name, "key": key_of(name), "seconds": time.perf_counter() - start, **found}


def checked(name: str) -> Line:
    """Return the findings of a case with all measurements."""
    run = stored_run(name)
    start = time.perf_counter()
    diagnosis = ml.check(run).to_dict()
    keys = {"name": name, "key": key_of(name), "detectors": detectors_key()}
    return {**keys, "seconds": time.perf_counter() - start, **diagnosis}


def remedied(name: str) -> Line:
    """Return whether the first remedy of the finding of a fault cures it."""
    made = case(name)
    kind, before = made.kind, trained(made, snapshots=False)
    finding = next(one for one in ml.check(before.run).findings if one.kind == kind)
    keys = {"name": name, "key": key_of(name), "detectors": detectors_key()}
    if not finding.remedies or not finding.remedies[0].changes:
        return {**keys, "text": "none", "gone": False, "not_worse": True, "cured": False, "before": 0.0, "after": 0.0}
    remedy = finding.remedies[0]
    changes = json.loads(json.dumps(dict(remedy.changes)))
    after = trained(made.with_changes(changes), snapshots=False)
    left = [one.kind for one in ml.check(after.run).findings]
    old, new, room = *compared(made.table.target, kind, scores(before), scores(after)), 0
    room = 1.0 if kind == "wrong_loss" else scores(before)["base"]
    worse = kind != "leakage" and new > old + SAME * room
    gone = kind not in left
    facts_ = {"text": remedy.text, "changes": changes, "left": left, "before": old, "after": new}
    return {**keys, **facts_, "gone": gone, "not_worse": not worse, "cured": gone and not worse}


def compared(target: str, kind: str, old: Line, new: Line) -> tuple[float, float]:
    """Return two errors on the test rows: the losses, or errors that do not depend on the loss if that was wrong."""
    if kind != "wrong_loss":
        return old["test"], new["test"]
    if target in ("counts", "outliers"):
        name = {"counts": "deviance", "outliers": "mae"}[target]
        return old[name], new[name]
    return 1 - old["rounded"], 1 - new["rounded"]


# All cases


class Store:
    """The stored lines of one file. Missing lines are measured and added."""

    def __init__(self, file: str, measure: Callable[[str], Line], *, with_detectors: bool) -> None:
        self.path, self.measure, self.with_detectors = RESULTS / file, measure, with_detectors
        self.lines = read(self.path)

    def has(self, name: str) -> bool:
        line = self.lines.get(name)
        if line is None or line["key"] != key_of(name):
            return False
        return not self.with_detectors or line["detectors"] == detectors_key()

    def fill(self, names: list[str], workers: int) -> None:
        """Measure the cases that are not stored."""
        missing = [name for name in names if not self.has(name)]
        for line in each(self.measure, missing, workers):
            self.lines[line["name"]] = line
            append(self.path, line)


def each(measure: Callable[[str], Line], names: list[str], workers: int) -> Iterator[Line]:
    if workers == 1 or len(names) < 2:
        yield from map(measure, names)
        return
    with ProcessPoolExecutor(workers) as pool:
        yield from pool.map(measure, names)


def verified(
    store: Store, kind: str, part: str, wanted: int, workers: int, *, stored: bool
) -> tuple[list[Line], list[str]]:
    """Return the cases that count, with why, and a line for each that was dropped."""
    good: list[Line] = []
    dropped: list[str] = []
    names = [f"{kind}/{part}/{i}" for i in range(DRAFTS * wanted)]
    while names and len(good) < wanted:
        batch, names = names[: max(workers, 1)], names[max(workers, 1) :]
        if stored:
            batch = [name for name in batch if name in store.lines]
        else:
            store.fill(batch, workers)
        for line in (store.lines[name] for name in batch):
            there, why = (False, line["failed"]) if "failed" in line else verdict(kind, line["facts"], line["others"])
            if there and len(good) < wanted:
                good.append({**line, "why": why})
            elif not there:
                dropped.append(f"{line['name']}: {why}")
    return good, dropped


def report(part: str, given: argparse.Namespace) -> None:
    """Measure what is missing of a set, and print its tables."""
    kinds = given.only.split(",") if given.only else [*FAULTS, HEALTHY]
    store = Store("detector_facts.jsonl", measured, with_detectors=False)
    cases: list[Line] = []
    print(f"== set {part}")
    for kind in kinds:
        wanted = min(WANTED[kind], given.most or WANTED[kind])
        good, dropped = verified(store, kind, part, wanted, given.workers, stored=given.from_results)
        cases += good
        print(f"{kind}: {len(good)} cases, {len(dropped)} dropped", flush=True)
        if given.verbose:
            print("".join(f"    {line}\n" for line in [*(f"{one['name']}: {one['why']}" for one in good), *dropped]))
    if given.verify:
        return
    names = [one["name"] for one in cases]
    findings = Store("detector_findings.jsonl", checked, with_detectors=True)
    if not given.from_results:
        findings.fill(names, given.workers)
    results: list[Line] = [
        {**one, **findings.lines[one["name"]], "kinds": [f["kind"] for f in findings.lines[one["name"]]["findings"]]}
        for one in cases
        if one["name"] in findings.lines
    ]
    if given.measurements:
        print(summary.distribution(results, given.measurements))
        return
    print(f"\n{summary.table(summary.rows(results), markdown=given.markdown)}\n")
    print("\n".join(summary.misses(results)))
    if given.remedies:
        remedies = Store("detector_remedies.jsonl", remedied, with_detectors=True)
        found = [str(one["name"]) for one in results if one["name"].split("/")[0] in one["kinds"]]
        if not given.from_results:
            remedies.fill(found, given.workers)
        print(f"\n{summary.cured([remedies.lines[n] for n in found if n in remedies.lines], markdown=given.markdown)}")


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--set", default="all", choices=(*SETS, "all"))
    options.add_argument("--only", help="kinds of faults, or healthy, separated by commas (default: all)")
    options.add_argument("--most", type=int, help="largest number of cases of each kind")
    options.add_argument("--workers", type=int, default=1)
    options.add_argument("--verify", action="store_true", help="only measure which faults are there")
    options.add_argument("--verbose", action="store_true", help="print every case with its measured facts")
    options.add_argument("--markdown", action="store_true")
    options.add_argument("--remedies", action="store_true", help="apply the first remedy of each finding")
    options.add_argument("--from-results", action="store_true", help="train nothing: print what is stored")
    options.add_argument("--measurements", metavar="KIND", help="print the distribution of every measurement")
    given = options.parse_args()
    detectors_key()  # of the code that is imported, should it change during the run
    for part in SETS if given.set == "all" else (given.set,):
        report(part, given)


if __name__ == "__main__":
    main()
