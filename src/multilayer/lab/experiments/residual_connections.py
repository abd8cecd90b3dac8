"""Residual connections and norms in deep networks.

The networks have one input layer and `depth` further hidden layers of equal width. These kinds are compared:

    plain                        x ← relu(W x + b)
    plain, He                    the same with He's initialization, which keeps the variance from layer to layer
    batch norm, layer norm       x ← relu(norm(W x + b))
    residual                     x ← x + W₂ relu(W₁ x + b₁) + b₂. A block has two layers and counts as two.
    residual + layer norm        x ← x + W₂ relu(W₁ norm(x) + b₁) + b₂, and a norm before the output

All kinds except "plain, He" start from PyTorch's default initialization, which users get if they choose nothing. Its
weights are smaller than He's. In a plain network, this multiplies the gradient by about 1/√6 per layer. A norm divides
by the small standard deviation, also in the backward pass, which makes the gradient larger. A residual block adds x
itself, so one path from the loss to the first layer contains no weights.

Two numbers are measured on a table with classes:

    gradient    the norm of the gradient of the first layer's weights at initialization, over all rows as one batch
    loss        the mean training loss of the last epoch after a fixed number of Adam steps, divided by the loss of the
                best constant prediction. 1 means that the network learned nothing.

Each network is trained with several learning rates, and the lowest loss counts. Generalization is not measured. If a
deep network does not even fit its training rows, the cause is not overfitting: its optimization fails.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from ...drawing.plots import AnyPanel, Panel
from ..criteria import Criterion
from ..curves import curves
from ..experiment import Experiment, Published, need
from ..rows import Row, Rows
from ..tables import class_count, classification
from ..training import Network, Task, Training, train

PLAIN, PLAIN_HE, BATCH_NORM, LAYER_NORM = "plain", "plain, He", "batch norm", "layer norm"
RESIDUAL, RESIDUAL_NORM = "residual", "residual + layer norm"
KINDS = (PLAIN, PLAIN_HE, BATCH_NORM, LAYER_NORM, RESIDUAL, RESIDUAL_NORM)


@dataclass(frozen=True, kw_only=True)
class Settings:
    data: str = "digits"
    kinds: tuple[str, ...] = KINDS
    depths: tuple[int, ...] = (4, 8, 16, 32, 64)
    """Number of hidden layers after the first one. It must be even."""
    width: int = 32
    rates: tuple[float, ...] = (0.001, 0.003)
    steps: int = 500
    batch: int = 64


def parts(settings: Settings) -> Sequence[tuple[str, int]]:
    """Return kind and depth of each network."""
    need("kinds", settings.kinds, includes=(PLAIN, BATCH_NORM, LAYER_NORM, RESIDUAL, RESIDUAL_NORM))
    need("depths", settings.depths, at_least=2)
    need("rates", settings.rates)
    return [(kind, depth) for kind in settings.kinds for depth in settings.depths]


def network(kind: str, *, inputs: int, width: int, depth: int, outputs: int) -> str:
    """Return the description of a network.

    >>> network("residual", inputs=8, width=4, depth=6, outputs=2)
    '8-4:none-[4:relu-4]*3-2'
    """
    layer = {BATCH_NORM: f"{width}:batchnorm:relu", LAYER_NORM: f"{width}:layernorm:relu"}.get(kind, f"{width}:relu")
    body = {
        RESIDUAL: f"{width}:none-[{width}:relu-{width}]*{depth // 2}",
        RESIDUAL_NORM: f"{width}:none-[layernorm-{width}:relu-{width}]*{depth // 2}-layernorm",
    }.get(kind, f"({layer})*{depth + 1}")
    return f"{inputs}-{body}-{outputs}"


def measure(settings: Settings, part: tuple[str, int], seed: int) -> Iterator[Row]:
    """Yield the gradient of the first layer and the loss after training of one network."""
    kind, depth = part
    task = classification(settings.data)
    spec = network(kind, inputs=task.x.shape[1], width=settings.width, depth=depth, outputs=class_count(task))
    init = "he" if kind == PLAIN_HE else "torch"
    losses: list[float] = []
    for rate in settings.rates:
        options = Training(steps=settings.steps, learning_rate=rate, batch=settings.batch, init=init, seed=seed)
        trained = train(spec, task, options)
        last_epoch = trained.losses[-max(1, len(task) // settings.batch) :]
        losses.append(float(last_epoch.mean()) if trained.diverged_at is None else np.inf)
    yield {
        "kind": kind,
        "depth": depth,
        "gradient": first_gradient(Network.initial(spec, init, seed=seed), task),
        "loss": min(losses) / constant_loss(task),
    }


def first_gradient(initial: Network, task: Task) -> float:
    """Return the norm of the gradient of the weights of the first layer."""
    return float(np.linalg.norm(initial.gradients(task, training=True)["linear1"].parameters["weight"]))


def constant_loss(task: Task) -> float:
    """Return the cross-entropy of the best constant prediction: the entropy of the classes."""
    share = np.bincount(task.y) / len(task)
    return float(-(share[share > 0] * np.log(share[share > 0])).sum())


def gradient_change(rows: Rows, kind: str) -> float:
    """Return the gradient of the deepest network divided by that of the shallowest."""
    own = rows.where(kind=kind)
    shallow, deep = (own.where(depth=depth).mean("gradient") for depth in ends(own))
    return deep / shallow


def deepest_loss(rows: Rows, *kinds: str) -> float:
    """Return the loss of the deepest network, the largest of several kinds."""
    return max(rows.where(kind=kind, depth=ends(rows)[1]).mean("loss") for kind in kinds)


def ends(rows: Rows) -> tuple[int, int]:
    """Return the smallest and the largest depth."""
    depths = rows.values("depth")
    return min(depths), max(depths)


def summary(rows: Rows) -> str:
    shallow, deep = ends(rows)
    named = [kind for kind in (PLAIN, BATCH_NORM, RESIDUAL_NORM) if rows.where(kind=kind)]
    changes = ", ".join(f"{gradient_change(rows, kind):.1g} ({kind})" for kind in named)
    losses = ", ".join(f"{deepest_loss(rows, kind):.0%} ({kind})" for kind in rows.distinct("kind"))
    return (
        f"From depth {shallow} to {deep}, the gradient of the first layer is multiplied by {changes}. After training, "
        f"the loss of the networks of depth {deep}, relative to a constant prediction, is {losses}."
    )


def panels(rows: Rows) -> Sequence[AnyPanel]:
    return [
        Panel(
            title="gradient of the first layer",
            lines=curves(rows, "depth", "gradient", "kind", log=True),
            x_label="number of hidden layers",
            y_label="norm at initialization",
            log_x=True,
            log_y=True,
        ),
        Panel(
            title="training loss after equal steps",
            lines=curves(rows.having(lambda row: np.isfinite(row["loss"])), "depth", "loss", "kind"),
            x_label="number of hidden layers",
            y_label="loss / loss of a constant",
            log_x=True,
        ),
    ]


def depths_of(rows: Rows, kind: str, what: str) -> str:
    """Return a measurement by depth as text."""
    return ", ".join(f"{own.mean(what):.2g} at {depth}" for (depth,), own in rows.where(kind=kind).by("depth"))


EXPERIMENT = Experiment(
    name="residual_connections",
    title="Residual connections",
    claim="In deep plain networks, the gradient of the first layers vanishes, and training fails. Batch norm, layer "
    "norm and residual connections each prevent this: networks with 64 layers can be trained.",
    sources=(
        "Ioffe and Szegedy 2015, Batch Normalization",
        "He, Zhang, Ren and Sun 2015, Deep Residual Learning for Image Recognition",
        "He, Zhang, Ren and Sun 2016, Identity Mappings in Deep Residual Networks",
        "Ba, Kiros and Hinton 2016, Layer Normalization",
        "Yang, Pennington, Rao, Sohl-Dickstein and Schoenholz 2019, A Mean Field Theory of Batch Normalization",
    ),
    settings=Settings(),
    full=Settings(depths=(4, 8, 16, 32, 64, 128), width=64, rates=(0.0003, 0.001, 0.003, 0.01), steps=5000),
    tiny=Settings(depths=(4, 24), width=16, rates=(0.003,), steps=150),
    seeds=10,
    full_seeds=10,
    parts=parts,
    measure=measure,
    criteria=(
        Criterion(
            statement="Deepest / shallowest plain network: the ratio of the gradients is at most 1/1000.",
            value=lambda rows: gradient_change(rows, PLAIN),
            at_most=1e-3,
            log=True,
        ),
        Criterion(
            statement="Deepest and shallowest network with residual connections and layer norm: the gradients differ "
            "by at most a factor of 10.",
            value=lambda rows: max(gradient_change(rows, RESIDUAL_NORM), 1 / gradient_change(rows, RESIDUAL_NORM)),
            at_most=10,
            log=True,
        ),
        Criterion(
            statement="Deepest plain network: the loss is at least 90 % of that of a constant prediction.",
            value=lambda rows: deepest_loss(rows, PLAIN),
            at_least=0.9,
        ),
        Criterion(
            statement="Deepest networks with a norm only: the loss is at most 10 % of that of a constant prediction.",
            value=lambda rows: deepest_loss(rows, BATCH_NORM, LAYER_NORM),
            at_most=0.1,
        ),
        Criterion(
            statement="Deepest residual networks, with and without norm: the loss is at most 10 % of that of a "
            "constant prediction.",
            value=lambda rows: deepest_loss(rows, RESIDUAL, RESIDUAL_NORM),
            at_most=0.1,
        ),
    ),
    summary=summary,
    panels=panels,
    published=(
        Published(
            what="Training error of plain networks with depth",
            theirs="higher with 56 layers than with 20 (CIFAR-10, convolutions, batch norm, He's initialization)",
            source="He et al. 2015, Deep Residual Learning for Image Recognition, Figure 1",
            ours=lambda rows: f"loss {depths_of(rows, BATCH_NORM, 'loss')} (batch norm)",
        ),
        Published(
            what="Training error of residual networks with depth",
            theirs="lower with 56 layers than with 20, and even lower with 110",
            source="He et al. 2015, Figure 6",
            ours=lambda rows: f"loss {depths_of(rows, RESIDUAL, 'loss')}",
        ),
        Published(
            what="Gradient of networks with batch norm and no residual connections",
            theirs="grows exponentially with depth, so deep networks cannot be trained",
            source="Yang et al. 2019, abstract",
            ours=lambda rows: f"first layer: {depths_of(rows, BATCH_NORM, 'gradient')}",
        ),
    ),
)
