"""Regressions and gains in words: operations with other costs, and their parts; memory; the first change."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from abele.report.compare.model import CostChange, FirstChange, HeadlineFigure
from abele.report.compare.tables import Matched, Side, without_numbers
from abele.report.cycles import PARTS
from abele.report.energy import StepEnergy
from abele.report.text import bytes_text, category_text, count_text, percent_text
from abele.words import counted, visible

# Headline figures of reports beside each other.


def figures_of(sides: Sequence[Side]) -> tuple[HeadlineFigure, ...]:
    """Headline figures; those that no report has are left out."""
    made = []
    for name, title, unit, better, of in _FIGURES:
        values = tuple(of(side) for side in sides)
        if any(value is not None for value in values):
            made.append(HeadlineFigure(name, title, unit, better, values))
    return tuple(made)


def step_cycles(side: Side) -> float:
    """Cycles of one step of the program."""
    return float(side.report.cycles(side.program).total) / side.steps_per_run


def _part(name: str) -> Callable[[Side], float | None]:
    return lambda side: float(getattr(side.report.cycles(side.program), name)) / side.steps_per_run


def _count(name: str) -> Callable[[Side], float | None]:
    def found(side: Side) -> float | None:
        value = side.report.graph.get(name)
        return None if value is None else float(value)

    return found


def _rate(side: Side) -> float | None:
    return side.report.samples_per_second if side.program == 0 else None


def _balance(side: Side) -> float | None:
    return side.report.tile_balance if side.program == 0 else None


def _fullest(side: Side) -> float | None:
    memory = side.report.memory
    return float(memory.by_tile.max()) if memory.num_tiles else None


def _left(side: Side) -> float | None:
    fullest = _fullest(side)
    return None if fullest is None else side.report.memory.available_bytes - fullest


def _too_full(side: Side) -> float | None:
    memory = side.report.memory
    return float((memory.by_tile > memory.available_bytes).sum())


def _host_seconds(side: Side) -> float | None:
    runs = side.report.runs.where("program", side.program)
    return float(np.median(runs["wall_seconds"])) if len(runs) else None


def _energy(side: Side) -> StepEnergy | None:
    found = side.report.energy if side.program == 0 else None
    return found if found is not None and found.terms else None


def _joules(side: Side) -> float | None:
    found = _energy(side)
    return None if found is None else found.joules.likely


def _joules_per_sample(side: Side) -> float | None:
    found = _energy(side)
    each = None if found is None else found.joules_per_sample
    return None if each is None else each.likely


def _compiling(side: Side) -> float | None:
    seconds = side.report.meta.get("compile_seconds")
    return float(seconds) if isinstance(seconds, int | float) else None


_FIGURES: tuple[tuple[str, str, str, str, Callable[[Side], float | None]], ...] = (
    ("step_cycles", "cycles of one step", "cycles", "less", step_cycles),
    ("step_seconds", "time of one step", "seconds", "less", lambda side: side.report.seconds(step_cycles(side))),
    *((f"{part}_cycles", f"of these {category_text(part)}", "cycles", "less", _part(part)) for part in PARTS),
    ("hidden_cycles", "overlapping", "cycles", "more", _part("hidden")),
    ("samples_per_second", "throughput", "samples/s", "more", _rate),
    ("step_joules", "energy of one step", "joules", "less", _joules),
    ("sample_joules", "energy of a sample", "joules", "less", _joules_per_sample),
    ("tile_balance", "tile balance", "proportion", "more", _balance),
    ("fullest_tile_bytes", "fullest tile", "bytes", "less", _fullest),
    ("headroom_bytes", "left on it", "bytes", "more", _left),
    ("total_bytes", "all tiles", "bytes", "less", lambda side: float(side.report.memory.total_bytes)),
    ("tiles_too_full", "tiles too full", "count", "less", _too_full),
    ("num_variables", "variables", "count", "", _count("num_variables")),
    ("num_compute_sets", "compute sets", "count", "", _count("num_compute_sets")),
    ("num_vertices", "vertices", "count", "", _count("num_vertices")),
    ("num_steps", "steps", "count", "", _count("num_steps")),
    ("compile_seconds", "compiling", "seconds", "less", _compiling),
    ("host_seconds", "a run on this host", "seconds", "less", _host_seconds),
)
"""Name, title, unit, better direction, and the figure of one report."""


_WORTH = 0.002
"""Part of a step's cycles above which an operation's change is listed."""
_LOOKED_AT = 128
"""Most operations that are examined: those that changed most."""
_CHANGED_BALANCE = 0.02


def signed(value: float) -> str:
    """A difference with its sign."""
    return f"{'+' if value >= 0 else '−'}{count_text(abs(value))}"


def proportion_text(before: float, after: float) -> str:
    """Difference as part of the value before, in parentheses; empty where that was 0."""
    if not before:
        return ""
    share = (after - before) / before
    return f" ({'+' if share >= 0 else '−'}{percent_text(abs(share))})"


def op_changes(matched: Matched, sides: list[Side], report: int, most: int) -> list[CostChange]:
    """The operations whose cycles changed most from the first report to another one.

    Operations of one name that one line made, and that all changed alike, are one change.
    """
    before, after = (np.nan_to_num(matched.column("cycles")[:, n]) for n in (0, report))
    change = after - before
    least = max(_WORTH * max(step_cycles(sides[0]), step_cycles(sides[report])), 0.5)
    order = np.argsort(-np.abs(change), kind="stable")[:_LOOKED_AT]
    alike: dict[Any, list[CostChange]] = {}
    for thing in order[np.abs(change[order]) > 0].tolist():
        found = _op_change(matched, sides, report, thing)
        alike.setdefault((found.kind, found.title, found.where, min(found.ops) < 0), []).append(found)
    joined = [_joined(changes) for changes in alike.values()]
    joined.sort(key=lambda found: -abs(found.difference))
    return [found for found in joined[:most] if abs(found.difference) >= least]


def _joined(changes: list[CostChange]) -> CostChange:
    """Changes of operations that one line made, as one: called after the largest."""
    first = changes[0]
    if len(changes) == 1:
        return first
    before, after = (sum(getattr(change, name) for change in changes) for name in ("before", "after"))
    figures = f"{signed(after - before)} cycles{proportion_text(before, after)}"
    if first.ops[0] < 0:
        reason = f"{figures}: they are new"
    elif first.ops[1] < 0:
        reason = f"{figures}: they are gone"
    else:
        reason = f"{figures}; of these {first.reason}"
    title = f"{first.title} and {len(changes) - 1:,} more"
    return replace(first, title=title, reason=reason, before=before, after=after)


def _op_change(matched: Matched, sides: list[Side], report: int, thing: int) -> CostChange:
    rows = [int(matched.rows[thing, n]) for n in (0, report)]
    own = [int(matched.numbers[n][row]) if row >= 0 else -1 for n, row in zip((0, report), rows, strict=True)]
    shown = 1 if own[1] >= 0 else 0
    side = sides[report] if shown else sides[0]
    values = [
        None if row < 0 else {name: float(each[row]) for name, each in matched.values[n].items()}
        for n, row in zip((0, report), rows, strict=True)
    ]
    before, after = (0.0 if found is None else found["cycles"] for found in values)
    figures = f"{signed(after - before)} cycles{proportion_text(before, after)}"
    if values[0] is None:
        reason = f"{figures}: it is new"
    elif values[1] is None:
        reason = f"{figures}: it is gone"
    else:
        reason = ", ".join([figures, *_reasons(values[0], values[1])])
    return CostChange(
        kind="regression" if after > before else "gain",
        report=report,
        title=side.steps.title_of(own[shown], -1),
        reason=reason,
        before=before,
        after=after,
        where=side.steps.place_of(own[shown]),
        ops=(own[0], own[1]),
    )


def overlap_change(sides: list[Side], report: int) -> CostChange | None:
    """Change in the work that sync groups do at the same time; None where it does not matter."""
    cycles = [sides[n].report.cycles(sides[n].program) for n in (0, report)]
    hidden = [float(each.hidden) / sides[n].steps_per_run for each, n in zip(cycles, (0, report), strict=True)]
    less = hidden[0] - hidden[1]
    if abs(less) < max(_WORTH * step_cycles(sides[0]), 0.5):
        return None
    return CostChange(
        kind="regression" if less > 0 else "gain",
        report=report,
        title="overlap of sync groups",
        reason=f"{signed(less)} cycles: {count_text(hidden[1])} are hidden instead of {count_text(hidden[0])}",
        before=step_cycles(sides[0]),
        after=step_cycles(sides[0]) + less,
    )


def _reasons(before: dict[str, float], after: dict[str, float]) -> Iterator[str]:
    """Parts in which an operation changed, the largest first."""
    if before["executions"] != after["executions"]:
        times = [count_text(found["executions"]) for found in (before, after)]
        yield f"it is executed {times[1]} times instead of {times[0]}"
    change = {part: after[f"{part}_cycles"] - before[f"{part}_cycles"] for part in PARTS}
    largest = max(change, key=lambda part: abs(change[part]))
    if change[largest]:
        yield f"{category_text(largest)} {signed(change[largest])}"
    if abs(after["tile_balance"] - before["tile_balance"]) >= _CHANGED_BALANCE:
        verb = "fell" if after["tile_balance"] < before["tile_balance"] else "rose"
        yield f"its tile balance {verb} from {before['tile_balance']:.2f} to {after['tile_balance']:.2f}"
    if before["active_tiles"] != after["active_tiles"]:
        tiles = [int(found["active_tiles"]) for found in (before, after)]
        yield f"it computes on {counted(tiles[1], 'tile')} instead of {tiles[0]:,}"
    if before["flops"] != after["flops"]:
        yield f"it has {count_text(after['flops'])} operations instead of {count_text(before['flops'])}"
    if largest == "exchange" and before["exchanged_bytes"] != after["exchanged_bytes"]:
        moved = after["exchanged_bytes"] - before["exchanged_bytes"]
        yield f"it exchanges {signed(moved)} B{proportion_text(before['exchanged_bytes'], after['exchanged_bytes'])}"
    if before["supersteps"] != after["supersteps"]:
        yield f"{signed(after['supersteps'] - before['supersteps'])} barriers and launches"


def memory_change(sides: list[Side], memory: Matched, variables: Matched, report: int) -> CostChange | None:
    """Change of the fullest tile, and of its contents; None where there is none."""
    found = [sides[n].report.memory for n in (0, report)]
    if not all(each.num_tiles for each in found):
        return None
    before, after = (int(each.by_tile.max()) for each in found)
    if before == after and found[0].fits == found[1].fits:
        return None
    held = memory.column("fullest_tile_bytes")[:, [0, report]]
    held = np.nan_to_num(held)
    change = held[:, 1] - held[:, 0]
    most = int(np.argmax(np.abs(change))) if len(change) else -1
    parts = [f"{signed(after - before)} B{proportion_text(before, after)}"]
    if most >= 0 and change[most]:
        of = next(n for n in (0, report) if memory.rows[most, n] >= 0)
        category = memory.words[of][int(memory.rows[most, of])]
        parts.append(f"{visible(category_text(category))} {signed(float(change[most]))} B")
    grown = _grown(variables, report, grows=after >= before)
    if grown:
        parts.append(grown)
    if found[0].fits != found[1].fits:
        parts.append("it does not fit any more" if found[0].fits else "it fits now")
    return CostChange(
        kind="regression" if after > before else "gain",
        report=report,
        title="the fullest tile",
        reason=", ".join(parts),
        before=before,
        after=after,
        unit="bytes",
    )


def _grown(variables: Matched, report: int, *, grows: bool) -> str:
    """The variable whose largest share of a tile changed most, in the direction of the fullest tile."""
    if not len(variables.rows):
        return ""
    held = np.nan_to_num(variables.column("max_tile_bytes")[:, [0, report]])
    change = (held[:, 1] - held[:, 0]) * (1 if grows else -1)
    at = int(np.argmax(change))
    if change[at] <= 0:
        return ""
    of = next(n for n in (0, report) if variables.rows[at, n] >= 0)
    name = variables.words[of][int(variables.rows[at, of])].split("\x1f")[0]
    figures = f"from {bytes_text(float(held[at, 0]))} to {bytes_text(float(held[at, 1]))} on a tile"
    return f"{visible(name)} {figures}"


_COMPARED = ("executions", *(f"{part}_cycles" for part in PARTS), "exchanged_bytes", "num_vertices", "active_tiles")


def first_change(sides: list[Side], report: int) -> FirstChange | None:
    """The first step in program order in which a report differs from the first one; None where none does."""
    first, other = sides[0], sides[report]
    names = [side.step_words for side in (first, other)]
    least = min(len(names[0]), len(names[1]))
    called = np.array([a == b for a, b in zip(*names, strict=False)], dtype=bool)
    for place in np.flatnonzero(~called).tolist():
        one, two = without_numbers([names[0][place], names[1][place]])
        if one != two:
            break
        called[place] = True
    same = called.copy()
    for name in _COMPARED:
        same &= first.steps.column(name)[:least] == other.steps.column(name)[:least]
    at = int(np.argmin(same)) if not same.all() else least
    if at == len(names[0]) == len(names[1]):
        return None
    if at < least and called[at]:
        return _changed_at(first, other, report, at)
    return _moved_at(first, other, report, at, names)


def _changed_at(first: Side, other: Side, report: int, at: int) -> FirstChange:
    changed = []
    for name in _COMPARED:
        before, after = (side.steps.column(name)[at] for side in (first, other))
        if before != after:
            changed.append(f"{name.replace('num_', '').replace('_', ' ')} {before:,} → {after:,}")
    return _first(other, report, (int(first.steps.rows[at]), int(other.steps.rows[at])), at, ", ".join(changed))


def _moved_at(first: Side, other: Side, report: int, at: int, names: list[list[str]]) -> FirstChange:
    """First step of another name: it comes later in the other report, or not at all."""
    later = [without_numbers(each[at:]) for each in names]
    here, there = (each[0] if each else None for each in later)
    added = there is not None and (here is None or here in later[1][1:])
    removed = here is not None and (there is None or there in later[0][1:])
    rows = [int(side.steps.rows[at]) if at < len(side.steps.rows) else -1 for side in (first, other)]
    if added and not removed:
        return _first(other, report, (-1, rows[1]), at, "it is new here")
    if removed and not added:
        return _first(first, report, (rows[0], -1), at, "it is gone")
    before = visible(str(first.steps.column("name")[at])) if at < len(names[0]) else "the end"
    side = other if rows[1] >= 0 else first
    return _first(side, report, (rows[0], rows[1]), at, f"it is there instead of {before}")


def _first(side: Side, report: int, rows: tuple[int, int], at: int, what: str) -> FirstChange:
    title = visible(str(side.steps.column("name")[at]))
    return FirstChange(report, rows, title, what, side.steps.place_of(int(side.steps.op[at])))
