"""Running an image under checks: the way of running vertices, and watches of memory between steps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from abele.graph import Graph, Program, Tensor
from abele.runtime.checks.checks import Checks
from abele.runtime.checks.every_access import BoundedVertices, run_in_order
from abele.runtime.checks.nan_watch import NanWatch
from abele.runtime.checks.shadow import Shadow
from abele.runtime.checks.uninitialised import UninitialisedWatch
from abele.runtime.checks.vertex_order import ShuffledVertices
from abele.runtime.checks.watching import MemoryWatch, WatchedLowering
from abele.runtime.control.callbacks import Callbacks
from abele.runtime.lowering.lower import LoweringContext, ProgramLowering
from abele.runtime.memory.arena import Arena
from abele.runtime.memory.effects import EffectsOf
from abele.runtime.supersteps.direct_calls import NativeVertices
from abele.runtime.supersteps.interpreted import InterpretedSupersteps
from abele.runtime.supersteps.native_supersteps import NativeSupersteps


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
