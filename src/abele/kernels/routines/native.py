"""The packed routine as native code of this CPU, made once per host."""

from __future__ import annotations

import hashlib

from abele.kernels.routines.blocking import Blocking
from abele.kernels.routines.packed import product_module
from abele.llvm.jit import Native, compile_keyed

PACKED_VERSION = 2
"""Part of the cache key; raised when the code of equal sizes changes."""
LLVM_SPEED = 1
"""Optimisation level: loops are tiled and unrolled already."""


def packed_routine(sizes: Blocking, left: str, right: str) -> tuple[Native, int]:
    """Native code that multiplies matrices of element types ``left`` and ``right``, and its address."""
    content = f"packed product {PACKED_VERSION}\n{sizes!r} {left} {right}"
    name = f"packed_{hashlib.sha256(content.encode()).hexdigest()[:16]}"
    native = compile_keyed(content, lambda: product_module(sizes, left, right, name), speed=LLVM_SPEED)
    return native, native.address(name)
