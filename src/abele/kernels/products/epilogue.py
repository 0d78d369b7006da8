"""Nests of a product's epilogues, for whole shares and for the shorter ones at its edges."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from abele.kernels.nest.ir import Affine, Expr, affine
from abele.kernels.nest.loop_nest import Acc, ElementAccess, Fetch, LoopNest
from abele.kernels.nest.merge_dims import merged_dims, with_positions
from abele.kernels.nest.rewrite import rewrite
from abele.kernels.products.matrix_product import MatrixProduct
from abele.kernels.products.schedule import Epilogue, ProductSchedule
from abele.numerics import f32

ROW_SHARE, COLUMN_SHARE, SHARE = "row share", "column share", "share"
"""Dims of an epilogue: which share it is of; where there is one alone, that."""


def epilogues(nest: LoopNest, schedule: ProductSchedule) -> tuple[Epilogue, ...]:
    """Operations on the sums of each kind of share; none if the sums are stored in place directly."""
    if schedule.is_direct:
        return ()
    m, n, _ = schedule.product.shape
    kinds = [
        (last_rows, last_columns)
        for last_rows in _kinds(m, schedule.rows)
        for last_columns in _kinds(n, schedule.columns)
    ]
    return tuple(Epilogue(_of_share(nest, schedule, *kind), *kind) for kind in kinds)


def _kinds(extent: int, share: int) -> Iterator[bool]:
    """Kinds of shares that there are: whole (False) and the shorter last one (True)."""
    if extent >= share:
        yield False
    if extent % share:
        yield True


def _of_share(nest: LoopNest, schedule: ProductSchedule, last_rows: bool, last_columns: bool) -> LoopNest:
    product = schedule.product
    moved: dict[str, Affine] = {}
    units, inside = list(product.batch), []
    for names, share_dim, share, is_last in (
        (product.rows, ROW_SHARE, schedule.rows, last_rows),
        (product.columns, COLUMN_SHARE, schedule.columns, last_columns),
    ):
        # Shares are cut along the outer digit.
        size = share // product.inner(names)
        whole, rest = divmod(product.length(names[:1]), size)
        if is_last:
            moved[names[0]] = affine(names[0], const=whole * size)
            inside.append((names[0], rest))
        else:
            moved[names[0]] = affine((share_dim, size), names[0])
            units.append((share_dim, whole))
            inside.append((names[0], size))
        inside += [(d, product.length((d,))) for d in names[1:]]
    place = affine(*_linear(product, product.rows, schedule.columns), *_linear(product, product.columns, 1))
    tile = ElementAccess(nest.num_arrays, f32, place)

    def change(part: Expr) -> Expr | None:
        return Fetch(tile) if part == Acc(0) else None

    # Without dims of units the schedule would choose some.
    units = units or [(SHARE, 1)]
    bare = replace(
        with_positions(nest, lambda position: position.substitute(moved)), parallel=(), reduced=(), accumulates=()
    )
    return merged_dims(
        replace(
            bare,
            parallel=(*units, *inside),
            unit=tuple(d for d, _ in units),
            outs=tuple(replace(o, value=rewrite(o.value, change)) for o in bare.outs),
            locals=tuple(rewrite(value, change) for value in bare.locals),
            num_arrays=nest.num_arrays + 1,
        )
    )


def _linear(product: MatrixProduct, names: tuple[str, ...], step: int) -> tuple[tuple[str, int], ...]:
    """The dims ``names`` with the strides that a row-major dim of ``step`` between elements has."""
    return tuple((d, step * product.length(names[n + 1 :])) for n, d in enumerate(names))
