"""Repeats: the steps built once for some operands are built again for similar ones by substitution.

Repeated layers make the same calls of libraries, of operands that differ in their variables alone. A library sees
nothing of its operands but their likeness (:mod:`abele.graph.structural_key`), so its variables, vertices and steps
are the same but for the variables. They are made by substitution, and the program is bit for bit the one that the
library would build, with the same variables in the same places. Of the 36 equal projections of 12 layers, say, the
library builds 1 and substitution makes 35.

The unit is one op. A whole layer as the unit would save the keys of the ops inside, some tens of microseconds each. But
it finds neither the three equal projections within a layer nor the updates of equal parameters. And one operand with
another layout, such as the first layer's input, would cost the whole layer.

Compiles of one process share what was built too: a model with one layer edited builds that layer alone. The first of
its kind in a graph is substituted for what an earlier graph built under the same key, vertices included; repeats are
copies of this first one. The cache holds no graph, and drops the least recently used beyond ``CACHE_BYTES``. Of four
encoder layers with one edited, all but the edit comes from the cache, and lowering takes 0.3 s where it took 1.8 s.

Libraries take one thing from operands beside their likeness, their names: a clone of ``x`` is called ``x/clone``. So
while something is built for the first time its operands are named by marks. Names made of marks are filled in
afterwards, for the first as for all others.
"""

from __future__ import annotations

import re
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, TypeVar, cast

import numpy as np
import numpy.typing as npt

from abele.errors import AbeleError
from abele.graph import Graph, Program, Steps, Tensor
from abele.graph.compute_set import ComputeSet
from abele.graph.debug import DebugRecord, caller
from abele.graph.mapping import TileMapping
from abele.graph.program import Execute, LibraryCall, walk
from abele.graph.sparse_operand import SparseNote
from abele.graph.structural_key import Likeness, digest
from abele.graph.substitution import Substitution, can_substitute
from abele.graph.variable import Variable
from abele.graph.vertices import VertexGroup
from abele.graph.virtual import VirtualGraph
from abele.machine import System

Results = tuple[Tensor | None, ...]
Line = tuple[str, int]
_MARK = re.compile("⁅operand ([0-9]+)⁆")
"""Names of variables while something is built; printable, so that names in quotes keep it as it is."""


@dataclass(frozen=True)
class _Names:
    """Origin of names at one place: the scopes and source line there, and the names of the operands."""

    origin: DebugRecord
    operands: tuple[str, ...]

    def filled(self, text: str) -> str:
        """A name with the operands' names in place of marks."""
        return _MARK.sub(lambda m: self.operands[int(m[1])], text) if "⁅" in text else text


Named = Program | VertexGroup


class _Relabelling:
    """Debug information of objects built at one place, as they would have it at another.

    Args:
        old: Scopes and source line of the one place.
        new: Origin of names at the other.
        marked: Debug information with marks, of steps and vertices whose names are filled in by now.
        lines: User's lines that asked for the whole program at either place, where they differ.
    """

    def __init__(
        self,
        old: DebugRecord,
        new: _Names,
        marked: Mapping[Named, DebugRecord],
        lines: tuple[Line, Line] | None = None,
    ) -> None:
        self._old = old
        self._new = new
        self._marked = marked
        self._lines = lines
        self._known: dict[DebugRecord, DebugRecord] = {}

    def __call__(self, named: Named) -> DebugRecord:
        debug = self._marked.get(named, named.debug)
        return self.scoped(debug) if isinstance(named, LibraryCall | VertexGroup) else self.plain(debug)

    def plain(self, debug: DebugRecord) -> DebugRecord:
        """Debug record of a program step: without scopes, and with the line that asked for the whole program."""
        if self._lines is not None and (debug.file, debug.line) == self._lines[0]:
            file, line = self._lines[1]
            debug = replace(debug, file=file, line=line)
        return debug.renamed(self._new.filled(debug.name)) if "⁅" in debug.name else debug

    def scoped(self, debug: DebugRecord) -> DebugRecord:
        """Debug record of an object that takes scopes and source line from the graph."""
        known = self._known.get(debug)
        if known is None:
            known = self._known[debug] = self._moved(debug)
        return known

    def _moved(self, debug: DebugRecord) -> DebugRecord:
        old, new = self._old, self._new.origin
        inner = debug.path[len(old.path) :].lstrip("/")
        name, path = self._new.filled(debug.name), self._new.filled("/".join(filter(None, (new.path, inner))))
        if (debug.file, debug.line, debug.text) != (old.file, old.line, old.text):
            return replace(debug, name=name, path=path)
        return DebugRecord(name, path, new.file, new.line, new.text)


@dataclass(frozen=True, eq=False, slots=True)
class _New:
    """A new variable as it was when it had been built; names have marks in them."""

    variable: Variable
    debug: DebugRecord
    mapping: TileMapping
    initial: npt.NDArray[Any] | None


@dataclass(frozen=True, eq=False)
class _Built:
    """Variables, vertices and steps that were built once.

    Attributes:
        origin: Scopes and source line of the place.
        where: The IPU on which it was built.
        operands: Variables of the operands.
        variables: New variables.
        compute_sets: New compute sets, with their debug information with marks.
        steps: Steps that were appended to the program.
        results: Results of the function that built it.
        sparse: Notes on sparse operands, whose names may have marks in them.
        marked: Debug information with marks of steps and groups of vertices that have some in their names.
        line: User's line that asked for the whole program.
        system: The machine.
    """

    origin: DebugRecord
    where: int
    line: Line
    system: System
    operands: tuple[Variable, ...]
    variables: tuple[_New, ...]
    compute_sets: tuple[tuple[ComputeSet, DebugRecord], ...]
    steps: tuple[Program, ...]
    results: Results
    sparse: tuple[SparseNote, ...] = ()
    marked: dict[Named, DebugRecord] = field(default_factory=dict)

    def is_on(self, tiles: range) -> bool:
        """True if all that is new is on some tiles: it may then be built as well on those of another IPU."""
        columns = [n.mapping.tile for n in self.variables]
        columns += [group.tile for compute_set, _ in self.compute_sets for group in compute_set.groups]
        return all(tiles.start <= int(c.min()) and int(c.max()) < tiles.stop for c in columns if len(c))

    def every_step(self) -> Iterator[Program]:
        """Each step with all inside it, and what hosts may run in place of bodies."""
        waiting = list(self.steps)
        while waiting:
            for step in walk(waiting.pop()):
                yield step
                if isinstance(step, LibraryCall | Steps) and step.host_body is not None:
                    waiting.append(step.host_body)

    def is_whole(self) -> bool:
        """True if it is made of nothing but operands and new objects, in forms that can be built again."""
        known = {*self.operands, *(n.variable for n in self.variables)}
        sets = {c for c, _ in self.compute_sets}
        shown = [t for t in self.results if t is not None]
        for step in self.every_step():
            if not can_substitute(step) or (isinstance(step, Execute) and step.compute_set not in sets):
                return False
            shown += step.touches() if not isinstance(step, LibraryCall) else (*step.inputs, *step.outputs)
        for compute_set in sets:
            if not compute_set.is_wired_in_groups:
                return False
            shown += [e.regions.tensor for g in compute_set.groups for e in g.edges.values()]
        return all(known.issuperset(t.variables) for t in {id(t): t for t in shown}.values())


T = TypeVar("T", bound=Results)

CACHE_BYTES = 256 << 20
"""Bytes of vertices, mappings and constants that stay between compiles."""


@dataclass(frozen=True)
class _CachedLowering:
    """One lowering, for later graphs.

    Attributes:
        built: Everything built, in a graph of its own; names have marks in them.
        mappings: Mappings of its operands.
        bytes: Bytes of its arrays.
    """

    built: _Built
    mappings: tuple[TileMapping, ...]
    bytes: int


class LoweringCache:
    """Lowerings of this process by content; the least recently used goes first."""

    def __init__(self) -> None:
        self._entries: OrderedDict[Hashable, _CachedLowering] = OrderedDict()
        self._bytes = 0
        self._lock = threading.Lock()

    def find(self, key: Hashable) -> _CachedLowering | None:
        """The lowering of a key."""
        with self._lock:
            kept = self._entries.get(key)
            if kept is not None:
                self._entries.move_to_end(key)
            return kept

    def store(self, key: Hashable, kept: _CachedLowering) -> None:
        """Add a lowering, and drop others beyond the bound."""
        with self._lock:
            before = self._entries.pop(key, None)
            self._bytes += kept.bytes - (0 if before is None else before.bytes)
            self._entries[key] = kept
            while self._bytes > CACHE_BYTES:
                _, gone = self._entries.popitem(last=False)
                self._bytes -= gone.bytes

    def clear(self) -> None:
        """Forget everything."""
        with self._lock:
            self._entries.clear()
            self._bytes = 0


CACHE = LoweringCache()
"""Lowerings of all compiles."""


def lowering_context(graph: Graph, planning: Mapping[str, Any]) -> Hashable:
    """Everything of a graph and of plans' options that libraries may look at, beside operands."""
    top = graph.top_level
    tiles = None if graph is top else digest(cast(VirtualGraph, graph).tiles)
    options = tuple(sorted((name, repr(value)) for name, value in planning.items()))
    return repr(top.whole_system), top.replicas, top.sync_pattern, tiles, options


def _detached(built: _Built) -> _CachedLowering:
    """Copies of everything built, in an empty graph: later changes of the program do not reach them."""
    graph = Graph(built.system)
    variables = (*built.operands, *(n.variable for n in built.variables))
    sets = {c: ComputeSet(graph, c.id, debug, c.stage) for c, debug in built.compute_sets}
    by = Substitution({v: v for v in variables}, sets, lambda named: built.marked.get(named, named.debug), graph=graph)
    count = sum(n.mapping.begin.nbytes + n.mapping.tile.nbytes for n in built.variables)
    count += sum(n.initial.nbytes for n in built.variables if n.initial is not None)
    for source, made in sets.items():
        for group in source.groups:
            count += _bytes(made.add_group(by.group(group)))
    alone = replace(
        built,
        compute_sets=tuple((sets[c], debug) for c, debug in built.compute_sets),
        steps=tuple(map(by.step, built.steps)),
        results=tuple(None if t is None else by.tensor(t) for t in built.results),
        sparse=tuple(_noted(o, by) for o in built.sparse),
        marked={},
    )
    return _CachedLowering(alone, tuple(v.mapping for v in built.operands), count)


def _noted(operand: SparseNote, by: Substitution, names: _Names | None = None, tiles: int = 0) -> SparseNote:
    """A note on a sparse operand at another place, so many tiles further on."""
    words = None if operand.words is None else by.tensor(operand.words)
    name = operand.name if names is None else names.filled(operand.name)
    return replace(operand, name=name, words=words, tile=operand.tile + np.int32(tiles))


def _bytes(group: VertexGroup) -> int:
    """Bytes of the arrays of some vertices."""
    count = group.tile.nbytes + sum(s.values.nbytes for s in group.state.values())
    for edge in group.edges.values():
        regions = edge.regions
        count += regions.ptr.nbytes + regions.begin.nbytes + regions.length.nbytes + edge.index.nbytes
    return count


class Repeats:
    """Everything built in one graph so far, by kind and by the likeness of the operands.

    Args:
        graph: The graph; for a virtual graph, what is built again goes into the whole one, where its tiles are known.
        context: :func:`lowering_context` of the graph, to share lowerings with other graphs; None for this one alone.

    Attributes:
        found: Number of times that something was built again.
        taken: Number of times that it was built in a graph before this one.
        where: The IPU on which things are built, of several. Tiles are told by how far from its first one they are:
            IPUs are alike, so what was built on one is built again on another, that far further on.
    """

    def __init__(self, graph: Graph, context: Hashable | None = None) -> None:
        self.graph = graph.top_level
        self.found = 0
        self.taken = 0
        self._context = context
        self.where = 0
        self._tiles_per_ipu = self.graph.system.ipu.num_tiles
        self._likeness = Likeness(self.graph)
        self._shifted: dict[tuple[int, int], tuple[TileMapping, TileMapping]] = {}
        self._built: dict[Hashable, _Built | None] = {}
        self._checked: set[Hashable] = set()
        self._local: dict[Hashable, bool] = {}

    def likeness(self, operands: Sequence[Tensor | None]) -> Hashable | None:
        """Key of operands with the same layout; None for those that are like no others."""
        like = self._likeness.of(operands, self.where * self._tiles_per_ipu)
        return None if like is None else like[0]

    def build(
        self,
        what: Hashable,
        operands: Sequence[Tensor | None],
        prog: Steps,
        make: Callable[[], T],
        *,
        lasts: bool = True,
    ) -> T:
        """Results of ``make``, perhaps copied from its results for like operands.

        Args:
            what: Everything that it depends on besides its operands.
            operands: All tensors that it reads. It changes neither their mapping nor anything else there is.
            prog: Program to append steps to.
            make: Makes variables, vertices and steps, and gives tensors of operands and new variables.
            lasts: False if ``what`` says everything in this graph alone.
        """
        like = self._likeness.of(operands, self.where * self._tiles_per_ipu)
        if like is None:
            return make()
        key, variables = (what, like[0]), like[1]
        built = self._built.get(key)
        if built is not None and built.where != self.where and not self._is_local(key, built):
            # It reaches other IPUs, which would be others further on.
            key = key, self.where
        if key not in self._built:
            return self._first_here(key, variables, prog, make, lasts=lasts)
        built = self._built[key]
        # A check for building it again waits until that is first asked for: most things are built once.
        if built is not None and key not in self._checked:
            self._checked.add(key)
            if not built.is_whole():
                built = self._built[key] = None
        return make() if built is None else cast(T, self._again(built, variables, prog))

    def _is_local(self, key: Hashable, built: _Built) -> bool:
        if key not in self._local:
            first = built.where * self._tiles_per_ipu
            self._local[key] = built.is_on(range(first, first + self._tiles_per_ipu))
        return self._local[key]

    # --- the first time ----------------------------------------------------------------------------------------------

    def _first_here(
        self, key: Hashable, operands: Sequence[Variable], prog: Steps, make: Callable[[], T], *, lasts: bool
    ) -> T:
        """Results that this graph has not built yet: substituted for another graph's, or made."""
        lasts = lasts and self._context is not None
        name = (self._context, self.where, key)
        kept = CACHE.find(name) if lasts else None
        if kept is not None:
            self.taken += 1
            make = cast(Callable[[], T], partial(self._from_cache, kept, operands, prog))
        results, built = self._first(operands, prog, make)
        self._built[key] = built
        if lasts and kept is None and built is not None and built.is_whole():
            CACHE.store(name, _detached(built))
        return results

    def _from_cache(self, kept: _CachedLowering, operands: Sequence[Variable], prog: Steps) -> Results:
        built, graph = kept.built, self.graph
        names = _Names(graph.origin(""), tuple(v.name for v in operands))
        renaming = _Relabelling(built.origin, names, {}, (built.line, caller()))
        others = dict(zip(built.operands, operands, strict=True))
        # What was laid out like an operand shares the mapping of that: who compares them knows it by that.
        mappings = {id(old): new.mapping for old, new in zip(kept.mappings, operands, strict=True)}
        for new in built.variables:
            mapping = mappings.get(id(new.mapping), new.mapping)
            others[new.variable] = graph.copy_variable(new.variable, mapping, new.initial, renaming.scoped(new.debug))
        sets: dict[ComputeSet, ComputeSet] = {}
        by = Substitution(others, sets, renaming, graph=graph)
        for source, debug in built.compute_sets:
            made = sets[source] = graph.add_compute_set(renaming.scoped(debug), source.stage)
            for group in source.groups:
                made.add_group(by.group(group))
        for step in built.steps:
            prog.add(by.step(step))
        for operand in built.sparse:
            graph.note_sparse(_noted(operand, by, names))
        return tuple(None if t is None else by.tensor(t) for t in built.results)

    def _first(self, operands: Sequence[Variable], prog: Steps, make: Callable[[], T]) -> tuple[T, _Built | None]:
        graph = self.graph
        counts = len(graph.variables), len(graph.compute_sets), len(prog.steps)
        before = self._state(operands)
        names = _Names(graph.origin(""), tuple(v.name for v in operands))
        noted = len(graph.sparse_operands)
        with _marked(operands):
            results = make()
        new_notes = list(graph.sparse_operands)[noted:]
        sparse = tuple(graph.sparse_operands.pop(key) for key in new_notes)
        for operand in sparse:
            graph.note_sparse(replace(operand, name=names.filled(operand.name)))
        built = _Built(
            origin=names.origin,
            where=self.where,
            line=caller(),
            system=graph.system,
            operands=tuple(operands),
            variables=tuple(_New(v, v.debug, v.mapping, v.initial) for v in graph.variables[counts[0] :]),
            compute_sets=tuple((c, c.debug) for c in graph.compute_sets[counts[1] :]),
            steps=tuple(prog.steps[counts[2] :]),
            results=results,
            sparse=sparse,
        )
        _fill_names(built, names)
        # A stream, say, that was made on the way, or an operand that was mapped, is more than substitution can repeat.
        return results, built if self._state(operands) == before else None

    def _state(self, operands: Sequence[Variable]) -> tuple[int, ...]:
        """State of the graph that making something may not change, as far as a graph can tell."""
        graph = self.graph
        ends = len(graph.streams), len(graph.remote_buffers), len(graph.host_functions), len(graph.host_handles)
        return (*ends, len(graph.sync_groups), *(id(v.mapping) for v in operands))

    # --- again -------------------------------------------------------------------------------------------------------

    def _again(self, built: _Built, operands: Sequence[Variable], prog: Steps) -> Results:
        self.found += 1
        graph = self.graph
        names = _Names(graph.origin(""), tuple(v.name for v in operands))
        renaming = _Relabelling(built.origin, names, built.marked)
        others = dict(zip(built.operands, operands, strict=True))
        tiles = (self.where - built.where) * self._tiles_per_ipu
        for new in built.variables:
            others[new.variable] = graph.copy_variable(
                new.variable, self._later(new.mapping, tiles), new.initial, renaming.scoped(new.debug)
            )
        sets: dict[ComputeSet, ComputeSet] = {}
        by = Substitution(others, sets, renaming, tiles)
        for source, debug in built.compute_sets:
            sets[source] = graph.copy_compute_set(source, renaming.scoped(debug), by)
        for step in built.steps:
            prog.add(by.step(step))
        for operand in built.sparse:
            graph.note_sparse(_noted(operand, by, names, tiles))
        return tuple(None if t is None else by.tensor(t) for t in built.results)

    def _later(self, mapping: TileMapping, tiles: int) -> TileMapping:
        """A mapping so many tiles further on, one object for each: what compares mappings knows equal ones by that."""
        if tiles == 0:
            return mapping
        if (id(mapping), tiles) not in self._shifted:
            self._shifted[id(mapping), tiles] = mapping, mapping.shifted(tiles)
        return self._shifted[id(mapping), tiles][1]


@contextmanager
def _marked(variables: Sequence[Variable]) -> Iterator[None]:
    """Name variables by marks for a while; errors say their real names."""
    names = _Names(DebugRecord(""), tuple(v.name for v in variables))
    for number, variable in enumerate(variables):
        variable.name = f"⁅operand {number}⁆"
    try:
        yield
    except AbeleError as error:
        for part in ("message", "at", "because", "remedy"):
            text = getattr(error, part)
            if text is not None:
                setattr(error, part, names.filled(text))
        error.args = tuple(names.filled(a) if isinstance(a, str) else a for a in error.args)
        raise
    finally:
        for variable, name in zip(variables, names.operands, strict=True):
            variable.name = name


def _fill_names(built: _Built, names: _Names) -> None:
    """Give the built objects their names, and keep the marked ones."""
    renaming = _Relabelling(built.origin, names, {})
    for new in built.variables:
        if "⁅" in new.debug.full_name:
            new.variable.debug = renaming.scoped(new.debug)
            new.variable.name = new.variable.debug.full_name
    for compute_set, debug in built.compute_sets:
        if "⁅" in debug.full_name:
            compute_set.debug = renaming.scoped(debug)
        for group in compute_set.groups:
            _fill(group, renaming, built.marked)
    for step in built.every_step():
        _fill(step, renaming, built.marked)


def _fill(named: Named, renaming: _Relabelling, marked: dict[Named, DebugRecord]) -> None:
    debug = named.debug
    if "⁅" in debug.name or "⁅" in debug.path:
        named.debug = renaming(named)
        marked[named] = debug
