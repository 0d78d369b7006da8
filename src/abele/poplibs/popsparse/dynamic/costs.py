"""Cycles of the vertices of dynamic sparse products.

Arguments are numbers or arrays of equal shape; results are cycles of one vertex. ``half`` is True for f16 elements.

Example: a worker with 10 rows of 4 values and 8 dense columns takes 28 + 10 · (15 + 3 · 4) = 298 of its own cycles in
f16; six of them side by side take 6 · 298, and the supervisor's besides.

Source: popsparse.md §5, from the estimates of PopLibs' codelets.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from abele.arrays import Float64

WORKERS = 6
"""Worker contexts of a tile. Source: machine.md; every estimate multiplies by it."""

Numbers = npt.ArrayLike


def _f(value: Numbers) -> Float64:
    return np.asarray(value, np.float64)


def _ceil(a: Numbers, b: Numbers = 1) -> Float64:
    return np.ceil(_f(a) / _f(b) - 1e-9)


@dataclass(frozen=True)
class VertexWork:
    """Rows, values and columns of one vertex.

    Attributes:
        rows: Rows with values, of each relevant bucket: workers start anew in each.
        values: Values (blocks) of a row.
        columns: Dense columns.
        buckets: Buckets that the vertex is given.
        relevant: Buckets among them with a sub-group for this tile.
        sub_groups: Sub-groups of a bucket.
    """

    rows: Numbers
    values: Numbers
    columns: Numbers
    buckets: Numbers
    relevant: Numbers
    sub_groups: Numbers = 1


def element_forward_worker(rows: Numbers, values: Numbers, columns: Numbers, half: bool) -> Float64:
    """Cycles of one worker of the product by elements."""
    x, y, z = _f(rows), _f(values), _f(columns)
    if half:
        r = z % 4
        tail = np.where(z >= 8, 16 + 3 * y * (z // 8), 0) + np.where(z % 8 >= 4, 13 + 2 * y, 0)
        tail = tail + np.where(r > 0, 11 + 2 * y * r, 0)
        return _by_columns(z, x, {8: (28, 15, 3 * y), 4: (30, 11, 2 * y)}, (33, 12, tail))
    tail = np.where(z >= 4, 12 + 3 * y * (z // 4), 0) + np.where(z % 4 >= 2, 8 + 2 * y * (z // 2), 0)
    tail = tail + np.where(z % 2 == 1, 8 + 2 * y, 0) + np.where(z % 4 > 0, 3, 1)
    return _by_columns(z, x, {4: (25, 13, 3 * y), 2: (27, 11, 2 * y)}, (30, 13, tail))


def element_grad_a_worker(rows: Numbers, values: Numbers, columns: Numbers, half: bool) -> Float64:
    """Cycles of one worker of the transposed product with a list of its own."""
    x, y, z = _f(rows), _f(values), _f(columns)
    if half:
        tail = np.where(z >= 8, 14 + 3 * y * (z // 8), 0) + np.where(z % 8 >= 4, 13 + 2 * y, 0)
        tail = tail + np.where(z % 4 > 0, 10 + 2 * y * (z % 4), 0)
        return _by_columns(z, x, {8: (26, 15, 3 * y), 4: (28, 11, 2 * y)}, (32, 11, tail))
    tail = np.where(z >= 4, 8 + 3 * y * (z // 4), 0) + np.where(z % 4 >= 2, 8 + 2 * y * (z // 2), 0)
    tail = tail + np.where(z % 2 == 1, 8 + 2 * y, 0)
    return _by_columns(z, x, {4: (23, 10, 3 * y), 2: (25, 8, 2 * y)}, (33, 8, tail))


def element_transposed_worker(rows: Numbers, values: Numbers, columns: Numbers, half: bool) -> Float64:
    """Cycles of one worker of the transposed product on the forward list; each takes a sixth of a row's values."""
    x, y, z = _f(rows), _ceil(values, WORKERS), _f(columns)
    if half:
        tail = 8 + (2 + 5 * (z // 4)) * y + (5 + 3 * (z % 4)) * y * (z % 4 > 0)
        return _by_columns(z, x, {8: (20, 18, 10 * y), 4: (20, 21, 7 * y)}, (26, 22, tail))
    tail = 8 + (2 + 3 * (z // 2)) * y + 4 * y * (z % 2 == 1)
    return np.asarray(23 + x * (24 + tail))


def element_grad_w_worker(rows: Numbers, values: Numbers, columns: Numbers, half: bool) -> Float64:
    """Cycles of one worker of the gradient of the values."""
    x, y, z = _f(rows), _f(values), _f(columns)
    if half:
        tail = y * (11 + z // 4 + 3 * (z % 4 >= 2) + 4 * (z % 2 == 1))
        return _by_columns(z, x, {8: (30, 11, 5 * y), 4: (32, 10, 4 * y)}, (35, 8, tail))
    tail = y * (9 + z // 2 + (z % 2 == 1))
    return _by_columns(z, x, {4: (30, 9, 5 * y), 2: (32, 7, 4 * y)}, (34, 9, tail))


def _by_columns(
    z: Float64,
    rows: Float64,
    special: dict[int, tuple[int, int, Float64]],
    general: tuple[int, int, Float64],
) -> Float64:
    """Once per worker, once per row, and the rest of a row, by the number of columns."""
    cycles = general[0] + rows * (general[1] + general[2])
    for columns, (once, by_row, inner) in special.items():
        cycles = np.where(z == columns, once + rows * (by_row + inner), cycles)
    return cycles


_FURTHER_GROUPS = {"forward": ((8, 16), (4, 12)), "own": ((8, 14), (4, 8))}
"""Dense columns that accumulators hold, and cycles of beginning with others: in f16 and f32, by vertex."""


def further_groups_worker(kind: str, rows: Numbers, columns: Numbers, half: bool) -> Float64:
    """Cycles of a worker's rows that PopLibs' estimates leave out.

    A worker walks a row's values anew for every group of columns that its accumulators hold, and each walk begins with
    partials and ends with them. The estimates have that once for a row, where those of static products, which are the
    same loop (popsparse.md §6), have it for each group.
    """
    if kind not in _FURTHER_GROUPS:
        return np.zeros(np.broadcast_shapes(np.shape(rows), np.shape(columns)))
    held, start = _FURTHER_GROUPS[kind][0 if half else 1]
    return _f(rows) * start * np.maximum(_f(columns) // held - 1, 0)


_ELEMENT_WORKERS = {
    "forward": element_forward_worker,
    "own": element_grad_a_worker,
    "transposed": element_transposed_worker,
    "grad_w": element_grad_w_worker,
}


def element_cycles(kind: str, work: VertexWork, half: bool) -> Float64:
    """Cycles of a vertex by elements: ``forward``, ``own``, ``transposed`` or ``grad_w``.

    Rows are spread over the workers, or columns where there are few rows; the cheaper of 6, 3, 2 and 1 parts of rows.
    """
    worker = _ELEMENT_WORKERS[kind]
    grain = 4 if half else 2
    if kind == "transposed":  # every worker walks all rows
        longest = worker(work.rows, work.values, work.columns, half)
    else:
        ways = (WORKERS,) if kind == "grad_w" else (6, 3, 2, 1)
        parts = [(_ceil(work.rows, n), _ceil(work.columns, grain * (WORKERS // n)) * grain) for n in ways]
        longest = np.minimum.reduce(
            [worker(x, work.values, z, half) + further_groups_worker(kind, x, z, half) for x, z in parts]
        )
    return longest * WORKERS * _f(work.relevant) + supervisor_cycles(kind, work)


def supervisor_cycles(kind: str, work: VertexWork) -> Float64:
    """Cycles of the walk over buckets to the sub-groups that matter here."""
    groups, relevant = _f(work.sub_groups), _f(work.relevant)
    half_way = (groups - 1) / 2 + 1
    if kind == "grad_w":
        return 75 + 26 * relevant * half_way
    skipped = (_f(work.buckets) - relevant) * groups
    if kind == "block":
        return 40 + 33 * skipped + relevant * (46 * half_way + 56)
    step, found = {"forward": (47, 46), "own": (46, 46), "transposed": (44, 68)}[kind]
    return 30 + 32 * skipped + relevant * (step * half_way + found)


_BLOCK_FORWARD = {  # edge: cycles per column, once per worker, and per block with 1, 2, 3 and more columns
    "half_float": {4: (2, 26, (17, 18, 19)), 8: (4, 20, (22, 23, 23)), 16: (4, 22, (22, 25, 25))},
    "half_half": {4: (2, 26, (15, 16, 17)), 8: (4, 23, (19, 20, 20)), 16: (4, 22, (22, 25, 25))},
    "float": {4: (4, 26, (14, 14, 14)), 8: (8, 23, (22, 23, 23))},
}


def block_forward_cycles(work: VertexWork, edge: int, half: bool, half_partials: bool = False) -> Float64:
    """Cycles of a vertex of square blocks on the matrix units; columns are spread over the workers."""
    kind = "float" if not half else "half_half" if half_partials else "half_float"
    return _block_forward(work, edge, kind, edge * edge / (4 if half else 2), 2 if edge == 16 else 1)


def quarter_forward_cycles(work: VertexWork, edge: int) -> Float64:
    """The same of 8-bit floats: two blocks of a row at once, which fill what one block of halves does.

    The units work 16 at a time for them, so weights are loaded once. Source: derived; low_precision.md §1.3 has the
    rate of the units, and PopLibs has no such vertex.
    """
    pairs = replace(work, values=_ceil(work.values, 2))
    return _block_forward(pairs, edge, "half_half", edge * edge * 2 / 8, 1)


def _block_forward(work: VertexWork, edge: int, kind: str, load: float, loads: int) -> Float64:
    """Cycles of a vertex whose weights take ``load`` cycles and are loaded in ``loads`` parts."""
    x, y, z = _f(work.rows), _f(work.values), _ceil(work.columns, WORKERS)
    by_column, once, by_block = _BLOCK_FORWARD[kind][edge]
    start = np.select([z <= 1, z == 2], by_block[:2], by_block[2])
    worker = once + x * y * loads * (start + z * by_column)
    loading = x * y * (load + 3 + 12 * loads) + 2
    return (worker * WORKERS + loading) * _f(work.relevant) + supervisor_cycles("block", work)


_BLOCK_GRAD_W = {  # edge: per block, per column, once per worker; half partials in "half_half"
    "float": {4: (45, 12, 26), 8: (208, 48, 7)},
    "half_float": {4: (33, 6, 27), 8: (113, 24, 27), 16: (505, 96, 27)},
    "half_half": {4: (29, 6, 27), 8: (113, 24, 27), 16: (441, 96, 27)},
}


def block_grad_w_cycles(work: VertexWork, edge: int, half: bool, half_partials: bool = False) -> Float64:
    """Cycles of a vertex of the gradient of blocks, with vector arithmetic."""
    kind = "float" if not half else "half_half" if half_partials else "half_float"
    by_block, by_column, once = _BLOCK_GRAD_W[kind][edge]
    x, y, z = _ceil(work.rows, WORKERS), _f(work.values), _f(work.columns)
    worker = once + x * (9 + y * (by_block + z * by_column))
    return worker * WORKERS + supervisor_cycles("grad_w", work)


_AMP_GRAD_W = {  # edge: first load's cycles, what later ones save
    "float": {4: (20, 1), 8: (33, 2)},
    "half_float": {4: (17, 2), 8: (27, 4), 16: (32, 4)},
    "half_half": {4: (15, 1), 8: (27, 4), 16: (32, 4)},
}
_AMP_LOAD = {4: 8, 8: 16, 16: 32}


def amp_grad_w_cycles(work: VertexWork, edge: int, half: bool, half_partials: bool = False) -> Float64:
    """Cycles of a vertex of the gradient of blocks on the matrix units, and of the transposes before it."""
    kind = "float" if not half else "half_half" if half_partials else "half_float"
    first, saved = _AMP_GRAD_W[kind][edge]
    x, y, q = _f(work.rows), _f(work.values), _ceil(work.columns, 16 if half else 8)
    worker = 5 + _ceil(x, WORKERS) * y * (first * q - (q - 1) * saved)
    loading = 23 + 8 * (x - 1) + x * (32 + 10 * (y - 1) + y * (15 + 4 * (q - 1) + q * (8 + _AMP_LOAD[edge])))
    transposes = transpose_cycles(x * y, edge, half, q)
    return worker * WORKERS + supervisor_cycles("grad_w", work) + loading + transposes


def transpose_cycles(blocks: Numbers, edge: int, half: bool, strips: Numbers | None = None) -> Float64:
    """Cycles of transposing blocks, ``strips`` in each: of 4 rows in f16 or 2 in f32, where nothing else is said."""
    high = 4 if half else 2
    q = _f(edge / high if strips is None else strips)
    strip = 3 + edge / high * (23 if half else 12)
    return 18 + WORKERS * (34 + _ceil(blocks, WORKERS) * (3 + q * strip))


def general_block_cycles(work: VertexWork, block: tuple[int, int], half: bool) -> Float64:
    """Cycles of blocks without a fast vertex: as many rows of single elements."""
    rows, values = _f(work.rows) * block[0], _f(work.values) * block[1]
    wide = VertexWork(rows, values, work.columns, work.buckets, work.relevant, work.sub_groups)
    return element_cycles("forward", wide, half)


def zero_cycles(size_bytes: Numbers) -> Float64:
    """Cycles of setting partials to zero, 8 bytes of a worker at a time."""
    return WORKERS * (12 + _ceil(_ceil(size_bytes, 8), WORKERS))


def cast_cycles(elements: Numbers, read_bytes: int, written_bytes: int) -> Float64:
    """Cycles of a cast; the longer of its loads and stores of 8 bytes."""
    each = _ceil(elements, WORKERS)
    return WORKERS * (26 + np.maximum(_ceil(each * read_bytes, 8), _ceil(each * written_bytes, 8)))


def reduce_cycles(outputs: Numbers, factor: Numbers, half: bool) -> Float64:
    """Cycles of adding ``factor`` partials for each output; half partials go eight at a time, floats four."""
    loops = _ceil(_ceil(outputs, 8 if half else 4), WORKERS)
    return WORKERS * (32 + (3 * _f(factor) + 7) * loops)


BUFFER_INDEX_CYCLES = 6 * WORKERS
"""Cycles of turning to the other buffer. Source: popsparse.md §5."""

FLAG_CYCLES = 8 * WORKERS
"""Cycles of reading a flag of the overflow info. Source: popsparse.md §5."""
