"""Answers of a fit as text, and as plain data."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from abele.llm.sizing.presets import num_weights
from abele.report.energy import amount_text
from abele.words import counted

if TYPE_CHECKING:
    from abele.llm.sizing.fit import DecodeFit, SpreadRanking
    from abele.llm.sizing.spread import DecodeCost

BINDS = {
    "streaming": "streaming memory's bandwidth",
    "collectives": "sums between IPUs",
    "products": "products, reading weights",
    "attention": "reading the cache",
    "elementwise": "small operations",
    "exchange": "exchange between tiles",
    "sync": "sync of tiles",
    "transfers": "transfers between stages",
    "waiting": "waiting for the slowest stage",
}
"""Kinds of work of a step, in words."""
_HEADINGS = (
    "batch",
    "format",
    "IPUs",
    "spread",
    "tokens/s",
    "each",
    "first token",
    "J/token",
    "rated",
    "weights",
    "cache",
    "temporaries",
    "fullest tile",
    "binds",
)


def fit_text(found: DecodeFit) -> str:
    """The table, what fits where, and a timeline of the fastest step."""
    work = found.answers[0].workload
    head = (
        f"{found.name}: {num_weights(work.config):,} weights on {found.system.name}, "
        f"prompts of {work.prompt:,} tokens, {work.new:,} new ones"
    )
    rows = [_HEADINGS, *(row for answer in found.answers for row in _rows(answer))]
    lines = [head, "", *_table(rows), ""]
    lines += [line for answer in found.answers for line in _smallest(answer)]
    lines += ["", "spread: replicas x stages x IPUs of a group. J/token: dynamic energy, guessed within its bounds;"]
    lines += ["rated: at the rated power of the IPUs. Bytes are those of the fullest IPU.", ""]
    lines += timeline(found.best)
    return "\n".join(lines)


def _rows(answer: SpreadRanking) -> Iterator[tuple[str, ...]]:
    work = answer.workload
    shown = list(dict.fromkeys(cost for cost in (answer.best, answer.smallest) if cost is not None))
    if not shown:
        lack = f"does not fit: {answer.misses[0].fullest.lacking:,} B short" if answer.misses else "does not fit"
        yield (f"{work.batch}", work.format, "–", lack, *[""] * (len(_HEADINGS) - 4))
    for cost in shown:
        full = cost.fullest
        first = cost.first_token_seconds
        yield (
            f"{work.batch}",
            work.format,
            f"{cost.plan.ipus}",
            _spread(cost),
            _rate(cost.tokens_per_second),
            _rate(1 / cost.step_seconds),
            "–" if first is None else amount_text(first, "s"),
            amount_text(cost.joules_per_token, "J"),
            amount_text(cost.rated_joules_per_token, "J"),
            *(amount_text(count, "B") for count in (full.weights, full.cache, full.temporaries)),
            f"{full.fullest / full.available:.0%}",
            BINDS[cost.binds],
        )


def _spread(cost: DecodeCost) -> str:
    plan = cost.plan
    where = " streamed" if plan.streamed else ""
    where += ", cache too" if plan.cache_off_chip else ""
    return f"{plan.replicas} x {plan.stages} x {plan.group}{where}"


def _rate(rate: float) -> str:
    return f"{rate:,.0f}" if rate >= 100 else f"{rate:,.3g}"


def _table(rows: list[tuple[str, ...]]) -> list[str]:
    widths = [max(len(row[column]) for row in rows) for column in range(len(_HEADINGS))]
    left = {1, 3, len(_HEADINGS) - 1}

    def cell(column: int, text: str) -> str:
        return text.ljust(widths[column]) if column in left else text.rjust(widths[column])

    return ["  ".join(cell(c, text) for c, text in enumerate(row)).rstrip() for row in rows]


def _smallest(answer: SpreadRanking) -> Iterator[str]:
    work, least = answer.workload, answer.smallest
    who = f"batch {work.batch} in {work.format}"
    if least is None:
        yield f"{who}: nothing fits"
    else:
        how = ", weights from streaming memory" if least.plan.streamed else ""
        yield f"{who}: the smallest machine that holds it has {counted(least.plan.ipus, 'IPU')}{how}"


WIDTH = 60
"""Characters of a timeline."""


def timeline(cost: DecodeCost) -> list[str]:
    """A step as bars: what its time goes to, the longest first."""
    total = sum(cost.work.values())
    lines = [
        f"a step of batch {cost.workload.batch} in {cost.workload.format} over {_spread(cost)}: "
        f"{amount_text(cost.step_seconds, 's')}"
    ]
    begin = 0.0
    for name, seconds in sorted(cost.work.items(), key=lambda item: -item[1]):
        if seconds <= 0:
            continue
        start, end = round(WIDTH * begin / total), round(WIDTH * (begin + seconds) / total)
        bar = " " * start + "█" * max(1, end - start)
        lines.append(f"  {BINDS[name]:<30} {bar:<{WIDTH + 1}} {amount_text(seconds, 's'):>8} {seconds / total:4.0%}")
        begin += seconds
    return lines


def fit_dict(found: DecodeFit) -> dict[str, object]:
    """The answers as plain data; seconds, bytes and joules."""
    return {
        "model": found.name,
        "system": found.system.name,
        "answers": [
            {
                "batch": answer.workload.batch,
                "format": answer.workload.format,
                "prompt": answer.workload.prompt,
                "new": answer.workload.new,
                "fits": bool(answer.ranking),
                "best": None if answer.best is None else cost_dict(answer.best),
                "smallest": None if answer.smallest is None else cost_dict(answer.smallest),
                "misses": [cost_dict(cost) for cost in answer.misses],
            }
            for answer in found.answers
        ],
    }


def cost_dict(cost: DecodeCost) -> dict[str, object]:
    """A cost as plain data."""
    plan, full = cost.plan, cost.fullest
    return {
        "ipus": plan.ipus,
        "group": plan.group,
        "stages": plan.stages,
        "replicas": plan.replicas,
        "weights_streamed": plan.streamed,
        "cache_off_chip": plan.cache_off_chip,
        "step_s": cost.step_seconds,
        "tokens_per_s": cost.tokens_per_second,
        "tokens_per_s_each": 1 / cost.step_seconds,
        "first_token_s": cost.first_token_seconds,
        "joules_per_token": cost.joules_per_token,
        "rated_joules_per_token": cost.rated_joules_per_token,
        "binds": cost.binds,
        "work_s": dict(cost.work),
        "fullest_ipu": {
            "weights_bytes": full.weights,
            "cache_bytes": full.cache,
            "temporary_bytes": full.temporaries,
            "code_bytes": full.code,
            "fullest_tile_bytes": full.fullest,
            "available_tile_bytes": full.available,
            "lacking_tile_bytes": full.lacking,
        },
    }
