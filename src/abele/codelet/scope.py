"""Meanings of the names in a function: local values, fields, constants, types and functions."""

from __future__ import annotations

import ast
import numbers
from collections.abc import Callable
from dataclasses import dataclass, field, fields, is_dataclass
from enum import Enum, EnumType
from types import FunctionType, ModuleType
from typing import Any

import numpy as np

from abele.codelet.fields import FieldDef
from abele.codelet.functions import KNOWN, VertexFunction
from abele.codelet.tree import Local, VertexExpr
from abele.numerics import ElementType

MISSING = object()


@dataclass(frozen=True, eq=False)
class Self:
    """The vertex itself, ``self``."""


@dataclass(frozen=True, eq=False)
class WholeField:
    """A vector field, or a row of a vector of vectors, taken as a whole.

    Attributes:
        field: The field.
        row: Number of the row, or None for the whole field.
    """

    field: FieldDef
    row: VertexExpr | None = None

    @property
    def rank(self) -> int:
        """Number of indices that it takes."""
        return self.field.rank - (self.row is not None)


@dataclass(frozen=True)
class VertexMethod:
    """A function that takes the vertex as its first argument."""

    function: FunctionType


@dataclass(frozen=True, eq=False)
class Written:
    """Parameter of a macro: an argument as it is written at the call, read at each use.

    Attributes:
        node: The argument.
        read: Reads it where it was written.
    """

    node: ast.expr
    read: Callable[[ast.expr], Any]


@dataclass
class NameScope:
    """The names of one function.

    Attributes:
        function: The function.
        types: Types of the local variables that were set so far.
        lines: Line where each was set first.
        known: Meanings of names that are no values: ``self``, parameters and locals that are fields.
        defined: Variables that have a value on every path to here.
    """

    function: FunctionType
    types: dict[str, ElementType] = field(default_factory=dict)
    lines: dict[str, int] = field(default_factory=dict)
    known: dict[str, Any] = field(default_factory=dict)
    defined: set[str] = field(default_factory=set)

    def local(self, name: str, line: int) -> Local:
        """A read of local variable ``name``."""
        return Local(type=self.types[name], name=name, line=line)

    def outer(self, name: str) -> Any:
        """Meaning of ``name`` outside the function: closure, globals, builtins; MISSING when it has none."""
        return outer_name(self.function, name)


def outer_name(function: FunctionType, name: str) -> Any:
    """Meaning of ``name`` in ``function`` when it is no local variable; MISSING when it has none."""
    free = function.__code__.co_freevars
    if name in free and function.__closure__:
        try:
            return function.__closure__[free.index(name)].cell_contents
        except ValueError:
            return MISSING
    if name in function.__globals__:
        return function.__globals__[name]
    builtins = function.__globals__.get("__builtins__", {})
    table = builtins if isinstance(builtins, dict) else vars(builtins)
    return table.get(name, MISSING)


def meaning(value: Any) -> Any:
    """A Python object as the language knows it: a number, an ElementType, the name of a known function, a module, a
    plain function, or a setting that code is specialised by; MISSING for the rest."""
    if isinstance(value, bool | np.bool_):
        return bool(value)
    if isinstance(value, numbers.Integral):
        return int(value)
    if isinstance(value, numbers.Real):
        return float(value)
    if isinstance(value, ElementType | ModuleType | VertexFunction | FunctionType) or is_setting(value):
        return value
    try:
        return VertexFunction(KNOWN[value]) if value in KNOWN else MISSING
    except TypeError:
        return MISSING


def is_setting(value: Any) -> bool:
    """True if ``value`` is no number, but decides what code is made: text, a member of an enumeration or the whole of
    it, or a frozen dataclass, whose fields are such settings or numbers and types."""
    if isinstance(value, str | Enum | EnumType):
        return True
    parameters = getattr(value, "__dataclass_params__", None)
    return parameters is not None and not isinstance(value, type) and bool(parameters.frozen)


def setting_parts(value: Any) -> dict[str, Any]:
    """Parts of a setting that code can read, by name."""
    if isinstance(value, EnumType):
        return dict(value.__members__)
    return {f.name: getattr(value, f.name) for f in fields(value)} if is_dataclass(value) else {}


def locals_of(tree: ast.FunctionDef) -> set[str]:
    """Names that the function binds: its parameters and every name that it sets."""
    names = {a.arg for a in tree.args.args}
    return names | {n.id for n in ast.walk(tree) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
