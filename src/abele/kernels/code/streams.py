"""Stores past the caches: where code can make them, and code that does so where arrays lie as they need it.

Such a store has to lie at a multiple of its own size, and gathers in a buffer of the core until its line is whole, so
it pays only where the next ones fill the line. Where a nest stores its vectors follows from its strides and its
schedule; where its arrays begin is known when it is called, and a function without such stores runs if they begin
anywhere else.

These stores are not ordered with those that follow, so a function, or the driver that calls it round after round, ends
in a fence before any other thread is told that they are done.

Example: a store of 64 bytes at a multiple of 64 fills its line at once. Two stores of 32 bytes fill one if the second
follows where the first ends.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from abele.kernels.nest.loop_nest import LoopNest, Out
from abele.kernels.schedule.schedule import NestSchedule
from abele.llvm import ir as ll
from abele.llvm.emit import I64, POINTER
from abele.llvm.host import LINE_BYTES

MIN_PIECE_BYTES = 16
"""The shortest vector that is stored so."""


def stream_pieces(nest: LoopNest, schedule: NestSchedule) -> dict[int, int]:
    """Bytes of the pieces in which each array is stored past the caches, by array; none of arrays that are not."""
    found: dict[int, int] = {}
    for out in nest.outs:
        size = _piece_bytes(nest, schedule, out) if out.streams else 0
        if out.access.array in found or size:
            found[out.access.array] = min(size, found.get(out.access.array, size))
    return {array: size for array, size in found.items() if size >= MIN_PIECE_BYTES}


def _piece_bytes(nest: LoopNest, schedule: NestSchedule, out: Out) -> int:
    """Factor of every address of a vector of ``out``, counted from the array's start, up to the vector's size."""
    lane, size = schedule.lane, out.access.type.bytes
    if not lane or out.access.stride(lane) != 1:
        return 0
    moving = [d for d in schedule.order if nest.extents[d] > schedule.step(d)]
    if size * schedule.step(lane) < LINE_BYTES and moving[-1:] != [lane]:
        return 0
    steps = (out.access.stride(d) for d in nest.extents if d != lane)
    return min(LINE_BYTES, math.gcd(schedule.lanes, out.access.address.const, *steps) * size)


def by_alignment(function: ll.Function, pieces: Mapping[int, int], streaming: ll.Function, plain: ll.Function) -> None:
    """Write ``function``: ``streaming`` where arrays begin at multiples of their ``pieces``, and else ``plain``."""
    builder = ll.IRBuilder(function.append_basic_block("entry"))
    begin, end, arguments = function.args
    off: ll.Value = ll.Constant(I64, 0)
    for array, size in pieces.items():
        pointer = builder.load(builder.gep(arguments, [ll.Constant(I64, array)], source_etype=POINTER), typ=POINTER)
        off = builder.or_(off, builder.and_(builder.ptrtoint(pointer, I64), ll.Constant(I64, size - 1)))
    with builder.if_else(builder.icmp_unsigned("==", off, ll.Constant(I64, 0))) as (then, otherwise):
        with then:
            builder.call(streaming, [begin, end, arguments])
        with otherwise:
            builder.call(plain, [begin, end, arguments])
    builder.ret_void()
