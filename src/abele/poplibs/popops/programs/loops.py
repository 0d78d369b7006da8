"""Loops that count: their bodies see the number of the iteration."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from abele.arrays import Int64
from abele.errors import InvalidOptionError, TensorError, TypeMismatchError
from abele.graph import Copy, Graph, Program, Repeat, RepeatWhileTrue, Tensor
from abele.graph.program import Sequence
from abele.machine import Ipu
from abele.numerics import bool_, i32, u32
from abele.poplibs.popops.elementwise.map import apply_fused
from abele.poplibs.popops.expr import Const, _1, _2
from abele.poplibs.popops.expressions.fused import fuse
from abele.words import counted

Body = Callable[[Tensor], Program]

COUNTER_CYCLES = 43
"""Tile cycles of moving a loop's counter on. Source: machine reference §1.5 (ForLoopCounter)."""


def counted_loop(graph: Graph, begin: int, end: int, step: int, body: Body, name: str = "counted_loop") -> Sequence:
    """A program that runs ``body`` for begin, begin + step, … up to but not including ``end``.

    Args:
        graph: Graph in which the counter is made.
        begin: First number.
        end: Bound; for a negative step a lower one.
        step: Difference of successive numbers.
        body: Gives the body's program for the counter, a scalar: u32, or i32 where numbers can be negative.
        name: Name of the counter.

    Raises:
        InvalidOptionError: A step of 0.
    """
    if step == 0:
        raise InvalidOptionError(f"{name}: a step of 0 never ends")
    counts = range(begin, end, step)
    dtype = i32 if begin < 0 or end < 0 or step < 0 else u32
    counter = graph.variable(dtype, (), name=f"{name}/counter", map=0)
    first = graph.constant(dtype, (), begin, name=f"{name}/begin")
    graph.map(first, 0)
    inner = Sequence(body(counter))
    _move_on(graph, counter, step, inner, f"{name}/step")
    return Sequence(Copy(first, counter), Repeat(len(counts), inner))


def counted_for_loop(
    graph: Graph, initial: int | Tensor, limit: Tensor, step: int, body: Body, name: str = "counted_for_loop"
) -> Sequence:
    """As :func:`counted_loop`, with a bound, and perhaps a first number, that the program itself computes.

    Args:
        graph: Graph in which the counter is made.
        initial: First number, or a scalar that holds it.
        limit: A scalar u32 or i32; the counter has its type.
        step: Difference of successive numbers.
        body: Gives the body's program for the counter.
        name: Name of the counter.

    Raises:
        TensorError: A bound or a first number of more than one element.
        TypeMismatchError: A bound that is no 32-bit integer, or a first number of another type.
        InvalidOptionError: A step of 0, or a negative one of an unsigned counter.
    """
    if limit.size != 1:
        raise TensorError(f"{name}: the bound {limit!r} has {counted(limit.size, 'element')}, it must be one")
    if limit.dtype not in (i32, u32):
        raise TypeMismatchError(f"{name}: the bound {limit!r} is {limit.dtype}, it must be i32 or u32")
    if step == 0 or (step < 0 and limit.dtype == u32):
        raise InvalidOptionError(f"{name}: a step of {step} of a {limit.dtype} never ends")
    counter = graph.variable(limit.dtype, (), name=f"{name}/counter", map=0)
    start = _first(graph, initial, counter, name)
    goes_on = graph.variable(bool_, (), name=f"{name}/goes_on", map=0)
    condition = Sequence()
    compared = fuse([_1 < _2 if step > 0 else _1 > _2], (counter.dtype, limit.dtype), [bool_])
    apply_fused(graph, compared, [counter, limit.reshape(())], [goes_on], condition, f"{name}/compare")
    inner = Sequence(body(counter))
    _move_on(graph, counter, step, inner, f"{name}/step")
    return Sequence(Copy(start, counter), RepeatWhileTrue(condition, goes_on, inner))


def _first(graph: Graph, initial: int | Tensor, counter: Tensor, name: str) -> Tensor:
    if not isinstance(initial, Tensor):
        return graph.map(graph.constant(counter.dtype, (), initial, name=f"{name}/begin"), 0)
    if initial.size != 1:
        raise TensorError(
            f"{name}: the first number {initial!r} has {counted(initial.size, 'element')}, it must be one"
        )
    if initial.dtype != counter.dtype:
        raise TypeMismatchError(f"{name}: the first number {initial!r} is {initial.dtype}, the bound {counter.dtype}")
    return initial.reshape(())


def _move_on(graph: Graph, counter: Tensor, step: int, prog: Sequence, name: str) -> None:
    fused = fuse([_1 + Const(step) if step > 0 else _1 - Const(-step)], (counter.dtype,), [counter.dtype])
    apply_fused(graph, fused, [counter], [counter], prog, name, library="popops.loop_counter", cycles=_CounterCycles())


@dataclass(frozen=True)
class _CounterCycles:
    """Tile cycles of moving a loop's counter on."""

    def __call__(self, size: Int64, ipu: Ipu) -> Int64:
        return np.full(len(size), COUNTER_CYCLES, np.int64)
