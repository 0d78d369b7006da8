"""Outputs of element-wise operations, laid out like the operand that is spread best."""

from __future__ import annotations

from collections.abc import Sequence

from abele.errors import TensorError
from abele.graph import Graph, Tensor
from abele.numerics import ElementType, as_element_type
from abele.poplibs.poputil.broadcast import broadcast_shape
from abele.poplibs.poputil.layout import create_output_like


def create_output_for_element_wise_op(
    graph: Graph, inputs: Sequence[Tensor], dtype: ElementType | str, name: str = "output"
) -> Tensor:
    """A new tensor for the result of an element-wise operation on ``inputs``, in the shape that they broadcast to.

    It has the order in memory and the mapping of the operand that lies on the tiles most evenly, and is spread linearly
    where none of them lies well.

    Args:
        graph: Graph in which it is made.
        inputs: At least one operand.
        dtype: Element type of the output.
        name: Name of the variable.

    Raises:
        TensorError: No operand, or operands that do not broadcast.
    """
    if not inputs:
        raise TensorError(f"{name}: an output is laid out like its operands, and there are none")
    shape = broadcast_shape(name, [t.shape for t in inputs])
    return create_output_like(graph, inputs, shape, as_element_type(dtype), name)
