"""Orders of arguments in PopLibs' popops headers that are not our own; see :mod:`abele.poplibs.poputil.arguments`."""

from __future__ import annotations

from collections.abc import Sequence

from abele.graph import ComputeSet, Copy, Graph, Program, Tensor, concat
from abele.graph.program import Steps
from abele.numerics import ElementType
from abele.poplibs.popops.elementwise.cast import cast, cast_with_output
from abele.poplibs.popops.elementwise.map import map, map_in_place, map_many, map_with_output, map_with_outputs
from abele.poplibs.popops.expr import ExprLike, Op, PlaceHolder
from abele.poplibs.popops.expressions.names import BinaryOpType, TernaryOpType, UnaryOpType
from abele.poplibs.popops.layout.pad import MappingMethod, PaddingType, pad
from abele.poplibs.popops.programs.loops import Body, counted_for_loop, counted_loop
from abele.poplibs.popops.reductions.has_nan import has_nan, has_nan_or_inf
from abele.poplibs.popops.reductions.histogram import histogram_with_output
from abele.poplibs.popops.slicing.multi_layout import create_slice_tensor
from abele.poplibs.popops.slicing.plan import SlicePlan
from abele.poplibs.poputil.arguments import Forms
from abele.poplibs.poputil.one_step import add_to_compute_set
from abele.poplibs.poputil.options import Options

OpType = UnaryOpType | BinaryOpType | TernaryOpType


def _expr(op: OpType, tensors: Sequence[Tensor]) -> ExprLike:
    return Op(op.value, *(PlaceHolder(n + 1) for n in range(len(tensors))))


def _map_unary(
    graph: Graph, op: UnaryOpType, x: Tensor, prog: Steps, name: str = "map", *, options: Options = None
) -> Tensor:
    return map(graph, _expr(op, [x]), [x], prog, name, options=options)


def _map_binary(
    graph: Graph, op: BinaryOpType, x: Tensor, y: Tensor, prog: Steps, name: str = "map", *, options: Options = None
) -> Tensor:
    return map(graph, _expr(op, [x, y]), [x, y], prog, name, options=options)


def _map_ternary(
    graph: Graph,
    op: TernaryOpType,
    x: Tensor,
    y: Tensor,
    z: Tensor,
    prog: Steps,
    name: str = "map",
    *,
    options: Options = None,
) -> Tensor:
    return map(graph, _expr(op, [x, y, z]), [x, y, z], prog, name, options=options)


def _map_unary_in_place(
    graph: Graph, op: UnaryOpType, x: Tensor, prog: Steps, name: str = "map", *, options: Options = None
) -> None:
    map_in_place(graph, _expr(op, [x]), [x], prog, name, options=options)


def _map_binary_in_place(
    graph: Graph, op: BinaryOpType, x: Tensor, y: Tensor, prog: Steps, name: str = "map", *, options: Options = None
) -> None:
    map_in_place(graph, _expr(op, [x, y]), [x, y], prog, name, options=options)


def _map_ternary_in_place(
    graph: Graph,
    op: TernaryOpType,
    x: Tensor,
    y: Tensor,
    z: Tensor,
    prog: Steps,
    name: str = "map",
    *,
    options: Options = None,
) -> None:
    map_in_place(graph, _expr(op, [x, y, z]), [x, y, z], prog, name, options=options)


def _map_unary_out(
    graph: Graph, op: UnaryOpType, x: Tensor, out: Tensor, prog: Steps, name: str = "map", *, options: Options = None
) -> None:
    map_with_output(graph, _expr(op, [x]), [x], out, prog, name, options=options)


def _map_binary_out(
    graph: Graph,
    op: BinaryOpType,
    x: Tensor,
    y: Tensor,
    out: Tensor,
    prog: Steps,
    name: str = "map",
    *,
    options: Options = None,
) -> None:
    map_with_output(graph, _expr(op, [x, y]), [x, y], out, prog, name, options=options)


def _map_ternary_out(
    graph: Graph,
    op: TernaryOpType,
    x: Tensor,
    y: Tensor,
    z: Tensor,
    out: Tensor,
    prog: Steps,
    name: str = "map",
    *,
    options: Options = None,
) -> None:
    map_with_output(graph, _expr(op, [x, y, z]), [x, y, z], out, prog, name, options=options)


def _has_nan(graph: Graph, tensor: Tensor, prog: Steps, or_inf: bool, name: str = "has_nan") -> Tensor:
    return (has_nan_or_inf if or_inf else has_nan)(graph, tensor, prog, name)


def _loop_of_count(graph: Graph, count: int, body: Body, name: str = "counted_loop") -> Steps:
    return counted_loop(graph, 0, count, 1, body, name)


def _loop_of_program(
    graph: Graph,
    initial: int | Tensor,
    limit: Tensor,
    step: int,
    body: Program,
    counter: Tensor | None = None,
    name: str = "counted_for_loop",
) -> Steps:
    def run(number: Tensor) -> Program:
        return body if counter is None else Steps(Copy(number.reshape(counter.shape), counter), body)

    return counted_for_loop(graph, initial, limit, step, run, name)


def _slices_known(graph: Graph, tensor: Tensor, offsets: Sequence[int], dim: int, name: str = "multi_slice") -> Tensor:
    """Slices of one row at offsets that are known now: a view, [offsets, …, 1, …]."""
    return concat([tensor.slice(n, n + 1, dim).expand_dims(0) for n in offsets], 0)


def _new_slices(
    graph: Graph,
    dtype: ElementType | str,
    shape: Sequence[int],
    dims: Sequence[int],
    sizes: Sequence[int],
    num_indices: int,
    plan: SlicePlan | None = None,
    *,
    options: Options = None,
    name: str = "slices",
) -> Tensor:
    table = Graph(graph.system).variable(dtype, tuple(shape))
    return create_slice_tensor(graph, table, dims, sizes, num_indices, plan, options=options, name=name)


def _pad_dim(
    graph: Graph,
    tensor: Tensor,
    lower: int,
    upper: int,
    dim: int,
    value: float | Tensor | PaddingType = 0.0,
    mapping: MappingMethod = "ZERO",
) -> Tensor:
    before, after = ([n if d == dim else 0 for d in range(tensor.ndim)] for n in (lower, upper))
    return pad(graph, tensor, before, after, value, mapping=mapping)


def _cast_in_set(
    graph: Graph, tensor: Tensor, dtype: ElementType | str, compute_set: ComputeSet, name: str = "cast"
) -> Tensor:
    steps = Steps()
    out = cast(graph, tensor, dtype, steps, name)
    add_to_compute_set(graph, compute_set, steps, name)
    return out


def _cast_out_in_set(graph: Graph, tensor: Tensor, out: Tensor, compute_set: ComputeSet, name: str = "cast") -> None:
    steps = Steps()
    cast_with_output(graph, tensor, out, steps, name)
    add_to_compute_set(graph, compute_set, steps, name)


_PADDING = "tensor lower upper value:padding mapping:text?"
_SCALED = "a scale_a b scale_b prog"

FORMS: Forms = {
    "cast": (
        ("tensor out prog", cast_with_output),
        ("tensor dtype compute_set", _cast_in_set),
        ("tensor out compute_set", _cast_out_in_set),
    ),
    "counted_for_loop": (
        ("initial limit step body:program", _loop_of_program),
        ("counter:tensor initial limit step body:program", _loop_of_program),
    ),
    "counted_loop": (("count body:callable", _loop_of_count),),
    "create_host_sliceable_tensor": ("dtype shape =bool",),
    "create_host_transferable_tensor": ("dtype shape =bool",),
    "create_slice_tensor": (("dtype shape dims sizes num_indices plan?", _new_slices),),
    "create_sliceable_tensor": ("dtype shape dims sizes =whole?",),
    "encode_one_hot": ("indices encoded prog on:operand off:operand",),
    "gather": (
        "tensor indices axis:whole prog:program =any?",
        "tensor indices index_vector_dim:whole offset_dims:wholes slice_sizes:wholes collapsed_slice_dims:wholes"
        " start_index_map:wholes prog:program",
    ),
    "has_nan": (("tensor prog or_inf", _has_nan),),
    "histogram": (("tensor out update levels absolute prog", histogram_with_output),),
    "map": (
        ("op x prog", _map_unary),
        ("op x y prog", _map_binary),
        ("op x y z prog", _map_ternary),
        ("exprs tensors prog", map_many),
    ),
    "map_in_place": (
        ("op x prog", _map_unary_in_place),
        ("op x y prog", _map_binary_in_place),
        ("op x y z prog", _map_ternary_in_place),
    ),
    "map_with_output": (
        ("op x out prog", _map_unary_out),
        ("op x y out prog", _map_binary_out),
        ("op x y z out prog", _map_ternary_out),
        ("exprs tensors outputs prog", map_with_outputs),
    ),
    "multi_slice": (("tensor offsets dim", _slices_known),),
    "normalise_image": ("prog image scale offsets scales",),
    "pad": (
        _PADDING,
        f"^ {_PADDING}",
        ("tensor lower upper dim value:padding mapping:text?", _pad_dim),
        ("^ tensor lower upper dim value:padding mapping:text?", _pad_dim),
    ),
    "reduce": ("tensor out_type dims *params:ReduceParams prog", "tensor dims *params:ReduceParams prog"),
    "reduce_many": ("reductions outputs prog",),
    "reduce_with_output": ("tensor out dims *params:ReduceParams prog",),
    "regroup_tensor": ("tensor prog =any to",),
    "scaled_add_to": (_SCALED, f"{_SCALED} specialisation"),
    "scaled_subtract_from": (_SCALED,),
    "scatter": (
        "operand indices updates index_vector_dim update_window_dims insert_window_dims scatter_dims_to_operand_dims"
        " update_computation:callable prog",
    ),
}
