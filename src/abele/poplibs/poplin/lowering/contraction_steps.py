"""Bodies of contractions: the compute sets of a plan, wired to operands that are in order.

One superstep of partial products, one for each stage of sums, and one that converts where partials are of another type
than the result and nothing is summed. Operands are not copied here: vertices name regions of them, and the compiler
makes the exchange that brings those to their tiles.
"""

from __future__ import annotations

from typing import Any

from abele.graph import Execute, Graph, Regions
from abele.graph.program import Steps
from abele.poplibs.poplin.contraction.operand import Operand
from abele.poplibs.poplin.contraction.scaling import UNSCALED, Scaling
from abele.poplibs.poplin.lowering.geometry import geometry
from abele.poplibs.poplin.lowering.grid import VertexGrid
from abele.poplibs.poplin.lowering.home import Home
from abele.poplibs.poplin.lowering.partials import OutputPartials, finish, sum_stage
from abele.poplibs.poplin.lowering.stages import ContractionStage
from abele.poplibs.poplin.planner.plan import ContractionPlan
from abele.poplibs.poplin.planner.sum_stages import stages
from abele.poplibs.poplin.vertices import partial_products


def build(
    graph: Graph,
    body: Steps,
    plan: ContractionPlan,
    x: Operand,
    w: Operand,
    out: Operand,
    where: Home,
    *,
    scaling: Scaling = UNSCALED,
) -> None:
    """Append the supersteps of ``plan`` to ``body``.

    Args:
        graph: The graph.
        body: Program that the steps are appended to.
        plan: Split of the contraction over tiles.
        x: The input, channels innermost.
        w: The weights, in-channels innermost.
        out: The output.
        where: Tiles and regions in which the plan leaves the output.
        scaling: Factor of the products.
    """
    grid = VertexGrid(plan)
    if not plan.needs_finish:
        _partial_products(graph, body, grid, x=x, w=w, out=out, written=where.regions, scaling=scaling)
        return
    sizes = out.local_extents(grid.slices(grid.out_dims).size).prod(axis=1)
    interleaved = plan.method.family == "amp"
    partials = OutputPartials.create(graph, plan.problem.partials, sizes, plan.depth, interleaved=interleaved)
    written = partials.regions()
    graph.map_regions(written, grid.tiles)
    _partial_products(graph, body, grid, x=x, w=w, out=out, written=written, scaling=scaling)
    for step in stages(plan.depth)[:-1]:
        partials = sum_stage(graph, body, partials, step, grid.tiles.reshape(-1, plan.depth))
    finish(graph, body, partials, plan.problem.output, where)


def _partial_products(
    graph: Graph,
    body: Steps,
    grid: VertexGrid,
    x: Operand,
    w: Operand,
    out: Operand,
    written: Regions,
    *,
    scaling: Scaling,
) -> None:
    plan = grid.plan
    problem, work = plan.problem, grid.work()
    make = partial_products.pointwise_partial if problem.is_pointwise else partial_products.field_partial
    compute_set = ContractionStage.PARTIALS.compute_set(graph)
    compute_set.vertices(
        make(plan.method, x.tensor.dtype, w.tensor.dtype, problem.partials, scaling.kind),
        tile=grid.tiles,
        x=grid.shared(x, grid.input_dims),
        w=grid.shared(w, grid.weight_dims),
        out=written,
        geometry=geometry(problem.axes, grid.all, x, w, out),
        groups=work.groups,
        in_channels=work.in_channels,
        out_channels=work.out_channels,
        positions=work.positions,
        outputs=work.outputs,
        run=work.run,
        kernel_outer=work.kernel_outer,
        kernel_inner=work.kernel_inner,
        **_factor_field(scaling, len(grid.tiles)),
    )
    body.add(Execute(compute_set))


def _factor_field(scaling: Scaling, num: int) -> dict[str, Any]:
    """Field with the scale of ``num`` vertices, if they have one."""
    if scaling.kind == "tensor":
        assert scaling.factor is not None
        return {"factor": scaling.factor.reshape((1,)).broadcast(num, 0)}
    return {"factor": 2.0**scaling.log2} if scaling.kind else {}
