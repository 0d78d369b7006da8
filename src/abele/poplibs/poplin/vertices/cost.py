"""Cycles of the library's hand-written vertices: closed forms over arrays of vertices.

Source of all: ``reference/machine.md`` §4 (poplibs' estimators in our own words), confidence S unless said otherwise.
Results are tile cycles; every formula spreads a vertex over the tile's workers.

The formulas are evaluated twice: by the planner, over the largest slice of every candidate split, and by the compiler,
over the real sizes of every vertex. They are the same functions on purpose: a plan can be off only by the difference
between the largest slice and the others, never by a second model of the hardware. Where a published formula and silicon
disagree, the formula here follows silicon and its docstring says so.
"""

from __future__ import annotations

import numpy as np

from abele.arrays import Int64
from abele.numerics import ElementType, f16, f32
from abele.poplibs.poplin.vertices.work import Work

WORKERS = 6
"""Worker contexts of a tile. Source: §1.2."""
OUT_GROUP = 16
"""Output channels of a group at most, and where a plan does not choose them. Source: §5.4."""
LEAST_OUT_GROUP = 8
"""Output channels of a group at least, also where a pass of the units writes fewer. Source: §5.4."""
_AMP_WEIGHT_BYTES = 32
"""Bytes of weights that a conv unit holds: 32 of 8 bits, 16 f16, 8 f32. Source: machine.md §1.3."""
_SHUFFLE = {1: 15, 2: 46, 4: 60}
"""Cycles to reorder the weights of one load by kernel rows packed into it. Source: §4.1."""


def ceil_div(a: Int64 | int, b: Int64 | int) -> Int64:
    """``a / b`` rounded up."""
    return np.asarray(-(-np.asarray(a) // b))


def weights_per_unit(dtype: ElementType) -> int:
    """In-channels that one pass of a conv unit sums: 32 for 8-bit floats, 16 for f16, 8 for f32."""
    return _AMP_WEIGHT_BYTES // dtype.bytes


def amp_1x1(work: Work, units: int, load_bytes: int, core_cycles: int = 0, *, out_group: int = OUT_GROUP) -> Int64:
    """Tile cycles of ConvPartial1x1Out: a matmul of positions by channels on the AMP units.

    Args:
        work: Slices without a kernel.
        units: Conv units that work together for these types.
        load_bytes: Bytes of weights loaded in a cycle.
        core_cycles: Cycles from one position to the next; by default those of Mk2.
        out_group: Out-channels of a group.

    Source: machine.md §4.2; measured minus formula +4 to +7 cycles for 32 to 2,048 rows (§4.0). One thing differs:
    there a sweep of two positions takes 41 or 42 slots and one of three 37 or 38. It starts the same pipeline and
    cannot end later, so it is given no more; silicon agrees where two workers have two positions (16 rows per tile).
    """
    if work.dtype.is_quarter:
        return amp_1x1_quarter(work, units, load_bytes)
    common = work.dtype == f16 and (units == 16 or work.partials == f32)
    c = 1 if common else 0
    ig, og = channel_groups(work, weights_per_unit(work.dtype), out_group)
    passes = _passes(work, units, out_group)
    load = units * _AMP_WEIGHT_BYTES // load_bytes
    core = core_cycles or _core_cycles(work.dtype)
    first = _inner_1x1(work, units, core, common=common, zeroing=True)
    later = _inner_1x1(work, units, core, common=common, zeroing=False)
    head = 50 + (6 * (7 + 3 * (ig * work.groups - 1)) if common else 0)
    accumulate = (ig - 1) * (16 - c + og * (19 + passes * (6 + load + later)))
    zero = 11 + og * (19 - c + passes * (7 + load + first))
    return np.asarray(head + work.groups * (12 + c + accumulate + zero), dtype=np.int64)


def _inner_1x1(work: Work, units: int, core: int, *, common: bool, zeroing: bool) -> Int64:
    """Cycles of all workers over their share of the rows, once. Source: §4.2."""
    most, least = ceil_div(work.positions, WORKERS), work.positions // WORKERS
    slots = [_worker_1x1(n, work, units, core, common=common, zeroing=zeroing) for n in (most, least)]
    return np.maximum(WORKERS * slots[0], WORKERS * slots[1] + 14)


def _worker_1x1(n: Int64, work: Work, units: int, core: int, *, common: bool, zeroing: bool) -> Int64:
    if common:
        short, many = ((21, 32, 37), 37) if zeroing else ((22, 33, 38), 38)
        return _by_length(n, short, many, 4) - 7
    if work.dtype == f32:
        slots = _by_length(n, *_filled((24, 47, 46), 46, core))
        per_row = 8 if units == 16 else 4
    else:
        slots = _by_length(n, (24, 39, 40), 41, 4)
        per_row = 4 if work.partials == f32 else 2
    return slots + (2 + per_row * n if zeroing else 0)


def amp_nx1(
    work: Work, units: int, load_bytes: int, core_cycles: int = 0, height: int = 1, *, out_group: int = OUT_GROUP
) -> Int64:
    """Tile cycles of ConvPartialnx1: a convolution on the AMP units, one kernel position after the other.

    Args:
        work: Slices.
        units: Conv units that work together for these types.
        load_bytes: Bytes of weights loaded in a cycle.
        core_cycles: Cycles from one position to the next; by default those of Mk2.
        height: Kernel rows that share one load of the weights, with as many fewer in-channels each.
        out_group: Out-channels of a group.

    Source: machine.md §4.1.
    """
    if work.dtype.is_quarter:
        return amp_nx1_quarter(work, units, load_bytes)
    half = work.partials == f16
    ig, og = channel_groups(work, weights_per_unit(work.dtype) // height, out_group)
    passes = _passes(work, units, out_group)
    load = units * _AMP_WEIGHT_BYTES // (8 if height == 4 else load_bytes)
    rows = ceil_div(work.kernel_outer, height)
    most, least = ceil_div(work.positions, WORKERS), work.positions // WORKERS
    core = core_cycles or _core_cycles(work.dtype)
    slots = [_worker_nx1(n, work, units, core) for n in (most, least)]
    sweep = np.maximum(WORKERS * slots[0], WORKERS * slots[1] + 9)
    per_position = 12 + passes * (load + _SHUFFLE.get(height, 20 * height) + 3 + sweep)
    inner = rows * (14 + work.kernel_inner * per_position)
    cg = work.groups
    body = cg * (16 + ig * (14 + og * (14 + inner)))
    setup = 109 + 6 * 9 + 6 * (10 if half else 9) + cg * (17 * og + 6 * (og - 1) + 1) + 6 * (cg - 1) + 1
    zeroed = ceil_div(ceil_div(work.outputs, WORKERS) * np.minimum(work.out_channels, out_group), 4 if half else 2)
    zeroing = WORKERS * (zeroed + 5) * cg * og
    return np.asarray(setup + body + zeroing, dtype=np.int64)


def _worker_nx1(n: Int64, work: Work, units: int, core: int) -> Int64:
    """Slots of a worker that sweeps ``n`` positions in as few rows as they make. Source: §4.1."""
    rows = np.maximum(ceil_div(n, np.maximum(work.run, 1)), 1)
    along = ceil_div(n, rows)
    if work.dtype == f32:
        slots = _by_length(along, *_filled((17, 33, 44), 45, core))
    else:
        extra = 1 if (units == 16) == (work.partials == f16) else 0
        slots = _by_length(along, (17, 29, 33 + extra), 34, 4)
    return 17 + (1 if work.partials == f16 else 0) + rows * (slots - 6)


_QUARTER_SWEEP = (4, 18, 23), 27, 4
"""Slots of a sweep of 8-bit positions: of none, one and two, of three, and of every further one. Source: §4.1, §4.2."""
_ZEROED = 5
"""Slots that a sweep of 8-bit positions saves where it need not read its target. Source: §4.2."""


def amp_1x1_quarter(work: Work, units: int, load_bytes: int) -> Int64:
    """Tile cycles of ConvPartial1x1Out of 8-bit floats: 32 in-channels and 16 out-channels for each pass.

    Source: machine.md §4.2 (quarter).
    """
    ig, og = channel_groups(work, weights_per_unit(work.dtype), units)
    load = units * _AMP_WEIGHT_BYTES // load_bytes
    most, least = ceil_div(work.positions, WORKERS), work.positions // WORKERS

    def sweep(saved: int) -> Int64:
        slots = [17 + _by_length(n, *_QUARTER_SWEEP) - saved * (n > 0) for n in (most, least)]
        return np.asarray(np.maximum(WORKERS * slots[0], WORKERS * slots[1]))

    first, later = 131 + load + sweep(_ZEROED), 108 + load + sweep(0)
    return np.asarray(46 + work.groups * (21 + og * (46 + first + (ig - 1) * later)), dtype=np.int64)


def amp_nx1_quarter(work: Work, units: int, load_bytes: int) -> Int64:
    """Tile cycles of ConvPartialnx1 of 8-bit floats. Source: machine.md §4.1 (quarter).

    Outputs are zeroed as for halves, which the source does not tell apart.
    """
    ig, og = channel_groups(work, weights_per_unit(work.dtype), units)
    load = units * _AMP_WEIGHT_BYTES // load_bytes
    most = ceil_div(work.positions, WORKERS)
    rows = np.maximum(ceil_div(most, np.maximum(work.run, 1)), 1)
    worker = 18 + rows * (16 + _by_length(ceil_div(most, rows), *_QUARTER_SWEEP))
    per_position = load + WORKERS * worker
    inner = work.kernel_outer * (33 + 103 + 86 * (work.kernel_inner - 1) + work.kernel_inner * per_position)
    body = 83 + work.groups * (37 + og * (58 + ig * (61 + inner)))
    zeroed = ceil_div(ceil_div(work.outputs, WORKERS) * np.minimum(work.out_channels, units), 4)
    return np.asarray(body + WORKERS * (zeroed + 5) * work.groups * og, dtype=np.int64)


def hmac(work: Work) -> Int64:
    """Tile cycles of ConvPartialHorizontalMac: dot products along the in-channels, without the AMP units.

    Where the source leaves a factor open (one or two slots per vector) it is taken as one for f16 partials, else two.
    Source: machine.md §4.4.
    """
    narrow = work.dtype == f16 and work.partials == f16
    width = 4 if work.dtype == f16 else 2
    overhead, sum_up = (2, 1) if narrow else (1, 0)
    vectors = ceil_div(work.in_channels, width)
    dot = 3 * overhead + sum_up + 4 + vectors * (1 if narrow else 2) - (1 if work.dtype == f16 else 0)
    most = ceil_div(work.positions, WORKERS)
    rows = np.maximum(ceil_div(most, np.maximum(work.run, 1)), 1)
    sweep = rows * 19 + most * (7 + work.out_channels * dot)
    taps = work.kernel_outer * work.kernel_inner
    inner = WORKERS * (16 - (6 if work.dtype == f16 else 0) + sweep)
    head = 65 if work.dtype == f16 else 58
    return np.asarray(head + work.groups * (23 + 15 + 10 + taps * inner), dtype=np.int64)


def outer_product(work: Work) -> Int64:
    """Tile cycles of OuterProduct: one in-channel, no kernel, workers share the positions.

    A position is a row of out-channels: long ones run as a pipelined loop over vectors, short ones element by element.
    Source: machine.md §4.6.
    """
    if work.dtype == f16:
        start, least, width, slow = 10, 12, 4, ceil_div(5 * work.out_channels, 2)
    else:
        start, least, width, slow = 11, 6, 2, 2 * work.out_channels
    fast = 6 + ceil_div(work.out_channels - least, width)
    per_row = np.where(work.out_channels >= least, fast, 10 + slow)
    rows = ceil_div(work.positions, WORKERS)
    return np.asarray(WORKERS * (25 + work.groups * (start + rows * per_row)), dtype=np.int64)


def _passes(work: Work, units: int, out_group: int) -> Int64:
    """Passes over the units in a group of out-channels; zeros fill up the smallest one. Source: machine.md §4.16."""
    return ceil_div(np.clip(work.out_channels, LEAST_OUT_GROUP, out_group), units)


def channel_groups(work: Work, in_group: int, out_group: int) -> tuple[Int64, Int64]:
    """Groups of ``in_group`` in-channels, and of as many out-channels as are swept together."""
    return ceil_div(work.in_channels, in_group), ceil_div(work.out_channels, out_group)


_POSITIONS_IN_FLIGHT = 3
"""Positions that enter the units before the first result leaves them. Source: machine.md §1.3."""


def _core_cycles(dtype: ElementType) -> int:
    """Cycles from one position to the next on Mk2. Source: machine.md §1.3."""
    return 8 if dtype == f32 else 4


def _filled(short: tuple[int, int, int], many: int, core: int) -> tuple[tuple[int, int, int], int, int]:
    """PL's slots of f32 sweeps, those of Mk2, for units of another time per position (Mk1: 4 cycles).

    Filling the units costs as much less as the positions in flight take less. Source: derived from machine.md §1.3.
    """
    less = _POSITIONS_IN_FLIGHT * (8 - core)
    return (short[0], short[1] - less, short[2] - less), many - less, core


def _by_length(n: Int64, short: tuple[int, int, int], many: int, step: int) -> Int64:
    """Slots of a sweep of ``n`` positions: a table below three, linear from there on."""
    table = np.array(short, dtype=np.int64)
    return np.where(n < 3, table[np.minimum(n, 2)], many + step * (n - 3))


def reduce_add(out_elements: Int64, depth: Int64 | int, partials: ElementType, output: ElementType) -> Int64:
    """Tile cycles of ReduceAdd: ``depth`` partials summed for each of ``out_elements``. Source: machine.md §4.6."""
    wide, narrow = partials == f32, output == f32
    extra = {(True, True): 8, (True, False): 7, (False, True): 10, (False, False): 9}[(wide, narrow)]
    loops = ceil_div(ceil_div(out_elements, 4 if wide else 8), WORKERS)
    return np.asarray(33 + WORKERS * (20 + (2 * np.asarray(depth) + extra) * loops), dtype=np.int64)


def reduce_add_list(out_elements: Int64, depth: Int64 | int, partials: ElementType, output: ElementType) -> Int64:
    """As :func:`reduce_add`, of partials that lie apart from each other, each where it is. Source: machine.md §4.6."""
    wide, narrow = partials == f32, output == f32
    width = 4 if wide else 8
    many, few = {(True, True): (7, 13), (True, False): (6, 13), (False, True): (9, 11), (False, False): (8, 11)}[
        (wide, narrow)
    ]
    whole, rest = np.asarray(out_elements) // width, np.asarray(out_elements) % width
    loops = whole + _set_bits(rest)
    full, left = loops // WORKERS, loops % WORKERS > 0
    slots = 32 + (3 * np.asarray(depth) + many) * full + (2 * np.asarray(depth) + few) * left
    return np.asarray(WORKERS * slots, dtype=np.int64)


def _set_bits(n: Int64) -> Int64:
    """Number of set bits of numbers below 8: pieces of 4, 2 and 1 in them."""
    return np.asarray((n & 1) + (n >> 1 & 1) + (n >> 2 & 1))


def cast(elements: Int64, source: ElementType, target: ElementType) -> Int64:
    """Tile cycles of converting ``elements``: the wider side's 64-bit accesses bound it. Source: machine.md §4.6."""
    per_access = 8 // max(source.bytes, target.bytes)
    return np.asarray(WORKERS * (ceil_div(ceil_div(elements, per_access), WORKERS) + 26), dtype=np.int64)


def cast_interleaved(elements: Int64, source: ElementType, target: ElementType) -> Int64:
    """Tile cycles of converting ``elements`` that lie in interleaved memory, where the matrix units leave partials.

    There, 128-bit loads bring four f32 at a time, and one slot converts and stores them. Plans are made with
    :func:`cast`, as PopLibs makes them; this is what the vertex takes.
    Source: machine.md §4.8 (Cast1D, f32 to f16: 4 elements in 2 slots, 1 from interleaved memory).
    """
    if source != f32 or target != f16:
        return cast(elements, source, target)
    share = ceil_div(elements, WORKERS)
    return np.asarray(12 + WORKERS * (18 + 19 + ceil_div(share, 4)), dtype=np.int64)


def permute(matrices: Int64, blocks: Int64, dtype: ElementType) -> Int64:
    """Tile cycles of turning matrices around, in ``blocks`` of 4×4 (f16) or 2×2 (f32), shared by the workers.

    A 4×4 block of f16 takes four 64-bit loads, four stores and the sorts beside them; a 2×2 block of f32 two of each.
    Source: derived from the data path (machine.md §1.1: one 64-bit load or store per slot), confidence D; supervisor 11
    cycles (§1.5), worker prologue as for other vertices (§1.5, 15 to 60 slots).
    """
    slots = 24 + 10 * ceil_div(matrices, WORKERS) + 2 * turned_side(dtype) * ceil_div(blocks, WORKERS)
    return np.asarray(11 + WORKERS * slots, dtype=np.int64)


def turned_side(dtype: ElementType) -> int:
    """Rows and columns of the blocks in which matrices are transposed: one access of the data path."""
    return 8 // dtype.bytes


def expand(elements: Int64, dtype: ElementType, *, turned: bool) -> Int64:
    """Tile cycles of writing out ``elements`` of windows, shared by the workers.

    Where neighbours stay neighbours, 8 bytes are loaded and stored in one slot; where they do not, blocks are turned
    around as in :func:`permute`, which takes as many loads as stores and nothing beside them.
    Source: derived from the data path (machine.md §1.1: ``ldst64pace``), confidence D; supervisor 11 cycles, worker
    prologue as for other vertices (§1.5).
    """
    side = 8 // dtype.bytes
    vectors = ceil_div(elements, side)
    slots = 24 + 10 + (2 if turned else 1) * ceil_div(vectors, WORKERS)
    return np.asarray(11 + WORKERS * slots, dtype=np.int64)


def widen(values: Int64, elements: Int64, dtype: ElementType) -> Int64:
    """Tile cycles of writing ``elements`` zeros, and ``values`` single values among them, shared by the workers.

    Zeros go out 8 bytes per slot; a value takes a load, and a load and a store of the word that it shares with a zero.
    Source: derived from the data path (machine.md §1.1), confidence D; supervisor 11 cycles, worker prologue (§1.5).
    """
    slots = 24 + ceil_div(ceil_div(elements, 8 // dtype.bytes), WORKERS) + 3 * ceil_div(values, WORKERS)
    return np.asarray(11 + WORKERS * slots, dtype=np.int64)
