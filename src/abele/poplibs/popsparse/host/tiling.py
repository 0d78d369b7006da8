"""Sizes of register tiles, and the panels of columns that they go over.

Panels are at most as wide as a register tile. Columns that fill no panel are one of their own, as wide as
whole vectors; below one vector its width is a power of two.

Example: 37 columns are a panel of 48, of which 11 are not there; 100 are one of 64 and one of 48; 4 are one of 4.
"""

from __future__ import annotations

from typing import NamedTuple

from abele.llvm.host import host_cpu

VECTOR = 16
"""Columns that the last panel is a multiple of, unless it has fewer: a vector of 512 bits, or two of 256."""
MOST_STRIDE = 128
"""Columns of a row up to which a panel may lie in it as it is. Rows of more, and most of all those a power of two
apart, meet in few sets of the caches: 256 rows of 1,024 columns are in four sets of a first-level cache of 64."""


class Panels(NamedTuple):
    """Panels of a dense matrix's columns.

    Attributes:
        width: Columns of a panel.
        whole: Panels of that width.
        rest: Columns of the one after them, with those that are not there; 0 for none.
        there: Its columns that are there.
    """

    width: int
    whole: int
    rest: int
    there: int

    @property
    def columns(self) -> int:
        """Columns of all panels."""
        return self.width * self.whole + self.rest


def tile_rows(height: int, depth: int = 1, width: int = VECTOR, row_step: int = 1) -> int:
    """Rows of a register tile.

    Rows of fewer columns than half a vector are put together in one, for which their numbers are brought together
    first. Those of a block's column lie apart where its rows are stored; of eight rows and many columns that takes more
    time than it saves.

    Args:
        height: Rows of a block.
        depth: Its columns.
        width: Columns of a panel.
        row_step: Distance of a block's rows in its values.
    """
    most = 4 if width * 2 < VECTOR and row_step > 1 and depth > 8 else 8
    return next(rows for rows in (8, 4, 2, 1) if rows <= most and height % rows == 0)


def tile_width(rows: int) -> int:
    """Columns of a register tile with so many rows, at most."""
    wide = host_cpu().vector_bytes >= 64
    return {1: 64, 2: 64, 4: 64, 8: 32}[rows] if wide else {1: 64, 2: 32, 4: 16, 8: 8}[rows]


def tile_sets(rows: int, width: int) -> int:
    """Tiles between which blocks take turns: about four vectors at once, or eight."""
    lanes = host_cpu().vector_bytes // 4
    vectors = rows * -(-width // lanes)
    if rows == 1:
        return 4 if width <= 4 else 2 if vectors <= 3 else 1
    return 4 if rows == 4 and width < lanes else 2 if vectors <= 4 else 1


def panels_of(columns: int, most: int) -> Panels:
    """Panels of so many columns, up to ``most`` wide."""
    whole, there = divmod(columns, most)
    rest = whole_vectors(there)
    if not whole:
        return Panels(rest, 0, rest, there) if rest != there else Panels(rest, 1, 0, 0)
    return Panels(most, whole, rest, there)


def whole_vectors(columns: int) -> int:
    """Columns rounded up to vectors, or to a power of two below one."""
    if columns > VECTOR:
        return -(-columns // VECTOR) * VECTOR
    return 1 << (columns - 1).bit_length() if columns else 0
