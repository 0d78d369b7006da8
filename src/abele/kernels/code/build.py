"""Native functions of loop nests and drivers, made once for equal content."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

from abele.kernels.code.drivers import Step, side_by_side_driver, sweep_driver
from abele.kernels.code.nests import generate
from abele.kernels.nest.loop_nest import LoopNest
from abele.kernels.schedule.choose_schedule import Target, choose, choose_panel
from abele.kernels.schedule.pack_panels import Panel, packed_nest
from abele.kernels.schedule.schedule import Schedule
from abele.llvm.host import host_cpu
from abele.llvm.jit import Native, compile_keyed

CODE_VERSION = 7
"""Part of every cache key; raised when the same nest and schedule come to give other code."""
LLVM_SPEED = 1
"""Optimisation level: loops are tiled, vectorised and unrolled here already, so more takes longer and gains nothing."""


def target() -> Target:
    """What schedules depend on in this machine."""
    cpu = host_cpu()
    wide = "avx512f" in cpu.features or cpu.is_aarch64
    return Target(cpu.vector_bytes // 4, 32 if wide else 16)


def build_nest(nest: LoopNest) -> tuple[Native, int, Schedule]:
    """Native code of ``nest``, the address of its function, and its schedule."""
    return _built(nest, choose(nest, target()), None)


def build_with_panel(nest: LoopNest) -> tuple[Native, int, Schedule, Panel | None]:
    """As :func:`build_nest`; with a panel, the function's last argument is memory of the thread's own for it."""
    schedule, panel = choose_panel(nest, target())
    if panel is not None:
        nest = packed_nest(nest, panel)
    return (*_built(nest, schedule, panel), panel)


def _built(nest: LoopNest, schedule: Schedule, panel: Panel | None) -> tuple[Native, int, Schedule]:
    content = f"nest {CODE_VERSION}\n{nest}\n{nest.num_arrays} {nest.unit}\n{schedule}\n{schedule!r}"
    if panel is not None:
        content += f"\n{panel}"
    return (*_compiled(content, lambda name: generate(nest, schedule, name, panel)), schedule)


def build_sweep(steps: Sequence[Step], chunks: int, blocks: int) -> tuple[Native, int]:
    """Native code of a sweep's driver, and its address."""
    content = f"sweep {CODE_VERSION} {chunks} {blocks} {steps!r}"
    return _compiled(content, lambda name: sweep_driver(steps, chunks, blocks, name))


def build_side_by_side(steps: Sequence[Step]) -> tuple[Native, int]:
    """Native code of a driver that shares its units among ``steps``, and its address."""
    return _compiled(f"beside {CODE_VERSION} {steps!r}", lambda name: side_by_side_driver(steps, name))


def _compiled(content: str, make: Any) -> tuple[Native, int]:
    name = f"kernel_{hashlib.sha256(content.encode()).hexdigest()[:16]}"
    native = compile_keyed(content, lambda: make(name), speed=LLVM_SPEED)
    return native, native.address(name)
