"""Plan a straight run of library calls as native leaves."""

from __future__ import annotations

import math
from collections.abc import Sequence

from abele.kernels.code.build import build_nest, build_with_panel, target
from abele.kernels.nest.binding import Buffer, Call
from abele.kernels.plan.assemble import Draft, Part, assemble
from abele.kernels.plan.native_plan import NativePlan
from abele.kernels.schedule.merge_dims import merge_dims
from abele.kernels.schedule.pack_panels import Panel
from abele.kernels.tasks.blocks import block_layout, blocked, lanes_for, localise, make_sweep
from abele.kernels.tasks.copy_operands import is_product, with_copies
from abele.kernels.tasks.flatten import Layout, flatten, row_major
from abele.kernels.tasks.fuse_tasks import fuse
from abele.kernels.tasks.join_dims import rejoin
from abele.kernels.tasks.program import Program, Task
from abele.kernels.tasks.row_blocks import rows_in_block, rows_layout, spaces_in_rows
from abele.kernels.tasks.sample_dim import SampleDim, find_sample_dim
from abele.kernels.tasks.split_dims import refine
from abele.kernels.tasks.split_reductions import in_parts, without_offsets
from abele.kernels.tasks.stages import Stage, dependences, make_stages


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
    rejoin(program)
    fuse(program)
    return _Planner(program).plan()


class _Planner:
    """One plan while it is made."""

    def __init__(self, program: Program) -> None:
        self.program = program
        found = None if _is_one_contraction(program) else find_sample_dim(program)
        if found is not None and (_are_products_of_samples(program, found) or _keeps_nothing_near(program, found)):
            found = None
        self.sample = found if found is not None and found.extent >= 4 else None
        self.lanes = lanes_for(self.sample.extent, target().lanes) if self.sample else 1
        self.layouts: dict[int, Layout] = {}
        self.local: set[int] = set()
        self.blocked: set[int] = set()
        self.keep: list[object] = []
        self.drafts: list[Draft] = []
        self.lines: list[str] = []

    def plan(self) -> NativePlan:
        """The plan."""
        stages = make_stages(self.program, self.sample)
        if self.sample is not None:
            self._lay_out_blocks(self.sample, stages)
        after: list[Task] = []
        for stage in stages:
            if stage.sweep and self.sample is not None:
                self._plain(after)
                after = self._sweep(self.sample, stage)
            else:
                self._plain([*after, *(self.program.tasks[n] for n in stage.tasks)])
                after = []
        self._plain(after)
        text = "\n".join([*(f"${s.number} {s}" for s in self.program.spaces), *self.lines])
        return assemble(self.program.spaces, self.drafts, self._sizes(), frozenset(self.local), self.keep, text)

    def _sizes(self) -> list[int]:
        """Bytes of every space in the plan's memory."""
        sizes = []
        for space in self.program.spaces:
            elements = space.size
            if space.number in self.blocked and self.sample is not None:
                blocks = 1 if space.number in self.local else -(-self.sample.extent // self.lanes)
                elements = space.size // self.sample.extent * self.lanes * blocks
            sizes.append(elements * space.type.bytes)
        return sizes

    def _lay_out_blocks(self, sample: SampleDim, stages: Sequence[Stage]) -> None:
        """Block-wise layouts for the spaces that only sweeps touch; those of one sweep live in scratch."""
        users: dict[int, set[int]] = {}
        for number, stage in enumerate(stages):
            for task in (self.program.tasks[n] for n in stage.tasks):
                for space in task.reads | task.writes:
                    users.setdefault(space, set()).add(number)
        free = [s for s in users if s in sample.spaces and not self.program.spaces[s].pinned]
        inside = [s for s in free if all(stages[n].sweep for n in users[s])]
        local = {s for s in inside if len(users[s]) == 1}
        rows = spaces_in_rows(self.program, sample, stages, self.lanes, local)
        self.lanes = rows_in_block(self.program, sample, stages, self.lanes, local, rows)
        for space in inside:
            self._lay_out(sample, space, local=space in local, rows=space in rows)

    def _lay_out(self, sample: SampleDim, space: int, *, local: bool, rows: bool = False) -> None:
        shape, place = self.program.spaces[space].shape, sample.spaces[space]
        if rows:
            self.layouts[space] = rows_layout(shape, place, self.lanes)
        else:
            self.layouts[space] = block_layout(shape, place, self.lanes, not local)
        self.blocked.add(space)
        if local:
            self.local.add(space)

    def _sweep(self, sample: SampleDim, stage: Stage) -> list[Task]:
        sweep, after = make_sweep(self.program, sample, stage, self.lanes)
        for space in localise(self.program, sample, sweep, self.blocked):
            self._lay_out(sample, space, local=True)
        draft = Draft("sweep", sweep=sweep, calls=_names(sweep.tasks))
        self.lines.append(
            f"leaf {len(self.drafts)}: sweep of {sweep.blocks} blocks × {self.lanes} in {sweep.chunks} chunks"
        )
        for task in sweep.starts:
            draft.parts.append(self._part(task, start=True))
        for task, dim in zip(sweep.tasks, sweep.dims, strict=True):
            draft.parts.append(self._part(task, dim=dim))
        self.drafts.append(draft)
        return after

    def _part(self, task: Task, dim: str | None = None, start: bool = False) -> Part:
        in_sweep = start or dim is not None
        split = blocked(self.sample, dim, self.lanes) if self.sample and dim else None
        nest, spaces = flatten(task, self.program.spaces, self._layout, split)
        nest = merge_dims(nest)
        panel: Panel | None = None
        offsets: dict[int, int] = {}
        if in_sweep:
            native, address, schedule = build_nest(nest)
        else:
            if task.reductions:
                nest, offsets = without_offsets(nest)
            native, address, schedule, panel = build_with_panel(nest)
        self.keep.append(native)
        self.lines += [str(task), f"    {schedule}", *([f"    {panel}"] if panel else [])]
        units, scratch = schedule.num_units(nest.extents), panel.bytes if panel else 0
        starts = tuple(offsets.get(n, 0) for n in range(len(spaces)))
        return Part(address, spaces, units, max(1, task.points), start, scratch, starts)

    def _layout(self, space: int) -> Layout:
        if space not in self.layouts:
            self.layouts[space] = Layout(row_major(self.program.spaces[space].shape))
        return self.layouts[space]

    def _plain(self, tasks: list[Task]) -> None:
        """Leaves for ``tasks``: those that do not depend on each other side by side."""
        tasks = [part for task in tasks for part in with_copies(self.program, task)]
        tasks = [part for task in tasks for part in in_parts(self.program, task)]
        depths: list[int] = []
        for needed in dependences(tasks):
            depths.append(1 + max((depths[n] for n in needed), default=-1))
        for depth in range(max(depths, default=-1) + 1):
            members = [t for t, d in zip(tasks, depths, strict=True) if d == depth]
            self.lines.append(f"leaf {len(self.drafts)}: side by side")
            parts = [self._part(t) for t in members]
            self.drafts.append(Draft("tasks", parts, calls=_names(members)))


def _is_one_contraction(program: Program) -> bool:
    """Whether all there is to do is one task with much to reuse, and enough results for threads to share."""
    return len(program.tasks) == 1 and _reuses_much(program, program.tasks[0])


def _are_products_of_samples(program: Program, sample: SampleDim) -> bool:
    """Whether all tasks multiply what each sample has of its own: across samples, nothing read could be used twice."""
    return all(
        _reuses_much(program, task) and all(r.space in sample.spaces for r in task.refs) for task in program.tasks
    )


def _keeps_nothing_near(program: Program, sample: SampleDim) -> bool:
    """Whether no task reads what another made, and sums are of products, within samples: each is faster by itself."""
    tasks = program.tasks
    products = all(is_product(r) for task in tasks for r in task.reductions)
    within = all(dim in dict(tasks[n].parallel) for n, dim in sample.tasks.items())
    made = {space for task in tasks for space in task.writes}
    return products and within and not any(ref.space in made for task in tasks for ref in task.refs)


def _reuses_much(program: Program, task: Task) -> bool:
    results = math.prod(n for _, n in task.parallel)
    if not task.reduced or not task.reads or results < 1024:
        return False
    return task.points >= 16 * max(program.spaces[s].size for s in task.reads)


def _names(tasks: Sequence[Task]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(t.name for t in tasks))
