"""Dims of a group's tasks that are the rows and the keys of scores: an attention is divided along them.

Dims are the same where tasks meet in a space along them. The dim of the rows is one that every task of the group has
once: as a parallel dim, so that the task does each row by itself, or as a reduced dim of sums, so that it adds up what
rows bring. Then all tasks may run for some rows, and after that for the next, with sums carried on. A further dim that
spaces have beside the rows is the keys; a task may have it or not.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from abele.kernels.tasks.known_values import CellTable, cells_of
from abele.kernels.tasks.leaves import LeafTasks, OuterLoop
from abele.kernels.tasks.program import Put, Ref, Space, Task, plain
from abele.kernels.tasks.sample_dim import accesses

_Node = tuple[str, int, str | int]


@dataclass(frozen=True)
class RowTable:
    """The dims of rows and keys of the tasks of a group.

    Attributes:
        table: The cells of both.
        rows: The name of the rows' dim in every task.
        keys: The name of the keys' dim in every task; empty where it has none.
        row_places: The place of the rows in spaces that tasks of the group pass on.
        key_places: The place of the keys in these.
    """

    table: CellTable
    rows: tuple[str, ...]
    keys: tuple[str, ...]
    row_places: Mapping[int, int]
    key_places: Mapping[int, int]


def row_tables(
    leaf: LeafTasks, spaces: Sequence[Space], passed: Collection[int], others: Sequence[LeafTasks] = ()
) -> Iterator[RowTable]:
    """Every choice of rows and keys for the group ``leaf``, the slowest dims first.

    Args:
        leaf: The tasks of the group.
        spaces: Of the program.
        passed: The spaces in which tasks of groups meet.
        others: Further groups: what they say of dims of spaces counts, too. Shares and what a dropout left of them
            have the same rows and keys, but only the group that makes them tells.
    """
    assert isinstance(leaf.loop, OuterLoop)
    classes = _Classes(leaf, spaces, passed, others)
    rows = [found for root in classes.roots() if (found := classes.rows(root)) is not None]
    for names, places in rows:
        for keys, key_places in classes.keys(names, places):
            of_rows, of_keys = (_extent(leaf.tasks, dims) for dims in (names, keys))
            table = CellTable(cells_of(of_rows), cells_of(of_keys))
            yield RowTable(table, names, keys, places, key_places)


def _extent(tasks: Sequence[Task], names: Sequence[str]) -> int:
    return next((t.extents[name] for t, name in zip(tasks, names, strict=True) if name), 1)


class _Classes:
    """Dims of the tasks of a group, joined where tasks meet along them."""

    def __init__(
        self, leaf: LeafTasks, spaces: Sequence[Space], passed: Collection[int], others: Sequence[LeafTasks]
    ) -> None:
        assert isinstance(leaf.loop, OuterLoop)
        self.tasks, self.outer, self.spaces, self.passed = leaf.tasks, leaf.loop.dims, spaces, passed
        self._parents: dict[_Node, _Node] = {}
        self._join("task", self.tasks)
        for at, other in enumerate(others):
            self._join(f"task of {at}", other.tasks)

    def _join(self, kind: str, tasks: Sequence[Task]) -> None:
        """Join dims of ``tasks`` with those of the spaces that they meet along them."""
        for number, task in enumerate(tasks):
            for access in self._met(task):
                for place, position in enumerate(access.index):
                    dim = plain(position)
                    if dim and task.extents[dim] == self.spaces[access.space].shape[place]:
                        self._parents[self._root((kind, number, dim))] = self._root(("space", access.space, place))

    def _root(self, node: _Node) -> _Node:
        self._parents.setdefault(node, node)
        while self._parents[node] != node:
            node = self._parents[node]
        return node

    def _met(self, task: Task) -> list[Ref | Put]:
        return [a for a in accesses(task) if a.space in self.passed]

    def roots(self) -> list[_Node]:
        """Classes of the first task's own dims, and of its operands': slowest dims first."""
        found: dict[_Node, None] = {}
        for number, (task, outer) in enumerate(zip(self.tasks, self.outer, strict=True)):
            found |= {self._root(("task", number, d)): None for d in task.extents if d not in outer}
        return list(found)

    def _names(self, root: _Node) -> list[list[str]]:
        return [[d for d in task.extents if self._root(("task", n, d)) == root] for n, task in enumerate(self.tasks)]

    def _places(self, root: _Node, names: Sequence[str]) -> dict[int, int] | None:
        """Place of the class in each passed space; None where a task meets one along it in another way."""
        found: dict[int, int] = {}
        for task, name in zip(self.tasks, names, strict=True):
            for access in self._met(task):
                own = [p for p in range(len(access.index)) if self._root(("space", access.space, p)) == root]
                at = [p for p, position in enumerate(access.index) if name and name in position.names]
                if len(own) > 1 or own != at or (own and plain(access.index[own[0]]) != name):
                    return None
                if own:
                    found[access.space] = own[0]
        return found

    def rows(self, root: _Node) -> tuple[tuple[str, ...], dict[int, int]] | None:
        """The names of a class in all tasks, and its places, if the tasks may run for some points of it at a time."""
        every = self._names(root)
        if any(len(own) != 1 for own in every):
            return None
        names = tuple(own[0] for own in every)
        places = self._places(root, names)
        if places is None:
            return None
        late: set[int] = set()
        for task, name in zip(self.tasks, names, strict=True):
            if task.reads & late:
                return None
            if name in dict(task.reduced):
                if not _adds_up(task):
                    return None
                late |= task.writes
            elif not all(p.is_plain for p in task.puts):
                return None
        return (names, places) if self._stay_apart(places) else None

    def keys(self, rows: Sequence[str], places: Mapping[int, int]) -> Iterator[tuple[tuple[str, ...], dict[int, int]]]:
        """The names and places of each class that a task reduces for each of ``rows``; at the end those of none."""
        for root in self.roots():
            every = self._names(root)
            if any(len(own) > 1 for own in every) or any(own == [r] for own, r in zip(every, rows, strict=True)):
                continue
            names = tuple(own[0] if own else "" for own in every)
            reduced = [(dict(t.reduced), r, k) for t, r, k in zip(self.tasks, rows, names, strict=True)]
            if not any(k in over and r not in over for over, r, k in reduced):
                continue
            found = self._places(root, names)
            if found and found.keys() & places.keys():
                yield names, found
        yield ("",) * len(self.tasks), {}

    def _stay_apart(self, places: Mapping[int, int]) -> bool:
        """True if no two tasks write, or write and read, one place of the spaces that they share but do not pass on."""
        for number, task in enumerate(self.tasks):
            for put in task.puts:
                if put.space in places:
                    continue
                others = (a for n, t in enumerate(self.tasks) if n != number for a in accesses(t))
                if any(a.space == put.space and not _is_elsewhere(a, put) for a in others):
                    return False
        return True


def _is_elsewhere(one: Ref | Put, other: Put) -> bool:
    """True if the two can touch no common element: some place of their indices has different numbers."""
    pairs = zip(one.index, other.index, strict=True)
    return any(not a.names and not b.names and a.const != b.const for a, b in pairs)


def _adds_up(task: Task) -> bool:
    """True if ``task`` adds terms up over its reduced dims, and stores the sums."""
    plain_sums = all(r.combine == "add" and not r.guards for r in task.reductions)
    return plain_sums and bool(task.reductions) and all(p.is_plain for p in task.puts)
