"""Meaning of every form between passes, in NumPy, which no pass may change. Slow and plain.

Bound calls mean what :func:`abele.kernels.evaluate` gives for each kernel. A task, and likewise a loop nest over flat
memory, means: evaluate every accumulator, local value and store over a grid of all points, then store. Loops over
blocks run as such, chunk after chunk and block after block, since that is what their forms add. The arithmetic is
always that of :func:`abele.kernels.evaluate`: expressions go there with what they load as inputs, so that operations
are defined once.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from abele.arrays import Array
from abele.errors import InvalidOptionError
from abele.expr.operation import COMBINES, identity
from abele.kernels.nest.binding import BoundCalls, OperandBinding
from abele.kernels.nest.ir import (
    Affine,
    Expr,
    HostKernel,
    QuickRandom,
    Random,
    compute_type,
    load,
    nest,
    result_type,
    store,
)
from abele.kernels.nest.loop_nest import Acc, Bound, Dims, Fetch, Hash, LoopNest, NestLocal, RowFetch, RowPlace
from abele.kernels.nest.reference import as_stored, combine_in_order, evaluate
from abele.kernels.nest.rewrite import rewrite
from abele.kernels.plan.functions import FunctionProgram, LeafFunctions, TaskFunction
from abele.kernels.schedule.lift_integers import lowered_integers
from abele.kernels.tasks.leaves import BlockLoop, LeafProgram, LeafTasks, OuterLoop, SeenKeys
from abele.kernels.tasks.program import Put, Ref, Space, Task, TaskProgram, move, over_points, substitute
from abele.numerics import ElementType, as_element_type, u32

Storage = dict[int, Array]
"""Flat arrays of the caller's buffers, by id."""


def evaluate_form(form: object, storage: Mapping[int, Array]) -> Storage:
    """Contents of the caller's buffers after ``form`` has run.

    Args:
        form: Bound calls, or a program of any of the later forms; no native plan, which is run and not evaluated.
        storage: Contents before, by id: arrays of each buffer's type and number of elements.

    Raises:
        InvalidOptionError: It is none of these forms.
    """
    held = {number: np.array(array).reshape(-1) for number, array in storage.items()}
    match form:
        case BoundCalls():
            _run_calls(form, held)
        case TaskProgram():
            order = [n for stage in form.stages for n in stage.tasks] or range(len(form.tasks))
            arrays = _arrays(form.spaces, held)
            for number in order:
                _run(_of_task(form.tasks[number], arrays))
        case LeafProgram():
            arrays = _arrays(form.spaces, held)
            for leaf in form.leaves:
                for task in _tasks_in_order(leaf, arrays):
                    _run(_of_task(task, arrays))
        case FunctionProgram():
            memory = _memory(form, held)
            for functions in form.leaves:
                for body in _bodies_in_order(form, functions, memory):
                    _run(body)
        case _:
            raise InvalidOptionError(f"{type(form).__name__} is no form that can be evaluated")
    return held


def _run_calls(form: BoundCalls, held: Storage) -> None:
    memory = {b.id: held.get(b.id, np.zeros(math.prod(b.shape), b.type.np)) for b in form.buffers.values()}
    for call in form.calls:
        places = [_elements(binding) for binding in call.bindings]
        operands = [memory[b.buffer][place] for b, place in zip(call.bindings, places, strict=True)]
        for number, values in zip(call.kernel.outputs, evaluate(call.kernel, operands), strict=True):
            memory[call.bindings[number].buffer][places[number]] = values


def _elements(binding: OperandBinding) -> Array:
    """The element of the buffer that each element of a view is."""
    total = np.asarray(binding.offset)
    for factors in binding.factors:
        along = np.zeros(1, np.int64)
        for extent, stride in factors:
            along = (along[:, None] + np.arange(extent) * stride).reshape(-1)
        total = total[..., None] + along
    return total


@dataclass(frozen=True)
class _Accumulator:
    combine: str
    value: Expr
    type: ElementType
    guards: tuple[Bound, ...]


@dataclass(frozen=True)
class _StoreTarget:
    """Store: its place for a grid of points, and its value; with a ``row``, at that distance."""

    array: Array
    type: ElementType
    place: Callable[[Mapping[str, Array]], tuple[Array, ...]]
    value: Expr
    combine: str
    guards: tuple[Bound, ...]
    row: RowPlace | None = None


@dataclass(frozen=True)
class _Evaluation:
    """Common part of a task and a loop nest.

    ``read`` loads one of its loads, or a seed, for a grid; ``flat`` gives an array, where it begins, and its type.
    """

    parallel: Dims
    reduced: Dims
    accumulators: Sequence[_Accumulator]
    locals: Sequence[Expr]
    targets: Sequence[_StoreTarget]
    read: Callable[[Expr, Mapping[str, Array]], tuple[Array, ElementType]]
    flat: Callable[[int], tuple[Array, int, ElementType]]


def _run(body: _Evaluation) -> None:
    """Evaluate ``body`` at every point, and store."""
    known: dict[Expr, tuple[Array, ElementType]] = {}
    count = len(body.parallel)
    whole = (*body.parallel, *body.reduced)
    for number, item in enumerate(body.accumulators):
        values = _values(body, item.value, whole, known, compute_type(item.type))
        start = identity(item.combine, values.dtype)
        values = np.where(_hold(item.guards, whole), values, start)
        axes = tuple(range(count, len(whole)))
        known[Acc(number)] = COMBINES[item.combine].reduce(values, axis=axes), item.type
    for number, value in enumerate(body.locals):
        values = _values(body, value, body.parallel, known, None)
        known[NestLocal(number)] = values, as_element_type(values.dtype)
    # All values before the first store, as loads of a point come before its stores.
    stored = [_values(body, t.value, body.parallel, known, compute_type(t.type)) for t in body.targets]
    rows = [None if t.row is None else _values(body, t.row.row, body.parallel, known, None) for t in body.targets]
    for target, values, numbers in zip(body.targets, stored, rows, strict=True):
        _store(target, values, body.parallel, numbers)


def _distances(place: RowPlace, rows: Array) -> tuple[Array, Array]:
    """Distance of each row from the first, and true where there is such a row; 0 where there is none."""
    numbers = rows.astype(np.int64)
    inside = (numbers >= 0) & (numbers < place.extent)
    left, total = np.where(inside, numbers, 0), np.zeros_like(numbers)
    for extent, stride in reversed(place.factors):
        total += left % extent * stride
        left //= extent
    return total, inside


def _store(target: _StoreTarget, values: Array, dims: Dims, rows: Array | None) -> None:
    sure = _hold(target.guards, dims)
    if target.row is not None and rows is not None:
        distances, inside = _distances(target.row, rows)
        sure = sure & inside
        (start,) = target.place(_grid(dims))
        place = (np.broadcast_to(start + distances, values.shape)[sure],)
        if target.combine != "set":
            combine_in_order(target.array.reshape(-1), place, values[sure], target.combine)
        else:
            target.array.reshape(-1)[place] = as_stored(values[sure], target.type, target.array.dtype)
        return
    where = tuple(np.broadcast_to(i, values.shape)[sure] for i in target.place(_grid(dims)))
    if target.combine == "set":
        target.array[where] = as_stored(values[sure], target.type, target.array.dtype)
        return
    # Combined in the compute type and rounded once, as native code does.
    wide = target.array.astype(values.dtype)
    COMBINES[target.combine].at(wide, where, values[sure])
    target.array[...] = wide.astype(target.array.dtype)


def _values(
    body: _Evaluation,
    expression: Expr,
    dims: Dims,
    known: Mapping[Expr, tuple[Array, ElementType]],
    wanted: ElementType | None,
) -> Array:
    """``expression`` at every point of ``dims``: a kernel of its own, whose inputs are its loads."""
    grid, sizes = _grid(dims), tuple(extent for _, extent in dims)
    names = [dim for dim, _ in dims]
    inputs: list[Array] = []
    types: list[ElementType] = []
    numbers: dict[Expr, int] = {}

    def leaf(part: Expr) -> Expr | None:
        if not isinstance(part, Ref | Fetch | RowFetch | Hash | Acc | NestLocal):
            return None
        if part not in numbers:
            if isinstance(part, RowFetch):
                known_rows = _values(body, part.place.row, dims, known, None)
                array, type_ = _in_rows(body, part, known_rows, grid)
            else:
                array, type_ = known[part] if part in known else body.read(part, grid)
            whole = array if isinstance(part, Hash) else _spread(array, sizes, isinstance(part, Acc | NestLocal))
            numbers[part] = len(inputs)
            inputs.append(whole)
            types.append(type_)
        if isinstance(part, Hash):
            assert isinstance(part.modifier, int)
            return (QuickRandom if part.quick else Random)(numbers[part], part.modifier, part.index)
        return load(numbers[part], *names)

    value = rewrite(expression, leaf)
    result = wanted or result_type(value, tuple(types))
    shapes = tuple(a.shape for a in inputs)
    one = nest(dict(dims), store(len(inputs), names, value))
    kernel = HostKernel((*shapes, sizes), (*types, result), len(inputs), 1, (one,))
    return evaluate(kernel, inputs)[0]


def _in_rows(body: _Evaluation, part: RowFetch, rows: Array, grid: Mapping[str, Array]) -> tuple[Array, ElementType]:
    """The elements that ``part`` loads of ``rows``."""
    array, start, type_ = body.flat(part.access.array)
    distances, inside = _distances(part.place, rows)
    where = np.where(inside, _position(part.access.address, grid) + start + distances, 0)
    fill = np.asarray(part.fill).astype(array.dtype)
    return np.where(inside, array[where], fill).astype(array.dtype), type_


def _spread(array: Array, sizes: Sequence[int], is_outside: bool) -> Array:
    """``array`` over all points; accumulators and local values have the parallel dims alone, which come first."""
    if is_outside:
        array = array.reshape(array.shape + (1,) * (len(sizes) - array.ndim))
    return np.broadcast_to(array, sizes)


def _grid(dims: Dims) -> dict[str, Array]:
    return dict(zip((d for d, _ in dims), np.ix_(*(np.arange(n) for _, n in dims)), strict=True))


def _position(position: Affine, grid: Mapping[str, Array]) -> Array:
    return np.asarray(sum((grid[d] * c for d, c in position.terms), np.int64(position.const)))


def _hold(bounds: Sequence[Bound], dims: Dims) -> Array:
    """True if all ``bounds`` hold, at every point of ``dims``."""
    grid, holds = _grid(dims), np.ones([extent for _, extent in dims], np.bool_)
    for bound in bounds:
        at = _position(bound.position, grid)
        holds &= (at >= 0) & (at < bound.extent)
    return holds


def _gather(
    array: Array, index: Sequence[Array], bounds: Sequence[Bound], fill: float | None, grid: Mapping[str, Array]
) -> Array:
    """Elements of ``array``; where ``bounds`` fail it is not touched, and the value is ``fill`` or any."""
    holds = np.asarray(True)
    for bound in bounds:
        at = _position(bound.position, grid)
        holds = holds & (at >= 0) & (at < bound.extent)
    shape = np.broadcast_shapes(holds.shape, *(i.shape for i in index))
    holds = np.broadcast_to(holds, shape)
    where = tuple(np.where(holds, i, 0) for i in index)
    for place, extent in zip(where, array.shape, strict=True):
        # NumPy would take negative indices from the end; native code would read foreign memory.
        if place.size and not 0 <= place.min() <= place.max() < extent:
            raise IndexError(f"elements {place.min()} to {place.max()} of {extent} are read")
    return np.where(holds, array[where], np.asarray(fill or 0).astype(array.dtype)).astype(array.dtype)


def _arrays(spaces: Sequence[Space], held: Storage) -> list[tuple[Array, ElementType]]:
    """Every space as an array, a view of the caller's buffer or new; one without dims has one of one element."""
    shapes = [s.shape or (1,) for s in spaces]
    return [
        (held[s.buffer].reshape(shape) if s.buffer is not None else np.zeros(shape, s.type.np), s.type)
        for s, shape in zip(spaces, shapes, strict=True)
    ]


def _index(access: Ref | Put, grid: Mapping[str, Array]) -> tuple[Array, ...]:
    return tuple(_position(a, grid) for a in access.index or (Affine(()),))


def _of_task(task: Task, arrays: Sequence[tuple[Array, ElementType]]) -> _Evaluation:
    def read(part: Expr, grid: Mapping[str, Array]) -> tuple[Array, ElementType]:
        if isinstance(part, Hash):
            start = part.seed.address.const
            return arrays[part.seed.array][0].reshape(-1)[start : start + 2], u32
        assert isinstance(part, Ref)
        array, type_ = arrays[part.space]
        return _gather(array, _index(part, grid), part.bounds, part.fill, grid), type_

    def target(put: Put) -> _StoreTarget:
        def place(grid: Mapping[str, Array]) -> tuple[Array, ...]:
            return _index(put, grid)

        return _StoreTarget(*arrays[put.space], place, put.value, put.combine, put.guards, row=put.place)

    def flat(space: int) -> tuple[Array, int, ElementType]:
        array, type_ = arrays[space]
        return array.reshape(-1), 0, type_

    accumulators = [_Accumulator(r.combine, r.value, r.type, r.guards) for r in task.reductions]
    targets = list(map(target, task.puts))
    return _Evaluation(task.parallel, task.reduced, accumulators, task.locals, targets, read, flat=flat)


def _tasks_in_order(leaf: LeafTasks, arrays: Sequence[tuple[Array, ElementType]]) -> Iterator[Task]:
    """The tasks of ``leaf``, those in a loop over blocks once for every block, over its samples alone."""
    loop = leaf.loop
    if loop is None:
        yield from leaf.tasks
        return
    if isinstance(loop, OuterLoop):
        for point in np.ndindex(*loop.extents):
            for number, row, key in _calls_at(loop, point, len(leaf.tasks), [a for a, _ in arrays]):
                task = leaf.tasks[number]
                if loop.seen is not None:
                    task = _moved(task, loop.seen, number, {"row": row, "key": key})
                yield _at_point(task, loop.dims[number], point)
        return
    for chunk in range(loop.chunks):
        yield from (_in_chunk(task, loop, chunk) for task in loop.starts)
        for block in _blocks(loop, chunk):
            point, inside = loop.place_of(block)
            low = inside * loop.block
            for number, (task, dim) in enumerate(zip(leaf.tasks, loop.dims, strict=True)):
                at_point = _at_point(task, loop.names_outside(number), point)
                yield _in_chunk(over_points(at_point, dim, low, min(low + loop.block, loop.samples)), loop, chunk)


def _calls_at(
    loop: OuterLoop, point: tuple[int, ...], count: int, arrays: Sequence[Array]
) -> Iterator[tuple[int, int, int]]:
    """Numbers of the tasks that run at ``point``, in order, with the first row and key of each."""
    seen = loop.seen
    if seen is None:
        yield from ((number, 0, 0) for number in range(count))
        return
    yield from ((number, 0, 0) for number in range(count) if seen.kinds[number] < 0)
    at = tuple(point[o] for o in seen.outer)
    blocks = -(-arrays[seen.table[0]].size // math.prod(loop.extents[o] for o in seen.outer))
    first, last = (arrays[s].reshape(*(loop.extents[o] for o in seen.outer), blocks)[at] for s in seen.table)
    for block in range(seen.blocks):
        kind, key = seen.range_of(*(float(t[block % blocks]) for t in (first, last)))
        yield from ((n, block * seen.rows, key) for n in range(count) if seen.kinds[n] == kind)
    yield from ((number, 0, 0) for number in range(count) if seen.kinds[number] == len(seen.counts))


def _moved(task: Task, seen: SeenKeys, number: int, start: Mapping[str, int]) -> Task:
    """``task`` with its rows and keys counted from ``start``, but for spaces that exist for one block at a time."""
    names = zip((seen.row_dims[number], seen.key_dims[number]), start.values(), strict=True)
    moved = {dim: Affine(((dim, 1),), by) for dim, by in names if dim}

    def change(part: Expr) -> Expr | None:
        local = isinstance(part, Ref) and part.space in seen.local
        return None if local or part.args else substitute(part, moved)

    def put_of(put: Put) -> Put:
        index = put.index if put.space in seen.local else tuple(a.substitute(moved) for a in put.index)
        return replace(put, index=index)

    changed = task.rewritten(change)
    return replace(changed, puts=tuple(map(put_of, changed.puts)))


def _blocks(loop: BlockLoop, chunk: int) -> range:
    return range(chunk * loop.blocks // loop.chunks, (chunk + 1) * loop.blocks // loop.chunks)


def _at_point(task: Task, dims: Sequence[str], point: Sequence[int]) -> Task:
    """``task`` at one ``point`` of ``dims``."""
    for dim, at in zip(dims, point, strict=True):
        task = over_points(task, dim, at, at + 1)
    return task


def _in_chunk(task: Task, loop: BlockLoop, chunk: int) -> Task:
    """``task`` with the parts of chunked spaces counted from the first chunk, not from the one at hand."""

    def index(space: int, positions: tuple[Affine, ...]) -> tuple[Affine, ...]:
        return (positions[0] + chunk, *positions[1:]) if space in loop.partials else positions

    def change(part: Expr) -> Expr | None:
        return replace(part, index=index(part.space, part.index)) if isinstance(part, Ref) else None

    changed = task.rewritten(change)
    puts = (p if p.place else replace(p, index=index(p.space, p.index)) for p in changed.puts)
    return replace(changed, puts=tuple(puts))


def _memory(program: FunctionProgram, held: Storage) -> list[tuple[Array, ElementType]]:
    """Every space as flat memory; spaces of a thread exist once."""
    return [
        (held[s.buffer] if s.buffer is not None else np.zeros(size // s.type.bytes, s.type.np), s.type)
        for s, size in zip(program.spaces, program.sizes, strict=True)
    ]


def _bodies_in_order(
    program: FunctionProgram, leaf: LeafFunctions, memory: Sequence[tuple[Array, ElementType]]
) -> Iterator[_Evaluation]:
    loop = leaf.loop
    if loop is None:
        yield from (_of_function(f, f.nest, memory, None, 0) for f in leaf.functions)
        return
    if isinstance(loop, OuterLoop):
        for point in np.ndindex(*loop.extents):
            for number, row, key in _calls_at(loop, point, len(leaf.functions), [a for a, _ in memory]):
                function = leaf.functions[number]
                at = dict(zip(loop.dims[number], point, strict=True))
                moved = tuple(row * by_row + key * by_key for by_row, by_key in function.moves)
                starts = function.starts or (0,) * len(function.spaces)
                if moved:
                    function = replace(function, starts=tuple(a + b for a, b in zip(starts, moved, strict=True)))
                numbers = (row * by_row + key * by_key for by_row, by_key in function.integer_moves)
                rest = function.integers[len(function.integer_moves) :]
                function = replace(function, integers=(*numbers, *rest))
                yield _of_function(function, _of_point(function.nest, at), memory, None, 0)
        return
    for chunk in range(loop.chunks):
        yield from (_of_function(f, f.nest, memory, loop, chunk) for f in leaf.functions if f.is_start)
        for block in _blocks(loop, chunk):
            for function in leaf.functions:
                if not function.is_start:
                    point, inside = loop.place_of(block)
                    at = dict(zip(function.nest.unit, (*point, inside), strict=True))
                    yield _of_function(function, _of_point(function.nest, at), memory, loop, chunk)


def _of_point(item: LoopNest, point: Mapping[str, int]) -> LoopNest:
    """``item`` at one ``point`` of some dims, such as one block: dims of one point, from which every address counts."""
    moved = {dim: Affine((), at) for dim, at in point.items()}

    def change(part: Expr) -> Expr | None:
        match part:
            case Fetch():
                access = replace(part.access, address=part.access.address.substitute(moved))
                return replace(part, access=access, bounds=tuple(move(b, moved) for b in part.bounds))
            case RowFetch():
                return part.moved(lambda a: a.substitute(moved), lambda row: rewrite(row, change))
            case Hash():
                return replace(part, index=part.index.substitute(moved))
        return substitute(part, moved) if not part.args else None

    return replace(
        item,
        parallel=tuple((d, 1 if d in point else n) for d, n in item.parallel),
        accumulates=tuple(
            replace(a, value=rewrite(a.value, change), guards=tuple(move(g, moved) for g in a.guards))
            for a in item.accumulates
        ),
        locals=tuple(rewrite(value, change) for value in item.locals),
        outs=tuple(
            replace(
                o.with_values(lambda value: rewrite(value, change)),
                access=replace(o.access, address=o.access.address.substitute(moved)),
                guards=tuple(move(g, moved) for g in o.guards),
            )
            for o in item.outs
        ),
    )


def _of_function(
    function: TaskFunction,
    item: LoopNest,
    memory: Sequence[tuple[Array, ElementType]],
    loop: BlockLoop | None,
    chunk: int,
) -> _Evaluation:
    """A function's nest, each array from where its pointer points."""
    item = lowered_integers(item, function.integers)
    arrays: list[tuple[Array, ElementType, int]] = []
    for number, space in enumerate(function.spaces):
        array, type_ = memory[space]
        start = function.starts[number] // type_.bytes if function.starts else 0
        if loop is not None and space in loop.partials:
            start += chunk * (array.size // loop.chunks)
        arrays.append((array, type_, start))

    def read(part: Expr, grid: Mapping[str, Array]) -> tuple[Array, ElementType]:
        if isinstance(part, Hash):
            array, _, start = arrays[part.seed.array]
            return array[start + part.seed.address.const :][:2], u32
        assert isinstance(part, Fetch)
        if function.panel is not None and part.access == function.panel.packed:
            # Packing changes no value.
            part = function.panel.fetch  # the copy holds what the operand does
        array, type_, start = arrays[part.access.array]
        address = _position(part.access.address, grid) + start
        return _gather(array, [address], part.bounds, part.fill, grid), type_

    targets = []
    for out in item.outs:
        array, type_, start = arrays[out.access.array]

        def place(
            grid: Mapping[str, Array], address: Affine = out.access.address, start: int = start
        ) -> tuple[Array, ...]:
            return (_position(address, grid) + start,)

        targets.append(
            _StoreTarget(array, type_, place, out.value, combine=out.combine, guards=out.guards, row=out.place)
        )

    def flat(number: int) -> tuple[Array, int, ElementType]:
        array, type_, start = arrays[number]
        return array, start, type_

    accumulators = [_Accumulator(a.combine, a.value, a.type, a.guards) for a in item.accumulates]
    return _Evaluation(item.parallel, item.reduced, accumulators, item.locals, targets, read, flat=flat)
