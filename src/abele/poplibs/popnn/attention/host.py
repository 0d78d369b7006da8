"""Attention over a paged cache on the host: a task for each sequence and kv head, which reads keys and values once.

A task goes through the pages that its query sees, with the largest score so far, the sum of powers and mixed values as
in online softmax, all in f32. Scores of a page lie beside each other, so that powers are vectors; mixed values take
four rows at a time, so that they are loaded and stored once for four.
"""

# Bodies and annotations are in the vertex language, whose own compiler checks their types.
# mypy: ignore-errors

from __future__ import annotations

from functools import cache

from abele.codelet import InOut, Input, Output, Vector, Vertex, codelet, exp, macro, tanh
from abele.graph import Execute, Graph, Tensor
from abele.graph.program import Sequence
from abele.numerics import ElementType, f32, i32, i64
from abele.poplibs.popnn.attention.codelets import HIDDEN
from abele.poplibs.popnn.attention.view import CacheView
from abele.poplibs.poputil.host_body import host_vertices


@cache
def places_host_codelet(rows: int) -> type:
    """All places of one sequence."""

    @codelet(name="HostCachePlaces")
    class HostCachePlaces(Vertex):
        table: Input[Vector[i32]]
        first: Input[Vector[i32]]
        places: Output[Vector[i32]]

        def compute(self):
            for p in range(len(self.places)):
                self.places[p] = i32(-1)
            for i in range(len(self.table)):
                number = self.table[i]
                if number >= 0 and number < len(self.places) and i32(i) * rows <= self.first[0]:
                    self.places[number] = i32(i) * rows

    return HostCachePlaces


def host_places(graph: Graph, table: Tensor, first: Tensor, out: Tensor, *, page: int, name: str) -> Sequence:
    """Steps that put the places of all pages into ``out`` [batch, pages]."""
    step = graph.compute_set(f"{name}/host")
    host_vertices(step, places_host_codelet(page), table=table, first=first.reshape((-1, 1)), places=out)
    return Sequence(Execute(step))


@macro
def _four_scores(self, q, at, r, width):
    """Products of a query with four rows of keys: none waits for the sum of another."""
    t0 = f32(0.0)
    t1 = f32(0.0)
    t2 = f32(0.0)
    t3 = f32(0.0)
    for c in range(width):
        part = f32(self.q[q + c])
        t0 += part * f32(self.keys[at + c])
        t1 += part * f32(self.keys[at + width + c])
        t2 += part * f32(self.keys[at + 2 * width + c])
        t3 += part * f32(self.keys[at + 3 * width + c])
    self.shares[r] = t0
    self.shares[r + 1] = t1
    self.shares[r + 2] = t2
    self.shares[r + 3] = t3


@macro
def _add_rows(self, to, at, r, rows, width):
    """Add ``rows`` rows of values, times their shares, to mixed values."""
    if rows == 4:
        p0 = self.shares[r]
        p1 = self.shares[r + 1]
        p2 = self.shares[r + 2]
        p3 = self.shares[r + 3]
        for c in range(width):
            low = p0 * f32(self.values[at + c]) + p1 * f32(self.values[at + width + c])
            high = p2 * f32(self.values[at + 2 * width + c]) + p3 * f32(self.values[at + 3 * width + c])
            self.mixed[to + c] += low + high
    else:
        share = self.shares[r]
        for c in range(width):
            self.mixed[to + c] += share * f32(self.values[at + c])


@cache
def attention_host_codelet(dtype: ElementType, group: int, width: int, depth: int, view: CacheView) -> type:
    """All queries of one sequence that share a kv head.

    Fields: ``q`` [group, width], ``keys`` [rows, width] and ``values`` [rows, depth] of the head, ``table`` and
    ``first`` of the sequence, ``out`` [group, depth]; ``shares`` [page] and ``mixed`` [group, depth] are scratch.
    """
    page, window, softcap, scale = view.page, view.window, view.softcap, view.scale

    @codelet(name="HostCachedAttention")
    class HostCachedAttention(Vertex):
        q: Input[Vector[dtype]]
        keys: Input[Vector[dtype]]
        values: Input[Vector[dtype]]
        table: Input[Vector[i32]]
        first: Input[Vector[i32]]
        out: Output[Vector[dtype]]
        shares: InOut[Vector[f32]]
        mixed: InOut[Vector[f32]]
        stats: InOut[Vector[f32]]

        def compute(self):
            pages = i64(len(self.keys)) // (width * page)
            end = min(i64(self.first[0]) + 1, i64(len(self.table)) * page)
            begin = i64(0)
            if window > 0:
                begin = max(i64(self.first[0]) + 1 - window, begin)
            for i in range(group * depth):
                self.mixed[i] = f32(0.0)
            for g in range(group):
                self.stats[2 * g] = HIDDEN
                self.stats[2 * g + 1] = f32(0.0)
            if end > begin:
                for i in range(begin // page, (end + page - 1) // page):
                    number = i64(self.table[i])
                    if number >= 0 and number < pages:
                        low = max(begin - i * page, 0)
                        high = min(end - i * page, page)
                        for g in range(group):
                            most = self.stats[2 * g]
                            whole = low + (high - low) // 4 * 4
                            for r in range(low, whole, 4):
                                _four_scores(self, g * width, (number * page + r) * width, r, width=width)
                            for r in range(whole, high):
                                at = (number * page + r) * width
                                total = f32(0.0)
                                for c in range(width):
                                    total += f32(self.q[g * width + c]) * f32(self.keys[at + c])
                                self.shares[r] = total
                            for r in range(low, high):
                                score = self.shares[r] * scale
                                if softcap > 0.0:
                                    score = tanh(score / softcap) * softcap
                                self.shares[r] = score
                            top = most
                            for r in range(low, high):
                                top = max(top, self.shares[r])
                            if top > HIDDEN:
                                total = f32(0.0)
                                for r in range(low, high):
                                    share = exp(self.shares[r] - top)
                                    self.shares[r] = share
                                    total += share
                                if top > most:
                                    factor = exp(most - top)
                                    self.stats[2 * g + 1] = self.stats[2 * g + 1] * factor
                                    for c in range(depth):
                                        self.mixed[g * depth + c] = self.mixed[g * depth + c] * factor
                                self.stats[2 * g] = top
                                self.stats[2 * g + 1] += total
                                for r in range(low, whole, 4):
                                    at = (number * page + r) * depth
                                    _add_rows(self, g * depth, at, r, rows=4, width=depth)
                                for r in range(whole, high):
                                    at = (number * page + r) * depth
                                    _add_rows(self, g * depth, at, r, rows=1, width=depth)
            for g in range(group):
                total = self.stats[2 * g + 1]
                factor = 1.0 / total if total > 0.0 else f32(0.0)
                for c in range(depth):
                    self.out[g * depth + c] = dtype(self.mixed[g * depth + c] * factor)

    return HostCachedAttention


def host_attention(
    graph: Graph,
    q: Tensor,
    cache: tuple[Tensor, Tensor],
    pages: tuple[Tensor, Tensor],
    view: CacheView,
    out: Tensor,
    *,
    name: str,
) -> Sequence:
    """Steps that put mixed values into ``out`` [batch, heads, depth]."""
    (keys, values), (table, first) = cache, pages
    (batch, heads, width), (_, shared, depth) = q.shape, values.shape
    group, tasks = heads // shared, batch * shared

    def by_sequence(tensor: Tensor) -> Tensor:
        flat = tensor.reshape((batch, 1, -1))
        return flat.broadcast_to((batch, shared, flat.shape[2])).reshape((tasks, flat.shape[2]))

    def by_head(tensor: Tensor) -> Tensor:
        flat = tensor.transpose((1, 0, 2)).reshape((1, shared, -1))
        return flat.broadcast_to((batch, shared, flat.shape[2])).reshape((tasks, flat.shape[2]))

    def scratch(*shape: int) -> Tensor:
        return graph.variable(f32, shape, name=f"{name}/host", map="linear")

    step = graph.compute_set(f"{name}/host")
    host_vertices(
        step,
        attention_host_codelet(q.dtype, group, width, depth, view),
        q=q.reshape((tasks, group * width)),
        keys=by_head(keys),
        values=by_head(values),
        table=by_sequence(table),
        first=by_sequence(first),
        out=out.reshape((tasks, group * depth)),
        shares=scratch(tasks, view.page),
        mixed=scratch(tasks, group * depth),
        stats=scratch(tasks, 2 * group),
    )
    return Sequence(Execute(step))
