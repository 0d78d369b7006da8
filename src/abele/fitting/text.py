"""The outcome of fitting as text, as a card and as plain data."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from abele import card
from abele.fitting.fit import Fitted, miss_words
from abele.fitting.plan import Compilation, Ranked, Spreading, StatePlace, plan_dict, spread_words
from abele.words import counted

_SHOWN = 12
"""Plans of the ranking that are listed."""
_HEADINGS = ("", "IPUs x replicas", "micro-batch x acc.", "stages", "recompute", "state", "cycles", "samples/s", "tile")
_RIGHT = (0, 6, 7, 8)
_WAITS = 0.05
"""Largest part of the time that IPUs wait for the host without a word on IO tiles."""
_NEAR = 0.9
"""Part of the fullest tile up to which estimates of memory are near enough to say that a plan fits."""


def fitted_text(fitted: Fitted) -> str:
    """The ranking, what the best plan is made of, and why the others lost."""
    system, best = fitted.space.system, fitted.best
    unit = "update" if fitted.training else "run"
    lines = [
        f"{system.title}: the smallest part that holds the model is {counted(fitted.smallest, 'IPU')}",
        f"fastest: {plan_words(best.plan)}: {best.estimate.samples_per_second:,.0f} samples/s, "
        f"{best.estimate.cycles:,} cycles per {unit} of {best.plan.batch:,}",
        "",
        *_table([_HEADINGS, *(_row(n, r) for n, r in enumerate(fitted.ranking[:_SHOWN], 1))]),
    ]
    if any(_fullest(r) > _NEAR for r in fitted.ranking[:_SHOWN]):
        lines.append(
            f"  what fills more than {100 * _NEAR:.0f} % of a tile may not fit when it is compiled as a whole: --check"
        )
    waits = best.estimate.host_cycles / best.estimate.tick_cycles
    if waits > _WAITS and not best.plan.io_tiles and not best.plan.phases:
        lines.append(
            f"  IPUs of the fastest wait for the host {100 * waits:.0f} % of the time: IO tiles meet it meanwhile "
            "(--io-tiles 32, opts.TensorLocations.numIOTiles)"
        )
    if len(fitted.ranking) > _SHOWN:
        lines.append(f"  and {len(fitted.ranking) - _SHOWN:,} more that fit")
    lines += ["", "why the others are slower:"]
    lines += [f"  {n:>2}  {r.reason}" for n, r in enumerate(fitted.ranking[:_SHOWN], 1) if r.reason]
    if len(fitted.ranking) == 1:
        lines[-1] = "no other plan fits"
    if fitted.misses:
        lines += [
            "",
            "does not fit:",
            *(f"  {miss_words(m, fitted.chains[m.plan.model_size])}" for m in fitted.misses),
        ]
    if fitted.undivided:
        lines += ["", "does not divide the batch, or fill a pipeline: " + _undivided(fitted.undivided)]
    lines += ["", *_stages(fitted, best)]
    checked = [r for r in fitted.ranking if r.compiled is not None]
    if checked:
        lines += ["", "compiled as a whole:"]
        lines += [f"  {compared_words(r)}" for r in checked]
    return "\n".join(lines)


def plan_words(plan: Spreading) -> str:
    """A plan in one line."""
    parts = [f"{counted(plan.ipus, 'IPU')} to a replica", counted(plan.replicas, "replica")]
    if plan.group > 1:
        parts.append(f"of which {plan.group} compute a model together")
    parts.append(f"micro-batches of {plan.micro_batch}, {plan.accumulation:,} to an update")
    if plan.phases:
        parts.append(f"{counted(plan.stages, 'phase')}, between which their tensors are in streaming memory")
    elif plan.stages > 1:
        parts.append(f"{counted(plan.stages, 'stage')}" + (", the last on the first IPU" if plan.returns else ""))
        parts.append(f"recompute {plan.recompute.value}")
    if plan.spacings:
        kept = ", ".join(map(str, plan.checkpoints))
        parts.append(f"checkpoints where parts {kept} begin" if kept else "no checkpoints inside of stages")
    if plan.state != StatePlace.ON_CHIP and not plan.phases:
        parts.append(f"optimiser state {plan.state.value}")
    if plan.plans_smaller:
        parts.append(f"products with {_shares(plan)} of a tile's memory")
    if plan.turns:
        parts.append("forward and backward stages take turns")
    if plan.narrow_stash:
        parts.append("activations wait as 8-bit floats")
    if plan.waits_off_chip and not plan.phases:
        parts.append("activations wait in streaming memory")
    if plan.io_tiles:
        parts.append(f"{plan.io_tiles} IO tiles")
    if plan.shared_functions:
        parts.append("code of equal layers held once")
    return ", ".join(parts)


def _shares(plan: Spreading) -> str:
    """The shares of memory of products, as one or IPU by IPU."""
    if len(set(plan.proportions)) == 1:
        return f"{plan.proportions[0]:g}"
    named = dict.fromkeys(plan.proportions)
    ipus = {share: [str(i) for i, other in enumerate(plan.proportions) if other == share] for share in named}
    return " and ".join(f"{share:g} (IPU {', '.join(on)})" for share, on in ipus.items() if share is not None)


def _row(number: int, ranked: Ranked) -> tuple[str, ...]:
    plan, estimate = ranked.plan, ranked.estimate
    return (
        str(number),
        spread_words(plan.ipus, plan.replicas, plan.group),
        f"{plan.micro_batch} x {plan.accumulation:,}",
        _stages_words(plan),
        plan.recompute.value if plan.ipus > 1 else "-",
        plan.state.value,
        f"{estimate.cycles:,}",
        f"{estimate.samples_per_second:,.0f}",
        f"{100 * _fullest(ranked):.0f} %",
    )


def _stages_words(plan: Spreading) -> str:
    """Stages of a plan as a cell of the table."""
    if plan.phases:
        return counted(plan.stages, "phase")
    more = (("+", plan.returns), (" in turns", plan.turns), (" off chip", plan.waits_off_chip))
    return f"{plan.stages}{''.join(word for word, is_so in more if is_so)}"


def _fullest(ranked: Ranked) -> float:
    """The part of its memory that a plan needs of the fullest tile."""
    return max(ranked.estimate.ipu_bytes) / ranked.estimate.available_bytes


def _table(rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    cells = [
        [cell.rjust(w) if i in _RIGHT else cell.ljust(w) for i, (cell, w) in enumerate(zip(row, widths, strict=True))]
        for row in rows
    ]
    return ["  " + "  ".join(row).rstrip() for row in cells]


def _undivided(cases: Sequence[tuple[int, int, int]]) -> str:
    found = dict.fromkeys(f"{ipus} x {replicas} with {size}" for ipus, replicas, size in cases)
    return ", ".join(found)


def _stages(fitted: Fitted, ranked: Ranked) -> list[str]:
    """The stages of a plan, with their cycles and the fullest tile of their IPU."""
    plan, estimate = ranked.plan, ranked.estimate
    bounds = plan.bounds(len(fitted.chains[plan.model_size].segments))
    heading = ("phase" if plan.phases else "stage", "IPU", "parts", "begins at", "cycles", "fullest tile", "of it")
    rows: list[Sequence[str]] = [heading]
    for stage, ((begin, end), module) in enumerate(zip(bounds, fitted.modules(plan), strict=True)):
        ipu = plan.ipu_of(stage)
        held = estimate.ipu_bytes[ipu]
        rows.append(
            (
                str(stage),
                str(ipu),
                str(end - begin),
                module or ("the beginning" if stage == 0 else f"part {begin}"),
                f"{estimate.stage_cycles[stage]:,}",
                f"{held:,} B",
                f"{100 * held / estimate.available_bytes:.0f} %",
            )
        )
    shares = estimate.shares(plan)
    whole = sum(shares.values())
    spent = ", ".join(
        f"{name.replace('_', '-')} {100 * amount / whole:.1f} %"
        for name, amount in sorted(shares.items(), key=lambda s: -s[1])
        if amount >= 0.0005 * whole
    )
    return [f"the fastest, {heading[0]} by {heading[0]}:", *_table(rows), f"  time of its IPUs: {spent}"]


def compared_words(ranked: Ranked) -> str:
    """Estimate of a plan beside the result of compiling it whole, in words."""
    made, estimate = ranked.compiled, ranked.estimate
    assert made is not None
    if made.cycles is None:
        return f"{plan_words(ranked.plan)}: {made.problem}"
    off = estimate.cycles / made.cycles - 1
    memory = max(estimate.ipu_bytes) / max(made.ipu_bytes) - 1
    fits = "fits" if made.fits else f"does not fit: {max(made.ipu_bytes):,} B on the fullest tile"
    note = f" ({made.problem})" if made.problem else ""
    return (
        f"{made.cycles:,} cycles, estimated {estimate.cycles:,} ({100 * off:+.1f} %); fullest tile "
        f"{max(made.ipu_bytes):,} B, estimated {max(estimate.ipu_bytes):,} B ({100 * memory:+.1f} %); {fits}{note}"
    )


def fitted_card(fitted: Fitted) -> str:
    """A card for notebooks."""
    best = fitted.best
    facts = [
        ("machine", fitted.space.system.title),
        ("smallest part that holds the model", counted(fitted.smallest, "IPU")),
        ("fastest", plan_words(best.plan)),
        ("samples/s", f"{best.estimate.samples_per_second:,.0f}"),
    ]
    rows = [(*_row(n, r), r.reason) for n, r in enumerate(fitted.ranking[:_SHOWN], 1)]
    return card.card("Fit", facts, card.table((*_HEADINGS, "slower by"), rows, right=_RIGHT))


def ranked_dict(fitted: Fitted, ranked: Ranked) -> dict[str, Any]:
    """A plan of the ranking as plain data."""
    estimate = ranked.estimate
    return {
        **plan_dict(ranked.plan),
        "stage_modules": fitted.modules(ranked.plan),
        "cycles": estimate.cycles,
        "samples_per_second": estimate.samples_per_second,
        "stage_cycles": list(estimate.stage_cycles),
        "host_cycles": estimate.host_cycles,
        "exchange_cycles": estimate.exchange_cycles,
        "all_reduce_cycles": estimate.all_reduce_cycles,
        "update_cycles": estimate.update_cycles,
        "streaming_cycles": estimate.streaming_cycles,
        "ipu_bytes": list(estimate.ipu_bytes),
        "available_bytes": estimate.available_bytes,
        "reason": ranked.reason,
        "compiled": None if ranked.compiled is None else _compiled_dict(ranked.compiled),
    }


def _compiled_dict(made: Compilation) -> dict[str, Any]:
    return {
        "cycles": made.cycles,
        "ipu_bytes": list(made.ipu_bytes),
        "fits": made.fits,
        "problem": made.problem,
        "seconds": made.seconds,
    }


def fitted_dict(fitted: Fitted) -> dict[str, Any]:
    """Result of fitting as plain data."""
    return {
        "system": fitted.space.system.name,
        "batch": fitted.space.batch,
        "smallest_ipus": fitted.smallest,
        "ranking": [ranked_dict(fitted, r) for r in fitted.ranking],
        "misses": [
            {
                **plan_dict(m.plan),
                "stage": m.stage,
                "needed_bytes": m.needed_bytes,
                "available_bytes": m.available_bytes,
                "largest": m.largest,
                "parts": m.parts,
            }
            for m in fitted.misses
        ],
    }
