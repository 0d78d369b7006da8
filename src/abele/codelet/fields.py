"""Fields of a vertex: the annotations that declare them, and their meanings."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from abele.codelet.layouts import DELTANELEMENTS, LIST_LAYOUTS, SPAN, VECTOR_LAYOUTS, FieldLayout, layout
from abele.errors import CodeletError, InvalidOptionError
from abele.numerics import ElementType, as_element_type


@dataclass(frozen=True)
class FieldDef:
    """One field of a codelet.

    Attributes:
        name: Its name.
        direction: ``in``, ``out``, ``inout``, or ``state`` for what belongs to the vertex itself.
        type: Element type.
        rank: 0 for one element, 1 for a vector, 2 for a vector of vectors (edges only).
        layouts: Layout of each dimension in the vertex's record, the outer first.
        min_align: Bytes that the address of each vector must be a multiple of.
        interleaved: True if the data must lie in interleaved memory.
        is_scattered: True if each element of a vector is wired on its own, ``Vector[Input[f32]]``.
        initial: Of state that nobody sets: gives the values that a number of new vertices start with.
        metadata_of: The field of 8-bit floats whose format and scale this state holds, as a byte; else empty.
    """

    name: str
    direction: str
    type: ElementType
    rank: int
    layouts: tuple[FieldLayout, ...] = ()
    min_align: int = 0
    interleaved: bool = False
    is_scattered: bool = False
    initial: Callable[[int], Any] | None = None
    metadata_of: str = ""

    @property
    def is_edge(self) -> bool:
        """True if the field is wired to a tensor."""
        return self.direction != "state"

    @property
    def writable(self) -> bool:
        """True if compute may write it."""
        return self.direction != "in"

    def layout(self, dimension: int = 0) -> FieldLayout:
        """Layout of the outer (0) or inner (1) dimension."""
        return self.layouts[dimension] if dimension < len(self.layouts) else SPAN

    @property
    def is_list(self) -> bool:
        """True if it is a ``VectorList``."""
        return self.rank == 2 and self.layout() in LIST_LAYOUTS.values()

    @property
    def alignment_bytes(self) -> int:
        """Alignment of the address of each vector."""
        return max(self.min_align, self.type.bytes, *(each.granule_bytes for each in self.layouts), 0)


@dataclass(frozen=True)
class FieldType:
    """Value of an annotation such as ``Input[Vector[f32]]``.

    Attributes:
        element: Element type.
        rank: Number of ``Vector`` in it.
        direction: ``in``, ``out``, ``inout``, or None where no direction is given.
        layouts: Layouts of its vectors, the outer first.
        min_align: Bytes that its data is aligned to.
        interleaved: True if its data lies in interleaved memory.
        is_scattered: True if its elements have directions of their own.
    """

    element: ElementType
    rank: int = 0
    direction: str | None = None
    layouts: tuple[FieldLayout, ...] = ()
    min_align: int = 0
    interleaved: bool = False
    is_scattered: bool = False

    def field(self, name: str) -> FieldDef:
        """The field that this declares under ``name``."""
        return FieldDef(
            name=name,
            direction=self.direction or "state",
            type=self.element,
            rank=self.rank,
            layouts=self.layouts,
            min_align=self.min_align,
            interleaved=self.interleaved,
            is_scattered=self.is_scattered,
        )


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
        if inner.rank > 1 and inner.layouts[0] not in LIST_LAYOUTS.values():
            raise CodeletError(
                f"{cls.__name__}[Vector[Vector[{inner.element}]]] is no field",
                remedy=f"write Vector[{cls.__name__}[Vector[{inner.element}]]]",
            )
        return replace(inner, direction=cls.direction)


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
    """Several elements: ``Input[Vector[f32]]``, state ``Vector[f32]``, rows ``Vector[Input[Vector[f32]]]``, and
    elements that are wired one by one ``Vector[Input[f32]]``.

    As in Poplar, a layout, an alignment in bytes and whether to lie in interleaved memory may follow:
    ``Input[Vector[f32, ONE_PTR, 8, True]]``.
    """

    def __class_getitem__(cls, content: Any) -> FieldType:
        inner_given, *rest = content if isinstance(content, tuple) else (content,)
        inner = field_type(inner_given)
        if inner.rank == 2 or (inner.rank == 1 and inner.direction is None) or inner.is_scattered:
            raise CodeletError(
                f"a vector of {inner.rank}-dimensional {inner.element} without a direction inside is no field",
                remedy=f"write Vector[Input[Vector[{inner.element}]]] for rows of different length",
            )
        which, align, interleaved = _described(rest)
        if (align or interleaved) and inner.rank:
            raise CodeletError(
                "alignment and interleaving belong to the inner vector",
                remedy=f"write Vector[Input[Vector[{inner.element}, SPAN, {align or 8}]]]",
            )
        return replace(
            inner,
            rank=inner.rank + 1,
            layouts=(which, *inner.layouts),
            min_align=align or inner.min_align,
            interleaved=interleaved or inner.interleaved,
            is_scattered=inner.rank == 0 and inner.direction is not None,
        )


class VectorList:
    """Rows of different length in one compact description: ``Input[VectorList[f32]]``.

    A layout (DELTANELEMENTS or DELTAN), an alignment in bytes and whether to lie in interleaved memory may follow.
    """

    def __class_getitem__(cls, content: Any) -> FieldType:
        element, *rest = content if isinstance(content, tuple) else (content,)
        which, align, interleaved = _described(rest, LIST_LAYOUTS, DELTANELEMENTS)
        return FieldType(as_element_type(element), 2, None, (which, SPAN), align, interleaved)


def _described(
    rest: list[Any], choices: dict[str, FieldLayout] = VECTOR_LAYOUTS, default: FieldLayout = SPAN
) -> tuple[FieldLayout, int, bool]:
    """Layout, alignment and interleaving as they follow the element type."""
    if len(rest) > 3:
        raise InvalidOptionError(
            f"a vector takes a layout, an alignment and whether it is interleaved, not {rest}",
            remedy="Vector[f32, ONE_PTR, 8, True]",
        )
    which = layout(rest[0], choices) if rest else default
    align = rest[1] if len(rest) > 1 else 0
    if isinstance(align, bool) or not isinstance(align, int) or align < 0 or align & (align - 1):
        raise InvalidOptionError(f"an alignment of {align!r} bytes", remedy="a power of two, such as 8")
    interleaved = rest[2] if len(rest) > 2 else False
    if not isinstance(interleaved, bool):
        raise InvalidOptionError(f"interleaved is {interleaved!r}", remedy="True or False")
    return which, align, interleaved
