"""Costs of the vertices of beam search: scalar loops of compiled code, counted in worker issue slots.

PopLibs' own estimators for them are stubs (machine reference §4), so there is nothing to compare with. Loops over data
that depend on the data are taken at their mean for numbers in random order.
"""

from __future__ import annotations

import numpy as np

from abele.arrays import Int64
from abele.poplibs.poplin.linalg.costs import ADD, ENTRY, INDEX, LOAD, LOOP

MEMORY = LOAD
"""A load or a store: all that is stored is 32 bits wide."""
FLOAT = ADD
"""A sum, a comparison or a conversion."""
BRANCH = 1
"""Source: machine reference §1.2."""
LOG_ADD = 3 + 6 + 3 * FLOAT + 2 * BRANCH
"""log(exp a + exp b): an exponential, a logarithm (§1.3: 3 and 6), sums and a choice."""


def extend_slots(classes: Int64, width: Int64) -> Int64:
    """Slots to extend ``width`` beams by ``classes`` symbols and keep the best ``width``.

    Of n numbers in random order, w·(1 + ln(n / w)) get among the best w so far; each then looks through all beams for
    its like and moves half of what is kept.
    """
    look = width * (2 * MEMORY + BRANCH + LOOP)
    move = width // 2 * (6 * MEMORY + FLOAT + LOOP)
    kept = np.ceil(width * (1 + np.log(np.maximum(classes, 1))))
    each = INDEX + 2 * MEMORY + 3 * FLOAT + 3 * BRANCH + LOOP
    before = width * (5 * MEMORY + INDEX + 2 * BRANCH + LOOP)
    return np.asarray(ENTRY + before + width * classes * each + kept * (look + move), np.int64)


def select_slots(parts: Int64, width: Int64) -> Int64:
    """Slots to choose the next ``width`` beams from those kept and the best of ``parts`` lists of extensions.

    Every pair of beams is compared in its lengths and in one label.
    """
    stay = width * (parts * (INDEX + MEMORY + FLOAT + LOOP) + 8 * MEMORY + 2 * LOG_ADD)
    scan = width * (2 * MEMORY + FLOAT + 2 * BRANCH + LOOP) + parts * (INDEX + 2 * MEMORY + FLOAT + 2 * BRANCH + LOOP)
    write = INDEX + 20 * MEMORY + 2 * BRANCH + LOG_ADD + 2 * LOOP
    compare = width * (7 * MEMORY + 4 * BRANCH + 2 * LOOP)
    return np.asarray(ENTRY + stay + width * (scan + write + compare), np.int64)


def read_slots(paths: Int64, steps: Int64) -> Int64:
    """Slots to write out ``paths`` beams of up to ``steps`` labels."""
    return np.asarray(ENTRY + paths * (6 * MEMORY + FLOAT + steps * (INDEX + 3 * MEMORY + LOOP)), np.int64)
