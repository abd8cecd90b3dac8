"""What the units of each layer respond to.

A network with several hidden ReLU layers learns to classify images. Each hidden layer is measured on test rows, and
compared with the same layer before training:

    preferred image     the change of the mean image, of a fixed size, that gives a unit its largest value z before the
                        activation: u = argmax z(u ⊙ s) with |u| = 1, where s is the standard deviation of each
                        pixel. Gradient ascent from a random image finds it. In the first layer, it is W ⊙ s, scaled.
    smoothness          correlation of neighboring pixels of the preferred images. It is 0 for independent weights.
    extent              size of the region that a unit responds to: root mean square distance of u² from its center,
                        divided by that of an even image. Small: the unit responds to one place. 1: to the whole image.
    class selectivity   share of the variance of a unit's output that lies between the classes (η²), averaged over the
                        units. 1: the output depends on the class only.
    linear probe        test accuracy of a softmax classifier that is trained on the outputs of the layer. The network
                        does not change (Alain and Bengio 2016). Layer 0 is the pixels.

Every unit of the first layer is connected to all pixels. The experiment leaves out convolutional networks. Their first
layer sees small regions by design, and most published pictures of edges and parts show such networks.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from ...drawing.plots import AnyPanel, Images, Panel
from ...spec import Spec
from .. import tables
from ..criteria import Criterion
from ..curves import curve, curves
from ..experiment import Experiment, Published, need
from ..rows import Row, Rows
from ..training import Network, Task, Training, train

Floats = NDArray[Any]
Net = Literal["trained", "untrained"]


@dataclass(frozen=True, kw_only=True)
class Settings:
    data: str = "digits"
    """Images with classes: "digits", an IDX file or a folder."""
    hidden: tuple[int, ...] = (64, 64, 64)
    rows: int = 900
    """Training rows."""
    test_rows: int = 2000
    """Largest number of test rows."""
    steps: int = 1500
    probe_steps: int = 1500
    ascent_steps: int = 100
    shown: int = 24
    """Units per layer whose preferred image is stored."""


def parts(settings: Settings) -> Sequence[Net]:
    """Return the network before and after training."""
    need("hidden", settings.hidden)
    return ("trained", "untrained")


def measure(settings: Settings, part: Net, seed: int) -> Iterator[Row]:
    """Yield the measurements of each layer of one network, and preferred images."""
    every, size = tables.images(settings.data)
    training, test = tables.divided(every, rows=settings.rows, seed=seed, test_rows=settings.test_rows)
    sizes = [every.x.shape[1], *settings.hidden, tables.class_count(every)]
    spec = Spec.parse("-".join([str(sizes[0]), *[f"{width}:relu" for width in settings.hidden], str(sizes[-1])]))
    options = Training(steps=settings.steps, learning_rate=0.002, batch=64, schedule="cosine", seed=seed, at=(0,))
    found = train(spec, training, options)
    network = found.network if part == "trained" else found.stored[0]
    yield {"net": part, "layer": 0, "probe": probe(training.x, training, test.x, test, settings, seed)}
    outputs = [hidden_outputs(network, task.x) for task in (training, test)]
    for i in range(len(settings.hidden)):
        images = preferred(network, i + 1, every.x.std(axis=0), settings.ascent_steps, seed)
        yield {
            "net": part,
            "layer": i + 1,
            "probe": probe(outputs[0][i], training, outputs[1][i], test, settings, seed),
            "selectivity": selectivity(outputs[1][i], test.y),
            "smoothness": smoothness(images, size),
            "extent": extent(images, size),
        }
        if part == "trained":
            yield from _stored(images[: settings.shown], i + 1, size)
    if part == "trained":
        yield {"net": part, "accuracy": 1 - network.error(test)}


# Measurements


def hidden_outputs(network: Network, x: Floats) -> list[Floats]:
    """Return the outputs of each hidden layer (B, width)."""
    values = network.values(x)[0]
    names = sorted(
        (name for name in values if name.startswith("relu")), key=lambda name: int(name.removeprefix("relu"))
    )
    return [np.asarray(values[name].y) for name in names]


def probe(x: Floats, training: Task, x_test: Floats, test: Task, settings: Settings, seed: int) -> float:
    """Return the test accuracy of a linear classifier on the outputs of a layer."""
    center, scale = x.mean(axis=0), x.std() or 1.0
    rows = [Task(x=(own - center) / scale, y=task.y, loss=task.loss) for own, task in ((x, training), (x_test, test))]
    spec = Spec.parse(f"{x.shape[1]}-{int(max(training.y.max(), test.y.max())) + 1}")
    options = Training(steps=settings.probe_steps, learning_rate=0.01, batch=64, schedule="cosine", l2=1e-4, seed=seed)
    return 1 - train(spec, rows[0], options).network.error(rows[1])


def selectivity(outputs: Floats, y: Floats) -> float:
    """Return the share of variance between the classes, as a mean over the units whose output varies."""
    varies = outputs[:, outputs.std(axis=0) > 0]
    if not varies.shape[1]:
        return 0.0
    classes, counts = np.unique(y, return_counts=True)
    means = np.stack([varies[y == one].mean(axis=0) for one in classes])  # (classes, units)
    between = (counts[:, None] * (means - varies.mean(axis=0)) ** 2).sum(axis=0) / len(y)
    return float((between / varies.var(axis=0)).mean())


def preferred(network: Network, layer: int, scale: Floats, steps: int, seed: int) -> Floats:
    """Return u with |u| = 1 for each unit of a hidden layer (units, pixels). Images are √pixels · u ⊙ scale."""
    weights = [network.tensors[f"linear{i}.weight"] for i in range(1, layer + 1)]
    biases = [network.tensors[f"linear{i}.bias"] for i in range(1, layer + 1)]
    units, length = len(weights[-1]), np.sqrt(len(scale))
    u = np.random.default_rng([seed, layer]).normal(size=(units, len(scale)))
    u /= np.linalg.norm(u, axis=1, keepdims=True)
    for _ in range(steps):
        a, active = length * u * scale, list[Floats]()
        for W, b in zip(weights[:-1], biases[:-1], strict=True):
            z = a @ W.T + b
            active.append(z > 0)
            a = np.maximum(z, 0)
        slope = weights[-1]  # (units, width): ∂z/∂a, row by row
        for W, on in zip(reversed(weights[:-1]), reversed(active), strict=True):
            slope = (slope * on) @ W
        step = slope * scale
        u = u + step / np.maximum(np.linalg.norm(step, axis=1, keepdims=True), 1e-12)
        u /= np.linalg.norm(u, axis=1, keepdims=True)
    return u


def smoothness(images: Floats, size: tuple[int, int]) -> float:
    """Return the mean product of neighboring pixels relative to the mean square, over all images."""
    grid = images.reshape(-1, *size)
    pairs = [grid[:, 1:] * grid[:, :-1], grid[:, :, 1:] * grid[:, :, :-1]]
    return float(np.concatenate([pair.ravel() for pair in pairs]).mean() / (grid**2).mean())


def extent(images: Floats, size: tuple[int, int]) -> float:
    """Return the mean distance of u² from its center, divided by the distance for an even image."""
    places = np.stack(np.meshgrid(*map(np.arange, size), indexing="ij"), axis=-1).reshape(-1, 2).astype(float)

    def spread(energy: Floats) -> Floats:
        share = energy / energy.sum(axis=1, keepdims=True)
        center = share @ places  # (images, 2)
        return np.sqrt((share * ((places - center[:, None]) ** 2).sum(axis=2)).sum(axis=1))

    return float(spread(images**2).mean() / spread(np.ones((1, len(places))))[0])


def _stored(images: Floats, layer: int, size: tuple[int, int]) -> Iterator[Row]:
    for unit, image in enumerate(images / np.abs(images).max(axis=1, keepdims=True)):
        pixels = " ".join(f"{value:.2f}" for value in image)
        yield {"image": layer, "unit": unit, "height": size[0], "width": size[1], "pixels": pixels}


# Results


def value(rows: Rows, name: str, layer: int, net: Net = "trained") -> float:
    """Return a measurement of a layer. Layers from the end are −1, −2, …"""
    own = rows.where(net=net).having(lambda row: name in row)
    chosen = sorted(own.distinct("layer"))[layer] if layer < 0 else layer
    return own.where(layer=chosen).mean(name)


def probe_ratio(rows: Rows) -> float:
    """Return the error of the probe of the last hidden layer, relative to that of the probe of the pixels."""
    wrong = [max(1 - value(rows, "probe", layer), 1e-4) for layer in (-1, 0)]
    return wrong[0] / wrong[1]


def summary(rows: Rows) -> str:
    probes = ", ".join(
        f"{value(rows, 'probe', layer):.1%}" for layer in sorted(rows.where(net="trained").distinct("layer"))
    )
    return (
        f"Linear probes of the pixels and of each hidden layer classify {probes} of the test rows correctly. Class "
        f"selectivity is {value(rows, 'selectivity', 1):.2f} in the first layer and "
        f"{value(rows, 'selectivity', -1):.2f} in the last one. The preferred images of the first layer have a "
        f"smoothness of {value(rows, 'smoothness', 1):.2f} and an extent of {value(rows, 'extent', 1):.2f}. In the "
        f"last layer, the extent is {value(rows, 'extent', -1):.2f}."
    )


def _images(rows: Rows, layer: int, name: str) -> Images:
    own = rows.where(image=layer, seed=rows[0]["seed"])
    pixels = [np.array(row["pixels"].split(), float).reshape(row["height"], row["width"]) for row in own]
    return Images(title=f"preferred images, {name}", images=np.stack(pixels), columns=6)


def panels(rows: Rows) -> Sequence[AnyPanel]:
    layers = rows.having(lambda row: "layer" in row)
    last = max(layers.values("layer"))
    hidden = layers.having(lambda row: row["layer"] > 0)
    return [
        _images(rows, 1, "first layer"),
        _images(rows, last, f"layer {last}"),
        Panel(
            title="linear probe (layer 0: the pixels)",
            lines=curves(layers, "layer", "probe", "net"),
            x_label="layer",
            y_label="test accuracy",
        ),
        Panel(
            title="hidden layers (dashed: before training)",
            lines=[
                curve(
                    hidden.where(net=net),
                    "layer",
                    name,
                    name=name if net == "trained" else "",
                    colour=colour,
                    dashed=net == "untrained",
                )
                for colour, name in enumerate(("selectivity", "smoothness", "extent"))
                for net in ("trained", "untrained")
            ],
            x_label="hidden layer",
        ),
    ]


EXPERIMENT = Experiment(
    name="layer_features",
    title="What each layer responds to",
    claim="The first layer responds to local edges and strokes, later layers respond to larger parts, and the last "
    "layer responds to whole classes. From layer to layer, the classes become easier to separate linearly.",
    sources=(
        "Zeiler and Fergus 2014, Visualizing and understanding convolutional networks",
        "Erhan, Bengio, Courville and Vincent 2009, Visualizing higher-layer features of a deep network",
        "Alain and Bengio 2016, Understanding intermediate layers using linear classifier probes",
    ),
    settings=Settings(),
    full=Settings(hidden=(256, 256, 256), steps=5000, probe_steps=5000, ascent_steps=300),
    tiny=Settings(hidden=(32, 32), rows=500, test_rows=400, steps=300, probe_steps=300, ascent_steps=30),
    seeds=30,
    full_seeds=50,
    parts=parts,
    measure=measure,
    criteria=(
        Criterion(
            statement="The test error of the probe of the last hidden layer is at most 0.75 times that of the pixels.",
            value=probe_ratio,
            at_most=0.75,
        ),
        Criterion(
            statement="Class selectivity is at least 0.1 higher in the last hidden layer than in the first.",
            value=lambda rows: value(rows, "selectivity", -1) - value(rows, "selectivity", 1),
            at_least=0.1,
        ),
        Criterion(
            statement="Without training, class selectivity is at least 0.1 lower in the last hidden layer.",
            value=lambda rows: value(rows, "selectivity", -1) - value(rows, "selectivity", -1, "untrained"),
            at_least=0.1,
        ),
        Criterion(
            statement="First layer: neighboring pixels of the preferred images have a correlation of at least 0.2.",
            value=lambda rows: value(rows, "smoothness", 1),
            at_least=0.2,
        ),
        Criterion(
            statement="The extent of preferred images in the first layer is at most 0.9 times that in the last layer.",
            value=lambda rows: value(rows, "extent", 1) / value(rows, "extent", -1),
            at_most=0.9,
        ),
    ),
    summary=summary,
    panels=panels,
    published=(
        Published(
            what="Test error of linear probes from layer to layer",
            theirs="decreases monotonically with depth (Inception v3, ResNet-50)",
            source="Alain and Bengio 2016, abstract",
            ours=lambda rows: ", ".join(
                f"{1 - value(rows, 'probe', layer):.1%}"
                for layer in sorted(rows.where(net="trained").distinct("layer"))
            ),
        ),
    ),
)
