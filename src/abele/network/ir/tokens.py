"""The words and signs that the text of a network is made of."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from abele.errors import AbeleError, NetworkTextError
from abele.numerics import ElementType, as_element_type

_TOKEN = re.compile(
    r"""(?P<space>[ \t\r\n]+)
      | (?P<comment>\#[^\n]*)
      | (?P<value>%(?:[A-Za-z_][\w.$/-]*|\d+))
      | (?P<symbol>@[A-Za-z_][\w.$/-]*(?::[a-z]+\d+)*)
      | (?P<operand>\$\d{1,6})
      | (?P<number>-?(?:\d+\.\d*(?:[eE][+-]?\d+)?|\d+[eE][+-]?\d+|\d+|inf\b|nan\b))
      | (?P<name>[A-Za-z_][\w.]*)
      | (?P<string>"(?:[^"\\\n]|\\.)*")
      | (?P<sign>==|!=|<=|>=|<<|>>|[-+*/<>&|^])
      | (?P<mark>[(){}\[\],:=])""",
    re.VERBOSE,
)
_KEYWORDS = frozenset({"true", "false", "none", "inf", "nan"})
_BARE = re.compile(r"[A-Za-z_]\w*")
_LONGEST_INTEGER = 40
_DEEPEST = 100


def string_text(text: str) -> str:
    """A string as it is written: bare if it is one plain word, else in quotes."""
    if _BARE.fullmatch(text) and text.isascii() and text not in _KEYWORDS:
        return text
    return json.dumps(text, ensure_ascii=False).replace("\x85", "\\u0085").replace("\u2028", "\\u2028")


def quoted(text: str) -> str:
    """A string in quotes."""
    return json.dumps(text)


def number_text(value: float | int | bool) -> str:
    """A number as it is written: the shortest that reads back to the same bits."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return repr(value)


@dataclass(frozen=True, slots=True)
class Token:
    """One word or sign, with its place in the text."""

    kind: str
    text: str
    start: int


class Tokens:
    """The tokens of a text, read one after the other; comments come along with the token before them.

    Raises:
        NetworkTextError: A character that begins no token.
    """

    def __init__(self, text: str) -> None:
        self.text = text
        self._tokens: list[Token] = []
        self._comments: dict[int, str] = {}
        self._at = 0
        self._depth = 0
        place = 0
        while place < len(text):
            match = _TOKEN.match(text, place)
            if match is None:
                raise self.error(f"{text[place]!r} begins nothing", Token("", text[place], place))
            kind = match.lastgroup or ""
            if kind == "comment":
                self._comments[len(self._tokens)] = match.group()
            elif kind != "space":
                self._tokens.append(Token(kind, match.group(), place))
            place = match.end()
        self._end = Token("end", "", len(text))

    def peek(self, ahead: int = 0) -> Token:
        """The token that comes next; of kind ``end`` after the last."""
        place = self._at + ahead
        return self._tokens[place] if place < len(self._tokens) else self._end

    def next(self) -> Token:
        """The next token."""
        token = self.peek()
        self._at += 1
        return token

    def comment(self) -> str:
        """The comment after the last token that was read; empty if there is none."""
        return self._comments.get(self._at, "")

    def take(self, text: str) -> bool:
        """Read the next token if it is ``text``."""
        found = self.peek().text == text and self.peek().kind not in ("string", "end")
        self._at += found
        return found

    def expect(self, text: str) -> Token:
        """Read ``text``."""
        if not self.take(text):
            raise self.error(f"expected {text!r}")
        return self._tokens[self._at - 1]

    def expect_kind(self, kind: str, what: str) -> Token:
        """Read a token of a kind; ``what`` says in the error what it would have been."""
        if self.peek().kind != kind:
            raise self.error(f"expected {what}")
        return self.next()

    @contextmanager
    def ahead_at(self, word: str) -> Iterator[None]:
        """Read inside from the last ``word {`` that no brace encloses, or from the end; then go on as before."""
        before, depth = self._at, 0
        found = len(self._tokens)
        for place in range(len(self._tokens) - 1, -1, -1):
            text = self._tokens[place].text
            depth += {"}": 1, "{": -1}.get(text, 0) if self._tokens[place].kind == "mark" else 0
            if depth == 0 and text == word and self._tokens[place].kind == "name":
                found = place
                break
        self._at = found
        try:
            yield
        finally:
            self._at = before

    # --- small things -------------------------------------------------------------------------------------------------

    def number(self) -> float | int | bool:
        """Read a number, ``true`` or ``false``."""
        token = self.next()
        if token.text in ("true", "false"):
            return token.text == "true"
        if token.kind != "number":
            raise self.error("expected a number", token)
        if re.fullmatch(r"-?\d+", token.text):
            if len(token.text) > _LONGEST_INTEGER:
                raise self.error("a number of too many digits", token)
            return int(token.text)
        return float(token.text)

    def integer(self) -> int:
        """Read a whole number."""
        token = self.peek()
        value = self.number()
        if isinstance(value, bool) or not isinstance(value, int):
            raise self.error("expected a whole number", token)
        return value

    def string(self) -> str:
        """Read a string in quotes, or a bare word."""
        token = self.next()
        if token.kind == "name":
            return token.text
        if token.kind != "string":
            raise self.error("expected a string", token)
        try:
            return str(json.loads(token.text))
        except ValueError:
            raise self.error("a string that does not read", token) from None

    def element_type(self) -> ElementType:
        """Read the name of an element type."""
        token = self.expect_kind("name", "an element type")
        with self.explaining(token):
            return as_element_type(token.text)

    # --- errors -------------------------------------------------------------------------------------------------------

    def error(self, message: str, token: Token | None = None) -> NetworkTextError:
        """The error that something is wrong at a token, by default the next one."""
        at = (token or self.peek()).start
        line_start = self.text.rfind("\n", 0, at) + 1
        line_end = self.text.find("\n", at)
        line = self.text[line_start : line_end if line_end >= 0 else len(self.text)]
        number, column = self.text.count("\n", 0, at) + 1, at - line_start
        shown = line if len(line) <= 200 else line[max(0, column - 80) : column + 80]
        found = (token or self.peek()).text
        return NetworkTextError(
            f"{message}, found {found[:40]!r}" if token is None else message,
            at=f"line {number}, column {column + 1}",
            because=shown.strip() or None,
        )

    @contextmanager
    def explaining(self, token: Token) -> Iterator[None]:
        """Give the place of ``token`` to an error that making something of it raises."""
        try:
            yield
        except NetworkTextError:
            raise
        except (AbeleError, ValueError, TypeError, OverflowError, KeyError, IndexError) as error:
            message = error.message if isinstance(error, AbeleError) else str(error)
            raise self.error(message.splitlines()[0] if message else "wrong", token) from None

    @contextmanager
    def nested(self) -> Iterator[None]:
        """One level deeper; a text that nests deeper than anything real is refused."""
        self._depth += 1
        if self._depth > _DEEPEST:
            raise self.error("nested too deeply")
        try:
            yield
        finally:
            self._depth -= 1
