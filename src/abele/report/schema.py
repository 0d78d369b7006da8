"""Tables of a report: columns, their meanings and units."""

from __future__ import annotations

from abele.report.column_spec import ColumnSpec, Schema, count_column, owner_column, row_column, text_column
from abele.report.schema_program import (
    CODE_COLUMNS,
    CODE_TILES,
    CODE_USES,
    CODELETS,
    FUNCTION_CALLS,
    PROGRAM_TREE,
    SUPERSTEP_VARIABLES,
    SUPERSTEPS,
    VERTICES,
)
from abele.report.schema_sparse import SPARSE_OPERANDS, SPARSE_PASSES, SPARSE_TILES

# Tables of the values of tensors: histograms of exponents, record by record.

ROLES = ("weight", "gradient", "activation", "activation gradient", "input", "other")
"""Roles of a tensor whose exponents are counted."""

EXPONENT_RECORDS = Schema(
    "exponent_records",
    {
        "step": count_column("weight updates (or inference batches) after which it was counted", since=8),
        "tensor": text_column("name of the tensor", since=8),
        "role": text_column("one of ROLES: what it is", since=8, choices=ROLES),
        "type": text_column("element type", since=8),
        "elements": count_column("elements, of all replicas", since=8),
        "zeros": count_column("of these zero", since=8),
        "infinities": count_column("infinite", since=8),
        "nans": count_column("no numbers", since=8),
        "above_half": count_column("finite, and larger than the largest f16, 65504", since=8),
        "largest": ColumnSpec("<f8", "largest finite magnitude", 0.0, since=8),
    },
    since=8,
)
"""Tensors whose exponents were counted, step by step."""

EXPONENT_COUNTS = Schema(
    "exponent_counts",
    {
        "record": owner_column("row in the exponent_records table", "exponent_records", since=8),
        "octave": ColumnSpec("<i4", "e: magnitudes from 2**e to below 2**(e + 1)", since=8, low=-127),
        "count": count_column("elements there", since=8),
    },
    since=8,
)
"""Elements of each record by exponent; octaves without elements are left out."""


STEP_KINDS = ("compute", "exchange", "copy", "stream", "control")
"""Kinds of step: run a compute set, move data between tiles, move and rearrange it, talk to the host, or decide."""

BASES = ("static", "assumed", "counted")
"""Bases of a step's figures: the program alone; an assumption about data; counts of runs."""

PARTNERS = ("", "host", "streaming memory", "replicas")
"""Partners of a step outside the tiles of its replica; empty for none."""

_PARTS = {
    "compute_cycles": count_column("cycles of the slowest tile's vertices"),
    "exchange_cycles": count_column("cycles of the exchange phases"),
    "sync_cycles": count_column("cycles of barriers and launches"),
    "host_cycles": count_column("cycles of streams between host and tiles"),
}

STEPS = Schema(
    "steps",
    {
        "name": text_column("name with scopes"),
        "kind": text_column("one of STEP_KINDS", choices=STEP_KINDS),
        "program": ColumnSpec("<i4", "index of the program that the step belongs to"),
        "op": row_column("ops", "row in the ops table, -1 for none", -1, low=-1),
        "superstep": ColumnSpec("<i4", "number of the superstep in the executable, -1 for none", -1, low=-1),
        "executions": count_column("times it is executed in one run of its program", 1),
        "cycles": count_column("cycles of one execution: the sum of the four parts"),
        **_PARTS,
        "tile_balance": ColumnSpec(
            "<f8", "mean compute cycles over the tiles of its groups / those of the slowest tile", 0.0
        ),
        "exchanged_bytes": count_column("bytes sent between tiles, or streamed"),
        "max_receive_bytes": count_column("bytes that the tile receiving most receives"),
        "num_vertices": count_column("vertices executed"),
        "active_tiles": ColumnSpec("<i4", "tiles with something to compute"),
        "start_cycle": count_column(
            "cycle of a run at which it first starts, -1 when it does not run", -1, since=2, low=-1
        ),
        "block": text_column("names of the Blocks around it, joined by /", since=2),
        "basis": text_column("one of BASES: what its cycles and executions rest on", since=2, choices=BASES),
        "phase": ColumnSpec(
            "<i4", "number of what it does on which tiles, as in phase_tiles; -1 for none", -1, since=3, low=-1
        ),
        "partner": text_column(
            "one of PARTNERS: what tiles exchange data with, beside each other", since=6, choices=PARTNERS
        ),
    },
)

ARITHMETIC = ("", "f8", "f16", "f16 to f32", "f32", "vectors of f16", "vectors of f32")
"""Arithmetic of an operation: products of a type on the matrix unit, with partial sums in f32 where it says so, or
vectors of a type; empty for integers, and where that is not known.
"""

OPS = Schema(
    "ops",
    {
        "name": text_column("name of the operation"),
        "kind": text_column("library call, as in poplin.matmul; compute set or copy otherwise"),
        "path": text_column("scopes around it, joined by /"),
        "file": text_column("source file of the user's line"),
        "line": ColumnSpec("<i4", "the user's line, 0 when unknown"),
        "executions": count_column("times it is executed in one run", 1),
        "cycles": count_column("cycles in one run: the sum of the four parts"),
        **_PARTS,
        "flops": count_column("floating-point operations in one run"),
        "code_bytes": count_column("vertex code of its codelets"),
        "share": ColumnSpec("<f8", "its part of the run's cycles", 0.0),
        "arithmetic": text_column(
            "one of ARITHMETIC: what its floating-point operations are", since=8, choices=ARITHMETIC
        ),
        **CODE_COLUMNS,
    },
)

VARIABLES = Schema(
    "variables",
    {
        "name": text_column("name with scopes"),
        "type": text_column("element type"),
        "bytes": count_column("bytes over all tiles"),
        "tiles": ColumnSpec("<i4", "tiles that hold part of it"),
        "always_live": ColumnSpec("|b1", "whether it lives through the whole program", False),
        "first_step": row_column(
            "steps", "row in the steps table where it becomes live, -1 when always live", -1, low=-1
        ),
        "last_step": row_column(
            "steps", "row in the steps table after which it is dead, -1 when always live", -1, low=-1
        ),
        "shape": text_column("its dimensions, as in 32 x 128; empty for a scalar", since=7),
        "role": text_column(
            "temporary, or why it always lives: constant, replica index, host handle or what that is for (weight), "
            "initial data, kept from run to run",
            since=7,
        ),
        "handle": text_column("handle by which the host reads or writes it, or some of it", since=7),
        "file": text_column("source file of the user's line that made it", since=7),
        "line": ColumnSpec("<i4", "the user's line, 0 when unknown", since=7),
        "op": row_column("ops", "row in the ops table of the first that writes it, -1 for none", -1, since=7, low=-1),
        "alignment_bytes": count_column("alignment that vertices want of it, 0 where the usual one is enough", since=7),
        "interleaved": ColumnSpec("|b1", "whether vertices want it in interleaved memory", False, since=7),
    },
)

LIVENESS = Schema(
    "liveness",
    {
        "step": row_column("steps", "row in the steps table"),
        "live_bytes": count_column("bytes of not always-live variables over all tiles"),
        "max_tile_bytes": count_column("the same on the tile that has most"),
    },
)

GROUPS = Schema(
    "groups",
    {
        "name": text_column("the user's name of the sync group, or IPU i"),
        "program": ColumnSpec("<i4", "index of the program that the row describes a run of"),
        "tiles": ColumnSpec("<i4", "its tiles"),
        "busy_cycles": count_column("cycles of the steps that it takes part in: the sum of the four parts"),
        "idle_cycles": count_column("cycles of the run in which it waits for other groups, or is done"),
        **_PARTS,
        "end_cycle": count_column("cycle at which its last step ends"),
        "tile_balance": ColumnSpec("<f8", "mean compute cycles of its tiles / its compute cycles", 0.0),
    },
    since=2,
)

SPANS = Schema(
    "spans",
    {
        "program": ColumnSpec("<i4", "index of the program"),
        "group": row_column("groups", "row in the groups table"),
        "step": row_column("steps", "row in the steps table"),
        "start_cycle": count_column("cycle of the run at which it starts"),
        "cycles": count_column("how long it takes"),
    },
    since=2,
)
"""First executions of steps, group by group, from which a picture of the timeline is drawn."""

RUN_SPANS = Schema(
    "run_spans",
    {
        "program": owner_column("index of the program", since=7),
        "step": row_column("steps", "row in the steps table; -1 for a time of which nothing is told", -1, low=-1),
        "first_group": row_column("groups", "row in the groups table of the first of some sync groups that are at it"),
        "num_groups": ColumnSpec("<i4", "how many rows from there", 1, low=1),
        "start_cycle": count_column("cycle of the run at which it starts, in the first trip of the loops around it"),
        "cycles": count_column("how long it takes"),
        "loop": row_column("run_loops", "row in the run_loops table of the loop around it, -1 for none", -1, low=-1),
    },
    since=7,
)
"""All executions of steps in a run of each program: those that come again and again in loops."""

RUN_LOOPS = Schema(
    "run_loops",
    {
        "parent": ColumnSpec("<i4", "row of the loop around it, -1 for none", -1, low=-1, refers="run_loops", beyond=1),
        "trips": count_column("how often what is in it happens, for each time that it is entered", 1, low=1),
        "period_cycles": count_column("cycles from the start of one trip to that of the next"),
    },
    since=7,
)
"""Loops of runs from the trip on from which trips are equal; each before the one around it."""

CRITICAL = Schema(
    "critical",
    {
        "program": ColumnSpec("<i4", "index of the program"),
        "step": row_column("steps", "row in the steps table of a step on the critical path of a run of the program"),
        "cycles": count_column("its cycles on that path; those of all steps add up to the run"),
    },
    since=6,
)
"""The chain of steps that bounds a run: each starts when the one before it ends, and waits for no other as long."""

RUNS = Schema(
    "runs",
    {
        "name": text_column("what was run"),
        "program": ColumnSpec("<i4", "index of the program"),
        "mode": text_column("native or tiles"),
        "threads": ColumnSpec("<i4", "host threads", 1),
        "wall_seconds": ColumnSpec("<f8", "time on the host in which the program ran", 0.0),
        "waiting_seconds": ColumnSpec("<f8", "time before it in which the host waited for loaders", 0.0, since=5),
        "sending_seconds": ColumnSpec("<f8", "time in which the host handed over inputs before it", 0.0, since=5),
        "reading_seconds": ColumnSpec("<f8", "time in which the host took outputs after it", 0.0, since=5),
        "samples": count_column("samples that it consumed, 0 when unknown"),
        "cycles": count_column("modelled cycles of the run, with what data decides as counted; 0 if it did not end"),
    },
)

HOST_KINDS = ("kernel", "vertices", "copy", "callback")
"""Kinds of leaves of a run on the host: host kernels of library calls, vertices as placed, a copy, or a call back to
Python (streams that are not arrays, host functions, prints).
"""

_SECONDS = "<f8"
_LANES = "vector lanes that its code fills (of a leaf: its heaviest function's), 1 for scalar code, 0 when unknown"
_PRODUCT = text_column(
    "product or convolution that a library would run, empty for none; of a leaf: its only function's", since=11
)
_SLOTS = (
    "instructions on elements of {}, or the divider's time in multiply-adds if longer: a multiply-add is one, a "
    "function what its code has, a division 5; 0 when unknown"
)
_CARRIED_OUT = text_column("what it carries out: names of steps with their scopes", since=4)
_ORIGIN = {
    "network_op": text_column("module and operation of the network that these come from, where there is one", since=4),
    "file": text_column("source file of the user's line", since=4),
    "line": ColumnSpec("<i4", "the user's line, 0 when unknown", since=4),
}

HOST_LEAVES = Schema(
    "host_leaves",
    {
        "name": _CARRIED_OUT,
        "kind": text_column("one of HOST_KINDS", since=4, choices=HOST_KINDS),
        "calls": text_column("library functions that it carries out, wholly or in part, joined by commas", since=4),
        **_ORIGIN,
        "executions": count_column("how often it ran in the measured runs", since=4),
        "seconds": ColumnSpec(_SECONDS, "time of all executions, from barrier to barrier", 0.0, since=4),
        "busy_seconds": ColumnSpec(_SECONDS, "time that threads worked on it, summed over threads", 0.0, since=4),
        "best_seconds": ColumnSpec(_SECONDS, "shortest execution, on the thread that took longest", 0.0, since=4),
        "balance": ColumnSpec("<f8", "mean time that a thread worked on it / the longest", 0.0, since=4),
        "units": count_column("parallel units that threads share", since=4),
        "flops": count_column("arithmetic operations of one execution, 0 when unknown", since=4),
        "read_bytes": count_column("distinct bytes that one execution reads", since=4),
        "written_bytes": count_column("distinct bytes that one execution writes", since=4),
        "lanes": ColumnSpec("<i4", _LANES, since=4),
        "product": _PRODUCT,
        "slots": count_column(_SLOTS.format("one execution"), since=11),
    },
    since=4,
)
"""Times of measured runs on the host, leaf by leaf: native functions between two meetings of all threads."""

HOST_FUNCTIONS = Schema(
    "host_functions",
    {
        "leaf": owner_column("row in the host_leaves table of the leaf that calls it", "host_leaves", since=4),
        "name": _CARRIED_OUT,
        **_ORIGIN,
        "calls": count_column("how often it was called in the measured runs", since=4),
        "seconds": ColumnSpec(_SECONDS, "time of all calls, on the thread that took longest", 0.0, since=4),
        "busy_seconds": ColumnSpec(_SECONDS, "time of all calls, summed over threads", 0.0, since=4),
        "flops": count_column("arithmetic operations of its calls in one execution of the leaf", since=4),
        "read_bytes": count_column("distinct bytes that these read, scratch memory included", since=4),
        "written_bytes": count_column("distinct bytes that these write, scratch memory included", since=4),
        "lanes": ColumnSpec("<i4", _LANES, since=4),
        "product": _PRODUCT,
        "slots": count_column(_SLOTS.format("its calls in one execution of the leaf"), since=11),
    },
    since=4,
)
"""Times of the functions of leaves that call several, such as loops over blocks of samples."""

STEP_GROUPS = Schema(
    "step_groups",
    {
        "step": owner_column("row in the steps table", "steps"),
        "first_group": row_column(
            "groups", "row in the groups table of the first of some sync groups that it keeps busy"
        ),
        "num_groups": ColumnSpec("<i4", "how many rows from there", 1, low=1),
    },
    since=3,
)
"""Sync groups that each step keeps busy, in order of the steps."""

_TILES = {
    "first_tile": ColumnSpec("<i4", "first of some neighbouring tiles that are alike", refers="tiles"),
    "num_tiles": ColumnSpec("<i4", "how many tiles these are", 1, low=1),
}

_TRAFFIC = {
    "compute_cycles": count_column("cycles that each of these tiles spends on vertices and copies"),
    "sent_bytes": count_column("bytes that each sends to other tiles"),
    "received_bytes": count_column("bytes that each receives from other tiles"),
}

PHASE_TILES = Schema(
    "phase_tiles",
    {"phase": owner_column("number of the phase, as in the steps table"), **_TILES, **_TRAFFIC},
    since=3,
)
"""Cycles and bytes of one execution of each phase by tile, in order of phases and tiles; equal steps share one."""

PROGRAM_TILES = Schema(
    "program_tiles",
    {"program": owner_column("index of the program"), **_TILES, **_TRAFFIC},
    since=3,
)
"""Cycles and bytes of a run of each program by tile, in order of programs and tiles."""

PHASE_IPUS = Schema(
    "phase_ipus",
    {
        "phase": owner_column("number of the phase, as in the steps table", since=7),
        "source_ipu": ColumnSpec("<i4", "IPU that sends; one of the whole machine where data goes between replicas"),
        "target_ipu": ColumnSpec("<i4", "IPU that receives"),
        "bytes": count_column("what crosses from one to the other in one execution"),
    },
    since=7,
)
"""Bytes between IPUs in each phase, in order of phases."""

LINK_WORDS = ("rung", "rail", "gateway")
"""Kinds of links: between the IPUs of a pair, neighbours on a rail, machines of neighbouring racks."""

PHASE_LINKS = Schema(
    "phase_links",
    {
        "phase": owner_column("number of the phase, as in the steps table", since=7),
        "kind": text_column("one of LINK_WORDS: what the links join", choices=LINK_WORDS),
        "source_ipu": ColumnSpec("<i4", "IPU at which they begin, or the first of its machine"),
        "target_ipu": ColumnSpec("<i4", "IPU at which they end, or the first of its machine"),
        "bytes": count_column("what they carry in one execution"),
    },
    since=7,
)
"""Bytes over each bundle of links in each phase, in order of phases."""

EXCHANGE_BLOCKS = Schema(
    "exchange_blocks",
    {
        "phase": owner_column("number of the phase, as in the steps table", since=7),
        "source_tile": ColumnSpec("<i4", "first of some neighbouring tiles of an IPU that send", refers="tiles"),
        "target_tile": ColumnSpec("<i4", "first of some neighbouring tiles of an IPU that receive", refers="tiles"),
        "block_tiles": ColumnSpec("<i4", "how many tiles these are, fewer at the end of an IPU", 1, low=1),
        "bytes": count_column("what the ones receive from the others in one execution"),
    },
    since=7,
)
"""Bytes between blocks of sender and receiver tiles, for the phases on which runs spend most time."""

VARIABLE_TILES = Schema(
    "variable_tiles",
    {
        "variable": owner_column("row in the variables table", "variables"),
        **_TILES,
        "bytes": count_column("bytes of it that each of these tiles holds"),
        "padded_bytes": count_column("the same with the gap behind it"),
    },
    since=3,
)
"""Bytes of each variable by tile, in order of variables and tiles."""

ADDRESSES = Schema(
    "addresses",
    {
        "tile": ColumnSpec("<i4", "a tile that was packed: one of the fullest, the first of those that hold the same"),
        "like_tiles": ColumnSpec("<i4", "tiles that hold the same as it, which have the same addresses", 1, low=1),
        "variable": row_column(
            "variables", "row in the variables table; -1 for code, state of vertices, stacks and buffers", -1, low=-1
        ),
        "address": count_column("where it begins on the tile, from the start of its memory"),
        "bytes": count_column("bytes that it takes there, with the gap behind it"),
    },
    since=9,
)
"""Addresses on the fullest kinds of tiles, in order of tiles that were packed and of addresses."""

LIFETIMES = Schema(
    "lifetimes",
    {
        "variable": owner_column("row in the variables table of one that is not always live", "variables"),
        "first_step": row_column("steps", "row in the steps table where it becomes live"),
        "last_step": row_column("steps", "row after which it is dead, or after which a result takes its place"),
    },
    since=3,
)
"""Steps during which variables are live, in order of variables and steps; a rewritten one has several rows."""

SENT_TILES = Schema(
    "sent_tiles",
    {
        "variable": owner_column("row in the variables table of one that is read for the last time", "variables"),
        "first_step": row_column("steps", "row in the steps table, of the vertices, from which its shares are free"),
        "last_step": row_column("steps", "last row of its life"),
        **_TILES,
        "bytes": count_column("bytes of it that each of these tiles held, with the gap behind it"),
    },
    since=10,
)
"""Shares that tiles send or copy, and do not read as they lie, in the last step of a life; in order of variables."""

BUFFER_TILES = Schema(
    "buffer_tiles",
    {
        "superstep": owner_column("number of the superstep, as in the steps table"),
        **_TILES,
        "bytes": count_column("bytes for data in motion that each of these tiles needs while it runs"),
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
        ADDRESSES,
        LIFETIMES,
        SENT_TILES,
        BUFFER_TILES,
        HOST_LEAVES,
        HOST_FUNCTIONS,
        PROGRAM_TREE,
        FUNCTION_CALLS,
        SUPERSTEPS,
        CODELETS,
        VERTICES,
        SUPERSTEP_VARIABLES,
        CODE_USES,
        CODE_TILES,
        RUN_SPANS,
        RUN_LOOPS,
        PHASE_IPUS,
        PHASE_LINKS,
        EXCHANGE_BLOCKS,
        EXPONENT_RECORDS,
        EXPONENT_COUNTS,
        SPARSE_OPERANDS,
        SPARSE_TILES,
        SPARSE_PASSES,
    )
}
