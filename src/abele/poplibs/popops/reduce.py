"""Reducing a tensor over some of its dimensions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from abele.errors import TensorError, TileMappingError
from abele.graph import Execute, Graph, Regions, Tensor, TileMapping, boxes, whole
from abele.graph.program import Sequence as Steps
from abele.kernels import ir
from abele.numerics import ElementType, bool_, f32
from abele.poplibs.popops.kernel import dim_names, index_of, nest_over
from abele.poplibs.popops.reduce_codelets import Finish, combine_codelet, rectangle_codelet
from abele.poplibs.popops.reduce_ops import ReduceOp, accumulator, find_reduce_op, widened
from abele.poplibs.popops.reduce_plan import (
    MAX_DEPTH,
    Combination,
    Direction,
    Partials,
    Slices,
    combine_in_groups,
    combine_on,
    combine_on_tiles,
    depth,
    slice_cells,
)
from abele.poplibs.poputil.grid import Grid, cells_of, collapse
from abele.poplibs.poputil.mapping import linear_mapping, set_mapping, vector_grain
from abele.poplibs.poputil.order import StorageOrder, storage_order
from abele.poplibs.poputil.regions import flat_regions

Scale = float | Tensor | None


def reduce(
    graph: Graph,
    tensor: Tensor,
    dims: Sequence[int],
    op: str,
    prog: Steps,
    *,
    out_type: ElementType | None = None,
    scale: Scale = None,
    name: str = "reduce",
) -> Tensor:
    """``tensor`` reduced over ``dims``, which the result lacks.

    Args:
        graph: Where vertices and the result are made.
        tensor: What to reduce. 16-bit floats are accumulated in f32.
        dims: Dimensions to reduce; none for an element-wise copy (or square).
        op: ADD, SQUARE_ADD, MUL, MIN, MAX, LOGICAL_AND or LOGICAL_OR.
        prog: Sequence that the steps are appended to.
        out_type: Element type of the result; that of ``tensor`` by default.
        scale: Multiplies the result; a number or a tensor of one element.
        name: Name of the steps.

    Raises:
        TensorError: A dimension that the tensor lacks, or one given twice.
        TypeMismatchError: The operation does not take such elements.
        InvalidOptionError: No such operation.
    """
    return _reduced(graph, tensor, dims, op, prog, None, out_type, scale, False, name)


def reduce_with_output(
    graph: Graph,
    tensor: Tensor,
    out: Tensor,
    dims: Sequence[int],
    op: str,
    prog: Steps,
    *,
    scale: Scale = None,
    update: bool = False,
    name: str = "reduce",
) -> None:
    """Write the reduction of ``tensor`` over ``dims`` to ``out``, or combine it with what is there (``update``).

    Raises:
        TensorError: ``out`` has not the shape of the result; see also :func:`reduce`.
    """
    _reduced(graph, tensor, dims, op, prog, out, out.dtype, scale, update, name)


def _reduced(
    graph: Graph,
    tensor: Tensor,
    dims: Sequence[int],
    op: str,
    prog: Steps,
    out: Tensor | None,
    out_type: ElementType | None,
    scale: Scale,
    update: bool,
    name: str,
) -> Tensor:
    chosen = find_reduce_op(op)
    accumulator(chosen, tensor.dtype)
    kept = kept_dims(tensor, dims, name)
    shape = tuple(tensor.shape[d] for d in kept)
    if out is not None and out.shape != shape:
        raise TensorError(f"{name}: the output {out!r} has shape {list(out.shape)}, the result has {list(shape)}")
    factor = _checked_scale(scale, name)
    finish = Finish(out_type or tensor.dtype, _scale_kind(factor), update)
    reduction = Reduction(graph, tensor, kept, chosen, finish, factor, name)
    result = out if out is not None else reduction.create_output()
    inputs = (tensor, *((factor,) if isinstance(factor, Tensor) else ()), *((result,) if update else ()))
    kernel = _kernel(chosen, tensor, kept, result, finish, factor)
    call = graph.library_call(
        prog, "popops.reduce", inputs=inputs, outputs=(result,), kernel=kernel, flops=tensor.size, debug_name=name
    )
    with call as body:
        reduction.emit(body, result)
    return result


def emit_reduce(graph: Graph, body: Steps, tensor: Tensor, dims: Sequence[int], op: str, name: str) -> Tensor:
    """Append a reduction to the body of a larger library call; the result, in accumulator type, is new."""
    chosen = find_reduce_op(op)
    kind = accumulator(chosen, tensor.dtype)
    reduction = Reduction(graph, tensor, kept_dims(tensor, dims, name), chosen, Finish(kind), None, name)
    result = reduction.create_output()
    reduction.emit(body, result)
    return result


def kept_dims(tensor: Tensor, dims: Sequence[int], name: str) -> tuple[int, ...]:
    """The dimensions that reducing ``dims`` leaves.

    Raises:
        TensorError: A dimension that the tensor lacks, or one given twice.
    """
    gone = [d + tensor.ndim if d < 0 else d for d in dims]
    for d, given in zip(gone, dims, strict=True):
        if not 0 <= d < tensor.ndim:
            raise TensorError(f"{name}: {tensor!r} has no dimension {given}")
    if len(set(gone)) != len(gone):
        raise TensorError(f"{name}: dimensions {list(dims)} name one twice")
    return tuple(d for d in range(tensor.ndim) if d not in gone)


def _checked_scale(scale: Scale, name: str) -> Scale:
    """The scale, or None where it is 1.

    Raises:
        TensorError: A tensor that is not one f32 element.
    """
    if isinstance(scale, Tensor):
        if scale.size != 1 or scale.dtype != f32:
            raise TensorError(f"{name}: the scale {scale!r} is not one f32 element")
        return scale.reshape(())
    return None if scale == 1.0 else scale


def _scale_kind(scale: Scale) -> Literal["", "number", "tensor"]:
    return "" if scale is None else "tensor" if isinstance(scale, Tensor) else "number"


@dataclass(frozen=True)
class Reduction:
    """One reduction: its geometry, its steps and its vertices."""

    graph: Graph
    tensor: Tensor
    kept: tuple[int, ...]
    op: ReduceOp
    finish: Finish
    scale: Scale
    name: str

    @property
    def order(self) -> StorageOrder:
        """Storage order of the operand."""
        return storage_order(self.tensor)

    @property
    def kept_order(self) -> StorageOrder:
        """Order of the kept dimensions in which outputs are numbered: that of the operand's storage."""
        order = self.order
        fine = [i for i, d in enumerate(order.of_dim) if d in self.kept]
        number = {i: n for n, i in enumerate(fine)}
        position = {d: n for n, d in enumerate(self.kept)}
        return StorageOrder(
            tuple(self.tensor.shape[d] for d in self.kept),
            tuple(order.fine[i] for i in fine),
            tuple(position[order.of_dim[i]] for i in fine),
            tuple(number[i] for i in order.order if i in number),
        )

    @property
    def grid(self) -> Grid:
        """Neighbouring dimensions joined as long as all are kept or all are reduced."""
        return collapse(self.order.extents, [tuple(d in self.kept for d in self.order.dims())])

    def group_kept(self) -> tuple[bool, ...]:
        """For each group of the grid, whether it is kept."""
        dims, extents = self.order.dims(), self.order.extents
        return tuple(
            next((dims[i] in self.kept for i in range(a, b) if extents[i] != 1), dims[a] in self.kept)
            for a, b in self.grid.groups
        )

    @property
    def num_outputs(self) -> int:
        """Elements of the result."""
        return int(np.prod([self.tensor.shape[d] for d in self.kept], dtype=np.int64))

    def create_output(self) -> Tensor:
        """A tensor for the result: where the last step leaves it, or spread over the tiles."""
        order = self.kept_order
        variable = self.graph.variable(self.finish.type, order.extents, name=f"{self.name}/out")
        set_mapping(variable, self.plan(None).mapping)
        return order.undo(variable)

    def plan(self, wanted: TileMapping | None) -> Plan:
        """The steps; ``wanted`` is the mapping of the numbered outputs where that is given."""
        graph, ipu = self.graph, self.graph.system.ipu
        mapping = self.order.apply(self.tensor).mapping
        if not mapping.is_complete:
            raise TileMappingError(f"{self.name}: {self.tensor!r} is not mapped to tiles completely")
        kept = self.group_kept()
        direction: Direction = "rows" if kept and kept[-1] and len(kept) > 1 else "columns"
        grid = self.grid
        if kept == (True,):
            grid = Grid((*grid.groups, (grid.groups[0][1],) * 2), (*grid.extents, 1))
            kept = (True, False)
        grain = ipu.vector_width(self.tensor.dtype)
        slices = slice_cells(cells_of(grid, mapping), kept, direction, ipu.num_workers, grain)
        return plan_steps(graph, slices, direction, self.num_outputs, wanted, self.finish.type)

    def emit(self, body: Steps, out: Tensor) -> None:
        """Append the steps that reduce into ``out``."""
        if self.num_outputs == 0 or self.tensor.size == 0:
            return
        ordered = self.kept_order.apply(out).flatten()
        plan = self.plan(ordered.mapping)
        kind = accumulator(self.op, self.tensor.dtype)
        target = self._target(plan, 0, plan.slices.partials, kind, ordered)
        body.add(self._first(plan, target, kind))
        for number, step in enumerate(plan.combinations, start=1):
            source, target = target, self._target(plan, number, step.partials, kind, ordered)
            body.add(self._combine(step, number, source, target, kind, last=number == len(plan.combinations)))

    def _target(self, plan: Plan, number: int, partials: Partials, kind: ElementType, out: Tensor) -> Tensor:
        if number == len(plan.combinations):
            return out
        stored = self.graph.variable(kind, partials.size, name=f"{self.name}/partials{number}")
        return set_mapping(stored, partials.mapping)

    def _finish(self, last: bool, kind: ElementType) -> tuple[Finish, dict[str, Any]]:
        if not last:
            return Finish(kind), {}
        if isinstance(self.scale, Tensor):
            return self.finish, {"scale": whole(self.scale)}
        return self.finish, {} if self.scale is None else {"scale": self.scale}

    def _first(self, plan: Plan, target: Tensor, kind: ElementType) -> Execute:
        last = not plan.combinations
        finish, fields = self._finish(last, kind)
        grid, slices = self.grid, plan.slices
        view = self.order.apply(self.tensor).reshape((grid.blocks, grid.rows, grid.columns))
        if plan.direction == "columns" and self.group_kept() == (True,):
            view = view.reshape((1, self.tensor.size, 1))
        partials = slices.partials
        at = partials.begin if last else partials.offset
        compute_set = self.graph.compute_set(self.name)
        compute_set.vertices(
            rectangle_codelet(self.op, self.tensor.dtype, plan.direction, finish),
            tile=partials.tile,
            x=boxes(view, slices.start, slices.size),
            y=flat_regions(target, at, partials.length),
            columns=slices.size[:, 2],
            **self._shared(fields, partials.num),
        )
        return Execute(compute_set)

    def _combine(
        self, step: Combination, number: int, source: Tensor, target: Tensor, kind: ElementType, last: bool
    ) -> Execute:
        finish, fields = self._finish(last, kind)
        partials = step.partials
        at = partials.begin if last else partials.offset
        rows = flat_regions(source, step.source, step.length)
        compute_set = self.graph.compute_set(f"{self.name}/combine{number}")
        compute_set.vertices(
            combine_codelet(self.op, kind, finish),
            tile=partials.tile,
            partials=(rows, np.arange(rows.num, dtype=np.int64), step.row_begin),
            y=flat_regions(target, at, partials.length),
            **self._shared(fields, partials.num),
        )
        return Execute(compute_set)

    @staticmethod
    def _shared(fields: dict[str, Any], num: int) -> dict[str, Any]:
        one = np.zeros(num, dtype=np.int64)
        return {name: (value, one) if isinstance(value, Regions) else value for name, value in fields.items()}


@dataclass(frozen=True)
class Plan:
    """The steps of a reduction.

    Attributes:
        slices: The first step.
        direction: What its vertices reduce.
        combinations: The steps after it; the last one, or the first step where there is none, writes the outputs.
        mapping: Tile of each numbered output.
    """

    slices: Slices
    direction: Direction
    combinations: tuple[Combination, ...]
    mapping: TileMapping


def plan_steps(
    graph: Graph,
    slices: Slices,
    direction: Direction,
    outputs: int,
    wanted: TileMapping | None,
    out_type: ElementType,
) -> Plan:
    """The steps that combine what ``slices`` give into ``outputs`` results.

    Args:
        graph: The tiles that there are.
        slices: The first step.
        direction: What it reduces.
        outputs: Number of results.
        wanted: Tile of each, where the output exists already.
        out_type: Element type of the results, for spreading them.
    """
    partials = slices.partials
    steps: list[Combination] = []
    local = combine_on_tiles(partials, outputs)
    if len(local.length) > local.partials.num:
        steps.append(local)
        partials = local.partials
    deepest = depth(partials)
    if deepest > MAX_DEPTH:
        between = combine_in_groups(partials, outputs, int(np.ceil(np.sqrt(deepest))))
        steps.append(between)
        partials = between.partials
    there = _placed(partials, outputs)
    if deepest == 1 and (wanted is None or _same(there, wanted)):
        return Plan(slices, direction, tuple(steps), there)
    grain = vector_grain(graph, out_type)
    mapping = wanted or linear_mapping(graph, outputs, out_type, min_elements=grain, grain=grain)
    return Plan(slices, direction, (*steps, combine_on(partials, mapping)), mapping)


def _placed(partials: Partials, outputs: int) -> TileMapping:
    """Where results lie when each has one range."""
    order = np.argsort(partials.begin, kind="stable")
    begin, tile = partials.begin[order], partials.tile[order]
    change = np.append(True, tile[1:] != tile[:-1]) if len(tile) else np.zeros(0, bool)
    return TileMapping(outputs, begin[change], tile[change])


def _same(one: TileMapping, other: TileMapping) -> bool:
    return np.array_equal(one.begin, other.begin) and np.array_equal(one.tile, other.tile)


def _kernel(
    op: ReduceOp, tensor: Tensor, kept: tuple[int, ...], out: Tensor, finish: Finish, scale: Scale
) -> ir.HostKernel | None:
    """Host kernel: inputs are the tensor, the scale if it is one, the old output if it is updated."""
    if tensor.size == 0 or out.size == 0:
        return None
    scales = [((), f32)] if isinstance(scale, Tensor) else []
    olds = [(out.shape, out.dtype)] if finish.updates else []
    operands = [(tensor.shape, tensor.dtype), *scales, *olds, (out.shape, out.dtype)]
    inputs, kind = len(operands) - 1, accumulator(op, tensor.dtype)
    names = dim_names(tensor.ndim)
    target = tuple(ir.affine(names[d]) for d in kept)
    value = widened(op, ir.Load(0, index_of(tensor.shape, tensor.shape)), tensor.dtype)
    if out.dtype == kind and scale is None and not finish.updates:
        nests: tuple[ir.Nest, ...] = (nest_over(tensor.shape, ir.Store(inputs, target, value, op.combine)),)
    else:
        operands.append((out.shape, kind))
        first = nest_over(tensor.shape, ir.Store(inputs + 1, target, value, op.combine))
        nests = (first, _finishing_nest(op, out, kind, finish, scale, inputs))
    return ir.HostKernel(tuple(s for s, _ in operands), tuple(t for _, t in operands), inputs, 1, nests)


def _finishing_nest(op: ReduceOp, out: Tensor, kind: ElementType, finish: Finish, scale: Scale, inputs: int) -> ir.Nest:
    """The nest that scales, updates and narrows what the operand after the output has accumulated."""
    at = tuple(map(ir.affine, dim_names(out.ndim)))
    result: ir.Expr = ir.Load(inputs + 1, at)
    if scale is not None:
        result = result * (ir.Load(1, ()) if isinstance(scale, Tensor) else scale)
    if finish.updates:
        old = ir.Load(inputs - 1, at)
        result = ir.apply(op.combine, old if ir.compute_type(out.dtype) == kind else ir.Cast(kind, old), result)
    if out.dtype == bool_:
        result = result.ne(0)
    elif ir.compute_type(out.dtype) != kind:
        result = ir.Cast(out.dtype, result)
    return nest_over(out.shape, ir.Store(inputs, at, result))


def all_true(graph: Graph, tensor: Tensor, prog: Steps, name: str = "all_true") -> Tensor:
    """One bool: whether every element of the bool ``tensor`` is true."""
    return reduce(graph, tensor, range(tensor.ndim), "LOGICAL_AND", prog, name=name)
