"""The vertices of popops."""

from __future__ import annotations

from collections.abc import Iterable

from abele.poplibs.public_vertices import casts, choosing, elementwise, filling, reductions, scaled_adds, slices
from abele.poplibs.public_vertices.family import Family

_MODULES = (elementwise, casts, choosing, scaled_adds, filling, reductions, slices)

WITHHELD: dict[str, str] = {}
"""Why vertices of popops are not here."""


def families() -> Iterable[Family]:
    """Every vertex of popops."""
    return [family for module in _MODULES for family in module.families()]
