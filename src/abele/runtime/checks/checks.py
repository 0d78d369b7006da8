"""Checks that no IPU has, which an engine makes while it runs."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

from abele.errors import InvalidOptionError, nearest


@dataclass(frozen=True, kw_only=True)
class Checks:
    """Checks of an engine. All are off by default, and cost nothing then; each makes runs slow.

    Attributes:
        uninitialised: A read of an element that nothing has written ends the run. Memory is poisoned at load, by
            WriteUndef, and where Outputs are before their vertex runs.
        bounds: An index outside a field ends the run.
        inputs: A write to an Input ends the run.
        nan: The first compute set that turns an element NaN ends the run.
        vertex_order: Vertices of a compute set, and workers of a MultiVertex, run in an order drawn from this seed; a
            correct program gives the same results for every seed.
    """

    uninitialised: bool = False
    bounds: bool = False
    inputs: bool = False
    nan: bool = False
    vertex_order: int | None = None

    @staticmethod
    def of(given: Checks | str | None) -> Checks:
        """Checks as the engine's user gives them: themselves, ``"all"``, or names with commas between.

        Raises:
            InvalidOptionError: A name that is none.
        """
        if given is None or isinstance(given, Checks):
            return given or Checks()
        if not isinstance(given, str):
            raise InvalidOptionError(
                f"checks cannot be {given!r}", remedy='Checks(bounds=True, …), "all", or names as in "bounds,nan"'
            )
        names = [f.name for f in fields(Checks)]
        chosen = names if given == "all" else [name.strip() for name in given.split(",") if name.strip()]
        for name in chosen:
            if name not in names:
                close = nearest(name, names)
                raise InvalidOptionError(
                    f"there is no check {name!r}",
                    remedy=f"did you mean {close!r}?" if close else "all, or among " + ", ".join(names),
                )
        values: dict[str, Any] = {name: 0 if name == "vertex_order" else True for name in chosen}
        return Checks(**values)

    @property
    def any(self) -> bool:
        """True if there is anything to watch for."""
        return self != Checks()

    @property
    def interpreted(self) -> bool:
        """True if Python runs vertices, with every access checked."""
        return self.bounds or self.inputs

    @property
    def watched(self) -> bool:
        """True if memory is checked between steps."""
        return self.uninitialised or self.nan
