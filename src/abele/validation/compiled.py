"""Published programs that hold compiled code.

The totals of factorisations and solves have some 16 KB on every tile that runs a vertex: 17.4 KB for one 16 x 16
Cholesky, twice that for two side by side, and 1.05 MB for a solve whose 64 rows are masked where they lie. Whether
elements have 2 or 4 bytes hardly changes them, and no other kind of operator has such bytes: their tool compiles
codelets, which the others leave out. So a tile with vertices is counted with what a compiled program takes there; code
of vertices and of control and stacks are in it.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from abele.machine.source import Cited, calibrated
from abele.report import Memory

TOOLS = frozenset({"cholesky", "matrix_solver"})
"""Kinds of operators whose published totals hold compiled code."""
TILE_BYTES = 15_964
"""Bytes of a compiled program on each tile that runs vertices. Calibrated on one 16 x 16 Cholesky on GC2: the
totals less the matrix, its factor and the vertex are 15,584 B in f32 and 16,344 B in f16; their mean.
"""


def calibrations() -> Iterator[tuple[str, Cited]]:
    """Calibrated numbers by name."""
    row = "cholesky_batch_1_dim_16_block_16"
    text = "totals less the matrix, its factor and the vertex, 15,584 B in f32 and 16,344 B in f16; their mean"
    on = tuple(
        f"memory: {row}_lower_{lower}_type_{dtype}, {chip}"
        for lower, dtype in (("false", "float"), ("false", "half"), ("true", "half"))
        for chip in ("gc2", "gc200")
    )
    yield "validation.compiled.TILE_BYTES", calibrated(TILE_BYTES, text, on=on)


def compiled_bytes(kind: str, memory: Memory) -> int:
    """Bytes over all tiles of the compiled program of an operator; 0 where published totals hold none."""
    if kind not in TOOLS:
        return 0
    runs_vertices = memory.run_bytes[memory.categories.index("vertex_code")] > 0
    return TILE_BYTES * int(np.asarray(memory.run_tiles)[runs_vertices].sum())
