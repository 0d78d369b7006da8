"""Code of a vertex as blocks of instructions, and its loops."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from ctypes import c_void_p, cast
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import llvmlite.binding as binding

from abele.codelet.early_exits import END
from abele.llvm.host import host_cpu

HINT = re.compile(r"call void @llvm\.(?:assume|experimental\.noalias)")
"""Calls that only inform the optimiser; counting may leave out their values and metadata."""
_NUMBERS = re.compile(r",? ![\w.]+ !\d+| #\d+(?= \[|$)")


@dataclass(frozen=True)
class InstructionOperand:
    """Operand of an instruction.

    Attributes:
        name: Name of the value; empty for a constant.
        type: Its LLVM type.
        text: The constant as it is written.
    """

    name: str
    type: str
    text: str


@dataclass(eq=False)
class Instruction:
    """An instruction.

    Attributes:
        name: Name of its result; empty if it has none.
        opcode: Its opcode.
        type: Type of its result.
        operands: Its operands, blocks left out; of a call the callee last.
        targets: Blocks that it leads to.
        text: Its text, without references that only its own module resolves.
        block: Block that it is in.
    """

    name: str
    opcode: str
    type: str
    operands: list[InstructionOperand]
    targets: list[str]
    text: str
    block: BasicBlock

    @property
    def callee(self) -> str:
        """Name of the function that it calls."""
        return self.operands[-1].name if self.opcode == "call" and self.operands else ""

    @property
    def uses(self) -> list[str]:
        """Names of values that it takes."""
        return [o.name for o in self.operands if o.name]


@dataclass(eq=False)
class BasicBlock:
    """A basic block.

    Attributes:
        name: Its name.
        instructions: Its instructions.
    """

    name: str
    instructions: list[Instruction] = field(default_factory=list)

    @property
    def last(self) -> Instruction:
        """Its terminator."""
        return self.instructions[-1]


@dataclass(eq=False)
class NaturalLoop:
    """A natural loop.

    Attributes:
        header: Name of the block that it is entered by.
        blocks: Names of all its blocks.
        latches: Blocks that lead back to the header.
    """

    header: str
    blocks: set[str]
    latches: set[str]


class FlowGraph:
    """The code of a function.

    Args:
        text: Text of a module with the function.
        name: Symbol of the function.

    Attributes:
        blocks: Its blocks in order.
        constants: Names of the module's constants.
    """

    def __init__(self, text: str, name: str) -> None:
        self._context = binding.create_context()
        module = binding.parse_assembly(text, self._context)
        module.triple = host_cpu().triple
        function = module.get_function(name)
        reader = _InstructionReader(function)
        self.blocks = [reader.block(b) for b in function.blocks]
        self.constants = {g.name for g in module.global_variables if " constant " in str(g)}
        self._module = module

    @cached_property
    def by_name(self) -> dict[str, BasicBlock]:
        """Blocks by name."""
        return {b.name: b for b in self.blocks}

    @cached_property
    def instructions(self) -> list[Instruction]:
        """All instructions in order."""
        return [i for b in self.blocks for i in b.instructions]

    @cached_property
    def made_by(self) -> dict[str, Instruction]:
        """Instructions by the name of their result."""
        return {i.name: i for i in self.instructions if i.name}

    @cached_property
    def ending(self) -> set[str]:
        """Blocks in which the vertex ends before its time."""
        return {b.name for b in self.blocks if any(i.callee == END for i in b.instructions)}

    @cached_property
    def users(self) -> dict[str, list[Instruction]]:
        """Instructions that take a value, by its name."""
        found: dict[str, list[Instruction]] = {}
        for instruction in self.instructions:
            for name in dict.fromkeys(instruction.uses):
                found.setdefault(name, []).append(instruction)
        return found

    def roots(self, pointer: str, through: Sequence[str]) -> set[str]:
        """Origins that a pointer may have been made from: parameters, local memory, loads, constants.

        Args:
            pointer: Name of the pointer, or text of the constant.
            through: Opcodes of instructions that give a pointer made from another.
        """
        found, waiting, seen = set(), [pointer], set()
        while waiting:
            name = waiting.pop()
            if name in seen:
                continue
            seen.add(name)
            made = self.made_by.get(name)
            if made is None or made.opcode not in through:
                found.add(name)
                continue
            first = 1 if made.opcode == "select" else 0
            last = 1 if made.opcode in ("getelementptr", "freeze", "bitcast") else len(made.operands)
            waiting += [o.name or o.text for o in made.operands[first:last]]
        return found

    @cached_property
    def loops(self) -> list[NaturalLoop]:
        """Natural loops, those inside others first.

        An edge to a block that dominates its source closes a loop: whatever goes round passes the header. The loop is
        what reaches the source without passing the header; edges to one header make one loop. Code from C++ without
        ``goto`` into loops has no other cycles, and where it has, those blocks count as straight code.
        """
        found: dict[str, NaturalLoop] = {}
        before, dominators = self._predecessors(), self.dominators
        for block in self.blocks:
            for target in block.last.targets:
                if target in dominators[block.name]:
                    loop = found.setdefault(target, NaturalLoop(target, {target}, set()))
                    loop.latches.add(block.name)
                    loop.blocks |= _reaching(block.name, target, before)
        return sorted(found.values(), key=lambda loop: len(loop.blocks))

    def _predecessors(self) -> dict[str, list[str]]:
        found: dict[str, list[str]] = {b.name: [] for b in self.blocks}
        for block in self.blocks:
            for target in dict.fromkeys(block.last.targets):
                found[target].append(block.name)
        return found

    @cached_property
    def dominators(self) -> dict[str, set[str]]:
        """Blocks that every way to a block passes: the greatest solution of "itself, and what dominates all that come
        before it", from all blocks downwards. Blocks stand nearly in the order in which they run, so few rounds do."""
        everything = {b.name for b in self.blocks}
        first, before = self.blocks[0].name, self._predecessors()
        found = {name: set(everything) for name in everything}
        found[first] = {first}
        changed = True
        while changed:
            changed = False
            for block in self.blocks[1:]:
                incoming = [found[p] for p in before[block.name]]
                own = (set.intersection(*incoming) if incoming else set()) | {block.name}
                if own != found[block.name]:
                    found[block.name], changed = own, True
        return found


def _reaching(block: str, header: str, before: dict[str, list[str]]) -> set[str]:
    found, waiting = {header}, [block]
    while waiting:
        name = waiting.pop()
        if name not in found:
            found.add(name)
            waiting += before[name]
    return found


class _InstructionReader:
    """Reads the instructions of a function.

    Their text is taken from that of the whole function: LLVM numbers all values of a function again for each
    instruction that it prints, which takes minutes where there are tens of thousands. Types are written once.

    Args:
        function: The function.
    """

    def __init__(self, function: Any) -> None:
        self._types: dict[int, str] = {}
        self._lines = iter(_instruction_lines(str(function)))

    def block(self, source: Any) -> BasicBlock:
        """One block; blocks are read in order."""
        block = BasicBlock(source.name)
        for value in source.instructions:
            line = next(self._lines)
            if HINT.search(line):  # its line is taken all the same: lines and instructions go in step
                continue
            operands, targets = [], []
            for operand in value.operands:
                name, type_ = operand.name, self._type(operand.type)
                if type_ == "label":
                    targets.append(name)
                else:
                    operands.append(InstructionOperand(name, type_, "" if name else str(operand)))
            text = _NUMBERS.sub("", line)
            made = Instruction(
                name=value.name,
                opcode=value.opcode,
                type=self._type(value.type),
                operands=operands,
                targets=targets,
                text=text,
                block=block,
            )
            block.instructions.append(made)
        return block

    def _type(self, type_: Any) -> str:
        place = cast(type_._ptr, c_void_p).value or 0  # LLVM has one object per type
        known = self._types.get(place)
        if known is None:
            known = self._types[place] = str(type_)
        return known


def _instruction_lines(text: str) -> Iterator[str]:
    """Lines of instructions, those of several lines joined."""
    parts: list[str] = []
    for line in text.splitlines()[1:]:
        if not parts and not line.startswith("  "):
            continue  # labels, what is around
        parts.append(line)
        if parts[0].startswith("  switch ") and not line.endswith("]"):
            continue
        yield "\n".join(parts)
        parts = []
