"""A tensor in words: one line of facts, and a line for each contiguous piece."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from abele.words import counted, tiles_text

if TYPE_CHECKING:
    from abele.graph.tensor import Tensor

_MOST_PIECES = 1000
"""Pieces that :func:`pieces_text` lists."""


def facts_text(tensor: Tensor) -> str:
    """Type, shape, variables, tiles and permissions of the view, in one line."""
    variables, tiles = tensor.variables, tensor.mapping.tile
    where = tiles_text(np.unique(tiles[tiles >= 0]))
    facts = f"contiguous={tensor.is_contiguous}, aliases={tensor.contains_aliases}, constant={tensor.contains_constant}"
    names = counted(len(variables), "variable") if len(variables) != 1 else repr(variables[0].name)
    return f"Tensor({tensor.dtype.poplar_name}, {list(tensor.shape)}, {names}, {where}, {facts})"


def pieces_text(tensor: Tensor) -> str:
    """:func:`facts_text`, then a line per contiguous piece: place in the view, variable, tiles."""
    lines = [facts_text(tensor)]
    at = 0
    regions = tensor.var_regions()
    for variable, interval in regions[:_MOST_PIECES]:
        tiles = variable.mapping.tiles_over(interval.begin, interval.end)
        on = "no tile" if (tiles < 0).all() else tiles_text(tiles[tiles >= 0])
        here = f"[{at}:{at + interval.size})"
        lines.append(f"  {here:<16} {variable.name}[{interval.begin}:{interval.end}) on {on}")
        at += interval.size
    if len(regions) > _MOST_PIECES:
        lines.append(f"  … and {len(regions) - _MOST_PIECES:,} more pieces")
    return "\n".join(lines)
