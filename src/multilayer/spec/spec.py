"""`Spec`: a network as plain immutable data, typed inputs and a tuple of layers.

Everything else is a reading of it. What can be derived is derived here and never stored: widths, names of tensors,
parameters, and the flat list of operations (`entries`) that cost, PyTorch and the engines walk.

    Spec ⇄ text   multilayer.spec.grammar     "784-256-128-10"
    Spec ⇄ JSON   here                {"format": "multilayer.spec", "version": 1, ...}

A tensor is named after its layer and what it is: `linear2.weight`, `residual1.layernorm1.bias`; one that the whole
network shares lives under `shared`.
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

FORMAT = "multilayer.spec"
VERSION = 1
MAX_JSON = 4_000_000


@dataclass(frozen=True)
class Entry:
    """One operation of a network, in the order they run; a residual block comes last, as the sum it ends with."""

    name: str
    layer: Layer
    d_in: int | Inputs
    d_out: int
    depth: int
    own: tuple[Parameter, ...] = field(compare=False, repr=False)
    """Its parameters. Those of a residual block belong to the layers inside."""
    learning: bool = field(compare=False, repr=False)
    """Whether an operation before it has parameters, so that training needs the gradient of its input."""

    @property
    def width_in(self) -> int:
        """Numbers a row it reads, category codes left out."""
        return self.d_in.numeric if isinstance(self.d_in, Inputs) else self.d_in


class HasSpec(Protocol):
    """What `build` makes, named without importing it."""

    @property
    def spec(self) -> Spec: ...


@dataclass(frozen=True)
class Spec:
    """A feed-forward network.

    >>> from multilayer.nn.layers import Activation, Linear
    >>> Spec(784, (Linear(256), Activation("relu"), Linear(10))).n_parameters
    203530
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
        self.entries  # noqa: B018  # widths are checked as they are derived

    @staticmethod
    def of(network: Spec | str | HasSpec) -> Spec:
        """Return the spec of a network: a spec, its string, or a model or fitted estimator that has one.

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
                f"module ({kind}): ml.from_torch(module) reads a nn.Sequential, and its result is accepted here"
            )
        inside = hasattr(getattr(network, "model", None), "spec")
        got = repr(network)
        raise SpecError(
            "a network must be a Spec, a string such as '784-256-10', or a model of this package, got "
            f"{got if len(got) <= 60 else 'a ' + type(network).__name__}{': pass its .model' if inside else ''}"
        )

    @cached_property
    def entries(self) -> tuple[Entry, ...]:
        found: list[Entry] = []
        known: dict[tuple[Layer, object], tuple[Parameter, ...]] = {}  # deep networks repeat their layers
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
        return self.entries[-1].d_out

    @cached_property
    def tensor_names(self) -> dict[str, str]:
        """Each tensor by the place that uses it → the name it is stored under; the two differ only where shared."""
        names: dict[str, str] = {}
        shared: dict[Layer, str] = {}
        for entry in self.entries:
            for parameter in entry.own:
                home = entry.name
                if parameter.shared:
                    same = sum(1 for other in shared if other.label == entry.layer.label)
                    home = shared.setdefault(entry.layer, f"shared.{entry.layer.label}{same + 1}")
                names[f"{entry.name}.{parameter.name}"] = f"{home}.{parameter.name}"
        return names

    @cached_property
    def parameters(self) -> dict[str, Parameter]:
        """What training changes, by stored name; shared tensors once."""
        found: dict[str, Parameter] = {}
        own = (parameter for entry in self.entries for parameter in entry.own)
        for name, parameter in zip(self.tensor_names.values(), own, strict=True):
            found.setdefault(name, parameter)
        return found

    @cached_property
    def buffers(self) -> dict[str, Parameter]:
        """What belongs to the state and is not trained: running statistics, bin edges."""
        return {
            f"{entry.name}.{buffer.name}": buffer
            for entry in self.entries
            if not isinstance(entry.layer, Residual)  # its layers have entries of their own
            for buffer in entry.layer.buffers(cast(int, entry.d_in))
        }

    @property
    def n_parameters(self) -> int:
        return sum(p.size for p in self.parameters.values())

    @property
    def n_stored(self) -> int:
        """Numbers it is stored in: parameters and buffers."""
        return self.n_parameters + sum(b.size for b in self.buffers.values())

    # JSON

    def to_dict(self) -> dict[str, Any]:
        inputs = {"numeric": self.inputs.numeric, "categories": list(self.inputs.categories)}
        layers = [_layer_to_dict(layer) for layer in self.layers]
        return {"format": FORMAT, "version": VERSION, "inputs": inputs, "layers": layers}

    def to_json(self) -> str:
        return json.dumps(self.to_dict(), indent=2, ensure_ascii=False) + "\n"

    @staticmethod
    def from_dict(data: object) -> Spec:
        """The other way; unknown keys and newer versions are errors that name them."""
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
        if len(data) > MAX_JSON:
            raise SpecError(f"a spec in JSON must have at most {MAX_JSON:,} characters, got {len(data):,}")
        try:
            return Spec.from_dict(json.loads(data, object_pairs_hook=_no_duplicates))
        except json.JSONDecodeError as error:
            raise SpecError(f"not JSON: {error.msg} at line {error.lineno}, column {error.colno}") from None
        except ValueError as error:  # a whole number of thousands of digits
            raise error if isinstance(error, SpecError) else SpecError(f"not a spec: {error}") from None
        except RecursionError:
            raise SpecError("not a spec: its JSON is nested too deeply") from None

    # Text

    @staticmethod
    def parse(words: str, *, activation: str = "relu") -> Spec:
        """The network of a text; `activation` is the one implied between plain widths.

        >>> Spec.parse("2-8:tanh-1").n_parameters
        33
        """
        if not isinstance(words, str):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise SpecError(f"Spec.parse reads a text such as '784-256-10', got {words!r}")
        inputs, layers = grammar.parse(words, activation=activation)
        try:
            return Spec(inputs, layers)
        except SpecError as error:
            raise SpecError(f"{error}\n  {words.strip()[:200]}") from None

    def __str__(self) -> str:
        return grammar.render(self.inputs, self.layers)

    def __repr__(self) -> str:
        return f"Spec({str(self)!r})"


def _flatten(
    layers: Sequence[Layer], d: int | Inputs, prefix: str, place: str, depth: int
) -> Iterator[tuple[str, Layer, int | Inputs, int, int]]:
    """Name, layer, width in, width out and depth of each operation, in the order they run."""
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
