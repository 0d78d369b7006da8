"""Places of C++ code where a vertex ends before its time: calls that end a program, and endless loops.

A call of ``abort`` becomes one of ``abele.end``, which notes vertex and place (:mod:`abele.codelet.early_exits`), and a
return. A loop that is not known to end has a mark at its back edge, a call of ``abele.loop``. In native code, the mark
becomes a test of the flag by which the host stops loops. A loop is known to end if a counter, or a value made of one by
steps, is compared with an invariant each time round. A loop that depends on a volatile value alone, and writes nothing,
waits for another worker. Workers run one after the other, so a second round of it means that it never ends; the vertex
ends at once.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from abele.codelet.cpp.blocks import FlowGraph, Instruction, NaturalLoop
from abele.codelet.cpp.metadata import symbol_of
from abele.codelet.cpp.pointers import OUTSIDE
from abele.codelet.early_exits import END, ENDED, MOST_SLOTS, STOP, EndPlace

# Long stretches of code cut into pieces, so that the optimiser's time grows in proportion.
#
# Generated codes for integrals are a single block of tens of thousands of instructions. Vectorising, choosing and
# scheduling instructions look at a block as a whole, in time that grows with its square: 12,000 lines took minutes. So
# such a block is cut where it stands, each piece ending in a branch to the next. The branch has to look like one, or
# the pieces would be put together again: it tests a variable that is never anything but 1, which no pass may know.

_PIECES_LABEL = re.compile(r'^("[^"]*"|[-\w$.]+):')
_INCOMING = re.compile(r'%("[^"]*"|[-\w$.]+) \]')
_LONGEST = 2000
"""Instructions of a block that is left whole."""
_PIECE = 400
"""Instructions of a piece."""
_GLOBAL = "@abele.go.on = global i8 1\n"
_END = "abele.never:\n  ret void\n"


def in_pieces(body: str) -> tuple[str, str]:
    """The blocks of a function with long ones cut, and text that the module needs for that.

    Args:
        body: The blocks, which return nothing.
    """
    lines = body.splitlines()
    starts = [n for n, line in enumerate(lines) if _PIECES_LABEL.match(line)]
    ends = [*starts[1:], len(lines)]
    if all(end - start <= _LONGEST for start, end in zip(starts, ends, strict=True)):
        return body, ""
    made: list[str] = []
    last: dict[str, str] = {}
    for start, end in zip(starts, ends, strict=True):
        block = lines[start:end]
        name = block_name(block[0])
        pieces = [block[1:]] if len(block) <= _LONGEST else _pieces_cut(block[1:])
        made += [block[0], *pieces[0]]
        for number, piece in enumerate(pieces[1:], 1):
            last[name] = f"{name}.piece{number}"
            made += [*_branch(last[name]), f'"{last[name]}":', *piece]
    return with_predecessors("\n".join([*made, _END]), last), _GLOBAL


def _branch(target: str) -> list[str]:
    """Branch; each reads the variable anew, since the result of one test is known in all code after it."""
    flag, test = f'%"{target}.flag"', f'%"{target}.go"'
    return [
        f"  {flag} = load volatile i8, ptr @abele.go.on, align 1",
        f"  {test} = icmp ne i8 {flag}, 0",
        f'  br i1 {test}, label %"{target}", label %abele.never',
    ]


def block_name(label: str) -> str:
    """Name of the block that a label begins."""
    found = _PIECES_LABEL.match(label)
    assert found is not None
    return found[1].strip('"')


def _pieces_cut(lines: list[str]) -> list[list[str]]:
    """Lines of a block in pieces: phis stay at the head, the terminator with the lines before it."""
    # Cuts come at fixed distances; the last piece is no shorter than half of one.
    head = next((n for n, line in enumerate(lines) if " = phi " not in line), 0)
    tail = next((n for n in range(len(lines) - 1, 0, -1) if lines[n].startswith(_PIECES_TERMINATORS)), len(lines))
    cuts = list(range(head + _PIECE, tail - _PIECE // 2, _PIECE))
    return [lines[a:b] for a, b in zip([0, *cuts], [*cuts, len(lines)], strict=True)]


_PIECES_TERMINATORS = ("  br ", "  switch ", "  ret ", "  unreachable")


def with_predecessors(body: str, last: dict[str, str]) -> str:
    """Blocks whose phis take their values from the last pieces of blocks.

    Args:
        body: The blocks.
        last: Name of a block's last piece, by the name of the block.
    """

    def new(found: re.Match[str]) -> str:
        name = last.get(found[1].strip('"'))
        return found[0] if name is None else f'%"{name}" ]'

    return "\n".join(_INCOMING.sub(new, line) if " = phi " in line else line for line in body.split("\n"))


LOOP = "abele.loop"
"""The mark of a loop, until native code is made."""
DECLARATIONS = f"declare void @{END}(i64, i64)\ndeclare void @{LOOP}(i64, i64)\n"
_CALL = re.compile(
    r'^  (?:tail |notail )?call [^\n@]*@(?P<callee>"[^"]*"|[-\w$.]+)\((?P<args>[^\n]*?)\)[^\n)]*?'
    r"(?P<tail>(?:, ![^\n]*)?)\n  unreachable[^\n]*$",
    re.M,
)
_ANY_CALL = re.compile(r'^  (?:%\S+ = )?(?:tail |notail )?call [^\n@]*@(?P<callee>"[^"]*"|[-\w$.]+)\(')
_UNREACHABLE = re.compile(r"^  unreachable(?P<tail>[^\n]*)$", re.M)
_ENDS = re.compile(
    r"_?_?(?:exit|Exit|abort|quick_exit|assert_fail|assert_rtn|assert|cxa_\w+|chk_fail|stack_chk_fail)$"
    r"|abele_thrown$|abele\.outside$|llvm\.(?:ubsan)?trap$|_Z\w*(?:verbose_abort|__throw_|terminate|unreachable)"
)
"""Functions that never return, and that no tile has."""
_MARK = re.compile(rf"^  call void @{re.escape(LOOP)}\(i64 (\d+), i64 (\d+)\)")
_LABEL = re.compile(r'^(?:"[^"]*"|[-\w$.]+):')
_TERMINATORS = ("  br ", "  switch ")
_BACK = re.compile(r'label %("[^"]*"|[-\w$.]+)')
_MOVES = ("zext", "sext", "trunc", "add", "sub", "mul", "shl", "or", "getelementptr", "freeze")
_STEPS = ("add", "sub", "getelementptr", "lshr", "ashr", "shl")


def with_ends(
    text: str, string: Callable[[str], str], line_of: Callable[[str], str], is_known: Callable[[str], bool]
) -> tuple[str, list[EndPlace]]:
    """Function whose calls to end a program end the vertex, and the places of those calls.

    Args:
        text: The function, with debug information; locals are values.
        string: Gives the text of a constant by its name, for what an assertion says.
        line_of: Gives ``file:line`` of a line of code.
        is_known: True for the symbol of a function that a tile has.
    """
    places: list[EndPlace] = []

    def ended(found: re.Match[str], what: str) -> str:
        places.append(EndPlace(line_of(found[0]), what))
        return f"  call void @{END}(i64 %vertex, i64 {len(places) - 1}){found['tail']}\n  ret void"

    def call(found: re.Match[str]) -> str:
        name = symbol_of("@" + found["callee"])
        return ended(found, _what(name, found["args"], string)) if _ENDS.match(name) else found[0]

    text = _CALL.sub(call, text)
    # What is left has no meaning in C++, as an endless loop that does nothing has none.
    text = _UNREACHABLE.sub(lambda m: ended(m, "runs into what C++ leaves undefined"), text)
    return "\n".join("\n".join(_cut(lines, is_known)) for lines in _blocks(text)), places


def _cut(block: list[str], is_known: Callable[[str], bool]) -> list[str]:
    """Block of a vertex's end, without instructions that no tile has: it ends where the first of them begins."""
    end = next((n for n, line in enumerate(block) if line.startswith(f"  call void @{END}(")), None)
    if end is None:
        return block
    calls = ((n, found) for n, line in enumerate(block[:end]) if (found := _ANY_CALL.match(line)))
    first = next((n for n, found in calls if not is_known(symbol_of("@" + found["callee"]))), end)
    while first < end and first > 1 and re.match(r"  %\S+ = (?!.*\bcall )|    #dbg_", block[first - 1]):
        first -= 1  # what was made for that alone
    return [*block[:first], *block[end:]]


def _what(name: str, args: str, string: Callable[[str], str]) -> str:
    if "assert" in name:
        said = re.search(r"@[-\w$.]+", args)
        return f"fails the assertion {string(said[0]) if said else ''!r}"
    if name.startswith("llvm."):
        return "reaches __builtin_trap()"
    if name == "abele_thrown":
        return "throws an exception"
    if name == OUTSIDE:
        return "calls a function through a pointer that is to none"
    if name.startswith("_Z"):
        return "fails a check of the C++ library"
    return "calls a pure virtual function" if name == "__cxa_pure_virtual" else f"calls {name}()"


def goes_back(body: str) -> bool:
    """True if blocks lead to one that stands before them: cheaper than looking for loops."""
    seen: set[str] = set()
    for line in body.splitlines():
        if _LABEL.match(line):
            seen.add(block_name(line))
        elif line.startswith(("  br ", "  switch ", "    i")) and seen & {n.strip('"') for n in _BACK.findall(line)}:
            return True
    return False


def endless_loops(blocks: FlowGraph) -> Iterator[tuple[NaturalLoop, bool]]:
    """Loops that need not end, each with whether it waits for another worker."""
    for loop in blocks.loops:
        if not _LoopEnds(blocks, loop).ends():
            yield loop, _waits(blocks, loop)


def _waits(blocks: FlowGraph, loop: NaturalLoop) -> bool:
    inside = [i for name in loop.blocks for i in blocks.by_name[name].instructions]
    idle = not any(
        i.opcode in ("store", "atomicrmw", "cmpxchg", "phi") or (i.opcode == "call" and _acts(i)) for i in inside
    )
    return idle and any(" load volatile " in i.text or " load atomic " in i.text for i in inside)


def _acts(call: Instruction) -> bool:
    return not call.callee.startswith(("llvm.", LOOP))


class _LoopEnds:
    """Search for the ends of one loop."""

    def __init__(self, blocks: FlowGraph, loop: NaturalLoop) -> None:
        self.blocks, self.loop = blocks, loop
        self.inside = {i.name for name in loop.blocks for i in blocks.by_name[name].instructions if i.name}

    def ends(self) -> bool:
        """True if a counter ends it: a test that every round passes holds one against an invariant."""
        counters = self._counters()
        before = [self.blocks.dominators[latch] for latch in self.loop.latches]
        for name in self.loop.blocks.intersection(*before):
            last = self.blocks.by_name[name].last
            leaves = [t not in self.loop.blocks for t in last.targets]
            if last.opcode == "br" and len(leaves) == 2 and any(leaves):
                if self._is_test(last.operands[0].name, counters, leaves_if=leaves[0]):
                    return True
            elif last.opcode == "switch" and any(leaves) and last.operands[0].name in counters:
                return True
        return False

    def _counters(self) -> set[str]:
        """Values that move by an invariant each time round."""
        found = set()
        for phi in self.blocks.by_name[self.loop.header].instructions:
            if phi.opcode == "phi" and all(self._steps(use, phi.name, set()) for use in phi.uses if use in self.inside):
                found.add(phi.name)
        grown = True
        while grown:
            new = {
                name
                for name in self.inside - found
                if (made := self.blocks.made_by[name]).opcode in (*_MOVES, "lshr", "ashr", "and", "urem")
                and any(u in found for u in made.uses)
                and all(u in found or u not in self.inside for u in made.uses)
            }
            found |= new
            grown = bool(new)
        return found

    def _steps(self, name: str, phi: str, seen: set[str]) -> bool:
        """True if a value is that of a phi moved on, whichever way was taken."""
        made = self.blocks.made_by.get(name)
        if made is None or name in seen:
            return name in seen
        if made.opcode in ("phi", "select") and name != phi:
            ways = made.uses if made.opcode == "phi" else [o.name for o in made.operands[1:]]
            return bool(ways) and all(self._steps(way, phi, seen | {name}) for way in ways)
        others = [u for u in made.uses if u != phi]
        return made.opcode in _STEPS and phi in made.uses and not any(u in self.inside for u in others)

    def _is_test(self, name: str, counters: set[str], *, leaves_if: bool) -> bool:
        """True if a condition is one of a counter and an invariant, or ends the loop as soon as such a one does."""
        made = self.blocks.made_by.get(name)
        if made is None or name not in self.inside:
            return False
        if made.opcode == "icmp":
            moving = [u for u in made.uses if u in counters]
            return len(moving) == 1 and all(u in counters or u not in self.inside for u in made.uses)
        if made.opcode in ("freeze", "xor"):
            return self._is_test(made.uses[0], counters, leaves_if=leaves_if is (made.opcode == "freeze"))
        if made.opcode == "select":
            joins = "false" if not leaves_if else "true"
            if any(not o.name and o.text.endswith(f" {joins}") for o in made.operands[1:]):
                return any(self._is_test(u, counters, leaves_if=leaves_if) for u in made.uses)
        if made.opcode == ("or" if leaves_if else "and"):
            return any(self._is_test(u, counters, leaves_if=leaves_if) for u in made.uses)
        return False


def branches_of(text: str, names: set[str]) -> str:
    """The first of the instructions that end some blocks of a function."""
    block = ""
    for line in text.split("\n"):
        if _LABEL.match(line):
            block = block_name(line)
        elif line.startswith(_TERMINATORS) and block in names:
            return line
    return ""


def with_marks(text: str, marks: dict[str, tuple[int, str]]) -> str:
    """Function with the mark of a loop before the end of each of some blocks.

    Args:
        text: The function.
        marks: Number of the place of each block's loop and name of the loop's header, by the block's name.
    """
    lines, block = [], ""
    order = [block_name(line) for line in text.split("\n") if _LABEL.match(line)]
    for line in text.split("\n"):
        if _LABEL.match(line):
            block = block_name(line)
        elif line.startswith(_TERMINATORS) and block in marks:
            place, header = marks[block]
            lines.append(f"  call void @{LOOP}(i64 {place}, i64 {order.index(header)})")
        lines.append(line)
    return "\n".join(lines)


def with_stops(body: str, places: tuple[EndPlace, ...], leave: Callable[[int], str], *, counts: bool = False) -> str:
    """Blocks of native code with the tests for the marks of loops, on the back edge alone.

    Args:
        body: The blocks.
        places: The places, by number.
        leave: Gives the instruction that ends the vertex at a place.
        counts: True where slots alone are counted, of a vertex that no host can stop: then many are the end.
    """
    if f"@{LOOP}(" not in body:
        return body
    blocks = list(_blocks(body))
    order = [block_name(lines[0]) for lines in blocks]
    rounds: dict[str, dict[str, str]] = {}  # by header: the block that each latch goes by
    made: list[list[str]] = []
    for name, lines in zip(order, blocks, strict=True):
        at, mark = next(((n, m) for n, line in enumerate(lines) if (m := _MARK.match(line))), (0, None))
        if mark is None:
            made.append(lines)
            continue
        place, header, way = int(mark[1]), order[int(mark[2])], f"{name}.round"
        target = re.compile(rf'label %(?:"{re.escape(header)}"|{re.escape(header)}(?![-\w$.]))')
        made.append([*lines[:at], *(target.sub(f'label %"{way}"', line) for line in lines[at + 1 :])])
        rounds.setdefault(header, {})[name] = way
        if counts:
            look = ("load i64, ptr %slots, align 8", f'icmp ult i64 %"{way}.seen", {MOST_SLOTS}')
        else:
            never = 2  # nothing that the host writes
            on = never if places[place].waits else 0
            look = (f"load atomic i8, ptr @{STOP} monotonic, align 1", f'icmp eq i8 %"{way}.seen", {on}')
        made.append(
            [
                f'"{way}":',
                f'  %"{way}.seen" = {look[0]}',
                f'  %"{way}.on" = {look[1]}',
                f'  br i1 %"{way}.on", label %"{header}", label %"{way}.stop"',
                f'"{way}.stop":',
                *([] if counts else [leave(place)]),
                "  ret void",
            ]
        )
    texts = ("\n".join(lines) for lines in made)
    return "\n".join(
        with_predecessors(text, rounds[header]) if (header := block_name(text)) in rounds else text for text in texts
    )


def _blocks(body: str) -> Iterator[list[str]]:
    """Blocks as lists of lines, the label first."""
    lines: list[str] = []
    for line in body.split("\n"):
        if _LABEL.match(line) and lines:
            yield lines
            lines = []
        lines.append(line)
    yield lines


def end_at(place: int) -> str:
    """The instruction that ends a vertex at a place."""
    return f"  call void @{END}(i64 %vertex, i64 {place})"


def stop_globals() -> str:
    """Text of the globals by which the host stops loops and vertices report ends."""
    return f"@{STOP} = global i8 0\n@{ENDED} = global i64 0\n"
