"""Lengths of Wikipedia's articles, cut to 512 tokens, as BERT's phase of long sequences has them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from abele.arrays import Int64

LONGEST = 512
"""Tokens of the longest sequence."""
SHARES = (
    (4, 0.0),
    (16, 0.0032),
    (24, 0.0140),
    (32, 0.0359),
    (40, 0.0676),
    (48, 0.1035),
    (64, 0.1759),
    (96, 0.2897),
    (128, 0.3694),
    (192, 0.4834),
    (256, 0.5663),
    (384, 0.6836),
    (511, 0.7657),
    (512, 1.0),
)
"""Lengths, and the share of all sequences that are so long or shorter. Between two lengths, the logarithm is spread
evenly. That is at most 0.23 % of all sequences off, and 0.02 % in the mean length. Nearly a quarter of the sequences
are whole rows.

Source: histogram of 16,279,552 sequences published with Krell et al. (2021), of which these are quantiles.
"""


def histogram(count: int, shares: Sequence[tuple[int, float]] = SHARES) -> Int64:
    """Number of sequences of each length from 1 on, of ``count`` in all, [longest]."""
    lengths = np.arange(shares[-1][0] + 1)
    known, below = np.array(shares).T
    cumulative = np.interp(np.log(np.maximum(lengths, known[0])), np.log(known), below)
    found: Int64 = np.diff(np.rint(cumulative * count).astype(np.int64))
    return found
