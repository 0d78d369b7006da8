"""The check for uninitialised reads: a shadow of memory, followed from step to step."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from abele.arrays import Int64
from abele.errors import UninitialisedReadError
from abele.graph import ComputeSet, Execute, Graph, Program, RepeatWhile, Tensor, WriteUndef
from abele.runtime.checks.poisoning import OutputPoison
from abele.runtime.checks.shadow import Shadow, addresses_of
from abele.runtime.checks.traced import run_traced, suspects
from abele.runtime.checks.watching import Look
from abele.runtime.memory.arena import Arena
from abele.runtime.memory.effects import EffectsOf, elements_of
from abele.runtime.memory.elements import Elements
from abele.runtime.supersteps.placed_groups import PlacedGroup
from abele.runtime.supersteps.vertex_places import element_text, made_at, vertex_text

_REMEDY = "give it an initial value, write it from the host, or let a step write it first"


@dataclass(frozen=True, eq=False)
class _Superstep:
    """A compute set as the check sees it.

    Attributes:
        placed: Its vertices.
        read: Addresses of elements that fields connect vertices to for reading.
        written: Elements that they may write.
        poison: Poison of the Outputs.
    """

    placed: list[PlacedGroup]
    read: Int64
    written: Elements
    poison: OutputPoison


class UninitialisedWatch:
    """Ends the run at the first read of an element that nothing has written.

    A step other than a compute set reads all of its source. A vertex whose inputs are not all written is run as plain
    Python first, and only the elements that it reads count.

    Args:
        graph: The graph.
        arena: Its memory.
        effects: Elements that steps touch.
        placed: All vertex groups that are made ready, now and later.
        shadow: Elements that were written.
    """

    def __init__(
        self, graph: Graph, arena: Arena, effects: EffectsOf, placed: list[PlacedGroup], shadow: Shadow
    ) -> None:
        self._graph = graph
        self._arena = arena
        self._effects = effects
        self._placed = placed
        self._shadow = shadow
        self._compute_sets: dict[ComputeSet, _Superstep] = {}

    def load(self) -> None:
        """Poison variables without contents."""
        self._shadow.load()

    def host_wrote(self, tensor: Tensor) -> None:
        """The view is valid."""
        self._shadow.set(tensor)

    def before(self, step: Program) -> Look | None:
        """Check the elements that the step reads."""
        match step:
            case Execute():
                return partial(self._before_vertices, step.compute_set)
            case RepeatWhile():
                return None
            case _ if step.reads():
                return partial(self._check, step)
            case _:
                return None

    def after(self, step: Program) -> Look | None:
        """Note the elements that the step wrote."""
        match step:
            case Execute():
                return partial(self._after_vertices, step.compute_set)
            case WriteUndef():
                elements = Elements.of(elements_of(step.tensor), self._arena)
                return partial(self._shadow.forget, elements)
            case _ if step.writes():
                return partial(self._note_writes, step.writes())
            case _:
                return None

    def decision(self, step: Program) -> Look | None:
        """Check the predicate."""
        return partial(self._check, step)

    # --- plain steps -------------------------------------------------------------------------------------------------

    def _check(self, step: Program) -> None:
        for tensor in step.reads():
            address = addresses_of(tensor)
            found = self._shadow.first_invalid(address)
            if found is not None:
                replica, place = found
                raise UninitialisedReadError(
                    f"{element_text(self._graph, int(address[place]))} is read, and nothing has written it",
                    at=f"{_step_text(step)}, which reads {tensor!r}{self._of_replica(replica)}",
                    because=made_at(self._graph, int(address[place])),
                    remedy=_REMEDY,
                )

    def _note_writes(self, tensors: tuple[Tensor, ...]) -> None:
        for tensor in tensors:
            self._shadow.set(tensor)

    def _of_replica(self, replica: int) -> str:
        return f" of replica {replica}" if self._arena.replicas > 1 else ""

    # --- vertices ----------------------------------------------------------------------------------------------------

    def _superstep(self, compute_set: ComputeSet) -> _Superstep:
        if compute_set not in self._compute_sets:
            effects = self._effects.compute_set(compute_set)
            mine = [p for p in self._placed if p.compute_set is compute_set]
            self._compute_sets[compute_set] = _Superstep(
                mine,
                Elements.of(effects.exposed, self._arena).address,
                Elements.of(effects.written, self._arena),
                OutputPoison(mine, effects.exposed, self._arena),
            )
        return self._compute_sets[compute_set]

    def _before_vertices(self, compute_set: ComputeSet) -> None:
        step = self._superstep(compute_set)
        if self._shadow.first_invalid(step.read) is not None:
            for placed in step.placed:
                for replica, vertex in suspects(placed.group, self._shadow):
                    self._trace(placed, replica, vertex)
        step.poison.apply()
        self._shadow.valid[:, step.poison.address] = False

    def _after_vertices(self, compute_set: ComputeSet) -> None:
        self._shadow.learn(self._superstep(compute_set).written)

    def _trace(self, placed: PlacedGroup, replica: int, vertex: int) -> None:
        found = run_traced(placed, replica, vertex, self._shadow, self._arena)
        if found is None:
            return
        place = vertex_text(placed.compute_set, placed.group, vertex, replica if self._arena.replicas > 1 else None)
        raise UninitialisedReadError(
            f"{element_text(self._graph, found.address)} is read as {placed.group.codelet.name}.{found.field}, and "
            "nothing has written it",
            at="\n".join(filter(None, (found.line, place))),
            because=made_at(self._graph, found.address),
            remedy=_REMEDY,
        )


def _step_text(step: Program) -> str:
    name = step.debug.full_name
    kind = type(step).__name__
    words = kind if name.replace("_", "") == kind.lower() else f"{kind} {name!r}"
    return f"{words}, made at {step.debug.location}" if step.debug.file else words
