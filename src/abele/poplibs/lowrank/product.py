"""The product of a tile low-rank operator with vectors: three supersteps, and what a host runs instead."""

from __future__ import annotations

from abele.errors import TensorError, TypeMismatchError
from abele.graph import Graph, Sequence, Tensor
from abele.poplibs.lowrank.host import host_steps
from abele.poplibs.lowrank.operator import LowRankOperator
from abele.poplibs.lowrank.steps import LowRankSteps
from abele.poplibs.poputil.host_body import note_host


def low_rank_multiply(
    graph: Graph, operator: LowRankOperator, x: Tensor, prog: Sequence, *, name: str = "low_rank_multiply"
) -> Tensor:
    """A · x of a tile low-rank operator, as a new tensor.

    Cycles do not depend on the numbers: exchange is scheduled when the program is compiled, and every vertex has a
    fixed count of instructions.

    Args:
        graph: The graph.
        operator: The operator.
        x: A vector [N], or vectors [batch, N], of the operator's type.
        prog: Sequence that the call is appended to.
        name: Name of the call.

    Returns:
        [M], or [batch, M], in pieces over all tiles.

    Raises:
        TensorError: x of another shape, or an operator of another graph.
        TypeMismatchError: x of another type.
    """
    if not isinstance(operator, LowRankOperator):
        raise TypeMismatchError(f"low_rank_multiply takes a LowRankOperator, got {type(operator).__name__}")
    matrix = operator.matrix
    if operator.graph.top_level is not graph.top_level:
        raise TensorError("low_rank_multiply: the operator belongs to another graph")
    if x.dtype != operator.dtype:
        raise TypeMismatchError(
            f"low_rank_multiply: x is {x.dtype}, the operator {operator.dtype}",
            remedy=f"popops.cast(graph, x, {operator.dtype.name!r}, prog)",
        )
    if x.ndim not in (1, 2) or x.shape[-1] != matrix.shape[1] or x.size == 0:
        raise TensorError(
            f"low_rank_multiply: x takes [{matrix.shape[1]}] or [batch, {matrix.shape[1]}], got {list(x.shape)}",
            because=f"the matrix has {matrix.shape[0]} rows and {matrix.shape[1]} columns",
        )
    with graph.scope(name):
        y = graph.variable(x.dtype, (x.size // matrix.shape[1], matrix.shape[0]), name="y")
    result = y if x.ndim == 2 else y.reshape((matrix.shape[0],))
    flops = 2 * matrix.num_values * y.shape[0]
    inputs = (operator.v, operator.u, x)
    call = graph.library_call(prog, "lowrank.multiply", inputs=inputs, outputs=(result,), flops=flops, debug_name=name)
    product = LowRankSteps(graph, operator, x.reshape((y.shape[0], matrix.shape[1])), y)
    with call as body:
        product.emit(body)
    with graph.scope(name):
        note_host(prog, host_steps(product))
    return result
