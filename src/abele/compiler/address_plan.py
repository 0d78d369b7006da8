"""Address plan: the tiles whose memory is packed, and where everything lies on them.

Tiles that hold the same are packed once. The fullest kinds are: what they need says whether a program fits. Of the
others the sum of what is live together is known, which their packing exceeds by a few percent at most.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from abele.arrays import Bool, Int32, Int64
from abele.compiler.addresses import Items, most_live, pack
from abele.compiler.liveness import Liveness
from abele.compiler.superstep import make_read_only
from abele.compiler.tile_vector import TileVector
from abele.machine import TileMemory

LEAST_KINDS = 4
"""Kinds of tiles that are packed in any case, the fullest first."""
MOST_KINDS = 48
"""Kinds of tiles that are packed where it is open whether they fit."""

_UInt64 = npt.NDArray[np.uint64]


class Held(NamedTuple):
    """Contents of the tiles.

    Attributes:
        variable: Variable of each share, int64[k].
        tile: Its tile, int32[k].
        bytes: Its bytes, rounded up to the usual alignment, int64[k].
        alignment: Multiple of which its address has to be, int64[k].
        interleaved: True where it must lie in interleaved memory, bool[k].
        apart: Pairs of shares of one tile that may share no memory element, int64[n, 2].
        program: Bytes of code, of the vertices' state, of stacks and of stream buffers.
        buffers: Bytes on each tile that a step needs for data in motion, by step.
        lifetimes: Lifetimes of the variables.
    """

    variable: Int64
    tile: Int32
    bytes: Int64
    alignment: Int64
    interleaved: Bool
    apart: Int64
    program: TileVector
    buffers: Mapping[int, TileVector]
    lifetimes: Liveness


@dataclass(frozen=True, eq=False, slots=True)
class TileAddresses:
    """Places of the data of some tiles, which hold the same.

    Attributes:
        tiles: The tiles, int32[k], ascending.
        variable: Their variables, by position in the graph, int64[n].
        address: First address of each, from the start of the tile's memory, int64[n].
        bytes: Bytes of each, int64[n].
        step: Steps that need room for data in motion, int64[m], ascending.
        step_address: Address of that, int64[m].
        step_bytes: Its bytes, int64[m].
        program_bytes: Bytes from address 0 on that hold code, state of vertices, stacks and stream buffers.
        top: One past the highest address that is ever taken.
        needed_bytes: Bytes of memory that this packing takes: ``top``, less what is free below interleaved memory.
    """

    tiles: Int32
    variable: Int64
    address: Int64
    bytes: Int64
    step: Int64
    step_address: Int64
    step_bytes: Int64
    program_bytes: int
    top: int
    needed_bytes: int

    def __post_init__(self) -> None:
        make_read_only(self)


def pack_tiles(held: Held, needed: TileVector, memory: TileMemory) -> tuple[TileAddresses, ...]:
    """Addresses on the fullest kinds of tiles.

    Args:
        held: Contents of the tiles.
        needed: Bytes that each tile needs at least.
        memory: The memory of a tile.
    """
    candidates = needed.tile_set.tiles if not needed.elsewhere else np.arange(needed.num_tiles, dtype=np.int32)
    if len(candidates) == 0:
        return ()
    least = needed.at(candidates)
    looks = _looks(held, needed.num_tiles)[candidates]
    # Kinds of tiles, the fullest first, and of equally full ones that with the first tile.
    _, first, kind = np.unique(looks, return_index=True, return_inverse=True)
    order = np.lexsort((first, -least[first]))
    room, moving = memory.usable_bytes, _Moving(held.buffers)
    packed: list[TileAddresses] = []
    worst = 1.0
    for number in order[:MOST_KINDS].tolist():
        bound = int(least[first[number]])
        if len(packed) >= LEAST_KINDS and (bound * worst <= room or int(least[first[order[0]]]) > room):
            break
        found = _packed(held, moving, candidates[kind == number], memory)
        packed.append(found)
        worst = max(worst, found.needed_bytes / max(1, bound))
    return tuple(packed)


def _packed(held: Held, buffers: _Moving, tiles: Int32, memory: TileMemory) -> TileAddresses:
    """Addresses on some tiles that hold the same."""
    tile, lives = int(tiles[0]), held.lifetimes
    moving = buffers.on(tile, memory.alignment_bytes)
    variable, kept = _kept(held, tile, memory, lives.end_apart)
    ways = [(np.arange(len(variable)), kept)]
    # Results take the places of operands, or have their own: a place that many have is taken for long, and gaps between
    # such may cost more than is shared.
    joined = _places_of(lives, variable)
    if len(np.unique(joined)) < len(variable):
        together = _kept(held, tile, memory, lives.end)[1].joined(joined)
        ways.append((joined, together))
        if most_live(together.followed_by(moving)) < most_live(kept.followed_by(moving)):
            ways.reverse()
    best: TileAddresses | None = None
    for item, items in ways:
        placed = _placed(items, moving, int(held.program[tile]), memory)
        found = replace(placed, tiles=tiles, variable=variable, address=placed.address[item], bytes=items.size[item])
        best = found if best is None or found.needed_bytes < best.needed_bytes else best
        if best.needed_bytes <= memory.usable_bytes:
            break
    assert best is not None
    return best


def _placed(kept: Items, moving: Items, program: int, memory: TileMemory) -> TileAddresses:
    """Addresses of items that are kept, each as if it were a variable, and of data in motion behind the program."""
    grid = memory.alignment_bytes
    program = -(-program // grid) * grid
    # What always lives and asks for nothing lies without gaps behind the program.
    plain = (kept.begin[kept.ptr[:-1]] < 0) & (kept.lowest == 0) & (kept.alignment <= grid)
    plain[list(kept.apart)] = False
    is_bound = bool((kept.lowest > 0).any())
    if is_bound and program + int(kept.size[plain].sum()) > memory.plain_bytes:
        plain[:] = False
    floor = program + int(kept.size[plain].sum())
    address = np.zeros(len(kept.size), dtype=np.int64)
    address[plain] = program + np.cumsum(kept.size[plain]) - kept.size[plain]
    placed = pack(kept.take(~plain).followed_by(moving), floor, memory.usable_bytes, memory)
    address[~plain] = placed.address[: len(placed.address) - len(moving.size)]
    moved = placed.address[len(placed.address) - len(moving.size) :]
    begin, size = np.concatenate([address, moved]), np.concatenate([kept.size, moving.size])
    free = _free_below(begin, begin + size, floor, memory) if is_bound else 0
    return TileAddresses(
        tiles=np.empty(0, dtype=np.int32),
        variable=np.arange(len(address)),
        address=address,
        bytes=kept.size,
        step=moving.begin // 2,
        step_address=moved,
        step_bytes=moving.size,
        program_bytes=program,
        top=placed.top,
        needed_bytes=placed.top - free,
    )


def _places_of(lives: Liveness, variable: Int64) -> Int64:
    """Number of the place of each variable, int64[n]; equal where one took the place of another."""
    place = np.arange(len(lives.used))
    place[lives.candidates] = lives.candidates[lives.place]
    return np.unique(place[variable], return_inverse=True)[1]


def _kept(held: Held, tile: int, memory: TileMemory, ends: Int64) -> tuple[Int64, Items]:
    """Variables on a tile, and what they want, by half steps; those that always live do so from −1 on.

    Args:
        held: Contents of the tiles.
        tile: The tile.
        memory: The memory of a tile.
        ends: End of each lifetime.
    """
    lives = held.lifetimes
    here = np.flatnonzero(held.tile == tile)
    always = lives.always_live[held.variable[here]]
    # Lifetimes of all variables of the graph, of which only candidates have some.
    count, first = np.zeros((2, len(lives.used)), dtype=np.int64)
    count[lives.candidates], first[lives.candidates] = np.diff(lives.ptr), lives.ptr[:-1]
    pieces = np.where(always, 1, count[held.variable[here]])
    here, always, pieces = here[pieces > 0], always[pieces > 0], pieces[pieces > 0]
    variable = held.variable[here]
    ptr = np.concatenate([[0], np.cumsum(pieces)])
    row = np.repeat(first[variable] - ptr[:-1], pieces) + np.arange(ptr[-1])
    begin, end = np.full(len(row), -1), np.full(len(row), 2 * max(1, lives.num_steps))
    passing = np.flatnonzero(~np.repeat(always, pieces))
    begin[passing], end[passing] = lives.half_begin[row[passing]], 2 * ends[row[passing]]
    # What is sent or copied in the last step of its life ends half a step earlier.
    share = np.repeat(here - np.searchsorted(held.variable, variable), pieces)
    sent = np.isin(row[passing], _numbers(lives.stays))
    for at in passing[sent].tolist():
        end[at] -= not lives.stays[int(row[at])][share[at]]
    return variable, Items(
        size=held.bytes[here],
        alignment=held.alignment[here],
        lowest=np.where(held.interleaved[here], memory.plain_bytes, 0),
        ptr=ptr,
        begin=begin,
        end=end,
        apart=_partners(held.apart, here),
    )


def _free_below(begin: Int64, end: Int64, floor: int, memory: TileMemory) -> int:
    """Bytes in front of interleaved memory that are never taken, where something had to lie behind them."""
    below = begin < memory.plain_bytes
    return max(0, memory.plain_bytes - max(floor, int(end[below].max(initial=0))))


def _partners(pairs: Int64, here: Int64) -> dict[int, list[int]]:
    """Places in ``here`` of shares that are to lie apart from others, with those of the others."""
    found: dict[int, list[int]] = {}
    if len(pairs) == 0 or len(here) == 0:
        return found
    # Shares are ascending.
    place = np.minimum(np.searchsorted(here, pairs), len(here) - 1)
    for one, other in place[(here[place] == pairs).all(axis=1)].tolist():
        found.setdefault(one, []).append(other)
        found.setdefault(other, []).append(one)
    return found


class _Moving:
    """Data in motion, step by step.

    Args:
        buffers: Bytes on each tile that a step needs for it, by step.
    """

    def __init__(self, buffers: Mapping[int, TileVector]) -> None:
        # Many steps have the vector of one that they equal.
        places: dict[int, int] = {}
        self._vectors: list[TileVector] = []
        which = np.empty(len(buffers), dtype=np.int64)
        for at, vector in enumerate(buffers.values()):
            which[at] = place = places.setdefault(id(vector), len(self._vectors))
            if place == len(self._vectors):
                self._vectors.append(vector)
        step = np.fromiter(buffers, np.int64, len(buffers))
        order = np.argsort(step, kind="stable")
        self._step, self._which = step[order], which[order]

    def on(self, tile: int, grid: int) -> Items:
        """An item by half steps for each step that has some on a tile, in order, in multiples of so many bytes."""
        size = np.array([int(v[tile]) for v in self._vectors], dtype=np.int64)[self._which]
        step, size = self._step[size > 0], size[size > 0]
        return Items(
            size=-(-size // grid) * grid,
            alignment=np.full(len(step), grid),
            lowest=np.zeros(len(step), dtype=np.int64),
            ptr=np.arange(len(step) + 1),
            begin=2 * step,
            end=2 * step + 2,
            apart={},
        )


def _looks(held: Held, num_tiles: int) -> _UInt64:
    """A number for each tile, equal where tiles hold the same, uint64[tiles]."""
    looks = np.zeros(num_tiles, dtype=np.uint64)
    tiles = held.program.tile_set.tiles
    looks[tiles] += _scrambled(held.program.at(tiles))
    share = held.variable * _ODD[0]
    share += held.bytes * _ODD[1]
    share += (held.alignment * 2 + held.interleaved) * _ODD[2]
    used = held.lifetimes.used[held.variable]
    np.add.at(looks, held.tile[used], _scrambled(share[used]))
    lives = held.lifetimes
    variable = lives.candidates[lives.owner]
    for (row, stays), number in zip(lives.stays.items(), _scrambled(_numbers(lives.stays) * _ODD[1]), strict=True):
        first = int(np.searchsorted(held.variable, variable[row]))
        looks[held.tile[first + np.flatnonzero(~stays)]] += number
    # A vector that many steps have is added once, times the sum of their numbers.
    steps = _scrambled(_numbers(held.buffers)).tolist()
    weight: dict[int, int] = {}
    for vector, number in zip(held.buffers.values(), steps, strict=True):
        weight[id(vector)] = (weight.get(id(vector), 0) + number) % 2**64
    for vector in {id(v): v for v in held.buffers.values()}.values():
        looks[vector.tile_set.tiles] += vector.values[:-1].astype(np.uint64) * np.uint64(weight[id(vector)])
    return looks


def _numbers(keys: Mapping[int, object]) -> Int64:
    return np.fromiter(keys, np.int64, len(keys))


_ODD = (0x1F123BB5159A55E5, 0x2545F4914F6CDD1D, 0x369DEA0F31A53F85)
"""Odd numbers that look random; products wrap around."""


def _scrambled(value: Int64) -> _UInt64:
    """Numbers that look random, one for each; source: splitmix64, Steele, Lea and Flood (2014)."""
    mixed = value.astype(np.uint64) + np.uint64(0x9E3779B97F4A7C15)
    mixed = (mixed ^ mixed >> np.uint64(30)) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ mixed >> np.uint64(27)) * np.uint64(0x94D049BB133111EB)
    return mixed ^ mixed >> np.uint64(31)
