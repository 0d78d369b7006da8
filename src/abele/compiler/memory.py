"""Memory: what every tile has to hold, by category, and when it holds most."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from abele.compiler.layout import Layout
from abele.compiler.liveness import Liveness
from abele.compiler.memory_elements import Placement
from abele.compiler.tile_vector import TileVector, sum_by_tile
from abele.graph.intervals import Int64
from abele.graph.mapping import Int32
from abele.machine import System
from abele.report import CATEGORIES

CODE_CATEGORIES = ("vertex_code", "exchange_code", "control_code")


@dataclass(frozen=True, eq=False, slots=True)
class Shares:
    """How much of each variable each tile holds.

    Attributes:
        ptr: Shares of variable v are ``ptr[v]`` to ``ptr[v + 1]``, int64[variables + 1].
        tile: Tile of each share, int32[k]; ascending within a variable.
        bytes: Bytes of each share, int64[k].
        padded_bytes: The same with what alignment adds, int64[k].
    """

    ptr: Int64
    tile: Int32
    bytes: Int64
    padded_bytes: Int64

    @staticmethod
    def of(layout: Layout, alignment_bytes: int) -> Shares:
        """The shares under a layout."""
        mapped = layout.tile >= 0
        owner = layout.variables_at(layout.begin[mapped])
        key = owner * layout.num_tiles + layout.tile[mapped]
        size = (layout.end - layout.begin)[mapped] * layout.width[owner]
        order = np.argsort(key, kind="stable")
        key = key[order]
        first = np.flatnonzero(np.append(True, key[1:] != key[:-1])[: len(key)])
        unique, total = key[first], np.add.reduceat(size[order], first) if len(first) else size
        ptr = np.searchsorted(unique, np.arange(len(layout.base) + 1) * layout.num_tiles)
        tile = (unique % layout.num_tiles).astype(np.int32)
        return Shares(ptr.astype(np.int64), tile, total, -(-total // alignment_bytes) * alignment_bytes)

    def of_variable(self, number: int) -> slice:
        """Where the shares of a variable are."""
        return slice(int(self.ptr[number]), int(self.ptr[number + 1]))

    @property
    def variable(self) -> Int64:
        """Variable of each share, int64[k]."""
        return np.repeat(np.arange(len(self.ptr) - 1), np.diff(self.ptr))


@dataclass(eq=False)
class MemoryPlan:
    """The memory of every tile.

    Attributes:
        by_category: Bytes on each tile, int64[tiles], for each of the report's categories;
            ``temporaries`` is the tile's peak.
        available_bytes: What one tile has.
        peak_step: Step at which each tile's temporaries peak, int64[tiles]; −1 where there are none.
        step_bytes: Temporaries live during each step, over all tiles, int64[steps].
        step_max_bytes: The same on the fullest tile, int64[steps].
        shares: How much of each variable each tile holds.
        liveness: Lifetimes of the variables.
        interleaved_bytes: Variables that must lie in interleaved memory, int64[tiles]; part of the categories.
    """

    by_category: dict[str, Int64]
    available_bytes: int
    peak_step: Int64
    step_bytes: Int64
    step_max_bytes: Int64
    shares: Shares
    liveness: Liveness
    interleaved_bytes: Int64

    @property
    def total_bytes(self) -> Int64:
        """Bytes needed on each tile, int64[tiles]."""
        return np.asarray(sum(self.by_category.values()), dtype=np.int64)

    @property
    def code_bytes(self) -> Int64:
        """Instructions on each tile, int64[tiles]."""
        return np.asarray(sum(self.by_category[c] for c in CODE_CATEGORIES), dtype=np.int64)


def plan_memory(
    layout: Layout,
    lifetimes: Liveness,
    code: Mapping[str, Int64],
    buffers: Mapping[int, TileVector],
    system: System,
    placement: Placement | None = None,
) -> MemoryPlan:
    """The memory plan of a program.

    Args:
        layout: Where the graph's elements live.
        lifetimes: When variables hold values.
        code: Bytes on each tile, int64[tiles], of the categories that are not variables.
        buffers: Bytes on each tile that a step needs for data in motion, by step.
        system: The machine.
        placement: What vertices ask of the place of variables.

    Model: a tile needs its always-live parts plus, at its worst step, all temporaries that are live together; so
    temporaries are overlaid perfectly. ``gaps`` is what alignment adds: to variables that are always live, and where a
    vertex wants more than usual; no gap for separating memory elements or for fragmentation is modelled.
    """
    memory = system.ipu.tile
    shares = Shares.of(layout, memory.alignment_bytes)
    peak, at, step_bytes, step_max = _sweep(lifetimes, shares, buffers, layout.num_tiles)
    held = lifetimes.always_live[shares.variable]
    by_category = {
        "variables": sum_by_tile(shares.tile[held], shares.bytes[held], layout.num_tiles),
        "temporaries": peak,
        "gaps": sum_by_tile(shares.tile[held], (shares.padded_bytes - shares.bytes)[held], layout.num_tiles),
        **code,
    }
    if placement is not None:
        by_category["gaps"] += placement.gap_bytes()
    ordered = {c: by_category[c] for c in CATEGORIES}
    interleaved = placement.interleaved_bytes() if placement is not None else np.zeros(layout.num_tiles, dtype=np.int64)
    return MemoryPlan(ordered, memory.usable_bytes, at, step_bytes, step_max, shares, lifetimes, interleaved)


def _sweep(
    lifetimes: Liveness, shares: Shares, buffers: Mapping[int, TileVector], num_tiles: int
) -> tuple[Int64, Int64, Int64, Int64]:
    """Peak of temporaries on each tile and its step; total and largest of each step."""
    steps = len(lifetimes.live)
    current, peak = np.zeros(num_tiles, dtype=np.int64), np.zeros(num_tiles, dtype=np.int64)
    at = np.full(num_tiles, -1, dtype=np.int64)
    totals, largest = np.zeros(steps, dtype=np.int64), np.zeros(steps, dtype=np.int64)
    before = np.zeros(len(lifetimes.candidates), dtype=bool)
    for step in range(steps):
        now = lifetimes.at(step)
        for i in np.flatnonzero(now != before):
            rows = shares.of_variable(int(lifetimes.candidates[i]))
            amount = shares.padded_bytes[rows]
            current[shares.tile[rows]] += amount if now[i] else -amount
        before = now
        needed = current + buffers[step] if step in buffers else current
        at[needed > peak] = step
        np.maximum(peak, needed, out=peak)
        totals[step], largest[step] = needed.sum(), needed.max(initial=0)
    return peak, at, totals, largest
