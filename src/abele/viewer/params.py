"""Parameters of a question: text from an address, read as numbers, words and tiles."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from abele.errors import InvalidOptionError, nearest

_LONGEST = 2_000


class Params:
    """Named parameters of a question.

    Args:
        given: Names and texts.
    """

    def __init__(self, given: Mapping[str, str]) -> None:
        self._given = dict(given)

    def text(self, name: str, default: str = "") -> str:
        """A text of at most 2,000 characters."""
        return self._given.get(name, default)[:_LONGEST]

    def number(self, name: str, default: int = 0, *, low: int = 0, high: int = 2**53) -> int:
        """A whole number, brought between ``low`` and ``high``.

        Raises:
            InvalidOptionError: It is no number.
        """
        return int(min(max(self.real(name, default), low), high))

    def real(self, name: str, default: float = 0.0) -> float:
        """A number.

        Raises:
            InvalidOptionError: It is none, or not finite.
        """
        given = self._given.get(name)
        if given is None or given == "":
            return default
        try:
            value = float(given)
        except ValueError:
            value = math.nan
        if not math.isfinite(value):
            raise InvalidOptionError(f"{name} is {given[:60]!r}, which is no number")
        return value

    def choice(self, name: str, choices: Sequence[str], default: str | None = None) -> str:
        """One of some words, the first by default.

        Raises:
            InvalidOptionError: It is none of them.
        """
        given = self._given.get(name) or (choices[0] if default is None else default)
        if given not in choices:
            close = nearest(given, choices)
            raise InvalidOptionError(
                f"{name} is {given[:60]!r}",
                remedy=f"did you mean {close!r}?" if close else "one of " + ", ".join(choices),
            )
        return given

    def words(self, name: str, default: Sequence[str] = ()) -> list[str]:
        """Words between commas."""
        given = self.text(name)
        return [word for word in given.split(",") if word] if given else list(default)
