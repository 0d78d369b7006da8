"""Tensors laid out for reads and writes of the host."""

from __future__ import annotations

from collections.abc import Iterable

from abele.errors import TensorError
from abele.graph import Graph, Tensor
from abele.numerics import ElementType, as_element_type, u32
from abele.poplibs.poputil.mapping import linear_mapping, set_mapping


def create_host_transferable_tensor(
    graph: Graph, dtype: ElementType | str, shape: Iterable[int], name: str = "host_transferable"
) -> Tensor:
    """A new tensor in even pieces over all tiles, in order, so that a stream moves one piece per tile.

    Args:
        graph: Graph in which it is made.
        dtype: Element type.
        shape: Its shape.
        name: Name of the variable.

    Raises:
        TensorError: A negative extent.
        TypeMismatchError: No element type of the machine.
    """
    made = graph.variable(as_element_type(dtype), tuple(shape), name=name)
    return set_mapping(graph, made, linear_mapping(graph, made.size, made.dtype)) if made.size else made


def create_host_sliceable_tensor(
    graph: Graph, dtype: ElementType | str, shape: Iterable[int], name: str = "host_sliceable"
) -> tuple[Tensor, Tensor]:
    """A tensor [rows, columns] of rows for a remote buffer to fill or take, and u32[rows] for their numbers.

    Every row is spread over all tiles, so that a transfer of any one uses all of them.

    Raises:
        TensorError: The shape does not have two dimensions.
    """
    dims = tuple(shape)
    if len(dims) != 2:
        raise TensorError(f"{name}: shape {list(dims)}, it must be [rows, columns]")
    made = graph.variable(as_element_type(dtype), dims, name=name)
    if made.size:
        across = made.transpose((1, 0))
        set_mapping(graph, across, linear_mapping(graph, made.size, made.dtype, grain=dims[0]))
    return made, graph.variable(u32, (dims[0],), name=f"{name}/indices", map=0)
