"""Native functions of loop nests and drivers, made once for equal content."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

from abele.kernels.code.drivers import Driver, driver_module
from abele.kernels.code.nests import generate
from abele.kernels.code.products import product_function
from abele.kernels.nest.loop_nest import LoopNest
from abele.kernels.products.schedule import Epilogue, ProductSchedule
from abele.kernels.schedule.pack_panels import Panel
from abele.kernels.schedule.schedule import NestSchedule
from abele.llvm.jit import Native, compile_keyed

CODE_VERSION = 28
"""Part of every cache key; raised when the code of an equal nest and schedule changes."""
LLVM_SPEED = 1
"""Optimisation level: loops are tiled, vectorised and unrolled here already, so more takes longer and gains nothing."""
DRIVER_SPEED = 0
"""Optimisation level of drivers: they are many, run a few times a leaf, and take longer to optimise than to run."""


def build_nest(nest: LoopNest, schedule: NestSchedule, panel: Panel | None = None) -> tuple[Native, int]:
    """Native code of ``nest``, and the address of its function.

    With a panel, ``nest`` reads the copy, and the function's last argument is memory of the thread's own for it.
    """
    content = f"nest {CODE_VERSION}\n{nest}\n{nest.num_arrays} {nest.unit}\n{schedule}\n{schedule!r}"
    if panel is not None:
        content += f"\n{panel}"
    return _compiled(content, lambda name: generate(nest, schedule, name, panel))


def build_driver(driver: Driver, *, timed: bool = False) -> tuple[Native, int]:
    """Native code of a driver, and its address."""
    content = f"driver {CODE_VERSION} {'timed ' * timed}{driver!r}"
    return _compiled(content, lambda name: driver_module(driver, name, timed=timed), speed=DRIVER_SPEED)


def build_product(schedule: ProductSchedule, epilogues: Sequence[Epilogue], nest: LoopNest) -> tuple[Native, int]:
    """Native code of the product that ``nest`` is, and the address of its function."""
    nests = [(str(e.nest), e.last_rows, e.last_columns) for e in epilogues]
    content = f"product {CODE_VERSION}\n{schedule!r}\n{nests}\n{nest.num_arrays} {nest.num_integers}"
    return _compiled(content, lambda name: product_function(schedule, epilogues, nest, name))


def _compiled(content: str, make: Any, *, speed: int = LLVM_SPEED) -> tuple[Native, int]:
    name = f"kernel_{hashlib.sha256(content.encode()).hexdigest()[:16]}"
    native = compile_keyed(content, lambda: make(name), speed=speed)
    return native, native.address(name)
