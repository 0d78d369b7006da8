"""Fields of a request's body, taken one by one, so that a field that nobody takes is refused by name."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from typing import Any

from abele.errors import nearest
from abele.llm.serving.problems import ApiError
from abele.words import shortened


class BodyFields:
    """Fields of a JSON object.

    Args:
        body: The object.

    Each reader takes a field out; ``null`` is as good as none. :meth:`done` refuses what is left.
    """

    def __init__(self, body: dict[str, Any]) -> None:
        self._left = dict(body)
        self._known: list[str] = []

    def take(self, name: str) -> Any:
        """The value of a field as it is; None where there is none."""
        self._known.append(name)
        return self._left.pop(name, None)

    def text(self, name: str) -> str | None:
        """A string."""
        value = self.take(name)
        if value is not None and not isinstance(value, str):
            raise wrong(name, value, "a string")
        return value

    def flag(self, name: str) -> bool:
        """True or false; false where there is none."""
        value = self.take(name)
        if value is not None and not isinstance(value, bool):
            raise wrong(name, value, "true or false")
        return bool(value)

    def number(self, name: str, default: float, least: float = -math.inf, most: float = math.inf) -> float:
        """A number from ``least`` to ``most``."""
        value = self.take(name)
        if value is None:
            return default
        if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value <= most:
            raise wrong(name, value, f"a number from {least:g} to {most:g}" if least > -math.inf else "a number")
        return float(value)

    def whole(self, name: str, least: int, most: int) -> int | None:
        """A whole number from ``least`` to ``most``."""
        value = self.take(name)
        if value is None:
            return None
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            raise wrong(name, value, f"a whole number from {least:,} to {most:,}")
        return value

    def texts(self, name: str) -> tuple[str, ...]:
        """A string or a list of them."""
        value = self.take(name)
        if value is None:
            return ()
        found = [value] if isinstance(value, str) else value
        if not isinstance(found, list) or not all(isinstance(text, str) for text in found):
            raise wrong(name, value, "a string or a list of strings")
        return tuple(found)

    def without_effect(self, names: Iterable[str]) -> None:
        """Fields that change no text, whatever they hold."""
        for name in names:
            self.take(name)

    def only(self, name: str, *neutral: Any) -> None:
        """A field that would change the text and is not served: refused unless its value changes nothing.

        Raises:
            ApiError: It holds another value.
        """
        value = self.take(name)
        if value is not None and not any(_same(value, n) for n in (*neutral, [], {})):
            allowed = f"; it may be {' or '.join(map(_quoted, neutral))}, or absent" if neutral else ""
            raise ApiError(400, f"{name} is not served here{allowed}", param=name, code="unsupported_parameter")

    def done(self) -> None:
        """The end: every field was taken.

        Raises:
            ApiError: One was not.
        """
        for name in self._left:
            meant = nearest(name[:60], self._known)
            hint = f"; did you mean {meant}?" if meant else ""
            message = f"unknown field {_quoted(name)}{hint}"
            raise ApiError(400, message, param=name[:60], code="unknown_parameter")


def _same(value: Any, other: Any) -> bool:
    return isinstance(value, bool) == isinstance(other, bool) and bool(value == other)


def wrong(name: str, value: object, allowed: str) -> ApiError:
    """A field with a value that it may not have."""
    return ApiError(400, f"{name} is {_quoted(value)}, must be {allowed}", param=name, code="invalid_value")


def _quoted(value: object) -> str:
    """A value as messages quote it: short, in ASCII, and in JSON's words."""
    if isinstance(value, list | dict):
        kind = "list" if isinstance(value, list) else "object"
        return f"a {kind} of {len(value)}" if value else f"an empty {kind}"
    if value is None or isinstance(value, bool):
        return json.dumps(value)
    if isinstance(value, int) and abs(value) >= 1 << 64:
        return f"a whole number of {value.bit_length()} bits"
    return shortened(ascii(value), 60)
