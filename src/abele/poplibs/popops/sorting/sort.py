"""Sorting along a dimension, of keys alone and with values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from abele.arrays import Int32, Int64
from abele.errors import TensorError, TypeMismatchError
from abele.expr import check_computes
from abele.graph import Copy, Execute, Graph, Tensor
from abele.graph.mapping import TileMapping
from abele.graph.program import Steps
from abele.numerics import ElementType, u32
from abele.poplibs.popops.sorting.codelets import Record, best_codelet, keep_codelet, local_codelet, swap_codelet
from abele.poplibs.popops.sorting.host import host_sort
from abele.poplibs.poputil.host_body import note_host
from abele.poplibs.poputil.mapping import set_mapping
from abele.poplibs.poputil.regions import count_up, flat_regions

# Sorting networks over tiles: bitonic sort, and the best of each row by a tree of merges.
#
# Why it sorts: a bitonic merge takes two sorted stretches. Comparing each place with its mirror image puts the better
# of every pair into the first half; then everything in the first half is at least as good as all of the second, and
# both are bitonic. Comparing at half the distance, a quarter, and so on down to neighbours sorts any bitonic stretch.
# So blocks are sorted first, and merged with blocks of twice the size until a row is one: log²(n) / 2 rounds, in each
# of which every place is compared once. Which places meet depends on their numbers alone and never on data. That is
# what an exchange that is fixed at compile time needs; algorithms that do less work (sample sort, quicksort) send as
# many elements between tiles as the data says. Rounds whose distance is below a block run within tiles, in one
# superstep.
#
# ``keep_best`` needs less: of two sorted blocks the best k are found by comparing the first with the mirror image of
# the other and keeping the better of each pair, which is bitonic again. A tree of these takes log(blocks) supersteps.

# Rows of records laid out in blocks over the tiles.

MIN_BLOCK = 32
"""Records below which a row is not shared between tiles: 128 bytes of 32-bit keys, as linear mappings have it."""
HOST_ROWS = 8
"""Rows from which a host sorts each by one vertex: fewer leave threads idle that the network of a row would use."""


def power_of_two(n: int) -> int:
    """The least power of two that is at least ``n``."""
    return 1 << max(n - 1, 0).bit_length()


@dataclass(frozen=True)
class RecordBlocks:
    """``rows`` rows of ``length`` records, each cut into blocks of ``size`` records, the last of them shorter.

    Attributes:
        rows: Number of rows.
        length: Records of a row.
        size: Records of a block, a power of two; a row that is no longer is one block.
        num_tiles: Tiles that blocks are spread over.
    """

    rows: int
    length: int
    size: int
    num_tiles: int

    @staticmethod
    def plan(graph: Graph, rows: int, length: int, least: int = MIN_BLOCK) -> RecordBlocks:
        """Blocks that keep all tiles busy, of at least ``least`` records."""
        tiles = graph.system.num_tiles
        return RecordBlocks(rows, length, power_of_two(max(-(-rows * length // tiles), least)), tiles)

    @property
    def per_row(self) -> int:
        """Blocks of a row."""
        return -(-self.length // self.size)

    @property
    def count(self) -> int:
        """Blocks in all."""
        return self.rows * self.per_row

    @property
    def begin(self) -> Int64:
        """First record of each block in the flattened rows, int64[count]."""
        row, block = np.divmod(np.arange(self.count, dtype=np.int64), self.per_row)
        return np.asarray(row * self.length + block * self.size, np.int64)

    @property
    def sizes(self) -> Int64:
        """Records of each block, int64[count]."""
        block = np.arange(self.count, dtype=np.int64) % self.per_row
        return np.asarray(np.minimum(self.length - block * self.size, self.size), np.int64)

    @property
    def tile(self) -> Int32:
        """Tile of each block, int32[count]."""
        used = min(self.count, self.num_tiles)
        return (np.arange(self.count, dtype=np.int64) * used // self.count).astype(np.int32)

    def variable(self, graph: Graph, dtype: ElementType, name: str) -> Tensor:
        """A variable [rows, length] in these blocks."""
        made = graph.variable(dtype, (self.rows, self.length), name=name)
        return set_mapping(graph, made, TileMapping(self.rows * self.length, self.begin, self.tile))

    def on_tiles(self) -> tuple[Int64, Int64, Int32]:
        """Begin, length and tile of each vertex's elements: whole rows of a tile, or a block."""
        if self.per_row > 1:
            return self.begin, self.sizes, self.tile
        tile = self.tile
        first = np.flatnonzero(np.append(True, np.diff(tile) != 0))
        begin = self.begin[first]
        return begin, np.diff(np.append(begin, self.rows * self.length)), tile[first]

    def pairs(self, distance: int, mirrored: int = 0) -> tuple[Int64, Int64, Int64]:
        """Blocks that are compared with each other.

        Args:
            distance: Blocks between them; not used where they are mirrored.
            mirrored: Blocks of a merge in which block i is compared with block i from the end; 0 for a fixed distance.

        Returns:
            Number of the earlier and of the later block, and places that are compared, int64[k] each.
        """
        block = np.arange(self.per_row, dtype=np.int64)
        if mirrored:
            other = block // mirrored * mirrored + mirrored - 1 - block % mirrored
        else:
            # The later block of a pair is skipped, or the pair would come twice.
            other = np.where(block // distance % 2 == 0, block + distance, -1)
        # A partner beyond the end stands for worst elements, which never move: nothing to compare.
        low = np.flatnonzero((other > block) & (other < self.per_row))
        row, number = count_up(np.full(self.rows, len(low), dtype=np.int64))
        low, high = low[number] + row * self.per_row, other[low][number] + row * self.per_row
        return low, high, self.sizes[high]


class SortingNetwork:
    """Steps that sort columns of records in blocks.

    Args:
        graph: Graph in which vertices are made.
        body: Program that steps are appended to.
        blocks: Layout of the records on tiles.
        record: Key and values of a record.
        columns: Tensor [rows, length] in these blocks for each field of a record.
        name: Prefix of compute sets.
    """

    def __init__(
        self, graph: Graph, body: Steps, blocks: RecordBlocks, record: Record, columns: Sequence[Tensor], name: str
    ) -> None:
        self.graph, self.body, self.blocks, self.record, self.name = graph, body, blocks, record, name
        self.columns = dict(zip(record.columns, (c.flatten() for c in columns), strict=True))

    def sort(self) -> None:
        """Sort every row: each block, then blocks of twice the size, until a row is one."""
        blocks = self.blocks
        self._local(whole=True)
        size = 2
        while size < 2 * blocks.per_row:
            # First round of a merge of `size` blocks: mirrored, so both halves may be sorted the same way.
            self._swap(0, size)
            distance = size // 4
            while distance > 0:
                self._swap(distance)
                distance //= 2
            # All rounds with distances below a block.
            self._local(whole=False)
            size *= 2

    def keep_best(self, wanted: int) -> None:
        """Leave the best ``wanted`` records of every row, sorted, at its begin; the rest is left in disorder.

        A block holds at least the least power of two that is ``wanted`` or more.
        """
        kept, distance = power_of_two(wanted), 1
        if kept < min(self.blocks.size, self.blocks.length):
            self._best(kept)
        else:
            self._local(whole=True)
        while distance < self.blocks.per_row:
            self._keep(kept, distance)
            distance *= 2

    def _edges(self, suffix: str, begin: Int64, length: Int64) -> dict[str, Any]:
        return {f"{n}{suffix}": flat_regions(t, begin, length) for n, t in self.columns.items()}

    def _local(self, whole: bool) -> None:
        begin, length, tile = self.blocks.on_tiles()
        row = length if self.blocks.per_row > 1 else self.blocks.length
        width = min(self.blocks.size, power_of_two(self.blocks.length))
        compute_set = self.graph.compute_set(f"{self.name}/{'sort' if whole else 'merge'}")
        codelet = local_codelet(self.record, whole)
        compute_set.vertices(codelet, tile=tile, row=row, width=width, **self._edges("", begin, length))
        self.body.add(Execute(compute_set))

    def _best(self, kept: int) -> None:
        """The best of every block to its begin."""
        begin, length, tile = self.blocks.on_tiles()
        row = length if self.blocks.per_row > 1 else self.blocks.length
        compute_set = self.graph.compute_set(f"{self.name}/best")
        edges = self._edges("", begin, length)
        compute_set.vertices(best_codelet(self.record), tile=tile, row=row, kept=kept, **edges)
        self.body.add(Execute(compute_set))

    def _swap(self, distance: int, mirrored: int = 0) -> None:
        """Compare blocks, half of the places on the tile of either."""
        blocks = self.blocks
        low, high, pairs = blocks.pairs(distance, mirrored)
        if len(low) == 0:
            return
        # Each of the two tiles compares half of the places, so that both work and half as much is sent.
        middle = -(-pairs // 2)
        first = np.concatenate([np.zeros_like(pairs), middle])
        count = np.concatenate([middle, pairs - middle])
        low, high, pairs = np.tile(low, 2), np.tile(high, 2), np.tile(pairs, 2)
        tile = np.concatenate([blocks.tile[low[: len(low) // 2]], blocks.tile[high[: len(high) // 2]]])
        some = count > 0
        low, high, pairs, first, count, tile = (a[some] for a in (low, high, pairs, first, count, tile))
        # Mirrored: a shorter last block meets the end of the earlier one, as if worst elements filled it up.
        low_begin = blocks.begin[low] + first + (blocks.sizes[low] - pairs if mirrored else 0)
        high_begin = blocks.begin[high] + (pairs - first - count if mirrored else first)
        compute_set = self.graph.compute_set(f"{self.name}/swap")
        edges = self._edges("_low", low_begin, count) | self._edges("_high", high_begin, count)
        compute_set.vertices(swap_codelet(self.record, bool(mirrored)), tile=tile, **edges)
        self.body.add(Execute(compute_set))

    def _keep(self, kept: int, distance: int) -> None:
        """Merge the best of blocks ``distance`` apart into the earlier of them."""
        blocks = self.blocks
        low, high, _ = blocks.pairs(distance)
        # In the tree only blocks that have won before go on.
        chosen = low % blocks.per_row % (2 * distance) == 0
        low, high = low[chosen], high[chosen]
        low_size, high_size = np.full(len(low), kept, np.int64), np.minimum(blocks.sizes[high], kept)
        compute_set = self.graph.compute_set(f"{self.name}/keep")
        edges = self._edges("_low", blocks.begin[low], low_size) | self._edges("_high", blocks.begin[high], high_size)
        compute_set.vertices(keep_codelet(self.record), tile=blocks.tile[low], **edges)
        self.body.add(Execute(compute_set))


def sort(graph: Graph, tensor: Tensor, dim: int, prog: Steps, name: str = "sort") -> Tensor:
    """The elements of ``tensor`` in ascending order along ``dim``, as a new tensor.

    Numbers that are NaN are in no order, and may leave others out of order.

    Raises:
        TensorError: The tensor has no such dimension.
        TypeMismatchError: Its elements are truth values.
    """
    return _sorted(graph, [tensor], dim, prog, name, "popops.sort", in_place=False)[0]


def sort_in_place(graph: Graph, tensor: Tensor, dim: int, prog: Steps, name: str = "sort") -> None:
    """Overwrite ``tensor`` with its :func:`sort`.

    Raises:
        ConstantWriteError: ``tensor`` is constant; see also :func:`sort`.
    """
    _sorted(graph, [tensor], dim, prog, name, "popops.sort", in_place=True)


def sort_key_value(
    graph: Graph, keys: Tensor, values: Tensor, dim: int, prog: Steps, name: str = "sort"
) -> tuple[Tensor, Tensor]:
    """``keys`` in ascending order along ``dim``, and ``values`` in the order of their keys, as new tensors.

    Values with equal keys are in any order, which is the same in every run.

    Raises:
        TensorError: The shapes differ; see also :func:`sort`.
    """
    found = _sorted(graph, [keys, values], dim, prog, name, "popops.sort_key_value", in_place=False)
    return found[0], found[1]


def sort_key_value_in_place(
    graph: Graph, keys: Tensor, values: Tensor, dim: int, prog: Steps, name: str = "sort"
) -> None:
    """Overwrite ``keys`` and ``values`` with their :func:`sort_key_value`.

    Raises:
        ConstantWriteError: One of them is constant; see also :func:`sort_key_value`.
    """
    _sorted(graph, [keys, values], dim, prog, name, "popops.sort_key_value", in_place=True)


def sort_with_permutation(
    graph: Graph, tensor: Tensor, dim: int, prog: Steps, *, largest_first: bool = False, name: str = "sort"
) -> tuple[Tensor, Tensor]:
    """The elements of ``tensor`` in order along ``dim``, and their positions in it, u32; equal ones keep their order.

    Args:
        graph: Graph in which vertices and results are made.
        tensor: Numbers. Those that are NaN are in no order, and may leave others out of order.
        dim: The dimension that is sorted along.
        prog: Sequence that the steps are appended to.
        largest_first: True for descending order.
        name: Name of the steps.

    Raises:
        TensorError: The tensor has no such dimension.
        TypeMismatchError: Its elements are truth values.
    """
    keys, record = tensor, Record(tensor.dtype, (u32,), largest_first, by_second=True)
    check_keys(keys, [], name)
    axis = checked_axis(keys, dim, name)
    moved = keys.moveaxis(axis, keys.ndim - 1)
    length = moved.shape[-1]
    if keys.size == 0:
        return graph.clone(keys, name=f"{name}/out"), graph.map(
            graph.variable(u32, keys.shape, name=f"{name}/places"), 0
        )
    blocks = RecordBlocks.plan(graph, keys.size // length, length)
    columns = [blocks.variable(graph, t, f"{name}/{n}") for n, t in record.columns.items()]
    rows = moved.reshape(columns[0].shape)
    results = [c.reshape(moved.shape).moveaxis(keys.ndim - 1, axis) for c in columns]
    call = graph.library_call(
        prog,
        "popops.sort_with_permutation",
        inputs=(keys,),
        outputs=tuple(results),
        kernel=None,
        flops=0,
        debug_name=name,
    )
    with call as body:
        body.add(Copy(rows, columns[0]))
        numbers = graph.constant(u32, (length,), np.arange(length, dtype=np.uint32), name=f"{name}/numbers")
        body.add(Copy(graph.map_linear(numbers).broadcast_to(rows.shape), columns[1]))
        SortingNetwork(graph, body, blocks, record, columns, name).sort()
    note_host(prog, host_sort(graph, rows, columns[0], columns[1], largest_first=record.largest_first, name=name))
    return results[0], results[1]


def checked_axis(keys: Tensor, dim: int, name: str) -> int:
    """``dim``, not negative.

    Raises:
        TensorError: There is no such dimension.
    """
    axis = dim + keys.ndim if dim < 0 else dim
    if not 0 <= axis < keys.ndim:
        raise TensorError(f"{name}: {keys!r} has no dimension {dim}")
    return axis


def _sorted(
    graph: Graph, tensors: Sequence[Tensor], dim: int, prog: Steps, name: str, library: str, *, in_place: bool
) -> list[Tensor]:
    keys = tensors[0]
    check_keys(keys, tensors[1:], name)
    axis = checked_axis(keys, dim, name)
    order = [d for d in range(keys.ndim) if d != axis] + [axis]
    views = [t.transpose(order) for t in tensors]
    shape = views[0].shape
    length = shape[-1]
    if keys.size == 0:
        return [graph.clone(t, name=f"{name}/out") for t in tensors]
    blocks = RecordBlocks.plan(graph, keys.size // length, length)
    columns = [blocks.variable(graph, t.dtype, f"{name}/out") for t in tensors]
    inverse = sorted(range(keys.ndim), key=order.__getitem__)
    results = list(tensors) if in_place else [c.reshape(shape).transpose(inverse) for c in columns]
    call = graph.library_call(
        prog, library, inputs=tuple(tensors), outputs=tuple(results), kernel=None, flops=0, debug_name=name
    )
    with call as body:
        for view, column in zip(views, columns, strict=True):
            body.add(Copy(view.reshape(column.shape), column))
        record = Record(keys.dtype, tuple(t.dtype for t in tensors[1:]))
        SortingNetwork(graph, body, blocks, record, columns, name).sort()
        if in_place:
            for view, column in zip(views, columns, strict=True):
                body.add(Copy(column.reshape(view.shape), view))
    if blocks.rows < HOST_ROWS:
        return results
    places = graph.map_linear(graph.variable(u32, columns[0].shape, name=f"{name}/places"))
    rows, *values = (view.reshape(columns[0].shape) for view in views)
    steps = host_sort(graph, rows, columns[0], places, values, columns[1:], largest_first=False, name=name)
    for view, column in zip(views, columns, strict=True) if in_place else ():
        steps.add(Copy(column.reshape(view.shape), view))
    note_host(prog, steps)
    return results


def check_keys(keys: Tensor, values: Sequence[Tensor], name: str) -> None:
    """Check the operands of a sort.

    Raises:
        TensorError: A scalar, or values of another shape.
        TypeMismatchError: Keys that have no order.
    """
    if keys.ndim == 0:
        raise TensorError(f"{name}: {keys!r} has no dimension to sort along")
    check_computes(keys.dtype, name=name)
    for other in values:
        if other.shape != keys.shape:
            raise TensorError(f"{name}: keys {keys!r} and values {other!r} differ in shape")
    if keys.dtype.kind == "bool":
        raise TypeMismatchError(f"{name}: keys are numbers, got {keys.dtype}", remedy="cast them first")
