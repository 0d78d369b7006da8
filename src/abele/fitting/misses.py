"""Misses: the words about plans that do not fit, and remedies where none does."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from abele.errors import FittingError
from abele.fitting.chain import SegmentChain
from abele.fitting.plan import Miss
from abele.fitting.search import FitSearch
from abele.numerics import f32
from abele.words import counted

_OF_MICRO_BATCH = ("temporaries", "activations on their way")
"""Parts of a stage that are the smaller the smaller the micro-batch is."""
_OF_STAGE = ("weights", "sums of gradients", "optimiser state", "code")
"""Parts that are the smaller the fewer segments a stage has."""


def nearest_of_each(search: FitSearch) -> list[Miss]:
    """Smallest miss for each number of IPUs and micro-batch that no plan fits."""
    fitting = {(plan.ipus, plan.micro_batch) for plan, _ in search.found}
    found: dict[tuple[int, int], Miss] = {}
    for miss in search.misses:
        key = miss.plan.ipus, miss.plan.micro_batch
        if key not in fitting and (key not in found or miss.lacking_bytes < found[key].lacking_bytes):
            found[key] = miss
    return [found[key] for key in sorted(found)]


def miss_words(miss: Miss, chain: SegmentChain) -> str:
    """Why a plan does not fit, in one line.

    Args:
        miss: The plan.
        chain: The model for its micro-batch.
    """
    plan, over = miss.plan, miss.lacking_bytes / miss.available_bytes
    return (
        f"{plan.ipus} x {plan.replicas}, micro-batches of {plan.micro_batch}: {_where(miss, chain)} needs "
        f"{miss.needed_bytes:,} B on its fullest tile, {miss.lacking_bytes:,} B ({100 * over:.0f} %) too much: "
        f"{miss.largest}"
    )


def _where(miss: Miss, chain: SegmentChain) -> str:
    if miss.plan.stages == 1:
        return "the IPU"
    module = chain.segments[miss.plan.bounds(len(chain.segments))[miss.stage][0]].module
    return f"stage {miss.stage}" + (f" (from {module})" if module else "")


def nothing_fits(search: FitSearch) -> FittingError:
    """Error of a search without a plan: the nearest ones for each number of IPUs, and remedies."""
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
    size = nearest.plan.micro_batch
    chain = search.chains[size]
    others = [m for m in nearest_of_each(search) if m is not nearest and m.plan.micro_batch == size]
    because = [f"nearest: {miss_words(nearest, chain)}", *(miss_words(m, chain) for m in others)]
    if len(chain.segments) < space.system.num_ipus:
        because.append(f"the model can be cut into {counted(len(chain.segments), 'part')} alone")
    return FittingError(
        f"nothing fits on {space.system.name}", because="\n".join(because), remedy=" · ".join(_help(search, nearest))
    )


def _help(search: FitSearch, nearest: Miss) -> Iterator[str]:
    """Remedies that make the nearest plan fit, or come closest to that."""
    space, plan = search.space, nearest.plan
    chain, model = search.chains[plan.micro_batch], search.models[plan.micro_batch]
    begin, end = plan.bounds(len(chain.segments))[nearest.stage]
    size = _smaller(nearest)
    if size is not None:
        yield f"micro-batches of {size}"
    alone = end - begin == 1
    if (
        not alone
        and len(chain.segments) > space.system.num_ipus
        and _amount(nearest, _OF_STAGE) > nearest.lacking_bytes
    ):
        yield f"a machine with more IPUs than {space.system.num_ipus}"
    if alone:
        name = chain.segments[begin].module or "the part at the beginning"
        yield f"{name} in submodules between which one activation goes, or spread over IPUs by tensor parallelism"
    if any(p.dtype == f32 for p in model.net.parameters):
        yield "half precision"
    elif any(group.optimiser.accumulation == f32 for group in model.groups or ()):
        yield "sums of gradients in float16"
    if _amount(nearest, ("temporaries",)) > nearest.lacking_bytes and space.settings.partials == "f32":
        yield "partial sums in float16"
    if size is None:
        yield "a machine with larger tiles"


def _smaller(nearest: Miss) -> int | None:
    """The largest part of the micro-batch with which the plan might fit."""
    scaled, size = _amount(nearest, _OF_MICRO_BATCH), nearest.plan.micro_batch
    for parts in range(2, size + 1):
        if size % parts == 0 and scaled - scaled // parts >= nearest.lacking_bytes:
            return size // parts
    return None


def _amount(miss: Miss, names: Sequence[str]) -> int:
    return sum(miss.parts.get(name, 0) for name in names)
