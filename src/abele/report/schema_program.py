"""Tables of a program's parts: its tree of programs, and the vertices and variables of each superstep."""

from __future__ import annotations

from abele.report.column_spec import ColumnSpec, Schema, count_column, owner_column, row_column, text_column

_FILE = text_column("source file of the user's line")
_LINE = ColumnSpec("<i4", "the user's line, 0 when unknown")

PROGRAM_TREE = Schema(
    "program_tree",
    {
        "parent": ColumnSpec(
            "<i4",
            "row of the node around it, -1 for programs and functions",
            -1,
            low=-1,
            refers="program_tree",
            beyond=-1,
        ),
        "kind": text_column(
            "Program or Function for a root, StreamCopy or RemoteCopy, otherwise the class of the node"
        ),
        "name": text_column("name, for a LibraryCall with its scopes"),
        "title": text_column(
            "what it is to the node around it: body, condition, then, else, case 3, arguments, results"
        ),
        "file": _FILE,
        "line": _LINE,
        "count": count_column("trips of a Repeat for each time that it is entered; 1 for others", 1),
        "function": ColumnSpec(
            "<i4", "row of the function that a Call runs, -1 for none", -1, low=-1, refers="program_tree", beyond=1
        ),
        "op": row_column(
            "ops", "row in the ops table of a library call, or a step outside of any; -1 for none", -1, low=-1
        ),
        "first_step": row_column(
            "steps",
            "first row in the steps table of what it became, at the first place; -1 for none",
            -1,
            low=-1,
        ),
        "num_steps": ColumnSpec("<i4", "how many rows from there, with those of all that is inside"),
    },
    since=7,
)
"""Control programs and functions as trees, node after node, each before its children; a function once."""

FUNCTION_CALLS = Schema(
    "function_calls",
    {
        "function": owner_column("row of a function in the program tree", "program_tree", since=7),
        "call": row_column("program_tree", "row of a Call of it"),
        "first_step": row_column(
            "steps", "first row in the steps table of what its body became for that call, -1 for nothing", -1, low=-1
        ),
    },
    since=7,
)
"""Calls of functions, in order of functions and steps; a Call in a function comes up for each call of that."""

SUPERSTEPS = Schema(
    "supersteps",
    {
        "name": text_column("name with scopes of the compute set, copy, stream or decision"),
        "kind": text_column("what it does, as in execute, copy, stream_in, decide"),
        "file": _FILE,
        "line": _LINE,
        "num_vertices": count_column("vertices that it runs"),
        "num_edges": count_column("field rows that these are wired by"),
        "vertex_state_bytes": count_column("bytes of the records of its vertices over all tiles"),
        "exchange_code_bytes": count_column("bytes of its exchange instructions over all tiles"),
        "buffer_bytes": count_column("bytes for data in motion over all tiles while it runs"),
    },
    since=7,
)
"""Supersteps by their numbers in the steps table, each once."""

CODE_COLUMNS = {
    "vertex_state_bytes": count_column("bytes of the records of its vertices over all tiles", since=9),
    "vertex_code_bytes": count_column("bytes of codelets on tiles where no operation before it has them", since=9),
    "control_code_bytes": count_column("bytes of its steps' control code over all tiles", since=9),
    "exchange_code_bytes": count_column("bytes of its exchange instructions over all tiles", since=9),
}
"""Bytes of the program itself; what several operations share counts for the first of them, so that sums over
operations are the memory categories.
"""

CODE_USES = Schema(
    "code_uses",
    {
        "op": owner_column("row in the ops table", "ops", since=9),
        "superstep": ColumnSpec("<i4", "number of the superstep that its code is for, as in the steps table"),
        "pattern": ColumnSpec("<i4", "its bytes tile by tile, as in code_tiles; -1 for none", -1, low=-1),
        "shift_tiles": ColumnSpec("<i4", "how many tiles further on than the pattern says they lie", low=-(1 << 31)),
    },
    since=9,
)
"""Supersteps of which each operation has code or state on tiles, in order of operations; equal ones share a pattern."""

CODE_TILES = Schema(
    "code_tiles",
    {
        "pattern": owner_column("number of the pattern, as in code_uses", since=9),
        "first_tile": ColumnSpec("<i4", "first of some neighbouring tiles that are alike", refers="tiles"),
        "num_tiles": ColumnSpec("<i4", "how many tiles these are", 1, low=1),
        "vertex_state": ColumnSpec("<i4", "bytes of records of vertices on each of these tiles"),
        "vertex_code": ColumnSpec("<i4", "bytes of codelets on each that were not there before"),
        "control_code": ColumnSpec("<i4", "bytes of control code on each"),
        "exchange_code": ColumnSpec("<i4", "bytes of exchange instructions on each"),
    },
    since=9,
)
"""Bytes of state and code by tile, in order of patterns and tiles."""

CODELETS = Schema(
    "codelets",
    {
        "name": text_column("name of the codelet"),
        "kind": text_column("vertex, multi or supervisor"),
        "file": text_column("source file of the codelet"),
        "line": ColumnSpec("<i4", "its line, 0 when unknown"),
        "code_bytes": count_column("bytes of its instructions on a tile"),
        "stack_bytes": count_column("bytes of stacks that a tile needs to run it"),
        "tiles": ColumnSpec("<i4", "tiles that have its code"),
    },
    since=7,
)
"""The codelets that vertices are of."""

VERTICES = Schema(
    "vertices",
    {
        "superstep": owner_column("row in the supersteps table", "supersteps", since=7),
        "codelet": row_column("codelets", "row in the codelets table"),
        "num_vertices": count_column("its vertices of that codelet"),
        "tiles": ColumnSpec("<i4", "tiles that they are on"),
        "state_bytes": count_column("bytes of their records over all tiles"),
        "cycles": count_column("cycles of all of them, each on its worker, or on all workers of its tile"),
        "max_cycles": count_column("cycles of the slowest one"),
        "slowest_tile": ColumnSpec("<i4", "a tile on which they take most cycles in all", refers="tiles"),
        "assumed": ColumnSpec("|b1", "whether their cycles are assumed because data decides", False),
        "file": _FILE,
        "line": _LINE,
    },
    since=7,
)
"""Vertices of each superstep by codelet, in order of supersteps."""

SUPERSTEP_VARIABLES = Schema(
    "superstep_variables",
    {
        "superstep": owner_column("row in the supersteps table", "supersteps", since=7),
        "variable": row_column("variables", "row in the variables table"),
        "read_bytes": count_column("distinct bytes of it that the superstep may read, 0 if it does not"),
        "written_bytes": count_column("distinct bytes of it that the superstep writes, 0 if it does not"),
    },
    since=7,
)
"""Variables that each superstep touches, in order of supersteps and variables."""
