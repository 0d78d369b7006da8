"""Audiences: sets of tiles that want the same pieces of memory, so that these are swept once.

A matrix product that is spread over 1,440 tiles gives each of 40 blocks of an operand to 36 of them, and where that
operand lies in short pieces, the blocks of all tiles are ten million of them; of all blocks, 280,000. What a tile
receives is decided by the list of regions that it is wired to and by which of their pieces it holds itself. So tiles
with equal lists form an audience, its pieces are swept once, and each member's figures are those of the audience less
what concerns the pieces that the member holds. That is exact, because pieces of different holders never overlap nor
join: what lies in one tile's memory has no neighbour in another's.

A tile often shares the rows of one operand with some tiles and the columns of the other with others, and its list of
all regions is like nobody's. Fields that touch different variables have nothing to do with each other, though. So tiles
are compared within a *domain* (``wishes``), and a tile is a member of one audience per domain. Lists are compared by a
hash first and then entry by entry; a tile whose hash is another's by accident is an audience of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from abele.arrays import Int32, Int64
from abele.compiler.tile_vector import TileSet
from abele.graph.intervals import distinct, order_of

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
"""2**64 divided by the golden ratio, odd: multiplying by it spreads neighbouring numbers over all bits (Knuth 6.4)."""
_HALF = np.uint64(32)
_NONE = np.empty(0, dtype=np.int64)


class WantedRegions(NamedTuple):
    """Regions that tiles want, as pairs in order of tile and region without repeats.

    Attributes:
        tile: Tile of each pair, int32[k].
        region: Its region, int64[k].
        domain: Number of the domain that all are in.
    """

    tile: Int32
    region: Int64
    domain: int


class Neighbours(NamedTuple):
    """Pairs of tiles on the exchange bus, domain by domain, both of which want something there.

    Attributes:
        left: The even one of each pair, int32[k].
        even: Its audience, int64[k].
        odd: The audience of the other, int64[k].
    """

    left: Int32
    even: Int64
    odd: Int64

    def where(self, kept: npt.NDArray[np.bool_]) -> Neighbours:
        """Some of the pairs."""
        return Neighbours(self.left[kept], self.even[kept], self.odd[kept])


@dataclass(frozen=True, eq=False)
class Audiences:
    """Sets of tiles, numbered.

    Attributes:
        tile: Members, ascending within an audience, int32[n].
        owner: The audience of each, ascending int64[n].
        domain: Domain of each audience, int64[count]; a tile is in one audience of a domain.
        num_tiles: Tiles of the machine.
    """

    tile: Int32
    owner: Int64
    domain: Int64
    num_tiles: int

    @staticmethod
    def alone(wanting: Int32, num_tiles: int) -> tuple[Audiences, Int64]:
        """Every tile that wants something by itself, and its audience for each place in ``wanting``, int64[k]."""
        tiles = TileSet.of([wanting], num_tiles)
        count = len(tiles)
        audiences = Audiences(tiles.tiles, np.arange(count), np.zeros(count, dtype=np.int64), num_tiles)
        return audiences, tiles.positions(wanting).astype(np.int64)

    def __len__(self) -> int:
        return len(self.domain)

    @cached_property
    def is_alone(self) -> bool:
        """True if every audience has one member."""
        return len(self.tile) == len(self)

    @cached_property
    def sizes(self) -> Int64:
        """Members of each audience, int64[count]."""
        return np.bincount(self.owner, minlength=len(self))

    @cached_property
    def _keys(self) -> Int64:
        """Members as numbers that are ascending."""
        return self.owner * self.num_tiles + self.tile

    def members(self, audience: Int64, tile: Int32) -> Int64:
        """The places at which a tile is a member of an audience, int64[n].

        Args:
            audience: Audiences, int64[k].
            tile: As many tiles, int32[k].
        """
        if self.is_alone:
            return np.flatnonzero(self.tile[audience] == tile)
        key = audience * self.num_tiles + tile
        at = np.minimum(np.searchsorted(self._keys, key), len(self._keys) - 1)
        return np.flatnonzero(self._keys[at] == key)

    def sums(
        self, tiles: TileSet, audience: Int64, holder: Int32, amounts: Sequence[npt.NDArray[Any] | None]
    ) -> list[Int64]:
        """Sum of ``amount`` over the pieces that each tile wants and does not hold, as a column over ``tiles``.

        Args:
            tiles: A set with all members.
            audience: Audience that wants each piece, int64[k].
            holder: The tile that holds it, int32[k].
            amounts: Amounts of the pieces, [k] each, or None to count the pieces; sums up to 2**53 are exact.
        """
        # What its only member holds is in no audience's list.
        own = _NONE if self.is_alone else self.members(audience, holder)
        members, holders = tiles.positions(self.tile), tiles.positions(holder[own])
        columns = []
        for amount in amounts:
            total = np.bincount(audience, weights=amount, minlength=len(self)).astype(np.int64)
            column = tiles.sum(members, total[self.owner])
            if len(own):
                column -= tiles.count(holders) if amount is None else tiles.sum(holders, amount[own])
            columns.append(column)
        return columns

    def neighbours(self) -> Neighbours:
        """Tiles 2k and 2k + 1 that both want something of one domain."""
        domain = self.domain[self.owner]
        if self.is_alone:
            order: Int64 | slice = slice(None)
        else:
            order = order_of(domain * self.num_tiles + self.tile)
        tile, owner, domain = self.tile[order], self.owner[order], domain[order]
        # A pair is two neighbours in order of domain and tile, the first of which is even.
        left = np.flatnonzero((tile[:-1] % 2 == 0) & (tile[1:] == tile[:-1] + 1) & (domain[1:] == domain[:-1]))
        return Neighbours(tile[left], owner[left], owner[left + 1])

    def ipus(self, tiles_per_ipu: int) -> tuple[Int64, Int64]:
        """The audiences and the IPUs that have members of them, in order of audience, int64[n] each."""
        count = -(-self.num_tiles // tiles_per_ipu)
        return np.divmod(distinct(self.owner * count + self.tile // tiles_per_ipu), count)


def find_audiences(wanted: Sequence[WantedRegions], num_tiles: int) -> tuple[Audiences, list[tuple[Int64, Int64]]]:
    """Sets of tiles that want the same pieces, and the regions of each field by set.

    Args:
        wanted: Regions that tiles want, field by field.
        num_tiles: Tiles of the machine.

    Returns:
        The audiences, and for each field pairs of an audience and a region, in order of both, int64[n] each.
    """
    audiences: list[Audiences] = []
    pairs: list[tuple[Int64, Int64]] = [(_NONE, _NONE)] * len(wanted)
    count = 0
    for domain, fields in enumerate(_domains(wanted)):
        tile, owner, first = _alike([wanted[i] for i in fields])
        for i in fields:
            # What an audience wants is what its first member does.
            speaks, audience = _numbers_of(first, wanted[i].tile)
            pairs[i] = audience + count, wanted[i].region[speaks]
        audiences.append(Audiences(tile, owner + count, np.full(len(first), domain), num_tiles))
        count += len(first)
    tile, owner, domains = (
        np.concatenate([getattr(a, name) for a in audiences]) for name in ("tile", "owner", "domain")
    )
    return Audiences(tile, owner, domains, num_tiles), pairs


def _domains(wanted: Sequence[WantedRegions]) -> list[list[int]]:
    """Fields of one domain together; all whose regions no tiles share are one."""
    found: dict[int, list[int]] = {}
    for i, field in enumerate(wanted):
        found.setdefault(field.domain, []).append(i)
    shared = [fields for fields in found.values() if any(is_shared(wanted[i].region) for i in fields)]
    others = [i for fields in found.values() if fields not in shared for i in fields]
    return [*shared, sorted(others)] if others else shared


def is_shared(region: Int64) -> bool:
    """True if some region of pairs comes up twice, which only pairs of different tiles have."""
    if bool((region[1:] > region[:-1]).all()):
        return False
    return int(np.bincount(region).max(initial=0)) > 1


def _alike(fields: Sequence[WantedRegions]) -> tuple[Int32, Int64, Int32]:
    """Tiles that want the same of some fields.

    Returns:
        Members in order of audience and tile, the audience of each, and the first tile of each audience, ascending.
    """
    tile, item = fields[0].tile, fields[0].region
    if len(fields) > 1:
        sizes = [int(f.region.max(initial=-1)) + 1 for f in fields]
        tile = np.concatenate([f.tile for f in fields])
        item = np.concatenate([f.region + sum(sizes[:i]) for i, f in enumerate(fields)])
        order = order_of(tile)
        tile, item = tile[order], item[order]
    start = np.flatnonzero(np.append(True, tile[1:] != tile[:-1]))
    count = np.diff(start, append=len(tile))
    tiles = tile[start]
    like = _first_alike(start, count, item)
    order = order_of(like)
    first = np.flatnonzero(like == np.arange(len(like)))
    return tiles[order], np.searchsorted(first, like[order]), tiles[first]


def _first_alike(start: Int64, count: Int64, item: Int64) -> Int64:
    """The first of the lists that each equals, int64[lists]; lists are ``count`` items from ``start``."""
    lists = np.arange(len(start))
    mixed = (item.astype(np.uint64) + np.uint64(1)) * _GOLDEN
    mixed = (mixed ^ (mixed >> _HALF)) * _GOLDEN
    key = np.add.reduceat(mixed ^ (mixed >> _HALF), start)
    order = order_of(key)
    fresh = np.append(True, key[order][1:] != key[order][:-1])
    like = np.empty_like(lists)
    like[order] = order[fresh][np.cumsum(fresh) - 1]
    # Hashes may be equal by accident: what differs from the list that it was found equal to is one of its own.
    like[count != count[like]] = lists[count != count[like]]
    there = np.arange(len(item)) + np.repeat(start[like] - start, count)
    different = np.flatnonzero(np.add.reduceat(item != item[there], start, dtype=np.int64))
    like[different] = different
    return like


def _numbers_of(first: Int32, tile: Int32) -> tuple[Int64, Int64]:
    """Places at which a tile is the first of an audience, and that audience."""
    at = np.minimum(np.searchsorted(first, tile), len(first) - 1)
    speaks = np.flatnonzero(first[at] == tile)
    return speaks, at[speaks]
