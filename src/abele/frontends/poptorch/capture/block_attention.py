"""Attention over the blocks of a pattern, as models call it.

Outside of a recorded model it is PyTorch's own operators over the blocks that are held, so that autograd gives its
gradients in any type. While a model is recorded it is one operator of the network, which names its pattern by a text.
"""

from __future__ import annotations

import torch

from abele.frontends.poptorch.program.recording import isRunningOnIpu
from abele.sparsity import Pattern

STACKS: dict[str, Pattern] = {}
"""Patterns of stacks of heads that recorded calls name, by their digests; some kilobytes each, and few."""

Tensor = torch.Tensor


def stacked_attention(q: Tensor, k: Tensor, v: Tensor, pattern: Pattern, *, causal: bool, scale: float) -> Tensor:
    """softmax(scale · Q · Kᵀ) · V over the blocks of a pattern: [groups, queries, width of V].

    Args:
        q: Queries [groups, queries, width].
        k: Keys [groups, keys, width].
        v: Values [groups, keys, width of V].
        pattern: Of a stack of heads; group g is head g % heads.
        causal: True to hide keys behind each query.
        scale: Factor of the scores.
    """
    if not isRunningOnIpu():
        return _by_blocks(q, k, v, pattern, causal=causal, scale=scale)
    STACKS[pattern.digest] = pattern
    made: Tensor = torch.ops.abele.block_attention(q, k, v, pattern.digest, causal, scale)
    return made


def _by_blocks(q: Tensor, k: Tensor, v: Tensor, pattern: Pattern, *, causal: bool, scale: float) -> Tensor:
    (height, width), rows, columns = pattern.block, *_places(pattern)
    heads = pattern.shape[0] // q.shape[1]
    head = rows // (q.shape[1] // height)
    left = q.reshape((-1, heads * q.shape[1] // height, height, q.shape[2]))[:, rows]
    read = [t.reshape((-1, heads, t.shape[1] // width, width, t.shape[2]))[:, head, columns] for t in (k, v)]
    scores = torch.einsum("nbid,nbjd->nbij", left * scale, read[0])
    if causal:
        down = (rows % (q.shape[1] // height) * height)[:, None, None] + torch.arange(height)[:, None]
        scores = scores.masked_fill(columns[:, None, None] * width + torch.arange(width) > down, -torch.inf)
    shape = (len(scores), heads * q.shape[1] // height, height)
    most = scores.detach().amax(3)
    top = scores.new_full(shape, -torch.inf).scatter_reduce(1, rows[:, None].expand(most.shape), most, "amax")
    powers = torch.exp(scores - top.masked_fill(top == -torch.inf, 0.0)[:, rows, :, None])
    total = scores.new_zeros(shape).index_add(1, rows, powers.sum(3))
    shares = powers / total.masked_fill(total == 0, 1.0)[:, rows, :, None]
    made = q.new_zeros((*shape, v.shape[2])).index_add(1, rows, torch.einsum("nbij,nbjd->nbid", shares, read[1]))
    return made.reshape((*q.shape[:2], v.shape[2]))


def _places(pattern: Pattern) -> tuple[Tensor, Tensor]:
    """Block row in the stack and block column of each block."""
    return torch.from_numpy(pattern.rows.copy()), torch.from_numpy(pattern.columns.copy())


# --- what PyTorch records ---------------------------------------------------------------------------------------------


@torch.library.custom_op("abele::block_attention", mutates_args=())
def _block_attention(q: Tensor, k: Tensor, v: Tensor, pattern: str, causal: bool, scale: float) -> Tensor:
    return _by_blocks(q, k, v, STACKS[pattern], causal=causal, scale=scale)


@_block_attention.register_fake
def _(q: Tensor, k: Tensor, v: Tensor, pattern: str, causal: bool, scale: float) -> Tensor:
    return q.new_empty((*q.shape[:2], v.shape[2]))
