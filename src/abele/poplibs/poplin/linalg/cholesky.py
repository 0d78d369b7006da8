"""Cholesky factorisation, block by block.

Each step factorises a diagonal block on one worker, inverts the factor there, and leaves the rest to products. In
Graphcore's own model the steps are the same: for blocks of 16 in f16 a step takes the same cycles whether 16 or 48
rows are left, and batches take no longer than one matrix.

Its vertices however take three to five times the cycles of these: to factorise n rows takes 47·n³ in f32 and 81·n³
in f16 for n = 16, where the loops as written give 14·n³ and 18·n³. Its polynomials were fitted to compiled code that is
not public. At the cost of a round of the solving vertex, which agrees, they are those of n³ rounds: of loops over whole
rows and columns where a triangle, n³ / 6, would do. Memory: each tile that factorises holds 16 KB there that its
elements and code do not explain, tiles without vertices hold nothing, and f32 products spread over more tiles.

Why it is right: write A as blocks, with L₁₁ the factor of its first diagonal block. Then L₂₁ = A₂₁·L₁₁⁻ᵀ is the panel
below, and what is left to factorise is A₂₂ − L₂₁·L₂₁ᵀ, which is positive definite if A is. After step k the first k
block columns hold L, and the square behind them what is still to be factorised; the loop ends when that is empty. The
panel is multiplied by an inverse instead of solved by substitution, since products run on the AMP units of all tiles
and a substitution goes row by row.
"""

from __future__ import annotations

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
    """
    blocks.check_square("create_cholesky_input", name, shape)
    return blocks.create_matrix(graph, dtype, shape, options, "create_cholesky_input", name)


def cholesky(
    graph: Graph, a: Tensor, lower: bool, prog: Sequence, *, options: Options = None, name: str = "cholesky"
) -> Tensor:
    """L with L·Lᵀ = A (``lower``) or U with Uᵀ·U = A, zeros in the other triangle, as a new tensor of A's shape.

    Only the lower (or upper) triangle of ``a`` is used. A matrix that is not positive definite gives not-a-numbers
    from the first column on that has no root; nothing is raised.

    Args:
        a: Symmetric positive definite matrices [..., n, n], f32 or f16.
        options: ``blockSize`` (rows of a block that one vertex factorises), ``availableMemoryProportion`` (products).

    Raises:
        TensorError: Not square.
        TypeMismatchError: Elements neither f32 nor f16.
        InvalidOptionError: An option or value that there is not.
    """
    block, proportion = blocks.read("cholesky", options)
    whole = blocks.as_batch("cholesky", "a", a)
    blocks.check_square("cholesky", "a", a.shape)
    with graph.scope(name):
        work = create_cholesky_input(graph, a.dtype, whole.shape, options=options, name="factor")
    result = (work if lower else work.transpose((0, 2, 1))).reshape(a.shape)
    flops = a.size * a.shape[-1] // 3
    call = graph.library_call(prog, "poplin.cholesky", inputs=(a,), outputs=(result,), flops=flops, debug_name=name)
    with call as body:
        body.add(Copy(whole if lower else whole.transpose((0, 2, 1)), work))
        for index in range(len(blocks.extents(a.shape[-1], block))):
            _step(graph, work, index, block, proportion, body)
    symmetric = whole if lower else whole.transpose((0, 2, 1))
    note_host(prog, host_cholesky(graph, symmetric, work, name))
    return result


def _step(graph: Graph, work: Tensor, index: int, block: int, proportion: float, body: Sequence) -> None:
    """Factorise one diagonal block, multiply the panel below by its inverse, and subtract the panel's square."""
    start, stop = index * block, min((index + 1) * block, work.shape[1])
    square, size = work[:, start:stop, start:stop], stop - start
    batch = square.shape[0]
    tiles = blocks.block_tiles(graph, batch, index * (len(blocks.extents(work.shape[1], block)) + 1))
    flat = square.reshape((batch, size * size))
    _execute(graph, body, "factorise", cholesky_codelet(work.dtype), tile=tiles, x=flat, n=size)
    if stop == work.shape[1]:
        return
    # The inverse stays on the tile of the block, and the planner sends it to where products need it.
    inverse = graph.map_rows(graph.variable(work.dtype, square.shape, name="inverse"), tiles.tolist())
    target = inverse.reshape(flat.shape)
    _execute(graph, body, "invert", inverse_codelet(work.dtype), tile=tiles, x=flat, y=target, n=size)
    panel, rest, right = work[:, stop:, start:stop], work[:, stop:, stop:], work[:, start:stop, stop:]
    # A₂₁·L₁₁⁻ᵀ, then A₂₂ − L₂₁·L₂₁ᵀ.
    solved = blocks.emit_product(graph, body, panel, inverse.transpose((0, 2, 1)), proportion)
    body.add(Copy(solved, panel))
    product = blocks.emit_product(graph, body, panel, panel.transpose((0, 2, 1)), proportion)
    emit_map(graph, body, [_1 - _2], [rest, product], [rest], "update")
    emit_map(graph, body, [Const(0, work.dtype)], [], [right], "zero")


def _execute(graph: Graph, body: Sequence, name: str, codelet: type, **fields: Any) -> None:
    cs = graph.compute_set(name)
    cs.vertices(codelet, **fields)
    body.add(Execute(cs))
