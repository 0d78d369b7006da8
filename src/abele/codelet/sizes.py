"""Sizes common to all vertices of a group, for code that is made for them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from abele.codelet.fields import FieldDef


@dataclass(frozen=True, slots=True)
class Size:
    """Known sizes of one field; None where vertices differ.

    Attributes:
        field: Name of the field.
        length: Elements of a vector, or rows of a field of rows.
        row_length: Elements of each row.
    """

    field: str
    length: int | None = None
    row_length: int | None = None


@dataclass(frozen=True, slots=True)
class Sizes:
    """Known sizes of the fields of a group's vertices.

    Attributes:
        known: One entry per field; fields of single elements have none.
    """

    known: tuple[Size, ...] = ()

    @staticmethod
    def of(sizes: Iterable[Size]) -> Sizes:
        """Sizes of several fields; those of which nothing is known are left out."""
        return Sizes(tuple(s for s in sizes if s.length is not None or s.row_length is not None))

    def __bool__(self) -> bool:
        return bool(self.known)

    def of_field(self, field: FieldDef) -> Size:
        """Known sizes of a field."""
        return next((s for s in self.known if s.field == field.name), Size(field.name))


UNKNOWN = Sizes()
