"""Fitting: the smallest machine that holds a model, and the fastest way to spread it over a machine."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from abele.errors import FittingError
from abele.fitting.chain import SegmentChain
from abele.fitting.compiled import compiled_plan
from abele.fitting.plan import Estimate, Miss, Ranked, Spreading
from abele.fitting.reasons import reason
from abele.fitting.search import FitSearch, Progress
from abele.fitting.space import FitSpace, Model
from abele.words import counted


@dataclass(frozen=True, kw_only=True)
class Fitted:
    """What fitting a model to a machine found.

    Attributes:
        space: What was searched.
        ranking: Plans that fit, the fastest first.
        misses: Plans that do not fit, the nearest for each number of IPUs, micro-batch and what is computed again.
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
        space: What is searched.
        check: How many of the fastest plans are compiled as a whole, to set the figures side by side.
        progress: Called with what is done and the part of it that is.

    Raises:
        FittingError: Nothing fits, nothing can be cut, or no division of the batch is left.
        AbeleError: As of capturing and compiling the model.
    """
    space.check_batch()
    search = FitSearch(space, model_of, progress or (lambda _what, _part: None))
    search.run()
    if not search.found:
        raise _nothing_fits(search)
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
        misses=tuple(_nearest_of_each(search.misses)),
        smallest=min(plan.ipus for plan, _ in search.found),
        chains=search.chains,
        undivided=tuple(search.undivided),
        training=next(iter(search.models.values())).groups is not None,
    )


def _fastest_of_each(found: Sequence[tuple[Spreading, Estimate]]) -> list[tuple[Spreading, Estimate]]:
    return sorted(found, key=lambda f: (-f[1].samples_per_second, f[0].ipus, f[0].micro_batch))


def _nearest_of_each(misses: Sequence[Miss]) -> list[Miss]:
    """For each number of IPUs and micro-batch the miss that lacks least."""
    found: dict[tuple[int, int], Miss] = {}
    for miss in misses:
        key = miss.plan.ipus, miss.plan.micro_batch
        if key not in found or miss.lacking_bytes < found[key].lacking_bytes:
            found[key] = miss
    return [found[key] for key in sorted(found)]


def _nothing_fits(search: FitSearch) -> FittingError:
    space = search.space
    if not search.misses:
        segments = max((len(c.segments) for c in search.chains.values()), default=0)
        if search.undivided:
            ipus, replicas, size = search.undivided[0]
            return FittingError(
                f"no division of a batch of {space.batch:,} is left to try",
                because=f"{counted(replicas, 'replica')} of {counted(ipus, 'IPU')} with micro-batches of {size} do not "
                f"divide it, or fill a pipeline of so many stages; and so for all others",
                remedy="a larger batch, smaller micro-batches, or no fixed batch",
            )
        return FittingError(
            f"nothing fits, and the model can be cut into {counted(segments, 'part')} alone",
            remedy="a machine with larger tiles, or submodules between which one activation goes",
        )
    nearest = min(search.misses, key=lambda m: m.lacking_bytes)
    plan = nearest.plan
    chain = search.chains[plan.micro_batch]
    module = chain.segments[plan.bounds(len(chain.segments))[nearest.stage][0]].module
    where = f"stage {nearest.stage}{f', from {module}' if module else ''}" if plan.stages > 1 else "the model"
    because = (
        f"nearest: {counted(plan.ipus, 'IPU')} to a replica, micro-batches of {plan.micro_batch}: the fullest tile of "
        f"{where} needs {nearest.needed_bytes:,} B, has {nearest.available_bytes:,} B "
        f"({nearest.lacking_bytes:,} B too much): {nearest.largest}"
    )
    if len(chain.segments) < space.system.num_ipus:
        because += f"\nthe model can be cut into {counted(len(chain.segments), 'part')} alone"
    return FittingError(f"nothing fits on {space.system.name}", because=because, remedy=_help(search, nearest))


def _help(search: FitSearch, nearest: Miss) -> str:
    space, plan = search.space, nearest.plan
    hints = []
    smaller = min(space.micro_batches)
    if plan.micro_batch == smaller and smaller > 1:
        hints.append("smaller micro-batches")
    if len(search.chains[plan.micro_batch].segments) > space.system.num_ipus:
        hints.append(f"a machine with more IPUs than {space.system.num_ipus}")
    hints.append("half precision" if _is_single(search.models[plan.micro_batch]) else "float16 sums of gradients")
    return " · ".join(hints)


def _is_single(model: Model) -> bool:
    return any(p.dtype.name == "f32" for p in model.net.parameters)
