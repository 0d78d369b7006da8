"""The CPU that native code is generated for."""

from __future__ import annotations

import os
import warnings
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import llvmlite.binding as binding

from abele.errors import nearest

VARIABLE = "ABELE_CPU"
"""Environment variable with a lesser CPU by LLVM's name, such as ``haswell``: code is made for that."""


@dataclass(frozen=True)
class HostCpu:
    """Facts about this machine that code generation needs.

    Attributes:
        name: LLVM's name of the CPU.
        triple: LLVM's target triple.
        features: Features that are there, by LLVM's names.
        vector_bytes: Width of the widest vector registers that pay off.
    """

    name: str
    triple: str
    features: frozenset[str]
    vector_bytes: int

    @property
    def is_x86(self) -> bool:
        """True if this is an x86-64 CPU; otherwise it is taken for AArch64."""
        return self.triple.startswith(("x86_64", "amd64", "i686"))

    @property
    def is_aarch64(self) -> bool:
        """True if this is a 64-bit Arm CPU."""
        return self.triple.startswith(("aarch64", "arm64"))

    @property
    def converts_half(self) -> bool:
        """True if instructions convert between f16 and f32."""
        return self.is_aarch64 or "f16c" in self.features

    @property
    def cuts_to_half(self) -> bool:
        """True if an instruction of x86 converts f32 to f16 in any rounding mode, such as towards zero."""
        return not self.is_aarch64 and "f16c" in self.features

    @property
    def multiplies_bf16_pairs(self) -> bool:
        """True if an instruction adds up products of pairs of bf16 in vectors of 512 bits."""
        return "avx512bf16" in self.features

    @property
    def feature_string(self) -> str:
        """Features as LLVM takes them. Vectors of 512 bits are used where there are any: LLVM shuns them on some CPUs
        although they are faster on streaming loops."""
        names = [f"+{name}" for name in sorted(self.features)]
        if "avx512f" in self.features:
            names += ["-prefer-256-bit", "-prefer-128-bit"]
        return ",".join(names)


@cache
def host_cpu() -> HostCpu:
    """The CPU that code of this process is for: this machine's, or the lesser one that ``$ABELE_CPU`` names."""
    here = _this_cpu()
    wanted = os.environ.get(VARIABLE)
    if not wanted or wanted == here.name:
        return here
    lesser = cpu_named(wanted) if here.is_x86 else None
    if lesser is None:
        close = nearest(wanted, [here.name, *_GENERATIONS] if here.is_x86 else [here.name])
        reason = f"it is no CPU that is known here{f'; {close!r} is' if close else ''}"
    elif missing := lesser.features - here.features:
        reason = f"this machine's {here.name} has no {', '.join(sorted(missing)[:4])}"
    else:
        return replace(lesser, triple=here.triple)
    warnings.warn(f"{VARIABLE}={wanted} changes nothing: {reason}", RuntimeWarning, stacklevel=2)
    return here


def cpu_named(name: str) -> HostCpu | None:
    """The CPU of x86-64 that LLVM calls ``name``; None if it is not known."""
    if name not in _GENERATIONS:
        return None
    features: set[str] = set()
    before: str | None = name
    while before is not None:
        before, added = _GENERATIONS[before]
        features.update(added.split())
    return HostCpu(name, "x86_64-unknown-linux-gnu", frozenset(features), _vector_bytes(frozenset(features)))


@cache
def _this_cpu() -> HostCpu:
    """The CPU of this machine."""
    try:
        features = frozenset(name for name, there in binding.get_host_cpu_features().items() if there)
    except RuntimeError:  # LLVM cannot list them on every system; the CPU name then implies them
        features = frozenset()
    triple = binding.get_process_triple()
    return HostCpu(binding.get_host_cpu_name(), triple, features, _vector_bytes(features))


_V2 = "cx8 cmov fxsr mmx sse sse2 64bit cx16 sahf popcnt sse3 ssse3 sse4.1 sse4.2 crc32"
_V3 = "xsave avx avx2 bmi bmi2 f16c fma lzcnt movbe"
_V4 = "avx512f avx512bw avx512cd avx512dq avx512vl"
_GENERATIONS: dict[str, tuple[str | None, str]] = {
    "x86-64": (None, "cx8 cmov fxsr mmx sse sse2 64bit"),
    "x86-64-v2": (None, _V2),
    "x86-64-v3": ("x86-64-v2", _V3),
    "x86-64-v4": ("x86-64-v3", _V4),
    "nehalem": ("x86-64-v2", ""),
    "sandybridge": ("nehalem", "xsave avx aes pclmul"),
    "ivybridge": ("sandybridge", "f16c fsgsbase"),
    "haswell": ("ivybridge", "avx2 bmi bmi2 fma lzcnt movbe"),
    "broadwell": ("haswell", "adx rdseed prfchw"),
    "skylake": ("broadwell", "clflushopt"),
    "skylake-avx512": ("skylake", _V4),
    "cascadelake": ("skylake-avx512", "avx512vnni"),
    "cooperlake": ("cascadelake", "avx512bf16"),
    "icelake-server": ("cascadelake", "avx512ifma avx512vbmi avx512vbmi2 avx512bitalg avx512vpopcntdq"),
    "znver1": ("x86-64-v3", "aes pclmul fsgsbase adx rdseed prfchw clflushopt sse4a"),
    "znver2": ("znver1", "clwb"),
    "znver3": ("znver2", "vaes vpclmulqdq"),
    "znver4": ("znver3", f"{_V4} avx512ifma avx512vbmi avx512vbmi2 avx512vnni avx512bitalg avx512vpopcntdq avx512bf16"),
}
"""CPUs of x86-64 by LLVM's names: the one that each adds to, and what it adds of what code or its choice depends on."""


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
    """Hardware threads that this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _vector_bytes(features: frozenset[str]) -> int:
    if "avx512f" in features:
        return 64
    return 32 if "avx" in features else 16
