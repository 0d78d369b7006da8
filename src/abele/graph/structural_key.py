"""Key of all that a library function can see of its operands; equal operands share it.

A function that makes part of a graph sees types, shapes, which elements views show, tile mappings, and contents of
constants. It sees addresses only by comparing them: which of two variables comes first, and whether one ends where the
other begins (intervals that touch are joined), the first of the variables still to be made among them. Operands that
agree in all of that are alike, so the function makes alike things of them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Hashable, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from abele.graph.mapping import TileMapping
from abele.graph.tensor import Tensor
from abele.graph.variable import Variable

if TYPE_CHECKING:
    from abele.graph.graph import Graph

_SMALL = 64
"""Elements up to which a constant's contents are in the key; of larger ones it has the digest."""


def digest(*arrays: npt.NDArray[Any]) -> bytes:
    """Digest of the elements of some arrays, the same in every process."""
    found = hashlib.blake2b(digest_size=16)
    for array in arrays:
        found.update(array.tobytes())
        found.update(b"|")
    return found.digest()


class Likeness:
    """Keys of operands in one graph.

    Args:
        graph: The graph.
    """

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._mappings: dict[tuple[int, int], tuple[TileMapping, bytes]] = {}
        self._contents: dict[int, bytes] = {}

    def of(self, tensors: Sequence[Tensor | None], first_tile: int = 0) -> tuple[Hashable, list[Variable]] | None:
        """A key of some operands together, and their variables in order of appearance.

        None where a view has only a list of addresses, of which no key is made.

        Args:
            tensors: The operands.
            first_tile: That of the IPU on which they are worked with: tiles are told by how far from it they are.
        """
        numbers: dict[Variable, int] = {}

        def number(variable: Variable) -> int:
            return numbers.setdefault(variable, len(numbers))

        views: list[Hashable] = []
        for tensor in tensors:
            if tensor is None:
                views.append(None)
                continue
            content = tensor.content
            form = content.form(number)
            if form is None:
                return None
            views.append((tensor.shape, tensor.dtype.name, type(content).__name__, form))
        variables = list(numbers)
        likes = tuple(self._variable(v, first_tile) for v in variables)
        return (tuple(views), likes, self._order(variables)), variables

    def _variable(self, variable: Variable, first_tile: int) -> Hashable:
        contents: Hashable = None
        if variable.is_constant and variable.initial is not None:
            contents = self._contents_of(variable)
        return variable.shape, variable.dtype.name, variable.kind, self._mapping(variable.mapping, first_tile), contents

    def _contents_of(self, variable: Variable) -> bytes:
        """Contents of a constant, or their digest."""
        assert variable.initial is not None
        if variable.size <= _SMALL:
            return variable.initial.tobytes()
        known = self._contents.get(variable.id)
        if known is None:
            known = self._contents[variable.id] = digest(variable.initial)
        return known

    def _mapping(self, mapping: TileMapping, first_tile: int) -> bytes:
        """Digest of a mapping, equal for mappings that look alike from a tile."""
        known = self._mappings.get((id(mapping), first_tile))
        if known is None:
            near = mapping.shifted(-first_tile)
            known = mapping, digest(np.array((near.size, near.is_complete)), near.begin, near.tile)
            self._mappings[id(mapping), first_tile] = known
        return known[1]

    def _order(self, variables: Sequence[Variable]) -> Hashable:
        """Order of variables in memory, and adjacency: true where one follows the last directly."""
        order = sorted(range(len(variables)), key=lambda n: (variables[n].base, variables[n].id))
        placed = [variables[n] for n in order]
        touching = [a.base + a.size == b.base for a, b in pairwise(placed)]
        last = bool(placed) and placed[-1].base + placed[-1].size == self._graph.num_elements
        return tuple(order), tuple(touching), last
