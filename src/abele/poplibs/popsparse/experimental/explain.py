"""Explanation of plans of products of blocks, as of those of the other sparse libraries."""

from __future__ import annotations

from math import gcd

from abele.errors import InvalidOptionError
from abele.graph import Graph
from abele.numerics import f16, f32
from abele.poplibs.popsparse.experimental.params import BlockProductOptions, BSMatMulParams
from abele.poplibs.popsparse.experimental.plan import plan_blocks, product_cycles
from abele.poplibs.popsparse.explanation import SparseExplanation, SparseProblem
from abele.poplibs.popsparse.float8 import result_type
from abele.poplibs.poputil.options import Options
from abele.sparsity import random_pattern

_WIDEST = 16
"""Dense columns of a block at most: those that the matrix units hold."""


def explain_block(graph: Graph, problem: SparseProblem, *, options: Options = None) -> SparseExplanation:
    """The plan of a product with blocks that are drawn at random, once and for all.

    The product S · X is planned as Xᵀ · Sᵀ, as the sparse operand is the right one here.

    Raises:
        InvalidOptionError: An option or value that there is not, or blocks of one element.
        SparsePatternError: Sizes that are no multiples of the blocks.
        TypeMismatchError: A type or chip without such products.
    """
    side = problem.block
    if side < 2:
        raise InvalidOptionError(
            f"blocks of {side} are no blocks for the matrix units", remedy="--block 16, or --mode static"
        )
    pattern = random_pattern((problem.m, problem.k), problem.density, (side, side))
    params = BSMatMulParams(
        (problem.n, problem.k, problem.m),
        (gcd(problem.n, _WIDEST), side, side),
        rhsSparsity=pattern,
        rhsNeedTranspose=True,
        inDataType=problem.dtype,
        outDataType=result_type(problem.dtype),
        partialDataType=f16 if problem.dtype.is_quarter else f32,
    )
    plan = plan_blocks(params, BlockProductOptions.read("popsparse.experimental", options, 1), graph.system)
    terms = product_cycles(plan, graph.system)
    rows = params.dim[0] // params.blockSize[0]
    split = (
        ("strips of dense columns", plan.parts),
        ("dense columns of a strip", -(-rows // plan.parts) * params.blockSize[0]),
        ("blocks", pattern.num_blocks),
        ("vertices", sum(len(one.vertices.tile) for one in plan.passes)),
        ("passes", len(plan.passes)),
    )
    memory = (("what arrives, and partial sums", plan.temporary_bytes),)
    return SparseExplanation(problem, split, terms, memory, graph.system.ipu.tile.usable_bytes, (str(plan),))
