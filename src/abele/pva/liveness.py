"""Liveness: the variables live at each step."""

from __future__ import annotations

import numpy as np

from abele.arrays import Int64
from abele.pva.program_nodes import ProgramNodes
from abele.pva.programs import Program
from abele.pva.sequences import LazySequence
from abele.pva.variables import Variables


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
