"""Attention over a paged cache of keys and values, for models that make text.

In eager PyTorch it is plain operators; while a model is recorded, one operator of the network.
"""

from __future__ import annotations

from typing import Any

import torch

from abele.frontends.poptorch.errors import Error
from abele.frontends.poptorch.program.recording import isRunningOnIpu

Tensor = torch.Tensor


class CacheShapeError(Error, ValueError):
    """Queries, a cache and its pages that do not fit each other."""


def cached_attention(
    q: Tensor,
    keys: Tensor,
    values: Tensor,
    table: Tensor,
    first: Tensor,
    *,
    page: int,
    scale: float | None = None,
    window: int | None = None,
    softcap: float | None = None,
) -> Tensor:
    """Attention of new queries over a paged cache: [batch, queries, heads, width of values].

    Position t of sequence b lies in row ``table[b, t // page] * page + t % page`` of the cache. Query t sees positions
    up to ``first[b] + t``. Positions past the table's last page, and pages that the cache does not have, hold nothing;
    a query that sees nothing gives zeros. Pages may belong to several sequences.

    Args:
        q: Queries [batch, queries, heads, width]; one query per sequence is the decode step.
        keys: Cache [rows, kv heads, width], float32 or float16 as the queries; heads are a multiple of kv heads.
        values: Cache [rows, kv heads, width of values].
        table: Pages of each sequence, int[batch, pages].
        first: Position of each sequence's first query, int[batch].
        page: Rows of a page, which divides the cache's rows.
        scale: Factor of scores; 1 / √width by default.
        window: Positions that a query sees, its own the last; all by default.
        softcap: Bound c of scores s, which become c · tanh(s / c); none by default.

    Raises:
        CacheShapeError: The shapes or types do not fit, or a number is out of its range.
    """
    _check((q, keys, values), table, first, page, window=window, softcap=softcap)
    numbers = (page, q.shape[3] ** -0.5 if scale is None else float(scale), window or 0, float(softcap or 0.0))
    if isRunningOnIpu():
        made: Tensor = torch.ops.abele.cached_attention(q, keys, values, table, first, *numbers)
        return made
    return _plain((q, keys, values), table, first, *numbers)


def _check(
    operands: tuple[Tensor, Tensor, Tensor],
    table: Tensor,
    first: Tensor,
    page: Any,
    *,
    window: int | None,
    softcap: float | None,
) -> None:
    q, keys, values = operands

    def require(condition: bool, problem: str, remedy: str | None = None) -> None:
        if not condition:
            raise CacheShapeError(f"cached_attention: {problem}", remedy=remedy)

    shapes = f"q {list(q.shape)}, keys {list(keys.shape)}, values {list(values.shape)}"
    fits = q.dim() == 4 and keys.dim() == 3 and values.dim() == 3
    fits = fits and keys.shape[:2] == values.shape[:2] and q.shape[3] == keys.shape[2] and q.shape[3] > 0
    wanted = "q [batch, queries, heads, width], keys [rows, kv heads, width], values [rows, kv heads, width of values]"
    require(fits, f"shapes do not fit: {shapes}", wanted)
    require(bool(keys.shape[1]) and q.shape[2] % keys.shape[1] == 0, f"heads are no multiple of kv heads: {shapes}")
    alike = q.dtype == keys.dtype == values.dtype and q.dtype.is_floating_point
    require(alike, f"types differ: q {q.dtype}, keys {keys.dtype}, values {values.dtype}", "one float type for all")
    of_table = table.dim() == 2 and first.dim() == 1 and table.shape[0] == first.shape[0] == q.shape[0]
    shown = f"table {list(table.shape)}, first {list(first.shape)}, q {list(q.shape)}"
    require(of_table, f"the batches differ: {shown}", "table [batch, pages], first [batch]")
    whole = (torch.int32, torch.int64)
    require(table.dtype in whole and first.dtype in whole, f"table {table.dtype} and first {first.dtype} hold no int32")
    divides = isinstance(page, int) and page > 0 and keys.shape[0] % page == 0
    require(divides, f"{keys.shape[0]:,} rows are no pages of {page!r} rows")
    require(window is None or window > 0, f"a window of {window} positions shows nothing", "window=None for all")
    require(softcap is None or softcap > 0, f"softcap {softcap} is no bound above 0", "softcap=None for none")


def _plain(operands: tuple[Tensor, Tensor, Tensor], table: Tensor, first: Tensor, *numbers: Any) -> Tensor:
    """The definition in PyTorch's operators, in f32 at least."""
    (q, keys, values), (page, scale, window, softcap) = operands, numbers
    (batch, queries, heads, _), (rows, shared, _) = q.shape, keys.shape
    if not q.numel() or not values.shape[2]:
        return q.new_zeros((batch, queries, heads, values.shape[2]))
    last = first.long()[:, None] + torch.arange(queries)
    count = int(last.max().clamp(-1, table.shape[1] * page - 1)) + 1
    position = torch.arange(count)
    number = table.long()[:, position // page]
    there = (number >= 0) & (number < rows // page)
    seen = (position <= last[..., None]) & there[:, None]
    if window:
        seen = seen & (position > last[..., None] - window)
    read = seen.any(1)
    row = torch.where(read, number * page + position % page, 0)
    wide = torch.promote_types(q.dtype, torch.float32)

    def gathered(cache: Tensor) -> Tensor:
        taken = cache[row].to(wide)
        return taken.masked_fill(~read[..., None, None], 0.0)

    grouped = (q.to(wide) * scale).reshape(batch, queries, shared, heads // shared, -1)
    scores = torch.einsum("btkgd,bskd->bkgts", grouped, gathered(keys))
    if softcap:
        scores = torch.tanh(scores / softcap) * softcap
    scores = scores.masked_fill(~seen[:, None, None], -torch.inf)
    shares = torch.softmax(scores, -1).masked_fill(~seen.any(-1)[:, None, None, :, None], 0.0)
    mixed = torch.einsum("bkgts,bskd->btkgd", shares, gathered(values))
    return mixed.reshape(batch, queries, heads, -1).to(q.dtype)


@torch.library.custom_op("abele::cached_attention", mutates_args=())
def _recorded(
    q: Tensor,
    keys: Tensor,
    values: Tensor,
    table: Tensor,
    first: Tensor,
    page: int,
    scale: float,
    window: int,
    softcap: float,
) -> Tensor:
    return _plain((q, keys, values), table, first, *(page, scale, window, softcap))


@_recorded.register_fake
def _(
    q: Tensor,
    keys: Tensor,
    values: Tensor,
    table: Tensor,
    first: Tensor,
    page: int,
    scale: float,
    window: int,
    softcap: float,
) -> Tensor:
    return q.new_empty((*q.shape[:3], values.shape[2]))
