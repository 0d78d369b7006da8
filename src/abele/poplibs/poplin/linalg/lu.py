"""LU factorisation without pivoting.

Rows are spread over tiles; a program loop goes over the columns. A round is three steps: the tile that holds the pivot
row gives it out, it is brought to all tiles, and each tile eliminates the column from its rows.

Why it is right: after round k, rows up to k of the working matrix are those of U; column k holds below its diagonal the
factors that row k was subtracted with, which are L's; and the square behind them is the product of the parts of L and U
that are still to be found. No row is exchanged, so a row never leaves its tile: a round moves one row, where a search
for a pivot would also need a reduction and an exchange of two rows. That is why the result is only as accurate as the
pivots are large.

Example: of A = [[2, 1], [4, 5]], round 0 takes the factor 4 / 2 = 2, which is L[1, 0], and leaves 5 − 2 · 1 = 3. So U
is [[2, 1], [0, 3]].
"""

from __future__ import annotations

import numpy as np

from abele.graph import Copy, Execute, Graph, Sequence, Tensor
from abele.numerics import f32
from abele.poplibs.poplin.linalg import rows
from abele.poplibs.poplin.linalg.masks import emit_mask
from abele.poplibs.poplin.linalg.row_codelets import eliminate_codelet, publish_codelet
from abele.poplibs.popops.reductions.reduce import emit_reduce


def lu_factorization(
    graph: Graph, a: Tensor, prog: Sequence, *, name: str = "lu_factorization"
) -> tuple[Tensor, Tensor]:
    """L and U with A = L·U, as two new tensors.

    L [m, p] has ones on its diagonal and zeros above, U [p, n] has zeros below its diagonal, with p = min(m, n).

    No rows are exchanged: a pivot of zero gives infinities and not-a-numbers, and small pivots cost accuracy. Factor
    a matrix whose diagonal dominates, or use :func:`qr_factorization`. ``a`` is left as it is.

    Args:
        graph: The graph.
        a: [m, n], f32 or f16; any m and n.
        prog: Sequence that the call is appended to.
        name: Name of the call.

    Raises:
        TensorError: It is no matrix.
        TypeMismatchError: Elements neither f32 nor f16.
    """
    rows.check_matrix("lu_factorization", "a", a)
    m, n = a.shape
    p = min(m, n)
    with graph.scope(name):
        left = rows.create_rows(graph, a.dtype, m, p, "left")
        right = rows.create_rows(graph, a.dtype, p, n, "right")
    flops = 2 * sum((m - k) * (n - k) for k in range(p))
    call = graph.library_call(
        prog, "poplin.lu_factorization", inputs=(a,), outputs=(left, right), flops=flops, debug_name=name
    )
    with call as body:
        work = rows.create_rows(graph, a.dtype, m, n, "work")
        body.add(Copy(a, work))
        # The last row has nothing below it to eliminate.
        steps = min(m - 1, n)
        if steps:
            counter = rows.new_counter(graph)
            rows.repeat(graph, body, steps, counter, _elimination(graph, work, counter))
        emit_mask(graph, body, work[:, :p], True, True, left)
        emit_mask(graph, body, work[:p], False, False, right)
    return left, right


def _elimination(graph: Graph, work: Tensor, counter: Tensor) -> Sequence:
    """One round: the pivot row is brought to all tiles, and each eliminates the column from its rows."""
    m, n = work.shape
    count = len(rows.rows_of(graph, m))
    # Which tile holds the pivot row changes from round to round, and exchange is fixed when the program is compiled. So
    # every tile gives a row, zeros where it does not hold the pivot, and their sum is the pivot row.
    given = graph.map_rows(graph.variable(f32, (count, n), name="given"), range(count))
    column = rows.new_column(graph, m)
    inner = Sequence()
    publish, eliminate = graph.compute_set("publish"), graph.compute_set("eliminate")
    inner.add(Execute(publish))
    pivot = emit_reduce(graph, inner, given, [0], "ADD", "pivot")
    inner.add(Execute(eliminate))
    known = pivot.expand_dims(0).broadcast_to((count, n))
    for tiles, held, size in rows.shares(graph, m):
        number = tiles.stop - tiles.start
        operands = {
            "tile": np.arange(tiles.start, tiles.stop),
            "a": rows.flat(work[held], number),
            "at": counter.broadcast_to((number,)),
            "column": rows.flat(column[held], number),
            "n": n,
            "first": held.start + size * np.arange(number),
        }
        publish.vertices(publish_codelet(work.dtype), pivot=given[tiles], **operands)
        eliminate.vertices(eliminate_codelet(work.dtype), pivot=known[tiles], **operands)
    return inner
