"""Rows of a dynamic sparse matrix by index: as dense slices, and with slices added at the values that are held.

Both walk the buckets as the products do: slices are Sᵀ by a matrix with a one for each index, updates the gradient of
the values by that matrix; neither is ever made. Indices are spread over the z tiles of a cell.

Example: 6 indices into 100 × 200 elements on a grid of 4 × 5 × 2: a tile looks for 3 of the indices in the 25 rows of
its cell, and writes its 40 columns of those that it finds.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from abele.errors import PatternMismatchError, SparsePatternError, TypeMismatchError
from abele.graph import Execute, Graph, Tensor
from abele.graph.program import Sequence
from abele.numerics import ElementType, as_element_type, f32, u32
from abele.poplibs.popsparse.dynamic import costs
from abele.poplibs.popsparse.dynamic.cache import DynamicPlanningCache, plan_of
from abele.poplibs.popsparse.dynamic.embedding_codelets import (
    add_codelet,
    host_slice_codelet,
    host_update_codelet,
    slice_codelet,
    update_codelet,
)
from abele.poplibs.popsparse.dynamic.grad_w import ValueGradient
from abele.poplibs.popsparse.dynamic.matmul import check_same
from abele.poplibs.popsparse.dynamic.noted import note_operand
from abele.poplibs.popsparse.dynamic.params import DynamicFullyConnectedParams
from abele.poplibs.popsparse.dynamic.plan import DynamicPlan
from abele.poplibs.popsparse.dynamic.product import DynamicProduct
from abele.poplibs.popsparse.dynamic.tensors import (
    DynamicSparseTensor,
    SliceShape,
    check_shape,
    create_dense,
    rows_shape,
    shape_text,
    views_of,
)
from abele.poplibs.popsparse.dynamic.walk import Walked
from abele.poplibs.popsparse.dynamic.work import full_work
from abele.poplibs.popsparse.host.dense import brought_near
from abele.poplibs.poputil.host_body import host_vertices, note_host
from abele.poplibs.poputil.options import Options


def create_indices_tensor(
    graph: Graph,
    params: DynamicFullyConnectedParams,
    num_indices: int,
    name: str = "indices",
    *,
    options: Options = None,
) -> Tensor:
    """Indices of rows, u32 [num_indices]."""
    del params, options
    return graph.variable(u32, (num_indices,), name=name, map="linear")


def create_slice_tensor(
    graph: Graph,
    dtype: ElementType | str,
    params: DynamicFullyConnectedParams,
    num_indices: int,
    name: str = "slices",
    *,
    options: Options = None,
    cache: DynamicPlanningCache | None = None,
) -> Tensor:
    """Dense rows [num_indices, columns of the sparse matrix], laid out for an update."""
    plan = _plan(graph, "createSliceTensor", as_element_type(dtype), params, num_indices, options=options, cache=cache)
    return create_dense(graph, plan, rows_shape(plan, by_x=False), name)[0].transpose((1, 0))


def embedding_slice(
    graph: Graph,
    table: DynamicSparseTensor,
    indices: Tensor,
    prog: Sequence,
    params: DynamicFullyConnectedParams,
    *,
    options: Options = None,
    name: str = "embedding_slice",
    cache: DynamicPlanningCache | None = None,
) -> Tensor:
    """Rows of a sparse matrix as dense ones [indices, columns]; an index outside gives zeros.

    Raises:
        SparsePatternError: The matrix has groups.
        PatternMismatchError: A tensor of other parameters or options.
    """
    function = "embeddingSlice"
    plan, flat = _checked(graph, function, table, indices, params, options=options, cache=cache)
    views = views_of(plan, table.metaInfo, table.nzValues, function)
    note_operand(graph, plan, views)
    with graph.scope(name):
        return _EmbeddedRows(graph, plan, views, flat, True, "rows").emit(prog)[0].transpose((1, 0))


def embedding_update_add(
    graph: Graph,
    table: DynamicSparseTensor,
    slices: Tensor,
    indices: Tensor,
    scale: Tensor | float,
    prog: Sequence,
    params: DynamicFullyConnectedParams,
    *,
    options: Options = None,
    name: str = "embedding_update_add",
    cache: DynamicPlanningCache | None = None,
) -> None:
    """Add scale · slices [indices, columns] to rows of a sparse matrix, at the values that are held alone.

    Raises:
        SparsePatternError: The matrix has groups.
        PatternMismatchError: A tensor of other parameters or options.
    """
    function = "embeddingUpdateAdd"
    plan, flat = _checked(graph, function, table, indices, params, options=options, cache=cache)
    check_shape(function, "the slices", slices, (indices.size, plan.layer.shape[1]), plan.dtype)
    if isinstance(scale, Tensor):
        if scale.size != 1 or not scale.dtype.is_float:
            raise TypeMismatchError(
                f"{function}: the scale is one floating-point number, got {scale.dtype} {shape_text(scale.shape)}"
            )
        factor = scale.reshape((1,))
    else:
        factor = graph.constant(f32, (1,), [float(scale)], name=f"{name}/scale")
        graph.map(factor, 0)
    views = views_of(plan, table.metaInfo, table.nzValues, function)
    note_operand(graph, plan, views)
    with graph.scope(name):
        acts = slices.transpose((1, 0)).reshape((1, plan.layer.shape[1], indices.size))
        _Update(graph, plan, views, flat, acts, "update", scale=factor).emit(prog)


def _checked(
    graph: Graph,
    function: str,
    table: DynamicSparseTensor,
    indices: Tensor,
    params: DynamicFullyConnectedParams,
    options: Options,
    cache: DynamicPlanningCache | None,
) -> tuple[DynamicPlan, Tensor]:
    """The plan for so many indices, and these as a dense operand [1, x, indices]."""
    if indices.ndim != 1 or indices.dtype != u32:
        raise TypeMismatchError(
            f"{function}: indices are u32 of one dimension, got {indices.dtype} {shape_text(indices.shape)}"
        )
    plan = _plan(graph, function, table.nzValues.dtype, params, indices.size, options=options, cache=cache)
    if table.opMetaData is not None:
        if table.opMetaData.params != params:
            raise PatternMismatchError(f"{function}: the table was made for other parameters")
        check_same(function, table.opMetaData.options, plan.options)
    return plan, indices.reshape((1, 1, indices.size)).broadcast_to((1, plan.parts[0], indices.size))


def _plan(
    graph: Graph,
    function: str,
    dtype: ElementType,
    params: DynamicFullyConnectedParams,
    num_indices: int,
    options: Options,
    cache: DynamicPlanningCache | None,
) -> DynamicPlan:
    """The plan of the matrix, with indices in place of the batch; its buckets are the same."""
    if params.numGroups != 1:
        raise SparsePatternError(f"{function}: a table has one group, got {params.numGroups:,}")
    if dtype.is_quarter:
        raise TypeMismatchError(
            f"{function}: a table of {dtype} has no slices and updates",
            because="vertices that expand rows or add to values work on whole 16-bit values",
            remedy="a table of half · popops.cast",
        )
    if num_indices < 1:
        raise SparsePatternError(f"{function}: at least one index is needed, got {num_indices}")
    plan = plan_of(function, params, dtype, graph, options, cache)
    return replace(plan, layer=replace(params, batchSize=num_indices))


def _search_cycles(plan: DynamicPlan, buckets: int) -> int:
    """Cycles of looking for indices: a comparison for each row and index, and a move of 8 bytes at a time.

    Guessed, as none is published: the instructions of the vertex's loops, shared out over the workers by rows.
    """
    work = full_work(plan, buckets)
    rows, values = np.ceil(np.asarray(work.rows) / costs.WORKERS), np.asarray(work.values)
    row = 8 + plan.columns * 4 + values * (4 + plan.area)
    return int(costs.supervisor_cycles("forward", work) + costs.WORKERS * buckets * (30 + rows * row))


class _EmbeddedRows(DynamicProduct):
    """Slices [1, columns of S, indices]; the dense operand is the indices, the same for all cells."""

    @property
    def partials(self) -> Any:
        """One tile has each element, so that nothing is summed but zeros."""
        return self.plan.dtype

    @property
    def of_dense(self) -> SliceShape:
        """One row of indices for each x."""
        return SliceShape(self.plan.parts[0], 1, self.plan.parts[0], True)

    @property
    def lists(self) -> Tensor:
        """Lists of rows."""
        return self.sparse.meta

    def _cycles(self, buckets: int) -> int:
        return _search_cycles(self.plan, buckets)

    def _codelet(self, *, clears: bool) -> type:
        plan = self.plan
        how = Walked.of(plan, plan.dtype)
        return slice_codelet(how, plan.cell[0], clears=clears)

    def _note_host(self, prog: Sequence, result: Tensor) -> None:
        graph, plan, name = self.graph, self.plan, self.name
        how = Walked.of(plan, plan.dtype)
        step, before = graph.compute_set(f"{name}/host_slices"), Sequence()
        lines = []
        for tensor in (self.sparse.meta, self.sparse.values, self.dense[:, :1]):
            near, steps = brought_near(graph, tensor.reshape((1, 1, -1)), name)
            lines.append(near.reshape((1, -1)))
            before.add(steps)
        shape = rows_shape(plan, by_x=False)
        for part in range(shape.parts):
            rows = result[0, part * shape.each : min((part + 1) * shape.each, shape.rows)]
            out = rows.reshape((1, rows.shape[0], rows.shape[1]))
            fields: dict[str, Any] = {"meta": lines[0], "nz": lines[1], "indices": lines[2], "out": out, "part": part}
            host_vertices(step, host_slice_codelet(how, plan.cell[0]), **fields)
        note_host(prog, Sequence(before, Execute(step)))


@dataclass(frozen=True)
class _Update(ValueGradient):
    """An update of the values: the sums of slices are scaled and added to them.

    Attributes:
        scale: Factor, one element.
    """

    scale: Tensor

    @property
    def shapes(self) -> tuple[SliceShape, SliceShape]:
        """One row of indices for each x, and the slices' columns by y."""
        return SliceShape(self.plan.parts[0], 1, self.plan.parts[0], True), rows_shape(self.plan, by_x=False)

    def _cycles(self) -> int:
        return _search_cycles(self.plan, 1)

    def _codelet(self, how: Walked) -> type:
        return update_codelet(how, self.plan.cell[0], self.plan.layer.batchSize, self.plan.columns)

    def _result(self, prog: Sequence, sums: Tensor) -> Tensor:
        graph, plan, values = self.graph, self.plan, self.sparse.values
        call = graph.library_call(
            prog,
            "popsparse.dynamic.update_add",
            inputs=(sums, self.scale, self.sparse.meta.flatten(), values.flatten(), self.grad, self.acts),
            outputs=(values.flatten(),),
            debug_name="update_add",
        )
        with call as body:
            step = graph.compute_set("add")
            cycles = int(costs.cast_cycles(sums.shape[1], 4 + plan.dtype.bytes, plan.dtype.bytes))
            step.vertices(
                add_codelet(plan.dtype, self.scale.dtype),
                tile=range(plan.num_tiles),
                cycles=[-(-cycles // costs.WORKERS)] * plan.num_tiles,
                values=values,
                sums=sums,
                scale=self.scale.reshape((1, 1)).broadcast_to((plan.num_tiles, 1)),
            )
            body.add(Execute(step))
        how = Walked.of(plan, f32)
        near, before = brought_near(graph, self.acts, self.name)
        found, more = brought_near(graph, self.grad[:, :1], self.name)
        host = graph.compute_set(f"{self.name}/host_update")
        host_vertices(
            host,
            host_update_codelet(how, plan.cell, plan.layer.batchSize, self.scale.dtype),
            meta=self.sparse.meta,
            values=values,
            indices=found.reshape((1, -1)).broadcast_to((plan.num_tiles, plan.layer.batchSize)),
            slices=near.reshape((1, -1)).broadcast_to((plan.num_tiles, near.size)),
            scale=self.scale.reshape((1, 1)).broadcast_to((plan.num_tiles, 1)),
        )
        note_host(prog, Sequence(before, more, Execute(host)))
        return values
