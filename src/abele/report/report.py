"""Report of a compiled and perhaps run program: plain columns, of any origin."""

from __future__ import annotations

import copy
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from abele.errors import InvalidOptionError
from abele.machine import described
from abele.report import code, nodes, tiles, uses, whole_run
from abele.report.cycles import Cycles, run_cycles
from abele.report.host_profile import HostProfile
from abele.report.loading import Loading, loading_of
from abele.report.memory import Memory
from abele.report.schema import TABLES
from abele.report.table import Table
from abele.report.text_column import read_only
from abele.words import counted

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from abele.report.energy import StepEnergy
    from abele.report.exponents import ExponentHistograms
    from abele.report.fit_changes import FitChanges
    from abele.report.insights import Insights
    from abele.report.limits import RateLimits
    from abele.report.masks import Masks
    from abele.report.memory_use import MemoryUse
    from abele.report.rearrangements import Rearrangements
    from abele.report.sparse import SparseOperands
    from abele.report.update import Timeline


@dataclass(frozen=True, eq=False, kw_only=True)
class Report:
    """Costs of a program on the modelled machine, and of running it on the host.

    Attributes:
        target: Main figures of the system: ``System.figures()``.
        graph: Counts: ``num_variables``, ``num_compute_sets``, ``num_vertices``, ``num_edges``, ``num_steps``, …
        steps: Steps of the programs; columns as ``schema.STEPS``.
        ops: Operations; columns as ``schema.OPS``.
        memory: Bytes by category and tile.
        variables: Columns as ``schema.VARIABLES``.
        liveness: Columns as ``schema.LIVENESS``.
        runs: Runs on the host; columns as ``schema.RUNS``.
        groups: Cycles of each sync group in a run of each program; columns as ``schema.GROUPS``.
        spans: First executions of steps; columns as ``schema.SPANS``.
        critical: Steps on the critical path of a run of each program; columns as ``schema.CRITICAL``.
        step_groups: Sync groups that each step keeps busy; columns as ``schema.STEP_GROUPS``.
        phase_tiles: Cycles and bytes of steps by tile; columns as ``schema.PHASE_TILES``.
        program_tiles: Cycles and bytes of a run of each program by tile; columns as ``schema.PROGRAM_TILES``.
        variable_tiles: Bytes of each variable by tile; columns as ``schema.VARIABLE_TILES``.
        addresses: Addresses of variables on the fullest tiles; columns as ``schema.ADDRESSES``.
        lifetimes: Steps during which variables are live; columns as ``schema.LIFETIMES``.
        sent_tiles: Shares that end before vertices; columns as ``schema.SENT_TILES``.
        buffer_tiles: Room for data in motion; columns as ``schema.BUFFER_TILES``.
        host_leaves: Times of measured runs on the host; columns as ``schema.HOST_LEAVES``. :attr:`host` asks it.
        host_functions: Functions that leaves of these call; columns as ``schema.HOST_FUNCTIONS``.
        program_tree: The control programs and functions; columns as ``schema.PROGRAM_TREE``.
        function_calls: Calls of functions; columns as ``schema.FUNCTION_CALLS``.
        supersteps: Supersteps that steps run, each once; columns as ``schema.SUPERSTEPS``.
        codelets: Codelets of the vertices; columns as ``schema.CODELETS``.
        vertices: Vertices of supersteps by codelet; columns as ``schema.VERTICES``.
        superstep_variables: Variables that each superstep touches; columns as ``schema.SUPERSTEP_VARIABLES``.
        code_uses: State and code of operations, superstep by superstep; columns as ``schema.CODE_USES``.
            :meth:`code_by_tile` and :meth:`code_on` ask it.
        code_tiles: Their bytes by tile; columns as ``schema.CODE_TILES``.
        run_spans: All executions of steps; columns as ``schema.RUN_SPANS``. :meth:`spans_between` unfolds them.
        run_loops: Loops that these are in; columns as ``schema.RUN_LOOPS``.
        phase_ipus: Bytes between IPUs; columns as ``schema.PHASE_IPUS``.
        phase_links: Bytes over links; columns as ``schema.PHASE_LINKS``.
        exchange_blocks: Bytes between tiles in the longest phases; columns as ``schema.EXCHANGE_BLOCKS``.
        exponent_records: Tensors whose exponents were counted; columns as ``schema_values.EXPONENT_RECORDS``.
            :attr:`exponents` asks it.
        exponent_counts: Results of these counts; columns as ``schema_values.EXPONENT_COUNTS``.
        sparse_operands: Sparse matrices; columns as ``schema.SPARSE_OPERANDS``. :attr:`sparse` asks it.
        sparse_tiles: Their values by tile; columns as ``schema.SPARSE_TILES``.
        sparse_passes: Passes of dynamic products; columns as ``schema.SPARSE_PASSES``.
        meta: ``abele_version``, ``created`` (ISO 8601), ``name``, ``options``, ``compile_seconds``, ``programs``
            (names), ``figures_of`` (for each program ``run 3`` or ``assumptions``), ``energy`` (energies of the chip,
            for :attr:`energy`); when known ``samples_per_run``, ``steps_per_run``, ``sample_name`` and ``step_name`` of
            program 0, and ``loading`` (:attr:`loading`).
    """

    target: dict[str, Any]
    graph: dict[str, int]
    steps: Table
    ops: Table
    memory: Memory
    variables: Table
    liveness: Table
    runs: Table = field(default_factory=TABLES["runs"].empty)
    groups: Table = field(default_factory=TABLES["groups"].empty)
    spans: Table = field(default_factory=TABLES["spans"].empty)
    critical: Table = field(default_factory=TABLES["critical"].empty)
    step_groups: Table = field(default_factory=TABLES["step_groups"].empty)
    phase_tiles: Table = field(default_factory=TABLES["phase_tiles"].empty)
    program_tiles: Table = field(default_factory=TABLES["program_tiles"].empty)
    variable_tiles: Table = field(default_factory=TABLES["variable_tiles"].empty)
    addresses: Table = field(default_factory=TABLES["addresses"].empty)
    lifetimes: Table = field(default_factory=TABLES["lifetimes"].empty)
    sent_tiles: Table = field(default_factory=TABLES["sent_tiles"].empty)
    buffer_tiles: Table = field(default_factory=TABLES["buffer_tiles"].empty)
    host_leaves: Table = field(default_factory=TABLES["host_leaves"].empty)
    host_functions: Table = field(default_factory=TABLES["host_functions"].empty)
    program_tree: Table = field(default_factory=TABLES["program_tree"].empty)
    function_calls: Table = field(default_factory=TABLES["function_calls"].empty)
    supersteps: Table = field(default_factory=TABLES["supersteps"].empty)
    codelets: Table = field(default_factory=TABLES["codelets"].empty)
    vertices: Table = field(default_factory=TABLES["vertices"].empty)
    superstep_variables: Table = field(default_factory=TABLES["superstep_variables"].empty)
    code_uses: Table = field(default_factory=TABLES["code_uses"].empty)
    code_tiles: Table = field(default_factory=TABLES["code_tiles"].empty)
    run_spans: Table = field(default_factory=TABLES["run_spans"].empty)
    run_loops: Table = field(default_factory=TABLES["run_loops"].empty)
    phase_ipus: Table = field(default_factory=TABLES["phase_ipus"].empty)
    phase_links: Table = field(default_factory=TABLES["phase_links"].empty)
    exchange_blocks: Table = field(default_factory=TABLES["exchange_blocks"].empty)
    exponent_records: Table = field(default_factory=TABLES["exponent_records"].empty)
    exponent_counts: Table = field(default_factory=TABLES["exponent_counts"].empty)
    sparse_operands: Table = field(default_factory=TABLES["sparse_operands"].empty)
    sparse_tiles: Table = field(default_factory=TABLES["sparse_tiles"].empty)
    sparse_passes: Table = field(default_factory=TABLES["sparse_passes"].empty)
    meta: dict[str, Any] = field(default_factory=dict)

    @property
    def host(self) -> HostProfile:
        """Times of measured runs on the host; without rows where none was measured."""
        return HostProfile(self.host_leaves, self.host_functions, self.meta.get("host", {}))

    @property
    def host_seconds(self) -> dict[str, float]:
        """Seconds of all runs on the host: ``waiting`` for data, ``sending``, ``running`` and ``reading``."""
        named = {"waiting": "waiting", "sending": "sending", "running": "wall", "reading": "reading"}
        return {name: float(self.runs[f"{column}_seconds"].sum()) for name, column in named.items()}

    @property
    def rearrangements(self) -> Rearrangements:
        """Cycles of a run for bringing data into another order or to other tiles for its next reader."""
        from abele.report.rearrangements import rearrangements

        return rearrangements(self)

    @property
    def energy(self) -> StepEnergy | None:
        """Dynamic energy of one step of program 0 with its bounds and sources; None in reports of earlier versions.

        Raises:
            FileFormatError: The energies of the machine in the report are damaged.
        """
        from abele.report.energy import energy_of

        return energy_of(self)

    @property
    def exponents(self) -> ExponentHistograms:
        """Exponents of tensors by step; without tensors where none were recorded."""
        from abele.report.exponents import ExponentHistograms

        return ExponentHistograms(self.exponent_records, self.exponent_counts)

    @property
    def sparse(self) -> SparseOperands:
        """Sparse operands: buckets and imbalance by tile, and what their patterns cost; without any where none is."""
        from abele.report.sparse import SparseOperands

        return SparseOperands(self)

    def memory_use(self, tile: int | None = None) -> MemoryUse:
        """Contents of a tile when it is fullest: categories, operations' state and code, and what keeps data alive.

        Args:
            tile: The tile; the fullest by default.

        Raises:
            InvalidOptionError: There is no such tile.
        """
        from abele.report.memory_use import memory_use

        return memory_use(self, tile)

    @property
    def fit_changes(self) -> FitChanges:
        """Trials to make the program fit, and the shortest list of changes with which it does.

        Raises:
            InvalidOptionError: It does not fit, and nothing was tried where it was compiled.
            FileFormatError: The entry in the report's file is damaged.
        """
        from abele.report.fit_changes import fit_changes

        return fit_changes(self)

    @property
    def masks(self) -> Masks:
        """Cycles of a run for masks of attention: for making them, and where they meet scores and gradients."""
        from abele.report.masks import masks

        return masks(self)

    def insights(self, program: int = 0) -> Insights:
        """Limits of a program, its costs with reasons, and levers.

        Args:
            program: Index of the program.

        Raises:
            InvalidOptionError: The report has no such program.
        """
        from abele.report.insights import insights

        return insights(self, program)

    def cycles(self, program: int = 0) -> Cycles:
        """Modelled cycles of one run of a program, from its first step to the end of its last."""
        return run_cycles(self.steps, program, self.groups)

    @property
    def total_cycles(self) -> int:
        """Modelled cycles of one run of program 0."""
        return int(self.cycles().total)

    def seconds(self, cycles: float) -> float:
        """Time of ``cycles`` on the modelled machine."""
        return cycles / float(self.target["clock_hz"])

    @property
    def steps_per_run(self) -> int:
        """Steps (of training: weight updates) in one run of program 0; 1 by default."""
        return max(int(self.meta.get("steps_per_run", 1)), 1)

    @property
    def step_cycles(self) -> Cycles:
        """Modelled cycles of one step of program 0."""
        return self.cycles().per(self.steps_per_run)

    @property
    def samples_per_second(self) -> float | None:
        """Modelled throughput of program 0, or None when the samples of a run are not known."""
        samples, total = self.meta.get("samples_per_run"), self.cycles().total
        return float(samples) / self.seconds(total) if samples and total else None

    @property
    def loading(self) -> Loading | None:
        """Parameters of loading for program 0, where they were given or measured: :meth:`with_loading`."""
        return loading_of(self.meta)

    @property
    def limits(self) -> RateLimits | None:
        """Samples per second of device, link and loader, or None when the samples of a run are not known."""
        from abele.report.limits import limits_of

        return limits_of(self)

    @cached_property
    def compute_cycles_by_tile(self) -> npt.NDArray[np.int64]:
        """Cycles that each tile computes in one run of program 0, int64[tiles]."""
        return read_only(self.program_by_tile("compute_cycles"))

    # Questions by the module that answers them: ``report.memory_at(step)`` calls ``tiles.memory_at(report, step)``.

    program_by_tile = tiles.program_by_tile
    step_by_tile = tiles.step_by_tile
    groups_of = tiles.groups_of
    variable_by_tile = tiles.variable_by_tile
    memory_at = tiles.memory_at

    code_by_tile = code.code_by_tile
    code_on = code.code_on

    variables_of = uses.variables_of
    uses_of = uses.uses_of
    exchange_of = uses.exchange_of
    live_at = uses.live_at
    op_edges = uses.op_edges

    spans_between = whole_run.spans_between
    steps_of_node = nodes.steps_of_node

    @cached_property
    def nodes_by_step(self) -> npt.NDArray[np.int32]:
        """The innermost node of the program tree that each row of the steps table came from, int32[steps]."""
        return read_only(nodes.nodes_by_step(self))

    @property
    def tile_balance(self) -> float:
        """Mean over tiles of the cycles they compute / those of the compute phases of their sync groups, program 0."""
        mine = self.groups.where("program", 0)
        offered = float(np.dot(mine["tiles"].astype(np.int64), mine["compute_cycles"]))
        if not len(mine):
            offered = len(self.compute_cycles_by_tile) * self.cycles().compute
        return float(self.compute_cycles_by_tile.sum()) / offered if offered else 0.0

    def timeline(self, program: int = 0) -> Timeline:
        """Work and waiting of each IPU in a run, and the chain of steps that bounds the run.

        Args:
            program: Index of the program.

        Returns:
            Figures and, as text, a page of them.
        """
        from abele.report.update import Timeline

        return Timeline(self, program)

    def timeline_text(self, width: int = 100, *, program: int = 0, first: int = 0, cycles: int | None = None) -> str:
        """Timeline of each sync group, as lanes of letters.

        Args:
            width: Characters of a line.
            program: Index of the program.
            first: First cycle shown.
            cycles: Cycles shown; by default the whole run, or its first steps where the report does not hold all.

        Raises:
            InvalidOptionError: The width leaves no room, or the report holds no timeline of such a program.
        """
        from abele.report.timeline import timeline_text

        return timeline_text(self, width, program=program, first=first, cycles=cycles)

    def plot(
        self, kind: str = "overview", *, program: int = 0, top: int = 12, first: int = 0, cycles: int | None = None
    ) -> Figure:
        """A picture of the report, which a notebook shows and ``savefig`` writes to a file.

        Args:
            kind: ``overview``, ``memory``, ``cycles``, ``timeline``, ``update``, ``operations``, ``exchange``,
                ``liveness``, ``tiles``, ``exponents`` or ``runs``; ``abele.report.plot.KINDS`` says what each shows.
            program: Index of the program whose cycles are shown.
            top: Operations or exchange phases that are listed.
            first: First cycle of the time axis.
            cycles: Cycles of the time axis; by default the whole run, or its first steps where the report does not
                hold all.

        Returns:
            A matplotlib ``Figure`` that belongs to no window, so that no display is needed.

        Raises:
            InvalidOptionError: No such kind or program, or nothing to show.
            MissingPackageError: matplotlib is not installed.
        """
        from abele.report.plot.kinds import PlotOptions, plot_report

        return plot_report(self, kind, PlotOptions(program=program, top=top, first=first, cycles=cycles))

    def with_run(self, **row: Any) -> Report:
        """The report with one more run; ``row`` gives the columns of ``schema.RUNS``, defaults for those left out."""
        defaults = {name: spec.default for name, spec in TABLES["runs"].columns.items()}
        return replace(self, runs=self.runs.append(**(defaults | row)))

    def with_meta(self, **meta: Any) -> Report:
        """The report with some entries of ``meta`` set."""
        known = copy.deepcopy(self.meta)
        return replace(self, target=dict(self.target), graph=dict(self.graph), meta={**known, **meta})

    def with_loading(self, loading: Loading) -> Report:
        """The report with how data is loaded, so that :attr:`limits` knows the loader.

        Raises:
            InvalidOptionError: It makes batches of another size than a run takes.
        """
        samples = self.meta.get("samples_per_run")
        if samples and int(samples) != loading.samples_per_batch:
            raise InvalidOptionError(
                f"a batch has {counted(loading.samples_per_batch, 'sample')}, a run takes {int(samples):,}",
                remedy="samples_per_batch counts a call: micro-batch x device iterations x replicas x accumulation",
            )
        return self.with_meta(loading=described(loading))

    def with_host(self, profile: HostProfile) -> Report:
        """The report with a profile of the host."""
        found = self.with_meta(host=dict(profile.facts))
        return replace(found, host_leaves=profile.leaves, host_functions=profile.functions)

    def sql(self, query: str, *, seconds: float = 60.0, memory_bytes: int = 1 << 30, threads: int = 2) -> Table:
        """The answer to a query in SQL over the report's tables, whose columns are read where they are.

        Args:
            query: One ``SELECT`` statement of DuckDB's SQL. It may name all tables of the report; each has a column
                ``id``, its row, beside those of its schema. ``memory`` has bytes by category for each tile.
            seconds: Time that it may take.
            memory_bytes: Memory that it and its answer may take, the columns of the report aside.
            threads: Threads that carry it out.

        Returns:
            A table with the columns of the answer. Where a row has no value, a column of floating-point numbers has
            NaN, and any other is one of objects with None.

        Raises:
            QueryError: The query is wrong, takes too long or too much memory, or does other than read the report.
            MissingPackageError: DuckDB is not installed.
        """
        from abele.report.query import query as answer

        return answer(self, query, seconds=seconds, memory_bytes=memory_bytes, threads=threads)

    def summary(self) -> str:
        """Main figures, as text of a few lines."""
        from abele.report.summary import summary_text

        return summary_text(self)

    def to_json(self) -> dict[str, Any]:
        """The report as plain data; keys as documented in ``abele.report.json``."""
        from abele.report.json import to_json

        return to_json(self)

    def save(self, path: str | Path, *, full_paths: bool = False) -> None:
        """Write the report to a file, all or nothing.

        Args:
            path: The file.
            full_paths: Keep the full paths of source files; otherwise only what follows the folder of their project.

        Raises:
            FileFormatError: The file cannot be written.
        """
        from abele.report.file import save

        save(self, Path(path), full_paths=full_paths)

    @staticmethod
    def load(path: str | Path) -> Report:
        """The report that a file holds; nothing in the file is executed.

        Columns of a large file are read when they are asked for, straight from the file, which must then stay as it is.

        Raises:
            FileFormatError: The file is missing, damaged, cut short, written by a newer version, or no report.
        """
        from abele.report.file import load

        return load(Path(path))

    def __repr__(self) -> str:
        from abele.report.display import report_line

        return report_line(self)

    def _repr_html_(self) -> str:
        from abele.report.display import report_card

        return report_card(self)
