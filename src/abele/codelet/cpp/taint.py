"""Taint analysis: the values of a vertex that depend on the data of its edges, and whether its control flow does.

Lengths, tables of rows, the number of the worker, and state that compute leaves alone are known before a vertex runs.

Two sets grow together until neither does: values that depend on data, and local memory that holds some. A value depends
on data if it is computed from one that does, or read from a field or from such memory; memory holds data once a value
that depends on it is stored there, or copied from where data is. Both only grow and are finite, so this ends. Memory is
told apart by what a pointer was made from, not by the bytes: an array with one element of data holds data as a whole,
which errs on the safe side, since then the code is counted while it runs. What depends on data only by *whether* it is
computed needs no look: as soon as one branch depends on data, ``control`` says that slots cannot be had beforehand.

Example: in ``y[i] = x[i] * 2`` the product depends on data, ``i`` and its bound do not, so slots are counted without a
run. A loop ``while (x[0] > 0)`` depends on data.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from abele.codelet.cpp.blocks import FlowGraph, Instruction, InstructionOperand
from abele.codelet.cpp.costing import BULK
from abele.codelet.cpp.early_exits import LOOP
from abele.codelet.cpp.library import MATH
from abele.codelet.cpp.reflect import Member

_FIELD = re.compile(r"^p(\d+)$")
_GLOBALS = re.compile(r'@(?:"([^"]*)"|([-\w$.]+))')
_POINTERS = ("getelementptr", "bitcast", "select", "phi", "inttoptr", "freeze", "addrspacecast")


def _is_pure(callee: str) -> bool:
    return callee in MATH or callee.startswith(("llvm.", "abele_")) or callee in ("abs", "labs")


class Taint:
    """The analysis of one vertex.

    Args:
        blocks: Its code.
        members: Its fields; field i is parameter ``p<i>``.

    Attributes:
        names: Values that depend on data, or that cannot be had without it.
        control: True if they decide which blocks run.
    """

    def __init__(self, blocks: FlowGraph, members: Sequence[Member]) -> None:
        self._blocks = blocks
        self._members = members
        self.names: set[str] = set()
        self._written = self._written_fields()
        self._spoilt: set[str] = set()
        before = (-1, -1)
        # To a fixed point: phis read values that are made further down, and locals are spoilt by stores that come
        # later. Both sets only grow.
        while before != (len(self.names), len(self._spoilt)):
            before = (len(self.names), len(self._spoilt))
            for instruction in blocks.instructions:
                self._visit(instruction)
        self.control = any(self._decides(i) for i in blocks.instructions)

    def is_kept(self, instruction: Instruction) -> bool:
        """True if an instruction can be done without data, and counting may need it."""
        if instruction.opcode == "store":
            return self._is_local(instruction.operands[1].name) and not self._tainted(instruction)
        if instruction.opcode == "call" and not instruction.name:
            name = instruction.callee
            if name.startswith(BULK):
                return self._is_local(instruction.operands[0].name) and not self._tainted(instruction)
            return name == LOOP or (name.startswith("llvm.") and not self._tainted(instruction))
        return instruction.name not in self.names

    def _decides(self, instruction: Instruction) -> bool:
        if instruction.opcode in ("br", "switch"):
            # What is counted is the way on which the vertex comes to its end.
            goes_on = set(instruction.targets) - self._blocks.ending
            return len(goes_on) > 1 and self._tainted(instruction)
        return instruction.callee.startswith(BULK) and instruction.operands[2].name in self.names

    def _visit(self, instruction: Instruction) -> None:
        name, opcode = instruction.name, instruction.opcode
        if opcode == "store" and self._tainted(instruction):
            # A local that data was stored in, anywhere, holds data everywhere: which store came last is not followed.
            self._spoilt |= self._roots(instruction.operands[1].name)
        if opcode == "call" and instruction.callee.startswith(BULK):
            source_tainted = len(instruction.operands) > 1 and self._reads_from(instruction.operands[1])
            if source_tainted or self._tainted(instruction):
                self._spoilt |= self._roots(instruction.operands[0].name)
        if opcode == "call" and instruction.callee in MATH:  # frexpf and its kin write through a pointer
            for operand in instruction.operands[:-1]:
                if operand.type == "ptr":
                    self._spoilt |= self._roots(operand.name)
        if not name or name in self.names:
            return
        if (
            self._tainted(instruction)
            or (opcode == "load" and self._reads_from(instruction.operands[0]))
            or (opcode == "call" and not _is_pure(instruction.callee))
        ):
            self.names.add(name)

    def _tainted(self, instruction: Instruction) -> bool:
        return any(use in self.names for use in instruction.uses)

    def _reads(self, pointer: str) -> bool:
        """True if the memory behind a pointer is, or may be, data."""
        return any(not self._is_known(root) for root in self._roots(pointer))

    def _reads_from(self, source: InstructionOperand) -> bool:
        return source.type == "ptr" and self._reads(source.name or source.text)

    def _is_known(self, root: str) -> bool:
        field = _FIELD.match(root)
        if field is not None:
            member = self._members[int(field[1])]
            if member.direction == "state":  # known, unless compute changes it from one execution to the next
                return root not in self._written
            # The table of rows is known, not what lies in the rows.
            return member.shape == "rows"
        if root in self._blocks.constants:
            return True
        if " " in root:  # an expression of constants
            return all((a or b) in self._blocks.constants for a, b in _GLOBALS.findall(root))
        made = self._blocks.made_by.get(root)
        return made is not None and made.opcode == "alloca" and root not in self._spoilt

    def _is_local(self, pointer: str) -> bool:
        made = [self._blocks.made_by.get(root) for root in self._roots(pointer)]
        return bool(made) and all(m is not None and m.opcode == "alloca" for m in made)

    def _written_fields(self) -> set[str]:
        found = set()
        for instruction in self._blocks.instructions:
            if instruction.opcode == "store":
                found |= self._roots(instruction.operands[1].name)
            elif instruction.callee.startswith(BULK):
                found |= self._roots(instruction.operands[0].name)
        return found

    def _roots(self, pointer: str) -> set[str]:
        return self._blocks.roots(pointer, _POINTERS)
