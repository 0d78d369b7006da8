"""Cholesky factorisation, block by block."""

from __future__ import annotations

from abele.graph import Copy, Execute, Graph, Sequence, Tensor
from abele.numerics import ElementType
from abele.poplibs import popops
from abele.poplibs.poplin.linalg import blocks
from abele.poplibs.poplin.linalg.codelets import cholesky_codelet
from abele.poplibs.poplin.linalg.triangular import triangular_solve
from abele.poplibs.poplin.matmul import matmul_grouped
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
        prog.add(Copy(whole if lower else whole.transpose((0, 2, 1)), work))
        for index in range(len(blocks.extents(a.shape[-1], block))):
            _step(graph, work, index, block, options, proportion, prog)
    return (work if lower else work.transpose((0, 2, 1))).reshape(a.shape)


def _step(
    graph: Graph, work: Tensor, index: int, block: int, options: Options, proportion: float, prog: Sequence
) -> None:
    """Factorise one diagonal block, the panel below it, and take their product from what is to the right."""
    start, stop = index * block, min((index + 1) * block, work.shape[1])
    count = len(blocks.extents(work.shape[1], block))
    square = work[:, start:stop, start:stop]
    batch, size = square.shape[0], stop - start
    cs = graph.compute_set("factorise")
    tiles = blocks.block_tiles(graph, batch, index * (count + 1))
    x = square.reshape((batch, size * size))
    cs.vertices(cholesky_codelet(work.dtype), tile=tiles, x=x, n=size)
    prog.add(Execute(cs))
    if stop == work.shape[1]:
        return
    panel, rest = work[:, stop:, start:stop], work[:, stop:, stop:]
    upper = square.transpose((0, 2, 1))
    solved = triangular_solve(graph, upper, panel, False, False, False, prog, options=options, name="panel")
    prog.add(Copy(solved, panel))
    turned = panel.transpose((0, 2, 1))
    product = matmul_grouped(graph, panel, turned, prog, available_memory_proportion=proportion, name="update")
    popops.sub_in_place(graph, rest, product, prog)
    popops.zero(graph, work[:, start:stop, stop:], prog)
