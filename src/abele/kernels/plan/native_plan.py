"""Native plans, which a planner returns: native functions in order, and the memory they work in."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from abele.expr import Apply
from abele.expr.operation import TABLE
from abele.kernels.code.build import build_all, driver_source
from abele.kernels.code.drivers import Driver
from abele.kernels.nest.binding import BoundCalls, BoundKernel, Factors, OperandBinding
from abele.kernels.nest.ir import Affine, Expr
from abele.kernels.nest.loop_nest import (
    PAST_CACHES,
    ElementAccess,
    Fetch,
    Hash,
    LoopNest,
    NestReduction,
    Out,
    RowFetch,
    RowPlace,
)
from abele.kernels.nest.operation_costs import VectorCost, expressions_cost, operation_cost
from abele.kernels.nest.rewrite import rewrite
from abele.kernels.plan.functions import FunctionProgram, TaskFunction
from abele.kernels.plan.library_shapes import library_shape
from abele.kernels.products.schedule import ProductSchedule
from abele.kernels.target import HostTarget
from abele.kernels.tasks.program import Space, Task
from abele.kernels.tasks.text import (
    COMBINED,
    Names,
    Shown,
    dims_text,
    loop_text,
    loops_text,
    space_lines,
    task_lines,
    where,
)
from abele.layout import row_major

# The planner's first and last forms as text: bound calls, and functions under their schedules.


def calls_text(form: BoundCalls) -> str:
    """Every call: the bindings of its operands, and its nests."""
    lines = []
    for call in form.calls:
        lines.append(call.name)
        lines += (f"  {line}" for line in _operands(form, call))
        lines += (f"  {line}" for nest in call.kernel.nests for line in str(nest).splitlines())
    return "\n".join(lines)


def functions_text(program: FunctionProgram, *, addresses: bool = False) -> str:
    """Every leaf with its functions: computation of each, by index or by address in its arrays, and schedule."""
    names = Names(program.spaces)
    used = {s for leaf in program.leaves for function in leaf.functions for s in function.spaces}
    lines = [*space_lines([s for s in program.spaces if s.number in used], names, {})]
    for number, leaf in enumerate(program.leaves):
        how = "one after the other" if leaf.in_order else loop_text(leaf.loop, len(leaf.functions))
        lines.append(f"leaf {number}: {how}")
        for function in leaf.functions:
            body = _nest_lines(function, names) if addresses else task_lines(function.task, names)
            lines += (f"  {line}" for line in [*body, *_how(function, names)])
    return "\n".join(lines)


def _operands(form: BoundCalls, call: BoundKernel) -> Iterator[str]:
    kernel = call.kernel
    for number, (shape, type_) in enumerate(zip(kernel.shapes, kernel.types, strict=True)):
        what = _view(form, call.bindings[number]) if number < len(call.bindings) else "temporary"
        yield f"%{number} {type_}[{', '.join(map(str, shape))}] = {what}"


def _view(form: BoundCalls, binding: OperandBinding) -> str:
    """A view: the buffer, then the strides of each dim, several where it runs over several."""
    buffer = form.buffers[binding.buffer]
    offset = f" from {binding.offset}" if binding.offset else ""
    strides = ", ".join(map(_factors, binding.factors))
    return f"{buffer.name or f'b{buffer.id}'}{'' if buffer.pinned else ' (own)'} by [{strides}]{offset}"


def _factors(factors: Factors) -> str:
    return "·".join(f"{extent}×{stride}" for extent, stride in factors)


def _how(function: TaskFunction, names: Names) -> Iterator[str]:
    """The lines that say how a function runs."""
    if function.is_start:
        yield "  once per chunk"
    if any(function.starts):
        shifted = ", ".join(
            f"{names.of[s]} + {n} B" for s, n in zip(function.spaces, function.starts, strict=True) if n
        )
        yield f"  called with {shifted}"
    if function.integers:
        yield f"  called with {', '.join(f'argument{n} = {value}' for n, value in enumerate(function.integers))}"
    if function.schedule is not None:
        yield f"  {function.schedule}"
    if function.panel is not None:
        packed = names.of[function.spaces[function.panel.fetch.access.array]]
        yield f"  packs {packed} in panels of {function.panel.elements} elements"


def _nest_lines(function: TaskFunction, names: Names) -> list[str]:
    """A function's nest, arrays by the names of their spaces."""
    nest = function.nest
    arrays = [*(names.of[s] for s in function.spaces), "panel"]
    lines = [f"{function.task.name}  {loops_text(nest.parallel)}"]
    lines += (f"  acc{n} = {_accumulate(nest, a, arrays)}" for n, a in enumerate(nest.accumulates))
    lines += (f"  local{n} = {_value(value, arrays)}" for n, value in enumerate(nest.locals))
    return [*lines, *(f"  {_out(out, arrays)}" for out in nest.outs)]


def _accumulate(nest: LoopNest, item: NestReduction, arrays: Sequence[str]) -> str:
    over = f"{COMBINED[item.combine]} over {dims_text(nest.reduced)}{where(item.guards)}"
    return f"{over} of {_value(item.value, arrays)}"


def _out(out: Out, arrays: Sequence[str]) -> str:
    sign = "=" if out.combine == "set" else f"{out.combine}="
    value = f"{_value(out.value, arrays)}{where(out.guards)}{PAST_CACHES * out.streams}"
    row = "" if out.place is None else f" {_row(out.place, arrays)}"
    return f"{_place(out.access, arrays)}{row} {sign} {value}"


def _row(place: RowPlace, arrays: Sequence[str]) -> str:
    return str(replace(place, row=_value(place.row, arrays)))


def _value(expression: Expr, arrays: Sequence[str]) -> Expr:
    def change(part: Expr) -> Expr | None:
        match part:
            case Fetch():
                fill = "" if part.fill is None or not part.bounds else f", else {part.fill:g}"
                return Shown(f"{_place(part.access, arrays, where(part.bounds) + fill)}")
            case RowFetch():
                fill = f", else {part.fill:g}" if part.fill else ""
                return Shown(f"{_place(part.access, arrays)} {_row(part.place, arrays)}{fill}")
            case Hash():
                return Shown(f"random({_place(part.seed, arrays)}, {part.modifier}, {part.index})")
        return None

    return rewrite(expression, change)


def _place(access: ElementAccess, arrays: Sequence[str], condition: str = "") -> str:
    return f"{arrays[access.array]}@[{access.address}{condition}]"


# Work of a leaf: its arithmetic, and the distinct bytes that it reads and writes, counted from its tasks.
#
# Arithmetic is counted per point of a task's dims: each operation of its expressions once, however often its value is
# used, and one for each combination into an accumulator, so that a multiply-add counts two. Comparisons, selections
# and changes of sign count nothing. Points outside the bounds of an access (padding) are counted as if they were
# inside.
#
# Bytes are those of the distinct elements that all accesses of the leaf touch, as if it had a cache for all of them:
# what a loop reads again counts once. An access is linear in its loop dims. In the order of their strides, a dim
# either goes on where the dims before it end or overlap, and so makes a stretch of addresses longer, or it repeats the
# stretch further away. Of several accesses to one array the elements are added up, but no more than the array has,
# since where they meet is not worth the time to find out. What lives only in a thread's scratch memory is no traffic.
#
# Example: a product of [4, 8] and [8, 16] in f32 is 4 · 16 · 8 · 2 = 1,024 operations. It reads 128 + 512 bytes and
# writes 256.

_FREE = frozenset({"neg", "abs", "select"})
MEETING_CYCLES = 2000
"""Instructions on vectors that take, with loads and stores, about as long as two threads take to meet."""
_MANY_CYCLES = 200_000
"""More than this are not counted."""
_OFTEN = 8
"""Uses of a vector from which on filling it lane by lane costs less than they do."""


@dataclass(frozen=True, slots=True)
class LeafWork:
    """Arithmetic and memory traffic of one execution of a leaf.

    Attributes:
        flops: Arithmetic operations.
        read_bytes: Distinct bytes that it reads.
        written_bytes: Distinct bytes that it writes.
        slots: Instructions on elements, or the divider's time in multiply-adds: a multiply-add is one, a function what
            its code has, a division 5.
    """

    flops: int = 0
    read_bytes: int = 0
    written_bytes: int = 0
    slots: int = 0

    @property
    def effort(self) -> int:
        """Rough total of its work, by which functions of one leaf are compared."""
        return self.flops + self.read_bytes + self.written_bytes


@dataclass(frozen=True, slots=True)
class LeafPart:
    """One of the functions that a leaf calls.

    Attributes:
        name: Names of its tasks.
        origins: The caller's numbers of the calls that it carries out, wholly or in part.
        work: Work in one execution of the leaf; its bytes are also those in scratch memory.
        lanes: Vector lanes that its code fills: 1 where it is scalar, or puts every value into its lane by itself.
        product: The product or convolution that it is, as a library would run it; empty if it is none.
    """

    name: str
    origins: frozenset[int]
    work: LeafWork
    lanes: int
    product: str = ""


def leaf_work(program: FunctionProgram, number: int) -> LeafWork:
    """The work of leaf ``number`` of a program."""
    return _work([f.task for f in program.leaves[number].functions], program.spaces, program.per_thread)


def leaf_parts(program: FunctionProgram, number: int) -> tuple[LeafPart, ...]:
    """The functions of leaf ``number`` of a program, in order."""
    functions = program.leaves[number].functions
    works = (_work([f.task], program.spaces, frozenset()) for f in functions)
    return tuple(
        LeafPart(
            f.task.name,
            f.task.origins,
            work,
            filled_lanes(f, program.target),
            library_shape(f.task, program.spaces),
        )
        for f, work in zip(functions, works, strict=True)
    )


def filled_lanes(function: TaskFunction, target: HostTarget) -> int:
    """Vector lanes that the code of a function fills with loads or stores of neighbours; 1 for none."""
    schedule, nest = function.schedule, function.nest
    if isinstance(schedule, ProductSchedule):
        return target.lanes  # it packs its operands for the lanes, or a library does
    if schedule is None or not schedule.lane:
        return 1
    # A register tile uses each vector so often that it hardly matters how it was filled.
    if math.prod(n for d, n in schedule.tile if d != schedule.lane) >= _OFTEN:
        return schedule.lanes
    accesses = (*(f.access for f in nest.fetches), *(o.access for o in nest.outs))
    strides = [abs(a.stride(schedule.lane)) for a in accesses]
    moving = [stride for stride in strides if stride]
    return schedule.lanes if not moving or min(moving) == 1 else 1


def leaf_cycles(functions: Sequence[TaskFunction], target: HostTarget) -> float:
    """Instructions on vectors of all functions of a leaf together; infinite where they are very many."""
    if sum(f.cost for f in functions) > _MANY_CYCLES * target.lanes:
        return math.inf
    return sum(max(f.cost, task_slots(f.task)) / filled_lanes(f, target) for f in functions)


def _work(tasks: Sequence[Task], spaces: tuple[Space, ...], hidden: frozenset[int]) -> LeafWork:
    """The work of some tasks, without the bytes of spaces that are hidden."""
    read: Counter[int] = Counter()
    written: Counter[int] = Counter()
    for task in tasks:
        affine = [put for put in task.puts if put.place is None]
        stores = {(put.space, put.index) for put in affine}
        onto = {(put.space, put.index) for put in affine if put.combine != "set"}
        for counts, accesses in ((read, {(r.space, r.index) for r in task.refs} | onto), (written, stores)):
            for space, index in accesses:
                counts[space] += distinct_elements(index, spaces[space].shape, task.extents)
        # Of rows that values name, so many elements as there are points, or fewer.
        for fetch in task.row_fetches:
            read[fetch.access.array] += task.points
        for put in (put for put in task.puts if put.place is not None):
            written[put.space] += task.points
            read[put.space] += task.points * (put.combine != "set")
    read_bytes, written_bytes = (
        sum(min(count, spaces[n].size) * spaces[n].type.bytes for n, count in counts.items() if n not in hidden)
        for counts in (read, written)
    )
    return LeafWork(sum(map(task_flops, tasks)), read_bytes, written_bytes, sum(map(task_slots, tasks)))


def task_flops(task: Task) -> int:
    """Arithmetic operations of a task."""
    combining = len(task.reductions) + _operations(r.value for r in task.reductions)
    storing = sum(put.combine != "set" for put in task.puts)
    outside = storing + _operations((*task.locals, *(put.value for put in task.puts)))
    each = math.prod(n for _, n in task.parallel)
    return combining * task.points + outside * each


def task_slots(task: Task) -> int:
    """Instructions on elements of a task, or the time of the divider if that is longer: what a core that does one
    vector of elements at a time cannot do without.

    A product that is added to a sum is one multiply-add. Loads, stores and shuffles are not counted: a core does them
    beside arithmetic, and how often a value is loaded depends on the schedule. Of bytes there is a bound by itself.
    """
    each = math.prod(n for _, n in task.parallel)
    inside = VectorCost()
    for reduction in task.reductions:
        inside += expressions_cost((reduction.value,))
        if not reduction.is_multiply_add:
            inside += operation_cost(reduction.combine)
    outside = expressions_cost((*task.locals, *(put.value for put in task.puts)))
    outside += VectorCost(sum(put.combine != "set" for put in task.puts))
    return (inside * task.points + outside * each).slots


def _operations(values: Iterable[Expr]) -> int:
    """Arithmetic operations of some expressions, equal parts counted once."""
    parts = {part for value in values for part in value.walk() if isinstance(part, Apply)}
    return sum(2 if part.op == "fma" else 1 for part in parts if _is_arithmetic(part.op))


def _is_arithmetic(op: str) -> bool:
    operation = TABLE[op]
    takes_floats = operation.code is not None and operation.code.f32 is not None
    return takes_floats and not operation.gives_bool and op not in _FREE


def distinct_elements(index: tuple[Affine, ...], shape: tuple[int, ...], extents: dict[str, int]) -> int:
    """Elements of an array of ``shape`` that ``index`` reaches as its loop dims go through their extents."""
    strides: dict[str, int] = {}
    for position, step in zip(index, row_major(shape), strict=True):
        for dim, coefficient in position.terms:
            strides[dim] = strides.get(dim, 0) + coefficient * step
    moving = sorted((abs(stride), extents[dim]) for dim, stride in strides.items() if stride and extents[dim] > 1)
    # `stretch` addresses, `step` apart, follow each other; there are `stretches` of these in different places.
    stretches, step, stretch = 1, 1, 1
    for stride, extent in moving:
        if stride % step == 0 and stride // step <= stretch:
            stretch += stride // step * (extent - 1)
        else:
            stretches, step, stretch = stretches * stretch, stride, extent
    return min(stretches * stretch, math.prod(shape))


@dataclass(frozen=True)
class LeafArgument:
    """One of a leaf's ``args``: a pointer, or an integer in place of one.

    Attributes:
        kind: ``buffer``: storage of the caller's buffer ``value``. ``arena``: byte ``value`` of the plan's arena.
            ``scratch``: the running thread's own scratch memory. ``address``: ``value`` itself.
        value: As ``kind`` says; 0 for scratch.
    """

    kind: str
    value: int = 0


@dataclass(frozen=True)
class PlanLeaf:
    """A native function ``void leaf(i64 begin, i64 end, void** args)`` over parallel units.

    Any split of [0, units) over threads gives the same bits; all threads must be done before the next leaf starts.

    Attributes:
        address: Address of the function.
        units: Number of parallel units.
        args: Its pointer arguments.
        calls: Names of the calls that it carries out, for listings and profiles.
        origins: The caller's numbers of the calls that it carries out, wholly or in part; none where it only moves
            the plan's own values.
        driver: Its driver, where the leaf is more than one function.
        cycles: Instructions on vectors that it takes, roughly; infinite where they are very many.
    """

    address: int
    units: int
    args: tuple[LeafArgument, ...]
    calls: tuple[str, ...] = ()
    origins: frozenset[int] = frozenset()
    driver: Driver | None = None
    cycles: float = math.inf


@dataclass(frozen=True)
class NativePlan:
    """Leaves to run in order, with a barrier after each.

    Attributes:
        leaves: The leaves.
        arena_bytes: Memory shared by all threads, 64-byte aligned, that the leaves pass values through; its contents
            need not survive between runs of the plan.
        scratch_bytes: Private memory of each thread, 64-byte aligned; contents undefined at the start of a leaf.
        program: The functions that the leaves call, and why they are as they are.
        keep: Objects that must stay alive for the addresses to stay valid.
    """

    leaves: tuple[PlanLeaf, ...]
    arena_bytes: int
    scratch_bytes: int
    program: FunctionProgram | None = field(default=None, repr=False, compare=False)
    keep: object = field(default=None, repr=False, compare=False)

    @property
    def listing(self) -> str:
        """The plan as text: every leaf with its tasks, and how each of them runs."""
        return "" if self.program is None else functions_text(self.program)

    def timed_leaf(self, number: int) -> tuple[object, int]:
        """Second copy of a leaf's function that notes the times of its calls, and its owner.

        Raises:
            ValueError: The leaf is one function.
        """
        driver = self.leaves[number].driver
        if driver is None:
            raise ValueError(f"leaf {number} is one function")
        return build_all([driver_source(driver, timed=True)])[0]

    def parts(self, number: int) -> tuple[LeafPart, ...]:
        """The functions of a leaf in the order of its driver's steps."""
        return () if self.program is None else leaf_parts(self.program, number)

    def work(self, number: int) -> LeafWork:
        """Arithmetic and memory traffic of one execution of a leaf."""
        return LeafWork() if self.program is None else leaf_work(self.program, number)

    def __str__(self) -> str:
        lines = [f"arena {self.arena_bytes:,} B, scratch per thread {self.scratch_bytes:,} B"]
        for number, leaf in enumerate(self.leaves):
            places = ", ".join(f"{a.kind} {a.value}" if a.kind in ("buffer", "arena") else a.kind for a in leaf.args)
            lines.append(f"leaf {number}: {leaf.units} units over ({places}): {', '.join(leaf.calls)}")
        return "\n".join(lines)
