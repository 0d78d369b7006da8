"""Stages: what every run of segments costs, in each way that a stage may choose for itself."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache

import numpy as np
import numpy.typing as npt

from abele.fitting.costs import ChainCosts
from abele.fitting.plan import Recomputation, Spreading, StageWay
from abele.fitting.stage_memory import StageMemory, best_checkpoints, row_tables
from abele.fitting.traffic import (
    Apart,
    StageWork,
    Streams,
    away_cycles,
    handing_cycles,
    joined_apart,
    meeting_cycles,
    ring_costs,
    ring_cycles,
    stream_cycles,
)
from abele.machine import System

# Cycles of every run of segments as a stage of a pipeline, from what each segment takes.

Table = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False, kw_only=True)
class StageCycles:
    """Cycles of every run of segments as a stage of a pipeline, or as all of one.

    Attributes:
        costs: Costs of the segments.
        system: The machine.
        recompute: Activations that stages compute again.
        ipus: IPUs of a replica.
        replicas: Replicas, which share the host.
        functions: True if the machine holds equal segments of a stage once.
        hosts_apart: True if IPUs meet the host without one another.
        turns: True if forward and backward stages take turns.
        narrow: True if activations wait as 8-bit floats.
        io_tiles: Tiles besides those of the system that hand over what the host sends and gets.
        spacing: Segments that bound what is between checkpoints; see :class:`~abele.fitting.plan.StageWay`.
        away: True if activations wait in streaming memory.
    """

    costs: ChainCosts
    system: System
    recompute: Recomputation
    ipus: int
    replicas: int
    functions: bool
    hosts_apart: bool
    turns: bool
    narrow: bool
    io_tiles: int
    spacing: int
    away: bool

    @cached_property
    def meeting(self) -> int:
        """Cycles of meeting the host."""
        return meeting_cycles(self.ipus, self.replicas, self.system)

    def entering(self, begin: int, end: int) -> Streams:
        """Streams from the host to a stage."""
        return self._entering.of(begin, end)

    def leaving(self, begin: int, end: int) -> Streams:
        """Streams from a stage to the host."""
        return self._leaving.of(begin, end)

    def forward_work(self, begin: int, end: int, ipu: int, rows: int) -> StageWork:
        """Work of a forward stage, with ``rows`` micro-batches on their way behind it."""
        cycles = int(self._forward[begin, end] + (self._ring[begin, end] if rows else 0))
        cycles += int(self._handed[begin, end])
        apart = self._apart(self._there(begin, end), after=int(self._ring[begin, end]) if rows else 0)
        return StageWork(ipu, self.entering(begin, end), cycles, self.leaving(begin, end), apart)

    def backward_work(self, begin: int, end: int, ipu: int, rows: int) -> StageWork:
        """Work of its backward stage."""
        ring = int(self._ring[begin, end]) if rows else 0
        again = self._there(begin, end) if self.recompute != Recomputation.NOTHING else ()
        apart = self._apart([*again, *self._backwards(begin, end)], before=ring)
        return StageWork(ipu, (0, 0), int(self._back[begin, end]) + ring, (0, 0), apart)

    def last_work(self, begin: int, end: int, ipu: int) -> StageWork:
        """Work of the last stage, forward and backward."""
        copies = int(self._copies[begin, end]) if self.costs.training else 0
        cycles = int(self._forward[begin, end] + self._backward[begin, end] + self._handed[begin, end]) + copies
        back = self._backwards(begin, end) if self.costs.training else ()
        apart = self._apart([*self._there(begin, end), *back])
        return StageWork(ipu, self.entering(begin, end), cycles, self.leaving(begin, end), apart)

    def last_back_work(self, begin: int, end: int, ipu: int) -> StageWork:
        """Work of the last stage's backward stage, where that is one of its own; it computes nothing again."""
        cycles = int(self._backward[begin, end] + self._copies[begin, end])
        return StageWork(ipu, (0, 0), cycles, (0, 0), self._apart(self._backwards(begin, end)))

    def _there(self, begin: int, end: int) -> list[tuple[int, Apart]]:
        """Forward passes of segments, with what they are apart from other replicas."""
        return [(s.forward_cycles, s.forward_apart) for s in self.costs.segments[begin:end]]

    def _backwards(self, begin: int, end: int) -> list[tuple[int, Apart]]:
        """Backward passes of segments, the last one first."""
        return [(s.backward_cycles, s.backward_apart) for s in reversed(self.costs.segments[begin:end])]

    def _apart(self, parts: Iterable[tuple[int, Apart]], *, before: int = 0, after: int = 0) -> Apart:
        """Cycles before and after a stage meets other replicas, with cycles of its ring."""
        return joined_apart([(before, None), *parts, (after, None)])

    @cached_property
    def lasts(self) -> Table:
        """Cycles for which the last stage keeps its IPU busy in a tick, from each segment on to the end, [begin]."""
        count = self.costs.count

        def busy(work: StageWork) -> int:
            return work.busy_cycles(self.meeting, apart=self.hosts_apart)

        if self.turns:
            # The longer of the two decides how long every other tick is.
            ends = [(self.forward_work(b, count, 0, 0), self.last_back_work(b, count, 0)) for b in range(count)]
            return np.array([max(map(busy, both)) for both in ends], np.int64)
        return np.array([busy(self.last_work(begin, count, 0)) for begin in range(count)], np.int64)

    @cached_property
    def inner(self) -> Table:
        """Cycles for which every run of segments keeps its IPU busy as a stage before the last, [begin, end]."""
        own = self._forward + self._ring + self._handed
        if self.costs.training:
            back = self._back + self._ring
            own = np.maximum(own, back) if self.turns else own + back
        if self.hosts_apart:
            for streams in (self._entering.whole, self._leaving.whole):
                own = own + np.where(streams > 0, streams + self.meeting, 0)
        return np.asarray(own, np.int64)

    @cached_property
    def _forward(self) -> Table:
        return _between([c.forward_cycles for c in self.costs.segments]) + self._copies

    @cached_property
    def _backward(self) -> Table:
        return _between([c.backward_cycles for c in self.costs.segments])

    @cached_property
    def _back(self) -> Table:
        """Cycles of the backward stage without reading its ring."""
        again = self._forward if self.recompute != Recomputation.NOTHING else self._copies
        return self._backward + again

    @cached_property
    def _ring(self) -> Table:
        """Cycles of writing or of reading a row of the ring between a stage and its backward stage."""
        tiles = self.system.ipu.num_tiles
        rows = row_tables(self.costs, tiles, self.recompute, narrow=self.narrow, spacing=self.spacing)
        if self.away:
            return away_cycles(rows, self._copies_away, self.ipus, self.replicas, self.system)
        return ring_cycles(rows, self.system, narrow=self.narrow) // 2

    @property
    def _copies_away(self) -> Table:
        """Copies that bring a row to streaming memory: what arrives, and what the stage itself makes, wait apart."""
        count = self.costs.count
        begin, end = np.ogrid[: count + 1, : count + 1]
        if self.recompute == Recomputation.STAGES:
            return np.ones((count + 1, count + 1), np.int64)
        if self.recompute == Recomputation.NOTHING:
            return np.asarray(1 + (end > begin), np.int64)
        checkpoints = best_checkpoints(self.costs, self.system.ipu.num_tiles, self.spacing, narrow=self.narrow)
        return np.asarray(1 + (checkpoints.before > begin), np.int64)

    @cached_property
    def _copies(self) -> Table:
        """Cycles in which weights of equal segments are copied to their function, on the fullest tile."""
        count, kinds = self.costs.count, self.costs.kinds
        moved = np.zeros((count + 1, count + 1), np.int64)
        if not self.functions:
            return moved
        largest = self.costs.arrays["resident"].max(axis=1)
        for begin in range(count):
            seen: dict[int, int] = {}
            total = 0
            for end in range(begin, count):
                times = seen[kinds[end]] = seen.get(kinds[end], 0) + 1
                total += 0 if times == 1 else int(largest[end]) * (2 if times == 2 else 1)
                moved[begin, end + 1] = total
        return moved // self.system.ipu.tile.memcpy_bytes_per_cycle

    @cached_property
    def _handed(self) -> Table:
        """Cycles in which IO tiles hand over what the host sends and gets."""
        cycles = [
            handing_cycles((*s.inputs, *s.outputs), self.io_tiles, self.system) if self.io_tiles else 0
            for s in self.costs.segments
        ]
        return _between(cycles)

    @cached_property
    def _entering(self) -> _StreamTable:
        return self._streams([s.inputs for s in self.costs.segments])

    @cached_property
    def _leaving(self) -> _StreamTable:
        return self._streams([s.outputs for s in self.costs.segments])

    def _streams(self, sizes: list[tuple[int, ...]]) -> _StreamTable:
        costs = [stream_cycles(of, self.ipus, self.replicas, self.system) for of in sizes]
        return _StreamTable(_between([whole for whole, _ in costs]), _between([link for _, link in costs]))


@dataclass(frozen=True)
class _StreamTable:
    """Cycles of the streams of every run of segments behind the meeting: in all, and in which the link is busy."""

    whole: Table
    link: Table

    def of(self, begin: int, end: int) -> Streams:
        return int(self.whole[begin, end]), int(self.link[begin, end])


def _between(amounts: list[int]) -> Table:
    """Sums over every run of segments, [begin, end]."""
    sums = np.cumsum([0, *amounts], dtype=np.int64)
    return np.triu(sums[None, :] - sums[:, None])


@dataclass(frozen=True, eq=False)
class StageCosts:
    """Costs of every run of segments as a stage of a pipeline, or as all of one.

    Attributes:
        costs: Costs of the segments.
        memory: Bytes.
        cycles: Cycles.
    """

    costs: ChainCosts
    memory: StageMemory
    cycles: StageCycles

    def update_cycles(self, begin: int, end: int) -> int:
        """Cycles of the update of a stage's weights."""
        return round(sum(s.update_cycles for s in self.costs.segments[begin:end]) * self.memory.state_share)


@lru_cache(maxsize=512)
def _stage_costs(
    costs: ChainCosts, plan: Spreading, system: System, spacing: int, hosts_apart: bool, counts_sums: bool
) -> StageCosts:
    """Costs of stages, which all cases of a search with the same of these have in common."""
    cycles = StageCycles(
        costs=costs,
        system=system,
        recompute=plan.recompute,
        ipus=plan.ipus,
        replicas=plan.replicas,
        functions=plan.shared_functions,
        hosts_apart=hosts_apart,
        turns=plan.turns,
        narrow=plan.narrow_stash,
        io_tiles=plan.io_tiles,
        spacing=spacing,
        away=plan.waits_off_chip,
    )
    return StageCosts(
        costs, _stage_memory(costs, replace(plan, turns=False, io_tiles=0), system, spacing, counts_sums), cycles
    )


@lru_cache(maxsize=512)
def _stage_memory(costs: ChainCosts, plan: Spreading, system: System, spacing: int, counts_sums: bool) -> StageMemory:
    return StageMemory(
        costs=costs,
        system=system,
        recompute=plan.recompute,
        state=plan.state,
        replicas=plan.replicas,
        functions=plan.shared_functions,
        narrow=plan.narrow_stash,
        spacing=spacing,
        away=plan.waits_off_chip,
        ipus=plan.ipus,
        group=plan.group,
        counts_sums=counts_sums,
        ring_code=ring_costs(system, narrow=True).code_bytes if plan.narrow_stash else 0,
    )


SPACINGS = (1, 2, 3, 4, 6)
"""Segments in a row whose temporaries bound those between two checkpoints: two are one layer of a transformer."""


@dataclass(frozen=True, eq=False)
class Stages:
    """The same for each way that a stage may choose.

    Attributes:
        by_way: Costs of stages by the way, with the libraries' own share of a tile's memory and a checkpoint at each
            segment first.
        hosts_apart: True if IPUs meet the host without one another.
        io_tiles: Tiles of each IPU that load and send for the host while others compute.
    """

    by_way: Mapping[StageWay, StageCosts]
    hosts_apart: bool
    io_tiles: int

    @staticmethod
    def of(
        plan: Spreading,
        costs: Mapping[float | None, ChainCosts],
        system: System,
        *,
        hosts_apart: bool = False,
        spacings: Sequence[int] = SPACINGS,
        counts_sums: bool = True,
    ) -> Stages:
        """Costs of all stages of a plan.

        Args:
            plan: The plan, whose cuts are not looked at.
            costs: Costs of segments, by the proportion of a tile's memory that products plan with.
            system: The machine, without IO tiles.
            hosts_apart: True if IPUs meet the host without one another.
            spacings: Bounds of what is between checkpoints, for stages to choose from; see :class:`StageWay`.
            counts_sums: False where what summing gradients over replicas takes does not count.
        """
        # IPUs whose IO tiles meet the host never wait for it.
        hosts_apart = hosts_apart and not plan.io_tiles
        usual = replace(plan, micro_batch=1, accumulation=1, cuts=(), returns=False, proportions=(), spacings=())
        spacings = spacings if plan.recompute == Recomputation.SEGMENTS else SPACINGS[:1]
        ways = {
            StageWay(share, spacing): _stage_costs(of, usual, system, spacing, hosts_apart, counts_sums)
            for share, of in costs.items()
            for spacing in spacings
        }
        return Stages(ways, hosts_apart, plan.io_tiles)

    @property
    def usual(self) -> StageCosts:
        """Costs of stages in the first way."""
        return next(iter(self.by_way.values()))

    @property
    def system(self) -> System:
        """The machine."""
        return self.usual.memory.system

    @property
    def available_bytes(self) -> int:
        """Bytes that a tile has."""
        return self.usual.memory.available_bytes

    @property
    def costs(self) -> ChainCosts:
        """Costs of the segments with the libraries' own proportion."""
        return self.usual.costs

    def on(self, plan: Spreading, stage: int) -> StageCosts:
        """Costs of a stage in the way that it has in a plan."""
        share, spacing = plan.way_of(stage)
        return self.by_way[StageWay(self.first_share if share is None else share, spacing)]

    @property
    def first_share(self) -> float | None:
        """The first share of memory, which a plan calls None."""
        return next(iter(self.by_way)).share
