"""Records: trees of plain dataclasses, such as codelets after reading and host kernels, as JSON and back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from abele.codelet import tree
from abele.codelet.fields import FieldDef
from abele.kernels import ir
from abele.numerics import ElementType, as_element_type

_CODELET = (
    tree.Const,
    tree.Local,
    tree.Scalar,
    tree.Element,
    tree.Length,
    tree.Binary,
    tree.Compare,
    tree.Logic,
    tree.Unary,
    tree.Choice,
    tree.Cast,
    tree.Math,
    tree.HelperCall,
    tree.Assign,
    tree.Store,
    tree.Evaluate,
    tree.Print,
    tree.DebugOnly,
    tree.If,
    tree.While,
    tree.For,
    tree.Leave,
    tree.Return,
    tree.Helper,
)
_KERNEL = (
    ir.Affine,
    ir.Load,
    ir.Const,
    ir.Apply,
    ir.Cast,
    ir.Index,
    ir.Random,
    ir.Store,
    ir.Nest,
    ir.HostKernel,
)
Kinds = Mapping[str, type[Any]]
CODELET_TREE: Kinds = {kind.__name__: kind for kind in _CODELET}
HOST_KERNEL: Kinds = {kind.__name__: kind for kind in _KERNEL}
_PLAIN = (str, int, float, bool)


def encode(value: Any, kinds: Kinds) -> Any:
    """A record of one of ``kinds`` as JSON: its name and its fields, in order. Fields of a codelet stand by name."""
    if value is None or isinstance(value, _PLAIN):
        return value
    if isinstance(value, ElementType):
        return {"type": value.name}
    if isinstance(value, FieldDef):
        return {"field": value.name}
    if isinstance(value, (tuple, list)):
        return [encode(v, kinds) for v in value]
    if isinstance(value, dict):
        return {"map": [[encode(k, kinds), encode(v, kinds)] for k, v in value.items()]}
    name = type(value).__name__
    if kinds.get(name) is not type(value):
        raise TypeError(f"{name} cannot be stored")
    return {"is": name, "has": [encode(getattr(value, f.name), kinds) for f in fields(value)]}


def decode(data: Any, kinds: Kinds, codelet_fields: dict[str, FieldDef] | None = None) -> Any:
    """The record that ``data`` describes; lists become lists inside lists of statements and tuples elsewhere.

    Raises:
        ValueError: It describes none of ``kinds``.
    """
    if data is None or isinstance(data, _PLAIN):
        return data
    if isinstance(data, list):
        return tuple(decode(item, kinds, codelet_fields) for item in data)
    if not isinstance(data, dict):
        raise ValueError(f"{data!r} is no record")
    if "type" in data:
        return as_element_type(str(data["type"]))
    if "field" in data:
        return (codelet_fields or {})[data["field"]]
    if "map" in data:
        return {decode(k, kinds): decode(v, kinds, codelet_fields) for k, v in data["map"]}
    kind = kinds[data["is"]]
    names = [f.name for f in fields(kind)]
    values = dict(zip(names, (decode(item, kinds, codelet_fields) for item in data["has"]), strict=True))
    for name in ("body", "then", "otherwise"):
        if isinstance(values.get(name), tuple) and issubclass(kind, (tree.Stmt, tree.Helper)):
            values[name] = list(values[name])
    if kind is ir.Apply:
        return ir.Apply(values["op"], values["operands"])
    return kind(**values)
