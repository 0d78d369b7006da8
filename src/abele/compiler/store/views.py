"""Views in a file: one strided block as numbers, any other as runs of elements."""

from __future__ import annotations

from typing import Any

import numpy as np

from abele.compiler.store.archive import Reader, Writer
from abele.graph import Graph, Regions, Tensor
from abele.graph.block import Block
from abele.graph.block_list import BlockList
from abele.graph.gather import content_of_runs
from abele.graph.intervals import Int64
from abele.numerics import as_element_type

_MOST_BLOCKS = 32


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
            self.rows.append([tensor.dtype.name, list(map(int, tensor.shape)), self._content(tensor)])
        return self._numbers[id(tensor)]

    def _content(self, tensor: Tensor) -> Any:
        blocks = tensor.blocks
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
        reader: Gives arrays.
        rows: The descriptions.
    """

    def __init__(self, graph: Graph, reader: Reader, rows: Any) -> None:
        self._graph = graph
        self._reader = reader
        self._rows = rows
        self._made: dict[int, Tensor] = {}

    def tensor(self, number: Any) -> Tensor:
        """The view of a number.

        Raises:
            ValueError: It shows what the graph does not have.
        """
        if number not in self._made:
            self._made[number] = self._tensor(self._rows[number])
        return self._made[number]

    def _tensor(self, row: Any) -> Tensor:
        dtype, shape, content = row
        shape = tuple(int(n) for n in shape)
        if isinstance(content, dict):
            begin, length = (self._reader.int64(content[key]) for key in ("begin", "length"))
            check_runs(self._graph, begin, length)
            flat = Tensor(
                self._graph, as_element_type(dtype), (int(length.sum()),), content_of_runs(self._graph, begin, length)
            )
            return flat.reshape(shape)
        tensor = Tensor(self._graph, as_element_type(dtype), shape, BlockList(tuple(map(self._block, content))))
        begin, length = tensor.intervals()
        check_runs(self._graph, begin, length)
        if int(length.sum()) != tensor.size or any(v.dtype.bits != tensor.dtype.bits for v in tensor.variables):
            raise ValueError(f"a view of shape {list(shape)} shows {int(length.sum())} elements")
        return tensor

    def _block(self, data: Any) -> Block:
        number, offset, origin, factors = data
        if number < 0:
            raise ValueError(f"there is no variable {number}")
        variable = self._graph.variables[number]
        made = tuple(tuple((int(n), int(step), int(stride)) for n, step, stride in dim) for dim in factors)
        steps = [stride * (n - 1) for dim in made for n, _, stride in dim]
        low = int(offset) + sum(min(0, s) for s in steps)
        high = int(offset) + sum(max(0, s) for s in steps)
        if low < 0 or high >= max(variable.size, 1) or any(n < 1 for dim in made for n, _, _ in dim):
            raise ValueError(f"a view reaches outside {variable!r}")
        return Block(variable, int(offset), tuple(map(int, origin)), made)

    def regions(self, data: Any) -> Regions:
        """The regions that a table describes.

        Raises:
            ValueError: They reach outside the graph, or are not in order.
        """
        ptr, begin, length = (self._reader.int64(data[key]) for key in ("ptr", "begin", "length"))
        check_runs(self._graph, begin, length)
        if len(ptr) < 1 or ptr[0] != 0 or ptr[-1] != len(begin) or (np.diff(ptr) < 0).any():
            raise ValueError("regions are not in order")
        tensor = self.tensor(data["view"])
        bases = np.array([v.base for v in self._graph.variables], dtype=np.int64)
        bits = np.array([v.dtype.bits for v in self._graph.variables])
        owner = np.searchsorted(bases, begin, side="right") - 1
        if len(begin) and (bits[owner] != tensor.dtype.bits).any():
            raise ValueError("regions show elements of another width")
        return Regions(ptr, begin, length, tensor)


def check_runs(graph: Graph, begin: Int64, length: Int64) -> None:
    """Raise unless all runs lie in the graph's elements.

    Raises:
        ValueError: One does not.
    """
    if begin.shape != length.shape or begin.ndim != 1:
        raise ValueError("runs do not fit together")
    if len(begin) and (
        int(begin.min()) < 0 or int(length.min()) < 1 or int((begin + length).max()) > graph.num_elements
    ):
        raise ValueError("a run of elements lies outside the graph")
