"""Options of library functions: PopLibs' names and values, checked.

A function has a table of its options. Users give a mapping, with PopLibs' names (``availableMemoryProportion``) or ours
(``available_memory_proportion``), and values as such or as text (``"0.6"``, ``"true"``, ``"half"``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from abele.errors import AbeleError, InvalidOptionError, nearest
from abele.numerics import as_element_type
from abele.poplibs.poputil.names import camel_case

_N = TypeVar("_N", int, float)

Options = Mapping[str, Any] | None
"""What users give: values by the names of options, or nothing."""


@dataclass(frozen=True)
class Option:
    """One option of a function.

    Attributes:
        default: Its value where none is given.
        read: Turns what is given into the value; raises ValueError or an :class:`~abele.errors.AbeleError` where it
            cannot.
        takes: What may be given, in words that follow "takes".
    """

    default: Any
    read: Callable[[Any], Any]
    takes: str


def flag(default: bool) -> Option:
    """An option that is true or false."""
    return Option(default, _read_flag, "true or false")


def number(default: float, low: float = 0.0, high: float | None = None) -> Option:
    """An option that is a number from ``low`` to ``high``, both included."""
    return Option(default, lambda given: _in_range(float(given), low, high), _range_text("a number", low, high))


def integer(default: int, low: int = 0, high: int | None = None) -> Option:
    """An option that is a whole number from ``low`` to ``high``, both included."""
    return Option(default, lambda given: _in_range(_whole(given), low, high), _range_text("a whole number", low, high))


def choice(default: str, *names: str) -> Option:
    """An option that is one of some names."""
    known = (default, *(n for n in names if n != default))
    return Option(default, lambda given: _one_of(str(given), known), "one of " + ", ".join(known))


def element_type(default: Any) -> Option:
    """An option that is an element type, by either of its names; ``default`` may be None."""
    return Option(default, as_element_type, "an element type")


def text(default: str = "") -> Option:
    """An option that is free text."""
    return Option(default, str, "text")


def read_options(function: str, given: Options, table: Mapping[str, Option]) -> dict[str, Any]:
    """The value of every option in ``table``, by PopLibs' name.

    Args:
        function: The library function, for errors.
        given: What the user gave.
        table: The options that the function takes, by PopLibs' names.

    Raises:
        InvalidOptionError: An unknown name, or a value that the option does not take.
    """
    values = {name: option.default for name, option in table.items()}
    for key, value in (given or {}).items():
        name = key if key in table else camel_case(key)
        if name not in table:
            close = nearest(key, table)
            raise InvalidOptionError(
                f"{function} has no option {key!r}" + (f"; did you mean {close!r}?" if close else ""),
                because=f"its options are {', '.join(sorted(table)) or 'none'}",
            )
        try:
            values[name] = table[name].read(value)
        except (ValueError, TypeError, OverflowError, AbeleError):
            raise InvalidOptionError(f"{function}: option {key!r} takes {table[name].takes}, got {value!r}") from None
    return values


def _read_flag(given: Any) -> bool:
    return given if isinstance(given, bool) else {"true": True, "false": False}[_one_of(str(given), ("true", "false"))]


def _one_of(given: str, known: tuple[str, ...]) -> str:
    if given not in known:
        raise ValueError(given)
    return given


def _whole(given: Any) -> int:
    value = int(given)
    if value != float(given):
        raise ValueError(given)
    return value


def _in_range(value: _N, low: float, high: float | None) -> _N:
    if not low <= value or (high is not None and value > high):
        raise ValueError(value)
    return value


def _range_text(kind: str, low: float, high: float | None) -> str:
    return f"{kind} from {low:g} on" if high is None else f"{kind} between {low:g} and {high:g}"


PROPORTION = number(0.6, 0.0, 1.0)
"""``availableMemoryProportion``. Source of the default: machine.md §5.6."""
