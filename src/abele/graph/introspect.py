"""One vertex as a cost estimator sees it: sizes of its fields, values of its state."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from abele.errors import UnknownFieldError, nearest
from abele.graph.vertices import VertexGroup


@dataclass(frozen=True, slots=True)
class FieldInfo:
    """One field of one vertex.

    Attributes:
        sizes: Elements of each row; one row for a vector, one of one element for a scalar.
        values: Values of state; None for edges.
        nested: True if the field is a vector of vectors.
    """

    sizes: npt.NDArray[np.int64]
    values: npt.NDArray[Any] | None
    nested: bool


class VertexIntrospector:
    """One vertex of a group, as a cost estimator sees it."""

    __slots__ = ("_group", "_vertex")

    field_type: ClassVar[type[FieldInfo]] = FieldInfo
    """Class of a field's description."""

    def __init__(self, group: VertexGroup, vertex: int) -> None:
        self._group = group
        self._vertex = vertex

    def __getitem__(self, name: str) -> FieldInfo:
        return self.field(name)

    def field(self, name: str) -> FieldInfo:
        """Size and values of a field.

        Raises:
            UnknownFieldError: The codelet does not declare it.
        """
        group, i = self._group, self._vertex
        if name in group.state:
            state = group.state[name]
            low, high = (i, i + 1) if state.row_begin is None else (int(n) for n in state.row_begin[i : i + 2])
            return self.field_type(np.array([high - low]), state.values[low:high], False)
        if name not in group.edges:
            close = nearest(name, [*group.edges, *group.state])
            raise UnknownFieldError(
                f"vertex {group.codelet.name} has no field {name!r}",
                at=group.origin_of(i).location or None,
                remedy=f"did you mean {close!r}?" if close else None,
            )
        edge = group.edges[name]
        if edge.row_begin is None:
            return self.field_type(edge.row_sizes[i : i + 1], None, False)
        low, high = (int(n) for n in edge.row_begin[i : i + 2])
        return self.field_type(edge.regions.sizes[edge.index[low:high]], None, True)
