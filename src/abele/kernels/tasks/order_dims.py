"""Store the plan's own arrays with their dims in the order in which loops run over them.

An array that passes values from one call to the next comes with the layout that it has on tiles: a grain of channels
innermost, or even the batch. The caller's arrays have to stay as they are; those that only the plan sees may be stored
with their dims in any order, and the best is the one in which tasks run through them. Rows then lie together, loops
that step through memory as one can be merged, and an element-wise task reads all its operands along the same dim.

Every access votes: the dims of the nest that it goes through have an order, which is the logical one of the call's
tensors, and each pair of dims gets a vote with the bytes touched as its weight. So do the places of dims in arrays that
stay as they are. Votes count for dims as the whole program knows them
(:func:`abele.kernels.tasks.sample_dim.dim_classes`), so that arrays of one network agree. Within a contraction the
reduced dims say nothing: each operand has them on its own side.

Any order is right: it changes addresses alone. Arrays that a window runs over keep theirs, since convolutions have
layouts of their own, and so do arrays that hold the seed of random numbers, which is found by its address, or rows that
values name. Where a window runs over arrays of some dims, their order decides for these dims: loops can run in any
order, but a convolution whose operand has channels innermost, and its result the field, scatters every vector that it
stores.

Example: a task with loops over [b, c] that touches 1 MB votes with 1 MB for b before c. If no other task touches more,
an array [c, b] of the plan's own is stored as [b, c].
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import combinations, permutations

from abele.kernels.nest.ir import Affine, Expr
from abele.kernels.nest.loop_nest import Hash
from abele.kernels.tasks.program import Put, Ref, Space, Task, TaskProgram, plain
from abele.kernels.tasks.sample_dim import DimClasses, accesses, dim_classes

Pair = tuple[object, object]
"""Two dims, the one that is stored outside first."""
Order = tuple[int, ...]
"""For every place of a stored array, which dim of the old one lies there."""


def order_dims(program: TaskProgram) -> TaskProgram:
    """Store the plan's own arrays with their dims in the order in which loops run over them."""
    free = {s.number for s in program.spaces if not s.pinned and len(s.shape) > 1} - set(_fixed(program))
    touched = free.intersection(*[frozenset().union(*(t.reads | t.writes for t in program.tasks))])
    if not touched:
        return program
    classes = dim_classes(program)
    votes = _votes(program, classes, free)
    votes |= _window_votes(program, classes)
    orders = {n: _order(program.spaces[n], classes, votes) for n in sorted(touched)}
    orders = {n: order for n, order in orders.items() if order != tuple(range(len(order)))}
    if not orders:
        return program
    return replace(
        program,
        spaces=tuple(_ordered(space, orders) for space in program.spaces),
        tasks=tuple(_task(task, orders) for task in program.tasks),
    )


def _fixed(program: TaskProgram) -> Iterator[int]:
    """Arrays whose elements are found otherwise than by whole dims: through windows, or by address."""
    for task in program.tasks:
        for access in accesses(task):
            if any(position.terms and plain(position - position.const) is None for position in access.index):
                yield access.space
        yield from (part.seed.array for part in task.expressions() if isinstance(part, Hash))
        yield from task.in_rows


def _votes(program: TaskProgram, classes: DimClasses, free: set[int]) -> dict[Pair, float]:
    """Bytes that tasks touch, for every pair of dims in the order of loops or of fixed arrays."""
    votes: dict[Pair, float] = {}

    def vote(space: int, outer: int, inner: int, weight: float) -> None:
        pair = (classes.of_space(space, outer), classes.of_space(space, inner))
        votes[pair] = votes.get(pair, 0.0) + weight

    for task in program.tasks:
        groups = [{d: n for n, (d, _) in enumerate(dims)} for dims in (task.parallel, task.reduced)]
        for access in accesses(task):
            space = program.spaces[access.space]
            weight = float(space.bytes)
            if space.number not in free:
                for outer, inner in combinations(range(len(space.shape)), 2):
                    vote(space.number, outer, inner, weight)
                continue  # loops run over it as it lies, not the other way round
            names = [plain(position - position.const) or "" for position in access.index]
            for ranks in groups:
                places = sorted((p for p, d in enumerate(names) if d in ranks), key=lambda p: ranks[names[p]])
                for outer, inner in combinations(places, 2):
                    vote(space.number, outer, inner, weight)
    return votes


def _window_votes(program: TaskProgram, classes: DimClasses) -> dict[Pair, float]:
    """Bytes of arrays that windows run over, for every pair of their dims, in both orders."""
    votes: dict[Pair, float] = {}
    for number in sorted(set(_fixed(program))):
        space = program.spaces[number]
        for outer, inner in combinations(range(len(space.shape)), 2):
            pair = classes.of_space(number, outer), classes.of_space(number, inner)
            votes[pair] = votes.get(pair, 0.0) + space.bytes
            votes.setdefault((pair[1], pair[0]), 0.0)
    return votes


def _order(space: Space, classes: DimClasses, votes: dict[Pair, float]) -> Order:
    """Places of ``space``, outermost first by votes; of equal ones in their present order."""
    dims = [classes.of_space(space.number, place) for place in range(len(space.shape))]
    if len(set(dims)) < len(dims):
        return tuple(range(len(dims)))  # a dim that is there twice: votes cannot tell one from the other
    wins = [0.0] * len(dims)
    for a, b in permutations(range(len(dims)), 2):
        outside, inside = votes.get((dims[a], dims[b]), 0.0), votes.get((dims[b], dims[a]), 0.0)
        # Pair by pair, so that a majority counts once however large it is.
        wins[a] += 1.0 if outside > inside or (outside == inside and a < b) else 0.0
    return tuple(sorted(range(len(dims)), key=lambda place: -wins[place]))


def _ordered(space: Space, orders: dict[int, Order]) -> Space:
    order = orders.get(space.number)
    return space if order is None else replace(space, shape=tuple(space.shape[p] for p in order))


def _task(task: Task, orders: dict[int, Order]) -> Task:
    if not (task.reads | task.writes) & orders.keys():
        return task

    def index(access: Ref | Put) -> tuple[Affine, ...]:
        order = orders.get(access.space)
        return access.index if order is None else tuple(access.index[p] for p in order)

    def change(part: Expr) -> Expr | None:
        return replace(part, index=index(part)) if isinstance(part, Ref) else None

    changed = task.rewritten(change)
    return replace(changed, puts=tuple(p if p.place else replace(p, index=index(p)) for p in changed.puts))
