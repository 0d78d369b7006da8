"""What fills the tiles, category by category."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from abele.errors import InvalidOptionError

CATEGORIES = (
    "variables",
    "temporaries",
    "vertex_state",
    "vertex_code",
    "control_code",
    "exchange_code",
    "stacks",
    "stream_buffers",
    "gaps",
)
"""Always-live variables, overlaid temporaries at their peak, vertex fields and state, code, stacks, buffers, gaps."""


@dataclass(frozen=True, eq=False)
class Memory:
    """Bytes of each category on each tile.

    Attributes:
        bytes: int64[categories, tiles], rows in the order of ``categories``.
        available_bytes: What one tile has.
        categories: Names of the rows.

    Raises:
        InvalidOptionError: ``bytes`` does not have one row per category.
    """

    bytes: npt.NDArray[np.int64]
    available_bytes: int
    categories: tuple[str, ...] = CATEGORIES

    def __post_init__(self) -> None:
        if self.bytes.ndim != 2 or len(self.bytes) != len(self.categories):
            raise InvalidOptionError(
                f"memory of shape {self.bytes.shape} does not have a row for each of {len(self.categories)} categories"
            )

    @classmethod
    def of(cls, num_tiles: int, available_bytes: int, **categories: npt.ArrayLike) -> Memory:
        """Memory with the named categories filled, each an int64[tiles] or one number for all tiles; others are 0.

        Raises:
            InvalidOptionError: A category is unknown.
        """
        unknown = [name for name in categories if name not in CATEGORIES]
        if unknown:
            raise InvalidOptionError(f"no memory category {unknown[0]!r}", remedy="one of " + ", ".join(CATEGORIES))
        bytes_ = np.zeros((len(CATEGORIES), num_tiles), np.int64)
        for name, values in categories.items():
            bytes_[CATEGORIES.index(name)] = values
        return cls(bytes_, available_bytes)

    @property
    def num_tiles(self) -> int:
        """Tiles described."""
        return int(self.bytes.shape[1])

    @property
    def by_tile(self) -> npt.NDArray[np.int64]:
        """Bytes on each tile, gaps included, int64[tiles]."""
        total: npt.NDArray[np.int64] = self.bytes.sum(axis=0)
        return total

    @property
    def total_bytes(self) -> int:
        """Bytes on all tiles, gaps included."""
        return int(self.bytes.sum())

    @property
    def fullest_tile(self) -> int:
        """The tile with most bytes."""
        return int(np.argmax(self.by_tile))

    @property
    def fits(self) -> bool:
        """Whether every tile has room for what it holds."""
        return bool((self.by_tile <= self.available_bytes).all())

    def of_tile(self, tile: int) -> dict[str, int]:
        """Bytes by category on one tile."""
        return dict(zip(self.categories, self.bytes[:, tile].tolist(), strict=True))

    def totals(self) -> dict[str, int]:
        """Bytes by category over all tiles."""
        return dict(zip(self.categories, self.bytes.sum(axis=1).tolist(), strict=True))
