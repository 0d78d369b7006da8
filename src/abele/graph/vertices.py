"""Vertex groups: N vertices of one codelet, as arrays."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from abele.arrays import Int32, Int64
from abele.codelet.names import normalised
from abele.graph.debug import DebugRecord
from abele.graph.regions import Regions

if TYPE_CHECKING:
    from abele.codelet import CodeletDef
    from abele.graph.introspect import VertexIntrospector
    from abele.machine import Target


# Estimates of users for the cost of a codelet's vertices, in place of the codelet's own formula or of counting.


@dataclass(frozen=True, eq=False, slots=True)
class PerfEstimator:
    """An estimator of one graph.

    Attributes:
        function: ``function(view, ipu)`` gives one number per vertex, int[N], as ``cycles`` of a codelet does; if it is
            asked per vertex, ``function(introspector, target)`` gives the number of one. Either may give a pair:
            cycles, and floating-point operations.
        per_vertex: True if it is asked vertex by vertex, as Poplar's are.
        target: Machine that it is asked with then.
        introspector: Class that shows it the vertex then.
    """

    function: Callable[..., Any]
    per_vertex: bool
    target: Target
    introspector: type[VertexIntrospector]

    def ask(self, group: VertexGroup, vertex: int) -> Any:
        """Estimate for one vertex of a group."""
        return self.function(self.introspector(group, vertex), self.target)


class PerfEstimators(dict["str | CodeletDef", PerfEstimator]):
    """Estimators by codelet: by definition, or by name, whitespace aside."""

    def of(self, codelet: CodeletDef) -> PerfEstimator | None:
        """The estimator of a codelet, if it has one."""
        return self.get(codelet) or self.get(normalised(codelet.name))


@dataclass(frozen=True, eq=False)
class Edge:
    """Regions that one field of every vertex in a group is wired to.

    Attributes:
        regions: The regions, shared between vertices.
        index: Region of each row, int64[rows]; a rank-0 or rank-1 field has one row per vertex.
        row_begin: For a rank-2 field, rows of vertex i are ``row_begin[i]`` to ``row_begin[i + 1]``, int64[N + 1].
    """

    regions: Regions
    index: Int64
    row_begin: Int64 | None = None

    @property
    def row_sizes(self) -> Int64:
        """Elements of each row, int64[rows]."""
        return self.regions.sizes[self.index]

    @property
    def vertex_of_row(self) -> Int64:
        """Vertex that each row belongs to, int64[rows]."""
        if self.row_begin is None:
            return np.arange(len(self.index), dtype=np.int64)
        return np.repeat(np.arange(len(self.row_begin) - 1, dtype=np.int64), np.diff(self.row_begin))


@dataclass(frozen=True, eq=False)
class StateData:
    """Initial values of one state field of every vertex in a group.

    Attributes:
        values: One value per vertex (scalar state), or all vectors after each other.
        row_begin: For vector state, the values of vertex i are ``row_begin[i]`` to ``row_begin[i + 1]``.
    """

    values: npt.NDArray[Any]
    row_begin: Int64 | None = None


@dataclass(eq=False)
class VertexGroup:
    """N vertices of one codelet in one compute set.

    Attributes:
        codelet: Their type.
        tile: Tile of each, int32[N].
        edges: Wiring of every edge field, by name.
        state: Initial values of every state field, by name.
        cycles: Issue slots (tile cycles for multi-worker kinds) of each vertex that override counting, or None.
        debug: Source line at which the user made them.
        origins: Source line of each, if they were made one by one.
        estimator: User's estimator of the cost of this codelet's vertices in the graph, or None.
        state_bytes: Bytes of the record of each vertex that override its codelet's, int64[N], or None.
    """

    codelet: CodeletDef
    tile: Int32
    edges: dict[str, Edge]
    state: dict[str, StateData]
    cycles: Int64 | None
    debug: DebugRecord
    origins: tuple[DebugRecord, ...] | None = None
    estimator: PerfEstimator | None = None
    state_bytes: Int64 | None = None

    @property
    def num(self) -> int:
        """Number of vertices."""
        return len(self.tile)

    def origin_of(self, vertex: int) -> DebugRecord:
        """Source line at which the user made one of the vertices."""
        return self.origins[vertex] if self.origins else self.debug

    def __repr__(self) -> str:
        return f"VertexGroup({self.num} × {self.codelet.name})"
