"""A graph of operators as plain data: what an exporter writes, before any library of the format is needed.

    Node      one operator: values in, one value out
    Port      one input or output of the model, as the user meets it
    Graph     nodes and constants in the order they were written; every value has a name of its own

An array given where a value is expected becomes a constant, in the dtype it has: nothing is converted on the way.
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
"""The axis that is as long as the table."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Node:
    kind: str
    domain: str
    inputs: tuple[str, ...]
    output: str
    attributes: Mapping[str, Any]
    unread: tuple[str, ...] = ()
    """Further outputs that the operator has, and nobody takes."""


@dataclass(frozen=True, kw_only=True)
class Port:
    name: str
    dtype: Any
    shape: tuple[int | str, ...]
    said: str
    """What stands there, for people."""


class Graph:
    """`place` stands in front of the names of values that are made: the layer being written."""

    def __init__(self, taken: Iterable[str]) -> None:
        self.nodes: list[Node] = []
        self.constants: dict[str, NDArray[Any]] = {}
        self.place = ""
        self._taken = set(taken)
        self._made: Counter[str] = Counter()

    def op(self, kind: str, *inputs: Value, domain: str = "", **attributes: Any) -> str:
        """The value that an operator gives; an input "" is one that is left out."""
        names = tuple(value if isinstance(value, str) else self.constant(value) for value in inputs)
        output = self._name(kind)
        self.nodes.append(Node(kind=kind, domain=domain, inputs=names, output=output, attributes=attributes))
        return output

    def sorted(self, value: Value, n: int, *, axis: int) -> str:
        """The n values along the axis in rising order."""
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

    def give(self, value: Value, port: Port) -> None:
        """Makes a value an output of the model."""
        name = value if isinstance(value, str) else self.constant(value)
        self.nodes.append(Node(kind="Identity", domain="", inputs=(name,), output=port.name, attributes={}))

    def _name(self, word: str, *, counted: bool = True) -> str:
        """A name that no value has: columns are called what their owner likes."""
        base = f"{self.place}{word}"
        name = base
        while counted or name in self._taken:
            self._made[base] += 1
            name, counted = f"{base}{self._made[base]}", False
        self._taken.add(name)
        return name
