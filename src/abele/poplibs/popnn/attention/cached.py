"""Attention of one query for each sequence over a paged cache, whose rows stay on their tiles.

Rows of the cache times kv heads are spread over the tiles. Which sequence a page belongs to is data, while exchange is
fixed when a program is compiled; so every tile answers for its own rows to all sequences:

1. :func:`page_places` turns the table of pages round: for each sequence and page of the cache the position of the
   page's first row, or -1. All layers of a step share it, and a tile receives a word per sequence and page of its own.
2. Queries are sent to the tiles of their kv head. A tile makes scores of its rows, minus infinity for rows that a
   sequence does not see, powers relative to the largest, and mixed values: records (largest, sum, columns).
3. Records are combined over the tiles, at most 16 at a time.

Pages that several sequences own (a common prefix) are rows that several queries read: nothing is copied for them.

Example: 4,096 rows of 8 kv heads of width 64 on 1,472 tiles: 184 parts of 23 rows for each head. With 32 query heads
of 8 sequences, each tile receives 4 KB of queries in f16, reads 5.8 KB of the cache, and sends 8 KB of records.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from abele.arrays import Int64
from abele.errors import TensorError, TypeMismatchError
from abele.graph import Execute, Graph, Regions, Tensor, TileMapping, boxes
from abele.graph.program import Sequence, Steps
from abele.numerics import ElementType, f16, f32, i32
from abele.poplibs.popnn.attention import codelets
from abele.poplibs.popnn.attention.host import host_attention, host_places
from abele.poplibs.popnn.attention.view import CacheView
from abele.poplibs.popops.elementwise.fill import fill
from abele.poplibs.popops.slicing.multi_layout import create_blocked, own_entries
from abele.poplibs.popops.slicing.plan import SlicePlan, part_range
from abele.poplibs.poputil.host_body import note_host
from abele.poplibs.poputil.mapping import set_mapping

Shape = tuple[int, ...]
MOST_RECORDS = 16
"""Records that one vertex combines. Chosen: a tile receives few messages, and two rounds are enough for 256 parts."""
LEAST_COLUMNS = 8
"""Columns of a record at least, so that largest and sum are a small part of it. Chosen."""


def cache_plan(graph: Graph, dtype: ElementType, rows: int, heads: int, width: int) -> SlicePlan:
    """Parts of rows and kv heads of a table [rows, heads · width] on the tiles; as tables of look-ups have them."""
    entries = max(1, min(rows, graph.num_tiles // heads)) if rows else 1
    size = -(-rows // entries) if rows else 1
    return SlicePlan(dtype, rows, heads * width, 1, entry_split=max(-(-rows // size), 1), column_split=heads)


def create_cache(graph: Graph, dtype: ElementType, shape: Shape, name: str = "cache") -> Tensor:
    """A new table [rows, kv heads, width] of keys or values: each tile has some rows of one head.

    Raises:
        TensorError: The shape has not three dimensions.
    """
    if len(shape) != 3:
        raise TensorError(f"{name}: a cache is [rows, kv heads, width], not {list(shape)}")
    rows, heads, width = shape
    plan = cache_plan(graph, dtype, rows, heads, width) if min(shape) else None
    if plan is None or plan.tiles > graph.num_tiles:
        return graph.map_linear(graph.variable(dtype, shape, name=name))
    return create_blocked(graph, dtype, plan, rows, own_entries(plan, plan.parts), name).reshape(shape)


@dataclass(frozen=True)
class _CacheCut:
    """Rows and kv head of each vertex, int64[n], and its tile.

    Attributes:
        head: Kv head.
        part: Number of its part of the rows.
        first: Its first row.
        rows: Its rows.
        tile: Its tile.
        parts: Parts of the rows.
    """

    head: Int64
    part: Int64
    first: Int64
    rows: Int64
    tile: Int64
    parts: int

    @classmethod
    def of(cls, graph: Graph, keys: Tensor) -> _CacheCut:
        rows, heads, width = keys.shape
        plan = cache_plan(graph, keys.dtype, rows, heads, width)
        entry, head = (i.reshape(-1) for i in np.indices((plan.entry_split, heads)))
        first, count = part_range(rows, plan.entry_split, entry)
        tile = (entry * heads + head) % graph.num_tiles
        return cls(head, entry, first, count, tile, plan.entry_split)


def page_places(
    graph: Graph, table: Tensor, first: Tensor, prog: Steps, *, pages: int, page: int, name: str = "page_places"
) -> Tensor:
    """Position of each page's first row in each sequence, i32[batch, pages]; -1 where no query sees it.

    A page stands once among those that a sequence sees.

    Args:
        graph: Graph in which vertices and the result are made.
        table: Pages of each sequence, i32[batch, pages of a sequence]; others than those of the cache are not there.
        first: Position of each sequence's query, i32[batch].
        prog: Sequence that the steps are appended to.
        pages: Pages of the cache.
        page: Rows of each.
        name: Name of the steps.
    """
    batch, tiles = table.shape[0], graph.num_tiles
    out = graph.variable(i32, (batch, pages), name=f"{name}/out")
    if not out.size:
        return graph.map(out, 0)
    parts = max(1, min(pages, tiles // batch))
    sequence, part = (i.reshape(-1) for i in np.indices((batch, parts)))
    begin, count = part_range(pages, parts, part)
    kept = count > 0
    sequence, begin, count = sequence[kept], begin[kept], count[kept]
    tile = np.arange(len(begin)) * tiles // max(len(begin), tiles)
    set_mapping(graph, out, TileMapping(out.size, sequence * pages + begin, tile.astype(np.int32)))
    call = graph.library_call(
        prog, "popnn.page_places", inputs=(table, first), outputs=(out,), kernel=None, debug_name=name
    )
    with call as body:
        fill(graph, out, body, -1)
        if table.shape[1]:
            step, one = graph.compute_set("places"), np.ones_like(begin)
            step.vertices(
                codelets.places_codelet(),
                tile=tile,
                table=boxes(table, np.stack([sequence, 0 * one], 1), np.stack([one, one * table.shape[1]], 1)),
                first=boxes(first, sequence[:, None], one[:, None]),
                places=boxes(out, np.stack([sequence, begin], 1), np.stack([one, count], 1)),
                page=begin,
                rows=page,
            )
            body.add(Execute(step))
    note_host(prog, host_places(graph, table, first, out, page=page, name=name))
    return out


def cached_attention(
    graph: Graph,
    q: Tensor,
    cache: tuple[Tensor, Tensor],
    pages: tuple[Tensor, Tensor, Tensor],
    view: CacheView,
    prog: Steps,
    *,
    name: str = "cached_attention",
) -> Tensor:
    """Mixed values of one query for each sequence and head, [batch, heads, width of values].

    Args:
        graph: Graph in which vertices and the result are made.
        q: Queries [batch, heads, width], f16 or f32; heads are a multiple of kv heads.
        cache: Keys [rows, kv heads, width] and values [rows, kv heads, width of values], as :func:`create_cache` lays
            them out; others are moved.
        pages: Table of pages i32[batch, pages], positions of queries i32[batch], and what :func:`page_places` makes of
            both.
        view: Page, scale, window and cap.
        prog: Sequence that the steps are appended to.
        name: Name of the steps.

    Raises:
        TensorError: Shapes that do not fit each other.
        TypeMismatchError: Operands that are not all f16 or all f32.

    Model: a superstep each for rows that are seen, scores, shares and mixed values, and for each round of combination.
    """
    keys, values = cache
    table, first, places = pages
    _check(q, keys, values, pages, view, name)
    out = graph.variable(q.dtype, (*q.shape[:2], values.shape[2]), name=f"{name}/out")
    graph.map_linear(out)
    if not out.size:
        return out
    call = graph.library_call(
        prog,
        "popnn.cached_attention",
        inputs=(q, keys, values, table, first, places),
        outputs=(out,),
        kernel=None,
        flops=2 * q.shape[1] * keys.shape[0] * (keys.shape[2] + values.shape[2]),
        debug_name=name,
    )
    with call as body:
        _emit(graph, body, q, cache, (first, places), view, out=out, name=name)
    note_host(prog, host_attention(graph, q, cache, (table, first), view, out, name=name))
    return out


def _check(
    q: Tensor, keys: Tensor, values: Tensor, pages: tuple[Tensor, Tensor, Tensor], view: CacheView, name: str
) -> None:
    fits = q.ndim == 3 and keys.ndim == 3 and values.ndim == 3 and keys.shape[:2] == values.shape[:2]
    if not fits or q.shape[2] != keys.shape[2] or not keys.shape[1] or q.shape[1] % keys.shape[1] or not keys.size:
        raise TensorError(f"{name}: queries {q!r} do not fit keys {keys!r} and values {values!r}")
    if not (q.dtype == keys.dtype == values.dtype and q.dtype in (f16, f32)):
        raise TypeMismatchError(f"{name}: {q!r}, {keys!r} and {values!r} are not all f16 or all f32")
    table, first, places = pages
    batch, count = q.shape[0], keys.shape[0] // view.page
    shapes = table.ndim == 2 and table.shape[0] == batch and first.shape == (batch,) and places.shape == (batch, count)
    if not shapes or keys.shape[0] % view.page:
        raise TensorError(
            f"{name}: table {table!r}, positions {first!r} and places {places!r} do not fit {keys.shape[0]:,} rows in "
            f"pages of {view.page}"
        )


def _emit(
    graph: Graph,
    body: Sequence,
    q: Tensor,
    cache: tuple[Tensor, Tensor],
    pages: tuple[Tensor, Tensor],
    view: CacheView,
    *,
    out: Tensor,
    name: str,
) -> None:
    (keys, values), (first, places) = cache, pages
    batch, heads, width = q.shape
    shared, depth = keys.shape[1], values.shape[2]
    group, cut = heads // shared, _CacheCut.of(graph, keys)
    queries, chunk = batch * group, _columns(graph, batch * heads * -(-cut.parts // MOST_RECORDS), depth)
    one = np.ones_like(cut.first)

    def variable(what: str, each: int | Int64, dtype: ElementType = f32) -> tuple[Tensor, Regions]:
        """A variable with ``each`` elements on the tile of each vertex, in their order."""
        size = np.broadcast_to(np.asarray(each, np.int64), cut.tile.shape)
        begin = np.cumsum(size) - size
        made = graph.variable(dtype, (int(size.sum()),), name=f"{name}/{what}")
        set_mapping(graph, made, TileMapping(made.size, begin, cut.tile.astype(np.int32)))
        return made, boxes(made, begin[:, None], size[:, None])

    def of_rows(table: Tensor) -> Regions:
        turned, whole = table.transpose((1, 0, 2)), table.shape[2]
        return boxes(turned, np.stack([cut.head, cut.first, 0 * one], 1), np.stack([one, cut.rows, one * whole], 1))

    _, scores = variable("scores", cut.rows * queries)
    _, stats = variable("stats", 2 * queries)
    records, own = variable("records", queries * (depth // chunk) * (chunk + 2))
    by_head = q.reshape((batch, shared, group, width)).transpose((1, 0, 2, 3))
    page, last = cut.first // view.page, (cut.first + cut.rows - 1) // view.page
    _, seen = variable("seen", batch * (1 + 2 * (last - page + 1)), i32)
    of_query = np.stack([cut.head, 0 * one, 0 * one, 0 * one], 1), np.array([1, batch, group, width])
    step = graph.compute_set("seen")
    step.vertices(
        codelets.seen_codelet(view.page, view.window),
        tile=cut.tile,
        places=boxes(places, np.stack([0 * one, page], 1), np.stack([one * batch, last - page + 1], 1)),
        first=boxes(first, 0 * one[:, None], one[:, None] * batch),
        seen=seen,
        row=cut.first,
        rows=cut.rows,
    )
    body.add(Execute(step))
    step = graph.compute_set("scores")
    step.vertices(
        codelets.scores_codelet(keys.dtype, width, view.page, view.softcap),
        tile=cut.tile,
        q=boxes(by_head, of_query[0], np.broadcast_to(of_query[1], of_query[0].shape)),
        keys=of_rows(keys),
        seen=seen,
        scores=scores,
        batch=batch,
        group=group,
        scale=view.scale,
    )
    body.add(Execute(step))
    step = graph.compute_set("shares")
    most = int((last - page).max()) + 1, int(cut.rows.max())
    strip = _strip(graph, values.dtype, chunk, group * (depth // chunk), batch, pages=most[0], rows=most[1])
    here: dict[str, Any] = {"tile": cut.tile, "seen": seen, "stats": stats, "group": group}
    step.vertices(codelets.shares_codelet(), scores=scores, **here)
    body.add(Execute(step))
    step = graph.compute_set("mix")
    step.vertices(
        codelets.mix_codelet(values.dtype, depth, chunk, strip),
        shares=scores,
        values=of_rows(values),
        records=own,
        **here,
    )
    body.add(Execute(step))
    # Vertices are numbered by part, then by head.
    by_part = records.reshape((cut.parts, shared, batch, group, depth // chunk, chunk + 2))
    rows = by_part.transpose((2, 1, 3, 4, 0, 5)).reshape((batch * heads * (depth // chunk), cut.parts, chunk + 2))
    _combine(graph, body, rows, out.reshape((rows.shape[0], chunk)), name)


def _columns(graph: Graph, vertices: int, depth: int) -> int:
    """Columns of a record: a divisor of the width, as few as keep all tiles busy with combining whole ones."""
    wanted = min(max(-(-vertices * depth // graph.num_tiles), LEAST_COLUMNS), depth)
    return next(n for n in range(wanted, depth + 1) if depth % n == 0)


def _strip(graph: Graph, dtype: ElementType, chunk: int, own: int, batch: int, *, pages: int, rows: int) -> int:
    """Columns that a worker mixes at a time, of records of ``chunk``: those that take the fewest slots.

    Args:
        graph: Graph whose tiles are used.
        dtype: Type of values.
        chunk: Columns of a record.
        own: Records of a sequence on each tile.
        batch: Sequences.
        pages: Pages of a tile.
        rows: Rows of a tile.
    """
    workers, least = graph.system.ipu.num_workers, min(codelets.MIX[dtype][0], chunk)
    strips = [n for n in range(least, chunk + 1) if chunk % n == 0]

    def slots(strip: int) -> int:
        return int(codelets.mix_slots(dtype, (chunk, strip), own * batch, own, pages, rows=rows, workers=workers))

    return min(strips, key=slots)


def _combine(graph: Graph, body: Sequence, records: Tensor, out: Tensor, name: str) -> None:
    """Append rounds that leave mixed values [outputs, columns] of records [outputs, parts, 2 + columns]."""
    outputs, parts, size = records.shape
    while True:
        groups = -(-parts // MOST_RECORDS)
        output, group = (i.reshape(-1) for i in np.indices((outputs, groups)))
        begin, count = part_range(parts, groups, group)
        kept = count > 0
        output, group, begin, count = output[kept], group[kept], begin[kept], count[kept]
        groups = int(group.max()) + 1
        tile = np.arange(len(output)) * graph.num_tiles // max(len(output), graph.num_tiles)
        one, is_last = np.ones_like(output), groups == 1
        step = graph.compute_set("combine")
        if is_last:
            made = out
            to = boxes(made, np.stack([output, 0 * one], 1), np.stack([one, one * (size - 2)], 1))
        else:
            made = graph.variable(f32, (outputs, groups, size), name=f"{name}/combined")
            set_mapping(graph, made, TileMapping(made.size, np.arange(len(output)) * size, tile.astype(np.int32)))
            to = boxes(made, np.stack([output, group, 0 * one], 1), np.stack([one, one, one * size], 1))
        step.vertices(
            codelets.combine_codelet(size - 2, out.dtype if is_last else None),
            tile=tile,
            records=boxes(records, np.stack([output, begin, 0 * one], 1), np.stack([one, count, one * size], 1)),
            out=to,
        )
        body.add(Execute(step))
        if is_last:
            return
        records, parts = made, groups
