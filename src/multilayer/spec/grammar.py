"""The string form of a network, such as "784-256-128-10".

    network  = inputs then sequence
    inputs   = WHOLE [ "+" cat ] | cat
    cat      = "cat" "(" WHOLE { "," WHOLE } ")"
    sequence = item { then item }
    then     = "-" | ":"
    item     = ( WHOLE | call | "[" sequence "]" | "(" sequence ")" ) [ "*" WHOLE ]
    call     = NAME [ "(" [ argument { "," argument } [ "," ] ] ")" ]
    argument = [ NAME "=" ] value
    value    = [ "-" ] NUMBER | NAME { "+" NAME } | call

WHOLE is an integer of at least 1, NUMBER any decimal number (3, 0.1, 1e-3). An integer is a linear layer of that width.
Both `-` and `:` separate layers; by convention `:` precedes layers that belong to a width. [ ... ] is a residual block,
( ... ) a group, and * repeats. Positional arguments come before named ones. Only the argument of blend may have
arguments.

Two layers are implied:

    activation   between a linear layer and the next layer with weights, unless there is one. It is ReLU by default,
                 comes after norms that directly follow, and before all other layers. `none` prevents it.
    columns      after categorical inputs, unless there is one

`render` writes the shortest string for a network. docs/reference/network-grammar.md has examples.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Sequence
from dataclasses import MISSING, dataclass
from typing import Any

from ..core.formatting import count
from ..errors import SpecError, unknown_name
from ..nn import activations
from ..nn.layers import GATES, GLU, KINDS, MAX_LAYERS, Activation, Columns, Inputs, Layer, Linear, Residual
from ..nn.layers.base import check_fields, stored_fields

MAX_TEXT = 100_000
MAX_DEPTH = 50

_TOKEN = re.compile(
    r"\s*(?:(?P<number>(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)|(?P<name>[A-Za-z_][A-Za-z0-9_]*)|(?P<mark>[-:+*\[\]()=,]))"
)
_WORDS = {"yes": True, "true": True, "no": False, "false": False}
# In a string one-hot is written one_hot, since a dash separates layers.
_VALUES = {"one_hot": "one-hot"}


@dataclass(frozen=True)
class _Token:
    kind: str
    text: str
    at: int


@dataclass(frozen=True)
class _None:
    """The word `none`, which prevents the implied activation and creates no layer."""


@dataclass(frozen=True)
class _Name:
    """A name with its arguments. `at` is its position in the string."""

    name: str
    arguments: tuple[_Argument, ...]
    at: int


@dataclass(frozen=True)
class _Argument:
    """An argument: its key (None if positional), its value (a number, a bool or a name), and its position."""

    key: str | None
    value: Any
    at: int


def parse(text: str, *, activation: str = "relu") -> tuple[Inputs, tuple[Layer, ...]]:
    """Return inputs and layers of a string. `activation` is implied between linear layers.

    >>> parse("2-1")
    (Inputs(numeric=2, categories=()), (Linear(d_out=1, bias=True, scale=None),))
    """
    if len(text) > MAX_TEXT:
        raise SpecError(f"a network's text must have at most {MAX_TEXT:,} characters, got {len(text):,}")
    return _Parser(text, activation).network()


class _Parser:
    """Recursive-descent parser of one string."""

    def __init__(self, text: str, activation: str) -> None:
        self.text = text
        implied = Activation(activation)
        self.implied = () if implied.passes_through else (implied,)
        self.tokens = list(self._tokens())
        self.i = 0
        self.depth = 0

    def _tokens(self) -> Iterator[_Token]:
        at, text = 0, self.text.rstrip()
        while at < len(text):
            match = _TOKEN.match(text, at)
            if match is None or match.lastgroup is None:
                at += len(text[at:]) - len(text[at:].lstrip())
                raise self.error(f"a network cannot contain the character {text[at]!r}", at)
            yield _Token(match.lastgroup, match[match.lastgroup], match.start(match.lastgroup))
            at = match.end()
        yield _Token("end", "", len(text))

    def error(self, message: str, at: int) -> SpecError:
        """Return an error with the string and a caret under the position."""
        start = max(0, at - 60)
        line = self.text[start : at + 40].replace("\n", " ").replace("\t", " ")
        cut = "…" if start else ""
        return SpecError(f"{message}\n  {cut}{line}\n  {' ' * (len(cut) + at - start)}^")

    # Tokens

    @property
    def token(self) -> _Token:
        return self.tokens[self.i]

    def take(self, mark: str) -> bool:
        if self.token.kind != "end" and self.token.text == mark:
            self.i += 1
            return True
        return False

    def expect(self, mark: str) -> None:
        if not self.take(mark):
            raise self.error(f"{mark!r} expected here, got {self.found}", self.token.at)

    @property
    def found(self) -> str:
        return repr(self.token.text) if self.token.kind != "end" else "the end of the text"

    def whole(self, what: str) -> int:
        token = self.token
        if token.kind != "number":
            raise self.error(f"{what} must be a whole number of at least 1, got {self.found}", token.at)
        if len(token.text) > 20:  # int() itself refuses thousands of digits
            raise self.error(f"{what} must be at most 2^31, got a number of {len(token.text)} digits", token.at)
        if not token.text.isdigit() or int(token.text) < 1:
            raise self.error(f"{what} must be a whole number of at least 1, got {token.text}", token.at)
        self.i += 1
        return int(token.text)

    # Grammar

    def network(self) -> tuple[Inputs, tuple[Layer, ...]]:
        if self.token.kind == "end":
            raise self.error("a network must begin with its inputs, got an empty text: try 784-256-128-10", 0)
        inputs = self.inputs()
        if self.token.kind == "end":
            raise self.error(
                f"a network needs at least one layer after its inputs, got the inputs alone: "
                f"try {self.text.strip()}-10",
                self.token.at,
            )
        if not (self.take("-") or self.take(":")):
            raise self.error(f"'-' expected after the inputs, got {self.found}", self.token.at)
        at = self.token.at
        layers = self.sequence()
        if self.token.kind != "end":
            raise self.error(f"'-' or ':' expected between layers, got {self.found}", self.token.at)
        if inputs.categories and not isinstance(next(iter(layers), None), Columns):
            layers = (Columns(), *layers)
        if not layers:
            raise self.error("a network needs at least one layer after its inputs, got 'none' alone", at)
        return inputs, layers

    def inputs(self) -> Inputs:
        at = self.token.at
        try:
            if self.token.text == "cat":
                return Inputs(categories=self.categories())
            numeric = self.whole("the number of inputs")
            return Inputs(numeric, self.categories() if self.take("+") else ())
        except SpecError as error:
            raise error if "\n" in str(error) else self.error(str(error), at) from None

    def categories(self) -> tuple[int, ...]:
        if not self.take("cat"):
            raise self.error(f"cat(...) expected here, got {self.found}", self.token.at)
        self.expect("(")
        found = [self.whole("a number of categories")]
        while self.take(","):
            found.append(self.whole("a number of categories"))
        self.expect(")")
        return tuple(found)

    def sequence(self) -> tuple[Layer, ...]:
        return self.with_implied(self.items())

    def items(self) -> list[Layer | _None]:
        found = self.item()
        while self.token.text in ("-", ":") and self.token.kind == "mark":
            self.i += 1
            found += self.item()
        return found

    def with_implied(self, items: Sequence[Layer | _None]) -> tuple[Layer, ...]:
        """Return the layers with implied activations."""
        layers: list[Layer] = []
        due = -1  # index of the item after which the implied activation is inserted
        for i, item in enumerate(items):
            if not isinstance(item, _None):
                layers.append(item)
            if isinstance(item, Linear) and _implies(items, i):
                due = _after_norms(items, i) - 1
            if i == due:
                layers += self.implied
        return tuple(layers)

    def item(self) -> list[Layer | _None]:
        token = self.token
        if token.text in ("[", "("):
            self.i += 1
            self.depth += 1
            if self.depth > MAX_DEPTH:
                raise self.error(f"brackets nest at most {MAX_DEPTH} deep", token.at)
            residual = token.text == "["
            inside = self.sequence() if residual else self.items()
            self.depth -= 1
            self.expect("]" if residual else ")")
            found: list[Layer | _None] = [self.layer(Residual, {"layers": inside}, token.at)] if residual else [*inside]
        elif token.kind == "number":
            found = [self.layer(Linear, {"d_out": self.whole("a width")}, token.at)]
        elif token.kind == "name":
            found = [self.call()]
        else:
            raise self.error(f"a width, a layer or a bracket expected here, got {self.found}", token.at)
        if self.take("*"):
            times = self.whole("a repetition")
            if times * len(found) > MAX_LAYERS:
                raise self.error(f"a network may have at most {MAX_LAYERS:,} layers", token.at)
            found = found * times
        return found

    def call(self) -> Layer | _None:
        name = self.name()
        if name.name == "none" and not name.arguments:
            return _None()
        if name.name in GATES:
            arguments = self.bind(name, GLU, skip=("variant",))
            return self.layer(GLU, {**arguments, "variant": name.name}, name.at)
        if name.name in KINDS and name.name not in ("activation", "residual"):
            cls = KINDS[name.name]
            return self.layer(cls, self.bind(name, cls), name.at)
        known = {*activations.catalogue, *activations.aliases}
        if name.name == "blend" or name.name in known:
            return self.activation(name)
        valid = {*KINDS, *GATES, *known, "blend"} - {"activation", "residual"}
        raise self.error(unknown_name("layer or activation", name.name, valid), name.at)

    def activation(self, name: _Name) -> Layer:
        """`gelu`, `leaky_relu(0.2)`, `combination(relu, tanh, per=unit)`, `blend(selu)`."""
        blend = name.name == "blend"
        if blend:
            inner = name.arguments[0] if len(name.arguments) == 1 else None
            if inner is None or inner.key is not None or not isinstance(inner.value, _Name):
                raise self.error("blend takes one activation: blend(selu)", name.at)
            name = inner.value
        try:
            function = activations.get(name.name)
            keys = [key for key, _ in function.constants]
            arguments = self.with_joined_parts(name) if function.name == "combination" else name.arguments
            values = self.assign(name, arguments, keys, [*keys, "per"] if function.learned else keys)
            per: Any = values.pop("per", "layer")
            return Activation(name.name, values, per=per, blend=blend)
        except SpecError as error:
            raise error if "\n" in str(error) else self.error(str(error), name.at) from None

    def with_joined_parts(self, name: _Name) -> Sequence[_Argument]:
        """Return the arguments of a combination with separate parts joined: relu, tanh → relu+tanh."""
        parts = [a for a in name.arguments if a.key is None and isinstance(a.value, _Name)]
        if len(parts) < 2:
            return name.arguments
        joined = "+".join(self.plain(part) for part in parts)
        rest = [a for a in name.arguments if a not in parts]
        return [_Argument(None, _Name(joined, (), parts[0].at), parts[0].at), *rest]

    def name(self) -> _Name:
        token = self.token
        if token.kind != "name":
            raise self.error(f"a name expected here, got {self.found}", token.at)
        self.i += 1
        arguments: list[_Argument] = []
        if self.take("("):
            while not self.take(")"):
                arguments.append(self.argument())
                if arguments[-1].key is None and len(arguments) > 1 and arguments[-2].key is not None:
                    raise self.error("positional arguments come before named ones", arguments[-1].at)
                if self.token.text != ")":
                    self.expect(",")
        return _Name(token.text, tuple(arguments), token.at)

    def argument(self) -> _Argument:
        token = self.token
        ahead = self.tokens[self.i + 1] if token.kind != "end" else token
        if token.kind == "name" and ahead.text == "=":
            self.i += 2
            return _Argument(token.text, self.value(), token.at)
        return _Argument(None, self.value(), token.at)

    def value(self) -> Any:
        sign = -1 if self.take("-") else 1
        token = self.token
        if token.kind == "number":
            self.i += 1
            whole = token.text.isdigit() and len(token.text) <= 20
            return sign * (int(token.text) if whole else float(token.text))
        if token.kind != "name" or sign < 0:
            raise self.error(f"a number or a name expected here, got {self.found}", token.at)
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise self.error(f"brackets nest at most {MAX_DEPTH} deep", token.at)
        name = self.name()
        while self.take("+"):  # the parts of a combination: relu+tanh
            parts = name, self.name()
            self.alone(*parts)
            name = _Name("+".join(part.name for part in parts), (), name.at)
        self.depth -= 1
        return _WORDS[name.name] if name.name in _WORDS and not name.arguments else name

    def alone(self, *names: _Name) -> None:
        """Raise SpecError for a name with arguments."""
        for name in names:
            if name.arguments:
                raise self.error(f"{name.name} takes no arguments here", name.arguments[0].at)

    def plain(self, argument: _Argument) -> Any:
        """Return the value of an argument: a number, a bool, or a name without arguments."""
        if not isinstance(argument.value, _Name):
            return argument.value
        self.alone(argument.value)
        return _VALUES.get(argument.value.name, argument.value.name)

    def assign(
        self, name: _Name, arguments: Sequence[_Argument], by_position: Sequence[str], valid: Sequence[str]
    ) -> dict[str, Any]:
        """Return the arguments by key. Each may occur once; the first ones may be positional."""
        found: dict[str, Any] = {}
        for i, argument in enumerate(arguments):
            key = {"width": "d_out"}.get(argument.key or "", argument.key)
            if not valid:
                raise self.error(f"{name.name} takes no arguments", argument.at)
            if key is None and i >= len(by_position):
                most = f"at most {count(i, 'positional argument')}" if i else "no positional arguments"
                rest = "; name the rest" if len(valid) > i else ""
                raise self.error(f"{name.name} takes {most}{rest}", argument.at)
            key = by_position[i] if key is None else key
            if key not in valid:
                raise self.error(unknown_name(f"option of {name.name}", key, valid), argument.at)
            if key in found:
                raise self.error(f"{key} of {name.name} is given twice", argument.at)
            found[key] = self.plain(argument)
        return found

    def bind(self, name: _Name, cls: type[Layer], *, skip: tuple[str, ...] = ()) -> dict[str, Any]:
        """Return the arguments of a call by the names of the layer's fields."""
        fields = [f for f in stored_fields(cls) if f.name not in skip]
        by_position = [f.name for f in fields if not f.kw_only]
        found = self.assign(name, name.arguments, by_position, [f.name for f in fields])
        missing = [f.name for f in fields if f.default is MISSING and f.name not in found]
        if missing:
            raise self.error(f"{name.name} needs {' and '.join(missing)}: {name.name}({_example(missing)})", name.at)
        return found

    def layer(self, cls: type[Layer], values: dict[str, Any], at: int) -> Layer:
        """Return a layer. An error points to the position `at`."""
        try:
            check_fields(cls, values)
            return cls(**values)
        except SpecError as error:
            raise self.error(str(error), at) from None


def _example(missing: list[str]) -> str:
    return ", ".join({"d_out": "64", "p": "0.1", "groups": "4"}.get(name, "1") for name in missing)


def _has_weights(item: Layer | _None) -> bool:
    """Return whether a layer mixes its inputs by weights, so that an activation before it has an effect."""
    return isinstance(item, Residual) or (isinstance(item, Layer) and item.mixes)


def _implies(items: Sequence[Layer | _None], i: int) -> bool:
    """Return whether the linear layer at `i` gets the implied activation: weights follow before any activation."""
    for j in range(i + 1, len(items)):
        item = items[j]
        if isinstance(item, Activation | _None):
            return False
        if _has_weights(item):
            return True
    return False


def _after_norms(items: Sequence[Layer | _None], i: int) -> int:
    """Return the index of the implied activation: after the layer at `i` and the norms that directly follow it."""
    i += 1
    while i < len(items) and _is_norm(items[i]):
        i += 1
    return i


def _is_norm(item: Layer | _None) -> bool:
    return isinstance(item, Layer) and item.normalises


# Writing

_RELU = Activation("relu")


def render(inputs: Inputs, layers: Sequence[Layer]) -> str:
    """Return the shortest string for which `parse` returns the same network."""
    numeric, categories = inputs.numeric, inputs.categories
    parts = [str(numeric)] if numeric else []
    if categories:
        parts.append(f"cat({', '.join(map(str, categories))})")
    return f"{'+'.join(parts)}-{_render_sequence(layers)}"


def _render_sequence(layers: Sequence[Layer]) -> str:
    """Join the layers with weights by dashes, each with the layers that follow it. Write repetitions with `*`."""
    groups: list[list[str]] = []
    implied = -1  # index of the activation that the last linear layer implies
    for i, layer in enumerate(layers):
        if i == implied:
            continue
        if not groups or _has_weights(layer):
            groups.append([])
        groups[-1].append(_render_layer(layer))
        if isinstance(layer, Linear) and _implies(layers, i):
            groups[-1].append("none")
        elif isinstance(layer, Linear) and _is_implied(layers, _after_norms(layers, i)):
            implied = _after_norms(layers, i)
    return "-".join(_fold(parts, len(list(run))) for parts, run in itertools.groupby(groups))


def _fold(parts: list[str], times: int) -> str:
    text = ":".join(parts)
    if times == 1 or (times == 2 and len(text) < 8):
        return "-".join([text] * times)
    return f"{text}*{times}" if len(parts) == 1 else f"({text})*{times}"


def _is_implied(layers: Sequence[Layer], i: int) -> bool:
    """Return whether the layer at `i`, after a linear layer and its norms, is the ReLU that parse would insert."""
    found = i < len(layers) and layers[i] == _RELU and _implies(layers, i)
    return found and _after_norms(layers, i) == i + 1  # parse would put the activation after a norm at i + 1


def _render_layer(layer: Layer) -> str:
    if isinstance(layer, Residual):
        return f"[{_render_sequence(layer.layers)}]"
    if isinstance(layer, Activation):
        return _render_activation(layer)
    if isinstance(layer, Linear) and layer == Linear(layer.d_out):
        return str(layer.d_out)
    name = layer.label
    arguments: list[str] = []
    defaults = type(layer)(layer.numeric) if isinstance(layer, Columns) else None
    for field in stored_fields(type(layer)):
        value = getattr(layer, field.name)
        default = getattr(defaults, field.name) if defaults and field.name != "numeric" else field.default
        if value == default or (isinstance(layer, GLU) and field.name == "variant"):
            continue
        written = _render_value(value)
        arguments.append(f"{field.name}={written}" if field.kw_only else written)
    return f"{name}({', '.join(arguments)})" if arguments else name


def _render_activation(layer: Activation) -> str:
    arguments = [f"{key}={_render_value(value)}" for key, value in layer.constants]
    if layer.per != "layer":
        arguments.append(f"per={layer.per}")
    inner = f"{layer.name}({', '.join(arguments)})" if arguments else layer.name
    return f"blend({inner})" if layer.blend else inner


def _render_value(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return repr(int(value)) if value.is_integer() and abs(value) < 1e15 else repr(value)
    return str(value).replace("-", "_") if isinstance(value, str) else str(value)
