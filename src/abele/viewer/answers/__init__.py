"""What the page may ask: importing this registers every question."""

from __future__ import annotations

from abele.viewer.answers import (
    compare,
    curves,
    exchange,
    facts,
    floor,
    graph,
    graph_tile,
    holdings,
    host,
    insights,
    liveness,
    matrix,
    memory,
    operations,
    overflow,
    program,
    selection,
    table,
    tile_steps,
    timeline,
)
from abele.viewer.answers.registry import QUESTIONS, Question, answer

__all__ = [
    "QUESTIONS",
    "Question",
    "answer",
    "compare",
    "curves",
    "exchange",
    "facts",
    "floor",
    "graph",
    "graph_tile",
    "holdings",
    "host",
    "insights",
    "liveness",
    "matrix",
    "memory",
    "operations",
    "overflow",
    "program",
    "selection",
    "table",
    "tile_steps",
    "timeline",
]
