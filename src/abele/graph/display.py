"""Views of graphs and tensors: one line, and a card for notebooks.

Neither looks at every element of a large tensor, nor at the vertices of a graph one by one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from abele import card
from abele.arrays import Int32
from abele.graph.variable import Variable
from abele.words import counted, shortened, tiles_text

if TYPE_CHECKING:
    from abele.graph.graph import Graph
    from abele.graph.tensor import Tensor


# Graph as text: its objects, and the tiles of its variables.


def describe(graph: Graph, max_items: int = 100) -> str:
    """Counts, a line per variable with its mapping, and a line per compute set, as text.

    Args:
        graph: The graph.
        max_items: Variables, and compute sets, that are listed at most; the largest, and the first.
    """
    size = sum(v.bytes for v in graph.variables)
    vertices = sum(cs.num_vertices for cs in graph.compute_sets)
    lines = [
        f"graph for {graph.system.name}: {counted(graph.num_tiles, 'tile')}, "
        f"{counted(len(graph.variables), 'variable')} of {size:,} B, "
        f"{counted(len(graph.compute_sets), 'compute set')}, {counted(vertices, 'vertex')}"
    ]
    lines += mapping_table(graph.variables, max_items)
    for compute_set in graph.compute_sets[:max_items]:
        groups = ", ".join(
            f"{group.num:,} × {group.codelet.name} on {counted(len(np.unique(group.tile)), 'tile')}"
            for group in compute_set.groups
        )
        lines.append(f"compute set {compute_set.name}: {groups or 'empty'}")
    if len(graph.compute_sets) > max_items:
        lines.append(f"… and {len(graph.compute_sets) - max_items:,} more compute sets")
    return "\n".join(lines)


def mapping_table(variables: Sequence[Variable], max_items: int = 100) -> list[str]:
    """A line per variable: type, shape, bytes, the tiles it lies on and how evenly.

    The balance is the mean number of elements of the tiles in use by that of the fullest: 100 % is perfectly even.
    """
    listed = sorted(variables, key=lambda v: -v.bytes)[:max_items] if len(variables) > max_items else list(variables)
    rows = [(v.name, f"{v.dtype}{list(v.shape)}", f"{v.bytes:,} B", *placing(v)) for v in listed]
    table = [("variable", "type", "size", "tiles", "balance"), *rows]
    widths = [max(len(row[i]) for row in table) for i in range(len(table[0]))]
    right = {2, 4}
    lines = [
        "  ".join(c.rjust(w) if i in right else c.ljust(w) for i, (c, w) in enumerate(zip(row, widths, strict=True)))
        for row in table
    ]
    if len(variables) > max_items:
        lines.append(f"… and {len(variables) - max_items:,} smaller variables")
    return [line.rstrip() for line in lines]


def placing(variable: Variable) -> tuple[str, str]:
    """The tiles of a variable, and how evenly it lies on them."""
    mapping = variable.mapping
    known = mapping.tile >= 0
    if not known.any():
        return "none" if variable.size else "-", "-"
    used, owner = np.unique(mapping.tile[known], return_inverse=True)
    elements = np.bincount(owner.reshape(-1), weights=mapping.length[known])
    balance = f"{100 * elements.mean() / elements.max():.0f} %"
    span = f"{used[0]}" if len(used) == 1 else f"{used[0]} to {used[-1]}"
    if 1 < len(used) < used[-1] - used[0] + 1:
        span += f" ({len(used):,})"
    missing = variable.size - int(elements.sum())
    return span + (f", {counted(missing, 'element')} unmapped" if missing else ""), balance


_VARIABLES = 3
"""Variables of a tensor that are named."""
_LOOKED_AT = 1 << 14
"""Most elements of a scattered view that are inspected one by one."""
_LONGEST_NAME = 80
_LISTED = 12
"""Variables, and compute sets, that the card of a graph lists."""


def tensor_line(tensor: Tensor) -> str:
    """Type, shape, variables and tiles of a tensor."""
    return f"Tensor({tensor.dtype}{list(tensor.shape)} of {_names(tensor)}{_place(tensor)})"


def _names(tensor: Tensor) -> str:
    known = _known_variables(tensor)
    if known is None:
        return "many elements"
    names = ", ".join(repr(shortened(v.name, _LONGEST_NAME)) for v in known[:_VARIABLES])
    more = f" and {len(known) - _VARIABLES} more" if len(known) > _VARIABLES else ""
    return (names or "nothing") + more


def _known_variables(tensor: Tensor) -> tuple[Variable, ...] | None:
    """Variables of a view; None where finding them would take a scan of very many elements."""
    known = tensor.content.variables
    return tensor.variables if known is not None or tensor.size <= _LOOKED_AT else None


def _place(tensor: Tensor) -> str:
    tiles = _tiles(tensor)
    if tiles is None or not len(tiles):
        return ""
    missing = tiles < 0
    if missing.any():
        return ", unmapped" if missing.all() else ", partly mapped"
    return f", {tiles_text(tiles)}"


def _tiles(tensor: Tensor) -> Int32 | None:
    """The tile of each piece of a view, or of its first variables where that is quicker; None when unknown."""
    if tensor.size <= _LOOKED_AT or tensor.content.single_run is not None:
        return tensor.mapping.tile if tensor.size else None
    known = _known_variables(tensor)
    if not known:
        return None
    return np.concatenate([v.mapping.tile for v in known[:_VARIABLES]])


def tensor_card(tensor: Tensor) -> str:
    """A tensor as HTML."""
    known = _known_variables(tensor)
    facts = [
        ("type", f"{tensor.dtype} ({tensor.dtype.poplar_name})"),
        ("shape", list(tensor.shape)),
        ("size", f"{counted(tensor.size, 'element')}, {tensor.size * tensor.dtype.bytes:,} B"),
        ("tiles", _place(tensor).removeprefix(", ") or "unknown"),
        ("system", tensor.graph.system.name),
    ]
    if known is not None and len(known) == 1:
        variable = known[0]
        facts.append(("part of", f"{variable.kind} {variable.name!r}, {variable.dtype}{list(variable.shape)}"))
        if variable.debug.file:
            facts.append(("made at", variable.debug.location))
        return card.card(f"Tensor {_names(tensor)}", facts)
    return card.card(f"Tensor of {_names(tensor)}", facts, *([_variables(known)] if known else []))


def graph_line(graph: Graph) -> str:
    """System and counts of a graph."""
    tiles = "" if graph.replicas == 1 else f", {graph.replicas} replicas"
    return f"Graph({graph.system.name}: {counted(graph.num_tiles, 'tile')}{tiles}; {_counts(graph)})"


def _counts(graph: Graph) -> str:
    size = sum(v.bytes for v in graph.variables)
    vertices = sum(cs.num_vertices for cs in graph.compute_sets)
    held = f" of {size:,} B" if graph.variables else ""
    return (
        f"{counted(len(graph.variables), 'variable')}{held}, {counted(len(graph.compute_sets), 'compute set')}, "
        f"{counted(vertices, 'vertex')}"
    )


def graph_card(graph: Graph) -> str:
    """A graph as HTML: counts, the largest variables and the first compute sets."""
    system = graph.system
    facts = [("system", f"{system.name} ({system.title}), {counted(graph.num_tiles, 'tile')}")]
    if graph.replicas > 1:
        facts.append(("replicas", f"{graph.replicas} on {graph.whole_system.name}"))
    facts.append(("holds", _counts(graph)))
    parts = [_variables(graph.variables)] if graph.variables else []
    if graph.compute_sets:
        rows = [(cs.name, f"{cs.num_vertices:,}") for cs in graph.compute_sets[:_LISTED]]
        parts.append(card.table(("compute set", "vertices"), [*rows, *_left(graph.compute_sets, 2)], right=(1,)))
    return card.card("Graph", facts, *parts)


def _variables(variables: Sequence[Variable]) -> str:
    listed = sorted(variables, key=lambda v: -v.bytes)[:_LISTED]
    rows = [(v.name, f"{v.dtype}{list(v.shape)}", f"{v.bytes:,}", *placing(v)) for v in listed]
    return card.table(("variable", "type", "bytes", "tiles", "balance"), [*rows, *_left(variables, 5)], right=(2, 4))


def _left(things: Sequence[object], columns: int) -> list[tuple[str, ...]]:
    """A last row that says how many are not listed."""
    left = len(things) - _LISTED
    return [(f"… and {left:,} more", *[""] * (columns - 1))] if left > 0 else []
