"""Library calls that are one superstep, added to a compute set of the caller."""

from __future__ import annotations

from abele.errors import UnsupportedOpError
from abele.graph import ComputeSet, Execute, Graph, LibraryCall, Program, Sequence


def add_to_compute_set(graph: Graph, compute_set: ComputeSet, steps: Sequence, name: str) -> None:
    """Add the vertices of ``steps`` to ``compute_set``, which then has all that they do.

    Raises:
        UnsupportedOpError: The steps are more than one superstep, or copy something.
    """
    leaves = _leaves(steps)
    supersteps = [step for step in leaves if isinstance(step, Execute)]
    if len(supersteps) != len(leaves) or len(supersteps) > 1:
        raise UnsupportedOpError(
            f"{name}: {len(leaves)} steps do not fit one compute set",
            because="each needs what the one before wrote",
            remedy="give a Sequence",
        )
    for step in supersteps:
        for group in step.compute_set.groups:
            compute_set.add_group(group)
        graph.top_level.compute_sets.remove(step.compute_set)


def _leaves(step: Program) -> list[Program]:
    if isinstance(step, LibraryCall):
        return _leaves(step.body)
    if isinstance(step, Sequence):
        return [leaf for inner in step for leaf in _leaves(inner)]
    return [step]
