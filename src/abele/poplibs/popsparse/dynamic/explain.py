"""Plans of dynamic sparse products in numbers, as ``abele plan sparse-matmul --mode dynamic`` prints them."""

from __future__ import annotations

from abele.graph import Graph
from abele.poplibs.popsparse.dynamic.cache import plan_of
from abele.poplibs.popsparse.dynamic.params import DynamicMatMulParams, SparsityParams
from abele.poplibs.popsparse.dynamic.plan import DynamicPlan
from abele.poplibs.popsparse.explanation import SparseExplanation, SparseProblem
from abele.poplibs.poputil.options import Options


def explain_dynamic(graph: Graph, problem: SparseProblem, *, options: Options = None) -> SparseExplanation:
    """The plan of a product for patterns that are uniform and random.

    Raises:
        SparsePatternError: The dense columns are off the grain.
        InvalidOptionError: An option or value that there is not.
    """
    side = problem.block, problem.block
    params = DynamicMatMulParams.createWithNzRatio(
        SparsityParams(blockDimensions=side), problem.density, 1, problem.m, problem.k, problem.n
    )
    plan = plan_of("popsparse.dynamic", params, problem.dtype, graph, options)
    (px, py, pz), (rows, columns) = plan.parts, plan.cell
    split = (
        ("parts of the rows", px),
        ("parts of the columns", py),
        ("parts of the dense columns", pz),
        ("block rows of a cell", rows),
        ("block columns of a cell", columns),
        ("dense columns of a tile", plan.columns),
        ("blocks of a bucket", plan.nz_slots),
        ("entries of its meta-info", plan.meta_slots),
    )
    terms = tuple((stage, cycles) for of, stage, cycles in plan.cycles if of == "fwd")
    return SparseExplanation(problem, split, terms, _memory(plan), plan.bound_bytes, _notes(plan))


def _memory(plan: DynamicPlan) -> tuple[tuple[str, int], ...]:
    values = plan.nz_slots * plan.area * plan.dtype.bytes
    dense = plan.cell[1] * plan.block[1] * plan.columns * plan.dtype.bytes
    buckets = max(plan.parts[2], 2) * (values + 2 * plan.meta_slots)
    return (
        ("dense slice", dense),
        ("buckets", buckets),
        ("partials and others", max(plan.temporary_bytes - dense - buckets, 0)),
    )


def _notes(plan: DynamicPlan) -> tuple[str, ...]:
    passes = plan.num_cells - 1
    return (
        f"a pattern that is too uneven for its buckets takes up to {passes:,} passes round the grid",
        f"block of the device: {plan.block[0]} x {plan.block[1]}"
        + ("" if plan.fast_block or not plan.by_block else ", which has no vertex on the matrix units"),
    )
