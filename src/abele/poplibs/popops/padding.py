"""PopLibs' namespace ``popops::padding``: arguments of :func:`~abele.poplibs.popops.layout.pad.pad`."""

from __future__ import annotations

from enum import StrEnum

from abele.poplibs.popops.layout.pad import PaddingType

__all__ = ["MappingMethod", "Type"]

Type = PaddingType
"""Source of padding values."""


class MappingMethod(StrEnum):
    """Tile of the padding constant: none, tile 0, or that of the tensor's first element."""

    NONE = "NONE"
    ZERO = "ZERO"
    EDGE = "EDGE"
