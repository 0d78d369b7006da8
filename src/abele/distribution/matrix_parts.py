"""Parts of matrices: products that are joined to one matrix, an operand of other products.

The gradients of queries, keys and values are three stacks of products, by head; together they are the gradient of what
one product made, [rows, 3 · heads · width]. Each lies as its own plan left it, some with rows innermost, some with
channels. Put together, every element would be a piece of its own. So each is asked to lie as its part of the matrix
does, in groups of channels: pieces are then as long as those groups.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from abele.graph import Graph, Tensor
from abele.network.ir import SAME_ELEMENTS, NetworkOp, Value
from abele.poplibs.poputil.layout import channels_per_group
from abele.poplibs.poputil.order import storage_order

_PRODUCTS = frozenset({"linear", "matmul"})


@dataclass(frozen=True)
class MatrixPart:
    """A product as a part of a matrix.

    Attributes:
        matrix: The matrix.
        after: Views from what joins the parts to the matrix, in order.
        joining: The ``concat`` that joins them.
        number: Position of the part among its operands.
        before: Views from the product to the part, in order.
    """

    matrix: Value
    after: tuple[NetworkOp, ...]
    joining: NetworkOp
    number: int
    before: tuple[NetworkOp, ...]

    def model(self, graph: Graph) -> Tensor:
        """A tensor that lies as the product is to lie; nothing is ever written to it.

        Each part is spread over all tiles.
        """
        rows, columns = self.matrix.shape
        group = channels_per_group(columns)
        variable = graph.variable(self.matrix.dtype, (columns // group, rows, group), name="model")
        joined = _undone(variable.transpose((1, 0, 2)).reshape((rows, columns)), self.after)
        dim = self.joining.attrs["dim"]
        ends = [0]
        for value in self.joining.inputs:
            ends.append(ends[-1] + value.shape[dim])
        begin, end = list(pairwise(ends))[self.number]
        part = joined.slice(begin, end, dim)
        graph.map_linear(storage_order(part).apply(part))
        return _undone(part, self.before)


def matrix_parts(ops: Sequence[NetworkOp]) -> dict[Value, MatrixPart]:
    """Parts of matrices, by the product that makes each."""
    maker: dict[Value, NetworkOp] = {op.output: op for op in ops if len(op.outputs) == 1}
    readers: dict[Value, list[NetworkOp]] = {}
    for op in ops:
        for value in op.inputs:
            readers.setdefault(value, []).append(op)
    found: dict[Value, MatrixPart] = {}
    for op in ops:
        if op.kind != "concat":
            continue
        matrix, after = op.output, list[NetworkOp]()
        while len(reading := readers.get(matrix, [])) == 1 and reading[0].kind in SAME_ELEMENTS:
            after.append(reading[0])
            matrix = reading[0].output
        if matrix.ndim != 2 or not _is_in_products(matrix, readers):
            continue
        parts = [_product(value, maker) for value in op.inputs]
        if all(product in maker and maker[product].kind in _PRODUCTS for product, _ in parts):
            for number, (product, before) in enumerate(parts):
                found[product] = MatrixPart(matrix, tuple(after), op, number, before)
    return found


def _is_in_products(matrix: Value, readers: dict[Value, list[NetworkOp]]) -> bool:
    """True if a product reads a matrix, or its transpose."""
    reading = readers.get(matrix, [])
    turned = [reader for op in reading if op.kind == "permute" for reader in readers.get(op.output, [])]
    return any(op.kind in _PRODUCTS for op in (*reading, *turned))


def _product(value: Value, maker: dict[Value, NetworkOp]) -> tuple[Value, tuple[NetworkOp, ...]]:
    """The value behind some views, and these, in order."""
    views: list[NetworkOp] = []
    while (op := maker.get(value)) is not None and op.kind in SAME_ELEMENTS:
        views.append(op)
        value = op.inputs[0]
    return value, tuple(reversed(views))


def _undone(tensor: Tensor, views: Sequence[NetworkOp]) -> Tensor:
    """The tensor of which some views, one after the other, show ``tensor``."""
    for op in reversed(views):
        if op.kind == "reshape":
            tensor = tensor.reshape(op.inputs[0].shape)
        else:
            order = op.attrs["order"]
            tensor = tensor.transpose(sorted(range(len(order)), key=order.__getitem__))
    return tensor
