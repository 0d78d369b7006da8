"""Account: reports from the analysed program and the counts of its runs."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

import numpy as np

from abele.arrays import Int64
from abele.compiler.account_code import CodeTables, code_tables
from abele.compiler.account_exchange import PhaseOf, exchange_blocks, ipu_tables, planned_blocks
from abele.compiler.account_groups import compute_by_tile, group_tables, schedule_of
from abele.compiler.account_sparse import sparse_tables
from abele.compiler.account_steps import RunTables, basis_of, is_estimated, run_tables, steps_table
from abele.compiler.account_supersteps import superstep_tables, superstep_variables
from abele.compiler.account_tiles import (
    addresses,
    buffer_tiles,
    first_writers,
    lifetimes,
    memory_of,
    phase_tiles,
    program_tiles,
    sent_tiles,
    variable_tiles,
    variables_table,
)
from abele.compiler.account_tree import tree_tables
from abele.compiler.critical import critical_cycles
from abele.compiler.exchange_blocks import TileBlocks
from abele.compiler.footprint import code_bytes_of
from abele.compiler.lower import Lowered, Step
from abele.compiler.memory import MemoryPlan
from abele.compiler.run_account import RunAccount
from abele.compiler.schedule import ProgramSchedule, unroll
from abele.compiler.superstep import Superstep
from abele.compiler.sync_groups import SyncGroups
from abele.compiler.timeline import Part, parts_of
from abele.compiler.whole_run import whole_run
from abele.graph.graph import Graph
from abele.graph.program import Copy, Execute, LibraryCall, Program
from abele.graph.remote import RemoteBuffer
from abele.graph.stream import Stream
from abele.machine import described
from abele.report import (
    ADDRESSES,
    BUFFER_TILES,
    CODE_COLUMNS,
    CODE_TILES,
    CODE_USES,
    CODELETS,
    CRITICAL,
    EXCHANGE_BLOCKS,
    FUNCTION_CALLS,
    LIFETIMES,
    LIVENESS,
    OPS,
    PHASE_IPUS,
    PHASE_LINKS,
    PHASE_TILES,
    PROGRAM_TILES,
    PROGRAM_TREE,
    RUN_LOOPS,
    RUN_SPANS,
    SENT_TILES,
    SUPERSTEP_VARIABLES,
    SUPERSTEPS,
    VARIABLE_TILES,
    VERTICES,
    Report,
    Schema,
    Table,
    sum_by_op,
)
from abele.report.table import DeferredColumns
from abele.report.text_column import Column

if TYPE_CHECKING:
    from abele.codelet import CodeletDef


# Account of operations: library calls, and steps outside of any, with their costs.


def ops_of(lowered: Lowered) -> tuple[list[Program], Int64]:
    """The distinct operations (library calls, or steps outside of any), and that of each step."""
    ops: dict[int, int] = {}
    nodes: list[Program] = []
    op_of = np.empty(len(lowered.steps), dtype=np.int64)
    for step in lowered.steps:
        node = lowered.calls[step.call] if step.call >= 0 else step.node
        if id(node) not in ops:
            ops[id(node)] = len(nodes)
            nodes.append(node)
        op_of[step.index] = ops[id(node)]
    return nodes, op_of


def ops_table(
    ops: Sequence[Program],
    lowered: Lowered,
    supersteps: Sequence[Superstep],
    op_of: Int64,
    executions: Int64,
    steps: Table,
    code: Callable[[], CodeTables],
) -> Table:
    """The table of operations.

    Args:
        ops: The operations; see :func:`ops_of`.
        lowered: The steps.
        supersteps: Supersteps of these.
        op_of: The operation of each step, int64[steps].
        executions: Times that each step runs in one run of its program, int64[steps].
        steps: The table of steps.
        code: Gives the state and code of the operations, which is worked out when somebody looks at it.
    """
    runs = _op_executions(lowered, op_of, executions, len(ops))
    codelets: list[set[Any]] = [set() for _ in ops]
    for step in lowered.steps:
        codelets[op_of[step.index]].update(supersteps[step.superstep].codelets)
    debug = [_debug(node) for node in ops]
    of_node = {id(step.node): supersteps[step.superstep] for step in lowered.steps}
    known = OPS.table(
        name=[_name(node) for node in ops],
        kind=[_kind(node) for node in ops],
        path=[d.text or d.path for d in debug],
        file=[d.file for d in debug],
        line=[d.line for d in debug],
        executions=runs,
        flops=runs * np.array([_flops(node, of_node) for node in ops], dtype=np.int64),
        code_bytes=[sum(code_bytes_of(c) for c in used) for used in codelets],
        arithmetic=[_arithmetic(used) for used in codelets],
        **sum_by_op(steps, len(ops)),
    ).columns

    def column(name: str) -> Column:
        return code().of_ops[name] if name in CODE_COLUMNS else known[name]

    return Table(DeferredColumns(tuple(OPS.columns), lambda: len(ops), column))


def _op_executions(lowered: Lowered, op_of: Int64, executions: Int64, num_ops: int) -> Int64:
    """Executions of each operation: those of the first step of each of its call sites."""
    runs = np.zeros(num_ops, dtype=np.int64)
    seen: set[tuple[int, int]] = set()
    for step in lowered.steps:
        # The steps of one call site run equally often; the first stands for all.
        site = (int(op_of[step.index]), step.call if step.call >= 0 else -1 - step.index)
        if site not in seen:
            seen.add(site)
            runs[site[0]] += executions[step.index]
    return runs


def _flops(node: Program, superstep_of: Mapping[int, Superstep]) -> int:
    """Operations of a library call, or those by the estimators of a compute set."""
    if isinstance(node, LibraryCall):
        return node.flops
    compute = superstep_of[id(node)].compute
    return compute.flops if compute is not None else 0


_PRODUCTS = ("ConvPartial",)
"""Prefixes of codelets whose vertices multiply on the matrix unit."""


def _arithmetic(codelets: Iterable[CodeletDef]) -> str:
    """Element type of an operation's arithmetic, by the vertices that it runs; see ``abele.report.schema.ARITHMETIC``.

    The vertices of products decide where there are some. Otherwise it is f32 if a vertex has a field of it: f16 that is
    summed in f32 is summed by instructions of f32.
    """
    products: dict[bool, set[str]] = {True: set(), False: set()}
    vectors: set[str] = set()
    for codelet in codelets:
        floats = [f for f in codelet.fields if f.type.is_float]
        if codelet.name.startswith(_PRODUCTS):
            for f in floats:
                products[f.is_edge and not f.writable].add(f.type.name)
        else:
            vectors.update(f.type.name for f in floats)
    if inputs := products[True]:
        given = "f32" if "f32" in inputs else "f16" if inputs & {"f16", "bf16"} else "f8"
        return "f16 to f32" if given == "f16" and "f32" in products[False] else given
    return "vectors of f32" if "f32" in vectors else "vectors of f16" if vectors else ""


def _debug(node: Program) -> Any:
    return node.compute_set.debug if isinstance(node, Execute) else node.debug


def _name(node: Program) -> str:
    """Name of an operation; a copy from or to the host is called after its stream."""
    ends = (node.source, node.destination) if isinstance(node, Copy) else ()
    for end in ends:
        if isinstance(end, Stream | RemoteBuffer):
            return f"{'stream' if isinstance(end, Stream) else 'remote buffer'} {end.name}"
    return str(_debug(node).name)


def _kind(node: Program) -> str:
    if isinstance(node, LibraryCall):
        return node.name
    return "compute set" if isinstance(node, Execute) else type(node).__name__.lower()


HANDLE_ROLES = "handle_roles"
"""Entry of an executable's ``meta`` with the roles of host handles."""


@dataclass(frozen=True, eq=False)
class ReportSource:
    """Programs as their user made them, from which tables are made.

    Attributes:
        programs: The control programs.
        names: Their names.
        handle_roles: Roles of host handles, by the part of their names before the first ``/``, digits left out.
        is_unchanged: Tells whether graph and programs are what was compiled.
    """

    programs: Sequence[Program]
    names: Sequence[str]
    handle_roles: Mapping[str, str]
    is_unchanged: Callable[[], bool]


class Reporter:
    """Makes the reports of one executable: parts that no run changes are made once, on first use.

    Args:
        graph: Its graph.
        lowered: Its steps.
        plan: Supersteps of these, with assumed costs where they depend on data.
        memory: Memory of the tiles.
        source: The programs as their user made them.
    """

    def __init__(
        self, graph: Graph, lowered: Lowered, plan: Sequence[Superstep], memory: MemoryPlan, source: ReportSource
    ) -> None:
        self.graph, self.lowered, self.plan, self.memory, self.source = graph, lowered, plan, memory, source
        self._assumed = np.array([s.executions for s in lowered.steps], dtype=np.int64)
        self._program = np.array([s.program for s in lowered.steps], dtype=np.int64)

    def report(self, account: RunAccount, meta: Mapping[str, Any]) -> Report:
        """The report of the program as it ran.

        Args:
            account: Counts and costs of its runs.
            meta: Further entries of the report's ``meta``.
        """
        graph, lowered, executions = self.graph, self.lowered, account.executions
        programs, rows = range(len(lowered.programs)), self._rows(account)
        schedules = [self._schedule(n, account, [p for _, p in rows]) for n in programs]
        compute = [
            compute_by_tile(n, lowered, account.supersteps(n, self.plan), executions, graph.num_tiles) for n in programs
        ]
        groups = group_tables(rows, executions, self._groups, schedules, compute)
        ops, op_of = self._ops
        basis = [basis_of(r, self.plan, account) for r in rows]
        phases, phase_of = _phases(rows)
        steps = steps_table(rows, op_of, executions, groups=groups, basis=basis, phases=phases, phase_of=phase_of)
        variables, liveness = self._memory_tables
        return Report(
            target=_target(graph),
            graph=_counts(graph, lowered, self.plan, account),
            steps=steps,
            ops=ops_table(ops, lowered, self.plan, op_of, executions, steps, code=lambda: self._code),
            memory=memory_of(self.memory, graph.num_tiles),
            variables=variables,
            liveness=liveness,
            **self._tile_tables(rows, phases, phase_of, executions),
            **self._program_tables,
            groups=groups.groups,
            spans=groups.spans,
            critical=CRITICAL.deferred(lambda: self._critical([p for _, p in rows], account)),
            step_groups=groups.step_groups,
            **self._exchange_tables(rows, phases, phase_of, executions),
            **self._run_tables([p for _, p in rows], account, groups.row_of, [s.free for s in schedules]),
            **sparse_tables(graph.sparse_operands.values()),
            meta={
                "abele_version": version("abele"),
                "created": _now(),
                "energy": described(graph.system.ipu.energy),
                **meta,
            },
        )

    def _tile_tables(
        self, rows: Sequence[tuple[Step, Part]], phases: Sequence[Part], phase_of: Int64, executions: Int64
    ) -> dict[str, Table]:
        """Relations with tiles, each made on first use."""
        num_tiles, memory = self.graph.num_tiles, self.memory
        done_on = PHASE_TILES.deferred(lambda: phase_tiles(phases, num_tiles))

        def by_program() -> Table:
            times = executions[np.array([s.index for s, _ in rows], dtype=np.int64)]
            program = np.array([s.program for s, _ in rows], dtype=np.int64)
            runs = [
                np.bincount(phase_of, weights=times * (program == n), minlength=len(phases)).astype(np.int64)
                for n in range(len(self.lowered.programs))
            ]
            return program_tiles(done_on, runs, num_tiles)

        return {
            "phase_tiles": done_on,
            "program_tiles": PROGRAM_TILES.deferred(by_program),
            "buffer_tiles": BUFFER_TILES.deferred(lambda: buffer_tiles(self.plan, num_tiles)),
            "variable_tiles": VARIABLE_TILES.deferred(lambda: variable_tiles(memory, num_tiles)),
            "addresses": ADDRESSES.deferred(lambda: addresses(memory)),
            "lifetimes": LIFETIMES.deferred(lambda: lifetimes(memory, self._first_row, self._vertex_row)),
            "sent_tiles": SENT_TILES.deferred(lambda: sent_tiles(memory, self._first_row, self._vertex_row, num_tiles)),
            "code_uses": CODE_USES.deferred(lambda: self._code.code_uses),
            "code_tiles": CODE_TILES.deferred(lambda: self._code.code_tiles),
        }

    def _exchange_tables(
        self, rows: Sequence[tuple[Step, Part]], phases: Sequence[Part], phase_of: Int64, executions: Int64
    ) -> dict[str, Table]:
        """Tables of traffic between IPUs, over links and between tiles, made on first use."""
        graph, plan, source = self.graph, self.plan, self.source

        def places() -> list[PhaseOf]:
            first = np.unique(phase_of, return_index=True)[1].tolist()
            return [PhaseOf(rows[row][0].superstep, part) for row, part in zip(first, phases, strict=True)]

        @cache
        def between_ipus() -> tuple[Table, Table]:
            return ipu_tables(places(), plan, graph.system, graph.whole_system)

        def blocks() -> Table:
            if not source.is_unchanged():
                return EXCHANGE_BLOCKS.empty()
            times = executions[np.array([s.index for s, _ in rows], dtype=np.int64)]
            each = np.array([p.exchange for p in phases], dtype=np.int64)
            cycles = each * np.bincount(phase_of, weights=times, minlength=len(phases)).astype(np.int64)
            return exchange_blocks(places(), cycles, plan, graph)

        return {
            "phase_ipus": PHASE_IPUS.deferred(lambda: between_ipus()[0]),
            "phase_links": PHASE_LINKS.deferred(lambda: between_ipus()[1]),
            "exchange_blocks": EXCHANGE_BLOCKS.deferred(blocks),
        }

    def exchange_pairs(self, row: int, block_tiles: int) -> Table:
        """Sender and receiver tiles of the exchange of a row of the steps table; see ``Executable.exchange_pairs``."""
        step, part = self._assumed_rows[row]
        phase, graph = PhaseOf(step.superstep, part), self.graph
        if phase.exchanged(self.plan) is None:
            return EXCHANGE_BLOCKS.empty()
        blocks = TileBlocks.of(graph.num_tiles, graph.system.ipu.num_tiles, block_tiles)
        pairs = planned_blocks(self.plan[step.superstep], graph, blocks)[1 if phase.is_outward else 0]
        if pairs is None:
            return EXCHANGE_BLOCKS.empty()
        return EXCHANGE_BLOCKS.table(
            phase=np.zeros(len(pairs.source)),
            source_tile=blocks.first[pairs.source],
            target_tile=blocks.first[pairs.target],
            block_tiles=block_tiles,
            bytes=pairs.bytes,
        )

    def _run_tables(
        self, parts: Sequence[Part], account: RunAccount, row_of: Sequence[Mapping[int, int]], ends: Sequence[Int64]
    ) -> dict[str, Table]:
        """All executions of runs, found on first use."""
        made: list[RunTables] = []

        def found() -> RunTables:
            if not made:
                programs = [unroll(block, account.executions, self._first_row) for block in self.lowered.programs]
                runs = [whole_run(items, parts, len(self._groups)) for items in programs]
                made.append(run_tables(runs, parts, row_of, ends))
            return made[0]

        return {
            "run_spans": RUN_SPANS.deferred(lambda: found().run_spans),
            "run_loops": RUN_LOOPS.deferred(lambda: found().run_loops),
        }

    def _critical(self, parts: Sequence[Part], account: RunAccount) -> Table:
        """The steps that bound a run of each program."""
        found = []
        for number, block in enumerate(self.lowered.programs):
            cycles = np.rint(critical_cycles(unroll(block, account.executions, self._first_row), parts))
            rows = np.flatnonzero(cycles)
            found.append((np.full(len(rows), number), rows, cycles[rows]))
        program, step, cycles = (np.concatenate([np.zeros(0, np.int64), *side]) for side in zip(*found, strict=True))
        return CRITICAL.table(program=program, step=step, cycles=cycles)

    def cycles(self, program: int, account: RunAccount) -> int:
        """Modelled cycles of one run of a program, from its first step to the end of its last."""
        if not self._is_alone[program]:
            return self._schedule(program, account, [p for _, p in self._rows(account)]).end
        # One sync group: steps follow each other, so cycles are a sum, without a schedule.
        own = self._program == program
        each = self._cycles_by_superstep.copy()
        for of, number in account.compute:
            if of == program:
                each[number] = sum(p.cycles for p in self._parts_of(program, number, account))
        return int(np.dot(account.executions[own], each[self._superstep[own]]))

    def start_cycles(self, account: RunAccount) -> tuple[Int64, int]:
        """First start of each step in a run of its program, int64[steps], −1 for none; and the end of the first
        program.
        """
        rows, first_row = [p for _, p in self._rows(account)], self._first_row
        found = [self._schedule(n, account, rows) for n in range(len(self.lowered.programs))]
        starts = np.full(len(rows) + 1, -1, dtype=np.int64)
        for each in found:
            starts[:-1] = np.maximum(starts[:-1], each.starts)
        return np.where(np.diff(first_row) > 0, starts[first_row[:-1]], -1), found[0].end

    def _schedule(self, program: int, account: RunAccount, rows: Sequence[Part]) -> ProgramSchedule:
        """Schedule of a program; that of one that ran as assumed is cached."""
        own = self._program == program
        # Only a program that ran otherwise than assumed needs a schedule of its own.
        if any(of == program for of, _ in account.compute) or not np.array_equal(
            account.executions[own], self._assumed[own]
        ):
            return self._new_schedule(program, account.executions, rows)
        if program not in self._schedules:
            self._schedules[program] = self._new_schedule(program, self._assumed, rows)
        return self._schedules[program]

    def _new_schedule(self, program: int, executions: Int64, rows: Sequence[Part]) -> ProgramSchedule:
        block = self.lowered.programs[program]
        return schedule_of(block, rows, self._first_row, executions, len(self._groups))

    def _rows(self, account: RunAccount) -> list[tuple[Step, Part]]:
        """Step and part of each row of the steps table."""
        if not account.compute:
            return self._assumed_rows
        counted = {key: self._parts_of(*key, account) for key in account.compute}
        return [
            (step, part)
            for step in self.lowered.steps
            for part in counted.get((step.program, step.superstep), self._parts[step.superstep])
        ]

    @cached_property
    def _assumed_rows(self) -> list[tuple[Step, Part]]:
        return [(step, part) for step in self.lowered.steps for part in self._parts[step.superstep]]

    def _parts_of(self, program: int, superstep: int, account: RunAccount) -> tuple[Part, ...]:
        """The parts of a superstep whose vertices were counted."""
        return parts_of(replace(self.plan[superstep], compute=account.compute[program, superstep]), self.graph.system)

    @cached_property
    def _parts(self) -> list[tuple[Part, ...]]:
        return [parts_of(s, self.graph.system) for s in self.plan]

    @cached_property
    def _groups(self) -> SyncGroups:
        return SyncGroups.of(self.graph)

    @cached_property
    def _schedules(self) -> dict[int, ProgramSchedule]:
        return {}

    @cached_property
    def _superstep(self) -> Int64:
        """The superstep of each step, int64[steps]."""
        return np.array([s.superstep for s in self.lowered.steps], dtype=np.int64)

    @cached_property
    def _first_row(self) -> Int64:
        """First row of each step in the steps table, and the number of rows, int64[steps + 1]."""
        return np.cumsum([0, *(len(self._parts[s.superstep]) for s in self.lowered.steps)])

    @cached_property
    def _vertex_row(self) -> Int64:
        """Row of each step's vertices in the steps table, int64[steps]; of no meaning where it has none."""
        before = np.array([s.rows_before_vertices for s in self.plan], dtype=np.int64)
        return self._first_row[:-1] + before[[s.superstep for s in self.lowered.steps]]

    @cached_property
    def _cycles_by_superstep(self) -> Int64:
        """Cycles of one execution of each, int64[supersteps]."""
        return np.array([sum(p.cycles for p in parts) for parts in self._parts], dtype=np.int64)

    @cached_property
    def _is_alone(self) -> list[bool]:
        """True if the steps of each program keep one sync group busy, so that they follow each other."""
        groups: list[set[int]] = [set() for _ in self.lowered.programs]
        for step in self.lowered.steps:
            groups[step.program].update(g for part in self._parts[step.superstep] for g in part.groups)
        return [len(found) <= 1 for found in groups]

    @cached_property
    def _ops(self) -> tuple[list[Program], Int64]:
        return ops_of(self.lowered)

    @cached_property
    def _code(self) -> CodeTables:
        return code_tables(self.lowered, self.plan, self._ops[1], self.graph.system.ipu, self.graph.num_tiles)

    @cached_property
    def _program_tables(self) -> dict[str, Table]:
        """Tables of the parts of programs; empty if first used after programs have changed."""
        source, made = self.source, dict[str, Mapping[str, Table]]()

        def table(schema: Schema, key: str, make: Callable[[], Mapping[str, Table]]) -> Table:
            def found() -> Table:
                if key not in made:
                    made[key] = make() if source.is_unchanged() else {}
                return made[key].get(schema.name) or schema.empty()

            return schema.deferred(found)

        def tree() -> Mapping[str, Table]:
            ops = {id(node): row for row, node in enumerate(self._ops[0])}
            return tree_tables(source.programs, source.names, self.lowered, self._first_row, ops)._asdict()

        def vertices() -> Mapping[str, Table]:
            system, num_tiles = self.graph.system, self.graph.num_tiles
            return superstep_tables(self.plan, self.lowered.distinct, system.ipu, num_tiles)._asdict()

        def touched() -> Mapping[str, Table]:
            used = self.memory.liveness.used
            return {"superstep_variables": superstep_variables(self.plan, self.graph.variables, used)}

        parts = {
            tree: (PROGRAM_TREE, FUNCTION_CALLS),
            vertices: (SUPERSTEPS, CODELETS, VERTICES),
            touched: (SUPERSTEP_VARIABLES,),
        }
        return {s.name: table(s, make.__name__, make) for make, schemas in parts.items() for s in schemas}

    @cached_property
    def _memory_tables(self) -> tuple[Table, Table]:
        """Tables of variables and of liveness."""
        first_op = first_writers(self.lowered, self.plan, self._ops[1], len(self.graph.variables))
        roles = self.source.handle_roles
        variables = variables_table(self.graph, self.memory, (self._first_row, self._vertex_row), first_op, roles)
        return variables, _liveness_table(self.memory, self._first_row, self._vertex_row)


def _target(graph: Graph) -> dict[str, float | int | str]:
    """The machine of one replica, and how many there are on which."""
    whole = graph.whole_system
    return {
        **graph.system.figures(),
        "num_replicas": graph.replicas,
        "whole_system": whole.name,
        "whole_system_num_ipus": whole.num_ipus,
    }


def _now() -> str:
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")


def _counts(graph: Graph, lowered: Lowered, supersteps: Sequence[Superstep], account: RunAccount) -> dict[str, int]:
    used = {(s.program, s.superstep) for s in lowered.steps if supersteps[s.superstep].estimated}
    return {
        "num_variables": len(graph.variables),
        "num_compute_sets": sum(s.kind == "execute" for s in supersteps),
        "num_vertices": sum(s.num_vertices for s in supersteps),
        "num_edges": sum(s.num_edges for s in supersteps),
        "num_steps": len(lowered.steps),
        "num_supersteps": len(supersteps),
        "num_estimated_steps": len({n for program, n in used if is_estimated(program, supersteps[n], account)}),
        "num_assumed_steps": int(account.assumed.sum()),
    }


def _phases(rows: Sequence[tuple[Step, Part]]) -> tuple[list[Part], Int64]:
    """The distinct parts of rows in order of first appearance, and the number of that of each row, int64[rows]."""
    number: dict[int, int] = {}
    phase_of = np.array([number.setdefault(id(part), len(number)) for _, part in rows], dtype=np.int64)
    return list({id(part): part for _, part in rows}.values()), phase_of


def _liveness_table(memory: MemoryPlan, first_row: Int64, vertex_row: Int64) -> Table:
    live = memory.liveness
    # The vertices' half of a step has a row of its own where something begins or ends with it.
    halves = np.zeros((len(first_row) - 1, 2), dtype=bool)
    halves[:, 0] = np.diff(first_row) > 0
    halves[live.begin[live.late], 1] = True
    halves[live.end[np.fromiter(live.stays, np.int64, len(live.stays))] - 1, 1] = True
    half = np.flatnonzero(halves)
    return LIVENESS.table(
        step=np.where(half % 2, vertex_row[half // 2], first_row[half // 2]),
        live_bytes=memory.half_bytes[half],
        max_tile_bytes=memory.half_max_bytes[half],
    )
