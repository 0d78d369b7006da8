"""Square matrices in square blocks, one block of one batch per tile."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from abele.arrays import Int64
from abele.errors import TensorError, TypeMismatchError
from abele.graph import Graph, Sequence, Tensor, concat
from abele.numerics import ElementType, as_element_type, f32
from abele.poplibs.poplin.contraction import problem as problems
from abele.poplibs.poplin.operations.matmul_layout import product_call
from abele.poplibs.poplin.options import Planning
from abele.poplibs.poputil.options import PROPORTION, Option, Options, choice, integer, read_options

_PRODUCTS: Mapping[str, Option] = {
    "availableMemoryProportion": PROPORTION,
    "vertices": choice("library", "counted"),
}
"""Proportion of a tile that products may take; and PopLibs' vertices and steps, of published costs, or our own. Ours
are counted from their code and share out right-hand sides.
"""
FACTOR_OPTIONS: Mapping[str, Option] = {"blockSize": integer(8, 1), **_PRODUCTS}
SOLVE_OPTIONS: Mapping[str, Option] = {"blockSize": integer(64, 1), **_PRODUCTS}
"""Source of the defaults: machine reference §4.15, S."""


@dataclass(frozen=True)
class BlockOptions:
    """Settings of a factorisation or a solve.

    Attributes:
        block: Rows of a block that one vertex takes.
        proportion: Share of a tile's memory that products may take.
        library: True for PopLibs' vertices and steps.
    """

    block: int
    proportion: float
    library: bool


def read(function: str, options: Options, known: Mapping[str, Option]) -> BlockOptions:
    """The options of a call, of those ``known``."""
    values: dict[str, Any] = read_options(function, options, known)
    return BlockOptions(
        values["blockSize"], values["availableMemoryProportion"], library=values["vertices"] == "library"
    )


def as_batch(function: str, name: str, tensor: Tensor) -> Tensor:
    """A tensor [..., m, n] of floats as [b, m, n].

    Raises:
        TensorError: It has fewer than two dimensions.
        TypeMismatchError: Its elements are neither f32 nor f16.
    """
    check_type(function, name, tensor.dtype)
    if tensor.ndim < 2:
        raise TensorError(f"{function}: {name} takes [..., rows, columns], got shape {list(tensor.shape)}")
    batch = int(np.prod(tensor.shape[:-2], dtype=np.int64))
    return tensor.reshape((batch, *tensor.shape[-2:]))


def check_type(function: str, name: str, dtype: ElementType) -> None:
    """Refuse types other than f32 and f16.

    Raises:
        TypeMismatchError: Another type.
    """
    if dtype.name not in ("f32", "f16"):
        raise TypeMismatchError(f"{function}: {name} takes f32 or f16 elements, got {dtype}")


def check_square(function: str, name: str, shape: tuple[int, ...]) -> None:
    """Refuse shapes whose last two dimensions differ.

    Raises:
        TensorError: They do, or there are none.
    """
    if len(shape) < 2 or shape[-1] != shape[-2] or 0 in shape:
        raise TensorError(f"{function}: {name} takes square matrices [..., n, n], got shape {list(shape)}")


def extents(size: int, block: int) -> list[int]:
    """Rows of each block."""
    return [min(block, size - start) for start in range(0, size, block)]


def equal_shares(total: int, each: int) -> list[tuple[slice, slice, int]]:
    """Tiles that take ``each`` of ``total``, and one for the rest: tiles, their range, and the part of each."""
    full, rest = divmod(total, each)
    found = [(slice(0, full), slice(0, full * each), each)] if full else []
    return found + ([(slice(full, full + 1), slice(full * each, total), rest)] if rest else [])


def emit_product(graph: Graph, body: Sequence, a: Tensor, b: Tensor, proportion: float) -> Tensor:
    """Append the steps of the products of [g, m, k] and [g, k, n] to a body; [g, m, n] in the type of ``a``."""
    problem = problems.matmul(
        a.shape[0], a.shape[1], a.shape[2], columns=b.shape[2], dtype=a.dtype, partials=f32, output=a.dtype
    )
    planning = Planning(proportion=proportion)
    return product_call(graph, "poplin.matmul_grouped", "product", problem=problem, a=a, b=b, planning=planning).emit(
        body
    )


def block_tiles(graph: Graph, batch: int, index: int) -> Int64:
    """Tiles int64[batch] of a block, by its number in row-major order."""
    return (index * batch + np.arange(batch, dtype=np.int64)) % graph.num_tiles


def create_matrix(
    graph: Graph, dtype: ElementType | str, shape: tuple[int, ...], block: int, function: str, name: str
) -> Tensor:
    """A tensor [..., m, n] each of whose blocks lies whole on a tile.

    Raises:
        TensorError: A shape of fewer than two dimensions, or with an extent of 0.
        TypeMismatchError: The type is neither f32 nor f16.
    """
    element = _checked(dtype, shape, function, name)
    batch = int(np.prod(shape[:-2], dtype=np.int64))
    rows, columns = (equal_shares(extent, block) for extent in shape[-2:])
    # Blocks are numbered row by row; block b of all batches lies on tiles b·batch, b·batch + 1, and so on.
    across = columns[-1][0].stop
    made: list[list[Tensor]] = []
    for down, _, m in rows:
        made.append([])
        for along, _, n in columns:
            numbers = np.arange(down.start, down.stop)[:, None] * across + np.arange(along.start, along.stop)
            blocks = graph.variable(element, (*numbers.shape, batch, m, n), name=f"{name}/blocks")
            tiles = (numbers.reshape((-1, 1)) * batch + np.arange(batch)) % graph.num_tiles
            graph.map_rows(blocks.reshape((tiles.size, m * n)), tiles.ravel().tolist())
            shown = blocks.transpose((2, 0, 3, 1, 4))
            made[-1].append(shown.reshape((batch, numbers.shape[0] * m, numbers.shape[1] * n)))
    return concat([concat(row, 2) for row in made], 1).reshape(shape)


def create_rows(
    graph: Graph, dtype: ElementType | str, shape: tuple[int, ...], block: int, function: str, name: str
) -> Tensor:
    """A tensor [..., m, n] each of whose rows lies whole on a tile; a block's rows are on as many tiles.

    Raises:
        As :func:`create_matrix`.
    """
    made = graph.variable(_checked(dtype, shape, function, name), shape, name=name)
    flat = made.reshape((-1, shape[-1]))
    rows = np.arange(flat.shape[0], dtype=np.int64) % shape[-2] % block
    graph.map_rows(flat, (rows % graph.num_tiles).tolist())
    return made


def _checked(dtype: ElementType | str, shape: tuple[int, ...], function: str, name: str) -> ElementType:
    """The element type of an operand, after its type and shape are found to be possible."""
    element = as_element_type(dtype)
    check_type(function, name, element)
    if len(shape) < 2 or 0 in shape:
        raise TensorError(f"{function}: {name} takes [..., rows, columns], got shape {list(shape)}")
    return element


# Evenly spaced numbers, and grids of two coordinates.


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
