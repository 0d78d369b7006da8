"""Plans of slices and updates: how a table is spread over tiles."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from abele.arrays import Int32, Int64
from abele.numerics import ElementType


@dataclass(frozen=True)
class Parts:
    """One entry for each combination of parts: the work of one tile.

    Attributes:
        group: Group of the table, int64[n].
        entry: Part of the entries, int64[n].
        column: Part of the columns, int64[n].
        lookup: Part of the indices, int64[n].
        tile: Tile of the combination, int32[n].
    """

    group: Int64
    entry: Int64
    column: Int64
    lookup: Int64
    tile: Int32

    def __len__(self) -> int:
        return len(self.tile)

    def where(self, keep: npt.NDArray[np.bool_] | Int64) -> Parts:
        """Some of the combinations."""
        return Parts(self.group[keep], self.entry[keep], self.column[keep], self.lookup[keep], self.tile[keep])

    def alike(self, *names: str) -> tuple[Int64, Int64]:
        """The first combination of each set that agrees in some parts, and the set of each combination.

        What a set has in common is one region: the exchange then sweeps its pieces once, however many tiles want it.
        """
        key = np.zeros(len(self), np.int64)
        for name in names:
            part = getattr(self, name)
            key = key * (int(part.max(initial=0)) + 1) + part
        _, first, which = np.unique(key, return_index=True, return_inverse=True)
        return first, which


class _MadeOrNone(type):
    """``SlicePlan()`` is PopLibs' plan of nothing: None, with which calls plan for themselves."""

    def __call__(cls, *given: Any, **named: Any) -> Any:
        """A plan, or None."""
        return super().__call__(*given, **named) if given or named else None


@dataclass(frozen=True)
class SlicePlan(metaclass=_MadeOrNone):
    """A table of ``num_groups`` × ``num_entries`` × ``output_size`` elements and its split over the tiles.

    Entries, columns and indices are cut into parts; every combination of parts is the work of one tile. Columns are cut
    evenly. A tile slices the rows that its indices name, within its entries and columns.

    Attributes:
        dtype: Element type of the table.
        num_groups: Tables that are sliced side by side.
        num_entries: Rows of a table.
        output_size: Elements of a row.
        num_lookups: Indices of each group that the plan is made for.
        group_split: Sets of tiles that the groups are dealt to.
        entry_split: Parts of the entries.
        column_split: Parts of the columns.
        lookup_split: Parts of the indices.
        partial_type: Element type of partial sums where indices are split.
        validates: True if indices out of range stop the program.
        costs: Cycles and bytes that the planner expects, by name.
    """

    dtype: ElementType
    num_entries: int
    output_size: int
    num_lookups: int
    num_groups: int = 1
    group_split: int = 1
    entry_split: int = 1
    column_split: int = 1
    lookup_split: int = 1
    partial_type: ElementType | None = None
    validates: bool = False
    costs: Mapping[str, float] = field(default_factory=dict, compare=False)

    @property
    def width(self) -> int:
        """Columns of a part."""
        return self.output_size // self.column_split

    @property
    def entries_per_part(self) -> int:
        """Entries of a part; the last one may have fewer."""
        return -(-self.num_entries // self.entry_split)

    @property
    def tiles(self) -> int:
        """Tiles that take part."""
        return self.group_split * self.entry_split * self.column_split * self.lookup_split

    @cached_property
    def parts(self) -> Parts:
        """All combinations; those of one part of the table are neighbours, which may receive it in pairs."""
        splits = (self.num_groups, self.entry_split, self.column_split, self.lookup_split)
        group, entry, column, lookup = (i.reshape(-1).astype(np.int64) for i in np.indices(splits))
        # Mixed-radix number of the combination, so that combinations next to each other are on neighbouring tiles.
        tile = group * self.group_split // self.num_groups
        for part, split in ((entry, self.entry_split), (column, self.column_split), (lookup, self.lookup_split)):
            tile = tile * split + part
        return Parts(group, entry, column, lookup, tile.astype(np.int32))

    def __str__(self) -> str:
        groups = f"{self.num_groups} groups of " if self.num_groups > 1 else ""
        lines = [
            f"slices of {groups}{self.num_entries} x {self.output_size} {self.dtype.name}, {self.num_lookups} indices",
            f"  entries in {self.entry_split} parts of {self.entries_per_part}",
            f"  columns in {self.column_split} parts of {self.width}",
            f"  indices in {self.lookup_split} parts of {-(-self.num_lookups // self.lookup_split)}",
            f"  tiles   {self.tiles}",
        ]
        lines += [f"  {name:<28} {round(value):>12,}" for name, value in self.costs.items()]
        return "\n".join(lines)


def part_range(total: int, parts: int, part: Int64) -> tuple[Int64, Int64]:
    """Begin and length of parts of ⌈total / parts⌉; the last ones may be shorter or empty."""
    size = -(-total // parts) if parts else 0
    begin = np.minimum(part * size, total)
    return begin, np.minimum(begin + size, total) - begin
