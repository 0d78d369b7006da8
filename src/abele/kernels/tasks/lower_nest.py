"""From one nest to tasks: reduced dims, stores with a start value, and loops that run point after point."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Protocol

from abele.errors import TensorError
from abele.expr.operation import identity
from abele.kernels.nest.ir import Affine, Apply, Const, Expr, Nest, Store, compute_type
from abele.kernels.nest.loop_nest import Acc, Bound, Dims, RowFetch, RowPlace
from abele.kernels.nest.normalise import injective
from abele.kernels.nest.rewrite import rewrite
from abele.kernels.tasks.program import Put, Ref, Task, TaskReduction
from abele.numerics import ElementType


class NestView(Protocol):
    """A nest with its dims split, and how operands become spaces."""

    nest: Nest
    dims: Dims
    digits: tuple[tuple[str, ...], ...]
    extents: dict[str, int]
    types: tuple[ElementType, ...]
    shapes: tuple[tuple[int, ...], ...]

    def dims_of(self, item: Store) -> set[str]:
        """The split dims that the index of ``item`` mentions."""

    def space(self, operand: int) -> int:
        """Number of the space of ``operand``."""

    def index(self, operand: int, index: tuple[Affine, ...]) -> tuple[Affine, ...]:
        """``index`` into ``operand`` as one into its space."""

    def row(self, operand: int, index: tuple[Affine, ...], dim: int, row: Expr) -> tuple[Affine, RowPlace]:
        """The address of the first row of ``operand`` along ``dim`` at ``index``, and the distance of ``row``."""

    def bounds(self, operand: int, index: tuple[Affine, ...]) -> tuple[Bound, ...]:
        """The conditions under which ``index`` is inside ``operand``."""

    def expression(self, expression: Expr) -> Expr:
        """``expression`` over spaces and split dims."""


def lower_nest(view: NestView, name: str, origins: frozenset[int]) -> list[Task]:
    """The tasks of one nest, in order.

    Raises:
        TensorError: Stores over different dims read what each other write.
    """
    tasks = []
    for group in _in_order(name, view, _groups(view)):
        mentioned = view.dims_of(group[0])
        parallel = tuple(d for d in view.dims if d[0] in mentioned)
        reduced = tuple(d for d in view.dims if d[0] not in mentioned)
        reductions: list[TaskReduction] = []
        puts = [_put(view, s, bool(reduced), reductions) for s in group]
        over = reduced if reductions else ()
        tasks.append(Task(name, parallel, over, tuple(reductions), tuple(puts), origins=origins, digits=view.digits))
    return tasks


def _groups(view: NestView) -> list[list[Store]]:
    """Stores that mention the same dims."""
    groups: dict[frozenset[str], list[Store]] = {}
    for item in view.nest.stores:
        groups.setdefault(frozenset(view.dims_of(item)), []).append(item)
    return list(groups.values())


def _in_order(name: str, view: NestView, groups: list[list[Store]]) -> list[list[Store]]:
    """``groups`` in an order without reads of earlier results."""
    left, ordered = list(groups), []
    while left:
        for group in left:
            writes = {view.space(s.operand) for s in group}
            # A group may go first if no other still has to read what it overwrites.
            others = {n for g in left if g is not group for s in g for v in s.values for n in _read(view.expression(v))}
            if not writes & others:
                break
        else:
            raise TensorError(f"{name}: stores over different dims of one nest read what each other write")
        ordered.append(group)
        left.remove(group)
    return ordered


def _refs(expression: Expr) -> list[Ref]:
    return [e for e in expression.walk() if isinstance(e, Ref)]


def _read(expression: Expr) -> set[int]:
    """The spaces that an expression reads."""
    rows = {e.access.array for e in expression.walk() if isinstance(e, RowFetch)}
    return rows | {r.space for r in _refs(expression)}


def _put(view: NestView, item: Store, reduces: bool, reductions: list[TaskReduction]) -> Put:
    """The store as the last step of a task; appends its reduction."""
    space, value = view.space(item.operand), view.expression(item.value)
    if item.row is not None:
        address, place = view.row(item.operand, item.index, item.row.dim, item.row.value)
        index: tuple[Affine, ...] = (address,)
    else:
        index, place = view.index(item.operand, item.index), None
    guards = view.bounds(item.operand, item.index)
    if item.combine == "set":
        return Put(space, index, value, guards=guards, place=place)
    type_ = compute_type(view.types[item.operand])
    if reduces:
        reductions.append(_reduction(item.combine, value, type_))
        value = Acc(len(reductions) - 1)
    if place is not None:
        return Put(space, index, value, item.combine, guards, place=place)
    # Several points add to one element, so the store combines; units are cut only along dims whose points never meet.
    if not injective(index, view.extents):
        return Put(space, index, value, item.combine, guards)
    if item.accumulate:
        before = Ref(space, index, 0.0 if guards else None, guards)
        value = Apply(item.combine, (before, value))
    return Put(space, index, value, guards=guards)


def _reduction(combine: str, value: Expr, type_: ElementType) -> TaskReduction:
    """The reduction; where a fill adds nothing, its bounds become guards and the fill goes.

    The bounds stay at the load too, which must not touch memory where they fail.
    """
    guards: tuple[Bound, ...] = ()
    # Loads with the same bounds are absent together, each with a fill of its own.
    for bounds in dict.fromkeys(ref.bounds for ref in _refs(value) if ref.bounds):
        fills = {ref: ref.fill for ref in _refs(value) if ref.bounds == bounds and ref.fill is not None}
        if fills and _known(value, fills) == identity(combine, type_.np).item():
            guards += tuple(b for b in bounds if b not in guards)
            value = _without_fills(value, fills)
    return TaskReduction(combine, value, type_, guards)


def _without_fills(value: Expr, fills: Mapping[Ref, float]) -> Expr:
    return rewrite(value, lambda part: replace(part, fill=None) if isinstance(part, Ref) and part in fills else None)


def _known(value: Expr, fills: Mapping[Ref, float]) -> float | None:
    """Value of ``value`` where some loads have their fills, if that follows from them alone."""
    match value:
        case Ref():
            return fills.get(value)
        case Const():
            return value.value
        case Apply(op="select", args=(condition, then, otherwise)):
            decided, *both = (_known(part, fills) for part in (condition, then, otherwise))
            if decided is None:
                return both[0] if both[0] == both[1] else None
            return both[0] if decided else both[1]
        # An absent factor makes a term nothing, whatever the others are.
        case Apply(op="mul") if any(_known(arg, fills) == 0 for arg in value.args):
            return 0.0
        case Apply(op="eq" | "ne", args=(a, b)):
            return _known_equality(value.op, _known(a, fills), _known(b, fills))
    return None


def _known_equality(op: str, a: float | None, b: float | None) -> bool | None:
    """``a`` op ``b``; a NaN equals nothing."""
    if any(x is not None and math.isnan(x) for x in (a, b)):
        return op == "ne"
    return None if a is None or b is None else (a == b) == (op == "eq")
