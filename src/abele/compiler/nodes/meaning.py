"""Table of the compiler's rules for nodes."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from abele.graph.debug import DebugRecord
from abele.graph.meanings import Meanings

if TYPE_CHECKING:
    from abele.compiler.analyse import Analysis
    from abele.compiler.lower import Step
    from abele.compiler.superstep import Superstep


def _no_reason(node: Any) -> str | None:
    return None


def _no_lines(node: Any) -> Iterable[str]:
    return ()


def _own_origin(node: Any) -> DebugRecord:
    debug: DebugRecord = node.debug
    return debug


@dataclass(frozen=True)
class NodeMeaning:
    """Compiler's rules for a kind of node, as the step that it becomes.

    Attributes:
        kind: Gives the kind of step, one of ``step_kinds.KINDS``.
        analyse: Gives the effect and cost of one execution, with the services of the analysis.
        origin: Gives the debug record that names the step: one with scopes if that was made inside of some.
        differs: Gives the reason for which its results differ between replicas whatever it reads, in words; None if
            they do not.
        why: Gives lines that say why it moves data, for listings.
    """

    kind: Callable[[Any], str]
    analyse: Callable[[Analysis, Step], Superstep]
    origin: Callable[[Any], DebugRecord] = _own_origin
    differs: Callable[[Any], str | None] = _no_reason
    why: Callable[[Any], Iterable[str]] = _no_lines


NODES: Meanings[NodeMeaning] = Meanings("can be compiled")
"""Rules for each kind of node; decisions of loops and branches go by their flow."""
