"""Kernels before planning: no loop dims of extent one, and start values that stores need set by nests of their own."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from abele.expr.operation import identity
from abele.kernels.nest.binding import BoundCalls, BoundKernel
from abele.kernels.nest.ir import (
    Affine,
    Const,
    Expr,
    HostKernel,
    Index,
    Load,
    Nest,
    Random,
    RowLoad,
    RowOfStore,
    Store,
    compute_type,
    load,
    nest,
    store,
)
from abele.kernels.nest.rewrite import rewrite
from abele.numerics import ElementType, f32


def normalise(form: BoundCalls) -> BoundCalls:
    """Give start values nests of their own, sum 16-bit floats in f32, and drop loop dims of extent one."""
    # Calls of one kernel go on sharing one, by which later passes find what they know of it.
    kernels = {id(call.kernel): call.kernel for call in form.calls}
    once = form.rounding is not None
    changed = {number: _normal(kernel, round_once=once) for number, kernel in kernels.items()}
    return replace(form, calls=tuple(_with_kernel(call, changed[id(call.kernel)]) for call in form.calls))


def normalised(call: BoundKernel) -> BoundKernel:
    """``call`` with its kernel in normal form.

    Afterwards a store that does not accumulate sets or combines every element of its operand, and no 16-bit float is
    combined into point after point: such sums are made in f32 and rounded once.
    """
    return _with_kernel(call, _normal(call.kernel))


def _with_kernel(call: BoundKernel, kernel: HostKernel) -> BoundKernel:
    return call if kernel is call.kernel else replace(call, kernel=kernel)


def _normal(kernel: HostKernel, *, round_once: bool = False) -> HostKernel:
    builder = _KernelBuilder(kernel, round_once)
    nests = [_without_units(n) for original in kernel.nests for n in builder.nests(original)]
    if len(nests) == len(kernel.nests) and all(a is b for a, b in zip(nests, kernel.nests, strict=True)):
        return kernel
    return replace(kernel, shapes=tuple(builder.shapes), types=tuple(builder.types), nests=tuple(nests))


def overwrites(kernel: HostKernel, operand: int) -> bool:
    """True if ``kernel`` sets every element of an operand before it reads any; normal form is needed to see it."""
    for item in kernel.nests:
        if any(isinstance(part, Load | RowLoad) and part.operand == operand for part in item.expressions()):
            return False
        first = next((s for s in item.stores if s.operand == operand), None)
        if first is not None:
            return not first.accumulate and _covers(kernel.shapes[operand], item, first)
    return False


class _KernelBuilder:
    """A kernel while temporaries are added to it; rows are rounded once, too, if it is to ``round_once``."""

    def __init__(self, kernel: HostKernel, round_once: bool) -> None:
        self.round_once = round_once
        self.shapes, self.types = list(kernel.shapes), list(kernel.types)

    def nests(self, item: Nest) -> list[Nest]:
        """``item`` with nests before it for start values, and after it for rounding of sums."""
        before, stores, after = [], [], []
        for s in item.stores:
            # Combined in a temporary of f32 that the last nest rounds; with `accumulate` the temporary starts from what
            # is there.
            if self._is_rounded_often(item, s):
                wide = self._temporary(self.shapes[s.operand])
                before += [self._copy(s.operand, wide)] if s.accumulate else []
                after.append(self._copy(wide, s.operand))
                s = replace(s, operand=wide)
            needs = s.combine != "set" and not s.accumulate and not _covers(self.shapes[s.operand], item, s)
            if needs:
                before.append(_start(self.shapes[s.operand], self.types[s.operand], s))
            stores.append(replace(s, accumulate=True) if needs else s)
        same = all(a is b for a, b in zip(stores, item.stores, strict=True))
        return [*before, item if same else Nest(item.dims, tuple(stores)), *after]

    def _is_rounded_often(self, item: Nest, target: Store) -> bool:
        type_ = self.types[target.operand]
        once = target.combine == "set" or injective(target.index, item.extents)
        if target.row is not None and target.combine != "set":
            if self.round_once:
                # Combining stores have no code for other roundings than to nearest, so rows are summed in f32, too.
                once = False
            elif target.accumulate:
                # A table is not copied for some of its rows: they are rounded with every row that is added.
                return False
        return type_.is_float and type_.bits < 32 and not once

    def _temporary(self, shape: tuple[int, ...]) -> int:
        self.shapes.append(shape)
        self.types.append(f32)
        return len(self.shapes) - 1

    def _copy(self, source: int, target: int) -> Nest:
        names = [f"d{n}" for n in range(len(self.shapes[source]))]
        return nest(dict(zip(names, self.shapes[source], strict=True)), store(target, names, load(source, *names)))


def _start(shape: tuple[int, ...], stored: ElementType, item: Store) -> Nest:
    """The nest that sets the operand of ``item`` to the identity of its combine."""
    type_ = compute_type(stored)
    names = [f"d{n}" for n in range(len(shape))]
    value: Any = identity(item.combine, type_.np).item()
    return nest(dict(zip(names, shape, strict=True)), store(item.operand, names, Const(value, type_)))


def _covers(shape: tuple[int, ...], item: Nest, target: Store) -> bool:
    """True if ``target`` reaches every element of its operand, each from one point of the dims that it mentions."""
    if target.row is not None:
        return False
    extents = item.extents
    inside = all(
        low >= 0 and high < n for (low, high), n in zip((a.bounds(extents) for a in target.index), shape, strict=True)
    )
    mentioned = {name for a in target.index for name in a.names}
    points = math.prod(extents[name] for name in mentioned)
    return inside and points == math.prod(shape) and injective(target.index, extents)


def injective(index: Sequence[Affine], extents: Mapping[str, int]) -> bool:
    """True if different points of the mentioned dims have different indices."""
    names = [name for a in index for name in a.names]
    # Sufficient, not necessary: no dim occurs in two positions, and each position counts like mixed-radix digits.
    return len(set(names)) == len(names) and all(_mixed_radix(a, extents) for a in index)


def _mixed_radix(position: Affine, extents: Mapping[str, int]) -> bool:
    reach = 0
    # In order of size, each factor must exceed the reach of all smaller terms together, as the weight of a digit does.
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
        replace(
            s,
            index=tuple(a.substitute(gone) for a in s.index),
            value=_moved(s.value, gone),
            row=None if s.row is None else RowOfStore(s.row.dim, _moved(s.row.value, gone)),
        )
        for s in item.stores
    )
    return Nest(tuple(d for d in item.dims if d[1] > 1), stores)


def _moved(expression: Expr, dims: Mapping[str, Affine]) -> Expr:
    """``expression`` with loop dims replaced."""

    def change(part: Expr) -> Expr | None:
        match part:
            case Load():
                return replace(part, index=tuple(a.substitute(dims) for a in part.index))
            case RowLoad():
                index = tuple(a.substitute(dims) for a in part.index)
                return replace(part, index=index, row=_moved(part.row, dims))
            case Index():
                return Index(part.affine.substitute(dims))
            case Random():
                return replace(part, index=part.index.substitute(dims))
        return None

    return rewrite(expression, change)
