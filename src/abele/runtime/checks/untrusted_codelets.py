"""Codelets from files that are not trusted: their accesses outside fields."""

from __future__ import annotations

from collections.abc import Iterable

from abele.codelet import compile_codelet
from abele.codelet.compiled import GuardedCodelet
from abele.errors import ApplicationRuntimeError
from abele.runtime.supersteps.placed_groups import PlacedGroup
from abele.words import counted


class UntrustedVertices:
    """Vertices of codelets from files, whose accesses are checked as they happen.

    Args:
        placed: The vertices in memory.
    """

    def __init__(self, placed: Iterable[PlacedGroup]) -> None:
        compiled = ((group, compile_codelet(group.group.codelet)) for group in placed)
        self._guarded = [(group, code) for group, code in compiled if isinstance(code, GuardedCodelet)]

    def error(self) -> ApplicationRuntimeError | None:
        """The error of the first access outside a field in the last run, if there was one; it touched nothing."""
        for group, code in self._guarded:
            found = code.take_violation()
            if found is not None:
                vertices = group.group
                number = found.vertex % vertices.num
                field = vertices.codelet.fields[found.field]
                name = vertices.codelet.name
                return ApplicationRuntimeError(
                    f"vertex {name} reaches for {field.name}[{found.index}], "
                    f"which has {counted(found.size, 'element')}",
                    at=f"vertex {number} of {vertices.num} × {name} on tile {int(vertices.tile[number])}\n"
                    f"compute set {group.compute_set.name!r}, made at {vertices.origin_of(number).location}",
                    because="its codelet comes from a file; accesses outside fields are left out, and the run is over",
                    remedy="look at where the codelet was written; the file may be damaged or hostile",
                )
        return None
