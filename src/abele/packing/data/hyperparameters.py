"""Optimiser settings for packed data: one update sees more sequences than its batch has rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from abele.errors import PackedDataError


@dataclass(frozen=True)
class PackedSettings:
    """Settings of training on packs that keep the run of training on single sequences.

    Attributes:
        betas: Decays of the optimiser's moments.
        accumulation: Micro-batches of an update.
        sequences_per_update_ratio: Mean number of sequences of an update over that without packing; 1 where the
            accumulation divides by the packing factor.
    """

    betas: tuple[float, ...]
    accumulation: int
    sequences_per_update_ratio: float


def packed_settings(
    factor: float, *, betas: Sequence[float] = (0.9, 0.999), accumulation: int = 1, keep_batch: bool = True
) -> PackedSettings:
    """Settings for a packing factor, by either of two rules.

    With ``keep_batch`` the accumulation is divided by the factor, so that an update sees as many sequences on average
    as before, and decays stay as they are as far as that goes. What does not divide, and everything without
    ``keep_batch``, makes an update see ``p`` times the sequences; then there are ``p`` times fewer updates, and decays
    become ``β ** p``, so that moments forget as much in the same number of sequences.

    Args:
        factor: Sequences over packs, at least 1.
        betas: Decays of moments without packing (LAMB, Adam), each from 0 to below 1.
        accumulation: Micro-batches of an update without packing.
        keep_batch: True to divide the accumulation first.

    Raises:
        PackedDataError: A factor below 1, decays outside of [0, 1), an accumulation below 1.

    Source: deck 004, "Adjusting hyperparameters" (β₁ := β₁^p, β₂ := β₂^p); arXiv 2107.02027, section 3.3.
    """
    if not isinstance(factor, int | float) or not 1 <= factor < float("inf"):
        raise PackedDataError(
            f"a packing factor is a number of at least 1, not {factor!r}", remedy="sequences over packs"
        )
    if not isinstance(accumulation, int) or accumulation < 1:
        raise PackedDataError(f"accumulation is a whole number of at least 1, not {accumulation!r}")
    for beta in betas:
        if not 0 <= beta < 1:
            raise PackedDataError(f"a decay is from 0 to below 1, not {beta}")
    packed = max(1, round(accumulation / factor)) if keep_batch else accumulation
    ratio = packed * factor / accumulation
    return PackedSettings(tuple(float(beta) ** ratio for beta in betas), packed, ratio)
