"""Fitting: the smallest machine that holds a model, and the fastest way to spread it over a machine."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from abele.fitting.chain import SegmentChain
from abele.fitting.compiled import compiled_plan
from abele.fitting.misses import nearest_of_each, nothing_fits
from abele.fitting.plan import Estimate, Miss, Ranked, Spreading
from abele.fitting.reasons import reason
from abele.fitting.search import FitSearch, Progress
from abele.fitting.space import FitSpace, Model


@dataclass(frozen=True, kw_only=True)
class Fitted:
    """Result of fitting a model to a machine.

    Attributes:
        space: The plans that were searched.
        ranking: Plans that fit, the fastest first.
        misses: The nearest plan for each number of IPUs and micro-batch with which none fits.
        smallest: The number of IPUs of the smallest replica that fits.
        chains: The model as a chain, by micro-batch.
        undivided: IPUs of a replica, replicas and micro-batches that do not divide the batch, or fill no pipeline.
        training: True if the model is trained.
    """

    space: FitSpace
    ranking: tuple[Ranked, ...]
    misses: tuple[Miss, ...]
    smallest: int
    chains: dict[int, SegmentChain] = field(repr=False)
    undivided: tuple[tuple[int, int, int], ...] = ()
    training: bool = True

    @property
    def best(self) -> Ranked:
        """The fastest plan."""
        return self.ranking[0]

    def modules(self, plan: Spreading) -> list[str]:
        """The submodule that each stage begins with; empty for the first."""
        segments = self.chains[plan.micro_batch].segments
        return ["", *(segments[cut].module for cut in plan.cuts)]


def fit_network(
    model_of: Callable[[int], Model], space: FitSpace, *, check: int = 1, progress: Progress | None = None
) -> Fitted:
    """Find the smallest machine that holds a model and the fastest way to spread it over the machine.

    Args:
        model_of: Gives the model for a size of the micro-batch.
        space: Plans to search.
        check: Number of the fastest plans that are compiled as a whole, to set the figures side by side.
        progress: Called with what is done and the part of it that is.

    Raises:
        FittingError: Nothing fits, nothing can be cut, or no division of the batch is left.
        AbeleError: As of capturing and compiling the model.
    """
    space.check_batch()
    search = FitSearch(space, model_of, progress or (lambda _what, _part: None))
    search.run()
    if not search.found:
        raise nothing_fits(search)
    ordered = _fastest_of_each(search.found)
    best = ordered[0]
    ranking = [
        Ranked(plan=plan, estimate=estimate, reason="" if plan is best[0] else reason(plan, estimate, *best))
        for plan, estimate in ordered
    ]
    for number in range(min(check, len(ranking))):
        search.progress("compile the whole", number / check)
        plan = ranking[number].plan
        chain = search.chains[plan.micro_batch]
        made = compiled_plan(plan, search.models[plan.micro_batch], chain, space)
        ranking[number] = replace(ranking[number], compiled=made)
    return Fitted(
        space=space,
        ranking=tuple(ranking),
        misses=tuple(nearest_of_each(search)),
        smallest=min(plan.ipus for plan, _ in search.found),
        chains=search.chains,
        undivided=tuple(search.undivided),
        training=next(iter(search.models.values())).groups is not None,
    )


def _fastest_of_each(found: Sequence[tuple[Spreading, Estimate]]) -> list[tuple[Spreading, Estimate]]:
    return sorted(found, key=lambda f: (-f[1].samples_per_second, f[0].ipus, f[0].micro_batch))
