"""Records: trees of plain dataclasses, such as codelets after reading and host kernels, as JSON and back.

A file may come from anybody, so decoding makes nothing but what is listed: names are looked up in a table of classes,
never imported; every field is held against its annotation; depth and integers have limits. Pickle would be shorter and
would run whatever the file says. JSON has no infinities, types or records, hence the few marked objects.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import fields
from functools import cache
from types import UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

from abele.codelet import tree
from abele.codelet.fields import FieldDef
from abele.kernels.nest import ir
from abele.numerics import ElementType, as_element_type

Kinds = Mapping[str, type[Any]]
CODELET_TREE: Kinds = {
    "Const": tree.ConstExpr,
    "Local": tree.Local,
    "Scalar": tree.Scalar,
    "Element": tree.Element,
    "Length": tree.Length,
    "Binary": tree.BinaryExpr,
    "Compare": tree.Compare,
    "Logic": tree.Logic,
    "Unary": tree.UnaryExpr,
    "Choice": tree.Choice,
    "Cast": tree.CastExpr,
    "Math": tree.Math,
    "HelperCall": tree.HelperCall,
    "Assign": tree.Assign,
    "Store": tree.StoreStmt,
    "Evaluate": tree.Evaluate,
    "Print": tree.Print,
    "DebugOnly": tree.DebugOnly,
    "If": tree.IfStmt,
    "While": tree.WhileStmt,
    "For": tree.For,
    "Leave": tree.Leave,
    "Return": tree.Return,
    "Helper": tree.Helper,
}
"""By the names in files, which stay when a class is renamed."""
HOST_KERNEL: Kinds = {
    "Affine": ir.Affine,
    "Load": ir.Load,
    "Const": ir.Const,
    "Apply": ir.Apply,
    "Cast": ir.Cast,
    "Index": ir.Index,
    "Random": ir.Random,
    "RowLoad": ir.RowLoad,
    "RowOfStore": ir.RowOfStore,
    "Store": ir.Store,
    "Nest": ir.Nest,
    "HostKernel": ir.HostKernel,
}
_NAMES = {kind: name for table in (CODELET_TREE, HOST_KERNEL) for name, kind in table.items()}
_PLAIN = (str, int, float, bool)
_MOST_DEPTH = 150
"""Most levels of records inside records, within Python's stack."""
_LEAST, _MOST = -(1 << 63), (1 << 64) - 1


def encode(value: Any, kinds: Kinds, path: Callable[[str], str] = str) -> Any:
    """A record of one of ``kinds`` as JSON: its name and its fields, in order. Fields of a codelet stand by name.

    Args:
        value: The record.
        kinds: Those that there are, by name.
        path: Text of the path of a source file.
    """
    if isinstance(value, float) and not math.isfinite(value):
        return {"float": str(float(value))}
    if value is None or isinstance(value, _PLAIN):
        return value
    if isinstance(value, ElementType):
        return {"type": value.name}
    if isinstance(value, FieldDef):
        return {"field": value.name}
    if isinstance(value, (tuple, list)):
        return [encode(v, kinds, path) for v in value]
    if isinstance(value, dict):
        return {"map": [[encode(k, kinds, path), encode(v, kinds, path)] for k, v in value.items()]}
    name = _NAMES.get(type(value), "")
    if kinds.get(name) is not type(value):
        raise TypeError(f"{type(value).__name__} cannot be stored")
    has = [encode(getattr(value, f.name), kinds, path) for f in fields(value)]
    if isinstance(value, tree.Helper):
        has[[f.name for f in fields(value)].index("file")] = path(value.file)
    return {"is": name, "has": has}


def decode(data: Any, kinds: Kinds, codelet_fields: Mapping[str, FieldDef] | None = None) -> Any:
    """The record that ``data`` describes; every field of it is of the type that its class says.

    Raises:
        ValueError: It describes none of ``kinds``.
    """
    return _Decoder(kinds, codelet_fields or {}).value(data, object, 0)


class _Decoder:
    """Makes records; ``hint`` is the type of the place."""

    def __init__(self, kinds: Kinds, codelet_fields: Mapping[str, FieldDef]) -> None:
        self._kinds = kinds
        self._fields = codelet_fields

    def value(self, data: Any, hint: Any, depth: int) -> Any:
        """Value that ``data`` describes."""
        if data is None or isinstance(data, _PLAIN):
            made = data
        elif isinstance(data, list):
            made = self._items(data, hint, depth)
        elif isinstance(data, dict):
            made = self._described(data, hint, depth)
        else:
            raise ValueError(f"{data!r:.80} is no record")
        if not fits(made, hint):
            raise ValueError(f"{made!r:.80} where {hint} is wanted")
        return made

    def _items(self, data: list[Any], hint: Any, depth: int) -> Any:
        if get_origin(hint) is list:
            return [self.value(item, get_args(hint)[0], depth) for item in data]
        hints: Any = get_args(hint) if get_origin(hint) is tuple else (object, ...)
        # tuple[X, ...]: one hint for all items.
        if len(hints) == 2 and hints[1] is ...:
            hints = (hints[0],) * len(data)
        return tuple(self.value(item, one, depth) for item, one in zip(data, hints, strict=True))

    def _described(self, data: dict[str, Any], hint: Any, depth: int) -> Any:
        match data:
            case {"type": str() as name}:
                return as_element_type(name)
            case {"field": str() as name}:
                return self._fields[name]
            case {"float": "nan" | "inf" | "-inf" as text}:
                return float(text)
            case {"map": list() as items}:
                key, value = get_args(hint) or (object, object)
                return {self.value(k, key, depth): self.value(v, value, depth) for k, v in items}
            case {"is": str() as name, "has": list() as parts}:
                return self._record(self._kinds[name], parts, depth + 1)
        raise ValueError(f"a record is described by {', '.join(map(repr, data))[:80]}")

    def _record(self, kind: type[Any], parts: list[Any], depth: int) -> Any:
        if depth > _MOST_DEPTH:
            raise ValueError(f"records are nested more than {_MOST_DEPTH} deep")
        hints = all_hints()[kind]
        values = {n: self.value(p, h, depth) for (n, h), p in zip(hints.items(), parts, strict=True)}
        if kind is ir.Apply:
            return ir.Apply(values["op"], values["operands"])
        return kind(**values)


@cache
def all_hints() -> dict[type[Any], dict[str, Any]]:
    """The types of the fields of every record, in order."""
    hints = {kind: get_type_hints(kind) for kind in _NAMES}
    return {kind: {f.name: found[f.name] for f in fields(kind)} for kind, found in hints.items()}


def fits(value: Any, hint: Any) -> bool:
    """True if a value is of a type, to the first level: its parts were checked against the types of their places."""
    if isinstance(hint, UnionType) or get_origin(hint) is Union:
        return any(fits(value, one) for one in get_args(hint))
    kind = get_origin(hint) or hint
    # In Python a bool is an int: without this it would pass for a number.
    if type(value) is bool:
        return kind in (bool, object)
    if isinstance(value, int) and not _LEAST <= value <= _MOST:
        return False
    return isinstance(value, (int, float) if kind is float else kind)
