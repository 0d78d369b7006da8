"""Sorting along the last dimension, and the best of it, with the positions that elements had."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from abele.arrays import Array
from abele.graph import Tensor
from abele.network.ir import BlockBuilder, NetworkOp, Value
from abele.network.ir.part import ValuePart
from abele.network.ops.elementwise import cast
from abele.network.ops.scan import add_along
from abele.network.ops.views import permute, reshape, slice_
from abele.network.registry import Gradients, OpRule, Types, require, rule
from abele.numerics import bool_, i32
from abele.poplibs import popops
from abele.poplibs.popops.sorting import SortOrder, TopKParams

if TYPE_CHECKING:
    from abele.distribution.lowering import Lowering


def sort(net: BlockBuilder, value: Value, *, descending: bool = False) -> tuple[Value, Value]:
    """``value`` in order along its last dimension, and the positions that elements had, i32; equal ones keep theirs."""
    if value.dtype == bool_:
        made, places = sort(net, cast(net, value, i32), descending=descending)
        return cast(net, made, bool_), places
    outputs = [(value.shape, value.dtype), (value.shape, i32)]
    made, places = net.emit_many("sort", [value], outputs, descending=descending)
    return made, places


def top_k(net: BlockBuilder, value: Value, count: int, *, largest: bool = True) -> tuple[Value, Value]:
    """The ``count`` largest or smallest along the last dimension, best first, and their positions, i32."""
    if value.dtype == bool_:
        made, places = top_k(net, cast(net, value, i32), count, largest=largest)
        return cast(net, made, bool_), places
    shape = (*value.shape[:-1], count)
    made, places = net.emit_many("top_k", [value], [(shape, value.dtype), (shape, i32)], count=count, largest=largest)
    return made, places


def median(net: BlockBuilder, value: Value, dims: Sequence[int], *, keep: bool = False) -> tuple[Value, Value]:
    """The lower median over dimensions, and its place among their elements, i32."""
    kept = [d for d in range(value.ndim) if d not in dims]
    moved = permute(net, value, [*kept, *dims])
    rows = reshape(net, moved, (*(value.shape[d] for d in kept), math.prod(value.shape[d] for d in dims)))
    made, places = sort(net, rows)
    middle, last = (rows.shape[-1] - 1) // 2, rows.ndim - 1
    shape = [1 if d in dims else n for d, n in enumerate(value.shape) if keep or d not in dims]
    first, second = (reshape(net, slice_(net, v, last, middle, middle + 1), shape) for v in (made, places))
    return first, second


def _order(x: Array, *, descending: bool) -> Array:
    """Positions in order along the last dimension, equal elements in theirs, NaN after all numbers."""
    if x.dtype.kind == "V":
        x = x.astype(np.float32)  # bfloat16, whose NaNs NumPy leaves where they are
    if not descending:
        return np.argsort(x, axis=-1, kind="stable")
    backwards = np.argsort(x[..., ::-1], axis=-1, kind="stable")[..., ::-1]
    return np.asarray(x.shape[-1] - 1 - backwards)


class _Ordering(OpRule):
    """Elements of the last dimension in another order, and where they were."""

    def needs(self, op: NetworkOp, part: ValuePart) -> tuple[ValuePart, Sequence[ValuePart | None]]:
        """All, as both results are made together."""
        return ValuePart.whole(op.outputs[0].shape), [ValuePart.whole(op.inputs[0].shape)]

    def backward(self, net: BlockBuilder, op: NetworkOp, grads: Gradients, wanted: Sequence[bool]) -> Gradients:
        """The gradient of the values back to where they were."""
        (value,), places = op.inputs, op.outputs[1]
        if grads[0] is None:
            return [None]
        return [add_along(net, grads[0], places, value.ndim - 1, value.shape[-1])]


@rule("sort")
class Sort(_Ordering):
    """All elements in order."""

    attributes: ClassVar = {"descending": bool}

    def types(self, op: NetworkOp) -> Types:
        """The operand's, and positions."""
        (value,) = op.inputs
        require(value.ndim > 0 and value.dtype != bool_, f"{value} has no order")
        return [value.type, (value.shape, i32)]

    def evaluate(self, op: NetworkOp, x: Array) -> tuple[Array, Array]:
        """NumPy's stable sort."""
        order = _order(x, descending=op.attrs["descending"])
        return np.take_along_axis(x, order, -1), order

    def lower(self, to: Lowering, op: NetworkOp) -> tuple[Tensor, Tensor]:
        """One popops sort."""
        value, descending = to[op.inputs[0]], op.attrs["descending"]
        made, places = popops.sort_with_permutation(to.graph, value, -1, to.prog, largest_first=descending)
        return made, places.reinterpret(i32)


@rule("top_k")
class TopK(_Ordering):
    """The best elements in order, the best first."""

    attributes: ClassVar = {"count": int, "largest": bool}

    def types(self, op: NetworkOp) -> Types:
        """The operand's with fewer elements, and positions."""
        (value,), count = op.inputs, op.attrs["count"]
        require(value.ndim > 0 and value.dtype != bool_, f"{value} has no order")
        require(0 <= count <= value.shape[-1], f"{value} does not have {count} elements along its last dimension")
        shape = (*value.shape[:-1], count)
        return [(shape, value.dtype), (shape, i32)]

    def evaluate(self, op: NetworkOp, x: Array) -> tuple[Array, Array]:
        """The begin of NumPy's stable sort."""
        order = _order(x, descending=op.attrs["largest"])[..., : op.attrs["count"]]
        return np.take_along_axis(x, order, -1), order

    def lower(self, to: Lowering, op: NetworkOp) -> tuple[Tensor, Tensor]:
        """One popops top-k."""
        largest = op.attrs["largest"]
        order = SortOrder.DESCENDING if largest else SortOrder.ASCENDING
        params = TopKParams(op.attrs["count"], largest, order, stable=True)
        made, places = popops.top_k_with_permutation(to.graph, to.prog, to[op.inputs[0]], params)
        return made, places.reinterpret(i32)
