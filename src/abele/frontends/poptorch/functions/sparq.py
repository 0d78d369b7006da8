"""SparQ attention for models that make text: a query reads some components of all keys, and some keys and values.

Plain operators of PyTorch, in eager mode and while a model is recorded.
"""

from __future__ import annotations

import math

import torch

from abele.frontends.poptorch.functions.cached_attention import CacheShapeError

Tensor = torch.Tensor


def sparq_attention(
    q: Tensor,
    keys: Tensor,
    values: Tensor,
    *,
    components: int,
    positions: int,
    local: int = 0,
    by_component: Tensor | None = None,
    mean: Tensor | None = None,
    lengths: Tensor | None = None,
) -> Tensor:
    """Nearly attention of one query for each head (arXiv:2312.04985): [batch, heads, width].

    With all components and positions it is attention. For each kv head it reads ``components · S + 2 · positions ·
    width`` elements of keys and values, where attention reads ``2 · S · width``.

    Args:
        q: Queries [batch, heads, width]; heads are a multiple of kv heads.
        keys: [batch, kv heads, S, width].
        values: As keys.
        components: Components of keys, r, that approximate scores are made of: the largest of a kv head's queries.
        positions: Positions, k, of the largest approximate shares, which are attended to.
        local: The last positions of a sequence that always are.
        by_component: Keys transposed, [batch, kv heads, width, S], so that a component is read in one stretch.
        mean: Mean of the values that are seen, [batch, kv heads, width]; computed by default.
        lengths: Positions of each sequence that are seen, int[batch], at least 1; all by default.

    Raises:
        CacheShapeError: The shapes do not fit, or a number is out of its range.
    """
    _check(q, keys, values, components, positions, local)
    (batch, heads, width), (_, shared, size, _) = q.shape, keys.shape
    grouped = q.reshape(batch, shared, heads // shared, width)
    turned = keys.transpose(2, 3) if by_component is None else by_component
    place = torch.arange(size, device=q.device)
    if lengths is not None:
        hidden = place >= lengths.reshape(batch, 1, 1, 1)
        last = lengths.reshape(batch, 1, 1)
        # What is not seen may be anything, also not a number.
        seen = (place < lengths[:, None]).reshape(batch, 1, size, 1)
        values = torch.where(seen, values, torch.zeros((), dtype=values.dtype))
    if mean is None:
        count = size if lengths is None else lengths.reshape(batch, 1, 1).to(values.dtype)
        mean = values.sum(2) / count
    largest = grouped.abs().sum(2)
    read = largest.topk(components, -1).indices
    some = torch.gather(grouped, 3, read[:, :, None].expand(-1, -1, heads // shared, -1))
    part = some.abs().sum(-1, keepdim=True) / grouped.abs().sum(-1, keepdim=True)
    scores = some / torch.sqrt(width * part) @ torch.gather(turned, 2, read[..., None].expand(-1, -1, -1, size))
    if lengths is not None:
        scores = scores.masked_fill(hidden, -torch.inf)
    shares = torch.softmax(scores, -1)
    wanted = shares.sum(2)
    if local:
        end = size if lengths is None else last
        # Shares of all queries come to their number at most.
        near = (place >= end - local) & (place < end) if lengths is not None else place >= size - local
        wanted = wanted + near.to(wanted.dtype) * (heads // shared + 1)
    best = wanted.topk(positions, -1).indices
    kept = torch.gather(shares, 3, best[:, :, None].expand(-1, -1, heads // shared, -1))
    alpha = kept.sum(-1, keepdim=True)
    rows = best[..., None].expand(-1, -1, -1, width)
    near_scores = grouped * (1.0 / math.sqrt(width)) @ torch.gather(keys, 2, rows).transpose(2, 3)
    if lengths is not None:
        near_scores = near_scores.masked_fill((best >= last)[:, :, None], -torch.inf)
    mixed = torch.softmax(near_scores, -1) @ torch.gather(values, 2, rows)
    return (alpha * mixed + (1.0 - alpha) * mean[:, :, None]).reshape(batch, heads, width)


def _check(q: Tensor, keys: Tensor, values: Tensor, components: int, positions: int, local: int) -> None:
    def require(condition: bool, problem: str) -> None:
        if not condition:
            raise CacheShapeError(f"sparq_attention: {problem}")

    shapes = f"q {list(q.shape)}, keys {list(keys.shape)}, values {list(values.shape)}"
    fits = q.dim() == 3 and keys.dim() == 4 and keys.shape == values.shape
    fits = fits and (q.shape[0], q.shape[2]) == (keys.shape[0], keys.shape[3])
    require(fits, f"shapes do not fit: {shapes}")
    require(bool(keys.shape[1]) and q.shape[1] % keys.shape[1] == 0, f"heads are no multiple of kv heads: {shapes}")
    require(1 <= components <= q.shape[2], f"{components} components of {q.shape[2]} cannot be read")
    require(1 <= positions <= keys.shape[2], f"{positions} positions of {keys.shape[2]:,} cannot be attended to")
    require(0 <= local <= positions, f"the last {local} positions are no part of {positions}")
