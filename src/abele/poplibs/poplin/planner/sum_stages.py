"""In how many stages partials are summed.

One stage sums all partials of an element on one tile, which receives a piece from each of the others: with a depth of d
that is d pieces to receive and d rows to add. Two stages receive about 2·√d, three 3·∛d, at the price of a superstep
each (barrier, exchange, launch). Equal factors are best because the cost of a stage grows with its factor alone.
"""

from __future__ import annotations

import numpy as np

_TWO_STAGES, _THREE_STAGES = 16, 125
"""Partials from which a sum has two stages, or three. Source: §5.12."""


def stages(depth: int) -> tuple[int, ...]:
    """Partials that each stage sums into one, for ``depth`` partials: two stages from 16 on, three from 125 on.

    Source: machine.md §5.12 (poplibs' ConvReducePlan).
    """
    count = 3 if depth >= _THREE_STAGES else 2 if depth >= _TWO_STAGES else 1
    result: list[int] = []
    while depth > 1:
        step = int(np.ceil(round(depth ** (1 / count), 9))) if count > 1 else depth
        result.append(step)
        depth, count = -(-depth // step), max(count - 1, 1)
    return tuple(result)
