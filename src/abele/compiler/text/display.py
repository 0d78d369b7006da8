"""Views of an executable: one line, and a card for notebooks."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from abele import card
from abele.report.display import memory_line
from abele.report.text import seconds_text
from abele.words import counted, shortened

if TYPE_CHECKING:
    from abele.compiler.executable import Executable

_NAMED = 6
"""Programs that are named."""
_QUICK = 10_000
"""Steps up to which making the report takes no time worth naming."""


def executable_line(executable: Executable) -> str:
    """System, programs, steps and memory of an executable."""
    steps = counted(len(executable.steps), "step")
    return (
        f"Executable({executable.system.name}: {programs_text(executable.program_names)}, {steps}, "
        f"{_memory(executable)})"
    )


def programs_text(names: tuple[str, ...]) -> str:
    """Number of programs, and the names of the first."""
    listed = ", ".join(repr(shortened(name, 40)) for name in names[:_NAMED])
    more = f", … {len(names) - _NAMED:,} more" if len(names) > _NAMED else ""
    return f"{counted(len(names), 'program')} {listed}{more}"


def _memory(executable: Executable) -> str:
    return memory_line(executable.memory.total_bytes, executable.memory.available_bytes)


def executable_card(executable: Executable) -> str:
    """Executable as HTML: its programs with their steps and cycles, its memory, the time of compiling."""
    facts = [
        ("system", f"{executable.system.name} ({executable.system.title})"),
        ("memory", _memory(executable)),
        ("compiler took", seconds_text(sum(executable.compile_seconds.values()))),
    ]
    return card.card(
        "Executable", facts, card.table(("program", "steps", "cycles"), _programs(executable), right=(1, 2))
    )


def _programs(executable: Executable) -> list[tuple[str, ...]]:
    """Name, steps and cycles of the first programs; no cycles where finding them would take long."""
    steps = np.array([step.program for step in executable.steps], dtype=np.int64)
    quick, names = len(steps) <= _QUICK, executable.program_names
    shown = range(min(2 * _NAMED, len(names)))
    cycles = [f"{executable.cycles_of(i, executable.assumptions):,}" if quick else "see its report" for i in shown]
    rows: list[tuple[str, ...]] = [(names[i], f"{int((steps == i).sum()):,}", cycles[i]) for i in shown]
    left = len(names) - len(rows)
    return [*rows, (f"… and {left:,} more", "", "")] if left else rows
