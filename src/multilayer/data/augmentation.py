"""Augmentation: random changes to training rows, different in each epoch.

    noise(std=0.1)     x + std · N(0, 1)
    mask(p=0.1)        sets each number to 0 and each category to unknown, with probability p
    mixup(alpha=0.2)   λ x + (1 − λ) x′, and the same for the targets; x′ is another training row without augmentation,
                       and λ = max(b, 1 − b) with b ~ Beta(α, α). Category codes are not mixed. Zhang et al. 2018
    shift(n=2)         moves images by up to n pixels in each direction, and fills with background
    flip(p=0.5)        mirrors images left to right with probability p
    crop(n=4)          enlarges a random window, n pixels smaller in each direction, to the size of the image

Join several with +; they are applied in this order: `shift(2)+noise(0.05)`. x is scaled, so the unit of `noise` is the
standard deviation. The random numbers depend on the seed, the row number, the epoch and the position in the chain only,
so the result is the same for all batch sizes, numbers of threads and engines.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..core import random
from ..core.named_options import choose, require
from ..core.random import Purpose
from ..errors import OptionError
from .batches import Augment, Batch, Data
from .table import Rows, Shape

Array = NDArray[Any]


@dataclass(frozen=True, kw_only=True, eq=False)
class Scene:
    """Properties of the table that the steps need."""

    seed: int
    train: Rows
    image: Shape | None = None
    background: float = 0.0
    """Value of a black pixel after scaling."""
    n_classes: int | None = None
    """Number of classes, if y contains class numbers."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Draws:
    """Random numbers of one step, for the given rows in one epoch."""

    seed: int
    rows: Rows
    epoch: int
    part: int

    def uniform(self, units: int) -> Array:
        return random.uniform(self.seed, Purpose.AUGMENT, rows=self.rows, units=units, epoch=self.epoch, part=self.part)

    def normal(self, units: int) -> Array:
        return random.normal(self.seed, Purpose.AUGMENT, rows=self.rows, units=units, epoch=self.epoch, part=self.part)

    def whole(self, units: int, low: int, high: int) -> NDArray[np.int64]:
        """Return random whole numbers from `low` to `high`, both included."""
        return (low + np.floor(self.uniform(units) * (high - low + 1))).astype(np.int64)


Step = Callable[[Batch, Data, Draws, Scene], Batch]


@dataclass(frozen=True, kw_only=True, eq=False)
class Chain:
    """Apply several steps in order. This is an `Augment`."""

    steps: tuple[Step, ...]
    scene: Scene

    def __call__(self, batch: Batch, data: Data, rows: Rows, epoch: int) -> Batch:
        for part, step in enumerate(self.steps):
            draws = Draws(seed=self.scene.seed, rows=np.asarray(rows), epoch=epoch, part=part)
            batch = step(batch, data, draws, self.scene)
        return batch


def build(text: str, scene: Scene) -> Augment | None:
    """Return the augmentation with the names in `text`, joined with +. None if there are no names, or only "none"."""
    parts = [part.strip() for part in text.split("+")]
    parts = [part for part in parts if part and part != "none"]
    for part in parts:
        if part.partition("(")[0].strip() in FOR_IMAGES and scene.image is None:
            raise OptionError(
                f"{part} needs images, and the rows of this table are not images: use noise, mask or mixup"
            )
    steps = tuple(choose("augmentation", part, STEPS, also=("none",)) for part in parts)
    return Chain(steps=steps, scene=scene) if steps else None


def noise(std: float = 0.1) -> Step:
    require("std", std, std >= 0, "at least 0")

    def step(batch: Batch, data: Data, draws: Draws, scene: Scene) -> Batch:
        extra = std * draws.normal(batch.x.shape[1])
        return replace(batch, x=(batch.x + extra).astype(batch.x.dtype))

    return step


def mask(p: float = 0.1) -> Step:
    require("p", p, 0 <= p < 1, "at least 0 and below 1")

    def step(batch: Batch, data: Data, draws: Draws, scene: Scene) -> Batch:
        F = batch.x.shape[1]
        C = 0 if batch.codes is None else batch.codes.shape[1]
        keep = draws.uniform(F + C) >= p  # (B, F + C)
        codes = None if batch.codes is None else np.where(keep[:, F:], batch.codes, 0)
        return replace(batch, x=np.where(keep[:, :F], batch.x, batch.x.dtype.type(0)), codes=codes)

    return step


def mixup(alpha: float = 0.2) -> Step:
    require("alpha", alpha, alpha > 0, "positive")

    def step(batch: Batch, data: Data, draws: Draws, scene: Scene) -> Batch:
        from scipy.special import betaincinv

        u = draws.uniform(2)
        other = scene.train[np.minimum((u[:, 0] * len(scene.train)).astype(np.int64), len(scene.train) - 1)]
        share = betaincinv(alpha, alpha, u[:, 1])
        share = np.maximum(share, 1 - share)[:, None]  # (B, 1)
        x = share * batch.x + (1 - share) * data.x[other]
        y = share * _numbers(batch.y, scene) + (1 - share) * _numbers(data.y[other], scene)
        dtype = batch.x.dtype
        return replace(batch, x=x.astype(dtype), y=y.astype(dtype))

    return step


def _numbers(y: Array, scene: Scene) -> Array:
    """Return targets that can be averaged. Class numbers become one-hot rows."""
    return np.eye(scene.n_classes)[y] if y.ndim == 1 and scene.n_classes is not None else y


def shift(n: float = 2) -> Step:
    far = _pixels(n)

    def step(batch: Batch, data: Data, draws: Draws, scene: Scene) -> Batch:
        H, W, _ = _shape(scene)
        moves = draws.whole(2, -far, far)
        return _sampled(batch, scene, np.arange(H) - moves[:, :1], np.arange(W) - moves[:, 1:])

    return step


def flip(p: float = 0.5) -> Step:
    require("p", p, 0 <= p <= 1, "from 0 to 1")

    def step(batch: Batch, data: Data, draws: Draws, scene: Scene) -> Batch:
        H, W, _ = _shape(scene)
        across = np.arange(W)
        mirrored = draws.uniform(1) < p  # (B, 1)
        down = np.broadcast_to(np.arange(H), (len(batch.x), H))
        return _sampled(batch, scene, down, np.where(mirrored, across[::-1], across))

    return step


def crop(n: float = 4) -> Step:
    less = _pixels(n)

    def step(batch: Batch, data: Data, draws: Draws, scene: Scene) -> Batch:
        H, W, _ = _shape(scene)
        if less >= min(H, W):
            raise OptionError(
                f"crop({less}) needs images with more than {less} rows and columns, got {H} × {W} pixels: "
                "use a smaller crop"
            )
        corner = draws.whole(2, 0, less)
        down = corner[:, :1] + np.arange(H) * (H - less) // H
        return _sampled(batch, scene, down, corner[:, 1:] + np.arange(W) * (W - less) // W)

    return step


def _shape(scene: Scene) -> Shape:
    assert scene.image is not None, "build raises an error for steps that need images"
    return scene.image


def _sampled(batch: Batch, scene: Scene, down: Array, across: Array) -> Batch:
    """Return images whose pixel (i, j) is the given pixel (down_i, across_j), or background outside the image.

    down (B, H), across (B, W).
    """
    H, W, channels = _shape(scene)
    B = len(batch.x)
    images = batch.x.reshape(B, H, W, channels)
    inside = ((down >= 0) & (down < H))[:, :, None] & ((across >= 0) & (across < W))[:, None, :]  # (B, H, W)
    moved = images[
        np.arange(B)[:, None, None], np.clip(down, 0, H - 1)[:, :, None], np.clip(across, 0, W - 1)[:, None, :]
    ]  # (B, H, W, channels)
    moved = np.where(inside[..., None], moved, batch.x.dtype.type(scene.background))
    return replace(batch, x=moved.reshape(B, -1))


def _pixels(n: float) -> int:
    require("n", n, n == int(n) and n >= 0, "a whole number of pixels")
    return int(n)


FOR_IMAGES = ("shift", "flip", "crop")
STEPS: dict[str, Callable[..., Step]] = {
    "noise": noise,
    "mask": mask,
    "mixup": mixup,
    "shift": shift,
    "flip": flip,
    "crop": crop,
}
