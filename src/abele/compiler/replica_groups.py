"""Replica groups: which replicas have to be at a barrier together."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from abele.arrays import Int64


def meeting_replicas(maps: Sequence[Sequence[int]]) -> Int64:
    """The lowest replica that each exchanges data with, directly or through others, int64[replicas].

    Args:
        maps: Permutations of the replicas: to whom each sends.
    """
    # One map has the group that several of the same replicas come to, more often than not.
    steps = [np.array(each, dtype=np.int64) for each in dict.fromkeys(map(tuple, maps))]
    group = np.arange(len(steps[0]))
    while True:
        before = group
        for onto in steps:
            # Whoever a replica reaches in 2, 4, 8, … steps has its group, until all of a cycle have the lowest.
            for _ in range(len(onto).bit_length()):
                group, onto = np.minimum(group, group[onto]), onto[onto]
        # Several permutations join each other's cycles, which takes as many rounds as joins that build on one another.
        if len(steps) == 1 or np.array_equal(group, before):
            return group
