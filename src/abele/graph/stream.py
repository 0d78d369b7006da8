"""Host streams: named ways in and out of the machine."""

from __future__ import annotations

from dataclasses import dataclass

from abele.graph.debug import DebugRecord
from abele.graph.variable import Shaped
from abele.numerics import ElementType


@dataclass(frozen=True, eq=False, slots=True)
class Stream(Shaped):
    """A host stream.

    Attributes:
        name: Handle by which the engine connects it.
        dtype: Element type.
        shape: Elements that one copy moves.
        direction: ``in`` (host to device) or ``out``.
        debug: Source line at which the user made it.
        replicated: True if each replica has data of its own; otherwise all are given the same.
        buffering_depth: Copies whose data the host may have ready; 1: fetched when the program asks.
    """

    name: str
    dtype: ElementType
    shape: tuple[int, ...]
    direction: str
    debug: DebugRecord
    replicated: bool = True
    buffering_depth: int = 1

    def __repr__(self) -> str:
        return f"Stream({self.name!r}, {self.direction}, {self.dtype}{list(self.shape)})"
