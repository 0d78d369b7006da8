"""Report of a race: both vertices, both fields, the elements, and the remedy."""

from __future__ import annotations

from abele.compiler.race import Race, VertexAccess
from abele.errors import DataRaceError
from abele.graph.compute_set import ComputeSet
from abele.graph.variable import Variable


def race_error(race: Race, compute_set: ComputeSet) -> DataRaceError:
    """The error that describes ``race`` in ``compute_set``."""
    graph = compute_set.graph
    begin, end = max(race.writer.begin, race.other.begin), min(race.writer.end, race.other.end)
    variable, element = graph.locate(begin)
    end = min(end - begin + element, variable.size)
    use = race.writer.use
    if race.writer.vertex == race.other.vertex:
        return _twice(race, compute_set, variable, element, end)
    doing = "read" if race.other_reads else "written to"
    where = use.group.origin_of(race.writer.vertex - use.first_vertex).location
    return DataRaceError(
        f"Field {use.group.codelet.name}.{use.field.name} writes to elements [{element}:{end}) of variable "
        f"{variable.name!r} that are {doing} elsewhere in same compute set",
        at=f"{where + ' · ' if where else ''}compute set {compute_set.name!r}, {_box(variable, element, end)}",
        because=f"{_who(race.writer)} writes them\n{_who(race.other)} {'reads' if race.other_reads else 'writes'} them",
        remedy=_remedy(race),
    )


def _twice(race: Race, compute_set: ComputeSet, variable: Variable, element: int, end: int) -> DataRaceError:
    """A vertex two of whose fields write the same elements."""
    names = [access.use.field.name for access in (race.other, race.writer)]
    codelet = race.writer.use.group.codelet.name
    fields = f"fields {' and '.join(names)}" if names[0] != names[1] else f"two rows of field {names[0]}"
    return DataRaceError(
        f"{fields} of one {codelet} both write elements [{element}:{end}) of variable {variable.name!r}",
        at=f"compute set {compute_set.name!r}, {_box(variable, element, end)}",
        because=_who(race.writer).removesuffix(",") + ", has both",
        remedy="connect them to different elements, or use one InOut field",
    )


def _who(access: VertexAccess) -> str:
    group = access.use.group
    number = access.vertex - access.use.first_vertex
    origin = group.origin_of(number)
    made = f", made at {origin.location}" if origin.file else ""
    name, field = group.codelet.name, access.use.field.name
    return f"vertex {number} of {group.num} × {name} on tile {int(group.tile[number])}, field {field}{made},"


def _box(variable: Variable, begin: int, end: int) -> str:
    """The interval in the variable's own coordinates."""
    if not variable.shape:
        return f"scalar {variable.name!r}"
    first, last = (", ".join(map(str, variable.coordinates(e))) for e in (begin, end - 1))
    name = variable.name.rsplit("/", 1)[-1]
    return f"{name}[{first}]" if first == last else f"{name}[{first}] to {name}[{last}]"


def _remedy(race: Race) -> str:
    if race.other_reads:
        return "move the reading vertex to a later compute set, or let it read a copy made before"
    return "give each vertex elements of its own and combine them in a second compute set"
