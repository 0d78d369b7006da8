"""Fingerprint: a cheap way to see that a graph or program has changed since it was compiled."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from abele.errors import EngineError
from abele.graph.graph import Graph
from abele.graph.mapping import TileMapping
from abele.graph.program import Execute, Program, walk


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """Counts of the graph and programs that an executable was compiled from.

    Attributes:
        vertices: Vertices of each compute set that the programs execute, by its number.
        num_steps: Nodes of each program.
        mappings: Mapping of each variable, compared by identity; variables may be added later.
    """

    vertices: dict[int, int]
    num_steps: tuple[int, ...]
    mappings: tuple[TileMapping, ...]

    @staticmethod
    def of(graph: Graph, programs: Sequence[Program]) -> Fingerprint:
        """The counts at this moment."""
        vertices: dict[int, int] = {}
        sizes = []
        for program in programs:
            nodes = list(walk(program))
            sizes.append(len(nodes))
            sets = {n.compute_set.id: n.compute_set for n in nodes if isinstance(n, Execute)}
            vertices.update({number: cs.num_vertices for number, cs in sets.items()})
        return Fingerprint(vertices, tuple(sizes), tuple(v.mapping for v in graph.variables))

    def check(self, graph: Graph, programs: Sequence[Program], names: Sequence[str]) -> None:
        """Nothing that was compiled has changed.

        Raises:
            EngineError: A compute set, a program or a tile mapping is not what it was.
        """
        now = Fingerprint.of(graph, programs)
        for name, was, is_ in zip(names, self.num_steps, now.num_steps, strict=True):
            if was != is_:
                raise _changed(f"program {name!r} had {was:,} steps, it has {is_:,} now")
        for number, was in self.vertices.items():
            if now.vertices.get(number) != was:
                compute_set = graph.compute_sets[number]
                raise _changed(
                    f"compute set {compute_set.name!r} had {was:,} vertices, it has {compute_set.num_vertices:,} now"
                )
        for variable, mapping in zip(graph.variables, self.mappings, strict=False):
            if variable.mapping is not mapping:
                raise _changed(f"variable {variable.name!r} was mapped anew")


def _changed(how: str) -> EngineError:
    return EngineError(
        f"the graph has changed since it was compiled: {how}",
        remedy="compile again, or finish the graph before the engine is made",
    )
