"""``flex_attention`` while a model is recorded: attention whose scores and mask are functions of their place.

PyTorch hands a call to an operator that only its own compiler takes. Here the functions are mapped over all places,
and the attention is made of operators that have lowerings: one product where scores are only masked.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.nn.functional as functional
from torch._dynamo._trace_wrapped_higher_order_op import TransformGetItemToIndex
from torch.nn.attention import flex_attention as flex

from abele.frontends.poptorch.capture.patches import patched

Tensor = torch.Tensor


@contextmanager
def flex_attention_recorded() -> Iterator[None]:
    """Inside, ``flex_attention`` is recorded as operators, with gradients on any device."""
    replaced = {"_FLEX_ATTENTION_DISABLE_COMPILE_DEBUG": True, "flex_attention_hop": _attention}
    with patched(flex, _validate_device=lambda *_: None, **replaced):
        yield


def _attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    score_mod: Callable[..., Tensor],
    block_mask: tuple[Any, ...],
    scale: float,
    kernel_options: dict[str, Any],
) -> tuple[Tensor, Tensor, Tensor]:
    """The results, and of each row the logarithm of the sum of exponentials and the largest score, to base 2."""
    groups = query.shape[1] // key.shape[1]
    if groups > 1:
        key, value = (t.repeat_interleave(groups, 1) for t in (key, value))
    key, value = (t.expand(query.shape[0], *t.shape[1:]) for t in (key, value))
    places = [torch.arange(n) for n in (*query.shape[:2], query.shape[2], key.shape[2])]
    mask_mod = block_mask[-1]
    mask = None if mask_mod is flex.noop_mask else _mapped(mask_mod)(*places)
    scores = (query.float() @ key.float().transpose(-2, -1)) * scale
    if score_mod is not flex._identity:
        scores = _mapped(score_mod, (0,))(scores, *places).float()
    if mask is not None:
        scores = torch.where(mask, scores, -math.inf)
    statistics = scores.logsumexp(-1) / math.log(2), scores.amax(-1) / math.log(2)
    if score_mod is flex._identity:
        return functional.scaled_dot_product_attention(query, key, value, attn_mask=mask, scale=scale), *statistics
    return torch._safe_softmax(scores, -1).to(value.dtype) @ value, *statistics


def _mapped(function: Callable[..., Tensor], before: tuple[int, ...] = ()) -> Callable[..., Tensor]:
    """A function of one score's place as a function of all batches, heads, rows and columns."""
    mapped: Callable[..., Tensor] = flex._vmap_for_bhqkv(function, prefix=before)

    def called(*args: Tensor) -> Tensor:
        with TransformGetItemToIndex():
            return mapped(*args)

    return called
