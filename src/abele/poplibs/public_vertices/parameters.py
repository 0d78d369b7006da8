"""Template parameters of library vertices: reading the text of an argument, and its allowed values."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from abele.numerics import ElementType, bool_, f16, f32, i8, i16, i32, i64, types, u8, u16, u32, u64

Argument = ElementType | bool | int | str
REQUIRED = object()

FLOATS = (f32, f16)
WORDS = (f32, f16, i32, u32)
SIMPLE = (*WORDS, bool_)
COPIED = (*SIMPLE, i8, u8, i16, u16, i64, u64)
"""Sets of element types that vertices are instantiated for."""


_SPELLINGS = {
    "unsigned": u32,
    "char": i8,
    "long": i64,
    "unsigned long": u64,
    "longlong": i64,
    "long long": i64,
    "unsigned longlong": u64,
    "unsigned long long": u64,
}
"""Types by names that they have beside Poplar's."""


class NotAllowedError(Exception):
    """The text of an argument is not one of those that a parameter takes."""


@dataclass(frozen=True)
class TemplateParameter:
    """One template parameter.

    Attributes:
        name: Name in the template.
        read: The argument that a text stands for; raises :class:`NotAllowedError`.
        takes: Allowed arguments, in words.
        default: Argument where a name leaves it out; :data:`REQUIRED` where it must not.
        example: An argument, as text.
    """

    name: str
    read: Callable[[str], Argument]
    takes: str
    default: Any = REQUIRED
    example: str = ""


def type_of(*allowed: ElementType, name: str = "type", default: Any = REQUIRED) -> TemplateParameter:
    """An element type."""
    known = {t.poplar_name: t for t in types.ALL} | _SPELLINGS

    def read(text: str) -> ElementType:
        if known.get(text) not in allowed:
            raise NotAllowedError
        return known[text]

    return TemplateParameter(name, read, ", ".join(t.poplar_name for t in allowed), default, allowed[0].poplar_name)


def flag(name: str, default: Any = REQUIRED) -> TemplateParameter:
    """A truth value."""
    known = {"true": True, "false": False, "1": True, "0": False}

    def read(text: str) -> bool:
        if text not in known:
            raise NotAllowedError
        return known[text]

    return TemplateParameter(name, read, "true or false", default, "false")


def number(name: str, default: Any = REQUIRED, example: int = 0) -> TemplateParameter:
    """A whole number; a suffix as in ``16u`` is nothing."""

    def read(text: str) -> int:
        if not re.fullmatch(r"[0-9]{1,9}[uUlL]{0,3}", text):
            raise NotAllowedError
        return int(text.rstrip("uUlL"))

    return TemplateParameter(name, read, "a whole number", default, str(example))


def choice(enumeration: str, table: Mapping[str, Argument], default: Any = REQUIRED) -> TemplateParameter:
    """A member of ``enumeration``, whose full name may be cut short from the left.

    Args:
        enumeration: Its full name: members are ``enumeration::NAME``.
        table: Argument that each member stands for.
        default: Argument where a name leaves it out.
    """
    scopes = enumeration.split("::")

    def read(text: str) -> Argument:
        *scope, last = text.split("::")
        if last not in table or (scope and scopes[-len(scope) :] != scope):
            raise NotAllowedError
        return table[last]

    shown = ", ".join(table) if len(table) < 12 else ", ".join([*list(table)[:8], "…"])
    return TemplateParameter(
        enumeration.rpartition("::")[2], read, shown, default, f"{enumeration}::{next(iter(table))}"
    )


def struct(namespace: str, table: Mapping[str, Argument]) -> TemplateParameter:
    """Class that names a template's operation, ``popops::ReduceAdd``."""

    def read(text: str) -> Argument:
        *scope, last = text.split("::")
        if last not in table or scope not in ([], [namespace]):
            raise NotAllowedError
        return table[last]

    return TemplateParameter("operation", read, ", ".join(table), REQUIRED, f"{namespace}::{next(iter(table))}")
