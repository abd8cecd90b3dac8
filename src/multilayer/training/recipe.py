"""The tabular recipe: it chooses the network and the options from the task and the size of the table.

`ml.fit` and `mlp train` use it unless a network is given. The estimators always use it. Every choice is a constant in
this file, or `RECIPE_RATE` in runs/config.py. docs/explanation/recipe.md describes the experiments, with the results
and what did not work.

    numbers      robust scaling with a smooth clip, then a periodic embedding with a linear part (PBLD)
    categories   one-hot up to eight values, else a learned embedding of eight numbers
    network      a learned scale for each input, three layers of 256 units whose activation blends f(z) with z, dropout;
                 W ~ N(0, 1), multiplied by 1/√inputs and rescaled to the data at initialization
    training     AdamW with β₂ = 0.95; a learning rate of four cosine cycles, each longer than the one before; weight
                 decay and dropout that decrease to 0 in the second half; the epoch with the lowest validation loss
    ensemble     each member holds out a different part of the rows, so that every row is used for training and is
                 evaluated by a member that did not train on it; one temperature, fitted on these predictions

The parts are those of RealMLP (Holzmüller et al., NeurIPS 2024). The ensemble, the joint best epoch and the sizes are
our own.
"""

from __future__ import annotations

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np

from ..core.formatting import count
from ..data import Encoding, TrainingData
from ..data.table import Table
from ..errors import OptionError, SpecError, option, option_name, unknown_name, warn
from ..nn import losses
from ..nn.activations.properties import extent
from ..nn.layers import Activation, Columns, Dropout, Inputs, Layer, Linear, Scale
from ..nn.layers.columns import Numeric
from ..runs.config import RECIPE_RATE, Config, Options, kind_of
from ..spec import Spec
from ..spec.networks import mlp
from .plan import with_defaults

RECIPES = ("tabular", "plain")
HIDDEN = (256, 256, 256)
DROPOUT = 0.15
EMBEDDING: Numeric = "pbld"
FREQUENCIES = 0.3
"""Standard deviation of the initial frequencies of the periodic embedding."""
ACTIVATION = {"classes": "selu", "numbers": "mish", "counts": "mish"}
MEMBERS = 4
BATCH = 256
EPOCHS, LEAST_EPOCHS = 256, 32
MANY_ROWS = 20_000
"""Number of rows above which there are fewer epochs."""
MOST_EMBEDDED = 512
"""Largest number of numeric inputs that are embedded. With more, the embedding would be most of the network."""

OPTIONS: Options = {
    "optimizer": "adamw(beta2=0.95)",
    "schedule": "coslog(cycles=4)",
    "weight_decay": 0.02,
    "decay_schedule": "flat_cosine",
    "dropout_schedule": "flat_cosine",
    "init": "data",
    "scaling": "robust",
    "metric": "loss",
    "calibrate": True,
    "on_spike": "ignore",  # every cycle of the learning rate begins with a spike
    "rates": "bias=0.1, scale.scale=6, activation.blend=0.1, columns.frequency=0.1, columns.phase=0.1, "
    "columns.weight=0.1, columns.bias=0.1",
}

PERCEPTRON: Options = {
    "loss": "perceptron",
    "optimizer": "sgd",
    "learning_rate": 1.0,
    "schedule": "constant",
    "weight_decay": 0.0,
    "batch_size": 1,
    "on_spike": "ignore",
}
PERCEPTRON_STEPS, PERCEPTRON_EPOCHS = 50_000, (20, 1000)
"""Limit on the steps if the classes are not linearly separable, and the fewest and most epochs that result from it."""


TRIAL: Options = {"ensemble": 1, "validation": 0.2, "calibrate": False}
"""Options of a trial. With calibration, too many trials would be perfect on a small validation set."""
TRIAL_EPOCHS, FEWEST_TRIAL_EPOCHS = 0.25, 4


@dataclass(frozen=True, kw_only=True, eq=False)
class Recipe:
    """Changes to the tabular recipe. The recipe chooses the fields left at None.

    For images, the plain network is used, with one scale for all pixels.
    """

    hidden: int | Sequence[int] | None = None
    """Widths of the hidden layers. A number is one hidden layer."""
    activation: str | Sequence[str] | None = None
    dropout: float | None = None
    embedding: Numeric | None = None
    weight_decay: float | None = None
    rate_factor: float = 1.0
    """Factor on the learning rate that the recipe chooses."""
    trial: bool = False
    """Whether the run is a trial of a search: one network, fewer epochs, and a time limit that only stops it."""

    def __post_init__(self) -> None:
        for name in ("hidden", "activation"):
            object.__setattr__(self, name, _plain(getattr(self, name)))
        if isinstance(self.hidden, int) and not isinstance(self.hidden, bool):
            object.__setattr__(self, "hidden", (self.hidden,))
        functions = self.activation
        names = cast("list[Any]", list(functions)) if isinstance(functions, Sequence) else [functions]
        if functions is not None and not all(isinstance(one, str) for one in names):
            raise OptionError(
                f"{option_name('activation')} must be a name such as 'relu', or one for each layer, got {functions!r}"
            )

    @property
    def given(self) -> str:
        """The names of the options that the user set."""
        shape = {"hidden": self.hidden, "activation": self.activation, "dropout": self.dropout}
        return " and ".join(option_name(name) for name, value in shape.items() if value is not None)


@dataclass(frozen=True)
class Perceptron:
    """Train a network with a step output by the perceptron rule (Rosenblatt 1958): w += rate (y - step(z)) x.

    The derivative of a step is zero, so the step is not part of `spec`, the trained network: it is the link function of
    the perceptron loss, which turns z into a class. Only a network without hidden layers gets the classical options:
    batch size 1 and learning rate 1, until an epoch makes no mistake.
    """

    spec: Spec


Network = Spec | Recipe | Perceptron | None
"""The network argument of `fit`: a network, a recipe that depends on the data, or None for the plain network."""


def options_for(network: Network, table: Table) -> Options:
    """Return the options that a network needs before its table is encoded. Options set by the user replace them."""
    if isinstance(network, Perceptron):
        if len(network.spec.layers) > 1:
            return {"loss": "perceptron"}
        least, most = PERCEPTRON_EPOCHS
        return {**PERCEPTRON, "epochs": max(least, min(most, PERCEPTRON_STEPS // max(1, len(table))))}
    if not isinstance(network, Recipe):
        return Options()
    if table.image is not None:
        if network.given:
            raise OptionError(f"{network.given} apply to tables, got images: write the network, {option('spec')}")
        return Options()
    found: Options = {**OPTIONS, "ensemble": MEMBERS}
    if network.weight_decay is not None:
        found["weight_decay"] = network.weight_decay
    return {**found, **TRIAL} if network.trial else found


def complete(
    network: Network, prepared: TrainingData, config: Config, set_options: AbstractSet[str]
) -> tuple[Spec, Config, str]:
    """Return the network for the encoded data, the configuration with its options, and a note or an empty string.

    Options in `set_options` were set by the user and are not changed.
    """
    if isinstance(network, Recipe):
        return *_of_recipe(network, prepared, config, set_options), ""
    if isinstance(network, Spec):
        spec, note = raw_outputs(network, prepared.encoding)
        return spec, config, note
    return choose_network(None if network is None else network.spec, prepared.encoding), config, ""


def choose_network(spec: Spec | str | None, encoding: Encoding) -> Spec:
    """Return `spec`, checked against the data, or the plain network."""
    outputs = encoding.outputs
    if spec is None:
        return mlp(encoding.inputs, d_out=outputs, activation="gelu", dropout=0.1)
    spec = Spec.parse(spec) if isinstance(spec, str) else spec
    inputs = encoding.inputs
    if spec.inputs != inputs:
        constant = sum(column.why == "constant" for column in encoding.columns)
        keep = "a network with an input for each keeps them"
        without = f", without {count(constant, 'constant column')} ({keep})" if constant else ""
        raise SpecError(
            f"the data has {describe(inputs)} after encoding{without}, but the network takes {describe(spec.inputs)}: "
            f"write {option('spec', repr(_fitting(spec, encoding)))}"
        )
    if spec.d_out != outputs:
        needed = count(outputs, "output")
        if encoding.task.kind == "binary" and encoding.loss == "binary_cross_entropy":
            needed = "1 output, or 2 with cross_entropy"
        raise SpecError(
            f"the data and {encoding.loss} need {needed}, but the network has {spec.d_out}: "
            f"write {option('spec', repr(_fitting(spec, encoding)))}"
        )
    return spec


def _fitting(spec: Spec, encoding: Encoding) -> str:
    """Return the network with the inputs and outputs of the data. If its layers cannot have them, a plain network."""
    *rest, last = spec.layers
    last = replace(last, d_out=encoding.outputs) if isinstance(last, Linear) else last
    if not encoding.inputs.categories:
        rest = [one for one in rest if one != Columns()]
    elif not any(isinstance(one, Columns) for one in rest):
        rest = [Columns(), *rest]
    try:
        fitting = Spec(encoding.inputs, [*rest, last])
    except SpecError:
        fitting = None
    if fitting is None or fitting.d_out != encoding.outputs:
        fitting = choose_network(None, encoding)
    return str(fitting)


def describe(inputs: Any) -> str:
    numbers = count(inputs.numeric, "number")
    sizes = ", ".join(map(str, inputs.categories))
    return f"{numbers} and categories of {sizes} values" if inputs.categories else numbers


def _of_recipe(
    recipe: Recipe, prepared: TrainingData, config: Config, set_options: AbstractSet[str]
) -> tuple[Spec, Config]:
    encoding, rows = prepared.encoding, len(prepared.train)
    if encoding.image is not None:
        spec = choose_network(None, encoding)
        return spec, with_defaults(config, spec, prepared)
    kind = kind_of(encoding)
    spec = network(
        encoding.inputs,
        encoding.outputs,
        hidden=HIDDEN if recipe.hidden is None else recipe.hidden,
        activation=ACTIVATION[kind] if recipe.activation is None else recipe.activation,
        dropout=DROPOUT if recipe.dropout is None else recipe.dropout,
        embedding=EMBEDDING if recipe.embedding is None else recipe.embedding,
    )
    made = {
        "learning_rate": recipe.rate_factor * RECIPE_RATE[kind],
        "epochs": epochs(rows),
        "batch_size": batch_size(rows),
    }
    config = replace(config, **{name: value for name, value in made.items() if name not in set_options})
    if recipe.trial:
        config = replace(config, epochs=max(FEWEST_TRIAL_EPOCHS, int(TRIAL_EPOCHS * cast(int, config.epochs))))
    return spec, config


def is_step(layer: Layer) -> bool:
    return isinstance(layer, Activation) and layer.name == "step"


def raw_outputs(spec: Spec, encoding: Encoding) -> tuple[Spec, str]:
    """Remove an output activation that is already part of the loss. Return the network and a note.

    `binary_cross_entropy` applies a sigmoid itself. With a second one, every row would have a probability of at least
    0.5. Other output activations cause a warning if they limit the outputs, but the loss needs unlimited ones.
    """
    last, loss = spec.layers[-1], losses.get(encoding.loss)
    if len(spec.layers) < 2 or not isinstance(last, Activation) or is_step(last):  # `choose` handles a step
        return spec, ""
    raw = Spec(spec.inputs, spec.layers[:-1])
    if last.name == loss.link:
        return raw, f"the {last.name} at the end of the network is part of the loss {loss.name}: the network is {raw}"
    low, high = extent(last.function) if last.function.elementwise else (0.0, 1.0)
    if encoding.task.classifies and loss.link is None and low <= 0 and high >= 1:
        return spec, ""  # the network itself predicts 0 or 1
    if np.isfinite([low, high]).any():
        needed = f"the outputs before the {loss.link}" if loss.link is not None else "standardized targets"
        warn(
            f"the output activation {last.name} limits the outputs, but {needed} have no limits for the loss "
            f"{loss.name}: remove it, {option('spec', repr(str(raw)))}"
        )
    return spec, ""


def choose(
    spec: Spec | Recipe | None, recipe: str | None, shape: Recipe, *, loss: str = "auto", loader: bool
) -> Network:
    """Return the network or recipe given to `fit`, else the tabular recipe. None means the plain network.

    A `loader` always gets the plain network.
    """
    if recipe is not None and recipe not in RECIPES:
        raise OptionError(unknown_name("recipe", recipe, RECIPES))
    if isinstance(spec, Spec) and shape.given:
        raise OptionError(
            f"{shape.given} can only change the recipe's network, got a network too: {_instead(spec, shape)}"
        )
    if spec is not None:
        other = "a network"
    elif loader:
        other = "a loader"
    elif recipe == "plain":
        other = option("recipe", "plain")
    else:
        return shape
    if recipe == "tabular":
        raise OptionError(f"{option('recipe', 'tabular')} chooses the network for a table, got {other} too: omit it")
    if shape.given:
        raise OptionError(f"{shape.given} can only be used with the tabular recipe, got {other} too: omit one of them")
    if isinstance(spec, Spec):
        ruled = len(spec.layers) > 1 and is_step(spec.layers[-1]) and loss in ("auto", "perceptron")
        if ruled and loader:
            raise OptionError(
                "a network with a step output trains on a table, got a loader: remove the step, or pass the rows as "
                "(X, y)"
            )
        if any(is_step(entry.layer) for entry in spec.entries[: -1 if ruled else None]):
            warn(
                "layers before a step activation cannot learn, because its derivative is zero: use tanh or sigmoid in "
                f"hidden layers, and leave {option_name('loss')} at auto for a step output"
            )
        if ruled:
            return Perceptron(Spec(spec.inputs, spec.layers[:-1]))
    return spec


def _instead(spec: Spec, shape: Recipe) -> str:
    """Return how to write the network with these options, for the error message."""
    widths = [layer.d_out for layer in spec.layers if isinstance(layer, Linear)]
    functions = [layer for layer in spec.layers if isinstance(layer, Activation)]
    rates = {layer.p for layer in spec.layers if isinstance(layer, Dropout)}
    output = functions.pop() if functions and isinstance(spec.layers[-1], Activation) else None
    rate = rates.pop() if len(rates) == 1 else 0.0
    how: dict[str, Any] = {"output": output}
    alike = len(functions) == len(widths) - 1
    if not alike or mlp(spec.inputs, widths[:-1], widths[-1], activation=functions, dropout=rate, **how) != spec:
        return "write them into the network"
    hidden = widths[:-1] if shape.hidden is None else cast("Sequence[int]", shape.hidden)
    if len(widths) == 1 and shape.hidden is None:
        return f"it has no hidden layers, so omit {shape.given}"
    usual = functions if len(hidden) == len(functions) else functions[0] if functions else "relu"
    meant = mlp(
        spec.inputs,
        hidden,
        spec.d_out,
        activation=usual if shape.activation is None else shape.activation,
        dropout=rate if shape.dropout is None else shape.dropout,
        **how,
    )
    return f"write {option('spec', repr(str(meant)))}"


def network(
    inputs: Inputs,
    outputs: int,
    *,
    hidden: int | Sequence[int],
    activation: str | Sequence[str],
    dropout: float,
    embedding: Numeric = EMBEDDING,
) -> Spec:
    """Return the network of the recipe for these inputs."""
    if not isinstance(hidden, Sequence):
        raise OptionError(f"{option_name('hidden')} must be a width or widths such as (256, 256), got {hidden!r}")
    functions = [activation] * len(hidden) if isinstance(activation, str) else list(activation)
    if len(functions) != len(hidden):
        raise OptionError(
            f"{option_name('activation')} must be one name, or one for each of {len(hidden)} layers, "
            f"got {len(functions)}"
        )
    if not 0 < inputs.numeric <= MOST_EMBEDDED:
        embedding = "none"
    layers: list[Layer] = [Columns(embedding, sigma=FREQUENCIES if embedding == "pbld" else None), Scale()]
    for width, function in zip(hidden, functions, strict=True):
        layers += [Linear(width, scale="tangent"), Activation(f"blend({function})")]
        layers += [Dropout(dropout)] if dropout else []
    return Spec(inputs, [*layers, Linear(outputs, scale="tangent")])


def defaults() -> dict[str, Any]:
    """Return the options that the recipe chooses, for the help text. A tuple lists the values for different tasks."""
    return {
        **OPTIONS,
        "ensemble": MEMBERS,
        "learning_rate": tuple(dict.fromkeys(RECIPE_RATE.values())),
        "epochs": EPOCHS,
        "batch_size": BATCH,
        "patience": None,
        "average": None,
    }


def _plain(values: Any) -> Any:
    """Convert an array or a number of numpy to a list or a number of Python."""
    return values.tolist() if isinstance(values, np.ndarray | np.generic) else values


def batch_size(rows: int) -> int:
    return max(1, min(BATCH, rows))


def epochs(rows: int) -> int:
    """Return the number of epochs: fewer for many rows, so that the number of steps stays about the same."""
    return max(LEAST_EPOCHS, min(EPOCHS, EPOCHS * MANY_ROWS // max(rows, 1)))
