"""Bodies of contractions: the compute sets of a plan, wired to operands that are in order.

One superstep of partial products, one for each stage of sums, and one that converts where partials are of another type
than the result and nothing is summed. Operands are not copied here: vertices name regions of them, and the compiler
makes the exchange that brings those to their tiles.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

import numpy as np
import numpy.typing as npt

from abele.arrays import Int64
from abele.graph import ComputeSet, Execute, Graph, Regions, Tensor
from abele.graph.program import Steps
from abele.numerics import ElementType
from abele.poplibs.poplin.contraction.host_kernel import UNSCALED, Onto, Scaling
from abele.poplibs.poplin.contraction.operand import Operand
from abele.poplibs.poplin.lowering.grid import PIECE_BYTES, Home, VertexGrid, geometry, home_of
from abele.poplibs.poplin.planner.plan import ContractionPlan
from abele.poplibs.poplin.planner.sum_stages import stages
from abele.poplibs.poplin.planner.target import PlanningTarget
from abele.poplibs.poplin.vertices import cost, partial_products, sums
from abele.poplibs.poputil.regions import split_evenly

# Stages: the order of a contraction's compute sets.


class ContractionStage(Enum):
    """Task of a compute set of a contraction, by name; contractions side by side share those of one stage."""

    REWRITE = "rewrite"
    """Operands are written anew, as the vertices read them."""
    ARRANGE = "arrange"
    """Rewritten operands are put into another order."""
    PARTIALS = "partials"
    """Partial products."""
    REDUCE_STAGE = "reduce_stage"
    """Some partials become one; more sums follow."""
    REDUCE = "reduce"
    """The last partials are summed."""
    CAST = "cast"
    """Single partials are converted."""
    ARRANGE_OUTPUT = "arrange_output"
    """The result is put into the order in which it is wanted."""

    def compute_set(self, graph: Graph) -> ComputeSet:
        """A new compute set that does it."""
        return graph.compute_set(self.value, self)


# Summing partials: in stages, so that no tile receives from too many others.
#
# The partials of a block lie next to each other in one variable, [block, depth, elements], each mapped to the tile
# that computes it. A share of a block is the same range of elements of each partial: its vertex reads one row for
# each, and neither data nor programs depend on which tiles hold them. A stage of ``step`` leaves ceil(depth / step)
# partials, and its shares are dealt to the tiles that held the partials which were summed, so every element stays
# within the tiles of its block, which are neighbours.
#
# A tile that holds a row of its share reads it where it is, and the others arrive side by side, so one vertex sums
# whole vectors and nothing is copied. Where a tile holds several, rows can be read each where it is (a list of pieces,
# which costs the vertex a little for each), or its further ones be put beside those that arrive (a copy). ``_sum``
# takes whichever the closed forms say is faster.
#
# Example: 64 partials of a block are summed in two stages of ``step`` 8. The first leaves 64 / 8 = 8 partials, the
# second the sum.


@dataclass(frozen=True)
class OutputPartials:
    """Blocks of an output, each as several partials that are contiguous in memory.

    Attributes:
        tensor: The variable that holds them.
        begin: Global address of every partial, int64[blocks, depth].
        size: Elements of every block, int64[blocks].
        interleaved: True if they lie in interleaved memory, as the matrix units write them.
    """

    tensor: Tensor
    begin: Int64
    size: Int64
    interleaved: bool = False

    @property
    def depth(self) -> int:
        """Partials of every block."""
        return int(self.begin.shape[1])

    @staticmethod
    def create(
        graph: Graph, dtype: ElementType, size: Int64, depth: int, *, interleaved: bool = False
    ) -> OutputPartials:
        """Space for ``depth`` partials of every block, one after the other."""
        each = np.repeat(size, depth)
        tensor = graph.variable(dtype, int(each.sum()), name="partials")
        begin = tensor.variables[0].base + np.cumsum(each) - each
        return OutputPartials(tensor, begin.reshape(-1, depth), size, interleaved)

    def regions(self) -> Regions:
        """One region for each partial."""
        each = np.repeat(self.size, self.depth)
        return Regions(np.arange(len(each) + 1, dtype=np.int64), self.begin.reshape(-1), each, self.tensor)

    def rows(self, block: Int64, low: Int64, length: Int64, first: Int64, count: Int64) -> Regions:
        """For each share, the parts of ``count`` partials of its block from partial ``first`` on, after each other."""
        ptr = np.concatenate([[0], np.cumsum(count)])
        share = np.repeat(np.arange(len(block), dtype=np.int64), count)
        partial = first[share] + np.arange(ptr[-1], dtype=np.int64) - ptr[share]
        return Regions(ptr, self.begin[block[share], partial] + low[share], length[share], self.tensor)


def sum_stage(
    graph: Graph, body: Steps, partials: OutputPartials, step: int, tiles: npt.NDArray[np.int32]
) -> OutputPartials:
    """Append a stage that sums every ``step`` partials of a block into one.

    Args:
        graph: The graph.
        body: Program that the compute set is appended to.
        partials: Partials to sum.
        step: Partials that become one.
        tiles: Tiles of every block, which share the work, int32[blocks, tiles per block].
    """
    num_blocks, depth = partials.begin.shape
    groups = -(-depth // step)
    made = OutputPartials.create(graph, partials.tensor.dtype, partials.size, groups)
    block, group = (i.reshape(-1) for i in np.indices((num_blocks, groups), dtype=np.int64))
    first, end = group * depth // groups, (group + 1) * depth // groups
    per_partial = tiles.shape[1] // depth
    share_of, low, length = split_evenly(
        partials.size[block], (end - first) * per_partial, max(1, PIECE_BYTES // partials.tensor.dtype.bytes)
    )
    number = np.arange(len(share_of)) - np.searchsorted(share_of, share_of)
    tile = tiles[block[share_of], first[share_of] * per_partial + number]
    written = Regions(
        np.arange(len(low) + 1, dtype=np.int64), made.begin.reshape(-1)[share_of] + low, length, made.tensor
    )
    graph.map_regions(written, tile)
    rows = partials.rows(block[share_of], low, length, first[share_of], (end - first)[share_of])
    _sum(graph, body, ContractionStage.REDUCE_STAGE, _Shares(tile, rows, written), partials.tensor.dtype)
    return made


@dataclass(frozen=True)
class Channels:
    """Out-channels of every block of an output, and the places that they take in its partials.

    Attributes:
        real: Channels, int64[blocks].
        pitch: Places, int64[blocks]; more than channels where the matrix units write whole groups.
    """

    real: Int64
    pitch: Int64

    @staticmethod
    def of(grid: VertexGrid, out: Operand, where: Home) -> Channels:
        """Channels of a plan: padded, unless they lie in blocks or shares of the output cut positions."""
        real, own = grid.out_channels, grid.out_channels[where.block]
        innermost = out.block("co") is None and (out.innermost == "co" or grid.plan.problem.out_channels == 1)
        whole = not ((where.low % own) | (where.length % own)).any()
        return Channels(real, grid.written_channels if innermost and whole else real)

    @property
    def are_padded(self) -> bool:
        """True if any block has padding."""
        return bool((self.real != self.pitch).any())

    def padded(self, block: Int64, elements: Int64) -> Int64:
        """Elements of blocks, or places in them, with padding."""
        return elements // self.real[block] * self.pitch[block] if self.are_padded else elements

    def fields(self, block: Int64) -> dict[str, Int64]:
        """Fields of vertices that leave padding out."""
        return {"channels": self.real[block], "pitch": self.pitch[block]} if self.are_padded else {}


def _last_rows(partials: OutputPartials, where: Home, channels: Channels) -> Regions:
    """For each share of the output, its part of each partial that is left."""
    count = np.full(len(where.block), partials.depth, dtype=np.int64)
    low, length = (channels.padded(where.block, n) for n in (where.low, where.length))
    return partials.rows(where.block, low, length, np.zeros_like(count), count)


def finish(
    graph: Graph, body: Steps, partials: OutputPartials, output: ElementType, where: Home, channels: Channels
) -> None:
    """Append the last stage: sum the remaining partials of every share, or convert where there is one."""
    rows = _last_rows(partials, where, channels)
    shares = _Shares(where.tile, rows, where.regions, channels.fields(where.block))
    if partials.depth > 1:
        _sum(graph, body, ContractionStage.REDUCE, shares, output)
    else:
        codelet = sums.cast(partials.tensor.dtype, output, interleaved=partials.interleaved, padded=channels.are_padded)
        _reduce(graph, body, ContractionStage.CAST, shares, codelet)


def add_to_total(
    graph: Graph, body: Steps, partials: OutputPartials, where: Home, onto: Onto, channels: Channels
) -> None:
    """Append the last stage where the output is added to what is there: every share's partials, onto the total's.

    Args:
        graph: The graph.
        body: Program that the compute set is appended to.
        partials: Partials that are left.
        where: Shares of the total, each on the tile that holds it.
        onto: The total, and the factor of what is added.
        channels: Channels of its blocks.
    """
    rows = _last_rows(partials, where, channels)
    shares = _Shares(where.tile, rows, where.regions, channels.fields(where.block))
    # In the order in which a product of its own is summed: results are the same, bit for bit.
    first = _own_rows(graph, shares)[0] if _side_by_side(graph, shares, onto.product) else rows.ptr[:-1]
    scaled = onto.scale != 1.0
    codelet = sums.reduce_onto(
        partials.tensor.dtype, onto.product, onto.total.dtype, scaled=scaled, padded=bool(shares.padding)
    )
    own, others = _apart(rows, first)
    compute_set = ContractionStage.REDUCE.compute_set(graph)
    fields = {"factor": onto.scale} if scaled else {}
    compute_set.vertices(codelet, tile=where.tile, first=own, x=others, out=where.regions, **fields, **shares.padding)
    body.add(Execute(compute_set))


def convert(graph: Graph, body: Steps, source: Home, target: Home) -> None:
    """Append what converts each share of one output to the type of another that lies alike."""
    kinds = source.regions.tensor.dtype, target.regions.tensor.dtype
    compute_set = ContractionStage.CAST.compute_set(graph)
    codelet = sums.cast(*kinds, interleaved=False)
    compute_set.vertices(codelet, tile=target.tile, x=source.regions, out=target.regions)
    body.add(Execute(compute_set))


@dataclass(frozen=True)
class _Shares:
    """Shares of the output, each summed by one vertex.

    Attributes:
        tile: Tile of each, int32[n].
        rows: Its partials, one after the other; as many as it has intervals.
        out: Region of its sum.
        padding: Fields of vertices that leave padding out; empty without any.
    """

    tile: npt.NDArray[np.int32]
    rows: Regions
    out: Regions
    padding: dict[str, Int64] = field(default_factory=dict)

    @property
    def sizes(self) -> Int64:
        """Elements of each of its partials, int64[n]."""
        return self.rows.length[self.rows.ptr[:-1]]


def _sum(graph: Graph, body: Steps, stage: ContractionStage, shares: _Shares, output: ElementType) -> None:
    """Sum a tile's own partial and the others side by side, or each where it is, whichever takes less."""
    rows, partials = shares.rows, shares.rows.tensor.dtype
    compute_set, padded = stage.compute_set(graph), bool(shares.padding)
    if _side_by_side(graph, shares, output):
        own, others = _apart(rows, _own_rows(graph, shares)[0])
        codelet = sums.reduce_add(partials, output, padded=padded)
        compute_set.vertices(codelet, tile=shares.tile, first=own, x=others, out=shares.out, **shares.padding)
    else:
        each = Regions(np.arange(len(rows.begin) + 1, dtype=np.int64), rows.begin, rows.length, rows.tensor)
        codelet, index = sums.reduce_add_list(partials, output, padded=padded), np.arange(each.num, dtype=np.int64)
        compute_set.vertices(codelet, tile=shares.tile, x=(each, index, rows.ptr), out=shares.out, **shares.padding)
    body.add(Execute(compute_set))


def _side_by_side(graph: Graph, shares: _Shares, output: ElementType) -> bool:
    """True if partials are put beside each other, a tile's own first; False if each is read where it is."""
    size, depth, partials = shares.sizes, np.diff(shares.rows.ptr), shares.rows.tensor.dtype
    machine = graph.system.ipu
    _, held = _own_rows(graph, shares)
    copied = size * partials.bytes * (held - 1) // machine.tile.memcpy_bytes_per_cycle
    copying = np.where(held > 1, machine.rearrange.local_copy_cycles + copied, 0)
    together = int((cost.reduce_add(size, depth, partials, output) + copying).max(initial=0))
    return together <= int(cost.reduce_add_list(size, depth, partials, output).max(initial=0))


def _apart(rows: Regions, first: Int64) -> tuple[Regions, Regions]:
    """One row of each share, at the places ``first``, and all its others."""
    kept = np.ones(len(rows.begin), dtype=bool)
    kept[first] = False
    others = Regions(rows.ptr - np.arange(len(rows.ptr)), rows.begin[kept], rows.length[kept], rows.tensor)
    return Regions(np.arange(len(first) + 1), rows.begin[first], rows.length[first], rows.tensor), others


def _own_rows(graph: Graph, shares: _Shares) -> tuple[Int64, Int64]:
    """For each share the place of the first row that its tile holds, or of its first row; and how many it holds."""
    rows = shares.rows
    holder = graph.interval_map(rows.tensor.variables).split(rows.begin, np.ones_like(rows.begin))[2]
    start = rows.ptr[:-1]
    is_own = holder == np.repeat(shares.tile, np.diff(rows.ptr))
    place = np.minimum.reduceat(np.where(is_own, np.arange(len(holder)), len(holder)), start)
    return np.where(place < len(holder), place, start), np.add.reduceat(is_own.astype(np.int64), start)


def _reduce(graph: Graph, body: Steps, stage: ContractionStage, shares: _Shares, codelet: type) -> None:
    compute_set = stage.compute_set(graph)
    compute_set.vertices(codelet, tile=shares.tile, x=shares.rows, out=shares.out, **shares.padding)
    body.add(Execute(compute_set))


def build(
    graph: Graph,
    body: Steps,
    plan: ContractionPlan,
    x: Operand,
    w: Operand,
    out: Operand,
    where: Home,
    *,
    scaling: Scaling = UNSCALED,
    onto: Onto | None = None,
    is_part: bool = False,
    target: PlanningTarget | None = None,
) -> None:
    """Append the supersteps of ``plan`` to ``body``.

    Args:
        graph: The graph.
        body: Program that the steps are appended to.
        plan: Split of the contraction over tiles.
        x: The input, channels innermost.
        w: The weights, in-channels innermost.
        out: The output.
        where: Tiles and regions in which the plan leaves the output.
        scaling: Factor of the products.
        onto: The total that the output is added to, of which ``where`` has the shares; None to write it.
        is_part: True for one of several serial parts.
        target: The machine, if operands may arrive in halves.
    """
    grid = VertexGrid(plan)
    sizes = out.local_extents(grid.slices(grid.out_dims).size).prod(axis=1)
    made = None
    total, held = onto, where
    if onto is not None and is_part and where.is_crowded(plan.tiles):
        # Few tiles hold this part of the total: all add partials up, and those few what comes of it.
        made = OutputPartials.create(graph, plan.problem.output, sizes, 1)
        where, onto = home_of(plan, made.regions()), None
        graph.map_regions(where.regions, where.tile)
    products = _Products(grid, x, w, out, scaling, (grid,) if target is None else grid.halves(target))
    _outputs(graph, body, products, where=where, sizes=sizes, onto=onto)
    if made is not None and total is not None:
        channels = VertexGrid(plan).out_channels
        add_to_total(graph, body, made, held, total, Channels(channels, channels))


@dataclass(frozen=True)
class _Products:
    """Partial products of a plan.

    Attributes:
        grid: Its vertices.
        x: The input.
        w: The weights.
        out: The output.
        scaling: Factor of the products.
        halves: The vertices by the half of the in-channels that they multiply, or all at once.
    """

    grid: VertexGrid
    x: Operand
    w: Operand
    out: Operand
    scaling: Scaling
    halves: tuple[VertexGrid, ...]

    def append(self, graph: Graph, body: Steps, written: Regions, pitch: Int64) -> None:
        """Append the supersteps that leave them in ``written``, where out-channels take ``pitch`` places."""
        for grid in self.halves:
            self._append(graph, body, grid, written, pitch)

    def _append(self, graph: Graph, body: Steps, grid: VertexGrid, written: Regions, pitch: Int64) -> None:
        plan, x, w = grid.plan, self.x, self.w
        problem, work = plan.problem, grid.work()
        types, scaled = (x.tensor.dtype, w.tensor.dtype, problem.partials), self.scaling.kind
        if problem.is_pointwise:
            codelet = partial_products.pointwise_partial(plan.method, *types, scaled, adds=grid.half == 1)
        else:
            codelet = partial_products.field_partial(plan.method, *types, scaled)
        compute_set = ContractionStage.PARTIALS.compute_set(graph)
        buffer = plan.method.buffer_elements(written.sizes)
        fields = self.scaling.fields(len(grid.tiles))
        if buffer.any():
            fields["buffer"] = _buffer(graph, problem.partials, buffer, grid)
        compute_set.vertices(
            codelet,
            tile=grid.tiles,
            x=grid.shared(x, grid.input_dims),
            w=grid.shared(w, grid.weight_dims),
            out=written,
            geometry=geometry(problem.axes, grid.all, x, w, self.out, pitch),
            groups=work.groups,
            in_channels=work.in_channels,
            out_channels=work.out_channels,
            positions=work.positions,
            outputs=work.outputs,
            run=work.run,
            kernel_outer=work.kernel_outer,
            kernel_inner=work.kernel_inner,
            **fields,
        )
        body.add(Execute(compute_set))


def _outputs(graph: Graph, body: Steps, products: _Products, *, where: Home, sizes: Int64, onto: Onto | None) -> None:
    """Append partial products, and the sums that leave blocks of ``sizes`` at their homes or on the total."""
    grid = products.grid
    plan = grid.plan
    if onto is None and not plan.needs_finish:
        products.append(graph, body, where.regions, grid.all.size["co"])
        return
    channels = Channels.of(grid, products.out, where)
    sizes = channels.padded(np.arange(len(sizes)), sizes)
    interleaved = plan.method.family == "amp"
    partials = OutputPartials.create(graph, plan.problem.partials, sizes, plan.depth, interleaved=interleaved)
    written = partials.regions()
    graph.map_regions(written, grid.tiles)
    products.append(graph, body, written, np.repeat(channels.pitch, plan.depth))
    for step in stages(plan.depth)[:-1]:
        partials = sum_stage(graph, body, partials, step, grid.tiles.reshape(-1, plan.depth))
    if onto is None:
        finish(graph, body, partials, plan.problem.output, where, channels)
    else:
        add_to_total(graph, body, partials, where, onto, channels)


def _buffer(graph: Graph, dtype: ElementType, size: Int64, grid: VertexGrid) -> Regions:
    """Space of each vertex beside its partials."""
    made = OutputPartials.create(graph, dtype, size, 1).regions()
    graph.map_regions(made, grid.tiles)
    return made
