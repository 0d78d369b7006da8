"""Round what is stored into narrow floats at random, or hold it at the largest number, where a program asks for it.

The machine rounds once for each conversion of a result: when it is stored. So each value that a task stores into an
array of narrow floats becomes a :class:`Rounded` of it, whose random word is a hash of the plan's seed, the number of
the store in the plan, and the element; :mod:`abele.kernels.tasks.number_draws` numbers these. Nothing else decides how
an element is rounded: neither the threads, nor the order of loops, nor which tasks later passes fuse. A fused reader
gets the rounded value, as if it had loaded it; a store that is left out, because nobody else reads the array, is still
rounded. Conversions in the middle of an expression have words of their own.

The pass comes right after loops are split: none of the copies and partial sums that planning adds exists yet. Those
hold f32 sums, or move elements as they are.

A value that the array can hold is not rounded: an element of the same type, a constant of it, the larger of two, one of
two. To nearest, constants are rounded by the compiler, as they are where vertices hold them.

Example: y = x + 1 with y in f16 becomes y = ``Rounded(x + 1, word)``. The value 1.0003 lies 31 % of the way from 1 to
the next f16, 1.00098, so 31 % of the words round it up.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import count

from abele.kernels.nest.binding import StoreRounding
from abele.kernels.nest.ir import Apply, Cast, Const, Expr, Rounded, affine
from abele.kernels.nest.loop_nest import ElementAccess, Hash, RowFetch
from abele.kernels.nest.rewrite import rewrite
from abele.kernels.tasks.program import Put, Ref, Space, Task, TaskProgram
from abele.numerics import ElementType, u32
from abele.numerics.narrow import round_to_nearest

_MOVES = frozenset({"select", "max", "min", "neg", "abs", "relu"})
"""Operations that give one of their arguments, its negative, or zero."""


def round_stores(program: TaskProgram) -> TaskProgram:
    """Round results in narrow floats as the program asks: at random, or held at the largest number."""
    if program.rounding is None:
        return program
    rounder = _Rounder(program.spaces, program.rounding, count(1))
    return replace(program, tasks=tuple(map(rounder.task, program.tasks)))


@dataclass(frozen=True)
class _Rounder:
    """Numbers the conversions of a program.

    Attributes:
        spaces: By number.
        rounding: Rounding, with the space of the seed.
        numbers: For conversions, in order.
    """

    spaces: tuple[Space, ...]
    rounding: StoreRounding
    numbers: Iterator[int]

    def task(self, task: Task) -> Task:
        """``task`` with its stores, and conversions on the way, rounded."""
        reductions = tuple(replace(r, value=self._inside(r.value)) for r in task.reductions)
        values = tuple(map(self._inside, task.locals))
        return replace(task, reductions=reductions, locals=values, puts=tuple(map(self._put, task.puts)))

    def _put(self, put: Put) -> Put:
        type_, value = self.spaces[put.space].type, put.value
        if put.place is not None:
            put = replace(put, place=replace(put.place, row=self._inside(put.place.row)))
        if not _is_rounded(type_):
            return replace(put, value=self._inside(value))
        assert put.combine == "set", "sums are made in f32 and rounded once where results are not simply rounded"
        while isinstance(value, Cast) and value.type == type_:
            value = value.arg  # the store rounds
        return replace(put, value=self._held_or_rounded(type_, self._inside(value)))

    def _inside(self, value: Expr) -> Expr:
        """``value`` with the conversions in it rounded."""

        def change(part: Expr) -> Expr | None:
            if not isinstance(part, Cast) or not _is_rounded(part.type):
                return None
            return self._held_or_rounded(part.type, rewrite(part.arg, change))

        return rewrite(value, change)

    def _held_or_rounded(self, type_: ElementType, value: Expr) -> Expr:
        if self._is_held(value, type_):
            return value
        seed = self.rounding.seed
        word = None if seed is None else Hash(ElementAccess(seed, u32, affine()), next(self.numbers), affine(), True)
        return Rounded(type_, value, word, self.rounding.saturates)

    def _is_held(self, value: Expr, type_: ElementType) -> bool:
        """True if a store of ``value`` leaves nothing to decide."""
        match value:
            case Ref():
                return self.spaces[value.space].type == type_ and self._is_constant_held(value.fill or 0.0, type_)
            case RowFetch():
                return value.access.type == type_ and self._is_constant_held(value.fill, type_)
            case Const():
                return self._is_constant_held(value.value, type_)
            case Rounded():
                return value.type == type_
            case Apply() if value.op in _MOVES:
                args = value.args[1:] if value.op == "select" else value.args
                return all(self._is_held(a, type_) for a in args)
        return False

    def _is_constant_held(self, value: float, type_: ElementType) -> bool:
        held = float(round_to_nearest(value, type_))
        return not (self.rounding.saturates and math.isinf(held))


def _is_rounded(type_: ElementType) -> bool:
    return type_.is_float and type_.bits < 32
