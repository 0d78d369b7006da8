"""Masks of attention made in the model from sequence ids, and what lies at places that a batch names."""

from __future__ import annotations

import torch

from abele.errors import PaddingError
from abele.packing.data.derived import DECK_MASK_VALUE


def attention_mask(
    sequence_ids: torch.Tensor,
    *,
    causal: bool = False,
    dtype: torch.dtype | None = None,
    value: float = DECK_MASK_VALUE,
) -> torch.Tensor:
    """Mask of the elements of a row that see each other, for ``scaled_dot_product_attention``.

    Made in the model it costs a comparison instead of a transfer of [rows, length, length]. Padding sees padding, so
    that no softmax is of nothing.

    Args:
        sequence_ids: The sequence of each element, 0 for padding; int[rows, length].
        causal: True if no element may see those after itself; the elements of a sequence lie in their own order.
        dtype: None for a boolean mask; otherwise one to be added to scores of this type.
        value: Number added where nothing is seen.

    Returns:
        [rows, 1, length, length], for all heads.

    Raises:
        PaddingError: A value that the type cannot hold, or that is not negative.

    Source: deck 004, "Adjusting the model".
    """
    seen = sequence_ids[:, :, None] == sequence_ids[:, None, :]
    if causal:
        place = torch.arange(sequence_ids.shape[1], device=sequence_ids.device)
        seen = seen & (place[:, None] >= place[None, :])
    seen = seen[:, None]
    if dtype is None:
        return seen
    if not (value == -float("inf") or torch.finfo(dtype).min <= value < 0):
        raise PaddingError(
            f"a mask adds a negative number that {dtype} holds, not {value:g}",
            remedy=f"value={DECK_MASK_VALUE:g}, or minus infinity",
        )
    return torch.where(seen, torch.zeros((), dtype=dtype), torch.full((), value, dtype=dtype))


def at_places(hidden: torch.Tensor, places: torch.Tensor) -> torch.Tensor:
    """Elements at some places of each row.

    Args:
        hidden: Values of a row's elements, [rows, length, features].
        places: Places in the row, such as ``cls_places`` or ``masked_lm_positions``; int64[rows, num_places].

    Returns:
        [rows, num_places, features].
    """
    return torch.gather(hidden, 1, places.long()[:, :, None].expand(-1, -1, hidden.shape[2]))
