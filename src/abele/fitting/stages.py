"""Stages: cycles and memory of every run of segments, from what each segment takes.

Bytes are added tile by tile, since libraries put equal things on the same tiles. What a stage needs grows with the
micro-batches that are on their way between it and its backward stage, so for each stage the most that fit are found;
a cut is then a question of cycles alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from abele.fitting.chain import Chain
from abele.fitting.measure import Bytes, SegmentCosts
from abele.fitting.plan import Recompute, StatePlace
from abele.fitting.traffic import StageWork, Streams, ring_cycles, stream_cycles
from abele.machine import System

Table = np.ndarray[tuple[int, int], np.dtype[np.int64]]
NEVER = np.int64(1) << 60
"""Cycles of what cannot be."""


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
class StageCosts:
    """What every run of segments costs as a stage of a pipeline, or as all of one.

    Attributes:
        chain: The chain.
        costs: What each segment costs.
        kinds: A number for each segment, equal for equal ones.
        borrowed: For each segment the parameters that it shares with earlier ones.
        system: The machine.
        recompute: What stages compute again.
        state: Where the optimiser's state is.
        ipus: IPUs of a replica.
        replicas: Replicas, which share the state and the host.
        training: True if there is a backward pass.
        functions: True if the machine holds equal segments of a stage once.
    """

    chain: Chain
    costs: Sequence[SegmentCosts]
    kinds: tuple[int, ...]
    borrowed: Sequence[Sequence[Borrowed]]
    system: System
    recompute: Recompute
    state: StatePlace
    ipus: int
    replicas: int
    training: bool
    functions: bool

    @property
    def count(self) -> int:
        """Segments."""
        return len(self.costs)

    @property
    def available_bytes(self) -> int:
        """What a tile has."""
        return self.system.ipu.tile.usable_bytes

    def always(self, begin: int, end: int) -> Bytes:
        """Bytes on each tile that a run of segments has all the time, without micro-batches on their way."""
        whole = self._cumulative[end] - self._cumulative[begin]
        segments = range(begin, end)
        kinds = {self.kinds[i]: i for i in segments}
        if self.functions:
            whole = whole + sum(self.costs[i].code for i in kinds.values())
            # The function's own copy of the weights that calls bring along.
            many = [i for i in kinds.values() if self.kinds[begin:end].count(self.kinds[i]) > 1]
            if many:
                whole = whole + np.max([self.costs[i].resident for i in many], axis=0)
        else:
            whole = whole + self._code[end] - self._code[begin]
        largest = np.max([np.stack([self.costs[i].vertex_code, self.costs[i].overhead]) for i in kinds.values()], axis=0)
        if self.state.is_off_chip:
            # One parameter's state at a time is on the chip.
            whole = whole + self._per_tile(max(self.costs[i].largest_state_bytes for i in segments) * self.state_share)
        spared = sum(self._spared(b, begin) for i in segments for b in self.borrowed[i])
        return np.asarray(whole + largest.sum(axis=0) - spared, np.int64)

    def _spared(self, parameter: Borrowed, begin: int) -> int:
        """Bytes on each tile that a stage need not have of a parameter that an earlier segment reads, too."""
        here = parameter.weight_bytes if parameter.owner >= begin else 0
        return self._per_tile(here + parameter.rest_bytes)

    def _per_tile(self, amount: float) -> int:
        return int(amount) // self.system.ipu.num_tiles

    @property
    def state_share(self) -> float:
        """The part of the optimiser's state that a replica has on its chips."""
        return 1 / self.replicas if self.state.is_sharded else 1.0

    @cached_property
    def _cumulative(self) -> Bytes:
        share = 0.0 if self.state.is_off_chip else self.state_share
        rows = [c.resident + c.accumulators + (c.state * share).astype(np.int64) for c in self.costs]
        return np.cumsum([np.zeros_like(rows[0]), *rows], axis=0)

    @cached_property
    def _code(self) -> Bytes:
        rows = [c.code for c in self.costs]
        return np.cumsum([np.zeros_like(rows[0]), *rows], axis=0)

    def row_bytes(self, begin: int, end: int) -> int:
        """Bytes of one micro-batch on its way between a stage and its backward stage, over all tiles."""
        if not self.training:
            return 0
        segments = range(begin, end)
        inputs = sum(self.costs[i].input_bytes for i in segments)
        if self.recompute == Recompute.NOTHING:
            return sum(self.costs[i].saved_bytes for i in segments)
        kept = [begin] if self.recompute == Recompute.STAGES else segments
        return inputs + sum(self.chain.segments[i].entering_bytes for i in kept)

    def temporaries(self, begin: int, end: int, *, last: bool) -> Bytes:
        """Bytes on each tile at the peak of a micro-batch; the last stage runs forward and backward at once."""
        segments = range(begin, end)
        if not self.training:
            return np.max([self.costs[i].forward_peak for i in segments], axis=0)
        if last or self.recompute == Recompute.STAGES:
            saved, found = 0, np.zeros_like(self.costs[begin].peak)
            for i in segments:
                np.maximum(found, self.costs[i].peak + self._per_tile(saved), out=found)
                saved += self.costs[i].saved_bytes
            return found
        peak = np.max([self.costs[i].peak for i in segments], axis=0)
        # What a ring held of the micro-batch is read at once.
        return np.asarray(peak + self._per_tile(self.row_bytes(begin, end)), np.int64)

    def needed(self, begin: int, end: int, rows: int, *, last: bool) -> Bytes:
        """Bytes on each tile with ``rows`` micro-batches on their way."""
        row = -(-self.row_bytes(begin, end) // self.system.ipu.num_tiles)
        working = np.maximum(self.temporaries(begin, end, last=last), self.reduced(begin, end))
        return np.asarray(self.always(begin, end) + working + rows * row, np.int64)

    def reduced(self, begin: int, end: int) -> int:
        """Bytes on each tile of the copy of gradients that goes around the replicas."""
        gradients = sum(self.costs[i].gradient_bytes for i in range(begin, end))
        return self._per_tile(gradients) if self.training and self.replicas > 1 else 0

    def needed_together(self, first: tuple[int, int], rows: int, last: tuple[int, int]) -> Bytes:
        """Bytes on each tile of the IPU that has the first stage and the last one, which have parameters in common."""
        both = np.asarray(self.always(*first) + self.always(*last), np.int64)
        common = [b for i in range(*last) for b in self.borrowed[i] if first[0] <= b.owner < first[1]]
        both -= self._per_tile(sum(b.weight_bytes for b in common))
        row = -(-self.row_bytes(*first) // self.system.ipu.num_tiles)
        peaks = self.temporaries(*first, last=False), self.temporaries(*last, last=True)
        return both + rows * row + np.maximum(*peaks)

    def entering(self, begin: int, end: int) -> Streams:
        """Streams from the host to a stage."""
        sizes = [size for i in range(begin, end) for size in self.costs[i].inputs]
        return stream_cycles(sizes, self.ipus, self.replicas, self.system) if sizes else (0, 0)

    def leaving(self, begin: int, end: int) -> Streams:
        """Streams from a stage to the host."""
        sizes = [size for i in range(begin, end) for size in self.costs[i].outputs]
        return stream_cycles(sizes, self.ipus, self.replicas, self.system) if sizes else (0, 0)

    def forward_work(self, begin: int, end: int, ipu: int, rows: int) -> StageWork:
        """What a stage does forward, with ``rows`` micro-batches on their way behind it."""
        written = ring_cycles(self.row_bytes(begin, end), rows, self.system) // 2
        cycles = self.forward_cycles(begin, end) + written
        return StageWork(ipu, self.entering(begin, end), cycles, self.leaving(begin, end))

    def backward_work(self, begin: int, end: int, ipu: int, rows: int) -> StageWork:
        """What its backward stage does."""
        read = ring_cycles(self.row_bytes(begin, end), rows, self.system) // 2
        again = self.recompute != Recompute.NOTHING
        forward = self.forward_cycles(begin, end) if again else self._copies(begin, end)
        backward = int(self._backward[end] - self._backward[begin])
        return StageWork(ipu, (0, 0), forward + backward + read, (0, 0))

    def last_work(self, begin: int, end: int, ipu: int) -> StageWork:
        """What the last stage does, forward and backward."""
        copies = self._copies(begin, end) if self.training else 0
        cycles = self.forward_cycles(begin, end) + int(self._backward[end] - self._backward[begin]) + copies
        return StageWork(ipu, self.entering(begin, end), cycles, self.leaving(begin, end))

    def forward_cycles(self, begin: int, end: int) -> int:
        """Cycles of the forward pass of a micro-batch, copies to and from functions included."""
        return int(self._forward[end] - self._forward[begin]) + self._copies(begin, end)

    @cached_property
    def _forward(self) -> npt.NDArray[np.int64]:
        return np.cumsum([0, *(c.forward_cycles for c in self.costs)], dtype=np.int64)

    @cached_property
    def _backward(self) -> npt.NDArray[np.int64]:
        return np.cumsum([0, *(c.backward_cycles for c in self.costs)], dtype=np.int64)

    def _copies(self, begin: int, end: int) -> int:
        """Cycles in which weights of equal segments are copied to their function, on the fullest tile."""
        if not self.functions:
            return 0
        kinds = list(self.kinds[begin:end])
        moved = sum(int(self.costs[i].resident.max()) for i in range(begin, end) if kinds.count(self.kinds[i]) > 1)
        return moved // self.system.ipu.data_path_bytes

    def update_cycles(self, begin: int, end: int) -> int:
        """Cycles of the update of a stage's weights."""
        share = self.state_share
        return round(sum(self.costs[i].update_cycles for i in range(begin, end)) * share)

    @cached_property
    def most_rows(self) -> Table:
        """The most micro-batches on their way that fit, [begin, end]; −1 where not even none does."""
        found = np.full((self.count + 1, self.count + 1), -1, np.int64)
        for begin in range(self.count):
            for end in range(begin + 1, self.count + 1):
                # Weights and their like only grow with further segments; code that is shared may not.
                if int((self._cumulative[end] - self._cumulative[begin]).mean()) > self.available_bytes:
                    break
                least = self.available_bytes - int(self.needed(begin, end, 0, last=False).max())
                row = -(-self.row_bytes(begin, end) // self.system.ipu.num_tiles)
                if least >= 0:
                    found[begin, end] = least // row if row else NEVER
        return found

    @cached_property
    def last_fits(self) -> npt.NDArray[np.bool_]:
        """Whether the segments from each to the end fit as last stage, [begin]."""
        return np.array(
            [
                int(self.needed(begin, self.count, 0, last=True).max()) <= self.available_bytes
                for begin in range(self.count)
            ]
        )

    @cached_property
    def inner_cycles(self) -> Table:
        """Cycles in a tick of every run of segments that fits, as a stage between first and last, [begin, end]."""
        found = np.full((self.count + 1, self.count + 1), NEVER, np.int64)
        for begin in range(self.count):
            for end in range(begin + 1, self.count + 1):
                if self.most_rows[begin, end] >= 0:
                    work = self.forward_work(begin, end, 0, 1)
                    back = self.backward_work(begin, end, 0, 1).cycles if self.training else 0
                    found[begin, end] = work.entering[0] + work.cycles + work.leaving[0] + back
        return found
