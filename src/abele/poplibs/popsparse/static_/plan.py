"""Plan of a static sparse product: bands of columns, parts of the dense columns, and what they are expected to cost.

The dense columns are cut into ``splits`` parts; each has its own tiles. The columns of the sparse matrix are cut into
``bands`` of about as many values, and the tiles of a part are dealt to them. A tile has the values of some rows of one
band; it reads the band's rows of its part of the dense matrix, and leaves partial sums of its rows. These are summed
over the bands where the rows of the result are made, and put in the order of the result.

All candidates are estimated at once, for the busiest band. Source of terms and limits: popsparse.md §6.

Example: 4,096 x 4,096 in halves, blocks of 16 at density 1/16, by 4,096 columns on Bow is cut into 30 parts of 140
columns and 4 bands of 64 blocks; each of 12 tiles of a band has 86 blocks.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from abele.arrays import Float64, Int64
from abele.errors import OutOfMemoryError
from abele.machine import Ipu
from abele.numerics import ElementType
from abele.poplibs.popsparse.float8 import result_type
from abele.poplibs.popsparse.static_ import costs
from abele.poplibs.popsparse.static_.costs import ceil_div
from abele.poplibs.popsparse.static_.params import StaticOptions

MOST_SPLITS, MOST_BANDS = 32, 128
TILE_GRAIN = 2
"""Largest numbers of parts and bands that are searched, and the factor of the tiles of a part."""
MOST_OFFSET = 65_535
"""Largest distance of a dense row in the list of a tile's values, in bytes; in units of 8 rows' sides for blocks."""


@dataclass(frozen=True)
class StaticShape:
    """A sparse product as the planner sees it.

    Attributes:
        rows: Block rows of the sparse matrix that have values enough to count.
        columns: Block columns, likewise.
        blocks: Held blocks.
        block: Side of a block.
        dense: Columns of the dense matrix.
        all_rows: Block rows, those that do not count included.
        dtype: Type of both operands; 8-bit floats of any format and scale are alike.
    """

    rows: int
    columns: int
    blocks: int
    block: int
    dense: int
    all_rows: int
    dtype: ElementType

    @property
    def density(self) -> float:
        """Share of the blocks that is held."""
        return min(1.0, self.blocks / max(self.rows * self.columns, 1))


@dataclass(frozen=True)
class StaticPlan:
    """The chosen split.

    Attributes:
        splits: Parts of the dense columns.
        bands: Bands of columns of the sparse matrix.
        columns: Dense columns of a part, but for the last.
        tiles: Tiles of a part.
        terms: Expected cycles by name.
        memory: Temporary bytes of the busiest tile, by name.
        available_bytes: Bytes that may be taken.
        sizes: Estimated sizes of the busiest tile, by name.
    """

    splits: int
    bands: int
    columns: int
    tiles: int
    terms: tuple[tuple[str, int], ...]
    memory: tuple[tuple[str, int], ...]
    available_bytes: int
    sizes: tuple[tuple[str, int], ...]

    @property
    def cycles(self) -> int:
        """Expected cycles."""
        return sum(cycles for _, cycles in self.terms)


def find_plan(shape: StaticShape, ipu: Ipu, options: StaticOptions) -> StaticPlan:
    """The split of the fewest expected cycles that fits.

    Raises:
        OutOfMemoryError: None fits, or not with the bands or parts that are given.
    """
    available = int(options.proportion * ipu.tile.usable_bytes)
    splits, bands = _candidates(shape, ipu, options)
    found = _Estimate(shape, ipu, splits, bands)
    fits = found.fits & (found.peak_bytes <= available)
    if not fits.any():
        raise _no_plan(shape, found, available, options, tile_bytes=ipu.tile.usable_bytes)
    best = int(np.argmin(np.where(fits, sum(found.terms.values()), np.inf)))

    def chosen(columns: dict[str, npt.NDArray[Any]]) -> tuple[tuple[str, int], ...]:
        return tuple((name, int(np.ceil(column[best]))) for name, column in columns.items())

    return StaticPlan(
        splits=int(ceil_div(shape.dense, found.columns[best])),
        bands=int(bands[best]),
        columns=int(found.columns[best]),
        tiles=int(found.tiles[best]),
        terms=chosen(found.terms),
        memory=chosen(found.memory),
        available_bytes=available,
        sizes=chosen(found.sizes),
    )


def _candidates(shape: StaticShape, ipu: Ipu, options: StaticOptions) -> tuple[Int64, Int64]:
    """Numbers of parts and of bands, int64[n] each."""
    grain = costs.GRAIN[shape.dtype.bits]
    most_splits = min(MOST_SPLITS, -(-shape.dense // grain))
    most_bands = min(MOST_BANDS, -(-max(shape.columns, 1) // grain))
    most_tiles = ipu.num_tiles // TILE_GRAIN
    tried = np.arange(1, most_splits + 1) if not options.splits else np.array([min(options.splits, shape.dense)])
    banded = (
        np.arange(1, most_bands + 1) if not options.bands else np.array([min(options.bands, max(shape.columns, 1))])
    )
    splits, bands = (grid.reshape(-1) for grid in np.meshgrid(tried, banded, indexing="ij"))
    allowed = splits * bands <= max(most_tiles, 1)
    if not allowed.any():
        allowed = splits * bands <= ipu.num_tiles
    return splits[allowed], bands[allowed]


class _Estimate:
    """Terms of all candidates; each is an array over them."""

    def __init__(self, shape: StaticShape, ipu: Ipu, splits: Int64, bands: Int64) -> None:
        grain, width, side = costs.GRAIN[shape.dtype.bits], shape.dtype.bytes, shape.block
        result = result_type(shape.dtype)
        rate, paired = ipu.exchange.bytes_per_cycle, ipu.exchange.pair_bytes_per_cycle
        self.columns = np.minimum(ceil_div(ceil_div(shape.dense, grain), splits) * grain, shape.dense)
        self.tiles = np.maximum(ipu.num_tiles // TILE_GRAIN // splits * TILE_GRAIN, 1)
        of_band = np.maximum(self.tiles // TILE_GRAIN // bands * TILE_GRAIN, 1)
        n, density = self.columns, shape.density
        band = ceil_div(shape.columns, bands)
        blocks = ceil_div(ceil_div(shape.blocks, bands), of_band)
        most_rows = ceil_div(shape.rows, of_band)
        rows_held = 1 - (1 - density) ** band
        rows = np.maximum(_likely(most_rows, rows_held), 1)
        needed = np.maximum(_likely(band, 1 - (1 - density) ** most_rows), 1)

        rhs = n * needed * side * width
        values = np.where(splits > 1, blocks * side * side * width, 0)
        out = rows * n * side * result.bytes
        depth = np.maximum(np.ceil(bands * rows_held + np.sqrt(bands * rows_held * (1 - rows_held))), 1)
        partials = out * (depth - 1) / depth
        per_row = ceil_div(blocks, rows)
        if side == 1:
            compute = costs.element_cycles(shape.dtype, ceil_div(rows, costs.WORKERS), np.maximum(per_row, 1), n)
        else:
            loads = rows * ceil_div(per_row, costs.AT_ONCE[shape.dtype.bits])
            compute = costs.block_cycles(shape.dtype, side, rows, loads, n)
        share = np.ceil(out / result.bytes / depth / costs.WORKERS)
        reduce = costs.WORKERS * costs.reduce_slots(result, share, depth)
        self.terms: dict[str, npt.NDArray[Any]] = {
            "dense rows in": n * band * side * width / paired,
            "values in": values / rate,
            "compute": compute,
            "partials out": partials / rate,
            "reduce": np.where(depth > 1, reduce, 0),
            "final move": np.full(len(n), np.ceil(shape.all_rows * side * shape.dense * result.bytes / ipu.num_tiles)),
        }
        # Either the operands and the partials of the products are there, or those that are sent and summed.
        self.peak_bytes = np.maximum(rhs + values + out, partials + out)
        self.memory: dict[str, npt.NDArray[Any]] = {
            "dense rows": rhs,
            "values": values,
            "partials": out,
            "peak": self.peak_bytes,
        }
        self.sizes: dict[str, npt.NDArray[Any]] = {
            "band": band,
            "tiles per band": of_band,
            "blocks": blocks,
            "block rows": rows,
            "depth": depth,
        }
        unit = 1 if side == 1 else 8 * side
        self.fits = band * side * n * width <= MOST_OFFSET * unit


def _likely(count: Int64, share: Any) -> Float64:
    """Expected number of ``count`` that are there, each with probability ``share``, and a standard deviation more."""
    likely = np.ceil(count * share) + np.ceil(np.sqrt(count * share * (1 - share)))
    return np.asarray(np.minimum(count, likely), np.float64)


def _no_plan(
    shape: StaticShape, found: _Estimate, available: int, options: StaticOptions, *, tile_bytes: int
) -> OutOfMemoryError:
    size = f"{shape.all_rows * shape.block:,} x {shape.columns * shape.block:,} by {shape.dense:,} columns"
    if not found.fits.any():
        return OutOfMemoryError(
            f"static sparse product {size}: no split keeps a tile's dense rows within {MOST_OFFSET:,} units",
            remedy="more bands, or fewer dense columns at a time",
        )
    best = int(np.argmin(np.where(found.fits, found.peak_bytes, np.inf)))
    parts = " · ".join(f"{name} {int(column[best]):,} B" for name, column in found.memory.items() if name != "peak")
    needs = int(found.peak_bytes[best])
    return OutOfMemoryError(
        f"static sparse product {size}: the smallest plan needs {needs:,} B of a tile, {available:,} B are allowed",
        because=f"{parts}, with density {shape.density:.3g} in blocks of {shape.block}",
        remedy=f"availableMemoryProportion {options.proportion:g} → {needs / tile_bytes:.2g}, or fewer dense columns",
    )
