"""Every position of a nest changed at once: addresses, indices as values, and bounds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from abele.kernels.nest.ir import Affine, Expr, Index
from abele.kernels.nest.loop_nest import Bound, ElementAccess, Fetch, Hash, LoopNest, RowFetch
from abele.kernels.nest.rewrite import rewrite


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
