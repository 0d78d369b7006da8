"""Folding a kernel into the channels: every output's window of inputs is written out as channels of one position.

The AMP units sum over 16 channels at a time and like long runs of positions. A convolution with few channels, and the
gradient of weights, whose kernel is a whole field, have neither; written out, they are matrix products.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, reduce
from itertools import combinations
from math import gcd, prod

import numpy as np
import numpy.typing as npt

from abele.arrays import Int64
from abele.graph import ComputeSet, Graph, Tensor
from abele.graph.intervals import distinct
from abele.machine import Ipu
from abele.poplibs.poplin.contraction.host_kernel import Binding
from abele.poplibs.poplin.contraction.operand import Box, Operand, allocate, blocked, operand
from abele.poplibs.poplin.contraction.problem import Contraction
from abele.poplibs.poplin.conv_params.axis import Axis
from abele.poplibs.poplin.lowering.call import ContractionCall, Meaning
from abele.poplibs.poplin.lowering.grid import Slices
from abele.poplibs.poplin.lowering.storage import is_in_vectors
from abele.poplibs.poplin.planner.plan import cuts_of
from abele.poplibs.poplin.planner.target import PlanningTarget
from abele.poplibs.poplin.rewrites.flatten_field import flat_samples, flat_windows
from abele.poplibs.poplin.rewrites.whole_groups import FilledKernel
from abele.poplibs.poplin.vertices import cost
from abele.poplibs.poplin.vertices import expand as expand_vertex
from abele.poplibs.poplin.vertices import window_fields as at
from abele.poplibs.poplin.vertices.field_table import field_table
from abele.poplibs.poplin.vertices.geometry_fields import FIELD_DIMS

MOST_GROWTH = 64
"""Inputs are not written out more often than this, on average."""
_MOST_CUTS = 100_000
"""Ways to cut a result into boxes above which fewer are looked at. Chosen."""
Strides = Mapping[tuple[str, bool], Int64]
_LEAST_FULL = 16
"""Channels for each zero beside them, at least. Chosen: products take a sixteenth longer at most."""
_VECTOR = 8
"""Neighbours in memory that boxes do not part. Chosen: of 4, exchange code of ResNet-50's rewritten inputs was twice as
long, and cycles of its update were 0.1 % fewer."""


def expansions(call: ContractionCall, *, pads: bool = False) -> Iterator[ContractionCall]:
    """``call`` with its kernel folded into the channels, along every valid choice of field dimensions.

    Args:
        call: The contraction.
        pads: Zeros are added to the channels where that makes whole groups of them.

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
                yield _expanded(call, dims, pads=pads)


def growth(problem: Contraction, dims: tuple[int, ...]) -> float:
    """Factor by which the input grows once it is written out."""
    axes = [problem.axes[d] for d in dims]
    return prod(axis.outputs * axis.kernel / axis.inputs for axis in axes)


def _expanded(call: ContractionCall, dims: tuple[int, ...], *, pads: bool) -> ContractionCall:
    problem = call.problem
    axes = tuple(Axis(a.outputs, a.outputs, 1) if d in dims else a for d, a in enumerate(problem.axes))
    taps = prod(problem.axes[d].kernel for d in dims)
    inner = replace(problem, in_channels=problem.in_channels * taps, axes=axes)
    weights = Binding(folded_kernel(call.w.operand(), dims), inner.weight_dims, 1)
    group, tiles = channel_group(weights, problem), call.graph.system.ipu.num_tiles
    pads = pads and group == cost.weights_per_unit(problem.dtype)
    expansion = KernelExpansion(problem, dims, call.x, group, tiles, pads)
    zeros = expansion.channels - inner.in_channels
    inner, widening = replace(inner, in_channels=expansion.channels), call.widening
    if zeros:
        inside = tuple(d for d in dims if f"k{d}" in expansion.shared)
        filled = FilledKernel(call.w.operand(), inner, dims, inside, expansion.zeros)
        weights, widening = Binding(filled.allocate(Graph(call.graph.system)), inner.weight_dims, 1), filled
    planned = Binding(expansion.allocate(Graph(call.graph.system)), inner.in_dims, 1)
    meaning = call.meaning or Meaning(problem, call.x, call.w, call.out_roles, lambda out: out)
    # PopLibs takes an input whose kernel is expanded, and its weights, to be rearranged; sampling is a view there.
    charged = call.charged + (("input", "weights") if taps > 1 else ())
    wide = replace(call, problem=inner, x=planned, w=weights, meaning=meaning, expansion=expansion, charged=charged)
    wide = replace(wide, widening=widening, zeros=zeros)
    if call.like is not None and wide.is_direct:
        return wide
    if inner.is_pointwise:
        return flat_windows(wide, expansion, field_first=expansion.has_field_first)
    if inner.batch == 1 or not any(axis.is_pointwise for axis in axes):
        return wide
    return flat_samples(wide, expansion, field_first=expansion.has_field_first)


def channel_group(other: Binding, problem: Contraction) -> int:
    """Channels of a group in which an operand is wanted: as the other one has them, or as the units take them."""
    block = other.operand().block("ci")
    return block if block and is_in_vectors(other.operand(), 1) else cost.weights_per_unit(problem.dtype)


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
        group: Channels of a group in which readers want them.
        tiles: Tiles that write it.
        pads: True if zeros may fill the last group, where neither channels nor kernel positions do.
    """

    problem: Contraction
    dims: tuple[int, ...]
    source: Binding
    group: int
    tiles: int
    pads: bool = False

    @cached_property
    def shared(self) -> tuple[str, ...]:
        """Folded kernel positions that fill groups together with the channels; none where channels do so alone, or
        where nothing fills them.
        """
        names: tuple[str, ...] = ()
        channels = self.problem.in_channels
        for d in reversed(self.dims):
            if self._fills_groups(channels):
                break
            names, channels = (f"k{d}", *names), channels * self.problem.axes[d].kernel
        is_one = self.source.operand().block("ci") is None
        return names if self._fills_groups(channels) and is_one and self._fills_tiles(names) else ()

    def _fills_groups(self, channels: int) -> bool:
        """True if channels are whole groups, with few zeros where these are allowed."""
        zeros = -channels % self.group
        return zeros == 0 or (self.pads and zeros * _LEAST_FULL <= channels)

    @cached_property
    def zeros(self) -> int:
        """Channels of zeros that fill groups: 4 beside 20 samples of each of 7 kernel positions, which are 9 groups."""
        channels = self._grouped_channels
        return -channels % self.group if self.shared and self._fills_groups(channels) else 0

    @property
    def channels(self) -> int:
        """Channels of the result, kernel positions and zeros among them."""
        outside = prod(self.problem.axes[d].kernel for d in self.dims if f"k{d}" not in self.shared)
        return outside * (self._grouped_channels + self.zeros)

    @property
    def _grouped_channels(self) -> int:
        """Channels, with the kernel positions that are in groups with them."""
        return prod(self.problem.axes[int(n[1:])].kernel for n in self.shared) * self.problem.in_channels

    def _fills_tiles(self, shared: Sequence[str]) -> bool:
        """True if there are boxes for half of the tiles at least, where kernel positions but the first are not cut."""
        p = self.problem
        cut = [axis.outputs if d in self.dims else axis.inputs for d, axis in enumerate(p.axes)]
        cut += [p.axes[d].kernel for d in self.dims if f"k{d}" not in shared[1:]]
        return 2 * p.groups * -(-p.batch // _VECTOR) * prod(cut) // self._aligned(shared) >= self.tiles

    def _aligned(self, shared: Sequence[str]) -> int:
        """Positions of the first of kernel dimensions in groups with the channels after which a group ends."""
        inside = prod(self.problem.axes[int(n[1:])].kernel for n in shared[1:]) * self.problem.in_channels
        return self.group // gcd(self.group, inside)

    @cached_property
    def _is_grouped(self) -> bool:
        """True if channels are stored in groups; blocks of the source are then whole groups, or parts of one."""
        block = self.source.operand().block("ci") or self.group
        channels = self._grouped_channels + self.zeros
        return channels % self.group == 0 and 0 in (block % self.group, self.group % block)

    @cached_property
    def _extents(self) -> dict[str, int]:
        """Extents of the result by name, in the order of storage but for groups of channels.

        Channels lie in groups inside of samples and field, and the groups outside of them: a reader of some groups
        finds each in long runs. Without groups, all channels lie together.
        """
        p = self.problem
        field = {
            f"o{d}" if d in self.dims else f"i{d}": a.outputs if d in self.dims else a.inputs
            for d, a in enumerate(p.axes)
        }
        kernel = {f"k{d}": p.axes[d].kernel for d in self.dims}
        # Rows of a product are samples and field. Else readers cut dimensions that are kept more often than samples.
        kept = {n: extent for n, extent in field.items() if n[0] == "i"} if self._slides else {}
        windows = {n: extent for n, extent in field.items() if n not in kept}
        rows = {**windows, "b": p.batch} if self.has_field_first else {"b": p.batch, **windows}
        rows = {**kept, **rows}
        if self._is_grouped:
            return {"g": p.groups, **kernel, "ci": p.in_channels, **rows}
        # The outermost kernel position may stay outside the rows if what is left fills the units: then a position
        # writes long runs.
        first = f"k{self.dims[0]}"
        inner = prod(kernel.values()) // kernel[first] * p.in_channels
        outer = {first: kernel.pop(first)} if inner % cost.weights_per_unit(p.dtype) == 0 else {}
        return {"g": p.groups, **outer, **rows, **kernel, "ci": p.in_channels}

    @property
    def has_field_first(self) -> bool:
        """True if rows have windows outside of samples: where windows are fewer than what each holds."""
        axes = [self.problem.axes[d] for d in self.dims]
        return prod(axis.outputs for axis in axes) < prod(axis.kernel for axis in axes)

    @property
    def _slides(self) -> bool:
        """True if a kernel is left in some dimension."""
        return any(not axis.is_pointwise for d, axis in enumerate(self.problem.axes) if d not in self.dims)

    def allocate(self, graph: Graph) -> Tensor:
        """A new, unmapped variable for it, as [g, b, channels, *field]."""
        return self._logical(self._allocated(graph))

    def _allocated(self, graph: Graph) -> Operand:
        """A new variable for it, dimensions by name; ``ci`` are the channels with the kernel positions in groups."""
        extents = {n: extent for n, extent in self._extents.items() if n not in self.shared}
        extents["ci"] = self._grouped_channels + self.zeros
        order = [n for n in extents if n != "ci"]
        at = list(extents).index("ci")
        if self._is_grouped:
            order.insert(at, "ci1")
        dims = blocked([*order, "ci0"], {"ci": self.group}, extents)
        return allocate(graph, self.source.tensor.dtype, extents, dims, "expanded")

    def _logical(self, made: Operand) -> Tensor:
        field = [f"o{d}" if d in self.dims else f"i{d}" for d in range(self.problem.rank)]
        channels = [*(f"k{d}" for d in self.dims if f"k{d}" in made.dims), "ci"]
        turned = made.tensor.transpose([made.dims.index(n) for n in ("g", "b", *channels, *field)])
        shape, last = turned.shape, 2 + len(channels)
        return turned.reshape((*shape[:2], prod(shape[2:last]), *shape[last:]))

    def estimate(self, machine: PlanningTarget) -> int:
        """Cycles that writing it out is expected to take."""
        elements = prod(self._extents.values())
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
        source, made = self.source.operand(), self._allocated(graph)
        boxes = self._boxes(source, made, graph.system.ipu)
        reached, filled = self._reach(boxes), self._filled(boxes)
        written = made.regions(filled.start, filled.size)
        tile = (np.arange(written.num, dtype=np.int64) * min(written.num, graph.system.ipu.num_tiles)) // written.num
        graph.map_regions(written, tile.astype(np.int32))
        compute_set.vertices(
            expand_vertex.expand(source.tensor.dtype, turned=self._is_turned),
            tile=tile.astype(np.int32),
            x=source.regions(reached.start, reached.size),
            out=written,
            walk=self._walk(boxes, source.local_strides(reached.size), made.local_strides(filled.size), reached),
        )
        return operand(self._logical(made), self._inner_dims)

    @property
    def _inner_dims(self) -> tuple[str, ...]:
        return ("g", "b", "ci", *(f"i{d}" for d in range(self.problem.rank)))

    def _boxes(self, source: Operand, made: Operand, ipu: Ipu) -> Slices:
        """Boxes of the result, by name; within one block of the source each."""
        cuts = self._cuts(source, made, ipu)
        counts = [len(c) - 1 for c in cuts.values()]
        index = np.unravel_index(np.arange(prod(counts), dtype=np.int64), counts)
        start = {n: c[:-1][i] for (n, c), i in zip(cuts.items(), index, strict=True)}
        size = {n: np.diff(c)[i] for (n, c), i in zip(cuts.items(), index, strict=True)}
        return Slices(start, size)

    def _cuts(self, source: Operand, made: Operand, ipu: Ipu) -> dict[str, Int64]:
        """First index of boxes along each dimension, and its end: the cuts that are expected to take the fewest cycles.

        All numbers of parts of all dimensions are costed at once: what the fullest tile writes, receives, and in how
        many pieces.
        """
        extents = self._extents
        blocks = {
            n: min(source.block(n) or extents[n], extents[n]) if n in ("b", "ci") else extents[n] for n in extents
        }
        grains = self._grains(source)
        lists = [_part_counts(-(-blocks[n] // grains[n]), ipu.num_tiles) for n in extents]
        while prod(map(len, lists)) > _MOST_CUTS:
            longest = max(range(len(lists)), key=lambda i: len(lists[i]))
            lists[longest] = lists[longest][::2]
        parts = dict(zip(extents, (g.reshape(-1) for g in np.meshgrid(*lists, indexing="ij")), strict=True))
        boxes = reduce(np.multiply, [parts[n] * -(-extents[n] // blocks[n]) for n in extents])
        units = {n: -(-blocks[n] // grains[n]) for n in extents}
        size = {n: np.minimum(cost.ceil_div(units[n], parts[n]) * grains[n], blocks[n]) for n in extents}
        start = dict.fromkeys(extents, np.zeros_like(boxes))
        reached, filled = (way(Slices(start, size)).size for way in (self._reach, self._filled))
        exchange, element = ipu.exchange, self.problem.dtype.bytes
        arriving, leaving = _pieces(source, reached), _pieces(made, filled)
        received = reduce(np.multiply, reached.values()) * element // exchange.bytes_per_cycle
        # A piece is sent and received; who reads the result receives it in the pieces in which it is written.
        moving = received + exchange.fragment_cycles * (2 * arriving + leaving)
        writing = cost.expand(reduce(np.multiply, size.values()), self.problem.dtype, turned=self._is_turned)
        best = int(np.argmin(-(-boxes // ipu.num_tiles) * (writing + moving)))
        return {n: _cut(extents[n], blocks[n], int(parts[n][best]), grains[n]) for n in extents}

    def _grains(self, source: Operand) -> dict[str, int]:
        """Factor that boxes are multiples of, along each dimension; those of whole dimensions are never cut."""
        extents, shared = self._extents, self.shared
        grains = dict.fromkeys(extents, 1) | {source.innermost: _VECTOR} | {n: extents[n] for n in shared[1:]}
        grains["ci"] = extents["ci"]
        # Readers take channels by the group: boxes end where groups do.
        units = cost.weights_per_unit(self.problem.dtype)
        if shared:
            grains[shared[0]] = self._aligned(shared)
        elif self.dims:
            grains[f"k{self.dims[-1]}"] = units // gcd(units, self.problem.in_channels)
        return grains

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

    def _filled(self, boxes: Slices) -> Slices:
        """The boxes of the result, in which some kernel positions count as channels."""
        start, size = ({n: s for n, s in side.items() if n not in self.shared} for side in (boxes.start, boxes.size))
        for name in reversed(self.shared):
            # Only the outermost is cut, so what lies inside of it is whole.
            start["ci"] = start["ci"] + boxes.start[name] * size["ci"]
            size["ci"] = size["ci"] * boxes.size[name]
        if self.zeros:
            size["ci"] = size["ci"] + self.zeros * (start["ci"] + size["ci"] == self._grouped_channels)
        return Slices(start, size)

    def _walk(self, boxes: Slices, theirs: Strides, ours: Strides, reached: Slices) -> npt.NDArray[np.int32]:
        """The numbers that a vertex walks its box by, int32[boxes, fields]; strides in the source and the result."""
        start, size, first, count = boxes.start, boxes.size, reached.start, reached.size
        fields: dict[int, Int64 | int] = {}
        names = {"g": (at.NUM_G, at.X_G, at.Y_G), "b": (at.NUM_B, at.X_B, at.Y_B), "ci": (at.NUM_CI, at.X_CI, at.Y_CI)}
        for name, (extent, in_source, in_result) in names.items():
            fields[extent] = size[name]
            fields[in_source] = theirs.get((name, False), 0)
            fields[in_result] = ours.get((name, False), 0)
        channels = size["ci"]
        for name in reversed(self.shared):
            fields[at.C_K[int(name[1:])]] = channels
            channels = channels * size[name]
        zeros = self._filled(boxes).size["ci"] - channels
        fields |= {at.FIRST_ZERO: channels, at.NUM_ZEROS: zeros}
        stored = channels + zeros
        fields[at.GROUP] = np.minimum(stored, self.group) if ("ci", True) in ours else stored
        fields[at.Y_GROUP] = ours.get(("ci", True), 0)
        for d in range(FIELD_DIMS):
            fields |= dict.fromkeys((at.NUM_O[d], at.NUM_K[d], at.NUM_I[d], at.OUT_STEP[d]), 1)
            fields |= dict.fromkeys((at.X_I[d], at.Y_O[d], at.Y_K[d], at.KERNEL_STEP[d], at.OFFSET[d]), 0)
            fields.setdefault(at.C_K[d], 0)
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


def _pieces(operand: Operand, size: Box) -> Int64:
    """Pieces of memory that boxes of an operand are made of, int64[n]."""
    local = operand.local_extents(size)
    whole = np.array([entry.extent for entry in operand.entries], dtype=np.int64)
    # A dimension is in one piece with the next outer one where all that lies inside of it is whole.
    inside = np.cumprod((local == whole)[:, :0:-1], axis=1)[:, ::-1]
    return np.asarray(np.where(inside, 1, local[:, :-1]).prod(axis=1), dtype=np.int64)


def _part_counts(units: int, most: int) -> Int64:
    """Numbers of parts that are worth a look, one first: the fewest for each size of the largest."""
    sizes = distinct(-(-units // np.arange(1, min(units, most) + 1, dtype=np.int64)))
    return distinct(-(-units // sizes))


def _cut(extent: int, block: int, parts: int, grain: int) -> Int64:
    """First index of parts of every block of a dimension, and its end: whole grains, spread evenly."""
    within = [begin + cuts_of(min(block, extent - begin), parts, grain)[:-1] for begin in range(0, extent, block)]
    return distinct(np.append(np.concatenate(within), extent))
