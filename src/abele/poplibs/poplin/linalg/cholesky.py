"""Cholesky factorisation, block by block.

Each step factorises a diagonal block on one worker, inverts the factor there, and leaves the rest to products. So does
PopLibs, whose vertices' cycles are published as polynomials that were fitted to compiled code; they are three to five
times those of the loops as written here, which the option ``vertices`` chooses.

Why it is right: write A as blocks, with L₁₁ the factor of its first diagonal block. Then L₂₁ = A₂₁·L₁₁⁻ᵀ is the panel
below, and what is left to factorise is A₂₂ − L₂₁·L₂₁ᵀ, which is positive definite if A is. After step k the first k
block columns hold L, and the square behind them holds the rest to factorise; the loop ends when that is empty. The
panel is multiplied by an inverse instead of solved by substitution, since products run on the AMP units of all tiles
and a substitution goes row by row.

Example: 256 rows in blocks of 64 take four steps. The first factorises 64 × 64 elements, makes a panel of 192 × 64 by
one product, and subtracts the panel's square from the 192 × 192 elements behind it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from abele.graph import Copy, Execute, Graph, Sequence, Tensor
from abele.numerics import ElementType
from abele.poplibs.poplin.linalg import blocks
from abele.poplibs.poplin.linalg.codelets import cholesky_codelet, inverse_codelet
from abele.poplibs.poplin.linalg.host import host_cholesky
from abele.poplibs.popops.elementwise.map import emit_map
from abele.poplibs.popops.expr import Const, _1, _2
from abele.poplibs.poputil.host_body import note_host
from abele.poplibs.poputil.options import Options


def create_cholesky_input(
    graph: Graph, dtype: ElementType | str, shape: tuple[int, ...], *, options: Options = None, name: str = "a"
) -> Tensor:
    """A tensor [..., n, n] laid out for :func:`cholesky`, each block whole on a tile.

    Raises:
        TensorError: It is not square.
        TypeMismatchError: The type is neither f32 nor f16.
        InvalidOptionError: An option or value that there is not.
    """
    function = "create_cholesky_input"
    blocks.check_square(function, name, shape)
    chosen = blocks.read(function, options, blocks.FACTOR_OPTIONS)
    return blocks.create_matrix(graph, dtype, shape, chosen.block, function, name)


def cholesky(
    graph: Graph, a: Tensor, lower: bool, prog: Sequence, *, options: Options = None, name: str = "cholesky"
) -> Tensor:
    """L with L·Lᵀ = A (``lower``) or U with Uᵀ·U = A, zeros in the other triangle, as a new tensor of A's shape.

    Only the lower (or upper) triangle of ``a`` is used. A matrix that is not positive definite gives not-a-numbers
    from the first column on that has no root; nothing is raised.

    Args:
        a: Symmetric positive definite matrices [..., n, n], f32 or f16.
        options: ``blockSize`` (rows of a block that one vertex factorises, 8), ``availableMemoryProportion`` (of the
            products), ``vertices`` (``library``: PopLibs', with their published cycles; ``counted``: ours, counted from
            their code).

    Raises:
        TensorError: Not square.
        TypeMismatchError: Elements neither f32 nor f16.
        InvalidOptionError: An option or value that there is not.
    """
    chosen = blocks.read("cholesky", options, blocks.FACTOR_OPTIONS)
    whole = blocks.as_batch("cholesky", "a", a)
    blocks.check_square("cholesky", "a", a.shape)
    with graph.scope(name):
        work = create_cholesky_input(graph, a.dtype, whole.shape, options=options, name="factor")
    result = (work if lower else work.transpose((0, 2, 1))).reshape(a.shape)
    flops = a.size * a.shape[-1] // 3
    call = graph.library_call(prog, "poplin.cholesky", inputs=(a,), outputs=(result,), flops=flops, debug_name=name)
    symmetric = whole if lower else whole.transpose((0, 2, 1))
    with call as body:
        body.add(Copy(symmetric, work))
        _Factorisation(graph, work, lower, chosen).emit(body)
    note_host(prog, host_cholesky(graph, symmetric, work, name))
    return result


@dataclass(frozen=True)
class _Factorisation:
    """The factorisation of ``work`` [batch, n, n] in its place.

    Attributes:
        graph: The graph.
        work: Symmetric matrices; a lower triangle of blocks becomes their factor.
        lower: False if that is the transpose of what was asked for.
        chosen: Options.
    """

    graph: Graph
    work: Tensor
    lower: bool
    chosen: blocks.BlockOptions

    def emit(self, body: Sequence) -> None:
        """Append the steps, block column after block column."""
        for index in range(len(blocks.extents(self.work.shape[1], self.chosen.block))):
            self._step(index, body)

    def _step(self, index: int, body: Sequence) -> None:
        """Factorise one diagonal block, multiply the panel below by its inverse, and subtract the panel's square."""
        graph, work, block = self.graph, self.work, self.chosen.block
        start, stop = index * block, min((index + 1) * block, work.shape[1])
        square, size = work[:, start:stop, start:stop], stop - start
        batch = square.shape[0]
        tiles = blocks.block_tiles(graph, batch, index * (len(blocks.extents(work.shape[1], block)) + 1))
        flat = square.reshape((batch, size * size))
        factorise = cholesky_codelet(work.dtype, self.chosen.library)
        _execute(graph, body, "factorise", factorise, tile=tiles, x=flat, n=size)
        if stop == work.shape[1]:
            return
        # The inverse stays on the tile of the block, and the planner sends it to where products need it.
        inverse = graph.map_rows(graph.variable(work.dtype, square.shape, name="inverse"), tiles.tolist())
        invert = inverse_codelet(work.dtype, self.chosen.library, self.lower)
        _execute(graph, body, "invert", invert, tile=tiles, x=flat, y=inverse.reshape(flat.shape), n=size)
        panel, rest, right = work[:, stop:, start:stop], work[:, stop:, stop:], work[:, start:stop, stop:]
        # A₂₁·L₁₁⁻ᵀ, then A₂₂ − L₂₁·L₂₁ᵀ.
        body.add(Copy(self._product(body, panel, inverse), panel))
        product = self._product(body, panel, panel)
        emit_map(graph, body, [_1 - _2], [rest, product], [rest], "update")
        emit_map(graph, body, [Const(0, work.dtype)], [], [right], "zero")

    def _product(self, body: Sequence, a: Tensor, b: Tensor) -> Tensor:
        """A·Bᵀ."""
        return blocks.emit_product(self.graph, body, a, b.transpose((0, 2, 1)), self.chosen.proportion)


def _execute(graph: Graph, body: Sequence, name: str, codelet: type, **fields: Any) -> None:
    cs = graph.compute_set(name)
    cs.vertices(codelet, **fields)
    body.add(Execute(cs))
