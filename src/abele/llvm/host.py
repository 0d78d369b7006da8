"""The CPU that native code is generated for."""

from __future__ import annotations

import math
import os
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import cache, wraps
from pathlib import Path
from typing import TypeVar

import llvmlite.binding as binding

from abele.errors import nearest
from abele.llvm.cpus import ARM_CPUS, X86_CPUS, HostCpu, cpu_named, plain_cpu

VARIABLE = "ABELE_CPU"
"""Environment variable with a lesser CPU by LLVM's name, such as ``haswell``: code is made for that."""

LINE_BYTES = 64
"""Bytes of a cache line on x86-64 and most AArch64 hosts; on others some code is a little slower."""

Result = TypeVar("Result")

_elsewhere: list[HostCpu] = []
"""CPUs that code is made for in place of this process's, the last one counts."""


def host_cpu() -> HostCpu:
    """The CPU that code is made for: this machine's, the lesser one that ``$ABELE_CPU`` names, or that of
    :func:`code_for`."""
    return _elsewhere[-1] if _elsewhere else own_cpu()


@cache
def own_cpu() -> HostCpu:
    """The CPU that code of this process runs on: this machine's, or the lesser one that ``$ABELE_CPU`` names."""
    here = _this_cpu()
    wanted = os.environ.get(VARIABLE)
    if not wanted or wanted == here.name:
        return here
    lesser = cpu_named(wanted)
    names = X86_CPUS if here.is_x86 else ARM_CPUS
    if lesser is None:
        close = nearest(wanted, [here.name, *names])
        reason = f"it is no CPU that is known here{f'; {close!r} is' if close else ''}"
    elif wanted not in names:
        reason = f"this machine's {here.name} is of another kind"
    elif missing := lesser.features - here.features:
        reason = f"this machine's {here.name} has no {', '.join(sorted(missing)[:4])}"
    else:
        return replace(lesser, triple=here.triple, lacks=(here.features | here.lacks) - lesser.features)
    warnings.warn(f"{VARIABLE}={wanted} changes nothing: {reason}", RuntimeWarning, stacklevel=2)
    return here


@contextmanager
def code_for(cpu: HostCpu) -> Iterator[None]:
    """Make code for another CPU within the block, in all threads.

    It is made as for this machine, and never run: plans hold numbers in place of addresses, which
    :func:`abele.llvm.jit.foreign_symbol` knows. Nothing is measured.
    """
    _elsewhere.append(cpu)
    try:
        yield
    finally:
        _elsewhere.pop()


def is_elsewhere() -> bool:
    """True within :func:`code_for`."""
    return bool(_elsewhere)


def per_cpu(make: Callable[..., Result]) -> Callable[..., Result]:
    """As :func:`functools.cache`, with results of their own for every CPU that code is made for."""
    known: dict[object, Result] = {}

    @wraps(make)
    def found(*args: object, **named: object) -> Result:
        key = host_cpu(), args, tuple(named.items())
        if key not in known:
            known[key] = make(*args, **named)
        return known[key]

    return found


@cache
def _this_cpu() -> HostCpu:
    """The CPU of this machine; the least of its kind where LLVM does not list what it has."""
    triple, name = binding.get_process_triple(), binding.get_host_cpu_name()
    plain = plain_cpu(triple)
    try:
        listed = dict(binding.get_host_cpu_features())
    except RuntimeError:  # not on every system
        listed = {}
    if not listed:
        # A virtual machine may have less than the name promises, but on Arm, where vectors are the same on all.
        return plain if plain.is_x86 else replace(plain, name=name or plain.name)
    features = frozenset(feature for feature, there in listed.items() if there)
    return HostCpu(name or plain.name, triple, plain.features | features, frozenset(listed) - features - plain.features)


def cache_bytes() -> tuple[int, int]:
    """First-level data cache and second-level cache of a core; common sizes where the system does not say."""
    sizes = {level: found.bytes for level, found in _caches().items()}
    return sizes.get(1, 32 << 10), sizes.get(2, 512 << 10)


def last_cache_bytes() -> int:
    """The third-level cache, which cores share; a common size where the system does not say."""
    return _caches().get(3, _Cache(32 << 20, 16)).bytes


def near_cache_ways() -> int:
    """Lines that the first-level data cache has at each place; a common number where the system does not say."""
    return _caches().get(1, _Cache(0, 8)).ways


@dataclass(frozen=True)
class _Cache:
    """Data cache: its bytes, and its ways."""

    bytes: int
    ways: int


@cache
def _caches() -> dict[int, _Cache]:
    """Data caches listed by the system, by level."""
    found: dict[int, _Cache] = {}
    names = ("level", "type", "size", "ways_of_associativity")
    for index in sorted(Path("/sys/devices/system/cpu/cpu0/cache").glob("index*")):
        try:
            level, kind, size, ways = ((index / name).read_text().strip() for name in names)
        except OSError:
            continue
        if kind != "Instruction" and size.endswith("K"):
            # Caches without places of their own for each line say 0.
            found[int(level)] = _Cache(int(size[:-1]) << 10, max(1, int(ways)))
    return found


def num_threads() -> int:
    """Hardware threads of this process: cores that it may run on, or fewer under the quota of a container."""
    there = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(there, quota_threads() or there)


def quota_threads(root: Path = Path("/")) -> int | None:
    """Threads that the processor time of this process's control group lasts for, rounded up; None without a limit.

    The least quota of the group and those around it counts. In a container the group's path may be the host's, of which
    only the last part is there to see; the root of the mount then stands for it.

    Args:
        root: Root of the file system.

    Source: Linux, Documentation/admin-guide/cgroup-v2.rst (``cpu.max``), Documentation/scheduler/sched-bwc.rst.
    """
    try:
        lines = (root / "proc/self/cgroup").read_text().splitlines()
    except (OSError, UnicodeDecodeError):
        return None
    mount, quotas = root / "sys/fs/cgroup", []
    for line in lines:
        _, controllers, path = (*line.split(":", 2), "", "")[:3]
        # Version 2 has one tree for all controllers, version 1 one each; some systems have both.
        trees = [mount, mount / "unified"] if not controllers else [mount / controllers, mount / "cpu"]
        if not controllers or "cpu" in controllers.split(","):
            group = Path(path.lstrip("/"))
            groups = [tree / part for tree in trees for part in (group, *group.parents)]
            quotas += [quota for folder in groups if (quota := _quota(folder)) is not None]
    return max(1, math.ceil(min(quotas))) if quotas else None


def _quota(group: Path) -> float | None:
    """Processor seconds per second of a control group; None where it has no limit of its own."""
    for names in (("cpu.max",), ("cpu.cfs_quota_us", "cpu.cfs_period_us")):
        with suppress(OSError, ValueError):
            quota, period = " ".join((group / name).read_text() for name in names).split()
            # Without a limit the quota is "max", or -1.
            if quota != "max" and int(quota) > 0 and int(period) > 0:
                return int(quota) / int(period)
    return None
