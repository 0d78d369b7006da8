"""From planned nest functions to leaves: memory placed, arguments bound, functions of one leaf under one driver."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from abele.kernels.code.build import build_all, driver_source
from abele.kernels.code.drivers import Driver, DriverRows, DriverStep, Pointer
from abele.kernels.plan.functions import FunctionProgram, LeafFunctions
from abele.kernels.plan.native_plan import MEETING_CYCLES, LeafArgument, NativePlan, PlanLeaf, leaf_cycles
from abele.kernels.plan.share_units import AXIS, share_units
from abele.kernels.tasks.leaves import BlockLoop, OuterLoop
from abele.kernels.tasks.program import Space
from abele.layout import row_major

# Places in one block of memory for arrays that live at different times.
#
# The smallest total is NP-hard to find (it is bin packing with time). Largest first is the usual greedy rule, since
# large arrays are hard to fit between others and small ones fill what is left. It looks at pairs, so it is for the few
# hundred arrays of a plan.

ALIGNMENT = 64
"""Bytes: a cache line, and the widest vector."""


@dataclass(frozen=True)
class Lifetime:
    """An array of ``size_bytes`` that lives from step ``first`` to step ``last``, both included."""

    size_bytes: int
    first: int
    last: int


def place(lifetimes: Sequence[Lifetime]) -> tuple[list[int], int]:
    """The byte offset of every array, and the bytes that all need; arrays that live together do not overlap.

    Larger arrays are placed first, each at the lowest place that is free over its whole life.
    """
    offsets = [0] * len(lifetimes)
    placed: list[int] = []
    for number in sorted(range(len(lifetimes)), key=lambda n: (-lifetimes[n].size_bytes, n)):
        item = lifetimes[number]
        size = padded(item.size_bytes)
        offset = 0
        # From the bottom up: move above every array that lives at the same time and leaves no gap of our size below it.
        for other in sorted(placed, key=lambda n: offsets[n]):
            together = lifetimes[other].first <= item.last and item.first <= lifetimes[other].last
            if together and offsets[other] < offset + size:
                offset = max(offset, offsets[other] + padded(lifetimes[other].size_bytes))
        offsets[number] = offset
        placed.append(number)
    ends = [o + padded(item.size_bytes) for o, item in zip(offsets, lifetimes, strict=True)]
    return offsets, max(ends, default=0)


def padded(size_bytes: int) -> int:
    """``size_bytes`` rounded up to whole cache lines."""
    return -(-size_bytes // ALIGNMENT) * ALIGNMENT


def assemble(program: FunctionProgram) -> NativePlan:
    """Place memory and bind arguments: arrays that never live together share an arena, one per plan."""
    joined, cycles = _in_order(program)
    program = replace(program, leaves=joined)
    arena, arena_bytes = _arena(program)
    scratch, scratch_bytes = _scratch(program)
    binder = _Binder(program.spaces, arena, scratch)
    leaves = [replace(binder.leaf(leaf), cycles=n) for leaf, n in zip(program.leaves, cycles, strict=True)]
    drivers = build_all([driver_source(leaf.driver) for leaf in leaves if leaf.driver is not None])
    addresses = iter([address for _, address in drivers])
    native = tuple(leaf if leaf.driver is None else replace(leaf, address=next(addresses)) for leaf in leaves)
    return NativePlan(native, arena_bytes, scratch_bytes, program, (*program.keep, *(owner for owner, _ in drivers)))


def _in_order(program: FunctionProgram) -> tuple[tuple[LeafFunctions, ...], list[float]]:
    """The leaves, short ones that follow each other as one: the thread that runs them need not meet others between.

    With the cycles of each, as :func:`leaf_cycles` counts them.
    """
    joined: list[LeafFunctions] = []
    cycles: list[float] = []
    last_is_short = False
    for leaf in program.leaves:
        taken = leaf_cycles(leaf.functions, program.target)
        short = leaf.loop is None and taken <= MEETING_CYCLES
        if short and last_is_short:
            joined[-1] = LeafFunctions((*joined[-1].functions, *leaf.functions), in_order=True)
            cycles[-1] += taken
        else:
            joined.append(leaf)
            cycles.append(taken)
        last_is_short = short
    return tuple(joined), cycles


def _arena(program: FunctionProgram) -> tuple[dict[int, int], int]:
    """Addresses of the plan's own spaces that pass values from leaf to leaf, and the bytes of all."""
    own = {s.number for s in program.spaces if not s.pinned} - program.per_thread
    used = [{s: None for s in leaf.spaces if s in own} for leaf in program.leaves]
    return _place(program.sizes, [list(spaces) for spaces in used])


def _scratch(program: FunctionProgram) -> tuple[dict[int, int], int]:
    """Addresses of the spaces of a block in scratch memory, each leaf's from the start, and the bytes of all."""
    offsets: dict[int, int] = {}
    most = 0
    for leaf in program.leaves:
        used = [[s for s in f.spaces if s in program.per_thread] for f in leaf.functions]
        placed, needed = _place(program.sizes, used)
        offsets |= placed
        most = max(most, needed, *(f.scratch_bytes for f in leaf.functions))
    return offsets, most


def _place(sizes: Sequence[int], used: Sequence[Sequence[int]]) -> tuple[dict[int, int], int]:
    """Byte offsets of the spaces that steps use, and the bytes of all."""
    lives: dict[int, tuple[int, int]] = {}
    for number, spaces in enumerate(used):
        for space in spaces:
            lives[space] = (lives.get(space, (number, number))[0], number)
    offsets, total = place([Lifetime(sizes[s], first, last) for s, (first, last) in lives.items()])
    return dict(zip(lives, offsets, strict=True)), total


class _Binder:
    """Turns leaves of functions into native leaves once every space has a place."""

    def __init__(self, spaces: Sequence[Space], arena: Mapping[int, int], scratch: Mapping[int, int]) -> None:
        self.spaces, self.arena, self.scratch = spaces, arena, scratch

    def leaf(self, leaf: LeafFunctions) -> PlanLeaf:
        """Native leaf; that of a driver has no address yet."""
        tasks = [f.task for f in leaf.functions if not f.is_start]
        calls = tuple(dict.fromkeys(task.name for task in tasks))
        origins = frozenset[int]().union(*(task.origins for task in tasks))
        if leaf.loop is None and len(leaf.functions) == 1 and not leaf.functions[0].starts:
            function = leaf.functions[0]
            args = tuple(self._argument(s) for s in function.spaces)
            args += (LeafArgument("scratch"),) if function.scratch_bytes else ()
            args += tuple(LeafArgument("address", n) for n in (*function.integers, *function.callees))
            return PlanLeaf(function.address, function.units, args, calls, origins)
        slots: dict[LeafArgument, int] = {}
        steps = self._steps(leaf, slots)
        streams = leaf.loop is not None and any(put.streams for task in tasks for put in task.puts)
        rows = self._rows(leaf.loop, slots) if isinstance(leaf.loop, OuterLoop) else None
        driver = Driver(tuple(steps), *_rounds(leaf), streams, rows)
        return PlanLeaf(0, driver.units, tuple(slots), calls, origins, driver)

    def _steps(self, leaf: LeafFunctions, slots: dict[LeafArgument, int]) -> list[DriverStep]:
        """Calls of the leaf's driver; the driver's own arguments are numbered in ``slots``."""
        steps = []
        shared = leaf.loop is None and not leaf.in_order
        places = share_units([(f.units, f.cost) for f in leaf.functions]) if shared else None
        seen = leaf.loop.seen if isinstance(leaf.loop, OuterLoop) else None
        for at, function in enumerate(leaf.functions):
            # A pointer that several functions use is one argument of the driver.
            target = slots.setdefault(LeafArgument("address", function.address), len(slots))
            pointers = tuple(self._pointer(leaf.loop, s, slots) for s in function.spaces)
            if function.starts:
                moved = zip(pointers, function.starts, strict=True)
                pointers = tuple(replace(p, offset=p.offset + n) for p, n in moved)
            if seen is not None:
                by_dim = zip(pointers, function.moves, strict=True)
                pointers = tuple(replace(p, per_block=row * seen.rows, per_key=key) for p, (row, key) in by_dim)
            if function.scratch_bytes:
                pointers += (Pointer(slots.setdefault(LeafArgument("scratch"), len(slots))),)
            # Drivers hand them on as they do pointers.
            numbers = (LeafArgument("address", n) for n in (*function.integers, *function.callees))
            values = [Pointer(slots.setdefault(n, len(slots))) for n in numbers]
            kind = 0
            if seen is not None:
                kind = seen.kinds[at]
                for number, (row, key) in enumerate(function.integer_moves):
                    values[number] = replace(values[number], per_block=row * seen.rows, per_key=key)
            pointers += tuple(values)
            place = places[at] if places is not None else None
            steps.append(DriverStep(target, pointers, function.is_start, function.units, place, kind))
        return steps

    def _rows(self, loop: OuterLoop, slots: dict[LeafArgument, int]) -> DriverRows | None:
        """Blocks of rows that the driver runs one after the other; None for other loops."""
        seen = loop.seen
        if seen is None:
            return None
        table = tuple(slots.setdefault(self._argument(s), len(slots)) for s in seen.table)
        strides = row_major(self.spaces[seen.table[0]].shape)
        inner = row_major(loop.extents)
        point = tuple((inner[o], loop.extents[o], stride) for o, stride in zip(seen.outer, strides, strict=False))
        blocks = strides[-1] if self.spaces[seen.table[0]].shape[-1] > 1 else 0
        return DriverRows(
            blocks=seen.blocks,
            keys=seen.keys,
            step=seen.step,
            grain=seen.grain,
            kinds=len(seen.counts),
            table=(table[0], table[1]),
            point=point,
            block_stride=blocks,
        )

    def _argument(self, space: int) -> LeafArgument:
        """Address of ``space``, for a leaf that is a single function: only loops over blocks have spaces in scratch."""
        buffer = self.spaces[space].buffer
        return LeafArgument("arena", self.arena[space]) if buffer is None else LeafArgument("buffer", buffer)

    def _pointer(self, loop: BlockLoop | OuterLoop | None, space: int, slots: dict[LeafArgument, int]) -> Pointer:
        item = self.spaces[space]
        if space in self.scratch:
            return Pointer(slots.setdefault(LeafArgument("scratch"), len(slots)), self.scratch[space])
        slot = slots.setdefault(self._argument(space), len(slots))
        per_unit = item.bytes // loop.chunks if isinstance(loop, BlockLoop) and space in loop.partials else 0
        return Pointer(slot, 0, per_unit)


def _rounds(leaf: LeafFunctions) -> tuple[int, int]:
    """Units of a leaf, and its rounds if it runs round after round; 0 where its functions run once."""
    if leaf.loop is None:
        return (1 if leaf.in_order else AXIS), 0
    if isinstance(leaf.loop, OuterLoop):
        return leaf.loop.points, leaf.loop.points
    return leaf.loop.chunks, leaf.loop.blocks
