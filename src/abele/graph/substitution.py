"""Substitution: views, vertices and program steps again, for other variables.

A library function looks at its operands' shapes, types, tile mappings and places in memory, and makes variables,
vertices and steps. Called with other operands that are alike in all of these, it makes the same again for other
variables; the substitution makes it without asking the library. Addresses move by as much as the variable that they
belong to, which keeps intervals whole that lie across two variables, if the others are neighbours as well: whoever
substitutes sees to that (see :mod:`abele.graph.structural_key`).

Vertices are most of a graph and are often never looked at: the compiler knows that a compute set equals the one that
it was substituted for, and the host runs kernels. So a compute set takes the vertices of another only when asked.

Example: where the first of 12 equal layers has its weights at address 1,000 and the second at 5,000, the second's
intervals of weights are the first's plus 4,000.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import copy
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from abele.arrays import Int64
from abele.graph.debug import DebugRecord
from abele.graph.meanings import Meanings
from abele.graph.program import Copy, Execute, HostLoop, HostOrder, LibraryCall, Program, Repeat, Sequence, WriteUndef
from abele.graph.regions import Regions
from abele.graph.tensor import Tensor
from abele.graph.variable import Variable
from abele.graph.vertices import Edge, VertexGroup

if TYPE_CHECKING:
    from abele.graph.compute_set import ComputeSet
    from abele.graph.content import Content
    from abele.graph.graph import Graph

P = TypeVar("P", bound=Program)
Renamed = Callable[[Program | VertexGroup], DebugRecord]


class Substitution:
    """Variables that take the places of others.

    Args:
        variables: The variable in place of each.
        compute_sets: The compute set in place of each.
        renamed: Gives the debug information of the replacement of a step, or of a group of vertices.
        tiles: Distance in tiles of the other variables, and with them of vertices: that of whole IPUs.
        graph: Graph of the other variables, where it is another one.

    Attributes:
        variables: The variable in place of each.
        tiles: Distance of the vertices, in tiles.
    """

    def __init__(
        self,
        variables: Mapping[Variable, Variable],
        compute_sets: Mapping[ComputeSet, ComputeSet],
        renamed: Renamed,
        tiles: int = 0,
        graph: Graph | None = None,
    ) -> None:
        self.variables = variables
        self._graph = graph
        self.tiles = tiles
        self._renamed = renamed
        self._compute_sets = compute_sets
        self._tensors: dict[int, tuple[Tensor, Tensor]] = {}
        self._shifts: tuple[Int64, Int64] | None = None

    def address(self, old: Int64) -> Int64:
        """Addresses in place of others, int64[n]."""
        if self._shifts is None:
            pairs = sorted((v.base, v.base + v.size, other.base - v.base) for v, other in self.variables.items())
            # Empty variables hold no address, and would hide the one whose base they share.
            kept = [(base, by) for base, end, by in pairs if end > base]
            begin, shift = (np.array(column, dtype=np.int64) for column in zip(*kept, strict=True))
            fresh = np.append(True, shift[1:] != shift[:-1])
            self._shifts = begin[fresh], shift[fresh]
        begin, shift = self._shifts
        if not shift.any():
            return old
        if len(shift) == 1:
            return np.asarray(old + shift[0])
        return np.asarray(old + shift[np.searchsorted(begin, old, side="right") - 1])

    def tensor(self, old: Tensor) -> Tensor:
        """The view of the other variables."""
        known = self._tensors.get(id(old))
        if known is None:
            content = old.content.with_variables(self.variables.__getitem__, self.address)
            made = old.view(old.shape, content) if self._graph is None else self._elsewhere(old, content)
            known = self._tensors[id(old)] = old, made
        return known[1]

    def _elsewhere(self, old: Tensor, content: Content) -> Tensor:
        assert self._graph is not None
        return type(old)(self._graph, old.dtype, old.shape, content)

    def group(self, old: VertexGroup) -> VertexGroup:
        """The vertices on the other variables."""
        edges = {n: Edge(self._regions(e.regions), e.index, e.row_begin) for n, e in old.edges.items()}
        made = copy(old)
        made.edges, made.debug = edges, self._renamed(old)
        if self.tiles:
            made.tile = old.tile + np.int32(self.tiles)
        return made

    def _regions(self, old: Regions) -> Regions:
        return Regions(old.ptr, self.address(old.begin), old.length, self.tensor(old.tensor))

    def compute_set(self, old: ComputeSet) -> ComputeSet:
        """The compute set in place of another."""
        return self._compute_sets[old]

    def step(self, old: P) -> P:
        """A program step with all inside it.

        Raises:
            ControlProgramError: A kind of step of which no other can be made.
        """
        made = copy(old)
        made.debug = self._renamed(old)
        SUBSTITUTED.of(old)(self, made)
        return made


def _execute(by: Substitution, step: Execute) -> None:
    step.compute_set = by.compute_set(step.compute_set)


def _copy(by: Substitution, step: Copy) -> None:
    assert isinstance(step.source, Tensor)
    assert isinstance(step.destination, Tensor)
    step.source, step.destination = by.tensor(step.source), by.tensor(step.destination)


def _sequence(by: Substitution, step: Sequence) -> None:
    step.steps = [by.step(s) for s in step.steps]
    step.host_body = None if step.host_body is None else by.step(step.host_body)


def _library_call(by: Substitution, step: LibraryCall) -> None:
    step.inputs, step.outputs = tuple(map(by.tensor, step.inputs)), tuple(map(by.tensor, step.outputs))
    step.body = by.step(step.body)
    step.attributes = dict(step.attributes)
    step.host_body = None if step.host_body is None else by.step(step.host_body)


def _repeat(by: Substitution, step: Repeat) -> None:
    step.body = by.step(step.body)


def _host_loop(by: Substitution, step: HostLoop) -> None:
    step.body = by.step(step.body)
    step.strides = {by.variables[v]: stride for v, stride in step.strides.items()}


def _host_order(by: Substitution, step: HostOrder) -> None:
    step.variable = by.variables[step.variable]
    step.steps = by.step(step.steps[0]), by.step(step.steps[1])


def _write_undef(by: Substitution, step: WriteUndef) -> None:
    step.tensor = by.tensor(step.tensor)


SUBSTITUTED: Meanings[Callable[[Substitution, Any], None]] = Meanings("can be made for other variables")
"""Changes in a copy of each kind of step."""

SUBSTITUTED.add(Execute, _execute)
SUBSTITUTED.add(Copy, _copy)
SUBSTITUTED.add(Sequence, _sequence)
SUBSTITUTED.add(LibraryCall, _library_call)
SUBSTITUTED.add(Repeat, _repeat)
SUBSTITUTED.add(HostLoop, _host_loop)
SUBSTITUTED.add(HostOrder, _host_order)
SUBSTITUTED.add(WriteUndef, _write_undef)


def can_substitute(step: Program) -> bool:
    """True if a step, apart from those inside it, can be made for other variables."""
    if isinstance(step, Copy):
        return isinstance(step.source, Tensor) and isinstance(step.destination, Tensor) and step.offset is None
    return type(step) in SUBSTITUTED
