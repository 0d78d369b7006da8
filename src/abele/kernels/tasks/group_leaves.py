"""Group tasks that run whole into leaves: those that do not depend on each other side by side, in one leaf.

A leaf ends in a barrier of all threads, and a small task alone cannot feed them. A task goes into the leaf after the
last one that it depends on, so there are as many leaves as the longest chain of dependences has tasks: no fewer can do.
"""

from __future__ import annotations

from dataclasses import replace

from abele.kernels.tasks.leaves import LeafProgram, LeafTasks
from abele.kernels.tasks.order_stages import dependences


def group_leaves(program: LeafProgram) -> LeafProgram:
    """Divide what runs whole into leaves of tasks that do not depend on each other."""
    leaves = tuple(part for leaf in program.leaves for part in ([leaf] if leaf.loop is not None else _by_depth(leaf)))
    return replace(program, leaves=leaves)


def _by_depth(leaf: LeafTasks) -> list[LeafTasks]:
    """The tasks by the length of the longest chain of tasks that they depend on."""
    depths: list[int] = []
    for needed in dependences(leaf.tasks):
        depths.append(1 + max((depths[n] for n in needed), default=-1))
    levels = range(max(depths, default=-1) + 1)
    return [LeafTasks(tuple(t for t, d in zip(leaf.tasks, depths, strict=True) if d == level)) for level in levels]
