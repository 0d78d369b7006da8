"""Headline figures of reports beside each other."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from abele.report.compare.model import HeadlineFigure
from abele.report.compare.tables import Side
from abele.report.cycles import PARTS
from abele.report.energy import StepEnergy
from abele.report.text import category_text


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
