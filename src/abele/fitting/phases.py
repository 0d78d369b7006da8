"""Phases: a model on one IPU, part after part, whose tensors are in streaming memory while others run.

Weights come for the ops that read them, forward and again backward. What a phase leaves for its backward phase goes and
comes back, sums of gradients come and go at its end, and an update brings weights, sums and state once more. So time is
what is moved, and the chip holds one phase and the code of all. Of the last phase nothing waits, since it runs backward
at once.

The fewer phases, the fewer copies. A phase that fits, fits without its first or its last segment; so taking as many
segments as fit, from the end on, gives the fewest phases, and the longest last one.

>>> fewest_phases(5, lambda begin, end: end - begin <= 2)
(1, 3)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from abele.compiler.durations import remote_cycles
from abele.fitting.chain import SegmentChain
from abele.fitting.costs import ChainCosts
from abele.fitting.measure import Bytes
from abele.fitting.plan import Estimate, Spreading
from abele.fitting.stages import Stages
from abele.fitting.traffic import tick_cycles
from abele.graph import Graph
from abele.machine import System
from abele.network import Optimiser, Value
from abele.network.locations import worthwhile_bytes

_ROWS = 2
"""Copies that bring away what a phase keeps: what it made, and what it was given."""


def fewest_phases(count: int, fits: Callable[[int, int], bool]) -> tuple[int, ...] | None:
    """First segments of all phases but the first; None where one segment does not fit.

    Args:
        count: Segments.
        fits: Says whether the segments from one on, up to another, fit as a phase.
    """
    cuts: list[int] = []
    end = count
    while end:
        begin = end
        while begin and fits(begin - 1, end):
            begin -= 1
        if begin == end:
            return None
        cuts.append(begin)
        end = begin
    return tuple(cuts[-2::-1])


@dataclass(frozen=True, eq=False)
class Phases:
    """Costs of phases of a chain.

    Attributes:
        costs: Costs of its segments.
        system: The machine.
    """

    costs: ChainCosts
    system: System

    @property
    def cuts(self) -> tuple[int, ...] | None:
        """First segments of all phases but the first, as few as fit, but two; None where a segment does not fit."""
        limit, count = self.system.ipu.tile.usable_bytes, self.costs.count
        found = fewest_phases(count, lambda begin, end: self.phase_needed(begin, end) <= limit)
        return None if found is None else found or (count - 1,)

    def needed(self, cuts: Sequence[int]) -> int:
        """Bytes on the fullest tile."""
        bounds = zip((0, *cuts), (*cuts, self.costs.count), strict=True)
        return max(self.phase_needed(begin, end) for begin, end in bounds)

    def phase_needed(self, begin: int, end: int) -> int:
        """Bytes on the fullest tile while some segments are a phase, or are updated."""
        arrays = self.costs.arrays
        peak, resident, sums = (arrays[name][begin:end] for name in ("peak", "resident", "accumulators"))
        kept = np.array([s.live_bytes for s in self.costs.segments[begin:end]]) // self.system.ipu.num_tiles
        # Gradients of later segments are there when an earlier one runs backward; its sums come at the end.
        after = np.cumsum(sums[::-1], axis=0)[::-1] - sums
        running = peak + resident + (np.cumsum(kept) - kept)[:, None] + after
        ending = sums.sum(axis=0) + sums.max(axis=0)
        updated = resident + sums + arrays["state"][begin:end]
        working = np.concatenate([running, ending[None], updated]).max(axis=0)
        return int((self._code + working).max())

    @cached_property
    def _code(self) -> Bytes:
        """Bytes of the code of all segments, and of codelets, stacks and buffers."""
        arrays, kinds = self.costs.arrays, self.costs.kinds
        again = np.array([kind in kinds[:n] for n, kind in enumerate(kinds)])[:, None]
        code = np.where(again, arrays["code_again"], arrays["code"]).sum(axis=0)
        return np.asarray(code + arrays["vertex_code"].max(axis=0) + arrays["overhead"].max(axis=0), np.int64)

    def batch_cycles(self, cuts: Sequence[int]) -> int:
        """Cycles of a micro-batch in which something comes from streaming memory, or goes there."""
        kept = [
            sum(s.saved_bytes for s in self.costs.segments[begin:end])
            for begin, end in zip((0, *cuts), cuts, strict=False)
        ]
        moved = [*self._weights.copies, *(size // _ROWS for size in kept for _ in range(2 * _ROWS))]
        moved += [size for size in self._sum_parts(cuts) for _ in ("load", "store")]
        return self._cycles(moved)

    def update_cycles(self, cuts: Sequence[int]) -> int:
        """Cycles of an update in which something comes and goes."""
        parts, rows = self._sum_parts(cuts), self._weights.rows
        # Sums are stored as zeros first; weights go back, too. State comes in units of what is worth a copy.
        moved = [*parts, *parts, *rows, *rows]
        state, units = sum(s.state_bytes for s in self.costs.segments), 0
        held = self._worthwhile
        for size in rows:
            units, held = (units + 1, 0) if held >= self._worthwhile else (units, held)
            held += size
        return self._cycles([*moved, *(state // units for _ in range(2 * units) if state)])

    def _cycles(self, moved: Iterable[int]) -> int:
        graph = Graph(self.system.with_ipus(1))
        return sum(remote_cycles(size, 1, graph) for size in moved)

    @property
    def _worthwhile(self) -> int:
        return worthwhile_bytes(self.system.with_ipus(1))

    @cached_property
    def _rules(self) -> dict[Value, Optimiser]:
        return {p: group.optimiser for group in self.costs.groups or () for p in group.parameters}

    def _sum_parts(self, cuts: Sequence[int]) -> list[int]:
        """Bytes of the sums of gradients that come and go together, phase by phase."""
        reads = [parameters_of(self.costs.chain, n) for n in range(self.costs.count)]
        found: list[int] = []
        seen: set[Value] = set()
        for begin, end in zip((0, *cuts), (*cuts, self.costs.count), strict=True):
            held = self._worthwhile
            for value in dict.fromkeys(v for of in reads[begin:end] for v in of):
                if value not in self._rules or value in seen:
                    continue
                seen.add(value)
                if held >= self._worthwhile:
                    found.append(0)
                    held = 0
                size = value.size * self._rules[value].accumulation.bytes
                found[-1] += size
                held += size
        return found

    @cached_property
    def _weights(self) -> _WeightCopies:
        chain, needed = self.costs.chain, list[list[Value]]()
        for segment in chain.segments:
            needed += [_read(chain, number) for number in range(segment.begin, segment.end)]
        for number, segment in reversed(list(enumerate(chain.segments))):
            own = parameters_of(chain, number)
            again = {own[n] for n in self.costs.segments[number].read_again}
            ops = reversed(range(segment.begin, segment.end))
            needed += [[v for v in _read(chain, op) if v in again] for op in ops]
        return _WeightCopies.of(needed, self._worthwhile)


@dataclass(frozen=True)
class _WeightCopies:
    """Copies of weights: as lowering makes them (:mod:`abele.distribution.remote_weights`).

    Attributes:
        copies: Bytes of each in a micro-batch.
        rows: Bytes of parameters that come and go together.
    """

    copies: tuple[int, ...]
    rows: tuple[int, ...]

    @staticmethod
    def of(needed: Iterable[Sequence[Value]], worthwhile: int) -> _WeightCopies:
        """Copies for parameters that ops need, in the order of the ops."""
        uses: list[dict[Value, None]] = []
        for some in needed:
            if not some or (uses and uses[-1].keys() >= set(some)):
                continue
            if not uses or sum(_bytes(v) for v in {**uses[-1], **dict.fromkeys(some)}) > worthwhile:
                uses.append({})
            uses[-1].update(dict.fromkeys(some))
        used: dict[Value, list[int]] = {}
        for number, use in enumerate(uses):
            for value in use:
                used.setdefault(value, []).append(number)
        rows: dict[tuple[object, ...], int] = {}
        for value, numbers in used.items():
            key = (value.dtype.name, *numbers)
            rows[key] = rows.get(key, 0) + _bytes(value)
        copies = [size for (_, *numbers), size in rows.items() for _ in numbers]
        return _WeightCopies(tuple(copies), tuple(rows.values()))


def _bytes(value: Value) -> int:
    return value.size * value.dtype.bytes


def _read(chain: SegmentChain, op: int) -> list[Value]:
    """Parameters that an op reads."""
    parameters = chain.parameters
    return [v for v in chain.net.ops[op].inputs if v in parameters]


def parameters_of(chain: SegmentChain, number: int) -> list[Value]:
    """Parameters that a segment reads, in the order of its own network."""
    segment = chain.segments[number]
    return list(dict.fromkeys(v for op in range(segment.begin, segment.end) for v in _read(chain, op)))


def phased_estimate(plan: Spreading, stages: Stages) -> Estimate:
    """Estimated cost of a plan of phases.

    Args:
        plan: The plan.
        stages: Costs of all segments as the one stage of a plan.
    """
    phases, system = Phases(stages.costs, stages.system), stages.system
    of, count = stages.usual.cycles, stages.costs.count
    by_phase = [of.last_work(begin, end, 0).cycles for begin, end in plan.bounds(count)]
    whole = of.last_work(0, count, 0)
    tick = tick_cycles([whole], of.meeting)
    update = stages.usual.update_cycles(0, count)
    streaming = phases.batch_cycles(plan.cuts) * plan.accumulation + phases.update_cycles(plan.cuts)
    total = tick * plan.accumulation + update + streaming
    return Estimate(
        cycles=total,
        stage_cycles=tuple(by_phase),
        tick_cycles=tick,
        host_cycles=tick - whole.cycles,
        exchange_cycles=0,
        all_reduce_cycles=0,
        update_cycles=update,
        streaming_cycles=streaming,
        ramp_cycles=0,
        ipu_bytes=(phases.needed(plan.cuts),),
        available_bytes=stages.available_bytes,
        samples_per_second=plan.batch / system.seconds(total),
    )
