"""From tasks to loop nests: indices become addresses once every space has a layout."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from abele.kernels.nest.ir import Affine, Expr, Index
from abele.kernels.nest.loop_nest import (
    Bound,
    ElementAccess,
    Fetch,
    Hash,
    IntegerArgument,
    LoopNest,
    NestReduction,
    Out,
    RowFetch,
    free_dims,
)
from abele.kernels.nest.rewrite import rewrite
from abele.kernels.tasks.layout import SpaceLayout
from abele.kernels.tasks.program import Put, Ref, Space, Task
from abele.kernels.tasks.program import move as move_bound

BLOCK, LANE = "block", "lane"
"""Names of the loop dims that the sample dim splits into in a loop over blocks."""


@dataclass(frozen=True)
class Blocked:
    """Blocks of a task's sample dim: sample = block · lanes + lane.

    Attributes:
        dim: Name of that dim in the task.
        extent: Number of samples.
        lanes: Samples in a block.
        places: Place of that dim in each space.
        outer: The task's names of further dims of a row, of which a block has one point each; None where samples have
            one dim, and may lie in the vector lanes.
    """

    dim: str
    extent: int
    lanes: int
    places: Mapping[int, int]
    outer: tuple[str, ...] | None = None

    @property
    def blocks(self) -> int:
        """Number of blocks, the last maybe not full."""
        return -(-self.extent // self.lanes)

    @property
    def sample(self) -> Affine:
        """The sample as block and lane."""
        return Affine(((BLOCK, self.lanes), (LANE, 1)))

    @property
    def ragged(self) -> tuple[Bound, ...]:
        """The condition that a lane holds a sample; none where all do."""
        return (Bound(self.sample, self.extent),) if self.extent % self.lanes else ()


@dataclass(frozen=True)
class Moving:
    """Dims along which the arrays of a task move from call to call: rows and keys.

    Attributes:
        dims: The task's names of the two; empty where it has none.
        fixed: Spaces that do not move.
    """

    dims: tuple[str, str]
    fixed: frozenset[int]


@dataclass(frozen=True)
class FlatArray:
    """A pointer argument of a loop nest.

    Attributes:
        space: Space that it points to.
        moves: Elements that it moves for a step of each of the dims that move arrays; empty where none do.
    """

    space: int
    moves: tuple[int, ...] = ()


def flatten(
    task: Task,
    spaces: Sequence[Space],
    layouts: Callable[[int], SpaceLayout],
    blocked: Blocked | None = None,
    moving: Moving | None = None,
) -> tuple[LoopNest, list[FlatArray]]:
    """The loop nest of ``task``, and its pointer arguments in order: a space for each way in which one moves.

    Random numbers that move along get their start as an integer argument: see :func:`moves_of_numbers`.
    """
    writer = _Flattener(spaces, layouts, blocked, moving)
    writer.numbers = list(moves_of_numbers(task, moving)) if moving is not None else []
    accumulates = tuple(
        NestReduction(
            r.combine, writer.expression(r.value), r.type, writer.bounds(r.guards) + writer.ragged_reduction(task)
        )
        for r in task.reductions
    )
    values = tuple(writer.expression(value) for value in task.locals)
    outs = tuple(writer.out(p) for p in task.puts)
    parallel, reduced = task.parallel, task.reduced
    if blocked is not None:
        parts = ((LANE, blocked.lanes),)
        in_parallel = blocked.dim in dict(parallel)
        apart = (blocked.dim, *(blocked.outer or ()))
        outside = tuple((d, task.extents[d]) for d in blocked.outer or ())
        parallel = tuple(d for d in parallel if d[0] not in apart)
        reduced = tuple(d for d in reduced if d[0] not in apart)
        if blocked.outer is not None:
            # Rows may be any of the loops; by themselves they are the outermost.
            parallel, reduced = (parts, ())[not in_parallel] + parallel, ((), parts)[not in_parallel] + reduced
        else:
            parallel, reduced = parallel + (parts, ())[not in_parallel], reduced + ((), parts)[not in_parallel]
        # Blocks outermost: they are the units that threads share. Lanes are innermost, of the outputs or of the
        # reduction, whichever the samples belong to.
        parallel = (*outside, (BLOCK, blocked.blocks), *parallel)
        nest = LoopNest(
            parallel=parallel,
            reduced=reduced,
            accumulates=accumulates,
            outs=outs,
            num_arrays=len(writer.arrays),
            unit=(*(blocked.outer or ()), BLOCK),
            lane=LANE,
            locals=values,
        )
        if blocked.lanes == 1 or blocked.outer is not None or _streams_along_others(nest):
            nest = replace(nest, lane="")
    else:
        numbers = len(writer.numbers)
        nest = LoopNest(parallel, reduced, accumulates, outs, len(writer.arrays), locals=values, num_integers=numbers)
    return nest, writer.arrays


def moves_of_numbers(task: Task, moving: Moving) -> tuple[tuple[int, ...], ...]:
    """By how much the index of random numbers moves for a step of each of the dims that move, without repeats."""
    hashes = (part for part in task.expressions() if isinstance(part, Hash))
    moves = (tuple(part.index.coefficient(dim) for dim in moving.dims) for part in hashes)
    return tuple(dict.fromkeys(own for own in moves if any(own)))


def _streams_along_others(nest: LoopNest) -> bool:
    """True if samples lie apart in memory that is passed over once, in rows along another dim.

    Such rows are better read along than across. Where values are used many times, as in contractions, reading them
    across once costs little.
    """
    every = set(nest.extents) - set(nest.unit)
    for accumulate in nest.accumulates:
        if not any(isinstance(e, Fetch) and free_dims(e) >= every for e in accumulate.value.walk()):
            return False
    accesses = [f.access for f in nest.fetches] + [o.access for o in nest.outs]
    apart = [a for a in accesses if abs(a.stride(LANE)) > 1]
    return any(abs(a.stride(d)) == 1 for a in apart for d in nest.extents if d != LANE)


class _Flattener:
    """Turns the accesses of one task into addresses, numbering the arrays as they come."""

    def __init__(
        self,
        spaces: Sequence[Space],
        layouts: Callable[[int], SpaceLayout],
        blocked: Blocked | None,
        moving: Moving | None,
    ) -> None:
        self.spaces, self.layouts, self.blocked, self.moving = spaces, layouts, blocked, moving
        self.arrays: list[FlatArray] = []
        self.numbers: list[tuple[int, ...]] = []
        self.dims = {blocked.dim: blocked.sample} if blocked else {}

    def array(self, space: int, address: Affine | None = None) -> int:
        """The argument that ``space`` is where it is touched at ``address``."""
        moves: tuple[int, ...] = ()
        if self.moving is not None:
            along = Affine(()) if address is None or space in self.moving.fixed else address
            moves = tuple(along.coefficient(dim) for dim in self.moving.dims)
        array = FlatArray(space, moves)
        if array not in self.arrays:
            self.arrays.append(array)
        return self.arrays.index(array)

    def start(self, part: Hash) -> IntegerArgument | None:
        """Argument from which the index of random numbers counts, where it moves."""
        moves = () if self.moving is None else tuple(part.index.coefficient(dim) for dim in self.moving.dims)
        return IntegerArgument(self.numbers.index(moves)) if any(moves) else None

    def access(self, space: int, index: tuple[Affine, ...]) -> ElementAccess:
        """The address of ``index``."""
        layout = self.layouts(space)
        place = self.blocked.places.get(space) if self.blocked else None
        address = Affine(())
        for number, (position, stride) in enumerate(zip(index, layout.strides, strict=True)):
            # Only in a space laid out by blocks does the sample dim step in two parts; elsewhere block · lanes + lane
            # is put in its place.
            if number == place and layout.block_stride is not None:
                address = address + Affine(((BLOCK, layout.block_stride), (LANE, stride)))
            else:
                address = address + position.substitute(self.dims) * stride
        return ElementAccess(self.array(space, address), self.spaces[space].type, address)

    def bounds(self, bounds: tuple[Bound, ...]) -> tuple[Bound, ...]:
        """``bounds`` over the loop dims."""
        return tuple(move_bound(b, self.dims) for b in bounds)

    def _ragged(self, space: int, index: tuple[Affine, ...]) -> tuple[Bound, ...]:
        """Condition of the lanes' existence in ``space``, which is touched at ``index``."""
        if self.blocked is None:
            return ()
        apart = space in self.blocked.places and self.layouts(space).block_stride is not None
        whole = self.blocked.places[space] if apart else None
        # A space laid out by whole blocks has room for the lanes of the last one: touching them does no harm, so no
        # condition is needed there.
        names = {name for place, position in enumerate(index) if place != whole for name in position.names}
        return self.blocked.ragged if self.blocked.dim in names else ()

    def ragged_reduction(self, task: Task) -> tuple[Bound, ...]:
        """The condition under which lanes count in a reduction over samples."""
        reduces = self.blocked is not None and self.blocked.dim in dict(task.reduced)
        return self.blocked.ragged if self.blocked is not None and reduces else ()

    def out(self, put: Put) -> Out:
        """``put`` at its address."""
        if put.place is not None:
            assert self.blocked is None, "rows that values name are not met block by block"
            access = ElementAccess(self.array(put.space), self.spaces[put.space].type, put.index[0])
            return Out(access, put.value, put.combine, put.guards, place=put.place).with_values(self.expression)
        guards = self.bounds(put.guards) + self._ragged(put.space, put.index)
        access = self.access(put.space, put.index)
        return Out(access, self.expression(put.value), put.combine, guards, put.streams)

    def expression(self, expression: Expr) -> Expr:
        """``expression`` over addresses."""

        def change(part: Expr) -> Expr | None:
            match part:
                case Ref():
                    bounds = self.bounds(part.bounds) + self._ragged(part.space, part.index)
                    return Fetch(self.access(part.space, part.index), part.fill, bounds)
                case RowFetch():
                    access = replace(part.access, array=self.array(part.access.array))
                    return replace(part, access=access).moved(lambda a: a.substitute(self.dims), self.expression)
                case Index():
                    return Index(part.affine.substitute(self.dims))
                case Hash():
                    seed = ElementAccess(self.array(part.seed.array), part.seed.type, part.seed.address)
                    index, start = part.index.substitute(self.dims), self.start(part)
                    return replace(part, seed=seed, index=index, start=start)
            return None

        return rewrite(expression, change)
