"""Executable: a compiled program and its plan, which no run changes."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt

from abele.arrays import Int64
from abele.compiler.account import HANDLE_ROLES, Reporter, ReportSource
from abele.compiler.cost import VertexCosts, vertex_costs
from abele.compiler.cycles import ComputeCycles, compute_cycles
from abele.compiler.layout import Layout
from abele.compiler.lower import Lowered, Step
from abele.compiler.memory import MemoryPlan
from abele.compiler.run_account import RunAccount
from abele.compiler.scopes import Scopes
from abele.compiler.superstep import Superstep, make_read_only
from abele.compiler.text.listing import listing_text
from abele.compiler.text.memory import memory_text
from abele.compiler.text.plan import plan_text
from abele.errors import EngineError, InvalidOptionError
from abele.graph.graph import Graph
from abele.graph.mapping import TileMapping
from abele.graph.program import Execute, Program, walk
from abele.machine import System
from abele.report import Report, Table
from abele.words import counted

# Fingerprint: a cheap way to see that a graph or program has changed since it was compiled.


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


@dataclass(frozen=True, eq=False, repr=False)
class Executable:
    """A program compiled for a system. No run changes it, so engines and threads share it. Its figures of steps that
    depend on data are assumed. Counts of runs are in the account of each engine; :meth:`report_of` puts the two
    together.

    Attributes:
        graph: The graph that it was compiled from.
        programs: The control programs, in order.
        program_names: Their names.
        lowered: Their steps in the order in which they run.
        plan: Supersteps, analysed once for each distinct one; ``step.superstep`` is the position here.
        memory: Memory of the tiles.
        compile_seconds: Time that each stage of compiling took.
        meta: Further entries for the report; :meth:`with_meta` adds some.
    """

    graph: Graph
    programs: tuple[Program, ...]
    program_names: tuple[str, ...]
    lowered: Lowered
    plan: tuple[Superstep, ...]
    memory: MemoryPlan
    compile_seconds: Mapping[str, float]
    meta: Mapping[str, Any] = field(default_factory=dict)
    _fingerprint: Fingerprint | None = None

    def __post_init__(self) -> None:
        for name in ("compile_seconds", "meta"):
            object.__setattr__(self, name, MappingProxyType(dict(getattr(self, name))))
        make_read_only(self.memory)

    def with_meta(self, **entries: Any) -> Executable:
        """The executable with further entries for its reports."""
        return replace(self, meta={**self.meta, **entries})

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
    def steps(self) -> tuple[Step, ...]:
        """All steps in program order."""
        return self.lowered.steps

    @property
    def report(self) -> Report:
        """Report of the program's costs without a run: figures that depend on data are assumed.

        ``engine.report`` is of what an engine has run.
        """
        return self._assumed_report.with_meta()

    @cached_property
    def _assumed_report(self) -> Report:
        return self.report_of(self.assumptions).with_meta(figures_of=["assumptions"] * len(self.programs))

    def report_of(self, account: RunAccount) -> Report:
        """Report of the program's costs as it ran.

        Args:
            account: Counts and costs of its runs: ``engine.account``, :meth:`account_of` numbers, or
                :attr:`assumptions`.
        """
        meta = {
            "programs": list(self.program_names),
            "compile_seconds": round(sum(self.compile_seconds.values()), 6),
            **self.meta,
        }
        return self._reporter.report(account, meta)

    @cached_property
    def _reporter(self) -> Reporter:
        source = ReportSource(
            programs=self.programs,
            names=self.program_names,
            handle_roles=_words(self.meta.get(HANDLE_ROLES)),
            is_unchanged=self._is_unchanged,
        )
        return Reporter(self.graph, self.lowered, self.plan, self.memory, source)

    def _is_unchanged(self) -> bool:
        """True if the graph and the programs are unchanged since they were compiled."""
        try:
            self.check_unchanged()
        except EngineError:
            return False
        return True

    @cached_property
    def assumptions(self) -> RunAccount:
        """Assumed account where data decides: loops make one trip, branches go their first way."""
        return RunAccount.of_assumptions(self.steps)

    @property
    def executions(self) -> Int64:
        """Times that each step is assumed to run in one run of its program, int64[steps]."""
        return self.assumptions.executions

    @cached_property
    def layout(self) -> Layout:
        """Tile and address of every element of the graph's variables."""
        graph = self.graph
        layout = Layout.of(graph.interval_map(), graph.variables, graph.num_tiles)
        make_read_only(layout)
        return layout

    def listing(self, *, reasons: bool = True, most: int = 2000, account: RunAccount | None = None) -> str:
        """Text of the lowered program: steps with their cycles, traffic and its reasons."""
        return listing_text(self, reasons=reasons, most=most, account=account)

    def plan_text(self, step: Step | int, *, most: int = 60) -> str:
        """Text of the traffic of one step between and on tiles."""
        return plan_text(self, step, most=most)

    def memory_text(self, tile: int, *, most: int = 80) -> str:
        """Text of the memory of one tile."""
        return memory_text(self, tile, most=most)

    def start_cycles(self, account: RunAccount | None = None) -> tuple[Int64, int]:
        """First start of each step in a run of its program, int64[steps], and the end of the first program.

        Args:
            account: Counts and costs of its runs; the assumptions when left out.

        A step that does not run starts at −1, and so does one that takes no part in the timeline.
        Model: max-plus over sync groups; see ``schedule``.
        """
        return self._reporter.start_cycles(account or self.assumptions)

    def exchange_pairs(self, row: int, *, block_tiles: int = 1) -> Table:
        """Bytes between sender and receiver tiles of an exchange, found by planning the step again.

        Args:
            row: Row in the steps table of the report.
            block_tiles: Tiles that are taken together; with 1, each for itself.

        Returns:
            Rows ``source_tile``, ``target_tile``, ``block_tiles`` and ``bytes`` per execution; the first tiles of
            blocks stand for them. Empty for rows that are no exchange of a compute set or a copy.

        Raises:
            InvalidOptionError: There is no such row, or a block has no tile.
            EngineError: The graph has changed since it was compiled.
        """
        self.check_unchanged()
        if block_tiles < 1:
            raise InvalidOptionError(f"blocks of {counted(block_tiles, 'tile')}", remedy="1 or more")
        rows = len(self.report.steps)
        if not 0 <= row < rows:
            raise InvalidOptionError(f"no step {row}", remedy=f"the report has rows 0 to {rows - 1}")
        return self._reporter.exchange_pairs(row, block_tiles)

    def cycles_of(self, program: int, account: RunAccount) -> int:
        """Modelled cycles of one run of a program, without the tables of a report."""
        return self._reporter.cycles(program, account)

    @property
    def estimated(self) -> list[Superstep]:
        """Supersteps whose compute cycles depend on data and are assumed until a run counts them."""
        return [s for s in self.plan if s.estimated]

    def scopes(self, program: int) -> Scopes:
        """The parts of a program whose steps run equally often."""
        if program not in self._scopes:
            self._scopes[program] = Scopes(self.lowered.programs[program])
        return self._scopes[program]

    @cached_property
    def _scopes(self) -> dict[int, Scopes]:
        return {}

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
        """Refuse a graph or programs that have changed since they were compiled; counts alone are compared, which is
        cheap.

        Raises:
            EngineError: A compute set or a program has grown, or a variable was mapped anew.
        """
        if self._fingerprint is not None:
            self._fingerprint.check(self.graph, self.programs, self.program_names)

    def counted_compute(self, superstep: int, slots: Mapping[int, npt.ArrayLike]) -> ComputeCycles:
        """The compute phase of a superstep with vertices as they were counted.

        Args:
            superstep: Number of the superstep in ``plan``.
            slots: Issue slots (tile cycles for multi-worker kinds) of one execution of each vertex, number[N], by
                position of the vertex group in its compute set. Groups left out cost what the compiler says.
        """
        node = self.plan[superstep].node if 0 <= superstep < len(self.plan) else None
        if not isinstance(node, Execute):
            raise EngineError(f"superstep {superstep} has no vertices that can be counted")
        groups = node.compute_set.groups
        costs = [
            VertexCosts(np.ceil(np.asarray(slots[i])).astype(np.int64), False)
            if i in slots
            else vertex_costs(g, self.system.ipu)
            for i, g in enumerate(groups)
        ]
        return compute_cycles(groups, self.system.ipu, self.system.num_tiles, costs)

    def account_of(
        self,
        executions: Sequence[int] | Int64 | None = None,
        *,
        programs: Collection[int] | None = None,
        slots: Mapping[int, Mapping[int, npt.ArrayLike]] | None = None,
    ) -> RunAccount:
        """Account from numbers, such as counts of a run or expected ones.

        Args:
            executions: Times that each step runs in one run of its program, by ``step.index``, int64[steps]; as assumed
                when left out.
            programs: The programs that all this is of; others are as assumed. All, when left out.
            slots: Issue slots of vertices, as :meth:`counted_compute` takes them, by number of the superstep.

        Raises:
            EngineError: There is not one number, 0 or more, for each step, or no such superstep.
        """
        account = self.assumptions
        if executions is not None:
            account = account.with_executions(executions, self.steps, programs=programs)
        ran = range(len(self.programs)) if programs is None else programs
        found = {n: self.counted_compute(n, counts) for n, counts in (slots or {}).items()}
        return account.with_compute({(program, n): found[n] for program in ran for n in found})

    def __repr__(self) -> str:
        from abele.compiler.text.display import executable_line

        return executable_line(self)

    def _repr_html_(self) -> str:
        from abele.compiler.text.display import executable_card

        return executable_card(self)


def _words(entry: object) -> dict[str, str]:
    """An entry of ``meta`` that may come from a file, as words by words."""
    return {str(key): str(value) for key, value in entry.items()} if isinstance(entry, Mapping) else {}
