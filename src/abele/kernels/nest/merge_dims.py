"""Loop dims that step through memory as one become one.

Each loop costs a counter, a compare and a partial tile at its end, and a register tile can only run along one dim of
each access; a dim that was split for an operand elsewhere is cheaper whole. Joining is right because it names the same
addresses in the same order: one step of the outer dim moves every position by a whole round of the inner one. Dims with
guards stay, as the guard speaks of one of them alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import lru_cache

from abele.kernels.nest.ir import Affine, Expr, Index
from abele.kernels.nest.loop_nest import Bound, Dims, ElementAccess, Fetch, Hash, LoopNest, RowFetch
from abele.kernels.nest.rewrite import rewrite

# Every position of a nest changed at once: addresses, indices as values, and bounds.


def with_positions(nest: LoopNest, position: Callable[[Affine], Affine]) -> LoopNest:
    """``nest`` with ``position`` applied to everything that is affine in its loop dims; the dims stay."""

    def access(old: ElementAccess) -> ElementAccess:
        return replace(old, address=position(old.address))

    def bounds(old: tuple[Bound, ...]) -> tuple[Bound, ...]:
        return tuple(replace(b, position=position(b.position)) for b in old)

    def change(part: Expr) -> Expr | None:
        match part:
            case Fetch():
                return replace(part, access=access(part.access), bounds=bounds(part.bounds))
            case RowFetch():
                return part.moved(position, of_value)
            case Index():
                return Index(position(part.affine))
            case Hash():
                return replace(part, seed=access(part.seed), index=position(part.index))
        return None

    def of_value(value: Expr) -> Expr:
        return rewrite(value, change)

    return replace(
        nest,
        accumulates=tuple(
            replace(a, value=rewrite(a.value, change), guards=bounds(a.guards)) for a in nest.accumulates
        ),
        outs=tuple(
            replace(o.with_values(of_value), access=access(o.access), guards=bounds(o.guards)) for o in nest.outs
        ),
        locals=tuple(rewrite(value, change) for value in nest.locals),
    )


@lru_cache(maxsize=4096)
def merged_dims(nest: LoopNest) -> LoopNest:
    """``nest`` with dims joined where all positions step as far along the outer as along the whole of the inner."""
    fixed = {*nest.unit, nest.lane}
    merged = True
    while merged:
        merged = False
        for pairs in (nest.parallel, nest.reduced):
            found = _joinable(nest, [p for p in pairs if p[0] not in fixed])
            if found:
                nest, merged = _join(nest, *found), True
                break
    return nest


def _joinable(nest: LoopNest, pairs: list[tuple[str, int]]) -> tuple[str, str] | None:
    positions = list(_positions(nest))
    bounded = {d for b in _bounds(nest) for d in b.position.names}
    for number, (outer, _) in enumerate(pairs):
        # Stores to one row go in the order of the dims, so that only neighbours are as one.
        for inner, extent in pairs[number + 1 : number + 2] if nest.stores_in_rows else pairs:
            if outer == inner or {outer, inner} & bounded:
                continue
            if all(p.coefficient(outer) == p.coefficient(inner) * extent for p in positions):
                return outer, inner
    return None


def _positions(nest: LoopNest) -> Iterator[Affine]:
    for out in nest.outs:
        yield out.access.address
    for part in nest.expressions():
        match part:
            case Fetch() | RowFetch():
                yield part.access.address
            case Index():
                yield part.affine
            case Hash():
                yield part.index


def _bounds(nest: LoopNest) -> Iterator[Bound]:
    yield from nest.guards()
    for fetch in nest.fetches:
        yield from fetch.bounds


def _join(nest: LoopNest, outer: str, inner: str) -> LoopNest:
    extents = nest.extents

    def dims(pairs: Dims) -> Dims:
        joined = ((d, n * extents[outer] if d == inner else n) for d, n in pairs)
        return tuple(p for p in joined if p[0] != outer)

    def position(old: Affine) -> Affine:
        return Affine(tuple(t for t in old.terms if t[0] != outer), old.const)

    moved = with_positions(nest, position)
    return replace(moved, parallel=dims(nest.parallel), reduced=dims(nest.reduced))
