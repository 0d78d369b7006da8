"""Changes to a recorded program before PyTorch decomposes it, which would lose them.

* Code that runs without gradients is put where it is called, with marks on what it makes (``torch.no_grad``).
* What losses of PyTorch make is marked, since they are decomposed into operators that are no losses.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import torch
import torch.fx

from abele.frontends.poptorch.capture import marks
from abele.frontends.poptorch.capture.recording import QUIET

assert marks, "importing it registers the operators"

_GRADIENTS = "wrap_with_set_grad_enabled"


def rewrite(program: torch.export.ExportedProgram, losses: Collection[Any]) -> None:
    """Change ``program`` in place; see the module.

    Args:
        program: Recorded program.
        losses: Overloads that are losses.
    """
    for module in program.graph_module.modules():
        if isinstance(module, torch.fx.GraphModule):
            _inline_regions(module)
    _detach_noted(program.graph_module.graph)
    _mark_losses(program.graph_module.graph, losses)
    _rename_results(program)
    program.graph_module.recompile()


def _rename_results(program: torch.export.ExportedProgram) -> None:
    """Let the program's signature know results by the names that they have now."""
    (last,) = (n for n in program.graph.nodes if n.op == "output")
    for spec, value in zip(program.graph_signature.output_specs, last.args[0], strict=True):
        before = getattr(spec.arg, "name", None)
        if isinstance(value, torch.fx.Node) and before is not None and before != value.name:
            program.graph_signature.replace_all_uses(before, value.name)


def _inline_regions(module: torch.fx.GraphModule) -> None:
    """Put the bodies of regions with and without gradients in their place."""
    found = [n for n in module.graph.nodes if n.op == "call_function" and _name(n) == _GRADIENTS]
    for node in found:
        enabled, body, *operands = node.args
        assert isinstance(body, torch.fx.Node)
        inner = getattr(module, str(body.target))
        _inline_regions(inner)
        results = _copied(module.graph, node, inner, operands, detach=not enabled)
        for user in list(node.users):
            user.replace_all_uses_with(results[user.args[1]])
            module.graph.erase_node(user)
        module.graph.erase_node(node)
    if found:
        module.recompile()


def _copied(
    graph: torch.fx.Graph, place: torch.fx.Node, inner: torch.fx.GraphModule, operands: list[Any], *, detach: bool
) -> list[Any]:
    """The nodes of a body before ``place``; returns its results."""
    values: dict[torch.fx.Node, Any] = {}
    entering = iter(operands)
    results: list[Any] = []
    with graph.inserting_before(place):
        for node in inner.graph.nodes:
            if node.op == "placeholder":
                values[node] = next(entering)
            elif node.op == "output":
                results = [values.get(v, v) for v in node.args[0]]
            elif node.op == "get_attr":
                values[node] = _adopted(graph, inner, node)
            else:
                values[node] = made = graph.node_copy(node, values.__getitem__)
                made.meta["custom"] = {k: v for k, v in (made.meta.get("custom") or {}).items() if k != QUIET}
                if detach and _is_mutable(made):
                    made.args = (made.args[0], *(_detached(graph, made, a) for a in made.args[1:]))
        made_here = set(values.values()) - set(operands)
        results = [_changed_in_place(v) for v in results]
        return [_detached(graph, place, v) if detach and v in made_here else v for v in results]


def _detach_noted(graph: torch.fx.Graph) -> None:
    """Marks on what calls without gradients make, where export has made no region of them."""
    for node in list(graph.nodes):
        if node.op != "call_function" or not _is_noted(node):
            continue
        if _is_mutable(node):
            node.args = (node.args[0], *(_detached(graph, node, a) for a in node.args[1:]))
            if not _is_noted(_root(node)):
                continue
        users = [user for user in node.users if not _is_noted(user)]
        for user in users if isinstance(node.meta.get("val"), torch.Tensor) else []:
            user.replace_input_with(node, _detached(graph, user, node))


def _is_noted(node: torch.fx.Node) -> bool:
    return QUIET in (node.meta.get("custom") or {})


def _changed_in_place(value: Any) -> Any:
    """Input of the program, if a value is that input after changes in place; other values as they are."""
    root = _root(value)
    return root if isinstance(root, torch.fx.Node) and root.op == "placeholder" else value


def _root(value: Any) -> Any:
    """Node of a value before changes in place."""
    while isinstance(value, torch.fx.Node) and _is_mutable(value) and _name(value).split(".")[0].endswith("_"):
        value = value.args[0]
    return value


def _adopted(graph: torch.fx.Graph, inner: torch.fx.GraphModule, node: torch.fx.Node) -> torch.fx.Node:
    """Attribute of a body, as an attribute of the module around."""
    outer = graph.owning_module
    assert outer is not None
    number = sum(name.startswith("adopted_") for name in dir(outer))
    name = f"adopted_{number}"
    setattr(outer, name, getattr(inner, str(node.target)))
    made = graph.get_attr(name)
    made.meta = dict(node.meta)
    return made


def _detached(graph: torch.fx.Graph, place: torch.fx.Node, value: Any) -> Any:
    """A mark on a floating-point tensor; anything else as it is."""
    fake = value.meta.get("val") if isinstance(value, torch.fx.Node) else None
    if not isinstance(fake, torch.Tensor) or not fake.is_floating_point():
        return value
    with graph.inserting_before(place):
        made = graph.call_function(torch.ops.abele.detached.default, (value,))
    made.meta = {**value.meta, "val": fake}
    return made


def _mark_losses(graph: torch.fx.Graph, losses: Collection[Any]) -> None:
    for node in list(graph.nodes):
        if node.op != "call_function" or node.target not in losses:
            continue
        users = list(node.users)
        with graph.inserting_after(node):
            mark = graph.call_function(torch.ops.abele.loss.default, (node,))
        mark.meta = dict(node.meta)
        for user in users:
            user.replace_input_with(node, mark)


def _is_mutable(node: torch.fx.Node) -> bool:
    return bool(getattr(getattr(node.target, "_schema", None), "is_mutable", False))


def _name(node: torch.fx.Node) -> str:
    return str(getattr(node.target, "__name__", ""))
