"""Search: every way to spread a model that is worth a look, each with the best cuts.

The numbers of IPUs to a replica, micro-batches and what is computed again are tried one by one, and for each the chain
is cut exactly (:mod:`~abele.fitting.partition`). What changes nothing but memory moves only as far as it has to: the
code of equal layers is shared, and the optimiser's state is sharded or leaves the chip, where a plan does not fit
otherwise; products plan with less memory where less temporaries might let a plan fit that does not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from abele.errors import FittingError
from abele.fitting.chain import SegmentChain, chain_of
from abele.fitting.estimate import estimated, ipu_bytes
from abele.fitting.measure import SegmentCosts, measured
from abele.fitting.partition import NEVER, Costs, partition
from abele.fitting.plan import Estimate, Miss, Recomputation, Spreading, StatePlace
from abele.fitting.segment import SegmentNetwork, segment_network
from abele.fitting.stages import Borrowed, ChainCosts, StageCosts
from abele.fitting.traffic import tick_cycles
from abele.machine import System
from abele.parallel import Group, Network, Optimiser
from abele.session import Settings
from abele.words import counted

PROPORTIONS = (None, 0.4, 0.25, 0.15)
"""Shares of a tile's memory that products plan with, most first; None is the libraries' own."""
FULL = 0.95
"""Part of an update that a free batch spends in full ticks of the pipeline."""
MOST_ACCUMULATION = 4096
"""The most micro-batches that a free batch is made of on one replica."""

Progress = Callable[[str, float], None]


@dataclass(frozen=True)
class Model:
    """A model for one size of the micro-batch.

    Attributes:
        net: The network before any pass.
        groups: Optimisers and the parameters that they update; None for inference.
    """

    net: Network
    groups: tuple[Group, ...] | None


@dataclass(frozen=True, kw_only=True)
class FitSpace:
    """What is searched.

    Attributes:
        system: The machine.
        batch: Samples of an update; None for any.
        micro_batches: Sizes of the micro-batch, ascending.
        first: The size to begin with, from which others are tried while that pays; None to try all.
        proportions: Shares of a tile's memory that products plan with, most first.
        recompute: What stages may compute again.
        states: Where the optimiser's state may be, the nearest first.
        settings: How networks are compiled.
        starts: Module paths at which a stage may begin; None where it may begin anywhere.
    """

    system: System
    batch: int | None = None
    micro_batches: tuple[int, ...]
    first: int | None = None
    proportions: tuple[float | None, ...] = PROPORTIONS
    recompute: tuple[Recomputation, ...] = tuple(Recomputation)
    states: tuple[StatePlace, ...] = tuple(StatePlace)
    settings: Settings = field(default_factory=Settings)
    starts: frozenset[str] | None = None

    @property
    def ipus(self) -> tuple[int, ...]:
        """Numbers of IPUs to a replica: powers of two."""
        return tuple(1 << n for n in range(self.system.num_ipus.bit_length()) if 1 << n <= self.system.num_ipus)


@dataclass
class FitSearch:
    """A search that is going on: what was measured, what fits and what does not.

    Attributes:
        space: What is searched.
        model_of: Gives the model for a micro-batch size.
        progress: Called with what is done and the part of it that is.
    """

    space: FitSpace
    model_of: Callable[[int], Model]
    progress: Progress
    found: list[tuple[Spreading, Estimate]] = field(default_factory=list)
    misses: list[Miss] = field(default_factory=list)
    chains: dict[int, SegmentChain] = field(default_factory=dict)
    models: dict[int, Model] = field(default_factory=dict)
    undivided: list[tuple[int, int, int]] = field(default_factory=list)
    failed: dict[int, str] = field(default_factory=dict)
    _costs: dict[tuple[SegmentNetwork, float | None], SegmentCosts] = field(default_factory=dict)

    def run(self) -> None:
        """Try all that the space has."""
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
        return max((e.samples_per_second for _, e in self.found), default=0.0)

    def _micro_batch(self, size: int) -> None:
        self.progress(f"record the model with micro-batches of {size}", 0.0)
        model = self.models[size] = self.model_of(size)
        chain = self.chains[size] = chain_of(model.net, model.groups, starts=self.space.starts)
        segments = [segment_network(chain, n, model.groups) for n in range(len(chain.segments))]
        open_cases = {(n, r) for n in self.space.ipus for r in self._recompute(n, model)}
        for proportion in self.space.proportions:
            costs = self._measure(segments, proportion, size)
            numbers: dict[SegmentNetwork, int] = {}
            kinds = tuple(numbers.setdefault(s, len(numbers)) for s in segments)
            whole = ChainCosts.of(chain, costs, kinds)
            again = set()
            for done, (ipus, recompute) in enumerate(sorted(open_cases)):
                self.progress(f"cut into {counted(ipus, 'stage')}", done / len(open_cases))
                case = _Case(
                    search=self,
                    size=size,
                    ipus=ipus,
                    recompute=recompute,
                    proportion=proportion,
                    costs=whole,
                    groups=model.groups,
                )
                if not case.run():
                    again.add((ipus, recompute))
            # Less memory for products is worth a try only where temporaries are all that is in the way.
            open_cases = again
            if not open_cases:
                break

    def _recompute(self, ipus: int, model: Model) -> Iterator[Recomputation]:
        """What there is to compute again: on one IPU, and without a backward pass, nothing."""
        for choice in self.space.recompute:
            if choice == Recomputation.NOTHING or (ipus > 1 and model.groups is not None):
                yield choice

    def _measure(self, segments: Sequence[SegmentNetwork], proportion: float | None, size: int) -> list[SegmentCosts]:
        kinds = list(dict.fromkeys(segments))
        settings = replace(self.space.settings, memory_proportion=proportion or self.space.settings.memory_proportion)
        share = "" if proportion is None else f", products with {proportion:g} of a tile's memory"
        for number, kind in enumerate(kinds):
            if (kind, proportion) not in self._costs:
                self.progress(f"compile the parts, micro-batches of {size}{share}", number / len(kinds))
                self._costs[kind, proportion] = measured(kind, settings, self.space.system)
        return [self._costs[kind, proportion] for kind in segments]

    def accumulation(self, size: int, replicas: int) -> int | None:
        """Micro-batches of one replica that make the batch; None where it does not divide, 0 where it is free."""
        if self.space.batch is None:
            return 0
        whole, rest = divmod(self.space.batch, size * replicas)
        return whole if whole and not rest else None


@dataclass(kw_only=True)
class _Case:
    """One number of IPUs to a replica, one micro-batch, one choice of what is computed again."""

    search: FitSearch
    size: int
    ipus: int
    recompute: Recomputation
    proportion: float | None
    costs: ChainCosts
    groups: tuple[Group, ...] | None

    def run(self) -> bool:
        """Find the best cuts; False if nothing fits that would with smaller temporaries."""
        space, count = self.search.space, len(self.costs.segments)
        replicas = space.system.num_ipus // self.ipus
        least = (2 * self.ipus - 1 if self.groups is not None else self.ipus) if self.ipus > 1 else 1
        accumulation = self.search.accumulation(self.size, replicas)
        if accumulation is None or (accumulation and accumulation < least):
            self.search.undivided.append((self.ipus, replicas, self.size))
            return True
        if count < self.ipus:
            return True
        plan = Spreading(
            ipus=self.ipus,
            replicas=replicas,
            micro_batch=self.size,
            accumulation=accumulation or least,
            recompute=self.recompute,
            proportion=self.proportion,
        )
        for changed, stages in self._ways(plan):
            if stages.least_bytes > stages.available_bytes:
                continue
            cut = self._cut(changed, stages)
            if cut is not None:
                if not accumulation:
                    cut = _free_batch(cut, stages)
                self.search.found.append((cut, estimated(cut, stages)))
                return True
        miss = self._nearest(changed, stages)
        self.search.misses.append(miss)
        return miss.lacking_bytes > miss.temporary_bytes

    def _ways(self, plan: Spreading) -> Iterator[tuple[Spreading, StageCosts]]:
        """The plan with its memory as it is, and then moved step by step."""
        repeated = len(set(self.costs.kinds)) < len(self.costs.kinds)
        has_state = self.groups is not None and any(c.state_bytes for c in self.costs.segments)
        for state in self.search.space.states:
            if state != StatePlace.ON_CHIP and not has_state:
                continue
            if state.is_sharded and plan.replicas == 1:
                continue
            if state.is_off_chip and self.search.space.system.dram is None:
                continue
            for functions in (False, True) if repeated else (False,):
                changed = replace(plan, state=state, shared_functions=functions)
                yield changed, self._stages(changed)

    def _stages(self, plan: Spreading) -> StageCosts:
        return StageCosts(
            costs=self.costs,
            borrowed=_borrowed(self.costs.chain, self.costs.segments, self.groups, plan),
            system=self.search.space.system,
            recompute=plan.recompute,
            state=plan.state,
            ipus=plan.ipus,
            replicas=plan.replicas,
            training=self.groups is not None,
            functions=plan.shared_functions,
        )

    def _cut(self, plan: Spreading, stages: StageCosts) -> Spreading | None:
        """The plan with the best cuts; None where none fit."""
        if plan.ipus == 1:
            return plan if stages.last_needed[0] <= stages.available_bytes else None
        found = [self._cut_into(plan, stages, returns=False)]
        # Stages that have weights in common are best on one IPU, where these are the ends of the model.
        if any(stages.borrowed) and plan.ipus + 1 <= stages.count:
            found.append(self._cut_into(plan, stages, returns=True))
        fitting = [p for p in found if p is not None]
        return max(fitting, key=lambda p: _rate(p, stages)) if fitting else None

    def _cut_into(self, plan: Spreading, stages: StageCosts, *, returns: bool) -> Spreading | None:
        """The plan with a stage for each IPU, and one more on the first IPU where it ``returns``."""
        n, count = plan.ipus + returns, stages.count
        training, rows = self.groups is not None, 2 * (n - 1)

        def middle(stage: int) -> Costs:
            kept = 2 * (n - 1 - stage) if training else 0
            return np.asarray(np.where(stages.fits(kept), stages.inner_table, NEVER), np.int64)

        first_fits = stages.fits(rows if training else 0)[0]
        ends = np.full((count, count), NEVER, np.int64)
        for first in np.flatnonzero(first_fits[:count]).tolist():
            forward = stages.forward_work(0, first, 0, rows)
            back = [stages.backward_work(0, first, 0, rows)] if training else []
            # Stages between the first and the last have at least a segment each.
            for begin in range(first + n - 2, count):
                if returns:
                    if stages.needed_together(first, rows if training else 0, begin) > stages.available_bytes:
                        continue
                elif stages.last_needed[begin] > stages.available_bytes:
                    continue
                last = stages.last_work(begin, count, 0 if returns else n - 1)
                ends[first, begin] = tick_cycles([*back, last, forward])
        found = partition(n, middle, ends)
        return None if found is None else replace(plan, cuts=found.cuts, returns=returns)

    def _nearest(self, plan: Spreading, stages: StageCosts) -> Miss:
        """The cuts that come nearest to fitting, with the stage that lacks most."""
        n, count = plan.ipus, stages.count
        cuts: tuple[int, ...] = ()
        if n > 1:
            rows = [2 * (n - 1 - stage) if stages.training else 0 for stage in range(n)]
            needed = [np.minimum(stages.inner_needed + kept * stages.rows_on_tile, NEVER) for kept in rows]
            ends = np.maximum(needed[0][0, :count, None], stages.last_needed[None, :])
            found = partition(n, lambda stage: needed[stage], ends)
            assert found is not None
            cuts = found.cuts
        nearest = replace(plan, cuts=cuts)
        by_ipu = ipu_bytes(nearest, stages)
        stage = int(np.argmax(by_ipu))
        begin, end = nearest.bounds(count)[stage]
        last = stage == n - 1
        largest = _largest(stages, begin, end, 2 * (n - 1 - stage), last=last)
        return Miss(
            plan=nearest,
            stage=stage,
            needed_bytes=by_ipu[stage],
            available_bytes=stages.available_bytes,
            temporary_bytes=stages.temporary_bytes(begin, end, last=last),
            largest=largest,
        )


def _rate(plan: Spreading, stages: StageCosts) -> float:
    return estimated(plan, stages).samples_per_second


def _largest(stages: StageCosts, begin: int, end: int, rows: int, *, last: bool) -> str:
    """What takes most of a stage's memory, in words."""
    costs = [stages.segments[i] for i in range(begin, end)]
    share = 0.0 if stages.state.is_off_chip else stages.state_share
    parts = {
        "weights": sum(float(c.resident.mean()) for c in costs),
        "sums of gradients": sum(float(c.accumulators.mean()) for c in costs),
        "optimiser state": sum(float(c.state.mean()) for c in costs) * share,
        "code": sum(float(c.code.mean()) for c in costs),
        "temporaries": float(stages.temporary_bytes(begin, end, last=last)),
        "activations on their way": float(rows * stages.row_on_tile(begin, end)),
    }
    ordered = sorted(parts, key=lambda name: -parts[name])[:3]
    return ", ".join(f"{name} {parts[name] / 1000:,.0f} KB" for name in ordered if parts[name] >= 500)


def _free_batch(plan: Spreading, stages: StageCosts) -> Spreading:
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


def _borrowed(
    chain: SegmentChain, costs: Sequence[SegmentCosts], groups: Sequence[Group] | None, plan: Spreading
) -> list[list[Borrowed]]:
    """For each segment the parameters that it shares with earlier ones."""
    rules: Mapping[object, Optimiser] = {p: g.optimiser for g in groups or () for p in g.parameters}
    parameters, owner = set(chain.net.parameters), dict[object, int]()
    found: list[list[Borrowed]] = []
    for number, segment in enumerate(chain.segments):
        shared: list[Borrowed] = []
        for value in dict.fromkeys(v for op in chain.net.ops[segment.begin : segment.end] for v in op.inputs):
            if value not in parameters:
                continue
            if owner.setdefault(value, number) == number:
                continue
            rest = value.size * rules[value].accumulation.bytes if value in rules else 0
            if value in rules and not plan.state.is_off_chip:
                own = costs[number]
                share = 1 / plan.replicas if plan.state.is_sharded else 1.0
                per_byte = own.state_bytes / own.gradient_bytes if own.gradient_bytes else 0.0
                rest += round(per_byte * value.size * value.dtype.bytes * share)
            shared.append(Borrowed(owner[value], value.size * value.dtype.bytes, rest))
        found.append(shared)
    return found


def check_batch(space: FitSpace) -> None:
    """Raise unless some micro-batch and number of replicas divide the batch.

    Raises:
        FittingError: None does.
    """
    if space.batch is None:
        return
    sizes = [(m, space.system.num_ipus // n) for m in space.micro_batches for n in space.ipus]
    if all(space.batch % (m * r) for m, r in sizes):
        tried = ", ".join(str(m) for m in space.micro_batches)
        fewest = min(m * r for m, r in sizes)
        raise FittingError(
            f"no division of a batch of {space.batch:,} is left to try",
            because=f"micro-batches of {tried} on {', '.join(str(r) for r in sorted({r for _, r in sizes}))} replicas "
            "do not divide it",
            remedy=f"a batch that is a multiple of {fewest}, or other micro-batches",
        )
