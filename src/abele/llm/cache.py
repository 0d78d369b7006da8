"""Keys and values of positions already seen, in pages that sequences own.

A cache of 3 pages with 16 rows each has tables of 48 rows per layer. Position t of a sequence lies in row
``table[b, t // 16] · 16 + t % 16``: with the table [[2, 1]], position 17 lies in row 17. Page 0 is scratch: what a
sequence without pages writes goes there, and nobody reads it.
"""

from __future__ import annotations

from typing import Protocol

import torch
from torch import nn

from abele import poptorch
from abele.errors import InvalidOptionError
from abele.llm.config import ModelConfig


class CacheSizeError(InvalidOptionError):
    """Pages, rows or tables of a cache that do not go together."""


class Attending(Protocol):
    """Attention as a layer calls it: positions, and a function of queries, keys and values."""

    def positions(self) -> torch.Tensor:
        """Position of each token, i32[B, T]."""
        ...

    def attend(
        self,
        layer: int,
        q: torch.Tensor,
        k: torch.Tensor,
        v: torch.Tensor,
        *,
        scale: float | None = None,
        window: int | None = None,
        softcap: float | None = None,
    ) -> torch.Tensor:
        """Attention of queries [B, T, H, d] to everything before them, the new keys [B, T, KV, d] included."""
        ...


class PagedCache(nn.Module):
    """Tables of keys and values of every layer, in pages.

    Args:
        layers: Layers with a cache.
        pages: Pages, the scratch page 0 included.
        page: Positions per page.
        kv_heads: Heads of keys and values.
        head_size: Channels per head.
        dtype: Type of the tables.
    """

    def __init__(
        self,
        *,
        layers: int,
        pages: int,
        page: int,
        kv_heads: int,
        head_size: int,
        dtype: torch.dtype = torch.float32,
    ) -> None:
        super().__init__()
        for name, count in (("layers", layers), ("page", page), ("kv_heads", kv_heads), ("head_size", head_size)):
            if count < 1:
                raise CacheSizeError(f"a cache with {name} of {count}", remedy=f"{name} must be at least 1")
        if pages < 2:
            raise CacheSizeError(f"a cache of {pages} pages", because="page 0 is scratch", remedy="2 pages or more")
        self.page, self.pages, self.layers = page, pages, layers
        for i in range(layers):
            for name in ("keys", "values"):
                self.register_buffer(f"{name}{i}", torch.zeros(pages * page, kv_heads, head_size, dtype=dtype))

    @classmethod
    def of(cls, config: ModelConfig, *, pages: int, page: int = 16, dtype: torch.dtype = torch.float32) -> PagedCache:
        """A cache for a model of this configuration."""
        return cls(
            layers=config.cached_layers,
            pages=pages,
            page=page,
            kv_heads=config.kv_heads,
            head_size=config.head_size,
            dtype=dtype,
        )

    def tables(self, layer: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Keys and values of a layer, [rows, kv_heads, head_size] each."""
        return self.get_buffer(f"keys{layer}"), self.get_buffer(f"values{layer}")

    def view(
        self, table: torch.Tensor, first: torch.Tensor, length: int, count: torch.Tensor | None = None
    ) -> PagedView:
        """The cache as one forward pass sees it.

        Args:
            table: Pages of each sequence in order, i32[B, P].
            first: Position of each sequence's first new token, i32[B].
            length: New tokens per sequence.
            count: New tokens that count, i32[B]: those after them are padding, written to the scratch page.
        """
        return PagedView(self, table, first, length, count)


class PagedView:
    """The pages of a batch's sequences, and the rows that their new tokens take."""

    def __init__(
        self, cache: PagedCache, table: torch.Tensor, first: torch.Tensor, length: int, count: torch.Tensor | None
    ) -> None:
        self.cache, self.table, self.first = cache, table, first
        steps = torch.arange(length, device=first.device, dtype=first.dtype)
        self._positions = first[:, None] + steps
        self.rows = new_rows(table, self._positions, cache.page)
        if count is not None:
            self.rows = torch.where(steps < count[:, None], self.rows, steps % cache.page)

    def positions(self) -> torch.Tensor:
        """Position of each token, i32[B, T]."""
        return self._positions

    def attend(
        self,
        layer: int,
        q: torch.Tensor,
        k: torch.Tensor,
        v: torch.Tensor,
        *,
        scale: float | None = None,
        window: int | None = None,
        softcap: float | None = None,
    ) -> torch.Tensor:
        """Attention of queries [B, T, H, d] to the cache, after the new keys and values are written to it."""
        keys, values = self._written(layer, k, v)
        made = poptorch.cached_attention(
            q.to(keys.dtype),
            keys,
            values,
            self.table,
            self.first,
            page=self.cache.page,
            scale=scale,
            window=window,
            softcap=softcap,
        )
        return made.to(q.dtype)

    def _written(self, layer: int, k: torch.Tensor, v: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Tables of a layer with the new keys and values in them."""
        rows = self.rows.reshape(-1).long()
        for table, new in zip(self.cache.tables(layer), (k, v), strict=True):
            table.index_copy_(0, rows, new.reshape(-1, *table.shape[1:]).to(table.dtype))
        return self.cache.tables(layer)

    def places(self) -> torch.Tensor:
        """Positions that :meth:`gathered` gives, i32[S]."""
        return torch.arange(self.table.shape[1] * self.cache.page, device=self.table.device, dtype=torch.int32)

    def gathered(self, layer: int, k: torch.Tensor, v: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Keys and values [B, S, KV, d] of all pages, for attention that adds biases of its own."""
        keys, values = self._written(layer, k, v)
        page = self.cache.page
        within = torch.arange(page, device=self.table.device, dtype=self.table.dtype)
        rows = (self.table[:, :, None] * page + within).reshape(self.table.shape[0], -1)
        return keys[rows].to(k.dtype), values[rows].to(v.dtype)


def new_rows(table: torch.Tensor, positions: torch.Tensor, page: int) -> torch.Tensor:
    """Rows of the cache that these positions [B, T] of each sequence take; scratch rows behind the table's end."""
    which = torch.div(positions, page, rounding_mode="floor")
    inside = which < table.shape[1]
    pages = table.gather(1, which.clamp(max=table.shape[1] - 1).long())
    return torch.where(inside, pages, 0) * page + positions % page


class WholeSequence:
    """Attention within sequences that are given whole, without a cache: for training and for scoring text.

    Args:
        tokens: The sequences [B, T].
        positions: Position of each token, where a row holds several texts; by default its place in the row.
        sequence_ids: Number of each token's text [B, T]: texts of a row do not see each other.
    """

    def __init__(
        self,
        tokens: torch.Tensor,
        *,
        positions: torch.Tensor | None = None,
        sequence_ids: torch.Tensor | None = None,
    ) -> None:
        batch, length = tokens.shape
        places = torch.arange(length, device=tokens.device, dtype=torch.int32).expand(batch, length)
        self._positions, self._sequence_ids = places if positions is None else positions, sequence_ids

    def positions(self) -> torch.Tensor:
        """Position of each token, i32[B, T]."""
        return self._positions

    def attend(
        self,
        layer: int,
        q: torch.Tensor,
        k: torch.Tensor,
        v: torch.Tensor,
        *,
        scale: float | None = None,
        window: int | None = None,
        softcap: float | None = None,
    ) -> torch.Tensor:
        """Causal attention of queries [B, T, H, d] to keys and values [B, T, KV, d]."""
        length, groups = q.shape[1], q.shape[2] // k.shape[2]
        q, k, v = (x.transpose(1, 2) for x in (q, k, v))
        k, v = (x.repeat_interleave(groups, 1) if groups > 1 else x for x in (k, v))
        places = torch.arange(length, device=q.device)
        seen = places <= places[:, None]
        if window is not None:
            seen = seen & (places > places[:, None] - window)
        if self._sequence_ids is not None:
            seen = seen & (self._sequence_ids[:, None, :, None] == self._sequence_ids[:, None, None, :])
        scores = q @ k.transpose(-1, -2) * (q.shape[-1] ** -0.5 if scale is None else scale)
        if softcap is not None:
            scores = softcap * torch.tanh(scores / softcap)
        weights = scores.float().masked_fill(~seen, -1e30).softmax(-1).to(v.dtype)
        return (weights @ v).transpose(1, 2)

    def places(self) -> torch.Tensor:
        """Positions that :meth:`gathered` gives, i32[S]."""
        return self._positions[0]

    def gathered(self, layer: int, k: torch.Tensor, v: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """The keys and values themselves."""
        return k, v
