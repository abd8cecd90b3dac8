"""Measurements of this machine: peak of float32 matrix products, bandwidth of each memory level, instruction sets.

In the roofline model, F FLOPs over Q bytes take at least

    t ≥ max(F / peak, Q / bandwidth)

`peak` is the rate of a register-tiled product with operands in cache. Real products are somewhat slower. `bandwidth` is
measured with working sets of half a cache (for DRAM, four times the last cache), by a sum (read) and by y = x + s·z
(triad, counted as two reads and one write). Each rate is the best of many short rounds, because other processes can
only reduce it.

A measurement takes one or two seconds. The result is saved in the cache folder of the user, and measured again if the
processor, its instruction sets, the number of threads or the compiled core changes. A cache that cannot be read or
written is ignored. Not included: accelerators, which torch describes, and clock frequencies.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import platform
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np

from ..errors import OptionError, StorageError
from . import _core, atomic_files

_FORMAT = 1  # of the cached file; increase it if the measurements change


@dataclass(frozen=True, kw_only=True)
class Cache:
    """One level of cache: its size in bytes, and the number of CPUs that share it."""

    level: str
    size: int
    shared_by: int


# Used if the system does not report its caches: the smallest sizes of recent processors.
_ASSUMED = (
    Cache(level="L1", size=32 << 10, shared_by=1),
    Cache(level="L2", size=256 << 10, shared_by=1),
    Cache(level="L3", size=8 << 20, shared_by=4),
)


@dataclass(frozen=True, kw_only=True)
class Bandwidth:
    """Bandwidth in GB/s (10⁹ bytes), summed over all threads, which share the working set."""

    level: str
    threads: int
    working_set: int
    read: float
    triad: float


@dataclass(frozen=True, kw_only=True)
class Machine:
    """The results of `measure`. `matrix_peak` contains pairs (threads, GFLOP/s)."""

    processor: str
    instruction_sets: tuple[str, ...]
    threads: int
    caches: tuple[Cache, ...]
    matrix_peak: tuple[tuple[int, float], ...]
    bandwidths: tuple[Bandwidth, ...]
    quick: bool

    def peak(self, threads: int) -> float:
        """Return the GFLOP/s of float32 matrix products. Between measured numbers of threads, interpolate linearly."""
        return _between(self.matrix_peak, threads)

    def bandwidth(self, working_set: int, *, threads: int) -> float:
        """Return the GB/s (triad) of the innermost memory level that can contain the working set of all threads."""
        levels = self.caches or _ASSUMED
        level = next((c.level for c in levels if working_set <= _capacity(c, threads)), "DRAM")
        return _between([(b.threads, b.triad) for b in self.bandwidths if b.level == level], threads)


def measure(*, quick: bool = False, fresh: bool = False) -> Machine:
    """Measure this machine, or return the cached measurements.

    `quick` measures for a fifth of the time, with one thread and with all threads only. Its results have more noise.
    `fresh` ignores the cache.
    """
    known = None if fresh else load_measured()
    if known is not None and known.quick <= quick:
        return known
    machine = _measure(quick=quick)
    _save(machine)
    return machine


def instruction_sets() -> tuple[str, ...]:
    """Return the instruction sets that the processor and the operating system support, the oldest first."""
    return tuple(_core.instruction_sets())


def threads() -> int:
    """Return the number of threads to start: MULTILAYER_THREADS, or else the CPUs that this process may use."""
    try:
        return _core.usable_threads()
    except ValueError as error:
        raise OptionError(str(error)) from None


def processor() -> str:
    """Return the name of the processor, or of its architecture if the system does not report the name."""
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines():
            key, _, value = line.partition(":")
            if key.strip() == "model name":
                return " ".join(value.split())
    return platform.processor() or platform.machine()


def caches() -> tuple[Cache, ...]:
    """Return the data caches of the first CPU, the innermost first. Empty if the system does not report them."""
    folder = Path("/sys/devices/system/cpu/cpu0/cache")
    found: dict[str, Cache] = {}
    with contextlib.suppress(OSError, ValueError):
        for index in sorted(folder.glob("index*")):
            kind, level, size, sharers = (
                (index / name).read_text().strip() for name in ("type", "level", "size", "shared_cpu_list")
            )
            if kind != "Instruction":
                bytes_ = int(size.removesuffix("K")) * 1024
                found[f"L{level}"] = Cache(level=f"L{level}", size=bytes_, shared_by=_count_cpus(sharers))
    return tuple(found[level] for level in sorted(found))


def _count_cpus(ranges: str) -> int:
    """Return the number of CPUs in a list such as 0-3,8-11."""
    ends = [tuple(map(int, part.split("-"))) for part in ranges.split(",")]
    return sum(pair[-1] - pair[0] + 1 for pair in ends)


def _capacity(cache: Cache, n_threads: int) -> int:
    """Return the total size of a cache level for threads on different cores."""
    return cache.size * math.ceil(n_threads / cache.shared_by)


def _between(points: Sequence[tuple[int, float]], n_threads: int) -> float:
    return float(np.interp(n_threads, [n for n, _ in points], [rate for _, rate in points]))


# Measurements


def _measure(*, quick: bool) -> Machine:
    seconds = 0.02 if quick else 0.1
    n_threads = threads()
    known = caches()
    counts = sorted({1, n_threads}) if quick else _thread_counts(n_threads)
    return Machine(
        processor=processor(),
        instruction_sets=instruction_sets(),
        threads=n_threads,
        caches=known,
        matrix_peak=tuple((n, _core.matrix_peak(n, 2 * seconds)) for n in counts),
        bandwidths=tuple(
            Bandwidth(
                level=level,
                threads=n,
                working_set=size,
                read=_core.read_bandwidth(size, n, seconds),
                triad=_core.triad_bandwidth(size, n, seconds),
            )
            for n in counts
            for level, size in _working_sets(known or _ASSUMED, n)
        ),
        quick=quick,
    )


def _thread_counts(most: int) -> list[int]:
    """Return 1, 2, 4, … and the largest number of threads.

    >>> _thread_counts(6)
    [1, 2, 4, 6]
    """
    return [*(1 << i for i in range(most.bit_length()) if 1 << i < most), most]


def _working_sets(levels: tuple[Cache, ...], n_threads: int) -> Iterator[tuple[str, int]]:
    for cache in levels:
        yield cache.level, _capacity(cache, n_threads) // 2
    # DRAM: much larger than the last cache, but a small part of the memory.
    size = max(64 << 20, 4 * _capacity(levels[-1], n_threads))
    yield "DRAM", min(size, physical_memory() // 8)


def physical_memory() -> int:
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):  # a system without sysconf, or without these names
        return 4 << 30


def available_memory() -> int:
    """Return the bytes that this process can still allocate: the free memory of the system, within the limits of the
    control group and of `ulimit -v`."""
    found = [physical_memory()]
    with contextlib.suppress(OSError, ValueError, IndexError):
        lines = Path("/proc/meminfo").read_text(encoding="utf-8").splitlines()
        found += [1024 * int(line.split()[1]) for line in lines if line.startswith("MemAvailable:")]
    with contextlib.suppress(OSError, ValueError):  # "max" means no limit, and is not a number
        group = Path("/sys/fs/cgroup")
        limit = int((group / "memory.max").read_text(encoding="utf-8"))
        found.append(limit - int((group / "memory.current").read_text(encoding="utf-8")))
    with contextlib.suppress(ImportError, OSError, ValueError):
        import resource

        limit = resource.getrlimit(resource.RLIMIT_AS)[0]
        if limit != resource.RLIM_INFINITY:
            pages = int(Path("/proc/self/statm").read_text(encoding="utf-8").split()[0])
            found.append(limit - pages * resource.getpagesize())
    return max(0, min(found))


def require_memory(needed: int, what: str) -> None:
    """Raise an error if this machine has less memory than needed. Call it before the allocation."""
    available = physical_memory()
    if needed > available:
        raise OptionError(
            f"{what} needs {needed / 2**30:,.1f} GiB of memory, and this machine has {available / 2**30:,.1f} GiB: "
            "use a smaller network or batch, or a machine with more memory"
        )


# The cache


def _cache_file() -> Path:
    base = os.environ.get("XDG_CACHE_HOME", "")
    # The XDG base directory specification says that a relative folder must be ignored.
    root = Path(base) if os.path.isabs(base) else Path.home() / ".cache"
    return root / "multilayer" / "machine.json"


def load_measured() -> Machine | None:
    """Return the cached measurements if they are valid and of this machine."""
    try:
        found = json.loads(_cache_file().read_text(encoding="utf-8"))
        if (found["format"], found["core"]) != (_FORMAT, _core.__version__):
            return None
        machine = _from_json(found["machine"])
    except (OSError, RuntimeError, ValueError, TypeError, KeyError, RecursionError):
        return None
    here = (processor(), instruction_sets(), threads(), caches())
    return machine if (machine.processor, machine.instruction_sets, machine.threads, machine.caches) == here else None


def _from_json(data: dict[str, Any]) -> Machine:
    machine = Machine(
        processor=data["processor"],
        instruction_sets=tuple(data["instruction_sets"]),
        threads=data["threads"],
        caches=tuple(Cache(**cache) for cache in data["caches"]),
        matrix_peak=tuple((n, rate) for n, rate in data["matrix_peak"]),
        bandwidths=tuple(Bandwidth(**bandwidth) for bandwidth in data["bandwidths"]),
        quick=data["quick"],
    )
    rates = [rate for _, rate in machine.matrix_peak] + [r for b in machine.bandwidths for r in (b.read, b.triad)]
    if not rates or not all(math.isfinite(rate) and rate > 0 for rate in rates):
        raise ValueError("rates must be positive")
    return machine


def _save(machine: Machine) -> None:
    remember("machine.json", {"format": _FORMAT, "core": _core.__version__, "machine": asdict(machine)})


def remembered(name: str) -> dict[str, Any] | None:
    """Return the data that `remember` saved in the cache folder, or None if it does not exist or is invalid."""
    try:
        found = json.loads(_cache_file().with_name(name).read_text(encoding="utf-8"))
    except (OSError, RuntimeError, ValueError, RecursionError):
        return None
    return cast("dict[str, Any]", found) if isinstance(found, dict) else None


def remember(name: str, data: dict[str, Any]) -> None:
    """Save data in the cache folder. If the folder cannot be written, do nothing."""
    content = json.dumps(data, indent=1).encode()
    with contextlib.suppress(
        OSError, RuntimeError, StorageError
    ):  # no home or no writable folder: measure again next time
        target = _cache_file().with_name(name)
        target.parent.mkdir(parents=True, exist_ok=True)
        atomic_files.write(target, content)
