"""Solves with triangular matrices, by halves: diagonal blocks by substitution, one after the other, products between.

The halves of a system are solved one after the other, so the diagonal blocks are too: each on a tile of its own where
there is one right-hand side, otherwise on as many tiles as give each worker one, to which the block is sent.

Against Graphcore's own model: systems with one right-hand side on the left agree within 10 %. On the right its vertex
takes twice as long for the same number of products, those of the whole square instead of a triangle; why is not public.
With 64 right-hand sides it seems to invert the block and multiply, in about the time that substitution takes here; with
256 it takes 5 to 8 times as long, and more with more right-hand sides, as if few tiles shared them; here they are
spread. Its memory for small systems, 0.8 KB on every tile of the chip whatever the type, looks like maps over the whole
chip that mask the other triangle first. Nothing here reads that triangle, so it is not masked.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from abele.errors import TensorError, TypeMismatchError
from abele.graph import Execute, Graph, Sequence, Tensor, concat
from abele.numerics import ElementType
from abele.poplibs.poplin.linalg import blocks
from abele.poplibs.poplin.linalg.codelets import solve_codelet
from abele.poplibs.poplin.linalg.host import host_solve
from abele.poplibs.popops.elementwise.map import emit_map
from abele.poplibs.popops.expr import _1, _2
from abele.poplibs.poputil.host_body import note_host
from abele.poplibs.poputil.options import Options


def create_triangular_solve_input_lhs(
    graph: Graph,
    dtype: ElementType | str,
    a_shape: tuple[int, ...],
    b_shape: tuple[int, ...],
    left_side: bool = True,
    *,
    options: Options = None,
    name: str = "a",
) -> Tensor:
    """The triangular operand [..., n, n] of a solve, each block whole on a tile.

    Raises:
        TensorError: It is not square, or does not fit ``b_shape``.
        TypeMismatchError: The type is neither f32 nor f16.
        InvalidOptionError: An option or value that there is not.
    """
    _check("create_triangular_solve_input_lhs", a_shape, b_shape, left_side)
    return blocks.create_matrix(graph, dtype, a_shape, options, "create_triangular_solve_input_lhs", name)


def create_triangular_solve_input_rhs(
    graph: Graph,
    dtype: ElementType | str,
    a_shape: tuple[int, ...],
    b_shape: tuple[int, ...],
    left_side: bool = True,
    *,
    options: Options = None,
    name: str = "b",
) -> Tensor:
    """The right-hand sides [..., n, r] (left) or [..., r, n] (right) of a solve, each block whole on a tile.

    Raises:
        As :func:`create_triangular_solve_input_lhs`.
    """
    _check("create_triangular_solve_input_rhs", a_shape, b_shape, left_side)
    return blocks.create_matrix(graph, dtype, b_shape, options, "create_triangular_solve_input_rhs", name)


def triangular_solve(
    graph: Graph,
    a: Tensor,
    b: Tensor,
    left_side: bool,
    lower: bool,
    unit_diagonal: bool,
    prog: Sequence,
    *,
    options: Options = None,
    name: str = "triangular_solve",
) -> Tensor:
    """X of A·X = B (``left_side``) or X·A = B, as a new tensor of B's shape.

    Only the triangle of ``a`` that is meant is read; with ``unit_diagonal`` its diagonal is taken as ones. A zero on
    the diagonal gives infinities and not-a-numbers.

    Args:
        graph: The graph.
        a: [..., n, n], f32 or f16.
        b: [..., n, r] or, on the right, [..., r, n], with the same batches.
        left_side: True if A stands on the left of X.
        lower: True if A is lower triangular.
        unit_diagonal: True if A's diagonal is taken as ones.
        prog: Where the call is appended.
        options: ``blockSize`` (rows of a block that is solved by substitution), ``availableMemoryProportion`` (of the
            products between).
        name: Name of the call.

    Raises:
        TensorError: Shapes that do not fit.
        TypeMismatchError: Elements of other types, or of two types.
        InvalidOptionError: An option or value that there is not.
    """
    block, proportion = blocks.read("triangular_solve", options)
    whole_a, whole_b = (blocks.as_batch("triangular_solve", n, t) for n, t in (("a", a), ("b", b)))
    _check("triangular_solve", a.shape, b.shape, left_side)
    if a.dtype != b.dtype:
        raise TypeMismatchError(f"triangular_solve takes operands of one type, got {a!r} and {b!r}")
    if b.size == 0:
        return graph.clone(b, name=f"{name}/out")
    # X·A = B is Aᵀ·Xᵀ = Bᵀ: the transpose of a lower triangle is an upper one.
    if not left_side:
        whole_a, whole_b, lower = whole_a.transpose((0, 2, 1)), whole_b.transpose((0, 2, 1)), not lower
    with graph.scope(name):
        solve = Solve(graph, a=whole_a, b=whole_b, block=block, lower=lower, unit=unit_diagonal, proportion=proportion)
        found = concat(solve.out, 1)
    result = (found if left_side else found.transpose((0, 2, 1))).reshape(b.shape)
    flops = b.size * a.shape[-1]
    call = graph.library_call(
        prog, "poplin.triangular_solve", inputs=(a, b), outputs=(result,), flops=flops, debug_name=name
    )
    with call as body:
        solve.emit(body)
    note_host(prog, host_solve(graph, whole_a, whole_b, found, lower=lower, unit=unit_diagonal, name=name))
    return result


@dataclass
class Solve:
    """The solve A·X = B of batches.

    Attributes:
        graph: The graph.
        a: Triangular matrices [batch, n, n].
        b: Right-hand sides [batch, n, r].
        block: Rows of a diagonal block.
        lower: True if A is lower triangular.
        unit: True if its diagonal is taken as ones.
        proportion: Share of a tile's memory that products may take.
    """

    graph: Graph
    a: Tensor
    b: Tensor
    block: int
    lower: bool
    unit: bool
    proportion: float

    @cached_property
    def extents(self) -> list[int]:
        """Rows of each diagonal block."""
        return blocks.extents(self.a.shape[1], self.block)

    @cached_property
    def out(self) -> list[Tensor]:
        """X, block after block, each [batch, m, r]."""
        return [self._new(index, size) for index, size in enumerate(self.extents)]

    def emit(self, body: Sequence) -> None:
        """Append the steps that fill :attr:`out`."""
        self._halves(body, 0, len(self.extents), self.b)

    @cached_property
    def _shares(self) -> list[tuple[slice, slice, int]]:
        """Equal shares of the right-hand sides: tiles of a batch, columns of all of them, and columns of each.

        Each tile takes one for every worker, or more where tiles are few.
        """
        batch, _, right = self.b.shape
        tiles = max(1, self.graph.num_tiles // batch)
        return blocks.equal_shares(right, max(self.graph.system.ipu.num_workers, -(-right // tiles)))

    def _tiles(self, index: int, tiles: slice) -> list[int]:
        """Tiles of a share for a diagonal block, batch after batch; the first holds the block."""
        batch, each = self.b.shape[0], self._shares[-1][0].stop
        numbers = np.arange(batch)[:, None] * each + np.arange(tiles.start, tiles.stop)
        first: int = index * (len(self.extents) + 1) * batch
        return [int(t) for t in (first + numbers.ravel()) % self.graph.num_tiles]

    def _new(self, index: int, size: int) -> Tensor:
        """A variable for a block of X: the vectors of each tile one after the other, shown as [batch, m, r]."""
        batch, parts = self.b.shape[0], []
        for tiles, _, vectors in self._shares:
            count = tiles.stop - tiles.start
            made = self.graph.variable(self.b.dtype, (batch * count, vectors, size), name="x")
            self.graph.map_rows(made, self._tiles(index, tiles))
            parts.append(made.reshape((batch, count * vectors, size)).transpose((0, 2, 1)))
        return concat(parts, 2)

    def _halves(self, body: Sequence, begin: int, end: int, b: Tensor) -> Tensor:
        """Solve the diagonal blocks from ``begin`` to ``end``: halves one after the other, a product between."""
        if end - begin == 1:
            return self._substitute(body, begin, b)
        middle = (begin + end) // 2
        rows = [sum(self.extents[:i]) for i in (begin, middle, end)]
        low, high = slice(rows[0], rows[1]), slice(rows[1], rows[2])
        cut = rows[1] - rows[0]
        # A lower system is solved from the top, an upper one from the bottom: one half is known before the other needs
        # it.
        first, last = ((begin, middle), (middle, end)) if self.lower else ((middle, end), (begin, middle))
        mine, other = (slice(None, cut), slice(cut, None)) if self.lower else (slice(cut, None), slice(None, cut))
        known = self._halves(body, *first, b[:, mine])
        corner = self.a[:, high, low] if self.lower else self.a[:, low, high]
        added = blocks.emit_product(self.graph, body, corner, known, self.proportion)
        rest = self.graph.clone(added, name="rest")
        emit_map(self.graph, body, [_1 - _2], [b[:, other], added], [rest], "rest")
        unknown = self._halves(body, *last, rest)
        return concat([known, unknown] if self.lower else [unknown, known], 1)

    def _substitute(self, body: Sequence, index: int, b: Tensor) -> Tensor:
        """Solve one diagonal block for every part of the right-hand sides, in one superstep."""
        begin = sum(self.extents[:index])
        size, batch = self.extents[index], b.shape[0]
        square = self.a[:, begin : begin + size, begin : begin + size].reshape((batch, size * size))
        cs = self.graph.compute_set("substitute")
        sign, last = (1, 0) if self.lower else (-1, size - 1)
        for tiles, columns, vectors in self._shares:
            count = tiles.stop - tiles.start
            every = square.expand_dims(1).broadcast_to((batch, count, size * size))
            cs.vertices(
                solve_codelet(b.dtype),
                tile=self._tiles(index, tiles),
                a=every.reshape((batch * count, size * size)),
                b=_vectors(b[:, :, columns], batch * count, vectors * size),
                x=_vectors(self.out[index][:, :, columns], batch * count, vectors * size),
                n=size,
                start=last * (size + 1),
                row=sign * size,
                column=sign,
                first=last,
                along=sign,
                unit=int(self.unit),
            )
        body.add(Execute(cs))
        return self.out[index]


def _vectors(columns: Tensor, vertices: int, elements: int) -> Tensor:
    """Columns of [batch, m, r], so many elements per vertex, one after the other."""
    return columns.transpose((0, 2, 1)).reshape((vertices, elements))


def _check(function: str, a: tuple[int, ...], b: tuple[int, ...], left_side: bool) -> None:
    blocks.check_square(function, "a", a)
    rows = b[-2 if left_side else -1] if len(b) >= 2 else 0
    if len(b) != len(a) or a[:-2] != b[:-2] or rows != a[-1]:
        side = "left" if left_side else "right"
        raise TensorError(f"{function}: a of shape {list(a)} on the {side} does not fit b of shape {list(b)}")
