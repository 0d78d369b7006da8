"""What a tensor shows: variables, intervals, aliases, mapping, text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from abele.graph.block import Block, Strides, strides_of
from abele.graph.content import Content
from abele.graph.intervals import Int64, Interval, cut_at, merge_adjacent
from abele.graph.mapping import TileMapping
from abele.graph.strided import Strided
from abele.graph.variable import Variable
from abele.words import counted, tiles_text

if TYPE_CHECKING:
    from abele.graph.tensor import Tensor

_DUMP_REGIONS = 1000


class TensorShown:
    """Mix-in of :class:`Tensor`."""

    __slots__ = ()

    _aliases: bool | None

    @property
    def name(self: Tensor) -> str:  # type: ignore[misc]
        """Name of the first variable that the view shows."""
        variables = self.variables
        return variables[0].name if variables else "empty"

    @property
    def variables(self: Tensor) -> tuple[Variable, ...]:  # type: ignore[misc]
        """The variables that the view shows, in order of first appearance."""
        found = self.content.variables
        return self.graph.variables_at(self.content.addresses(self.shape)) if found is None else found

    def addresses(self: Tensor) -> Int64:  # type: ignore[misc]
        """Global address of every element, int64 of this shape."""
        return self.content.addresses(self.shape)

    def strided(self: Tensor) -> Strided | None:  # type: ignore[misc]
        """The view as one strided block of one variable, or None when it is not."""
        blocks = self.content.blocks
        if blocks is None or len(blocks) != 1:
            return None
        block = blocks[0]
        factors: tuple[Strides, ...] = tuple(strides_of(f) for f in block.factors)
        return Strided(block.variable, block.offset, factors)

    @property
    def blocks(self: Tensor) -> tuple[Block, ...] | None:  # type: ignore[misc]
        """The strided blocks that the view was joined from, each a box of it.

        None when it has no such form: a reshape cut across the blocks, or only addresses are known.
        """
        return None if self.content.is_cut else self.content.blocks

    def intervals(self: Tensor) -> tuple[Int64, Int64]:  # type: ignore[misc]
        """Global begins and lengths of the view's contiguous pieces, int64[k] each, in flattened order."""
        found = self._intervals
        if found is None:
            run = self.content.single_run
            if run is not None:
                return np.array(run[:1], dtype=np.int64), np.array(run[1:], dtype=np.int64)
            begin, length, _ = merge_adjacent(*self.content.runs(self.shape))
            found = self._intervals = (begin, length)
        return found

    def contiguous_regions(self: Tensor) -> list[Interval]:  # type: ignore[misc]
        """Intervals of the flattened view, in order, that are contiguous in one variable each."""
        _, length = self.variable_runs()
        end = np.cumsum(length)
        return [Interval(int(e - n), int(e)) for e, n in zip(end, length, strict=True)]

    def var_regions(self: Tensor) -> list[tuple[Variable, Interval]]:  # type: ignore[misc]
        """Variable and interval of its elements for each contiguous piece of the flattened view, in order."""
        begin, length = self.variable_runs()
        found = []
        for low, count in zip(begin.tolist(), length.tolist(), strict=True):
            variable, element = self.graph.locate(low)
            found.append((variable, Interval(element, element + count)))
        return found

    def variable_runs(self: Tensor) -> tuple[Int64, Int64]:  # type: ignore[misc]
        """As :meth:`intervals`, cut where one variable ends and its neighbour begins."""
        bases = np.array(sorted({v.base for v in self.variables if v.size}), dtype=np.int64)
        begin, length, _ = cut_at(bases, *self.intervals())
        return begin, length

    @property
    def is_contiguous(self: Tensor) -> bool:  # type: ignore[misc]
        """Whether the flattened view is one interval of one variable."""
        return self.size == 0 or (len(self.variables) == 1 and len(self.intervals()[0]) == 1)

    @property
    def contains_aliases(self: Tensor) -> bool:  # type: ignore[misc]
        """Whether an element appears more than once."""
        found = self._aliases
        if found is None:
            found = self._aliases = _repeats(self.content, self.size)
        return found

    @property
    def contains_constant(self: Tensor) -> bool:  # type: ignore[misc]
        """Whether an element belongs to a constant."""
        return any(v.is_constant for v in self.variables)

    @property
    def writable(self: Tensor) -> bool:  # type: ignore[misc]
        """Whether every element may be written in parallel: none is constant, none appears twice."""
        return not self.contains_constant and not self.contains_aliases

    @property
    def is_parallel_writeable(self: Tensor) -> bool:  # type: ignore[misc]
        """The same as :attr:`writable`, in Poplar's words."""
        return self.writable

    def overlaps(self: Tensor, other: Tensor) -> bool:  # type: ignore[misc]
        """Whether the two views share an element."""
        (low, high), (other_low, other_high) = self.content.bounds, other.content.bounds
        if not self.size or not other.size or high <= other_low or other_high <= low:
            return False
        begin, length, _ = self.content.footprint()
        order = np.argsort(begin, kind="stable")
        begin, end = begin[order], np.maximum.accumulate((begin + length)[order])
        start, size, _ = other.content.footprint()
        slot = np.searchsorted(begin, start + size, side="left") - 1
        return bool(((slot >= 0) & (end[np.maximum(slot, 0)] > start)).any())

    def is_same_view(self: Tensor, other: Tensor) -> bool:  # type: ignore[misc]
        """Whether both views have the same shape and type and show the same elements in the same order."""
        if self is other:
            return True
        if self.shape != other.shape or self.dtype != other.dtype or self.content.bounds != other.content.bounds:
            return False
        mine, theirs = self.strided(), other.strided()
        if mine is not None and mine == theirs:
            return True
        return all(np.array_equal(a, b) for a, b in zip(self.intervals(), other.intervals(), strict=True))

    def __repr__(self: Tensor) -> str:  # type: ignore[misc]
        from abele.graph.shown import tensor_line

        return tensor_line(self)

    def _repr_html_(self: Tensor) -> str:  # type: ignore[misc]
        from abele.graph.shown import tensor_card

        return tensor_card(self)

    def debug_str(self: Tensor) -> str:  # type: ignore[misc]
        """Type, shape, variables, tiles and what may be done with the view, in one line."""
        variables, tiles = self.variables, self.mapping.tile
        used = np.unique(tiles[tiles >= 0])
        where = tiles_text(used)
        facts = f"contiguous={self.is_contiguous}, aliases={self.contains_aliases}, constant={self.contains_constant}"
        names = counted(len(variables), "variable") if len(variables) != 1 else repr(variables[0].name)
        return f"Tensor({self.dtype.poplar_name}, {list(self.shape)}, {names}, {where}, {facts})"

    def text(self: Tensor) -> str:  # type: ignore[misc]
        """:meth:`debug_str`, then a line a contiguous piece: where in the view, of which variable, on which tiles."""
        lines = [self.debug_str()]
        at = 0
        regions = self.var_regions()
        for variable, interval in regions[:_DUMP_REGIONS]:
            tiles = variable.mapping.tiles_over(interval.begin, interval.end)
            on = "no tile" if (tiles < 0).all() else tiles_text(tiles[tiles >= 0])
            here = f"[{at}:{at + interval.size})"
            lines.append(f"  {here:<16} {variable.name}[{interval.begin}:{interval.end}) on {on}")
            at += interval.size
        if len(regions) > _DUMP_REGIONS:
            lines.append(f"  … and {len(regions) - _DUMP_REGIONS:,} more pieces")
        return "\n".join(lines)

    # --- mapping -----------------------------------------------------------------------------------------------------

    @property
    def mapping(self: Tensor) -> TileMapping:  # type: ignore[misc]
        """Tile of every element of the flattened view, in the numbering of the whole graph."""
        return self.graph.mapping_of(self)

    def map(self: Tensor, mapping: Any) -> Tensor:  # type: ignore[misc]
        """Place the view's elements: on one tile, by ``{tile: [intervals]}`` or by a list of intervals per tile.

        Intervals are of the flattened view; tiles are numbered as in the whole graph. Elements already placed move.
        Returns the view.

        Raises:
            TileMappingError: A tile that the system lacks, or an interval outside the view.
        """
        self.graph.map(self, mapping)
        return self

    def map_rows(self: Tensor, tiles: Sequence[int]) -> Tensor:  # type: ignore[misc]
        """Place row i of the first dimension on ``tiles[i]``. Returns the view."""
        self.graph.map_rows(self, tiles)
        return self

    def map_linear(  # type: ignore[misc]
        self: Tensor, min_elements: int | None = None, grain: int | None = None, first_tile: int = 0
    ) -> Tensor:
        """Spread the flattened view over all tiles in equal chunks. Returns the view.

        Args:
            min_elements: Smallest chunk; by default as many as 128 bytes hold.
            grain: Chunks are multiples of this; by default as many as 8 bytes hold.
            first_tile: Tile of the first chunk; later chunks follow in order and wrap around.
        """
        self.graph.map_linear(self, min_elements, grain, first_tile)
        return self


def _repeats(content: Content, size: int) -> bool:
    """Whether an element appears more than once in a view of ``size`` elements."""
    if content.is_surely_distinct:
        return False
    low, high = content.bounds
    if size > high - low:
        return True
    begin, length, repeated = content.footprint()
    order = np.argsort(begin, kind="stable")
    return repeated or bool((begin[order][1:] < (begin + length)[order][:-1]).any())
