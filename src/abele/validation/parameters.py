"""Parameters of an operator benchmark, as its command line gives them."""

from __future__ import annotations

import shlex
from dataclasses import dataclass

from abele.errors import InvalidOptionError


@dataclass(frozen=True)
class Parameters:
    """Options of one command line by name, without dashes.

    Attributes:
        values: Text of every option; empty for an option without a value.
    """

    values: dict[str, str]

    @staticmethod
    def parse(line: str) -> Parameters:
        """The options of ``--field {8,8} --kernel-size=3 --bias 0``; words that belong to none are left out.

        >>> Parameters.parse("--field {8,8} --kernel-size=3 --inference-only").values
        {'field': '{8,8}', 'kernel-size': '3', 'inference-only': ''}
        """
        values: dict[str, str] = {}
        name: str | None = None
        for word in shlex.split(line):
            if word.startswith("--"):
                name, _, value = word[2:].partition("=")
                values[name] = value
                name = None if value else name
            elif name is not None:
                values[name], name = word, None
        return Parameters(values)

    def text(self, name: str, default: str = "") -> str:
        """The value of an option as it stands."""
        return self.values.get(name, default)

    def integer(self, name: str, default: int = 0) -> int:
        """The value of an option as a whole number.

        Raises:
            InvalidOptionError: It is none.
        """
        return self.integers(name, (default,))[0]

    def integers(self, name: str, default: tuple[int, ...] = ()) -> tuple[int, ...]:
        """The value of an option as whole numbers: ``{3,4}``, ``3,4`` or ``3``.

        Raises:
            InvalidOptionError: It is something else.
        """
        if name not in self.values:
            return default
        try:
            return tuple(int(n) for n in self.values[name].strip("{}").split(","))
        except ValueError:
            raise InvalidOptionError(f"--{name} takes whole numbers, got {self.values[name]!r}") from None

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
        """Whether an option is given; one with a value is on unless that is ``false`` or ``0``."""
        return self.values[name] not in ("false", "0") if name in self.values else default
