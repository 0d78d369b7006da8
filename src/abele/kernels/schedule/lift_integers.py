"""Let the numbers of random streams be arguments of a function, so that nests that differ in nothing else share code.

Every dropout of a network has a stream of its own. The stream's number is an operand of one hash a function, computed
once for all elements; in the code it would be a constant, and equal layers would each be compiled by themselves.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from abele.kernels.nest.ir import Expr
from abele.kernels.nest.loop_nest import Hash, IntegerArgument, LoopNest
from abele.kernels.nest.rewrite import rewrite


def lifted_integers(nest: LoopNest) -> tuple[LoopNest, tuple[int, ...]]:
    """``nest`` with the numbers of its random streams as further arguments, and these numbers."""
    found = dict.fromkeys(e.modifier for e in nest.expressions() if isinstance(e, Hash))
    first = nest.num_integers
    numbers = {modifier: place for place, modifier in enumerate((n for n in found if isinstance(n, int)), first)}
    if not numbers:
        return nest, ()
    lifted = _with_modifiers(nest, lambda m: IntegerArgument(numbers[m]) if isinstance(m, int) else m)
    return replace(lifted, num_integers=first + len(numbers)), tuple(numbers)


def lowered_integers(nest: LoopNest, integers: Sequence[int]) -> LoopNest:
    """``nest`` with its integer arguments as constants again."""
    if not nest.num_integers:
        return nest

    def change(part: Expr) -> Expr | None:
        if not isinstance(part, Hash):
            return None
        modifier = integers[part.modifier.number] if isinstance(part.modifier, IntegerArgument) else part.modifier
        start = integers[part.start.number] if part.start is not None else 0
        return replace(part, modifier=modifier, index=part.index + start, start=None)

    return replace(_rewritten(nest, change), num_integers=0)


def _with_modifiers(nest: LoopNest, modifier: Callable[[int | IntegerArgument], int | IntegerArgument]) -> LoopNest:
    def change(part: Expr) -> Expr | None:
        return replace(part, modifier=modifier(part.modifier)) if isinstance(part, Hash) else None

    return _rewritten(nest, change)


def _rewritten(nest: LoopNest, change: Callable[[Expr], Expr | None]) -> LoopNest:
    return replace(
        nest,
        accumulates=tuple(replace(a, value=rewrite(a.value, change)) for a in nest.accumulates),
        outs=tuple(o.with_values(lambda value: rewrite(value, change)) for o in nest.outs),
        locals=tuple(rewrite(value, change) for value in nest.locals),
    )
