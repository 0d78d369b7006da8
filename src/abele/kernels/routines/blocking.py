"""Sizes of the packed routine: its register tile, and the blocks that it packs for the caches."""

from __future__ import annotations

from dataclasses import dataclass

MAX_KEPT_BYTES = 1 << 22
"""Most bytes of a packed block that is kept for the next call: it comes from a shared cache, and is used in full."""


@dataclass(frozen=True)
class Blocking:
    """Sizes of a packed product.

    Attributes:
        lanes: Of a vector of f32.
        rows: Of a register tile.
        vectors: Columns of a register tile, in vectors.
        depth: Summed elements in a slice.
        strip: Columns in a strip.
        word: Neighbours along the summed dim in four bytes of packed memory: 2 of bf16 where an instruction multiplies
            pairs of them, else 1, in f32.
    """

    lanes: int
    rows: int
    vectors: int
    depth: int
    strip: int
    word: int = 1

    @property
    def columns(self) -> int:
        """Of a register tile."""
        return self.lanes * self.vectors

    @property
    def panel_elements(self) -> int:
        """Packed words of A, in whole vectors."""
        return -(-self.rows * self.words(self.depth) // self.lanes) * self.lanes

    def words(self, depth: int) -> int:
        """Words of packed memory for ``depth`` summed elements."""
        return -(-depth // self.word)

    def keeps(self, depth: int, columns: int) -> bool:
        """True if the packed block of ``columns`` columns over the whole of ``depth`` is kept from call to call."""
        return 4 * self.words(depth) * columns <= MAX_KEPT_BYTES

    def work_bytes(self, depth: int, columns: int) -> int:
        """Bytes of working memory of calls over ``depth`` summed elements and at most ``columns`` columns."""
        whole = -(-columns // self.columns) * self.columns
        is_kept = self.keeps(depth, columns)
        kept = self.words(depth) * whole if is_kept else self.strip * self.words(self.depth)
        return 4 * (self.panel_elements + kept)


def blocking(lanes: int, registers: int, near_bytes: int, own_bytes: int, word: int = 1) -> Blocking:
    """Sizes for a CPU.

    Args:
        lanes: Of a vector of f32.
        registers: Vector registers.
        near_bytes: First-level data cache.
        own_bytes: Second-level cache of a core.
        word: Neighbours along the summed dim in four bytes of packed memory.
    """
    vectors = 2
    # A tile's accumulators, a row of B and one element of A in all lanes.
    rows = (registers - vectors - 1) // vectors
    # Half of each cache: what is packed meets results and operands on their way.
    depth = max(32, near_bytes // 2 // (4 * rows) // 32 * 32)
    columns = lanes * vectors
    strip = max(columns, own_bytes // 2 // (4 * depth) // columns * columns)
    return Blocking(lanes, rows, vectors, word * depth, strip, word)
