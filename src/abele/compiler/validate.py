"""Validation: every variable in use is placed, every field is wired once, no constant is written."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from abele.errors import ConstantWriteError, ControlProgramError, GraphConnectionError, TileMappingError
from abele.graph.debug import DebugRecord
from abele.graph.graph import Graph
from abele.graph.program import Execute, Program
from abele.graph.variable import Variable
from abele.graph.vertices import Edge, VertexGroup
from abele.words import counted


class Validator:
    """Checks of one compilation; each variable is checked once."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._placed: set[int] = set()

    def check_placed(self, variables: Iterable[int], user: str) -> None:
        """Refuse variables (positions in the graph) of which an element has no tile of the system.

        Args:
            variables: Positions in the graph.
            user: Step that needs them, for the error's text.

        Raises:
            TileMappingError: One is mapped nowhere, partly, or to a tile that the system lacks.
        """
        for number in variables:
            if number not in self._placed:
                _check_mapping(self._graph.variables[number], self._graph, user)
                self._placed.add(number)

    def check_not_constant(self, variables: Iterable[int], user: str, debug: DebugRecord) -> None:
        """None of the written ``variables`` is constant.

        Raises:
            ConstantWriteError: One is.
        """
        for number in variables:
            variable = self._graph.variables[number]
            if variable.is_constant:
                raise ConstantWriteError(
                    f"{user} writes to constant {variable.name!r}",
                    at=debug.location or None,
                    because=_made(variable),
                    remedy="copy the constant to a variable and write that",
                )


def _check_mapping(variable: Variable, graph: Graph, user: str) -> None:
    mapping, what = variable.mapping, f"{variable.kind} {variable.name!r}"
    hole = mapping.first_unmapped()
    if hole is not None:
        missing = int(mapping.length[mapping.tile < 0].sum())
        nothing = missing == variable.size
        shape = f"{variable.dtype}{list(variable.shape)}"
        raise TileMappingError(
            f"{what} ({shape}, {counted(variable.size, 'element')}) is mapped to no tile"
            if nothing
            else f"{missing:,} of {counted(variable.size, 'element')} of {what} ({shape}) are mapped to no tile, "
            f"the first of them [{hole[0]}:{hole[1]})",
            at=variable.debug.location or None,
            because=f"{user} uses it",
            remedy="place it with .map(tile), .map_linear() or .map_rows(tiles)",
        )
    if len(mapping.tile) and int(mapping.tile.max()) >= graph.num_tiles:
        raise TileMappingError(
            f"{what} is mapped to tile {int(mapping.tile.max())}, "
            f"but {graph.system.name} has {counted(graph.num_tiles, 'tile')}",
            at=variable.debug.location or None,
            because=f"{user} uses it",
            remedy=f"use tiles 0 to {graph.num_tiles - 1}, or a larger system",
        )


def _made(variable: Variable) -> str | None:
    return f"the constant was made at {variable.debug.location}" if variable.debug.file else None


def check_group(group: VertexGroup, graph: Graph, where: str) -> None:
    """The arrays of a vertex group fit its codelet, the system and the graph.

    Raises:
        ControlProgramError: A field is wired to a variable of another graph.
        GraphConnectionError: A field is missing or unknown, or its rows do not fit.
        TileMappingError: A vertex is on a tile that the system lacks.
    """
    num_tiles = graph.num_tiles
    fields = {f.name for f in group.codelet.fields}
    given = [*group.edges, *group.state]
    wrong = fields.symmetric_difference(given) or {n for n in given if given.count(n) > 1}
    if wrong:
        name = sorted(wrong)[0]
        how = "is not connected" if name not in given else "does not exist" if name not in fields else "is wired twice"
        raise GraphConnectionError(
            f"field {group.codelet.name}.{name} {how} in {where}", at=group.debug.location or None
        )
    if group.num and (int(group.tile.min()) < 0 or int(group.tile.max()) >= num_tiles):
        outside = (group.tile < 0) | (group.tile >= num_tiles)
        raise TileMappingError(
            f"vertex {int(outside.argmax())} of {group!r} in {where} is on tile {int(group.tile[outside][0])}, "
            f"but the system has {counted(num_tiles, 'tile')}",
            at=group.debug.location or None,
        )
    for name, edge in group.edges.items():
        if edge.regions.tensor.graph is not graph:
            raise _foreign(f"{where} is wired to {edge.regions.tensor!r}, which", group.debug)
        _check_edge(edge, name, group, where)


def _check_edge(edge: Edge, name: str, group: VertexGroup, where: str) -> None:
    rows = len(edge.index)
    if edge.row_begin is None:
        fits = rows == group.num
    else:
        begin = edge.row_begin
        fits = len(begin) == group.num + 1 and int(begin[0]) == 0 and int(begin[-1]) == rows
        fits = fits and bool((np.diff(begin) >= 0).all())
    if fits and rows:
        fits = int(edge.index.min()) >= 0 and int(edge.index.max()) < edge.regions.num
    if not fits:
        raise GraphConnectionError(
            f"field {group.codelet.name}.{name} in {where} does not fit {counted(group.num, 'vertex')}: "
            f"{counted(rows, 'row')} of {edge.regions.num} regions",
            at=group.debug.location or None,
            remedy="give one region per vertex; a rank-2 field also takes row_begin[N + 1]",
        )


def check_same_graph(node: Program, graph: Graph) -> None:
    """A step works on views and compute sets of the graph that is compiled.

    Raises:
        ControlProgramError: It uses something of another graph.
    """
    if isinstance(node, Execute):
        if node.compute_set.graph.top_level is not graph:
            raise _foreign(f"compute set {node.compute_set.name!r}", node.compute_set.debug)
        return
    for tensor in node.touches():
        if tensor.graph is not graph:
            raise _foreign(f"{type(node).__name__} uses {tensor!r}, which", node.debug)


def _foreign(what: str, debug: DebugRecord) -> ControlProgramError:
    return ControlProgramError(
        f"{what} belongs to another graph than the one that is compiled",
        at=debug.location or None,
        remedy="build variables, compute sets and program with one Graph",
    )


def check_programs(count: int) -> None:
    """There is something to run.

    Raises:
        ControlProgramError: There is no program.
    """
    if count == 0:
        raise ControlProgramError("there is no program to compile", remedy="give a Program, or a list of them")
