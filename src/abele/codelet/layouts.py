"""Vector layouts: descriptions of a vector in the record of a vertex, and their bytes."""

from __future__ import annotations

from dataclasses import dataclass

from abele.errors import InvalidOptionError, nearest


@dataclass(frozen=True, slots=True)
class FieldLayout:
    """Layout of a vector in the record of its vertex.

    Attributes:
        name: Poplar's name.
        bytes: Size of the description.
        has_size: True if it carries the number of elements, so that ``len`` works.
        max_size: Most elements that it can describe; None for no limit.
        granule_bytes: Alignment of the address, whose low bits are not kept; 0 for the element's.

    Source: poplar_api.md §6.2 (names, contents); machine.md §1.1 (21 address bits, of which a compact pointer of
    16 bits keeps those above 2); the 11 bits of a short span's size are stated.
    """

    name: str
    bytes: int
    has_size: bool = True
    max_size: int | None = None
    granule_bytes: int = 0

    def __repr__(self) -> str:
        return self.name


SPAN = FieldLayout("SPAN", 8)
SHORT_SPAN = FieldLayout("SHORT_SPAN", 4, max_size=2**11 - 1)
ONE_PTR = FieldLayout("ONE_PTR", 4, has_size=False)
COMPACT_PTR = FieldLayout("COMPACT_PTR", 4, has_size=False)
SCALED_PTR32 = FieldLayout("SCALED_PTR32", 2, has_size=False, granule_bytes=4)
SCALED_PTR64 = FieldLayout("SCALED_PTR64", 2, has_size=False, granule_bytes=8)
SCALED_PTR128 = FieldLayout("SCALED_PTR128", 2, has_size=False, granule_bytes=16)
DELTAN = FieldLayout("DELTAN", 8)
DELTANELEMENTS = FieldLayout("DELTANELEMENTS", 8)

VECTOR_LAYOUTS = {
    layout.name: layout
    for layout in (SPAN, SHORT_SPAN, ONE_PTR, COMPACT_PTR, SCALED_PTR32, SCALED_PTR64, SCALED_PTR128)
}
LIST_LAYOUTS = {layout.name: layout for layout in (DELTAN, DELTANELEMENTS)}
DELTA_BYTES = {"DELTAN": 8, "DELTANELEMENTS": 4}
"""Bytes that a vector list keeps for each row: offset and size, packed more tightly when offsets count elements.

Source: poplar_api.md §6.2 names the layouts; their sizes are G.
"""


def layout(given: FieldLayout | str, choices: dict[str, FieldLayout]) -> FieldLayout:
    """A layout by itself or by name.

    Raises:
        InvalidOptionError: There is none of that name.
    """
    name = given.name if isinstance(given, FieldLayout) else str(given)
    if name not in choices:
        close = nearest(name, choices)
        raise InvalidOptionError(
            f"{name!r} is no layout of such a vector",
            remedy=f"did you mean {close}?" if close else "one of " + ", ".join(choices),
        )
    return choices[name]
