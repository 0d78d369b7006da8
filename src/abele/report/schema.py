"""The tables of a report: which columns they have, what each means, in which unit."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from abele.errors import InvalidOptionError, nearest
from abele.report.columns import computed
from abele.report.table import Table
from abele.report.text_column import Column, Text


@dataclass(frozen=True)
class ColumnSpec:
    """One column of a table.

    Attributes:
        dtype: NumPy type character string, or ``text``.
        doc: Meaning and unit.
        default: Value of rows for which none is given, and of all rows in files older than the column.
        since: Version of the file format that has it first.
        low: Smallest value that a file may hold.
        refers: The table that it gives rows of, or ``tiles``, if it does.
        ascends: True where no row may hold less than the one before.
        choices: The words that it may hold, where they are few.
    """

    dtype: str
    doc: str
    default: Any = 0
    since: int = 1
    low: int = 0
    refers: str = ""
    ascends: bool = False
    choices: tuple[str, ...] = ()

    @property
    def is_text(self) -> bool:
        """True if the column holds strings."""
        return self.dtype == "text"


@dataclass(frozen=True)
class Schema:
    """The columns that a table of a report has.

    Attributes:
        name: Name of the table.
        columns: Its columns in order.
        since: Version of the file format that has it first.
    """

    name: str
    columns: Mapping[str, ColumnSpec]
    since: int = 1

    def table(self, **columns: Any) -> Table:
        """The table with these columns; those not given are filled with their defaults.

        Args:
            columns: Arrays, sequences, or one value for all rows.

        Raises:
            InvalidOptionError: A column is unknown, or lengths differ.
        """
        for name in columns:
            if name not in self.columns:
                close = nearest(name, self.columns)
                raise InvalidOptionError(
                    f"the {self.name} table has no column {name!r}",
                    remedy=f"did you mean {close!r}?" if close else "one of " + ", ".join(self.columns),
                )
        num_rows = max((len(value) for value in columns.values() if not _is_scalar(value)), default=0)
        return Table(
            {name: _column(spec, columns.get(name, spec.default), num_rows) for name, spec in self.columns.items()}
        )

    def column(self, name: str, num_rows: int) -> Column:
        """A column that holds its default in each row."""
        return _column(self.columns[name], self.columns[name].default, num_rows)

    def empty(self) -> Table:
        """The table without rows."""
        return self.table()

    def deferred(self, make: Callable[[], Table]) -> Table:
        """The table that ``make`` gives, made when somebody looks into it."""
        return Table(computed(tuple(self.columns), lambda: make().columns))


def _is_scalar(value: Any) -> bool:
    if isinstance(value, Text | list | tuple):
        return False
    return isinstance(value, str) or np.ndim(value) == 0


def _column(spec: ColumnSpec, value: Any, num_rows: int) -> Column:
    if isinstance(value, Text):
        return value
    if spec.is_text:
        return Text(np.zeros(num_rows, np.int32), (str(value),)) if _is_scalar(value) else Text.of(value)
    dtype = np.dtype(spec.dtype)
    return np.full(num_rows, value, dtype) if _is_scalar(value) else np.ascontiguousarray(value, dtype=dtype)


def _text(doc: str, since: int = 1, choices: tuple[str, ...] = ()) -> ColumnSpec:
    return ColumnSpec("text", doc, "", since, choices=choices)


def _count(doc: str, default: int = 0, since: int = 1, low: int = 0) -> ColumnSpec:
    return ColumnSpec("<i8", doc, default, since, low)


def _row(of: str, doc: str, default: int = 0, since: int = 1, low: int = 0) -> ColumnSpec:
    return ColumnSpec("<i4", doc, default, since, low, refers=of)


def _owner(doc: str, of: str = "", since: int = 3) -> ColumnSpec:
    """The first column of a relation, by which it is sorted."""
    return ColumnSpec("<i4", doc, since=since, refers=of, ascends=True)


STEP_KINDS = ("compute", "exchange", "copy", "stream", "control")
"""What a step does: run a compute set, move data between tiles, move and rearrange it, talk to the host, or decide."""

BASES = ("static", "assumed", "counted")
"""What the figures of a step rest on: the program alone; an assumption about data; what runs counted."""

PARTNERS = ("", "host", "streaming memory", "replicas")
"""What a step exchanges data with that is no tile of its replica; empty for none."""

_PARTS = {
    "compute_cycles": _count("cycles of the slowest tile's vertices"),
    "exchange_cycles": _count("cycles of the exchange phases"),
    "sync_cycles": _count("cycles of barriers and launches"),
    "host_cycles": _count("cycles of streams between host and tiles"),
}

STEPS = Schema(
    "steps",
    {
        "name": _text("name with scopes"),
        "kind": _text("one of STEP_KINDS", choices=STEP_KINDS),
        "program": ColumnSpec("<i4", "index of the program that the step belongs to"),
        "op": _row("ops", "row in the ops table, -1 for none", -1, low=-1),
        "superstep": ColumnSpec("<i4", "number of the superstep in the executable, -1 for none", -1, low=-1),
        "executions": _count("times it is executed in one run of its program", 1),
        "cycles": _count("cycles of one execution: the sum of the four parts"),
        **_PARTS,
        "tile_balance": ColumnSpec(
            "<f8", "mean compute cycles over the tiles of its groups / those of the slowest tile", 0.0
        ),
        "exchanged_bytes": _count("bytes sent between tiles, or streamed"),
        "max_receive_bytes": _count("bytes that the tile receiving most receives"),
        "num_vertices": _count("vertices executed"),
        "active_tiles": ColumnSpec("<i4", "tiles with something to compute"),
        "start_cycle": _count("cycle of a run at which it first starts, -1 when it does not run", -1, since=2, low=-1),
        "block": _text("names of the Blocks around it, joined by /", since=2),
        "basis": _text("one of BASES: what its cycles and executions rest on", since=2, choices=BASES),
        "phase": ColumnSpec(
            "<i4", "number of what it does on which tiles, as in phase_tiles; -1 for none", -1, since=3, low=-1
        ),
        "partner": _text(
            "one of PARTNERS: what tiles exchange data with, beside each other", since=6, choices=PARTNERS
        ),
    },
)

OPS = Schema(
    "ops",
    {
        "name": _text("name of the operation"),
        "kind": _text("library call, as in poplin.matmul; compute set or copy otherwise"),
        "path": _text("scopes around it, joined by /"),
        "file": _text("source file of the user's line"),
        "line": ColumnSpec("<i4", "the user's line, 0 when unknown"),
        "executions": _count("times it is executed in one run", 1),
        "cycles": _count("cycles in one run: the sum of the four parts"),
        **_PARTS,
        "flops": _count("floating-point operations in one run"),
        "code_bytes": _count("vertex code of its codelets"),
        "share": ColumnSpec("<f8", "its part of the run's cycles", 0.0),
    },
)

VARIABLES = Schema(
    "variables",
    {
        "name": _text("name with scopes"),
        "type": _text("element type"),
        "bytes": _count("bytes over all tiles"),
        "tiles": ColumnSpec("<i4", "tiles that hold part of it"),
        "always_live": ColumnSpec("|b1", "whether it lives through the whole program", False),
        "first_step": _row("steps", "row in the steps table where it becomes live, -1 when always live", -1, low=-1),
        "last_step": _row("steps", "row in the steps table after which it is dead, -1 when always live", -1, low=-1),
    },
)

LIVENESS = Schema(
    "liveness",
    {
        "step": _row("steps", "row in the steps table"),
        "live_bytes": _count("bytes of not always-live variables over all tiles"),
        "max_tile_bytes": _count("the same on the tile that has most"),
    },
)

GROUPS = Schema(
    "groups",
    {
        "name": _text("the user's name of the sync group, or IPU i"),
        "program": ColumnSpec("<i4", "index of the program that the row describes a run of"),
        "tiles": ColumnSpec("<i4", "its tiles"),
        "busy_cycles": _count("cycles of the steps that it takes part in: the sum of the four parts"),
        "idle_cycles": _count("cycles of the run in which it waits for other groups, or is done"),
        **_PARTS,
        "end_cycle": _count("cycle at which its last step ends"),
        "tile_balance": ColumnSpec("<f8", "mean compute cycles of its tiles / its compute cycles", 0.0),
    },
    since=2,
)

SPANS = Schema(
    "spans",
    {
        "program": ColumnSpec("<i4", "index of the program"),
        "group": _row("groups", "row in the groups table"),
        "step": _row("steps", "row in the steps table"),
        "start_cycle": _count("cycle of the run at which it starts"),
        "cycles": _count("how long it takes"),
    },
    since=2,
)
"""The first executions of steps, group by group: what a picture of the timeline is drawn from."""

CRITICAL = Schema(
    "critical",
    {
        "program": ColumnSpec("<i4", "index of the program"),
        "step": _row("steps", "row in the steps table of a step on the critical path of a run of the program"),
        "cycles": _count("its cycles on that path; those of all steps add up to the run"),
    },
    since=6,
)
"""The chain of steps that bounds a run: each starts when the one before it ends, and waits for no other as long."""

RUNS = Schema(
    "runs",
    {
        "name": _text("what was run"),
        "program": ColumnSpec("<i4", "index of the program"),
        "mode": _text("native or tiles"),
        "threads": ColumnSpec("<i4", "host threads", 1),
        "wall_seconds": ColumnSpec("<f8", "time on the host in which the program ran", 0.0),
        "waiting_seconds": ColumnSpec("<f8", "time before it in which the host waited for loaders", 0.0, since=5),
        "sending_seconds": ColumnSpec("<f8", "time in which the host handed over inputs before it", 0.0, since=5),
        "reading_seconds": ColumnSpec("<f8", "time in which the host took outputs after it", 0.0, since=5),
        "samples": _count("samples that it consumed, 0 when unknown"),
        "cycles": _count("modelled cycles of the run, with what data decides as counted; 0 if it did not end"),
    },
)

HOST_KINDS = ("kernel", "vertices", "copy", "callback")
"""What a leaf of a run on the host may be: host kernels of library calls, vertices as placed, a copy, or a call back to
Python (streams that are not arrays, host functions, prints)."""

_SECONDS = "<f8"
_LANES = "vector lanes that its code fills (of a leaf: its heaviest function's), 1 for scalar code, 0 when unknown"
_CARRIED_OUT = _text("what it carries out: names of steps with their scopes", since=4)
_ORIGIN = {
    "network_op": _text("module and operation of the network that these come from, where there is one", since=4),
    "file": _text("source file of the user's line", since=4),
    "line": ColumnSpec("<i4", "the user's line, 0 when unknown", since=4),
}

HOST_LEAVES = Schema(
    "host_leaves",
    {
        "name": _CARRIED_OUT,
        "kind": _text("one of HOST_KINDS", since=4, choices=HOST_KINDS),
        "calls": _text("library functions that it carries out, wholly or in part, joined by commas", since=4),
        **_ORIGIN,
        "executions": _count("how often it ran in the measured runs", since=4),
        "seconds": ColumnSpec(_SECONDS, "time of all executions, from barrier to barrier", 0.0, since=4),
        "busy_seconds": ColumnSpec(_SECONDS, "time that threads worked on it, summed over threads", 0.0, since=4),
        "best_seconds": ColumnSpec(_SECONDS, "shortest execution, on the thread that took longest", 0.0, since=4),
        "balance": ColumnSpec("<f8", "mean time that a thread worked on it / the longest", 0.0, since=4),
        "units": _count("parallel units that threads share", since=4),
        "flops": _count("arithmetic operations of one execution, 0 when unknown", since=4),
        "read_bytes": _count("distinct bytes that one execution reads", since=4),
        "written_bytes": _count("distinct bytes that one execution writes", since=4),
        "lanes": ColumnSpec("<i4", _LANES, since=4),
    },
    since=4,
)
"""What measured runs took on the host, leaf by leaf: native functions between two meetings of all threads."""

HOST_FUNCTIONS = Schema(
    "host_functions",
    {
        "leaf": _owner("row in the host_leaves table of the leaf that calls it", "host_leaves", since=4),
        "name": _CARRIED_OUT,
        **_ORIGIN,
        "calls": _count("how often it was called in the measured runs", since=4),
        "seconds": ColumnSpec(_SECONDS, "time of all calls, on the thread that took longest", 0.0, since=4),
        "busy_seconds": ColumnSpec(_SECONDS, "time of all calls, summed over threads", 0.0, since=4),
        "flops": _count("arithmetic operations of its calls in one execution of the leaf", since=4),
        "read_bytes": _count("distinct bytes that these read, scratch memory included", since=4),
        "written_bytes": _count("distinct bytes that these write, scratch memory included", since=4),
        "lanes": ColumnSpec("<i4", _LANES, since=4),
    },
    since=4,
)
"""What leaves spend their time on that call several functions, as those do which run block after block of samples."""

STEP_GROUPS = Schema(
    "step_groups",
    {
        "step": _owner("row in the steps table", "steps"),
        "first_group": _row("groups", "row in the groups table of the first of some sync groups that it keeps busy"),
        "num_groups": ColumnSpec("<i4", "how many rows from there", 1, low=1),
    },
    since=3,
)
"""Which steps keep which sync groups busy, in order of the steps."""

_TILES = {
    "first_tile": ColumnSpec("<i4", "first of some neighbouring tiles that are alike", refers="tiles"),
    "num_tiles": ColumnSpec("<i4", "how many tiles these are", 1, low=1),
}

_TRAFFIC = {
    "compute_cycles": _count("cycles that each of these tiles spends on vertices and copies"),
    "sent_bytes": _count("bytes that each sends to other tiles"),
    "received_bytes": _count("bytes that each receives from other tiles"),
}

PHASE_TILES = Schema(
    "phase_tiles",
    {"phase": _owner("number of the phase, as in the steps table"), **_TILES, **_TRAFFIC},
    since=3,
)
"""What each phase does on which tiles in one execution, in order of phases and tiles; equal steps share one."""

PROGRAM_TILES = Schema(
    "program_tiles",
    {"program": _owner("index of the program"), **_TILES, **_TRAFFIC},
    since=3,
)
"""What a run of each program does on which tiles, in order of programs and tiles."""

VARIABLE_TILES = Schema(
    "variable_tiles",
    {
        "variable": _owner("row in the variables table", "variables"),
        **_TILES,
        "bytes": _count("bytes of it that each of these tiles holds"),
        "padded_bytes": _count("the same with the gap behind it"),
    },
    since=3,
)
"""Which tiles hold how much of which variable, in order of variables and tiles."""

LIFETIMES = Schema(
    "lifetimes",
    {
        "variable": _owner("row in the variables table of one that is not always live", "variables"),
        "first_step": _row("steps", "row in the steps table where it becomes live"),
        "last_step": _row("steps", "row in the steps table after which it is dead"),
    },
    since=3,
)
"""When variables are live, in order of variables and steps; one that is written anew after a pause has several rows."""

BUFFER_TILES = Schema(
    "buffer_tiles",
    {
        "superstep": _owner("number of the superstep, as in the steps table"),
        **_TILES,
        "bytes": _count("bytes for data in motion that each of these tiles needs while it runs"),
    },
    since=3,
)
"""Room for data that arrives, is arranged or is about to leave, in order of supersteps and tiles."""

TABLES = {
    schema.name: schema
    for schema in (
        STEPS,
        OPS,
        VARIABLES,
        LIVENESS,
        RUNS,
        GROUPS,
        SPANS,
        CRITICAL,
        STEP_GROUPS,
        PHASE_TILES,
        PROGRAM_TILES,
        VARIABLE_TILES,
        LIFETIMES,
        BUFFER_TILES,
        HOST_LEAVES,
        HOST_FUNCTIONS,
    )
}
