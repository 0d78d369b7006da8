"""Calls that no handler knows as other calls, by PyTorch's own rules, one call at a time.

Recording the whole program again by PyTorch's ``run_decompositions`` makes a new table of all composite operators for
each round, half a second however small the program. Recording the one call takes some milliseconds, and calls that are
alike share what was recorded.
"""

from __future__ import annotations

import functools
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
import torch.fx
import torch.utils._pytree as pytree
from torch._subclasses.functional_tensor import dispatch_functionalize
from torch.fx.experimental.proxy_tensor import make_fx

from abele.frontends.poptorch.capture import torch_export

_KEPT: OrderedDict[Any, torch.fx.GraphModule] = OrderedDict()
_MOST_KEPT = 512


def decomposed(node: torch.fx.Node) -> torch.fx.GraphModule | None:
    """A call as a graph of other calls that changes none of its operands; None where PyTorch has no rule for it.

    Placeholders are the tensors among the call's arguments, in their order; what it gives is nested as the call's
    result is. The graph may be one that was given before: whoever reads it keeps nothing by its nodes.

    Args:
        node: The call; the nodes that it reads know their results without data.
    """
    rule = _rule(node.target)
    if rule is None:
        return None
    leaves, structure = pytree.tree_flatten(torch_export.map_args(torch_export.fake, node))
    key = _key(node, leaves, structure)
    if key is not None and key in _KEPT:
        _KEPT.move_to_end(key)
        return _KEPT[key]
    made = _record(rule, leaves, structure)
    if made is not None and not any(n.op == "call_function" and n.target == node.target for n in made.graph.nodes):
        if key is not None:
            _KEPT[key] = made
            if len(_KEPT) > _MOST_KEPT:
                _KEPT.popitem(last=False)
        return made
    return None


def operands_of(node: torch.fx.Node) -> list[torch.fx.Node]:
    """The nodes of tensors among a call's arguments, one for each placeholder of what :func:`decomposed` gives."""
    leaves = pytree.tree_leaves((node.args, node.kwargs), is_leaf=lambda leaf: isinstance(leaf, torch.fx.Node))
    return [n for n in leaves if isinstance(n, torch.fx.Node) and isinstance(torch_export.fake(n), torch.Tensor)]


def _record(rule: Callable[..., Any], leaves: list[Any], structure: pytree.TreeSpec) -> torch.fx.GraphModule | None:
    places = [i for i, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor)]

    def flat(*tensors: torch.Tensor) -> Any:
        filled = list(leaves)
        for place, tensor in zip(places, tensors, strict=True):
            filled[place] = tensor
        args, kwargs = pytree.tree_unflatten(filled, structure)
        result = rule(*map(_plain_lists, args), **{name: _plain_lists(value) for name, value in kwargs.items()})
        if result is NotImplemented:
            raise NotImplementedError
        return result

    with _recording(leaves):
        try:
            made = make_fx(dispatch_functionalize(flat))(*[leaves[i] for i in places])
        except NotImplementedError:
            return None
    made.graph.eliminate_dead_code()
    return made


def _plain_lists(tree: Any) -> Any:
    """Arguments with lists as the rules expect them: those of graphs cannot be changed."""
    return [_plain_lists(part) for part in tree] if isinstance(tree, list) else tree


@contextmanager
def _recording(leaves: list[Any]) -> Iterator[None]:
    """In the mode of the tensors without data, without gradients: networks have derivatives of their own."""
    mode = torch._guards.detect_fake_mode(leaves)
    with ExitStack() as stack:
        stack.enter_context(torch.no_grad())
        stack.enter_context(torch_export.without_reports_of_matrices())
        if mode is not None:
            stack.enter_context(mode)
        yield


def _key(node: torch.fx.Node, leaves: list[Any], structure: pytree.TreeSpec) -> Any:
    """Key of recordings with the same result; None where that cannot be said."""
    described = [
        ("tensor", tuple(leaf.shape), leaf.dtype, leaf.stride())
        if isinstance(leaf, torch.Tensor)
        else (type(leaf), leaf)
        for leaf in leaves
    ]
    key = (node.target, str(structure), tuple(described))
    try:
        hash(key)
    except TypeError:
        return None
    return key


def _rule(target: Any) -> Callable[..., Any] | None:
    """PyTorch's rule for an overload: that of its tables, or else its own composite kernel."""
    rule = _table().get(target)
    if rule is not None or not isinstance(target, torch._ops.OpOverload):
        return rule
    return getattr(target, "impl_aten", None) or target.decompose  # What decomposing gives may be of prims, too.


@functools.cache
def _table() -> dict[Any, Callable[..., Any]]:
    """PyTorch's own tables, which take a while to make: what exporting takes apart, and then all that it could."""
    from torch._decomp import decomposition_table

    table: Any = torch.export.default_decompositions()
    return {**decomposition_table, **dict(table.items())}
