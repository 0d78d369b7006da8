"""Stores past the caches: which are marked, and that code with them writes the same bits, wherever arrays begin."""

from __future__ import annotations

import math
import re
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kernels_kit import form_after, run_plan
from small_programs import Calls

from abele.kernels import BoundKernel, Buffer
from abele.kernels.code.nests import generate
from abele.kernels.nest.binding import bound_calls
from abele.kernels.nest.ir import load
from abele.kernels.plan.functions import FunctionProgram
from abele.kernels.plan.native_plan import NativePlan
from abele.kernels.plan.passes import run_passes
from abele.kernels.schedule.schedule import NestSchedule
from abele.kernels.target import HostTarget, host_target
from abele.kernels.tasks.leaves import LeafProgram
from abele.numerics import ElementType, bf16, f16, f32, i8
from support.examples import examples

SMALL_CACHE = HostTarget(lanes=16, registers=32, far_bytes=1 << 12)
"""A CPU whose last cache holds 1,024 numbers."""
AT = ("r", "c")


def streamed(made: Calls, target: HostTarget = SMALL_CACHE) -> set[str]:
    """The names of the arrays that a program of ``made`` writes past the caches."""
    program = form_after("stream_stores", made.buffers, made.calls, target)
    assert isinstance(program, LeafProgram)
    tasks = [task for leaf in program.leaves for task in leaf.tasks]
    return {program.spaces[put.space].name for task in tasks for put in task.puts if put.streams}


def one_map(shape: tuple[int, int], type_: ElementType = f32) -> Calls:
    made = Calls()
    x, y = made.buffer(shape, "x", True, type_), made.buffer(shape, "y", True, type_)
    made.call("double", [x], y, dict(zip(AT, shape, strict=True)), AT, load(0, *AT) + load(0, *AT))
    return made


def test_stores__of_more_than_the_cache_holds__stream() -> None:
    assert streamed(one_map((64, 64))) == {"y"}


def test_stores__of_little__stay_in_the_cache() -> None:
    assert streamed(one_map((16, 32))) == set()


def test_stores__onto_what_was_read__stay_in_the_cache() -> None:
    made = Calls()
    x = made.buffer((64, 64), "x", True)
    made.call("double", [x], x, {"r": 64, "c": 64}, AT, load(0, *AT) + load(0, *AT))
    assert streamed(made) == set()


def test_stores__read_soon_after__stay_in_the_cache() -> None:
    made = Calls()
    x, y = (made.buffer((8, 64), name, True) for name in "xy")
    large, copy = (made.buffer((64, 64), name, True) for name in ("large", "copy"))
    total = made.buffer((1,), "total", True)
    made.call("y", [x], y, {"r": 8, "c": 64}, AT, load(0, *AT) + 1.0)
    made.call("total", [y], total, {"r": 8, "c": 64}, (0,), load(0, *AT), "add")
    made.call("copy", [large, total], copy, {"r": 64, "c": 64}, AT, load(0, *AT) * load(1, 0))
    assert streamed(made) == {"copy"}


def test_stores__into_many_arrays_at_once__stay_in_the_cache() -> None:
    made = Calls()
    x = made.buffer((64, 64), "x", True)
    for number in range(6):
        y = made.buffer((64, 64), f"y{number}", True)
        made.call(f"map{number}", [x], y, {"r": 64, "c": 64}, AT, load(0, *AT) * float(number))
    program = form_after("stream_stores", made.buffers, made.calls, SMALL_CACHE)
    assert all(sum(put.streams for put in task.puts) <= 4 for leaf in program.leaves for task in leaf.tasks)


def norm_of_rows(shape: tuple[int, int], type_: ElementType = f32) -> Calls:
    """Rows less their mean, in rows of a group."""
    made = Calls()
    x, y = made.buffer(shape, "x", True, type_), made.buffer(shape, "y", True, type_)
    sums, every = made.buffer(shape[:1], "sums"), dict(zip(AT, shape, strict=True))
    made.call("sums", [x], sums, every, ("r",), load(0, *AT), "add")
    made.call("less", [x, sums], y, every, AT, load(0, *AT) - load(1, "r") * (1.0 / shape[1]))
    return made


def outputs(made: Calls, cache: int, start: int, threads: int = 1) -> np.ndarray:
    """Values of ``y`` after a program, with a last cache of so many bytes, and arrays ``start`` bytes behind a line."""
    own = host_target()
    target = HostTarget(own.lanes, own.registers, None, cache)
    plan = run_passes(bound_calls(made.buffers, made.calls, target))
    assert isinstance(plan, NativePlan)
    storage: dict[int, np.ndarray] = {}
    for buffer in made.buffers:
        size = math.prod(buffer.shape) * buffer.type.bytes
        block = np.zeros(size + 128, np.uint8)
        begin = -block.ctypes.data % 64 + start
        storage[buffer.id] = block[begin : begin + size].view(buffer.type.np).reshape(buffer.shape)
    values = np.random.default_rng(0).normal(size=made.buffers[0].shape) * 20
    storage[0][...] = values.astype(made.buffers[0].type.np)
    run_plan(plan, storage, threads)
    return storage[1].copy()


@examples(5)
@given(
    rows=st.integers(1, 70),
    columns=st.one_of(st.integers(1, 150), st.sampled_from([64, 100, 128, 256])),
    type_=st.sampled_from([f32, f16, bf16, i8]),
    start=st.sampled_from([0, 4, 8, 16, 32, 48]),
    program=st.sampled_from([one_map, norm_of_rows]),
)
def test_streaming_code__any_shape_and_start__writes_the_same_bits(
    rows: int, columns: int, type_: ElementType, start: int, program: Callable[..., Calls]
) -> None:
    if program is norm_of_rows and type_ == i8:
        type_ = f32
    made = program((rows, columns), type_)
    past, through = outputs(made, 1, start), outputs(made, 1 << 30, start)
    np.testing.assert_array_equal(past.view(np.uint8), through.view(np.uint8))


@pytest.mark.parametrize("program", [one_map, norm_of_rows])
def test_streaming_code__several_threads__same_bits_as_one(program: Callable[..., Calls]) -> None:
    one, three = (outputs(program((96, 256)), 1, 0, threads) for threads in (1, 3))
    np.testing.assert_array_equal(one, three)


@pytest.mark.parametrize(("columns", "stores"), [(256, 64), (100, 16), (101, 0)])
def test_streaming_code__rows_of_any_length__stores_in_pieces_that_divide_them(columns: int, stores: int) -> None:
    """In pieces of a line, of four numbers, or not at all."""
    made = form_after("choose_schedules", *_parts(norm_of_rows((64, columns))), SMALL_CACHE)
    assert isinstance(made, FunctionProgram)
    function = made.leaves[-1].functions[-1]
    assert isinstance(function.schedule, NestSchedule)
    code = str(generate(function.nest, function.schedule, "f"))
    sizes = {int(n) for n in re.findall(r"align (\d+), !nontemporal", code)}
    assert sizes == ({stores} if stores else set())


def _parts(made: Calls) -> tuple[list[Buffer], list[BoundKernel]]:
    return made.buffers, made.calls
