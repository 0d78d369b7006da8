"""Memory: bytes of every tile, by category, and the step of its peak.

The peak of temporaries is found by a sweep over the moments at which lifetimes begin or end: the sum on a tile changes
only there, so its maximum is reached right after a begin (or in a step with buffers), and nothing between need be
looked at. It is what a tile needs at least, if all that is live together lay without gaps. A row of sums for each step
would be steps times tiles; the sweep holds one row, and updates the tiles that a change touches. Addresses of the
fullest tiles (:mod:`abele.compiler.address_plan`) say what gaps cost there.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from abele.arrays import Bool, Int32, Int64
from abele.compiler.address_plan import Held, TileAddresses, pack_tiles
from abele.compiler.layout import Layout
from abele.compiler.liveness import Liveness
from abele.compiler.memory_elements import Demands, ElementDemands
from abele.compiler.tile_vector import Positions, TileSet, TileTotal, TileVector, added
from abele.graph.intervals import distinct
from abele.machine import System, TileMemory
from abele.report import CATEGORIES

CODE_CATEGORIES = ("vertex_code", "exchange_code", "control_code")
_PROGRAM = (*CODE_CATEGORIES, "vertex_state", "stacks", "stream_buffers")
"""Categories that lie from the start of the memory on, code first: only there can instructions be fetched."""


@dataclass(frozen=True, eq=False, slots=True)
class Shares:
    """Bytes of each variable on each tile.

    Attributes:
        ptr: Shares of variable v are ``ptr[v]`` to ``ptr[v + 1]``, int64[variables + 1].
        tile: Tile of each share, int32[k]; ascending within a variable.
        bytes: Bytes of each share, int64[k].
        padded_bytes: The same with what alignment adds, int64[k].
        first: Packed address of its first element, int64[k]; ascending.
    """

    ptr: Int64
    tile: Int32
    bytes: Int64
    padded_bytes: Int64
    first: Int64

    @staticmethod
    def of(layout: Layout, alignment_bytes: int) -> Shares:
        """The shares under a layout."""
        held = layout.packing.shares
        count = np.diff(held.ptr)
        total = held.elements * np.repeat(layout.width, count)
        # A variable in use is wholly on tiles, whose shares of it follow each other.
        before = np.cumsum(held.elements) - held.elements
        some = count > 0
        first = before + np.repeat(layout.base[some] - before[held.ptr[:-1][some]], count[some])
        return Shares(held.ptr, held.tile, total, -(-total // alignment_bytes) * alignment_bytes, first)

    def of_variable(self, number: int) -> slice:
        """Range of the shares of a variable."""
        return slice(int(self.ptr[number]), int(self.ptr[number + 1]))

    @property
    def variable(self) -> Int64:
        """Variable of each share, int64[k]."""
        return np.repeat(np.arange(len(self.ptr) - 1), np.diff(self.ptr))


class _DenseArrays(Mapping[str, Int64]):
    """Tile vectors by name as arrays, each made on first use."""

    def __init__(self, vectors: Mapping[str, TileVector]) -> None:
        self._vectors = vectors

    def __getitem__(self, name: str) -> Int64:
        return _dense(self._vectors[name])

    def __iter__(self) -> Iterator[str]:
        return iter(self._vectors)

    def __len__(self) -> int:
        return len(self._vectors)


def _dense(vector: TileVector) -> Int64:
    """The numbers of all tiles as an array that cannot be written."""
    values = vector.dense()
    values.setflags(write=False)
    return values


@dataclass(frozen=True, eq=False)
class MemoryPlan:
    """The memory of every tile: tile vectors, and arrays over all tiles of those that ask for them.

    Attributes:
        least: Bytes on each tile for each of the report's categories, without the gaps of packing; ``temporaries`` is
            the tile's peak.
        memory: The memory of a tile.
        peak_steps: Step at which each tile's temporaries peak; −1 where there are none.
        half_bytes: Temporaries live during each half step, over all tiles, int64[2 steps].
        half_max_bytes: The same on the fullest tile, int64[2 steps].
        shares: Bytes of each variable on each tile.
        liveness: Lifetimes of the variables.
        demands: Demands of vertices on the place of the shares.
        buffers: Bytes on each tile that a step needs for data in motion, by step.
    """

    least: Mapping[str, TileVector]
    memory: TileMemory
    peak_steps: TileVector
    half_bytes: Int64
    half_max_bytes: Int64
    shares: Shares
    liveness: Liveness
    demands: Demands
    buffers: Mapping[int, TileVector]

    @property
    def available_bytes(self) -> int:
        """Bytes of one tile."""
        return self.memory.usable_bytes

    @property
    def step_bytes(self) -> Int64:
        """Temporaries live during the fuller half of each step, over all tiles, int64[steps]."""
        return np.asarray(self.half_bytes.reshape(-1, 2).max(axis=1), dtype=np.int64)

    @property
    def step_max_bytes(self) -> Int64:
        """The same on the fullest tile, int64[steps]."""
        return np.asarray(self.half_max_bytes.reshape(-1, 2).max(axis=1), dtype=np.int64)

    @property
    def num_tiles(self) -> int:
        """Tiles of the machine."""
        return self.peak_steps.num_tiles

    @cached_property
    def least_total(self) -> TileVector:
        """Bytes needed on each tile at least, where nothing is lost to packing."""
        return added(self.least.values(), self.num_tiles).packed()

    @cached_property
    def addresses(self) -> tuple[TileAddresses, ...]:
        """Addresses on the fullest kinds of tiles, the fullest first."""
        shares, demands, usual = self.shares, self.demands, self.memory.alignment_bytes
        held = Held(
            variable=shares.variable,
            tile=shares.tile,
            bytes=shares.padded_bytes,
            alignment=np.maximum(demands.alignment_bytes, usual),
            interleaved=demands.interleaved,
            apart=demands.apart,
            program=added((self.least[name] for name in _PROGRAM), self.num_tiles),
            buffers=self.buffers,
            lifetimes=self.liveness,
        )
        return pack_tiles(held, self.least_total, self.memory)

    def addresses_of(self, tile: int) -> TileAddresses | None:
        """Addresses on a tile, or None where it is not among those that were packed."""
        return next((each for each in self.addresses if bool((each.tiles == tile).any())), None)

    @cached_property
    def categories(self) -> Mapping[str, TileVector]:
        """Bytes on each tile for each of the report's categories; ``gaps`` with those of packing, where it is known."""
        found = [TileVector.zero(self.num_tiles)]
        for each in self.addresses:
            lost = each.needed_bytes - self.least_total.at(each.tiles)
            found.append(TileVector.sum_of(each.tiles, lost, self.num_tiles))
        return MappingProxyType({**self.least, "gaps": added([self.least["gaps"], *found], self.num_tiles).packed()})

    @cached_property
    def total(self) -> TileVector:
        """Bytes needed on each tile, with gaps."""
        return added(self.categories.values(), self.num_tiles).packed()

    @cached_property
    def unshared(self) -> TileVector:
        """Bytes that each tile needs at most: every variable has bytes of its own, and steps share buffers."""
        used = self.liveness.used[self.shares.variable]
        here = TileVector.sum_of(self.shares.tile[used], self.shares.padded_bytes[used], self.num_tiles)
        buffers = TileTotal(self.num_tiles, np.maximum)
        for vector in {id(v): v for v in self.buffers.values()}.values():
            buffers.add(vector)
        grid = TileVector(TileSet.all(self.num_tiles), np.full(self.num_tiles + 1, 2 * self.memory.alignment_bytes))
        return added([here, buffers.vector(), grid, *(self.least[name] for name in _PROGRAM)], self.num_tiles)

    @cached_property
    def interleaved(self) -> TileVector:
        """Bytes of variables that must lie in interleaved memory; part of the categories.

        Model: a tile's whole share of a variable, counted once; that temporaries could follow each other there is seen
        by their addresses.
        """
        kept = self.demands.interleaved
        return TileVector.sum_of(self.shares.tile[kept], self.shares.bytes[kept], self.num_tiles).packed()

    @property
    def alignment_bytes(self) -> Int64:
        """Alignment that vertices want of each variable, 0 for the usual one, int64[variables]."""
        wanted = np.zeros(len(self.shares.ptr) - 1, dtype=np.int64)
        np.maximum.at(wanted, self.shares.variable, self.demands.alignment_bytes)
        return wanted

    @property
    def are_interleaved(self) -> Int64:
        """Variables that must lie in interleaved memory, somewhere, int64[k]."""
        return distinct(self.shares.variable[self.demands.interleaved])

    @property
    def code(self) -> TileVector:
        """Bytes of instructions on each tile."""
        return added((self.least[c] for c in CODE_CATEGORIES), self.num_tiles)

    @property
    def by_category(self) -> Mapping[str, Int64]:
        """Bytes on each tile, int64[tiles], for each of the report's categories."""
        return _DenseArrays(self.categories)

    @property
    def total_bytes(self) -> Int64:
        """Bytes needed on each tile, int64[tiles]."""
        return _dense(self.total)

    @property
    def code_bytes(self) -> Int64:
        """Instructions on each tile, int64[tiles]."""
        return _dense(self.code)

    @property
    def interleaved_bytes(self) -> Int64:
        """Variables that must lie in interleaved memory, int64[tiles]."""
        return _dense(self.interleaved)

    @property
    def peak_step(self) -> Int64:
        """Step at which each tile's temporaries peak, int64[tiles]; −1 where there are none."""
        return _dense(self.peak_steps)


def plan_memory(
    layout: Layout,
    lifetimes: Liveness,
    code: Mapping[str, TileVector],
    buffers: Mapping[int, TileVector],
    system: System,
    placement: ElementDemands | None = None,
) -> MemoryPlan:
    """The memory plan of a program.

    Args:
        layout: Tile and address of the graph's elements.
        lifetimes: Steps during which variables hold values.
        code: Bytes on each tile of the categories that are not variables.
        buffers: Bytes on each tile that a step needs for data in motion, by step.
        system: The machine.
        placement: Demands of vertices on the place of variables.

    Model: a tile needs its always-live parts plus, at its worst step, all temporaries that are live together, and what
    their addresses leave free between them. ``gaps`` is what alignment adds to variables that are always live, and on
    tiles that are packed all that their packing leaves free.
    """
    memory, num_tiles = system.ipu.tile, layout.num_tiles
    shares = Shares.of(layout, memory.alignment_bytes)
    peak, at, half_bytes, half_max = _sweep(lifetimes, shares, buffers, num_tiles)
    held = lifetimes.always_live[shares.variable]
    tile, padding = shares.tile[held], (shares.padded_bytes - shares.bytes)[held]
    categories = {
        "variables": TileVector.sum_of(tile, shares.bytes[held], num_tiles).packed(),
        "temporaries": peak,
        "gaps": TileVector.sum_of(tile, padding, num_tiles).packed(),
        **code,
    }
    placement = placement or ElementDemands(layout, memory.alignment_bytes)
    return MemoryPlan(
        least=MappingProxyType({c: categories[c] for c in CATEGORIES}),
        memory=memory,
        peak_steps=at,
        half_bytes=half_bytes,
        half_max_bytes=half_max,
        shares=shares,
        liveness=lifetimes,
        demands=placement.of_shares(shares.first),
        buffers=MappingProxyType(dict(buffers)),
    )


_BLOCK = 512
"""Tiles per block whose largest sum is kept, so that the fullest tile is found without a scan of all of them."""
_FEW_BLOCKS = 8
"""Blocks up to which all are looked at, whichever changed."""
_DENSE_PART = 8
"""Part of all tiles (1 / 8) above which a step is handled as a whole."""


class _Held(NamedTuple):
    """Bytes of a variable by tile.

    Attributes:
        tiles: Places of its tiles in the column of all; a slice where they follow each other.
        bytes: Bytes on each of them, int64[k].
        total: Bytes on all of them.
    """

    tiles: Positions | slice
    bytes: Int64
    total: int

    @staticmethod
    def of_buffer(buffer: TileVector, tiles: TileSet) -> _Held:
        """Bytes of the buffers of a step; ``tiles`` are the column of all."""
        assert not buffer.elsewhere
        found = tiles.positions(buffer.tile_set.tiles)
        count = len(buffer.tile_set)
        place: Positions | slice = found
        if count and int(found[-1]) - int(found[0]) + 1 == count:
            place = slice(int(found[0]), int(found[-1]) + 1)
        return _Held(place, buffer.values[:-1].astype(np.int64), buffer.sum())

    @property
    def blocks(self) -> Int64:
        """The blocks that its tiles are in, int64[n]."""
        if isinstance(self.tiles, slice):
            return np.arange(self.tiles.start // _BLOCK, (self.tiles.stop - 1) // _BLOCK + 1)
        return self.tiles.astype(np.int64) // _BLOCK


class _HeldBytes:
    """Bytes of variables by tile, one variable at a time.

    Args:
        shares: Bytes of each variable on each tile.
        position: Place of each share's tile in the column of all, int[k].
    """

    def __init__(self, shares: Shares, position: Positions) -> None:
        self._position, self._bytes = position, shares.padded_bytes
        ptr = shares.ptr
        before = np.concatenate([[0], np.cumsum(shares.padded_bytes)])
        self._total = (before[ptr[1:]] - before[ptr[:-1]]).tolist()
        self._ptr = ptr.tolist()
        # Tiles of a variable are ascending, so they follow each other if the last is as far from the first as they are.
        count = np.diff(ptr)
        ends = np.append(position, 0).astype(np.int64)
        self._first = ends[ptr[:-1]].tolist()
        self._is_run = ((count > 0) & (ends[ptr[1:] - 1] - ends[ptr[:-1]] + 1 == count)).tolist()

    def __getitem__(self, variable: int) -> _Held:
        """Bytes of a variable by tile."""
        rows = slice(self._ptr[variable], self._ptr[variable + 1])
        tiles: Positions | slice = self._position[rows]
        if self._is_run[variable]:
            first = self._first[variable]
            tiles = slice(first, first + rows.stop - rows.start)
        return _Held(tiles, self._bytes[rows], self._total[variable])

    def some(self, variable: int, shares: Bool) -> _Held:
        """Bytes of some of a variable's shares."""
        rows = self._ptr[variable] + np.flatnonzero(shares)
        size = self._bytes[rows]
        return _Held(self._position[rows], size, int(size.sum()))


class _Sweep:
    """Temporaries on each tile as the steps go by, and the most that there ever were.

    Only tiles whose sum has grown can reach a new peak, and only blocks of tiles that have changed another maximum. So
    a step costs what it touches: the tiles of the variables that come or go with it, and those of its buffers.
    """

    def __init__(self, num_tiles: int) -> None:
        self.peak, self.at = np.zeros(num_tiles, dtype=np.int64), np.full(num_tiles, -1, dtype=np.int64)
        blocks = -(-num_tiles // _BLOCK)
        self._padded = np.zeros(blocks * _BLOCK, dtype=np.int64)
        self._current = self._padded[:num_tiles]
        self._blocks = self._padded.reshape(blocks, _BLOCK)
        self._largest = np.zeros(blocks, dtype=np.int64)
        self.total = 0

    def change(self, come: list[_Held], gone: list[_Held], step: int) -> None:
        """Variables come and go with a step."""
        # The amounts of one variable have distinct tiles, so indexed addition counts each once.
        for held in come:
            self._current[held.tiles] += held.bytes
            self.total += held.total
        for held in gone:
            self._current[held.tiles] -= held.bytes
            self.total -= held.total
        count = 0
        for held in come:
            count += len(held.bytes)
        for held in gone:
            count += len(held.bytes)
        if count * _DENSE_PART >= len(self._current):
            if come:
                self._raise(slice(None), self._current, step)
            np.maximum.reduce(self._blocks, axis=1, out=self._largest)
            return
        for held in come:
            self._raise(held.tiles, self._current[held.tiles], step)
        if len(self._blocks) <= _FEW_BLOCKS:
            np.maximum.reduce(self._blocks, axis=1, out=self._largest)
            return
        touched = distinct(np.concatenate([held.blocks for held in (*come, *gone)], dtype=np.int64))
        self._largest[touched] = self._blocks[touched].max(axis=1)

    def needed(self, buffer: _Held | None, step: int) -> tuple[int, int]:
        """Temporaries and buffers of a step: over all tiles, and on the fullest."""
        # Called for every step: the plain reduction takes a third of the time of the array's method.
        largest = int(np.maximum.reduce(self._largest, initial=0))
        if buffer is None:
            return self.total, largest
        amount = self._current[buffer.tiles] + buffer.bytes
        self._raise(buffer.tiles, amount, step)
        return self.total + buffer.total, max(largest, int(np.maximum.reduce(amount, initial=0)))

    def _raise(self, tiles: Positions | slice, amount: Int64, step: int) -> None:
        """Raise the peak of some tiles that need so much."""
        higher = amount > self.peak[tiles]
        if np.logical_or.reduce(higher):
            which = np.flatnonzero(higher) + (tiles.start or 0) if isinstance(tiles, slice) else tiles[higher]
            self.peak[which], self.at[which] = amount[higher], step


_Going = tuple[int, Bool | None]
"""A variable, and the shares of it that go; None for all."""


def _changes(lifetimes: Liveness) -> tuple[dict[int, list[int]], dict[int, list[_Going]]]:
    """Variables that come, and what goes of others, by half step: 2 n has inputs of step n, 2 n + 1 its vertices."""
    coming, going = dict[int, list[int]](), dict[int, list[_Going]]()
    variable = lifetimes.candidates[lifetimes.owner].tolist()
    rows = zip(variable, lifetimes.half_begin.tolist(), (2 * lifetimes.end).tolist(), strict=True)
    for row, (number, begin, end) in enumerate(rows):
        stays = lifetimes.stays.get(row)
        coming.setdefault(begin, []).append(number)
        going.setdefault(end, []).append((number, stays))
        if stays is not None:
            going.setdefault(end - 1, []).append((number, ~stays))
    return coming, going


def _sweep(
    lifetimes: Liveness, shares: Shares, buffers: Mapping[int, TileVector], num_tiles: int
) -> tuple[TileVector, TileVector, Int64, Int64]:
    """Peak of temporaries on each tile and its step; total and largest of each half step.

    Tiles that hold neither temporaries nor buffers are left out: the others are numbered anew.
    """
    steps = lifetimes.num_steps
    variable = lifetimes.candidates[lifetimes.owner]
    is_temporary = np.zeros(len(shares.ptr) - 1, dtype=bool)
    is_temporary[variable] = True
    columns = (v.tile_set.tiles for v in {id(v): v for v in buffers.values()}.values())
    tiles = TileSet.of([shares.tile[is_temporary[shares.variable]], *columns], num_tiles)
    # Where other shares come to lie does not matter: nobody looks at them.
    position = tiles.positions(shares.tile)
    sweep = _Sweep(len(tiles))
    totals, largest = np.zeros((2, 2 * steps), dtype=np.int64)
    held = _HeldBytes(shares, position)
    coming, going = _changes(lifetimes)
    # Many steps have the buffers of one that they equal.
    held_buffers: dict[int, _Held] = {}
    # Between two busy moments every step needs what the first of them needs.
    busy = distinct(np.array([moment // 2 for moment in (*coming, *going, *(2 * s for s in buffers))], dtype=np.int64))
    busy = busy[busy < steps]
    until = np.append(busy[1:], steps)
    for number, step in enumerate(busy.tolist()):
        buffer = None
        if step in buffers:
            vector = buffers[step]
            if id(vector) not in held_buffers:
                held_buffers[id(vector)] = _Held.of_buffer(vector, tiles)
            buffer = held_buffers[id(vector)]
        # Inputs, then the vertices; ends are one past the last moment, so what ends makes room for what begins.
        for moment in (2 * step, 2 * step + 1):
            come = [held[v] for v in coming.get(moment, ())]
            gone = [held[v] if some is None else held.some(v, some) for v, some in going.get(moment, ())]
            if come or gone:
                sweep.change(come, gone, step)
            if come or gone or moment == 2 * step:
                needs = sweep.needed(buffer, step)
            totals[moment], largest[moment] = needs
        rest = slice(2 * step + 2, 2 * until[number])
        totals[rest], largest[rest] = sweep.needed(None, step)
    peak, at = (np.append(column, others) for column, others in ((sweep.peak, 0), (sweep.at, -1)))
    return TileVector(tiles, peak).packed(), TileVector(tiles, at), totals, largest
