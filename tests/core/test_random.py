"""Random numbers compared with published vectors, with a second implementation in numpy, and with frozen values.

The frozen values must never change. If one of their tests fails, the code is wrong.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from statistics import NormalDist
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from multilayer.core import _core, random
from multilayer.core.random import Purpose
from multilayer.errors import OptionError

EPS = np.finfo(np.float64).eps
LARGEST = (1 << 32) - 1
Draw = Callable[..., np.ndarray[Any, Any]]
DRAWS: dict[str, Draw] = {
    "bits": random.bits,
    "uniform": random.uniform,
    "normal": random.normal,
    "keep": lambda *key, **window: random.keep(*key, **window, p=0.3),
}


# A second implementation, from the paper


def philox(counter: np.ndarray[Any, Any], seed: int) -> np.ndarray[Any, Any]:
    """Philox4x32-10 of counters (..., 4) uint64."""
    c0, c1, c2, c3 = (counter[..., i].astype(np.uint64) for i in range(4))
    low, shift = np.uint64(LARGEST), np.uint64(32)
    for i in range(10):
        k0 = np.uint64((seed + i * 0x9E3779B9) & LARGEST)
        k1 = np.uint64(((seed >> 32) + i * 0xBB67AE85) & LARGEST)
        p0, p1 = np.uint64(0xD2511F53) * c0, np.uint64(0xCD9E8D57) * c2
        c0, c1, c2, c3 = (p1 >> shift) ^ c1 ^ k0, p1 & low, (p0 >> shift) ^ c3 ^ k1, p0 & low
    return np.stack([c0, c1, c2, c3], axis=-1)


def oracle_bits(seed: int, purpose: int, *, rows: Any, units: range, epoch: int, part: int) -> np.ndarray[Any, Any]:
    unit = np.arange(units.start, units.stop, dtype=np.uint64)
    rows = np.asarray(rows, dtype=np.uint64)
    counter = np.empty((len(rows), len(unit), 4), np.uint64)
    counter[..., 0] = unit // 4
    counter[..., 1] = rows[:, None]
    counter[..., 2] = epoch
    counter[..., 3] = (purpose << 24) + part
    which = (unit % 4).astype(np.int64)[None, :, None]
    return np.take_along_axis(philox(counter, seed), which, axis=-1)[..., 0].astype(np.uint32)


def oracle_permutation(n: int, *, seed: int, epoch: int) -> list[int]:
    words = oracle_bits(seed, 2, rows=[0], units=range(2 * n), epoch=epoch, part=0)[0].tolist()
    order = list(range(n))
    for i in range(n):
        j = (words[2 * i] + (words[2 * i + 1] << 32)) * (i + 1) >> 64
        order[i], order[j] = order[j], order[i]
    return order


# The generator


@pytest.mark.parametrize(
    ("counter", "key", "expected"),
    [
        ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
        ((LARGEST,) * 4, (LARGEST,) * 2, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
        (
            (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
            (0xA4093822, 0x299F31D0),
            (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
        ),
    ],
    ids=["zeros", "ones", "pi"],
)
def test_philox_equals_the_vectors_of_random123(
    counter: tuple[int, ...], key: tuple[int, int], expected: tuple[int, ...]
) -> None:
    seed = key[0] + (key[1] << 32)
    assert tuple(_core.philox(counter, seed)) == expected
    assert tuple(philox(np.array(counter, np.uint64), seed).tolist()) == expected


def test_purposes_equal_those_of_the_core_and_never_change() -> None:
    assert {purpose.name.lower(): int(purpose) for purpose in Purpose} == _core.PURPOSES
    assert {purpose.name: int(purpose) for purpose in Purpose} == {
        "INIT": 1,
        "SHUFFLE": 2,
        "DROPOUT": 3,
        "AUGMENT": 4,
        "SPLIT": 5,
        "DATA": 6,
        "DERIVE": 7,
        "MEASURE": 8,
    }


@pytest.mark.parametrize(
    ("rows", "units"),
    [
        ([0], range(1)),
        ([5], range(3, 4)),
        ([0, 1, 2], range(2, 7)),
        ([9, 4, 9], range(129)),
        ([LARGEST, 0], range(1, 4 * 32 + 3)),
        (range(67), range(5, 10)),
        (range(33), range(4)),
        (range(3), range((1 << 34) - 9, 1 << 34)),
        ([], range(4)),
        ([1, 2], range(6, 6)),
    ],
    ids=str,
)
def test_bits_equal_numpy_for_unaligned_ranges(rows: Any, units: range) -> None:
    seed, window = 0x0123456789ABCDEF, {"units": units, "epoch": 77, "part": (1 << 24) - 1}
    rows = np.array(rows, np.int64)
    expected = oracle_bits(seed, Purpose.AUGMENT, rows=rows, **window)
    found = random.bits(seed, Purpose.AUGMENT, rows=rows, **window)
    assert found.dtype == np.uint32
    assert found.shape == (len(rows), len(units))
    np.testing.assert_array_equal(found, expected)


@settings(max_examples=200, deadline=None)
@given(
    seed=st.integers(0, (1 << 64) - 1),
    purpose=st.sampled_from(Purpose),
    epoch=st.integers(0, LARGEST),
    part=st.integers(0, (1 << 24) - 1),
    rows=st.lists(st.integers(0, LARGEST), max_size=12),
    first=st.integers(0, (1 << 34) - 300),
    n=st.integers(0, 300),
)
def test_bits_equal_numpy_for_any_key(
    seed: int, purpose: Purpose, epoch: int, part: int, rows: list[int], first: int, n: int
) -> None:
    window = {"rows": np.array(rows, np.int64), "units": range(first, first + n), "epoch": epoch, "part": part}
    np.testing.assert_array_equal(random.bits(seed, purpose, **window), oracle_bits(seed, purpose, **window))


# Dependence on the key only


@pytest.mark.parametrize("draw", DRAWS.values(), ids=DRAWS)
def test_numbers_do_not_depend_on_how_the_work_is_split(draw: Draw) -> None:
    key = (11, Purpose.DROPOUT)
    whole = draw(*key, rows=50, units=301, epoch=2, part=3)
    order = np.random.default_rng(0).permutation(50)
    np.testing.assert_array_equal(draw(*key, rows=order, units=301, epoch=2, part=3), whole[order])
    cuts = [0, 1, 2, 7, 130, 131, 300, 301]
    pieces = [draw(*key, rows=50, units=range(a, b), epoch=2, part=3) for a, b in pairwise(cuts)]
    np.testing.assert_array_equal(np.concatenate(pieces, axis=1), whole)
    with ThreadPoolExecutor(4) as pool:
        rows = list(pool.map(lambda r: draw(*key, rows=np.array([r]), units=301, epoch=2, part=3), range(50)))
    np.testing.assert_array_equal(np.concatenate(rows), whole)


def test_each_part_of_the_key_changes_every_number() -> None:
    base = {"seed": 1, "purpose": Purpose.INIT, "epoch": 0, "part": 0, "rows": np.array([3]), "units": range(8)}
    changes = {"seed": 1 << 63 | 1, "purpose": Purpose.DATA, "epoch": 1, "part": 1, "rows": np.array([4])}
    changes["units"] = range(8, 16)
    reference = random.bits(**base)
    for name, value in changes.items():
        assert (random.bits(**{**base, name: value}) != reference).all(), name


def test_rows_may_be_any_integer_array() -> None:
    expected = random.bits(1, Purpose.DATA, rows=10, units=5)[::2]
    for dtype in (np.int16, np.uint32, np.int64, np.uint64):
        rows = np.arange(10, dtype=dtype)[::2]  # not contiguous
        np.testing.assert_array_equal(random.bits(1, Purpose.DATA, rows=rows, units=5), expected)


# Distributions


def test_uniform_is_exact() -> None:
    key, window = (5, Purpose.DATA), {"rows": 7, "units": 131}
    words = random.bits(*key, **window)
    np.testing.assert_array_equal(random.uniform(*key, **window), (words.astype(np.float64) + 0.5) / 2**32)


def test_normal_agrees_with_the_standard_library() -> None:
    u = random.uniform(6, Purpose.DATA, rows=1, units=200_000)[0]
    z = random.normal(6, Purpose.DATA, rows=1, units=200_000)[0]
    expected = np.array([NormalDist().inv_cdf(p) for p in u.tolist()])
    # The same approximation with the logarithm of a library, which can differ in the last bit. r = √−log u halves this
    # error, and the two polynomials of the tail increase it to a few units in the last place.
    np.testing.assert_allclose(z, expected, rtol=8 * EPS, atol=0)


def test_normal_inverts_the_distribution_function() -> None:
    u = random.uniform(8, Purpose.DATA, rows=1, units=50_000)[0]
    z = random.normal(8, Purpose.DATA, rows=1, units=50_000)[0]
    lower = u < 0.5  # Φ loses digits for u > 0.5; use −z and 1 − u (exact) there
    p, x = np.where(lower, u, 1 - u), np.where(lower, z, -z)
    phi = np.array([0.5 * math.erfc(-v / math.sqrt(2)) for v in x.tolist()])
    # dΦ/Φ ≤ (z² + 1) dz/z: for |z| < 5, errors of 2 eps in z and in z/√2 give 26 · 4 eps, plus the error of erfc.
    np.testing.assert_allclose(phi, p, rtol=128 * EPS, atol=0)


def test_normal_has_the_moments_and_the_distribution_of_a_normal() -> None:
    n = 1_000_000
    z = random.normal(9, Purpose.DATA, rows=1000, units=1000).ravel()
    # Five standard errors of each: √(1/n), √(2/n), √(6/n), √(24/n).
    assert abs(z.mean()) < 5 * math.sqrt(1 / n)
    assert abs(z.var() - 1) < 5 * math.sqrt(2 / n)
    assert abs((z**3).mean()) < 5 * math.sqrt(15 / n)
    assert abs((z**4).mean() - 3) < 5 * math.sqrt(96 / n)
    # Kolmogorov–Smirnov on a subset: √n D exceeds 2.2 once in 10,000 samples, and this sample is fixed.
    u = np.sort(random.uniform(9, Purpose.DATA, rows=10, units=1000).ravel())
    steps = np.arange(1, u.size + 1) / u.size
    assert math.sqrt(u.size) * np.abs(steps - u).max() < 2.2


def test_rows_and_units_are_uncorrelated() -> None:
    z = random.normal(10, Purpose.DATA, rows=400, units=400)
    between_rows, between_units = np.corrcoef(z), np.corrcoef(z.T)
    off = ~np.eye(400, dtype=bool)
    for correlation in (between_rows[off], between_units[off]):
        assert np.abs(correlation).max() < 6 / math.sqrt(400)  # 6 standard errors for 80,000 pairs
        assert abs(correlation.mean()) < 0.01


@pytest.mark.parametrize("p", [0.0, 1e-12, 0.1, 0.25, 0.5, 0.9, 1 - 2**-33, np.nextafter(1, 0)])
def test_keep_compares_bits_with_the_threshold(p: float) -> None:
    key, window = (3, Purpose.DROPOUT), {"rows": 100, "units": 103, "epoch": 4}
    mask = random.keep(*key, **window, p=p)
    assert mask.dtype == np.uint8
    threshold = math.floor(p * 2**32 + 0.5)
    np.testing.assert_array_equal(mask, random.bits(*key, **window) >= np.uint64(threshold))


def test_keep_with_p_0_is_1_and_a_larger_p_drops_more() -> None:
    masks = [random.keep(3, Purpose.DROPOUT, rows=20, units=50, p=p) for p in (0.0, 0.2, 0.5, 0.8)]
    assert masks[0].all()
    assert all((larger <= smaller).all() for smaller, larger in pairwise(masks))


@pytest.mark.parametrize("n", [0, 1, 2, 3, 63, 64, 65, 1000])
def test_permutation_equals_python(n: int) -> None:
    order = random.permutation(n, seed=12, epoch=5)
    assert order.dtype == np.int64
    assert sorted(order.tolist()) == list(range(n))
    assert order.tolist() == oracle_permutation(n, seed=12, epoch=5)


def test_permutations_of_all_epochs_are_equally_likely() -> None:
    counts: dict[tuple[int, ...], int] = {}
    for epoch in range(24_000):
        order = tuple(random.permutation(4, seed=0, epoch=epoch).tolist())
        counts[order] = counts.get(order, 0) + 1
    assert len(counts) == 24
    chi2 = sum((count - 1000) ** 2 / 1000 for count in counts.values())
    assert chi2 < 58  # 23 degrees of freedom: once in 10,000


def test_derived_seeds_are_different() -> None:
    seeds = [random.derive(1, member) for member in range(1000)]
    assert len({1, *seeds}) == 1001
    assert random.derive(seeds[0], 1) != random.derive(seeds[1], 0)
    first, second = (random.bits(seed, Purpose.INIT, rows=1, units=64) for seed in seeds[:2])
    assert (first != second).all()


# Frozen values

WINDOW: dict[str, Any] = {"rows": np.array([0, 1, 60_000, LARGEST]), "units": range(2, 4), "part": 5}


def hexes(values: np.ndarray[Any, Any]) -> list[str]:
    return [float(v).hex() for v in values.ravel()]


def test_frozen_bits() -> None:
    assert random.bits(7, Purpose.DATA, rows=2, units=3).tolist() == [
        [0x43BF9385, 0xFE88C9A9, 0x36139138],
        [0x45F5C8E4, 0xE29B77CC, 0x1FDE123E],
    ]


def test_frozen_uniform() -> None:
    assert hexes(random.uniform(2024, Purpose.INIT, **WINDOW)) == [
        "0x1.d20d56eb00000p-1",
        "0x1.9eb0bb3800000p-4",
        "0x1.e3765d6d00000p-1",
        "0x1.3bbc7d2800000p-4",
        "0x1.bb0be5b700000p-1",
        "0x1.90fe440400000p-3",
        "0x1.5bd5020100000p-1",
        "0x1.c5b0fae800000p-4",
    ]


def test_frozen_normal() -> None:
    assert hexes(random.normal(2024, Purpose.INIT, **WINDOW)) == [
        "0x1.57a3f691d64a1p+0",
        "-0x1.4645c52c50e4cp+0",
        "0x1.9772f11fecc7ap+0",
        "-0x1.6cca53cc415b2p+0",
        "0x1.1ac48829263bfp+0",
        "-0x1.b6a51e52fe92dp-1",
        "0x1.dd171d0e3d243p-2",
        "-0x1.38f3f66fa9676p+0",
    ]


def test_frozen_normal_of_a_million_numbers() -> None:
    # The exclusive or of a million numbers changes with any rounding, in the center or in a tail.
    words = random.normal(2024, Purpose.INIT, rows=1000, units=1000).view(np.uint64)
    assert int(np.bitwise_xor.reduce(words, axis=None)) == 0x01DA22A08FBE0D4D


def test_frozen_keep() -> None:
    mask = random.keep(2024, Purpose.DROPOUT, rows=WINDOW["rows"], units=12, epoch=3, part=1, p=0.25)
    assert ["".join(map(str, row)) for row in mask.tolist()] == [
        "011111101111",
        "111101111111",
        "111101010111",
        "110110011111",
    ]


def test_frozen_permutation() -> None:
    assert random.permutation(12, seed=(1 << 64) - 1, epoch=3).tolist() == [9, 8, 3, 0, 5, 4, 1, 7, 11, 2, 10, 6]


def test_frozen_derive() -> None:
    assert [random.derive(0, member) for member in (0, 1, LARGEST)] == [
        0x4ACE0DD5574BDA51,
        0xB460707BEFF5033C,
        0x00794E714348D46C,
    ]
    assert random.derive((1 << 64) - 1, 7) == 0xAA344C79C5EA1D9B


# Errors


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"seed": -1}, r"seed must be at least 0 and less than 2\^64, got -1"),
        ({"seed": 1 << 64}, r"seed must be at least 0 and less than 2\^64, got 18446744073709551616"),
        ({"seed": 1.5}, r"seed must be an integer, got 1.5"),
        ({"purpose": 9}, r"unknown purpose '9': .*valid: AUGMENT, DATA, DERIVE"),
        ({"purpose": "drop"}, r"unknown purpose 'drop'"),
        ({"epoch": 1 << 32}, r"epoch must be at least 0 and less than 2\^32, got 4294967296"),
        ({"part": 1 << 24}, r"part must be at least 0 and less than 2\^24, got 16777216"),
        ({"rows": -1}, r"rows must be at least 0 and at most 2\^32, got -1"),
        ({"rows": np.array([3, -7])}, r"row numbers must be at least 0 and less than 2\^32, got -7"),
        ({"rows": np.array([3, 1 << 32])}, r"row numbers must be at least 0 and less than 2\^32, got 4294967296"),
        ({"rows": np.array([3.0])}, r"rows must be a count or a one-dimensional integer array, got float64 of shape"),
        ({"rows": np.zeros((2, 2), int)}, r"got int64 of shape \(2, 2\)"),
        ({"units": -1}, r"units must be at least 0 and at most 2\^34, got -1"),
        ({"units": range(0, 8, 2)}, r"units must be a count or a range of step 1, got range\(0, 8, 2\)"),
        ({"units": range(-1, 3)}, r"units must be at least 0 and at most 2\^34, got -1"),
        ({"units": range((1 << 34) + 1)}, r"units must be at least 0 and at most 2\^34, got 17179869185"),
    ],
)
@pytest.mark.parametrize("draw", DRAWS.values(), ids=DRAWS)
def test_errors_state_the_requirement_and_the_value(draw: Draw, change: dict[str, Any], message: str) -> None:
    arguments = {"seed": 1, "purpose": Purpose.DATA, "rows": 2, "units": 2, **change}
    with pytest.raises(OptionError, match=message):
        draw(arguments.pop("seed"), arguments.pop("purpose"), **arguments)


@pytest.mark.parametrize("p", [-0.1, 1.0, math.nan])
def test_keep_with_an_invalid_probability_is_an_error(p: float) -> None:
    with pytest.raises(OptionError, match=f"p must be at least 0 and less than 1, got {p}"):
        random.keep(1, Purpose.DROPOUT, rows=1, units=1, p=p)


def test_permutation_and_derive_check_their_numbers() -> None:
    with pytest.raises(OptionError, match=r"n must be at least 0 and at most 2\^33, got -1"):
        random.permutation(-1, seed=0, epoch=0)
    with pytest.raises(OptionError, match=r"member must be at least 0 and less than 2\^32, got -1"):
        random.derive(0, -1)
