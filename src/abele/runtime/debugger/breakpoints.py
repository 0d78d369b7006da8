"""Breakpoints: conditions that stop a debugged program."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from abele.graph import Copy, Execute, Program, Tensor, Variable, VertexGroup
from abele.words import counted


class OpenMemory(Protocol):
    """Memory that a breakpoint may read."""

    def read(self, handle: Any) -> npt.NDArray[Any]:
        """The values of a tensor."""

    def written(self, step: Program) -> Iterator[tuple[Variable, npt.NDArray[Any], npt.NDArray[Any]]]:
        """Variables that a step writes, the numbers of their elements, and the present values, [replicas, k]."""


class Breakpoint(ABC):
    """A reason to stop before or after a step."""

    @property
    @abstractmethod
    def text(self) -> str:
        """Description of the breakpoint, for lists."""

    def before(self, step: Program, memory: OpenMemory) -> str | None:
        """Why to stop before ``step``, or None."""
        return None

    def after(self, step: Program, memory: OpenMemory) -> str | None:
        """Why to stop after ``step``, or None."""
        return None


@dataclass
class AtStep(Breakpoint):
    """Before steps whose name matches a pattern, or one step of the program itself."""

    pattern: str
    node: Program | None = None

    @property
    def text(self) -> str:
        """Description of the breakpoint."""
        return f"step {self.pattern}"

    def before(self, step: Program, memory: OpenMemory) -> str | None:
        """A step that matches."""
        matches = step is self.node if self.node is not None else fnmatchcase(step_name(step), self.pattern)
        return self.text if matches else None


@dataclass
class AtVertex(Breakpoint):
    """Before compute sets with a vertex of some codelet, on one tile if given."""

    codelet: str
    tile: int | None = None

    @property
    def text(self) -> str:
        """Description of the breakpoint."""
        return f"vertex {self.codelet}" + ("" if self.tile is None else f" on tile {self.tile}")

    def before(self, step: Program, memory: OpenMemory) -> str | None:
        """A compute set that has one."""
        groups = step.compute_set.groups if isinstance(step, Execute) else ()
        return self.text if any(self._matches(g) for g in groups) else None

    def _matches(self, group: VertexGroup) -> bool:
        if not fnmatchcase(group.codelet.name, self.codelet):
            return False
        return self.tile is None or bool((group.tile == self.tile).any())


@dataclass
class AtTile(Breakpoint):
    """Before steps that compute on a tile or move data to it."""

    tile: int

    @property
    def text(self) -> str:
        """Description of the breakpoint."""
        return f"tile {self.tile}"

    def before(self, step: Program, memory: OpenMemory) -> str | None:
        """A step that concerns the tile."""
        if isinstance(step, Execute):
            concerned = any((g.tile == self.tile).any() for g in step.compute_set.groups)
        elif isinstance(step, Copy):
            concerned = isinstance(step.destination, Tensor) and self.tile in step.destination.mapping.tile
        else:
            concerned = False
        return self.text if concerned else None


@dataclass
class OnChange(Breakpoint):
    """After a step that changes a tensor."""

    tensor: Tensor
    name: str
    _last: npt.NDArray[Any] | None = field(default=None, repr=False)

    @property
    def text(self) -> str:
        """Description of the breakpoint."""
        return f"change of {self.name}"

    def before(self, step: Program, memory: OpenMemory) -> str | None:
        """Nothing but to keep the values."""
        self._last = memory.read(self.tensor)
        return None

    def after(self, step: Program, memory: OpenMemory) -> str | None:
        """Number of elements that changed, and the first of them; None if none did."""
        now, last = memory.read(self.tensor), self._last
        if last is None:
            return None
        changed = (now != last) & ~((now != now) & (last != last))
        if not changed.any():
            return None
        first = tuple(int(i) for i in np.argwhere(changed)[0])
        place = f"{self.name}[{', '.join(map(str, first))}]" if first else self.name
        return f"{counted(int(changed.sum()), 'element')} of {self.name} changed; {place}: {last[first]} → {now[first]}"


@dataclass
class OnNan(Breakpoint):
    """After a step that turns an element of a tensor NaN."""

    tensor: Tensor
    name: str
    _last: int = field(default=0, repr=False)

    @property
    def text(self) -> str:
        """Description of the breakpoint."""
        return f"NaN in {self.name}"

    def before(self, step: Program, memory: OpenMemory) -> str | None:
        """Nothing but to count those that are NaN already."""
        self._last = int(np.isnan(memory.read(self.tensor)).sum())
        return None

    def after(self, step: Program, memory: OpenMemory) -> str | None:
        """Number of elements that turned NaN, and the first of them; None if none did."""
        now = np.isnan(memory.read(self.tensor))
        fresh = int(now.sum()) - self._last
        if fresh <= 0:
            return None
        first = ", ".join(str(int(i)) for i in np.argwhere(now)[0])
        return f"{counted(fresh, 'element')} of {self.name} turned NaN; {self.name}[{first}] is NaN"


@dataclass
class OnAnyNan(Breakpoint):
    """After a step that turns any element NaN."""

    _last: list[npt.NDArray[np.bool_]] = field(default_factory=list, repr=False)

    text = "NaN anywhere"

    def before(self, step: Program, memory: OpenMemory) -> str | None:
        """Nothing but to note those that are NaN already."""
        self._last = [values != values for _, _, values in memory.written(step)]
        return None

    def after(self, step: Program, memory: OpenMemory) -> str | None:
        """The first element that turned NaN."""
        for (variable, index, values), last in zip(memory.written(step), self._last, strict=True):
            fresh = (values != values) & ~last
            if fresh.any():
                element = int(index[np.argwhere(fresh)[0][1]])
                place = ", ".join(map(str, variable.coordinates(element)))
                name, several = variable.name, counted(int(fresh.sum()), "element")
                return f"{several} of {name} turned NaN; {name}[{place}] is NaN"
        return None


def step_name(step: Program) -> str:
    """The name of a step, scopes included."""
    return step.compute_set.name if isinstance(step, Execute) else step.debug.full_name
