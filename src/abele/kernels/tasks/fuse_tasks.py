"""Fuse element-wise tasks into the task that produces their operand.

The consumer's stores become further stores of the producer: a bias and an activation after a convolution, an optimiser
step after a weight gradient. What nothing else reads is never stored. Shared values are the task's locals, so that
long chains stay linear in size where substituting them would double them at each use.

It is right where three things hold. Both run over the same points: the producer stores every element of the space once,
and the consumer reads it at indices that are a permutation of its own dims. At different points they touch nothing in
common, so one pass over the points does both in any order. And the tasks between them allow one of the two to move to
the other's place, past everything that it conflicts with. A later load gives the value as it was stored, rounded to 16
bits where the space has 16, so fusing changes no bit.

Tasks that reduce are never consumers: their operand would be made again at each point of the reduction.

Small tasks take less time than the call of their function, as in the trips of a loop over scalars. So a small consumer
may also store to a row that a value names, if that is one row for all points: element by element, as elsewhere. And
tasks without dims are one whether or not the second reads what the first makes.
"""

from __future__ import annotations

from dataclasses import replace

from abele.kernels.nest.ir import Affine, Cast, Const, Expr, Rounded, compute_type
from abele.kernels.nest.loop_nest import NestLocal, free_dims
from abele.kernels.tasks.program import Put, Ref, Space, Task, TaskProgram, plain, substitute

Index = tuple[Affine, ...]
Spaces = tuple[Space, ...]

MAX_LOCALS = 48
"""Longest chain; more would not stay in registers."""
_SMALL_POINTS = 256
"""Points of a task that takes less time than the call of its function: in vectors of 16, some twenty instructions."""


def fuse_tasks(program: TaskProgram) -> TaskProgram:
    """Fuse element-wise tasks into the task that produces their operand."""
    tasks, number = list(program.tasks), 0
    made = frozenset[int]().union(*(task.writes for task in tasks))
    # A task that was fused leaves its number to the next, so the same number is looked at again.
    while number < len(tasks):
        number = number if _fuse_into_producer(program.spaces, tasks, number, made) else number + 1
    return replace(program, tasks=tuple(tasks))


def _fuse_into_producer(spaces: Spaces, tasks: list[Task], number: int, made: frozenset[int]) -> bool:
    """Fuse task ``number`` into a task before it that makes one of its operands; whether that was done.

    ``made`` has the spaces that some task writes.
    """
    consumer = tasks[number]
    if consumer.reductions or not all(p.is_plain or _is_in_one_row(consumer, p) for p in consumer.puts):
        return False
    for ref in consumer.refs:
        if ref.space not in made:
            continue
        # The last writer before the consumer is the one whose values it reads.
        producer = next((n for n in range(number - 1, -1, -1) if ref.space in tasks[n].writes), None)
        if producer is None:
            continue
        fused = _fused(spaces, tasks[producer], consumer, ref.space)
        if fused is not None and _place(tasks, producer, number, fused):
            return True
    if consumer.points > 1:
        return False
    return _fuse_with_scalars(spaces, tasks, number)


def _fuse_with_scalars(spaces: Spaces, tasks: list[Task], number: int) -> bool:
    """Fuse a task without dims into the last one before it, if no large task is between; whether that was done."""
    before = number - 1
    while before >= 0 and _is_small(tasks[before]) and tasks[before].parallel:
        before -= 1
    if before < 0 or not _is_small(tasks[before]):
        return False
    first, second = tasks[before], tasks[number]
    if not _may_follow(first, second) or not _same_points(first, second):
        return False
    return _place(tasks, before, number, _joined(spaces, first, second))


def _is_small(task: Task) -> bool:
    return task.points <= _SMALL_POINTS


def _is_in_one_row(task: Task, put: Put) -> bool:
    """True if each point of a small task sets an element of its own, in a row that is the same for all points."""
    if put.place is None or put.combine != "set" or put.guards or not _is_small(task):
        return False
    names = {d for e in put.place.row.walk() if isinstance(e, Ref) for a in e.index for d in a.names}
    if names or free_dims(put.place.row):
        return False
    (place,), reach = put.index, 0
    factors = dict(place.terms)
    if factors.keys() != dict(task.parallel).keys():
        return False
    for dim, factor in sorted(factors.items(), key=lambda item: abs(item[1])):
        if abs(factor) <= reach:
            return False
        reach += abs(factor) * (task.extents[dim] - 1)
    return True


def _may_follow(producer: Task, consumer: Task) -> bool:
    """True if stores of the two to rows that values name allow them to be one."""
    if len(producer.locals) + len(consumer.locals) + len(producer.puts) > MAX_LOCALS:
        return False
    for first, second in (producer, consumer), (consumer, producer):
        rows = {p.space for p in first.puts if p.place is not None}
        if rows and not (_is_small(first) and _is_small(second)):
            return False
        if rows & (second.reads | second.writes):
            return False
    return all(p.place is None or _is_in_one_row(producer, p) for p in producer.puts)


def _place(tasks: list[Task], producer: int, consumer: int, fused: Task) -> bool:
    """Put ``fused`` where the consumer is, or else where the producer is, if the tasks between allow it."""
    between = tasks[producer + 1 : consumer]
    first, second = tasks[producer], tasks[consumer]
    # At the consumer's place if the producer may move there, otherwise at the producer's.
    if not any(_conflict(first, t) for t in between):
        tasks[producer : consumer + 1] = [*between, fused]
    elif not any(_conflict(second, t) for t in between):
        tasks[producer : consumer + 1] = [fused, *between]
    else:
        return False
    return True


def _conflict(a: Task, b: Task) -> bool:
    return bool(a.writes & (b.reads | b.writes) or a.reads & b.writes)


def _fused(spaces: Spaces, producer: Task, consumer: Task, space: int) -> Task | None:
    """Both as one task; None where points do not match."""
    puts = [p for p in producer.puts if p.space == space]
    if not all(p.is_plain for p in puts) or not _may_follow(producer, consumer):
        return None
    refs = [r for r in consumer.refs if r.space == space]
    if any(r.bounds for r in refs):
        return None
    put = next((p for p in reversed(puts) if _constants(p.index) == _constants(refs[0].index)), None)
    names = None if put is None else _whole(spaces, producer, put)
    if names is None:
        return None
    theirs = [plain(a) for a in refs[0].index if a.terms]
    if set(theirs) != set(dict(consumer.parallel)) or len(set(theirs)) < len(theirs):
        return None
    made, used = dict(producer.parallel), dict(consumer.parallel)
    if any(used[str(d)] != made[name] for d, name in zip(theirs, names, strict=True)):
        return None  # it takes only the first of what is made
    dims = {str(d): Affine(((name, 1),)) for d, name in zip(theirs, names, strict=True)}
    moved = _renamed(consumer, dims)
    if not _same_points(producer, moved):
        return None
    return _joined(spaces, producer, moved)


def _constants(index: Index) -> dict[int, int]:
    """Places of ``index`` that name no dim, and their numbers."""
    return {place: position.const for place, position in enumerate(index) if not position.terms}


def _whole(spaces: Spaces, task: Task, put: Put) -> list[str] | None:
    """The dims of ``put``'s index if it stores all elements of its space that have its constants, one per point."""
    moving = [(plain(a), extent) for a, extent in zip(put.index, spaces[put.space].shape, strict=True) if a.terms]
    names, extents = [name for name, _ in moving], dict(task.parallel)
    if set(names) != set(extents) or len(set(names)) < len(names):
        return None
    return [str(name) for name in names] if all(extents[str(d)] == n for d, n in moving) else None


def _renamed(task: Task, dims: dict[str, Affine]) -> Task:
    """``task``, whose points are all of ``dims``, over the other's dims."""
    return replace(
        task,
        puts=tuple(p.moved(dims) for p in task.puts),
        locals=tuple(substitute(value, dims) for value in task.locals),
    )


def _same_points(producer: Task, consumer: Task) -> bool:
    """True if the two touch common elements only at the same point, so that one pass does both."""
    if consumer.in_rows & producer.writes or producer.in_rows & consumer.writes:
        return False  # rows that values name are of other points
    touched: list[Ref | Put] = [*consumer.refs, *consumer.puts]
    if any(_meet(p, other) for p in producer.puts for other in touched):
        return False
    if any(_meet(p, r) for p in consumer.puts for r in producer.refs):
        return False
    for number, put in enumerate(consumer.puts):
        if any(p.space == put.space and not _apart(p.index, put.index) for p in consumer.puts[:number]):
            return False
    # The reduction of a later point would read what the consumer has stored at an earlier one.
    inner = {e.space for r in producer.reductions for e in r.value.walk() if isinstance(e, Ref)}
    return not inner & consumer.writes


def _meet(a: Ref | Put, b: Ref | Put) -> bool:
    """True if the two may touch the same element at different points."""
    return a.space == b.space and a.index != b.index and not _apart(a.index, b.index)


def _apart(a: Index, b: Index) -> bool:
    """True if the two differ in a constant place, so that they never name the same element."""
    return any(not x.terms and not y.terms and x.const != y.const for x, y in zip(a, b, strict=True))


def _joined(spaces: Spaces, producer: Task, consumer: Task) -> Task:
    """The producer, its stored values as locals, and then the consumer."""
    values, puts, known = list(producer.locals), [], dict[tuple[int, Index], NestLocal]()
    for put in producer.puts:
        if put.place is not None:
            puts.append(put)
            continue
        known[put.space, put.index] = NestLocal(len(values))
        values.append(as_stored(spaces, put))
        puts.append(replace(put, value=known[put.space, put.index]))
    shift = len(values)

    def change(part: Expr) -> Expr | None:
        if isinstance(part, NestLocal):
            return NestLocal(part.number + shift)
        return known.get((part.space, part.index)) if isinstance(part, Ref) else None

    follower = consumer.rewritten(change)
    replaced = {(p.space, p.index) for p in consumer.puts if p.place is None}
    # A store that the consumer overwrites at the same point is dead.
    kept = [p for p in puts if p.place is not None or (p.space, p.index) not in replaced]
    return replace(
        producer,
        name=_name_of_both(producer, consumer),
        puts=(*kept, *follower.puts),
        locals=(*values, *follower.locals),
        origins=producer.origins | consumer.origins,
    )


def _name_of_both(producer: Task, consumer: Task) -> str:
    """Name of both in a listing: one name where both do parts of one call."""
    same = producer.name == consumer.name or (producer.origins and producer.origins == consumer.origins)
    return producer.name if same else f"{producer.name}+{consumer.name}"


def as_stored(spaces: Spaces, put: Put) -> Expr:
    """The value as a later load would give it: rounded to 16 bits where that is how it is stored."""
    type_ = spaces[put.space].type
    if isinstance(put.value, Rounded) and put.value.type == type_:
        return put.value
    if type_.bits < 32 and type_.kind != "bool":
        return Cast(type_, put.value)
    return Cast(compute_type(type_), put.value) if isinstance(put.value, Const) else put.value
