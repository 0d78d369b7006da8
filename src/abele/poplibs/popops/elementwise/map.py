"""Mapping an expression over tensors, element by element, with NumPy's broadcasting."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from abele.errors import ConstantWriteError, TensorError, TypeMismatchError
from abele.graph import Graph, Tensor
from abele.graph.program import Steps
from abele.numerics import ElementType
from abele.poplibs.popops.elementwise.placement import CycleFormula, execute_elementwise
from abele.poplibs.popops.elementwise.unfused import add_one_by_one
from abele.poplibs.popops.expr import Expr, ExprLike, from_callable
from abele.poplibs.popops.expressions.fused import Fused, fuse
from abele.poplibs.popops.expressions.host_kernel import elementwise_kernel
from abele.poplibs.popops.expressions.simplify import simplified
from abele.poplibs.poputil.broadcast import broadcast_shape
from abele.poplibs.poputil.layout import create_output_like
from abele.poplibs.poputil.options import Options, flag, read_options
from abele.words import counted

ExprOrCallable = ExprLike | Callable[..., ExprLike]

MAP_OPTIONS = {
    "enableGenerateCodelet": flag(True),
    "forceGenerateCodelet": flag(False),
    "enableVectorBroadcastOptimisations": flag(True),
    "enableExpressionOptimizations": flag(True),
}
"""Options of every element-wise function: one generated codelet for an expression, or a vertex for each operation;
vertices that know operands repeated along rows or columns; cheaper operations for the same result. A generated codelet
needs no forcing here: every expression has one."""


def map(
    graph: Graph,
    expr: ExprOrCallable,
    tensors: Sequence[Tensor],
    prog: Steps,
    name: str = "map",
    *,
    options: Options = None,
) -> Tensor:
    """A new tensor with ``expr`` of the elements of ``tensors``, laid out like the best-mapped of them.

    Args:
        graph: Graph in which vertices and the output are made.
        expr: An expression over ``_1``, ``_2``, … or a function of that many arguments.
        tensors: Operands; they broadcast to one shape.
        prog: Sequence that the step is appended to.
        name: Name of the step.
        options: See :data:`MAP_OPTIONS`.

    Raises:
        TensorError: The shapes do not broadcast, or the expression uses a tensor that is not given.
        TypeMismatchError: An operation on element types that it does not take.
    """
    chosen = read_options(name, options, MAP_OPTIONS)
    fused = _fused(name, [_expression(expr, tensors, chosen)], tensors, [None])
    shape = broadcast_shape(name, [t.shape for t in tensors])
    out = create_output_like(graph, tensors, shape, fused.out_types[0], f"{name}/out")
    apply_fused(graph, fused, tensors, [out], prog, name, **_manner(chosen))
    return out


def map_many(
    graph: Graph,
    exprs: Sequence[ExprOrCallable],
    tensors: Sequence[Tensor],
    prog: Steps,
    name: str = "map",
    *,
    options: Options = None,
) -> list[Tensor]:
    """Several expressions of the same operands in one pass, each to a new tensor; see :func:`map`.

    Raises:
        TensorError: No expression; see also :func:`map`.
        TypeMismatchError: An operation on element types that it does not take.
    """
    if not exprs:
        raise TensorError(f"{name}: no expression is given")
    chosen = read_options(name, options, MAP_OPTIONS)
    fused = _fused(name, [_expression(e, tensors, chosen) for e in exprs], tensors, [None] * len(exprs))
    shape = broadcast_shape(name, [t.shape for t in tensors])
    outputs = [create_output_like(graph, tensors, shape, dtype, f"{name}/out") for dtype in fused.out_types]
    apply_fused(graph, fused, tensors, outputs, prog, name, **_manner(chosen))
    return outputs


def map_in_place(
    graph: Graph,
    expr: ExprOrCallable,
    tensors: Sequence[Tensor],
    prog: Steps,
    name: str = "map",
    *,
    options: Options = None,
) -> None:
    """Overwrite the first of ``tensors`` with ``expr``; see :func:`map`.

    Raises:
        TensorError: The others do not broadcast to the first.
        TypeMismatchError: The expression gives another kind of element than the first tensor holds.
    """
    map_with_output(graph, expr, tensors, tensors[0], prog, name, options=options)


def map_with_output(
    graph: Graph,
    expr: ExprOrCallable,
    tensors: Sequence[Tensor],
    out: Tensor,
    prog: Steps,
    name: str = "map",
    *,
    options: Options = None,
) -> None:
    """Write ``expr`` to ``out``, which may be one of ``tensors``; see :func:`map`.

    Raises:
        TensorError: The operands do not broadcast to the shape of ``out``.
        TypeMismatchError: The expression gives another kind of element than ``out`` holds.
        ConstantWriteError: ``out`` cannot be written.
    """
    map_with_outputs(graph, [expr], tensors, [out], prog, name, options=options)


def map_with_outputs(
    graph: Graph,
    exprs: Sequence[ExprOrCallable],
    tensors: Sequence[Tensor],
    outputs: Sequence[Tensor],
    prog: Steps,
    name: str = "map",
    *,
    options: Options = None,
) -> None:
    """Write several expressions of the same operands, each to its output, in one pass.

    An output may be one of ``tensors``: every expression sees its elements as they were before.

    Raises:
        TensorError: Not one expression per output, the outputs differ in shape, or the operands do not broadcast to it.
        TypeMismatchError: An expression gives another kind of element than its output holds.
        ConstantWriteError: An output that cannot be written.
    """
    if not outputs or len(exprs) != len(outputs):
        raise TensorError(
            f"{name}: {counted(len(exprs), 'expression')} for {counted(len(outputs), 'output')}",
            remedy="one expression each",
        )
    shape = outputs[0].shape
    if any(o.shape != shape for o in outputs):
        raise TensorError(f"{name}: outputs of shapes {', '.join(str(list(o.shape)) for o in outputs)} differ")
    if (wanted := broadcast_shape(name, [t.shape for t in tensors])) != shape and tensors:
        raise TensorError(
            f"{name}: the operands broadcast to {list(wanted)}, but the output {outputs[0]!r} has {list(shape)}"
        )
    chosen = read_options(name, options, MAP_OPTIONS)
    made = [_expression(e, tensors, chosen) for e in exprs]
    check_writable(name, *outputs)
    fused = _fused(name, made, tensors, _types(outputs))
    apply_fused(graph, fused, tensors, outputs, prog, name, **_manner(chosen))


def apply_fused(
    graph: Graph,
    fused: Fused,
    tensors: Sequence[Tensor],
    outputs: Sequence[Tensor],
    prog: Steps,
    name: str,
    *,
    library: str = "popops.map",
    cycles: CycleFormula | None = None,
    base: str = "MultiVertex",
    is_fused: bool = True,
    vector_broadcast: bool = True,
) -> None:
    """Append the library call that evaluates ``fused`` into ``outputs``.

    Args:
        graph: Graph in which vertices are made.
        fused: Expressions, one per output.
        tensors: Operands.
        outputs: Tensors of one shape.
        prog: Sequence that the call is appended to.
        name: Name of the call.
        library: The function that the user called.
        cycles: Tile cycles, where the expressions are an operation with a cost of its own.
        base: Kind of the vertices.
        is_fused: True if one codelet evaluates all; otherwise each operation has vertices of its own.
        vector_broadcast: True if vertices know operands that are repeated along rows or columns.
    """
    if outputs[0].size == 0:
        return
    kernel = elementwise_kernel(fused, tensors, outputs)
    flops = len(fused.operations) * outputs[0].size
    call = graph.library_call(
        prog, library, inputs=tuple(tensors), outputs=tuple(outputs), kernel=kernel, flops=flops, debug_name=name
    )
    with call as body:
        if is_fused or fused.needs_index or len(fused.operations) <= len(outputs) == 1:
            body.add(
                execute_elementwise(
                    graph,
                    fused,
                    tensors,
                    outputs=outputs,
                    name=name,
                    cycles=cycles,
                    base=base,
                    vector_broadcast=vector_broadcast,
                )
            )
        else:
            add_one_by_one(
                graph, body, fused, tensors=tensors, outputs=outputs, name=name, vector_broadcast=vector_broadcast
            )


def emit_map(
    graph: Graph,
    body: Steps,
    exprs: Sequence[ExprLike],
    tensors: Sequence[Tensor],
    outputs: Sequence[Tensor],
    name: str,
) -> None:
    """Append the superstep of a map to the body of a larger library call."""
    fused = fuse([from_callable(e, len(tensors)) for e in exprs], tuple(t.dtype for t in tensors), _types(outputs))
    if outputs[0].size:
        body.add(execute_elementwise(graph, fused, tensors, outputs, name))


def check_writable(name: str, *outputs: Tensor) -> None:
    """Refuse outputs that cannot be written.

    Raises:
        ConstantWriteError: One is a constant, or a view that has an element more than once.
    """
    for tensor in outputs:
        if not tensor.writable:
            raise ConstantWriteError(
                f"{name}: cannot write to {tensor!r}",
                because="it is constant, or has an element more than once",
                remedy="write to a variable, or to the tensor before it was broadcast",
            )


def _fused(
    name: str, exprs: Sequence[Expr], tensors: Sequence[Tensor], out_types: Sequence[ElementType | None]
) -> Fused:
    """The expressions lowered; errors name the call and its operands."""
    try:
        return fuse(exprs, tuple(t.dtype for t in tensors), out_types)
    except TypeMismatchError as error:
        operands = ", ".join(repr(t) for t in tensors)
        because = "; ".join(filter(None, (error.because, f"the operands are {operands}" if tensors else "")))
        message = error.message if error.message.startswith(f"{name} ") else f"{name}: {error.message}"
        raise TypeMismatchError(message, because=because or None, remedy=error.remedy) from None


def _expression(expr: ExprOrCallable, tensors: Sequence[Tensor], chosen: Mapping[str, Any]) -> Expr:
    expression = from_callable(expr, len(tensors))
    return simplified(expression) if chosen["enableExpressionOptimizations"] else expression


def _manner(chosen: Mapping[str, Any]) -> dict[str, Any]:
    """Settings of how vertices are made, from the options."""
    is_fused = chosen["enableGenerateCodelet"] or chosen["forceGenerateCodelet"]
    return {"is_fused": is_fused, "vector_broadcast": chosen["enableVectorBroadcastOptimisations"]}


def _types(outputs: Sequence[Tensor]) -> list[ElementType | None]:
    return [o.dtype for o in outputs]
