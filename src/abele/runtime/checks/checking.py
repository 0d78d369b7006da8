"""Running an image under checks: the way of running vertices, and watches of memory between steps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from abele.errors import ApplicationRuntimeError, InvalidOptionError, nearest
from abele.graph import ComputeSet, Execute, Graph, Program, Tensor
from abele.runtime.checks.every_access import BoundedVertices, run_in_order
from abele.runtime.checks.uninitialised import Shadow, UninitialisedWatch
from abele.runtime.checks.watching import Look, MemoryWatch, WatchedLowering
from abele.runtime.control.virtual_machine import Callbacks
from abele.runtime.lowering.lower import LoweringContext, ProgramLowering
from abele.runtime.memory.arena import Arena
from abele.runtime.memory.effects import EffectsOf
from abele.runtime.memory.elements import Elements, VariablePart
from abele.runtime.supersteps.direct_calls import NativeVertices
from abele.runtime.supersteps.interpreted import InterpretedSupersteps, can_interpret, run_vertex
from abele.runtime.supersteps.native_supersteps import NativeSupersteps
from abele.runtime.supersteps.placed_groups import PlacedGroup
from abele.runtime.supersteps.vertex_places import element_text, made_at, users, vertex_text

# Checks that no IPU has, which an engine makes while it runs.


@dataclass(frozen=True, kw_only=True)
class Checks:
    """Checks of an engine. All are off by default, and cost nothing then; each makes runs slow.

    Attributes:
        uninitialised: A read of an element that nothing has written ends the run. Memory is poisoned at load, by
            WriteUndef, and where Outputs are before their vertex runs.
        bounds: An index outside a field ends the run.
        inputs: A write to an Input ends the run.
        nan: The first compute set that turns an element NaN ends the run.
        vertex_order: Vertices of a compute set, and workers of a MultiVertex, run in an order drawn from this seed; a
            correct program gives the same results for every seed.
    """

    uninitialised: bool = False
    bounds: bool = False
    inputs: bool = False
    nan: bool = False
    vertex_order: int | None = None

    @staticmethod
    def of(given: Checks | str | None) -> Checks:
        """Checks as the engine's user gives them: themselves, ``"all"``, or names with commas between.

        Raises:
            InvalidOptionError: A name that is none.
        """
        if given is None or isinstance(given, Checks):
            return given or Checks()
        if not isinstance(given, str):
            raise InvalidOptionError(
                f"checks cannot be {given!r}", remedy='Checks(bounds=True, …), "all", or names as in "bounds,nan"'
            )
        names = [f.name for f in fields(Checks)]
        chosen = names if given == "all" else [name.strip() for name in given.split(",") if name.strip()]
        for name in chosen:
            if name not in names:
                close = nearest(name, names)
                raise InvalidOptionError(
                    f"there is no check {name!r}",
                    remedy=f"did you mean {close!r}?" if close else "all, or among " + ", ".join(names),
                )
        values: dict[str, Any] = {name: 0 if name == "vertex_order" else True for name in chosen}
        return Checks(**values)

    @property
    def any(self) -> bool:
        """True if there is anything to watch for."""
        return self != Checks()

    @property
    def interpreted(self) -> bool:
        """True if Python runs vertices, with every access checked."""
        return self.bounds or self.inputs

    @property
    def watched(self) -> bool:
        """True if memory is checked between steps."""
        return self.uninitialised or self.nan


# The check for hidden dependence: vertices in an order drawn from a seed.


class ShuffledVertices:
    """Runs the vertices of a compute set one by one, in a new order each time; workers of a MultiVertex as well.

    Args:
        seed: Seed of the orders.
        interpreted: Run all of them as plain Python. Multi-worker vertices in Python always are.
        native: Runs those that are not.
        bounded: Runs those in C++ where accesses are checked.
    """

    def __init__(self, seed: int, interpreted: bool, native: NativeVertices, bounded: BoundedVertices) -> None:
        self._bounded = bounded
        self._seed = seed
        self._interpreted = interpreted
        self._native = native
        self.load()

    def load(self) -> None:
        """Begin again with the first order."""
        self._random = np.random.default_rng(self._seed)

    def __call__(self, groups: Sequence[PlacedGroup]) -> None:
        """Run all vertices of some groups, mixed."""
        owner = np.repeat(np.arange(len(groups)), [g.num for g in groups])
        number = np.concatenate([np.arange(g.num) for g in groups]) if len(owner) else owner
        order = self._random.permutation(len(owner))
        for which, vertex in zip(owner[order].tolist(), number[order].tolist(), strict=True):
            self._run_one(groups[which], vertex)

    def _run_one(self, placed: PlacedGroup, vertex: int) -> None:
        codelet = placed.group.codelet
        workers: Sequence[int | None] = (None,)
        if codelet.kind == "multi" and codelet.language != "stored":
            workers = self._random.permutation(int(codelet.attributes["num_workers"])).tolist()
        for worker in workers:
            if can_interpret(placed.group) and (self._interpreted or worker is not None):
                run_vertex(placed, vertex, worker)
            elif self._interpreted:
                self._bounded.run_native(placed, vertex, vertex + 1, worker)
            else:
                self._native.run(placed, vertex, vertex + 1, worker)


# The check for NaN: the first compute set that turns an element NaN ends the run.


@dataclass(eq=False)
class _Written:
    """Floating-point elements that a compute set writes, with flags of NaN before it runs."""

    elements: Elements
    parts: tuple[VariablePart, ...]
    before: list[npt.NDArray[np.bool_]] = field(default_factory=list)


class NanWatch:
    """Ends the run at the first compute set that writes NaN where none was.

    Args:
        graph: The graph.
        arena: Its memory.
        effects: Elements that steps touch.
        shadow: Tells poison from values, where memory is poisoned.
    """

    def __init__(self, graph: Graph, arena: Arena, effects: EffectsOf, shadow: Shadow | None) -> None:
        self._graph = graph
        self._arena = arena
        self._effects = effects
        self._shadow = shadow
        self._compute_sets: dict[ComputeSet, _Written] = {}

    def load(self) -> None:
        """Nothing to do."""

    def host_wrote(self, tensor: Tensor) -> None:
        """Nothing to do: NaN from the host is the host's affair."""

    def before(self, step: Program) -> Look | None:
        """Note which elements are NaN already."""
        return partial(self._before, step.compute_set) if isinstance(step, Execute) else None

    def after(self, step: Program) -> Look | None:
        """Look for new ones."""
        return partial(self._after, step.compute_set) if isinstance(step, Execute) else None

    def decision(self, step: Program) -> Look | None:
        """Nothing to do."""
        return None

    def _written(self, compute_set: ComputeSet) -> _Written:
        if compute_set not in self._compute_sets:
            elements = Elements.of(self._effects.compute_set(compute_set).written, self._arena)
            parts = tuple(p for p in elements.parts if p.variable.dtype.is_float)
            self._compute_sets[compute_set] = _Written(elements, parts)
        return self._compute_sets[compute_set]

    def _before(self, compute_set: ComputeSet) -> None:
        written = self._written(compute_set)
        written.before = [self._nans(part) for part in written.parts]

    def _after(self, compute_set: ComputeSet) -> None:
        written = self._written(compute_set)
        for part, before in zip(written.parts, written.before, strict=True):
            # What was NaN before is not this compute set's doing.
            turned = self._nans(part) & ~before
            if turned.any():
                replica, place = np.unravel_index(int(np.argmax(turned)), turned.shape)
                address = int(written.elements.address[part.place][place])
                raise self._error(compute_set, address, int(turned.sum()), int(replica))

    def _nans(self, part: VariablePart) -> npt.NDArray[np.bool_]:
        values = part.values(self._arena)
        found = values != values
        if self._shadow is not None:
            # Poison of floats is a NaN too.
            found &= self._shadow.written(part)
        return np.asarray(found)

    def _error(self, compute_set: ComputeSet, address: int, count: int, replica: int) -> ApplicationRuntimeError:
        several = f", the first of {count}" if count > 1 else ""
        group, vertex, name, index = next(users(compute_set, address, ("out", "inout")))
        place = vertex_text(compute_set, group, vertex, replica if self._arena.replicas > 1 else None)
        return ApplicationRuntimeError(
            f"compute set {compute_set.name!r} turns {element_text(self._graph, address)} NaN{several}",
            at=f"{group.codelet.name}.{name}[{index}]\n{place}",
            because=made_at(self._graph, address),
            remedy="look at what the vertex reads: engine[…] shows it as the compute set left it",
        )


@dataclass(eq=False)
class Checking:
    """The checks of one image.

    Attributes:
        checks: Checks that are on.
        watches: Watches of memory between steps, in order.
        shuffled: Runner of vertices in a drawn order, if that is on.
    """

    checks: Checks
    watches: list[MemoryWatch] = field(default_factory=list)
    shuffled: ShuffledVertices | None = None

    def supersteps(
        self, placed: NativeSupersteps, callbacks: Callbacks, debug: bool
    ) -> NativeSupersteps | InterpretedSupersteps:
        """Emitter of compute sets under the checks."""
        interpreted = debug or self.checks.interpreted
        native, bounded = NativeVertices(placed.compile), BoundedVertices(placed.compile)
        if self.checks.vertex_order is not None:
            self.shuffled = ShuffledVertices(self.checks.vertex_order, interpreted, native, bounded)
            return InterpretedSupersteps(placed, callbacks, self.shuffled)
        if not interpreted:
            return placed
        if not debug:
            return InterpretedSupersteps(placed, callbacks, bounded)
        return InterpretedSupersteps(placed, callbacks, lambda groups: run_in_order(groups, bounded))

    def lowering(
        self, context: LoweringContext, programs: Sequence[Program], graph: Graph, placed: NativeSupersteps
    ) -> ProgramLowering:
        """Lowering of programs to bytecode under the checks."""
        if not self.checks.watched:
            return ProgramLowering(context, programs)
        self.watches = list(_watches(self.checks, graph, context.arena, context.effects, placed))
        return WatchedLowering(context, programs, self.watches)

    def load(self) -> None:
        """Memory has its contents at load."""
        for watch in self.watches:
            watch.load()
        if self.shuffled is not None:
            self.shuffled.load()

    def host_wrote(self, tensor: Tensor) -> None:
        """The host wrote a view."""
        for watch in self.watches:
            watch.host_wrote(tensor)


def _watches(
    checks: Checks, graph: Graph, arena: Arena, effects: EffectsOf, placed: NativeSupersteps
) -> tuple[MemoryWatch, ...]:
    shadow = Shadow(arena, graph.variables) if checks.uninitialised else None
    found: list[MemoryWatch] = [NanWatch(graph, arena, effects, shadow)] if checks.nan else []
    if shadow is not None:
        found.append(UninitialisedWatch(graph, arena, effects, placed.placed, shadow))
    return tuple(found)
