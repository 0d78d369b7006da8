"""Let products read bf16 where it lies, instead of copies of it that were widened to f32.

A program that keeps its weights or activations in bf16, and multiplies in f32, widens both operands before each
product. Where the CPU multiplies pairs of bf16 and adds them up in f32, the product of the copies is that of what was
copied: widening changes no value, and products of bf16 are exact in f32. So the product reads the operands themselves,
at twice the rate, and copies that nothing else reads are dropped. It is right where what was copied is still there,
and the product itself does not write it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from abele.kernels.nest.ir import Affine, Cast, Expr
from abele.kernels.nest.loop_nest import NestLocal
from abele.kernels.nest.rewrite import rewrite
from abele.kernels.tasks.copy_operands import is_product
from abele.kernels.tasks.program import Ref, Task, TaskProgram, plain
from abele.numerics import bf16, f32


@dataclass(frozen=True)
class _Widened:
    """Space that holds an f32 copy of a bf16 space.

    Attributes:
        task: The number of the task that widens it.
        dims: The dims of that task, in the order in which they index the space.
        source: The load, by these dims.
    """

    task: int
    dims: tuple[str, ...]
    source: Ref


def read_unwidened(program: TaskProgram) -> TaskProgram:
    """Let products read bf16 where it lies instead of copies widened to f32, if the CPU multiplies pairs of it."""
    products = program.target.products
    if products is None or products.pairs is None:
        return program
    widened = _widened_spaces(program)
    if not widened:
        return program
    tasks = tuple(_reading(program, number, widened) for number in range(len(program.tasks)))
    return replace(program, tasks=tasks)


def _widened_spaces(program: TaskProgram) -> dict[int, _Widened]:
    """The plan's own spaces that one task makes, each a copy of bf16."""
    writers: dict[int, list[int]] = {}
    for number, task in enumerate(program.tasks):
        for space in task.writes:
            writers.setdefault(space, []).append(number)
    found = {}
    for space, numbers in writers.items():
        if len(numbers) == 1 and not program.spaces[space].pinned:
            copy = _copy_of(program, space, numbers[0])
            if copy is not None:
                found[space] = copy
    return found


def _copy_of(program: TaskProgram, space: int, number: int) -> _Widened | None:
    task = program.tasks[number]
    puts = [put for put in task.puts if put.space == space]
    if task.reductions or len(puts) != 1 or program.spaces[space].type != f32:
        return None
    (put,) = puts
    value = task.locals[put.value.number] if isinstance(put.value, NestLocal) else put.value
    if isinstance(value, Cast) and value.type == f32:
        value = value.arg
    dims = tuple(plain(position) or "" for position in put.index)
    is_whole = sorted(dims) == sorted(d for d, _ in task.parallel)
    shape = program.spaces[space].shape
    is_whole = is_whole and tuple(task.extents[d] for d in dims) == shape
    if not put.is_plain or not is_whole or not isinstance(value, Ref):
        return None
    if value.bounds or program.spaces[value.space].type != bf16 or value.space in task.writes:
        return None
    return _Widened(number, dims, value)


def _reading(program: TaskProgram, number: int, widened: dict[int, _Widened]) -> Task:
    """Task ``number``; reading the bf16 originals, if it is a product of two such operands."""
    task = program.tasks[number]
    if len(task.reductions) != 1 or not is_product(task.reductions[0]):
        return task
    (reduction,) = task.reductions
    refs = dict.fromkeys(part for part in reduction.value.walk() if isinstance(part, Ref))
    copies = {ref: widened.get(ref.space) for ref in refs if not ref.bounds}
    if len(copies) < len(refs) or not all(c is not None and _is_there(program, c, number) for c in copies.values()):
        return task

    def change(part: Expr) -> Expr | None:
        copy = copies.get(part) if isinstance(part, Ref) else None
        return _moved(copy, part) if copy is not None and isinstance(part, Ref) else None

    return replace(task, reductions=(replace(reduction, value=rewrite(reduction.value, change)),))


def _is_there(program: TaskProgram, copy: _Widened, number: int) -> bool:
    """True if task ``number`` finds the original as it was when it was copied, and does not change it."""
    between = program.tasks[copy.task + 1 : number + 1]
    return copy.task < number and all(copy.source.space not in task.writes for task in between)


def _moved(copy: _Widened, ref: Ref) -> Ref:
    """``ref``, which reads the copy, as a read of the copy's source."""
    places: dict[str, Affine] = dict(zip(copy.dims, ref.index, strict=True))
    return replace(copy.source, index=tuple(position.substitute(places) for position in copy.source.index))
