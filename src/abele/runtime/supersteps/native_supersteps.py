"""Supersteps as phases of native leaves: gather, run the vertices, scatter.

All vertices of a compute set read what was there before it, and no two touch an element that one of them writes (the
compiler refuses races), so they may run in any order, in place, on pointers straight into the variables. A region that
lies in several pieces is the exception: a copy before the superstep brings the pieces together in scratch memory, and
one after it takes results apart. That is right although it happens in phases of its own, because the only writers
between the two are the vertices. Scratch memory is used anew by every compute set; its contents never outlive one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from abele.arrays import Int64
from abele.codelet import CodeletDef, CompiledCodelet
from abele.codelet.rounding import NEAREST, Rounding
from abele.compiler.cost import needs_counting, vertex_costs
from abele.graph import ComputeSet, VertexGroup
from abele.graph.interval_set import EMPTY, IntervalSet
from abele.machine import Ipu
from abele.runtime.control.emitter import Emitter
from abele.runtime.control.leaf import Leaf, Phase
from abele.runtime.memory.arena import Arena
from abele.runtime.memory.effects import edge_elements
from abele.runtime.memory.host_memory import address_of
from abele.runtime.supersteps.copy_leaves import Runs, copy_leaf
from abele.runtime.supersteps.gather_memory import ScratchPool
from abele.runtime.supersteps.placed_groups import CountedVertices, PlacedGroup, SuperstepWatch
from abele.runtime.supersteps.rounded import RoundedRuns
from abele.runtime.supersteps.seeds import Seeds
from abele.runtime.supersteps.sized_codelets import worthwhile_sizes
from abele.runtime.supersteps.thread_shares import cost_cuts, even_cuts
from abele.runtime.supersteps.vertex_prints import VertexPrints
from abele.runtime.supersteps.vertex_tables import VertexTables, fields_overlap, vertex_tables

_WORTH_SHARING_BYTES = 1 << 14
"""Less work than this is not worth knowing the cost of."""

Compile = Callable[[CodeletDef], CompiledCodelet]


@dataclass(frozen=True, eq=False)
class Ready:
    """A compute set ready to run.

    Attributes:
        groups: Its vertices in memory.
        gather: Phase that brings scattered regions together.
        run: Phase that runs the vertices.
        scatter: Phase that takes results apart.
    """

    groups: list[PlacedGroup]
    gather: Phase
    run: Phase
    scatter: Phase


@dataclass(eq=False)
class NativeSupersteps:
    """Compute sets made ready to run; each is prepared once, however often it is executed.

    Attributes:
        arena: Memory of the variables.
        compile: Gives the native code of a codelet.
        placed: All groups prepared so far.
        scratch: Memory for gathered regions.
        ipu: The chip, whose costs tell how vertices are best shared out over threads; None to go by their number.
        threads: Host threads.
        prints: Shows prints of vertices; None to leave them in memory.
    """

    arena: Arena
    compile: Compile
    ipu: Ipu | None = None
    threads: int = 1
    prints: VertexPrints | None = None
    placed: list[PlacedGroup] = field(default_factory=list)
    scratch: ScratchPool = field(default_factory=ScratchPool)
    _ready: dict[ComputeSet, Ready] = field(default_factory=dict)
    _counted: dict[ComputeSet, list[PlacedGroup]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._rounded = RoundedRuns(self.compile)
        self._states = ScratchPool()

    def emit(
        self,
        compute_set: ComputeSet,
        emitter: Emitter,
        watch: SuperstepWatch | None = None,
        rounding: Rounding = NEAREST,
        seeds: Seeds | None = None,
    ) -> None:
        """Append the code that executes the compute set; see :class:`abele.runtime.lowering.lower.NativeSupersteps`."""
        ready = self.ready(compute_set)
        if ready.gather:
            emitter.phase(ready.gather)
        if watch is not None:
            watch.before(emitter, ready.groups, native=True)
            emitter.expect_barrier()
        if rounding != NEAREST:
            assert seeds is not None
            self._rounded.emit(ready, emitter, rounding, seeds)
        elif ready.run:
            emitter.phase(ready.run)
        if self.prints is not None:
            self.prints.emit(ready.groups, emitter)
        if watch is not None:
            watch.after(emitter)
        if ready.scatter:
            emitter.phase(ready.scatter)
        for placed in self._counted.get(compute_set, ()) if rounding == NEAREST else ():
            emitter.tally(address_of(placed.executions))

    def ready(self, compute_set: ComputeSet) -> Ready:
        """Compute set with the leaves that execute it."""
        if compute_set not in self._ready:
            groups = self.place(compute_set)
            gather, scatter = transfers(compute_set, groups)
            self._ready[compute_set] = Ready(groups, gather, tuple(map(self._leaf, groups)), scatter)
        return self._ready[compute_set]

    def place(self, compute_set: ComputeSet) -> list[PlacedGroup]:
        """Tables of all groups of a compute set."""
        self.scratch.reset()
        groups = [(n, g) for n, g in enumerate(compute_set.groups) if g.num]
        placed = [PlacedGroup(compute_set, g, n, self._tables(g), self.arena.replicas) for n, g in groups]
        self.placed.extend(placed)
        return placed

    def _tables(self, group: VertexGroup) -> VertexTables:
        return vertex_tables(group, self.arena, self.scratch, self._states, self.compile(group.codelet).prints)

    def _leaf(self, placed: PlacedGroup) -> Leaf:
        group, tables = placed.group, placed.tables
        code, counter = self.compile(group.codelet), 0
        # Ordinary code promises LLVM that fields do not share memory; where two do, code without that promise runs.
        if fields_overlap(tables):
            address = code.run_aliasing
        elif needs_counting(group) and code.data_dependent:
            placed.slots = np.zeros(placed.num, dtype=np.int64)
            self._counted.setdefault(placed.compute_set, []).append(placed)
            address, counter = code.run_counted, address_of(placed.slots)
        else:
            sizes = worthwhile_sizes(group, tables.work_bytes)
            address = code.run_sized(sizes) if sizes else code.run
        name = f"{placed.num} × {group.codelet.name}"
        placed.cuts = self._cuts(placed)
        keep = (placed, code)
        return Leaf(
            name=name,
            address=address,
            units=placed.num,
            args=tables.addresses,
            work_bytes=tables.work_bytes,
            writes=written(group),
            counter=counter,
            keep=keep,
            cuts=placed.cuts,
            vertices=placed.num,
        )

    def _cuts(self, placed: PlacedGroup) -> Int64 | None:
        """Threads' shares by modelled cost; a table in any case where runs will count the true one."""
        if self.ipu is None or self.threads == 1 or placed.tables.work_bytes < _WORTH_SHARING_BYTES:
            return None
        # Units are the vertices of all replicas, one replica after the other.
        costs = np.tile(vertex_costs(placed.group, self.ipu).amount, placed.replicas)
        cuts = cost_cuts(costs, self.threads)
        return even_cuts(placed.num, self.threads) if cuts is None and placed.slots is not None else cuts

    def learn(self) -> None:
        """Cut threads' shares anew where all runs together have counted twice as often as when they were cut last."""
        for placed in self._all_counted():
            count = placed.counted + int(placed.executions[0])
            # Learning at doubling counts costs a logarithm of the runs, and later cuts rest on as many runs as all
            # before.
            if placed.cuts is None or placed.slots is None or count <= 2 * placed.learnt_from:
                continue
            placed.learnt_from = count
            cuts = cost_cuts(placed.slots, self.threads)
            placed.cuts[:] = even_cuts(placed.num, self.threads) if cuts is None else cuts

    def take_slots(self) -> list[CountedVertices]:
        """Counts of this run for vertices whose cost depends on data; counting begins anew."""
        return [found for p in self._all_counted() if (found := p.take_slots()) is not None]

    def drop_slots(self) -> None:
        """Forget the counts of a run that was cut off: the executions of its vertices are not known."""
        for placed in self._all_counted():
            placed.drop_slots()

    def _all_counted(self) -> Iterator[PlacedGroup]:
        return (p for groups in self._counted.values() for p in groups)


def written(group: VertexGroup) -> IntervalSet:
    """Elements that the vertices of a group write."""
    outputs = [f.name for f in group.codelet.fields if f.direction in ("out", "inout")]
    return IntervalSet.union(edge_elements(group.edges[name]) for name in outputs)


def transfers(compute_set: ComputeSet, groups: Sequence[PlacedGroup]) -> tuple[Phase, Phase]:
    """Phases before and after the vertices: gathering of their operands, scattering of their results."""
    name = compute_set.name
    gather = _transfer(f"gather for {name}", [r for g in groups for r in g.tables.gather], EMPTY)
    writes = IntervalSet.union(written(g.group) for g in groups if g.tables.scatter)
    return gather, _transfer(f"scatter from {name}", [r for g in groups for r in g.tables.scatter], writes)


def _transfer(name: str, runs: list[Runs], writes: IntervalSet) -> Phase:
    return (copy_leaf(name, Runs.concat(runs), writes),) if runs else ()
