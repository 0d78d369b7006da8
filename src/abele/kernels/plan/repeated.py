"""Plans run many times by one native call, so that short ones can be timed."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from functools import cache

import numpy as np

from abele.arrays import Int64
from abele.kernels.nest.binding import Buffer
from abele.kernels.plan.native_plan import NativePlan
from abele.llvm import ir as ll
from abele.llvm.emit import I64, POINTER, VOID, constant, counted_loop
from abele.llvm.jit import Native, compile_ir

_LEAF = ll.FunctionType(VOID, [I64, I64, POINTER])
_RUN = ctypes.CFUNCTYPE(None, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p)
_WORDS = 3
"""Of a leaf in the table: its address, units and arguments."""


class RepeatedPlan:
    """A plan on one thread, with memory of its own: each element of a buffer is 0.5.

    Args:
        buffers: All buffers of the plan.
        plan: The plan.
    """

    def __init__(self, buffers: Sequence[Buffer], plan: NativePlan) -> None:
        storage = {b.id: np.full(b.shape, 0.5, b.type.np) for b in buffers if b.pinned}
        arena, scratch = (_aligned(size) for size in (plan.arena_bytes, plan.scratch_bytes))
        bases = {"arena": arena.ctypes.data, "scratch": scratch.ctypes.data, "address": 0}
        arguments: list[Int64] = []
        rows: list[tuple[int, int, int]] = []
        for leaf in plan.leaves:
            places = [
                storage[a.value].ctypes.data if a.kind == "buffer" else bases[a.kind] + a.value for a in leaf.args
            ]
            arguments.append(np.array([*places, 0], np.int64))
            rows.append((leaf.address, leaf.units, arguments[-1].ctypes.data))
        self._table = np.array(rows, np.int64).reshape(-1, _WORDS)
        self._held = (plan, storage, arena, scratch, arguments)
        """Owners of all that the table points to."""

    def __call__(self, times: int) -> None:
        """Run all leaves so many times."""
        native = _caller()
        _RUN(native.address("repeat"))(times, len(self._table), self._table.ctypes.data)


def _aligned(size: int) -> np.ndarray:
    block = np.zeros(size + 64, np.uint8)
    start = -block.ctypes.data % 64
    return block[start : start + size]


@cache
def _caller() -> Native:
    """``repeat(times, leaves, table)``: run all units of each leaf, and all leaves so many times."""
    module = ll.Module("repeat")
    function = ll.Function(module, ll.FunctionType(VOID, [I64, I64, POINTER]), "repeat")
    times, leaves, table = function.args
    builder = ll.IRBuilder(function.append_basic_block("entry"))
    zero = constant(I64, 0)
    with counted_loop(builder, zero, times), counted_loop(builder, zero, leaves) as leaf:
        first = builder.mul(leaf, constant(I64, _WORDS))
        address, units, arguments = (
            builder.load(builder.gep(table, [builder.add(first, constant(I64, n))], source_etype=I64), typ=I64)
            for n in range(_WORDS)
        )
        run = builder.inttoptr(address, _LEAF.as_pointer())
        builder.call(run, [zero, units, builder.inttoptr(arguments, POINTER)])
    builder.ret_void()
    return compile_ir(module, speed=1)
