"""Searches in ordered rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from abele.arrays import Array
from abele.graph import Tensor
from abele.network.ir import BlockBuilder, NetworkOp, Value
from abele.network.registry import Gradients, OpRule, Types, require, rule
from abele.numerics import bool_, i32
from abele.poplibs import popops

if TYPE_CHECKING:
    from abele.distribution.lowering import Lowering


def search(net: BlockBuilder, rows: Value, values: Value, *, right: bool = False) -> Value:
    """Index at which each of ``values`` [groups, m] belongs in its row of the ordered ``rows`` [groups, n], i32.

    That is how many elements are below it, or with ``right`` not above it.
    """
    return net.emit("search", [rows, values], values.shape, i32, right=right)


@rule("search")
class SearchRows(OpRule):
    """Number of elements of an ordered row below each value."""

    operands = 2
    attributes: ClassVar = {"right": bool}

    def types(self, op: NetworkOp) -> Types:
        """A number for each value."""
        rows, values = op.inputs
        fits = rows.ndim == values.ndim == 2 and rows.shape[0] == values.shape[0] and rows.dtype == values.dtype
        require(fits and rows.dtype != bool_, f"{values} cannot be looked for in {rows}")
        return [(values.shape, i32)]

    def evaluate(self, op: NetworkOp, rows: Array, values: Array) -> Array:
        """NumPy's search, row by row."""
        side: Any = "right" if op.attrs["right"] else "left"
        return np.stack([np.searchsorted(r, v, side=side) for r, v in zip(rows, values, strict=True)])

    def lower(self, to: Lowering, op: NetworkOp) -> Tensor:
        """One popops search."""
        rows, values = (to[v] for v in op.inputs)
        return popops.search_sorted(to.graph, rows, values, to.prog, right=op.attrs["right"])

    def backward(self, net: BlockBuilder, op: NetworkOp, grads: Gradients, wanted: Sequence[bool]) -> Gradients:
        """No gradients: indices do not change with values."""
        return [None, None]
