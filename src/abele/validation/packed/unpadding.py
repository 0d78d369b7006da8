"""Speed-up of un-padding where accelerators wait for the one with the most tokens.

Un-padding computes the real tokens of a batch alone. Sequences are dealt out at random, so an update takes as long as
the accelerator takes whose sequences are the longest. The number of tokens of a batch is a sum of lengths, whose
distribution is that of the histogram, convolved with itself; the greatest of many has the power of its cumulative
distribution. Both are computed, nothing is drawn.
"""

from __future__ import annotations

import numpy as np

from abele.arrays import Float64
from abele.errors import InvalidOptionError
from abele.packing import SizeHistogram


def unpadded_speed_up(histogram: SizeHistogram, capacity: int, accelerators: int, batch: int) -> float:
    """Expected speed-up of un-padding over rows of ``capacity`` tokens.

    Args:
        histogram: Lengths of the sequences.
        capacity: Tokens of a padded row.
        accelerators: That wait for each other in every update.
        batch: Sequences of each of them.

    Returns:
        Padded tokens of an accelerator, over the mean of the greatest number of real ones.

    Raises:
        InvalidOptionError: ``accelerators`` or ``batch`` is below 1.
    """
    for name, value in (("accelerators", accelerators), ("batch", batch)):
        if value < 1:
            raise InvalidOptionError(f"{name} = {value}: must be at least 1")
    one = np.zeros(int(histogram.lengths.max()) + 1)
    one[histogram.lengths] = histogram.counts / histogram.num_items
    below = np.minimum(np.cumsum(_summed(one, batch)), 1.0)
    greatest = float((1 - below**accelerators).sum())
    return batch * capacity / greatest


def _summed(one: Float64, count: int) -> Float64:
    """The distribution of a sum of ``count`` numbers that have the distribution ``one``: a power of its transform."""
    length = count * (len(one) - 1) + 1
    # The transform leaves noise of either sign where there is nothing.
    found: Float64 = np.maximum(np.fft.irfft(np.fft.rfft(one, 2 * length) ** count)[:length], 0.0)
    whole: Float64 = found / found.sum()
    return whole
