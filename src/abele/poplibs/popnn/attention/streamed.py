"""Attention of one query for each of many groups over keys and values in streaming memory, and SparQ attention.

A group is a sequence and a kv head, with the queries that share it. Dense attention loads keys and values chunk by
chunk. SparQ attention (arXiv:2312.04985) reads less: scores are estimated from the ``components`` largest components of
each group's queries, whose rows of transposed keys it loads; the ``positions`` best positions are attended to, and what
others would have had goes to the mean of all values.

A row of streaming memory is S positions of one component, or one position's key or value; it is loaded by number.

Example: 32 groups of 4,096 positions of width 128 in f16: dense attention loads 67.1 MB, SparQ attention with 32
components and 128 positions 32 · (32 · 4,096 + 2 · 128 · 128) · 2 B = 10.5 MB.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt

import numpy as np

from abele.errors import InvalidOptionError, TensorError
from abele.graph import Copy, Graph, RemoteBuffer, Tensor
from abele.graph.program import Repeat, Sequence, Steps
from abele.numerics import ElementType, f32, u32
from abele.poplibs import poplin
from abele.poplibs.popnn.softmax import softmax
from abele.poplibs.popnn.top_k import top_k
from abele.poplibs.popops import cast, fill, map_with_output, reduce
from abele.poplibs.popops import map as map_
from abele.poplibs.popops.expr import Op, _1, _2, _3, _4, exp
from abele.poplibs.popops.slicing import embedding, grouped_multi_slice

Rows = Tensor | RemoteBuffer
"""Rows by number: a tensor [rows, elements], or a buffer of streaming memory."""


@dataclass(frozen=True)
class SparqParams:
    """Shares of keys and values that SparQ attention reads.

    Attributes:
        components: Components of queries, r, of which approximate scores are made.
        positions: Positions, k, that are attended to.
        local: The last of them that always are, l.
    """

    components: int
    positions: int
    local: int = 0

    def check(self, width: int, positions: int) -> None:
        """Raise unless keys have so many components and positions.

        Raises:
            InvalidOptionError: They do not.
        """
        if not 1 <= self.components <= width:
            raise InvalidOptionError(f"{self.components} components of {width} cannot be read")
        if not 1 <= self.positions <= positions:
            raise InvalidOptionError(f"{self.positions} positions of {positions:,} cannot be attended to")
        if not 0 <= self.local <= self.positions:
            raise InvalidOptionError(f"the last {self.local} positions are no part of {self.positions}")

    def loaded_bytes(self, groups: int, positions: int, width: int, dtype: ElementType) -> int:
        """Bytes of keys and values that all groups read: ts · (r · S + 2 · k · d) for each."""
        return groups * dtype.bytes * (self.components * positions + 2 * self.positions * width)


@dataclass(frozen=True)
class SparqCache:
    """Keys both ways and values of groups.

    Attributes:
        by_component: Rows [groups · width, positions] of transposed keys.
        keys: Rows [groups · positions, width].
        values: Rows [groups · positions, width].
        mean: Mean value of each group's positions, [groups, width].
    """

    by_component: Rows
    keys: Rows
    values: Rows
    mean: Tensor


def sparq_attention(
    graph: Graph, q: Tensor, stored: SparqCache, params: SparqParams, prog: Steps, *, name: str = "sparq"
) -> Tensor:
    """Mixed values of all queries, [groups, queries, width], nearly those of dense attention.

    Args:
        graph: Graph in which vertices and the result are made.
        q: Queries [groups, queries of a group, width].
        stored: Keys and values, on the tiles or in streaming memory.
        params: Components and positions that are read.
        prog: Sequence that the steps are appended to.
        name: Name of the steps.

    Raises:
        TensorError: Rows that do not fit the queries.
        InvalidOptionError: More components or positions than there are.
    """
    groups, queries, width = q.shape
    size = _length(stored.by_component)
    rows = [(stored.by_component, groups * width, size)]
    rows += [(table, groups * size, width) for table in (stored.keys, stored.values)]
    for table, count, length in rows:
        if (_count(table), _length(table)) != (count, length):
            raise TensorError(f"{name}: {table!r} does not have {count:,} rows of {length:,}")
    params.check(width, size)
    with graph.scope(name):
        largest = reduce(graph, map_(graph, Op("abs", _1), [q], prog), [1], "ADD", prog, out_type=f32)
        _, components = top_k(graph, largest, params.components, prog, name="components")
        read = _taken(graph, q.transpose((0, 2, 1)), components, prog).transpose((0, 2, 1))
        whole, some = (
            reduce(graph, map_(graph, Op("abs", _1), [x], prog), [2], "ADD", prog, out_type=f32) for x in (q, read)
        )
        # Scores of part of the components are softened as much as the queries' own norm would.
        temperature = map_(graph, Op("rsqrt", _1 / _2 * float(width)), [some, whole], prog)
        scaled = map_(graph, _1 * _2, [read, _column(temperature)], prog)
        scaled = scaled if scaled.dtype == q.dtype else cast(graph, scaled, q.dtype, prog)
        right = poplin.create_matmul_input_rhs(graph, q.dtype, read.shape, (groups, params.components, size))
        _load(graph, stored.by_component, right, _numbers(graph, components, width, prog), prog)
        shares = softmax(graph, poplin.matmul_grouped(graph, scaled, right, prog), prog)
        positions = _best(graph, shares, params, prog)
        kept = _taken(graph, shares.transpose((0, 2, 1)), positions, prog)
        share = reduce(graph, kept, [1], "ADD", prog, out_type=f32)
        at = _numbers(graph, positions, size, prog)
        scores_of = (groups, queries, width), (groups, width, params.positions)
        keys = poplin.create_matmul_input_rhs(graph, q.dtype, *scores_of)
        values = poplin.create_matmul_input_rhs(
            graph, q.dtype, (groups, queries, params.positions), (groups, params.positions, width)
        )
        _load(graph, stored.keys, keys.transpose((0, 2, 1)), at, prog)
        _load(graph, stored.values, values, at, prog)
        even = map_(graph, _1 * (1.0 / sqrt(width)), [q], prog)
        mixed = softmax(graph, poplin.matmul_grouped(graph, even, keys, prog), prog)
        near = poplin.matmul_grouped(graph, mixed, values, prog)
        far = stored.mean.expand_dims(1).broadcast_to(near.shape)
        made = map_(graph, _1 * _2 + (1.0 - _2) * _3, [near, _column(share), far], prog)
        return made if made.dtype == q.dtype else cast(graph, made, q.dtype, prog)


def _best(graph: Graph, shares: Tensor, params: SparqParams, prog: Steps) -> Tensor:
    """Positions of the largest shares of each group, summed over its queries, with the last ones always among them."""
    wanted = reduce(graph, shares, [1], "ADD", prog, out_type=f32)
    if params.local:
        last = wanted[:, wanted.shape[1] - params.local :]
        # Shares of all queries come to their number at most.
        map_with_output(graph, _1 + float(shares.shape[1] + 1), [last], last, prog)
    return top_k(graph, wanted, params.positions, prog, name="positions")[1]


def _column(rows: Tensor) -> Tensor:
    return rows.expand_dims(rows.ndim)


def _taken(graph: Graph, table: Tensor, numbers: Tensor, prog: Steps) -> Tensor:
    """Rows of each group of ``table`` [groups, rows, width] by ``numbers`` [groups, n]: [groups, n, width]."""
    groups, rows, width = table.shape
    plan = embedding.plan(
        graph, table.dtype, rows, width, numbers.shape[1], group_size=groups, options={"usedForUpdate": False}
    )
    taken = grouped_multi_slice(graph, table, _column(numbers), [0], [1], prog, plan=plan)
    return taken.reshape((groups, numbers.shape[1], width))


def _numbers(graph: Graph, inside: Tensor, rows: int, prog: Steps) -> Tensor:
    """Numbers of rows of all groups, u32[n], of those in each group, [groups, n]."""
    first = np.arange(inside.shape[0], dtype=np.uint32)[:, None] * rows
    start = graph.map_linear(graph.constant(u32, first.shape, first, name="first_rows"))
    return map_(graph, _1 + _2, [inside, start], prog).flatten()


def _load(graph: Graph, table: Rows, to: Tensor, numbers: Tensor, prog: Steps) -> None:
    """Fill ``to`` with rows by number."""
    if isinstance(table, RemoteBuffer):
        prog.add(Copy(table, to, name=f"load/{table.name}", offset=numbers))
        return
    taken = grouped_multi_slice(graph, table.expand_dims(0), numbers.reshape((1, -1, 1)), [0], [1], prog)
    prog.add(Copy(taken.reshape(to.shape), to, name="rows"))


def _count(table: Rows) -> int:
    return table.repeats if isinstance(table, RemoteBuffer) else table.shape[0]


def _length(table: Rows) -> int:
    return table.num_elements if isinstance(table, RemoteBuffer) else table.shape[1]


def streamed_attention(
    graph: Graph,
    q: Tensor,
    keys: RemoteBuffer,
    values: RemoteBuffer,
    prog: Steps,
    *,
    chunk: int,
    name: str = "streamed",
) -> Tensor:
    """Mixed values of all queries, [groups, queries, width]: keys and values are loaded chunk by chunk.

    Args:
        graph: Graph in which vertices and the result are made.
        q: Queries [groups, queries of a group, width].
        keys: A row for each chunk: keys [groups, chunk, width].
        values: The same of values.
        prog: Sequence that the steps are appended to.
        chunk: Positions of a chunk.
        name: Name of the steps.

    Raises:
        TensorError: Rows that are no chunks of the queries' groups.
    """
    groups, queries, width = q.shape
    for table in (keys, values):
        if table.num_elements != groups * chunk * width or table.repeats != keys.repeats:
            raise TensorError(f"{name}: {table!r} has no rows [{groups}, {chunk}, {width}]")
    with graph.scope(name):
        scaled = map_(graph, _1 * (1.0 / sqrt(width)), [q], prog)
        right = poplin.create_matmul_input_rhs(graph, q.dtype, q.shape, (groups, width, chunk))
        held = poplin.create_matmul_input_rhs(graph, q.dtype, (groups, queries, chunk), (groups, chunk, width))
        at = graph.map(graph.variable(u32, (1,), name="chunk"), 0)
        most, total = (graph.map_linear(graph.variable(f32, (groups, queries), name=n)) for n in ("most", "total"))
        mixed = graph.map_linear(graph.variable(f32, q.shape, name="mixed"))
        for tensor, value in ((at, 0), (most, float(np.finfo(np.float32).min)), (total, 0.0), (mixed, 0.0)):
            fill(graph, tensor, prog, value)
        body = Sequence()
        body.add(Copy(keys, right.transpose((0, 2, 1)), name=f"load/{keys.name}", offset=at))
        body.add(Copy(values, held, name=f"load/{values.name}", offset=at))
        scores = poplin.matmul_grouped(graph, scaled, right, body)
        found = reduce(graph, scores, [2], "MAX", body, out_type=f32)
        top = map_(graph, Op("max", _1, _2), [most, found], body)
        powers = map_(graph, exp(_1 - _2), [scores, _column(top)], body)
        powers = powers if powers.dtype == q.dtype else cast(graph, powers, q.dtype, body)
        added = reduce(graph, powers, [2], "ADD", body, out_type=f32)
        part = poplin.matmul_grouped(graph, powers, held, body, options={"partialsType": f32})
        map_with_output(graph, _1 * exp(_2 - _3) + _4, [total, most, top, added], total, body)
        factors = [mixed, _column(most), _column(top), part]
        map_with_output(graph, _1 * exp(_2 - _3) + _4, factors, mixed, body)
        body.add(Copy(top, most, name="most"))
        map_with_output(graph, _1 + 1, [at], at, body)
        prog.add(Repeat(keys.repeats, body))
        made = map_(graph, _1 / _2, [mixed, _column(total)], prog)
        return made if made.dtype == q.dtype else cast(graph, made, q.dtype, prog)


def attention_over_tiles(graph: Graph, q: Tensor, keys: Tensor, values: Tensor, prog: Steps) -> Tensor:
    """Mixed values of all queries [groups, queries, width] over keys and values [groups, positions, width] on tiles.

    Two grouped products and a softmax, as a program writes attention with library functions.
    """
    scaled = map_(graph, _1 * (1.0 / sqrt(q.shape[2])), [q], prog)
    shares = softmax(graph, poplin.matmul_grouped(graph, scaled, keys.transpose((0, 2, 1)), prog), prog)
    return poplin.matmul_grouped(graph, shares, values, prog)
