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
import numpy.typing as npt

from abele.arrays import Int64
from abele.codelet import CodeletDef, CompiledCodelet, Size, Sizes
from abele.codelet.printing import Lines, printing_to
from abele.codelet.rounding import NEAREST, Rounding
from abele.compiler.cost import needs_counting, vertex_costs
from abele.errors import ControlProgramError
from abele.graph import ComputeSet, Edge, VertexGroup
from abele.graph.interval_set import EMPTY, IntervalSet
from abele.machine import Ipu
from abele.runtime.control.bytecode import Opcode
from abele.runtime.control.emitter import Emitter
from abele.runtime.control.leaf import Leaf, Phase
from abele.runtime.control.virtual_machine import Callbacks
from abele.runtime.memory.arena import Arena
from abele.runtime.memory.effects import edge_elements
from abele.runtime.memory.host_memory import address_of, aligned_block
from abele.runtime.supersteps.copy_leaves import Runs, copy_leaf
from abele.runtime.supersteps.placed_groups import CountedVertices, PlacedGroup, SuperstepWatch
from abele.runtime.supersteps.seeds import Seeds, group_offset
from abele.runtime.supersteps.vertex_tables import ScratchPool, VertexTables, fields_overlap, vertex_tables

# Prints of vertices: gathered while a compute set runs, shown after it.


@dataclass(frozen=True, eq=False)
class VertexPrints:
    """Shows the prints of vertices, group after group, each in the order of its vertices.

    Attributes:
        callbacks: Callbacks that calls are added to.
        print_text: Writes a line for the user.
    """

    callbacks: Callbacks
    print_text: Callable[[str], None]

    def emit(self, groups: Sequence[PlacedGroup], emitter: Emitter) -> None:
        """Append the code that shows prints of the last vertices, if their codelets print."""
        if any(placed.tables.sink is not None for placed in groups):
            emitter.callback(self.callbacks.add(lambda: self.show(groups)))

    def show(self, groups: Sequence[PlacedGroup]) -> None:
        """Show the prints of these groups' native code."""
        lines = Lines(self.print_text)
        for placed in groups:
            if placed.tables.sink is not None:
                lines.write(placed.tables.sink.take())
        lines.close()

    def around(self, groups: list[PlacedGroup], run: Callable[[list[PlacedGroup]], None]) -> None:
        """Run vertices from Python: plain Python prints at once, native code after all."""
        try:
            with printing_to(self.print_text):
                run(groups)
        finally:
            self.show(groups)


# Shares: which units of a leaf each thread runs, where equal numbers of them are unequal work.
#
# Vertices run in shares of consecutive units, fixed before a run, because a queue would cost an atomic operation per
# unit and shares keep each thread on memory that it touched in the last round. Each bound is put where the running sum
# of costs is nearest to its part of the total, so no share is off by more than one unit at either end.

_WORTHWHILE = 1.05
"""Work of the busiest thread over the mean from which on shares are cut by cost."""


def cost_cuts(costs: npt.NDArray[np.generic], threads: int) -> Int64 | None:
    """Units at which threads' shares begin and end so that all have about the same to do, int64[threads + 1].

    Args:
        costs: Work of each unit, in any measure, number[units].
        threads: Host threads.

    Returns:
        Bounds; None where equal numbers of units are about as good.
    """
    num = len(costs)
    if threads == 1 or num < 2:
        return None
    done = np.concatenate([[0.0], np.cumsum(costs, dtype=np.float64)])
    equal = even_cuts(num, threads)
    mean = done[-1] / threads
    if np.diff(done[equal]).max() <= _WORTHWHILE * mean:
        return None
    targets = np.arange(threads + 1) * mean
    # Of the two units around each target, the one whose sum is nearer.
    after = np.searchsorted(done, targets)
    before = np.maximum(after - 1, 0)
    nearer = targets - done[before] < done[np.minimum(after, num)] - targets
    cuts = np.where(nearer, before, np.minimum(after, num))
    cuts[0], cuts[-1] = 0, num
    return np.ascontiguousarray(cuts, dtype=np.int64)


def even_cuts(num: int, threads: int) -> Int64:
    """Bounds of shares of equal numbers of units, int64[threads + 1], as the virtual machine has them."""
    return -(-np.arange(threads + 1, dtype=np.int64) * num // threads)


# Sizes for which vertices get native code of their own: those that a group has in common, if the code pays.

_MOST_ELEMENTS = 1024
"""Most elements of a vector for code of its own: longer ones gain nothing, as only the set-up of a loop is saved."""
_FEWEST_VERTICES = 32
_FEWEST_BYTES = 1 << 16
"""Fewer would take less time to run than such code takes to make."""


def worthwhile_sizes(group: VertexGroup, work_bytes: int) -> Sizes:
    """Sizes that all vertices of a group share, if code made for them pays; else none."""
    if group.num < _FEWEST_VERTICES or work_bytes < _FEWEST_BYTES:
        return Sizes()
    edges = ((f.name, group.edges[f.name]) for f in group.codelet.fields if f.is_edge and f.rank)
    return Sizes.of(_size(name, edge) for name, edge in edges)


def _size(name: str, edge: Edge) -> Size:
    each = _common(edge.row_sizes)
    if edge.row_begin is None:
        return Size(name, each)
    return Size(name, _common(edge.row_begin[1:] - edge.row_begin[:-1]), each)


def _common(sizes: Int64) -> int | None:
    if not len(sizes) or sizes[0] > _MOST_ELEMENTS or (sizes != sizes[0]).any():
        return None
    return int(sizes[0])


# Supersteps whose results in narrow floats are rounded at random, or held at the largest number.


@dataclass(frozen=True, eq=False)
class _Draw:
    """A leaf that rounds at random, for the vertices of one replica.

    Attributes:
        leaf: The leaf.
        replica: Replica whose seeds it uses.
        offset: Number that tells its random numbers from those of other groups.
    """

    leaf: Leaf
    replica: int
    offset: int


@dataclass(eq=False)
class RoundedRuns:
    """Runs vertices whose results are not simply rounded to nearest.

    A superstep that rounds at random leaves each replica's state one step further. A vertex draws from the state, its
    group and its number, so that replicas with equal seeds round alike, on any number of threads.

    Attributes:
        compile: Gives the native code of a codelet.
    """

    compile: Callable[[CodeletDef], CompiledCodelet]
    _draws: dict[tuple[PlacedGroup, Rounding], list[_Draw]] = field(default_factory=dict)
    _leaves: dict[PlacedGroup, Leaf] = field(default_factory=dict)

    def emit(self, ready: Ready, emitter: Emitter, rounding: Rounding, seeds: Seeds) -> None:
        """Append the phase that runs the vertices of a compute set."""
        pairs = list(zip(ready.groups, ready.run, strict=True))
        others = [leaf for placed, leaf in pairs if not _stores_narrow(placed)]
        narrow = [(placed, leaf) for placed, leaf in pairs if _stores_narrow(placed)]
        if not rounding.is_random:
            emitter.phase((*(self._saturating(placed, leaf) for placed, leaf in narrow), *others))
            return
        draws = [draw for placed, leaf in narrow for draw in self._drawing(placed, leaf, rounding)]
        # The words that leaves draw from are set by thread 0, so all threads must be past the last use of them, and
        # must not begin before they are set.
        emitter.fence()
        for draw in draws:
            state = seeds.address(draw.replica)
            emitter.assembler.emit(Opcode.ELAPSED, draw.leaf.seed, state, seeds.zero, draw.offset)
        emitter.expect_barrier()
        phase: Phase = (*(draw.leaf for draw in draws), *others)
        emitter.phase(phase)
        # The state moves on by a fixed step, so that what is drawn depends on the number of the superstep and not on
        # threads.
        for replica in range(seeds.replicas):
            emitter.tally(seeds.address(replica), seeds.step)

    def _saturating(self, placed: PlacedGroup, plain: Leaf) -> Leaf:
        """Leaf that runs a group with results held at the largest number."""
        if placed not in self._leaves:
            rounding = Rounding(saturates=True)
            address, name = self._address(placed, rounding), f"{plain.name}, {rounding}"
            self._leaves[placed] = Leaf(
                name, address, placed.num, plain.args, plain.work_bytes, plain.writes, keep=plain, cuts=plain.cuts
            )
        return self._leaves[placed]

    def _drawing(self, placed: PlacedGroup, plain: Leaf, rounding: Rounding) -> list[_Draw]:
        """Leaves that run a group with results rounded at random, one per replica."""
        key = placed, rounding
        if key not in self._draws:
            self._draws[key] = list(self._replicas(placed, plain, rounding))
        return self._draws[key]

    def _replicas(self, placed: PlacedGroup, plain: Leaf, rounding: Rounding) -> Iterator[_Draw]:
        address, group = self._address(placed, rounding), placed.group
        offset = group_offset(placed.compute_set.id, placed.position)
        for replica in range(placed.replicas):
            word = aligned_block(8)
            leaf = Leaf(
                f"{group.num} × {group.codelet.name}, {rounding}",
                address,
                group.num,
                columns_of(placed, replica),
                placed.tables.work_bytes // placed.replicas,
                plain.writes,
                seed=address_of(word),
                keep=(plain, word),
            )
            yield _Draw(leaf, replica, offset)

    def _address(self, placed: PlacedGroup, rounding: Rounding) -> int:
        code = self.compile(placed.group.codelet)
        if code.run_stochastic is None:
            raise ControlProgramError(
                f"the results of {placed.group.codelet.name} cannot be {rounding}: it has no code for it",
                at=placed.group.debug.location,
                because=f"compute set {placed.compute_set.name!r} runs while the behaviour may ask for it",
                remedy="write the codelet in Python, or switch the behaviour back before this compute set",
            )
        return code.run_stochastic if rounding == Rounding(is_random=True) else code.run_rounded(rounding)


def _stores_narrow(placed: PlacedGroup) -> bool:
    fields = placed.group.codelet.fields
    return any(f.direction in ("out", "inout") and f.type.is_narrow for f in fields)


def columns_of(placed: PlacedGroup, replica: int) -> tuple[int, ...]:
    """Addresses of a group's tables from the first vertex of one replica on."""
    columns, first = iter(placed.tables.columns), replica * placed.group.num
    found: list[int] = []
    for definition in placed.group.codelet.fields:
        begin = next(columns)
        found.append(address_of(begin) + first * begin.itemsize)
        if definition.rank == 2:
            # Rows are listed for all replicas; where a vertex's rows begin counts from the first of all.
            found += [address_of(next(columns)), address_of(next(columns))]
        elif definition.rank == 1:
            lengths = next(columns)
            found.append(address_of(lengths) + first * lengths.itemsize)
    return tuple(found) if placed.tables.sink is None else (*found, address_of(placed.tables.sink.column))


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
