"""Supersteps as phases of native leaves: gather, run the vertices, scatter."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from abele.codelet import CodeletDef, CompiledCodelet
from abele.graph import ComputeSet, VertexGroup
from abele.graph.intervals import Int64
from abele.runtime.arena import Arena, address_of
from abele.runtime.copies import Runs, copy_leaf
from abele.runtime.effects import edge_elements
from abele.runtime.emitter import Emitter
from abele.runtime.groups import GroupTables, fields_overlap, group_tables
from abele.runtime.interval_set import EMPTY, IntervalSet
from abele.runtime.leaf import Leaf, Phase
from abele.runtime.scratch import ScratchPool
from abele.runtime.sizes import worthwhile_sizes

Compile = Callable[[CodeletDef], CompiledCodelet]


@dataclass(eq=False)
class PlacedGroup:
    """A vertex group with the tables that its native code is given.

    Attributes:
        compute_set: Where it belongs.
        group: The vertices.
        position: Position of the group in its compute set.
        tables: Their pointers and lengths.
        replicas: Replicas that each have these vertices; the tables list those of replica 0 first.
        slots: Issue slots counted so far, int64[replicas * N], where the codelet's cost depends on data; else None.
        executions: Times that they ran while being counted, int64[1].
    """

    compute_set: ComputeSet
    group: VertexGroup
    position: int
    tables: GroupTables
    replicas: int = 1
    slots: Int64 | None = None
    executions: Int64 = field(default_factory=lambda: np.zeros(1, np.int64))

    @property
    def num(self) -> int:
        """Vertices in all replicas."""
        return self.group.num * self.replicas

    @property
    def mean_slots(self) -> npt.NDArray[np.float64] | None:
        """Issue slots of one execution of each vertex, float64[N], over all replicas; None when none were counted."""
        if self.slots is None or not self.executions[0]:
            return None
        return np.asarray(self.slots.reshape(self.replicas, -1).mean(axis=0) / self.executions[0])

    def reset(self) -> None:
        """Bring the vertices' state back to its contents at load."""
        for values, initial in self.tables.state:
            values[...] = initial


@dataclass(eq=False)
class Supersteps:
    """Compute sets made ready to run; each is prepared once, however often it is executed.

    Attributes:
        arena: Where the variables are.
        compile: Gives the native code of a codelet.
        placed: All groups prepared so far.
        scratch: Memory for gathered regions.
    """

    arena: Arena
    compile: Compile
    placed: list[PlacedGroup] = field(default_factory=list)
    scratch: ScratchPool = field(default_factory=ScratchPool)
    _phases: dict[ComputeSet, tuple[Phase, ...]] = field(default_factory=dict)
    _counted: dict[ComputeSet, list[PlacedGroup]] = field(default_factory=dict)

    def emit(self, compute_set: ComputeSet, emitter: Emitter) -> None:
        """Append what executes the compute set."""
        emitter.phases(self.phases(compute_set))
        for placed in self._counted.get(compute_set, ()):
            emitter.tally(address_of(placed.executions))

    def phases(self, compute_set: ComputeSet) -> tuple[Phase, ...]:
        """Phases that execute a compute set."""
        if compute_set not in self._phases:
            groups = self.place(compute_set)
            gather, scatter = transfers(compute_set, groups)
            run = tuple(self._leaf(placed) for placed in groups)
            self._phases[compute_set] = tuple(p for p in (gather, run, scatter) if p)
        return self._phases[compute_set]

    def place(self, compute_set: ComputeSet) -> list[PlacedGroup]:
        """Tables of all groups of a compute set."""
        self.scratch.reset()
        groups = [(n, g) for n, g in enumerate(compute_set.groups) if g.num]
        placed = [
            PlacedGroup(compute_set, g, n, group_tables(g, self.arena, self.scratch), self.arena.replicas)
            for n, g in groups
        ]
        self.placed.extend(placed)
        return placed

    def _leaf(self, placed: PlacedGroup) -> Leaf:
        group, tables = placed.group, placed.tables
        code, counter = self.compile(group.codelet), 0
        if fields_overlap(tables):
            address = code.run_aliasing
        elif code.data_dependent and group.cycles is None and group.codelet.formula is None:
            placed.slots = np.zeros(placed.num, dtype=np.int64)
            self._counted.setdefault(placed.compute_set, []).append(placed)
            address, counter = code.run_counted, address_of(placed.slots)
        else:
            sizes = worthwhile_sizes(group, tables.work_bytes)
            address = code.run_sized(sizes) if sizes else code.run
        name = f"{placed.num} × {group.codelet.name}"
        return Leaf(
            name, address, placed.num, tables.addresses, tables.work_bytes, written(group), counter, (placed, code)
        )


def written(group: VertexGroup) -> IntervalSet:
    """Elements that the vertices of a group write."""
    outputs = [f.name for f in group.codelet.fields if f.direction in ("out", "inout")]
    return IntervalSet.union(edge_elements(group.edges[name]) for name in outputs)


def transfers(compute_set: ComputeSet, groups: Sequence[PlacedGroup]) -> tuple[Phase, Phase]:
    """Phases before and after the vertices: what is gathered for them, and what they wrote to be scattered."""
    name = compute_set.name
    gather = _transfer(f"gather for {name}", [r for g in groups for r in g.tables.gather], EMPTY)
    writes = IntervalSet.union(written(g.group) for g in groups if g.tables.scatter)
    return gather, _transfer(f"scatter from {name}", [r for g in groups for r in g.tables.scatter], writes)


def _transfer(name: str, runs: list[Runs], writes: IntervalSet) -> Phase:
    return (copy_leaf(name, Runs.concat(runs), writes),) if runs else ()
