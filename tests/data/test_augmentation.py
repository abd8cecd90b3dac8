"""Augmentation depends on seed, row and epoch only, and each step has its documented effect."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from multilayer.data.augmentation import Draws
from multilayer.data.batches import Batch
from multilayer.errors import OptionError
from support.training_rows import prepare

N = 40
RNG = np.random.default_rng(0)
X = RNG.normal(size=(N, 5))
TABLE = {**{f"x{i}": X[:, i] for i in range(5)}, "c": ["uvw"[i % 3] for i in range(N)], "y": np.arange(N) % 4}
PICTURES = RNG.integers(0, 255, size=(N, 6, 8, 2), dtype=np.uint8)
LABELS = np.arange(N) % 4

FLAT = ("noise(0.1)", "mask(0.3)", "mixup(0.4)", "noise+mask+mixup")
SHAPED = ("shift(2)", "flip", "crop(3)", "shift(1)+flip+crop(2)+noise(0.01)+mixup")


def ready(text: str, **options: Any) -> Any:
    if text in FLAT:
        return prepare(TABLE, target="y", augment=text, **options)
    return prepare((PICTURES, LABELS), augment=text, **options)


def same(a: Batch, b: Batch) -> bool:
    pairs = [(a.x, b.x), (a.y, b.y)] + ([(a.codes, b.codes)] if a.codes is not None else [])
    return all(np.asarray(p).tobytes() == np.asarray(q).tobytes() for p, q in pairs)


def part(batch: Batch, rows: Any) -> Batch:
    return Batch(x=batch.x[rows], y=batch.y[rows], codes=None if batch.codes is None else batch.codes[rows])


@pytest.mark.parametrize("text", [*FLAT, *SHAPED])
def test_a_row_does_not_depend_on_its_batch(text: str) -> None:
    data = ready(text).data
    rows = np.array([3, 17, 0, 39, 21])
    together = data.take(rows, epoch=2)
    for i in range(5):
        assert same(data.take(rows[i : i + 1], epoch=2), part(together, slice(i, i + 1)))
    assert same(data.take(rows[::-1].copy(), epoch=2), part(together, slice(None, None, -1)))


@pytest.mark.parametrize("text", [*FLAT, *SHAPED])
def test_epochs_and_seeds_differ_and_repeat(text: str) -> None:
    rows = np.arange(N)
    data, again, other = (ready(text, seed=seed, validation=None).data for seed in (0, 0, 1))
    assert same(data.take(rows, epoch=0), again.take(rows, epoch=0))
    assert not same(data.take(rows, epoch=0), data.take(rows, epoch=1))
    assert not same(data.take(rows, epoch=0), other.take(rows, epoch=0))
    assert same(data.take(rows), part(data, rows))  # without an epoch, there is no augmentation
    batch = data.take(rows, epoch=0)
    assert batch.x.shape == data.x.shape
    assert batch.x.dtype == data.x.dtype


def test_noise() -> None:
    data = prepare((np.tile(X, (50, 1)), np.tile(LABELS, 50)), augment="noise(0.5)").data
    extra = data.take(np.arange(len(data)), epoch=0).x - data.x
    assert abs(extra.std() - 0.5) < 4 * 0.5 / np.sqrt(2 * extra.size)
    assert abs(extra.mean()) < 4 * 0.5 / np.sqrt(extra.size)


def test_mask() -> None:
    data = ready("mask(0.3)").data
    batches = [data.take(np.arange(N), epoch=epoch) for epoch in range(30)]
    hidden = np.mean([(batch.x == 0).mean() for batch in batches])
    unknown = np.mean([(batch.codes == 0).mean() for batch in batches])
    assert abs(hidden - 0.3) < 4 * np.sqrt(0.21 / (30 * N * 5))
    assert abs(unknown - 0.3) < 4 * np.sqrt(0.21 / (30 * N))
    kept = batches[0].x != 0
    np.testing.assert_array_equal(batches[0].x[kept], data.x[kept])


def test_mixup_only_mixes_training_rows() -> None:
    made = prepare((X, LABELS), augment="mixup(1.0)", dtype="float64", validation=0.5)
    data = made.data
    batch = data.take(made.train, epoch=0)
    assert batch.y.shape == (len(made.train), 4)
    np.testing.assert_allclose(batch.y.sum(1), 1, rtol=1e-12)
    own = batch.y[np.arange(len(made.train)), data.y[made.train]]
    assert (own >= 0.5).all()
    for i, row in enumerate(made.train):
        # x − x_row is a multiple of x_other − x_row for one training row.
        step, ways = batch.x[i] - data.x[row], data.x[made.train] - data.x[row]
        length = np.linalg.norm(ways, axis=1)
        with np.errstate(invalid="ignore", divide="ignore"):
            share = (ways @ step) / length**2
        fits = np.abs(step - share[:, None] * ways).max(1) < 1e-9
        assert np.abs(step).max() < 1e-12 or (fits & (share <= 0.5 + 1e-12) & (share >= 0)).any()
    numbers = prepare((X, X[:, 0]), augment="mixup", validation=None).data
    assert numbers.take(np.arange(N), epoch=0).y.shape == (N, 1)


def test_images_are_shifted_flipped_and_cropped() -> None:
    data = ready("shift(2)", validation=None).data
    pictures = data.x.reshape(N, 6, 8, 2)
    moved = data.take(np.arange(N), epoch=0).x.reshape(N, 6, 8, 2)
    padded = np.pad(pictures, ((0, 0), (2, 2), (2, 2), (0, 0)))
    options = [padded[:, i : i + 6, j : j + 8] for i in range(5) for j in range(5)]
    which = [[k for k, option in enumerate(options) if np.array_equal(option[n], moved[n])] for n in range(N)]
    assert all(which)
    assert len({k for found in which for k in found}) > 10

    data = ready("flip", validation=None).data
    flipped = data.take(np.arange(N), epoch=0).x.reshape(N, 6, 8, 2)
    mirrored = [np.array_equal(flipped[n], pictures[n, :, ::-1]) for n in range(N)]
    kept = [np.array_equal(flipped[n], pictures[n]) for n in range(N)]
    assert all(a != b for a, b in zip(mirrored, kept, strict=True))
    assert 5 < sum(mirrored) < 35
    always = ready("flip(1)", validation=None).data.take(np.arange(N), epoch=0)
    np.testing.assert_array_equal(always.x.reshape(N, 6, 8, 2), pictures[:, :, ::-1])

    cropped = ready("crop(3)", validation=None).data.take(np.arange(N), epoch=0).x.reshape(N, 6, 8, 2)
    for n in range(N):
        assert set(cropped[n].ravel().tolist()) <= set(pictures[n].ravel().tolist())
    np.testing.assert_array_equal(ready("crop(0)", validation=None).data.take(np.arange(N), epoch=0).x, data.x)


def test_background_is_black_after_scaling() -> None:
    floats = np.full((N, 4, 4), 5.0)
    floats[:, 1:3, 1:3] = RNG.normal(size=(N, 2, 2))
    made = prepare((floats, LABELS), augment="shift(3)", validation=None, dtype="float64")
    black = -made.encoding.center[0] / made.encoding.scale[0]
    moved = made.data.take(np.arange(N), epoch=0).x
    assert np.isin(moved, [*made.data.x.ravel(), black]).all()
    assert (moved == black).any()


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("shift(1)", r"shift\(1\) needs images, and the rows of this table are not images"),
        ("flip", "flip needs images"),
        ("nois", "unknown augmentation 'nois': did you mean 'noise'"),
        ("noise(-1)", "std must be at least 0"),
        ("mask(1)", "p must be at least 0 and below 1"),
        ("mixup(0)", "alpha must be positive"),
    ],
)
def test_invalid_augmentations_are_rejected(text: str, fault: str) -> None:
    with pytest.raises(OptionError, match=fault):
        prepare(TABLE, target="y", augment=text)


def test_no_augmentation_and_several_names() -> None:
    assert prepare(TABLE, target="y", augment="none").data.augment is None
    assert prepare(TABLE, target="y", augment="").data.augment is None
    a = prepare(TABLE, target="y", augment="noise + mask").data
    b = prepare(TABLE, target="y", augment="noise+mask").data
    assert same(a.take(np.arange(N), epoch=1), b.take(np.arange(N), epoch=1))
    with pytest.raises(
        OptionError, match=r"crop\(6\) needs images with more than 6 rows and columns, got 6 × 8 pixels"
    ):
        ready("crop(6)").data.take(np.arange(2), epoch=0)


def test_images_are_shifted_by_every_distance_up_to_the_maximum() -> None:
    draws = Draws(seed=0, rows=np.arange(500), epoch=0, part=0)
    found = draws.whole(2, -2, 2)
    assert sorted(set(found.ravel().tolist())) == [-2, -1, 0, 1, 2]
