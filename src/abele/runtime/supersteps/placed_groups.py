"""Vertex groups in host memory, and the watches of their runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from abele.arrays import Int64
from abele.graph import ComputeSet, VertexGroup
from abele.runtime.control.emitter import Emitter
from abele.runtime.supersteps.vertex_tables import VertexTables


@dataclass(frozen=True, eq=False, slots=True)
class CountedVertices:
    """Counts of a run for one vertex group.

    Attributes:
        compute_set: Compute set of the group.
        position: Position of the group in its compute set.
        raw: Issue slots of each vertex, summed over executions, int64[replicas * N] as bytes.
        executions: Number of times that they ran.
        replicas: Replicas that each have these vertices.
    """

    compute_set: ComputeSet
    position: int
    raw: bytes
    executions: int
    replicas: int

    @property
    def slots(self) -> Int64:
        """Issue slots of one execution of each vertex, int64[N], rounded up: the mean over executions and replicas."""
        total = np.frombuffer(self.raw, np.int64).reshape(self.replicas, -1).sum(axis=0)
        return np.asarray(-(-total // (self.executions * self.replicas)))


@dataclass(eq=False)
class PlacedGroup:
    """A vertex group with the tables that its native code is given.

    Attributes:
        compute_set: Compute set of the group.
        group: The vertices.
        position: Position of the group in its compute set.
        tables: Their pointers and lengths.
        replicas: Replicas that each have these vertices; the tables list those of replica 0 first.
        slots: Issue slots that this run has counted, int64[replicas * N], where the codelet's cost depends on data;
            else None.
        executions: Times that they ran in this run while being counted, int64[1].
        cuts: Vertices at which threads' shares begin and end, int64[threads + 1]; None for equal numbers.
        counted: Executions counted in all runs.
        last: Counts of the last whole run.
        learnt_from: Executions that had been counted when the shares were cut.
    """

    compute_set: ComputeSet
    group: VertexGroup
    position: int
    tables: VertexTables
    replicas: int = 1
    slots: Int64 | None = None
    executions: Int64 = field(default_factory=lambda: np.zeros(1, np.int64))
    cuts: Int64 | None = None
    counted: int = 0
    last: CountedVertices | None = None
    learnt_from: int = 0

    @property
    def num(self) -> int:
        """Vertices in all replicas."""
        return self.group.num * self.replicas

    def take_slots(self) -> CountedVertices | None:
        """Counts of this run, or None; the same object as last time where they are equal. Counting begins anew."""
        times = int(self.executions[0])
        if self.slots is None or not times:
            return None
        raw, last = self.slots.tobytes(), self.last
        if last is None or last.executions != times or last.raw != raw:
            last = self.last = CountedVertices(self.compute_set, self.position, raw, times, self.replicas)
        self.counted += times
        self.drop_slots()
        return last

    def drop_slots(self) -> None:
        """Begin to count anew."""
        if self.slots is not None:
            self.slots.fill(0)
            self.executions[0] = 0

    def reset(self) -> None:
        """Bring the vertices' state back to its contents at load."""
        for values, initial in self.tables.state:
            values[...] = initial


class SuperstepWatch(Protocol):
    """Watch of one superstep."""

    def before(self, emitter: Emitter, groups: Sequence[PlacedGroup], *, native: bool) -> None:
        """Append the scan of the vertices' operands, gathered and ready; ``native`` if these run natively."""

    def after(self, emitter: Emitter) -> None:
        """Append the scan of their results, before these are scattered."""
