"""Masks of attention: which elements of a row see which."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from abele.arrays import Array
from abele.errors import PackedDataError, PaddingError

DECK_MASK_VALUE = -1000.0
"""Number added to masked scores in float16. Source: deck 004, "Adjusting the model"."""


def block_mask(
    sequence_ids: npt.ArrayLike, *, positions: npt.ArrayLike | None = None, padding_sees_padding: bool = True
) -> npt.NDArray[np.bool_]:
    """True where an element may see another: both of one sequence.

    Args:
        sequence_ids: The sequence of each element, 0 for padding; int[…, length].
        positions: Place of each in its sequence, int[…, length], if none may see those after itself.
        padding_sees_padding: True for deck 004's mask, in which padding is a block too. No row of it is empty, so that
            no softmax is of nothing; False for kernels that expect empty rows.

    Returns:
        bool[…, length, length]; the last dimension is what is seen.

    Raises:
        PackedDataError: Positions of another shape.
    """
    ids = np.asarray(sequence_ids)
    mask: npt.NDArray[np.bool_] = ids[..., :, None] == ids[..., None, :]
    if positions is not None:
        places = np.asarray(positions)
        if places.shape != ids.shape:
            raise PackedDataError(f"positions of shape {list(places.shape)} for ids of shape {list(ids.shape)}")
        # Padding has no positions of its own and lies in the order of its places, all of which are equal.
        mask &= places[..., :, None] >= places[..., None, :]
    if not padding_sees_padding:
        mask &= (ids > 0)[..., :, None]
    return mask


def additive_mask(
    mask: npt.NDArray[np.bool_], *, value: float = DECK_MASK_VALUE, dtype: npt.DTypeLike = np.float16
) -> Array:
    """Array to add to scores: 0 where a mask is True, ``value`` elsewhere.

    Args:
        mask: True for elements that see each other, bool[…].
        value: A number, or minus infinity.
        dtype: Type of the scores.

    Raises:
        PaddingError: A number that the type cannot hold, such as -1e9 in float16, or that is not negative.
        PackedDataError: A mask that is not boolean.
    """
    if np.asarray(mask).dtype != np.bool_:
        raise PackedDataError(f"a mask is boolean, True for what is seen; got {np.asarray(mask).dtype}")
    target: np.dtype[Any] = np.dtype(dtype)
    with np.errstate(over="ignore"):
        stored = float(np.asarray(value).astype(target))
    if not value < 0 or np.isinf(stored) != np.isinf(value):
        raise PaddingError(
            f"a mask adds a negative number that {target} holds, not {value:g}",
            because=f"{value:g} becomes {stored:g}",
            remedy=f"value={DECK_MASK_VALUE:g}, as in float16 training on the machine, or -numpy.inf",
        )
    return np.where(mask, np.asarray(0, target), np.asarray(value, target))
