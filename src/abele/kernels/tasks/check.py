"""Legality of a program of tasks, after any pass.

A task is legal by itself where its dims, the elements that it names and the types of its values exist; where a store
that sets names every dim, in its index or its guards, so that each element is set once; and where its values use only
what is known by then. A program is legal where its own spaces are written before they are read, and where the order
that stages or leaves give keeps every dependence.

Bounds are exact for accesses without guards. A guarded access may leave its space only along positions of which a guard
speaks; that the guard is the right one, tests show by evaluating programs.

Example: y[i] = x[i + 1] over i < 8 is legal for an x of nine elements, or for one of eight with the guard i < 7 on the
load.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from abele.errors import AbeleError
from abele.kernels.illegal import IllegalFormError
from abele.kernels.nest.ir import Affine, Cast, Const, Expr, Index, Load, compute_type, result_type
from abele.kernels.nest.loop_nest import Acc, Bound, Hash, NestLocal, RowFetch, RowPlace
from abele.kernels.nest.rewrite import rewrite
from abele.kernels.tasks.fuse_outer_loops import spaces_met
from abele.kernels.tasks.leaves import BlockLoop, LeafProgram, LeafTasks
from abele.kernels.tasks.order_stages import dependences
from abele.kernels.tasks.program import (
    Put,
    Ref,
    RowDims,
    SampleDim,
    Space,
    Task,
    TaskGroup,
    TaskProgram,
    TaskStage,
    plain,
)
from abele.numerics import ElementType, u32

_LEGAL_AMONG = "_legal_among"
"""Name of a task's attribute with the spaces that it touches, as they were when it was found legal."""


def check_program(program: TaskProgram) -> None:
    """Check ``program``, and the stages and layouts that it has so far.

    Raises:
        IllegalFormError: It breaks a rule.
    """
    check_spaces(program.spaces)
    for task in program.tasks:
        check_task(task, program.spaces)
    check_order(program.tasks, program.spaces)
    for group in program.groups:
        _check_group(program, group)
    if program.samples is not None:
        _check_samples(program, program.samples)
    if program.stages:
        _check_stages(program)


def check_leaf_program(program: LeafProgram) -> None:
    """Check ``program``.

    Raises:
        IllegalFormError: It breaks a rule.
    """
    check_spaces(program.spaces)
    for leaf in program.leaves:
        for task in _all_tasks(leaf):
            check_task(task, program.spaces)
        if isinstance(leaf.loop, BlockLoop):
            _check_loop(leaf, leaf.loop, program.spaces)
        elif leaf.loop is not None:
            _check_points(leaf.tasks, leaf.loop.extents, leaf.loop.dims)
    check_order([task for leaf in program.leaves for task in _all_tasks(leaf)], program.spaces)


def check_side_by_side(tasks: Sequence[Task]) -> None:
    """Check that no task of ``tasks`` depends on another, so that threads may run them in any order.

    Raises:
        IllegalFormError: Two of them do.
    """
    for task, needed in zip(tasks, dependences(tasks), strict=True):
        if needed:
            raise IllegalFormError(f"{task.name} runs beside {tasks[min(needed)].name}, on which it depends")


def check_order(tasks: Sequence[Task], spaces: Sequence[Space]) -> None:
    """Check that the plan's own spaces are written before they are read.

    Raises:
        IllegalFormError: One is not.
    """
    written: set[int] = set()
    for task in tasks:
        early = [spaces[s].name for s in sorted(task.reads - written) if not spaces[s].pinned]
        if early:
            raise IllegalFormError(f"{task.name} reads {', '.join(early)} before anything is written there")
        written |= task.writes


def check_spaces(spaces: Sequence[Space]) -> None:
    """Check that spaces are numbered in order, and have elements.

    Raises:
        IllegalFormError: One is not, or has none.
    """
    for number, space in enumerate(spaces):
        if space.number != number:
            raise IllegalFormError(f"space {space.name} has number {space.number}, its place is {number}")
        if any(extent < 1 for extent in space.shape):
            raise IllegalFormError(f"space {space.name} has shape {list(space.shape)}")


def check_task(task: Task, spaces: Sequence[Space]) -> None:
    """Check one task.

    Raises:
        IllegalFormError: It breaks a rule.
    """
    # Most passes leave most tasks as they are. What was found legal once is so wherever its spaces are the same.
    legal_among: dict[int, Space] | None = vars(task).get(_LEGAL_AMONG)
    if legal_among is not None and all(
        number < len(spaces) and spaces[number] == space for number, space in legal_among.items()
    ):
        return
    try:
        _TaskCheck(task, spaces).run()
    except AbeleError as problem:
        raise IllegalFormError(f"{task.name}: {problem.message}", at=str(task)) from problem
    vars(task)[_LEGAL_AMONG] = {number: spaces[number] for number in task.reads | task.writes}


class _TaskCheck:
    """The rules of one task."""

    def __init__(self, task: Task, spaces: Sequence[Space]) -> None:
        self.task, self.spaces = task, spaces
        self.types: list[ElementType] = [s.type for s in spaces]
        self.num_accumulators = 0
        self.num_locals = 0
        self.locals_at = 0

    def run(self) -> None:
        """Check dims, then reductions, local values and stores, each with the values known by then."""
        task = self.task
        names = [name for name, _ in (*task.parallel, *task.reduced)]
        if len(set(names)) < len(names):
            raise IllegalFormError(f"a dim is named twice: {', '.join(names)}")
        for name, extent in (*task.parallel, *task.reduced):
            if extent < 1:
                raise IllegalFormError(f"dim {name} has extent {extent}")
        everywhere, outside = task.extents, dict(task.parallel)
        for reduction in task.reductions:
            self._value(reduction.value, everywhere, reduction.type)
            self._guards(reduction.guards, everywhere)
        self.num_accumulators = len(task.reductions)
        self.types += [r.type for r in task.reductions]
        self.locals_at = len(self.types)
        for value in task.locals:
            self.types.append(self._value(value, outside, None))
            self.num_locals += 1
        for put in task.puts:
            self._put(put, outside)

    def _put(self, put: Put, dims: dict[str, int]) -> None:
        mentioned: set[str] = set()
        if put.place is None:
            self._element(put, put.guards, dims)
        else:
            self._row(put.space, put.index[0], put.place, dims, bool(put.guards))
            self._value(put.place.row, dims, None)
            mentioned = set(dims_in(put.place.row))
        self._guards(put.guards, dims)
        self._value(put.value, dims, compute_type(self.spaces[put.space].type))
        mentioned |= {name for position in (*put.index, *(g.position for g in put.guards)) for name in position.names}
        # A dim that neither index nor guard mentions would set one element several times, in an order that nothing
        # says.
        loose = [dim for dim, extent in dims.items() if extent > 1 and dim not in mentioned]
        if put.combine == "set" and loose:
            raise IllegalFormError(f"{put} sets each element for every {' and '.join(loose)}")

    def _value(self, value: Expr, dims: dict[str, int], wanted: ElementType | None) -> ElementType:
        """The type of ``value``, all parts of which are checked."""
        for part in value.walk():
            self._part(part, dims)
        found = result_type(rewrite(value, self._as_load), tuple(self.types))
        if wanted is not None and found != wanted and not isinstance(value, Const):
            raise IllegalFormError(f"{value} is {found} where {wanted} is wanted")
        return found

    def _part(self, part: Expr, dims: dict[str, int]) -> None:
        match part:
            case Ref():
                self._element(part, part.bounds, dims)
                self._guards(part.bounds, dims)
            case RowFetch():
                self._row(part.access.array, part.access.address, part.place, dims)
            case Index():
                _check_names(part.affine, dims)
            case Hash():
                _check_names(part.index, dims)
                if not 0 <= part.seed.array < len(self.spaces):
                    raise IllegalFormError(f"{part} has its seed in no space")
            case Acc() if part.number >= self.num_accumulators:
                raise IllegalFormError(f"{part} is not known yet")
            case NestLocal() if part.number >= self.num_locals:
                raise IllegalFormError(f"{part} is not known yet")

    def _as_load(self, part: Expr) -> Expr | None:
        """A load of the same type, so that one routine knows the types of all expressions."""
        match part:
            case Ref():
                return Load(part.space, ())
            case RowFetch():
                return Load(part.access.array, ())
            case Acc():
                return Load(len(self.spaces) + part.number, ())
            case NestLocal():
                return Load(self.locals_at + part.number, ())
            case Hash():
                return Cast(u32, Const(0, u32))
        return None

    def _element(self, access: Ref | Put, guards: Sequence[Bound], dims: dict[str, int]) -> None:
        if not 0 <= access.space < len(self.spaces):
            raise IllegalFormError(f"{access} is of no space")
        space = self.spaces[access.space]
        if len(access.index) != len(space.shape):
            raise IllegalFormError(f"{access} has {len(access.index)} indices, {space.name} {len(space.shape)} dims")
        for position, extent in zip(access.index, space.shape, strict=True):
            _check_names(position, dims)
            low, high = position.bounds(dims)
            if (low < 0 or high >= extent) and not _may_be_guarded(position, guards):
                raise IllegalFormError(
                    f"index {position} of {space.name} runs from {low} to {high}, extent is {extent}"
                )

    def _row(
        self, number: int, address: Affine, place: RowPlace, dims: dict[str, int], is_guarded: bool = False
    ) -> None:
        """Check that every element of every row that a value may name is in its space."""
        if not 0 <= number < len(self.spaces):
            raise IllegalFormError(f"{place} is of no space")
        _check_names(address, dims)
        low, high = (bound + far for bound, far in zip(address.bounds(dims), place.reach, strict=True))
        space = self.spaces[number]
        if not is_guarded and (low < 0 or high >= space.size):
            raise IllegalFormError(f"{place} of {space.name} runs from {low} to {high}, it has {space.size}")
        found = result_type(rewrite(place.row, self._as_load), tuple(self.types))
        if found.kind not in ("int", "uint"):
            raise IllegalFormError(f"{place} is {found}, no integer")

    def _guards(self, guards: Iterable[Bound], dims: dict[str, int]) -> None:
        for guard in guards:
            _check_names(guard.position, dims)


def dims_in(value: Expr) -> Iterator[str]:
    """The dims in the positions of ``value``."""
    for part in value.walk():
        match part:
            case Ref():
                yield from (name for position in part.index for name in position.names)
            case RowFetch():
                yield from part.access.address.names
            case Index():
                yield from part.affine.names


def _may_be_guarded(position: Affine, guards: Sequence[Bound]) -> bool:
    """True if one of ``guards`` is about ``position``: shares a dim with it, or it is a number."""
    names = set(position.names)
    return any(names & set(guard.position.names) or names == set(guard.position.names) for guard in guards)


def _check_names(position: Affine, dims: dict[str, int]) -> None:
    unknown = [name for name in position.names if name not in dims]
    if unknown:
        raise IllegalFormError(f"{position} uses {', '.join(unknown)}, which is no dim there")


def _check_samples(program: TaskProgram, samples: SampleDim) -> None:
    for number, place in samples.spaces.items():
        if program.spaces[number].shape[place] != samples.extent:
            raise IllegalFormError(f"dim {place} of {program.spaces[number].name} has not {samples.extent} samples")
    for number, dim in samples.tasks.items():
        if program.tasks[number].extents.get(dim) != samples.extent:
            raise IllegalFormError(f"dim {dim} of {program.tasks[number].name} has not {samples.extent} samples")
    for number in program.layouts:
        if program.spaces[number].pinned or number not in samples.spaces:
            raise IllegalFormError(
                f"{program.spaces[number].name} lies by blocks, but is the caller's or has no samples"
            )


def _check_stages(program: TaskProgram) -> None:
    """Check that every task is in one stage, after its dependences; inside a stage by blocks, along one sample."""
    # Each task is in exactly one stage.
    order = [number for stage in program.stages for number in stage.tasks]
    if sorted(order) != list(range(len(program.tasks))):
        raise IllegalFormError(f"the stages have tasks {order} of {len(program.tasks)}")
    place = {number: n for n, number in enumerate(order)}
    stage_of = {number: n for n, stage in enumerate(program.stages) for number in stage.tasks}
    # Stages may reorder tasks, so each is held against what it depends on in the order of the program.
    for number, needed in enumerate(dependences(program.tasks)):
        task = program.tasks[number]
        for other in needed:
            before = program.tasks[other]
            if place[other] > place[number]:
                raise IllegalFormError(f"{task.name} runs before {before.name}, on which it depends")
            if stage_of[other] == stage_of[number] and program.stages[stage_of[number]].by_blocks:
                _check_along_samples(program, other, number)
    # Layouts by blocks or rows hold only where every stage that touches the space runs that way.
    users: dict[int, set[int]] = {}
    for number, task in enumerate(program.tasks):
        for space in task.reads | task.writes:
            users.setdefault(space, set()).add(stage_of[number])
    for place_of_stage, stage in enumerate(program.stages):
        if stage.rows is not None:
            _check_rows(program, stage, stage.rows)
            left = [s for s in stage.rows.local if users[s] != {place_of_stage} or program.spaces[s].pinned]
            if left:
                raise IllegalFormError(f"{program.spaces[left[0]].name} leaves the rows that it is laid out for")
    for space, layout in program.layouts.items():
        stages = users.get(space, set())
        if not all(program.stages[n].by_blocks for n in stages) or (layout.is_per_thread and len(stages) > 1):
            raise IllegalFormError(f"{program.spaces[space].name} leaves the blocks that it is laid out for")


def _check_rows(program: TaskProgram, stage: TaskStage, rows: RowDims) -> None:
    """Check that every task has the rows, all parallel or all reduced, and that tasks meet at one row.

    A sum over rows stores after the last of them: no task of the stage may need what it stores.
    """
    tasks = [program.tasks[n] for n in stage.tasks]
    if len(rows.dims) != len(tasks) or rows.extents[-1] % rows.block:
        raise IllegalFormError(f"{len(tasks)} tasks run over rows of {len(rows.dims)}, {rows.block} at a time")
    sums = []
    for task, names in zip(tasks, rows.dims, strict=True):
        own = [d for d in (dict(task.parallel), dict(task.reduced)) if all(name in d for name in names)]
        if not own or [own[0][name] for name in names] != list(rows.extents):
            raise IllegalFormError(f"{task.name} has no rows {', '.join(names)} of extents {list(rows.extents)}")
        sums.append(names[0] in dict(task.reduced))
    written = {s for task, is_sum in zip(tasks, sums, strict=True) if not is_sum for s in task.writes}
    places: dict[int, tuple[list[int], str]] = {}
    late: set[int] = set()
    for task, names, is_sum in zip(tasks, rows.dims, sums, strict=True):
        if late & task.reads - (task.writes if is_sum else set()):
            raise IllegalFormError(f"{task.name} needs a sum over the rows among which it runs")
        touched: tuple[Ref | Put, ...] = (*task.refs, *(() if is_sum else task.puts))
        for access in (a for a in touched if a.space in written):
            at = [next((p for p, a in enumerate(access.index) if plain(a) == d), -1) for d in names]
            known, by = places.setdefault(access.space, (at, task.name))
            if -1 in at or at != known:
                raise IllegalFormError(f"{task.name} runs row by row with {by}, but meets other rows at {access}")
        late |= task.writes if is_sum else set()


def _check_along_samples(program: TaskProgram, before: int, after: int) -> None:
    """Refuse two tasks of a loop over blocks that share elements of different samples.

    The second task must follow the first block by block. A task that reduces over the samples stores after the loop,
    once its chunks are combined. It may overwrite what others of the stage read before, but none of them may need its
    results.
    """
    samples = program.samples
    assert samples is not None
    first, second = program.tasks[before], program.tasks[after]
    if samples.tasks[before] in dict(first.reduced):
        raise IllegalFormError(f"{second.name} depends on {first.name}, which is whole only after the blocks")
    shared = first.writes & second.reads
    # A reduction over the samples stores behind the loop, where overwriting what others read does no harm.
    if samples.tasks[after] not in dict(second.reduced):
        shared |= (first.writes | first.reads) & second.writes
    for number in (before, after):
        task, dim = program.tasks[number], samples.tasks[number]
        touched: tuple[Ref | Put, ...] = (*task.refs, *task.puts)
        for access in touched:
            if access.space in shared:
                place = samples.spaces.get(access.space)
                if place is None or plain(access.index[place]) != dim:
                    raise IllegalFormError(f"{task.name} runs by blocks, but meets other samples at {access}")


def _check_loop(leaf: LeafTasks, loop: BlockLoop, spaces: Sequence[Space]) -> None:
    if len(loop.dims) != len(leaf.tasks):
        raise IllegalFormError(f"a loop over blocks has {len(leaf.tasks)} tasks but {len(loop.dims)} sample dims")
    for task, dim in zip(leaf.tasks, loop.dims, strict=True):
        if task.extents.get(dim) != loop.samples:
            raise IllegalFormError(f"{task.name} has no dim {dim} of {loop.samples} samples")
    for number in loop.partials:
        if spaces[number].shape[0] != loop.chunks:
            raise IllegalFormError(f"{spaces[number].name} has not {loop.chunks} chunks")


def _check_group(program: TaskProgram, group: TaskGroup) -> None:
    first = group.tasks[0]
    if group.tasks != tuple(range(first, first + len(group.tasks))):
        raise IllegalFormError(f"tasks {list(group.tasks)} run together, but do not follow each other")
    _check_points([program.tasks[n] for n in group.tasks], group.extents, group.dims)


def _check_points(tasks: Sequence[Task], extents: Sequence[int], dims: Sequence[Sequence[str]]) -> None:
    """Check that tasks that run together have the shared dims, and meet at one point of them."""
    if len(dims) != len(tasks):
        raise IllegalFormError(f"{len(tasks)} tasks run together, but {len(dims)} have outer dims")
    for task, names in zip(tasks, dims, strict=True):
        own = dict(task.parallel)
        if [own.get(name) for name in names] != list(extents):
            raise IllegalFormError(f"{task.name} has no dims {', '.join(names)} of extents {list(extents)}")
    places: dict[int, tuple[list[int], str]] = {}
    for space in spaces_met(tasks):
        for task, names in zip(tasks, dims, strict=True):
            touched: tuple[Ref | Put, ...] = (*task.refs, *task.puts)
            for access in touched:
                if access.space == space:
                    at = [next((p for p, a in enumerate(access.index) if plain(a) == d), -1) for d in names]
                    known, by = places.setdefault(space, (at, task.name))
                    if -1 in at or at != known:
                        raise IllegalFormError(f"{task.name} runs with {by}, but meets other points at {access}")


def _all_tasks(leaf: LeafTasks) -> Iterator[Task]:
    """Every task of ``leaf`` in the order in which it runs."""
    yield from leaf.loop.starts if isinstance(leaf.loop, BlockLoop) else ()
    yield from leaf.tasks
