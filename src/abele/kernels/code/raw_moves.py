"""Stores of 16-bit floats as they were loaded: their bits are moved, and not widened and rounded again.

Both ways give the same number, but a conversion makes a signalling NaN a quiet one, and a copy must change nothing.
"""

from __future__ import annotations

from dataclasses import replace

from abele.kernels.nest.loop_nest import ElementAccess, Fetch, LoopNest, Out, RowFetch
from abele.numerics import u16


def with_raw_moves(nest: LoopNest) -> LoopNest:
    """``nest`` with elements that are stored as they were loaded taken for integers."""
    outs = tuple(_raw(out) for out in nest.outs)
    return nest if outs == nest.outs else replace(nest, outs=outs)


def _raw(out: Out) -> Out:
    value, type_ = out.value, out.access.type
    if out.combine != "set" or not isinstance(value, Fetch | RowFetch) or value.fill:
        return out
    if not type_.is_float or type_.bits != 16 or value.access.type != type_:
        return out
    return replace(out, access=_as_bits(out.access), value=replace(value, access=_as_bits(value.access)))


def _as_bits(access: ElementAccess) -> ElementAccess:
    return replace(access, type=u16)
