"""Errors for data that libpva has and a report lacks."""

from __future__ import annotations

from abele.errors import MissingDatumError


def missing(what: str, *, remedy: str | None = None) -> MissingDatumError:
    """The error of something that libpva tells and our report does not hold.

    Args:
        what: The datum, as a plural or a mass noun: ``the vertices of compute sets``.
        remedy: Name with similar data.
    """
    return MissingDatumError(f"reports do not hold {what}", remedy=remedy)
