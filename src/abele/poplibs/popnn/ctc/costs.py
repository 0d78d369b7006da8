"""Cycles of the vertices of CTC loss: their instructions, scalar and one per bundle. Source: machine reference §1.2."""

from __future__ import annotations

import numpy as np

from abele.arrays import Int64
from abele.machine import Ipu
from abele.poplibs.poplin.linalg.costs import ADD, ENTRY, INDEX, LOAD, LOOP, MULTIPLY, STORE, SUPERVISOR_CYCLES

EXP, LOG = 3, 6
"""Issue slots of an exponential and a logarithm of one f32. Source: machine reference §1.3."""
BRANCH = 1
"""Source: machine reference §1.2."""


def sweep_slots(share: Int64) -> Int64:
    """Slots of one step of a worker: at each position, three numbers are loaded and log-added, one is added, two kept.

    Source: §1.2, scalar instructions, one per bundle.
    """
    # Two maxima; three differences and exponentials; two sums of these, the logarithm, and the maximum added back.
    log_add = 2 * ADD + 3 * (ADD + EXP) + 2 * ADD + LOG + ADD
    position = 4 * LOAD + BRANCH + log_add + LOAD + ADD + 2 * STORE[4] + LOOP
    counter = 2 * LOAD + ADD + 2 * BRANCH + STORE[4] + MULTIPLY + ADD
    return np.asarray(ENTRY + counter + np.asarray(share, np.int64) * position, np.int64)


def gather_slots(elements: Int64, share: Int64) -> Int64:
    """Slots to fetch ``elements`` log-probabilities by class, after finding the classes of ``share`` positions."""
    classes = share * (2 * LOAD + INDEX + 3 * BRANCH + 2 * STORE[4] + LOOP)
    return np.asarray(ENTRY + classes + elements * (2 * LOAD + INDEX + ADD + STORE[4] + LOOP), np.int64)


def gradient_cycles(steps: Int64, classes: Int64, positions: Int64, ipu: Ipu) -> Int64:
    """Tile cycles to add probabilities of all positions up by class, at each of ``steps``, shared by the workers."""
    position = 3 * LOAD + INDEX + 2 * ADD + BRANCH + EXP + 2 * LOAD + ADD + STORE[4] + LOOP
    each = classes * (LOAD + EXP + STORE[4] + LOOP) + positions * position
    slots = ENTRY + -(-steps // ipu.num_workers) * (each + INDEX + LOOP)
    return np.asarray(SUPERVISOR_CYCLES + ipu.num_workers * slots, np.int64)
