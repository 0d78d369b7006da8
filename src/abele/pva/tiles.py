"""Memory of tiles under libpva's categories."""

from __future__ import annotations

from typing import NoReturn

import numpy as np

from abele.arrays import Int64
from abele.errors import nearest
from abele.pva.missing import missing
from abele.pva.sequences import LazySequence
from abele.report import Memory, Report
from abele.report.code import CODE

CATEGORIES = {
    "variable": ("variables", "temporaries"),
    "vertexInstanceState": ("vertex_state",),
    "vertexCode": ("vertex_code",),
    "controlCode": ("control_code",),
    "internalExchangeCode": ("exchange_code",),
    "stack": ("stacks",),
    "hostMessage": ("stream_buffers",),
}
"""Categories of libpva, each with the report's own categories that it sums."""

HELD_ELSEWHERE = {
    "vertexFieldData": "vertexInstanceState",
    "hostExchangeCode": "internalExchangeCode",
    "globalExchangeCode": "internalExchangeCode",
    "constant": "variable",
    "message": "variable",
}
"""Categories of libpva's that are counted as part of another."""
_NOT_ALWAYS_LIVE = ("temporaries",)
_GAPS = ("gaps",)


class TotalMemory:
    """Bytes of a tile."""

    __slots__ = ("_tile", "_tiles")

    def __init__(self, tiles: Tiles, tile: int) -> None:
        self._tiles = tiles
        self._tile = tile

    @property
    def includingGaps(self) -> int:
        """Bytes with the gaps between variables."""
        return int(self._tiles.includingGaps_of_all[self._tile])

    @property
    def excludingGaps(self) -> int:
        """Without them."""
        return int(self._tiles.excludingGaps_of_all[self._tile])


class CategoryMemory:
    """Bytes of one category on a tile.

    Attributes:
        total: The bytes.
    """

    __slots__ = ("total",)

    def __init__(self, total: int) -> None:
        self.total = total


class TileCategories:
    """Bytes of a tile by category: ``category.vertexCode.total``."""

    __slots__ = ("_memory", "_tile")

    def __init__(self, memory: Memory, tile: int) -> None:
        self._memory = memory
        self._tile = tile

    def _of(self, name: str) -> CategoryMemory:
        known = self._memory.categories
        at = [known.index(each) for each in CATEGORIES[name] if each in known]
        return CategoryMemory(int(self._memory.bytes[at, self._tile].sum()))

    @property
    def variable(self) -> CategoryMemory:
        """Variables, and the temporary ones live at the tile's worst step, with data in motion."""
        return self._of("variable")

    @property
    def vertexInstanceState(self) -> CategoryMemory:
        """Fields and state of vertices."""
        return self._of("vertexInstanceState")

    @property
    def vertexCode(self) -> CategoryMemory:
        """Code of codelets."""
        return self._of("vertexCode")

    @property
    def controlCode(self) -> CategoryMemory:
        """Code of the control program."""
        return self._of("controlCode")

    @property
    def internalExchangeCode(self) -> CategoryMemory:
        """Code of all exchanges."""
        return self._of("internalExchangeCode")

    @property
    def stack(self) -> CategoryMemory:
        """Stacks of workers and supervisor."""
        return self._of("stack")

    @property
    def hostMessage(self) -> CategoryMemory:
        """Buffers of streams."""
        return self._of("hostMessage")

    def __getattr__(self, name: str) -> NoReturn:
        raise _no_category(name)


class OperationCategories:
    """Bytes of an operation by category, over all tiles: ``category.vertexCode.total``."""

    __slots__ = ("_op", "_report")

    def __init__(self, report: Report, op: int) -> None:
        self._report = report
        self._op = op

    def __getattr__(self, name: str) -> CategoryMemory:
        return CategoryMemory(int(self._report.ops[f"{own_code(name)}_bytes"][self._op]))


def own_code(name: str) -> str:
    """The report's own name of a category of state or code, which operations have.

    Raises:
        MissingDatumError: It is none.
    """
    own = CATEGORIES.get(name, ())
    if len(own) == 1 and own[0] in CODE:
        return own[0]
    if name in CATEGORIES:
        raise missing(f"{name} by operation", remedy="compilation.tiles[i].memory.category has it by tile")
    raise _no_category(name)


def _no_category(name: str) -> AttributeError:
    if name in HELD_ELSEWHERE:
        return missing(f"{name} by itself: it is part of {HELD_ELSEWHERE[name]}")
    close = nearest(name, CATEGORIES)
    return missing(
        f"a memory category {name!r}", remedy=f"did you mean {close}?" if close else "one of " + ", ".join(CATEGORIES)
    )


class TileMemory:
    """Memory of a tile."""

    __slots__ = ("_tile", "_tiles")

    def __init__(self, tiles: Tiles, tile: int) -> None:
        self._tiles = tiles
        self._tile = tile

    @property
    def total(self) -> TotalMemory:
        """Bytes of all categories."""
        return TotalMemory(self._tiles, self._tile)

    @property
    def alwaysLiveBytes(self) -> int:
        """Bytes there through the whole program: variables, code, state, stacks and buffers."""
        return int(self._tiles.alwaysLiveBytes_of_all[self._tile])

    @property
    def notAlwaysLiveBytes(self) -> int:
        """Bytes there at the tile's worst step besides those that are always live."""
        return int(self._tiles.notAlwaysLiveBytes_of_all[self._tile])

    @property
    def category(self) -> TileCategories:
        """Bytes of each category."""
        return TileCategories(self._tiles.memory, self._tile)


class Tile:
    """A tile.

    Attributes:
        id: Its number in the replica.
    """

    __slots__ = ("_tiles", "id")

    def __init__(self, tiles: Tiles, tile: int) -> None:
        self._tiles = tiles
        self.id = tile

    @property
    def memory(self) -> TileMemory:
        """Memory of the tile."""
        return TileMemory(self._tiles, self.id)

    def __repr__(self) -> str:
        return f"Tile({self.id}, {self.memory.total.includingGaps:,} B)"


class Tiles(LazySequence[Tile]):
    """Tiles: objects one by one, or what all hold as arrays.

    Args:
        memory: The report's memory.
        rows: Tiles: how many from 0 on, or int64[n].
    """

    def __init__(self, memory: Memory, rows: int | Int64) -> None:
        super().__init__(rows, self._tile, "tile")
        self.memory = memory
        known = memory.categories
        of = {name: _sum(memory, [name]) for name in (*_GAPS, *_NOT_ALWAYS_LIVE)}
        self.includingGaps_of_all = memory.by_tile
        self.excludingGaps_of_all = memory.by_tile - of["gaps"]
        self.notAlwaysLiveBytes_of_all = of["temporaries"]
        self.alwaysLiveBytes_of_all = _sum(memory, [n for n in known if n not in (*_GAPS, *_NOT_ALWAYS_LIVE)])

    def _tile(self, tile: int) -> Tile:
        return Tile(self, tile)

    @property
    def includingGaps(self) -> Int64:
        """Bytes of each with gaps, int64[n]."""
        return self.includingGaps_of_all[self.rows]

    @property
    def excludingGaps(self) -> Int64:
        """Bytes of each without gaps, int64[n]."""
        return self.excludingGaps_of_all[self.rows]

    @property
    def alwaysLiveBytes(self) -> Int64:
        """Bytes on each that are there through the whole program, int64[n]."""
        return self.alwaysLiveBytes_of_all[self.rows]

    @property
    def notAlwaysLiveBytes(self) -> Int64:
        """Bytes of each tile at its worst step besides those that are always live, int64[n]."""
        return self.notAlwaysLiveBytes_of_all[self.rows]

    def category(self, name: str) -> Int64:
        """Bytes of one category on each, int64[n].

        Args:
            name: One of ``CATEGORIES``, as in ``vertexCode``.

        Raises:
            MissingDatumError: The report does not hold it.
        """
        if name not in CATEGORIES:
            raise _no_category(name)
        return _sum(self.memory, CATEGORIES[name])[self.rows]


def _sum(memory: Memory, names: tuple[str, ...] | list[str]) -> Int64:
    """Bytes of some categories on each tile, int64[tiles]; zeros for those that the memory lacks."""
    at = [memory.categories.index(name) for name in names if name in memory.categories]
    return np.repeat(memory.run_bytes[at].sum(axis=0), memory.run_tiles)


class Ipu:
    """An IPU.

    Attributes:
        id: Its number in the replica.
        tiles: Its tiles.
    """

    __slots__ = ("id", "tiles")

    def __init__(self, number: int, tiles: Tiles) -> None:
        self.id = number
        self.tiles = tiles

    def __repr__(self) -> str:
        return f"Ipu({self.id}, {len(self.tiles):,} tiles)"


def ipus_of(report: Report, tiles: Tiles) -> LazySequence[Ipu]:
    """The IPUs of a report's replica, with their tiles."""
    count = max(int(report.target["num_ipus"]), 1)
    each = len(tiles) // count
    return LazySequence(count, lambda ipu: Ipu(ipu, tiles[ipu * each : (ipu + 1) * each]), "IPU")
