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

from abele.errors import PatternMismatchError, SparsePatternError, TypeMismatchError
from abele.frontends.poptorch.capture.block_attention import stacked_attention
from abele.frontends.poptorch.values.checks import check_counts
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
) -> torch.Tensor:
    """Scaled dot product attention over the blocks of a pattern.

    As ``torch.nn.functional.scaled_dot_product_attention`` with the pattern as its mask, but for queries that see
    nothing: they are zeros, not NaN.

    Args:
        q: Queries [..., heads, queries, width].
        k: Keys [..., heads, keys, width].
        v: Values [..., heads, keys, width of V].
        pattern: Blocks of scores that are made, of queries × keys.
        causal: True to hide keys behind each query; blocks that are hidden throughout are not made.
        scale: Factor of the scores; by default 1 / √width.

    Returns:
        [..., heads, queries, width of V].

    Raises:
        SparsePatternError: A number of patterns that is neither one nor that of heads.
        PatternMismatchError: A pattern of another shape than queries × keys, or operands that do not fit each other.
    """
    stack = _stack(q, k, v, pattern, causal)
    one, two, three = (t.reshape((prod(t.shape[:-2]), *t.shape[-2:])) for t in (q, k, v))
    factor = 1.0 / sqrt(max(q.shape[-1], 1)) if scale is None else float(scale)
    made = stacked_attention(one, two, three, stack, causal=causal, scale=factor)
    return made.reshape((*q.shape[:-1], v.shape[-1]))


class BlockSparseSelfAttention(torch.nn.Module):
    """Self-attention over the blocks of a pattern: projections to heads, :func:`block_sparse_attention`, and back.

    Args:
        embed_dim: Width of a token, a multiple of the heads.
        num_heads: Heads.
        pattern: Blocks of scores that are made, of tokens × tokens; for all heads, or one for each.
        causal: True to hide tokens behind each.
        bias: True to add biases in the projections.

    Raises:
        SparsePatternError: A number of patterns that is neither one nor that of heads.
        PatternMismatchError: A pattern that is not square, or a width that is no multiple of the heads.
    """

    def __init__(
        self, embed_dim: int, num_heads: int, *, pattern: HeadPatterns, causal: bool = False, bias: bool = True
    ) -> None:
        super().__init__()
        check_counts(embed_dim=embed_dim, num_heads=num_heads)
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
        self.embed_dim, self.num_heads, self.causal = embed_dim, num_heads, causal
        # As plain data, which files of models hold.
        self._held = tuple((p.shape, p.block, np.packbits(p.mask).tobytes()) for p in given)
        self.in_proj = torch.nn.Linear(embed_dim, 3 * embed_dim, bias)
        self.out_proj = torch.nn.Linear(embed_dim, embed_dim, bias)

    @property
    def patterns(self) -> tuple[Pattern, ...]:
        """The pattern that all heads share, or that of each."""
        return tuple(_unpacked(*held) for held in self._held)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[batch, tokens, width] to the same."""
        batch, tokens, width = x.shape
        heads = self.in_proj(x).reshape((batch, tokens, 3, self.num_heads, width // self.num_heads))
        q, k, v = heads.permute((2, 0, 3, 1, 4)).unbind(0)
        seen = block_sparse_attention(q, k, v, self.patterns, self.causal)
        made: torch.Tensor = self.out_proj(seen.transpose(1, 2).reshape((batch, tokens, width)))
        return made

    def extra_repr(self) -> str:
        """Sizes and pattern."""
        one, *others = self.patterns
        kind = "per head" if others else "shared"
        return f"{self.embed_dim}, num_heads={self.num_heads}, {one} {kind}" + (", causal" if self.causal else "")


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
        if one.shape != shape:
            raise PatternMismatchError(
                f"{one} is not of {shape[0]:,} queries x {shape[1]:,} keys",
                remedy="pad the sequence to the pattern's, or make a pattern for its length",
            )
    return stack_patterns([_seen(one) for one in given] if causal else given)


def _seen(pattern: Pattern) -> Pattern:
    """The blocks that a causal mask leaves anything of."""
    (height, width), rows, columns = pattern.block, pattern.rows, pattern.columns
    keep = np.flatnonzero(columns * width < (rows + 1) * height)
    return Pattern.from_coordinates(pattern.shape, rows[keep], columns[keep], pattern.block)[0]
