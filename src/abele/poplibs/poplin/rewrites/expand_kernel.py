"""Folding a kernel into the channels: every output's window of inputs is written out as channels of one position.

The AMP units sum over 16 channels at a time and like long runs of positions. A convolution with few channels, and the
gradient of weights, whose kernel is a whole field, have neither; written out, they are matrix products.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import combinations
from math import prod

import numpy as np
import numpy.typing as npt

from abele.graph import ComputeSet, Graph, Tensor
from abele.poplibs.poplin.contraction.binding import Binding
from abele.poplibs.poplin.contraction.operand import Operand, operand
from abele.poplibs.poplin.contraction.problem import Contraction
from abele.poplibs.poplin.conv_params.axis import Axis, Int64
from abele.poplibs.poplin.lowering.call import Call, Meaning
from abele.poplibs.poplin.planner.plan import cuts_of
from abele.poplibs.poplin.planner.target import Target
from abele.poplibs.poplin.vertices import cost
from abele.poplibs.poplin.vertices import expand as expand_vertex
from abele.poplibs.poplin.vertices.expand import FIELD_DIMS

_MOST_GROWTH = 64
"""Inputs are not written out more often than this, on average."""
_VECTOR = 4
"""Neighbours in memory that boxes do not part."""


def expansions(call: Call) -> Iterator[Call]:
    """``call`` with its kernel folded into the channels, along every choice of field dimensions for which that is one.

    Dimensions whose kernel has one position but that are not pointwise (strides) are always among them.
    """
    problem = call.problem
    if not all(op.is_regular for op in (call.x.operand(), call.w.operand())):
        return
    sampled = tuple(d for d, axis in enumerate(problem.axes) if axis.kernel == 1 and not axis.is_pointwise)
    wide = tuple(d for d, axis in enumerate(problem.axes) if axis.kernel > 1)
    for count in range(0 if sampled else 1, len(wide) + 1):
        for chosen in combinations(wide, count):
            dims = tuple(sorted({*sampled, *chosen}))
            if all(problem.axes[d].in_step == 1 for d in dims) and _growth(problem, dims) <= _MOST_GROWTH:
                yield _expanded(call, dims)


def _growth(problem: Contraction, dims: tuple[int, ...]) -> float:
    """How many times as many elements the input has once it is written out."""
    axes = [problem.axes[d] for d in dims]
    return prod(axis.outputs * axis.kernel / axis.inputs for axis in axes)


def _expanded(call: Call, dims: tuple[int, ...]) -> Call:
    problem = call.problem
    axes = tuple(Axis(a.outputs, a.outputs, 1) if d in dims else a for d, a in enumerate(problem.axes))
    taps = prod(problem.axes[d].kernel for d in dims)
    inner = replace(problem, in_channels=problem.in_channels * taps, axes=axes)
    expansion = Expansion(problem, dims, call.x)
    planned = Binding(expansion.allocate(Graph(call.graph.system)), inner.in_dims, 1)
    weights = Binding(_folded(call.w.operand(), dims), inner.weight_dims, 1)
    meaning = call.meaning or Meaning(problem, call.x, call.w, call.out_roles, lambda out: out)
    return replace(call, problem=inner, x=planned, w=weights, meaning=meaning, expansion=expansion)


def _folded(weights: Operand, dims: tuple[int, ...]) -> Tensor:
    """Weights [g, co, ci, *k] with the kernel along ``dims`` folded into the channels, kernel positions outermost."""
    named = {d: i for i, d in enumerate(weights.dims)}
    tensor = weights.tensor if "g" in named else weights.tensor.expand_dims(0)
    if "g" not in named:
        named = {d: i + 1 for d, i in named.items()} | {"g": 0}
    rank = len(named) - 3
    fold = [named[f"k{d}"] for d in dims]
    keep = [named[f"k{d}"] for d in range(rank) if d not in dims]
    turned = tensor.transpose([named["g"], named["co"], *fold, named["ci"], *keep])
    groups, columns = turned.shape[:2]
    channels = prod(turned.shape[2 : 3 + len(fold)])
    kernel = [1 if d in dims else tensor.shape[named[f"k{d}"]] for d in range(rank)]
    return turned.reshape((groups, columns, channels, *kernel))


@dataclass(frozen=True)
class Expansion:
    """An input that is written out.

    Attributes:
        problem: The contraction before.
        dims: Field dimensions whose kernel is folded into the channels.
        source: The input before.
    """

    problem: Contraction
    dims: tuple[int, ...]
    source: Binding

    @cached_property
    def _fine(self) -> tuple[tuple[str, int], ...]:
        """Storage: names and extents, outermost first; folded kernel positions and channels innermost."""
        p = self.problem
        field = [(f"o{d}", a.outputs) if d in self.dims else (f"i{d}", a.inputs) for d, a in enumerate(p.axes)]
        folded = [(f"k{d}", p.axes[d].kernel) for d in self.dims]
        rows = [("b", p.batch), *field]
        inner = prod(n for _, n in folded[1:]) * p.in_channels
        outer, rest = (folded[:1], folded[1:]) if inner % cost.weights_per_unit(p.dtype) == 0 else ([], folded)
        return (("g", p.groups), *outer, *rows, *rest, ("ci", p.in_channels))

    def allocate(self, graph: Graph) -> Tensor:
        """A new, unmapped variable for it, as [g, b, channels, *field]."""
        return self._logical(self._variable(graph))

    def _variable(self, graph: Graph) -> Tensor:
        return graph.variable(self.problem.dtype, [n for _, n in self._fine], name="expanded")

    def _logical(self, variable: Tensor) -> Tensor:
        names = [name for name, _ in self._fine]
        field = [f"o{d}" if d in self.dims else f"i{d}" for d in range(self.problem.rank)]
        folded = [f"k{d}" for d in self.dims]
        turned = variable.transpose([names.index(n) for n in ("g", "b", *folded, "ci", *field)])
        shape = turned.shape
        return turned.reshape((*shape[:2], prod(shape[2 : 3 + len(folded)]), *shape[3 + len(folded) :]))

    def estimate(self, machine: Target) -> int:
        """Cycles that writing it out is expected to take."""
        elements = prod(n for _, n in self._fine)
        share = np.array([-(-elements // machine.tiles)], dtype=np.int64)
        received = self.source.tensor.size * self.problem.dtype.bytes / machine.tiles
        computing = int(cost.expand(share, self.problem.dtype, turned=self._is_turned)[0])
        return machine.superstep_cycles + int(received / machine.exchange_bytes_per_cycle) + computing

    @property
    def _is_turned(self) -> bool:
        """Whether what lies next to each other in the source does not in the result."""
        return self.source.operand().innermost != "ci" or self.problem.in_channels == 1

    def emit(self, graph: Graph, compute_set: ComputeSet) -> Operand:
        """Add the vertices that write it out, over all tiles; the result."""
        problem, source = self.problem, self.source.operand()
        variable = self._variable(graph)
        fine = operand(variable, [name for name, _ in self._fine])
        start, size = self._boxes(source, graph.system.ipu.num_tiles)
        reach_start, reach_size = self._reach(start, size)
        written = fine.regions(start, size)
        tile = (np.arange(written.num, dtype=np.int64) * min(written.num, graph.system.ipu.num_tiles)) // written.num
        graph.map_regions(written, tile.astype(np.int32))
        compute_set.vertices(
            expand_vertex.expand(problem.dtype, turned=self._is_turned),
            tile=tile.astype(np.int32),
            x=source.regions(reach_start, reach_size),
            out=written,
            walk=self._walk(source, fine, start, size, reach_start, reach_size),
        )
        return operand(self._logical(variable), self._inner_dims)

    @property
    def _inner_dims(self) -> tuple[str, ...]:
        return ("g", "b", "ci", *(f"i{d}" for d in range(self.problem.rank)))

    def _boxes(self, source: Operand, wanted: int) -> tuple[dict[str, Int64], dict[str, Int64]]:
        """Start and size of about ``wanted`` boxes of the result, by name; within one block of the source each."""
        extents = dict(self._fine)
        grains = dict.fromkeys(extents, 1) | {source.innermost: _VECTOR}
        cuts = {name: np.array([0, n], dtype=np.int64) for name, n in extents.items()}
        for name in ("b", "ci"):
            block = source.block(name)
            if block is not None:
                cuts[name] = cuts_of(extents[name], -(-extents[name] // block), block)
        order = sorted((n for n in extents if n not in ("g", "ci", "b")), key=lambda n: -extents[n])
        for name in ("g", "b", *order):
            boxes = prod(len(c) - 1 for c in cuts.values())
            if boxes * 2 > wanted:
                break
            pieces = -(-wanted // boxes)
            if len(cuts[name]) > 2:
                cuts[name] = _finer(cuts[name], pieces, grains[name])
            else:
                parts = max(1, min(pieces, extents[name] // grains[name]))
                cuts[name] = cuts_of(extents[name], parts, grains[name])
        counts = [len(c) - 1 for c in cuts.values()]
        index = np.unravel_index(np.arange(prod(counts), dtype=np.int64), counts)
        start = {n: c[:-1][i] for (n, c), i in zip(cuts.items(), index, strict=True)}
        size = {n: np.diff(c)[i] for (n, c), i in zip(cuts.items(), index, strict=True)}
        return start, size

    def _reach(self, start: dict[str, Int64], size: dict[str, Int64]) -> tuple[dict[str, Int64], dict[str, Int64]]:
        """The boxes of the source that boxes of the result are made from."""
        first = {n: start[n] for n in ("g", "b", "ci")}
        count = {n: size[n] for n in ("g", "b", "ci")}
        for d, axis in enumerate(self.problem.axes):
            i, o, k = f"i{d}", f"o{d}", f"k{d}"
            if d in self.dims:
                first[i], count[i] = axis.input_range(start[o], size[o], start[k], size[k])
            else:
                first[i], count[i] = start[i], size[i]
        return first, count

    def _walk(
        self,
        source: Operand,
        fine: Operand,
        start: dict[str, Int64],
        size: dict[str, Int64],
        first: dict[str, Int64],
        count: dict[str, Int64],
    ) -> npt.NDArray[np.int32]:
        """What a vertex is told of its box: see :mod:`~abele.poplibs.poplin.vertices.expand`."""
        ones = np.ones(len(size["b"]), dtype=np.int64)
        zeros = np.zeros_like(ones)
        ours, theirs = fine.local_strides(size), source.local_strides(count)
        columns = []
        for name in ("g", "b", "ci"):
            columns += [size[name], theirs.get((name, False), zeros), ours.get((name, False), zeros)]
        for d in range(FIELD_DIMS):
            if d >= self.problem.rank:
                columns += [ones, zeros, ones, zeros, ones, zeros, ones, zeros, zeros]
                continue
            i, o, k = f"i{d}", f"o{d}", f"k{d}"
            stride = theirs.get((i, False), zeros)
            if d in self.dims:
                axis = self.problem.axes[d]
                shift = axis.offset + axis.out_step * start[o] + axis.kernel_step * start[k] - first[i]
                steps = [axis.out_step * ones, axis.kernel_step * ones]
                rows = [size[o], ours.get((o, False), zeros), size[k], ours.get((k, False), zeros)]
                columns += [*rows, count[i], stride, *steps, shift]
            else:
                columns += [size[i], ours.get((i, False), zeros), ones, zeros, count[i], stride, ones, zeros, zeros]
        return np.stack(columns, axis=1).astype(np.int32)


def _finer(cuts: Int64, pieces: int, grain: int) -> Int64:
    """Every stretch between cuts in up to ``pieces`` of whole grains."""
    inner = [
        begin + cuts_of(end - begin, max(1, min(pieces, (end - begin) // grain)), grain)[:-1]
        for begin, end in zip(cuts[:-1].tolist(), cuts[1:].tolist(), strict=True)
    ]
    return np.concatenate([*inner, cuts[-1:]])
