"""From operands to a library call: layouts, plan, kernel and body of a contraction."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Protocol

import numpy as np

from abele.arrays import Int64
from abele.errors import InvalidOptionError, OutOfMemoryError
from abele.graph import ComputeSet, Copy, Execute, Graph, LibraryCall, Tensor
from abele.graph.program import Steps
from abele.numerics import ElementType
from abele.poplibs.poplin.contraction.host_kernel import (
    UNSCALED,
    Binding,
    Onto,
    Scaling,
    contraction_kernel,
)
from abele.poplibs.poplin.contraction.operand import Operand, allocate, seen_in_order
from abele.poplibs.poplin.contraction.problem import Contraction
from abele.poplibs.poplin.lowering.arrange import arrange, arrange_estimate
from abele.poplibs.poplin.lowering.contraction_steps import ContractionStage, build, convert
from abele.poplibs.poplin.lowering.grid import Home, home, home_on
from abele.poplibs.poplin.lowering.placement import place_input, place_weights
from abele.poplibs.poplin.lowering.storage import (
    HALF_BLOCK,
    Layouts,
    grains,
    has_all,
    input_order,
    is_in_vectors,
    layouts,
    new_output,
    weights_order,
)
from abele.poplibs.poplin.options import DEFAULT, Planning
from abele.poplibs.poplin.planner.plan import ContractionPlan
from abele.poplibs.poplin.planner.schedule import SERIAL_SIDES, PlanSeries, make_schedule
from abele.poplibs.poplin.planner.search import find_plan
from abele.poplibs.poplin.planner.target import (
    SIDES,
    PlanningTarget,
    least_cycles,
    padded_sides,
    rearranging_cycles,
    target_of,
)
from abele.poplibs.poplin.vertices.cost import weights_per_unit
from abele.poplibs.poputil.layout import clone
from abele.poplibs.poputil.order import storage_order


@dataclass(frozen=True)
class Meaning:
    """Contraction on the tensors that the user gave, where the call works on other views of them.

    Attributes:
        problem: The contraction as the user sees it.
        x: The input.
        w: The weights.
        out_roles: The roles of the output's dimensions.
        restore: The output as the user sees it, from the one that is planned.
    """

    problem: Contraction
    x: Binding
    w: Binding
    out_roles: tuple[str, ...]
    restore: Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class Unfolding:
    """Shape that an output of folded dimensions had before they were folded.

    Attributes:
        roles: The roles of the dimensions before folding.
        apply: View of the output with those dimensions.
    """

    roles: tuple[str, ...]
    apply: Callable[[Tensor], Tensor]


class Rewriting(Protocol):
    """A way to write an operand anew before it is used: the input's windows, or wider weights."""

    def estimate(self, machine: PlanningTarget) -> int:
        """Cycles that it is expected to take."""

    def emit(self, graph: Graph, compute_set: ComputeSet) -> Operand:
        """Add its vertices; returns the operand in its new order."""


class Spread(Protocol):
    """A way to spread out the result."""

    def allocate(self, graph: Graph, dense: Tensor) -> Tensor:
        """The tensor that ``dense`` is spread out in."""

    def emit(self, graph: Graph, body: Steps, dense: Tensor, full: Tensor) -> None:
        """Append the steps that spread ``dense`` out in ``full``."""


@dataclass(frozen=True)
class ContractionCall:
    """A contraction that is to become a library call.

    Attributes:
        graph: The graph.
        function: Name of the library function.
        name: Name of this call.
        problem: Contraction to compute.
        x: The input.
        w: The weights.
        out_roles: The roles of the output's dimensions.
        planning: Constraints that the planner obeys.
        like: A tensor whose storage order and tile mapping the output takes, or None.
        meaning: Contraction that the user sees, where it differs from the one that is planned.
        expansion: Rewriting of the input before, or None; ``x`` then stands for the result in a graph of its own.
        widening: Rewriting of the weights before, or None; ``w`` then stands for the result, as ``x`` does.
        spread: Dilation of the result afterwards, or None.
        charged: Sides that PopLibs takes to be rearranged, of :data:`~abele.poplibs.poplin.planner.target.SIDES`.
        unfold: View of the output with its field, where samples and field are planned as one dimension, or None;
            ``like`` and ``meaning`` are of that view.
        follows: True if the weights stand for some that will be stored as the plan wants them.
        scaling: Factor of the products.
        onto: The sum that the output is added to, which is ``like`` as well; None to make the output. It needs a
            direct call.
        zeros: Channels of the planned contraction that are zeros beside those that are summed.
        in_halves: True to let operands arrive in halves where a tile would receive much at a time.
    """

    graph: Graph
    function: str
    name: str
    problem: Contraction
    x: Binding
    w: Binding
    out_roles: tuple[str, ...]
    planning: Planning = DEFAULT
    like: Tensor | None = None
    meaning: Meaning | None = None
    expansion: Rewriting | None = None
    widening: Rewriting | None = None
    spread: Spread | None = None
    charged: tuple[str, ...] = ()
    unfold: Unfolding | None = None
    follows: bool = False
    scaling: Scaling = UNSCALED
    onto: Onto | None = None
    zeros: int = 0
    in_halves: bool = False

    @cached_property
    def wanted(self) -> Operand | None:
        """``like`` as an operand with the planned dimensions, or None."""
        return None if self.like is None else self._unfolded(self.like)

    @property
    def is_direct(self) -> bool:
        """True if vertices can write the output in the requested order: out-channels innermost."""
        wanted = self.wanted
        if wanted is None:
            return True
        if self.unfold is not None:
            return False
        return wanted.is_regular and (self.problem.out_channels == 1 or wanted.innermost == "co")

    @cached_property
    def layouts(self) -> Layouts:
        """Storage orders of the operands."""
        fixed = self.wanted.blocks if self.wanted is not None and self.is_direct else {}
        return layouts(self.problem, self.x.operand(), self.w.operand(), fixed, follows=self.follows)

    @cached_property
    def stored(self) -> Layouts:
        """Storage orders of operands and output under the plan: in whole blocks where parts allow it."""
        out = self.problem.split_dims.index("co")
        chosen = self.layouts
        halved = any(plan.grains[out] % (2 * HALF_BLOCK) for plan in self.schedule.plans)
        return chosen.halved() if chosen.halves_out and halved else chosen

    @cached_property
    def schedule(self) -> PlanSeries:
        """The plans, on one IPU of the graph's system."""
        chosen, machine = grains(self.problem, self.layouts), target_of(self.graph.system, self.planning)
        shared = self._shared_plan(chosen)
        if shared is not None:
            return PlanSeries("co", (shared,))
        # Eight units make eight out-channels in a pass, and fewer units fewer: half a block keeps them as busy.
        units, _ = machine.conv_units(self.problem.dtype, self.problem.partials)
        halves = self.layouts.halves_out and 0 < units <= HALF_BLOCK and not self.planning.joint
        return make_schedule(self.problem, chosen, machine, self.searching, halves=halves)

    @cached_property
    def searching(self) -> Planning:
        """Constraints of the search: those asked for, and the sides whose copies take memory as well."""
        x, w = self._permutes
        copied = x or self.expansion is not None, w or self.widening is not None
        return replace(self.planning, copied=tuple(side for side, made in zip(SIDES, copied, strict=False) if made))

    def _shared_plan(self, chosen: tuple[int, ...]) -> ContractionPlan | None:
        """The plan that the passes of a layer share, or None where there is none or operands do not lie for it."""
        split = self.planning.split
        if split is None:
            return None
        wanted = tuple(dict(split.grains)[dim] for dim in self.problem.split_dims)
        if any(n % grain for n, grain in zip(wanted, chosen, strict=True)):
            return None
        planning = replace(self.planning, split=None, parts=split.parts)
        try:
            plan = find_plan(self.problem, wanted, target_of(self.graph.system, planning), planning)
        except (InvalidOptionError, OutOfMemoryError):
            return None
        return replace(plan, order=split.order)

    @property
    def cycles(self) -> int:
        """Expected cycles, arranging operands and output included."""
        plans = self.schedule.plans
        return self._around([(plan.problem, plan.tiles) for plan in plans]) + self.schedule.cycles

    @property
    def least_cycles(self) -> int:
        """Cycles that no plan of this call takes less than, known without planning."""
        machine = target_of(self.graph.system, self.planning)
        return self._around([(self.problem, machine.tiles)]) + least_cycles(self.problem, machine)

    def _around(self, parts: Sequence[tuple[Contraction, int]]) -> int:
        """Expected cycles of rearranging operands and output, where parts of the work run on the given numbers of
        tiles.
        """
        machine = target_of(self.graph.system, self.planning)
        # Rewriting operands is part of the price, so that ways with and without it are compared fairly.
        before = sum(way.estimate(machine) for way in (self.expansion, self.widening) if way is not None)
        return before + sum(self._arranging(side, parts, machine) for side in SIDES)

    def _arranging(self, side: str, parts: Sequence[tuple[Contraction, int]], machine: PlanningTarget) -> int:
        """Expected cycles of arranging a side: those of its order here, and no less than PopLibs charges."""
        output = 0 if self.is_direct or self.like is None else self.like.size
        x, w = (t.tensor.size * needed for t, needed in zip((self.x, self.w), self._permutes, strict=True))
        elements = {"input": x, "weights": w, "output": output}[side]
        here = arrange_estimate(elements, self.problem.dtype, machine) if elements else 0
        return max(here, self._charge(side, parts, machine))

    @property
    def charge(self) -> int:
        """Cycles that PopLibs takes rearranging operands and output to take."""
        machine = target_of(self.graph.system, self.planning)
        parts = [(plan.problem, plan.tiles) for plan in self.schedule.plans]
        return sum(self._charge(side, parts, machine) for side in SIDES)

    def _charge(self, side: str, parts: Sequence[tuple[Contraction, int]], machine: PlanningTarget) -> int:
        """Cycles that PopLibs takes to rearrange a side, where parts of the work run on the given numbers of tiles."""
        if side not in self.charged:
            return 0
        return sum(rearranging_cycles(problem, side, tiles, machine) for problem, tiles in parts)

    @property
    def phases(self) -> dict[str, int]:
        """Expected cycles by kind of step: steps before, and every term of every plan."""
        phases = {"before": self.cycles - self.schedule.cycles}
        for number, plan in enumerate(self.schedule.plans):
            phases |= {(f"{name}, part {number}" if number else name): n for name, n in plan.terms}
        return phases | ({"adding of parts": self.schedule.adding} if self.schedule.adding else {})

    @property
    def cycles_beside(self) -> int:
        """Expected cycles together with the work that runs at the same time."""
        if not self.planning.beside:
            return self.cycles
        mine, theirs = self.phases, dict(self.planning.beside)
        return sum(max(mine.get(kind, 0), theirs.get(kind, 0)) for kind in mine | theirs)

    def create_output(self, graph: Graph) -> Tensor:
        """A tensor of ``graph`` that is stored and lies as the output of this call would."""
        return replace(self, graph=graph)._outputs()[0]

    def append(self, prog: Steps) -> Tensor:
        """Append the library call to ``prog`` and return its output."""
        with self.graph.scope(self.name):
            made, homes, result = self._outputs()
        meaning = self.meaning or Meaning(self.problem, self.x, self.w, self.out_roles, lambda out: out)
        dense = returned = meaning.restore(result)
        if self.spread is not None:
            with self.graph.scope(self.name):
                returned = self.spread.allocate(self.graph, dense)
        out = Binding(returned, meaning.out_roles, meaning.problem.groups)
        totals = () if self.onto is None else (self.onto.total,)
        with self.graph.library_call(
            prog,
            self.function,
            inputs=(meaning.x.tensor, meaning.w.tensor, *self.scaling.tensors, *totals),
            outputs=(returned,),
            kernel=contraction_kernel(meaning.problem, (meaning.x, meaning.w, out), self.scaling, self.onto),
            flops=2 * replace(self.problem, in_channels=self.problem.in_channels - self.zeros).macs,
            debug_name=self.name,
        ) as body:
            self._build(body, made, homes, result)
            if self.spread is not None:
                self.spread.emit(self.graph, body, dense, returned)
        call = prog.steps[-1]
        assert isinstance(call, LibraryCall)
        call.attributes["plan"] = self.schedule
        return returned

    def emit(self, body: Steps) -> Tensor:
        """Append the steps of the contraction to the body of a larger library call and return its output."""
        assert self.meaning is None
        assert self.spread is None
        with self.graph.scope(self.name):
            made, homes, result = self._outputs()
            self._build(body, made, homes, result)
        return result

    def _build(self, body: Steps, made: Tensor, homes: list[Home], result: Tensor) -> None:
        """The steps of the call: arrange the operands, compute, and bring the output where it belongs."""
        x, w = self._operands(body)
        # Parts that are addends of one output add up in the type of partials.
        adds_up, total, onto = self.schedule.adds_up and self.onto is None, made, self.onto
        places = homes
        if adds_up and made.dtype != self.problem.partials:
            total = clone(self.graph, made, "sum", self.problem.partials)
            places = self._homes_on(total)
        for number, (plan, begin, size) in enumerate(self.schedule.parts()):
            part = [op.slice(self.schedule.dim, begin, size) for op in (x, w, self._output(total))]
            for side in self._late:
                part[side] = self._arranged_alone(body, part[side], SIDES[side])
            if adds_up and number:
                onto = Onto(total, 1.0, self.problem.partials)
            x_part, w_part, out = part
            build(
                self.graph,
                body,
                plan,
                x=x_part,
                w=w_part,
                out=out,
                where=places[number],
                scaling=self.scaling,
                onto=onto,
                is_part=len(self.schedule.plans) > 1,
                target=target_of(self.graph.system, self.planning) if self.in_halves else None,
            )
        if total is not made:
            convert(self.graph, body, places[0], self._homes_on(made)[0])
        if self.like is None or made is result:
            return
        if self.is_direct:
            order = storage_order(result)
            body.add(Copy(order.apply(made), order.apply(result)))
        else:
            compute_set = ContractionStage.ARRANGE_OUTPUT.compute_set(self.graph)
            arrange(self.graph, compute_set, self._unfolded(self._seen(made)), self._unfolded(result))
            body.add(Execute(compute_set))

    @property
    def rewrites(self) -> tuple[bool, bool]:
        """True for input and weights where they are written anew in another order, or padded."""
        return self._permutes[0] or self._pads[0], self._permutes[1] or self._pads[1]

    @cached_property
    def _permutes(self) -> tuple[bool, bool]:
        """True, for input and weights, if vertices rewrite them in another order, or with zeros at the end.

        Not where the channels that are summed lie together in groups of another size: exchange puts vectors of them
        together where they are read. PopLibs, too, regroups only what is grouped along another dimension
        (regroupIfBeneficial). Matrices are put together in whole groups alone: the pieces of a vector each, 8 bytes,
        of a row of 1,024 that many tiles read take 1 KB of each tile's code.
        """
        system, dtype = self.graph.system, self.problem.dtype
        is_product = self.meaning is None and not self.problem.axes
        grain = weights_per_unit(dtype) if is_product else system.ipu.vector_width(dtype)
        channels = self.problem.in_channels

        def is_read_in_vectors(source: Operand) -> bool:
            return has_all(source, channels) and is_in_vectors(source, grain)

        x = self.layouts.arrange_input and not (self.expansion is None and is_read_in_vectors(self.x.operand()))
        w = self.layouts.arrange_weights and not (self.widening is None and is_read_in_vectors(self.w.operand()))
        return x, w

    @cached_property
    def _pads(self) -> tuple[bool, bool, bool]:
        """True for input, weights and output where channels are padded to whole groups of the matrix units.

        PopLibs writes such a side anew. Source: machine.md §4.16. What is written anew already, as the kernel is
        expanded into its channels, takes the padding along.
        """
        padded = padded_sides(self.problem, self.schedule.plans[0].method)
        ins, weights, out = (side in padded for side in SIDES)
        return ins and self.expansion is None, weights and self.widening is None, out

    def _output(self, tensor: Tensor) -> Operand:
        return Binding(tensor, self.out_roles, self.problem.groups).operand()

    def _seen(self, made: Tensor) -> Tensor:
        """The plans' output, with the dimensions that the caller expects."""
        return made if self.unfold is None else self.unfold.apply(made)

    def _unfolded(self, tensor: Tensor) -> Operand:
        """An output with the dimensions that it is meant to have."""
        roles = self.out_roles if self.unfold is None else self.unfold.roles
        return Binding(tensor, roles, self.problem.groups).operand()

    def _outputs(self) -> tuple[Tensor, list[Home], Tensor]:
        """The plans' output, its home for each plan, and the result: the same tensor, or one to fill from it."""
        graph, like = self.graph, self.like
        if self.onto is not None:
            assert like is self.onto.total
            assert self.is_direct
            return like, self._homes_on(like), like
        # The last stage of sums can write each share straight to the tile where the result is wanted, unless few tiles
        # would have to sum a serial part.
        if like is not None and self.is_direct and self.schedule.sums and not self._is_crowded(like):
            result = clone(graph, like, "out", self.problem.output)
            return result, self._homes_on(result), result
        if like is not None and self.is_direct:
            made = same_storage(graph, like, self.problem.output)
        else:
            made = new_output(graph, self.problem, self.stored, self.out_roles)
        homes = [home(plan, out) for plan, out in self._parts(made)]
        for where in homes[:1] if self.schedule.adds_up else homes:
            graph.map_regions(where.regions, where.tile)
        homes = self._homes_on(made) if self.schedule.adds_up else homes
        if like is not None and self.is_direct and not self._pads[2] and _lie_alike(graph, made, like):
            return made, homes, made
        return made, homes, self._seen(made) if like is None else clone(graph, like, "out", self.problem.output)

    def _homes_on(self, made: Tensor) -> list[Home]:
        """Shares of an output that is mapped already, for each plan."""
        tiles = self.graph.interval_map(made.variables)
        return [home_on(plan, out, tiles) for plan, out in self._parts(made)]

    def _is_crowded(self, like: Tensor) -> bool:
        """True if a serial part of an output that lies like ``like`` is on few tiles."""
        if len(self.schedule.plans) == 1:
            return False
        plans = [plan for plan, *_ in self.schedule.parts()]
        return any(home.is_crowded(plan.tiles) for plan, home in zip(plans, self._homes_on(like), strict=True))

    def _parts(self, made: Tensor) -> Iterator[tuple[ContractionPlan, Operand]]:
        """Every plan and the part of the output that it makes."""
        out = self._output(made)
        for plan, begin, size in self.schedule.parts():
            yield plan, out.slice(self.schedule.dim, begin, size)

    def _operands(self, body: Steps) -> tuple[Operand, Operand]:
        """Input and weights as vertices read them; both are rewritten in as few steps as possible."""
        rewritten = self.expansion is not None, self.widening is not None
        # An operand that is both rewritten and arranged needs a second step, as the first must be over.
        late = any(map(all, zip(rewritten, self.rewrites, strict=True)))
        early = [made for number, made in enumerate(self.rewrites) if number not in self._late]
        first = ContractionStage.REWRITE.compute_set(self.graph) if any((*rewritten, *early)) else None
        then = ContractionStage.ARRANGE.compute_set(self.graph) if late else None
        graph = self._planned_tiles
        x = self.x.operand() if self.expansion is None else self.expansion.emit(graph, _made(first))
        w = self.w.operand() if self.widening is None else self.widening.emit(graph, _made(first))
        if 0 not in self._late and (self.layouts.arrange_input or self._pads[0]):
            x = self._arranged(then if rewritten[0] else first, x, "input")
        if 1 not in self._late and (self.layouts.arrange_weights or self._pads[1]):
            w = self._arranged(then if rewritten[1] else first, w, "weights")
        for compute_set in (first, then):
            if compute_set is not None:
                body.add(Execute(compute_set))
        return x, w

    @cached_property
    def _late(self) -> tuple[int, ...]:
        """Operands that are written anew part by part, each before its products; all others are written before.

        So no more than a part of them is there twice.
        """
        if len(self.schedule.plans) == 1 or self.planning.split is not None:
            return ()
        if self.schedule.dim == "ci" and self.zeros:
            return ()  # zeros are the end of the last part
        numbers = map(SIDES.index, SERIAL_SIDES[self.schedule.dim])
        rewritten = self.expansion is not None, self.widening is not None
        return tuple(number for number in numbers if self.rewrites[number] and not rewritten[number])

    def _arranged_alone(self, body: Steps, source: Operand, name: str) -> Operand:
        """One part of an operand, written anew in a step of its own."""
        compute_set = ContractionStage.REWRITE.compute_set(self.graph)
        target = self._arranged(compute_set, source, name)
        body.add(Execute(compute_set))
        return target

    def _arranged(self, compute_set: ComputeSet | None, source: Operand, name: str) -> Operand:
        ordered = input_order if name == "input" else weights_order
        order = ordered(self.problem, self.stored, source.extents)
        if not self.rewrites[name == "weights"]:
            return seen_in_order(source, order)
        graph = self._planned_tiles
        extents = source.extents
        if self.zeros and extents["ci"] + self.zeros == self.problem.in_channels:
            extents["ci"] += self.zeros
        target = allocate(graph, source.tensor.dtype, extents, order, name)
        # Passes that share a plan find each other's operands on the tiles that read them.
        edges: dict[str, Int64] = {}
        if self.planning.split is not None:
            (place_input if name == "input" else place_weights)(graph, target, self.schedule)
            (plan,) = self.schedule.plans
            edges = {dim: plan.pieces(dim)[0] for dim in source.dims if dim in plan.split}
        return arrange(graph, _made(compute_set), source, target, edges)

    @property
    def _planned_tiles(self) -> Graph:
        """The graph with the tiles alone that may be used; their numbers are the same."""
        most = self.planning.tiles
        return self.graph.virtual(0, most) if 0 < most < self.graph.num_tiles else self.graph


def _made(compute_set: ComputeSet | None) -> ComputeSet:
    assert compute_set is not None
    return compute_set


def cheapest(calls: Iterable[ContractionCall]) -> ContractionCall:
    """Call of the fewest expected cycles, of those that fit the tiles and the plan's constraints.

    Calls that cannot be better than the best so far are not planned. Of equal ones the first is taken.

    Raises:
        OutOfMemoryError, InvalidOptionError: None fits; the error is that of the first.
    """
    best: tuple[int, ContractionCall] | None = None
    failure: OutOfMemoryError | InvalidOptionError | None = None
    for call in calls:
        try:
            # What runs at the same time never makes a call shorter, so the bound holds beside others, too.
            if best is None or call.least_cycles < best[0]:
                cycles = call.cycles_beside
                best = (cycles, call) if best is None or cycles < best[0] else best
        except (OutOfMemoryError, InvalidOptionError) as error:
            failure = failure or error
    if best is None:
        assert failure is not None
        raise failure
    return best[1]


def _lie_alike(graph: Graph, one: Tensor, other: Tensor) -> bool:
    """True if two tensors of the same storage order have the same tiles."""
    order, found = storage_order(other), []
    for tensor in (one, other):
        begin, length = order.apply(tensor).intervals()
        _, sizes, tiles, _ = graph.interval_map(tensor.variables).split(begin, length)
        last = np.append(tiles[1:] != tiles[:-1], True)
        found.append((np.cumsum(sizes)[last], tiles[last]))
    return all(map(np.array_equal, *found))


def same_storage(graph: Graph, like: Tensor, dtype: ElementType) -> Tensor:
    """A new, unmapped tensor of the shape and storage order of ``like``."""
    order = storage_order(like)
    return order.undo(graph.variable(dtype, order.extents, name="out"))
