"""Kinds whose lowering is a block of further ops, and what such blocks are made of.

Factorisations go over a matrix once per column. Written as loops of maps and reductions over stacks of matrices they
use all tiles whatever the shape is, a stack of small matrices as well as one large one; the kind keeps the derivative,
which is of the whole and not of the steps.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from abele.expr import Expr, select
from abele.expr.derivative import arg
from abele.graph import Graph, LibraryCall, Tensor
from abele.graph import Sequence as Steps
from abele.network.ir import BlockBuilder, NetworkBuilder, NetworkOp, OpBlock, Value
from abele.network.ops.elementwise import map_
from abele.network.ops.linear import matmul
from abele.network.ops.reduction import reduce
from abele.network.ops.views import reshape, transpose
from abele.network.registry import LazyReader, require
from abele.numerics import ElementType, bool_, f32, i32

if TYPE_CHECKING:
    from abele.distribution.lowering import Lowering


IN_BLOCKS = {"blockSize": 16, "vertices": "counted"}
"""Block size of Cholesky factors and triangular solves: 16 rows, as many as the AMP units take at once.

A diagonal block is done on one worker of one tile, at a cost that grows with the cube of its rows, and everything else
is products on all tiles. With poplin's 64 for solves, which is what published rows ran with, a factor of 128 rows and
its gradient take 8 times the cycles of 16, and one tile has 3 to 17 times the mean memory; 256 rows do not fit. The
vertices of PopLibs take three to five times the cycles of ours for the same block, and its solves go row by row.
"""


class Composed(LazyReader):
    """Kind whose lowering is that of the ops of :meth:`compose`."""

    def compose(self, net: BlockBuilder, op: NetworkOp, *inputs: Value) -> Sequence[Value]:
        """Append what computes ``op`` of ``inputs``; returns its results."""
        raise NotImplementedError

    def host_body(self, graph: Graph, given: Sequence[Tensor], results: Sequence[Tensor], name: str) -> Steps | None:
        """Steps that a host runs in place of these ops; None where the ops are as good."""
        return None

    def lower(self, to: Lowering, op: NetworkOp) -> tuple[Tensor, ...]:
        """The ops, as if they stood here: as the body of a call where a host has other steps."""
        net = NetworkBuilder()
        with net.at(op.debug):
            parameters = [net.input(v.shape, v.dtype, v.name) for v in op.inputs]
            results = self.compose(net, op, *parameters)
        block = OpBlock(tuple(parameters), tuple(net.ops), tuple(results))
        given, body = [to[v] for v in op.inputs], Steps()
        with to.into(body):
            made = tuple(t for t in to.block(block, op.inputs, leaving=op.outputs) if t is not None)
        host_body = self.host_body(to.graph, given, made, op.kind)
        if host_body is None:
            to.prog.add(body)
            return made
        debug = to.graph.origin(op.kind)
        to.prog.add(
            LibraryCall(
                name=f"network.{op.kind}",
                inputs=tuple(given),
                outputs=made,
                body=body,
                kernel=None,
                flops=0,
                debug=debug,
                host_body=host_body,
            )
        )
        return made


def check_matrices(value: Value, *, square: bool = False) -> None:
    """Refuse anything but a stack [b, m, n] of f32 matrices.

    Raises:
        NetworkError: It is none, or the matrices are not square.
    """
    require(value.ndim == 3 and value.dtype == f32, f"{value} is no stack of matrices, f32[b, m, n]")
    require(not square or value.shape[1] == value.shape[2], f"the matrices of {value} are not square")


def stacked(net: BlockBuilder, value: Value) -> Value:
    """Matrices [..., m, n] as one stack [b, m, n]."""
    return reshape(net, value, (math.prod(value.shape[:-2]), *value.shape[-2:]))


def numbers(net: BlockBuilder, count: int, dims: int, place: int) -> Value:
    """0, 1, … along dimension ``place`` of so many, i32."""
    shape = [1] * dims
    shape[place] = count
    return net.constant(np.arange(count).reshape(shape), i32)


def mapped(net: BlockBuilder, expression: Expr, *inputs: Value, dtype: ElementType = f32) -> Value:
    """A map with a result of ``dtype``."""
    return map_(net, expression, inputs, dtype)


def holds(net: BlockBuilder, expression: Expr, *inputs: Value) -> Value:
    """A map to bools."""
    return map_(net, expression, inputs, bool_)


def identity(net: BlockBuilder, batch: int, extent: int) -> Value:
    """A stack of identity matrices."""
    return net.constant(np.broadcast_to(np.eye(extent), (batch, extent, extent)), f32)


def times(net: BlockBuilder, *factors: Value) -> Value:
    """A product of matrices, from the left."""
    result, *rest = factors
    for factor in rest:
        result = matmul(net, result, factor)
    return result


def turned(net: BlockBuilder, value: Value) -> Value:
    """Rows and columns swapped."""
    return transpose(net, value)


def diagonal(net: BlockBuilder, value: Value) -> Value:
    """The diagonal [b, k] of [b, m, n]."""
    extent = min(value.shape[1:])
    mask = net.constant(np.eye(value.shape[1], value.shape[2]), bool_)
    kept = mapped(net, select(arg(1), arg(0), 0.0), value, mask)
    # The longer dimension is summed over, so that what stays is numbered along the shorter one.
    return reshape(net, reduce(net, kept, [2 if value.shape[1] == extent else 1]), (value.shape[0], extent))


def on_diagonal(net: BlockBuilder, value: Value) -> Value:
    """Diagonal matrices [b, n, n] of [b, n]."""
    batch, extent = value.shape
    mask = net.constant(np.eye(extent), bool_)
    return mapped(net, select(arg(1), arg(0), 0.0), reshape(net, value, (batch, extent, 1)), mask)


def ranks(net: BlockBuilder, keys: Value, *, descending: bool = False) -> Value:
    """Rank of each of [b, n] in order, i32; equal ones in the order of their places."""
    batch, extent = keys.shape
    mine, others = reshape(net, keys, (batch, extent, 1)), reshape(net, keys, (batch, 1, extent))
    ahead = arg(1) > arg(0) if descending else arg(1) < arg(0)
    here, there = numbers(net, extent, 3, 1), numbers(net, extent, 3, 2)
    tied = (arg(1).eq(arg(0)), arg(3) < arg(2))
    before = select(ahead, 1, select(tied[0], select(tied[1], 1, 0), 0))
    return reduce(net, mapped(net, before, mine, others, here, there, dtype=i32), [2])


def one_hot(net: BlockBuilder, places: Value, extent: int) -> Value:
    """[b, extent, n] of places [b, n]: 1 where the row is the place of the column."""
    batch, count = places.shape
    rows = numbers(net, extent, 3, 1)
    return mapped(net, select(arg(0).eq(arg(1)), 1.0, 0.0), rows, reshape(net, places, (batch, 1, count)))


Step = Callable[..., Sequence[Value]]
