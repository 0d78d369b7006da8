"""What the page may ask: importing this registers every question."""

from __future__ import annotations

from abele.viewer.answers import (
    exchange,
    facts,
    graph,
    host,
    liveness,
    matrix,
    memory,
    operations,
    program,
    table,
    timeline,
)
from abele.viewer.answers.registry import QUESTIONS, Question, answer

__all__ = [
    "QUESTIONS",
    "Question",
    "answer",
    "exchange",
    "facts",
    "graph",
    "host",
    "liveness",
    "matrix",
    "memory",
    "operations",
    "program",
    "table",
    "timeline",
]
