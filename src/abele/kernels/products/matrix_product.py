"""Loop nests that are matrix products: which dims are rows, columns and the summed one, and which run around.

A nest is a product if it adds up ``a · b`` of two loads. A dim in both loads and the results is of the batch; one that
one load has for itself gives rows or columns of the results; a reduced one is summed. Several dims of a kind are the
digits of one. Windows, whose
elements are reached by several points of one load's dims, are no products: they are read where they lie, and not packed
once for every place that they are seen from.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from abele.kernels.nest.ir import Affine, Apply, Expr
from abele.kernels.nest.loop_nest import Acc, Dims, ElementAccess, Fetch, LoopNest, Out
from abele.layout import are_apart
from abele.numerics import ElementType, bf16, f16, f32

TYPES = (f32, f16, bf16)
"""Of operands, 8-bit floats of any scale beside them."""
LONG = 256
"""Extent of a dim that needs no second digit: it can be cut into shares, or slices, by itself."""


@dataclass(frozen=True)
class MatrixProduct:
    """The parts of a nest that is a matrix product.

    Attributes:
        rows: Dims of the rows of the results, and of the left operand: the digits of a row's number, slowest first.
        columns: Dims of the columns of the results, and of the right operand.
        summed: Dims over which products are summed.
        batch: Further dims of the results, outermost first.
        left: The operand that ``rows`` moves.
        right: The operand that ``columns`` moves.
        result: The place of the sums if they are stored as they are, with columns of the inner digit next to each
            other; None if more is done with them.
        adds: True if they are added to what is there.
        extents: Extents of all dims.
    """

    rows: tuple[str, ...]
    columns: tuple[str, ...]
    summed: tuple[str, ...]
    batch: Dims
    left: ElementAccess
    right: ElementAccess
    result: ElementAccess | None
    adds: bool
    extents: tuple[tuple[str, int], ...]

    @property
    def shape(self) -> tuple[int, int, int]:
        """Rows, columns and summed elements."""
        return self.length(self.rows), self.length(self.columns), self.length(self.summed)

    def length(self, names: tuple[str, ...]) -> int:
        """Elements of the dim with digits ``names``."""
        extents = dict(self.extents)
        return math.prod(extents[d] for d in names)

    def inner(self, names: tuple[str, ...]) -> int:
        """Elements of all digits but the first; 1 where there is one."""
        return self.length(names[1:])

    @property
    def count(self) -> int:
        """Number of products in the batch."""
        return math.prod(n for _, n in self.batch)


def find_product(nest: LoopNest) -> MatrixProduct | None:
    """The matrix product that ``nest`` is; None where it is none."""
    factors = _factors(nest)
    if factors is None or nest.stores_in_rows:
        return None
    first, second = factors
    extents = nest.extents
    parallel, reduced = dict(nest.parallel), dict(nest.reduced)
    if not all(is_apart(f.address, extents) for f in (first, second)):
        return None
    of_first = [d for d in parallel if first.stride(d) and not second.stride(d)]
    of_second = [d for d in parallel if second.stride(d) and not first.stride(d)]
    if not (any(first.stride(d) and second.stride(d) for d in reduced) and of_first and of_second):
        return None
    # Columns are the dim along which results lie closest.
    if min(_out_stride(nest, d) for d in of_first) < min(_out_stride(nest, d) for d in of_second):
        of_first, of_second, first, second = of_second, of_first, second, first
    rows = _digits(of_first, extents, lambda d: (abs(first.stride(d)), -_out_stride(nest, d)))
    columns = _digits(of_second, extents, lambda d: (_out_stride(nest, d), abs(second.stride(d))))
    summed = _order(list(reduced), lambda d: max(abs(first.stride(d)), abs(second.stride(d))))
    result, adds = _bare_result(nest, columns[-1])
    return MatrixProduct(
        rows=rows,
        columns=columns,
        summed=summed,
        batch=tuple(d for d in nest.parallel if d[0] not in (*rows, *columns)),
        left=first,
        right=second,
        result=result,
        adds=adds,
        extents=tuple(extents.items()),
    )


def _order(names: list[str], nearness: Callable[[str], Any]) -> tuple[str, ...]:
    return tuple(sorted(names, key=nearness, reverse=True))


def _digits(names: list[str], extents: Mapping[str, int], nearness: Callable[[str], Any]) -> tuple[str, ...]:
    """The dims of ``names`` that make one dim of the product, slowest first.

    The nearest is the fastest, so that its elements are met in a row. The longest of the others is the slowest, as
    shares are cut along it; where the nearest is long enough for that, it is alone.
    """
    inner = min((d for d in names if extents[d] > 1), key=nearness, default=names[0])
    others = sorted((d for d in names if d != inner and extents[d] > 1), key=lambda d: -extents[d])
    return (*others[:1], *sorted(others[1:], key=nearness, reverse=True), inner) if extents[inner] < LONG else (inner,)


def _factors(nest: LoopNest) -> tuple[ElementAccess, ElementAccess] | None:
    """Two loads whose products the nest sums up, if it does nothing else."""
    if nest.unit or len(nest.accumulates) != 1:
        return None
    (sums,) = nest.accumulates
    value = sums.value
    if sums.combine != "add" or sums.type != f32 or sums.guards:
        return None
    if not isinstance(value, Apply) or value.op != "mul":
        return None
    loads = [a for a in value.args if isinstance(a, Fetch) and not a.bounds and _multiplies(a.access.type)]
    written = {out.access.array for out in nest.outs}
    if len(loads) != 2 or any(f.access.array in written for f in loads):
        return None
    return loads[0].access, loads[1].access


def _multiplies(type_: ElementType) -> bool:
    return type_ in TYPES or type_.is_quarter


def is_apart(address: Affine, extents: Mapping[str, int]) -> bool:
    """True if no two points of the dims of ``address`` reach the same element."""
    return are_apart([(extents[d], step) for d, step in address.terms])


def _out_stride(nest: LoopNest, dim: str) -> int:
    return max((abs(out.access.stride(dim)) for out in nest.outs), default=0)


def _bare_result(nest: LoopNest, columns: str) -> tuple[ElementAccess | None, bool]:
    """Store that keeps the sums or adds them to the present values, and true if it adds; None if there is none."""
    if len(nest.outs) != 1:
        return None, False
    (out,) = nest.outs
    every = {d for d, n in nest.parallel if n > 1}
    fits = out.access.type == f32 and out.access.stride(columns) == 1 and every <= set(out.access.address.names)
    if not fits or out.guards or out.combine not in ("set", "add") or not is_apart(out.access.address, nest.extents):
        return None, False
    if out.value == Acc(0):
        return out.access, out.combine == "add"
    return (out.access, True) if _adds_to(out, out.value) else (None, False)


def _adds_to(out: Out, value: Expr) -> bool:
    """True if ``value`` is the present value of ``out`` plus the sums."""
    return (
        out.combine == "set"
        and isinstance(value, Apply)
        and value.op == "add"
        and sorted(value.args, key=lambda a: isinstance(a, Acc)) == [Fetch(out.access), Acc(0)]
    )
