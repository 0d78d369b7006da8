"""In how many stages partials are summed."""

from __future__ import annotations

import numpy as np

_TWO_STAGES, _THREE_STAGES = 16, 125


def stages(depth: int) -> tuple[int, ...]:
    """How many partials each stage sums into one, for ``depth`` partials: two stages from 16 on, three from 125 on.

    Source: machine.md §5.12 (poplibs' ConvReducePlan).
    """
    count = 3 if depth >= _THREE_STAGES else 2 if depth >= _TWO_STAGES else 1
    result: list[int] = []
    while depth > 1:
        step = int(np.ceil(round(depth ** (1 / count), 9))) if count > 1 else depth
        result.append(step)
        depth, count = -(-depth // step), max(count - 1, 1)
    return tuple(result)
