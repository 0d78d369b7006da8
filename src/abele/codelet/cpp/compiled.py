"""Native code and costs of a C++ codelet, with the interface of those written in Python."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from abele.codelet.compiled import CompiledCodelet
from abele.codelet.cpp.blocks import BasicBlock, FlowGraph, Instruction, InstructionOperand
from abele.codelet.cpp.checking import WORDS, Checked, Site
from abele.codelet.cpp.costing import BULK, Costs, cost_blocks
from abele.codelet.cpp.early_exits import LOOP
from abele.codelet.cpp.extract import VertexSource
from abele.codelet.cpp.library import MATH
from abele.codelet.cpp.native import (
    RUN,
    RUN_CHECKED,
    RUN_COUNTED,
    RUN_WORKER,
    RUN_WORKER_CHECKED,
    SLOTS,
    VERTEX,
    TableFunction,
    module_text,
    readable_text,
)
from abele.codelet.cpp.reflect import Member, VertexClass
from abele.codelet.early_exits import EndPlace
from abele.codelet.sizes import UNKNOWN, Sizes
from abele.errors import ApplicationRuntimeError, CodeletAccessError, CodeletError

if TYPE_CHECKING:
    from abele.codelet.cpp.unit import Unit
    from abele.codelet.vertex import CodeletDef


# Taint analysis: the values of a vertex that depend on the data of its edges, and whether its control flow does.
#
# Lengths, tables of rows, the number of the worker, and state that compute leaves alone are known before a vertex
# runs.
#
# Two sets grow together until neither does: values that depend on data, and local memory that holds some. A value
# depends on data if it is computed from one that does, or read from a field or from such memory; memory holds data
# once a value that depends on it is stored there, or copied from where data is. Both only grow and are finite, so this
# ends. Memory is told apart by what a pointer was made from, not by the bytes: an array with one element of data holds
# data as a whole, which errs on the safe side, since then the code is counted while it runs. What depends on data only
# by *whether* it is computed needs no look: as soon as one branch depends on data, ``control`` says that slots cannot
# be had beforehand.
#
# Example: in ``y[i] = x[i] * 2`` the product depends on data, ``i`` and its bound do not, so slots are counted without
# a run. A loop ``while (x[0] > 0)`` depends on data.

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


# Fingerprints of this compiler's versions, so that no code made by another one is ever used.


@cache
def fingerprint() -> str:
    """A digest of the sources that code depends on: codelets, our C++ headers, LLVM tools, element types."""
    here = Path(__file__).parent
    package = here.parent.parent
    digest = hashlib.sha256()
    for folder in (here.parent, here, package / "llvm", package / "numerics"):
        for file in sorted(folder.glob("*.py")):
            digest.update(file.read_bytes())
    for file in sorted((here / "include").rglob("*")):
        if file.is_file():
            digest.update(f"{file.name}\n".encode() + file.read_bytes())
    return digest.hexdigest()


# Reports of checked code, decoded.


def violation(
    vertex: VertexClass, sites: Sequence[Site], words: Sequence[int]
) -> tuple[int, CodeletAccessError | ApplicationRuntimeError] | None:
    """The vertex that made the first access outside its fields, or ended before its time, and the error; None if there
    was none."""
    first, number, offset, limit, worker, touched = (int(word) for word in words[:WORDS])
    if not first:
        return None
    site = sites[number]
    if site.kind == "end":
        return first - 1, ApplicationRuntimeError(f"vertex {vertex.name} {site.place}", at=site.line)
    text = _text(vertex, site, offset, limit, touched)
    because = f"worker {worker} does so" if vertex.kind == "multi" else None
    return first - 1, CodeletAccessError(text, at=site.line or vertex.location, because=because)


def _text(vertex: VertexClass, site: Site, offset: int, limit: int, touched: int) -> str:
    kind = "read" if site.kind == "row" else site.kind
    if site.place == "local":
        return f"{kind} of byte {offset} of a local array of {vertex.name}, which has {limit} bytes"
    if site.member < 0:
        return f"{kind} at an address that is in no field of {vertex.name} which it may {kind}"
    member = vertex.members[site.member]
    field = f"{vertex.name}.{member.name}"
    if site.place == "field" and member.shape in ("rows", "gather"):
        each = 16 if member.shape == "rows" else 8
        return f"row {offset // each} of {field}, which has {limit // each} rows"
    if site.kind == "write" and member.direction == "in":
        return f"write to {field}{_index(member, site, offset)}, which is an Input"
    size = member.element.bytes
    what = f"{field}{_index(member, site, offset)}"
    if touched != size:
        what = f"{touched} bytes from {what} on"
    return f"{kind} of {what}, which has {limit // size} elements"


def _index(member: Member, site: Site, offset: int) -> str:
    size = member.element.bytes
    index = f"[{offset // size}]" + (f" (and {offset % size} bytes)" if offset % size else "")
    return f"[…]{index}" if site.place == "row" else index


# Code of a vertex that counts issue slots: while it runs, or without data, by the deciding values alone.

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


@dataclass(frozen=True, eq=False)
class CppVertex:
    """A C++ codelet's class, code and file, as its definition carries them.

    Attributes:
        vertex: Its class.
        number: Its number in its file.
        code: Its code.
        unit: Its file.
    """

    vertex: VertexClass
    number: int
    code: VertexSource = field(repr=False)
    unit: Unit = field(repr=False)


class CompiledCppCodelet(CompiledCodelet):
    """Native code of a C++ codelet."""

    def __init__(self, definition: CodeletDef) -> None:
        cpp = definition.source
        assert isinstance(cpp, CppVertex)
        self.definition = definition
        self.cpp = cpp
        self._ending = []
        self._key = f"c++ {fingerprint()} {cpp.unit.key} {cpp.number}"

    @property
    def tree(self) -> Any:
        """C++ has none.

        Raises:
            CodeletError: Always.
        """
        raise CodeletError(
            f"codelet {self.definition.name} is in C++: it cannot be run as Python",
            at=self.definition.location,
            remedy="run it compiled; printf in it prints",
        )

    @cached_property
    def checked(self) -> Checked:
        """Its code with every access checked, and which accesses there are."""
        return self.cpp.unit.checked(self.cpp.number)

    @cached_property
    def run_checked(self) -> int:
        """As ``CompiledCodelet.run_checked``; :func:`~abele.codelet.cpp.compiled.violation` reads the report."""
        return self._checked_address(RUN_CHECKED)

    @cached_property
    def run_worker_checked(self) -> int:
        """As :attr:`run_checked`: runs the worker alone whose number is in word 4 of the report."""
        return self._checked_address(RUN_WORKER_CHECKED)

    @cached_property
    def run_worker(self) -> int:
        """Address of ``void run_worker(i64 begin, i64 end, void** tables, i64 worker)``: runs one worker of each
        vertex, fields that overlap included."""

        def text() -> str:
            code = self.cpp.unit.code(self.cpp.number, aliasing=True)
            return module_text(self.cpp.vertex, code, RUN_WORKER, aliasing=True)

        return self._native("run_worker", text).address("run_worker")

    def access_error(self, words: Sequence[int]) -> tuple[int, CodeletAccessError | ApplicationRuntimeError] | None:
        """The vertex of the first access outside a field, or of the first end before its time, that checked code
        reported, and the error."""
        return violation(self.cpp.vertex, self.checked.sites, words)

    def _checked_address(self, function: TableFunction) -> int:
        def text() -> str:
            return module_text(self.cpp.vertex, self.checked, function, aliasing=True)

        return self._native(function.name, text).address(function.name)

    @property
    def run_stochastic(self) -> None:
        """There is no code that rounds at random."""

    @cached_property
    def blocks(self) -> FlowGraph:
        """Basic blocks of the code."""
        return FlowGraph(readable_text(self.cpp.vertex, self.cpp.code.body, self.cpp.code.around), VERTEX)

    @cached_property
    def costs(self) -> Costs:
        """Costs of its blocks."""
        return cost_blocks(self.blocks, sum(m.direction != "state" for m in self.cpp.vertex.members))

    @cached_property
    def taint(self) -> Taint:
        """Values that depend on data."""
        return Taint(self.blocks, self.cpp.vertex.members)

    def _places(self, part: str) -> tuple[EndPlace, ...]:
        if not part.startswith("run"):
            return ()
        if "checked" in part:
            return self.checked.places
        aliasing = part in ("run_aliasing", "run_worker")
        return self.cpp.unit.code(self.cpp.number, aliasing=True).places if aliasing else self.cpp.code.places

    def _code_bytes(self) -> int:
        return self.costs.code_bytes

    def _value_text(self, *, aliasing: bool = False, sizes: Sizes = UNKNOWN) -> str:
        code = self.cpp.unit.code(self.cpp.number, aliasing=True) if aliasing else self.cpp.code
        return module_text(self.cpp.vertex, code, RUN, aliasing=aliasing, sizes=sizes)

    def _counted_text(self) -> str:
        body = counted_body(self.blocks, self.costs)
        return module_text(self.cpp.vertex, replace(self.cpp.code, body=body), RUN_COUNTED)

    def _slots_text(self) -> str:
        facts = f"@data_dependent = constant i64 {int(self.taint.control)}\n"
        if self.taint.control:
            return facts
        body = control_body(self.blocks, self.costs, self.taint)
        return facts + module_text(self.cpp.vertex, replace(self.cpp.code, body=body), SLOTS)
