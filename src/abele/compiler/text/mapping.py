"""The tile mapping of a graph as text."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from abele.compiler.text.words import bounded
from abele.graph.graph import Graph
from abele.graph.variable import Variable
from abele.words import counted, tiles_text


def mapping_text(graph: Graph, *, most: int = 200) -> str:
    """Tiles of the variables of a graph, one variable per line: bytes, tiles, and bytes per tile.

    Args:
        graph: The graph.
        most: Variables shown, in the order in which they were made; the others are counted.
    """
    return "\n".join(bounded(_lines(graph), most + 2))


def _lines(graph: Graph) -> Iterator[str]:
    total = sum(v.bytes for v in graph.variables)
    tiles = f"{counted(graph.num_tiles, 'tile')} of {graph.system.name}"
    yield f"{counted(len(graph.variables), 'variable')}, {total:,} B on {tiles}"
    if graph.variables:
        yield f"{'variable':<28} {'type and shape':<22} {'bytes':>13}  where"
    for variable in graph.variables:
        shape = f"{variable.dtype}{list(variable.shape)}"
        kind = "" if variable.kind == "variable" else f" ({variable.kind.replace('_', ' ')})"
        yield f"{variable.name:<28} {shape:<22} {variable.bytes:>13,}  {_where(variable)}{kind}"


def _where(variable: Variable) -> str:
    mapping = variable.mapping
    mapped = mapping.tile >= 0
    missing = int(mapping.length[~mapped].sum())
    if not mapped.any():
        return "nowhere" if variable.size else "empty"
    held = np.bincount(mapping.tile[mapped], weights=mapping.length[mapped]).astype(np.int64) * variable.dtype.bytes
    held = held[held > 0]
    low, high = int(held.min()), int(held.max())
    each = f"{high:,} B" if low == high else f"{low:,} to {high:,} B"
    where = f"{tiles_text(mapping.tile[mapped])}: {each}" + (" each" if len(held) > 1 else "")
    pieces = f", {int(mapped.sum()):,} pieces" if int(mapped.sum()) > len(held) else ""
    return where + pieces + (f", {missing:,} elements nowhere" if missing else "")
