"""Memory of every run of segments as a stage of a pipeline, from what each segment takes.

Bytes are added tile by tile, since libraries put equal things on the same tiles. What a stage needs grows with the
micro-batches that are on their way between it and its backward stage, by the same on every tile; so of each run of
segments one number is kept, what its fullest tile needs without them.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
import numpy.typing as npt

from abele.fitting.costs import Borrowed, ChainCosts
from abele.fitting.measure import Bytes
from abele.fitting.partition import NEVER
from abele.fitting.plan import Recomputation, StatePlace
from abele.machine import System

# Memory that is always live, tile by tile: weights, accumulators, state and code of every run of segments.
#
# It depends on neither what stages compute again nor, but for shares of the optimiser's state, on how many replicas
# there are; so many cases have it in common.


def always_live(costs: ChainCosts, tiles: int, state: StatePlace, state_share: float, *, functions: bool) -> AlwaysLive:
    """Always-live memory of every run of segments.

    Args:
        costs: Costs of the segments.
        tiles: Tiles of an IPU.
        state: Place of the optimiser's state.
        state_share: The part of it that a replica has.
        functions: True if the machine holds equal segments of a stage once.
    """
    return _always_live(costs, tiles, state_share, is_off_chip=state.is_off_chip, functions=functions)


@lru_cache(maxsize=32)
def _always_live(
    costs: ChainCosts, tiles: int, state_share: float, *, is_off_chip: bool, functions: bool
) -> AlwaysLive:
    return AlwaysLive(costs, tiles, state_share, is_off_chip, functions)


@dataclass(frozen=True, eq=False)
class AlwaysLive:
    """Always-live memory of runs of segments; see :func:`always_live`."""

    costs: ChainCosts
    tiles: int
    state_share: float
    is_off_chip: bool
    functions: bool

    def segments(self, begin: int) -> Bytes:
        """Bytes of the segments from ``begin`` up to each end, int64[ends, columns]."""
        if begin not in self._known:
            self._known[begin] = self._segments(begin)
        return self._known[begin]

    @cached_property
    def spared(self) -> list[int]:
        """Bytes on each tile that a segment need not have, since an earlier one has them anyway, but for weights."""
        return [sum(self._rest(b) for b in of) // self.tiles for of in self.costs.borrowed]

    @cached_property
    def _known(self) -> dict[int, Bytes]:
        return {}

    @cached_property
    def _held(self) -> Bytes:
        """Weights, accumulators and state of the first segments of each number, [segments + 1, columns]."""
        arrays, share = self.costs.arrays, 0.0 if self.is_off_chip else self.state_share
        return running(arrays["resident"] + arrays["accumulators"] + (arrays["state"] * share).astype(np.int64))

    def _segments(self, begin: int) -> Bytes:
        arrays, segments = self.costs.arrays, self.costs.segments[begin:]
        always = self._held[begin + 1 :] - self._held[begin]
        kinds = self.costs.kinds[begin:]
        again = np.array([kind in kinds[:n] for n, kind in enumerate(kinds)])[:, None]
        further = 0 if self.functions else arrays["code_again"][begin:]
        always += np.cumsum(np.where(again, further, arrays["code"][begin:]), axis=0)
        if self.functions:
            # The function's own copy of the weights that calls bring along.
            always += np.maximum.accumulate(np.where(again, arrays["resident"][begin:], 0), axis=0)
        for name in ("vertex_code", "overhead"):
            always += np.maximum.accumulate(arrays[name][begin:], axis=0)
        uniform = -np.cumsum([sum(self._spared(b, begin) for b in of) for of in self.costs.borrowed[begin:]])
        if self.is_off_chip:
            # One parameter's state at a time is on the chip.
            held = np.maximum.accumulate([s.largest_state_bytes * self.state_share for s in segments])
            uniform = uniform + (held / self.tiles).astype(np.int64)
        return np.asarray(always + uniform[:, None], np.int64)

    def _spared(self, parameter: Borrowed, begin: int) -> int:
        """Bytes per tile that a stage saves on a parameter shared with an earlier segment."""
        here = parameter.weight_bytes if parameter.owner >= begin else 0
        return (here + self._rest(parameter)) // self.tiles

    def _rest(self, parameter: Borrowed) -> int:
        """Bytes of a parameter besides its elements, of which there is one copy however many segments read it."""
        return parameter.sum_bytes + (0 if self.is_off_chip else int(parameter.state_bytes * self.state_share))


def running(rows: Bytes) -> Bytes:
    """Sums of the first rows of each number, none first."""
    return np.concatenate([np.zeros_like(rows[:1]), np.cumsum(rows, axis=0)])


Table = npt.NDArray[np.int64]


def row_tables(costs: ChainCosts, recompute: Recomputation, *, narrow: bool = False, spacing: int = 1) -> Table:
    """Bytes of one micro-batch on its way between a stage and its backward stage, of every run of segments.

    Args:
        costs: Costs of the segments.
        recompute: Activations that stages compute again.
        narrow: True if floats wait in 8 bits; those that the host sends count as they are.
        spacing: Segments from one checkpoint to the next.

    Returns:
        int64[segments + 1, segments + 1], by first segment and one past the last; over all tiles.
    """
    if not costs.training:
        return np.zeros((costs.count + 1, costs.count + 1), np.int64)
    inputs = running(np.array([s.input_bytes for s in costs.segments]))
    parts = costs.chain.segments
    entering = np.array([s.narrow_entering_bytes if narrow else s.entering_bytes for s in parts])
    if recompute == Recomputation.NOTHING:
        saved = running(np.array([s.narrow_saved_bytes if narrow else s.saved_bytes for s in costs.segments]))
        found = saved[None, :] - saved[:, None]
    elif recompute == Recomputation.STAGES:
        found = inputs[None, :] - inputs[:, None] + np.append(entering, 0)[:, None]
    else:
        # [begin, segment]: what enters the segment, where a stage from ``begin`` on has a checkpoint before it.
        first, number = np.ogrid[: costs.count + 1, : costs.count]
        kept = np.where((number >= first) & ((number - first) % spacing == 0), entering, 0)
        found = inputs[None, :] - inputs[:, None]
        found[:, 1:] += np.cumsum(kept, axis=1)
    return np.triu(found, 1)


@lru_cache(maxsize=4)
def whole_temporaries(costs: ChainCosts, tiles: int) -> list[Bytes]:
    """Bytes at the peak of a micro-batch where all that it leaves for its backward pass is live at once.

    Args:
        costs: Costs of the segments.
        tiles: Tiles of an IPU.

    Returns:
        For each first segment, of the segments up to each end, int64[ends, columns].
    """
    saved = np.array([s.live_bytes for s in costs.segments]) // tiles

    def since(begin: int) -> Bytes:
        before = np.cumsum(saved[begin:]) - saved[begin:]
        return np.asarray(np.maximum.accumulate(costs.arrays["peak"][begin:] + before[:, None], axis=0))

    return [since(begin) for begin in range(costs.count)]


@dataclass(frozen=True, eq=False, kw_only=True)
class StageMemory:
    """Memory of every run of segments as a stage of a pipeline, or as all of one.

    Attributes:
        costs: Costs of the segments.
        system: The machine.
        recompute: Activations that stages compute again.
        state: Place of the optimiser's state.
        replicas: Replicas, which sum gradients and may share the state.
        functions: True if the machine holds equal segments of a stage once.
        narrow: True if activations wait as 8-bit floats.
        spacing: Segments from one checkpoint to the next.
        away: True if activations wait in streaming memory, and on the chip is one that is read.
        collective_code: Bytes on a tile of the code that sums gradients over replicas.
        collective_copies: Copies of the gradients while they are summed, spread evenly over the tiles.
        ring_code: Bytes on a tile of the code that rounds activations, on IPUs where some wait.
    """

    costs: ChainCosts
    system: System
    recompute: Recomputation
    state: StatePlace
    replicas: int
    functions: bool
    narrow: bool
    spacing: int
    away: bool
    collective_code: int
    collective_copies: float
    ring_code: int

    @property
    def available_bytes(self) -> int:
        """Bytes that a tile has."""
        return self.system.ipu.tile.usable_bytes

    @cached_property
    def rows_on_tile(self) -> Table:
        """Bytes on each tile of a micro-batch on its way, of every run of segments, [begin, end]."""
        return np.zeros_like(self._row_on_tile) if self.away else self._row_on_tile

    @cached_property
    def _row_on_tile(self) -> Table:
        rows = row_tables(self.costs, self.recompute, narrow=self.narrow, spacing=self.spacing)
        return self._on_tile(rows)

    @cached_property
    def _read_on_tile(self) -> Table:
        """Bytes on each tile of one that is being read, as it was made; one that was narrow is there as well."""
        read = self._on_tile(row_tables(self.costs, self.recompute, spacing=self.spacing))
        return read + self._row_on_tile if self.narrow else read

    def _on_tile(self, spread: Table) -> Table:
        return np.asarray(-(-spread // self.system.ipu.num_tiles), np.int64)

    @cached_property
    def inner_needed(self) -> Table:
        """Bytes on the fullest tile of every run of segments as a stage that is not the last, [begin, end]."""
        count = self.costs.count
        found = np.full((count + 1, count + 1), NEVER, np.int64)
        for begin in range(count):
            working = np.maximum(self._inner_temporaries(begin), self._reduced(begin))
            found[begin, begin + 1 :] = (self._inner_live(begin) + working).max(axis=1)
        return np.minimum(found + self.collective_code + self.ring_code, NEVER)

    @cached_property
    def last_needed(self) -> Table:
        """Bytes on the fullest tile of the segments from each on as the last stage, [begin]."""
        return np.array([self._last_needed(begin) for begin in range(self.costs.count)], np.int64)

    @cached_property
    def whole_needed(self) -> int:
        """Bytes on the fullest tile of all segments as the only stage."""
        return self._last_needed(0)

    def _last_needed(self, begin: int) -> int:
        working = np.maximum(self._last_temporaries(begin), self._reduced(begin)[-1])
        return int((self._live.segments(begin)[-1] + working).max()) + self.collective_code

    def needed(self, begin: int, end: int, rows: int, *, last: bool) -> int:
        """Bytes of a stage on its fullest tile, with ``rows`` micro-batches on their way."""
        found = self._last_needed(begin) if last else self.inner_needed[begin, end]
        return int(found) + rows * int(self.rows_on_tile[begin, end])

    def together_needed(self, rows: int) -> Table:
        """Bytes on the fullest tile of an IPU with the first and the last stage, [end of the first, begin of the last].

        Args:
            rows: Micro-batches on their way behind the first stage.
        """
        return np.asarray(self._together + rows * self.rows_on_tile[0][:, None], np.int64)

    def temporary_bytes(self, begin: int, end: int, *, last: bool) -> int:
        """Temporaries of a stage on the tile that has most of them."""
        found = self._last_temporaries(begin) if last else self._inner_temporaries(begin)[end - begin - 1]
        return int(found.max())

    def product_bytes(self, begin: int, end: int) -> int:
        """Temporaries of a stage on the tile with most of them, without tensors kept for the backward pass."""
        return int(self.costs.arrays["peak"][begin:end].max())

    def code_bytes(self, begin: int, end: int, *, last: bool = True) -> int:
        """Vertex state and code of exchanges and control of a stage, on the mean tile.

        Args:
            begin: The first segment.
            end: One past the last.
            last: False for a stage that may compute segments again.
        """
        kinds, found = self.costs.kinds, 0.0
        if not last and self.recompute != Recomputation.NOTHING and not self.functions:
            found = sum(float(s.forward_again.mean()) for s in self.costs.segments[begin:end])
        for number in range(begin, end):
            segment, is_again = self.costs.segments[number], kinds[number] in kinds[begin:number]
            if not (is_again and self.functions):
                found += float((segment.code_again if is_again else segment.code).mean())
        return round(found)

    @cached_property
    def least_bytes(self) -> float:
        """Bytes over all tiles, without temporaries: what no cut gets below."""
        share = 0.0 if self.state.is_off_chip else self.state_share
        segments, tiles = self.costs.segments, self.system.ipu.num_tiles
        held = sum(int(s.resident.sum()) + int(s.accumulators.sum()) + int(s.state.sum()) * share for s in segments)
        return held + self.code_bytes(0, len(segments)) * tiles - sum(self._live.spared) * tiles

    @property
    def state_share(self) -> float:
        """The part of the optimiser's state that a replica has on its chips, or brings there."""
        return 1 / self.replicas if self.state.is_sharded else 1.0

    @property
    def _reduces(self) -> bool:
        """True if gradients are summed over replicas, which takes copies of them."""
        return self.costs.training and self.replicas > 1

    @property
    def _live(self) -> AlwaysLive:
        return always_live(
            self.costs, self.system.ipu.num_tiles, self.state, self.state_share, functions=self.functions
        )

    def _inner_live(self, begin: int) -> Bytes:
        """Always-live bytes of the segments from ``begin`` up to each end, as a stage that is not the last."""
        return np.asarray(self._live.segments(begin) + self._computed_again[begin + 1 :] - self._computed_again[begin])

    @cached_property
    def _computed_again(self) -> Bytes:
        """Code with which backward stages compute the first segments of each number again, [segments + 1, columns].

        A function is called again.
        """
        code = self.costs.arrays["forward_again"]
        again = self.recompute != Recomputation.NOTHING and not self.functions
        return running(code if again else np.zeros_like(code))

    # --- temporaries --------------------------------------------------------------------------------------------------

    def _inner_temporaries(self, begin: int) -> Bytes:
        """Bytes at the peak of a micro-batch of the segments up to each end, as a stage that is not the last."""
        arrays = self.costs.arrays
        if not self.costs.training:
            return np.asarray(np.maximum.accumulate(arrays["peak"][begin:], axis=0))
        if self.recompute == Recomputation.STAGES:
            return self._whole_temporaries(begin)
        # A ring's row of the micro-batch is read at once.
        read = self._read_on_tile[begin, begin + 1 :]
        return np.asarray(self._between_checkpoints(begin) + read[:, None])

    def _between_checkpoints(self, begin: int) -> Bytes:
        """Bytes at the peak of the segments up to each end, of which those between two checkpoints are live at once."""
        peak = self.costs.arrays["peak"]
        if self.recompute != Recomputation.SEGMENTS or self.spacing == 1:
            return np.asarray(np.maximum.accumulate(peak[begin:], axis=0))
        every = [self._whole_temporaries(first)[: self.spacing] for first in range(begin, len(peak), self.spacing)]
        return np.asarray(np.maximum.accumulate(np.concatenate(every), axis=0))

    def _last_temporaries(self, begin: int) -> Bytes:
        """The same of the segments from ``begin`` on as the last stage, which runs forward and backward at once."""
        found = self._whole_temporaries(begin) if self.costs.training else self._inner_temporaries(begin)
        return np.asarray(found[-1])

    def _whole_temporaries(self, begin: int) -> Bytes:
        """The same where all that a micro-batch leaves for its backward pass is live at once."""
        return whole_temporaries(self.costs, self.system.ipu.num_tiles)[begin]

    @cached_property
    def _copied(self) -> Bytes:
        """Bytes on each tile of copies of gradients while these are summed, up to each segment, [segments + 1, 1]."""
        sums = np.array([[int(s.accumulators.sum())] for s in self.costs.segments]) / self.system.ipu.num_tiles
        return running((sums * self.collective_copies).astype(np.int64))

    def _reduced(self, begin: int) -> Bytes:
        """Copies of sums of gradients while they are summed over replicas, of the segments up to each end."""
        found = self._copied[begin + 1 :] - self._copied[begin]
        return found if self._reduces else np.zeros_like(found)

    # --- two stages on one IPU ----------------------------------------------------------------------------------------

    @cached_property
    def _together(self) -> Table:
        """Bytes on the fullest tile of the segments up to each end with those from each begin on, [end, begin]."""
        count, sums = self.costs.count, self._copied
        found = np.full((count + 1, count), NEVER, np.int64)
        first, always = self._inner_temporaries(0), self._inner_live(0)
        late = np.stack([self._last_temporaries(begin) for begin in range(count)])
        late_always = np.stack([self._live.segments(begin)[-1] for begin in range(count)])
        for end in range(1, count):
            working = np.maximum(first[end - 1], late[end:])
            if self._reduces:
                working = np.maximum(working, sums[end] + sums[count] - sums[end:count])
            held = (always[end - 1] + late_always[end:] + working).max(axis=1)
            found[end, end:] = held - self._common(end)[end:] + self.collective_code + self.ring_code
        return found

    def _common(self, end: int) -> Table:
        """Bytes on each tile of weights that the segments up to ``end`` have in common with those from each on."""
        both = [sum(b.weight_bytes for b in of if b.owner < end) for of in self.costs.borrowed]
        return np.asarray(np.cumsum(both[::-1])[::-1] // self.system.ipu.num_tiles, np.int64)
