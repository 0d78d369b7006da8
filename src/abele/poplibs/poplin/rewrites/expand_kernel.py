"""Folding a kernel into the channels: every output's window of inputs is written out as channels of one position.

The AMP units sum over 16 channels at a time and like long runs of positions. A convolution with few channels, and the
gradient of weights, whose kernel is a whole field, have neither; written out, they are matrix products.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import combinations
from math import gcd, prod

import numpy as np
import numpy.typing as npt

from abele.arrays import Int64
from abele.graph import ComputeSet, Graph, Tensor
from abele.poplibs.poplin.contraction.host_kernel import Binding
from abele.poplibs.poplin.contraction.operand import Operand, operand
from abele.poplibs.poplin.contraction.problem import Contraction
from abele.poplibs.poplin.conv_params.axis import Axis
from abele.poplibs.poplin.lowering.call import ContractionCall, Meaning
from abele.poplibs.poplin.lowering.grid import Slices
from abele.poplibs.poplin.planner.plan import cuts_of
from abele.poplibs.poplin.planner.target import PlanningTarget
from abele.poplibs.poplin.rewrites.flatten_field import flat_windows
from abele.poplibs.poplin.vertices import cost
from abele.poplibs.poplin.vertices import expand as expand_vertex
from abele.poplibs.poplin.vertices import window_fields as at
from abele.poplibs.poplin.vertices.field_table import field_table
from abele.poplibs.poplin.vertices.geometry_fields import FIELD_DIMS

MOST_GROWTH = 64
"""Inputs are not written out more often than this, on average."""
_VECTOR = 8
"""Neighbours in memory that boxes do not part. Chosen: of 4, exchange code of ResNet-50's rewritten inputs was twice as
long, and cycles of its update were 0.1 % fewer."""


def expansions(call: ContractionCall) -> Iterator[ContractionCall]:
    """``call`` with its kernel folded into the channels, along every valid choice of field dimensions.

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
            if all(problem.axes[d].in_step == 1 for d in dims) and growth(problem, dims) <= MOST_GROWTH:
                yield _expanded(call, dims)


def growth(problem: Contraction, dims: tuple[int, ...]) -> float:
    """Factor by which the input grows once it is written out."""
    axes = [problem.axes[d] for d in dims]
    return prod(axis.outputs * axis.kernel / axis.inputs for axis in axes)


def _expanded(call: ContractionCall, dims: tuple[int, ...]) -> ContractionCall:
    problem = call.problem
    axes = tuple(Axis(a.outputs, a.outputs, 1) if d in dims else a for d, a in enumerate(problem.axes))
    taps = prod(problem.axes[d].kernel for d in dims)
    inner = replace(problem, in_channels=problem.in_channels * taps, axes=axes)
    expansion = KernelExpansion(problem, dims, call.x)
    planned = Binding(expansion.allocate(Graph(call.graph.system)), inner.in_dims, 1)
    weights = Binding(folded_kernel(call.w.operand(), dims), inner.weight_dims, 1)
    meaning = call.meaning or Meaning(problem, call.x, call.w, call.out_roles, lambda out: out)
    # PopLibs takes an input whose kernel is expanded, and its weights, to be rearranged; sampling is a view there.
    charged = call.charged + (("input", "weights") if taps > 1 else ())
    wide = replace(call, problem=inner, x=planned, w=weights, meaning=meaning, expansion=expansion, charged=charged)
    return flat_windows(wide) if inner.is_pointwise and not (call.like is not None and wide.is_direct) else wide


def folded_kernel(weights: Operand, dims: tuple[int, ...]) -> Tensor:
    """Weights [g, co, ci, *k] with the kernel along ``dims`` folded into the channels, kernel positions outermost."""
    named = {d: i for i, d in enumerate(weights.dims)}
    tensor = weights.tensor if "g" in named else weights.tensor.expand_dims(0)
    if "g" not in named:
        named = {d: i + 1 for d, i in named.items()} | {"g": 0}
    # Names besides groups, out-channels and in-channels are kernel positions.
    rank = len(named) - 3
    fold = [named[f"k{d}"] for d in dims]
    keep = [named[f"k{d}"] for d in range(rank) if d not in dims]
    turned = tensor.transpose([named["g"], named["co"], *fold, named["ci"], *keep])
    groups, columns = turned.shape[:2]
    channels = prod(turned.shape[2 : 3 + len(fold)])
    kernel = [1 if d in dims else tensor.shape[named[f"k{d}"]] for d in range(rank)]
    return turned.reshape((groups, columns, channels, *kernel))


@dataclass(frozen=True)
class KernelExpansion:
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
        # The outermost kernel position may stay outside the rows if what is left fills the units: then a position
        # writes long runs.
        inner = prod(n for _, n in folded[1:]) * p.in_channels
        outer, rest = (folded[:1], folded[1:]) if inner % cost.weights_per_unit(p.dtype) == 0 else ([], folded)
        return (("g", p.groups), *outer, *rows, *rest, ("ci", p.in_channels))

    def allocate(self, graph: Graph) -> Tensor:
        """A new, unmapped variable for it, as [g, b, channels, *field]."""
        return self._logical(self._variable(graph))

    def _variable(self, graph: Graph) -> Tensor:
        return graph.variable(self.source.tensor.dtype, [n for _, n in self._fine], name="expanded")

    def _logical(self, variable: Tensor) -> Tensor:
        names = [name for name, _ in self._fine]
        field = [f"o{d}" if d in self.dims else f"i{d}" for d in range(self.problem.rank)]
        folded = [f"k{d}" for d in self.dims]
        turned = variable.transpose([names.index(n) for n in ("g", "b", *folded, "ci", *field)])
        shape = turned.shape
        return turned.reshape((*shape[:2], prod(shape[2 : 3 + len(folded)]), *shape[3 + len(folded) :]))

    def estimate(self, machine: PlanningTarget) -> int:
        """Cycles that writing it out is expected to take."""
        elements = prod(n for _, n in self._fine)
        share = np.array([-(-elements // machine.tiles)], dtype=np.int64)
        received = self.source.tensor.size * self.problem.dtype.bytes / machine.tiles
        computing = int(cost.expand(share, self.problem.dtype, turned=self._is_turned)[0])
        return machine.superstep_cycles + int(received / machine.exchange_bytes_per_cycle) + computing

    @property
    def _is_turned(self) -> bool:
        """True if neighbours in the source are not neighbours in the result."""
        return self.source.operand().innermost != "ci" or self.problem.in_channels == 1

    def emit(self, graph: Graph, compute_set: ComputeSet) -> Operand:
        """Add the vertices that write it out, over all tiles; the result."""
        source = self.source.operand()
        variable = self._variable(graph)
        fine = operand(variable, [name for name, _ in self._fine])
        boxes = self._boxes(source, graph.system.ipu.num_tiles)
        reached = self._reach(boxes)
        written = fine.regions(boxes.start, boxes.size)
        tile = (np.arange(written.num, dtype=np.int64) * min(written.num, graph.system.ipu.num_tiles)) // written.num
        graph.map_regions(written, tile.astype(np.int32))
        compute_set.vertices(
            expand_vertex.expand(source.tensor.dtype, turned=self._is_turned),
            tile=tile.astype(np.int32),
            x=source.regions(reached.start, reached.size),
            out=written,
            walk=self._walk(source, fine, boxes, reached),
        )
        return operand(self._logical(variable), self._inner_dims)

    @property
    def _inner_dims(self) -> tuple[str, ...]:
        return ("g", "b", "ci", *(f"i{d}" for d in range(self.problem.rank)))

    def _boxes(self, source: Operand, wanted: int) -> Slices:
        """About ``wanted`` boxes of the result, by name; within one block of the source each."""
        extents = dict(self._fine)
        grains = dict.fromkeys(extents, 1) | {source.innermost: _VECTOR}
        if self.dims:
            # Readers take channels by the group: boxes end where groups do.
            units = cost.weights_per_unit(self.problem.dtype)
            grains[f"k{self.dims[-1]}"] = units // gcd(units, self.problem.in_channels)
        cuts = {name: np.array([0, n], dtype=np.int64) for name, n in extents.items()}
        for name in ("b", "ci"):
            block = source.block(name)
            if block is not None:
                cuts[name] = cuts_of(extents[name], -(-extents[name] // block), block)
        order = sorted((n for n in extents if n not in ("g", "ci", "b")), key=lambda n: -extents[n])
        # Kernel positions of one output need no input twice either, and leave the source's vectors whole.
        once = [f"k{d}" for d in self.dims if self.problem.axes[d].outputs == 1] if source.innermost == "b" else []
        for name in ("g", *once, "b", *(n for n in order if n not in once)):
            boxes = prod(len(c) - 1 for c in cuts.values())
            # About a box per tile, cut along groups and samples first: these need no input twice.
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
        return Slices(start, size)

    def _reach(self, boxes: Slices) -> Slices:
        """The boxes of the source that boxes of the result are made from."""
        start, size = boxes.start, boxes.size
        first = {n: start[n] for n in ("g", "b", "ci")}
        count = {n: size[n] for n in ("g", "b", "ci")}
        for d, axis in enumerate(self.problem.axes):
            i, o, k = f"i{d}", f"o{d}", f"k{d}"
            if d in self.dims:
                first[i], count[i] = axis.input_range(start[o], size[o], start[k], size[k])
            else:
                first[i], count[i] = start[i], size[i]
        return Slices(first, count)

    def _walk(self, source: Operand, fine: Operand, boxes: Slices, reached: Slices) -> npt.NDArray[np.int32]:
        """The numbers that a vertex walks its box by, int32[boxes, fields]."""
        start, size, first, count = boxes.start, boxes.size, reached.start, reached.size
        ours, theirs = fine.local_strides(size), source.local_strides(count)
        fields: dict[int, Int64 | int] = {}
        names = {"g": (at.NUM_G, at.X_G, at.Y_G), "b": (at.NUM_B, at.X_B, at.Y_B), "ci": (at.NUM_CI, at.X_CI, at.Y_CI)}
        for name, (extent, in_source, in_result) in names.items():
            fields[extent] = size[name]
            fields[in_source] = theirs.get((name, False), 0)
            fields[in_result] = ours.get((name, False), 0)
        for d in range(FIELD_DIMS):
            fields |= dict.fromkeys((at.NUM_O[d], at.NUM_K[d], at.NUM_I[d], at.OUT_STEP[d]), 1)
            fields |= dict.fromkeys((at.X_I[d], at.Y_O[d], at.Y_K[d], at.KERNEL_STEP[d], at.OFFSET[d]), 0)
        for d, axis in enumerate(self.problem.axes):
            i, o, k = f"i{d}", f"o{d}", f"k{d}"
            fields |= {at.NUM_I[d]: count[i], at.X_I[d]: theirs.get((i, False), 0)}
            if d not in self.dims:  # this dimension is kept as it is: output o is input o
                fields |= {at.NUM_O[d]: size[i], at.Y_O[d]: ours.get((i, False), 0)}
                continue
            fields |= {at.NUM_O[d]: size[o], at.Y_O[d]: ours.get((o, False), 0)}
            fields |= {at.NUM_K[d]: size[k], at.Y_K[d]: ours.get((k, False), 0)}
            fields |= {at.OUT_STEP[d]: axis.out_step, at.KERNEL_STEP[d]: axis.kernel_step}
            fields[at.OFFSET[d]] = axis.offset + axis.out_step * start[o] + axis.kernel_step * start[k] - first[i]
        return field_table(fields, at.NUM_FIELDS, boxes.num)


def _finer(cuts: Int64, pieces: int, grain: int) -> Int64:
    """Every stretch between cuts in up to ``pieces`` of whole grains."""
    inner = [
        begin + cuts_of(end - begin, max(1, min(pieces, (end - begin) // grain)), grain)[:-1]
        for begin, end in zip(cuts[:-1].tolist(), cuts[1:].tolist(), strict=True)
    ]
    return np.concatenate([*inner, cuts[-1:]])
