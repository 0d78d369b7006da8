"""The planner's own form of a program: tasks over spaces.

A :class:`Space` is a buffer or temporary seen as an array whose dims no access splits any further; a :class:`Task` is
a nest whose accesses index these dims. Tasks have the shape of :class:`abele.kernels.nest.loop_nest.LoopNest`:
accumulators over reduced dims, then outputs for every point of the parallel dims.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

from abele.kernels.nest.ir import Affine, Apply, Cast, Expr, Index
from abele.kernels.nest.loop_nest import Bound, Hash
from abele.numerics import ElementType

Dims = tuple[tuple[str, int], ...]


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
        """Whether the caller owns its storage."""
        return self.buffer is not None

    @property
    def size(self) -> int:
        """Elements."""
        return math.prod(self.shape)

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
class Reduction:
    """``value`` combined over a task's reduced dims, where ``guards`` hold."""

    combine: str
    value: Expr
    type: ElementType
    guards: tuple[Bound, ...] = ()

    def __str__(self) -> str:
        return f"{self.combine} {self.value}" + "".join(f" if {g}" for g in self.guards)


@dataclass(frozen=True)
class Put:
    """A store into a space; combines other than ``set`` read, combine and write."""

    space: int
    index: tuple[Affine, ...]
    value: Expr
    combine: str = "set"
    guards: tuple[Bound, ...] = ()

    def __str__(self) -> str:
        sign = "=" if self.combine == "set" else f"{self.combine}="
        guards = "".join(f" if {g}" for g in self.guards)
        return f"${self.space}[{', '.join(map(str, self.index))}] {sign} {self.value}{guards}"


@dataclass(frozen=True)
class Task:
    """Accumulators over reduced dims, then local values, then outputs, for every point of the parallel dims."""

    name: str
    parallel: Dims
    reduced: Dims
    reductions: tuple[Reduction, ...]
    puts: tuple[Put, ...]
    locals: tuple[Expr, ...] = ()

    @property
    def extents(self) -> dict[str, int]:
        """Extent of every dim."""
        return dict(self.parallel + self.reduced)

    @property
    def points(self) -> int:
        """Points of all dims."""
        return math.prod(self.extents.values())

    def expressions(self) -> Iterator[Expr]:
        """Every expression, arguments first."""
        for value in (*(r.value for r in self.reductions), *self.locals, *(p.value for p in self.puts)):
            yield from value.walk()

    def rewritten(self, change: Callable[[Expr], Expr | None]) -> Task:
        """The task with :func:`rewrite` applied to all its expressions."""
        return replace(
            self,
            reductions=tuple(replace(r, value=rewrite(r.value, change)) for r in self.reductions),
            puts=tuple(replace(p, value=rewrite(p.value, change)) for p in self.puts),
            locals=tuple(rewrite(value, change) for value in self.locals),
        )

    @cached_property
    def refs(self) -> tuple[Ref, ...]:
        """Every distinct load."""
        return tuple(dict.fromkeys(e for e in self.expressions() if isinstance(e, Ref)))

    @cached_property
    def reads(self) -> frozenset[int]:
        """Spaces that it reads, those of combining stores too."""
        seeds = {e.seed.array for e in self.expressions() if isinstance(e, Hash)}
        return frozenset({r.space for r in self.refs} | seeds | {p.space for p in self.puts if p.combine != "set"})

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


@dataclass
class Program:
    """Spaces, and the tasks over them in order."""

    spaces: list[Space] = field(default_factory=list)
    tasks: list[Task] = field(default_factory=list)

    def new_space(self, shape: tuple[int, ...], type_: ElementType, name: str, buffer: int | None = None) -> Space:
        """A further space."""
        space = Space(len(self.spaces), shape, type_, buffer, name)
        self.spaces.append(space)
        return space

    def __str__(self) -> str:
        spaces = [f"${s.number} {s}" for s in self.spaces]
        return "\n".join(spaces + [str(t) for t in self.tasks])


def rewrite(expression: Expr, change: Callable[[Expr], Expr | None]) -> Expr:
    """``expression`` with every part for which ``change`` gives something replaced by it, outermost first."""
    changed = change(expression)
    if changed is not None:
        return changed
    match expression:
        case Apply():
            return Apply(expression.op, (rewrite(a, change) for a in expression.args))
        case Cast():
            return Cast(expression.type, rewrite(expression.arg, change))
    return expression


def substitute(expression: Expr, dims: Mapping[str, Affine]) -> Expr:
    """``expression`` with loop dims replaced."""

    def change(part: Expr) -> Expr | None:
        match part:
            case Ref():
                index = tuple(a.substitute(dims) for a in part.index)
                return replace(part, index=index, bounds=tuple(move(b, dims) for b in part.bounds))
            case Index():
                return Index(part.affine.substitute(dims))
            case Hash():
                return replace(part, index=part.index.substitute(dims))
        return None

    return rewrite(expression, change)


def move(bound: Bound, dims: Mapping[str, Affine]) -> Bound:
    """``bound`` with loop dims replaced."""
    return Bound(bound.position.substitute(dims), bound.extent)


def plain(position: Affine) -> str | None:
    """The dim that ``position`` is, if it is nothing else."""
    if position.const == 0 and len(position.terms) == 1 and position.terms[0][1] == 1:
        return position.terms[0][0]
    return None
