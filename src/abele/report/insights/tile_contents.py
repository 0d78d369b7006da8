"""Contents of the fullest tile when it is fullest."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from abele.arrays import Int64
from abele.report.insights.model import FullestTile
from abele.report.insights.program_steps import text_at
from abele.words import visible

if TYPE_CHECKING:
    from abele.report.report import Report

_LISTED = 8


@dataclass(frozen=True, eq=False)
class TileContents:
    """Contents of one tile.

    Attributes:
        report: The report.
        tile: The tile.
    """

    report: Report
    tile: int

    @cached_property
    def _held(self) -> tuple[Int64, Int64]:
        """Rows of variables that lie on the tile, and the bytes of each, int64[n]."""
        table = self.report.variable_tiles
        first = table["first_tile"]
        here = np.flatnonzero((first <= self.tile) & (self.tile < first + table["num_tiles"]))
        return table["variable"][here].astype(np.int64), table["padded_bytes"][here].astype(np.int64)

    @cached_property
    def peak_step(self) -> int:
        """Row of the step at which temporary data take most of the tile; -1 for none."""
        report, steps = self.report, len(self.report.steps)
        if not steps:
            return -1
        held = np.zeros(len(report.variables), dtype=np.int64)
        np.add.at(held, *self._held)
        life = report.lifetimes
        first, last = life["first_step"].astype(np.int64), life["last_step"].astype(np.int64)
        sizes = held[life["variable"]]
        change = np.zeros(steps + 1, dtype=np.int64)
        np.add.at(change, first, sizes)
        np.subtract.at(change, np.maximum(last, first) + 1, sizes)
        sent, begin, end = self._sent
        np.subtract.at(change, begin, held[sent])
        np.add.at(change, end + 1, held[sent])
        live = np.cumsum(change[:-1])
        live = live + self._in_motion[np.clip(report.steps["superstep"], -1, len(self._in_motion) - 2)]
        return int(np.argmax(live)) if live.any() else -1

    @cached_property
    def _sent(self) -> tuple[Int64, Int64, Int64]:
        """Variables that are dead on the tile before the last step of a life ends, and first and last row of that."""
        table = self.report.sent_tiles
        first = table["first_tile"]
        here = np.flatnonzero((first <= self.tile) & (self.tile < first + table["num_tiles"]))
        variable, begin, end = (table[name][here].astype(np.int64) for name in ("variable", "first_step", "last_step"))
        return variable, begin, end

    @cached_property
    def _in_motion(self) -> Int64:
        """Bytes in motion on the tile by superstep, and 0 at the end for steps without one, int64[supersteps + 1]."""
        table = self.report.buffer_tiles
        size = int(max(self.report.steps["superstep"].max(initial=-1), table["superstep"].max(initial=-1))) + 1
        found = np.zeros(size + 1, dtype=np.int64)
        first = table["first_tile"]
        here = (first <= self.tile) & (self.tile < first + table["num_tiles"])
        np.add.at(found, table["superstep"][here], table["bytes"][here])
        return found

    @cached_property
    def moving_bytes(self) -> int:
        """Bytes in motion on the tile at its peak."""
        if self.peak_step < 0:
            return 0
        superstep = int(self.report.steps["superstep"][self.peak_step])
        return int(self._in_motion[superstep]) if superstep >= 0 else 0

    @cached_property
    def variables(self) -> list[tuple[int, int]]:
        """Variables that lie there at the tile's peak, as (row, bytes), largest first."""
        rows, size = self._held
        life, peak = self.report.lifetimes, self.peak_step
        there = np.asarray(self.report.variables["always_live"], dtype=bool).copy()
        now = (life["first_step"] <= peak) & (peak <= life["last_step"])
        there[life["variable"][now]] = True
        sent, begin, end = self._sent
        there[sent[(begin <= peak) & (peak <= end)]] = False
        rows, size = rows[there[rows]], size[there[rows]]
        order = np.argsort(-size, kind="stable")
        return list(zip(rows[order].tolist(), size[order].tolist(), strict=True))


def fullest_tile(report: Report) -> FullestTile:
    """The fullest tile, and how full the others are."""
    memory = report.memory
    if not memory.num_tiles:
        return _no_tile(memory.available_bytes)
    by_tile, tile = memory.by_tile, memory.fullest_tile
    held = int(by_tile[tile])
    found = TileContents(report, tile)
    holds = [(visible(text_at(report.variables, "name", row)), size) for row, size in found.variables[:_LISTED]]
    if found.moving_bytes:
        holds.append(("data in motion", found.moving_bytes))
    categories = sorted(memory.of_tile(tile).items(), key=lambda item: -item[1])
    return FullestTile(
        fits=memory.fits,
        available_bytes=memory.available_bytes,
        tile=tile,
        bytes=held,
        headroom_bytes=memory.available_bytes - held,
        mean_bytes=int(by_tile.mean()),
        tiles_too_full=int((by_tile > memory.available_bytes).sum()),
        largest_excess_bytes=max(held - memory.available_bytes, 0),
        categories={name: size for name, size in categories if size},
        holds=tuple(sorted(holds, key=lambda item: -item[1])[:_LISTED]),
    )


def _no_tile(available_bytes: int) -> FullestTile:
    """The memory of a report without tiles."""
    return FullestTile(
        fits=True,
        available_bytes=available_bytes,
        tile=-1,
        bytes=0,
        headroom_bytes=available_bytes,
        mean_bytes=0,
        tiles_too_full=0,
        largest_excess_bytes=0,
        categories={},
        holds=(),
    )
