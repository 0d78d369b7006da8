"""Access: which variables a step reads, writes and overwrites completely."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

import numpy as np

from abele.arrays import Bool, Int64
from abele.compiler.layout import Layout
from abele.compiler.race import Writes
from abele.compiler.uses import FieldUse
from abele.graph.intervals import distinct, order_of
from abele.graph.program import Program
from abele.graph.tensor import Tensor


def _none() -> Int64:
    return np.empty(0, dtype=np.int64)


@dataclass(frozen=True, eq=False, slots=True)
class Access:
    """Variables that one step touches, by position in the graph.

    Attributes:
        reads: Variables that it may read, ascending.
        writes: Variables that it writes, ascending.
        complete: Those of ``writes`` of which it writes every element.
        partial: Written intervals (begins, ends) of each of the others, in global addresses.
        undefined: Variables that it declares dead as a whole.
        overlays: Pairs of a variable that it reads and one of ``complete`` that may take its place, element by element,
            int64[n, 2].
        stays: For variables that it only reads, and not on each tile as they lie there: True for shares that a vertex
            on their tile reads as they lie, bool[shares], in the order of tiles.
    """

    reads: Int64 = field(default_factory=_none)
    writes: Int64 = field(default_factory=_none)
    complete: Int64 = field(default_factory=_none)
    partial: Mapping[int, tuple[Int64, Int64]] = field(default_factory=dict)
    undefined: Int64 = field(default_factory=_none)
    overlays: Int64 = field(default_factory=lambda: _none().reshape(0, 2))
    stays: Mapping[int, Bool] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for numbers in (self.reads, self.writes, self.complete, self.undefined, self.overlays):
            numbers.setflags(write=False)
        for begin, end in self.partial.values():
            begin.setflags(write=False)
            end.setflags(write=False)
        for which in self.stays.values():
            which.setflags(write=False)
        for name in ("partial", "stays"):
            object.__setattr__(self, name, MappingProxyType(getattr(self, name)))

    @property
    def touched(self) -> Int64:
        """Variables that it reads or writes, ascending."""
        return distinct(np.concatenate([self.reads, self.writes]))


def compute_set_access(uses: Sequence[FieldUse], writes: Writes, layout: Layout) -> Access:
    """Variables that a compute set reads and writes."""
    read = [_variables_of(u, layout) for u in uses if u.reads]
    reads = distinct(np.concatenate(read)) if read else _none()
    return _with_writes(reads, *writes.union(), layout)


def node_access(node: Program, layout: Layout) -> Access:
    """Variables that a step touches by reading and writing whole views."""
    read = [_variables(t, layout) for t in node.reads()]
    reads = distinct(np.concatenate(read)) if read else _none()
    written = node.writes()
    if not written:
        return Access(reads)
    found = [t.content.footprint()[:2] for t in written]
    begin, length = (np.concatenate(side) for side in zip(*found, strict=True))
    order = order_of(begin)
    begin, end = begin[order], (begin + length)[order]
    if len(written) > 1:
        begin, end = united(begin, end)
    return _with_writes(reads, begin, end, layout)


def undef_access(tensor: Tensor, layout: Layout) -> Access:
    """Variables that declaring ``tensor`` undefined covers completely."""
    begin, length, _ = tensor.content.footprint()
    order = order_of(begin)
    return Access(undefined=_with_writes(_none(), begin[order], (begin + length)[order], layout).complete)


def _variables_of(use: FieldUse, layout: Layout) -> Int64:
    regions = use.edge.regions
    return layout.variables_in(regions.begin, regions.begin + regions.length)


def _variables(tensor: Tensor, layout: Layout) -> Int64:
    begin, length, _ = tensor.content.footprint()
    return layout.variables_in(begin, begin + length)


def _with_writes(reads: Int64, begin: Int64, end: Int64, layout: Layout) -> Access:
    """An access from disjoint written intervals in order of address."""
    writes = layout.variables_in(begin, end)
    # Elements written below a variable's end, less those below its begin: those inside it.
    inside = covered(layout.base[writes] + layout.size[writes], begin, end) - covered(layout.base[writes], begin, end)
    full = inside == layout.size[writes]
    partial = {}
    for variable in writes[~full]:
        low, high = layout.base[variable], layout.base[variable] + layout.size[variable]
        own = slice(np.searchsorted(end, low, side="right"), np.searchsorted(begin, high, side="left"))
        partial[int(variable)] = (np.maximum(begin[own], low), np.minimum(end[own], high))
    return Access(reads, writes, writes[full], partial)


def united(begin: Int64, end: Int64) -> tuple[Int64, Int64]:
    """Intervals in order of address, overlapping ones joined."""
    if len(begin) == 0:
        return begin, end
    reach = np.maximum.accumulate(end)
    first = np.flatnonzero(np.append(True, begin[1:] > reach[:-1]))
    return begin[first], reach[np.append(first[1:], len(begin)) - 1]


def covered(address: Int64, begin: Int64, end: Int64) -> Int64:
    """Elements of the disjoint sorted intervals that lie below each address."""
    if len(begin) == 0:
        return np.zeros_like(address)
    before = np.concatenate([[0], np.cumsum(end - begin)])
    slot = np.searchsorted(begin, address, side="right")
    last = np.maximum(slot - 1, 0)
    inside = np.where(slot > 0, np.minimum(address, end[last]) - begin[last], 0)
    return np.asarray(before[last] * (slot > 0) + inside, dtype=np.int64)
