"""Nested arguments and results: how the tensors in them are found, and put back into the same classes.

Tuples, lists, dicts, their subclasses, named tuples, dataclasses, what PyTorch's own trees know, and classes that
:mod:`.arguments` has parsers for are nested. Anything else is a leaf.
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
import torch.utils._pytree as pytree

from abele.frontends.poptorch.errors import Error

# Arguments and results of the user's own classes: parsers that take their tensors out and put them in again.


class ICustomArgParser:
    """Parser for arguments of a class: subclass it, and register an instance for the class."""

    def yieldTensors(self, struct: Any) -> Iterator[torch.Tensor]:
        """The tensors of an object, in the order in which :meth:`reconstruct` takes them."""
        raise NotImplementedError(f"{type(self).__name__} does not define yieldTensors")

    def reconstruct(self, original_structure: Any, tensor_iterator: Iterator[torch.Tensor]) -> Any:
        """An object like ``original_structure`` with other tensors."""
        raise NotImplementedError(f"{type(self).__name__} does not define reconstruct")


_PARSERS: dict[type, ICustomArgParser] = {}


def registerCustomArgParser(arg_type: type, parser: ICustomArgParser | None) -> None:
    """Take objects of a class as arguments and results of models; None to take them no longer.

    Raises:
        Error: The parser is none.
    """
    if parser is not None and not isinstance(parser, ICustomArgParser):
        raise Error("arg_parser must inherit from ICustomArgParser")
    if arg_type in _PARSERS:
        del _PARSERS[arg_type]
        _forget(arg_type)
    if parser is not None:
        _PARSERS[arg_type] = parser
        pytree.register_pytree_node(
            arg_type,
            lambda struct: (list(parser.yieldTensors(struct)), struct),
            lambda leaves, struct: parser.reconstruct(struct, iter(leaves)),
            serialized_type_name=f"{arg_type.__module__}.{arg_type.__qualname__}.{id(arg_type)}",
            flatten_with_keys_fn=lambda struct: (
                [(pytree.SequenceKey(i), tensor) for i, tensor in enumerate(parser.yieldTensors(struct))],
                struct,
            ),
        )


def _forget(arg_type: type) -> None:
    """Take a class out of PyTorch's trees, and out of those of optree: where installed, it mirrors them."""
    pytree._deregister_pytree_node(arg_type)
    pending = getattr(pytree, "_cxx_pytree_pending_imports", [])
    pending[:] = [call for call in pending if call[0][0] is not arg_type]
    if getattr(pytree, "_cxx_pytree_imported", False):
        import optree

        optree.unregister_pytree_node(arg_type, namespace="torch")


def parser_of(value: object) -> ICustomArgParser | None:
    """The parser of a value's class, or of the nearest class above it that has one."""
    return next((_PARSERS[base] for base in type(value).__mro__ if base in _PARSERS), None) if _PARSERS else None


@dataclass(frozen=True)
class TreeLevel:
    """One level of nesting.

    Attributes:
        names: Name of each part below its parent: a key, an index or the name of a field.
        parts: The parts.
        rebuild: Makes an object like the original one of other parts.
    """

    names: tuple[Any, ...]
    parts: tuple[Any, ...]
    rebuild: Callable[[list[Any]], Any]


def level_of(tree: Any) -> TreeLevel | None:
    """The outermost level of ``tree``; None for a leaf."""
    kind = type(tree)
    parser = parser_of(tree)
    if parser is not None:
        parts = tuple(parser.yieldTensors(tree))
        return TreeLevel(tuple(range(len(parts))), parts, lambda made: parser.reconstruct(tree, iter(made)))
    if isinstance(tree, torch.Tensor) or tree is None or isinstance(tree, (int, float, str)):
        return None
    if isinstance(tree, tuple) and hasattr(tree, "_fields"):
        return TreeLevel(tree._fields, tuple(tree), lambda made: kind(*made))
    if isinstance(tree, dict):
        return TreeLevel(tuple(tree), tuple(tree.values()), lambda made: _dict_like(tree, made))
    if kind in (tuple, list):
        return TreeLevel(tuple(range(len(tree))), tuple(tree), kind)
    if dataclasses.is_dataclass(tree):
        names = tuple(f.name for f in dataclasses.fields(tree))
        return TreeLevel(names, tuple(getattr(tree, n) for n in names), lambda made: _like(tree, names, made))
    if kind in pytree.SUPPORTED_NODES:
        known = pytree.SUPPORTED_NODES[kind]
        found, context = known.flatten_fn(tree)
        return TreeLevel(tuple(range(len(found))), tuple(found), lambda made: known.unflatten_fn(made, context))
    if isinstance(tree, (tuple, list)):
        return TreeLevel(tuple(range(len(tree))), tuple(tree), kind)
    return None


def _dict_like(tree: dict[Any, Any], made: list[Any]) -> Any:
    items = dict(zip(tree, made, strict=True))
    if type(tree) is dict:
        return items
    if dataclasses.is_dataclass(tree):
        return type(tree)(**items)
    twin = copy.copy(tree)
    for key, value in items.items():
        twin[key] = value
    return twin


def _like(tree: Any, names: tuple[str, ...], made: list[Any]) -> Any:
    # A copy, and not a call of the class: fields may be frozen, or not among the arguments of its constructor.
    twin = copy.copy(tree)
    for name, value in zip(names, made, strict=True):
        object.__setattr__(twin, name, value)
    return twin


def leaves(tree: Any) -> Iterator[Any]:
    """The leaves of ``tree``, in order."""
    level = level_of(tree)
    if level is None:
        yield tree
    else:
        for part in level.parts:
            yield from leaves(part)


def map_leaves(function: Callable[[Any], Any], tree: Any) -> Any:
    """``tree`` with every leaf replaced, in the classes that it is made of."""
    level = level_of(tree)
    return function(tree) if level is None else level.rebuild([map_leaves(function, part) for part in level.parts])


def map_tensors(function: Callable[[torch.Tensor], Any], tree: Any) -> Any:
    """``tree`` with every tensor replaced; the other leaves stay."""
    return map_leaves(lambda leaf: function(leaf) if isinstance(leaf, torch.Tensor) else leaf, tree)


def named_leaves(tree: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """The leaves of ``tree`` with names made of those on the way, such as ``batch_mask_0``."""
    level = level_of(tree)
    if level is None:
        yield name, tree
        return
    for key, part in zip(level.names, level.parts, strict=True):
        yield from named_leaves(part, f"{name}_{key}" if name else str(key))
