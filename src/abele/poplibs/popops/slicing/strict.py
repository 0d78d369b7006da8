"""Checks of offsets and indices that are data, when the program runs: call by call, or for a whole graph."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from weakref import WeakSet

from abele.graph import Graph
from abele.poplibs.poputil.options import flag

VALIDATE_INDICES = flag(None)
"""``validateIndices`` of a call; by default the graph's setting counts."""

_checked: WeakSet[Graph] = WeakSet()


def validate_indices_by_default(graph: Graph, validate: bool = True) -> None:
    """Set if slices, updates and gathers that are built from now on stop the program at an index out of range.

    Without it such an index gives zeros, or changes nothing, unless a call says ``validateIndices``. The checks are
    steps of the program, and cost what they cost; the message of the error names the call and its indices.

    Args:
        graph: Graph of the calls; a virtual graph stands for the whole one.
        validate: False for calls that check nothing again.
    """
    if validate:
        _checked.add(graph.top_level)
    else:
        _checked.discard(graph.top_level)


def validates(graph: Graph, chosen: Mapping[str, Any]) -> bool:
    """True if a call with these options checks its indices."""
    given = chosen["validateIndices"]
    return graph.top_level in _checked if given is None else bool(given)
