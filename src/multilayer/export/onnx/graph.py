"""A graph of operators as plain data, which is built without the package onnx.

    Node      one operator: several input values, one output value
    Port      one input or output of the model
    Graph     nodes and constants in the order of writing; every value has a unique name

An array that is passed as a value becomes a constant with the same dtype.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Value = str | NDArray[Any] | np.generic
ROWS = "rows"
"""Name of the axis of rows."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Node:
    kind: str
    domain: str
    inputs: tuple[str, ...]
    output: str
    attributes: Mapping[str, Any]
    unread: tuple[str, ...] = ()
    """Further outputs of the operator, which are not used."""


@dataclass(frozen=True, kw_only=True)
class Port:
    name: str
    dtype: Any
    shape: tuple[int | str, ...]
    description: str


class Graph:
    """Nodes and constants. `place`, such as the name of a layer, is the prefix of the names of new values."""

    def __init__(self, taken: Iterable[str]) -> None:
        self.nodes: list[Node] = []
        self.constants: dict[str, NDArray[Any]] = {}
        self.place = ""
        self._taken = set(taken)
        self._made: Counter[str] = Counter()

    def op(self, kind: str, *inputs: Value, domain: str = "", **attributes: Any) -> str:
        """Add an operator and return the name of its output. An input "" is an omitted optional input."""
        names = tuple(value if isinstance(value, str) else self.constant(value) for value in inputs)
        output = self._name(kind)
        self.nodes.append(Node(kind=kind, domain=domain, inputs=names, output=output, attributes=attributes))
        return output

    def sorted(self, value: Value, n: int, *, axis: int) -> str:
        """Sort the n values along the axis in increasing order."""
        names = (value if isinstance(value, str) else self.constant(value), self.constant(np.array([n])))
        output, places = self._name("TopK"), self._name("places")
        attributes = {"axis": axis, "largest": 0}
        self.nodes.append(
            Node(kind="TopK", domain="", inputs=names, output=output, attributes=attributes, unread=(places,))
        )
        return output

    def constant(self, value: NDArray[Any] | np.generic, name: str | None = None) -> str:
        name = self._name("constant" if name is None else name, counted=name is None)
        self.constants[name] = np.asarray(value)
        return name

    def cast(self, value: Value, dtype: Any) -> str:
        return self.op("Cast", value, to=np.dtype(dtype))

    def write_output(self, value: Value, port: Port) -> None:
        """Make a value an output of the model."""
        name = value if isinstance(value, str) else self.constant(value)
        self.nodes.append(Node(kind="Identity", domain="", inputs=(name,), output=port.name, attributes={}))

    def _name(self, word: str, *, counted: bool = True) -> str:
        """Return an unused name. The names of columns are arbitrary, so any name may be in use."""
        base = f"{self.place}{word}"
        name = base
        while counted or name in self._taken:
            self._made[base] += 1
            name, counted = f"{base}{self._made[base]}", False
        self._taken.add(name)
        return name
