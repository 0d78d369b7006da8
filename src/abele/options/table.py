"""Tables of options: reading values of a program or the environment, and listing them for the documentation."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping
from enum import Enum
from typing import Any

from abele.errors import InvalidOptionError, nearest
from abele.numerics import ElementType
from abele.options.option import UNSET, Option


class OptionTable(Mapping[str, Option]):
    """Options of one owner, by name.

    Args:
        owner: Owner of the options, in words that begin a sentence: ``poplin.matmul``, ``the engine``.
        options: Each option.
        listed: Place of their list, for those who looked for one that does not exist.
    """

    def __init__(self, owner: str, options: Mapping[str, Option], listed: str = "") -> None:
        self.owner = owner
        self._options = dict(options)
        self._listed = listed

    def __getitem__(self, name: str) -> Option:
        return self._options[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._options)

    def __len__(self) -> int:
        return len(self._options)

    def find(self, name: str, at: str | None = None) -> str:
        """Name of an option; snake_case will do for one in camelCase.

        Raises:
            InvalidOptionError: There is none; the message names the nearest.
        """
        found = name if name in self._options else _camel_case(str(name))
        if found not in self._options:
            close = nearest(str(name), self._options)
            raise InvalidOptionError(
                f"{self.owner} has no option {name!r}" + (f"; did you mean {close!r}?" if close else ""),
                at=at,
                because=None if self._listed else f"its options are {', '.join(sorted(self._options)) or 'none'}",
                remedy=self._listed or None,
            )
        return found

    def parse(self, name: str, given: Any, at: str | None = None) -> Any:
        """The value of an option that is given.

        Raises:
            InvalidOptionError: There is no such option, or it does not take this.
        """
        option = self._options[self.find(name, at)]
        try:
            return option.parse(given)
        except ValueError:
            raise InvalidOptionError(
                f"{self.owner}: option {name!r} takes {option.takes}, got {given!r}", at=at
            ) from None

    def read(self, given: Mapping[str, Any] | None) -> dict[str, Any]:
        """Value of every option: the given one, else that of its environment variable, else its default.

        Raises:
            InvalidOptionError: There is no such option, or it does not take what is given.
        """
        if given is not None and not isinstance(given, Mapping):
            raise InvalidOptionError(f"{self.owner}: options are a mapping of names to values, got {given!r}")
        values = {name: option.default for name, option in self._options.items()}
        for name, option in self._options.items():
            told = os.environ.get(option.variable) if option.variable else None
            if told:
                values[name] = self.parse(name, told, f"environment variable {option.variable}")
        for name, value in (given or {}).items():
            values[self.find(name)] = self.parse(name, value)
        return values

    def markdown(self) -> str:
        """The options as a table of a page."""
        lines = [_HEAD, "|---|---|---|---|"]
        without_effect: dict[str, list[str]] = {}
        for name, option in self._options.items():
            if option.honoured:
                doc = option.doc + (f"; else `{option.variable}` says" if option.variable else "")
                lines.append(f"| `{name}` | {_short(option.takes)} | `{_shown(option.default)}` | {doc} |")
            else:
                without_effect.setdefault(option.doc, []).append(f"`{name}`")
        if without_effect:
            reasons = "; ".join(f"{', '.join(names)}: {doc}" for doc, names in without_effect.items())
            lines.append(f"| accepted without effect | | | {reasons} |")
        return "\n".join(lines)


def read_options(owner: str, given: Mapping[str, Any] | None, options: Mapping[str, Option]) -> dict[str, Any]:
    """The value of every option of a function, by name.

    Args:
        owner: The function, for errors.
        given: Values that the user gave, by our names or in camelCase.
        options: The options that it takes.

    Raises:
        InvalidOptionError: A name that does not exist, or a value that an option does not take.
    """
    return OptionTable(owner, options).read(given)


_HEAD = "| option | takes | default | effect |"
_SHORTER = (
    (re.compile(r"\ba whole number from (-?\d+) on\b"), r"int ≥ \1"),
    (re.compile(r"\ba whole number\b"), "int"),
    (re.compile(r"\btrue or false\b"), "bool"),
    (re.compile(r"\bone of (\w+)\.(.*)"), lambda found: f"{found[1]}: {found[2].replace(f'{found[1]}.', '')}"),
    (re.compile(r"\bone of "), ""),
)
"""Words of :attr:`Option.takes` as a table has them, which need not follow "takes"."""


def _short(takes: str) -> str:
    for pattern, words in _SHORTER:
        takes = pattern.sub(words, takes)
    return takes


def _camel_case(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(part.capitalize() for part in rest)


def _shown(default: Any) -> str:
    if isinstance(default, ElementType):
        return default.name
    if default is UNSET:
        return "not set"
    if isinstance(default, Enum):
        return f"{type(default).__name__}.{default.name}"
    return default if isinstance(default, str) else json.dumps(default, default=str)
