"""Text of tokens as they come: whole characters, and nothing that may begin a stop string.

With the stop string "END" and tokens "a", "bE", "N", "d" the pieces are "a", "b", "", "ENd". An emoji of 4 bytes in
4 tokens comes with the fourth.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Protocol

_UNFINISHED = "\ufffd"
"""Text of bytes that are no character, or not one yet."""


class TextCodec(Protocol):
    """Text to token ids and back. Those of ``tokenizers`` and ``transformers`` are tokenizers as well."""

    def encode(self, text: str, /) -> Any:
        """Token ids, or an object with ``ids``."""
        ...

    def decode(self, ids: Sequence[int], /) -> str:
        """Text of token ids."""
        ...


def encoded(tokenizer: TextCodec, text: str) -> list[int]:
    """Token ids of a text."""
    ids = tokenizer.encode(text)
    return list(getattr(ids, "ids", ids))


class TextPieces:
    """Text of one sequence, piece by piece.

    Args:
        tokenizer: Its ``decode`` turns ids into text; None gives no text at all.
        stops: Texts that end the sequence.

    Tokens are decoded together with those of the piece before: many tokenizers write a word's space only behind
    another word. A piece is held back while it ends in a character that is not whole.
    """

    def __init__(self, tokenizer: TextCodec | None, stops: Sequence[str] = ()) -> None:
        self._tokenizer, self._stops = tokenizer, tuple(stops)
        self._before: list[int] = []
        self._new: list[int] = []
        self._held = ""
        self.is_stopped = False

    def add(self, token: int) -> str:
        """Text that this token sets free; ``is_stopped`` is True afterwards where it completes a stop string."""
        if self._tokenizer is None or self.is_stopped:
            return ""
        self._new.append(token)
        before = self._tokenizer.decode(self._before) if self._before else ""
        text = self._tokenizer.decode(self._before + self._new)
        if text.endswith(_UNFINISHED):
            return ""
        self._before, self._new = self._new, []
        return self._checked(text[len(before) :])

    def finish(self) -> str:
        """Text held back that no further token will change."""
        if self._tokenizer is None or self.is_stopped:
            return ""
        rest = ""
        if self._new:
            before = self._tokenizer.decode(self._before) if self._before else ""
            rest = self._tokenizer.decode(self._before + self._new)[len(before) :]
            self._new = []
        rest = self._checked(rest)
        held, self._held = self._held, ""
        return rest + held

    def _checked(self, text: str) -> str:
        """Text up to the stop string that is whole first, or up to what may begin one."""
        text = self._held + text
        self._held = ""
        found = [(place + len(stop), place) for stop in self._stops if (place := text.find(stop)) >= 0]
        if found:
            self.is_stopped = True
            return text[: min(found)[1]]
        held = max((_overlap(text, stop) for stop in self._stops), default=0)
        self._held = text[len(text) - held :]
        return text[: len(text) - held]


def _overlap(text: str, stop: str) -> int:
    """Characters at the end of ``text`` with which ``stop`` begins."""
    longest = min(len(text), len(stop) - 1)
    return next((size for size in range(longest, 0, -1) if text.endswith(stop[:size])), 0)


def text_of(tokenizer: TextCodec, ids: Iterable[int]) -> str:
    """Text of a whole sequence."""
    return tokenizer.decode(list(ids))
