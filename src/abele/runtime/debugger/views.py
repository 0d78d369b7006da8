"""Views by text: ``weights[0, :4]`` as the debugger's commands name tensors."""

from __future__ import annotations

import ast
from types import EllipsisType

from abele.errors import EngineError
from abele.graph import Graph, Tensor
from abele.runtime.host.access import find_tensor

_Item = int | slice | EllipsisType | None


def find_view(graph: Graph, text: str) -> tuple[Tensor, str]:
    """View of a name with an index (or without), and a name for it.

    The name is that of a host handle or variable, in quotes if you like.

    Raises:
        EngineError: No such variable, or an index that is none.
        TensorError: An index that the variable does not have.
    """
    text = text.strip()
    name, bracket, rest = text.partition("[")
    name = name.strip().strip("'\"")
    tensor = find_tensor(graph, name)
    if not bracket:
        return tensor, name
    try:
        index = ast.parse(f"x[{rest}", mode="eval").body
        items = _items(index.slice) if isinstance(index, ast.Subscript) else None
    except (SyntaxError, ValueError):
        items = None
    if items is None:
        raise EngineError(f"{text!r} has no index that can be read", remedy=f"as in {name}[0, 1:3]")
    return tensor[items], f"{name}[{rest}"


def _items(node: ast.expr) -> tuple[_Item, ...]:
    parts = node.elts if isinstance(node, ast.Tuple) else [node]
    return tuple(_item(part) for part in parts)


def _item(node: ast.expr) -> _Item:
    if isinstance(node, ast.Slice):
        return slice(*(None if part is None else _number(part) for part in (node.lower, node.upper, node.step)))
    value = ast.literal_eval(node)
    if value is Ellipsis or value is None or (isinstance(value, int) and not isinstance(value, bool)):
        return value
    raise ValueError(value)


def _number(node: ast.expr) -> int:
    value = ast.literal_eval(node)
    if not isinstance(value, int):
        raise ValueError(value)
    return value
