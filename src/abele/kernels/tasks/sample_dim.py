"""Find the sample dim: the dim of buffers along which most of the work falls into independent pieces.

Dims of spaces are joined where one loop dim runs over both, whole. A joined set that appears at most once in every
space and every task could be the batch; the one that runs through most of the work is taken. Among equals that is the
one that does not cut the rows of pinned buffers, and over which least is reduced. Dims of state (weights, which are
read and then written) come last: the units of a single layer run through all of its work, too.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from abele.kernels.tasks.program import Put, Ref, SampleDim, Task, TaskProgram, plain

Node = tuple[str, int, str | int]


def find_sample_dim(program: TaskProgram) -> SampleDim | None:
    """The sample dim of ``program``; None if nothing qualifies."""
    state = state_spaces(program)

    def merit(candidate: SampleDim) -> tuple[bool, int, bool, int, int]:
        work, independent = _work(program, candidate)
        in_rows = _is_within_rows(program, candidate)
        return not state & candidate.spaces.keys(), work, not in_rows, independent, candidate.extent

    return max(common_dims(program), key=merit, default=None)


def common_dims(program: TaskProgram) -> list[SampleDim]:
    """Every dim that spaces and tasks have in common, once each."""
    joined = _join(program)
    groups: dict[Node, list[Node]] = {}
    for node in list(joined):
        groups.setdefault(_root(joined, node), []).append(node)
    return [c for c in (_candidate(program, nodes) for nodes in groups.values()) if c is not None]


@dataclass(frozen=True)
class DimClasses:
    """Dims of spaces and tasks that are one and the same throughout a program."""

    parents: dict[Node, Node]

    def of_space(self, space: int, place: int) -> Node:
        """Representative of dim ``place`` of ``space``, and of all dims that loops join with it."""
        return _root(self.parents, ("space", space, place))

    def of_task(self, task: int, dim: str) -> Node:
        """Representative of loop ``dim`` of ``task``."""
        return _root(self.parents, ("task", task, dim))


def dim_classes(program: TaskProgram) -> DimClasses:
    """The dims of ``program``, joined where one loop dim runs over both, whole."""
    return DimClasses(_join(program))


def accesses(task: Task) -> Iterator[Ref | Put]:
    """Every load and store of ``task`` but those of rows that values name."""
    yield from task.refs
    yield from (put for put in task.puts if put.place is None)


def _join(program: TaskProgram) -> dict[Node, Node]:
    """Parents of a union-find over dims of spaces and of tasks."""
    parents: dict[Node, Node] = {}
    for number, task in enumerate(program.tasks):
        for access in accesses(task):
            for place, position in enumerate(access.index):
                dim = plain(position)
                # Only a loop over the whole dim joins: a part of it, or a window, runs over other samples.
                if dim and task.extents[dim] == program.spaces[access.space].shape[place]:
                    a, b = _root(parents, ("task", number, dim)), _root(parents, ("space", access.space, place))
                    parents[a] = b
    return parents


def _root(parents: dict[Node, Node], node: Node) -> Node:
    parents.setdefault(node, node)
    while parents[node] != node:
        # Path halving keeps the trees flat.
        parents[node] = parents[parents[node]]
        node = parents[node]
    return node


def _candidate(program: TaskProgram, nodes: list[Node]) -> SampleDim | None:
    spaces = [(number, place) for kind, number, place in nodes if kind == "space"]
    tasks = [(number, dim) for kind, number, dim in nodes if kind == "task"]
    # Twice in one space or task: a diagonal or a product of samples with samples, which no order of blocks serves.
    if len({n for n, _ in spaces}) < len(spaces) or len({n for n, _ in tasks}) < len(tasks):
        return None
    number, place = spaces[0]
    extent = program.spaces[number].shape[int(place)]
    return SampleDim(extent, {n: int(p) for n, p in spaces}, {n: str(d) for n, d in tasks})


def state_spaces(program: TaskProgram) -> set[int]:
    """Pinned spaces that are read before they are written."""
    written: set[int] = set()
    early: set[int] = set()
    for task in program.tasks:
        early |= task.reads - written
        written |= task.writes
    return {s for s in early & written if program.spaces[s].pinned}


def _is_within_rows(program: TaskProgram, candidate: SampleDim) -> bool:
    """True if it is the innermost dim of a pinned buffer of several."""
    spaces = ((program.spaces[n], place) for n, place in candidate.spaces.items())
    return any(s.pinned and 0 < place == len(s.shape) - 1 for s, place in spaces)


def _work(program: TaskProgram, candidate: SampleDim) -> tuple[int, int]:
    """Points of the tasks that have the dim, and points without a reduction over it."""
    tasks = [(program.tasks[n], dim) for n, dim in candidate.tasks.items()]
    return sum(t.points for t, _ in tasks), sum(t.points for t, dim in tasks if dim in dict(t.parallel))
