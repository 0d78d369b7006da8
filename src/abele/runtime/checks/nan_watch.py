"""The check for NaN: the first compute set that turns an element NaN ends the run."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial

import numpy as np
import numpy.typing as npt

from abele.errors import ApplicationRuntimeError
from abele.graph import ComputeSet, Execute, Graph, Program, Tensor
from abele.runtime.checks.shadow import Shadow
from abele.runtime.checks.watching import Look
from abele.runtime.memory.arena import Arena
from abele.runtime.memory.effects import EffectsOf
from abele.runtime.memory.elements import Elements, VariablePart
from abele.runtime.supersteps.vertex_places import element_text, made_at, users, vertex_text


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
