"""Programs of tasks as text, with spaces by their names.

x    f32[32, 12]  the caller's
y    f32[32, 6]
dense  for b<32, n<6
  acc0 = sum over k<12 of x[b, k] * w[n, k]
  y[b, n] = acc0
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from abele.kernels.nest.ir import Expr
from abele.kernels.nest.loop_nest import PAST_CACHES, Bound, Dims, Hash, RowFetch, RowPlace
from abele.kernels.nest.rewrite import rewrite
from abele.kernels.tasks.layout import SpaceLayout
from abele.kernels.tasks.leaves import BlockLoop, LeafProgram, OuterLoop, SeenKeys
from abele.kernels.tasks.program import (
    Put,
    Ref,
    SampleDim,
    Space,
    Task,
    TaskGroup,
    TaskProgram,
    TaskReduction,
    TaskStage,
)
from abele.layout import row_major
from abele.words import counted

COMBINED = {"add": "sum", "mul": "product", "max": "max", "min": "min"}
"""Name of a reduction by each combine."""


@dataclass(frozen=True)
class Shown(Expr):
    """Stands in an expression for a part that prints as ``text``."""

    text: str

    def __str__(self) -> str:
        return self.text


class Names:
    """A name for every space: its own, with a number after it where several share it."""

    def __init__(self, spaces: Sequence[Space]) -> None:
        seen: dict[str, int] = {}
        self.of: dict[int, str] = {}
        for space in spaces:
            number = seen[space.name] = seen.get(space.name, 0) + 1
            self.of[space.number] = space.name if number == 1 else f"{space.name}'{number}"

    def value(self, expression: Expr) -> Expr:
        """``expression``, which then prints spaces by name."""

        def change(part: Expr) -> Expr | None:
            match part:
                case Ref():
                    return Shown(self._element(part))
                case RowFetch():
                    fill = f", else {part.fill:g}" if part.fill else ""
                    return Shown(f"{self.of[part.access.array]}[{self._row(part.place)}, {part.access.address}{fill}]")
                case Hash():
                    seed = self.of[part.seed.array]
                    return Shown(f"random({seed}[{part.seed.address}], {part.modifier}, {part.index})")
            return None

        return rewrite(expression, change)

    def _element(self, ref: Ref) -> str:
        fill = "" if ref.fill is None or not ref.bounds else f", else {ref.fill:g}"
        return f"{self.of[ref.space]}[{_index(ref)}{where(ref.bounds)}{fill}]"

    def _row(self, place: RowPlace) -> str:
        return str(replace(place, row=self.value(place.row)))

    def store(self, put: Put) -> str:
        """A store in a line."""
        sign = "=" if put.combine == "set" else f"{put.combine}="
        value = f"{self.value(put.value)}{where(put.guards)}{PAST_CACHES * put.streams}"
        row = "" if put.place is None else f"{self._row(put.place)}, "
        return f"{self.of[put.space]}[{row}{_index(put)}] {sign} {value}"


def program_text(program: TaskProgram) -> str:
    """``program``, its tasks in stages where they are ordered; spaces that no task touches are left out."""
    names = Names(program.spaces)
    lines = [*space_lines(_touched(program.spaces, program.tasks), names, program.layouts)]
    lines += samples_lines(program.samples, program.block, names)
    lines += (_group_text(program, group) for group in program.groups)
    if not program.stages:
        for task in program.tasks:
            lines += task_lines(task, names)
    for stage in program.stages:
        lines.append(_stage_text(stage))
        for number in stage.tasks:
            lines += (f"  {line}" for line in task_lines(program.tasks[number], names))
    return "\n".join(lines)


def leaf_program_text(program: LeafProgram) -> str:
    """``program``, its tasks leaf by leaf; spaces that no task touches are left out."""
    names = Names(program.spaces)
    every = [task for leaf in program.leaves for task in leaf.tasks]
    lines = [*space_lines(_touched(program.spaces, every), names, program.layouts)]
    for number, leaf in enumerate(program.leaves):
        lines.append(f"leaf {number}: {loop_text(leaf.loop, len(leaf.tasks))}")
        for task in leaf.loop.starts if isinstance(leaf.loop, BlockLoop) else ():
            lines += (f"  at the start of a chunk: {line}" for line in task_lines(task, names)[:1])
            lines += (f"  {line}" for line in task_lines(task, names)[1:])
        for task in leaf.tasks:
            lines += (f"  {line}" for line in task_lines(task, names))
    return "\n".join(lines)


def _touched(spaces: Sequence[Space], tasks: Sequence[Task]) -> list[Space]:
    used = {number for task in tasks for number in task.reads | task.writes}
    return [space for space in spaces if space.number in used]


def space_lines(spaces: Sequence[Space], names: Names, layouts: Mapping[int, SpaceLayout]) -> Iterator[str]:
    """Line per space: name, type, shape, owner, and layout if it is not row-major."""
    width = max((len(names.of[space.number]) for space in spaces), default=0)
    for space in spaces:
        shape = f"{space.type}[{', '.join(map(str, space.shape))}]"
        how = "the caller's" if space.pinned else _layout_text(space, layouts.get(space.number))
        yield f"{names.of[space.number]:<{width}}  {shape:<18} {how}".rstrip()


def samples_lines(samples: SampleDim | None, block: int, names: Names) -> list[str]:
    """Sample dims in a line; none before they are chosen."""
    if samples is None:
        return []
    places = ", ".join(f"dim {place} of {names.of[space]}" for space, place in sorted(samples.spaces.items()))
    return [f"{counted(samples.extent, 'sample')} in blocks of {block}: {places}"]


def _group_text(program: TaskProgram, group: TaskGroup) -> str:
    """Tasks of a group, in a line."""
    first, last = (program.tasks[group.tasks[n]].name for n in (0, -1))
    points = " × ".join(map(str, group.extents))
    return f"together, point after point of outer dims, {points}: {len(group.tasks)} tasks from {first} to {last}"


def _stage_text(stage: TaskStage) -> str:
    if stage.rows is None:
        return "block after block:" if stage.by_blocks else "whole:"
    rows = " × ".join(map(str, stage.rows.extents))
    return f"row by row, {rows} rows, {stage.rows.block} at a time:"


def loop_text(loop: BlockLoop | OuterLoop | None, num_tasks: int) -> str:
    """Loop of a leaf's tasks, in words."""
    if loop is None:
        return "side by side" if num_tasks > 1 else "one task"
    if isinstance(loop, OuterLoop):
        return f"point after point of outer dims, {loop}{_seen_text(loop.seen)}"
    blocks = counted(loop.blocks, "block")
    if loop.outer_dims:
        return f"row by row, {blocks} of {counted(loop.block, 'row')} in {counted(loop.chunks, 'chunk')}"
    return f"block after block, {blocks} of {loop.block} samples in {counted(loop.chunks, 'chunk')}"


def _seen_text(seen: SeenKeys | None) -> str:
    if seen is None:
        return ""
    counts = ", ".join(map(str, seen.counts))
    return f"; at each {counted(seen.blocks, 'block')} of {counted(seen.rows, 'row')}, with the keys seen: {counts}"


def task_lines(task: Task, names: Names) -> list[str]:
    """A task: its name and loops, then a line per reduction, local value and store."""
    lines = [f"{task.name}  {loops_text(task.parallel)}"]
    lines += (f"  acc{n} = {_reduction(r, task.reduced, names)}" for n, r in enumerate(task.reductions))
    lines += (f"  local{n} = {names.value(value)}" for n, value in enumerate(task.locals))
    return [*lines, *(f"  {names.store(put)}" for put in task.puts)]


def loops_text(dims: Dims) -> str:
    """Loops in a line."""
    return f"for {dims_text(dims)}" if dims else "once"


def dims_text(dims: Dims) -> str:
    """Dims with their extents."""
    return ", ".join(f"{dim}<{extent}" for dim, extent in dims)


def where(bounds: Iterable[Bound]) -> str:
    """The conditions under which something counts, in words; empty where there are none."""
    text = " and ".join(f"0 ≤ {b.position} < {b.extent}" for b in bounds)
    return f" where {text}" if text else ""


def _index(access: Ref | Put) -> str:
    return ", ".join(map(str, access.index))


def _reduction(reduction: TaskReduction, reduced: Dims, names: Names) -> str:
    over = f"{COMBINED[reduction.combine]} over {dims_text(reduced)}{where(reduction.guards)}"
    return f"{over} of {names.value(reduction.value)}"


def _layout_text(space: Space, layout: SpaceLayout | None) -> str:
    if layout is None or layout.block_stride is None:
        return ""
    if not layout.is_per_thread:
        return "block after block"
    if layout.is_one_point:
        return "a point per thread"
    own = any(a != b for a, b in zip(layout.strides, row_major(space.shape), strict=True))
    return "a block per thread" if own else "rows, a block per thread"
