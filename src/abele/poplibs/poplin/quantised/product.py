"""Products with quantised weights, and weights made numbers again.

A product of few rows reads codes where they lie: a tile has some outputs and some groups of columns, makes halves of
its codes in registers and multiplies them with each row of x; sums over groups of several tiles are added up. Many rows
would take longer so than in the matrix units: for these the weights become numbers first, and the product is
an ordinary one. The cheaper of both by expected cycles is taken; the host has kernels of its own for either.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import numpy as np

from abele.arrays import Int64
from abele.errors import TensorError, TypeMismatchError
from abele.graph import Copy, Execute, Graph, Tensor, concat
from abele.graph.program import Sequence
from abele.kernels.nest.ir import Affine, Cast, Expr, HostKernel, affine, apply, load, nest, store
from abele.numerics import ElementType, f8_143, f16, f32
from abele.poplibs import popops
from abele.poplibs.poplin.contraction import problem as problems
from abele.poplibs.poplin.operations.matmul import matmul
from abele.poplibs.poplin.planner.target import least_cycles, target_of
from abele.poplibs.poplin.quantised.codelets import dequantise_codelet, product_codelet
from abele.poplibs.poplin.quantised.costs import (
    CodeSizes,
    QuantisedSplit,
    best_split,
    dequantise_cycles,
    product_cycles,
)
from abele.poplibs.poplin.quantised.host import MOST_ROWS, host_product
from abele.poplibs.poputil.host_body import note_host
from abele.weights.quantised import kind_of_codes

WORD, PIECE = 8, 64
"""Columns of the largest word of codes, and the least of a piece of a row: as few as of the usual groups."""


@dataclass(frozen=True)
class QuantisedTensor:
    """A quantised matrix [out, in] in a graph.

    Attributes:
        kind: ``int8``, ``int4`` or ``f143``.
        codes: i8 or u8 [out, in]; u8 [out, in/2] for int4.
        scales: f16 or f32 [out, groups].
        offsets: As scales, or None.
    """

    kind: str
    codes: Tensor
    scales: Tensor
    offsets: Tensor | None = None

    def __post_init__(self) -> None:
        held = kind_of_codes(self.kind)
        fits = self.codes.ndim == self.scales.ndim == 2 and self.codes.shape[0] == self.scales.shape[0]
        if not fits or not self.scales.size or self.codes.shape[1] % self.scales.shape[1]:
            raise TensorError(f"scales {self.scales!r} do not fit codes {self.codes!r} of {self.kind}")
        if self.codes.dtype.np != np.dtype(held.dtype):
            raise TypeMismatchError(f"codes of {self.kind} are {np.dtype(held.dtype)}, not {self.codes.dtype}")
        if self.scales.dtype not in (f16, f32):
            raise TypeMismatchError(f"scales are {self.scales.dtype}", remedy="f16 or f32")
        if self.offsets is not None and (self.offsets.shape, self.offsets.dtype) != (
            self.scales.shape,
            self.scales.dtype,
        ):
            raise TensorError(f"offsets {self.offsets!r} are not as scales {self.scales!r}")

    @property
    def weights(self) -> CodeSizes:
        """Sizes and kind."""
        per_byte = kind_of_codes(self.kind).per_byte
        (outputs, groups), stored = self.scales.shape, self.codes.shape[1]
        columns = stored * per_byte
        return CodeSizes(self.kind, outputs, groups, columns // groups, stored // groups, self.offsets is not None)

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """Codes, scales and offsets, if there are any."""
        return (self.codes, self.scales, *(() if self.offsets is None else (self.offsets,)))

    def in_pieces(self) -> QuantisedTensor:
        """The same with rows of one group cut into equal pieces, so that tiles can share a row."""
        sizes = self.weights
        pieces = pieces_of(sizes)
        if pieces == 1:
            return self
        offsets = None if self.offsets is None else self.offsets.broadcast(pieces, 1)
        return replace(self, scales=self.scales.broadcast(pieces, 1), offsets=offsets)

    @property
    def numbers(self) -> Tensor:
        """Codes by the element type of their numbers."""
        return self.codes.reinterpret(f8_143) if self.kind == "f143" else self.codes

    @property
    def shift(self) -> str:
        """Kind of shift of a group, by the names of the vertices."""
        if self.offsets is not None:
            return "offsets"
        return "centre" if kind_of_codes(self.kind).centre else "none"


def pieces_of(sizes: CodeSizes) -> int:
    """Pieces of :data:`PIECE` columns at least into which rows of one group are cut; 1 where groups stay."""
    if sizes.groups > 1 or sizes.group % WORD:
        return 1
    words = sizes.group // WORD
    return max(n for n in range(1, max(1, sizes.group // PIECE) + 1) if words % n == 0)


def quantised_matmul(
    graph: Graph,
    x: Tensor,
    weights: QuantisedTensor,
    prog: Sequence,
    *,
    available_memory_proportion: float | None = None,
    name: str = "quantised_matmul",
) -> Tensor:
    """``x · Wᵀ`` for x [rows, in] and quantised W [out, in]: [rows, out] of x's type; sums are of f32.

    Args:
        graph: The graph.
        x: f16 or f32.
        weights: The matrix.
        prog: Program that calls are appended to.
        available_memory_proportion: Of the ordinary product, where one is made.
        name: Name of the calls.

    Raises:
        TensorError: x has another number of columns.
        TypeMismatchError: x is neither f16 nor f32.
    """
    sizes = weights.weights
    columns = sizes.groups * sizes.group
    if x.ndim != 2 or x.shape[1] != columns or not x.size:
        raise TensorError(f"{name}: x {x!r} is no [rows, {columns:,}], for weights of {columns:,} columns")
    if x.dtype not in (f16, f32):
        raise TypeMismatchError(f"{name}: x is {x.dtype}", remedy="f16 or f32")
    proportion = available_memory_proportion
    if x.shape[0] > MOST_ROWS:
        return _multiplied(graph, x, weights, prog, proportion, name)
    rows, flops = x.shape[0], 2 * x.shape[0] * sizes.outputs * columns
    out = graph.map_linear(graph.variable(x.dtype, (rows, sizes.outputs), name="product"))
    inputs = (x, *weights.tensors)
    with graph.library_call(
        prog, "poplin.quantised_matmul", inputs=inputs, outputs=(out,), flops=flops, debug_name=name
    ) as body:
        if multiplies_codes(graph, rows, x.dtype, weights.in_pieces().weights):
            _sum_codes(graph, x, weights, out, body)
        else:
            body.add(Copy(_multiplied(graph, x, weights, body, proportion, name), out))
    parts = (weights.codes, weights.scales, weights.offsets)
    note_host(prog, host_product(graph, x, parts, out, weights.kind, name))
    return out


def _multiplied(
    graph: Graph, x: Tensor, weights: QuantisedTensor, prog: Sequence, proportion: float | None, name: str
) -> Tensor:
    """An ordinary product with the weights' numbers."""
    numbers = dequantise(graph, weights, x.dtype, prog)
    return matmul(graph, x, numbers.T, prog, available_memory_proportion=proportion, name=name)


def _sum_codes(graph: Graph, x: Tensor, weights: QuantisedTensor, out: Tensor, body: Sequence) -> None:
    """Products of codes where they lie, added up into ``out``."""
    weights = weights.in_pieces()
    split = best_split(weights.weights, x.dtype, x.shape[0], graph.system)
    partials = _partials(graph, x, weights, split, body)
    if split.parts[1] > 1:
        popops.reduce_with_output(graph, partials, out, [0], "ADD", body)
    else:
        made = partials[0] if x.dtype == f32 else popops.cast(graph, partials[0], x.dtype, body)
        body.add(Copy(made, out))


def multiplies_codes(graph: Graph, rows: int, dtype: ElementType, weights: CodeSizes) -> bool:
    """True if products of codes where they lie are expected to take less than an ordinary product of numbers.

    The ordinary one is taken at its least: every tile makes numbers, which go to other tiles once.
    """
    if rows > MOST_ROWS:
        return False
    target = target_of(graph.system)
    columns = weights.groups * weights.group
    each = -(-weights.outputs * weights.groups // target.tiles)
    moving = each * weights.group * dtype.bytes / target.exchange_bytes_per_cycle
    problem = problems.matmul(1, rows, columns, columns=weights.outputs, dtype=dtype, partials=f32, output=dtype)
    numbers = int(dequantise_cycles(weights, dtype, each, graph.system)) + moving + least_cycles(problem, target)
    return best_split(weights, dtype, rows, graph.system).cycles <= numbers + 2 * target.superstep_cycles


def create_part(
    graph: Graph,
    dtype: ElementType,
    shape: tuple[int, ...],
    *,
    x: tuple[int, ElementType],
    kind: str,
    codes: tuple[int, ...],
    groups: int,
    offsets: bool,
    name: str,
) -> Tensor:
    """Codes, scales or offsets of a quantised matrix, where they are multiplied or made numbers.

    Args:
        graph: The graph.
        dtype: Element type of the part.
        shape: [out, groups · n].
        x: Rows of x, and their type.
        kind: Kind of the codes.
        codes: Shape of the codes.
        groups: Groups of a row.
        offsets: True if the matrix has offsets.
        name: Name of the variable.
    """
    columns = codes[1] * kind_of_codes(kind).per_byte
    sizes = CodeSizes(kind, codes[0], groups, columns // groups, codes[1] // groups, offsets)
    made, (outputs, stored) = graph.variable(dtype, shape, name=name), shape
    each, pieces = stored // groups, pieces_of(sizes)
    cut = CodeSizes(kind, codes[0], groups * pieces, sizes.group // pieces, sizes.code_bytes // pieces, offsets)
    if not multiplies_codes(graph, *x, cut):
        made.reshape((outputs * groups, each)).map_rows(_tiles_of_groups(graph, sizes).tolist())
        return made
    split = best_split(cut, x[1], x[0], graph.system)
    across, width = np.arange(outputs) // split.outputs * split.parts[1], split.groups * each // pieces
    if not width:
        # One scale of a whole row, whose pieces are on several tiles.
        return made.map_rows(across.tolist())
    whole = stored // width
    if whole:
        tiles = (across[:, None] + np.arange(whole)).reshape(-1)
        made[:, : whole * width].reshape((outputs * whole, width)).map_rows(tiles.tolist())
    if stored > whole * width:
        made[:, whole * width :].map_rows((across + whole).tolist())
    return made


def _tiles_of_groups(graph: Graph, sizes: CodeSizes) -> Int64:
    """Tile that makes numbers of each group, int64[out · groups]."""
    groups = sizes.outputs * sizes.groups
    return np.arange(groups) // -(-groups // target_of(graph.system).tiles)


def _partials(graph: Graph, x: Tensor, weights: QuantisedTensor, split: QuantisedSplit, body: Sequence) -> Tensor:
    """Sums of each part of the groups, f32 [parts, rows, out]."""
    sizes, rows, step = weights.weights, x.shape[0], graph.compute_set("products")
    along = split.parts[1]
    codelet = product_codelet(weights.kind, weights.numbers.dtype, weights.scales.dtype, x.dtype, weights.shift)
    pieces: dict[tuple[int, int], Tensor] = {}
    ends = (_stretches(sizes.outputs, split.outputs), _stretches(sizes.groups, split.groups))
    for (first, high, count), (start, wide, parts) in product(*ends):
        tiles = first // split.outputs + np.arange(count)
        tiles = (tiles[:, None] * along + start // split.groups + np.arange(parts)).reshape(-1)

        def blocks(
            tensor: Tensor,
            stored: int,
            first: int = first,
            high: int = high,
            count: int = count,
            start: int = start,
            wide: int = wide,
            parts: int = parts,
        ) -> Tensor:
            part = tensor[first : first + high * count, start * stored : (start + wide * parts) * stored]
            cut = part.reshape((count, high, parts, wide * stored)).transpose((0, 2, 1, 3))
            return cut.reshape((count * parts, high * wide * stored))

        taken = x[:, start * sizes.group : (start + wide * parts) * sizes.group]
        taken = taken.reshape((rows, parts, wide * sizes.group)).transpose((1, 0, 2))
        taken = taken.reshape((1, parts, rows * wide * sizes.group)).broadcast(count, 0)
        made = graph.variable(f32, (count * parts, rows * high), name="partials")
        made.map_rows(tiles.tolist())
        fields: dict[str, Any] = {} if weights.offsets is None else {"offsets": blocks(weights.offsets, 1)}
        cycles = int(product_cycles(sizes, x.dtype, rows, high, wide, graph.system))
        step.vertices(
            codelet,
            tile=tiles.astype(np.int32),
            cycles=np.full(len(tiles), cycles, np.int64),
            codes=blocks(weights.numbers, sizes.code_bytes),
            scales=blocks(weights.scales, 1),
            x=taken.reshape((count * parts, rows * wide * sizes.group)),
            out=made,
            rows=rows,
            groups=wide,
            group=sizes.group,
            **fields,
        )
        shown = made.reshape((count, parts, rows, high)).transpose((1, 2, 0, 3))
        pieces[first, start] = shown.reshape((parts, rows, count * high))
    body.add(Execute(step))
    starts = sorted({start for _, start in pieces})
    return concat([concat([t for (_, s), t in sorted(pieces.items()) if s == start], 2) for start in starts], 0)


def _stretches(extent: int, part: int) -> list[tuple[int, int, int]]:
    """Begin, size and number of equal parts, and of the last one if it is smaller."""
    whole = extent // part
    found = [(0, part, whole)] if whole else []
    return found + ([(whole * part, extent - whole * part, 1)] if extent > whole * part else [])


def dequantise(
    graph: Graph, weights: QuantisedTensor, dtype: ElementType, prog: Sequence, name: str = "dequantise"
) -> Tensor:
    """The numbers of a quantised matrix, [out, in] of ``dtype``: each product and sum in f32, then rounded once."""
    sizes = weights.weights
    groups, tiles = sizes.outputs * sizes.groups, target_of(graph.system).tiles
    out = graph.variable(dtype, (sizes.outputs, sizes.groups * sizes.group), name="numbers")
    flat = out.reshape((groups, sizes.group))
    each = -(-groups // tiles)
    flat.map_rows(_tiles_of_groups(graph, sizes).tolist())
    with graph.library_call(
        prog,
        "poplin.dequantise",
        inputs=(weights.numbers, *weights.tensors[1:]),
        outputs=(out,),
        kernel=_dequantise_kernel(weights, out),
        debug_name=name,
    ) as body:
        step = graph.compute_set("dequantise")
        codelet = dequantise_codelet(weights.kind, weights.numbers.dtype, weights.scales.dtype, dtype, weights.shift)
        for first, size, count in _stretches(groups, each):

            def rows(tensor: Tensor, first: int = first, size: int = size, count: int = count) -> Tensor:
                stored = tensor.size // groups
                return tensor.reshape((groups, stored))[first : first + size * count].reshape((count, size * stored))

            fields: dict[str, Any] = {} if weights.offsets is None else {"offsets": rows(weights.offsets)}
            cycles = int(dequantise_cycles(sizes, dtype, size, graph.system))
            step.vertices(
                codelet,
                tile=(first // each + np.arange(count)).astype(np.int32),
                cycles=np.full(count, cycles, np.int64),
                codes=rows(weights.numbers),
                scales=rows(weights.scales),
                out=rows(flat),
                group=sizes.group,
                **fields,
            )
        body.add(Execute(step))
    return out


def _dequantise_kernel(weights: QuantisedTensor, out: Tensor) -> HostKernel:
    """For every byte of a group one or two numbers."""
    sizes, last = weights.weights, len(weights.tensors)
    dims = {"n": sizes.outputs, "g": sizes.groups, "c": sizes.code_bytes}
    place = affine(("g", sizes.code_bytes), ("c", 1))
    code = load(0, "n", place)

    def number(value: Expr) -> Expr:
        if weights.shift == "centre":
            value = value - 8.0
        scaled = value * load(1, "n", "g")
        return scaled + load(2, "n", "g") if weights.shift == "offsets" else scaled

    def column(step: int, offset: int) -> Affine:
        return affine(("g", sizes.group), ("c", step), const=offset)

    if weights.kind == "int4":
        low, high = (Cast(f32, part) for part in (apply("and", code, 15), apply("shr", code, 4)))
        stores = [store(last, ("n", column(2, 0)), number(low)), store(last, ("n", column(2, 1)), number(high))]
    else:
        stores = [store(last, ("n", column(1, 0)), number(code if weights.kind == "f143" else Cast(f32, code)))]
    inputs = (weights.numbers, *weights.tensors[1:])
    shapes, types = tuple(t.shape for t in (*inputs, out)), tuple(t.dtype for t in (*inputs, out))
    return HostKernel(shapes, types, last, 1, (nest(dims, *stores),))
