"""One vertex as Poplar shows it to a cost estimator."""

from __future__ import annotations

from typing import Any, ClassVar

from abele import machine
from abele.graph import introspect


class FieldInfo(introspect.FieldInfo):
    """One field of one vertex, by Poplar's names."""

    __slots__ = ()

    def size(self) -> int:
        """Rows of a vector of vectors, elements of any other field."""
        return len(self.sizes) if self.nested else int(self.sizes.sum())

    def getSize(self, row: int) -> int:
        """Elements of one row."""
        return int(self.sizes[row])

    def getInitialValue(self, target: machine.Target | None = None) -> Any:
        """The value that a scalar state field starts with."""
        return None if self.values is None else self.values[0].item()

    def getInitialValues(self, target: machine.Target | None = None) -> list[Any]:
        """The values that a vector state field starts with."""
        return [] if self.values is None else list(self.values.tolist())


class VertexIntrospector(introspect.VertexIntrospector):
    """One vertex of a group, by Poplar's names."""

    __slots__ = ()

    field_type: ClassVar[type[introspect.FieldInfo]] = FieldInfo

    def getFieldInfo(self, name: str) -> introspect.FieldInfo:
        """Type, direction and size of a field.

        Raises:
            UnknownFieldError: The codelet does not declare it.
        """
        return self.field(name)
