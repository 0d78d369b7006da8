"""Attention of new queries over a paged cache of keys and values, which stays where it is.

A cache of a layer is two tables [rows, kv heads, width]; position t of sequence b lies in row
``table[b, t // page] · page + t % page``. Query t of sequence b sees positions up to ``first[b] + t``, in a window the
last ``window`` of those; what it does not see is never read, so that rows nobody has written may hold anything.
Positions past the last page of a sequence's table, and pages that the cache does not have, hold nothing. A query that
sees nothing gives zeros.

Example: 8 sequences in pages of 16 rows, 9 query heads of width 64 over 3 kv heads: q [8, 1, 9, 64], keys and values
[4096, 3, 64], table i32[8, 32], first i32[8].
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from abele.arrays import Array
from abele.expr import apply, select
from abele.expr.derivative import arg
from abele.graph import Tensor
from abele.kernels.nest.ir import Const, Expr
from abele.network.ir import BlockBuilder, NetworkOp, Value
from abele.network.ops.elementwise import cast, map_
from abele.network.ops.linear import matmul
from abele.network.ops.lookup import look_up
from abele.network.ops.softmax import safe_softmax
from abele.network.ops.views import View, expand, permute, reshape, transpose
from abele.network.registry import Gradients, OpRule, Types, no_derivative, only, require, rule
from abele.numerics import bool_, f16, f32, i32
from abele.poplibs import popnn
from abele.poplibs.popnn.attention import CacheView

if TYPE_CHECKING:
    from abele.distribution.lowering import Lowering


def cached_attention(
    net: BlockBuilder, q: Value, keys: Value, values: Value, table: Value, first: Value, *, view: CacheView
) -> Value:
    """Mixed values of queries, [batch, queries, heads, width of values].

    Args:
        net: Network or block to extend.
        q: Queries [batch, queries, heads, width].
        keys: Cache of keys [rows, kv heads, width]; heads are a multiple of kv heads.
        values: Cache of values [rows, kv heads, width of values].
        table: Pages of each sequence, i32[batch, pages].
        first: Position of each sequence's first query, i32[batch]; -1 where one query is to see nothing.
        view: Page, scale, window and cap.
    """
    check_cache(q, keys, values, table, first, view)
    keys, values = (net.emit_like("cache", [v], v) for v in (keys, values))
    batch, queries, heads, width = q.shape
    if queries != 1 or not keys.size or not values.size:
        return _over_gathered_rows(net, q, (keys, values), table, first, view)
    places = net.emit("page_places", [table, first], (batch, keys.shape[0] // view.page), i32, page=view.page)
    rows = reshape(net, q, (batch, heads, width))
    shape = batch, heads, values.shape[2]
    made = net.emit("cached_attention", [rows, keys, values, table, first, places], shape, q.dtype, **vars(view))
    return reshape(net, made, (batch, 1, *shape[1:]))


def check_cache(q: Value, keys: Value, values: Value, table: Value, first: Value, view: CacheView) -> None:
    """Raise unless queries, a cache and its pages fit each other.

    Raises:
        NetworkError: They do not.
    """
    fits = q.ndim == 4 and keys.ndim == 3 and values.ndim == 3 and keys.shape[:2] == values.shape[:2]
    require(fits and q.shape[3] == keys.shape[2], f"queries {q} do not fit keys {keys} and values {values}")
    require(keys.shape[1] and q.shape[2] % keys.shape[1] == 0, f"{q.shape[2]} heads share {keys.shape[1]} kv heads")
    require(q.dtype == keys.dtype == values.dtype and q.dtype in (f16, f32), f"{q}, {keys} and {values} are not alike")
    require(table.ndim == 2 and table.dtype == i32, f"the table is {table}, it has to be i32[{q.shape[0]}, pages]")
    require(table.shape[0] == q.shape[0], f"{table} is no table of {q.shape[0]} sequences")
    require(first.type == ((q.shape[0],), i32), f"the positions are {first}, they have to be i32[{q.shape[0]}]")
    require(keys.shape[0] % view.page == 0, f"{keys.shape[0]:,} rows are no pages of {view.page} rows")


def _whole(number: int) -> Const:
    return Const(number, i32)


@rule("cache")
class Cache(View):
    """A table of keys or values [rows, kv heads, width], which is to lie as attention over pages reads it."""

    def types(self, op: NetworkOp) -> Types:
        """The table's."""
        require(op.inputs[0].ndim == 3, f"{op.inputs[0]} is no table [rows, kv heads, width]")
        return [op.inputs[0].type]

    def same(self, op: NetworkOp) -> bool:
        """False: where the table lies is what the op says."""
        return False

    def simplify(self, net: BlockBuilder, op: NetworkOp) -> Value | None:
        """Nothing simpler."""
        return None

    def evaluate(self, op: NetworkOp, table: Array) -> Array:
        """The table."""
        return table

    def lower(self, to: Lowering, op: NetworkOp) -> Tensor:
        """The table."""
        return to[op.inputs[0]]

    def layout(self, to: Lowering, op: NetworkOp, operand: int) -> Tensor | None:
        """Some rows of one kv head per tile."""
        table = op.inputs[0]
        return popnn.attention.create_cache(to.graph, table.dtype, table.shape, name=table.name or "cache")

    def backward(self, net: BlockBuilder, op: NetworkOp, grads: Gradients, wanted: Sequence[bool]) -> Gradients:
        """The gradient itself."""
        return [only(grads)]


@rule("page_places")
class PagePlaces(OpRule):
    """Position of each page's first row in each sequence that sees it, of a table i32[batch, pages]; others are -1."""

    operands = 2
    attributes: ClassVar = {"page": int}

    def types(self, op: NetworkOp) -> Types:
        """i32[batch, pages of the cache]."""
        table, first = op.inputs
        fits = table.ndim == 2 and table.dtype == i32 and first.type == (table.shape[:1], i32)
        require(fits and op.output.ndim == 2, f"{table} and {first} are not i32[batch, pages] and i32[batch]")
        return [((table.shape[0], op.output.shape[1]), i32)]

    def evaluate(self, op: NetworkOp, table: Array, first: Array) -> Array:
        """NumPy's assignment by index."""
        made = np.full(op.output.shape, -1, np.int32)
        start = np.arange(table.shape[1], dtype=np.int32) * op.attrs["page"]
        sequence, number = np.nonzero((table >= 0) & (table < made.shape[1]) & (start <= first[:, None]))
        made[sequence, table[sequence, number]] = start[number]
        return made

    def lower(self, to: Lowering, op: NetworkOp) -> Tensor:
        """One call."""
        table, first = (to[v] for v in op.inputs)
        pages, page = op.output.shape[1], op.attrs["page"]
        return popnn.attention.page_places(to.graph, table, first, to.prog, pages=pages, page=page)

    def backward(self, net: BlockBuilder, op: NetworkOp, grads: Gradients, wanted: Sequence[bool]) -> Gradients:
        """None: they are whole numbers."""
        return [None, None]


@rule("cached_attention")
class CachedAttention(OpRule):
    """Attention of one query [batch, heads, width] for each sequence over a cache, its table, positions and places."""

    operands = 6
    attributes: ClassVar = {"page": int, "scale": float, "window": int, "softcap": float}

    def types(self, op: NetworkOp) -> Types:
        """[batch, heads, width of values]."""
        q, keys, values, table, first, places = op.inputs
        view = CacheView(**op.attrs)
        require(q.ndim == 3, f"{q} are no queries [batch, heads, width]")
        check_cache(Value((q.shape[0], 1, *q.shape[1:]), q.dtype), keys, values, table, first, view)
        wanted = (q.shape[0], keys.shape[0] // view.page), i32
        require(places.type == wanted, f"the places are {places}, they have to be i32{list(wanted[0])}")
        return [((*q.shape[:2], values.shape[2]), q.dtype)]

    def evaluate(self, op: NetworkOp, q: Array, keys: Array, values: Array, *pages: Array) -> Array:
        """Softmax over the rows that each sequence sees, in f32 at least."""
        view = CacheView(**op.attrs)
        (table, first, _), (batch, heads, width) = pages, q.shape
        row, seen = _seen_rows(table, first, len(keys), view)
        shared, wide = keys.shape[1], np.result_type(q.dtype, np.float32)
        grouped = q.reshape((batch, shared, heads // shared, width)).astype(wide) * view.scale
        read = np.where(seen[..., None, None], keys[row], 0).astype(wide)
        scores = np.einsum("bkgd,bskd->bkgs", grouped, read)
        if view.softcap:
            scores = np.tanh(scores / view.softcap) * view.softcap
        scores = np.where(seen[:, None, None], scores, -np.inf)
        top = scores.max(-1, keepdims=True, initial=np.finfo(np.float32).min)
        powers = np.exp(scores - top)
        total = powers.sum(-1, keepdims=True)
        shares = powers / np.where(total == 0, 1, total)
        mixed = np.einsum("bkgs,bskd->bkgd", shares, np.where(seen[..., None, None], values[row], 0).astype(wide))
        return np.asarray(mixed.reshape(op.output.shape), q.dtype)

    def lower(self, to: Lowering, op: NetworkOp) -> Tensor:
        """One call."""
        q, keys, values, table, first, places = (to[v] for v in op.inputs)
        return popnn.attention.cached_attention(
            to.graph, q, (keys, values), (table, first, places), CacheView(**op.attrs), to.prog
        )

    def backward(self, net: BlockBuilder, op: NetworkOp, grads: Gradients, wanted: Sequence[bool]) -> Gradients:
        """None: models that make text are not trained through their cache.

        Raises:
            UnsupportedOpError: Always.
        """
        raise no_derivative(op, "attention over a cache", "train with plain products over whole sequences")


def _seen_rows(table: Array, first: Array, rows: int, view: CacheView) -> tuple[Array, Array]:
    """Cache row of each position, [batch, positions], and whether the query sees it."""
    position = np.arange(table.shape[1] * view.page)
    page = table[:, position // view.page]
    there = (page >= 0) & (page < rows // view.page)
    seen = there & (position <= first[:, None])
    if view.window:
        seen &= position > first[:, None] - view.window
    return np.where(there, page, 0) * view.page + position % view.page, seen


# Queries that are many: products over the rows of all sequences, which are gathered once.


def _over_gathered_rows(
    net: BlockBuilder, q: Value, cache: tuple[Value, Value], table: Value, first: Value, view: CacheView
) -> Value:
    keys, values = cache
    batch, queries, heads, width = q.shape
    rows, shared, _ = keys.shape
    positions = table.shape[1] * view.page
    row, seen = _rows_in_order(net, table, first, queries, rows, view)

    def gathered(rows_of: Value) -> Value:
        flat = reshape(net, rows_of, (rows, shared * rows_of.shape[2]))
        taken = look_up(net, flat, row)
        return permute(net, reshape(net, taken, (batch, positions, shared, rows_of.shape[2])), (0, 2, 1, 3))

    scaled = map_(net, arg(0) * view.scale, [q])
    grouped = permute(net, reshape(net, scaled, (batch, queries, shared, heads // shared, width)), (0, 2, 3, 1, 4))
    left = reshape(net, grouped, (batch, shared, heads // shared * queries, width))
    scores = matmul(net, left, transpose(net, gathered(keys)))
    scores = reshape(net, scores, (batch, heads, queries, positions))
    shown: Expr = arg(0)
    if view.softcap:
        shown = apply("tanh", arg(0) * (1.0 / view.softcap)) * view.softcap
    shown = select(arg(1), shown, -np.inf)
    scores = map_(net, shown, [scores, reshape(net, seen, (batch, 1, queries, positions))])
    shares = reshape(net, safe_softmax(net, scores, -1), (*left.shape[:3], positions))
    mixed = matmul(net, shares, gathered(values))
    out = reshape(net, mixed, (batch, shared, heads // shared, queries, values.shape[2]))
    return reshape(net, permute(net, out, (0, 3, 1, 2, 4)), (batch, queries, heads, values.shape[2]))


def _rows_in_order(
    net: BlockBuilder, table: Value, first: Value, queries: int, rows: int, view: CacheView
) -> tuple[Value, Value]:
    """Cache row of each position, i32[batch, positions], and who sees it, bool[batch, queries, positions].

    Rows that no query of a sequence sees are -1, and looked up as zeros.
    """
    (batch, pages), page = table.shape, view.page
    positions = pages * page
    spread = reshape(net, expand(net, reshape(net, table, (batch, pages, 1)), (batch, pages, page)), (batch, positions))
    last_page, position = _whole(rows // page - 1), net.constant(np.arange(positions), i32, "positions")
    start = reshape(net, cast(net, first, i32), (batch, 1))
    end = arg(2) + _whole(queries - 1)
    held = select(arg(0) < _whole(0), False, arg(0) <= last_page)
    held = select(arg(1) <= end, held, False)
    if view.window:
        held = select(arg(1) > arg(2) - _whole(view.window), held, False)
    offset = net.constant(np.arange(positions) % page, i32, "offsets")
    number = select(held, arg(0) * _whole(page) + arg(3), _whole(-1))
    row = map_(net, number, [spread, position, start, offset], i32)
    query = net.constant(np.arange(queries)[:, None], i32, "queries")
    sees = select(arg(1) <= arg(2) + arg(3), arg(0) >= _whole(0), False)
    if view.window:
        sees = select(arg(1) > arg(2) + arg(3) - _whole(view.window), sees, False)
    of_queries = [reshape(net, row, (batch, 1, positions)), position, reshape(net, start, (batch, 1, 1)), query]
    return row, map_(net, sees, of_queries, bool_)
