"""Search: the micro-batches and cases to try, and the segments compiled for that.

Kinds of segments are compiled with the libraries' own proportion of a tile's memory for products. They are compiled
again with smaller ones as long as products with less memory might let a further case fit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from abele.fitting.case import Case, Found
from abele.fitting.chain import SegmentChain, chain_of
from abele.fitting.costs import ChainCosts
from abele.fitting.measure import SegmentCosts, measured
from abele.fitting.plan import Miss, Recomputation, Spreading
from abele.fitting.segment import SegmentNetwork, segment_network
from abele.fitting.space import FitSpace, Model
from abele.words import counted

Progress = Callable[[str, float], None]
SAVED = 0.5
"""Part of their temporaries that products with the least memory save at most, as far as was seen."""


@dataclass
class FitSearch:
    """A running search: measured costs, fitting plans and misses.

    Attributes:
        space: Plans to search.
        model_of: Gives the model for a micro-batch size.
        progress: Called with what is done and the part of it that is.
    """

    space: FitSpace
    model_of: Callable[[int], Model]
    progress: Progress
    cases: list[Case] = field(default_factory=list)
    chains: dict[int, SegmentChain] = field(default_factory=dict)
    models: dict[int, Model] = field(default_factory=dict)
    undivided: list[tuple[int, int, int]] = field(default_factory=list)
    _costs: dict[tuple[SegmentNetwork, float | None], SegmentCosts] = field(default_factory=dict)

    @property
    def found(self) -> list[Found]:
        """Best plan of each case, for cases with plans that fit."""
        return [case.found for case in self.cases if case.found is not None]

    @property
    def misses(self) -> list[Miss]:
        """Nearest miss of each case without a plan that fits."""
        return [case.miss for case in self.cases if case.miss is not None]

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
        numbers: dict[SegmentNetwork, int] = {}
        kinds = tuple(numbers.setdefault(s, len(numbers)) for s in segments)
        cases = list(self._cases(size, model, len(segments)))
        self.cases += cases
        costs: dict[float | None, ChainCosts] = {}
        for share in self.space.proportions:
            waiting = [case for case in cases if not costs or _may_fit(case)]
            if not waiting:
                return
            made = self._measure(size, chain, segments, share)
            costs[share] = ChainCosts.of(chain, made, kinds, model.groups)
            for number, case in enumerate(waiting):
                self.progress(f"cut into {counted(case.plan.ipus, 'stage')}", number / len(waiting))
                case.solve(costs)

    def _cases(self, size: int, model: Model, num_segments: int) -> Iterator[Case]:
        training = model.groups is not None
        for ipus in self.space.ipus:
            replicas = self.space.system.num_ipus // ipus
            least = (2 * ipus - 1 if training else ipus) if ipus > 1 else 1
            accumulation = self.space.accumulation(size, replicas)
            if accumulation is None or 0 < accumulation < least:
                self.undivided.append((ipus, replicas, size))
                continue
            if num_segments < ipus:
                continue
            for recompute in self._recompute(ipus, training=training):
                plan = Spreading(
                    ipus=ipus,
                    replicas=replicas,
                    micro_batch=size,
                    accumulation=accumulation or least,
                    recompute=recompute,
                )
                yield Case(self.space, plan, is_free=not accumulation)

    def _recompute(self, ipus: int, *, training: bool) -> Iterator[Recomputation]:
        """Choices of recomputation: on one IPU, and without a backward pass, none."""
        for choice in self.space.recompute:
            if choice == Recomputation.NOTHING or (ipus > 1 and training):
                yield choice

    def _measure(
        self, size: int, chain: SegmentChain, segments: Sequence[SegmentNetwork], share: float | None
    ) -> list[SegmentCosts]:
        settings = replace(self.space.settings, memory_proportion=share or self.space.settings.memory_proportion)
        # Each kind under the name of the first segment that is one.
        names: dict[SegmentNetwork, str] = {}
        for kind, part in zip(segments, chain.segments, strict=True):
            names.setdefault(kind, part.module or "the beginning")
        planned = "" if share is None else f", products with {share:g} of a tile's memory"
        for number, (kind, name) in enumerate(names.items(), 1):
            if (kind, share) in self._costs:
                continue
            if share is not None and not kind.has_products:
                self._costs[kind, share] = self._costs[kind, self.space.proportions[0]]
                continue
            what = f"part {number} of {len(names)}, {name}, micro-batches of {size}{planned}"
            report = partial(_of_part, self.progress, what)
            self._costs[kind, share] = measured(kind, settings, self.space.system, progress=report)
        return [self._costs[kind, share] for kind in segments]


def _of_part(progress: Progress, what: str, stage: str, done: float) -> None:
    """Progress of compiling a part, for which ``what`` stands."""
    progress(f"compile {what}: {stage}", done)


def _may_fit(case: Case) -> bool:
    """True if a case does not fit, and products with less memory may save enough."""
    return case.miss is not None and case.miss.lacking_bytes <= SAVED * case.miss.product_bytes
