"""Remote buffers: streaming memory outside the chip."""

from __future__ import annotations

from dataclasses import dataclass

from abele.graph.debug import DebugInfo
from abele.numerics import ElementType


@dataclass(frozen=True, eq=False, slots=True)
class RemoteBuffer:
    """Rows of elements in streaming memory, outside the chip.

    Attributes:
        name: Handle by which the engine reads and writes it.
        dtype: Element type.
        num_elements: Elements of a row.
        repeats: Number of rows.
        debug: Where the user made it.
    """

    name: str
    dtype: ElementType
    num_elements: int
    repeats: int
    debug: DebugInfo

    def handle(self) -> str:
        """Poplar's name for :attr:`name`."""
        return self.name

    def numElements(self) -> int:
        """Poplar's name for :attr:`num_elements`."""
        return self.num_elements

    def elementType(self) -> ElementType:
        """Poplar's name for :attr:`dtype`."""
        return self.dtype

    def getRepeats(self) -> int:
        """Poplar's name for :attr:`repeats`."""
        return self.repeats

    def isRearrangeOnHost(self) -> bool:
        """Whether the host rearranges what is copied: never."""
        return False

    @property
    def bytes(self) -> int:
        """Bytes of all rows."""
        return self.num_elements * self.repeats * self.dtype.bytes

    def __repr__(self) -> str:
        return f"RemoteBuffer({self.name!r}, {self.dtype}[{self.repeats}, {self.num_elements}])"
