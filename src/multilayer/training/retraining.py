"""Train again with a remedy of a finding, and compare: is the fault gone, and is the model better?

    retrain(folder, finding)      the run in a folder, with the first remedy of the finding
    apply(remedy, …)              network, table and options with the changes of a remedy

A fault is cured if the new run has no finding of its kind, and its validation loss is not clearly worse. If the remedy
changes the loss or the rows, the validation losses do not compare, and only the finding decides.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from ..data.table import Table
from ..diagnostics import Finding, Remedy
from ..errors import OptionError, RunError, option_name
from ..runs import RunFolder
from ..runs.config import Config
from ..runs.events import EpochEnd
from ..runs.stored_data import from_stored, read_once
from ..spec import Spec
from .fit import fit
from .run import Run

WORSE = 1.05
"""A validation loss is clearly worse if it is this many times the earlier one."""
TABLE_CHANGES = ("drop_columns", "drop_rows")
_OTHER_LOSS = frozenset({"loss", "task", "drop_rows", "drop_columns"})


@dataclass(frozen=True, kw_only=True, eq=False)
class Retrained:
    """A run that applied a remedy, compared with the earlier run.

    Attributes
    ----------
    finding : Finding
        The finding of the earlier run.
    remedy : Remedy
        The remedy that was applied.
    run : Run
        The new run.
    before, after : float or None
        Lowest validation loss of the two runs. None if they cannot be compared.
    """

    finding: Finding
    remedy: Remedy
    run: Run
    before: float | None
    after: float | None

    @property
    def gone(self) -> bool:
        """Whether the new run was checked and has no finding of this kind."""
        return self.run.samples is not None and not any(one.kind == self.finding.kind for one in self.run.findings)

    @property
    def cured(self) -> bool:
        """Whether the finding is gone and the validation loss is not clearly worse."""
        if not self.gone or self.run.failed:
            return False
        return self.before is None or self.after is None or not self.after > WORSE * self.before

    def to_dict(self) -> dict[str, Any]:
        """Return the comparison as JSON values."""
        return {
            "kind": self.finding.kind,
            "remedy": self.remedy.to_dict(),
            "cured": self.cured,
            "gone": self.gone,
            "before": self.before,
            "after": self.after,
            "findings": [one.to_dict() for one in self.run.findings],
        }


def retrain(path: str | Path, finding: Finding, *, data: Any = None, run: str | Path | None = None) -> Retrained:
    """Train the run in a folder again with the first remedy of a finding.

    Parameters
    ----------
    path : str or Path
        Folder of the earlier run.
    finding : Finding
        A finding of this run, from `ml.check`.
    data : optional
        The same table, if it was in memory.
    run : str or Path, optional
        Folder for the new run. By default, it is kept in memory.

    Raises
    ------
    OptionError
        If no remedy of the finding can be applied by training again.
    """
    remedy = applicable(finding)
    with RunFolder.open(path) as folder:
        saved = folder.config_with("config", "data", "spec")
        losses = [one.validation_loss for one in folder.events(effective=True) if isinstance(one, EpochEnd)]
    if saved["data"]["in_memory"]:
        raise RunError(
            f"{path} was trained with {' and '.join(saved['data']['in_memory'])} in memory, which a run folder does "
            "not save: apply the remedy in your own code"
        )
    if data is None and saved["data"]["path"] is None:
        raise RunError(f"{path} was trained on data in memory: set {option_name('data')} to the same table")
    source, options = from_stored(saved["data"], path, data=data, validation=None, sample_weight=None)
    config, spec = Config.from_dict(saved["config"], where=str(path)), Spec.from_dict(saved["spec"])
    table = read_once(source)
    if not isinstance(table, Table):
        raise RunError(f"{path} was trained from a data loader: apply the remedy in your own code")
    given = {name: getattr(options, name) for name in ("target", "group", "time_column", "sample_weight")}
    given |= {"categorical": options.categorical or None, "keep_constant": options.keep_constant}
    new_spec, table, settings = apply(remedy, spec=str(spec), table=table, options=given | config.to_dict())
    done = fit(new_spec, table, run=run, quiet=True, **settings)
    return compared(finding, remedy, losses, done)


def applicable(finding: Finding) -> Remedy:
    """Return the first remedy that training again can apply."""
    found = next((remedy for remedy in finding.remedies if remedy.changes), None)
    if found is None:
        raise OptionError(f"{finding.kind} has no remedy that training again can apply: {finding.message}")
    return found


def apply(
    remedy: Remedy, *, spec: str | None, table: Table, options: Mapping[str, Any]
) -> tuple[str | None, Table, dict[str, Any]]:
    """Return the network, the table and the options with the changes of a remedy."""
    changes = dict(remedy.changes)
    columns, rows = changes.pop("drop_columns", ()), changes.pop("drop_rows", ())
    if columns:
        table = without_columns(table, columns)
    if rows:
        table = table.take(np.setdiff1d(np.arange(len(table)), np.asarray(rows, np.int64)))
    spec = changes.pop("spec", spec)
    if columns and spec is not None:
        spec = None  # the number of inputs is another one
    return spec, table, {**options, **changes}


def without_columns(table: Table, names: list[str]) -> Table:
    """Return the table without some columns."""
    kept = [i for i, name in enumerate(table.matrix_names) if name not in names]
    return replace(
        table,
        columns={name: column for name, column in table.columns.items() if name not in names},
        written={name: column for name, column in table.written.items() if name not in names},
        matrix=table.matrix if len(kept) == len(table.matrix_names) or table.matrix is None else table.matrix[:, kept],
        matrix_names=tuple(table.matrix_names[i] for i in kept),
    )


def compared(finding: Finding, remedy: Remedy, losses: list[float | None], run: Run) -> Retrained:
    """Return the comparison of a new run with the validation losses of an earlier one."""
    comparable = not _OTHER_LOSS & remedy.changes.keys()
    after = [one.validation_loss for one in run.log if isinstance(one, EpochEnd)]
    return Retrained(
        finding=finding,
        remedy=remedy,
        run=run,
        before=_lowest(losses) if comparable else None,
        after=_lowest(after) if comparable else None,
    )


def _lowest(losses: list[float | None]) -> float | None:
    known = [loss for loss in losses if loss is not None and math.isfinite(loss)]
    return min(known, default=None)
