"""Fuse the outer loops of batched products and of what lies between them into one loop around all of them.

Attention multiplies queries by keys, turns the scores into shares row by row, and multiplies these by values, all for
every sample and head by itself. Task by task, scores of the whole batch go to memory after each of these steps, and
come back for the next. All tasks of such a chain agree on the outer dims (sample and head), so they may as well run one
after the other for one point of these dims, then for the next: the scores of a point then stay in the caches of the
thread that makes them (loop fusion, depth first instead of breadth first). Each task is still the ordinary loop nest
over its other dims, so products have all their rows and columns to tile.

What is fused are *batched products*, whose operands both have the outer dims, and the tasks on the ways from one to
another: element-wise ones and reductions along rows. A product with weights ends such a way, since its rows have no
outer dims of their own. A way out and back in must not lead through a task outside, so what lies before and after such
a detour (forward and backward pass, with the loss between them) are groups of their own: the level of a task says how
many detours lie before it. Groups, each contracted to a point, then leave the graph of dependences without cycles, and
tasks can be put in an order in which those of a group follow each other.

Example: 8 samples with 12 heads are 96 points. The scores of one, 512 × 512 in f32, take 1 MB where those of all take
96.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from abele.kernels.nest.ir import Apply
from abele.kernels.tasks.choose_samples import samples_per_block
from abele.kernels.tasks.copy_operands import is_product
from abele.kernels.tasks.order_stages import dependences
from abele.kernels.tasks.program import Put, Ref, SampleDim, Task, TaskGroup, TaskProgram, plain
from abele.kernels.tasks.sample_dim import accesses, find_sample_dim

MIN_SIDE = 8
"""Rows, columns and summands that a product needs at least: of fewer, vectors and register tiles are not filled."""
MIN_POINTS = 1 << 14
"""Points of a product, for one point of the outer dims, from which a call by itself costs nothing beside its work."""


SAMPLES_BYTES = 1 << 19
"""Most bytes of a vector's worth of samples in the largest value that is passed on, to stay in a second-level cache."""


def fuse_outer_loops(program: TaskProgram) -> TaskProgram:
    """Fuse the outer loops of batched products, and of what lies between them, into one loop around all of them."""
    chains = _chains(program)
    if not chains:
        return program
    samples = find_sample_dim(program)
    merged = _Contraction(dependences(program.tasks))
    found: dict[int, TaskGroup] = {}
    for chain in chains:
        for part in merged.levels(chain):
            group = _group(program, part)
            if group is not None and not _stays_with_samples(program, samples, group):
                found[merged.join(part)] = group
    tasks: list[Task] = []
    groups = []
    for node in merged.order():
        if node in found:
            numbers = tuple(range(len(tasks), len(tasks) + len(found[node].tasks)))
            groups.append(replace(found[node], tasks=numbers))
        tasks += (program.tasks[n] for n in merged.members[node])
    return replace(program, tasks=tuple(tasks), groups=tuple(groups))


class _Contraction:
    """The graph of dependences while groups of tasks are contracted to points."""

    def __init__(self, depends: Sequence[set[int]]) -> None:
        self.depends = depends
        self.node_of = list(range(len(depends)))
        self.members = {n: [n] for n in range(len(depends))}

    def join(self, tasks: Sequence[int]) -> int:
        """Contract ``tasks`` to one point, whose number is returned."""
        node = min(tasks)
        for task in tasks:
            del self.members[task]
            self.node_of[task] = node
        self.members[node] = sorted(tasks)
        return node

    def needed(self, node: int) -> set[int]:
        """The points on which ``node`` depends."""
        return {self.node_of[d] for task in self.members[node] for d in self.depends[task]} - {node}

    def order(self) -> Iterator[int]:
        """Every point after those that it depends on, otherwise as the tasks were."""
        waits = {node: self.needed(node) for node in self.members}
        after: dict[int, list[int]] = {node: [] for node in waits}
        for node, needed in waits.items():
            for other in needed:
                after[other].append(node)
        left = {node: len(needed) for node, needed in waits.items()}
        ready = [node for node, count in left.items() if not count]
        heapq.heapify(ready)
        while ready:
            yield (node := heapq.heappop(ready))
            for other in after[node]:
                left[other] -= 1
                if not left[other]:
                    heapq.heappush(ready, other)

    def levels(self, chain: Iterable[int]) -> list[list[int]]:
        """The tasks of ``chain`` by the number of ways out of it, and back, that lead to them."""
        inside = {n for n in chain if self.node_of[n] == n and self.members[n] == [n]}
        depth: dict[int, int] = {}
        users: dict[int, set[int]] = {}
        for node in (order := list(self.order())):
            needed = self.needed(node)
            depth[node] = max((depth[d] + (d in inside and node not in inside) for d in needed), default=0)
            for other in needed:
                users.setdefault(other, set()).add(node)
        # Each task moves to the last level that its users allow: values computed again would be kept otherwise. A way
        # out of the chain has to come back to a later level.
        last = len(order)
        back: dict[int, int] = {}
        for node in reversed(order):
            after = users.get(node, set())
            back[node] = min((depth[u] if u in inside else back[u] for u in after), default=last)
            if node in inside:
                level = min((depth[u] if u in inside else back[u] - 1 for u in after), default=last)
                depth[node] = max(depth[node], level) if level < last - 1 else depth[node]
        found: dict[int, list[int]] = {}
        for node in (n for n in order if n in inside):
            found.setdefault(depth[node], []).append(node)
        return [found[level] for level in sorted(found)]


def batch_dims(task: Task) -> tuple[str, ...]:
    """The dims over which ``task`` is a batch of matrix products; none where it is no such batch."""
    sides = operand_dims(task)
    if sides is None:
        return ()
    both = sides[0] & sides[1]
    extents = task.extents
    batch = tuple(d for d, _ in task.parallel if d in both)
    rows, columns = (math.prod(extents[d] for d, _ in task.parallel if d in s and d not in both) for s in sides)
    depth = math.prod(n for _, n in task.reduced)
    filled = min(rows, columns, depth) >= MIN_SIDE and rows * columns * depth >= MIN_POINTS
    return batch if filled and all(d in both for d, _ in task.reduced) else ()


def operand_dims(task: Task) -> tuple[set[str], set[str]] | None:
    """The dims of the operands of a product; None where ``task`` is none."""
    if len(task.reductions) != 1 or task.reductions[0].guards or not is_product(task.reductions[0]):
        return None
    value = task.reductions[0].value
    assert isinstance(value, Apply)
    refs = [a for a in value.args if isinstance(a, Ref)]
    if any(r.bounds or (a.terms and plain(a) is None) for r in refs for a in r.index):
        return None
    first, second = ({name for a in r.index for name in a.names} for r in refs)
    return first, second


def _is_row_wise(task: Task) -> bool:
    """True if ``task`` is no product of rows by columns, and its stores set values."""
    sides = operand_dims(task)
    parallel = set(dict(task.parallel))
    if sides is not None and (sides[0] - sides[1]) & parallel and (sides[1] - sides[0]) & parallel:
        return False
    return all(p.is_plain for p in task.puts) and not task.in_rows


def _chains(program: TaskProgram) -> list[list[int]]:
    """Batched products and the tasks on the ways from one to another, connected ones in one list."""
    tasks = program.tasks
    products = {n for n, task in enumerate(tasks) if batch_dims(task)}
    if len(products) < 2:
        return []
    fit = [n in products or _is_row_wise(task) for n, task in enumerate(tasks)]
    writers: dict[int, int] = {}
    before: list[set[int]] = []
    for number, task in enumerate(tasks):
        made = {writers[s] for s in task.reads if s in writers and not program.spaces[s].pinned}
        before.append({n for n in made if fit[n]} if fit[number] else set())
        writers |= dict.fromkeys(task.writes, number)
    from_product, to_product = set(products), set(products)
    for number in range(len(tasks)):
        if before[number] & from_product:
            from_product.add(number)
    for number in reversed(range(len(tasks))):
        if number in to_product:
            to_product |= before[number]
    return _connected([n for n in range(len(tasks)) if n in from_product & to_product], before)


def _connected(kept: Sequence[int], before: Sequence[set[int]]) -> list[list[int]]:
    """``kept`` in parts between which no edge of ``before`` runs, of more than one task each."""
    part = {n: n for n in kept}

    def root(n: int) -> int:
        while part[n] != n:
            part[n] = part[part[n]]
            n = part[n]
        return n

    for number in kept:
        for other in before[number]:
            if other in part:
                part[root(number)] = root(other)
    found: dict[int, list[int]] = {}
    for number in kept:
        found.setdefault(root(number), []).append(number)
    return [members for members in found.values() if len(members) > 1]


def _group(program: TaskProgram, numbers: Sequence[int]) -> TaskGroup | None:
    """The group of tasks ``numbers``; None where they share no outer dim, or pass nothing on."""
    tasks = [program.tasks[n] for n in numbers]
    own = own_spaces(program, numbers)
    first = next((t for t in tasks if batch_dims(t)), None)
    if first is None or len(tasks) < 2 or not any(r.space in own for t in tasks for r in t.refs):
        return None
    shared = shared_dims(program, tasks, spaces_met(tasks))
    outer = [s for s in shared if s[tasks.index(first)] in batch_dims(first)]
    if not outer:
        return None
    names = [name for name, _ in first.parallel]
    outer.sort(key=lambda s: names.index(s[tasks.index(first)]))
    extents = tuple(first.extents[s[tasks.index(first)]] for s in outer)
    return TaskGroup(tuple(numbers), extents, tuple(zip(*outer, strict=True)))


def spaces_met(tasks: Sequence[Task]) -> set[int]:
    """The spaces that one of ``tasks`` writes and another touches, too."""
    touching: dict[int, int] = {}
    for task in tasks:
        for space in task.reads | task.writes:
            touching[space] = touching.get(space, 0) + 1
    written = {space for task in tasks for space in task.writes}
    return {space for space in written if touching[space] > 1}


def chains_by_level(program: TaskProgram) -> list[list[list[int]]]:
    """Batched products and the tasks between them, connected ones in one list, of its levels."""
    chains = _chains(program)
    if not chains:
        return []
    graph = _Contraction(dependences(program.tasks))
    return [graph.levels(chain) for chain in chains]


def _stays_with_samples(program: TaskProgram, samples: SampleDim | None, group: TaskGroup) -> bool:
    """True if ``group`` is a small part of the work by blocks of samples, and its values stay in cache there, too.

    Leaving the blocks and coming back would cost its neighbours more than it gains.
    """
    lanes = program.target.lanes
    if samples is None or samples_per_block(samples.extent, lanes) < lanes:
        return False
    if any(samples.tasks.get(n) not in dims for n, dims in zip(group.tasks, group.dims, strict=True)):
        return False
    largest = max((program.spaces[s].bytes for s in own_spaces(program, group.tasks)), default=0)
    work = sum(program.tasks[n].points for n in samples.tasks)
    small = 2 * sum(program.tasks[n].points for n in group.tasks) < work
    return small and largest // samples.extent * lanes <= SAMPLES_BYTES


def own_spaces(program: TaskProgram, numbers: Iterable[int]) -> set[int]:
    """The spaces of the plan's own that tasks ``numbers`` write, and no other task touches."""
    inside = set(numbers)
    written = {s for n in inside for s in program.tasks[n].writes if not program.spaces[s].pinned}
    for number, task in enumerate(program.tasks):
        if number not in inside:
            written -= task.reads | task.writes
    return written


def shared_dims(program: TaskProgram, tasks: Sequence[Task], spaces: set[int]) -> list[tuple[str, ...]]:
    """Dims that all ``tasks`` have as one parallel dim each, and meet ``spaces`` along: their names, task by task.

    What loops over the same dim of any space, if only to read it, may share that dim; what passes through ``spaces``
    must be at one point of it.
    """
    parents: dict[object, object] = {}

    def root(node: object) -> object:
        parents.setdefault(node, node)
        while parents[node] != node:
            parents[node] = parents[parents[node]]
            node = parents[node]
        return node

    for number, task in enumerate(tasks):
        for access in accesses(task):
            for place, position in enumerate(access.index):
                dim = plain(position)
                if dim and task.extents[dim] == program.spaces[access.space].shape[place]:
                    parents[root((number, dim))] = root(("space", access.space, place))
    classes: dict[object, dict[int, list[str]]] = {}
    for number, task in enumerate(tasks):
        for dim, _ in task.parallel:
            classes.setdefault(root((number, dim)), {}).setdefault(number, []).append(dim)
    found = []
    for names in classes.values():
        if len(names) == len(tasks) and all(len(own) == 1 for own in names.values()):
            shared = tuple(names[n][0] for n in range(len(tasks)))
            if all(_runs_along(task, dim, spaces) for task, dim in zip(tasks, shared, strict=True)):
                found.append(shared)
    return found


def _runs_along(task: Task, dim: str, spaces: set[int]) -> bool:
    """True if ``task`` touches ``spaces`` at its point of ``dim`` alone, in one place, and stores there alone."""
    touched: list[Ref | Put] = [a for a in accesses(task) if a.space in spaces]
    inside = all(sum(dim in a.names for a in access.index) == 1 for access in touched)
    whole = all(plain(a) == dim for access in touched for a in access.index if dim in a.names)
    return inside and whole and all(any(dim in a.names for a in p.index) for p in task.puts)
