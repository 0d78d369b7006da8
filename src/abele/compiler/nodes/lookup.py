"""Compiler's rules for a node: by its kind or, if it decides the next step, by its flow."""

from __future__ import annotations

from abele.compiler.nodes.control import DECISION
from abele.compiler.nodes.meaning import NODES, NodeMeaning
from abele.graph.flow import OneOf, While
from abele.graph.program import Program


def meaning_of(node: Program) -> NodeMeaning:
    """Compiler's rules for a node.

    Raises:
        ControlProgramError: The compiler does not know such a node.
    """
    found = NODES.find(type(node))
    if found is None and isinstance(node.flow(), OneOf | While):
        return DECISION
    return found if found is not None else NODES.of(node)
