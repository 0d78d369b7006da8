"""The vertices of popnn."""

from __future__ import annotations

from collections.abc import Iterable

from abele.poplibs.public_vertices import losses, nonlinearities, pooling
from abele.poplibs.public_vertices.family import Family

_CTC = "its fields are not known here; popnn.ctc does what it is for"
WITHHELD = dict.fromkeys(("CTCAlpha", "CTCBeta", "CTCGradGivenAlpha", "CTCGradGivenBeta", "CTCUpdate"), _CTC)
WITHHELD |= {
    "ROIAlignForward": "its fields are not known here; popnn.roiAlignFwd does what it is for",
    "ROIAlignBackward": "its fields are not known here; popnn.roiAlignInputGradient does what it is for",
}


def families() -> Iterable[Family]:
    """Every vertex of popnn."""
    return [family for module in (nonlinearities, losses, pooling) for family in module.families()]
