"""Loop nests over flat memory, from which code is generated.

A :class:`LoopNest` is a nest after its buffers got their layouts: every access is a number of elements, linear in the
loop dims, from one of the function's pointer arguments. It has parallel and reduced dims; for every point of the
parallel dims it combines each accumulator over the reduced dims, and then evaluates its outputs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property

from abele.kernels.nest.ir import Affine, Expr, Index
from abele.numerics import ElementType

Dims = tuple[tuple[str, int], ...]
"""Loop dims with their extents, outermost first."""
PAST_CACHES = " past the caches"
"""Words for a store that streams."""


@dataclass(frozen=True)
class Bound:
    """The condition 0 ≤ position < extent."""

    position: Affine
    extent: int

    def __str__(self) -> str:
        return f"0≤{self.position}<{self.extent}"


@dataclass(frozen=True)
class ElementAccess:
    """Element ``address`` of argument ``array``, which holds elements of ``type``.

    Dims of ``tile_dims`` count from the first element of the register tile.
    """

    array: int
    type: ElementType
    address: Affine
    tile_dims: tuple[str, ...] = ()

    @property
    def start(self) -> Affine:
        """The address in the tile's first element."""
        if not self.tile_dims:
            return self.address
        return Affine(tuple(t for t in self.address.terms if t[0] not in self.tile_dims), self.address.const)

    def stride(self, dim: str) -> int:
        """Elements that one step of ``dim`` moves."""
        return self.address.coefficient(dim)

    def __str__(self) -> str:
        return f"{self.type}@{self.array}[{self.address}]"


@dataclass(frozen=True)
class Fetch(Expr):
    """A loaded element; where ``bounds`` do not hold, ``fill``, or without a fill anything: it is not used.

    Memory is touched only where ``bounds`` hold.
    """

    access: ElementAccess
    fill: float | None = None
    bounds: tuple[Bound, ...] = ()

    def __str__(self) -> str:
        if not self.bounds:
            return str(self.access)
        return f"{self.access}({' '.join(map(str, self.bounds))} else {self.fill})"


@dataclass(frozen=True)
class RowPlace:
    """A distance from an address: that of the row ``row``, or of none if it is not within the rows.

    Attributes:
        row: The number of the row, an integer.
        factors: (extent, stride in elements) of the digits of the number, outermost first; often one for all.
    """

    row: Expr
    factors: tuple[tuple[int, int], ...]

    @property
    def extent(self) -> int:
        """Number of rows."""
        return math.prod(extent for extent, _ in self.factors)

    @property
    def reach(self) -> tuple[int, int]:
        """The least distance and the greatest."""
        steps = [(extent - 1) * stride for extent, stride in self.factors]
        return sum(min(0, s) for s in steps), sum(max(0, s) for s in steps)

    def __str__(self) -> str:
        return f"row {self.row} of {'·'.join(f'{n}×{stride}' for n, stride in self.factors)}"


@dataclass(frozen=True)
class RowFetch(Expr):
    """A loaded element of a row that a value names; ``fill`` where there is no such row, and then no memory is touched.

    Attributes:
        access: The element in the first row. Before arrays are arguments, ``array`` is the number of a space, whose
            elements lie in row-major order.
        place: The row.
        fill: Value of elements outside.
    """

    access: ElementAccess
    place: RowPlace
    fill: float = 0.0

    @property
    def args(self) -> tuple[Expr, ...]:
        """The number of the row."""
        return (self.place.row,)

    def at_row(self, row: Expr) -> RowFetch:
        """The same with another expression for the row."""
        return replace(self, place=replace(self.place, row=row))

    def moved(self, position: Callable[[Affine], Affine], change: Callable[[Expr], Expr]) -> RowFetch:
        """The same with ``position`` applied to its address, and ``change`` to its row."""
        access = replace(self.access, address=position(self.access.address))
        return RowFetch(access, replace(self.place, row=change(self.place.row)), self.fill)

    def __str__(self) -> str:
        return f"{self.access}({self.place} else {self.fill})"


@dataclass(frozen=True)
class Acc(Expr):
    """The final value of accumulator ``number``."""

    number: int

    def __str__(self) -> str:
        return f"acc{self.number}"


@dataclass(frozen=True)
class NestLocal(Expr):
    """Value ``number`` of a nest's locals, at the same point."""

    number: int

    def __str__(self) -> str:
        return f"local{self.number}"


@dataclass(frozen=True)
class Hash(Expr):
    """A u32 from the counter hash of the two u32 at ``seed``, a modifier and ``index``.

    The modifier is ``modifier``, or an :class:`IntegerArgument` that the function is called with. The index counts from
    such an argument where there is one: ``start``. A ``quick`` hash is random in its upper bits alone.
    """

    seed: ElementAccess
    modifier: int | IntegerArgument
    index: Affine
    quick: bool = False
    start: IntegerArgument | None = None

    def __str__(self) -> str:
        start = "" if self.start is None else f"{self.start} + "
        return f"{'quick ' * self.quick}hash({self.seed}, {self.modifier}, {start}{self.index})"


@dataclass(frozen=True)
class IntegerArgument:
    """Integer ``number`` of those that a function is called with."""

    number: int

    def __str__(self) -> str:
        return f"argument{self.number}"


@dataclass(frozen=True)
class NestReduction:
    """``value`` combined over the reduced dims, where ``guards`` hold."""

    combine: str
    value: Expr
    type: ElementType
    guards: tuple[Bound, ...] = ()

    def __str__(self) -> str:
        guards = "".join(f" if {g}" for g in self.guards)
        return f"{self.combine} {self.value}{guards}"


@dataclass(frozen=True)
class Out:
    """A store of ``value``; other combines than ``set`` read, combine and write the element, point after point.

    One that ``streams`` goes past the caches to memory, where code can fill whole pieces of lines. With a ``place``,
    ``access`` is the element in the first row, and where there is no such row nothing is stored; different points may
    store to one element, and do so in order.
    """

    access: ElementAccess
    value: Expr
    combine: str = "set"
    guards: tuple[Bound, ...] = ()
    streams: bool = False
    place: RowPlace | None = None

    @property
    def values(self) -> tuple[Expr, ...]:
        """Expressions that it evaluates: the value, and the row if it has one."""
        return (self.value,) if self.place is None else (self.value, self.place.row)

    def with_values(self, change: Callable[[Expr], Expr]) -> Out:
        """The same with ``change`` applied to the value and the row."""
        place = None if self.place is None else replace(self.place, row=change(self.place.row))
        return replace(self, value=change(self.value), place=place)

    def __str__(self) -> str:
        guards = "".join(f" if {g}" for g in self.guards)
        sign = "=" if self.combine == "set" else f"{self.combine}="
        row = "" if self.place is None else f"({self.place})"
        return f"{self.access}{row} {sign} {self.value}{guards}{PAST_CACHES * self.streams}"


@dataclass(frozen=True)
class LoopNest:
    """Loops over flat memory.

    Attributes:
        parallel: Dims of the outputs with their extents. Where an output combines (not ``set``), points run in order.
        reduced: Dims that the accumulators run over.
        accumulates: The accumulators.
        outs: Evaluated once per point of the parallel dims, in order.
        num_arrays: Number of pointer arguments.
        locals: Values that outputs, and later locals, use: evaluated once per point of the parallel dims.
        unit: Dims, in order, whose points are the function's units; empty: the schedule chooses.
        lane: Dim that lies in the vector lanes; empty: the schedule chooses.
        num_integers: Number of integer arguments, which come after the pointers.
    """

    parallel: Dims
    reduced: Dims
    accumulates: tuple[NestReduction, ...]
    outs: tuple[Out, ...]
    num_arrays: int
    unit: tuple[str, ...] = ()
    lane: str = ""
    locals: tuple[Expr, ...] = ()
    num_integers: int = 0

    @property
    def extents(self) -> dict[str, int]:
        """Extent of every dim."""
        return dict(self.parallel + self.reduced)

    def expressions(self) -> Iterator[Expr]:
        """Every expression, arguments first."""
        for value in (*(a.value for a in self.accumulates), *self.locals, *(v for o in self.outs for v in o.values)):
            yield from value.walk()

    @cached_property
    def fetches(self) -> tuple[Fetch, ...]:
        """Every distinct load."""
        return tuple(dict.fromkeys(e for e in self.expressions() if isinstance(e, Fetch)))

    @cached_property
    def row_fetches(self) -> tuple[RowFetch, ...]:
        """Every distinct load of a row that a value names."""
        return tuple(dict.fromkeys(e for e in self.expressions() if isinstance(e, RowFetch)))

    @cached_property
    def stores_in_rows(self) -> bool:
        """True if a store goes to a row that a value names."""
        return any(out.place is not None for out in self.outs)

    def guards(self) -> Iterator[Bound]:
        """Every guard of accumulators and outputs."""
        for guards in (*(a.guards for a in self.accumulates), *(o.guards for o in self.outs)):
            yield from guards

    def __str__(self) -> str:
        def dims(pairs: Dims) -> str:
            return ", ".join(f"{d}<{n}" for d, n in pairs)

        lines = [f"for {dims(self.parallel)}" if self.parallel else "once"]
        if self.accumulates:
            lines.append(f"  over {dims(self.reduced)}")
        lines += [f"    acc{n} = {a}" for n, a in enumerate(self.accumulates)]
        lines += [f"  local{n} = {value}" for n, value in enumerate(self.locals)]
        lines += [f"  {out}" for out in self.outs]
        return "\n".join(lines)


def free_dims(expression: Expr) -> frozenset[str]:
    """The dims that ``expression`` depends on; those of accumulators aside."""
    names: set[str] = set()
    for part in expression.walk():
        names.update(affine_dims(part))
    return frozenset(names)


def affine_dims(part: Expr) -> Iterator[str]:
    """The dims in the own indices of ``part``."""
    match part:
        case Fetch():
            yield from part.access.address.names
            for bound in part.bounds:
                yield from bound.position.names
        case RowFetch():
            yield from part.access.address.names
        case Hash():
            yield from part.index.names
            yield from part.seed.address.names
        case Index():
            yield from part.affine.names
