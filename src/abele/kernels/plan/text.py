"""The planner's first and last forms as text: bound calls, and functions under their schedules."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from abele.kernels.nest.binding import BoundCalls, BoundKernel, Factors, OperandBinding
from abele.kernels.nest.ir import Expr
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
from abele.kernels.nest.rewrite import rewrite
from abele.kernels.plan.functions import FunctionProgram, TaskFunction
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
        lines.append(f"leaf {number}: {loop_text(leaf.loop, len(leaf.functions))}")
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
