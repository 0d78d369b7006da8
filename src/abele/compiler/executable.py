"""Executable: a compiled program, its plan and its account."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from abele.compiler.account import build_report
from abele.compiler.account_groups import schedules
from abele.compiler.cost import VertexCosts, vertex_costs
from abele.compiler.cycles import compute_cycles
from abele.compiler.fingerprint import Fingerprint
from abele.compiler.layout import Layout
from abele.compiler.lower import Lowered, Step
from abele.compiler.memory import MemoryPlan
from abele.compiler.superstep import Superstep
from abele.compiler.sync_groups import SyncGroups
from abele.compiler.text.listing import listing_text
from abele.compiler.text.memory import memory_text
from abele.compiler.text.plan import plan_text
from abele.compiler.timeline import parts_of
from abele.errors import EngineError
from abele.graph.graph import Graph
from abele.graph.intervals import Int64
from abele.graph.program import Execute, Program
from abele.machine import System
from abele.report import Report
from abele.words import counted


@dataclass(eq=False, repr=False)
class Executable:
    """A program compiled for a system.

    Attributes:
        graph: The graph that it was compiled from.
        programs: The control programs, in order.
        program_names: Their names.
        lowered: Their steps in the order in which they run.
        plan: What the steps do, analysed once for each distinct one; ``step.superstep`` is the position here.
        memory: What fills the tiles.
        compile_seconds: Time that each stage of compiling took.
        meta: Further entries for the report.
    """

    graph: Graph
    programs: tuple[Program, ...]
    program_names: tuple[str, ...]
    lowered: Lowered
    plan: list[Superstep]
    memory: MemoryPlan
    compile_seconds: dict[str, float]
    meta: dict[str, Any] = field(default_factory=dict)
    _fingerprint: Fingerprint | None = None
    _executions: Int64 | None = None
    _counted: frozenset[int] = frozenset()
    _report: Report | None = None

    def save(self, path: str | Path, *, full_paths: bool = False) -> None:
        """Write the executable to a file, from which :meth:`load` makes it anew in any process, without the source.

        Args:
            path: The file.
            full_paths: Keep the full paths of source files; otherwise only what follows the folder of their project.

        Raises:
            FileFormatError: The file cannot be written, or a codelet is C++, of which no data is known.
        """
        from abele.compiler.store import save_executable

        save_executable(self, path, full_paths=full_paths)

    @staticmethod
    def load(path: str | Path, *, trusted: bool = False) -> Executable:
        """The executable in a file; see :func:`abele.compiler.store.load_executable`.

        Args:
            path: The file.
            trusted: Run its codelets without checking every access; only for files of your own.

        Raises:
            FileFormatError: The file is missing, damaged, cut short, written by a newer version, or no executable.
        """
        from abele.compiler.store import load_executable

        return load_executable(path, trusted=trusted)

    serialize = save
    """Poplar's name for :meth:`save`."""
    deserialize = load
    """Poplar's name for :meth:`load`."""

    @property
    def system(self) -> System:
        """The machine that it was compiled for."""
        return self.graph.system

    @property
    def program(self) -> Program:
        """The first control program."""
        return self.programs[0]

    @property
    def steps(self) -> list[Step]:
        """All steps in program order."""
        return self.lowered.steps

    @property
    def report(self) -> Report:
        """What the program costs on the machine, with all that runs have told so far."""
        if self._report is None:
            meta = {
                "programs": list(self.program_names),
                "compile_seconds": round(sum(self.compile_seconds.values()), 6),
                **self.meta,
            }
            assumed = np.array([self.is_assumed(s) for s in self.steps], dtype=bool)
            self._report = build_report(
                self.graph, self.lowered, self.plan, self.memory, self.executions, assumed, meta
            )
        return self._report

    @property
    def executions(self) -> Int64:
        """Times that each step runs in one run of its program, int64[steps]."""
        if self._executions is None:
            return np.array([s.executions for s in self.steps], dtype=np.int64)
        return self._executions

    def is_assumed(self, step: Step) -> bool:
        """Whether nobody knows yet how often a step runs: data decides, and no run has told."""
        return step.is_assumed and step.program not in self._counted

    @cached_property
    def layout(self) -> Layout:
        """Where the elements of the graph's variables live."""
        graph = self.graph
        return Layout.of(graph.interval_map(), graph.variables, graph.num_tiles)

    def listing(self, *, reasons: bool = True, most: int = 2000) -> str:
        """The lowered program as text: steps with their cycles, and what each moves and why."""
        return listing_text(self, reasons=reasons, most=most)

    def plan_text(self, step: Step | int, *, most: int = 60) -> str:
        """What one step moves between and on tiles, as text."""
        return plan_text(self, step, most=most)

    def memory_text(self, tile: int, *, most: int = 80) -> str:
        """What fills one tile, as text."""
        return memory_text(self, tile, most=most)

    def start_cycles(self) -> tuple[Int64, int]:
        """When each step first starts in a run of its program, int64[steps], and when the first program ends.

        A step that does not run starts at −1, and so does one that takes no part in the timeline.
        Model: max-plus over sync groups; see ``schedule``.
        """
        parts = [parts_of(self.plan[s.superstep], self.system) for s in self.steps]
        first_row = np.cumsum([0, *map(len, parts)])
        rows = [p for step in parts for p in step]
        groups = len(SyncGroups.of(self.graph))
        found = schedules(self.lowered, rows, first_row, self.executions, groups)
        starts = np.full(len(rows) + 1, -1, dtype=np.int64)
        for each in found:
            starts[:-1] = np.maximum(starts[:-1], each.starts)
        return np.where(np.diff(first_row) > 0, starts[first_row[:-1]], -1), found[0].end

    @property
    def estimated(self) -> list[Superstep]:
        """Supersteps whose compute cycles depend on data and are assumed until :meth:`record_counts`."""
        return [s for s in self.plan if s.estimated]

    def steps_of(self, node: Program) -> list[Step]:
        """The steps that a program node became: one, or one per call of the function that holds it.

        A node that is only structure, such as a Sequence, became none itself; a CycleCount two, around its body.
        """
        return list(self._steps_by_node.get(id(node), ()))

    @cached_property
    def _steps_by_node(self) -> dict[int, list[Step]]:
        found: dict[int, list[Step]] = {}
        for step in self.steps:
            found.setdefault(id(step.node), []).append(step)
        return found

    def check_unchanged(self) -> None:
        """The graph and the programs are still what was compiled; counts alone are compared, so that it costs little.

        Raises:
            EngineError: A compute set or a program has grown, or a variable was mapped anew.
        """
        if self._fingerprint is not None:
            self._fingerprint.check(self.graph, self.programs, self.program_names)

    def record_counts(self, superstep: int, slots: Mapping[int, npt.ArrayLike]) -> None:
        """Replace assumed vertex costs by counted ones.

        Args:
            superstep: Number of the superstep in ``plan``.
            slots: Issue slots (tile cycles for multi-worker kinds) of one execution of each vertex, number[N], by
                position of the vertex group in its compute set.
        """
        node = self.plan[superstep].node
        assert isinstance(node, Execute)
        groups = node.compute_set.groups
        costs = [
            VertexCosts(np.ceil(np.asarray(slots[i])).astype(np.int64), False)
            if i in slots
            else vertex_costs(g, self.system.ipu)
            for i, g in enumerate(groups)
        ]
        self.plan[superstep].compute = compute_cycles(groups, self.system.ipu, self.system.num_tiles, costs)
        self._report = None

    def record_executions(self, executions: Sequence[int] | Int64, *, programs: Collection[int] | None = None) -> None:
        """Replace assumed trips and branches by those of a run.

        Args:
            executions: Times that each step ran in one run of its program, by ``step.index``, int64[steps].
            programs: Programs that ran; the steps of others count as assumed still. All, when left out.

        Raises:
            EngineError: There is not one number for each step.
        """
        counts = np.asarray(executions, dtype=np.int64)
        if counts.shape != (len(self.steps),):
            raise EngineError(f"executions of {counted(counts.size, 'step')} for an executable of {len(self.steps)}")
        ran = range(len(self.programs)) if programs is None else programs
        self._executions = counts
        self._counted = self._counted | frozenset(ran)
        self._report = None

    def __repr__(self) -> str:
        from abele.compiler.text.shown import executable_line

        return executable_line(self)

    def _repr_html_(self) -> str:
        from abele.compiler.text.shown import executable_card

        return executable_card(self)
