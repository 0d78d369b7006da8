"""The vertices of popops."""

from __future__ import annotations

from collections.abc import Iterable

from abele.poplibs.public_vertices import elementwise
from abele.poplibs.public_vertices.family import Family

WITHHELD: dict[str, str] = {}
"""Why vertices of popops are not here."""


def families() -> Iterable[Family]:
    """Every vertex of popops."""
    return [*elementwise.families()]
