"""Tensors that are cut into equal parts along every dimension, each part in one stretch of memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product
from math import prod

from abele.errors import TensorError
from abele.graph import Graph, Tensor, concat
from abele.numerics import ElementType

Visit = Callable[[tuple[int, ...], Tensor], None]


def create_partitionable_tensor(
    graph: Graph, dtype: ElementType | str, shape: Sequence[int], parts: Sequence[int], name: str = "partitionable"
) -> Tensor:
    """A new tensor whose parts, ``parts[d]`` along dimension d, each lie in one stretch of memory; not mapped yet.

    Parts along a dimension have ceil(extent / parts) elements but for the last ones, which may have fewer or none.

    Raises:
        TensorError: Not one number of parts per dimension, or one below 1.
    """
    _check(tuple(shape), parts, name)
    return _part_of(graph, dtype, tuple(shape), tuple(parts), name)


def iterate_tensor_partitions(tensor: Tensor, parts: Sequence[int], visit: Visit) -> None:
    """Call ``visit(numbers, part)`` for the parts of :func:`create_partitionable_tensor`, row-major; empty ones too.

    Raises:
        TensorError: Not one number of parts per dimension, or one below 1.
    """
    _check(tuple(tensor.shape), parts, "iterate_tensor_partitions")
    for numbers in product(*(range(n) for n in parts)):
        part = tensor
        for dim, (number, count) in enumerate(zip(numbers, parts, strict=True)):
            begin, end = _bounds(tensor.shape[dim], count, number)
            part = part.slice(begin, end, dim)
        visit(numbers, part)


def _part_of(
    graph: Graph, dtype: ElementType | str, shape: tuple[int, ...], parts: tuple[int, ...], name: str
) -> Tensor:
    """Parts after each other in one variable, put together dimension by dimension."""
    sizes = [[_bounds(n, p, i) for i in range(p)] for n, p in zip(shape, parts, strict=True)]
    variable, at = graph.variable(dtype, (prod(shape),), name=name), 0
    pieces: dict[tuple[int, ...], Tensor] = {}
    for numbers in product(*(range(p) for p in parts)):
        extents = tuple(sizes[d][i][1] - sizes[d][i][0] for d, i in enumerate(numbers))
        pieces[numbers] = variable[at : at + prod(extents)].reshape(extents)
        at += prod(extents)
    return _joined(pieces, parts, ())


def _joined(pieces: dict[tuple[int, ...], Tensor], parts: tuple[int, ...], numbers: tuple[int, ...]) -> Tensor:
    dim = len(numbers)
    if dim == len(parts):
        return pieces[numbers]
    return concat([_joined(pieces, parts, (*numbers, i)) for i in range(parts[dim])], dim)


def _bounds(extent: int, parts: int, number: int) -> tuple[int, int]:
    size = -(-extent // parts)
    return min(number * size, extent), min((number + 1) * size, extent)


def _check(shape: tuple[int, ...], parts: Sequence[int], name: str) -> None:
    if len(parts) != len(shape) or any(n < 1 for n in parts):
        raise TensorError(
            f"{name}: parts {list(parts)} of shape {list(shape)}", remedy="one number from 1 on a dimension"
        )
