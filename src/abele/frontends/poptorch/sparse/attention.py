"""Attention of which only some blocks of scores are made.

A pattern has queries × keys elements in blocks: local (:func:`~abele.sparsity.banded_pattern`), strided, or as
BigBird's with global and random blocks. All heads share one, or each has its own. Work and memory are those of the
blocks that are held: 512 tokens in blocks of 16 with a quarter held make 65,536 scores per head in place of 262,144.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from math import prod, sqrt

import numpy as np
import torch

from abele.counts import check_counts
from abele.errors import PatternMismatchError, SparsePatternError, TypeMismatchError
from abele.frontends.poptorch.capture.block_attention import stacked_attention
from abele.frontends.poptorch.values.checks import check_probability
from abele.sparsity import Pattern, split_stack, stack_patterns

HeadPatterns = Pattern | Sequence[Pattern]
"""One pattern for all heads, or one for each."""


def block_sparse_attention(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    pattern: HeadPatterns,
    causal: bool = False,
    scale: float | None = None,
    *,
    key_padding_mask: torch.Tensor | None = None,
    dropout_p: float = 0.0,
) -> torch.Tensor:
    """Scaled dot product attention over the blocks of a pattern.

    As ``torch.nn.functional.scaled_dot_product_attention`` with the pattern as its mask, but for queries that see
    nothing: they are zeros, not NaN.

    Sequences may be shorter than the pattern: they have its upper left corner, filled up to whole blocks with keys that
    nothing sees.

    Args:
        q: Queries [..., heads, queries, width].
        k: Keys [..., heads, keys, width].
        v: Values [..., heads, keys, width of V].
        pattern: Blocks of scores that are made, of queries × keys.
        causal: True to hide keys behind each query; blocks that are hidden throughout are not made.
        scale: Factor of the scores; by default 1 / √width.
        key_padding_mask: True for keys that no query sees, such as padding, bool[..., keys].
        dropout_p: Probability with which each share of a key becomes zero, whether a module trains or not.

    Returns:
        [..., heads, queries, width of V].

    Raises:
        SparsePatternError: A number of patterns that is neither one nor that of heads.
        PatternMismatchError: A pattern of fewer queries or keys, or operands that do not fit each other.
        TypeMismatchError: A mask that is not of truth values.
        InvalidOptionError: A probability below 0, or of 1 and more.
    """
    check_probability(dropout_p=dropout_p)
    stack = _stack(q, k, v, pattern, causal)
    queries, keys, height = q.shape[-2], k.shape[-2], stack.block[0]
    rows, columns = -(-queries // height) * height, stack.shape[1]
    one, two, three = (
        _filled(t.reshape((prod(t.shape[:-2]), *t.shape[-2:])), count)
        for t, count in ((q, rows), (k, columns), (v, columns))
    )
    hidden = _hidden(q, key_padding_mask, keys, columns)
    factor = 1.0 / sqrt(max(q.shape[-1], 1)) if scale is None else float(scale)
    made = stacked_attention(
        one, two, three, stack, causal=causal, scale=factor, hidden=hidden, dropout=float(dropout_p)
    )
    return made[:, :queries].reshape((*q.shape[:-1], v.shape[-1]))


class BlockSparseSelfAttention(torch.nn.Module):
    """Self-attention over the blocks of a pattern: projections to heads, :func:`block_sparse_attention`, and back.

    Args:
        embed_dim: Width of a token, a multiple of the heads.
        num_heads: Heads.
        pattern: Blocks of scores that are made, of tokens × tokens; for all heads, or one for each.
        causal: True to hide tokens behind each.
        bias: True to add biases in the projections.
        dropout: Probability with which each share of a token becomes zero while training.

    Raises:
        SparsePatternError: A number of patterns that is neither one nor that of heads.
        PatternMismatchError: A pattern that is not square, or a width that is no multiple of the heads.
        InvalidOptionError: A probability below 0, or of 1 and more.
    """

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        *,
        pattern: HeadPatterns,
        causal: bool = False,
        bias: bool = True,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        check_counts(embed_dim=embed_dim, num_heads=num_heads)
        check_probability(dropout=dropout)
        if embed_dim % num_heads:
            raise PatternMismatchError(f"a width of {embed_dim:,} is no multiple of {num_heads:,} heads")
        given = tuple(pattern) if isinstance(pattern, Sequence) else (pattern,)
        if not all(isinstance(one, Pattern) for one in given):
            raise TypeMismatchError(f"a pattern of attention is one Pattern, or one for each head, got {pattern!r}")
        if len(given) not in (1, num_heads):
            raise SparsePatternError(
                f"{len(given)} patterns for {num_heads} heads", remedy="one for all heads, or one for each"
            )
        for one in given:
            if one.shape != (given[0].shape[1],) * 2:
                raise PatternMismatchError(
                    f"{one} is not of tokens x tokens", because=f"tokens are {given[0].shape[1]:,}"
                )
        self.embed_dim, self.num_heads, self.causal, self.dropout = embed_dim, num_heads, causal, float(dropout)
        # As plain data, which files of models hold.
        self._held = tuple((p.shape, p.block, np.packbits(p.mask).tobytes()) for p in given)
        self.in_proj = torch.nn.Linear(embed_dim, 3 * embed_dim, bias)
        self.out_proj = torch.nn.Linear(embed_dim, embed_dim, bias)

    @property
    def patterns(self) -> tuple[Pattern, ...]:
        """The pattern that all heads share, or that of each."""
        return tuple(_unpacked(*held) for held in self._held)

    def forward(self, x: torch.Tensor, key_padding_mask: torch.Tensor | None = None) -> torch.Tensor:
        """[batch, tokens, width] to the same.

        Args:
            x: Tokens, no more than the pattern has.
            key_padding_mask: True for tokens that none sees, bool[batch, tokens].

        Raises:
            As :func:`block_sparse_attention`.
        """
        batch, tokens, width = x.shape
        heads = self.in_proj(x).reshape((batch, tokens, 3, self.num_heads, width // self.num_heads))
        q, k, v = heads.permute((2, 0, 3, 1, 4)).unbind(0)
        dropout = self.dropout if self.training else 0.0
        seen = block_sparse_attention(
            q, k, v, self.patterns, self.causal, key_padding_mask=key_padding_mask, dropout_p=dropout
        )
        made: torch.Tensor = self.out_proj(seen.transpose(1, 2).reshape((batch, tokens, width)))
        return made

    def extra_repr(self) -> str:
        """Sizes and pattern."""
        one, *others = self.patterns
        kind = "per head" if others else "shared"
        dropout = f", dropout={self.dropout}" if self.dropout else ""
        causal = ", causal" if self.causal else ""
        return f"{self.embed_dim}, num_heads={self.num_heads}, {one} {kind}{causal}{dropout}"


@lru_cache(64)
def _unpacked(shape: tuple[int, int], block: tuple[int, int], held: bytes) -> Pattern:
    """The pattern of a mask's bits."""
    grid = shape[0] // block[0], shape[1] // block[1]
    bits = np.unpackbits(np.frombuffer(held, np.uint8), count=grid[0] * grid[1])
    return Pattern.from_dense_mask(bits.reshape(grid), block)


def _stack(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, pattern: HeadPatterns, causal: bool) -> Pattern:
    """The pattern of a stack of heads that operands are multiplied by."""
    fits = q.ndim >= 3 and q.shape[:-2] == k.shape[:-2] == v.shape[:-2]
    if not (fits and q.shape[-1] == k.shape[-1] and k.shape[-2] == v.shape[-2]):
        raise PatternMismatchError(
            f"queries {list(q.shape)}, keys {list(k.shape)} and values {list(v.shape)} do not fit each other",
            because="they are [..., heads, rows, width], keys and values of as many rows",
        )
    given = pattern if isinstance(pattern, Pattern) else tuple(pattern)
    return _heads_stack(given, q.shape[-3], (q.shape[-2], k.shape[-2]), causal)


@lru_cache(64)
def _heads_stack(pattern: Pattern | tuple[Pattern, ...], heads: int, shape: tuple[int, int], causal: bool) -> Pattern:
    """The patterns of ``heads``, or the one that all share, as a stack; without blocks that a mask hides throughout."""
    if isinstance(pattern, Pattern):
        stacked = pattern.shape == (heads * shape[0], shape[1]) and pattern.shape != shape
        given = split_stack(pattern, heads) if stacked else (pattern,)
    else:
        given = pattern
    if len(given) not in (1, heads):
        raise SparsePatternError(
            f"{len(given)} patterns for {heads} heads", remedy="one for all heads, or one for each"
        )
    for one in given:
        if one.shape[0] < shape[0] or one.shape[1] < shape[1]:
            raise PatternMismatchError(
                f"{one} is not of {shape[0]:,} queries x {shape[1]:,} keys",
                because="sequences may be shorter than a pattern, not longer",
                remedy="a pattern for this length",
            )
    corners = [_corner(one, shape) for one in given]
    return stack_patterns([_seen(one) for one in corners] if causal else corners)


def _corner(pattern: Pattern, shape: tuple[int, int]) -> Pattern:
    """The blocks that hold anything of the first rows and columns."""
    (height, width), rows, columns = pattern.block, pattern.rows, pattern.columns
    whole = -(-shape[0] // height) * height, -(-shape[1] // width) * width
    if whole == pattern.shape:
        return pattern
    keep = np.flatnonzero((rows * height < shape[0]) & (columns * width < shape[1]))
    return Pattern.from_coordinates(whole, rows[keep], columns[keep], pattern.block)[0]


def _filled(operand: torch.Tensor, rows: int) -> torch.Tensor:
    """[groups, rows, width] with zeros after the rows that there are."""
    missing = rows - operand.shape[1]
    return torch.nn.functional.pad(operand, (0, 0, 0, missing)) if missing else operand


def _hidden(q: torch.Tensor, mask: torch.Tensor | None, keys: int, columns: int) -> torch.Tensor | None:
    """True for keys that no query of a sample sees, bool[batch, columns]; None where all are seen."""
    batch = prod(q.shape[:-3])
    if mask is None:
        return (torch.arange(columns) >= keys).expand(batch, columns) if keys < columns else None
    if mask.dtype != torch.bool:
        raise TypeMismatchError(
            f"key_padding_mask holds truth values, got {mask.dtype}", remedy="True for what is not seen: ids == padding"
        )
    if mask.shape != (*q.shape[:-3], keys):
        raise PatternMismatchError(f"key_padding_mask is {[*q.shape[:-3], keys]}, got {list(mask.shape)}")
    return torch.nn.functional.pad(mask.reshape(batch, keys), (0, columns - keys), value=True)


def _seen(pattern: Pattern) -> Pattern:
    """The blocks that a causal mask leaves anything of."""
    (height, width), rows, columns = pattern.block, pattern.rows, pattern.columns
    keep = np.flatnonzero(columns * width < (rows + 1) * height)
    return Pattern.from_coordinates(pattern.shape, rows[keep], columns[keep], pattern.block)[0]
