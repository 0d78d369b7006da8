"""Parameters of an operator benchmark, as its command line gives them."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from abele.errors import InvalidOptionError
from abele.words import counted

_TRUE, _FALSE = ("", "true", "yes", "on", "1"), ("false", "no", "off", "0")
_REMARK = re.compile(r"(?:^|\s)\([^()]*\)\s*$")
_IN_BRACES = re.compile(r"\{[^{}\"]*\}")


@dataclass(frozen=True)
class Parameters:
    """Options of one command line by name, without dashes.

    Attributes:
        values: Text of every option; empty for an option without a value.
    """

    values: dict[str, str]

    @staticmethod
    def parse(line: str) -> Parameters:
        """The options of ``--field {8, 8} --kernel-size=3 --bias 0``; a remark in parentheses at the end is left out.

        >>> Parameters.parse("--field {8,8} --kernel-size=3 --inference-only").values
        {'field': '{8,8}', 'kernel-size': '3', 'inference-only': ''}

        Raises:
            InvalidOptionError: A word that belongs to no option, or an open quote.
        """
        line = _IN_BRACES.sub(lambda found: "".join(found.group().split()), _REMARK.sub("", line))
        try:
            words = shlex.split(line)
        except ValueError as wrong:
            raise InvalidOptionError(f"parameters {line!r} cannot be read: {wrong}") from None
        values: dict[str, str] = {}
        name: str | None = None
        for word in words:
            if word.startswith("--"):
                name, _, value = word[2:].partition("=")
                values[name] = value
                name = None if value else name
            elif name is not None:
                values[name], name = word, None
            else:
                raise InvalidOptionError(f"parameters {line!r}: {word!r} belongs to no option")
        return Parameters(values)

    def renamed(self, names: Mapping[str, str]) -> tuple[Parameters, tuple[str, ...]]:
        """Options under the names that ``names`` gives them, and the options unknown to it.

        The beginning of one known name stands for that name, as the benchmarks' own command lines take it.
        """
        known: dict[str, str] = {}
        unknown: list[str] = []
        for name, value in self.values.items():
            meant = {names[name]} if name in names else {to for n, to in names.items() if name and n.startswith(name)}
            if len(meant) == 1:
                known[meant.pop()] = value
            else:
                unknown.append(name)
        return Parameters(known), tuple(unknown)

    def text(self, name: str, default: str = "") -> str:
        """The value of an option as it stands."""
        return self.values.get(name, default)

    def choice(self, name: str, default: str, *choices: str) -> str:
        """The value of an option as one of ``choices``, in small letters.

        Raises:
            InvalidOptionError: It is none of them.
        """
        value = self.text(name, default).lower()
        if value not in choices:
            raise InvalidOptionError(f"--{name} takes {', '.join(choices)}, got {self.values[name]!r}")
        return value

    def integer(self, name: str, default: int = 0) -> int:
        """The value of an option as a whole number.

        Raises:
            InvalidOptionError: It is none.
        """
        values = self.integers(name, (default,))
        if len(values) != 1:
            raise InvalidOptionError(f"--{name} takes a whole number, got {self.values[name]!r}")
        return values[0]

    def required(self, name: str) -> int:
        """The value of an option without a default, as a whole number.

        Raises:
            InvalidOptionError: It is missing, or no whole number.
        """
        return self.integer(self._given(name))

    def integers(self, name: str, default: tuple[int, ...] = ()) -> tuple[int, ...]:
        """The value of an option as whole numbers: ``{3,4}``, ``3,4`` or ``3``.

        Raises:
            InvalidOptionError: It is something else.
        """
        if name not in self.values:
            return default
        try:
            return tuple(int(n) for n in self.values[name].strip("{}[]() ").split(","))
        except ValueError:
            raise InvalidOptionError(f"--{name} takes whole numbers, got {self.values[name]!r}") from None

    def shape(self, name: str) -> tuple[int, ...]:
        """The value of an option without a default, as whole numbers.

        Raises:
            InvalidOptionError: It is missing, or something else.
        """
        return self.integers(self._given(name))

    def per_dim(self, name: str, rank: int, default: int) -> tuple[int, ...]:
        """The value of an option as ``rank`` whole numbers; one stands for all.

        Raises:
            InvalidOptionError: There is another number of them.
        """
        values = self.integers(name, (default,))
        if len(values) not in (1, rank):
            raise InvalidOptionError(
                f"--{name} has {len(values)} numbers",
                because=f"the field has {counted(rank, 'dimension')}",
                remedy="one for each",
            )
        return values if len(values) == rank else values * rank

    def per_side(self, name: str, side: str, rank: int) -> tuple[int, ...]:
        """The value of ``--name-lower`` or ``--name-upper``, or of ``--name`` for both, as ``rank`` whole numbers.

        Raises:
            InvalidOptionError: There is another number of them.
        """
        return self.per_dim(f"{name}-{side}" if f"{name}-{side}" in self.values else name, rank, 0)

    def number(self, name: str, default: float = 0.0) -> float:
        """The value of an option as a number.

        Raises:
            InvalidOptionError: It is none.
        """
        try:
            return float(self.values.get(name, default))
        except ValueError:
            raise InvalidOptionError(f"--{name} takes a number, got {self.values[name]!r}") from None

    def flag(self, name: str, default: bool = False) -> bool:
        """True if an option is on: given without a value, or ``true``, ``yes``, ``on``, ``1``.

        Raises:
            InvalidOptionError: Its value is neither one of these nor the contrary of one.
        """
        if name not in self.values:
            return default
        value = self.values[name].lower()
        if value not in _TRUE + _FALSE:
            raise InvalidOptionError(f"--{name} takes true or false, got {self.values[name]!r}")
        return value in _TRUE

    def mapping(self, name: str) -> dict[str, Any]:
        """The value of an option as a JSON object; empty where it is not given.

        Raises:
            InvalidOptionError: It is none.
        """
        try:
            found = json.loads(self.values.get(name) or "{}")
        except ValueError:
            found = None
        if not isinstance(found, dict):
            raise InvalidOptionError(f"--{name} takes a JSON object, got {self.values[name]!r}")
        return found

    def _given(self, name: str) -> str:
        if name not in self.values:
            raise InvalidOptionError(f"--{name} is missing")
        return name
