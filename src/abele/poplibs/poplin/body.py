"""Bodies of contractions: the compute sets of a plan, wired to operands that are in order."""

from __future__ import annotations

import numpy as np

from abele.graph import Execute, Graph, Regions
from abele.graph.program import Sequence as Program
from abele.poplibs.poplin import vertices
from abele.poplibs.poplin.geometry import geometry
from abele.poplibs.poplin.home import Home
from abele.poplibs.poplin.operand import Operand
from abele.poplibs.poplin.plan import Plan
from abele.poplibs.poplin.slices import Grid


def build(graph: Graph, body: Program, plan: Plan, x: Operand, w: Operand, out: Operand, where: Home) -> None:
    """Append the supersteps of ``plan`` to ``body``.

    Args:
        graph: The graph.
        body: Where the steps are appended.
        plan: How the contraction is cut.
        x: The input, channels innermost.
        w: The weights, in-channels innermost.
        out: The output.
        where: Where the plan leaves it.
    """
    grid = Grid(plan)
    if not plan.needs_finish:
        _partial_products(graph, body, grid, x, w, out, where.regions)
        return
    written = _partials(graph, grid, out)
    graph.map_regions(written, grid.tiles)
    _partial_products(graph, body, grid, x, w, out, written)
    _finish(graph, body, grid, written, where)


def _partial_products(
    graph: Graph, body: Program, grid: Grid, x: Operand, w: Operand, out: Operand, written: Regions
) -> None:
    plan = grid.plan
    problem, work = plan.problem, grid.work()
    make = vertices.pointwise_partial if problem.is_pointwise else vertices.field_partial
    compute_set = graph.compute_set("partials")
    compute_set.vertices(
        make(plan.method, problem.dtype, problem.partials),
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
    )
    body.add(Execute(compute_set))


def _partials(graph: Graph, grid: Grid, out: Operand) -> Regions:
    """The blocks of all vertices, after each other in a new variable."""
    sizes = out.local_extents(grid.all.size).prod(axis=1)
    partials = graph.variable(grid.plan.problem.partials, int(sizes.sum()), name="partials")
    begin = partials.variables[0].base + np.cumsum(sizes) - sizes
    return Regions(np.arange(grid.num + 1, dtype=np.int64), begin, sizes, partials)


def _finish(graph: Graph, body: Program, grid: Grid, written: Regions, where: Home) -> None:
    """Sum the partials of every share of the output, or convert them where there is one of each."""
    problem, depth = grid.plan.problem, grid.plan.depth
    vertex = (where.block[:, None] * depth + np.arange(depth)).reshape(-1)
    begin = written.begin[vertex] + np.repeat(where.low, depth)
    ptr = np.arange(len(where.block) + 1, dtype=np.int64) * depth
    rows = Regions(ptr, begin, np.repeat(where.length, depth), written.tensor)
    make, name = (vertices.reduce_add, "reduce") if depth > 1 else (vertices.cast, "cast")
    compute_set = graph.compute_set(name)
    compute_set.vertices(make(problem.partials, problem.output), tile=where.tile, x=rows, out=where.regions)
    body.add(Execute(compute_set))
