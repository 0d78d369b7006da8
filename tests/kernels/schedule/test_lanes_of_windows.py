"""Pools with padding over fields that lie in rows: lanes run along the rows, with loads masked at their ends."""

from __future__ import annotations

import math

import numpy as np
import pytest
from guarded_memory import check
from kernels_kit import form_after

from abele.kernels import BoundKernel, Buffer, HostKernel, bind
from abele.kernels.nest.ir import affine, load, nest, store
from abele.kernels.plan.functions import FunctionProgram
from abele.kernels.schedule.schedule import NestSchedule
from abele.kernels.target import HostTarget
from abele.numerics import ElementType, f16, f32


def pool(shape: tuple[int, int, int], type_: ElementType, combine: str) -> HostKernel:
    """The maximum, or sum, of windows of 3 x 3 over the fields of some channels, padded by one on all sides."""
    channels, rows, columns = shape
    fill = -math.inf if combine == "max" else 0.0
    value = load(0, "c", affine("i", "k", const=-1), affine("j", "l", const=-1), fill=fill)
    loops = {"c": channels, "i": rows, "j": columns, "k": 3, "l": 3}
    body = nest(loops, store(1, ("c", "i", "j"), value, combine))
    return HostKernel((shape, shape), (type_, type_), 1, 1, (body,))


@pytest.mark.parametrize("shape", [(2, 5, 7), (3, 9, 16), (2, 6, 37), (1, 4, 65)])
@pytest.mark.parametrize("type_", [f32, f16], ids=str)
@pytest.mark.parametrize("combine", ["max", "add"])
@pytest.mark.parametrize("at_end", [False, True])
def test_windows__of_fields_in_rows__touch_only_operands(
    shape: tuple[int, int, int], type_: ElementType, combine: str, at_end: bool
) -> None:
    x = np.random.default_rng(0).normal(size=shape).astype(type_.np)
    check(pool(shape, type_, combine), [x], at_end=at_end)


def test_windows__of_large_fields_in_rows__fill_lanes() -> None:
    kernel = pool((64, 64, 64), f32, "max")
    buffers = [Buffer(n, shape, f32, True, "xy"[n]) for n, shape in enumerate(kernel.shapes)]
    calls = [BoundKernel(kernel, tuple(map(bind, buffers)), "pool")]
    form = form_after("choose_schedules", buffers, calls, HostTarget(lanes=16, registers=32))
    assert isinstance(form, FunctionProgram)
    schedules = [f.schedule for leaf in form.leaves for f in leaf.functions if f.nest.accumulates]
    assert schedules
    assert all(isinstance(s, NestSchedule) and s.lanes > 1 for s in schedules)
