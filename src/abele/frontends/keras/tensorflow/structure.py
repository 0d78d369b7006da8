"""Structures as TensorFlow nests them: tuples, named tuples, lists and dicts, whose keys go in order."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from abele.errors import TypeMismatchError


def flatten(tree: Any, *, lists: bool = True) -> list[Any]:
    """The leaves of a structure, depth first.

    Args:
        tree: The structure; what is no tuple, list or dict is a leaf.
        lists: False where a list stands for a tensor, as in the elements of a dataset.
    """
    found: list[Any] = []
    _collect(tree, lists, found)
    return found


def _collect(tree: Any, lists: bool, found: list[Any]) -> None:
    children = _children(tree, lists)
    if children is None:
        found.append(tree)
        return
    for child in children:
        _collect(child, lists, found)


def _children(tree: Any, lists: bool) -> list[Any] | None:
    if isinstance(tree, Mapping):
        return [tree[key] for key in sorted(tree)]
    if (type(tree) is tuple or hasattr(tree, "_fields")) and isinstance(tree, tuple):
        return list(tree)
    return tree if type(tree) is list and lists else None


def pack(template: Any, leaves: list[Any], *, lists: bool = True) -> Any:
    """A structure of the form of ``template`` with other leaves."""
    return _packed(template, iter(leaves), lists)


def _packed(template: Any, leaves: Iterator[Any], lists: bool) -> Any:
    children = _children(template, lists)
    if children is None:
        return next(leaves)
    if isinstance(template, Mapping):
        made = {key: _packed(template[key], leaves, lists) for key in sorted(template)}
        ordered = {key: made[key] for key in template}
        return ordered if type(template) is dict else type(template)(ordered)  # type: ignore[call-arg]
    parts = [_packed(child, leaves, lists) for child in children]
    return type(template)(*parts) if hasattr(template, "_fields") else type(template)(parts)


def map_structure(function: Callable[..., Any], *trees: Any, lists: bool = True, **_: Any) -> Any:
    """Apply a function to the leaves of structures of one form.

    Raises:
        TypeMismatchError: The structures have different forms.
    """
    for tree in trees[1:]:
        assert_same_structure(trees[0], tree, lists=lists)
    leaves = [flatten(tree, lists=lists) for tree in trees]
    return pack(trees[0], [function(*each) for each in zip(*leaves, strict=True)], lists=lists)


def assert_same_structure(first: Any, second: Any, *, lists: bool = True, **_: Any) -> None:
    """Do nothing if two structures have one form.

    Raises:
        TypeMismatchError: They differ.
    """
    if _form(first, lists) != _form(second, lists):
        raise TypeMismatchError(
            "two structures differ", because=f"first   {_form(first, lists)}\nsecond  {_form(second, lists)}"
        )


def _form(tree: Any, lists: bool) -> Any:
    children = _children(tree, lists)
    if children is None:
        return "."
    if isinstance(tree, Mapping):
        return {key: _form(tree[key], lists) for key in sorted(tree)}
    return (
        type(tree)(_form(child, lists) for child in children)
        if not hasattr(tree, "_fields")
        else (tuple(_form(child, lists) for child in children))
    )
