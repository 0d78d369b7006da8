"""Kernels before planning: no loop dims of extent one, and start values that stores need set by nests of their own."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from abele.kernels.binding import Call
from abele.kernels.ir import (
    Affine,
    Const,
    Expr,
    HostKernel,
    Index,
    Load,
    Nest,
    Random,
    Store,
    compute_type,
    nest,
    store,
)
from abele.kernels.ops import identity
from abele.kernels.task import rewrite


def normalised(call: Call) -> Call:
    """``call`` with its kernel in normal form.

    Afterwards a store that does not accumulate sets or combines every element of its operand.
    """
    kernel = call.kernel
    nests = [n for original in kernel.nests for n in _with_starts(kernel, original)]
    return replace(call, kernel=replace(kernel, nests=tuple(map(_without_units, nests))))


def _with_starts(kernel: HostKernel, item: Nest) -> list[Nest]:
    starts, stores = [], []
    for s in item.stores:
        needs = s.combine != "set" and not s.accumulate and not _covers(kernel, item, s)
        if needs:
            starts.append(_start(kernel, s))
        stores.append(replace(s, accumulate=True) if needs else s)
    return [*starts, Nest(item.dims, tuple(stores))]


def _start(kernel: HostKernel, item: Store) -> Nest:
    """The nest that sets the operand of ``item`` to the identity of its combine."""
    shape, type_ = kernel.shapes[item.operand], compute_type(kernel.types[item.operand])
    names = [f"d{n}" for n in range(len(shape))]
    value: Any = identity(item.combine, type_.np).item()
    return nest(dict(zip(names, shape, strict=True)), store(item.operand, names, Const(value, type_)))


def _covers(kernel: HostKernel, item: Nest, target: Store) -> bool:
    """Whether ``target`` reaches every element of its operand, each from one point of the dims that it mentions."""
    extents, shape = item.extents, kernel.shapes[target.operand]
    inside = all(
        low >= 0 and high < n for (low, high), n in zip((a.bounds(extents) for a in target.index), shape, strict=True)
    )
    mentioned = {name for a in target.index for name in a.names}
    points = math.prod(extents[name] for name in mentioned)
    return inside and points == math.prod(shape) and injective(target.index, extents)


def injective(index: Sequence[Affine], extents: Mapping[str, int]) -> bool:
    """Whether different points of the mentioned dims have different indices."""
    names = [name for a in index for name in a.names]
    return len(set(names)) == len(names) and all(_mixed_radix(a, extents) for a in index)


def _mixed_radix(position: Affine, extents: Mapping[str, int]) -> bool:
    reach = 0
    for dim, factor in sorted(position.terms, key=lambda t: abs(t[1])):
        if abs(factor) <= reach and extents[dim] > 1:
            return False
        reach += abs(factor) * (extents[dim] - 1)
    return True


def _without_units(item: Nest) -> Nest:
    gone = {d: Affine(()) for d, extent in item.dims if extent == 1}
    if not gone:
        return item
    stores = tuple(
        replace(s, index=tuple(a.substitute(gone) for a in s.index), value=_moved(s.value, gone)) for s in item.stores
    )
    return Nest(tuple(d for d in item.dims if d[1] > 1), stores)


def _moved(expression: Expr, dims: Mapping[str, Affine]) -> Expr:
    """``expression`` with loop dims replaced."""

    def change(part: Expr) -> Expr | None:
        match part:
            case Load():
                return replace(part, index=tuple(a.substitute(dims) for a in part.index))
            case Index():
                return Index(part.affine.substitute(dims))
            case Random():
                return replace(part, index=part.index.substitute(dims))
        return None

    return rewrite(expression, change)
