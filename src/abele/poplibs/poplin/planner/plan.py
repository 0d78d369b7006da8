"""Plans: the split of a contraction over the tiles, its vertex, and its expected cost."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import prod

import numpy as np

from abele.arrays import Int64
from abele.poplibs.poplin.contraction.problem import Contraction
from abele.poplibs.poplin.vertices.method import Method


@dataclass(frozen=True)
class ContractionPlan:
    """A contraction's parallel split, its vertex and its expected cost.

    Attributes:
        problem: Contraction that is planned.
        method: The vertex.
        parts: Parts of every split dimension, in the order of ``problem.split_dims``.
        grains: Factor that parts of each dimension are multiples of (but for the last part).
        terms: Expected cycles, term by term; they add up.
        temporary_bytes: Memory of the fullest tile for slices and partials.
        available_bytes: The bound that the search kept to.
        order: Dimensions in which the tiles are numbered, outermost first; where it is empty, the split dimensions with
            the out-channels last.
        is_limited: True if a split that needs more memory than that might be faster.
    """

    problem: Contraction
    method: Method
    parts: tuple[int, ...]
    grains: tuple[int, ...]
    terms: tuple[tuple[str, int], ...]
    temporary_bytes: int
    available_bytes: int
    order: tuple[str, ...] = ()
    is_limited: bool = field(default=False, compare=False)

    @property
    def split(self) -> dict[str, int]:
        """Parts of every dimension by name."""
        return dict(zip(self.problem.split_dims, self.parts, strict=True))

    @property
    def tiles(self) -> int:
        """Tiles that compute."""
        return prod(self.parts)

    @property
    def depth(self) -> int:
        """Partials of every output element."""
        split = self.split
        return prod(split[dim] for dim in self.problem.summed_dims)

    @property
    def cycles(self) -> int:
        """Expected cycles."""
        return sum(n for _, n in self.terms)

    @property
    def needs_finish(self) -> bool:
        """True if partials are summed or converted after the vertices."""
        return self.depth > 1 or self.problem.partials != self.problem.output

    def pieces(self, dim: str) -> tuple[Int64, Int64]:
        """First index and size of every part of a dimension, int64[parts] each."""
        at = self.problem.split_dims.index(dim)
        cuts = cuts_of(self.problem.extents[dim], self.parts[at], self.grains[at])
        return cuts[:-1], np.diff(cuts)

    def __str__(self) -> str:
        split = " ".join(f"{dim}/{n}" for dim, n in self.split.items() if n > 1) or "no split"
        lines = [
            f"plan for {self.problem}",
            f"  {self.method}, {split}: {self.tiles:,} tiles, {self.depth} partials an output",
            f"  {self.cycles:>10,} cycles",
        ]
        lines += [f"  {cycles:>10,}   {name}" for name, cycles in self.terms]
        lines.append(
            f"  {self.temporary_bytes:>10,} B temporary on the fullest tile of {self.available_bytes:,} B allowed"
        )
        return "\n".join(lines)


def cuts_of(extent: int, parts: int, grain: int) -> Int64:
    """First index of every part of ``extent``, and the end: whole grains, spread evenly, int64[parts + 1]."""
    grains = -(-extent // grain)
    return np.minimum(np.arange(parts + 1, dtype=np.int64) * grains // parts * grain, extent)
