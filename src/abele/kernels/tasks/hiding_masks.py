"""Masks that a program makes while it runs: arrays that hide keys from rows of an attention.

A mask is an array of truth values, or of numbers that are added to scores, that a group of tasks reads along its rows
and keys, or along its keys alone. Its name does not decide that. The test: if its elements were those of hidden keys
(false, or true, or minus infinity), would every term of sums and maxima over these keys add nothing? Bounds of values
tell (:mod:`abele.kernels.tasks.known_values`), as they do of masks that are known when a plan is made.

Large finite numbers, such as -1000, hide a key where exp of its score, less the row's largest, is zero in f32. That
depends on the other scores. They are sums of products of queries and keys, so no larger than the product of the longest
query and the longest key (Cauchy and Schwarz), which costs little to compute. :class:`ScoreBound` names the operands;
the test is made where the program runs.

Example: of queries and keys no longer than 8, scores lie between ±64. A mask of 1,000 below zero puts a hidden score at
least 872 below the largest of its row, and exp(−872) is zero in f32.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from abele.arrays import Array
from abele.kernels.nest.ir import Apply, Cast, Const, Expr
from abele.kernels.nest.loop_nest import Acc, NestLocal
from abele.kernels.tasks.fuse_outer_loops import operand_dims
from abele.kernels.tasks.known_values import ANY, FINITE, Evaluation, Known, adds_nothing
from abele.kernels.tasks.leaves import BlockLoop, LeafProgram, LeafTasks, OuterLoop
from abele.kernels.tasks.program import Ref, Space, Task, plain
from abele.kernels.tasks.row_table import RowTable
from abele.numerics import bf16, bool_, f16, f32

# Cells of rows by keys that a group of tasks needs, as far as value bounds tell before a run.


@dataclass(frozen=True)
class HeldCells:
    """Bounds of a space in each cell, and its places of rows and keys.

    Attributes:
        known: The bounds.
        row: The place of the rows; None where all rows are alike.
        key: The place of the keys.
    """

    known: Known
    row: int | None
    key: int


@dataclass(frozen=True)
class ProgramFacts:
    """Facts about a program that evaluation needs.

    Attributes:
        constants: Spaces whose elements never change.
        truths: Spaces of truth values.
        written_once: Spaces that one task alone writes.
    """

    constants: Mapping[int, Array]
    truths: Collection[int]
    written_once: Collection[int]

    @staticmethod
    def of(program: LeafProgram) -> ProgramFacts:
        """Facts of ``program``."""
        writers = Counter(s for leaf in program.leaves for task in all_tasks(leaf) for s in task.writes)
        constants = {
            s.number: np.asarray(program.constants[s.buffer]).reshape(s.shape)
            for s in program.spaces
            if s.buffer is not None and s.buffer in program.constants
        }
        truths = {s.number for s in program.spaces if s.type == bool_}
        return ProgramFacts(constants, truths, {s for s, count in writers.items() if count == 1})

    def evaluated(
        self, leaf: LeafTasks, dims: RowTable, held: Mapping[int, HeldCells]
    ) -> tuple[dict[int, HeldCells], Array]:
        """Bounds of the spaces that ``leaf`` writes, given those ``held``; and the cells that its reductions need."""
        known, table, needed = dict(held), dims.table, np.zeros(dims.table.shape, np.bool_)
        for task, row, key in zip(leaf.tasks, dims.rows, dims.keys, strict=True):
            if not key:
                continue

            def of_space(ref: Ref, row: str = row, key: str = key) -> Known:
                cells = known.get(ref.space)
                if cells is None or cells.known.low.shape not in ((1, 1), table.shape):
                    return ANY
                at_row = row if cells.row is None else plain(ref.index[cells.row])
                return cells.known if (at_row, plain(ref.index[cells.key])) == (row, key) else ANY

            evaluation = Evaluation(task, (row, key), table, of_space, self.constants, self.truths)
            if {row, key} & dict(task.reduced).keys():
                for reduction, terms in zip(task.reductions, evaluation.terms(), strict=True):
                    needed |= ~adds_nothing(reduction, terms, table)
                continue
            for put, value in zip(task.puts, evaluation.stores(), strict=True):
                at_row, at_key = dims.row_places.get(put.space), dims.key_places.get(put.space)
                if at_row is not None and at_key is not None and put.space in self.written_once:
                    known[put.space] = HeldCells(value, at_row, at_key)
        return known, needed


def all_tasks(leaf: LeafTasks) -> tuple[Task, ...]:
    """Every task of ``leaf``."""
    return (*(leaf.loop.starts if isinstance(leaf.loop, BlockLoop) else ()), *leaf.tasks)


def runs_by_points(leaf: LeafTasks) -> bool:
    """True if ``leaf`` runs point after point of outer dims, and each task whole at each."""
    return isinstance(leaf.loop, OuterLoop) and leaf.loop.seen is None


LOW = -100.0
"""Bound below which a constant suggests a mask: exp of less than -104 is zero in f32."""
DEPTH = 8
"""Tasks back from a mask of numbers within which such a constant must stand; other arrays may be biases."""


@dataclass(frozen=True)
class Mask:
    """An array that hides keys from rows.

    Attributes:
        space: The array.
        hidden: Value of its elements where a key is hidden: 0 or 1 of truth values, minus infinity of numbers.
        row: The place of the rows' dim in it; None where it hides a key from all rows or none.
        key: The place of the keys' dim.
        index: By place: the outer dim (``o0``), a number, or another dim, of the given extent.
        inner_keys: Places of further dims of a key.
    """

    space: int
    hidden: float
    row: int | None
    key: int
    index: tuple[int | str, ...]
    inner_keys: tuple[int, ...] = ()

    @property
    def outer(self) -> dict[int, int]:
        """Outer dims by place."""
        named = ((place, at) for place, at in enumerate(self.index) if isinstance(at, str) and at.startswith("o"))
        return {place: int(at[1:]) for place, at in named}

    def hypothesis(self, dims: RowTable) -> HeldCells:
        """Its elements if it hid all keys but those of the first cell."""
        low, high = (np.full(dims.table.shape, self.hidden) for _ in range(2))
        low[:, 0], high[:, 0] = (0.0, 1.0) if np.isfinite(self.hidden) else (-FINITE, FINITE)
        return HeldCells(Known(low, high), self.row, self.key)


@dataclass(frozen=True)
class ScoreBound:
    """Bound on the size of scores: a product of queries and keys, and its factor in the scores.

    Attributes:
        task: The product.
        outer: Its names of the outer dims.
        operands: The two that it multiplies.
        factor: Factor of the product in the scores.
    """

    task: Task
    outer: tuple[str, ...]
    operands: tuple[Ref, Ref]
    factor: float


def masks_of(leaf: LeafTasks, dims: RowTable, spaces: Sequence[Space], facts: ProgramFacts) -> Iterator[Mask]:
    """Arrays that may be masks of the group ``leaf``, one way to hide after the other."""
    assert isinstance(leaf.loop, OuterLoop)
    written = {s for task in leaf.tasks for s in task.writes}
    found: dict[Mask, None] = {}
    for task, outer, row, key in zip(leaf.tasks, leaf.loop.dims, dims.rows, dims.keys, strict=True):
        for ref in task.refs if key else ():
            type_ = spaces[ref.space].type
            if ref.space in written or ref.space in facts.constants or type_ not in (bool_, f32, f16, bf16):
                continue
            for hidden in (0.0, 1.0) if type_ == bool_ else (-np.inf,):
                mask = _mask(task, ref, spaces[ref.space], (outer, row, key), hidden)
                if mask is not None:
                    found[mask] = None
    yield from found


def _mask(task: Task, ref: Ref, space: Space, names: tuple[tuple[str, ...], str, str], hidden: float) -> Mask | None:
    outer, row, key = names
    inner = {d for digits in task.digits if key in digits for d in digits} - {key}
    index: list[int | str] = []
    places: dict[str, int] = {}
    for place, position in enumerate(ref.index):
        dim = plain(position)
        if not position.names:
            index.append(position.const)
        elif dim is None or dim in places or task.extents[dim] != space.shape[place]:
            return None
        else:
            places[dim] = place
            index.append(f"o{outer.index(dim)}" if dim in outer else f"x{place}")
    if ref.bounds or key not in places:
        return None
    return Mask(
        ref.space, hidden, places.get(row), places[key], tuple(index), tuple(places[d] for d in inner if d in places)
    )


def tells_of_hiding(space: int, writers: Mapping[int, Sequence[Task]]) -> bool:
    """True if an array of numbers is made with a number that hides keys, in a few steps."""
    seen, front = {space}, {space}
    for _ in range(DEPTH):
        tasks = [task for s in front for task in writers.get(s, ())]
        if any(isinstance(e, Const) and e.value <= LOW for task in tasks for e in task.expressions()):
            return True
        front = {s for task in tasks for s in task.reads} - seen
        seen |= front
    return False


def score_bound(leaf: LeafTasks, mask: Mask, known: Mapping[int, HeldCells]) -> ScoreBound | None:
    """Bound on the scores to which ``mask`` is added, if it hides keys by nothing but exp of scores.

    Args:
        leaf: A group that reads the mask.
        mask: Mask of numbers.
        known: Bounds of spaces under its hypothesis.
    """
    low = {s for s, cells in known.items() if np.isneginf(cells.known.high[:, -1]).all()}
    assert isinstance(leaf.loop, OuterLoop)
    maxima = {p.space for task in leaf.tasks if _is_maximum(task, low) for p in task.puts}
    found: list[ScoreBound] = []
    for task, outer in zip(leaf.tasks, leaf.loop.dims, strict=True):
        if not low & task.reads or _is_maximum(task, low):
            continue
        if low & task.writes:
            bound = _scores(task, outer, mask.space)
            if bound is None or low & task.reads != {mask.space}:
                return None
            found.append(bound)
        elif not all(_is_in_exponents(value, low, maxima) for value in _values(task)):
            return None
    return found[0] if len(found) == 1 else None


def _values(task: Task) -> Iterator[Expr]:
    yield from (r.value for r in task.reductions)
    yield from task.locals
    yield from (v for p in task.puts for v in p.values)


def _is_maximum(task: Task, low: set[int]) -> bool:
    """True if ``task`` is nothing but the maximum of scores."""
    if len(task.reductions) != 1 or task.reductions[0].combine != "max" or task.locals:
        return False
    value = task.reductions[0].value
    return isinstance(value, Ref) and value.space in low and all(p.value == Acc(0) for p in task.puts)


def _is_in_exponents(value: Expr, low: set[int], maxima: set[int]) -> bool:
    """True if ``value`` reads scores only as powers exp(score - maximum)."""
    match value:
        case Apply(op="exp", args=(Apply(op="sub", args=(Ref() as score, top)),)) if score.space in low:
            return _is_top(top, maxima)
        case Ref():
            return value.space not in low
    return all(_is_in_exponents(part, low, maxima) for part in value.args)


def _is_top(value: Expr, maxima: set[int]) -> bool:
    """True for a row's maximum, or no less: the larger of it and a number."""
    match value:
        case Ref():
            return value.space in maxima
        case Apply(op="select", args=(Apply(op="lt", args=(one, limit)), least, other)):
            return one == other and least == limit and isinstance(limit, Const) and _is_top(other, maxima)
    return False


def _scores(task: Task, outer: tuple[str, ...], mask: int) -> ScoreBound | None:
    """The bound of scores that ``task`` makes: a product, multiplied by a number, and the mask."""
    if operand_dims(task) is None or len(task.puts) != 1:
        return None
    sum_ = _linear(task.puts[0].value, task.locals)
    if sum_ is None or {type(part) for part in sum_} - {Acc, Ref, Const}:
        return None
    masks = [factor for part, factor in sum_.items() if isinstance(part, Ref)]
    if masks != [1.0] or any(part.space != mask for part in sum_ if isinstance(part, Ref)):
        return None
    factor = next((factor for part, factor in sum_.items() if isinstance(part, Acc)), None)
    value = task.reductions[0].value
    operands = [a for a in value.args if isinstance(a, Ref)]
    if factor is None or len(operands) != 2:
        return None
    return ScoreBound(task, outer, (operands[0], operands[1]), factor)


def _linear(value: Expr, known: Sequence[Expr]) -> dict[Expr, float] | None:
    """``value`` as a sum of parts by factors; None where it is none."""
    match value:
        case NestLocal():
            return _linear(known[value.number], known[: value.number])
        case Const():
            return {Const(1.0): float(value.value)}
        case Acc() | Ref():
            return {value: 1.0}
        case Cast() if value.type == f32:
            return _linear(value.arg, known)
        case Apply(op="add" | "sub", args=(a, b)):
            return _joined(_linear(a, known), _linear(b, known), 1.0 if value.op == "add" else -1.0)
        case Apply(op="neg", args=(a,)):
            return _joined({}, _linear(a, known), -1.0)
        case Apply(op="mul", args=(a, b)):
            one, other = _linear(a, known), _linear(b, known)
            if one is not None and other is not None and one.keys() == {Const(1.0)}:
                one, other = other, one
            if one is None or other is None or other.keys() != {Const(1.0)}:
                return None
            return _joined({}, one, other[Const(1.0)])
        case Apply(op="div", args=(a, Const() as by)) if by.value:
            return _joined({}, _linear(a, known), 1 / float(by.value))
    return None


def _joined(one: dict[Expr, float] | None, other: dict[Expr, float] | None, factor: float) -> dict[Expr, float] | None:
    if one is None or other is None:
        return None
    return {part: one.get(part, 0.0) + factor * other.get(part, 0.0) for part in {**one, **other}}
