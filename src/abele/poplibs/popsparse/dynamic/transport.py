"""Transport of buckets round the grid: what spilt reaches the cell that it belongs to.

A pass moves every tile's buffers to the neighbour along y (and along x where a round along y is done) and then round
the z tiles, one step at a time, with tiles computing at each step. The program is one loop whose condition steps
through the passes of the overflow info, so that a matrix without spills takes one look at it, and every other as many
passes as its farthest bucket needs. Buffers are double: a shift writes the other one.

The steps of a pass are library calls of their own, whose loops stand around them: native execution, where one host
kernel computes the whole product, counts the trips all the same, and the run's report has their cycles.

Example: a grid of 4 × 5 × 2 and buckets that spilt one cell along y: the loop makes one trip, of a shift along y and
two steps along z. At worst it makes 19.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np

from abele.graph import Execute, Graph, If, Repeat, RepeatWhileTrue, Tensor
from abele.graph.program import Sequence
from abele.numerics import bool_, u32
from abele.poplibs.popsparse.dynamic import costs
from abele.poplibs.popsparse.dynamic.codelets import (
    SparseFirstPass,
    SparseHomeward,
    SparseLastPass,
    SparseNextPass,
)
from abele.poplibs.popsparse.dynamic.plan import DynamicPlan
from abele.poplibs.popsparse.dynamic.tensors import copies, create_together, tile_numbers
from abele.poplibs.poputil.host_body import note_host

Compute = Callable[[Sequence, list[Tensor]], None]
"""Appends the vertices that work on what has come to each tile: buffers [tiles, size]."""


@dataclass(frozen=True)
class _Signs:
    """State of a loop over passes, and what the next trip does."""

    state: Tensor
    more: Tensor
    turns: Tensor
    works: Tensor


@dataclass(frozen=True)
class Transport:
    """A journey of some buffers.

    Attributes:
        graph: The graph.
        plan: The plan.
        homes: Variables to start from [tiles, size].
        outputs: Variables that the steps write.
        compute: Appends what they compute at each step.
        name: Name of the steps.
        back: True for what goes the other way: slices that visit buckets, instead of buckets that visit slices.
    """

    graph: Graph
    plan: DynamicPlan
    homes: list[Tensor]
    outputs: list[Tensor]
    compute: Compute
    name: str
    back: bool = False

    def emit(self, prog: Sequence, info: Tensor) -> None:
        """Append all passes after the first; nothing is moved unless something is to come."""
        if self.plan.num_cells == 1:
            return
        here, there = self._buffers("bucket"), self._buffers("other")
        signs = self._signs()
        first = Sequence()
        self._take(first, here)
        condition = self._begin(prog, info, signs, SparseFirstPass, SparseNextPass, self._next_pass)
        loop = RepeatWhileTrue(Sequence(), signs.more, Sequence(self._trip(here, there, signs), condition))
        prog.add(If(signs.more, Sequence(first, loop)))

    def emit_whole(self, prog: Sequence, info: Tensor, *, returns: bool) -> list[Tensor]:
        """Append all passes, the first included; returns the buffers, which have come home if they should."""
        here, there = self._buffers("bucket"), self._buffers("other")
        self._take(prog, here)
        prog.add(self._round(here, there))
        if self.plan.num_cells == 1:
            return here
        signs = self._signs()
        condition = self._begin(prog, info, signs, SparseFirstPass, SparseNextPass, self._next_pass)
        prog.add(RepeatWhileTrue(Sequence(), signs.more, Sequence(self._trip(here, there, signs), condition)))
        if returns:
            condition = self._begin(prog, info, signs, SparseLastPass, SparseHomeward, "homeward")
            trip = Sequence()
            for sign, name, dim in ((signs.works, "back_y", 2), (signs.turns, "back_x", 1)):
                shift = Sequence()
                self._call(shift, name, here, [*here, *there], self._shifting(here, there, dim, back=True))
                trip.add(If(sign, shift))
            prog.add(RepeatWhileTrue(Sequence(), signs.more, Sequence(trip, condition)))
        return here

    @property
    def _next_pass(self) -> str:
        """Name of the step to the next pass, with their number at worst."""
        return f"next_pass_of_{all_passes(self.plan)}"

    def _buffers(self, name: str) -> list[Tensor]:
        return create_together(self.graph, self.plan, self.homes, f"{self.name}/{name}")

    def _signs(self) -> _Signs:
        state = self.graph.variable(u32, (2,), name=f"{self.name}/pass", map=0)
        flags = [self.graph.variable(bool_, (), name=f"{self.name}/{n}", map=0) for n in ("more", "turns", "works")]
        return _Signs(state, *flags)

    def _take(self, prog: Sequence, here: list[Tensor]) -> None:
        self._call(prog, "take", self.homes, here, lambda body: self._copies(body, self.homes, here))

    def _trip(self, here: list[Tensor], there: list[Tensor], signs: _Signs) -> Sequence:
        """One pass: a shift along y, one along x after a round of these, and the steps along z."""
        trip = Sequence()
        if self.plan.parts[1] > 1:
            self._call(trip, "shift_y", here, [*here, *there], self._shifting(here, there, 2, back=self.back))
        if self.plan.parts[0] > 1:
            turn = Sequence()
            self._call(turn, "shift_x", here, [*here, *there], self._shifting(here, there, 1, back=self.back))
            trip.add(If(signs.turns, turn) if self.plan.parts[1] > 1 else turn)
        trip.add(If(signs.works, self._round(here, there)))
        return trip

    def _begin(self, prog: Sequence, info: Tensor, signs: _Signs, start: type, step: type, name: str) -> Sequence:
        """Append the state before the first trip and the first look; returns the look."""
        first = self.graph.compute_set(f"{self.name}/first_pass")
        fields = {"info": info.reshape((1, -1)), "state": signs.state.reshape((1, 2))}
        first.vertices(start, tile=[0], cycles=[costs.FLAG_CYCLES // costs.WORKERS], **fields)
        prog.add(Execute(first))
        look = self._next(info, signs, step, name)
        prog.add(look)
        return look

    def _next(self, info: Tensor, signs: _Signs, codelet: type, name: str) -> Sequence:
        step = self.graph.compute_set(f"{self.name}/{name}")
        step.vertices(
            codelet,
            tile=[0],
            cycles=[costs.FLAG_CYCLES // costs.WORKERS],
            info=info.reshape((1, -1)),
            state=signs.state.reshape((1, 2)),
            more=signs.more.reshape((1, 1)),
            turns=signs.turns.reshape((1, 1)),
            works=signs.works.reshape((1, 1)),
        )
        return Sequence(Execute(step))

    def _round(self, here: list[Tensor], there: list[Tensor]) -> Sequence:
        """Steps along z: compute on what is here, move it on, compute on that, and move it back into the first."""
        steps, pz = Sequence(), self.plan.parts[2]
        if pz > 1:
            pair = Sequence()
            for one, other in ((here, there), (there, here)):
                self._call(pair, "step", one, [*other, *self.outputs], partial(self._step, one=one, other=other))
            steps.add(Repeat(pz // 2, pair))
        if pz % 2:

            def last(body: Sequence) -> None:
                self.compute(body, here)
                if pz > 1:
                    self._shift(body, here, there, 3)

            self._call(steps, "step", here, [*here, *there, *self.outputs], last)
        return steps

    def _step(self, body: Sequence, one: list[Tensor], other: list[Tensor]) -> None:
        self.compute(body, one)
        self._copies(body, [self._rolled(t, 3) for t in one], other)

    def _shift(self, body: Sequence, here: list[Tensor], there: list[Tensor], dim: int, *, back: bool = False) -> None:
        """Take what the next tile along a dimension has (or the one before), by way of the other buffer."""
        self._copies(body, [self._rolled(t, dim, back=back) for t in here], there)
        self._copies(body, there, here)

    def _shifting(self, here: list[Tensor], there: list[Tensor], dim: int, *, back: bool) -> Callable[[Sequence], None]:
        return lambda body: self._shift(body, here, there, dim, back=back)

    def _rolled(self, tensor: Tensor, dim: int, *, back: bool = False) -> Tensor:
        """Rows of the next tiles along a dimension of [groups, x, y, z], or of those before."""
        grid = tensor.reshape((*tile_numbers(self.plan).shape, tensor.shape[1]))
        size = grid.shape[dim]
        cut = size - 1 if back else 1
        rolled = grid.slice(cut, size, dim).append(grid.slice(0, cut, dim), dim) if size > 1 else grid
        return rolled.reshape(tensor.shape)

    def _copies(self, body: Sequence, sources: list[Tensor], targets: list[Tensor]) -> None:
        for copy in copies(sources, targets):
            body.add(copy)

    def _call(
        self,
        prog: Sequence,
        name: str,
        inputs: list[Tensor],
        outputs: list[Tensor],
        fill: Callable[[Sequence], None],
    ) -> None:
        """Append a call whose body is the machine's; the host, which has it all in one kernel, does nothing."""
        call = self.graph.library_call(
            prog, f"popsparse.dynamic.{name}", inputs=tuple(inputs), outputs=tuple(outputs), debug_name=name
        )
        with call as body:
            fill(body)
        note_host(prog, Sequence())


def all_passes(plan: DynamicPlan) -> int:
    """Passes after the first that the worst pattern takes."""
    return int(np.prod(plan.parts[:2])) - 1
