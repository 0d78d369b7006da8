"""Explanations of plans: the planner's choice, its alternatives, and the options that fix it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, TextIO

from abele.errors import InvalidOptionError, OutOfMemoryError
from abele.graph import Graph
from abele.numerics import ElementType
from abele.poplibs.poplin.contraction.problem import Contraction
from abele.poplibs.poplin.conv_params.params import ConvParams
from abele.poplibs.poplin.lowering.call import ContractionCall
from abele.poplibs.poplin.operations.create import created_conv_call, created_layout
from abele.poplibs.poplin.operations.matmul_layout import is_swapped
from abele.poplibs.poplin.options import METHODS, SPLITS, TRANSFORM, Planning, read_settings
from abele.poplibs.poplin.planner.plan import ContractionPlan
from abele.poplibs.poplin.planner.schedule import PlanSeries
from abele.poplibs.poplin.planner.search import best_plans
from abele.poplibs.poplin.planner.target import PlanningTarget, target_of
from abele.poplibs.poplin.rewrites.combine_groups import GroupWidening
from abele.poplibs.poplin.rewrites.expand_kernel import KernelExpansion
from abele.poplibs.poplin.rewrites.flatten_field import FlatRewriting
from abele.poplibs.poplin.rewrites.flatten_field_out import OutputWindows
from abele.poplibs.poplin.rewrites.swap_operands import is_turned
from abele.poplibs.poputil.options import Options

Type = ElementType | str | None

_DIMS = {"g": "groups", "b": "batch", "co": "out-channels", "ci": "in-channels", "o": "output field", "k": "kernel"}
_MATRIX_DIMS = {"g": "groups", "b": "rows", "co": "columns", "ci": "inner dimension"}
_VERTICES = {
    "amp_1x1": "matrix units, one kernel position (ConvPartial1x1Out)",
    "amp_nx1": "matrix units, several kernel positions (ConvPartialnx1)",
    "slic": "sliding window of four kernel positions (ConvPartial1x4SLIC)",
    "vmac": "groups of one channel side by side (ConvPartialVerticalMac)",
    "hmac": "dot products without the matrix units (ConvPartialHorizontalMac)",
    "outer_product": "outer product (OuterProduct)",
}
REARRANGING = "rearranging"
"""Name of the cost term of steps before and after the plan."""


@dataclass(frozen=True)
class Explanation:
    """The planner's choice for one product or convolution whose operands lie as the library creates them.

    Attributes:
        call: The call that would be made, in a graph of its own.
        is_matmul: True if it is a matrix product.
        runner_up: The next best split of the same, or None where there is no other.
        others: The best split with each other kind of vertex that can do it.
    """

    call: ContractionCall
    is_matmul: bool
    runner_up: ContractionPlan | None
    others: tuple[ContractionPlan, ...]

    @property
    def schedule(self) -> PlanSeries:
        """The plans that run one after the other; mostly one."""
        return self.call.schedule

    @property
    def plan(self) -> ContractionPlan:
        """The first of them."""
        return self.schedule.plans[0]

    @property
    def cycles(self) -> int:
        """Expected cycles of all that the call does."""
        return self.call.cycles

    @property
    def rearranging_cycles(self) -> int:
        """Expected cycles of rearranging operands and output around the plan."""
        return self.cycles - self.schedule.cycles

    @property
    def _seen(self) -> Contraction:
        """The contraction as the user sees it."""
        return self.call.problem if self.call.meaning is None else self.call.meaning.problem

    @property
    def _is_flat(self) -> bool:
        return self._seen.rank > 0 and self.call.problem.rank == 0

    @cached_property
    def split(self) -> tuple[str, ...]:
        """The split over the tiles in words, one line per dimension that is split."""
        swapped = self.is_matmul and is_swapped(self.call)
        lines = []
        for dim, parts in self.plan.split.items():
            if parts > 1:
                size = int(self.plan.pieces(dim)[1].max())
                extent = self.plan.problem.extents[dim]
                name = "samples and field" if dim == "b" and self._is_flat else _dim_name(dim, self.is_matmul, swapped)
                lines.append(f"{name}: {extent:,} in {parts:,} parts of {size:,} at most")
        return tuple(lines) or ("not split: one tile does all",)

    @property
    def before(self) -> tuple[str, ...]:
        """Steps before the vertices run, in words."""
        call, steps = self.call, []
        seen = self._seen
        if self.is_matmul and is_swapped(call):
            steps.append("rows and columns swap: the left matrix is held as weights, the right one streams past")
        if is_turned(call):
            steps.append("operands swap: the input is held as weights, the weights slide past")
        if isinstance(call.widening, OutputWindows):
            flat = " x ".join(f"{seen.axes[d].outputs}" for d in call.widening.expansion.dims)
            steps.append(
                f"output positions are flattened into the channels ({flat} of them): {seen.out_channels:,} "
                f"out-channels become {call.problem.out_channels:,}, with weights written out for each"
            )
        expansion = call.expansion.written if isinstance(call.expansion, FlatRewriting) else call.expansion
        if isinstance(expansion, KernelExpansion):
            expanded = expansion.problem
            taps = " x ".join(f"{expanded.axes[d].kernel}" for d in expansion.dims)
            steps.append(
                f"the kernel is expanded into the channels ({taps} positions): {expanded.in_channels:,} in-channels "
                f"become {call.problem.in_channels:,}"
            )
        if isinstance(call.widening, GroupWidening):
            steps.append(
                f"groups are combined: {seen.groups:,} of one channel become {call.problem.groups:,} of "
                f"{call.problem.in_channels}, with zeros between them in the weights"
            )
        if self._is_flat:
            steps.append("samples and field are taken as one dimension (nothing moves)")
        orders = call.layouts.arrange_input, call.layouts.arrange_weights
        for written, ordered, name in zip(call.rewrites, orders, ("input", "weights"), strict=True):
            if ordered:
                steps.append(f"the {name} are rearranged: channels that are summed come innermost")
            elif written:
                steps.append(f"the {name} are written anew, as channels are padded to whole groups")
        return tuple(steps)

    @property
    def after(self) -> tuple[str, ...]:
        """Steps after the vertices have run, in words."""
        problem, steps = self.plan.problem, []
        if self.plan.depth > 1:
            steps.append(f"{self.plan.depth} partials of every output are exchanged and summed")
        elif problem.partials != problem.output:
            steps.append(f"partials are converted from {problem.partials} to {problem.output}")
        if self.call.spread is not None:
            steps.append("results are spread out, with zeros between them")
        return tuple(steps)

    @property
    def vertex(self) -> str:
        """The kind of vertex, in words."""
        return vertex_text(self.plan)

    @property
    def constraints(self) -> str:
        """The value of ``planConstraints`` that pins this plan."""
        return plan_constraints(self.plan, is_swapped(self.call) if self.is_matmul else None)

    def to_json(self) -> dict[str, Any]:
        """All of it as plain data."""
        plans = {"chosen": self.plan, "runner_up": self.runner_up}
        return {
            "problem": str(self.plan.problem),
            "cycles": self.cycles,
            "rearranging_cycles": self.rearranging_cycles,
            "serial_plans": len(self.schedule.plans),
            "serial_dim": self.schedule.dim if len(self.schedule.plans) > 1 else None,
            "split": list(self.split),
            "before": list(self.before),
            "after": list(self.after),
            "plan_constraints": json.loads(self.constraints),
            **{name: None if plan is None else plan_json(plan) for name, plan in plans.items()},
            "other_vertices": [plan_json(plan) for plan in self.others],
        }

    def __str__(self) -> str:
        lines = [str(self.schedule), *(f"  before: {step}" for step in self.before)]
        lines += [f"  after: {step}" for step in self.after]
        return "\n".join(lines)


def vertex_text(plan: ContractionPlan) -> str:
    """The kind of vertex of a plan, in words."""
    method = plan.method
    detail = [f"{method.units} units"] if method.units else []
    detail += [f"{method.height} kernel rows a load"] if method.height > 1 else []
    detail += ["128-bit weight loads"] if method.wide_loads else []
    return ", ".join([_VERTICES.get(method.kind, method.kind), *detail])


def plan_json(plan: ContractionPlan) -> dict[str, Any]:
    """A plan as plain data: vertex, parts, tiles, cycles by term, bytes."""
    return {
        "vertex": plan.method.kind,
        "units": plan.method.units,
        "parts": plan.split,
        "tiles": plan.tiles,
        "cycles": plan.cycles,
        "terms": dict(plan.terms),
        "temporary_bytes": plan.temporary_bytes,
        "available_bytes": plan.available_bytes,
    }


def plan_constraints(plan: ContractionPlan, swaps: bool | None = None) -> str:
    """JSON for the option ``planConstraints`` that makes the planner take just this split and kind of vertex."""
    parts, rank = plan.split, plan.problem.rank
    partition: dict[str, Any] = {}
    for name, dim in SPLITS.items():
        if dim in ("o", "k"):
            if rank:
                partition[name] = [parts[f"{dim}{d}"] for d in range(rank)]
        else:
            partition[name] = {"parallel": parts[dim]} if dim in ("co", "ci") else parts[dim]
    kind = next(name for name, family in METHODS.items() if plan.method.family == family)
    transform = {} if swaps is None else {"transform": {TRANSFORM: swaps}}
    return json.dumps({"method": {"type": kind}, "0": {**transform, "partition": partition}})


def explain_matmul(
    graph: Graph,
    a_shape: Sequence[int],
    b_shape: Sequence[int],
    dtype: ElementType | str,
    *,
    output_type: Type = None,
    partials_type: Type = None,
    available_memory_proportion: float | None = None,
    options: Options = None,
) -> Explanation:
    """The plan of a product of [m, k] by [k, n], or [g, m, k] by [g, k, n]; the graph stays as it is.

    Raises:
        TensorError, InvalidOptionError, TypeMismatchError, OutOfMemoryError: As for :func:`matmul`.
    """
    settings = read_settings("matmul", options, partials_type, available_memory_proportion)
    layout = created_layout(graph, a_shape, b_shape, dtype, settings, output_type)
    return _explained(layout.call, is_matmul=True)


def explain_convolution(
    graph: Graph,
    params: ConvParams,
    dtype: ElementType | str,
    *,
    partials_type: Type = None,
    available_memory_proportion: float | None = None,
    options: Options = None,
) -> Explanation:
    """The plan of a convolution; the graph stays as it is.

    Raises:
        InvalidOptionError, TypeMismatchError, OutOfMemoryError: As for :func:`convolution`.
    """
    settings = read_settings("convolution", options, partials_type, available_memory_proportion, is_conv=True)
    return _explained(created_conv_call(graph, params, dtype, settings), is_matmul=False)


def _explained(call: ContractionCall, *, is_matmul: bool) -> Explanation:
    plan = call.schedule.plans[0]
    target = target_of(call.graph.system, call.planning)
    free = replace(call.searching, parts=(), method="")
    # an outer product's own problem has partials of another type
    problem = replace(plan.problem, partials=call.problem.partials)
    found = best_plans(problem, plan.grains, target, free, 2)
    second = next((p for p in found if (p.parts, p.method) != (plan.parts, plan.method)), None)
    return Explanation(call, is_matmul, second, tuple(_with_other_vertices(problem, plan, target, free)))


def _with_other_vertices(
    problem: Contraction, plan: ContractionPlan, target: PlanningTarget, free: Planning
) -> Iterator[ContractionPlan]:
    """The best split with each other kind of vertex, cheapest first."""
    found = []
    for kind in _VERTICES:
        if kind != plan.method.kind:
            try:
                asked = replace(free, method=kind)
                found.append(best_plans(problem, plan.grains, target, asked, 1)[0])
            except (InvalidOptionError, OutOfMemoryError):
                continue
    yield from sorted(found, key=lambda other: other.cycles)


def _dim_name(dim: str, is_matmul: bool, swapped: bool) -> str:
    if is_matmul:
        return _MATRIX_DIMS[{"b": "co", "co": "b"}.get(dim, dim) if swapped else dim]
    return _DIMS[dim] if dim in _DIMS else f"{_DIMS[dim[0]]} {dim[1:]}"


def matmul_report_plan(
    graph: Graph,
    input_type: ElementType | str,
    output_type: ElementType | str,
    a_shape: Sequence[int],
    b_shape: Sequence[int],
    *,
    options: Options = None,
    out: TextIO | None = None,
) -> str:
    """The plan of a product in words, written to ``out`` too where that is given. Errors: :func:`explain_matmul`."""
    return _told(explain_matmul(graph, a_shape, b_shape, input_type, output_type=output_type, options=options), out)


def report_plan_info(
    graph: Graph,
    params: ConvParams,
    dtype: ElementType | str,
    *,
    options: Options = None,
    out: TextIO | None = None,
) -> str:
    """The plan of a convolution in words, written to ``out`` too where that is given.

    Raises:
        As for :func:`explain_convolution`.
    """
    return _told(explain_convolution(graph, params, dtype, options=options), out)


def report_plan_estimated_costs(
    graph: Graph, params: ConvParams, dtype: ElementType | str, *, options: Options = None
) -> dict[str, int]:
    """Expected cycles of a convolution, term by term; they add up to those of the call.

    Raises:
        As for :func:`explain_convolution`.
    """
    explained = explain_convolution(graph, params, dtype, options=options)
    terms = {REARRANGING: explained.rearranging_cycles} if explained.rearranging_cycles else {}
    for plan in explained.schedule.plans:
        for name, cycles in plan.terms:
            terms[name] = terms.get(name, 0) + cycles
    return terms


def preplan_matmuls(
    graph: Graph, matmuls: Sequence[tuple[Sequence[int], Sequence[int], ElementType | str, Options]]
) -> None:
    """Plan products ahead: (shape of a, shape of b, element type, options) each. Later calls find the plans made.

    Raises:
        As for :func:`explain_matmul`.
    """
    for a_shape, b_shape, dtype, options in matmuls:
        created_layout(graph, a_shape, b_shape, dtype, read_settings("matmul", options))


def preplan_convolutions(graph: Graph, convolutions: Sequence[tuple[ConvParams, ElementType | str, Options]]) -> None:
    """Plan convolutions ahead: (parameters, element type, options) each. Later calls find the plans made.

    Raises:
        As for :func:`explain_convolution`.
    """
    for params, dtype, options in convolutions:
        created_conv_call(graph, params, dtype, read_settings("convolution", options, is_conv=True))


def _told(explained: Explanation, out: TextIO | None) -> str:
    text = str(explained)
    if out is not None:
        print(text, file=out)
    return text
