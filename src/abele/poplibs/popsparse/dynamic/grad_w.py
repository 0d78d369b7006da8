"""Placed program of the gradient of the values: grad · Xᵀ at the places of a sparse matrix.

A value of cell (x, y) needs the rows of x of the gradient and those of y of the input, over all columns z. Either
buckets go round the tiles with the sums of their values and come home at the end, or the dense slices go round and
buckets stay. The plan chooses what moves less. The first pass goes round the z tiles of the cell; further ones serve
what spilt, as in the product.

Example: buckets of 130 values and 274 entries are 1,068 bytes with sums in f32; slices of 25 + 40 rows and 8 columns
in f16 are 1,040 bytes, so slices go round.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from abele.graph import Execute, Graph, Tensor
from abele.graph.program import Sequence
from abele.numerics import f32, u32
from abele.poplibs.popsparse.dynamic import costs
from abele.poplibs.popsparse.dynamic.codelets import clear_codelet, reduce_codelet, weights_codelet
from abele.poplibs.popsparse.dynamic.host_form import host_weights_steps
from abele.poplibs.popsparse.dynamic.plan import DynamicPlan
from abele.poplibs.popsparse.dynamic.tensors import (
    SliceShape,
    SparseViews,
    Zone,
    copies,
    create_by_tile,
    dense_slices,
    flops_of,
    rows_shape,
    tile_numbers,
    zones,
)
from abele.poplibs.popsparse.dynamic.transport import Transport
from abele.poplibs.popsparse.dynamic.walk import Walked
from abele.poplibs.popsparse.dynamic.work import full_work, pass_cycles
from abele.poplibs.poputil.host_body import note_host


@dataclass(frozen=True)
class ValueGradient:
    """The gradient of the values of S in S·X.

    Attributes:
        graph: The graph.
        plan: The plan.
        sparse: S by tiles; its values are not read.
        grad: Gradient of the product [groups, rows of S, columns].
        acts: X [groups, columns of S, columns].
        name: Name of the steps.
    """

    graph: Graph
    plan: DynamicPlan
    sparse: SparseViews
    grad: Tensor
    acts: Tensor
    name: str

    @property
    def shapes(self) -> tuple[SliceShape, SliceShape]:
        """Rows of the gradient and of the input by tiles."""
        return rows_shape(self.plan, by_x=True), rows_shape(self.plan, by_x=False)

    def emit(self, prog: Sequence) -> Tensor:
        """Append the program; returns the gradient, laid out as the values are."""
        graph, plan = self.graph, self.plan
        shapes = self.shapes
        sums = create_by_tile(graph, plan, f32, plan.nz_slots * plan.area, f"{self.name}/sums")
        given = (self.grad, self.acts)
        slices = [
            create_by_tile(graph, plan, dense.dtype, shape.each * plan.columns, f"{self.name}/slice")
            for shape, dense in zip(shapes, given, strict=True)
        ]
        tile = np.arange(plan.num_tiles)
        ids = np.stack([tile % plan.group_tiles // plan.parts[2] + 1, tile % plan.parts[2]], 1)
        cells = graph.constant(u32, (plan.num_tiles, 2), ids, name=f"{self.name}/cells")
        graph.map_rows(cells, list(range(plan.num_tiles)))
        call = graph.library_call(
            prog,
            "popsparse.dynamic.take_slices",
            inputs=(self.grad, self.acts),
            outputs=(*slices, sums),
            flops=flops_of(plan),
            debug_name="take_slices",
        )
        with call as body:
            self._take(body, shapes, slices, sums)
        note_host(prog, Sequence())
        return self._result(prog, self._journey(prog, slices, cells, sums))

    def _journey(self, prog: Sequence, slices: list[Tensor], cells: Tensor, sums: Tensor) -> Tensor:
        """Append all passes; returns the sums."""
        meta = self.sparse.meta
        if self.plan.moves_buckets:
            travel = Transport(
                self.graph,
                self.plan,
                [meta, sums],
                [],
                lambda body, came: self._compute(body, came[0], slices, cells, came[1]),
                self.name,
            )
            return travel.emit_whole(prog, self.sparse.info, returns=True)[1]
        travel = Transport(
            self.graph,
            self.plan,
            [*slices, cells],
            [sums],
            lambda body, came: self._compute(body, meta, came[:2], came[2], sums),
            self.name,
            back=True,
        )
        travel.emit_whole(prog, self.sparse.info, returns=False)
        return sums

    def _take(self, body: Sequence, shapes: tuple[SliceShape, SliceShape], slices: list[Tensor], sums: Tensor) -> None:
        """Bring each tile its slices; what is beyond the matrix is zero, and so are sums."""
        plan, step = self.plan, self.graph.compute_set("zero")
        for tensor in (sums, *slices):
            cycles = int(costs.zero_cycles(tensor.shape[1] * tensor.dtype.bytes))
            step.vertices(
                clear_codelet(tensor.dtype),
                tile=np.arange(plan.num_tiles),
                cycles=np.full(plan.num_tiles, -(-cycles // costs.WORKERS)),
                out=tensor,
            )
        body.add(Execute(step))
        sources, targets = [], []
        for shape, dense, slice_ in zip(shapes, (self.grad, self.acts), slices, strict=True):
            for row_zone in zones(shape.parts, shape.each, shape.rows):
                for column_zone in zones(plan.parts[2], plan.columns, plan.layer.batchSize):
                    source, target = self._zone(shape, dense, slice_, row_zone, column_zone)
                    sources.append(source)
                    targets.append(target)
        for copy in copies(sources, targets):
            body.add(copy)

    def _zone(
        self, shape: SliceShape, dense: Tensor, slice_: Tensor, row_zone: Zone, column_zone: Zone
    ) -> tuple[Tensor, Tensor]:
        """Slices of a zone, and where they go; rows stay as far apart as in a whole slice."""
        found = dense_slices(dense, row_zone, column_zone)
        groups, parts, columns, _ = found.shape
        each, wide = row_zone.each, column_zone.each
        grid = slice_.reshape((*tile_numbers(self.plan).shape, shape.each, self.plan.columns))
        if shape.by_x:
            found = found.reshape((groups, parts, 1, columns, each, wide))
            grid = grid[:, row_zone.parts, :, column_zone.parts, :each, :wide]
        else:
            found = found.reshape((groups, 1, parts, columns, each, wide))
            grid = grid[:, :, row_zone.parts, column_zone.parts, :each, :wide]
        return found.broadcast_to(grid.shape), grid

    def _compute(self, body: Sequence, meta: Tensor, slices: list[Tensor], cells: Tensor, sums: Tensor) -> None:
        """Vertices of one step."""
        plan, step = self.plan, self.graph.compute_set("value_gradients")
        cycles = self._cycles() + costs.BUFFER_INDEX_CYCLES
        how = Walked.of(plan, f32)
        step.vertices(
            self._codelet(how),
            tile=np.arange(plan.num_tiles),
            cycles=np.full(plan.num_tiles, -(-cycles // costs.WORKERS)),
            meta=meta,
            grad=slices[0],
            acts=slices[1],
            out=sums,
            cell=cells,
            columns=plan.columns,
        )
        body.add(Execute(step))

    def _cycles(self) -> int:
        """Cycles of a vertex with a full bucket."""
        return pass_cycles(self.plan, "gradW", full_work(self.plan, 1))

    def _codelet(self, how: Walked) -> type:
        return weights_codelet(how)

    def _result(self, prog: Sequence, sums: Tensor) -> Tensor:
        """The gradient in the type of the values."""
        graph, plan = self.graph, self.plan
        made = create_by_tile(graph, plan, plan.dtype, sums.shape[1], f"{self.name}/gradient")
        call = graph.library_call(
            prog,
            "popsparse.dynamic.gradient",
            inputs=(sums, self.sparse.meta.flatten(), self.grad, self.acts),
            outputs=(made,),
            debug_name="gradient",
        )
        with call as body:
            step = graph.compute_set("cast")
            cycles = int(costs.cast_cycles(sums.shape[1], 4, plan.dtype.bytes))
            step.vertices(
                reduce_codelet(f32, plan.dtype),
                tile=np.arange(plan.num_tiles),
                cycles=np.full(plan.num_tiles, -(-cycles // costs.WORKERS)),
                parts=sums.reshape((plan.num_tiles, 1, sums.shape[1])),
                out=made,
            )
            body.add(Execute(step))
        note_host(prog, host_weights_steps(graph, plan, self.sparse, self.grad, self.acts, made, name=self.name))
        return made.flatten()
