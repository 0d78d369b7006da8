"""Result of compiling: target, graph, tiles, programs, variables, liveness."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np

from abele.arrays import Int64
from abele.pva.missing import missing
from abele.pva.program_nodes import ProgramNodes
from abele.pva.programs import Program, Programs
from abele.pva.sequences import LazySequence
from abele.pva.tiles import Ipu, Tiles, ipus_of
from abele.pva.variables import Variables

# Liveness: the variables live at each step.


class NotAlwaysLiveMemory:
    """Memory that is live at a step and not through the whole program."""

    __slots__ = ("_nodes", "_row")

    def __init__(self, nodes: ProgramNodes, row: int) -> None:
        self._nodes = nodes
        self._row = row

    @property
    def bytes(self) -> int:
        """Bytes over all tiles: variables, and data in motion."""
        return int(self._nodes.report.liveness["live_bytes"][self._row])

    @property
    def maxTileBytes(self) -> int:
        """Bytes live on the tile that has most."""
        return int(self._nodes.report.liveness["max_tile_bytes"][self._row])

    @property
    def variables(self) -> Variables:
        """The variables that are live; data in motion is not among them."""
        from abele.report.tiles import live_variables

        report = self._nodes.report
        return Variables(report, live_variables(report, int(report.liveness["step"][self._row])))


class LivenessProgramStep:
    """A step of the program from which on other variables are live."""

    __slots__ = ("_nodes", "row")

    def __init__(self, nodes: ProgramNodes, row: int) -> None:
        self._nodes = nodes
        self.row = row

    @property
    def program(self) -> Program:
        """The first step of which this holds; it holds up to the step of the next row."""
        return Program(self._nodes, int(self._nodes.of_step[self._step]))

    @property
    def notAlwaysLiveMemory(self) -> NotAlwaysLiveMemory:
        """Memory live here besides the memory that is always live."""
        return NotAlwaysLiveMemory(self._nodes, self.row)

    @property
    def bytesByTile(self) -> Int64:
        """All that each tile holds here, always-live memory included, int64[tiles]."""
        return self._nodes.report.memory_at(self._step)

    @property
    def _step(self) -> int:
        return int(self._nodes.report.liveness["step"][self.row])

    def __repr__(self) -> str:
        return f"LivenessProgramStep({self.program.name!r}, {self.notAlwaysLiveMemory.bytes:,} B)"


class LivenessProgramSteps(LazySequence[LivenessProgramStep]):
    """Steps of a program at which live memory changes, in order.

    Args:
        nodes: The program tree.
    """

    def __init__(self, nodes: ProgramNodes) -> None:
        super().__init__(len(nodes.report.liveness), lambda row: LivenessProgramStep(nodes, row), "liveness step")
        self._nodes = nodes

    @property
    def bytes(self) -> Int64:
        """Bytes at each that are not always live, over all tiles, int64[n]."""
        return np.asarray(self._nodes.report.liveness["live_bytes"][self.rows], dtype=np.int64)

    @property
    def maxTileBytes(self) -> Int64:
        """Bytes live on the tile that has most, int64[n]."""
        return np.asarray(self._nodes.report.liveness["max_tile_bytes"][self.rows], dtype=np.int64)

    @property
    def steps(self) -> Int64:
        """Row of the steps table of each, int64[n]."""
        return np.asarray(self._nodes.report.liveness["step"][self.rows], dtype=np.int64)


class Target:
    """The machine that a report is of. Numbers are those of one replica, as all of a report's."""

    def __init__(self, figures: dict[str, Any], num_tiles: int) -> None:
        self._figures = figures
        self.numTiles = num_tiles
        self.numIPUs = int(figures["num_ipus"])
        self.clockFrequency = float(figures["clock_hz"])
        self.architecture = str(figures["ipu"])

    @property
    def type(self) -> str:
        """``Abele``: cycles are modelled, and the program runs on the host."""
        return "Abele"

    @property
    def name(self) -> str:
        """The system, as in ``bow-2000:1``."""
        return str(self._figures["name"])

    @property
    def numReplicas(self) -> int:
        """Number of these replicas that run side by side."""
        return int(self._figures.get("num_replicas", 1))

    @property
    def numTilesPerIPU(self) -> int:
        """Tiles of one IPU."""
        return self.numTiles // max(self.numIPUs, 1)

    @property
    def bytesPerTile(self) -> int:
        """Memory of a tile.

        Raises:
            MissingDatumError: The report does not say.
        """
        return int(self._figure("tile_bytes"))

    @property
    def bytesPerIPU(self) -> int:
        """Memory of an IPU."""
        return self.bytesPerTile * self.numTilesPerIPU

    @property
    def totalMemory(self) -> int:
        """Memory of all tiles of a replica."""
        return self.bytesPerTile * self.numTiles

    def _figure(self, name: str) -> Any:
        if name not in self._figures:
            raise missing(f"{name} of the target here")
        return self._figures[name]

    def __repr__(self) -> str:
        return f"Target({self.name!r}, {self.numTiles:,} tiles)"


class Graph:
    """Counts of the graph's objects."""

    def __init__(self, counts: dict[str, int]) -> None:
        self._counts = counts

    @property
    def numComputeSets(self) -> int:
        """Compute sets."""
        return self._count("num_compute_sets")

    @property
    def numEdges(self) -> int:
        """Connections of fields with intervals of variables."""
        return self._count("num_edges")

    @property
    def numVars(self) -> int:
        """Variables."""
        return self._count("num_variables")

    @property
    def numVertices(self) -> int:
        """Vertices."""
        return self._count("num_vertices")

    def _count(self, name: str) -> int:
        if name not in self._counts:
            raise missing(f"{name.removeprefix('num_').replace('_', ' ')} of this graph")
        return self._counts[name]


class Compilation:
    """Result of compiling a program.

    Args:
        nodes: The program tree of the report.
    """

    def __init__(self, nodes: ProgramNodes) -> None:
        self._nodes = nodes
        self._report = nodes.report

    @property
    def target(self) -> Target:
        """The machine."""
        return Target(self._report.target, self._report.memory.num_tiles)

    @property
    def graph(self) -> Graph:
        """Counts of variables, vertices, edges and compute sets."""
        return Graph(self._report.graph)

    @cached_property
    def tiles(self) -> Tiles:
        """The tiles and their memory."""
        return Tiles(self._report.memory, self._report.memory.num_tiles)

    @cached_property
    def ipus(self) -> LazySequence[Ipu]:
        """The IPUs with their tiles."""
        return ipus_of(self._report, self.tiles)

    @cached_property
    def programs(self) -> Programs:
        """All programs, each before those below it; functions behind the control programs."""
        return Programs(self._nodes, np.arange(len(self._nodes)))

    @cached_property
    def controlPrograms(self) -> Programs:
        """The control programs: the roots of the program tree."""
        return Programs(self._nodes, self._nodes.roots)

    @cached_property
    def functionPrograms(self) -> Programs:
        """The functions, each once; none in a report of a version that tells their steps where they are called."""
        return Programs(self._nodes, self._nodes.columns.functions)

    @cached_property
    def variables(self) -> Variables:
        """All variables."""
        return Variables(self._report, len(self._report.variables))

    @cached_property
    def alwaysLiveVariables(self) -> Variables:
        """The variables that live through the whole program."""
        return Variables(self._report, np.flatnonzero(self._report.variables["always_live"]))

    @cached_property
    def livenessProgramSteps(self) -> LivenessProgramSteps:
        """Steps at which live memory changes, and the memory live there."""
        return LivenessProgramSteps(self._nodes)

    @property
    def engineOptions(self) -> dict[str, Any]:
        """Options that the program was compiled with.

        Raises:
            MissingDatumError: The report does not say.
        """
        options = self._report.meta.get("options")
        if not isinstance(options, dict):
            raise missing("the options of this program")
        return dict(options)

    @property
    def timestamp(self) -> str:
        """Time at which the report was made, ISO 8601; empty when it does not say."""
        return str(self._report.meta.get("created", ""))
