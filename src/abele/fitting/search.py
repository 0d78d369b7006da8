"""Search: the micro-batches and cases to try, and the segments compiled for that.

Kinds of segments are compiled with the libraries' own proportion of a tile's memory for products. They are compiled
again with smaller ones as long as products with less memory might let a further case fit that may be the fastest, or
the first of its number of IPUs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from abele.fitting.chain import SegmentChain, chain_of
from abele.fitting.costs import ChainCosts
from abele.fitting.estimate import estimated, ipu_bytes
from abele.fitting.measure import SegmentCosts, known, measured
from abele.fitting.partition import NEVER, Costs, Partition, partition
from abele.fitting.phases import Phases
from abele.fitting.plan import Estimate, Miss, ModelSize, Recomputation, Spreading, StageWay, StatePlace
from abele.fitting.segment import SegmentNetwork, segment_network
from abele.fitting.side_by_side import side_by_side
from abele.fitting.space import FitSpace, Model
from abele.fitting.stages import SPACINGS, StageCosts, Stages
from abele.network import Group
from abele.words import counted

# Cutting: the best cuts of a chain for a plan, and the way that each stage takes for that.
#
# Every stage plans its products with that share of a tile's memory, and has checkpoints so far apart, with which it
# fits and is fastest; so the early stages of a pipeline, which keep most micro-batches, may have less memory for
# products and fewer checkpoints than the later ones.

_Choice = npt.NDArray[np.intp]
"""For each of several places the number of a way."""


def best_cuts(plan: Spreading, stages: Stages) -> Spreading | None:
    """The plan with the best cuts and shares of memory; None where none fit.

    Args:
        plan: The plan, with a stage for each IPU.
        stages: Costs of its stages.
    """
    if plan.ipus == 1:
        return _undivided(plan, stages)
    found = [_Cutter(plan, stages).best()]
    # Stages that have weights in common are best on one IPU, where these are the ends of the model.
    # Where stages take turns, first and last stage of an IPU would have it twice in the same tick.
    if any(stages.costs.borrowed) and plan.ipus + 1 <= stages.costs.count and not plan.turns:
        found.append(_Cutter(replace(plan, returns=True), stages).best())
    fitting = [cut for cut in found if cut is not None]
    return max(fitting, key=lambda cut: estimated(cut, stages).samples_per_second) if fitting else None


def _undivided(plan: Spreading, stages: Stages) -> Spreading | None:
    count = stages.costs.count
    fitting = {
        way: on.cycles.last_work(0, count, 0).cycles
        for way, on in stages.by_way.items()
        if on.memory.whole_needed <= stages.available_bytes
    }
    return with_ways(plan, [min(fitting, key=fitting.__getitem__)], stages) if fitting else None


def nearest_cuts(plan: Spreading, stages: Stages) -> Spreading:
    """The plan with the cuts and ways that come nearest to fitting."""
    ways, on = list(stages.by_way), list(stages.by_way.values())
    n, count = plan.ipus, stages.costs.count
    if n == 1:
        return with_ways(plan, [min(ways, key=lambda way: stages.by_way[way].memory.whole_needed)], stages)
    last = np.stack([of.memory.last_needed for of in on])
    kept = [plan.waiting_rows(stage, stages=n) if stages.costs.training else 0 for stage in range(n)]
    inner = np.stack([of.memory.inner_needed for of in on])
    rows = np.stack([of.memory.rows_on_tile for of in on])

    def needed(stage: int) -> Costs:
        return np.asarray(np.minimum(inner + kept[stage] * rows, NEVER), np.int64)

    ends = np.maximum(needed(0).min(axis=0)[0, :count, None], last.min(axis=0)[None, :])
    found = partition(n, lambda stage: np.asarray(needed(stage).min(axis=0)), ends)
    assert found is not None
    cut = replace(plan, cuts=found.cuts)
    by_stage = [
        last[:, begin] if stage == n - 1 else needed(stage)[:, begin, end]
        for stage, (begin, end) in enumerate(cut.bounds(count))
    ]
    return with_ways(cut, [ways[int(of.argmin())] for of in by_stage], stages)


def with_ways(plan: Spreading, ways: Sequence[StageWay], stages: Stages) -> Spreading:
    """The plan with the way of each stage, of which an IPU's first says the share of memory.

    Args:
        plan: The plan with its cuts.
        ways: The way of each stage.
        stages: Costs of its stages.
    """
    shares, spacings = [way.share for way in ways[: plan.ipus]], [way.spacing for way in ways[:-1]]
    made = replace(
        plan,
        proportions=tuple(shares) if any(share is not None for share in shares) else (),
        spacings=(*spacings, 1) if any(spacing > 1 for spacing in spacings) else (),
    )
    if plan.recompute != Recomputation.SEGMENTS:
        return made
    # The last stage computes nothing again.
    bounds = made.bounds(stages.costs.count)[:-1]
    kept = [stages.on(made, n).memory.checkpoints.of(*stage) for n, stage in enumerate(bounds)]
    return replace(made, checkpoints=tuple(chain.from_iterable(kept)))


@dataclass(frozen=True, eq=False)
class _Cutter:
    """A pipeline with a stage for each IPU, and one more on the first IPU where the plan ``returns``.

    Attributes:
        plan: The plan.
        stages: Costs of its stages.
    """

    plan: Spreading
    stages: Stages

    def best(self) -> Spreading | None:
        """The plan with the best cuts; None where none fit."""
        found = partition(self._num_stages, lambda stage: self._middle(stage)[0], self._ends[0])
        return None if found is None else self._finished(found)

    @property
    def _num_stages(self) -> int:
        return self.plan.ipus + self.plan.returns

    @property
    def _on(self) -> list[StageCosts]:
        return list(self.stages.by_way.values())

    @property
    def _count(self) -> int:
        return self.stages.costs.count

    def _kept(self, stage: int) -> int:
        """Micro-batches on their way behind a stage."""
        return self.plan.waiting_rows(stage, stages=self._num_stages) if self.stages.costs.training else 0

    def _inner(self, stage: int, of: StageCosts) -> Costs:
        """Cycles of every run of segments as a stage, where it fits."""
        needed = of.memory.inner_needed + self._kept(stage) * of.memory.rows_on_tile
        return np.asarray(np.where(needed <= self.stages.available_bytes, of.cycles.inner, NEVER), np.int64)

    def _middle(self, stage: int) -> tuple[Costs, _Choice]:
        """The fastest of each run of segments, with the way that it takes."""
        every = np.stack([self._inner(stage, of) for of in self._on])
        choice = every.argmin(axis=0)
        return np.take_along_axis(every, choice[None], axis=0)[0], choice

    @cached_property
    def _firsts(self) -> tuple[Costs, _Choice]:
        """Cycles of the first stage up to each end, where it fits, with the way that it takes."""
        cycles, choice = self._middle(0)
        return cycles[0], choice[0]

    @cached_property
    def _lasts(self) -> tuple[Costs, _Choice]:
        """Cycles of the last stage from each begin on, where it fits, with the way that it takes."""
        limit = self.stages.available_bytes
        every = np.stack([np.where(of.memory.last_needed <= limit, of.cycles.lasts, NEVER) for of in self._on])
        choice = every.argmin(axis=0)
        return np.take_along_axis(every, choice[None], axis=0)[0], choice

    @cached_property
    def _ends(self) -> tuple[Costs, _Choice]:
        """Cycles of first and last stage, [end of the first, begin of the last], and the way of an IPU with both."""
        every = np.stack([self._together(of) for of in self._on]) if self.plan.returns else self._apart[None]
        # Stages between the first and the last have at least a segment each.
        first, begin = np.ogrid[: self._count, : self._count]
        every = np.where((first >= 1) & (begin >= first + self._num_stages - 2), every, NEVER)
        choice = every.argmin(axis=0)
        return np.take_along_axis(every, choice[None], axis=0)[0], choice

    def _together(self, of: StageCosts) -> Costs:
        """Cycles of both on one IPU, where they fit."""
        count = self._count
        fits = of.memory.together_needed(self._kept(0))[:count] <= self.stages.available_bytes
        return np.where(fits, of.cycles.inner[0, :count, None] + of.cycles.lasts[None, :], NEVER)

    @property
    def _apart(self) -> Costs:
        """Cycles of both on an IPU each, where they fit."""
        return np.maximum(self._firsts[0][: self._count, None], self._lasts[0][None, :])

    def _finished(self, found: Partition) -> Spreading:
        """The plan with cuts, and with the way of each stage."""
        plan, ways = replace(self.plan, cuts=found.cuts), list(self.stages.by_way)
        bounds = plan.bounds(self._count)
        first, begin = bounds[0][1], bounds[-1][0]
        inner = [int(self._middle(stage)[1][bounds[stage]]) for stage in range(1, self._num_stages - 1)]
        if self.plan.returns:
            both = int(self._ends[1][first, begin])
            chosen = [both, *inner, both]
        else:
            chosen = [int(self._firsts[1][first]), *inner, int(self._lasts[1][begin])]
        return with_ways(plan, [ways[number] for number in chosen], self.stages)


# Cases of a search: one number of IPUs per replica, one micro-batch and one choice of recomputation.
#
# What changes nothing but memory moves only as far as it has to: the code of equal layers is shared, and the
# optimiser's state is sharded or leaves the chip, where a plan does not fit otherwise, or its products would plan with
# less memory.

FULL = 0.95
"""Part of an update that a free batch spends in full ticks of the pipeline."""
MOST_ACCUMULATION = 4096
"""The most micro-batches that a free batch is made of on one replica."""

WAITING = "activations on their way"
"""Part of a stage's memory: what micro-batches keep for their backward stages."""

Found = tuple[Spreading, Estimate]


def _speed(found: Found) -> float:
    """Samples per second."""
    return found[1].samples_per_second


ProportionCosts = Mapping[float | None, ChainCosts]
"""Costs of segments, by the proportion of a tile's memory that products plan with."""


@dataclass
class Case:
    """One case of a search: its base plan, and the best plan found.

    Attributes:
        space: The plans to search.
        plan: The plan without cuts, on which all memory lies as usual.
        is_free: True if the batch may be any.
        found: The best plan that fits.
        miss: Nearest miss where no plan fits.
    """

    space: FitSpace
    plan: Spreading
    is_free: bool
    found: Found | None = field(default=None, init=False)
    miss: Miss | None = field(default=None, init=False)

    @property
    def waits(self) -> bool:
        """True if the nearest miss would fit, or its products plan with less, without the activations on their way."""
        return self.miss is not None and self.miss.lacking_bytes <= self.miss.parts.get(WAITING, 0)

    def solve(self, costs: ProportionCosts, *, turns: bool = False, narrow: bool = False, away: bool = False) -> None:
        """Look for the best plan.

        Args:
            costs: Costs of segments, by the proportion of a tile's memory that products plan with.
            turns: True if forward and backward stages take turns.
            narrow: True if activations wait as 8-bit floats.
            away: True if activations wait in streaming memory.
        """
        self.plan = replace(self.plan, turns=turns, narrow_stash=narrow, waits_off_chip=away)
        self.found = self.best(costs)
        self.miss = self._nearest(costs) if self.found is None else None

    def solve_phases(self, costs: ProportionCosts) -> None:
        """Look for the fewest phases, with that share of memory for products with which they are fastest."""
        for share, of in costs.items():
            stages = stages_of(self.plan, {share: of}, self.space)
            cuts = Phases(of, stages.system).cuts
            if cuts is None:
                continue
            plan = replace(self.plan, cuts=cuts, proportions=() if share is None else (share,))
            made = _free_phases(plan, stages) if self.is_free else (plan, estimated(plan, stages))
            if self.found is None or _speed(made) > _speed(self.found):
                self.found = made

    def best(self, costs: ProportionCosts) -> Found | None:
        """The fastest plan that fits."""
        found: Found | None = None
        for plan, stages in self._ways(costs):
            cut = best_cuts(plan, stages)
            if cut is None:
                continue
            made = self._finished(cut, stages)
            if found is None or _speed(made) > _speed(found):
                found = made
            # Off the chip, a share of the state takes less time than all of it; on the chip it saves memory alone.
            if not cut.plans_smaller and not plan.state.is_off_chip:
                break
        return found

    def bound(self, least: ChainCosts) -> float:
        """Samples per second that plans of the case hardly exceed; 0 where none may fit.

        Args:
            least: Costs of segments that take the cycles of products with all their memory, and the least memory that
                products may do with.
        """
        case = Case(self.space, replace(self.plan, turns=False, narrow_stash=False, waits_off_chip=False), self.is_free)
        found = case.best({None: least})
        return 0.0 if found is None else _speed(found)

    def _finished(self, cut: Spreading, stages: Stages) -> Found:
        plan = _free_batch(cut, stages) if self.is_free else cut
        return plan, estimated(plan, stages)

    def _ways(self, costs: Mapping[float | None, ChainCosts]) -> Iterator[tuple[Spreading, Stages]]:
        """The plan with its memory as it is, and then moved step by step, where it can fit at all."""
        for state in self._states(next(iter(costs.values()))):
            for plan, spacings in self._sharing(replace(self.plan, state=state), costs):
                stages = stages_of(plan, costs, self.space, spacings)
                if self._has_room(stages):
                    yield plan, stages

    def _has_room(self, stages: Stages) -> bool:
        """False where all tiles together lack memory, without temporaries and sums over replicas."""
        system = self.space.computing(self.plan.io_tiles)
        room = system.ipu.tile.usable_bytes * system.ipu.num_tiles * self.plan.ipus
        return min(of.memory.least_bytes for of in stages.by_way.values()) <= room

    def _states(self, costs: ChainCosts) -> list[StatePlace]:
        """Places for the optimiser's state; on the chip where it can be nowhere else."""
        has_state = costs.training and any(s.state_bytes for s in costs.segments)
        possible = [
            state
            for state in self.space.states
            if (has_state or state == StatePlace.ON_CHIP)
            # Replicas of a group have different parts, and those of the same rank do not share their state.
            and ((self.plan.replicas > 1 and self.plan.group == 1) or not state.is_sharded)
            and (self.space.system.dram is not None or not state.is_off_chip)
        ]
        return possible or [StatePlace.ON_CHIP]

    def _sharing(self, plan: Spreading, costs: ProportionCosts) -> Iterator[tuple[Spreading, Sequence[int]]]:
        """The plan, the same with fewer checkpoints, and where layers repeat also with one copy of their code."""
        yield plan, SPACINGS[:1]
        if plan.recompute == Recomputation.SEGMENTS:
            yield plan, SPACINGS
        kinds = next(iter(costs.values())).kinds
        if len(set(kinds)) < len(kinds):
            yield replace(plan, shared_functions=True), SPACINGS

    def _nearest(self, costs: Mapping[float | None, ChainCosts]) -> Miss:
        """Cuts nearest to fitting, with the stage that lacks most.

        What lacks room for its weights and code lacks it without sums over replicas, which are then not compiled.
        """
        *_, state = self._states(next(iter(costs.values())))
        plans = dict.fromkeys(plan for plan, _ in self._sharing(replace(self.plan, state=state), costs))
        has_room = any(self._has_room(stages_of(plan, costs, self.space)) for plan in plans)
        ways = [(plan, stages_of(plan, costs, self.space, counts_sums=has_room)) for plan in plans]
        return min((missed(nearest_cuts(*way), way[1]) for way in ways), key=lambda miss: miss.lacking_bytes)


def stages_of(
    plan: Spreading,
    costs: ProportionCosts,
    space: FitSpace,
    spacings: Sequence[int] = SPACINGS,
    *,
    counts_sums: bool = True,
) -> Stages:
    """Costs of all stages of a plan.

    Args:
        plan: The plan, whose cuts are not looked at.
        costs: Costs of segments, by the proportion of a tile's memory that products plan with.
        space: The machine, and how networks are compiled.
        spacings: Bounds of what is between checkpoints, for stages to choose from; see :class:`StageWay`.
        counts_sums: False where what summing gradients over replicas takes does not count.
    """
    apart = space.settings.sync_pattern != "full"
    return Stages.of(
        plan,
        costs,
        space.computing(plan.io_tiles),
        hosts_apart=apart,
        spacings=spacings,
        counts_sums=counts_sums,
    )


def missed(plan: Spreading, stages: Stages) -> Miss:
    """Why a plan does not fit.

    Args:
        plan: The plan with cuts.
        stages: Costs of its stages.
    """
    by_ipu = ipu_bytes(plan, stages)
    stage = int(np.argmax(by_ipu))
    memory = stages.on(plan, stage).memory
    begin, end = plan.bounds(stages.costs.count)[stage]
    return Miss(
        plan=plan,
        stage=stage,
        needed_bytes=by_ipu[stage],
        available_bytes=stages.available_bytes,
        product_bytes=memory.product_bytes(begin, end),
        parts=_parts(plan, stages, stage),
    )


def _parts(plan: Spreading, stages: Stages, stage: int) -> dict[str, int]:
    """Largest parts of the fullest tile of a stage, most first; evenly spread data counts as its mean."""
    on, n = stages.on(plan, stage), plan.stages
    begin, end = plan.bounds(stages.costs.count)[stage]
    held, memory = on.costs.segments[begin:end], on.memory
    rows = plan.waiting_rows(stage) if stages.costs.training else 0
    share = 0.0 if plan.state.is_off_chip else memory.state_share
    parts = {
        "weights": sum(float(c.resident.mean()) for c in held),
        "sums of gradients": sum(float(c.accumulators.mean()) for c in held),
        "optimiser state": sum(float(c.state.mean()) for c in held) * share,
        "code": float(memory.code_bytes(begin, end, last=stage == n - 1)),
        "temporaries": float(memory.temporary_bytes(begin, end, last=stage == n - 1)),
        WAITING: float(rows * memory.rows_on_tile[begin, end]),
    }
    return {name: round(parts[name]) for name in sorted(parts, key=lambda name: -parts[name]) if parts[name] >= 1}


_IN_PHASES: dict[str, Any] = {
    "phases": True,
    "state": StatePlace.OFF_CHIP,
    "waits_off_chip": True,
    "turns": False,
    "narrow_stash": False,
    "shared_functions": False,
}
"""Choices that all plans of phases have in common."""


def _free_phases(plan: Spreading, stages: Stages) -> Found:
    """The plan with so many micro-batches to an update, a power of two, that the rest of it hardly counts."""
    found = plan, estimated(plan, stages)
    while plan.accumulation < MOST_ACCUMULATION:
        plan = replace(plan, accumulation=2 * plan.accumulation)
        more = plan, estimated(plan, stages)
        if 2 * (more[1].cycles - found[1].cycles) >= FULL * more[1].cycles:
            return more
        found = more
    return found


def _free_batch(plan: Spreading, stages: Stages) -> Spreading:
    """The plan with as many micro-batches to an update that the rest of it hardly counts, a power of two."""
    accumulation = plan.accumulation
    while accumulation & (accumulation - 1):
        accumulation += 1
    while accumulation < MOST_ACCUMULATION:
        made = replace(plan, accumulation=accumulation)
        estimate = estimated(made, stages)
        full = (estimate.tick_cycles + estimate.exchange_cycles) * accumulation
        if full >= FULL * estimate.cycles:
            return made
        accumulation *= 2
    return replace(plan, accumulation=accumulation)


Progress = Callable[[str, float], None]
SAVED = 0.65
"""Part of their temporaries that products with the least memory save at most: the head of BERT-Large saves 63 %."""


class _Measured(NamedTuple):
    """Segments that are measured together.

    Attributes:
        size: Size of the model's network.
        io_tiles: Tiles of each IPU that do not compute.
        ipus: IPUs of a replica, where the segments know other replicas.
        chain: The model.
        segments: Its segments by themselves.
        kinds: A number for each, equal for equal ones.
        groups: Optimisers and the parameters that they update; None for inference.
    """

    size: ModelSize
    io_tiles: int
    ipus: int
    chain: SegmentChain
    segments: Sequence[SegmentNetwork]
    kinds: tuple[int, ...]
    groups: tuple[Group, ...] | None


@dataclass
class FitSearch:
    """A running search: measured costs, fitting plans and misses.

    Attributes:
        space: Plans to search.
        model_of: Gives the model for a micro-batch size; and what one replica of a ``group`` of several computes of it.
        progress: Called with what is done and the part of it that is.
    """

    space: FitSpace
    model_of: Callable[..., Model]
    progress: Progress
    cases: list[Case] = field(default_factory=list)
    chains: dict[ModelSize, SegmentChain] = field(default_factory=dict)
    models: dict[ModelSize, Model] = field(default_factory=dict)
    undivided: list[tuple[int, int, int]] = field(default_factory=list)
    _costs: dict[tuple[SegmentNetwork, float | None, int, int], SegmentCosts] = field(default_factory=dict)
    tried: list[tuple[Case, ProportionCosts]] = field(default_factory=list)

    @property
    def found(self) -> list[Found]:
        """Best plan of each case, for cases with plans that fit."""
        return [case.found for case in self.cases if case.found is not None]

    @property
    def misses(self) -> list[Miss]:
        """Nearest miss of each case without a plan that fits."""
        return [case.miss for case in self.cases if case.miss is not None]

    def run(self) -> None:
        """Try all that the space has: first plans of usual pipelines, then those in which less waits."""
        self._usual()
        away = self.space.away and self.space.system.dram is not None
        usual = [{"turns": True}] * self.space.turns + [{"away": True}] * away
        self._less_waiting(usual)
        if not self.found:
            if self.space.narrow_stash:
                self._less_waiting([{"narrow": True}, *(way | {"narrow": True} for way in usual)])
            if self.space.phases and away:
                self._phased()

    def _phased(self) -> None:
        """Try phases on one IPU, of each micro-batch that was tried."""
        for case, costs in [(case, costs) for case, costs in self.tried if case.plan.model_ipus == 1]:
            accumulation = self.space.accumulation(case.plan.micro_batch, 1)
            usual = next(iter(costs.values()))
            if not usual.training or usual.count == 1 or accumulation is None:
                continue
            plan = replace(case.plan, replicas=1, accumulation=accumulation or 1, **_IN_PHASES)
            made = Case(self.space, plan, is_free=not accumulation)
            made.solve_phases(costs)
            if made.found is not None:
                self.cases.append(made)
                self.tried.append((made, costs))

    def _less_waiting(self, ways: Sequence[Mapping[str, bool]]) -> None:
        """Try pipelines that do not fit again, with less memory for activations on their way; the fastest way counts.

        Args:
            ways: Arguments of :meth:`Case.solve`.
        """
        for case, costs in self.tried:
            if case.found is not None or not case.waits:
                continue
            plan, nearest, best = case.plan, case.miss, None
            for way in ways:
                case.solve(costs, **way)
                if case.found is not None and (best is None or _speed(case.found) > _speed(best)):
                    plan, best = case.plan, case.found
                if case.miss is not None and nearest is not None:
                    nearest = min(nearest, case.miss, key=lambda miss: miss.lacking_bytes)
            case.plan, case.found, case.miss = plan, best, nearest if best is None else None

    def _usual(self) -> None:
        sizes, first = self.space.micro_batches, self.space.first
        if first is None:
            for size in sizes:
                self._micro_batch(size)
            return
        begin = min(sizes, key=lambda size: abs(size - first))
        self._micro_batch(begin)
        if not self.found:
            # Smaller micro-batches need less memory.
            for size in sorted((s for s in sizes if s < begin), reverse=True):
                self._micro_batch(size)
                if self.found:
                    return
        for size in sorted(s for s in sizes if s > begin):
            before = self._fastest()
            self._micro_batch(size)
            if self._fastest() <= before:
                return

    def _fastest(self) -> float:
        return max(map(_speed, self.found), default=0.0)

    def _micro_batch(self, size: int) -> None:
        for group in self.space.group_sizes:
            self._size(ModelSize(size, group))

    def _size(self, size: ModelSize) -> None:
        together = f", parts for {size.group} replicas" if size.group > 1 else ""
        self.progress(f"record the model with micro-batches of {size.micro_batch}{together}", 0.0)
        more = {"group": size.group} if size.group > 1 else {}
        model = self.models[size] = self.model_of(size.micro_batch, **more)
        chain = self.chains[size] = chain_of(model.net, model.groups, starts=self.space.starts)
        count = len(chain.segments)
        segments = [
            segment_network(chain, n, model.groups, group=size.group, splits=model.splits) for n in range(count)
        ]
        numbers: dict[SegmentNetwork, int] = {}
        kinds = tuple(numbers.setdefault(s, len(numbers)) for s in segments)
        for io_tiles in self.space.io_tiles:
            every = list(self._cases(size, io_tiles, model, count))
            self.cases += every
            # How far the IPUs of a group are from each other is part of its costs.
            apart = dict.fromkeys(case.plan.ipus for case in every) if size.group > 1 else {1: None}
            for ipus in apart:
                cases = [case for case in every if size.group == 1 or case.plan.ipus == ipus]
                of = _Measured(
                    size=size,
                    io_tiles=io_tiles,
                    ipus=ipus,
                    chain=chain,
                    segments=segments,
                    kinds=kinds,
                    groups=model.groups,
                )
                self._solve(cases, of)

    def _solve(self, cases: Sequence[Case], of: _Measured) -> None:
        """Solve cases that have costs in common, with less memory for products while that may count."""
        costs: dict[float | None, ChainCosts] = {}
        self.tried += [(case, costs) for case in cases]
        waiting, shares = cases, list(self.space.proportions)
        while waiting and shares:
            # The least decides whether so many IPUs hold the model; with more, what fits is faster.
            share = shares.pop(-1 if costs and any(map(self._is_first, waiting)) else 0)
            costs[share] = ChainCosts.of(of.chain, self._measure(of, share), of.kinds, of.groups)
            for number, case in enumerate(waiting):
                self.progress(f"cut into {counted(case.plan.ipus, 'stage')}", number / len(waiting))
                case.solve(costs)
            waiting = [case for case in cases if shares and self._may_count(case, costs)]

    def _may_count(self, case: Case, costs: ProportionCosts) -> bool:
        """True if with less memory for products a case may fit and be the fastest, or first of its number of IPUs."""
        if case.found is not None:
            return False
        usual, least = costs[self.space.proportions[0]], costs.get(self.space.proportions[-1])
        arrays = {**usual.arrays, "peak": (usual.arrays["peak"] * (1 - SAVED)).astype(np.int64)}
        bound = case.bound(replace(usual, arrays=arrays if least is None else least.arrays))
        return bound > (0.0 if self._is_first(case) else self._fastest())

    def _is_first(self, case: Case) -> bool:
        """True if no plan of so many IPUs was found."""
        return all(plan.model_ipus != case.plan.model_ipus for plan, _ in self.found)

    def _cases(self, size: ModelSize, io_tiles: int, model: Model, num_segments: int) -> Iterator[Case]:
        training = model.groups is not None
        for ipus in self.space.ipus:
            replicas = self.space.replicas(ipus, size.group)
            if not replicas:
                continue
            least = (2 * ipus - 1 if training else ipus) if ipus > 1 else 1
            accumulation = self.space.accumulation(size.micro_batch, replicas // size.group)
            if accumulation is None or 0 < accumulation < least:
                self.undivided.append((ipus, replicas, size.micro_batch))
                continue
            if num_segments < ipus:
                continue
            for recompute in self._recompute(ipus, training=training):
                plan = Spreading(
                    ipus=ipus,
                    replicas=replicas,
                    micro_batch=size.micro_batch,
                    accumulation=accumulation or least,
                    recompute=recompute,
                    io_tiles=io_tiles,
                    group=size.group,
                )
                yield Case(self.space, plan, is_free=not accumulation)

    def _recompute(self, ipus: int, *, training: bool) -> Iterator[Recomputation]:
        """Choices of recomputation: on one IPU, and without a backward pass, none."""
        for choice in self.space.recompute:
            if choice == Recomputation.NOTHING or (ipus > 1 and training):
                yield choice

    def _measure(self, of: _Measured, share: float | None) -> list[SegmentCosts]:
        """Costs of the segments, of which each kind is compiled once."""
        settings = replace(self.space.settings, memory_proportion=share or self.space.settings.memory_proportion)
        system, first, at = self.space.computing(of.io_tiles), self.space.proportions[0], (of.io_tiles, of.ipus)
        missing: list[SegmentNetwork] = []
        for kind in dict.fromkeys(of.segments):
            if (kind, share, *at) in self._costs:
                continue
            if share is not None and not kind.has_products:
                self._costs[kind, share, *at] = self._costs[kind, first, *at]
            elif (costs := known(kind, settings, system, of.ipus)) is not None:
                self._costs[kind, share, *at] = costs
            else:
                missing.append(kind)
        # The longest first, so that none is left when the others are done.
        missing.sort(key=lambda kind: -len(kind.forward.ops))
        planned = "" if share is None else f", products with {share:g} of a tile's memory"
        what = f"compile {counted(len(missing), 'part')}, micro-batches of {of.size.micro_batch}{planned}"
        tasks = [partial(measured, kind, settings, system, of.ipus) for kind in missing]
        made = side_by_side(tasks, lambda done: self.progress(what, done / len(tasks)))
        self._costs |= {(kind, share, *at): costs for kind, costs in zip(missing, made, strict=True)}
        return [self._costs[kind, share, *at] for kind in of.segments]
