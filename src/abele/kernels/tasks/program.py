"""The planner's own form of a program: tasks over spaces.

A :class:`Space` is a buffer or temporary seen as an array whose dims no access splits any further; a :class:`Task` is
a nest whose accesses index these dims. Tasks have the shape of :class:`abele.kernels.nest.loop_nest.LoopNest`:
accumulators over reduced dims, then outputs for every point of the parallel dims.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

from abele.arrays import Array
from abele.kernels.nest.binding import StoreRounding
from abele.kernels.nest.ir import Affine, Apply, Expr, Index
from abele.kernels.nest.loop_nest import PAST_CACHES, Bound, Dims, Hash, RowFetch, RowPlace
from abele.kernels.nest.rewrite import rewrite
from abele.kernels.target import HostTarget
from abele.kernels.tasks.layout import SpaceLayout
from abele.layout import row_major
from abele.numerics import ElementType


@dataclass(frozen=True)
class Space:
    """An array that tasks read and write.

    Attributes:
        number: Its place in the program's list.
        shape: Extents of its dims, row-major.
        type: Element type.
        buffer: Id of the pinned buffer that it is; None where only the plan sees it.
        name: For listings.
    """

    number: int
    shape: tuple[int, ...]
    type: ElementType
    buffer: int | None
    name: str

    @property
    def pinned(self) -> bool:
        """True if the caller owns its storage."""
        return self.buffer is not None

    @property
    def size(self) -> int:
        """Elements."""
        return math.prod(self.shape)

    @property
    def bytes(self) -> int:
        """Bytes of its elements."""
        return self.size * self.type.bytes

    def __str__(self) -> str:
        return f"{self.name}:{self.type}[{','.join(map(str, self.shape))}]{'!' if self.pinned else ''}"


@dataclass(frozen=True)
class Ref(Expr):
    """An element of a space; where ``bounds`` do not hold, ``fill``, or without a fill anything: it is not used."""

    space: int
    index: tuple[Affine, ...]
    fill: float | None = None
    bounds: tuple[Bound, ...] = ()

    def __str__(self) -> str:
        bounds = "".join(f" if {b}" for b in self.bounds)
        return f"${self.space}[{', '.join(map(str, self.index))}{bounds}]"


@dataclass(frozen=True)
class TaskReduction:
    """``value`` combined over a task's reduced dims, where ``guards`` hold."""

    combine: str
    value: Expr
    type: ElementType
    guards: tuple[Bound, ...] = ()

    @property
    def is_multiply_add(self) -> bool:
        """True if it adds up products of floats: each point is one multiply-add."""
        is_product = isinstance(self.value, Apply) and self.value.op == "mul"
        return is_product and self.combine == "add" and self.type.is_float

    def __str__(self) -> str:
        return f"{self.combine} {self.value}" + "".join(f" if {g}" for g in self.guards)


@dataclass(frozen=True)
class Put:
    """A store into a space, past the caches if it ``streams``; combines other than ``set`` read, combine and write.

    With a ``place``, it goes to the row that a value names, and ``index`` is one number: the element in the first row,
    counted in row-major order. Points go in order, since different ones may store to one element.
    """

    space: int
    index: tuple[Affine, ...]
    value: Expr
    combine: str = "set"
    guards: tuple[Bound, ...] = ()
    streams: bool = False
    place: RowPlace | None = None

    @property
    def is_plain(self) -> bool:
        """True if every point sets an element of its own."""
        return self.combine == "set" and not self.guards and self.place is None

    @property
    def values(self) -> tuple[Expr, ...]:
        """Expressions that it evaluates: the value, and the row if it has one."""
        return (self.value,) if self.place is None else (self.value, self.place.row)

    def with_values(self, change: Callable[[Expr], Expr]) -> Put:
        """The same with ``change`` applied to the value and the row."""
        place = None if self.place is None else replace(self.place, row=change(self.place.row))
        return replace(self, value=change(self.value), place=place)

    def moved(self, dims: Mapping[str, Affine]) -> Put:
        """The same with loop dims replaced."""
        return replace(
            self.with_values(lambda value: substitute(value, dims)),
            index=tuple(a.substitute(dims) for a in self.index),
            guards=tuple(move(g, dims) for g in self.guards),
        )

    def __str__(self) -> str:
        row = "" if self.place is None else f" {self.place}"
        sign = "=" if self.combine == "set" else f"{self.combine}="
        guards = "".join(f" if {g}" for g in self.guards)
        return (
            f"${self.space}[{', '.join(map(str, self.index))}{row}] {sign} {self.value}{guards}"
            f"{PAST_CACHES * self.streams}"
        )


@dataclass(frozen=True)
class Task:
    """Accumulators over reduced dims, then local values, then outputs, for every point of the parallel dims.

    Attributes:
        name: For listings and profiles.
        parallel: Dims of the outputs, slowest first, with their extents.
        reduced: Dims that the accumulators run over.
        reductions: The accumulators.
        puts: Stores, in order.
        locals: Values that stores, and later locals, use.
        origins: The caller's numbers of the calls that the task carries out, wholly or in part.
        digits: For every loop that was split, the names of its dims here, slowest first.
    """

    name: str
    parallel: Dims
    reduced: Dims
    reductions: tuple[TaskReduction, ...]
    puts: tuple[Put, ...]
    locals: tuple[Expr, ...] = ()
    origins: frozenset[int] = frozenset()
    digits: tuple[tuple[str, ...], ...] = ()

    @cached_property
    def extents(self) -> dict[str, int]:
        """Extent of every dim."""
        return dict(self.parallel + self.reduced)

    @property
    def points(self) -> int:
        """Points of all dims."""
        return math.prod(self.extents.values())

    def expressions(self) -> Iterator[Expr]:
        """Every expression, arguments first."""
        for value in (*(r.value for r in self.reductions), *self.locals, *(v for p in self.puts for v in p.values)):
            yield from value.walk()

    def rewritten(self, change: Callable[[Expr], Expr | None]) -> Task:
        """The task with :func:`rewrite` applied to all its expressions."""
        return replace(
            self,
            reductions=tuple(replace(r, value=rewrite(r.value, change)) for r in self.reductions),
            puts=tuple(p.with_values(lambda value: rewrite(value, change)) for p in self.puts),
            locals=tuple(rewrite(value, change) for value in self.locals),
        )

    @cached_property
    def refs(self) -> tuple[Ref, ...]:
        """Every distinct load."""
        return tuple(dict.fromkeys(e for e in self.expressions() if isinstance(e, Ref)))

    @cached_property
    def row_fetches(self) -> tuple[RowFetch, ...]:
        """Every distinct load of a row that a value names."""
        return tuple(dict.fromkeys(e for e in self.expressions() if isinstance(e, RowFetch)))

    @cached_property
    def in_rows(self) -> frozenset[int]:
        """Spaces of which it touches rows named by values: any of their elements, whatever the point."""
        stored = {p.space for p in self.puts if p.place is not None}
        return frozenset(stored | {f.access.array for f in self.row_fetches})

    @cached_property
    def stores_in_rows(self) -> bool:
        """True if a store goes to a row that a value names."""
        return any(p.place is not None for p in self.puts)

    @cached_property
    def reads(self) -> frozenset[int]:
        """Spaces that it reads, those of combining stores too."""
        seeds = {e.seed.array for e in self.expressions() if isinstance(e, Hash)}
        rows = {f.access.array for f in self.row_fetches}
        combined = {p.space for p in self.puts if p.combine != "set"}
        return frozenset({r.space for r in self.refs} | seeds | rows | combined)

    @cached_property
    def writes(self) -> frozenset[int]:
        """Spaces that it writes."""
        return frozenset(p.space for p in self.puts)

    def __str__(self) -> str:
        loops = ", ".join(f"{d}<{n}" for d, n in self.parallel)
        over = ", ".join(f"{d}<{n}" for d, n in self.reduced)
        lines = [f"{self.name}: for {loops}" + (f" over {over}" if over else "")]
        lines += [f"    acc{n} = {r}" for n, r in enumerate(self.reductions)]
        lines += [f"    local{n} = {value}" for n, value in enumerate(self.locals)]
        return "\n".join(lines + [f"    {p}" for p in self.puts])


@dataclass(frozen=True)
class SampleDim:
    """A dim that runs through a program.

    Attributes:
        extent: Number of samples.
        spaces: The place of the dim in every space that has it.
        tasks: The name of the dim in every task that has it, by the task's number.
    """

    extent: int
    spaces: Mapping[int, int]
    tasks: Mapping[int, str]

    @property
    def members(self) -> set[tuple[str, int, int | str]]:
        """Its places in spaces and loops in tasks: kind (``space`` or ``task``), number, and place or name."""
        return {("space", n, p) for n, p in self.spaces.items()} | {("task", n, d) for n, d in self.tasks.items()}


@dataclass(frozen=True)
class RowDims:
    """The rows over which the tasks of a stage run, a few at a time.

    Attributes:
        extents: Of the dims of the rows, slowest first.
        block: Rows at a time: so many points of the last dim, which they divide.
        dims: The names of these dims in every task, parallel or, of sums over rows, reduced.
        local: Spaces that only the stage touches, and the places of the dims in them.
    """

    extents: tuple[int, ...]
    block: int
    dims: tuple[tuple[str, ...], ...]
    local: Mapping[int, tuple[int, ...]]

    @property
    def blocks(self) -> int:
        """Number of blocks of rows."""
        return math.prod(self.extents) // self.block


@dataclass(frozen=True)
class TaskStage:
    """Tasks that run block after block of samples, or tasks between such stages.

    Attributes:
        by_blocks: True where all tasks run for one block of samples before the next block.
        tasks: Numbers of the tasks, in order.
        rows: The rows over which all tasks run together; None where each runs by itself, or by blocks of samples.
    """

    by_blocks: bool
    tasks: tuple[int, ...]
    rows: RowDims | None = None


@dataclass(frozen=True)
class TaskGroup:
    """Tasks that run together, point after point of their shared outer dims.

    Attributes:
        tasks: Their numbers, which follow each other in the program.
        extents: Of the shared dims, slowest first.
        dims: The names of the shared dims in every task.
    """

    tasks: tuple[int, ...]
    extents: tuple[int, ...]
    dims: tuple[tuple[str, ...], ...]


@dataclass(frozen=True)
class TaskProgram:
    """Spaces, the tasks over them in order, and the decisions of passes so far.

    Attributes:
        spaces: By number.
        tasks: In order.
        groups: Tasks that run together, point after point of outer dims; the others run by themselves.
        samples: The dim along which tasks run block by block; None where none is worth it, or before it is looked for.
        block: Samples in a block.
        stages: The tasks in the order in which they run; empty before they are ordered.
        layouts: Layouts of the spaces that are not row-major.
        target: The CPU that will run it.
        constants: The elements of pinned buffers that never change, by id.
        rounding: Rounding of results to narrow floats, where it is not simply to nearest.
    """

    spaces: tuple[Space, ...]
    tasks: tuple[Task, ...]
    target: HostTarget
    groups: tuple[TaskGroup, ...] = ()
    samples: SampleDim | None = None
    block: int = 1
    stages: tuple[TaskStage, ...] = ()
    layouts: Mapping[int, SpaceLayout] = field(default_factory=dict)
    constants: Mapping[int, Array] = field(default_factory=dict, repr=False, compare=False)
    rounding: StoreRounding | None = None


class SpaceTable:
    """The spaces of a program while a pass adds some."""

    def __init__(self, spaces: Iterable[Space] = ()) -> None:
        self._spaces = list(spaces)

    def __getitem__(self, number: int) -> Space:
        return self._spaces[number]

    def add(self, shape: tuple[int, ...], type_: ElementType, name: str, buffer: int | None = None) -> Space:
        """A further space; with a ``buffer``, that pinned buffer."""
        space = Space(len(self._spaces), shape, type_, buffer, name)
        self._spaces.append(space)
        return space

    def all(self) -> tuple[Space, ...]:
        """Every space, by number."""
        return tuple(self._spaces)


def layout_of(layouts: Mapping[int, SpaceLayout], space: Space) -> SpaceLayout:
    """Layout of ``space``: row-major unless ``layouts`` says otherwise."""
    return layouts.get(space.number) or SpaceLayout(row_major(space.shape))


def substitute(expression: Expr, dims: Mapping[str, Affine]) -> Expr:
    """``expression`` with loop dims replaced."""

    def change(part: Expr) -> Expr | None:
        match part:
            case Ref():
                index = tuple(a.substitute(dims) for a in part.index)
                return replace(part, index=index, bounds=tuple(move(b, dims) for b in part.bounds))
            case RowFetch():
                return part.moved(lambda position: position.substitute(dims), lambda row: substitute(row, dims))
            case Index():
                return Index(part.affine.substitute(dims))
            case Hash():
                return replace(part, index=part.index.substitute(dims))
        return None

    return rewrite(expression, change)


def over_points(task: Task, dim: str, low: int, high: int) -> Task:
    """``task`` over the points of ``dim`` from ``low`` to before ``high``."""
    moved = {dim: Affine(((dim, 1),), low)}

    def dims(pairs: Dims) -> Dims:
        return tuple((d, high - low if d == dim else n) for d, n in pairs)

    return replace(
        task,
        parallel=dims(task.parallel),
        reduced=dims(task.reduced),
        locals=tuple(substitute(value, moved) for value in task.locals),
        reductions=tuple(
            replace(r, value=substitute(r.value, moved), guards=tuple(move(g, moved) for g in r.guards))
            for r in task.reductions
        ),
        puts=tuple(p.moved(moved) for p in task.puts),
    )


def move(bound: Bound, dims: Mapping[str, Affine]) -> Bound:
    """``bound`` with loop dims replaced."""
    return Bound(bound.position.substitute(dims), bound.extent)


def plain(position: Affine) -> str | None:
    """The dim that ``position`` is, if it is nothing else."""
    if position.const == 0 and len(position.terms) == 1 and position.terms[0][1] == 1:
        return position.terms[0][0]
    return None
