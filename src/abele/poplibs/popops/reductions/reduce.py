"""Reducing tensors over some of their dimensions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from abele.errors import InvalidOptionError, TensorError, UnsupportedOpError
from abele.expr import check_computes
from abele.graph import Graph, Tensor
from abele.graph.compute_set import ComputeSet
from abele.graph.program import Steps
from abele.kernels.nest.ir import HostKernel
from abele.numerics import ElementType, as_element_type, f16, f32
from abele.poplibs.popops.elementwise.map import emit_map
from abele.poplibs.popops.expr import Cast, ExprLike, _1
from abele.poplibs.popops.reductions.codelets import Finish
from abele.poplibs.popops.reductions.host_kernel import reduce_kernel, side_by_side
from abele.poplibs.popops.reductions.ops import ReduceOp, accumulator, find_reduce_op
from abele.poplibs.popops.reductions.reduction import Reduction, Scale, add_together, emit_together
from abele.poplibs.poputil.options import Options, element_type, read_options
from abele.words import counted

Into = Steps | list[ComputeSet]
"""Destination of steps: a sequence, or a list of compute sets that later reductions may share."""
OPTIONS = {"accumType.interTile": element_type(None), "accumType.inVertex": element_type(None)}


@dataclass(frozen=True)
class ReduceParams:
    """Operation, scale and update of a reduction.

    Attributes:
        op: ADD, SQUARE_ADD, LOG_ADD, MUL, MIN, MAX, LOGICAL_AND or LOGICAL_OR.
        update: True if the result is combined with what the output holds.
        scale: Multiplies the result, after squaring and before updating; a number or a tensor of one f32 element.
    """

    op: str = "ADD"
    update: bool = False
    scale: Scale = None


@dataclass(frozen=True)
class SingleReduceOp:
    """One of several reductions.

    Attributes:
        tensor: Tensor to reduce.
        dims: Dimensions that the result lacks.
        params: Operation, scale and update.
        out_type: Element type of the result; that of ``tensor`` by default.
        name: Name of its tensors.
    """

    tensor: Tensor
    dims: Sequence[int]
    params: ReduceParams = ReduceParams()
    out_type: ElementType | None = None
    name: str = "reduce"


def reduce(
    graph: Graph,
    tensor: Tensor,
    dims: Sequence[int],
    op: str,
    prog: Into,
    *,
    out_type: ElementType | None = None,
    scale: Scale = None,
    options: Options = None,
    name: str = "reduce",
) -> Tensor:
    """``tensor`` reduced over ``dims``, which the result lacks.

    Args:
        graph: Graph in which vertices and the result are made.
        tensor: Tensor to reduce. 16-bit floats are accumulated in f32.
        dims: Dimensions to reduce; none for an element-wise copy (or square).
        op: ADD, SQUARE_ADD, LOG_ADD, MUL, MIN, MAX, LOGICAL_AND or LOGICAL_OR; ADD of truth values counts them.
        prog: Sequence that the steps are appended to; or a list of compute sets, to whose first the first step is
            added, and so on. Compute sets that are missing are appended, and the caller executes them in order.
        out_type: Element type of the result; that of ``tensor`` by default, i32 for a count.
        scale: Multiplies the result; a number or a tensor of one f32 element.
        options: ``accumType.interTile``: element type of partial results between vertices; ``accumType.inVertex``:
            precision to which a vertex sums, which is that of its partial results unless the other option says so.
        name: Name of the steps.

    Raises:
        TensorError: A dimension that the tensor lacks, or one given twice.
        TypeMismatchError: The operation does not take such elements.
        InvalidOptionError: No such operation or option.
        UnsupportedOpError: A scale for LOG_ADD.
    """
    kind = None if out_type is None else as_element_type(out_type)
    wanted = SingleReduceOp(tensor, dims, ReduceParams(op, scale=scale), kind, name)
    return _reduced(graph, [wanted], prog, [None], options, name)[0]


def reduce_with_output(
    graph: Graph,
    tensor: Tensor,
    out: Tensor,
    dims: Sequence[int],
    op: str,
    prog: Into,
    *,
    scale: Scale = None,
    update: bool = False,
    options: Options = None,
    name: str = "reduce",
) -> None:
    """Write the reduction of ``tensor`` over ``dims`` to ``out``, or combine it with the present values (``update``).

    Raises:
        TensorError: ``out`` does not have the shape of the result; see also :func:`reduce`.
    """
    wanted = SingleReduceOp(tensor, dims, ReduceParams(op, update, scale), out.dtype, name)
    _reduced(graph, [wanted], prog, [out], options, name)


def reduce_many(
    graph: Graph,
    reductions: Sequence[SingleReduceOp],
    prog: Into,
    outputs: Sequence[Tensor] | None = None,
    *,
    options: Options = None,
    name: str = "reduce_many",
) -> list[Tensor]:
    """Several reductions side by side: the first steps of all share a compute set, and so do the second steps.

    Args:
        graph: Graph in which vertices and results are made.
        reductions: Reductions to run.
        prog: As for :func:`reduce`.
        outputs: Result tensors, one per reduction; new ones by default. None may overlap another.
        options: As for :func:`reduce`.
        name: Name of the steps.

    Raises:
        TensorError: Not one output per reduction, an update without outputs; see also :func:`reduce`.
    """
    if outputs is not None and len(outputs) != len(reductions):
        raise TensorError(f"{name}: {counted(len(outputs), 'output')} for {len(reductions)} reductions")
    if outputs is None and any(r.params.update for r in reductions):
        raise TensorError(f"{name}: an update needs an output to combine with", remedy="pass outputs=")
    if not reductions:
        return []
    return _reduced(graph, reductions, prog, [None] * len(reductions) if outputs is None else outputs, options, name)


@dataclass(frozen=True)
class _Call:
    """A reduction whose arguments are checked, and its result."""

    reduction: Reduction
    out: Tensor

    @property
    def inputs(self) -> tuple[Tensor, ...]:
        """Operand, scale if it is a tensor, and the old result if it is updated."""
        scale, updates = self.reduction.scale, self.reduction.finish.updates
        return (
            self.reduction.tensor,
            *((scale,) if isinstance(scale, Tensor) else ()),
            *((self.out,) if updates else ()),
        )

    @property
    def is_pointwise(self) -> bool:
        """True if nothing is combined, neither elements with each other nor results with the output."""
        finish = self.reduction.finish
        return self.reduction.tensor.size == self.out.size and not finish.updates and finish.scale != "tensor"

    def emit_map(self, graph: Graph, body: Steps, name: str) -> None:
        """Append the one step of a reduction that combines nothing."""
        made = self.reduction
        kind, op = accumulator(made.op, made.tensor.dtype), made.op
        value: ExprLike = Cast(_1, kind) if not op.logical else _1
        value = value * value if op.squares else value
        if isinstance(made.scale, (int, float)):
            value = value * made.scale
        value = value if op.logical else Cast(value, self.out.dtype)
        emit_map(graph, body, [value], [made.tensor.reshape(self.out.shape)], [self.out], name)


def _reduced(
    graph: Graph,
    wanted: Sequence[SingleReduceOp],
    prog: Into,
    outputs: Sequence[Tensor | None],
    options: Options,
    name: str,
) -> list[Tensor]:
    between = _partials(options, name)
    calls = [_checked(graph, w, out, between) for w, out in zip(wanted, outputs, strict=True)]
    if isinstance(prog, list):
        add_together(graph, prog, [c.reduction.vertices(c.out) for c in calls], name)
        return [c.out for c in calls]
    kernels = [_kernel(c) for c in calls]
    known = [k for k in kernels if k is not None]
    call = graph.library_call(
        prog,
        "popops.reduce" if len(calls) == 1 else "popops.reduce_many",
        inputs=tuple(t for c in calls for t in c.inputs),
        outputs=tuple(c.out for c in calls),
        kernel=side_by_side(known) if len(known) == len(calls) else None,
        flops=sum(c.reduction.tensor.size for c in calls),
        debug_name=name,
    )
    with call as body:
        if len(calls) == 1 and calls[0].is_pointwise:
            calls[0].emit_map(graph, body, name)
        else:
            emit_together(graph, body, [c.reduction.vertices(c.out) for c in calls], name)
    return [c.out for c in calls]


def _kernel(call: _Call) -> HostKernel | None:
    made = call.reduction
    return reduce_kernel(made.op, made.tensor, made.kept, call.out, made.finish, made.scale)


def _checked(graph: Graph, wanted: SingleReduceOp, out: Tensor | None, between: ElementType | None) -> _Call:
    tensor, params, name = wanted.tensor, wanted.params, wanted.name
    op = find_reduce_op(params.op)
    check_computes(tensor.dtype, *([] if wanted.out_type is None else [wanted.out_type]), name=name)
    kind = accumulator(op, tensor.dtype)
    kept = kept_dims(tensor, wanted.dims, name)
    shape = tuple(tensor.shape[d] for d in kept)
    if out is not None and out.shape != shape:
        raise TensorError(f"{name}: the output {out!r} has shape {list(out.shape)}, the result has {list(shape)}")
    factor = _checked_scale(params.scale, name)
    if factor is not None and op.combine == "log_add":
        raise UnsupportedOpError(f"{name}: {op.name} takes no scale", remedy="add its logarithm to the operand")
    counts = tensor.dtype.kind == "bool" and not op.logical
    given = out.dtype if out is not None else wanted.out_type
    finish = Finish(given or (kind if counts else tensor.dtype), _scale_kind(factor), params.update)
    chosen = between if kind == f32 and not _is_exact(op) else None
    reduction = Reduction(
        graph, tensor=tensor, kept=kept, op=op, finish=finish, scale=factor, name=name, between=chosen
    )
    return _Call(reduction, out if out is not None else reduction.create_output())


def _is_exact(op: ReduceOp) -> bool:
    """True if partial results have no rounding to choose."""
    return op.combine in ("max", "min")


def _partials(options: Options, name: str) -> ElementType | None:
    """The element type of partial results that the options ask for."""
    values = read_options("reduce", options, OPTIONS)
    for key, value in values.items():
        if value not in (None, f16, f32):
            raise InvalidOptionError(f"{name}: option {key!r} takes half or float, got {value}")
    between: ElementType | None = values["accumType.interTile"] or values["accumType.inVertex"]
    return between


def emit_reduce(
    graph: Graph,
    body: Steps,
    tensor: Tensor,
    dims: Sequence[int],
    op: str,
    name: str,
    out_type: ElementType | None = None,
) -> Tensor:
    """Append a reduction to the body of a larger library call; the result, in accumulator type by default, is new."""
    chosen = find_reduce_op(op)
    kind = accumulator(chosen, tensor.dtype)
    finish = Finish(out_type or kind)
    reduction = Reduction(
        graph,
        tensor=tensor,
        kept=kept_dims(tensor, dims, name),
        op=chosen,
        finish=finish,
        scale=None,
        name=name,
        between=kind,
    )
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


def all_true(graph: Graph, tensor: Tensor, prog: Steps, name: str = "all_true") -> Tensor:
    """One bool: whether every element of the bool ``tensor`` is true.

    Raises:
        TypeMismatchError: Elements that are no truth values.
    """
    return reduce(graph, tensor, range(tensor.ndim), "LOGICAL_AND", prog, name=name)
