"""Remote buffers: streaming memory outside the chip."""

from __future__ import annotations

from dataclasses import dataclass

from abele.graph.debug import DebugRecord
from abele.numerics import ElementType


@dataclass(frozen=True, eq=False, slots=True)
class RemoteBuffer:
    """Rows of elements in streaming memory, outside the chip.

    Attributes:
        name: Handle by which the engine reads and writes it.
        dtype: Element type.
        num_elements: Elements of a row.
        repeats: Number of rows.
        debug: Source line at which the user made it.
    """

    name: str
    dtype: ElementType
    num_elements: int
    repeats: int
    debug: DebugRecord

    @property
    def bytes(self) -> int:
        """Bytes of all rows."""
        return self.num_elements * self.repeats * self.dtype.bytes

    def __repr__(self) -> str:
        return f"RemoteBuffer({self.name!r}, {self.dtype}[{self.repeats}, {self.num_elements}])"
