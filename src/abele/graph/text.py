"""Graph as text: its objects, and the tiles of its variables."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from abele.graph.variable import Variable
from abele.words import counted

if TYPE_CHECKING:
    from abele.graph.graph import Graph


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
