"""Long stretches of code cut into pieces, so that the optimiser's time grows in proportion.

Generated codes for integrals are a single block of tens of thousands of instructions. Vectorising, choosing and
scheduling instructions look at a block as a whole, in time that grows with its square: 12,000 lines took minutes. So
such a block is cut where it stands, each piece ending in a branch to the next. The branch has to look like one, or the
pieces would be put together again: it tests a variable that is never anything but 1, which no pass may know.
"""

from __future__ import annotations

import re

_LABEL = re.compile(r'^("[^"]*"|[-\w$.]+):')
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
    starts = [n for n, line in enumerate(lines) if _LABEL.match(line)]
    ends = [*starts[1:], len(lines)]
    if all(end - start <= _LONGEST for start, end in zip(starts, ends, strict=True)):
        return body, ""
    made: list[str] = []
    last: dict[str, str] = {}
    for start, end in zip(starts, ends, strict=True):
        block = lines[start:end]
        name = block_name(block[0])
        pieces = [block[1:]] if len(block) <= _LONGEST else _cut(block[1:])
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
    found = _LABEL.match(label)
    assert found is not None
    return found[1].strip('"')


def _cut(lines: list[str]) -> list[list[str]]:
    """Lines of a block in pieces: phis stay at the head, the terminator with the lines before it."""
    # Cuts come at fixed distances; the last piece is no shorter than half of one.
    head = next((n for n, line in enumerate(lines) if " = phi " not in line), 0)
    tail = next((n for n in range(len(lines) - 1, 0, -1) if lines[n].startswith(_TERMINATORS)), len(lines))
    cuts = list(range(head + _PIECE, tail - _PIECE // 2, _PIECE))
    return [lines[a:b] for a, b in zip([0, *cuts], [*cuts, len(lines)], strict=True)]


_TERMINATORS = ("  br ", "  switch ", "  ret ", "  unreachable")


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
