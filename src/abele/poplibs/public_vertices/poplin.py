"""The vertices of poplin."""

from __future__ import annotations

from collections.abc import Iterable

from abele.poplibs.public_vertices import convolutions, factorisations, kernel_convolutions, winograd
from abele.poplibs.public_vertices.family import Family

_WORK_LISTS = "the coding of its work lists is not known here; poplin.convolution places vertices of this kind itself"
WITHHELD = dict.fromkeys(
    ("ConvPartial1x4SLIC", "ConvPartialVerticalMac", "WgdPartials", "WgdConvComplete"), _WORK_LISTS
)


def families() -> Iterable[Family]:
    """Every vertex of poplin."""
    return [
        family
        for module in (convolutions, kernel_convolutions, winograd, factorisations)
        for family in module.families()
    ]
