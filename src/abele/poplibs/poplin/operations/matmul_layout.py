"""Storage of the operands of a matmul, and which of the ways is expected to be the fastest."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from abele.errors import InvalidOptionError, OutOfMemoryError
from abele.graph import Graph, Tensor
from abele.machine import System
from abele.numerics import ElementType
from abele.poplibs.poplin.contraction import problem as problems
from abele.poplibs.poplin.contraction.host_kernel import Binding
from abele.poplibs.poplin.contraction.problem import Contraction
from abele.poplibs.poplin.lowering.call import ContractionCall, cheapest
from abele.poplibs.poplin.lowering.storage import grains, new_weights
from abele.poplibs.poplin.options import Planning, SharedSplit, Types
from abele.poplibs.poplin.planner.joint import joint_split
from abele.poplibs.poplin.planner.target import SIDES, target_of
from abele.poplibs.poputil.layout import channels_per_group

# Call of a matrix product: the operand that the matrix units hold, and the charge for rearranging.


def product_call(
    graph: Graph,
    function: str,
    name: str,
    problem: Contraction,
    a: Tensor,
    b: Tensor,
    planning: Planning,
    like: Tensor | None = None,
    *,
    swapped: bool | None = None,
) -> ContractionCall:
    """The call that makes the product: rows as the batch, or columns (swapped: the left operand is held as weights).

    Columns are the batch where that is said, where that writes ``like`` along its memory, or where that is faster.
    PopLibs lays operands out for swapped products and takes all three sides to be rearranged for others, so it keeps
    the left operand in the units unless the other way saves more than that. Source: machine.md §4.16.
    """
    if swapped is None and like is not None:
        swapped = Binding(like, roles_of(like, "b", "co"), problem.groups).operand().innermost == "b"
    if swapped is None:
        swapped = True if planning.split is not None else planning.swaps
    calls = []
    for swap in (True, False) if swapped is None else (swapped,):
        asked = replace(problem, batch=problem.out_channels, out_channels=problem.batch) if swap else problem
        row, column = ("co", "b") if swap else ("b", "co")
        left = Binding(a, roles_of(a, row, "ci"), problem.groups)
        right = Binding(b, roles_of(b, "ci", column), problem.groups)
        x, w = (right, left) if swap else (left, right)
        calls.append(
            ContractionCall(
                graph,
                function=function,
                name=name,
                problem=asked,
                x=x,
                w=w,
                out_roles=roles_of(a, row, column),
                planning=planning,
                like=like,
                charged=_charged(planning) if swap else SIDES,
            )
        )
    return cheapest(calls)


def _charged(planning: Planning) -> tuple[str, ...]:
    """Sides of a swapped product that PopLibs takes to be rearranged. Source: machine.md §4.16."""
    if planning.training_pass == "TRAINING_WU":
        return ("input",) if planning.split is not None else ("input", "output")
    return ("input",) if planning.training_pass == "TRAINING_BWD" and planning.split is None else ()


def is_swapped(call: ContractionCall) -> bool:
    """True if the columns of a product take the part of the rows."""
    return call.out_roles[-1] == "b"


def roles_of(tensor: Tensor, *roles: str) -> tuple[str, ...]:
    """Roles of a matrix's dimensions, groups before them where there are any."""
    return ("g", *roles) if tensor.ndim == 3 else roles


_FORWARD = "TRAINING_FWD"
_COLUMN_BLOCKS = (16, 8)
"""Out-channels in a block: those of one pass of 16 or of 8 conv units. Source: machine.md §5.4."""


@dataclass(frozen=True)
class MatmulLayout:
    """One way to store the operands of a product.

    Attributes:
        swapped: True if the columns of the product take the part of the rows: the vertices hold a block of the left
            operand as weights, and the right operand streams past.
        block: Rows (swapped) or columns of the product that are stored in a block of weights.
        call: The product of operands that are stored so, in a graph of its own.
        shared: The splits of all passes of a fully connected layer, by name, where they are planned together.
    """

    swapped: bool
    block: int
    call: ContractionCall
    shared: tuple[tuple[str, SharedSplit], ...] = ()

    def lhs(self, graph: Graph, dtype: ElementType, shape: Sequence[int], name: str) -> Tensor:
        """An unmapped left operand, [m, k] or [g, m, k]."""
        if self.swapped:
            return _as_weights(graph, dtype, shape, self.block, name)
        return _as_rows(graph, dtype, shape, name)

    def rhs(self, graph: Graph, dtype: ElementType, shape: Sequence[int], name: str) -> Tensor:
        """An unmapped right operand, [k, n] or [g, k, n]."""
        turned = (*shape[:-2], shape[-1], shape[-2])
        if self.swapped:
            return _as_rows(graph, dtype, turned, name).moveaxis(-1, -2)
        return _as_weights(graph, dtype, turned, self.block, name).moveaxis(-1, -2)


@lru_cache(maxsize=1024)
def best_layout(
    system: System, a_shape: tuple[int, ...], b_shape: tuple[int, ...], types: Types, planning: Planning
) -> MatmulLayout:
    """Layout of the fewest expected cycles, of those that fit the tiles and the request.

    Raises:
        OutOfMemoryError, InvalidOptionError: None fits; the error is that of the first.
    """
    found: list[MatmulLayout] = []
    failure: OutOfMemoryError | InvalidOptionError | None = None
    for swapped in (True, False) if planning.swaps is None else (planning.swaps,):
        extent = a_shape[-2] if swapped else b_shape[-1]
        for block in dict.fromkeys(n if extent % n == 0 else channels_per_group(extent) for n in _COLUMN_BLOCKS):
            try:
                found.append(_layout(system, a_shape, b_shape, types, planning, swapped=swapped, block=block))
            except (OutOfMemoryError, InvalidOptionError) as error:
                failure = failure or error
    if not found:
        assert failure is not None
        raise failure
    if planning.training_pass != _FORWARD:
        return min(found, key=lambda layout: layout.call.cycles)
    apart = min(found, key=lambda layout: _joint_cycles(layout, a_shape, b_shape, types, planning))
    if planning.parts or planning.method:
        return apart
    # As in PopLibs, what is taken to be rearranged is compared beside the plans, not what a program would move.
    calls = apart.call, *_gradients(apart, a_shape, b_shape, types, planning)
    least, best = sum(call.schedule.cycles + call.charge for call in calls), apart
    for layout in found:
        together = _together(layout, a_shape, b_shape, types, planning) if layout.swapped else None
        if together is not None and together[0] <= least:
            least, best = together
    return best


def _together(
    layout: MatmulLayout, a_shape: tuple[int, ...], b_shape: tuple[int, ...], types: Types, planning: Planning
) -> tuple[int, MatmulLayout] | None:
    """The layout with one split for all passes, and their cycles; None where no split suits all."""
    calls = [layout.call, *_gradients(layout, a_shape, b_shape, types, planning, swaps=True)]
    found = joint_split(
        [call.problem for call in calls],
        [grains(call.problem, call.layouts) for call in calls],
        target_of(layout.call.graph.system, planning),
        planning,
    )
    if found is None:
        return None
    cycles, splits = found
    update = replace(calls[2], planning=replace(calls[2].planning, split=splits["TRAINING_WU"]), charged=("input",))
    cycles += update.charge
    call = replace(layout.call, planning=replace(planning, split=splits[_FORWARD]))
    return cycles, replace(layout, call=call, shared=tuple(splits.items()))


def planned_together(
    system: System, a_shape: tuple[int, ...], b_shape: tuple[int, ...], types: Types, planning: Planning
) -> Planning:
    """``planning`` with the split that the passes of a fully connected layer share, where this product is one of them.

    As in PopLibs, the plan of any pass is looked up by the forward pass that belongs to it.
    """
    asked = planning.parts or planning.method or planning.swaps is not None or planning.split is not None
    if not planning.training_pass or asked:
        return planning
    groups, rows, inner, columns = a_shape[:-2], a_shape[-2], a_shape[-1], b_shape[-1]
    batch, inputs, outputs = {
        _FORWARD: (rows, inner, columns),
        "TRAINING_BWD": (rows, columns, inner),
        "TRAINING_WU": (inner, rows, columns),
    }[planning.training_pass]
    shapes = (*groups, batch, inputs), (*groups, inputs, outputs)
    try:
        forward = best_layout(system, *shapes, types, replace(planning, training_pass=_FORWARD))
    except (OutOfMemoryError, InvalidOptionError):
        return planning
    split = dict(forward.shared).get(planning.training_pass)
    return planning if split is None else replace(planning, split=split)


def _joint_cycles(
    layout: MatmulLayout, a_shape: tuple[int, ...], b_shape: tuple[int, ...], types: Types, planning: Planning
) -> int:
    """Cycles of the product and, where passes are planned together, of both gradients of operands that lie so.

    What is asked of the plan is asked of the product's alone.
    Source: machine.md §5.15.
    """
    back, update = _gradients(layout, a_shape, b_shape, types, planning)
    return layout.call.cycles + back.cycles + update.cycles


def _gradients(
    layout: MatmulLayout,
    a_shape: tuple[int, ...],
    b_shape: tuple[int, ...],
    types: Types,
    planning: Planning,
    *,
    swaps: bool | None = None,
) -> tuple[ContractionCall, ContractionCall]:
    """The backward pass and the weight update of a product of operands that lie so."""
    graph = Graph(layout.call.graph.system)
    a, b = (make(graph, types.dtype, s, n) for make, s, n in ((layout.lhs, a_shape, "a"), (layout.rhs, b_shape, "b")))
    out = layout.call.create_output(graph)
    back, update = (
        replace(planning, parts=(), method="", swaps=swaps, training_pass=f"TRAINING_{n}") for n in ("BWD", "WU")
    )
    return (
        _gradient(graph, out, b.moveaxis(-1, -2), types, back, None),
        _gradient(graph, a.moveaxis(-1, -2), out, types, update, b),
    )


def _gradient(
    graph: Graph, left: Tensor, right: Tensor, types: Types, planning: Planning, like: Tensor | None
) -> ContractionCall:
    groups = left.shape[0] if left.ndim == 3 else 1
    shape = groups, left.shape[-2], left.shape[-1], right.shape[-1]
    problem = problems.matmul(*shape, dtype=types.dtype, partials=types.partials, output=types.output)
    return product_call(
        graph, "poplin.matmul", "matmul", problem=problem, a=left, b=right, planning=planning, like=like
    )


def _layout(
    system: System,
    a_shape: tuple[int, ...],
    b_shape: tuple[int, ...],
    types: Types,
    planning: Planning,
    *,
    swapped: bool,
    block: int,
) -> MatmulLayout:
    graph = Graph(system)
    groups = a_shape[0] if len(a_shape) == 3 else 1
    rows, inner, columns = a_shape[-2], a_shape[-1], b_shape[-1]
    problem = problems.matmul(
        groups, rows, inner, columns=columns, dtype=types.dtype, partials=types.partials, output=types.output
    )
    if swapped:
        a = _as_weights(graph, types.dtype, a_shape, block, "a")
        b = _as_rows(graph, types.dtype, (*b_shape[:-2], columns, inner), "b").moveaxis(-1, -2)
    else:
        a = _as_rows(graph, types.dtype, a_shape, "a")
        b = _as_weights(graph, types.dtype, (*b_shape[:-2], columns, inner), block, "b").moveaxis(-1, -2)
    call = product_call(graph, "poplin.matmul", "matmul", problem=problem, a=a, b=b, planning=planning, swapped=swapped)
    return MatmulLayout(swapped, block, call)


def _as_rows(graph: Graph, dtype: ElementType, shape: Sequence[int], name: str) -> Tensor:
    """[rows, inner], stored with blocks of the inner dimension outermost."""
    *groups, rows, inner = shape
    block = channels_per_group(inner)
    variable = graph.variable(dtype, (*groups, inner // block, rows, block), name=name)
    return variable.moveaxis(-2, -3).reshape(tuple(shape))


def _as_weights(graph: Graph, dtype: ElementType, shape: Sequence[int], block: int, name: str) -> Tensor:
    """[columns, inner], stored in the blocks that a load of weights takes."""
    *groups, columns, inner = shape
    extents = ({"g": groups[0]} if groups else {}) | {"co": columns, "ci": inner}
    return new_weights(graph, dtype, extents, name, blocks={"co": block})
