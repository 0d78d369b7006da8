"""Views in a file: one strided block as numbers, any other as runs of elements."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from abele.arrays import Int64
from abele.compiler.store import format as stored
from abele.compiler.store.format import ExecutableDocument
from abele.graph import Graph, Regions, Tensor
from abele.graph.block import StridedBlock, flat_factors, runs
from abele.graph.block_list import BlockList
from abele.graph.gather import content_of_runs
from abele.numerics import as_element_type
from abele.report import archive as container
from abele.report.archive import Archive, Kind, part
from abele.words import counted

# The arrays of an executable, by the names under which its document refers to them.

KIND = Kind(
    noun="executable",
    version=6,
    max_bytes=64 << 30,
    free_bytes=1 << 30,
    ratio=100,
    again="compile the program again and save it with Executable.save",
    schema=ExecutableDocument,
)
"""Version 2: infinite constants as text, source files as portable paths. Version 3: host bodies of steps. Version 4:
bytes of vertices' records where codelets give them. Version 5: results that may take the place of operands.
Version 6: notes on sparse operands.
"""


class Writer:
    """Collects arrays while the document is put together."""

    def __init__(self, archive: container.ArchiveWriter) -> None:
        self._archive = archive
        self._num = 0

    def array(self, values: npt.ArrayLike) -> str:
        """Keep an array; gives the name by which the document refers to it."""
        name, self._num = f"a{self._num}.npy", self._num + 1
        container.write_array(self._archive, name, values)
        return name


_MOST_BLOCKS = 32
_MOST_RUNS = 1 << 26
"""Runs of elements that all views of a file show together."""


class ViewsOut:
    """Numbers the views of a program and describes each once."""

    def __init__(self, writer: Writer) -> None:
        self._writer = writer
        self._numbers: dict[int, int] = {}
        self._kept: list[Tensor] = []
        self.rows: list[Any] = []

    def number(self, tensor: Tensor) -> int:
        """The number of a view."""
        if id(tensor) not in self._numbers:
            self._numbers[id(tensor)] = len(self.rows)
            self._kept.append(tensor)
            # Plans look at what a reshape left of blocks, too: a loaded program has to have the same.
            is_cut = tensor.content.is_cut
            self.rows.append([tensor.dtype.name, list(map(int, tensor.shape)), self._content(tensor), is_cut])
        return self._numbers[id(tensor)]

    def _content(self, tensor: Tensor) -> Any:
        blocks = tensor.content.blocks
        if blocks is not None and len(blocks) <= _MOST_BLOCKS:
            return [[b.variable.id, int(b.offset), list(map(int, b.origin)), _listed(b.factors)] for b in blocks]
        begin, length = tensor.intervals()
        return {"begin": self._writer.array(begin), "length": self._writer.array(length)}


def _listed(factors: Any) -> Any:
    return [[list(map(int, factor)) for factor in dim] for dim in factors]


class ViewsIn:
    """The views of a file, each made once.

    Args:
        graph: The graph, with its variables.
        archive: Gives arrays.
        rows: The descriptions.
    """

    def __init__(self, graph: Graph, archive: Archive, rows: list[stored.ViewRow]) -> None:
        self._graph = graph
        self._archive = archive
        self._rows = rows
        self._made: dict[int, Tensor] = {}
        self._runs = 0
        self._bases = np.array([v.base for v in graph.variables], dtype=np.int64)
        self._bits = np.array([v.dtype.bits for v in graph.variables], dtype=np.int64)

    def tensor(self, number: int) -> Tensor:
        """The view of a number.

        Raises:
            ValueError: It shows what the graph does not have.
        """
        if number not in self._made:
            with part(f"view {number}"):
                self._made[number] = self._tensor(self._rows[number])
        return self._made[number]

    def _tensor(self, row: stored.ViewRow) -> Tensor:
        dtype, shape = as_element_type(row.dtype), tuple(row.shape)
        size = math.prod(shape)
        if isinstance(row.content, stored.RunsTable):
            begin, length = (self._archive.vector(name, np.int64) for name in (row.content.begin, row.content.length))
            check_runs(self._graph, begin, length)
            if size != sum(length.tolist()) or (self._widths(begin, length) != dtype.bits).any():
                raise ValueError(f"it is of shape {list(shape)}, and its runs show something else")
            return self._graph.tensor(dtype, (size,), content_of_runs(self._graph, begin, length)).reshape(shape)
        blocks = tuple(self._block(each, shape) for each in row.content) if size else ()
        if sum(b.size for b in blocks) != size or any(b.variable.dtype.bits != dtype.bits for b in blocks):
            raise ValueError(f"its blocks do not show {counted(size, 'element')} of {dtype}")
        self._check_runs_of(blocks, shape)
        return self._graph.tensor(dtype, shape, BlockList(blocks, row.is_cut))

    def _check_runs_of(self, blocks: tuple[StridedBlock, ...], shape: tuple[int, ...]) -> None:
        """Together the blocks fill the view, each index once; and they are not more runs than memory could list."""
        # Counted without listing them: a few numbers in a file may describe more runs than fit into memory.
        self._runs += sum(num_runs(b, shape) for b in blocks)
        if self._runs > _MOST_RUNS:
            raise ValueError(f"it shows elements in more than {counted(_MOST_RUNS, 'run')}")
        if len(blocks) == 1 and blocks[0].is_box:
            return
        found = [runs(b, shape)[1:] for b in blocks]
        length = np.concatenate([n for n, _ in found]) if found else np.zeros(0, np.int64)
        position = np.concatenate([p for _, p in found]) if found else length
        order = np.argsort(position)
        if (position[order] != np.cumsum(length[order]) - length[order]).any():
            raise ValueError("its blocks overlap, or leave gaps")

    def _block(self, row: stored.BlockRow, shape: tuple[int, ...]) -> StridedBlock:
        variable, rank = self._graph.variables[row.variable], len(shape)
        if len(row.origin) != rank or len(row.factors) != rank:
            raise ValueError(f"a block does not have the {counted(rank, 'dimension')} of its view")
        made = tuple(tuple(dim) for dim in row.factors)
        for dim, extent, origin in zip(made, shape, row.origin, strict=True):
            inner = 1
            for n, step, _ in reversed(dim):
                if n < 1 or step < inner:
                    raise ValueError(f"factors {list(dim)} do not count through a dimension")
                inner += (n - 1) * step
            if origin + inner > extent:
                raise ValueError(f"a block reaches index {origin + inner - 1} of a dimension of {extent}")
        steps = [stride * (n - 1) for dim in made for n, _, stride in dim]
        low = row.offset + sum(min(0, s) for s in steps)
        high = row.offset + sum(max(0, s) for s in steps)
        if low < 0 or high >= variable.size:
            raise ValueError(f"it reaches outside {variable!r}")
        return StridedBlock(variable, row.offset, tuple(row.origin), made)

    def regions(self, table: stored.RegionsTable) -> Regions:
        """The regions that a table describes.

        Raises:
            ValueError: They reach outside the graph, or are not in order.
        """
        ptr, begin, length = (self._archive.vector(name, np.int64) for name in (table.ptr, table.begin, table.length))
        check_runs(self._graph, begin, length)
        if len(ptr) < 1 or ptr[0] != 0 or ptr[-1] != len(begin) or (ptr[1:] < ptr[:-1]).any():
            raise ValueError("they are not in order")
        tensor = self.tensor(table.view)
        if (self._widths(begin, length) != tensor.dtype.bits).any():
            raise ValueError("they show elements of another width")
        return Regions(ptr, begin, length, tensor)

    def _widths(self, begin: Int64, length: Int64) -> Int64:
        """Bits of the elements of each run, 0 where they differ or the run is in several variables' gaps."""
        first = np.searchsorted(self._bases, begin, side="right") - 1
        last = np.searchsorted(self._bases, begin + length, side="left") - 1
        changes = np.cumsum(np.append(0, self._bits[1:] != self._bits[:-1]))
        return np.where(changes[first] == changes[last], self._bits[first], 0) if len(begin) else begin


def num_runs(block: StridedBlock, shape: tuple[int, ...]) -> int:
    """No fewer than the runs of elements that a block lists."""
    _, fine = flat_factors(block, shape)
    return block.size // (fine[-1][0] if fine and fine[-1][1:] == (1, 1) else 1)


def check_runs(graph: Graph, begin: Int64, length: Int64) -> None:
    """Raise unless all runs lie in the graph's elements.

    Raises:
        ValueError: One does not.
    """
    if begin.shape != length.shape or begin.ndim != 1:
        raise ValueError("runs do not fit together")
    size = graph.num_elements
    # Compared without a sum, which would wrap for lengths near 2^63.
    if ((begin < 0) | (length < 1) | (length > size) | (begin > size - length)).any():
        raise ValueError("a run of elements lies outside the graph")
