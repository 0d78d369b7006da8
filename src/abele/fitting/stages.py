"""Stages: cycles and memory of every run of segments, from what each segment takes.

Bytes are added tile by tile, since libraries put equal things on the same tiles; tiles that are alike in all segments
are one column. What a stage needs grows with the micro-batches that are on their way between it and its backward
stage, by the same on every tile; so of each run of segments one number is kept, what its fullest tile needs without
them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from abele.fitting.chain import SegmentChain
from abele.fitting.measure import Bytes, SegmentCosts
from abele.fitting.partition import NEVER
from abele.fitting.plan import Recomputation, StatePlace
from abele.fitting.traffic import StageWork, Streams, collective_costs, ring_cycles, stream_cycles
from abele.machine import System

Table = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Borrowed:
    """A parameter that an earlier segment reads as well, as embeddings that decide between tokens.

    Attributes:
        owner: The first segment that reads it.
        weight_bytes: Its elements.
        rest_bytes: Its accumulator, and the optimiser's state of it where that is on chip.
    """

    owner: int
    weight_bytes: int
    rest_bytes: int


@dataclass(frozen=True, eq=False)
class ChainCosts:
    """What the segments of a chain take, one row for each; columns stand for tiles that are alike.

    Attributes:
        chain: The chain.
        segments: What each segment costs.
        kinds: A number for each segment, equal for equal ones.
        arrays: Bytes by name of the field, int64[segments, columns].
    """

    chain: SegmentChain
    segments: tuple[SegmentCosts, ...]
    kinds: tuple[int, ...]
    arrays: dict[str, Bytes]

    FIELDS = ("resident", "accumulators", "state", "code", "vertex_code", "overhead", "forward_peak", "peak")

    @staticmethod
    def of(chain: SegmentChain, segments: Sequence[SegmentCosts], kinds: Sequence[int]) -> ChainCosts:
        """The costs of a chain."""
        distinct = list({id(s): s for s in segments}.values())
        columns = np.concatenate([np.stack([getattr(s, f) for f in ChainCosts.FIELDS]) for s in distinct])
        kept = np.unique(columns, axis=1, return_index=True)[1]
        arrays = {f: np.stack([getattr(s, f)[kept] for s in segments]) for f in ChainCosts.FIELDS}
        return ChainCosts(chain, tuple(segments), tuple(kinds), arrays)


@dataclass(frozen=True, eq=False, kw_only=True)
class StageCosts:
    """What every run of segments costs as a stage of a pipeline, or as all of one.

    Attributes:
        costs: What the segments take.
        borrowed: For each segment the parameters that it shares with earlier ones.
        system: The machine.
        recompute: What stages compute again.
        state: Where the optimiser's state is.
        ipus: IPUs of a replica.
        replicas: Replicas, which share the state and the host.
        training: True if there is a backward pass.
        functions: True if the machine holds equal segments of a stage once.
    """

    costs: ChainCosts
    borrowed: Sequence[Sequence[Borrowed]]
    system: System
    recompute: Recomputation
    state: StatePlace
    ipus: int
    replicas: int
    training: bool
    functions: bool

    @property
    def chain(self) -> SegmentChain:
        """The chain."""
        return self.costs.chain

    @property
    def segments(self) -> tuple[SegmentCosts, ...]:
        """What each segment costs."""
        return self.costs.segments

    @property
    def count(self) -> int:
        """Segments."""
        return len(self.segments)

    @property
    def available_bytes(self) -> int:
        """What a tile has."""
        return self.system.ipu.tile.usable_bytes

    @property
    def state_share(self) -> float:
        """The part of the optimiser's state that a replica has on its chips, or brings there."""
        return 1 / self.replicas if self.state.is_sharded else 1.0

    def _per_tile(self, amount: float) -> int:
        return int(amount) // self.system.ipu.num_tiles

    # --- memory -------------------------------------------------------------------------------------------------------

    def row_bytes(self, begin: int, end: int) -> int:
        """Bytes of one micro-batch on its way between a stage and its backward stage, over all tiles."""
        if not self.training:
            return 0
        return int(self._rows[begin, end])

    @cached_property
    def _rows(self) -> Table:
        """The same of every run of segments, [begin, end]."""
        saved = _running(np.array([s.saved_bytes for s in self.segments]))
        inputs = _running(np.array([s.input_bytes for s in self.segments]))
        entering = np.array([s.entering_bytes for s in self.chain.segments])
        if self.recompute == Recomputation.NOTHING:
            found = saved[None, :] - saved[:, None]
        elif self.recompute == Recomputation.STAGES:
            found = inputs[None, :] - inputs[:, None] + np.append(entering, 0)[:, None]
        else:
            kept = inputs + _running(entering)
            found = kept[None, :] - kept[:, None]
        return np.triu(found, 1)

    def row_on_tile(self, begin: int, end: int) -> int:
        """The same on each tile."""
        return int(self.rows_on_tile[begin, end])

    def needed(self, begin: int, end: int, rows: int, *, last: bool) -> int:
        """Bytes of a stage on its fullest tile, with ``rows`` micro-batches on their way."""
        found = self._needed(begin, end, last=last)[-1]
        return int(found.max()) + rows * self.row_on_tile(begin, end)

    def needed_together(self, first: int, rows: int, begin: int) -> int:
        """Bytes on the fullest tile of an IPU that has the segments up to ``first`` and those from ``begin`` on."""
        early, late = self._first_parts, self._last_parts
        common = [b for i in range(begin, self.count) for b in self.borrowed[i] if b.owner < first]
        spared = self._per_tile(sum(b.weight_bytes for b in common)) + self._collective_code
        always = early[0][first - 1] + late[0][begin]
        working = np.maximum(early[1][first - 1], late[1][begin])
        sums = self._sums[first] + self._sums[self.count] - self._sums[begin]
        if self._reduces:
            working = np.maximum(working, sums)
        return int((always + working).max()) - spared + rows * self.row_on_tile(0, first)

    def _needed(self, begin: int, end: int, *, last: bool) -> Bytes:
        """Bytes on each tile of the segments from ``begin`` up to each until ``end``, int64[runs, columns]."""
        always, working = self._parts(begin, end, last=last)
        if self._reduces:
            working = np.maximum(working, self._sums[begin + 1 : end + 1] - self._sums[begin])
        return np.asarray(always + working, np.int64)

    @cached_property
    def _first_parts(self) -> tuple[Bytes, Bytes]:
        """What is always live and what is not, of the first segments as a stage, [ends, columns]."""
        return self._parts(0, self.count, last=False)

    @cached_property
    def _last_parts(self) -> tuple[Bytes, Bytes]:
        """The same of the last segments as last stage, [begins, columns]."""
        parts = [self._parts(begin, self.count, last=True) for begin in range(self.count)]
        return np.stack([always[-1] for always, _ in parts]), np.stack([working[-1] for _, working in parts])

    def _parts(self, begin: int, end: int, *, last: bool) -> tuple[Bytes, Bytes]:
        """Bytes that are always live, and temporaries at their peak, of the segments up to each until ``end``."""
        rows, arrays = slice(begin, end), self.costs.arrays
        always = self._cumulative[begin + 1 : end + 1] - self._cumulative[begin]
        kinds = self.costs.kinds[begin:end]
        if self.functions:
            again = np.array([kind in kinds[:n] for n, kind in enumerate(kinds)])[:, None]
            always = always + np.cumsum(np.where(again, 0, arrays["code"][rows]), axis=0)
            # The function's own copy of the weights that calls bring along.
            always += np.maximum.accumulate(np.where(again, arrays["resident"][rows], 0), axis=0)
        else:
            always = always + np.cumsum(arrays["code"][rows], axis=0)
        for name in ("vertex_code", "overhead"):
            always += np.maximum.accumulate(arrays[name][rows], axis=0)
        spared = np.cumsum([sum(self._spared(b, begin) for b in self.borrowed[i]) for i in range(begin, end)])
        largest = [self.segments[i].largest_state_bytes * self.state_share for i in range(begin, end)]
        held = np.maximum.accumulate(largest) if self.state.is_off_chip else np.zeros(end - begin)
        # One parameter's state at a time is on the chip.
        uniform = self._collective_code - spared + (held / self.system.ipu.num_tiles).astype(np.int64)
        return np.asarray(always + uniform[:, None], np.int64), self._temporaries(begin, end, last=last)

    def _temporaries(self, begin: int, end: int, *, last: bool) -> Bytes:
        """Bytes at the peak of a micro-batch; the last stage runs forward and backward at once."""
        rows, arrays = slice(begin, end), self.costs.arrays
        if not self.training:
            return np.asarray(np.maximum.accumulate(arrays["forward_peak"][rows], axis=0))
        saved = np.array([self.segments[i].saved_bytes for i in range(begin, end)]) // self.system.ipu.num_tiles
        if last or self.recompute == Recomputation.STAGES:
            before = np.cumsum(saved) - saved
            return np.asarray(np.maximum.accumulate(arrays["peak"][rows] + before[:, None], axis=0))
        # What a ring held of the micro-batch is read at once.
        read = self.rows_on_tile[begin, begin + 1 : end + 1]
        return np.asarray(np.maximum.accumulate(arrays["peak"][rows], axis=0) + read[:, None])

    def temporary_bytes(self, begin: int, end: int, *, last: bool) -> int:
        """Temporaries of a stage on the tile that has most of them."""
        return int(self._temporaries(begin, end, last=last)[-1].max())

    def _spared(self, parameter: Borrowed, begin: int) -> int:
        """Bytes on each tile that a stage need not have of a parameter that an earlier segment reads, too."""
        here = parameter.weight_bytes if parameter.owner >= begin else 0
        return self._per_tile(here + parameter.rest_bytes)

    @property
    def _reduces(self) -> bool:
        """True if gradients are summed over replicas, which takes a copy of them."""
        return self.training and self.replicas > 1

    @cached_property
    def _cumulative(self) -> Bytes:
        arrays, share = self.costs.arrays, 0.0 if self.state.is_off_chip else self.state_share
        return _running(arrays["resident"] + arrays["accumulators"] + (arrays["state"] * share).astype(np.int64))

    @cached_property
    def _sums(self) -> Bytes:
        return _running(self.costs.arrays["accumulators"])

    @cached_property
    def _collective_code(self) -> int:
        """Bytes on a tile of the code that sums gradients over replicas."""
        return collective_costs(self.ipus, self.replicas, self.system).code_bytes if self._reduces else 0

    @cached_property
    def least_bytes(self) -> float:
        """Mean bytes on a tile, were all spread evenly, without temporaries: what no cut gets below."""
        spared = sum(self._per_tile(b.rest_bytes) for shared in self.borrowed for b in shared)
        return float((self._cumulative[-1].mean() - spared) / self.ipus)

    @cached_property
    def inner_needed(self) -> Table:
        """Bytes on the fullest tile of every run of segments as a stage that is not the last, [begin, end]."""
        found = np.full((self.count + 1, self.count + 1), NEVER, np.int64)
        for begin in range(self.count):
            found[begin, begin + 1 :] = self._needed(begin, self.count, last=False).max(axis=1)
        return found

    @cached_property
    def rows_on_tile(self) -> Table:
        """Bytes on each tile of a micro-batch on its way, of every run of segments, [begin, end]."""
        if not self.training:
            return np.zeros((self.count + 1, self.count + 1), np.int64)
        return np.asarray(-(-self._rows // self.system.ipu.num_tiles), np.int64)

    @cached_property
    def last_needed(self) -> Table:
        """Bytes on the fullest tile of the segments from each on as the last stage, [begin]."""
        return np.array([self.needed(begin, self.count, 0, last=True) for begin in range(self.count)], np.int64)

    def fits(self, rows: int) -> npt.NDArray[np.bool_]:
        """Whether runs of segments fit with ``rows`` micro-batches on their way, [begin, end]."""
        return np.asarray(self.inner_needed + rows * self.rows_on_tile <= self.available_bytes)

    # --- cycles -------------------------------------------------------------------------------------------------------

    def entering(self, begin: int, end: int) -> Streams:
        """Streams from the host to a stage."""
        sizes = [size for i in range(begin, end) for size in self.segments[i].inputs]
        return stream_cycles(sizes, self.ipus, self.replicas, self.system) if sizes else (0, 0)

    def leaving(self, begin: int, end: int) -> Streams:
        """Streams from a stage to the host."""
        sizes = [size for i in range(begin, end) for size in self.segments[i].outputs]
        return stream_cycles(sizes, self.ipus, self.replicas, self.system) if sizes else (0, 0)

    def forward_work(self, begin: int, end: int, ipu: int, rows: int) -> StageWork:
        """What a stage does forward, with ``rows`` micro-batches on their way behind it."""
        written = ring_cycles(self.row_bytes(begin, end), rows, self.system) // 2
        cycles = self._forward_cycles(begin, end) + written
        return StageWork(ipu, self.entering(begin, end), cycles, self.leaving(begin, end))

    def backward_work(self, begin: int, end: int, ipu: int, rows: int) -> StageWork:
        """What its backward stage does."""
        read = ring_cycles(self.row_bytes(begin, end), rows, self.system) // 2
        again = self.recompute != Recomputation.NOTHING
        forward = self._forward_cycles(begin, end) if again else self._copies(begin, end)
        backward = int(self._backward[end] - self._backward[begin])
        return StageWork(ipu, (0, 0), forward + backward + read, (0, 0))

    def last_work(self, begin: int, end: int, ipu: int) -> StageWork:
        """What the last stage does, forward and backward."""
        copies = self._copies(begin, end) if self.training else 0
        cycles = self._forward_cycles(begin, end) + int(self._backward[end] - self._backward[begin]) + copies
        return StageWork(ipu, self.entering(begin, end), cycles, self.leaving(begin, end))

    def inner_cycles(self, begin: int, end: int) -> int:
        """Cycles in a tick of a stage between first and last."""
        there = self.forward_work(begin, end, 0, 1)
        back = self.backward_work(begin, end, 0, 1).cycles if self.training else 0
        return there.entering[0] + there.cycles + there.leaving[0] + back

    @cached_property
    def inner_table(self) -> Table:
        """The same of every run of segments that fits at all, [begin, end]."""
        found = np.full((self.count + 1, self.count + 1), NEVER, np.int64)
        for begin, end in np.argwhere(self.fits(0)).tolist():
            found[begin, end] = self.inner_cycles(begin, end)
        return found

    def update_cycles(self, begin: int, end: int) -> int:
        """Cycles of the update of a stage's weights."""
        return round(sum(self.segments[i].update_cycles for i in range(begin, end)) * self.state_share)

    def _forward_cycles(self, begin: int, end: int) -> int:
        return int(self._forward[end] - self._forward[begin]) + self._copies(begin, end)

    def _copies(self, begin: int, end: int) -> int:
        """Cycles in which weights of equal segments are copied to their function, on the fullest tile."""
        if not self.functions:
            return 0
        kinds = self.costs.kinds[begin:end]
        largest = self.costs.arrays["resident"].max(axis=1)
        moved = sum(int(largest[i]) for i in range(begin, end) if kinds.count(self.costs.kinds[i]) > 1)
        return moved // self.system.ipu.tile.memcpy_bytes_per_cycle

    @cached_property
    def _forward(self) -> Table:
        return np.cumsum([0, *(c.forward_cycles for c in self.segments)], dtype=np.int64)

    @cached_property
    def _backward(self) -> Table:
        return np.cumsum([0, *(c.backward_cycles for c in self.segments)], dtype=np.int64)


def _running(rows: Bytes) -> Bytes:
    """Sums of the first rows of each number, none first."""
    return np.concatenate([np.zeros_like(rows[:1]), np.cumsum(rows, axis=0)])
