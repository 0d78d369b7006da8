"""Bounds of values before a program runs, cell by cell of a table of rows and keys.

Masks are constants, or comparisons of indices. Where a whole cell of the table is masked, scores are minus infinity,
shares are zero, and so are their gradients. Interval arithmetic finds that: a value lies between a lower and an upper
bound in each cell, constants between their smallest and largest element, indices between their first and last point,
and operations on bounds give bounds again. Everything else is only supposed to be finite. A share that is not a number
makes all of its row so in the cells that are computed, in any order of computing.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from abele.arrays import Array
from abele.expr.operation import identity
from abele.kernels.nest.ir import Affine, Apply, Cast, Const, Expr, Index, Rounded
from abele.kernels.nest.loop_nest import Acc, NestLocal
from abele.kernels.tasks.program import Ref, Task, TaskReduction, plain
from abele.numerics import bool_, f32

FINITE = 1e300
"""More than any finite value of an element."""
MAX_CELLS = 128
"""Cells along a dim: a longer dim has several points in each."""


@dataclass(frozen=True)
class DimCells:
    """Cells of ``size`` points that a dim of ``extent`` points is cut into, the last maybe of fewer."""

    extent: int
    size: int

    @property
    def count(self) -> int:
        """Number of cells."""
        return -(-self.extent // self.size)

    @property
    def starts(self) -> Array:
        """First point of each."""
        return np.arange(0, self.extent, self.size)

    @property
    def ends(self) -> Array:
        """The point after the last of each."""
        ends: Array = np.minimum(self.starts + self.size, self.extent)
        return ends

    def within(self, points: tuple[int, int]) -> slice:
        """The cells of the points from one to before another, at which a cell or the dim ends."""
        return slice(points[0] // self.size, -(-points[1] // self.size))


def cells_of(extent: int) -> DimCells:
    """The cells of a dim of ``extent`` points."""
    return DimCells(extent, -(-extent // MAX_CELLS))


@dataclass(frozen=True)
class CellTable:
    """Cells of rows and of keys, in this order: the axes of all bounds."""

    rows: DimCells
    keys: DimCells

    @property
    def shape(self) -> tuple[int, int]:
        """Cells along rows and along keys."""
        return self.rows.count, self.keys.count


@dataclass(frozen=True)
class Known:
    """Lower and upper bound of a value in each cell, both included."""

    low: Array
    high: Array

    def is_always(self, value: float) -> Array:
        """Cells in which it is ``value`` and nothing else."""
        found: Array = (self.low == value) & (self.high == value)
        return found


ANY = Known(np.array([[-FINITE]]), np.array([[FINITE]]))
"""Bounds of any finite value."""


def exactly(value: float) -> Known:
    """Bounds of a number."""
    return Known(np.array([[float(value)]]), np.array([[float(value)]]))


@dataclass(frozen=True)
class Evaluation:
    """Bounds of the values of a task.

    Attributes:
        task: The task.
        dims: Its names of the dims of rows and of keys.
        table: The cells of these dims.
        of_space: Bounds of an element that it loads, of a space that some task has written.
        constants: Spaces whose elements never change.
        truths: Spaces of truth values.
    """

    task: Task
    dims: tuple[str, str]
    table: CellTable
    of_space: Callable[[Ref], Known]
    constants: Mapping[int, Array]
    truths: Collection[int]

    def terms(self) -> tuple[Known, ...]:
        """Bounds of the terms of each reduction, before they are combined."""
        return tuple(self.value(r.value, (), ()) for r in self.task.reductions)

    def stores(self) -> tuple[Known, ...]:
        """Bounds of the value of each store; sums over keys are only known to be finite."""
        totals = tuple(ANY for _ in self.task.reductions)
        found: list[Known] = []
        for value in self.task.locals:
            found.append(self.value(value, totals, found))
        return tuple(self.value(p.value, totals, found) for p in self.task.puts)

    def value(self, part: Expr, totals: Sequence[Known], found: Sequence[Known]) -> Known:
        """Bounds of ``part``, given accumulators and local values."""
        match part:
            case Const():
                return exactly(part.value)
            case Acc():
                return totals[part.number]
            case NestLocal():
                return found[part.number]
            case Index():
                return self._index(part.affine)
            case Ref():
                return self._element(part)
            case Cast():
                # Rounding keeps zeros, infinities and truth; of other values the bounds would move a little.
                known = self.value(part.arg, totals, found)
                return known if _is_kept_by_casts(known) else ANY
            case Rounded() if part.saturates:
                return ANY
            case Rounded():
                # Zeros and infinities are as they are, however the rest is rounded.
                known = self.value(part.arg, totals, found)
                return known if _is_kept_by_casts(known) else ANY
            case Apply() if part.op not in _BITWISE or all(map(self._is_truth, part.args)):
                return _applied(part.op, [self.value(a, totals, found) for a in part.args])
        return ANY

    def _is_truth(self, part: Expr) -> bool:
        match part:
            case Ref():
                return part.space in self.truths
            case Cast():
                return part.type == bool_
            case Apply():
                return part.op in _COMPARISONS or (part.op in _BITWISE and all(map(self._is_truth, part.args)))
        return False

    def _index(self, position: Affine) -> Known:
        extents = {d: n for d, n in self.task.extents.items() if d not in self.dims}
        inner = Affine(tuple(t for t in position.terms if t[0] in extents), position.const)
        low, high = (np.full((1, 1), float(b)) for b in inner.bounds(extents))
        for axis, (dim, cells) in enumerate(zip(self.dims, (self.table.rows, self.table.keys), strict=True)):
            step = position.coefficient(dim)
            ends = (cells.starts * step, (cells.ends - 1) * step)
            shape = (-1, 1) if axis == 0 else (1, -1)
            low, high = low + np.minimum(*ends).reshape(shape), high + np.maximum(*ends).reshape(shape)
        return Known(low, high)

    def _element(self, ref: Ref) -> Known:
        if ref.bounds:
            return ANY
        if ref.space in self.constants:
            return self._constant(ref)
        return self.of_space(ref)

    def _constant(self, ref: Ref) -> Known:
        values, extents = self.constants[ref.space], self.task.extents
        axes: list[str] = []
        for position, extent in zip(ref.index, values.shape, strict=True):
            dim = plain(position)
            if not position.names:
                values = np.take(values, position.const, axis=len(axes))
            elif dim is None or extents[dim] != extent or dim in axes:
                return ANY
            else:
                axes.append(dim)
        low = high = values.astype(np.float64)
        if not np.isfinite(low).all() and np.isnan(low).any():
            return ANY
        for axis in reversed(range(len(axes))):
            if axes[axis] not in self.dims:
                low, high = low.min(axis=axis), high.max(axis=axis)
        left = [d for d in axes if d in self.dims]
        for axis, dim in enumerate(left):
            starts = (self.table.rows if dim == self.dims[0] else self.table.keys).starts
            low, high = np.minimum.reduceat(low, starts, axis=axis), np.maximum.reduceat(high, starts, axis=axis)
        if left == [self.dims[1], self.dims[0]]:
            low, high = low.T, high.T
        elif len(left) < 2:
            shape = (-1, 1) if left == [self.dims[0]] else (1, -1)
            low, high = low.reshape(shape), high.reshape(shape)
        return Known(low, high)


def adds_nothing(reduction: TaskReduction, terms: Known, table: CellTable) -> Array:
    """Cells whose terms do not change the reduction."""
    start = float(identity(reduction.combine, reduction.type.np)) if reduction.type == f32 else np.nan
    return np.broadcast_to(terms.is_always(start), table.shape)


def _is_kept_by_casts(known: Known) -> bool:
    return bool(np.isin(np.concatenate([known.low.ravel(), known.high.ravel()]), (-np.inf, 0.0, 1.0, np.inf)).all())


def _applied(op: str, args: Sequence[Known]) -> Known:
    with np.errstate(all="ignore"):
        made = _RULES[op](*args) if op in _RULES else ANY
        # What is made of finite values is finite, by assumption; infinity less infinity is anything.
        infinite = [np.isinf(a.low) | np.isinf(a.high) for a in args]
        is_finite = ~np.logical_or.reduce(np.broadcast_arrays(*infinite)) if infinite else np.array(True)
        shape = np.broadcast_shapes(made.low.shape, is_finite.shape)
        low, high = np.broadcast_to(made.low, shape), np.broadcast_to(made.high, shape)
        low = np.where(is_finite, np.clip(low, -FINITE, FINITE), np.where(low <= -FINITE, -np.inf, low))
        high = np.where(is_finite, np.clip(high, -FINITE, FINITE), np.where(high >= FINITE, np.inf, high))
        unsure = np.isnan(low) | np.isnan(high)
        return Known(np.where(unsure, -np.inf, low), np.where(unsure, np.inf, high))


def _sum(a: Known, b: Known) -> Known:
    return Known(a.low + b.low, a.high + b.high)


def _negated(a: Known) -> Known:
    return Known(-a.high, -a.low)


def _product(a: Known, b: Known) -> Known:
    corners = np.stack(np.broadcast_arrays(a.low * b.low, a.low * b.high, a.high * b.low, a.high * b.high))
    return Known(corners.min(axis=0), corners.max(axis=0))


def _quotient(a: Known, b: Known) -> Known:
    is_zero = a.is_always(0.0) & np.isfinite(b.low) & np.isfinite(b.high)
    return Known(np.where(is_zero, 0.0, ANY.low), np.where(is_zero, 0.0, ANY.high))


def _increasing(function: Callable[..., Array]) -> Callable[..., Known]:
    """The rule of a function that grows, or stays, with each of its arguments."""
    return lambda *args: Known(function(*(a.low for a in args)), function(*(a.high for a in args)))


def _truth(always: Array, never: Array) -> Known:
    return Known(np.where(always, 1.0, 0.0), np.where(never, 0.0, 1.0))


def _is_less(a: Known, b: Known) -> Known:
    return _truth(a.high < b.low, a.low >= b.high)


def _is_at_most(a: Known, b: Known) -> Known:
    return _truth(a.high <= b.low, a.low > b.high)


def _is_equal(a: Known, b: Known) -> Known:
    return _truth((a.low == a.high) & (b.low == b.high) & (a.low == b.low), (a.high < b.low) | (b.high < a.low))


def _is_not(a: Known) -> Known:
    return Known(1.0 - a.high, 1.0 - a.low)


def _choice(which: Known, a: Known, b: Known) -> Known:
    low = np.where(which.low > 0, a.low, np.where(which.high < 1, b.low, np.minimum(a.low, b.low)))
    high = np.where(which.low > 0, a.high, np.where(which.high < 1, b.high, np.maximum(a.high, b.high)))
    return Known(low, high)


_COMPARISONS = frozenset(("lt", "le", "gt", "ge", "eq", "ne", "is_finite", "is_inf", "is_nan"))
_BITWISE = frozenset(("and", "or", "not"))
"""Operations on bits, of which the rules below know those of truth values."""

_RULES: dict[str, Callable[..., Known]] = {
    "add": _sum,
    "sub": lambda a, b: _sum(a, _negated(b)),
    "neg": _negated,
    "mul": _product,
    "div": _quotient,
    "fma": lambda a, b, c: _sum(_product(a, b), c),
    "square": lambda a: _product(a, a),
    "max": _increasing(np.maximum),
    "min": _increasing(np.minimum),
    "exp": _increasing(np.exp),
    "lt": _is_less,
    "le": _is_at_most,
    "gt": lambda a, b: _is_less(b, a),
    "ge": lambda a, b: _is_at_most(b, a),
    "eq": _is_equal,
    "ne": lambda a, b: _is_not(_is_equal(a, b)),
    "not": _is_not,
    "and": _increasing(np.minimum),
    "or": _increasing(np.maximum),
    "select": _choice,
}
"""Bounds of operations by the bounds of their arguments; of others nothing is known."""
