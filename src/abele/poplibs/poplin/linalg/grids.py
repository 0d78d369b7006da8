"""Evenly spaced numbers, and grids of two coordinates."""

from __future__ import annotations

import numpy as np

from abele.errors import TensorError
from abele.graph import Graph, Tensor
from abele.numerics import ElementType, as_element_type
from abele.poplibs.poplin.linalg.blocks import check_type


def linspace(
    graph: Graph, dtype: ElementType | str, left: float, right: float, count: int, *, name: str = "linspace"
) -> Tensor:
    """``count`` numbers from ``left`` to ``right``, both included, evenly spaced: a constant [count].

    Raises:
        TensorError: ``count`` is below 1.
        TypeMismatchError: The type is neither f32 nor f16.
    """
    element = as_element_type(dtype)
    check_type("linspace", "dtype", element)
    if count < 1:
        raise TensorError(f"linspace takes a count of at least 1, got {count}")
    return graph.map_linear(graph.constant(element, (count,), np.linspace(left, right, count), name=name))


def meshgrid2d(graph: Graph, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """Views [len(y), len(x)] of coordinates: the first has ``x`` along each row, the second ``y`` along each column.

    Raises:
        TensorError: ``x`` or ``y`` is no vector.
    """
    if x.ndim != 1 or y.ndim != 1:
        raise TensorError(f"meshgrid2d takes vectors, got shapes {list(x.shape)} and {list(y.shape)}")
    shape = (y.size, x.size)
    return x.expand_dims(0).broadcast_to(shape), y.expand_dims(1).broadcast_to(shape)
