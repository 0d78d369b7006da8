"""Codelets from files that are not trusted: their accesses outside fields."""

from __future__ import annotations

from collections.abc import Iterable

from abele.codelet import compile_codelet
from abele.codelet.compiled import GuardedCodelet
from abele.errors import ApplicationRuntimeError
from abele.runtime.supersteps.placed_groups import PlacedGroup
from abele.words import counted


def first_violation(placed: Iterable[PlacedGroup]) -> ApplicationRuntimeError | None:
    """The error of the first access outside a field in the last run, if there was one; it touched nothing."""
    for group in placed:
        code = compile_codelet(group.group.codelet)
        found = code.take_violation() if isinstance(code, GuardedCodelet) else None
        if found is not None:
            vertices = group.group
            number = found.vertex % vertices.num
            field = vertices.codelet.fields[found.field]
            name = vertices.codelet.name
            return ApplicationRuntimeError(
                f"vertex {name} reaches for {field.name}[{found.index}], which has {counted(found.size, 'element')}",
                at=f"vertex {number} of {vertices.num} × {name} on tile {int(vertices.tile[number])}\n"
                f"compute set {group.compute_set.name!r}, made at {vertices.origin_of(number).location}",
                because="its codelet comes from a file; accesses outside fields are left out, and the run is over",
                remedy="look at where the codelet was written; the file may be damaged or hostile",
            )
    return None
