"""Fields of a vertex: the annotations that declare them, and what they mean."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from abele.errors import CodeletError
from abele.numerics import ElementType, as_element_type


@dataclass(frozen=True)
class FieldDef:
    """One field of a codelet.

    Attributes:
        name: Its name.
        direction: ``in``, ``out``, ``inout``, or ``state`` for what belongs to the vertex itself.
        type: Element type.
        rank: 0 for one element, 1 for a vector, 2 for a vector of vectors (edges only).
    """

    name: str
    direction: str
    type: ElementType
    rank: int

    @property
    def is_edge(self) -> bool:
        """Whether the field is wired to a tensor."""
        return self.direction != "state"

    @property
    def writable(self) -> bool:
        """Whether compute may write it."""
        return self.direction != "in"


@dataclass(frozen=True)
class FieldType:
    """What an annotation such as ``Input[Vector[f32]]`` evaluates to.

    Attributes:
        element: Element type.
        rank: Number of ``Vector`` in it.
        direction: ``in``, ``out``, ``inout``, or None where no direction is given.
    """

    element: ElementType
    rank: int = 0
    direction: str | None = None

    def field(self, name: str) -> FieldDef:
        """The field that this declares under ``name``."""
        return FieldDef(name, self.direction or "state", self.element, self.rank)


def field_type(annotation: Any) -> FieldType:
    """The field type of an evaluated annotation; a plain element type is scalar state.

    Raises:
        TypeMismatchError: It is neither a field type nor an element type.
    """
    return annotation if isinstance(annotation, FieldType) else FieldType(as_element_type(annotation))


class _Edge:
    direction: ClassVar[str]

    def __class_getitem__(cls, content: Any) -> FieldType:
        inner = field_type(content)
        if inner.direction is not None:
            raise CodeletError(
                f"{cls.__name__}[…] is put around a field that has a direction already",
                remedy=f"write Vector[{cls.__name__}[Vector[{inner.element}]]] for a vector of vectors",
            )
        if inner.rank > 1:
            raise CodeletError(
                f"{cls.__name__}[Vector[Vector[{inner.element}]]] is no field",
                remedy=f"write Vector[{cls.__name__}[Vector[{inner.element}]]]",
            )
        return FieldType(inner.element, inner.rank, cls.direction)


class Input(_Edge):
    """An edge that compute only reads: ``Input[f32]``, ``Input[Vector[f32]]``."""

    direction = "in"


class Output(_Edge):
    """An edge that compute writes; undefined at entry."""

    direction = "out"


class InOut(_Edge):
    """An edge that compute reads and writes."""

    direction = "inout"


class Vector:
    """Several elements: ``Input[Vector[f32]]``, state ``Vector[f32]``, rows ``Vector[Input[Vector[f32]]]``."""

    def __class_getitem__(cls, content: Any) -> FieldType:
        inner = field_type(content)
        if inner.direction is not None and inner.rank == 0:
            raise CodeletError(
                f"a vector of single {inner.direction} elements of {inner.element} is no field yet",
                remedy="wire the elements as one region, Input[Vector[…]]: it may be scattered",
            )
        if inner.rank == 2 or (inner.rank == 1 and inner.direction is None):
            raise CodeletError(
                f"a vector of {inner.rank}-dimensional {inner.element} without a direction inside is no field",
                remedy=f"write Vector[Input[Vector[{inner.element}]]] for rows of different length",
            )
        return FieldType(inner.element, inner.rank + 1, inner.direction)
