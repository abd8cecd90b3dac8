"""`Spec`: the inputs and the layers of a network, as immutable data.

A spec stores only what the user chose. Everything else is derived: widths, tensor names, parameters, and the flat list
of operations (`entries`) that the cost model, PyTorch and the engines use.

    Spec ⇄ string   multilayer.spec.grammar   "784-256-128-10"
    Spec ⇄ JSON     this module               {"format": "multilayer.spec", "version": 1, ...}

The name of a tensor is the name of its layer and its own: `linear2.weight`, `residual1.layernorm1.bias`. Tensors that
several layers share are named `shared.…`.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import MISSING, dataclass, field
from functools import cached_property
from typing import Any, Protocol, cast

from ..core.formatting import short
from ..errors import SpecError, unknown_name
from ..nn.layers import KINDS, MAX_LAYERS, Columns, Inputs, Layer, Parameter, Residual, named
from ..nn.layers.base import check_fields, stored_fields, whole
from . import grammar
from .html import network_table

FORMAT = "multilayer.spec"
VERSION = 1
MAX_JSON = 4_000_000


@dataclass(frozen=True)
class Entry:
    """One operation of a network.

    Entries are in the order in which they run. The entry of a residual block is its final sum, after its layers.
    """

    name: str
    layer: Layer
    d_in: int | Inputs
    d_out: int
    depth: int
    parameters: tuple[Parameter, ...] = field(compare=False, repr=False)
    """Parameters of the layer. Empty for a residual block, whose layers have their own entries."""
    learning: bool = field(compare=False, repr=False)
    """Whether an earlier operation has parameters, so that training needs the gradient of this one's input."""

    @property
    def width_in(self) -> int:
        """Number of numeric inputs per row, without category codes."""
        return self.d_in.numeric if isinstance(self.d_in, Inputs) else self.d_in


class HasSpec(Protocol):
    """An object with a spec, such as a model of `ml.build`."""

    @property
    def spec(self) -> Spec: ...


@dataclass(frozen=True)
class Spec:
    """Describe a feed-forward network.

    A spec is immutable data without weights. Equal specs compare equal and have the same hash. `str(spec)` is the
    shortest string for the same network.

    Parameters
    ----------
    inputs : int or Inputs
        Number of numeric inputs, or `Inputs` for inputs with categories.
    layers : iterable of Layer
        Layers in order, at least one.

    Raises
    ------
    SpecError
        If there are no layers, or the widths of two layers do not fit.

    Examples
    --------
    >>> import multilayer as ml
    >>> spec = ml.Spec(784, [ml.Linear(256), ml.Activation("relu"), ml.Linear(10)])
    >>> spec
    Spec('784-256-10')
    >>> spec == ml.Spec.parse("784-256-10"), spec.n_parameters
    (True, 203530)
    """

    inputs: Inputs
    layers: tuple[Layer, ...]

    def __init__(self, inputs: int | Inputs, layers: Iterable[Layer]) -> None:
        if isinstance(layers, Layer | str) or not isinstance(layers, Iterable):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise SpecError(f"layers must be a sequence of layers, got {layers!r}: write [Linear(10)]")
        object.__setattr__(self, "inputs", Inputs.of(inputs))
        object.__setattr__(self, "layers", tuple(layers))
        if not self.layers:
            raise SpecError("a network needs at least one layer after its inputs, got none: try '784-10'")
        self.entries  # noqa: B018  # deriving the widths checks them

    @staticmethod
    def of(network: Spec | str | HasSpec) -> Spec:
        """Return the spec of a network.

        Parameters
        ----------
        network : Spec, str, model or fitted estimator
            A spec, a string such as ``"784-256-10"``, or an object with a spec.

        Returns
        -------
        Spec
            The spec of the network.

        Raises
        ------
        SpecError
            If the string is invalid or the object has no spec.

        Examples
        --------
        >>> Spec.of("2-1")
        Spec('2-1')
        """
        if isinstance(network, str):
            return Spec.parse(network)
        found = getattr(network, "spec", getattr(network, "spec_", network))
        if isinstance(found, Spec):
            return found
        torch = sys.modules.get("torch")
        if torch is not None and isinstance(network, torch.nn.Module):
            kind = type(network).__name__
            raise SpecError(
                f"a network must be a Spec, a string such as '784-256-10' or a model of this package, got a torch "
                f"module ({kind}): ml.from_torch(module) reads an nn.Sequential, and its result is accepted here"
            )
        inside = hasattr(getattr(network, "model", None), "spec")
        got = repr(network)
        raise SpecError(
            "a network must be a Spec, a string such as '784-256-10', or a model of this package, got "
            f"{got if len(got) <= 60 else 'a ' + type(network).__name__}{': pass its .model' if inside else ''}"
        )

    @cached_property
    def entries(self) -> tuple[Entry, ...]:
        """Operations in the order in which they run, with the layers inside residual blocks."""
        found: list[Entry] = []
        known: dict[tuple[Layer, object], tuple[Parameter, ...]] = {}  # deep networks repeat the same layers
        learning = False
        for name, layer, d_in, d_out, depth in _flatten(self.layers, self._first_input(), "", "layers", 0):
            if len(found) == MAX_LAYERS:
                raise SpecError(f"a network may have at most {MAX_LAYERS:,} layers")
            own: tuple[Parameter, ...] = ()
            if not isinstance(layer, Residual):
                if (layer, d_in) not in known:
                    known[layer, d_in] = layer.parameters(cast(int, d_in))
                own = known[layer, d_in]
            found.append(Entry(name, layer, d_in, d_out, depth, own, learning))
            learning = learning or bool(own)
        return tuple(found)

    def _first_input(self) -> int | Inputs:
        if not self.inputs.categories:
            return self.inputs.numeric
        if not isinstance(self.layers[0], Columns):
            first = self.layers[0].label if isinstance(self.layers[0], Layer) else repr(self.layers[0])  # pyright: ignore[reportUnnecessaryIsInstance]
            raise SpecError(
                f"inputs with categories need a columns layer first, got {first}: begin the layers with columns"
            )
        return self.inputs

    @property
    def d_out(self) -> int:
        """Number of outputs."""
        return self.entries[-1].d_out

    @cached_property
    def tensor_names(self) -> dict[str, str]:
        """Stored name of each tensor, by the name of the layer that uses it. They differ for shared tensors only."""
        names: dict[str, str] = {}
        shared: dict[Layer, str] = {}
        for entry in self.entries:
            for parameter in entry.parameters:
                home = entry.name
                if parameter.shared:
                    same = sum(1 for other in shared if other.label == entry.layer.label)
                    home = shared.setdefault(entry.layer, f"shared.{entry.layer.label}{same + 1}")
                names[f"{entry.name}.{parameter.name}"] = f"{home}.{parameter.name}"
        return names

    @cached_property
    def parameters(self) -> dict[str, Parameter]:
        """Parameters by stored name, as training changes them. A shared tensor occurs once."""
        found: dict[str, Parameter] = {}
        own = (parameter for entry in self.entries for parameter in entry.parameters)
        for name, parameter in zip(self.tensor_names.values(), own, strict=True):
            found.setdefault(name, parameter)
        return found

    @cached_property
    def buffers(self) -> dict[str, Parameter]:
        """Tensors of the state that are not trained: running statistics and bin edges."""
        return {
            f"{entry.name}.{buffer.name}": buffer
            for entry in self.entries
            if not isinstance(entry.layer, Residual)  # the layers inside it have entries
            for buffer in entry.layer.buffers(cast(int, entry.d_in))
        }

    @property
    def n_parameters(self) -> int:
        """Number of trainable parameters."""
        return sum(p.size for p in self.parameters.values())

    @property
    def n_stored(self) -> int:
        """Number of stored values: parameters and buffers."""
        return self.n_parameters + sum(b.size for b in self.buffers.values())

    # JSON

    def to_dict(self) -> dict[str, Any]:
        """Return the spec as a dictionary that JSON can represent.

        Returns
        -------
        dict
            Format, version, inputs and layers.

        Examples
        --------
        >>> Spec.parse("2-1").to_dict()["inputs"]
        {'numeric': 2, 'categories': []}
        """
        inputs = {"numeric": self.inputs.numeric, "categories": list(self.inputs.categories)}
        layers = [_layer_to_dict(layer) for layer in self.layers]
        return {"format": FORMAT, "version": VERSION, "inputs": inputs, "layers": layers}

    def to_json(self) -> str:
        """Return the spec as indented JSON.

        Returns
        -------
        str
            `to_dict` as JSON, with a line break at the end.

        Examples
        --------
        >>> Spec.from_json(Spec.parse("2-1").to_json())
        Spec('2-1')
        """
        return json.dumps(self.to_dict(), indent=2, ensure_ascii=False) + "\n"

    @staticmethod
    def from_dict(data: object) -> Spec:
        """Read a spec from a dictionary.

        Parameters
        ----------
        data : dict
            A dictionary from `to_dict`.

        Returns
        -------
        Spec
            The spec.

        Raises
        ------
        SpecError
            If a key is unknown or missing, a value is invalid, or the version is unknown.

        Examples
        --------
        >>> Spec.from_dict(Spec.parse("2-1").to_dict())
        Spec('2-1')
        """
        top = _object(data, "the spec", required=("format", "version", "inputs", "layers"))
        if top["format"] != FORMAT:
            raise SpecError(f"format must be {FORMAT!r}, got {top['format']!r}")
        if type(top["version"]) is not int or top["version"] != VERSION:
            remedy = "update multilayer to read it" if _is_newer(top["version"]) else "no such version exists"
            raise SpecError(f"version must be {VERSION}, got {top['version']!r}: {remedy}")
        sizes = _object(top["inputs"], "inputs", required=("numeric",), optional=("categories",))
        categories = _list(sizes.get("categories", []), "inputs.categories")
        layers = _list(top["layers"], "layers")
        inputs = Inputs(numeric=cast(int, sizes["numeric"]), categories=tuple(cast("list[int]", categories)))
        return Spec(inputs, [_layer_from_dict(item, f"layers[{i}]") for i, item in enumerate(layers)])

    @staticmethod
    def from_json(data: str) -> Spec:
        """Read a spec from JSON.

        Parameters
        ----------
        data : str
            A string from `to_json`.

        Returns
        -------
        Spec
            The spec.

        Raises
        ------
        SpecError
            If the string is not JSON, or does not describe a spec.

        Examples
        --------
        >>> Spec.from_json(Spec.parse("4-8:gelu-3").to_json())
        Spec('4-8:gelu-3')
        """
        if len(data) > MAX_JSON:
            raise SpecError(f"a spec in JSON must have at most {MAX_JSON:,} characters, got {len(data):,}")
        try:
            return Spec.from_dict(json.loads(data, object_pairs_hook=_no_duplicates))
        except json.JSONDecodeError as error:
            raise SpecError(f"not JSON: {error.msg} at line {error.lineno}, column {error.colno}") from None
        except ValueError as error:  # an integer with thousands of digits
            raise error if isinstance(error, SpecError) else SpecError(f"not a spec: {error}") from None
        except RecursionError:
            raise SpecError("not a spec: its JSON is nested too deeply") from None

    # Strings

    @staticmethod
    def parse(words: str, *, activation: str = "relu") -> Spec:
        """Read a network from a string.

        Parameters
        ----------
        words : str
            The network, such as ``"784-256-128-10"``. The grammar is in docs/reference/network-grammar.md.
        activation : str
            Activation between plain widths.

        Returns
        -------
        Spec
            The network.

        Raises
        ------
        SpecError
            If the string is invalid. The message points to the position of the error.

        Examples
        --------
        >>> Spec.parse("2-8:tanh-1").n_parameters
        33
        """
        if not isinstance(words, str):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise SpecError(f"Spec.parse needs a string such as '784-256-10', got {words!r}")
        inputs, layers = grammar.parse(words, activation=activation)
        try:
            return Spec(inputs, layers)
        except SpecError as error:
            raise SpecError(f"{error}\n  {words.strip()[:200]}") from None

    def __str__(self) -> str:
        return grammar.render(self.inputs, self.layers)

    def __repr__(self) -> str:
        return f"Spec({str(self)!r})"

    def _repr_html_(self) -> str:
        return network_table(self)


def _flatten(
    layers: Sequence[Layer], d: int | Inputs, prefix: str, place: str, depth: int
) -> Iterator[tuple[str, Layer, int | Inputs, int, int]]:
    """Yield name, layer, input width, output width and nesting depth of each operation in order."""
    for i, layer in enumerate(layers):
        if not isinstance(layer, Layer):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise SpecError(f"{place}[{i}] must be a layer, got {layer!r}")
    for i, (name, layer) in enumerate(named(layers)):
        here = f"{place}[{i}]"
        if isinstance(layer, Columns) and (i or depth):
            raise SpecError(f"{here}: columns must be the first layer of the network")
        try:
            if isinstance(layer, Residual):
                if depth >= 50:
                    raise SpecError("residual blocks nest at most 50 deep")
                yield from _flatten(layer.layers, d, f"{prefix}{name}.", f"{here}.layers", depth + 1)
            width = whole("width", layer.width(cast(int, d)))
        except SpecError as error:
            raise error if str(error).startswith(place) else SpecError(f"{here} ({layer.label}): {error}") from None
        yield prefix + name, layer, d, width, depth
        d = width


# JSON helpers


def _layer_to_dict(layer: Layer) -> dict[str, Any]:
    found: dict[str, Any] = {"kind": layer.kind}
    for name in (stored.name for stored in stored_fields(type(layer))):
        value = getattr(layer, name)
        if name == "layers":
            value = [_layer_to_dict(inner) for inner in value]
        elif name == "constants":
            value = dict(value)
        found[name] = value
    return found


def _layer_from_dict(data: object, place: str) -> Layer:
    kind = _object(data, place, required=("kind",), anything=True)["kind"]
    if not isinstance(kind, str) or kind not in KINDS:
        raise SpecError(f"{place}.kind: {unknown_name('kind of layer', str(kind), KINDS)}")
    cls = KINDS[kind]
    required = [f.name for f in stored_fields(cls) if f.default is MISSING]
    optional = [f.name for f in stored_fields(cls) if f.default is not MISSING]
    values = dict(_object(data, place, required=("kind", *required), optional=optional))
    del values["kind"]
    for name, value in values.items():
        here = f"{place}.{name}"
        if name == "layers":
            inner = _list(value, here)
            values[name] = tuple(_layer_from_dict(item, f"{here}[{i}]") for i, item in enumerate(inner))
        elif name == "constants":
            values[name] = dict(_object(value, here, anything=True))
    try:
        check_fields(cls, values)
        return cls(**values)
    except SpecError as error:
        raise error if str(error).startswith(place) else SpecError(f"{place}: {error}") from None


def _object(
    data: object, place: str, *, required: Iterable[str] = (), optional: Iterable[str] = (), anything: bool = False
) -> Mapping[str, Any]:
    if not isinstance(data, dict):
        raise SpecError(f"{place} must be an object, got {short(data)}")
    found = cast("dict[str, Any]", data)
    required = list(required)
    for key in required:
        if key not in found:
            raise SpecError(f"{place} needs the key {key!r}, got {', '.join(found) or 'none'}")
    valid = {*required, *optional}
    for key in found:
        if not anything and key not in valid:
            raise SpecError(f"{place}: {unknown_name('key', key, valid)}")
    return found


def _list(data: object, place: str) -> list[Any]:
    if not isinstance(data, list):
        raise SpecError(f"{place} must be a list, got {short(data)}")
    return cast("list[Any]", data)


def _no_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise SpecError(f"the key {key!r} occurs twice in one object")
        found[key] = value
    return found


def _is_newer(version: object) -> bool:
    return isinstance(version, int) and not isinstance(version, bool) and version > VERSION
