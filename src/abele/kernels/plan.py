"""Plan a straight run of library calls as native leaves."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from abele.kernels.binding import Buffer, Call
from abele.kernels.build import build_nest, build_side_by_side, build_sweep, target
from abele.kernels.code_driver import Pointer, Step
from abele.kernels.flat import Layout, flatten, row_major
from abele.kernels.fuse import fuse
from abele.kernels.memory import Lifetime, place
from abele.kernels.merge import merge_dims
from abele.kernels.native import Argument, Leaf, NativePlan
from abele.kernels.refine import refine
from abele.kernels.sample import SampleDim, find_sample_dim
from abele.kernels.stage import Stage, dependences, make_stages
from abele.kernels.sweep import Sweep, block_layout, blocked, lanes_for, localise, make_sweep
from abele.kernels.task import Program, Task

SHARES = 64
"""Units of a leaf that runs tasks side by side: fine enough for any number of threads that a host has."""


def plan_native(buffers: Sequence[Buffer], calls: Sequence[Call]) -> NativePlan:
    """Native leaves that do what ``calls`` do, in order.

    Args:
        buffers: Every buffer that a call is bound to.
        calls: Kernels with their operands bound.

    Raises:
        TensorError: A binding names no buffer or reaches outside it.
        TypeMismatchError: A buffer holds another type than the kernel wants.
    """
    program = refine(buffers, calls)
    fuse(program)
    return _Planner(program).plan()


@dataclass
class _Part:
    """A nest function of a leaf: its steps' arguments are spaces until memory is placed."""

    address: int
    spaces: list[int]
    units: int
    cost: int
    start: bool = False


@dataclass
class _Draft:
    """A leaf before memory is placed."""

    name: str
    parts: list[_Part] = field(default_factory=list)
    sweep: Sweep | None = None
    calls: tuple[str, ...] = ()


class _Planner:
    """One plan while it is made."""

    def __init__(self, program: Program) -> None:
        self.program = program
        found = find_sample_dim(program)
        self.sample = found if found is not None and found.extent >= 4 else None
        self.lanes = lanes_for(self.sample.extent, target().lanes) if self.sample else 1
        self.layouts: dict[int, Layout] = {}
        self.local: dict[int, int] = {}
        self.keep: list[object] = []
        self.drafts: list[_Draft] = []
        self.lines: list[str] = []

    def plan(self) -> NativePlan:
        """The plan."""
        stages = make_stages(self.program, self.sample)
        users = self._stage_users(stages)
        after: list[Task] = []
        for number, stage in enumerate(stages):
            if stage.sweep and self.sample is not None:
                self._plain([*after])
                after = self._sweep(self.sample, number, stage, users)
            else:
                self._plain([*after, *(self.program.tasks[n] for n in stage.tasks)])
                after = []
        self._plain(after)
        return self._placed()

    def _stage_users(self, stages: Sequence[Stage]) -> dict[int, set[int]]:
        """The stages that touch each space."""
        users: dict[int, set[int]] = {}
        for number, stage in enumerate(stages):
            for task in (self.program.tasks[n] for n in stage.tasks):
                for space in task.reads | task.writes:
                    users.setdefault(space, set()).add(number)
        return users

    def _sweep(self, sample: SampleDim, number: int, stage: Stage, users: dict[int, set[int]]) -> list[Task]:
        spaces = self.program.spaces
        local = {s for s in sample.spaces if not spaces[s].pinned and users.get(s) == {number}}
        sweep, after = make_sweep(self.program, sample, stage, self.lanes)
        localise(self.program, sample, sweep, local)
        for space in local:
            self.layouts[space] = block_layout(spaces[space].shape, sample.spaces[space], self.lanes, False)
            self.local[space] = len(self.drafts)
        draft = _Draft("sweep", sweep=sweep, calls=_names(sweep.tasks))
        self.lines.append(
            f"leaf {len(self.drafts)}: sweep of {sweep.blocks} blocks × {self.lanes} in {sweep.chunks} chunks"
        )
        for task in sweep.starts:
            draft.parts.append(self._part(task, start=True))
        for task, dim in zip(sweep.tasks, sweep.dims, strict=True):
            draft.parts.append(self._part(task, dim=dim))
        self.drafts.append(draft)
        return after

    def _part(self, task: Task, dim: str | None = None, start: bool = False) -> _Part:
        split = blocked(self.sample, dim, self.lanes) if self.sample and dim else None
        nest, spaces = flatten(task, self.program.spaces, self._layout, split)
        nest = merge_dims(nest)
        native, address, schedule = build_nest(nest)
        self.keep.append(native)
        self.lines += [str(task), f"    {schedule}"]
        return _Part(address, spaces, schedule.num_units(nest.extents), max(1, task.points), start)

    def _layout(self, space: int) -> Layout:
        if space not in self.layouts:
            self.layouts[space] = Layout(row_major(self.program.spaces[space].shape))
        return self.layouts[space]

    def _plain(self, tasks: list[Task]) -> None:
        """Leaves for ``tasks``: those that do not depend on each other side by side."""
        depths: list[int] = []
        for needed in dependences(tasks):
            depths.append(1 + max((depths[n] for n in needed), default=-1))
        for depth in range(max(depths, default=-1) + 1):
            members = [t for t, d in zip(tasks, depths, strict=True) if d == depth]
            self.lines.append(f"leaf {len(self.drafts)}: side by side")
            parts = [self._part(t) for t in members]
            self.drafts.append(_Draft("tasks", parts, calls=_names(members)))

    # Memory

    def _placed(self) -> NativePlan:
        arena, arena_bytes = self._place_arena()
        scratch, scratch_bytes = self._place_scratch()
        leaves = tuple(self._leaf(n, d, arena, scratch) for n, d in enumerate(self.drafts))
        text = "\n".join([*(f"${s.number} {s}" for s in self.program.spaces), *self.lines])
        return NativePlan(leaves, arena_bytes, scratch_bytes, text, tuple(self.keep))

    def _bytes(self, space: int) -> int:
        item = self.program.spaces[space]
        if space in self.local and self.sample is not None:
            return item.size // self.sample.extent * self.lanes * item.type.bytes
        return item.size * item.type.bytes

    def _place_arena(self) -> tuple[dict[int, int], int]:
        lives: dict[int, list[int]] = {}
        for number, draft in enumerate(self.drafts):
            for space in {s for p in draft.parts for s in p.spaces}:
                if space not in self.local and not self.program.spaces[space].pinned:
                    lives.setdefault(space, []).append(number)
        offsets, total = place([Lifetime(self._bytes(s), min(at), max(at)) for s, at in lives.items()])
        return dict(zip(lives, offsets, strict=True)), total

    def _place_scratch(self) -> tuple[dict[int, int], int]:
        found: dict[int, int] = {}
        most = 0
        for draft in self.drafts:
            lives: dict[int, list[int]] = {}
            for number, part in enumerate(draft.parts):
                for space in part.spaces:
                    if space in self.local:
                        lives.setdefault(space, []).append(number)
            offsets, total = place([Lifetime(self._bytes(s), min(at), max(at)) for s, at in lives.items()])
            found |= dict(zip(lives, offsets, strict=True))
            most = max(most, total)
        return found, most

    def _leaf(self, number: int, draft: _Draft, arena: dict[int, int], scratch: dict[int, int]) -> Leaf:
        args: list[Argument] = []

        def slot(argument: Argument) -> int:
            if argument not in args:
                args.append(argument)
            return args.index(argument)

        def pointer(space: int) -> Pointer:
            item = self.program.spaces[space]
            if space in scratch:
                return Pointer(slot(Argument("scratch")), scratch[space])
            if item.buffer is not None:
                return Pointer(slot(Argument("buffer", item.buffer)))
            per_unit = 0
            if draft.sweep is not None and space in draft.sweep.partials:
                per_unit = item.size // draft.sweep.chunks * item.type.bytes
            return Pointer(slot(Argument("arena", arena[space])), 0, per_unit)

        if draft.sweep is None and len(draft.parts) == 1:
            part = draft.parts[0]
            direct = tuple(args[pointer(s).slot] for s in part.spaces)
            return Leaf(draft.name, part.address, part.units, direct, draft.calls)
        first, steps = 0, []
        total = sum(p.cost for p in draft.parts)
        for part in draft.parts:
            share = max(1, min(part.units, round(SHARES * part.cost / total)))
            where = int(part.start) if draft.sweep else first
            function = slot(Argument("address", part.address))
            steps.append(Step(function, tuple(pointer(s) for s in part.spaces), where, part.units, share))
            first += share
        if draft.sweep is not None:
            native, address = build_sweep(steps, draft.sweep.chunks, draft.sweep.blocks)
            first = draft.sweep.chunks
        else:
            native, address = build_side_by_side(steps)
        self.keep.append(native)
        return Leaf(draft.name, address, first, tuple(args), draft.calls)


def _names(tasks: Sequence[Task]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(t.name for t in tasks))
