"""Memory of the tiles, category by category."""

from __future__ import annotations

from functools import cached_property

import numpy as np
import numpy.typing as npt

from abele.errors import InvalidOptionError
from abele.report.text_column import read_only

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


class Memory:
    """Bytes of each category on each tile, stored once for equal neighbouring tiles.

    Args:
        bytes: Bytes of each category, int64[categories, runs]: rows in the order of ``categories``, a column for each
            run of tiles.
        available_bytes: Bytes of one tile.
        categories: Names of the rows.
        run_tiles: Tiles of each run, int64[runs]; one tile each when left out.

    Raises:
        InvalidOptionError: ``bytes`` does not have one row per category, or one column per run.
    """

    def __init__(
        self,
        bytes: npt.NDArray[np.int64],
        available_bytes: int,
        categories: tuple[str, ...] = CATEGORIES,
        run_tiles: npt.NDArray[np.int64] | None = None,
    ) -> None:
        if bytes.ndim != 2 or len(bytes) != len(categories):
            raise InvalidOptionError(
                f"memory of shape {bytes.shape} does not have a row for each of {len(categories)} categories"
            )
        self.run_bytes = read_only(bytes)
        self.available_bytes = available_bytes
        self.categories = categories
        self.run_tiles = read_only(np.ones(bytes.shape[1], np.int64) if run_tiles is None else run_tiles)
        if len(self.run_tiles) != bytes.shape[1]:
            raise InvalidOptionError(f"memory of {bytes.shape[1]} runs with the tiles of {len(self.run_tiles)}")

    @classmethod
    def of(cls, num_tiles: int, available_bytes: int, **categories: npt.ArrayLike) -> Memory:
        """Memory with the named categories filled, each an int64[tiles] or one number for all tiles; others are 0.

        Raises:
            InvalidOptionError: A category is unknown.
        """
        unknown = [name for name in categories if name not in CATEGORIES]
        if unknown:
            raise InvalidOptionError(f"no memory category {unknown[0]!r}", remedy="one of " + ", ".join(CATEGORIES))
        given = {name: np.broadcast_to(np.asarray(values, np.int64), num_tiles) for name, values in categories.items()}
        differs = np.ones(num_tiles, dtype=bool)
        differs[1:] = False
        for values in given.values():
            differs[1:] |= values[1:] != values[:-1]
        begin = np.flatnonzero(differs)
        held = np.zeros((len(CATEGORIES), len(begin)), np.int64)
        for name, values in given.items():
            held[CATEGORIES.index(name)] = values[begin]
        return cls(held, available_bytes, run_tiles=np.diff(np.append(begin, num_tiles)))

    @property
    def num_tiles(self) -> int:
        """Tiles described."""
        return int(self.run_tiles.sum())

    @cached_property
    def bytes(self) -> npt.NDArray[np.int64]:
        """Bytes of each category on each tile, int64[categories, tiles]."""
        return read_only(np.repeat(self.run_bytes, self.run_tiles, axis=1))

    @cached_property
    def by_tile(self) -> npt.NDArray[np.int64]:
        """Bytes on each tile, gaps included, int64[tiles]."""
        return read_only(np.repeat(self.run_bytes.sum(axis=0), self.run_tiles))

    @property
    def total_bytes(self) -> int:
        """Bytes on all tiles, gaps included."""
        return int(np.dot(self.run_bytes.sum(axis=0), self.run_tiles))

    @property
    def fullest_tile(self) -> int:
        """The tile with most bytes; the first of several."""
        fullest = int(np.argmax(self.run_bytes.sum(axis=0)))
        return int(self.run_tiles[:fullest].sum())

    @property
    def fits(self) -> bool:
        """True if every tile has room for its data."""
        return bool((self.run_bytes.sum(axis=0) <= self.available_bytes).all())

    def of_tile(self, tile: int) -> dict[str, int]:
        """Bytes by category on one tile.

        Raises:
            InvalidOptionError: There is no such tile.
        """
        if not 0 <= tile < self.num_tiles:
            raise InvalidOptionError(f"no tile {tile}", remedy=f"tiles are numbered 0 to {self.num_tiles - 1}")
        run = int(np.searchsorted(np.cumsum(self.run_tiles), tile, side="right"))
        return dict(zip(self.categories, self.run_bytes[:, run].tolist(), strict=True))

    def totals(self) -> dict[str, int]:
        """Bytes by category over all tiles."""
        return dict(zip(self.categories, (self.run_bytes @ self.run_tiles).tolist(), strict=True))
