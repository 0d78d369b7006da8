"""Estimates of users for the cost of a codelet's vertices, in place of the codelet's own formula or of counting."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from abele.codelet.names import normalised

if TYPE_CHECKING:
    from abele.codelet import CodeletDef
    from abele.graph.introspect import VertexIntrospector
    from abele.graph.vertices import VertexGroup
    from abele.machine import Target


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
