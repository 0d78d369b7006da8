"""Sizes of the packed routine: its register tile, and the blocks that it packs for the caches."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

MAX_KEPT_BYTES = 1 << 22
"""Most bytes of a packed block that is kept for the next call: it comes from a shared cache, and is used in full."""


class Kept(IntEnum):
    """Operand that a call leaves packed for the next one: none, its columns, or its rows."""

    NOTHING = 0
    COLUMNS = 1
    ROWS = 2


@dataclass(frozen=True)
class Blocking:
    """Sizes of a packed product.

    Attributes:
        lanes: Of a vector of f32.
        rows: Of a register tile.
        vectors: Columns of a register tile, in vectors.
        depth: Summed elements in a slice.
        strip: Columns in a strip.
        block: Rows in a block of A.
        word: Neighbours along the summed dim in four bytes of packed memory: 2 of bf16 where an instruction multiplies
            pairs of them, else 1, in f32.
    """

    lanes: int
    rows: int
    vectors: int
    depth: int
    strip: int
    block: int
    word: int = 1

    @property
    def columns(self) -> int:
        """Of a register tile."""
        return self.lanes * self.vectors

    @property
    def masks(self) -> bool:
        """True if loads and stores of some lanes cost no more than whole ones: 16 lanes come with AVX-512's masks.

        AVX2's are microcode on some CPUs: 12 cycles and more for a store on AMD's Zen 2 and Zen 3.
        """
        return self.lanes >= 16

    @property
    def splits_vectors(self) -> bool:
        """True if an instruction multiplies by one lane of a vector, as Arm's do: elements of A are loaded by four."""
        return self.lanes == 4 and self.rows % self.lanes == 0

    @property
    def panel_elements(self) -> int:
        """Packed words of a block of A, in whole vectors.

        Behind each panel is room for a vector: whole vectors are stored at rows that are narrower.
        """
        return -(-self.block // self.rows) * (-(-self.rows * self.words(self.depth) // self.lanes) + 1) * self.lanes

    def all_panel_elements(self, depth: int, rows: int) -> int:
        """Packed words of ``rows`` rows over the whole of ``depth``, in whole lines."""
        slices = -(-depth // self.depth)
        words = self.words(-(-depth // slices))
        return -(-slices * -(-rows // self.rows) * (self.rows * words + self.lanes) // LINE_WORDS) * LINE_WORDS

    def words(self, depth: int) -> int:
        """Words of packed memory for ``depth`` summed elements."""
        return -(-depth // self.word)

    def can_keep(self, depth: int, extent: int) -> bool:
        """True if so many rows or columns over the whole of ``depth`` may be kept from call to call."""
        return 4 * self.words(depth) * extent <= MAX_KEPT_BYTES

    def work_bytes(self, shape: tuple[int, int, int], kept: Kept) -> int:
        """Bytes of working memory of calls over at most so many rows and columns, and so many summed elements."""
        rows, columns, depth = shape
        whole = -(-columns // self.columns) * self.columns
        # Columns of one slice, or of all slices where these are kept.
        deep = depth if kept == Kept.COLUMNS else min(depth, self.depth)
        panels = self.all_panel_elements(depth, rows) if kept == Kept.ROWS else self.panel_elements
        return 4 * (panels + self.words(deep) * whole)


LINE_WORDS = 16
"""Words of a line of the caches."""
GROUP = 8
"""Panels of A that are packed side by side where their rows lie next to each other: of f32 they fill whole lines of the
caches, of 64 bytes, so that each is read once."""
MAX_VECTORS = 4
"""Columns of the widest register tile that is looked at, in vectors."""
MAX_LOADS = 0.75
"""Loads per multiply-add of a register tile: CPUs do no more loads a cycle than multiply-adds, and others come in
between."""


def blocking(lanes: int, registers: int, near_bytes: int, own_bytes: int, word: int = 1) -> Blocking:
    """Sizes for a CPU.

    Args:
        lanes: Of a vector of f32.
        registers: Vector registers.
        near_bytes: First-level data cache.
        own_bytes: Second-level cache of a core.
        word: Neighbours along the summed dim in four bytes of packed memory.

    Example: 16 registers of 8 lanes make a tile of 6 × 16, 32 of 16 lanes 14 × 32, and Arm's 32 of 4 lanes 8 × 12.
    """
    rows, vectors = register_tile(lanes, registers)
    # Half of each cache: what is packed meets results and operands on their way.
    depth = max(32, near_bytes // 2 // (4 * rows) // 32 * 32)
    columns = lanes * vectors
    strip = max(columns, own_bytes // 2 // (4 * depth) // columns * columns)
    # As large as the strip: panels of A stream by once for each strip, which costs little from any cache.
    block = max(1, strip // (GROUP * rows)) * GROUP * rows
    return Blocking(lanes, rows, vectors, word * depth, strip=strip, block=block, word=word)


def register_tile(lanes: int, registers: int) -> tuple[int, int]:
    """Rows and vectors of the register tile that uses each loaded element most often.

    It has its accumulators in registers, beside a row of B and one element of A in all lanes. Where instructions
    multiply by one lane, four elements of A are loaded at once.
    """
    by_lane = lanes == 4 and registers == 32

    def tile(vectors: int) -> tuple[int, int]:
        if not by_lane:
            return (registers - vectors - 1) // vectors, vectors
        # Accumulators of four rows come with a register for their elements of A.
        return lanes * ((registers - vectors) // (lanes * vectors + 1)), vectors

    def loads(rows: int, vectors: int) -> float:
        return (vectors + (rows // lanes if by_lane else rows)) / (rows * vectors)

    def reuse(rows: int, vectors: int) -> float:
        return rows * vectors * lanes / (rows + vectors * lanes)

    tiles = [tile(vectors) for vectors in range(1, MAX_VECTORS + 1)]
    return max((t for t in tiles if loads(*t) <= MAX_LOADS), key=lambda t: (reuse(*t), t[1]))
