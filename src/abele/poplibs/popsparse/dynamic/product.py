"""Placed program of a product with a dynamic sparse matrix: distribution, passes of what spilt, reduction.

Forward, tile (x, y, z) has the dense rows of y and makes partials of the rows of x; the partials of all y are summed.
Transposed it is the other way round, on the same buckets.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from abele.arrays import Int64
from abele.graph import Execute, Graph, Tensor
from abele.graph.program import Sequence
from abele.graph.regions import rows
from abele.numerics import ElementType, f16, f32
from abele.poplibs.poplin.contraction.host_kernel import UNSCALED, Scaling
from abele.poplibs.popsparse.dynamic import costs
from abele.poplibs.popsparse.dynamic.buckets import grad_a_header
from abele.poplibs.popsparse.dynamic.codelets import product_codelet, reduce_codelet
from abele.poplibs.popsparse.dynamic.host_form import host_product_steps
from abele.poplibs.popsparse.dynamic.noted import note_operand
from abele.poplibs.popsparse.dynamic.plan import DynamicPlan
from abele.poplibs.popsparse.dynamic.tensors import (
    SliceShape,
    SparseViews,
    Zone,
    copies,
    create_by_tile,
    create_together,
    dense_slices,
    flops_of,
    joined,
    rows_shape,
    tile_numbers,
    zones,
)
from abele.poplibs.popsparse.dynamic.transport import Transport
from abele.poplibs.popsparse.dynamic.walk import Walked
from abele.poplibs.popsparse.dynamic.work import full_work, pass_cycles
from abele.poplibs.popsparse.float8 import scaled_for_host
from abele.poplibs.poputil.host_body import note_host


@dataclass(frozen=True)
class DynamicProduct:
    """A product S·X, or Sᵀ·X.

    Attributes:
        graph: The graph.
        plan: The plan.
        sparse: S by tiles.
        dense: X [groups, rows, columns].
        transposed: True for Sᵀ·X.
        name: Name of the steps.
        scaling: Factor of the products.
    """

    graph: Graph
    plan: DynamicPlan
    sparse: SparseViews
    dense: Tensor
    transposed: bool
    name: str
    scaling: Scaling = UNSCALED

    @property
    def partials(self) -> Any:
        """Type of partial sums."""
        return self.plan.options.partials if self.plan.is_half else f32

    @property
    def made(self) -> ElementType:
        """Type of the product."""
        return self.plan.result

    @property
    def of_dense(self) -> SliceShape:
        """Rows of the dense operand by tiles."""
        return rows_shape(self.plan, by_x=self.transposed)

    @property
    def call(self) -> str:
        """Beginning of the names of library calls."""
        return "popsparse.dynamic"

    @property
    def lists(self) -> Tensor:
        """The buckets that vertices walk: lists of rows, or of columns where there are some and they are wanted."""
        columns = self.sparse.columns
        return columns if self.transposed and columns is not None else self.sparse.meta

    def emit(self, prog: Sequence) -> Tensor:
        """Append the program; returns the product [groups, rows, columns]."""
        graph, plan = self.graph, self.plan
        note_operand(graph, plan, self.sparse)
        result = rows_shape(plan, by_x=not self.transposed)
        size = result.each * plan.columns
        summed = plan.parts[1] if not self.transposed else plan.parts[0]
        chunk = -(-size // summed)
        chunk += -chunk % (8 // self.partials.bytes)
        partials = create_by_tile(graph, plan, self.partials, chunk * summed, f"{self.name}/partials")
        of_dense = self.of_dense
        dense = create_by_tile(graph, plan, self.dense.dtype, of_dense.each * plan.columns, f"{self.name}/slice")
        homes = [self.lists, self.sparse.values]
        call = graph.library_call(
            prog,
            "popsparse.dynamic.distribute",
            inputs=(self.lists.flatten(), self.sparse.values.flatten(), self.dense, *self.scaling.tensors),
            outputs=(partials, dense),
            flops=flops_of(plan),
            debug_name="distribute",
        )
        with call as body:
            came = self._distribute(body, homes, dense)
            self._compute(body, came, dense, partials, first=True)
        note_host(prog, Sequence())
        Transport(
            graph,
            plan,
            homes,
            [partials],
            lambda body, came: self._compute(body, came, dense, partials, first=False),
            self.name,
        ).emit(prog, self.sparse.info)
        return self._reduce(prog, partials, chunk)

    def _distribute(self, body: Sequence, homes: list[Tensor], dense: Tensor) -> list[Tensor]:
        """Bring each tile its dense slice and the buckets of all z tiles of its cell, which lie one after the other."""
        plan, of_dense = self.plan, self.of_dense
        cells, pz = plan.num_tiles // plan.parts[2], plan.parts[2]
        buckets = [
            t.reshape((cells, 1, -1)).broadcast_to((cells, pz, pz * t.shape[1])).reshape((plan.num_tiles, -1))
            for t in homes
        ]
        sources, targets = buckets, create_together(self.graph, plan, buckets, f"{self.name}/buckets")
        came = list(targets)
        for row_zone in zones(of_dense.parts, of_dense.each, of_dense.rows):
            for column_zone in zones(pz, plan.columns, plan.layer.batchSize):
                sources.append(self._slices(row_zone, column_zone))
                targets.append(self._there(dense, row_zone, column_zone))
        for copy in copies(sources, targets):
            body.add(copy)
        return came

    def _slices(self, row_zone: Zone, column_zone: Zone) -> Tensor:
        """The dense slice of each tile of a zone [groups, x, y, z, elements]."""
        slices = dense_slices(self.dense, row_zone, column_zone)
        groups, rows_, columns, size = slices.shape
        px, py, _ = self.plan.parts
        if self.transposed:
            return slices.reshape((groups, rows_, 1, columns, size)).broadcast_to((groups, rows_, py, columns, size))
        return slices.reshape((groups, 1, rows_, columns, size)).broadcast_to((groups, px, rows_, columns, size))

    def _there(self, dense: Tensor, row_zone: Zone, column_zone: Zone) -> Tensor:
        """Room for the slices of a zone."""
        whole = dense.reshape((*tile_numbers(self.plan).shape, dense.shape[1]))
        part = whole[:, row_zone.parts] if self.transposed else whole[:, :, row_zone.parts]
        return part[:, :, :, column_zone.parts, : row_zone.each * column_zone.each]

    def _compute(self, body: Sequence, came: list[Tensor], dense: Tensor, partials: Tensor, *, first: bool) -> None:
        """Vertices of one step, on what has come to each tile; the first sets partials to zero."""
        plan, buckets = self.plan, self.plan.parts[2] if first else 1
        step = self.graph.compute_set("products" if first else "spilt_products")
        of_dense = self.of_dense
        cycles = self._cycles(buckets)
        if first:
            cycles += int(costs.zero_cycles(partials.shape[1] * self.partials.bytes))
        else:
            cycles += costs.BUFFER_INDEX_CYCLES
        codelet = self._codelet(clears=first)
        for row_zone in zones(of_dense.parts, of_dense.each, of_dense.rows):
            for column_zone in zones(plan.parts[2], plan.columns, plan.layer.batchSize):
                tiles = self._tiles(row_zone, column_zone)
                step.vertices(
                    codelet,
                    tile=tiles,
                    cycles=np.full(len(tiles), -(-cycles // costs.WORKERS)),
                    meta=(rows(came[0]), tiles),
                    nz=(rows(came[1]), tiles),
                    dense=(rows(dense[:, : row_zone.each * column_zone.each]), tiles),
                    out=(rows(partials), tiles),
                    cell=(tiles % plan.group_tiles // plan.parts[2] + 1),
                    columns=column_zone.each,
                    stride=plan.columns,
                    **self.scaling.fields(len(tiles)),
                )
        body.add(Execute(step))

    def _tiles(self, row_zone: Zone, column_zone: Zone) -> Int64:
        """Tiles whose dense slice is in a zone of rows and columns."""
        grid = tile_numbers(self.plan)
        tiles = grid[:, row_zone.parts] if self.transposed else grid[:, :, row_zone.parts]
        return np.asarray(tiles[..., column_zone.parts].reshape(-1), np.int64)

    def _cycles(self, buckets: int) -> int:
        """Cycles of a vertex with full buckets."""
        return pass_cycles(self.plan, "gradA" if self.transposed else "fwd", full_work(self.plan, buckets))

    def _codelet(self, *, clears: bool) -> type:
        plan, by_columns = self.plan, self.transposed and self.sparse.columns is not None
        how = Walked.of(plan, self.partials)
        if by_columns:
            how = replace(how, header=grad_a_header(plan), meta_slots=plan.grad_a_slots)
        return product_codelet(
            how,
            transposed=self.transposed,
            by_columns=by_columns,
            clears=clears,
            taken=self.dense.dtype,
            scaled=self.scaling.kind,
        )

    def _reduce(self, prog: Sequence, partials: Tensor, chunk: int) -> Tensor:
        """The sum over the tiles of one part of the result, a chunk of it on each."""
        plan, graph = self.plan, self.graph
        shape = rows_shape(plan, by_x=not self.transposed)
        size, groups, (px, py, pz) = shape.each * plan.columns, plan.layer.numGroups, plan.parts
        summed = px if self.transposed else py
        # Tiles and partials as [group, part of the result, z, part of the sum].
        order = (0, 2, 3, 1) if self.transposed else (0, 1, 3, 2)
        tiles = tile_numbers(plan).transpose(order).reshape((-1, summed))
        made = graph.variable(self.made, (tiles.size, chunk), name=f"{self.name}/product")
        graph.map_rows(made, tiles.reshape(-1).tolist())
        slices = made.reshape((groups, shape.parts, pz, summed * chunk))[:, :, :, :size]
        result = joined(plan, slices, shape)
        call = graph.library_call(
            prog,
            "popsparse.dynamic.reduce",
            inputs=(
                partials,
                self.sparse.meta.flatten(),
                self.sparse.values.flatten(),
                self.dense,
                *self.scaling.tensors,
            ),
            outputs=(result,),
            debug_name="reduce",
        )
        with call as body:
            step = graph.compute_set("sums")
            parts = partials.reshape((plan.num_tiles * summed, chunk))
            # Chunk i of each of the tiles that sum together.
            of = tiles[:, None, :] * summed + np.arange(summed)[None, :, None]
            if summed > 1:
                cycles = int(costs.reduce_cycles(chunk, summed, self.partials == f16))
            else:
                cycles = int(costs.cast_cycles(chunk, self.partials.bytes, self.made.bytes))
            step.vertices(
                reduce_codelet(self.partials, self.made),
                tile=tiles.reshape(-1),
                cycles=np.full(tiles.size, -(-cycles // costs.WORKERS)),
                parts=_picked(parts, of.reshape((tiles.size, summed))),
                out=made,
            )
            body.add(Execute(step))
        self._note_host(prog, result)
        return result

    def _note_host(self, prog: Sequence, result: Tensor) -> None:
        turned = self.transposed
        dense, first = scaled_for_host(self.graph, self.dense, self.scaling, self.name)
        steps = host_product_steps(self.graph, self.plan, self.sparse, dense, result, transposed=turned, name=self.name)
        note_host(prog, Sequence(first, steps) if self.scaling.kind else steps)


def _picked(parts: Tensor, which: Int64) -> Any:
    """Rows of ``parts`` for each vertex: [vertices, rows of each]."""
    return rows(parts), which.reshape(-1), np.arange(len(which) + 1) * which.shape[1]
