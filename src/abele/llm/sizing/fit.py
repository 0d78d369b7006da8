"""``fit``: the smallest machine that holds a language model, and the fastest way to decode with it.

For every batch and number format spreads are listed from bytes alone: weights have to fit on the chips of a model, or
come from streaming memory. Those are costed by compiling their layers (:mod:`~abele.llm.sizing.spread`), the fastest
that fit also with the program of prompts. Llama-2 13B on 64 IPUs: 26 GB of weights need 2 stages of 16 IPUs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from abele.errors import FittingError, InvalidOptionError
from abele.llm.config import ModelConfig
from abele.llm.sizing.formats import bits_of, check_format, dtype_of
from abele.llm.sizing.parts import share_of
from abele.llm.sizing.presets import model_named, num_weights
from abele.llm.sizing.spread import Costing, DecodeCost, DecodePlan, Workload
from abele.machine import System, systems
from abele.session import Settings
from abele.words import counted

GROUPS = (16, 8, 4, 2, 1)
"""Sizes of groups that are tried."""
_FULL = 0.95
"""Part of tile memory for weights and cache, at most, in a plan that is compiled."""
_MOST_STAGES = 2
"""Numbers of stages that are tried for each size of a group: the least, and twice as many."""
Progress = Callable[[str, float], None]


@dataclass(frozen=True)
class SpreadRanking:
    """Spreads for one batch and number format.

    Attributes:
        workload: The question.
        ranking: Spreads that fit, the fastest first.
        misses: Spreads that were costed and do not fit, the nearest first.
    """

    workload: Workload
    ranking: tuple[DecodeCost, ...]
    misses: tuple[DecodeCost, ...]

    @property
    def best(self) -> DecodeCost | None:
        """The spread with most tokens per second; None where none fits."""
        return self.ranking[0] if self.ranking else None

    @property
    def smallest(self) -> DecodeCost | None:
        """The spread over the fewest IPUs, the fastest of these; None where none fits."""
        return min(self.ranking, key=lambda c: (c.plan.ipus, c.step_seconds), default=None)


@dataclass(frozen=True)
class DecodeFit:
    """Result of :func:`fit`; ``print`` shows it.

    Attributes:
        name: Name of the model.
        system: The machine.
        answers: Answers by batch and format.
    """

    name: str
    system: System
    answers: tuple[SpreadRanking, ...]

    @property
    def best(self) -> DecodeCost:
        """The spread with most tokens per second of all."""
        return max((a.best for a in self.answers if a.best is not None), key=lambda c: c.tokens_per_second)

    def to_json(self) -> dict[str, object]:
        """The result as plain data."""
        from abele.llm.sizing.text import fit_dict

        return fit_dict(self)

    def __str__(self) -> str:
        from abele.llm.sizing.text import fit_text

        return fit_text(self)


def fit(
    model: ModelConfig | str,
    *,
    system: System | str = "bow-pod16",
    prompt: int = 512,
    new: int = 256,
    batches: Sequence[int] = (1,),
    formats: Sequence[str] = ("f16",),
    half_partials: bool = False,
    progress: Progress | None = None,
) -> DecodeFit:
    """Find the smallest machine that holds a language model, and the fastest way to decode with it; nothing runs.

    Args:
        model: A configuration, or the name of one (:data:`~abele.llm.sizing.presets.MODELS`).
        system: The machine: a preset's name, a file, or a System.
        prompt: Tokens of each prompt.
        new: Tokens that follow; the cache has ``prompt + new`` positions for each sequence.
        batches: Sequences at a time on the whole machine; an answer for each.
        formats: Number formats of weights; an answer for each.
        half_partials: True for partial sums of float16 products in float16.
        progress: Called with what is done and the part of it that is.

    Raises:
        FittingError: Nothing fits; it says what lacks, and what would help.
        InvalidOptionError: No such model or format, or sizes that are none.
        MachineError: No such system.
    """
    config, name = (model_named(model), model) if isinstance(model, str) else (model, type(model).__name__)
    _check(config, prompt, new, batches, formats)
    used, settings = systems.resolve(system), Settings(partials="f16" if half_partials else "f32")
    answers = []
    for format in formats:
        costing = Costing(config, used, settings, format, dtype_of(format))
        for number, batch in enumerate(batches):
            work = Workload(config=config, prompt=prompt, new=new, batch=batch, format=format)
            if progress is not None:
                progress(f"{name}, {format}, batch {batch}", number / len(batches))
            answers.append(_answer(costing, work))
    found = DecodeFit(name, used, tuple(answers))
    if not any(answer.ranking for answer in answers):
        raise _nothing_fits(found)
    return found


def _check(config: ModelConfig, prompt: int, new: int, batches: Sequence[int], formats: Sequence[str]) -> None:
    numbers = {"prompt": (prompt,), "new": (new,), "batches": tuple(batches)}
    for what, given in numbers.items():
        for number in given or (0,):
            if isinstance(number, bool) or not isinstance(number, int) or number < 1:
                raise InvalidOptionError(f"{what} takes positive whole numbers, got {number!r}")
    if prompt + new > config.positions:
        raise InvalidOptionError(
            f"{prompt:,} tokens of a prompt and {new:,} new ones are {prompt + new:,} positions",
            because=f"the model's context has {config.positions:,}",
            remedy=f"a prompt of {max(1, config.positions - new):,}",
        )
    for format in formats or ("",):
        check_format(format)


def _answer(costing: Costing, work: Workload) -> SpreadRanking:
    """Costs of the spreads of one workload: first of a step alone, then with prompts until the fastest and the
    smallest that fit are known."""
    found, misses = list[DecodeCost](), list[DecodeCost]()
    for group in GROUPS:
        if group <= costing.system.num_ipus and _divides(work.config, group):
            for cost in _of_group(costing, work, group):
                (found if cost.fits else misses).append(cost)
    whole = dict[DecodePlan, DecodeCost]()
    fastest = sorted(found, key=lambda cost: -cost.tokens_per_second)
    alone = sorted({replace(cost.plan, replicas=1) for cost in found}, key=lambda plan: (plan.ipus, -plan.group))
    for candidates in ([cost.plan for cost in fastest], alone):
        for plan in candidates:
            if plan not in whole and not _may_fit(work, plan, costing.system):
                continue
            cost = whole.get(plan) or costing.decode(plan, work)
            if cost.fits:
                whole[plan] = cost
                break
            misses.append(cost)
    ranking = sorted(whole.values(), key=lambda cost: -cost.tokens_per_second)
    return SpreadRanking(work, tuple(ranking), tuple(sorted(misses, key=lambda cost: cost.fullest.lacking)))


def _of_group(costing: Costing, work: Workload, group: int) -> Iterator[DecodeCost]:
    """Costs of steps with groups of one size: stages until they fit, else weights from streaming memory."""
    ipus = costing.system.num_ipus
    for stages in _stages(work, group, costing.system):
        cost = costing.decode(_side_by_side(work, ipus, group=group, stages=stages), work, with_prefill=False)
        yield cost
        if cost.fits:
            return
    if not _streams(work, group, costing.system):
        return
    for off_chip in (False, True):
        plan = _side_by_side(work, ipus, group=group, streamed=True, cache_off_chip=off_chip)
        if not _may_fit(work, plan, costing.system):
            continue
        cost = costing.decode(plan, work, with_prefill=False)
        yield cost
        if cost.fits:
            return


def _side_by_side(work: Workload, ipus: int, **how: Any) -> DecodePlan:
    """A plan with as many models as there are IPUs and sequences for."""
    one = DecodePlan(**how)
    return replace(one, replicas=max(1, min(work.batch, ipus // one.ipus)))


def _divides(config: ModelConfig, group: int) -> bool:
    try:
        share_of(config, group)
    except InvalidOptionError:
        return False
    return True


def _stages(work: Workload, group: int, system: System) -> Iterator[int]:
    """Numbers of stages with which weights and cache may fit, as bytes say."""
    number, tried = 1, 0
    while group * number <= system.num_ipus and number <= work.config.layers and tried < _MOST_STAGES:
        if _may_fit(work, _side_by_side(work, system.num_ipus, group=group, stages=number), system):
            yield number
            tried += 1
        number *= 2


def _may_fit(work: Workload, plan: DecodePlan, system: System) -> bool:
    """True if bytes of weights and cache alone leave room on the chips of a model.

    A program of two layers is no help for others: caches larger than an IPU have a hundred million intervals.
    """
    own, layers = -(-work.batch // plan.replicas), work.config.layers
    weights = weight_bytes(work) / (layers if plan.streamed else 1)
    cache = cache_bytes(work, plan.group) * own / (layers if plan.cache_off_chip else 1)
    return weights + cache <= _FULL * plan.ipus_of_model * system.ipu.memory_bytes


def weight_bytes(work: Workload) -> float:
    """Bytes of a model's weights."""
    ends = work.config.vocabulary * work.config.hidden * (1 if work.config.tied_head else 2)
    layers = (num_weights(work.config) - ends) * bits_of(work.format) / 8
    return layers + ends * dtype_of(work.format).itemsize


def cache_bytes(work: Workload, group: int) -> int:
    """Bytes of keys and values of one sequence on all IPUs of a model."""
    config = work.config
    heads = max(config.kv_heads, group)
    return 2 * config.layers * heads * config.head_size * work.positions * dtype_of(work.format).itemsize


def _streams(work: Workload, group: int, system: System) -> bool:
    """True if a layer fits on the chips of a group, and the model in streaming memory."""
    layer = weight_bytes(work) / work.config.layers
    return layer <= _FULL * group * system.ipu.memory_bytes and weight_bytes(work) <= system.dram_bytes


def _nothing_fits(found: DecodeFit) -> FittingError:
    """An error with the bytes that lack, and a remedy."""
    answer = found.answers[0]
    work, system = answer.workload, found.system
    weights = weight_bytes(work)
    cache = cache_bytes(work, 1) * work.batch
    because = (
        f"weights take {weights / 1e9:,.2f} GB in {work.format} and the cache {cache / 1e9:,.2f} GB; "
        f"the machine has {system.memory_bytes / 1e9:,.2f} GB in {counted(system.num_ipus, 'IPU')}"
    )
    if answer.misses:
        nearest = answer.misses[0]
        because += f"; the nearest spread, {nearest.plan}, lacks {nearest.fullest.lacking:,} B on its fullest tile"
    needed = -(-(weights + cache) // (0.8 * system.ipu.memory_bytes))
    remedy = counted(int(needed), "IPU")
    if work.batch > 1:
        remedy += ", fewer sequences at a time"
    return FittingError(
        f"no spread of {found.name} over {system.name} fits {counted(work.batch, 'sequence')} of {work.positions:,}"
        " positions",
        because=because,
        remedy=f"{remedy}, a narrower format of weights, or a shorter prompt",
    )
