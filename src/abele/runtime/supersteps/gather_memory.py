"""Scratch memory of supersteps: data that exchange gathers for vertices of scattered regions."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from abele.runtime.memory.host_memory import ALIGNMENT, address_of, guarded_block

_CHUNK_BYTES = 1 << 20


class ScratchPool:
    """Memory that one superstep after the other uses; its contents live no longer than a superstep."""

    def __init__(self) -> None:
        self._chunks: list[npt.NDArray[np.uint8]] = []
        self._chunk = 0
        self._used = 0

    @property
    def bytes(self) -> int:
        """Memory held."""
        return sum(len(c) for c in self._chunks)

    def reset(self) -> None:
        """Begin the next superstep: all memory is free again."""
        self._chunk = self._used = 0

    def take(self, size: int) -> int:
        """Address of ``size`` free bytes, aligned to 64."""
        return address_of(self.block(size))

    def block(self, size: int) -> npt.NDArray[np.uint8]:
        """``size`` free bytes, aligned to 64."""
        size = -(-size // ALIGNMENT) * ALIGNMENT
        # Chunks are never moved or freed: tables hold addresses in them.
        while self._chunk < len(self._chunks) and self._used + size > len(self._chunks[self._chunk]):
            self._chunk, self._used = self._chunk + 1, 0
        if self._chunk == len(self._chunks):
            self._chunks.append(guarded_block(max(size, _CHUNK_BYTES)))
        found = self._chunks[self._chunk][self._used : self._used + size]
        self._used += size
        return found
