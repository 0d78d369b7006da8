"""Code of a vertex with every access checked against its pointer's origin; an access outside touches nothing.

Each load, store and copy of memory is preceded by a call that gives the pointer back, or one to a scrap of memory when
the access would leave the place that the pointer belongs to. Which place that is follows from how the pointer was
computed: a parameter (then it is a field), a pointer loaded from the table of a field's rows (a row, whose length lies
beside it), or an array of the vertex's own. A pointer that may come from several of them, or that was loaded from
elsewhere, must lead into any of the places of the vertex. What is written must not be an Input's.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from abele.codelet.cpp.blocks import HINT, BasicBlock, FlowGraph, Instruction, InstructionOperand
from abele.codelet.cpp.costing import BULK
from abele.codelet.cpp.entry import LENGTH_OFFSET, ROW_BYTES
from abele.codelet.cpp.extract import VertexSource
from abele.codelet.cpp.reflect import Member
from abele.codelet.early_exits import END, EndPlace, end_text

WORDS = 6
"""Words of a report: 1 + vertex (0: nothing wrong), site, byte relative to the place, bytes of the place, worker, bytes
that were to be touched."""
WORKER = 4
PARAMETERS = ("ptr %abele.report", "i64 %abele.number", "ptr %abele.nowhere")
"""Parameters of a vertex's checked code beside its fields."""
NOWHERE_BYTES = 4096
_FIELD = re.compile(r"^p(\d+)$")
_POINTERS = ("getelementptr", "bitcast", "select", "phi", "freeze", "addrspacecast")
_CONTEXT = "ptr %abele.report, i64 %abele.number, i32 %worker, ptr %abele.nowhere"
_MOST_BYTES = 1 << 62
_NAMED = re.compile(r'^  %("[^"]*"|[-\w$.]+) = ')
_VOID_CALL = re.compile(r"^  (?:tail |musttail |notail )?call ")


@dataclass(frozen=True)
class Site:
    """An access in the source.

    Attributes:
        kind: ``read``, ``write``, ``row`` (a pointer taken from a table of rows), or ``end`` (of the vertex, before its
            time; then what happens there is in ``place``).
        line: ``file:line``.
        member: Position of the field, or -1.
        place: Memory that the pointer belongs to: ``field``, ``row``, ``local``, or ``any``.
    """

    kind: str
    line: str
    member: int
    place: str


@dataclass(frozen=True)
class Checked:
    """Checked code of a vertex.

    Attributes:
        body: Its blocks.
        around: Declarations that they refer to.
        sites: Its accesses, by the number in a report.
        places: Places where it may end before its time.
    """

    body: str
    around: str
    sites: tuple[Site, ...]
    places: tuple[EndPlace, ...] = ()

    def record(self) -> dict[str, Any]:
        """As plain data."""
        return asdict(self)

    @classmethod
    def of(cls, record: Mapping[str, Any]) -> Checked:
        """That of a record."""
        sites = tuple(Site(**s) for s in record["sites"])
        return cls(record["body"], record["around"], sites, tuple(EndPlace(**p) for p in record["places"]))


@dataclass(frozen=True)
class _Place:
    """Memory that a pointer may lead to: a base and a number of bytes, as operands."""

    kind: str
    member: int
    base: str
    limit: str


@dataclass
class _Checker:
    """Writes the checked code of one vertex.

    Attributes:
        blocks: The code.
        members: The fields.
        lines: Source lines of its instructions.
    """

    blocks: FlowGraph
    members: Sequence[Member]
    lines: Mapping[Instruction, str]
    sites: list[Site] = field(default_factory=list)
    _number: int = 0

    def body(self) -> str:
        """The blocks as text."""
        return "".join(line + "\n" for block in self.blocks.blocks for line in self._block(block))

    def _block(self, block: BasicBlock) -> Iterator[str]:
        yield f'"{block.name}":'
        instructions = block.instructions
        first = block is self.blocks.blocks[0]
        head = 0
        while head < len(instructions) and instructions[head].opcode in (("phi", "alloca") if first else ("phi",)):
            yield instructions[head].text
            head += 1
        if first:
            yield from self._places()
        for instruction in instructions[head:]:
            yield from self._instruction(instruction)

    # --- what there is -----------------------------------------------------------------------------------------------

    def _places(self) -> Iterator[str]:
        """Bytes of the fields, and a table of all places: those that may be written first."""
        rows: list[tuple[bool, str, str, str]] = []
        for number, member in enumerate(self.members):
            writable, each = member.direction != "in", member.element.bytes
            if member.shape == "scalar":
                rows.append((writable, f"%p{number}", str(each), "0"))
                continue
            yield f"  %abele.count.of.{number} = zext i32 %n{number} to i64"
            yield f"  %abele.bytes.{number} = mul i64 %abele.count.of.{number}, {_entry_bytes(member)}"
            if member.shape == "rows":
                rows.append((writable, f"%p{number}", f"%abele.count.of.{number}", str(each)))
            rows.append((writable and member.shape == "vector", f"%p{number}", f"%abele.bytes.{number}", "0"))
        for made in self.blocks.blocks[0].instructions:
            if made.opcode == "alloca":
                rows.append((True, f'%"{made.name}"', _alloca_bytes(made), "0"))
        rows.sort(key=lambda row: not row[0])
        self._writable = sum(row[0] for row in rows)
        self._all = len(rows)
        yield f"  %abele.places = alloca [{max(1, 3 * len(rows))} x i64], align 16"
        for number, (_, base, limit, size) in enumerate(rows):
            for word, (type_, value) in enumerate((("ptr", base), ("i64", limit), ("i64", size))):
                place = f"%abele.place.{number}.{word}"
                yield f"  {place} = getelementptr i64, ptr %abele.places, i64 {3 * number + word}"
                yield f"  store {type_} {value}, ptr {place}, align 8"

    def _place(self, pointer: InstructionOperand) -> _Place | None:
        """Memory that a pointer leads to; None for constants, which are never left."""
        roots = self.blocks.roots(pointer.name or pointer.text, _POINTERS)
        # One root: C++ lets a pointer lead into that place alone, wherever it points meanwhile. Several, or one that is
        # not known: any place of the vertex will do.
        if len(roots) == 1:
            (root,) = roots
            found = _FIELD.match(root)
            if found is not None:
                number = int(found[1])
                member = self.members[number]
                limit = str(member.element.bytes) if member.shape == "scalar" else f"%abele.bytes.{number}"
                kind = "field" if member.shape in ("scalar", "vector") else "table"
                return _Place(kind, number, f"%p{number}", limit)
            made = self.blocks.made_by.get(root)
            if made is None and (root in self.blocks.constants or "@" in root):
                return None
            if made is not None and made.opcode == "alloca":
                return _Place("local", -1, f'%"{root}"', _alloca_bytes(made))
            if made is not None and made.opcode == "load":  # a pointer from memory: of a row, if from a field's table
                table = self._place(made.operands[0])
                if table is not None and table.kind == "table":
                    return _Place("row", table.member, f'%"{root}"', f'%"abele.row.{root}"')
        return _Place("any", -1, "", "")

    # --- accesses ----------------------------------------------------------------------------------------------------

    def _instruction(self, instruction: Instruction) -> Iterator[str]:
        if instruction.opcode == "load":
            yield from self._load(instruction)
        elif instruction.opcode == "store":
            value, pointer = instruction.operands
            checked, lines = self._checked(instruction, pointer, "write", value.type)
            yield from lines
            # No alignment is promised: codelets cast pointers, and the scrap of memory has its own.
            yield f"  store {self._typed(value)}, ptr {checked}, align 1"
        elif instruction.opcode == "call" and instruction.callee.startswith((*BULK, "memcmp", "bcmp")):
            yield from self._bulk(instruction)
        elif instruction.callee == END:  # sites begin with the places where the vertex may end
            yield end_in_report(int(instruction.operands[1].text.rpartition(" ")[2]))
        else:
            yield instruction.text

    def _load(self, instruction: Instruction) -> Iterator[str]:
        pointer = instruction.operands[0]
        place = self._place(pointer)
        takes_row = instruction.type == "ptr" and place is not None and place.kind == "table"
        checked, lines = self._checked(instruction, pointer, "row" if takes_row else "read", instruction.type)
        yield from lines
        yield f'  %"{instruction.name}" = load {instruction.type}, ptr {checked}, align 1'
        if takes_row and place is not None:
            yield from self._row(instruction, self.members[place.member], checked, self._plain(pointer))

    @staticmethod
    def _row(instruction: Instruction, member: Member, checked: str, was: str) -> Iterator[str]:
        """Bytes of the row that was loaded; none where there is no such row."""
        name, size = f"abele.row.{instruction.name}", str(member.element.bytes)
        if member.shape == "rows":
            yield f'  %"{name}.at" = getelementptr i8, ptr {checked}, i64 {LENGTH_OFFSET}'
            yield f'  %"{name}.length" = load i32, ptr %"{name}.at", align 1'
            yield f'  %"{name}.wide" = zext i32 %"{name}.length" to i64'
            yield f'  %"{name}.bytes" = mul i64 %"{name}.wide", {size}'
            size = f'%"{name}.bytes"'
        yield f'  %"{name}.there" = icmp eq ptr {checked}, {was}'
        yield f'  %"{name}" = select i1 %"{name}.there", i64 {size}, i64 0'

    def _bulk(self, instruction: Instruction) -> Iterator[str]:
        *given, _ = instruction.operands  # the callee is last
        arguments = [self._typed(o) for o in given]
        length = given[2]
        bytes_ = f"%abele.length.{self._number}"
        yield f"  {bytes_} = {'zext i32' if length.type == 'i32' else 'add i64'} " + (
            f"{self._plain(length)} to i64" if length.type == "i32" else f"{self._plain(length)}, 0"
        )
        compares = instruction.callee.startswith(("memcmp", "bcmp"))
        fine = []
        for number in (0, 1):
            if given[number].type == "ptr":
                kind = "read" if number or compares else "write"
                checked, lines = self._checked(instruction, given[number], kind, "", bytes_)
                yield from lines
                if lines:
                    fine.append((checked, self._plain(given[number])))
        total = bytes_
        for checked, was in fine:  # where either side was out of place nothing is touched: the scrap has an end too
            self._number += 1
            same, left = f"%abele.same.{self._number}", f"%abele.left.{self._number}"
            yield f"  {same} = icmp eq ptr {checked}, {was}"
            yield f"  {left} = select i1 {same}, i64 {total}, i64 0"
            total = left
        if length.type == "i32":
            yield f"  {total}.short = trunc i64 {total} to i32"
            total += ".short"
        arguments[2] = f"{length.type} {total}"
        result = f'%"{instruction.name}" = ' if instruction.name else ""
        yield f'  {result}call {instruction.type} @"{instruction.callee}"({", ".join(arguments)})'

    def _checked(
        self, instruction: Instruction, pointer: InstructionOperand, kind: str, type_: str, bytes_: str = ""
    ) -> tuple[str, list[str]]:
        """The pointer to use, and the code that makes it."""
        place = self._place(pointer)
        if place is None:
            return self._plain(pointer), []
        self._number += 1
        name = f"%abele.pointer.{self._number}"
        size = bytes_ or _size(type_)
        if place.kind == "table" and kind != "row":  # something else read from a table of rows, as its lengths
            kind = "write" if kind == "write" else "row"
        what = {"table": "field"}.get(place.kind, place.kind)
        site = len(self.sites)
        self.sites.append(Site(kind, self.lines[instruction], place.member, what))
        if place.kind == "any":
            count = self._writable if kind == "write" else self._all
            call = f"@abele.checked.any(ptr {self._plain(pointer)}, i64 {size}, ptr %abele.places, i64 {count}"
        else:
            limit = "0" if kind == "write" and self._is_input(place.member) else place.limit
            call = f"@abele.checked(ptr {self._plain(pointer)}, i64 {size}, ptr {place.base}, i64 {limit}"
        return name, [f"  {name} = call ptr {call}, i64 {site}, {_CONTEXT})"]

    def _plain(self, operand: InstructionOperand) -> str:
        """An operand without its type."""
        if operand.name:
            return f'{"@" if operand.name in self.blocks.constants else "%"}"{operand.name}"'
        return operand.text.removeprefix(operand.type).strip()

    def _typed(self, operand: InstructionOperand) -> str:
        return f"{operand.type} {self._plain(operand)}"

    def _is_input(self, member: int) -> bool:
        return member >= 0 and self.members[member].direction == "in"


def source_lines(blocks: FlowGraph, entry: str, line_of: Callable[[str], str | None]) -> dict[Instruction, str]:
    """Source lines of instructions.

    Args:
        blocks: The code.
        entry: The same as text, with debug information.
        line_of: Gives ``file:line`` of a line of that text.
    """
    # Values have names on both sides. Stores and calls without a result have none, and come in the same order.
    named: dict[str, str] = {}
    stores, calls = [], []
    for line in entry.splitlines():
        found = _NAMED.match(line)
        if found is not None:
            named[found[1].strip('"')] = line
        elif line.startswith("  store "):
            stores.append(line)
        elif _VOID_CALL.match(line) and not HINT.search(line):
            calls.append(line)
    rest = {"store": iter(stores), "call": iter(calls)}
    lines = {}
    for instruction in blocks.instructions:
        void = not instruction.name and instruction.opcode in rest
        text = next(rest[instruction.opcode], "") if void else named.get(instruction.name, "")
        lines[instruction] = line_of(text) or ""
    return lines


def checked_code(
    blocks: FlowGraph, code: VertexSource, members: Sequence[Member], lines: Mapping[Instruction, str]
) -> Checked:
    """Checked code of a vertex.

    Args:
        blocks: Its code.
        code: The same as text, with what it refers to.
        members: Its fields.
        lines: Source lines of its instructions.
    """
    checker = _Checker(blocks, members, lines)
    checker.sites += [Site("end", place.line, -1, end_text(place)) for place in code.places]
    body = checker.body()
    return Checked(body, code.around, tuple(checker.sites), code.places)


def end_in_report(place: int) -> str:
    """Instruction that reports the end of a vertex at a place, the site of that number."""
    return (
        f"  call void @abele.note(ptr %abele.report, i64 %abele.number, i64 {place}, i64 0, i64 0, i32 %worker, i64 0)"
    )


def _entry_bytes(member: Member) -> int:
    return {"rows": ROW_BYTES, "gather": 8}.get(member.shape, member.element.bytes)


def _alloca_bytes(made: Instruction) -> str:
    """Size of local memory, as an operand."""
    found = re.search(r"= alloca (.*?)(?:, i\d+ (\d+))?(?:, align \d+.*)?$", made.text)
    if found is None:
        return str(_MOST_BYTES)
    return f"ptrtoint (ptr getelementptr ({found[1]}, ptr null, i64 {found[2] or 1}) to i64)"


def _size(type_: str) -> str:
    widths = {"float": 4, "half": 2, "double": 8, "ptr": 8, "i1": 1}
    if type_ in widths:
        return str(widths[type_])
    if re.fullmatch(r"i\d+", type_):
        return str(-(-int(type_[1:]) // 8))
    return f"ptrtoint (ptr getelementptr ({type_}, ptr null, i64 1) to i64)"
