"""Solves with triangular matrices, as PopLibs has them or with right-hand sides shared out between workers.

Halves of a system are solved one after the other, so its diagonal blocks are too
(:mod:`~abele.poplibs.poplin.linalg.triangular`). What is done with a block is PopLibs' way
(:mod:`~abele.poplibs.poplin.linalg.triangular`) unless ``vertices`` is ``counted``
(:mod:`~abele.poplibs.poplin.linalg.triangular`), which has fewer steps and, with many right-hand sides, a fraction of
the cycles.
"""

from __future__ import annotations

import itertools
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from abele.errors import TensorError, TypeMismatchError
from abele.graph import Call, Execute, Function, Graph, Sequence, Tensor, concat
from abele.numerics import ElementType
from abele.poplibs.poplin.linalg import blocks
from abele.poplibs.poplin.linalg.codelets import solve_codelet, substitute_codelet
from abele.poplibs.poplin.linalg.host import host_solve
from abele.poplibs.poplin.linalg.masks import emit_mask
from abele.poplibs.popops.elementwise.map import emit_map
from abele.poplibs.popops.expr import _1, _2
from abele.poplibs.poputil.host_body import note_host
from abele.poplibs.poputil.options import Options

# Solves with triangular matrices, by halves: diagonal blocks one after the other, products between.
#
# Why it is right: cut a lower triangle into [A₁₁ 0; A₂₁ A₂₂]. Then A₁₁·X₁ = B₁ is a smaller system of the same kind,
# and once X₁ is known, so is A₂₂·X₂ = B₂ − A₂₁·X₁. An upper triangle is solved from the bottom in the same way.


@dataclass
class HalvedSolve(ABC):
    """Solve of A·X = B for batches, without the solve of a diagonal block.

    Attributes:
        graph: The graph.
        a: Triangular matrices [batch, n, n].
        b: Right-hand sides [batch, n, r].
        lower: True if A is lower triangular.
        unit: True if its diagonal is taken as ones.
        chosen: Options.
        columns: Right-hand sides that steps are appended for.
    """

    graph: Graph
    a: Tensor
    b: Tensor
    lower: bool
    unit: bool
    chosen: blocks.BlockOptions
    columns: slice = field(default_factory=lambda: slice(None), init=False)

    @cached_property
    def extents(self) -> list[int]:
        """Rows of each diagonal block."""
        return blocks.extents(self.a.shape[1], self.chosen.block)

    @cached_property
    def out(self) -> list[Tensor]:
        """X, block after block, each [batch, m, r]."""
        return [self.new_block(index, size) for index, size in enumerate(self.extents)]

    def emit(self, body: Sequence) -> None:
        """Append the steps that fill :attr:`out`."""
        self._halves(body, 0, len(self.extents), self.b)

    @abstractmethod
    def new_block(self, index: int, size: int) -> Tensor:
        """A variable for block ``index`` of X, [batch, size, r]."""

    @abstractmethod
    def solve_block(self, body: Sequence, index: int, b: Tensor) -> None:
        """Append the steps that solve diagonal block ``index`` for ``b`` into its block of X."""

    def _halves(self, body: Sequence, begin: int, end: int, b: Tensor) -> Tensor:
        """Solve the diagonal blocks from ``begin`` to ``end``: halves one after the other, a product between."""
        if end - begin == 1:
            self.solve_block(body, begin, b)
            return self.out[begin][:, :, self.columns]
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
        unknown = self._halves(body, *last, self.eliminate(body, corner, known, b[:, other]))
        return concat([known, unknown] if self.lower else [unknown, known], 1)

    def eliminate(self, body: Sequence, corner: Tensor, known: Tensor, b: Tensor) -> Tensor:
        """Append the steps of B − A·X of the part of X that is known; a new tensor."""
        added = blocks.emit_product(self.graph, body, corner, known, self.chosen.proportion)
        rest = self.graph.clone(added, name="rest")
        emit_map(self.graph, body, [_1 - _2], [b, added], [rest], "rest")
        return rest


# Diagonal blocks by substitution on all right-hand sides at once, which workers share out.
#
# One right-hand side has a diagonal block on a tile of its own; more are on as many tiles as give each worker one, to
# which the block is sent.


class SharedSolve(HalvedSolve):
    """A solve whose vertices are counted from their code."""

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

    def new_block(self, index: int, size: int) -> Tensor:
        """A variable for a block of X: the vectors of each tile one after the other, shown as [batch, m, r]."""
        batch, parts = self.b.shape[0], []
        for tiles, _, vectors in self._shares:
            count = tiles.stop - tiles.start
            made = self.graph.variable(self.b.dtype, (batch * count, vectors, size), name="x")
            self.graph.map_rows(made, self._tiles(index, tiles))
            parts.append(made.reshape((batch, count * vectors, size)).transpose((0, 2, 1)))
        return concat(parts, 2)

    def solve_block(self, body: Sequence, index: int, b: Tensor) -> None:
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


def _vectors(columns: Tensor, vertices: int, elements: int) -> Tensor:
    """Columns of [batch, m, r], ``elements`` per vertex, one after the other."""
    return columns.transpose((0, 2, 1)).reshape((vertices, elements))


# Diagonal blocks as PopLibs solves them: one right-hand side by one vertex, more row after row.
#
# A block with one right-hand side is one worker's substitution. With more, the halves go on to single rows: a product
# on the AMP units and a subtraction between any two halves, and a division for each row. That is inferred from the
# published operators. 64 rows with 64 right-hand sides take the same cycles from either side, where the vertex for
# upper blocks takes twice those of lower ones; they come to 63 steps of 2,600 cycles, about what a product and a
# subtraction take. 256 rows with 256 right-hand sides in blocks of 64 take 16 times as long as a block and twice its
# memory, so that all blocks run the same program, called for 64 right-hand sides at a time. So do the products between
# blocks, each of a block of A and a block of X: products of halves would be 12 programs, on nearly all tiles.


@dataclass
class RecursiveSolve(HalvedSolve):
    """A solve by PopLibs' steps, after the other triangle is masked and a unit diagonal filled in."""

    _programs: dict[tuple[int, ...], Function] = field(default_factory=dict)
    _products: dict[tuple[tuple[int, ...], ...], Function] = field(default_factory=dict)

    def emit(self, body: Sequence) -> None:
        """Append the mask, then the halves."""
        given = self.a
        self.a = self.graph.clone(given, name="triangle")
        emit_mask(self.graph, body, given, self.lower, self.unit, self.a)
        right = self.b.shape[2]
        for first in range(0, right, self.chosen.block):
            self.columns = slice(first, min(first + self.chosen.block, right))
            b = self.b[:, :, self.columns]
            if self._in_place or right == 1:
                self._halves(body, 0, len(self.extents), b)
            else:
                self._by_blocks(body, b)

    @property
    def _in_place(self) -> bool:
        """True if there is one block, whose steps no other shares."""
        return max(self.a.shape[1], self.b.shape[2]) <= self.chosen.block

    def _by_blocks(self, body: Sequence, b: Tensor) -> None:
        """Solve diagonal blocks one after the other, less the product of each known block with A's block beside it."""
        begin = [0, *np.cumsum(self.extents).tolist()]
        rows = [slice(*ends) for ends in itertools.pairwise(begin)]
        order = range(len(rows)) if self.lower else range(len(rows) - 1, -1, -1)
        known: list[int] = []
        for i in order:
            rest = b[:, rows[i]]
            for j in known:
                rest = self._less(body, self.a[:, rows[i], rows[j]], self.out[j][:, :, self.columns], rest)
            self.solve_block(body, i, rest)
            known.append(i)

    def _less(self, body: Sequence, corner: Tensor, known: Tensor, b: Tensor) -> Tensor:
        """B − A·X as a new tensor: a call of the function of these shapes."""
        graph, given = self.graph, (corner, known, b)
        shapes = tuple(t.shape for t in given)
        program = self._products.get(shapes)
        if program is None:
            steps = Sequence()
            names = ("corner", "known", "b")
            parts = [
                graph.map_linear(graph.variable(t.dtype, t.shape, name=n)) for n, t in zip(names, given, strict=True)
            ]
            found = self.eliminate(steps, *parts)
            program = self._products[shapes] = graph.function(steps, "product", parameters=parts, results=[found])
        rest = graph.map_linear(graph.variable(b.dtype, b.shape, name="rest"))
        body.add(Call(program, given, [rest]))
        return rest

    def new_block(self, index: int, size: int) -> Tensor:
        """With one right-hand side, whole on the tile of its diagonal block; otherwise spread."""
        batch, _, right = self.b.shape
        made = self.graph.variable(self.b.dtype, (batch, size, right), name="x")
        return self.graph.map_rows(made, self._tiles(index)) if right == 1 else self.graph.map_linear(made)

    def solve_block(self, body: Sequence, index: int, b: Tensor) -> None:
        """By a vertex, or by rows."""
        begin, size = sum(self.extents[:index]), self.extents[index]
        square = self.a[:, begin : begin + size, begin : begin + size]
        if self.b.shape[2] == 1:
            self._substitute(body, index, square, b)
        else:
            self._by_rows(body, square, b, self.out[index][:, :, self.columns])

    def _substitute(self, body: Sequence, index: int, square: Tensor, b: Tensor) -> None:
        batch, size, _ = b.shape
        cs = self.graph.compute_set("substitute")
        cs.vertices(
            substitute_codelet(b.dtype, self.lower),
            tile=self._tiles(index),
            a=square.reshape((batch, size * size)),
            b=b.reshape((batch, size)),
            x=self.out[index].reshape((batch, size)),
            n=size,
        )
        body.add(Execute(cs))

    def _tiles(self, index: int) -> list[int]:
        numbers = blocks.block_tiles(self.graph, self.b.shape[0], index * (len(self.extents) + 1))
        return [int(t) for t in numbers]

    def _by_rows(self, body: Sequence, a: Tensor, b: Tensor, x: Tensor) -> None:
        """Append a block's steps: in place if it is the only one, else as a call of the function of its size."""
        if self._in_place:
            self._rows(body, a, b, x)
            return
        program = self._programs.get(b.shape)
        if program is None:
            program = self._programs[b.shape] = self._new_program(a, b)
        body.add(Call(program, [a, b], [x]))

    def _new_program(self, a: Tensor, b: Tensor) -> Function:
        """Function shared by blocks of one size: its parameters are a block of A and one of B, its result one of X."""
        graph, steps = self.graph, Sequence()
        given, right, found = (
            graph.map_linear(graph.variable(t.dtype, t.shape, name=name)) for name, t in (("a", a), ("b", b), ("x", b))
        )
        self._rows(steps, given, right, found)
        return graph.function(steps, "block", parameters=[given, right], results=[found])

    def _rows(self, body: Sequence, a: Tensor, b: Tensor, x: Tensor) -> None:
        """Append the steps that solve a block for several right-hand sides, by halves down to single rows."""
        size = a.shape[1]
        if size == 1:
            emit_map(self.graph, body, [_1 / _2], [b, a], [x], "divide")
            return
        low, high = slice(None, size // 2), slice(size // 2, None)
        first, last = (low, high) if self.lower else (high, low)
        self._rows(body, a[:, first, first], b[:, first], x[:, first])
        rest = self.eliminate(body, a[:, last, first], x[:, first], b[:, last])
        self._rows(body, a[:, last, last], rest, x[:, last])


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
    """The triangular operand [..., n, n] of a solve: in PopLibs' way spread by rows, else each block whole on a tile.

    Raises:
        TensorError: It is not square, or does not fit ``b_shape``.
        TypeMismatchError: The type is neither f32 nor f16.
        InvalidOptionError: An option or value that there is not.
    """
    function = "create_triangular_solve_input_lhs"
    _check(function, a_shape, b_shape, left_side)
    return _create(graph, dtype, a_shape, left_side, options, function=function, name=name)


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
    """The right-hand sides [..., n, r] (left) or [..., r, n] (right) of a solve, laid out as the other operand is.

    Raises:
        As :func:`create_triangular_solve_input_lhs`.
    """
    function = "create_triangular_solve_input_rhs"
    _check(function, a_shape, b_shape, left_side)
    return _create(graph, dtype, b_shape, left_side, options, function=function, name=name)


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
        prog: Sequence that the call is appended to.
        options: ``blockSize`` (rows of a block that is solved by substitution, 64), ``availableMemoryProportion`` (of
            the products between), ``vertices`` (``library``: PopLibs' vertices and steps; ``counted``: ours).
        name: Name of the call.

    Raises:
        TensorError: Shapes that do not fit.
        TypeMismatchError: Elements of other types, or of two types.
        InvalidOptionError: An option or value that there is not.
    """
    chosen = blocks.read("triangular_solve", options, blocks.SOLVE_OPTIONS)
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
        kind = RecursiveSolve if chosen.library else SharedSolve
        solve = kind(graph, a=whole_a, b=whole_b, lower=lower, unit=unit_diagonal, chosen=chosen)
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


def _create(
    graph: Graph,
    dtype: ElementType | str,
    shape: tuple[int, ...],
    left_side: bool,
    options: Options,
    *,
    function: str,
    name: str,
) -> Tensor:
    """Operand in the order of solving the system; on the right that is the transposed one."""
    chosen = blocks.read(function, options, blocks.SOLVE_OPTIONS)
    if not chosen.library:
        return blocks.create_matrix(graph, dtype, shape, chosen.block, function, name)
    if left_side:
        return blocks.create_rows(graph, dtype, shape, chosen.block, function, name)
    turned = (*shape[:-2], shape[-1], shape[-2])
    made = blocks.create_rows(graph, dtype, turned, chosen.block, function, name)
    return made.transpose((*range(len(shape) - 2), len(shape) - 1, len(shape) - 2))


def _check(function: str, a: tuple[int, ...], b: tuple[int, ...], left_side: bool) -> None:
    blocks.check_square(function, "a", a)
    rows = b[-2 if left_side else -1] if len(b) >= 2 else 0
    if len(b) != len(a) or a[:-2] != b[:-2] or rows != a[-1]:
        side = "left" if left_side else "right"
        raise TensorError(f"{function}: a of shape {list(a)} on the {side} does not fit b of shape {list(b)}")
