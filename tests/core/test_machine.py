"""Detection of the machine, microbenchmarks compared with numpy, and the cache of the measurements."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from multilayer.core import _core, machine
from multilayer.errors import OptionError

EPS = float(np.finfo(np.float32).eps)
BLOCK = 256


# Detection


def test_too_little_memory_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "physical_memory", lambda: 8 << 30)
    machine.require_memory(8 << 30, "it")
    with pytest.raises(
        OptionError, match=r"^it needs 1,024\.0 GiB of memory, and this machine has 8\.0 GiB: use a smaller"
    ):
        machine.require_memory(1 << 40, "it")


if Path("/proc/cpuinfo").exists() and "neon" not in machine.instruction_sets():  # Linux on x86

    def test_instruction_sets_equal_those_of_the_kernel() -> None:
        sets = machine.instruction_sets()
        flags = set(Path("/proc/cpuinfo").read_text().split("flags", 1)[1].splitlines()[0].split())
        assert set(sets) <= flags | {"sse3"}  # the kernel calls sse3 "pni"
        assert "sse2" in sets
        assert all((name in sets) == (name in flags) for name in ("avx", "fma", "avx2", "avx512f", "avx512_bf16"))


def test_the_baseline_always_runs_and_comes_first() -> None:
    assert next(iter(_core.microbenchmarks())) == "baseline"


if hasattr(os, "sched_getaffinity"):

    def test_threads_follow_the_affinity(monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.delenv("MULTILAYER_THREADS", raising=False)
        assert 1 <= machine.threads() <= len(os.sched_getaffinity(0))
        one = min(os.sched_getaffinity(0))
        code = f"import os; os.sched_setaffinity(0, {{{one}}})\n"
        code += "from multilayer.core import machine; print(machine.threads())"
        found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        assert found.stdout.strip() == "1"


def test_the_environment_sets_the_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MULTILAYER_THREADS", "7")
    assert machine.threads() == 7
    monkeypatch.setenv("MULTILAYER_THREADS", "")
    assert machine.threads() >= 1


@pytest.mark.parametrize("text", ["0", "-1", "two", "2.5", "1025", "99999999999999999999", "2 "])
def test_an_invalid_environment_is_an_error(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setenv("MULTILAYER_THREADS", text)
    with pytest.raises(OptionError, match=f"MULTILAYER_THREADS must be an integer from 1 to 1024, got '{text}'"):
        machine.threads()


@pytest.mark.parametrize(
    ("files", "quota"),
    [
        ({}, math.inf),
        ({"proc/self/cgroup": "0::/\n"}, math.inf),
        ({"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "max 100000\n"}, math.inf),
        ({"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "150000 100000\n"}, 1.5),
        ({"proc/self/cgroup": "0::/a/b\n", "sys/fs/cgroup/a/b/cpu.max": "400000 100000\n"}, 4.0),
        (
            {
                "proc/self/cgroup": "0::/a/b\n",
                "sys/fs/cgroup/a/cpu.max": "200000 100000\n",
                "sys/fs/cgroup/a/b/cpu.max": "max 100000\n",
            },
            2.0,
        ),
        (
            {
                "proc/self/cgroup": "12:cpuset:/x\n4:cpu,cpuacct:/job\n0::/\n",
                "sys/fs/cgroup/cpu/job/cpu.cfs_quota_us": "50000\n",
                "sys/fs/cgroup/cpu/job/cpu.cfs_period_us": "100000\n",
            },
            0.5,
        ),
        (
            {
                "proc/self/cgroup": "4:cpu,cpuacct:/job\n",
                "sys/fs/cgroup/cpu/job/cpu.cfs_quota_us": "-1\n",
                "sys/fs/cgroup/cpu/job/cpu.cfs_period_us": "100000\n",
            },
            math.inf,
        ),
        ({"proc/self/cgroup": "nonsense\n:\n", "sys/fs/cgroup/cpu.max": "1 1"}, math.inf),
    ],
)
def test_the_quota_is_the_smallest_of_the_control_groups(tmp_path: Path, files: dict[str, str], quota: float) -> None:
    for name, content in files.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    assert _core.cpu_quota(str(tmp_path)) == quota


def test_outer_caches_are_larger() -> None:
    sizes = [cache.size for cache in machine.caches()]
    assert sizes == sorted(sizes)
    assert all(cache.shared_by >= 1 for cache in machine.caches())


def test_an_import_does_not_measure() -> None:
    code = (
        "import multilayer.core._core as core\n"
        "core.matrix_peak = core.read_bandwidth = core.triad_bandwidth = None\n"
        "import multilayer.core.machine, sys; assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


# Microbenchmarks


@pytest.mark.parametrize("name", _core.microbenchmarks())
@pytest.mark.parametrize("depth", [0, 1, 2, 7, 128, 1001])
def test_tile_is_a_matrix_product(name: str, depth: int) -> None:
    rows, columns = _core.microbenchmarks()[name]
    generator = np.random.default_rng(depth)
    a = generator.uniform(-1, 1, (depth, rows)).astype(np.float32)
    b = generator.uniform(-1, 1, (depth, columns)).astype(np.float32)
    exact = a.astype(np.float64).T @ b
    # A sum of K products in order, each rounded once or twice: at most (K + 1) eps/2 of Σ|a||b|.
    bound = (depth + 1) * EPS / 2 * (np.abs(a).astype(np.float64).T @ np.abs(b))
    assert (np.abs(_core.microbenchmark_tile(name, a, b) - exact) <= bound).all()


@pytest.mark.parametrize("name", _core.microbenchmarks())
@pytest.mark.parametrize("n", [0, BLOCK, 5 * BLOCK])
def test_sum_reads_every_number_once(name: str, n: int) -> None:
    x = np.arange(n, dtype=np.float32)  # small integers: every order of addition is exact
    partial = _core.microbenchmark_sum(name, x)
    np.testing.assert_array_equal(partial, x.reshape(-1, partial.size).sum(axis=0))


@pytest.mark.parametrize("name", _core.microbenchmarks())
@pytest.mark.parametrize("n", [0, BLOCK, 5 * BLOCK])
def test_triad_writes_every_number(name: str, n: int) -> None:
    x, z = np.arange(n, dtype=np.float32), np.arange(n, dtype=np.float32)[::-1].copy()
    np.testing.assert_array_equal(_core.microbenchmark_triad(name, x, z, 0.5), x + np.float32(0.5) * z)


def test_rates_are_positive_with_one_thread_and_with_too_many() -> None:
    for n in (1, machine.threads() + 1):
        assert _core.matrix_peak(n, 0.0) > 0
        assert _core.read_bandwidth(1 << 16, n, 0.0) > 0
        assert _core.triad_bandwidth(1 << 16, n, 0.0) > 0


@pytest.mark.parametrize(
    ("rate", "arguments", "message"),
    [
        ("matrix_peak", (0, 0.1), "threads must be from 1 to 1024, got 0"),
        ("matrix_peak", (1025, 0.1), "threads must be from 1 to 1024, got 1025"),
        ("matrix_peak", (1, -1.0), "seconds must be from 0 to 60, got -1"),
        ("matrix_peak", (1, math.nan), "seconds must be from 0 to 60, got .*nan"),
        ("read_bandwidth", (2047, 2, 0.1), "bytes must be at least 2048 for 2 threads, got 2047"),
        ("triad_bandwidth", (3071, 1, 0.1), "bytes must be at least 3072 for 1 threads, got 3071"),
        (
            "microbenchmark_tile",
            ("none", np.zeros((1, 1), np.float32), np.zeros((1, 1), np.float32)),
            "no microbenchmark named 'none'",
        ),
        (
            "microbenchmark_tile",
            ("baseline", np.zeros((1, 1), np.float32), np.zeros((1, 1), np.float32)),
            "panels must be",
        ),
        ("microbenchmark_sum", ("baseline", np.zeros(3, np.float32)), "the length must be a multiple of 256, got 3"),
    ],
)
def test_invalid_arguments_of_the_core_are_errors(rate: str, arguments: tuple[Any, ...], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        getattr(_core, rate)(*arguments)


# Measurements and their cache

FIGURES = machine.Machine(
    processor="a processor",
    instruction_sets=("sse2",),
    threads=4,
    caches=(
        machine.Cache(level="L1", size=1000, shared_by=1),
        machine.Cache(level="L3", size=50_000, shared_by=4),
    ),
    matrix_peak=((1, 100.0), (2, 200.0), (4, 300.0)),
    bandwidths=tuple(
        machine.Bandwidth(level=level, threads=n, working_set=1, read=1.0, triad=rate * n)
        for n in (1, 4)
        for level, rate in (("L1", 80.0), ("L3", 20.0), ("DRAM", 5.0))
    ),
    quick=False,
)


def test_peak_is_interpolated_between_measurements() -> None:
    assert [FIGURES.peak(n) for n in (1, 2, 3, 4, 9)] == [100.0, 200.0, 250.0, 300.0, 300.0]


def test_bandwidth_is_that_of_the_innermost_level_with_enough_capacity() -> None:
    assert FIGURES.bandwidth(1000, threads=1) == 80.0
    assert FIGURES.bandwidth(1001, threads=1) == 20.0
    assert FIGURES.bandwidth(4000, threads=4) == 320.0  # four caches of the first level
    assert FIGURES.bandwidth(50_001, threads=4) == 20.0  # one cache of the last level: DRAM with four threads
    assert replace(FIGURES, caches=()).bandwidth(1 << 40, threads=1) == 5.0


@pytest.fixture
def figures(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[bool]:
    """Set an empty cache and a fast measurement. The list contains an entry per measurement."""
    calls: list[bool] = []

    def pretend(*, quick: bool) -> machine.Machine:
        calls.append(quick)
        here = {"processor": machine.processor(), "instruction_sets": machine.instruction_sets()}
        return replace(FIGURES, **here, threads=machine.threads(), caches=machine.caches(), quick=quick)

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(machine, "_measure", pretend)
    return calls


def test_a_quick_measurement_is_complete(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    found = machine.measure(quick=True)
    assert found.processor
    assert found.instruction_sets == machine.instruction_sets()
    assert found.matrix_peak[0][0] == 1
    assert found.matrix_peak[-1][0] == found.threads == machine.threads()
    levels = [cache.level for cache in found.caches or machine._ASSUMED] + ["DRAM"]
    assert {(b.level, b.threads) for b in found.bandwidths} == {(x, n) for x in levels for n in {1, found.threads}}
    assert all(math.isfinite(rate) and rate > 0 for _, rate in found.matrix_peak)
    assert all(b.read > 0 and b.triad > 0 for b in found.bandwidths)
    assert machine.measure(quick=True) == found  # from the file, bit-identical


def test_measured_once(figures: list[bool]) -> None:
    first = machine.measure()
    assert machine.measure() == first
    assert machine.measure(quick=True) == first  # the longer measurement is used for both
    assert figures == [False]
    machine.measure(fresh=True)
    assert figures == [False, False]


def test_a_quick_measurement_is_not_used_for_a_longer_one(figures: list[bool]) -> None:
    machine.measure(quick=True)
    assert not machine.measure().quick
    assert figures == [True, False]


def test_another_machine_is_measured_again(figures: list[bool], monkeypatch: pytest.MonkeyPatch) -> None:
    machine.measure()
    monkeypatch.setattr(machine, "processor", lambda: "another")
    assert machine.measure().processor == "another"
    monkeypatch.setenv("MULTILAYER_THREADS", "3")
    assert machine.measure().threads == 3
    monkeypatch.setattr(_core, "__version__", "99")
    machine.measure()
    assert len(figures) == 4


@pytest.mark.parametrize(
    "content",
    ["", "{", "[]", "null", '{"format": 1}', "[" * 100_000, "\udc80", '{"format": 1, "core": "CORE", "machine": {}}'],
    ids=["empty", "torn", "list", "null", "short", "deep", "not text", "no figures"],
)
def test_a_corrupt_cache_is_ignored(figures: list[bool], tmp_path: Path, content: str) -> None:
    path = tmp_path / "multilayer" / "machine.json"
    path.parent.mkdir()
    path.write_bytes(content.replace("CORE", _core.__version__).encode("utf-8", "surrogateescape"))
    first = machine.measure()
    assert machine.measure() == first
    assert figures == [False]


@pytest.mark.parametrize("rate", [0.0, -1.0, math.nan, math.inf, "fast", None])
def test_impossible_rates_in_the_cache_are_ignored(figures: list[bool], tmp_path: Path, rate: Any) -> None:
    machine.measure()
    path = tmp_path / "multilayer" / "machine.json"
    content = json.loads(path.read_text())
    content["machine"]["matrix_peak"][0][1] = rate
    path.write_text(json.dumps(content))
    machine.measure()
    assert figures == [False, False]


def test_a_cache_that_cannot_be_written_is_ignored(figures: list[bool], tmp_path: Path) -> None:
    (tmp_path / "multilayer").write_text("a file where the folder should be")
    assert machine.measure() == machine.measure()
    assert figures == [False, False]


def test_a_failed_write_leaves_no_file(figures: list[bool], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise OSError("disk full")

    monkeypatch.setattr(os, "replace", fail)
    machine.measure()
    assert list((tmp_path / "multilayer").iterdir()) == []
    assert figures == [False]


def test_a_relative_cache_folder_is_ignored(
    figures: list[bool], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    machine.measure()
    assert not (tmp_path / "relative").exists()
    assert (tmp_path / "home" / ".cache" / "multilayer" / "machine.json").exists()
    assert figures == [False]
