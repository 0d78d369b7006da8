"""Memory of every run of segments as a stage of a pipeline, from what each segment takes.

Bytes are added tile by tile, since libraries put equal things on the same tiles. What a stage needs grows with the
micro-batches that are on their way between it and its backward stage, by the same on every tile; so of each run of
segments one number is kept, what its fullest tile needs without them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
import numpy.typing as npt

from abele.fitting.costs import Borrowed, ChainCosts
from abele.fitting.measure import Bytes
from abele.fitting.partition import NEVER
from abele.fitting.plan import Recomputation, StatePlace
from abele.fitting.traffic import CollectiveCosts, collective_costs
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


_SHARED = ("vertex_code", "overhead")
"""Memory that an IPU has once for all of its segments: codelets, stacks and buffers."""


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

    def again(self, end: int, begins: Sequence[int]) -> Bytes:
        """Bytes that an IPU has once, but two stages on it would each.

        Args:
            end: One past the last segment of the first stage.
            begins: The first segments of the last stage.

        Returns:
            int64[begins, columns].
        """
        arrays, kinds = self.costs.arrays, self.costs.kinds
        found = np.zeros((len(begins), arrays["code"].shape[1]), np.int64)
        for name in _SHARED:
            found += np.minimum(arrays[name][:end].max(axis=0), self._since[name][begins])
        further = 0 if self.functions else arrays["code_again"]
        for kind in dict.fromkeys(kinds[:end]):
            is_again = np.array([kind in kinds[begin:] for begin in begins])
            found += np.where(is_again[:, None], (arrays["code"] - further)[kinds.index(kind)], 0)
        return found

    @cached_property
    def _since(self) -> dict[str, Bytes]:
        """Such memory of the segments from each on."""
        arrays = self.costs.arrays
        return {name: np.maximum.accumulate(arrays[name][::-1], axis=0)[::-1] for name in _SHARED}

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
        for name in _SHARED:
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


def row_tables(
    costs: ChainCosts, tiles: int, recompute: Recomputation, *, narrow: bool = False, spacing: int = 1
) -> Table:
    """Bytes of one micro-batch on its way between a stage and its backward stage, of every run of segments.

    Args:
        costs: Costs of the segments.
        tiles: Tiles of an IPU.
        recompute: Activations that stages compute again.
        narrow: True if floats wait in 8 bits; those that the host sends count as they are.
        spacing: Segments that bound what is between checkpoints; see :class:`~abele.fitting.plan.StageWay`.

    Returns:
        int64[segments + 1, segments + 1], by first segment and one past the last; over all tiles.
    """
    if not costs.training:
        return np.zeros((costs.count + 1, costs.count + 1), np.int64)
    inputs = running(np.array([s.input_bytes for s in costs.segments]))
    if recompute == Recomputation.NOTHING:
        saved = running(np.array([s.narrow_saved_bytes if narrow else s.saved_bytes for s in costs.segments]))
        found = saved[None, :] - saved[:, None]
    else:
        found = inputs[None, :] - inputs[:, None] + np.append(_entering(costs, narrow=narrow), 0)[:, None]
        if recompute == Recomputation.SEGMENTS:
            found = found + best_checkpoints(costs, tiles, spacing, narrow=narrow).row_bytes
    return np.triu(found, 1)


def _entering(costs: ChainCosts, *, narrow: bool) -> Table:
    """Bytes that enter each segment."""
    parts = costs.chain.segments
    return np.array([s.narrow_entering_bytes if narrow else s.entering_bytes for s in parts])


# Checkpoints: where a stage keeps what enters a segment, so that its backward stage computes less again at once.
#
# Between two checkpoints all activations are live together, and each checkpoint is a part of every micro-batch that
# waits. For a bound on the temporaries between two checkpoints, the checkpoints whose bytes are fewest are a shortest
# path: its nodes are places between segments, an edge goes from one checkpoint to the next where what lies between is
# within the bound, and costs what is kept at its end. Of paths with equally many bytes the one counts whose fullest
# gap is emptiest. Bounds from tight to loose are ways that a stage chooses among.


@dataclass(frozen=True, eq=False)
class Checkpoints:
    """Checkpoints of every run of segments as a stage, [begin, end].

    Attributes:
        row_bytes: Bytes that one micro-batch keeps at them.
        before: The last of them, or the stage's first segment where it has none.
    """

    row_bytes: Table
    before: Table

    def of(self, begin: int, end: int) -> list[int]:
        """Segments inside of a stage that begin with a checkpoint."""
        found: list[int] = []
        while (end := int(self.before[begin, end])) > begin:
            found.append(end)
        return found[::-1]


@lru_cache(maxsize=64)
def best_checkpoints(costs: ChainCosts, tiles: int, spacing: int, *, narrow: bool) -> Checkpoints:
    """Checkpoints with the fewest bytes, for a bound on the temporaries between two of them.

    Args:
        costs: Costs of the segments.
        tiles: Tiles of an IPU.
        spacing: The bound of a stage is what any so many segments behind its beginning need in a row; with 1 each
            segment begins with a checkpoint.
        narrow: True if floats wait in 8 bits.
    """
    count, entering = costs.count, np.append(_entering(costs, narrow=narrow), 0)
    # [first, end]: temporaries on the fullest tile, of segments of which nothing is kept inside.
    needed = np.full((count + 1, count + 1), NEVER)
    for first, of in enumerate(whole_temporaries(costs, tiles)):
        needed[first, first + 1 :] = of.max(axis=1)
    in_a_row = [needed[first, min(first + spacing, count)] for first in range(count)]
    bound = np.maximum.accumulate(in_a_row[::-1])[::-1, None] if spacing > 1 else 0
    row_bytes, fullest = np.full((count + 1, count + 1), NEVER), np.full((count + 1, count + 1), NEVER)
    before = np.zeros((count + 1, count + 1), np.int64)
    here = np.arange(count)
    row_bytes[here, here] = fullest[here, here] = 0
    for end in range(1, count + 1):
        # [begin, last]: the stage from ``begin`` on up to its last checkpoint, and what that one keeps.
        allowed = (needed[None, :end, end] <= bound) | (np.arange(end) == end - 1)
        bytes_ = row_bytes[:count, :end] + np.where(here[:, None] == np.arange(end), 0, entering[:end])
        bytes_ = np.where(allowed, np.minimum(bytes_, NEVER), NEVER)
        fewest = bytes_.min(axis=1)
        gaps = np.maximum(fullest[:count, :end], needed[None, :end, end])
        last = np.where(bytes_ == fewest[:, None], gaps, NEVER + 1).argmin(axis=1)
        begins = here[:end]
        row_bytes[begins, end], before[begins, end] = fewest[:end], last[:end]
        fullest[begins, end] = gaps[begins, last[:end]]
    # What a stage is not is no more than nothing.
    return Checkpoints(np.where(row_bytes < NEVER, row_bytes, 0), before)


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
        spacing: Segments that bound what is between checkpoints; see :class:`~abele.fitting.plan.StageWay`.
        away: True if activations wait in streaming memory, and on the chip is one that is read.
        ipus: IPUs of a replica.
        group: Replicas that compute a model together, whose gradients are of different parts.
        counts_sums: False where what summing gradients over replicas takes does not count.
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
    ipus: int
    group: int
    counts_sums: bool
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
        return self._on_tile(self._rows(narrow=self.narrow))

    @cached_property
    def _read_on_tile(self) -> Table:
        """Bytes on each tile of one that is being read, as it was made; one that was narrow is there as well."""
        read = self._on_tile(self._rows(narrow=False))
        return read + self._row_on_tile if self.narrow else read

    def _rows(self, *, narrow: bool) -> Table:
        """Bytes of a micro-batch on its way, with the checkpoints that stages have."""
        return row_tables(self.costs, self.system.ipu.num_tiles, self.recompute, narrow=narrow, spacing=self.spacing)

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
        return np.minimum(found + self._sums_code + self.ring_code, NEVER)

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
        return int((self._live.segments(begin)[-1] + working).max()) + self._sums_code

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

    @cached_property
    def _sums(self) -> CollectiveCosts | None:
        """Costs of summing gradients over replicas; None where that is not done."""
        reduces = self.costs.training and self.replicas > self.group and self.counts_sums
        return collective_costs(self.ipus, self.replicas, self.system, group=self.group) if reduces else None

    @property
    def _sums_code(self) -> int:
        """Bytes on a tile of the code of these sums."""
        return 0 if self._sums is None else self._sums.code_bytes

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
        found = np.zeros((self.costs.count - begin, peak.shape[1]), np.int64)
        for end, last in enumerate(self.checkpoints.before[begin, begin + 1 :].tolist(), begin + 1):
            since = self._whole_temporaries(last)[end - last - 1]
            found[end - begin - 1] = since if last == begin else np.maximum(found[last - begin - 1], since)
        return found

    @cached_property
    def checkpoints(self) -> Checkpoints:
        """Checkpoints of stages that keep what enters segments."""
        return best_checkpoints(self.costs, self.system.ipu.num_tiles, self.spacing, narrow=self.narrow)

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
        return running((sums * (0.0 if self._sums is None else self._sums.copies)).astype(np.int64))

    def _reduced(self, begin: int) -> Bytes:
        """Copies of sums of gradients while they are summed over replicas, of the segments up to each end."""
        return np.asarray(self._copied[begin + 1 :] - self._copied[begin])

    # --- two stages on one IPU ----------------------------------------------------------------------------------------

    @cached_property
    def _together(self) -> Table:
        """Bytes on the fullest tile of the segments up to each end with those from each begin on, [end, begin].

        Where one of the two does not fit by itself, they do not together.
        """
        count, sums, limit = self.costs.count, self._copied, self.available_bytes
        found = np.full((count + 1, count), NEVER, np.int64)
        ends = [end for end in range(1, count) if self.inner_needed[0, end] <= limit]
        begins = [begin for begin in range(1, count) if self.last_needed[begin] <= limit]
        if not ends or not begins:
            return found
        first, always = self._inner_temporaries(0), self._inner_live(0)
        late = np.stack([self._last_temporaries(begin) for begin in begins])
        late_always = np.stack([self._live.segments(begin)[-1] for begin in begins])
        late_sums = sums[count] - sums[begins]
        for end in ends:
            working = np.maximum(np.maximum(first[end - 1], late), sums[end] + late_sums)
            again = self._live.again(end, begins)
            held = (always[end - 1] + late_always - again + working).max(axis=1)
            held += self._sums_code + self.ring_code - self._common(end)[begins]
            found[end, begins] = np.where(np.array(begins) >= end, held, NEVER)
        return found

    def _common(self, end: int) -> Table:
        """Bytes on each tile of weights that the segments up to ``end`` have in common with those from each on."""
        both = [sum(b.weight_bytes for b in of if b.owner < end) for of in self.costs.borrowed]
        return np.asarray(np.cumsum(both[::-1])[::-1] // self.system.ipu.num_tiles, np.int64)
