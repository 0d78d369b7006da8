"""One option: its type, default and effect. msgspec reads values; the allowed values are put in words here.

Values come as such or as text, from programs, JSON and the environment: ``0.6`` and ``"0.6"``, ``True`` and ``"true"``.
Words are taken in any case. Whole numbers as text may have a base (``"0x10"``).
"""

from __future__ import annotations

import math
from dataclasses import KW_ONLY, dataclass
from functools import cached_property
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import msgspec
import numpy as np
from msgspec import inspect

from abele.errors import AbeleError
from abele.numerics import ElementType, as_element_type


@dataclass(frozen=True)
class Option:
    """An option of a function, an engine, a session or a model.

    Attributes:
        default: Its value where none is given; it need not be one that can be given (None: left to the function).
        type: Type that values are read into: one that msgspec can read, or :class:`~abele.numerics.ElementType`.
        doc: Effect; of an option that is only accepted, the reason why it has none.
        honoured: True if it has an effect here; the others are accepted, so that programs that set them run.
        variable: The environment variable that decides where no value is given.
    """

    default: Any
    type: Any
    _: KW_ONLY
    doc: str = ""
    honoured: bool = True
    variable: str = ""

    @cached_property
    def takes(self) -> str:
        """Allowed values, in words that follow "takes"."""
        return _words(self.type)

    def check(self, given: Any) -> Any:
        """Given value, which must be of the option's type already: text is not read.

        Raises:
            ValueError: It is not.
        """
        try:
            return _converted(given, self.type, strict=True)
        except msgspec.MsgspecError as error:
            raise ValueError(f"{given!r} is not {self.takes}") from error

    def parse(self, given: Any) -> Any:
        """The value that is given, as the option has it.

        Raises:
            ValueError: It does not take this.
        """
        try:
            return _read(given, self.type)
        except (msgspec.MsgspecError, AbeleError, TypeError, OverflowError) as error:
            raise ValueError(f"{given!r} is not {self.takes}") from error


UNSET = msgspec.UNSET
"""Default of an option that does not exist until it is set."""


# --- kinds of options ------------------------------------------------------------------------------------------------


def flag(default: Any, **more: Any) -> Option:
    """An option that is true or false."""
    return Option(default, bool, **more)


def number(default: Any, low: float = 0.0, high: float | None = None, **more: Any) -> Option:
    """An option that is a number from ``low`` to ``high``, both included."""
    return Option(default, Annotated[float, msgspec.Meta(ge=low, le=high)], **more)


def integer(default: Any, low: int = 0, high: int | None = None, *words: str, **more: Any) -> Option:
    """An option that is a whole number from ``low`` to ``high``, both included, or one of some words."""
    numbers = Annotated[int, msgspec.Meta(ge=low, le=high)]
    return Option(default, Union[numbers, Literal[words]] if words else numbers, **more)  # noqa: UP007


def choice(default: Any, *names: str, **more: Any) -> Option:
    """An option that is one of some names; the default is the first of them."""
    known = (default, *(n for n in names if n != default)) if isinstance(default, str) else names
    return Option(default, Literal[known], **more)


def element_type(default: Any, **more: Any) -> Option:
    """An option that is an element type, by either of its names; ``default`` may be None."""
    return Option(default, ElementType, **more)


def text(default: Any = "", **more: Any) -> Option:
    """An option that is free text."""
    return Option(default, str, **more)


# --- reading ---------------------------------------------------------------------------------------------------------


def _read(given: Any, wanted: Any) -> Any:
    """Value of type ``wanted`` from ``given``; raises the errors of msgspec and element types."""
    value = given.item() if isinstance(given, np.generic) else given
    if wanted is ElementType:
        return as_element_type(value)
    word = _word(value, wanted)
    if word is not None:
        return word
    if isinstance(value, str) and get_origin(wanted) is dict:
        value = msgspec.json.decode(value) if value.strip() else {}
    elif isinstance(value, str) and wanted is not str:
        value = _whole(value.strip(), wanted)
    found = _converted(value, wanted, strict=False)
    # A NaN compares as neither too low nor too high.
    if isinstance(found, float) and math.isnan(found):
        raise msgspec.ValidationError("not a number")
    return found


def _converted(value: Any, wanted: Any, *, strict: bool) -> Any:
    """``value`` as msgspec has it; instances of other classes, such as paths, stay.

    msgspec takes no union of such a class with another type, so it is asked about the other types alone.
    """
    parts = _parts(wanted)
    objects = tuple(p for p in parts if isinstance(p, type) and isinstance(inspect.type_info(p), inspect.CustomType))
    if isinstance(value, objects):
        return value
    others = tuple(p for p in parts if p not in objects)
    return msgspec.convert(value, Union[others] if others else wanted, strict=strict)  # noqa: UP007


def _parts(wanted: Any) -> tuple[Any, ...]:
    """The types of a union, or the one type."""
    return get_args(wanted) if get_origin(wanted) in (Union, UnionType) else (wanted,)


def _word(value: Any, wanted: Any) -> str | None:
    """Word that is given of those allowed, in any case; True and False are words too."""
    parts = _parts(wanted)
    words = [word for part in parts if get_origin(part) is Literal for word in get_args(part)]
    text = str(value).strip().lower()
    return next((word for word in words if str(word).lower() == text), None)


def _whole(text: str, wanted: Any) -> Any:
    """Text as a whole number where one is wanted, in the base that it names; other text unchanged."""
    parts = _parts(wanted)
    if not any(part is int or (get_origin(part) is Annotated and get_args(part)[0] is int) for part in parts):
        return text
    try:
        return int(text, 0)
    except ValueError:
        return text


# --- words -----------------------------------------------------------------------------------------------------------


def _words(wanted: Any) -> str:
    """Values of a type, in words."""
    if wanted is ElementType:
        return "an element type"
    if get_origin(wanted) is Literal:
        return "one of " + ", ".join(map(str, get_args(wanted)))
    if get_origin(wanted) in (Union, UnionType):
        return ", or ".join(_words(part).removeprefix("one of ") for part in _parts(wanted))
    if wanted is None or wanted is type(None):
        return "None"
    if get_origin(wanted) is dict:
        names, values = get_args(wanted)
        by = " by " + ", ".join(get_args(names)) if get_origin(names) is Literal else ""
        return f"a JSON object{by}" + ("" if values is Any else f", each {_words(values)}")
    match inspect.type_info(wanted):
        case inspect.BoolType():
            return "true or false"
        case inspect.IntType(ge=low, le=high):
            return _range("a whole number", low, high)
        case inspect.FloatType(ge=low, le=high, gt=above):
            return _range("a number", low, high, above)
        case inspect.StrType():
            return "text"
        case inspect.EnumType(cls=cls):
            return "one of " + ", ".join(f"{cls.__name__}.{name}" for name in cls.__members__)
        case inspect.ListType():
            return f"a list, each {_words(get_args(wanted)[0])}" if get_args(wanted) else "a list"
        case inspect.DictType():
            return "a dictionary"
    return f"a {getattr(wanted, '__name__', wanted)}"


def _range(kind: str, low: float | None, high: float | None, above: float | None = None) -> str:
    if above is not None:
        return f"{kind} above {above:g}" + ("" if high is None else f", at most {high:g}")
    if low is None:
        return kind
    return f"{kind} from {low:g} on" if high is None else f"{kind} between {low:g} and {high:g}"
