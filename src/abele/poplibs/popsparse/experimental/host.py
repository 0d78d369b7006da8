"""Products of blocks as a host runs them, by the kernels that all of popsparse shares.

A result C = L · S of groups is computed as Cᵀ = Sᵀ · Lᵀ: those kernels multiply by a sparse matrix from the left. Where
the blocks of S lie turned round, as the vertices read them, they are the blocks of Sᵀ in another order, and are read as
such.
"""

from __future__ import annotations

import numpy as np

from abele.arrays import Int64
from abele.graph import Graph, Tensor
from abele.graph.program import Sequence
from abele.poplibs.poplin.contraction.host_kernel import UNSCALED, Scaling
from abele.poplibs.popsparse.experimental.operands import right_view
from abele.poplibs.popsparse.experimental.params import BSMatMulParams, SubBlockMask
from abele.poplibs.popsparse.experimental.triangles import emit_triangle
from abele.poplibs.popsparse.float8 import scaled_for_host
from abele.poplibs.popsparse.host import host_product, host_sampled_product
from abele.poplibs.popsparse.host.dense import is_near
from abele.sparsity import Pattern, split_stack


def host_block_product(
    graph: Graph,
    params: BSMatMulParams,
    lhs: Tensor,
    rhs: Tensor,
    storage: Tensor,
    out: Tensor,
    *,
    name: str,
    scaling: Scaling = UNSCALED,
) -> Sequence:
    """Steps of a host that fill a result.

    Args:
        graph: Graph of the steps and their scratch memory.
        params: The product.
        lhs: Left operand [groups · m, k].
        rhs: Right operand, sparse or dense.
        storage: The result's variable.
        out: The result as callers see it.
        name: Name of the steps.
        scaling: Factor of the products.
    """
    groups, (m, k, n), pattern = params.numGroups, params.dim, params.pattern
    if not pattern.num_blocks:
        return Sequence()
    scaled, first = scaled_for_host(graph, lhs, scaling, name)
    left = scaled.reshape((groups, m, k))
    if params.isResultSparse:
        right = right_view(params, rhs).reshape((groups, n, k))
        patterns = list(split_stack(pattern, groups))
        steps = Sequence(first, host_sampled_product(graph, patterns, left, right, out, name=name))
        if params.subBlockMask is not SubBlockMask.NONE:
            emit_triangle(graph, steps, pattern, groups, params.subBlockMask, storage)
        return steps
    made = out.reshape((groups, m, n)).transpose((0, 2, 1))
    across, down = pattern.block
    turned = rhs.reshape((-1, across, down)).transpose((0, 2, 1))
    patterns, values, order = list(split_stack(pattern, groups)), rhs, None
    transposed = not params.rhsNeedTranspose
    if not is_near(rhs) and is_near(turned):
        patterns, order = _turned(patterns)
        values, transposed = turned, not transposed
    dense = left.transpose((0, 2, 1))
    made_by = host_product(graph, patterns, values, dense, made, name=name, order=order, transposed=transposed)
    return Sequence(first, made_by)


def _turned(patterns: list[Pattern]) -> tuple[list[Pattern], Int64]:
    """Patterns of the transposes, and the place of each of their values in its group's, which lie in the others' order.

    Groups of one pattern share its places.
    """
    known = {p: p.transposed() for p in patterns}
    area = patterns[0].block[0] * patterns[0].block[1]
    shared = all(p is patterns[0] for p in patterns)
    places = [
        (known[one][1][:, None] * area + np.arange(area)).reshape(-1) for one in (patterns[:1] if shared else patterns)
    ]
    return [known[p][0] for p in patterns], np.concatenate(places)
