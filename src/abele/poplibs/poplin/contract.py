"""From operands to a library call: layouts, plan, kernel and body of a contraction."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod

from abele.graph import Copy, Graph, Tensor
from abele.graph.program import Sequence as Program
from abele.poplibs.poplin.arrange import arrange
from abele.poplibs.poplin.binding import Binding
from abele.poplibs.poplin.body import build, home
from abele.poplibs.poplin.cost import weights_per_unit
from abele.poplibs.poplin.kernel import contraction_kernel
from abele.poplibs.poplin.like import blocks_of, on_tiles_of, same_storage
from abele.poplibs.poplin.operand import Operand, allocate, blocked
from abele.poplibs.poplin.plan import Plan
from abele.poplibs.poplin.problem import Contraction
from abele.poplibs.poplin.search import find_plan
from abele.poplibs.poplin.target import target_of
from abele.poplibs.poputil.layout import channels_per_group

MEMORY_PROPORTION = 0.6
"""Share of a tile's memory for slices and partials. Source: PopLibs' default, machine.md §5.6."""
_GROUPS = (16, 8)
_OUT_GRAIN = 16


@dataclass(frozen=True)
class Layouts:
    """How a contraction stores its operands.

    Attributes:
        blocks: Size of the blocks of ``ci``, ``co`` and ``b``, for those that are stored in blocks.
        arrange_input: Whether the input must be written anew in another order.
        arrange_weights: Whether the weights must be.
    """

    blocks: tuple[tuple[str, int], ...]
    arrange_input: bool
    arrange_weights: bool

    def block(self, dim: str) -> int | None:
        """Block size of a dimension, or None where it is not stored in blocks."""
        return dict(self.blocks).get(dim)


def layouts(problem: Contraction, x: Operand, w: Operand, out_blocks: dict[str, int]) -> Layouts:
    """The blocks in which operands are stored, and which operands are not stored so yet.

    Args:
        problem: The contraction.
        x: The input as it is.
        w: The weights as they are.
        out_blocks: Blocks of ``co`` and ``b`` that the output is to be stored in, where that is given.
    """
    channels = problem.in_channels
    x_fits = _sums_innermost(x, channels) and _agrees(x, "b", out_blocks)
    w_fits = _sums_innermost(w, channels) and _agrees(w, "co", out_blocks)
    given = [b for op, fits in ((w, w_fits), (x, x_fits)) if fits and (b := op.block("ci")) is not None]
    free = next((size for size in _GROUPS if channels % size == 0 and channels > size), None)
    inner = given[0] if given else free if not (x_fits and w_fits) else None
    blocks = dict(out_blocks)
    if inner is not None:
        blocks["ci"] = inner
        x_fits, w_fits = x_fits and _agrees(x, "ci", blocks), w_fits and _agrees(w, "ci", blocks)
    if "co" not in blocks:
        group = w.block("co") if w_fits else None
        group = group or channels_per_group(problem.out_channels)
        if group < problem.out_channels:
            blocks["co"] = group
    return Layouts(tuple(sorted(blocks.items())), not x_fits, not w_fits)


def _sums_innermost(operand: Operand, channels: int) -> bool:
    """Whether the channels that are summed follow each other in memory."""
    return operand.is_regular and (channels == 1 or operand.entries[-1].dim == "ci" and _unit_stride(operand))


def _unit_stride(operand: Operand) -> bool:
    strided = operand.storage.strided()
    return strided is not None and strided.factors[-1][-1][1] == 1


def _agrees(operand: Operand, dim: str, blocks: dict[str, int]) -> bool:
    """Whether an operand stores a dimension whole or in just these blocks."""
    block = operand.block(dim)
    return block is None or block == blocks.get(dim, block)


def grains(problem: Contraction, chosen: Layouts) -> tuple[int, ...]:
    """What parts of every split dimension are multiples of."""
    table = {
        "ci": chosen.block("ci") or min(weights_per_unit(problem.dtype), problem.in_channels),
        "co": chosen.block("co") or min(_OUT_GRAIN, problem.out_channels),
        "b": chosen.block("b") or 1,
    }
    return tuple(table.get(dim, 1) for dim in problem.split_dims)


def plan_for(graph: Graph, problem: Contraction, chosen: Layouts, proportion: float) -> Plan:
    """The plan of a contraction on one IPU of the graph's system."""
    return find_plan(problem, grains(problem, chosen), target_of(graph.system), proportion)


@dataclass(frozen=True)
class Call:
    """A contraction that is to become a library call.

    Attributes:
        function: Name of the library function.
        name: Name of this call.
        problem: What is computed.
        x: The input.
        w: The weights.
        out_roles: The roles of the output's dimensions.
        available_memory_proportion: Share of a tile's memory for slices and partials.
    """

    function: str
    name: str
    problem: Contraction
    x: Binding
    w: Binding
    out_roles: tuple[str, ...]
    available_memory_proportion: float = MEMORY_PROPORTION


def contract(graph: Graph, prog: Program, call: Call, like: Tensor | None = None) -> Tensor:
    """Append a library call and return its output.

    Args:
        graph: The graph.
        prog: Where the call is appended.
        call: What to call.
        like: A tensor whose storage order and tile mapping the output takes.
    """
    problem = call.problem
    operands = call.x.operand(), call.w.operand()
    given = None if like is None else Binding(like, call.out_roles, problem.groups)
    fixed = given is not None and given.operand().is_regular
    chosen = layouts(problem, *operands, blocks_of(given.operand()) if given is not None and fixed else {})
    plan = plan_for(graph, problem, chosen, call.available_memory_proportion)
    with graph.scope(call.name):
        made = (
            same_storage(graph, like, problem.output) if like is not None and fixed else new_output(graph, call, chosen)
        )
        out = Binding(made, call.out_roles, problem.groups)
        where = home(plan, out.operand())
        graph.map_regions(where.regions, where.tile)
        result = made if like is None else on_tiles_of(graph, made, like)
    with graph.library_call(
        prog,
        call.function,
        inputs=(call.x.tensor, call.w.tensor),
        outputs=(result,),
        kernel=contraction_kernel(problem, (call.x, call.w, out)),
        flops=2 * problem.macs,
        debug_name=call.name,
    ) as body:
        ready = arranged(graph, body, problem, operands, chosen)
        build(graph, body, plan, *ready, out.operand(), where)
        if result is not made:
            body.add(Copy(made, result))
    return result


def new_output(graph: Graph, call: Call, chosen: Layouts) -> Tensor:
    """An unmapped tensor for the output of a call: channels grouped innermost, groups and their blocks outermost."""
    problem = call.problem
    split = [dim for role in call.out_roles for dim in role.split("*")]
    extents = {dim: problem.extents[dim] for dim in split}
    order = _known(["g", "co1", "b", *problem.out_dims[3:], "co0"], extents)
    made = allocate(graph, problem.output, extents, blocked(order, dict(chosen.blocks), extents), "out")
    shape = [prod(problem.extents[dim] for dim in role.split("*")) for role in call.out_roles]
    return made.tensor.reshape(shape)


def arranged(
    graph: Graph, body: Program, problem: Contraction, operands: tuple[Operand, Operand], chosen: Layouts
) -> tuple[Operand, Operand]:
    """The input and the weights in the order that vertices read, written anew where they come in another."""
    x, w = operands
    blocks = dict(chosen.blocks)
    if chosen.arrange_input:
        order = ["g", "ci1", "b1", "b0", *problem.in_dims[3:], "ci0"]
        x = arrange(graph, body, x, blocked(_known(order, x.extents), blocks, x.extents), "input")
    if chosen.arrange_weights:
        order = ["g", "co1", "ci1", *problem.weight_dims[3:], "co0", "ci0"]
        w = arrange(graph, body, w, blocked(_known(order, w.extents), blocks, w.extents), "weights")
    return x, w


def _known(order: list[str], extents: Mapping[str, int]) -> list[str]:
    """The entries of ``order`` whose dimension is among those of ``extents``."""
    return [name for name in order if name in extents or name[:-1] in extents]
