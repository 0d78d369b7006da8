"""Frames: what keepers tell, as lines that survive being mixed with those of other ranks.

A launcher of MPI reads the output of ranks in blocks, and writes the blocks of all ranks one after the other. A frame
is written at once, is shorter than what systems write to a pipe whole, and fills up to a multiple of 256 bytes, so that
no block ends within one.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterator
from dataclasses import dataclass

_MARK = b"\x1eabele "
_BLOCK = 256
MOST_BYTES = 2800
"""Most bytes of a frame's content; with everything around it, a frame is shorter than 4096 bytes."""

OUT, ERR, BEAT, HELLO, END = "out", "err", "beat", "hello", "end"
"""Kinds: bytes of the program's standard output or error; JSON about it."""


@dataclass(frozen=True, slots=True)
class RankFrame:
    """Message of one rank to the launcher.

    Attributes:
        rank: The sender's number.
        kind: Kind of message.
        content: At most :data:`MOST_BYTES`.
    """

    rank: int
    kind: str
    content: bytes

    def encoded(self) -> bytes:
        """The frame as it is written."""
        text = _MARK + f"{self.rank} {self.kind} ".encode() + base64.b64encode(self.content)
        return text.ljust(-(-(len(text) + 1) // _BLOCK) * _BLOCK - 1) + b"\n"


class FrameReader:
    """Takes the output of a launcher apart.

    Attributes:
        others: Lines that are no frames: the launcher's own words. They are taken out by the reader's owner.
    """

    def __init__(self) -> None:
        self._rest = b""
        self.others: list[bytes] = []

    def feed(self, block: bytes) -> Iterator[RankFrame]:
        """The frames that are complete with some more bytes."""
        *lines, self._rest = (self._rest + block).split(b"\n")
        for line in lines:
            frame = _decoded(line)
            if frame is not None:
                yield frame
            elif line.strip():
                self.others.append(line)


def _decoded(line: bytes) -> RankFrame | None:
    """The frame that a line is; None for any other line."""
    before, mark, text = line.partition(_MARK)
    parts = text.split()
    if not mark or before or len(parts) not in (2, 3) or not parts[0].isdigit():
        return None
    try:
        content = base64.b64decode(parts[2], validate=True) if len(parts) == 3 else b""
    except binascii.Error:
        return None
    return RankFrame(int(parts[0]), parts[1].decode("ascii", "replace"), content)


def frames_of(rank: int, kind: str, content: bytes) -> Iterator[bytes]:
    """Any number of bytes as frames, each as it is written."""
    for begin in range(0, len(content), MOST_BYTES):
        yield RankFrame(rank, kind, content[begin : begin + MOST_BYTES]).encoded()
