"""CPUs that code is made for, by LLVM's names and features.

A CPU's features are the whole truth about its instructions: what LLVM would take from the name beside them is switched
off. So a name that is too great for a virtual machine, or for this table, costs scheduling at most.

Example: ``cpu_named("haswell")`` has AVX2, FMA and F16C, vectors of 32 bytes, and no AVX-512.
"""

from __future__ import annotations

from dataclasses import dataclass

X86_TRIPLE, ARM_TRIPLE = "x86_64-unknown-linux-gnu", "aarch64-unknown-linux-gnu"
"""LLVM's triples of named CPUs."""
PLAIN_X86, PLAIN_ARM = "x86-64", "generic"
"""CPUs whose code runs on every CPU of their kind."""


@dataclass(frozen=True)
class HostCpu:
    """Facts about a CPU that code generation needs.

    Attributes:
        name: LLVM's name of the CPU.
        triple: LLVM's target triple.
        features: Features that are there, by LLVM's names.
        lacks: Features that are not there although LLVM may take them from the name.
    """

    name: str
    triple: str
    features: frozenset[str]
    lacks: frozenset[str] = frozenset()

    @property
    def vector_bytes(self) -> int:
        """Width of the widest vector registers that pay off."""
        if "avx512f" in self.features:
            return 64
        return 32 if "avx" in self.features else 16

    @property
    def vector_registers(self) -> int:
        """Number of vector registers."""
        return 32 if self.is_aarch64 or "avx512f" in self.features else 16

    @property
    def is_x86(self) -> bool:
        """True if this is an x86-64 CPU; otherwise it is taken for AArch64."""
        return self.triple.startswith(("x86_64", "amd64", "i686"))

    @property
    def is_aarch64(self) -> bool:
        """True if this is a 64-bit Arm CPU."""
        return self.triple.startswith(("aarch64", "arm64"))

    @property
    def fuses(self) -> bool:
        """True if an instruction multiplies and adds with one rounding."""
        return self.is_aarch64 or "fma" in self.features

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
        names = [f"+{name}" for name in sorted(self.features)] + [f"-{name}" for name in sorted(self.lacks)]
        if "avx512f" in self.features:
            names += ["-prefer-256-bit", "-prefer-128-bit"]
        return ",".join(names)


def cpu_named(name: str) -> HostCpu | None:
    """The CPU that LLVM calls ``name``; None if it is not in the tables."""
    for triple, table in ((X86_TRIPLE, X86_CPUS), (ARM_TRIPLE, ARM_CPUS)):
        if name in table:
            features: set[str] = set()
            before: str | None = name
            while before is not None:
                before, added = table[before]
                features.update(added.split())
            return HostCpu(name, triple, frozenset(features))
    return None


def plain_cpu(triple: str) -> HostCpu:
    """The least CPU of a triple's kind."""
    is_x86 = HostCpu("", triple, frozenset()).is_x86
    found = cpu_named(PLAIN_X86 if is_x86 else PLAIN_ARM)
    assert found is not None
    return HostCpu(found.name, triple, found.features)


_V2 = "cx16 sahf popcnt sse3 ssse3 sse4.1 sse4.2 crc32"
_V3 = "xsave avx avx2 bmi bmi2 f16c fma lzcnt movbe"
_V4 = "avx512f avx512bw avx512cd avx512dq avx512vl"
_MORE_512 = "avx512ifma avx512vbmi avx512vbmi2 avx512vnni avx512bitalg avx512vpopcntdq"
X86_CPUS: dict[str, tuple[str | None, str]] = {
    PLAIN_X86: (None, "cx8 cmov fxsr mmx sse sse2 64bit"),
    "x86-64-v2": (PLAIN_X86, _V2),
    "x86-64-v3": ("x86-64-v2", _V3),
    "x86-64-v4": ("x86-64-v3", _V4),
    "nehalem": ("x86-64-v2", ""),
    "sandybridge": ("nehalem", "xsave avx aes pclmul"),
    "ivybridge": ("sandybridge", "f16c fsgsbase"),
    "haswell": ("ivybridge", "avx2 bmi bmi2 fma lzcnt movbe"),
    "broadwell": ("haswell", "adx rdseed prfchw"),
    "skylake": ("broadwell", "clflushopt"),
    "alderlake": ("skylake", "avxvnni gfni vaes vpclmulqdq sha clwb"),
    "skylake-avx512": ("skylake", _V4),
    "cascadelake": ("skylake-avx512", "avx512vnni"),
    "cooperlake": ("cascadelake", "avx512bf16"),
    "icelake-server": ("cascadelake", f"{_MORE_512} gfni vaes vpclmulqdq sha clwb"),
    "sapphirerapids": ("icelake-server", "avx512bf16 avx512fp16 avxvnni"),
    "znver1": ("x86-64-v3", "aes pclmul fsgsbase adx rdseed prfchw clflushopt sse4a sha"),
    "znver2": ("znver1", "clwb"),
    "znver3": ("znver2", "vaes vpclmulqdq"),
    "znver4": ("znver3", f"{_V4} {_MORE_512} avx512bf16 gfni"),
    "znver5": ("znver4", "avxvnni avx512vp2intersect"),
}
"""CPUs of x86-64 by LLVM's names: the one that each adds to, and what it adds of what code or its choice depends on.
Sources: the levels of the x86-64 psABI (3.1.1), LLVM's X86.td."""
_ARM_81 = "crc lse rdm"
ARM_CPUS: dict[str, tuple[str | None, str]] = {
    PLAIN_ARM: (None, "fp-armv8 neon"),
    "cortex-a72": (PLAIN_ARM, "crc"),
    "neoverse-n1": (PLAIN_ARM, f"{_ARM_81} dotprod fullfp16 rcpc"),
    "neoverse-v1": ("neoverse-n1", "bf16 i8mm sve"),
    "apple-m1": (PLAIN_ARM, f"{_ARM_81} dotprod fullfp16 fp16fml rcpc sha3"),
}
"""CPUs of AArch64 likewise; code uses vectors of 128 bits on all of them. Source: LLVM's AArch64Processors.td."""
