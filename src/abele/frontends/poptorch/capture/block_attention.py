"""Attention over the blocks of a pattern, as models call it.

Scores, their softmax and its product with values are three functions of PyTorch. What hides keys and drops shares
stands between them. Outside of a recorded model they are PyTorch's own operators over the blocks that are held, so that
autograd gives gradients in any type. While a model is recorded each is one operator of the network, which names its
pattern by a text.
"""

from __future__ import annotations

import torch

from abele.frontends.poptorch.program.recording import isRunningOnIpu
from abele.sparsity import Pattern

STACKS: dict[str, Pattern] = {}
"""Patterns of stacks of heads that recorded calls name, by their digests; some kilobytes each, and few."""

Tensor = torch.Tensor


def stacked_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    pattern: Pattern,
    *,
    causal: bool,
    scale: float,
    hidden: Tensor | None = None,
    dropout: float = 0.0,
) -> Tensor:
    """softmax(scale · Q · Kᵀ) · V over the blocks of a pattern: [groups, queries, width of V].

    Args:
        q: Queries [groups, queries, width].
        k: Keys [groups, keys, width].
        v: Values [groups, keys, width of V].
        pattern: Of a stack of heads; group g is head g % heads.
        causal: True to hide keys behind each query.
        scale: Factor of the scores.
        hidden: True for keys that no query sees, bool[batch, keys].
        dropout: Probability with which each share becomes zero; others grow to keep the mean.
    """
    STACKS[pattern.digest] = pattern
    recorded = isRunningOnIpu()
    scores_of, softmax_of, product_of = _RECORDED if recorded else (_scores, _softmax, _product)
    heads = pattern.shape[0] // q.shape[1]
    scores = scores_of(q * scale, k, pattern.digest)
    if hidden is not None:
        infinite = torch.zeros(hidden.shape, dtype=q.dtype).masked_fill(hidden, -torch.inf)
        of_blocks = infinite.reshape((len(hidden), -1, pattern.block[1])).index_select(1, _places(pattern)[1])
        # Where all heads share a pattern, each is a sample of its own.
        by_sample = scores.reshape((len(hidden), -1, *scores.shape[1:]))
        scores = (by_sample + of_blocks[:, None, :, None]).reshape(scores.shape)
    shares = softmax_of(scores, pattern.digest, heads, causal)
    if dropout:
        shares = torch.nn.functional.dropout(shares, dropout)
    return product_of(shares, v, pattern.digest, heads)


def _places(pattern: Pattern) -> tuple[Tensor, Tensor]:
    """Block row in the stack and block column of each block."""
    return torch.from_numpy(pattern.rows.copy()), torch.from_numpy(pattern.columns.copy())


def _scores(q: Tensor, k: Tensor, stack: str) -> Tensor:
    """Q · Kᵀ at the places of a pattern, [batch, blocks, block rows, block columns]."""
    pattern = STACKS[stack]
    (height, width), (rows, columns) = pattern.block, _places(pattern)
    heads, down = pattern.shape[0] // q.shape[1], q.shape[1] // height
    left = q.reshape((-1, heads * down, height, q.shape[2]))[:, rows]
    right = k.reshape((-1, heads, k.shape[1] // width, width, k.shape[2]))[:, rows // down, columns]
    return torch.einsum("nbid,nbjd->nbij", left, right)


def _softmax(scores: Tensor, stack: str, heads: int, causal: bool) -> Tensor:
    """Shares of the held scores of each row; zeros where all are hidden."""
    pattern = STACKS[stack]
    (height, width), (rows, columns) = pattern.block, _places(pattern)
    if causal:
        down = (rows % (pattern.grid[0] // heads) * height)[:, None, None] + torch.arange(height)[:, None]
        scores = scores.masked_fill(columns[:, None, None] * width + torch.arange(width) > down, -torch.inf)
    shape = (len(scores), pattern.grid[0], height)
    most = scores.detach().amax(3)
    top = scores.new_full(shape, -torch.inf).scatter_reduce(1, rows[:, None].expand(most.shape), most, "amax")
    powers = torch.exp(scores - top.masked_fill(top == -torch.inf, 0.0)[:, rows, :, None])
    total = scores.new_zeros(shape).index_add(1, rows, powers.sum(3))
    return powers / total.masked_fill(total == 0, 1.0)[:, rows, :, None]


def _product(shares: Tensor, v: Tensor, stack: str, heads: int) -> Tensor:
    """P · V of held blocks P: [groups, queries, width of V]."""
    pattern = STACKS[stack]
    (height, width), (rows, columns) = pattern.block, _places(pattern)
    down = pattern.grid[0] // heads
    read = v.reshape((-1, heads, v.shape[1] // width, width, v.shape[2]))[:, rows // down, columns]
    shape = (len(shares), pattern.grid[0], height, v.shape[2])
    made = v.new_zeros(shape).index_add(1, rows, torch.einsum("nbij,nbjd->nbid", shares, read))
    return made.reshape((len(v), down * height, v.shape[2]))


# --- what PyTorch records ---------------------------------------------------------------------------------------------


@torch.library.custom_op("abele::block_scores", mutates_args=())
def _recorded_scores(q: Tensor, k: Tensor, stack: str) -> Tensor:
    return _scores(q, k, stack)


@_recorded_scores.register_fake
def _(q: Tensor, k: Tensor, stack: str) -> Tensor:
    pattern = STACKS[stack]
    batch = q.shape[0] * q.shape[1] // pattern.shape[0]
    return q.new_empty((batch, pattern.num_blocks, *pattern.block))


@torch.library.custom_op("abele::block_softmax", mutates_args=())
def _recorded_softmax(scores: Tensor, stack: str, heads: int, causal: bool) -> Tensor:
    return _softmax(scores, stack, heads, causal)


@_recorded_softmax.register_fake
def _(scores: Tensor, stack: str, heads: int, causal: bool) -> Tensor:
    return torch.empty_like(scores)


@torch.library.custom_op("abele::block_product", mutates_args=())
def _recorded_product(shares: Tensor, v: Tensor, stack: str, heads: int) -> Tensor:
    return _product(shares, v, stack, heads)


@_recorded_product.register_fake
def _(shares: Tensor, v: Tensor, stack: str, heads: int) -> Tensor:
    return v.new_empty((v.shape[0], STACKS[stack].shape[0] // heads, v.shape[2]))


_RECORDED = torch.ops.abele.block_scores, torch.ops.abele.block_softmax, torch.ops.abele.block_product
