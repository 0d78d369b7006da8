"""Views of an engine: one line, and a card for notebooks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from abele import card
from abele.compiler.text.display import programs_text
from abele.words import counted

if TYPE_CHECKING:
    from abele.runtime.engine.engine import Engine

_STREAMS = 12
"""Streams that the card lists."""


def engine_line(engine: Engine) -> str:
    """System, programs, mode, threads and state of an engine."""
    names = engine.executable.program_names
    return f"Engine({engine.executable.system.name}: {programs_text(names)}; {_way(engine)}, {engine.state})"


def _way(engine: Engine) -> str:
    checks = ", with checks" if engine.checks.any else ""
    return f"mode {engine.mode}, {counted(engine.threads, 'thread')}{checks}"


def engine_card(engine: Engine) -> str:
    """Engine as HTML: its mode, its runs, and its streams."""
    facts = [
        ("system", f"{engine.executable.system.name} ({engine.executable.system.title})"),
        ("programs", programs_text(engine.executable.program_names)),
        ("runs in", _way(engine)),
        ("state", engine.state),
    ]
    streams = list(engine.graph.streams.values())
    rows = [(s.name, s.direction, f"{s.dtype}{list(s.shape)}") for s in streams[:_STREAMS]]
    if len(streams) > _STREAMS:
        rows.append((f"… and {len(streams) - _STREAMS:,} more", "", ""))
    return card.card("Engine", facts, *([card.table(("stream", "direction", "type"), rows)] if rows else []))
