"""Code of a vertex that counts issue slots: while it runs, or without data, by the deciding values alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from abele.codelet.cpp.blocks import BasicBlock, FlowGraph, Instruction
from abele.codelet.cpp.costing import Costs
from abele.codelet.cpp.taint import Taint

_BYTES_SHIFT = 3
"""Copies and fills of memory take a slot for each 8 bytes."""


def counted_body(blocks: FlowGraph, costs: Costs) -> str:
    """Blocks that run as before and add their cost to ``%slots``."""
    return _body(blocks, costs, lambda instruction: instruction.text)


def control_body(blocks: FlowGraph, costs: Costs, taint: Taint) -> str:
    """Blocks that add their cost to ``%slots`` and read no data: values that depend on it are left undefined, and what
    is written to fields is left out."""

    def text(instruction: Instruction) -> str:
        goes_on = set(instruction.targets) - blocks.ending
        if instruction.opcode == "br" and len(goes_on) < len(set(instruction.targets)) and goes_on:
            return f'  br label %"{goes_on.pop()}"'
        if taint.is_kept(instruction):
            return instruction.text
        if not instruction.name or instruction.type == "void":
            return ""
        # Any value will do, but the same at each use: freeze settles on one.
        return f'  %"{instruction.name}" = freeze {instruction.type} poison'

    # Blocks that end the vertex before its time are left empty: their values are used nowhere else.
    ends = {name: f'"{name}":\n  ret void\n' for name in blocks.ending}
    return "".join(ends.get(b.name) or "".join(f"{x}\n" for x in _lines(b, costs, text) if x) for b in blocks.blocks)


def _body(blocks: FlowGraph, costs: Costs, text: Callable[[Instruction], str]) -> str:
    return "".join(line + "\n" for b in blocks.blocks for line in _lines(b, costs, text) if line)


def _lines(block: BasicBlock, costs: Costs, text: Callable[[Instruction], str]) -> Iterator[str]:
    yield f'"{block.name}":'
    phis = [i for i in block.instructions if i.opcode == "phi"]
    yield from sorted(map(text, phis), key=lambda line: " = phi " not in line)  # those left undefined come after
    if costs.slots[block.name]:
        yield from _charge(f"abele.{block.name}", str(costs.slots[block.name]))
    for instruction in block.instructions[len(phis) :]:
        yield text(instruction)
        if instruction in costs.bulk.get(block.name, ()):
            yield from _bulk_charge(block, instruction, costs)


def _charge(name: str, amount: str) -> Iterator[str]:
    yield f'  %"{name}.before" = load i64, ptr %slots, align 8'
    yield f'  %"{name}.after" = add i64 %"{name}.before", {amount}'
    yield f'  store i64 %"{name}.after", ptr %slots, align 8'


def _bulk_charge(block: BasicBlock, call: Instruction, costs: Costs) -> Iterator[str]:
    number = costs.bulk[block.name].index(call)
    name, length = f"abele.{block.name}.{number}", call.operands[2]
    value = f'%"{length.name}"' if length.name else length.text.rpartition(" ")[2]
    to_i64 = f"zext i32 {value} to i64" if length.type == "i32" else f"add i64 {value}, 0"
    yield f'  %"{name}.bytes" = {to_i64}'
    yield f'  %"{name}.words" = lshr i64 %"{name}.bytes", {_BYTES_SHIFT}'
    yield from _charge(name, f'%"{name}.words"')
