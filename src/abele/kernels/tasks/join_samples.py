"""Join the digits of samples that only small arrays of the caller's keep apart; these go through copies.

An array of the caller's stays as it lies. One that holds samples in groups, with something else between group and
sample, keeps the digits of samples apart in all tasks and spaces that they run through: the two outputs of a network's
last layer would leave its convolutions a few groups to run by blocks where there were many samples. Such a small array
is copied instead: before all tasks if one of them reads its old contents, and after all if one writes it. Everything
between has its samples whole.

Only the dim of the samples is considered, and only if its tasks do so much work that copies do not matter. Weights are
never copied: they have no samples.

Example: an output [2, 3, 64] of 128 samples, in two groups with 3 results between, keeps the digits 2 and 64 apart.
Copied to [128, 3], it leaves one dim of 128 everywhere.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from abele.kernels.nest.ir import Affine, Expr, affine
from abele.kernels.nest.loop_nest import Hash
from abele.kernels.tasks.join_dims import DigitPair, join_pairs, pairs_of_digits
from abele.kernels.tasks.program import Put, Ref, Space, SpaceTable, Task, TaskProgram, plain
from abele.kernels.tasks.sample_dim import find_sample_dim, state_spaces

MIN_POINTS = 1024
"""Points of tasks for every element that is copied. An element takes up to 1 ns and a point of a product 0.02 ns, so
copies take a twentieth of the time at most."""


@dataclass(frozen=True)
class _Copy:
    """The copy of one array.

    Attributes:
        own: Number of the plan's own space.
        original: The caller's.
        index: Place in ``own`` of element ``[d0, d1, …]`` of ``original``.
    """

    own: int
    original: Space
    index: tuple[Affine, ...]


def join_samples(program: TaskProgram) -> TaskProgram:
    """Join the digits of samples that only small arrays of the caller's keep apart; these go through copies."""
    copies: list[_Copy] = []
    while (pair := _digits_of_samples(program)) is not None:
        program, made = _with_own_spaces(program, pair.apart)
        owns = {copy.original.number: copy.own for copy in made}
        pair = replace(pair, spaces={owns.get(number, number): here for number, here in pair.spaces.items()})
        copies = [_joined(program, pair, copy) for copy in (*copies, *made)]
        program = join_pairs(program, [pair])
    first = [_copying(copy, back=False) for copy in copies if _is_read_first(program, copy.own)]
    last = [_copying(copy, back=True) for copy in copies if any(copy.own in task.writes for task in program.tasks)]
    return replace(program, tasks=(*first, *program.tasks, *last)) if copies else program


def _digits_of_samples(program: TaskProgram) -> DigitPair | None:
    """Two digits of samples that small arrays alone keep apart; None if there are none."""
    samples = find_sample_dim(program)
    if samples is None or samples.spaces.keys() & state_spaces(program):
        return None
    most = sum(program.tasks[n].points for n in samples.tasks) // MIN_POINTS
    for pair in pairs_of_digits(program):
        has_samples = samples.members <= pair.members and len(pair.members) == 2 * len(samples.members)
        if not has_samples or not all(_can_move(program, n) for n in pair.apart):
            continue
        if sum(program.spaces[n].size for n in pair.apart) <= most:
            return pair
    return None


def _can_move(program: TaskProgram, space: int) -> bool:
    """True if tasks find the elements of ``space`` by whole dims alone, and none of its values is known."""
    seeds = {part.seed.array for task in program.tasks for part in task.expressions() if isinstance(part, Hash)}
    in_rows = any(space in task.in_rows for task in program.tasks)
    return space not in seeds and not in_rows and program.spaces[space].buffer not in program.constants


def _with_own_spaces(program: TaskProgram, originals: frozenset[int]) -> tuple[TaskProgram, list[_Copy]]:
    """``program`` with spaces of its own in the place of ``originals``, and how these are copied."""
    spaces, copies, owns = SpaceTable(program.spaces), [], dict[int, int]()
    for number in sorted(originals):
        original = spaces[number]
        owns[number] = spaces.add(original.shape, original.type, f"{original.name}.copy").number
        copies.append(_Copy(owns[number], original, tuple(affine(f"d{n}") for n in range(len(original.shape)))))
    tasks = tuple(_moved(task, owns) if (task.reads | task.writes) & originals else task for task in program.tasks)
    return replace(program, spaces=spaces.all(), tasks=tasks), copies


def _moved(task: Task, owns: dict[int, int]) -> Task:
    """``task`` with the plan's own spaces where it had the originals."""

    def change(part: Expr) -> Expr | None:
        return replace(part, space=owns[part.space]) if isinstance(part, Ref) and part.space in owns else None

    changed = task.rewritten(change)
    return replace(changed, puts=tuple(replace(p, space=owns.get(p.space, p.space)) for p in changed.puts))


def _joined(program: TaskProgram, pair: DigitPair, copy: _Copy) -> _Copy:
    """``copy`` once the digits of ``pair`` are one dim."""
    for slow, fast in pair.spaces.get(copy.own, {}).items():
        both = copy.index[slow] * program.spaces[copy.own].shape[fast] + copy.index[fast]
        index = (both if place == slow else position for place, position in enumerate(copy.index) if place != fast)
        copy = replace(copy, index=tuple(index))
    return copy


def _is_read_first(program: TaskProgram, space: int) -> bool:
    """True if the former contents of ``space`` count: a task reads them, or leaves some of them."""
    task = next(task for task in program.tasks if space in task.reads | task.writes)
    return space in task.reads or not any(_sets_all(program.spaces[space], task, put) for put in task.puts)


def _sets_all(space: Space, task: Task, put: Put) -> bool:
    """True if ``put`` stores every element of ``space``."""
    names = [plain(position) for position in put.index]
    extents = tuple(task.extents.get(name or "") for name in names)
    return put.space == space.number and put.is_plain and len(set(names)) == len(names) and extents == space.shape


def _copying(copy: _Copy, *, back: bool) -> Task:
    """The task that fills ``copy``, or that takes it back to where the caller has it."""
    dims = tuple((f"d{n}", extent) for n, extent in enumerate(copy.original.shape))
    there, here = (copy.original.number, tuple(affine(d) for d, _ in dims)), (copy.own, copy.index)
    source, target = (here, there) if back else (there, here)
    put = Put(*target, Ref(*source))
    return Task(f"{copy.original.name}.copy", dims, (), (), (put,))
