"""From planned nest functions to leaves: memory placed, arguments bound, functions of one leaf under one driver."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from abele.kernels.code.build import build_side_by_side, build_sweep
from abele.kernels.code.drivers import Pointer, Step
from abele.kernels.plan.native_plan import Argument, Leaf, NativePlan
from abele.kernels.plan.place_memory import Lifetime, place
from abele.kernels.tasks.blocks import Sweep
from abele.kernels.tasks.program import Space

SHARES = 64
"""Units of a leaf that runs tasks side by side: fine enough for any number of threads that a host has."""


@dataclass
class Part:
    """A nest function in a leaf.

    Attributes:
        address: Of the function.
        spaces: Its arguments.
        units: How many units it has.
        cost: Points that it works through, to share threads by.
        start: In a sweep: whether it runs once a chunk.
        panel_bytes: Scratch memory to which its last argument points, apart from ``spaces``; 0: there is none.
        starts: Bytes of every space before the place where its argument points.
    """

    address: int
    spaces: list[int]
    units: int
    cost: int
    start: bool = False
    panel_bytes: int = 0
    starts: tuple[int, ...] = ()


@dataclass
class Draft:
    """A leaf before memory is placed."""

    name: str
    parts: list[Part] = field(default_factory=list)
    sweep: Sweep | None = None
    calls: tuple[str, ...] = ()


def assemble(
    spaces: Sequence[Space],
    drafts: Sequence[Draft],
    sizes: Sequence[int],
    local: frozenset[int],
    keep: list[object],
    listing: str,
) -> NativePlan:
    """The plan of ``drafts``.

    Args:
        spaces: All spaces.
        drafts: Leaves in order.
        sizes: Bytes of every space.
        local: Spaces that live in a thread's scratch.
        keep: What holds the code; drivers are added.
        listing: The plan as text.
    """
    shared = {s.number for s in spaces if not s.pinned and s.number not in local}
    arena, arena_bytes = _place(sizes, [[s for p in d.parts for s in p.spaces if s in shared] for d in drafts])
    scratch: dict[int, int] = {}
    scratch_bytes = 0
    for draft in drafts:
        offsets, needed = _place(sizes, [[s for s in p.spaces if s in local] for p in draft.parts])
        scratch |= offsets
        scratch_bytes = max(scratch_bytes, needed, *(p.panel_bytes for p in draft.parts))
    binder = _Binder(spaces, arena, scratch)
    leaves = tuple(binder.leaf(d, keep) for d in drafts)
    return NativePlan(leaves, arena_bytes, scratch_bytes, listing, tuple(keep))


def _place(sizes: Sequence[int], used: Sequence[Sequence[int]]) -> tuple[dict[int, int], int]:
    """Byte offsets of the spaces that steps use, and the bytes that all need."""
    lives: dict[int, tuple[int, int]] = {}
    for number, spaces in enumerate(used):
        for space in spaces:
            lives[space] = (lives.get(space, (number, number))[0], number)
    offsets, total = place([Lifetime(sizes[s], first, last) for s, (first, last) in lives.items()])
    return dict(zip(lives, offsets, strict=True)), total


class _Binder:
    """Turns drafts into leaves once every space has a place."""

    def __init__(self, spaces: Sequence[Space], arena: dict[int, int], scratch: dict[int, int]) -> None:
        self.spaces, self.arena, self.scratch = spaces, arena, scratch

    def leaf(self, draft: Draft, keep: list[object]) -> Leaf:
        """The leaf of ``draft``."""
        if draft.sweep is None and len(draft.parts) == 1 and not any(draft.parts[0].starts):
            part = draft.parts[0]
            args = tuple(self._argument(s) for s in part.spaces)
            args += (Argument("scratch"),) if part.panel_bytes else ()
            return Leaf(draft.name, part.address, part.units, args, draft.calls)
        slots: dict[Argument, int] = {}
        steps = self._steps(draft, slots)
        if draft.sweep is not None:
            units = draft.sweep.chunks
            native, address = build_sweep(steps, units, draft.sweep.blocks)
        else:
            units = steps[-1].first + steps[-1].share
            native, address = build_side_by_side(steps)
        keep.append(native)
        return Leaf(draft.name, address, units, tuple(slots), draft.calls)

    def _steps(self, draft: Draft, slots: dict[Argument, int]) -> list[Step]:
        first, steps = 0, []
        total = sum(p.cost for p in draft.parts)
        for part in draft.parts:
            share = max(1, min(part.units, round(SHARES * part.cost / total)))
            where = int(part.start) if draft.sweep else first
            function = slots.setdefault(Argument("address", part.address), len(slots))
            pointers = tuple(self._pointer(draft.sweep, s, slots) for s in part.spaces)
            if any(part.starts):
                pointers = tuple(replace(p, offset=p.offset + n) for p, n in zip(pointers, part.starts, strict=True))
            if part.panel_bytes:
                pointers += (Pointer(slots.setdefault(Argument("scratch"), len(slots))),)
            steps.append(Step(function, pointers, where, part.units, share))
            first += share
        return steps

    def _argument(self, space: int) -> Argument:
        """Where ``space`` lies, for a leaf that is a single function: scratch is a sweep's alone."""
        buffer = self.spaces[space].buffer
        return Argument("arena", self.arena[space]) if buffer is None else Argument("buffer", buffer)

    def _pointer(self, sweep: Sweep | None, space: int, slots: dict[Argument, int]) -> Pointer:
        item = self.spaces[space]
        if space in self.scratch:
            return Pointer(slots.setdefault(Argument("scratch"), len(slots)), self.scratch[space])
        slot = slots.setdefault(self._argument(space), len(slots))
        partial = sweep is not None and space in sweep.partials
        per_unit = item.size // sweep.chunks * item.type.bytes if sweep is not None and partial else 0
        return Pointer(slot, 0, per_unit)
