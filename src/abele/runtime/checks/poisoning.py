"""Poison in Outputs, so that an element that a vertex does not write cannot pass for a result."""

from __future__ import annotations

import ctypes
from collections.abc import Iterable, Iterator

import numpy as np
import numpy.typing as npt

from abele.arrays import Int64
from abele.codelet import FieldDef
from abele.graph import Edge
from abele.graph.interval_set import IntervalSet
from abele.graph.intervals import distinct
from abele.runtime.checks.shadow import poison_bits
from abele.runtime.control.leaf import Leaf
from abele.runtime.memory.arena import Arena
from abele.runtime.memory.elements import row_elements
from abele.runtime.memory.host_memory import address_of, aligned_block
from abele.runtime.supersteps.copy_leaves import Runs, copy_leaf
from abele.runtime.supersteps.placed_groups import PlacedGroup
from abele.runtime.supersteps.vertex_tables import FieldMemory

_LEAF = ctypes.CFUNCTYPE(None, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p)


class OutputPoison:
    """Poison in the Outputs of a compute set's vertices, in place or in the memory they are gathered in.

    A row that shares an element with something that is read is left alone, and so are types without poison.

    Args:
        placed: The vertices.
        read: Elements that the compute set reads.
        arena: Memory of the variables.

    Attributes:
        address: Elements that are poisoned, int64[n].
    """

    def __init__(self, placed: Iterable[PlacedGroup], read: IntervalSet, arena: Arena) -> None:
        found: list[Int64] = []
        self._leaves: list[Leaf] = []
        for group in placed:
            for field, edge, memory in _outputs(group):
                bits = poison_bits(field.type)
                if bits is None:
                    continue
                address, row = row_elements(edge)
                kept = np.zeros(len(edge.index), dtype=bool)
                # An element of these rows is read, by this vertex or another: its contents are wanted.
                kept[row[read.contains(address)]] = True
                found.append(address[~kept[row]])
                rows = np.tile(~kept, arena.replicas) & (memory.bytes > 0)
                self._leaves.append(_fill_leaf(memory, rows, bits, field.type.bytes))
        self.address = distinct(np.concatenate(found)) if found else np.empty(0, np.int64)

    def apply(self) -> None:
        """Poison all of it."""
        for leaf in self._leaves:
            arguments = np.array(leaf.args, dtype=np.int64)
            _LEAF(leaf.address)(0, leaf.units, address_of(arguments))


def _outputs(placed: PlacedGroup) -> Iterator[tuple[FieldDef, Edge, FieldMemory]]:
    memory = iter(placed.tables.memory)
    for field in placed.group.codelet.fields:
        if field.direction == "state":
            continue
        here = next(memory)
        if field.direction == "out":
            yield field, placed.group.edges[field.name], here


def _fill_leaf(memory: FieldMemory, rows: npt.NDArray[np.bool_], bits: int, width: int) -> Leaf:
    size = memory.bytes[rows]
    pattern = aligned_block(int(size.max(initial=0)))
    pattern.view(f"u{width}")[...] = bits
    # One block of poison, as long as the longest row, is the source of every copy.
    source = np.full(len(size), address_of(pattern), dtype=np.int64)
    return copy_leaf("poison", Runs(source, memory.address[rows], size)).keeping(pattern)
