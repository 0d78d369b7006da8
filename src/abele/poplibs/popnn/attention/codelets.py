"""Vertices of attention over a cache that stays on its tiles.

A tile has some rows of one kv head. Five vertices follow each other: which rows each sequence sees, scores of these,
shares of these relative to the tile's own maximum, mixed values, and the combination of what tiles found.

Costs are those of hand-written loops for what each needs: `f16v4cmac` and `f32v2axpy` beside 64-bit loads for scores,
products of four halves and sums of eight for mixed values (machine reference §1.3). Of the rows of a tile each is
taken to belong to one sequence; rows that sequences share cost more than is charged.
"""

# Bodies and annotations are in the vertex language, whose own compiler checks their types.
# mypy: ignore-errors

from __future__ import annotations

import math
from functools import cache
from typing import Any

import numpy as np

from abele.arrays import Int64
from abele.codelet import InOut, Input, MultiVertex, Output, Vector, codelet, exp, tanh
from abele.machine import Ipu
from abele.numerics import ElementType, f16, f32, i32
from abele.poplibs.poplin.linalg.costs import ADD, DIVIDE, ENTRY, LOOP, MULTIPLY, SUPERVISOR_CYCLES, LoopCosts

HIDDEN = -math.inf
"""Score of a row that a query does not see."""
EXP = 3
"""Slots of a power of e. Source: machine reference §1.3, 6 cycles for two elements of f32."""
TANH = 6
"""Source: §1.3, 12 cycles for two elements of f32."""
LOAD = 1
COMPARE = 2
"""A comparison and its branch. Source: §1.2, one instruction each."""
OWNER = LOAD + COMPARE + LOOP + 14
"""Slots for which rows of a page on the tile a sequence sees: four bounds, each a sum and the nearer of two."""
SEEN = 2 * LOAD + ADD + COMPARE + LOOP
"""Slots for those rows, where they are known: two numbers, and a loop that may be empty."""
DOT_WIDTH = {f16: 4, f32: 2}
"""Products that one instruction adds to its accumulators. Source: §1.3, f16v4cmac and f32v2axpy; loads go beside."""
LANES_SUM = 6
"""Slots that join the accumulators of a dot product, and scale it. Source: a tree over four sums, §1.3."""
MIX = {f16: (8, 3), f32: (2, 1)}
"""Columns, and slots for each row of them: two f16v4mul and one f16v8acc; one f32v2axpy. Source: §1.3."""
UNIT = ENTRY
"""Slots that find a query and its columns from their number, and store its numbers. Source: as entering a vertex."""
COLUMN_STORE = 8
"""Slots that clear and store the accumulators of some columns."""


@cache
def seen_codelet(page: int, window: int) -> type:
    """Rows of a tile that each sequence sees; workers share the sequences.

    Fields: ``places`` [batch, pages of the tile] with the position of each page's first row or -1, ``first`` [batch],
    the tile's first row ``row`` and number of rows ``rows``. ``seen`` is [batch, 1 + 2 · pages]: the number of pages
    with rows that the sequence sees, then the first of these rows and the end for each.
    """

    @codelet(name="CacheSeen")
    class CacheSeen(MultiVertex):
        places: Input[Vector[i32]]
        first: Input[Vector[i32]]
        seen: Output[Vector[i32]]
        row: i32
        rows: i32

        def compute(self, worker_id):
            batch = i32(len(self.first))
            pages = i32(len(self.places)) // batch
            for b in range(i32(worker_id), batch, 6):
                to = b * (1 + 2 * pages)
                found = i32(0)
                for inside in range(pages):
                    start = self.places[b * pages + inside]
                    if start >= 0:
                        top = (self.row // page + i32(inside)) * page - self.row
                        begin = max(top, 0)
                        # Positions may be as large as numbers get.
                        ahead = self.first[b] - start
                        end = min(top + min(ahead, page - 1) + 1, self.rows)
                        if window > 0:
                            begin = max(begin, top + min(ahead - window, page) + 1)
                        if begin < end:
                            self.seen[to + 1 + 2 * found] = begin
                            self.seen[to + 2 + 2 * found] = end
                            found = found + 1
                self.seen[to] = found
                for rest in range(found, pages):
                    self.seen[to + 1 + 2 * rest] = 0
                    self.seen[to + 2 + 2 * rest] = 0

        @staticmethod
        def cycles(v: Any, ipu: Ipu) -> Int64:
            batch, places = np.asarray(v.first, np.int64), np.asarray(v.places, np.int64)
            # Each page is one sequence's.
            pages = places // np.maximum(batch, 1)
            looked = -(-batch // ipu.num_workers) * (UNIT + pages * (LOAD + COMPARE + LOOP))
            return np.asarray(SUPERVISOR_CYCLES + ipu.num_workers * (ENTRY + looked + pages * OWNER), np.int64)

    return CacheSeen


@cache
def scores_codelet(dtype: ElementType, width: int, page: int, softcap: float) -> type:
    """Scores of a tile's rows by the sequences that see them; workers share the rows.

    Fields: ``q`` [batch, group, width], ``keys`` [rows, width] and ``seen`` [batch, 1 + 2 · pages], as of
    :func:`seen_codelet`. ``scores`` [batch, group, rows] are those of rows that are seen, and nothing for others.
    """

    @codelet(name="CacheScores")
    class CacheScores(MultiVertex):
        q: Input[Vector[dtype]]
        keys: Input[Vector[dtype]]
        seen: Input[Vector[i32]]
        scores: Output[Vector[f32]]
        batch: i32
        group: i32
        scale: f32

        def compute(self, worker_id):
            rows = i32(len(self.keys)) // width
            size = i32(len(self.seen)) // self.batch
            for b in range(self.batch):
                own = i32(b) * size
                for i in range(self.seen[own]):
                    begin = self.seen[own + 1 + 2 * i32(i)]
                    for r in range(begin + i32(worker_id), self.seen[own + 2 + 2 * i32(i)], 6):
                        for g in range(self.group):
                            at = i32(b) * self.group + g
                            total = f32(0.0)
                            for c in range(width):
                                total += f32(self.q[at * width + c]) * f32(self.keys[r * width + c])
                            score = total * self.scale
                            if softcap > 0.0:
                                score = tanh(score / softcap) * softcap
                            self.scores[at * rows + r] = score

        @staticmethod
        def cycles(v: Any, ipu: Ipu) -> Int64:
            # Each row is one sequence's; workers share the rows of each page.
            rows, batch = np.asarray(v.keys, np.int64) // width, np.asarray(v.batch, np.int64)
            pages = (np.asarray(v.seen, np.int64) // np.maximum(batch, 1) - 1) // 2
            turns = rows // page * -(-page // ipu.num_workers) + -(-(rows % page) // ipu.num_workers)
            dot = -(-width // DOT_WIDTH[dtype]) + LANES_SUM + 2 + (TANH + 2 if softcap else 0)
            slots = ENTRY + batch * (LOAD + LOOP) + pages * SEEN + turns * (LOOP + v.group * (dot + LOOP))
            return np.asarray(SUPERVISOR_CYCLES + ipu.num_workers * slots, np.int64)

    return CacheScores


@cache
def shares_codelet() -> type:
    """Powers of scores relative to the largest of each query, with that and their sum; workers share the queries.

    Fields: ``scores`` [queries, rows], ``seen`` [batch, 1 + 2 · pages], queries of a sequence ``group``, and ``stats``
    [queries, 2]. A query that sees no row has minus infinity and zero.
    """

    @codelet(name="CacheShares")
    class CacheShares(MultiVertex):
        scores: InOut[Vector[f32]]
        seen: Input[Vector[i32]]
        stats: Output[Vector[f32]]
        group: i32

        def compute(self, worker_id):
            queries = i32(len(self.stats)) // 2
            rows = i32(len(self.scores)) // queries
            size = i32(len(self.seen)) // (queries // self.group)
            for p in range(i32(worker_id), queries, 6):
                most = f32(HIDDEN)
                own = i32(p) // self.group * size
                for i in range(self.seen[own]):
                    at = own + 2 * i32(i)
                    for r in range(self.seen[at + 1], self.seen[at + 2]):
                        most = max(most, self.scores[p * rows + r])
                total = f32(0.0)
                for i in range(self.seen[own]):
                    at = own + 2 * i32(i)
                    for r in range(self.seen[at + 1], self.seen[at + 2]):
                        share = exp(self.scores[p * rows + r] - most)
                        self.scores[p * rows + r] = share
                        total += share
                self.stats[2 * p] = most
                self.stats[2 * p + 1] = total

        @staticmethod
        def cycles(v: Any, ipu: Ipu) -> Int64:
            queries = np.asarray(v.stats, np.int64) // 2
            rows = np.asarray(v.scores, np.int64) // np.maximum(queries, 1)
            pages = (np.asarray(v.seen, np.int64) * v.group // np.maximum(queries, 1) - 1) // 2
            turns = -(-queries // ipu.num_workers)
            # All rows may be one sequence's, whose queries the workers share.
            each = (LOAD + ADD) + (ADD + EXP + LOAD + ADD)
            read = -(-np.asarray(v.group, np.int64) // ipu.num_workers) * (2 * pages * SEEN + rows * each)
            slots = ENTRY + turns * (UNIT + 2 * (LOAD + LOOP)) + read
            return np.asarray(SUPERVISOR_CYCLES + ipu.num_workers * slots, np.int64)

    return CacheShares


def mix_slots(
    dtype: ElementType, sizes: tuple[int, int], records: Any, own: Any, pages: Any, *, rows: Any, workers: int
) -> Any:
    """Slots of the busiest worker for records of so many columns, in strips of so many (``sizes``).

    All rows may be one sequence's, whose ``own`` records the workers share strip by strip.
    """
    (chunk, strip), (columns, slots) = sizes, MIX[dtype]
    strips, passes = chunk // strip, -(-strip // columns)
    each = UNIT + passes * (COLUMN_STORE + LOAD + LOOP)
    return -(-records * strips // workers) * each + -(-own * strips // workers) * passes * (pages * SEEN + rows * slots)


@cache
def mix_codelet(dtype: ElementType, width: int, chunk: int, strip: int) -> type:
    """Values mixed by shares, in records of ``chunk`` columns; workers share queries and strips of columns.

    Fields: ``shares`` [queries, rows], ``seen`` [batch, 1 + 2 · pages], queries of a sequence ``group``, ``stats``
    [queries, 2], ``values`` [rows, width], and ``records`` [queries, width / chunk, 2 + chunk]: the largest score, the
    sum of powers, and the mixed columns.
    """
    chunks, strips = width // chunk, chunk // strip

    @codelet(name="CacheMix")
    class CacheMix(MultiVertex):
        shares: Input[Vector[f32]]
        seen: Input[Vector[i32]]
        stats: Input[Vector[f32]]
        values: Input[Vector[dtype]]
        records: Output[Vector[f32]]
        group: i32

        def compute(self, worker_id):
            queries = i32(len(self.stats)) // 2
            rows = i32(len(self.values)) // width
            size = i32(len(self.seen)) // (queries // self.group)
            for unit in range(i32(worker_id), queries * (chunks * strips), 6):
                p = i32(unit) // (chunks * strips)
                record = i32(unit) // strips
                inside = i32(unit) % strips * strip
                to = record * (chunk + 2)
                column = record % chunks * chunk + inside
                if inside == 0:
                    self.records[to] = self.stats[2 * p]
                    self.records[to + 1] = self.stats[2 * p + 1]
                to = to + 2 + inside
                for c in range(strip):
                    self.records[to + c] = 0.0
                own = p // self.group * size
                # Rows that are not seen are not read: they may hold anything.
                for i in range(self.seen[own]):
                    at = own + 2 * i32(i)
                    for r in range(self.seen[at + 1], self.seen[at + 2]):
                        share = dtype(self.shares[p * rows + r])
                        for c in range(strip):
                            self.records[to + c] += f32(share * self.values[r * width + column + c])

        @staticmethod
        def cycles(v: Any, ipu: Ipu) -> Int64:
            queries, rows = np.asarray(v.stats, np.int64) // 2, np.asarray(v.values, np.int64) // width
            pages = (np.asarray(v.seen, np.int64) * v.group // np.maximum(queries, 1) - 1) // 2
            own = np.asarray(v.group, np.int64) * chunks
            spent = mix_slots(dtype, (chunk, strip), queries * chunks, own, pages, rows=rows, workers=ipu.num_workers)
            return np.asarray(SUPERVISOR_CYCLES + ipu.num_workers * (ENTRY + spent), np.int64)

    return CacheMix


@cache
def combine_codelet(chunk: int, made: ElementType | None) -> type:
    """One record of several, or, with a type ``made``, the mixed values that they come to; zeros where none saw a row.

    Fields: ``records`` [parts, 2 + chunk], and ``out`` [2 + chunk] or [chunk].
    """
    ends = made is not None
    kind, ahead = (made, 0) if made is not None else (f32, 2)

    @codelet(name="CacheCombine")
    class CacheCombine(MultiVertex):
        records: Input[Vector[f32]]
        out: Output[Vector[kind]]

        def compute(self, worker_id):
            size = chunk + 2
            parts = len(self.records) // size
            most = HIDDEN
            for i in range(parts):
                most = max(most, self.records[i * size])
            total = f32(0.0)
            for i in range(parts):
                if self.records[i * size + 1] > 0.0:
                    total += self.records[i * size + 1] * exp(self.records[i * size] - most)
            divisor = f32(1.0)
            if ends and total > 0.0:
                divisor = 1.0 / total
            if worker_id == 0 and not ends:
                self.out[0] = kind(most)
                self.out[1] = kind(total)
            for c in range(worker_id, chunk, self.num_workers):
                mixed = f32(0.0)
                for i in range(parts):
                    if self.records[i * size + 1] > 0.0:
                        mixed += self.records[i * size + 2 + c] * exp(self.records[i * size] - most)
                self.out[ahead + c] = kind(mixed * divisor)

        @staticmethod
        def cycles(v: Any, ipu: Ipu) -> Int64:
            # Each worker has factors of all parts, and two columns at a time.
            parts = np.asarray(v.records, np.int64) // (chunk + 2)
            factors = parts * (2 * LOAD + ADD + COMPARE + EXP + MULTIPLY + ADD)
            pairs = -(-chunk // (2 * ipu.num_workers))
            columns = pairs * (parts + 2 * (MULTIPLY + LoopCosts(kind).store) + LOOP)
            last = DIVIDE if ends else 0
            return np.asarray(SUPERVISOR_CYCLES + ipu.num_workers * (ENTRY + factors + columns + last), np.int64)

    return CacheCombine


@cache
def places_codelet() -> type:
    """Position of each page's first row in one sequence, or -1; workers share the table.

    Fields: ``table`` [pages of the sequence], ``first`` its query's position, and ``places`` of the pages from ``page``
    on, which hold -1 at entry.
    """

    @codelet(name="CachePlaces")
    class CachePlaces(MultiVertex):
        table: Input[Vector[i32]]
        first: Input[Vector[i32]]
        places: InOut[Vector[i32]]
        page: i32
        rows: i32

        def compute(self, worker_id):
            for i in range(worker_id, len(self.table), self.num_workers):
                number = self.table[i] - self.page
                start = i32(i) * self.rows
                if number >= 0 and number < len(self.places) and start <= self.first[0]:
                    self.places[number] = start

        @staticmethod
        def cycles(v: Any, ipu: Ipu) -> Int64:
            each = LOAD + 2 * ADD + MULTIPLY + 2 * COMPARE + LOOP
            turns = -(-np.asarray(v.table, np.int64) // ipu.num_workers)
            return np.asarray(SUPERVISOR_CYCLES + ipu.num_workers * (ENTRY + turns * each), np.int64)

    return CachePlaces
