"""History: changes of each step of a debugged program, so that they can be undone."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from abele.arrays import Array
from abele.graph import Copy, Execute, Program
from abele.runtime.debugger.walk import Stack
from abele.runtime.host.remote_memory import RemoteMemory
from abele.runtime.image import Image
from abele.runtime.memory.effects import EffectsOf
from abele.runtime.memory.elements import Elements


@dataclass(eq=False)
class Change:
    """State before a step.

    Attributes:
        step: The step.
        stack: Stack of the walker.
        cycles: Cycles at that time.
        elements: The elements that the step writes.
        before: Their values, [replicas, k], part by part.
        others: Further memory that the step changes (state of vertices, places of streams, rows of remote buffers),
            each with a copy.
    """

    step: Program
    stack: Stack
    cycles: int
    elements: Elements
    before: list[Array]
    others: list[tuple[Array, Array]] = field(default_factory=list)

    @property
    def bytes(self) -> int:
        """Memory that the change takes."""
        return sum(a.nbytes for a in self.before) + sum(copy.nbytes for _, copy in self.others)


@dataclass(frozen=True, eq=False)
class Outcome:
    """Results of a step, for steps that must not run twice because the host sees them.

    Attributes:
        elements: The elements that it wrote.
        values: Their values.
        others: Further memory that it changed, with its contents then.
    """

    elements: Elements
    values: list[Array]
    others: list[tuple[Array, Array]]

    def apply(self, history: History) -> None:
        """Leave the same behind again."""
        history.set(self.elements, self.values)
        for memory, copy in self.others:
            memory[...] = copy


class History:
    """The changes of the last steps, as many as a limit of memory allows.

    Args:
        image: Memory and machine of the program.
        remote: Its remote buffers.
        max_bytes: Oldest changes are forgotten beyond this.
    """

    def __init__(self, image: Image, remote: RemoteMemory, max_bytes: int) -> None:
        self._image = image
        self._remote = remote
        self._max_bytes = max_bytes
        self._effects = EffectsOf()
        self._elements: dict[Program, Elements] = {}
        self._changes: deque[Change] = deque()
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._changes)

    def elements(self, step: Program) -> Elements:
        """The elements that a step writes."""
        if step not in self._elements:
            self._elements[step] = Elements.of(self._effects(step).written, self._image.arena)
        return self._elements[step]

    def note(self, step: Program, stack: Stack, cycles: int) -> Change:
        """Note the state before ``step`` runs."""
        elements = self.elements(step)
        others = [(memory, memory.copy()) for memory in self._others(step)]
        change = Change(step, stack, cycles, elements, self.values(elements), others)
        self._changes.append(change)
        self._bytes += change.bytes
        while self._bytes > self._max_bytes and len(self._changes) > 1:
            self._bytes -= self._changes.popleft().bytes
        return change

    def outcome(self, change: Change) -> Outcome:
        """Results of the step of a change."""
        others = [(memory, memory.copy()) for memory, _ in change.others]
        return Outcome(change.elements, self.values(change.elements), others)

    def take_back(self) -> Change:
        """Undo the last step."""
        change = self._changes.pop()
        self._bytes -= change.bytes
        self.set(change.elements, change.before)
        for memory, copy in change.others:
            memory[...] = copy
        return change

    def values(self, elements: Elements) -> list[Array]:
        """The present values of elements."""
        return [part.values(self._image.arena) for part in elements.parts]

    def set(self, elements: Elements, values: Sequence[Array]) -> None:
        """Give elements other values."""
        arena = self._image.arena
        for part, value in zip(elements.parts, values, strict=True):
            for replica in range(arena.replicas):
                arena.array(part.variable, replica).reshape(-1)[part.index] = value[replica]

    def _others(self, step: Program) -> list[Array]:
        found: list[Array] = [word for words in self._image.machine.places().values() for word in words]
        if isinstance(step, Execute):
            mine = (g for g in self._image.supersteps.placed if g.compute_set is step.compute_set)
            found.extend(values for g in mine for values, _ in g.tables.state)
        if isinstance(step, Copy) and step.remote is not None and step.destination is step.remote:
            found.extend(self._rows(step))
        return found

    def _rows(self, copy: Copy) -> list[Array]:
        """Rows of a remote buffer that a copy is about to write."""
        assert copy.remote is not None
        arena, buffer = self._image.arena, copy.remote
        found: list[Array] = []
        for replica in range(arena.replicas):
            rows: Array = self._remote.rows(buffer, replica)
            wanted = [0] if copy.offset is None else np.atleast_1d(arena.read(copy.offset, replica)).tolist()
            found.extend(rows[row] for row in wanted if 0 <= row < len(rows))
        return found
