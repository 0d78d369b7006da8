"""Slices: part of each operand that every vertex of a planned contraction works on.

There is one vertex for each combination of parts, and one tile for each vertex. The order of vertices is that of
``ContractionPlan.split_dims``, in which dimensions that are summed over come last: so the vertices of one output
block, whose partials are summed, are neighbours, and a block's partials are a row of a [blocks, depth] array. The order
of *tiles* is another one: parts of the out-channels vary fastest, because their tiles want the same input, and the
exchange delivers to an even and the next odd tile at once.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import prod

import numpy as np
import numpy.typing as npt

from abele.arrays import Int64
from abele.graph import Regions
from abele.poplibs.poplin.contraction.operand import Operand
from abele.poplibs.poplin.lowering.geometry import Slices
from abele.poplibs.poplin.planner.plan import ContractionPlan
from abele.poplibs.poplin.vertices.work import Work


@dataclass(frozen=True)
class VertexGrid:
    """The vertices of a plan: one for every combination of parts, those of one output block next to each other."""

    plan: ContractionPlan

    @property
    def num(self) -> int:
        """Number of vertices."""
        return self.plan.tiles

    @cached_property
    def tiles(self) -> npt.NDArray[np.int32]:
        """Tile of every vertex: neighbours differ in their out-channels, so that pairs of tiles want the same input.

        Passes of a layer that are planned together number their tiles alike, whatever its dimensions are to each.
        """
        dims = self.plan.problem.split_dims
        # Number the tiles with the out-channels innermost, then read the numbers in the order of vertices.
        numbered = self.plan.order or sorted(dims, key="co".__eq__)
        ranks = np.arange(self.num, dtype=np.int32).reshape([self.plan.split[dim] for dim in numbered])
        return np.ascontiguousarray(ranks.transpose([numbered.index(dim) for dim in dims])).reshape(-1)

    def _index(self, dims: tuple[str, ...]) -> dict[str, Int64]:
        """Part along each of ``dims`` for every combination of their parts."""
        parts = [self.plan.split[d] for d in dims]
        index = np.unravel_index(np.arange(prod(parts), dtype=np.int64), parts)
        return dict(zip(dims, (np.asarray(i, dtype=np.int64) for i in index), strict=True))

    def slices(self, dims: tuple[str, ...]) -> Slices:
        """Start and size along ``dims`` and along the inputs that they reach, for every combination of parts."""
        start: dict[str, Int64] = {}
        size: dict[str, Int64] = {}
        for dim, part in self._index(dims).items():
            starts, sizes = self.plan.pieces(dim)
            start[dim], size[dim] = starts[part], sizes[part]
        for d, axis in enumerate(self.plan.problem.axes):
            o, k = f"o{d}", f"k{d}"
            if o in start and k in start:
                start[f"i{d}"], size[f"i{d}"] = axis.input_range(start[o], size[o], start[k], size[k])
        return Slices(start, size)

    @cached_property
    def all(self) -> Slices:
        """The slices of every vertex, along every dimension."""
        return self.slices(self.plan.problem.split_dims)

    def shared(self, operand: Operand, dims: tuple[str, ...]) -> tuple[Regions, Int64]:
        """Regions of an operand that depends on the split ``dims`` alone, and the region of every vertex."""
        part = self.slices(dims)
        everyone = self._index(self.plan.problem.split_dims)
        index = np.ravel_multi_index([everyone[d] for d in dims], [self.plan.split[d] for d in dims])
        return operand.regions(part.start, part.size), np.asarray(index, dtype=np.int64)

    @property
    def input_dims(self) -> tuple[str, ...]:
        """Split dimensions that the slice of the input depends on."""
        return tuple(d for d in self.plan.problem.split_dims if d != "co")

    @property
    def weight_dims(self) -> tuple[str, ...]:
        """Split dimensions that the slice of the weights depends on."""
        return tuple(d for d in self.plan.problem.split_dims if d in ("g", "co", "ci") or d[0] == "k")

    @property
    def out_dims(self) -> tuple[str, ...]:
        """Split dimensions that the slice of the output depends on."""
        return tuple(d for d in self.plan.problem.split_dims if d in ("g", "b", "co") or d[0] == "o")

    def work(self) -> Work:
        """Work of every vertex."""
        problem, slices = self.plan.problem, self.all
        size, rank = slices.size, problem.rank
        everyone = self._index(problem.split_dims)
        ones = np.ones(self.num, dtype=np.int64)
        positions, field, taps = size["b"].astype(np.float64), ones, ones
        for d, axis in enumerate(problem.axes):
            cuts = [
                np.append(starts, starts[-1] + sizes[-1]) for starts, sizes in map(self.plan.pieces, (f"o{d}", f"k{d}"))
            ]
            # Padding and dilation leave positions without an input: a vertex works on the pairs that meet, not on
            # outputs times kernel.
            pairs = axis.count_pairs(*cuts)[everyone[f"o{d}"], everyone[f"k{d}"]]
            positions = positions * pairs / size[f"k{d}"]
            field, taps = field * size[f"o{d}"], taps * size[f"k{d}"]
        inner = size[f"k{rank - 1}"] if rank else ones
        outputs = size["b"] * field
        return Work(
            dtype=problem.dtype,
            partials=problem.partials,
            groups=size["g"],
            in_channels=size["ci"],
            out_channels=size["co"],
            positions=np.ceil(positions).astype(np.int64),
            outputs=outputs,
            run=size[f"o{rank - 1}"] if rank else outputs,
            kernel_outer=taps // inner,
            kernel_inner=inner,
        )
