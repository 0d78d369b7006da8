"""Mapping an expression over tensors, element by element, with NumPy's broadcasting."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from abele.errors import TensorError
from abele.graph import Graph, Tensor
from abele.graph.program import Sequence as Steps
from abele.numerics import ElementType
from abele.poplibs.popops.elementwise import CycleFormula, execute_elementwise
from abele.poplibs.popops.expr import ExprLike, from_callable
from abele.poplibs.popops.fused import Fused, fuse
from abele.poplibs.popops.kernel import elementwise_kernel
from abele.poplibs.poputil.broadcast import broadcast_shape
from abele.poplibs.poputil.layout import create_output_like

ExprOrCallable = ExprLike | Callable[..., ExprLike]


def map(graph: Graph, expr: ExprOrCallable, tensors: Sequence[Tensor], prog: Steps, name: str = "map") -> Tensor:
    """A new tensor with ``expr`` of the elements of ``tensors``, laid out like the best-mapped of them.

    Args:
        graph: Where vertices and the output are made.
        expr: An expression over ``_1``, ``_2``, … or a function of that many arguments.
        tensors: Operands; they broadcast to one shape.
        prog: Sequence that the step is appended to.
        name: Name of the step.

    Raises:
        TensorError: The shapes do not broadcast, or the expression uses a tensor that is not given.
        TypeMismatchError: An operation on element types that it does not take.
    """
    expression = from_callable(expr, len(tensors))
    fused = fuse([expression], tuple(t.dtype for t in tensors), [None])
    shape = broadcast_shape(name, [t.shape for t in tensors])
    out = create_output_like(graph, tensors, shape, fused.out_types[0], f"{name}/out")
    apply_fused(graph, fused, tensors, [out], prog, name)
    return out


def map_in_place(graph: Graph, expr: ExprOrCallable, tensors: Sequence[Tensor], prog: Steps, name: str = "map") -> None:
    """Overwrite the first of ``tensors`` with ``expr``; see :func:`map`.

    Raises:
        TensorError: The others do not broadcast to the first.
        TypeMismatchError: The expression gives another kind of element than the first tensor holds.
    """
    map_with_output(graph, expr, tensors, tensors[0], prog, name)


def map_with_output(
    graph: Graph, expr: ExprOrCallable, tensors: Sequence[Tensor], out: Tensor, prog: Steps, name: str = "map"
) -> None:
    """Write ``expr`` to ``out``, which may be one of ``tensors``; see :func:`map`."""
    map_with_outputs(graph, [expr], tensors, [out], prog, name)


def map_with_outputs(
    graph: Graph,
    exprs: Sequence[ExprOrCallable],
    tensors: Sequence[Tensor],
    outputs: Sequence[Tensor],
    prog: Steps,
    name: str = "map",
) -> None:
    """Write several expressions of the same operands, each to its output, in one pass.

    An output may be one of ``tensors``: every expression sees its elements as they were before.

    Raises:
        TensorError: The outputs differ in shape, or the operands do not broadcast to it.
        TypeMismatchError: An expression gives another kind of element than its output holds.
    """
    shape = outputs[0].shape
    if any(o.shape != shape for o in outputs):
        raise TensorError(f"{name}: outputs of shapes {', '.join(str(list(o.shape)) for o in outputs)} differ")
    if (wanted := broadcast_shape(name, [t.shape for t in tensors])) != shape and tensors:
        raise TensorError(
            f"{name}: the operands broadcast to {list(wanted)}, but the output {outputs[0]!r} has {list(shape)}"
        )
    fused = fuse([from_callable(e, len(tensors)) for e in exprs], tuple(t.dtype for t in tensors), _types(outputs))
    apply_fused(graph, fused, tensors, outputs, prog, name)


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
) -> None:
    """Append the library call that evaluates ``fused`` into ``outputs``.

    Args:
        graph: Where vertices are made.
        fused: Expressions, one an output.
        tensors: Operands.
        outputs: Tensors of one shape.
        prog: Sequence that the call is appended to.
        name: Name of the call.
        library: The function that the user called.
        cycles: Tile cycles, where the expressions are an operation with a cost of its own.
        base: Kind of the vertices.
    """
    if outputs[0].size == 0:
        return
    kernel = elementwise_kernel(fused, tensors, outputs)
    flops = len(fused.operations) * outputs[0].size
    call = graph.library_call(
        prog, library, inputs=tuple(tensors), outputs=tuple(outputs), kernel=kernel, flops=flops, debug_name=name
    )
    with call as body:
        body.add(execute_elementwise(graph, fused, tensors, outputs, name, cycles, base))


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


def _types(outputs: Sequence[Tensor]) -> list[ElementType | None]:
    return [o.dtype for o in outputs]
