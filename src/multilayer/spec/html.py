"""A network as an HTML table for notebooks: its layers, their shapes and their parameters."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..core.formatting import count
from ..core.html_tables import cut_rows, head, notebook, number, row, table, word
from ..nn.layers.base import size

if TYPE_CHECKING:
    from .spec import Spec


def network_table(spec: Spec) -> str:
    """Return a table with a row per layer. Shared parameters are counted in the first layer that has them."""
    inputs = f"{spec.inputs.numeric:,} numbers"
    if spec.inputs.categories:
        inputs += f" and {count(len(spec.inputs.categories), 'category column')}"
    rows: list[str] = []
    counted: set[str] = set()
    for entry in spec.entries:
        names = {p.name: spec.tensor_names[f"{entry.name}.{p.name}"] for p in entry.parameters}
        parameters = size(p for p in entry.parameters if names[p.name] not in counted)
        counted.update(names.values())
        shape = f"{entry.width_in:,} → {entry.d_out:,}" if entry.width_in != entry.d_out else f"{entry.d_out:,}"
        rows.append(row([word(entry.name), word(entry.layer.label), word(shape, ""), number(parameters)]))
    headings = head("layer", "kind", "width", "parameters", left=("kind",))
    total = row([word("total"), word(""), word("", ""), number(spec.n_parameters)], "total")
    return notebook(str(spec), f"{inputs} → {spec.d_out:,}", table([headings, *cut_rows(rows, 4), total]))
