"""Softmax and log-softmax over the innermost dimension, and their gradients.

There is no softmax vertex: each is a chain of reductions and element-wise maps. Source: machine reference §4.10.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from abele.errors import TensorError, TypeMismatchError
from abele.graph import Graph, Tensor
from abele.graph.program import Steps
from abele.kernels.nest import ir
from abele.numerics import ElementType, f16, f32
from abele.poplibs.popops.elementwise.map import emit_map
from abele.poplibs.popops.expr import Op, _1, _2, _3, exp
from abele.poplibs.popops.expressions.host_kernel import nest_over, point
from abele.poplibs.popops.reductions.reduce import emit_reduce
from abele.poplibs.poputil.layout import create_output_like
from abele.poplibs.poputil.mapping import elements_per_tile

Emit = Callable[[Graph, Steps, Sequence[Tensor], Tensor, str], None]


def softmax(
    graph: Graph,
    tensor: Tensor,
    prog: Steps,
    name: str = "softmax",
    *,
    safe: bool = False,
    out_type: ElementType | None = None,
) -> Tensor:
    """exp(x) over the sum of exp(x) along the innermost dimension, as a new tensor; stable for large elements.

    Args:
        graph: The graph.
        tensor: [..., row].
        prog: Program that it is appended to.
        name: Debug name.
        safe: True to give zeros, not NaN, for rows that are minus infinity throughout, as masks may make them.
        out_type: Float type of the result; by default that of the tensor. With an f32 among the two, all is computed
            in f32, and converted where it is read and written.

    Raises:
        TensorError: The tensor is a scalar.
        TypeMismatchError: Its elements are no floats.
    """
    return _row_op(graph, "safe_softmax" if safe else "softmax", [tensor], out_type, prog, name)


def softmax_in_place(graph: Graph, tensor: Tensor, prog: Steps, name: str = "softmax") -> None:
    """Overwrite ``tensor`` with its :func:`softmax`.

    Raises:
        TensorError: The tensor is a scalar.
        TypeMismatchError: Its elements are no floats.
        ConstantWriteError: It cannot be written.
    """
    _row_op(graph, "softmax", [tensor], tensor, prog, name)


SOFTMAX_SCALING = {f32: 1.0, f16: 16384.0}
"""Factor of a scaled softmax, so that small probabilities are no denormals. Source: PopLibs' NonLinearity.hpp."""


def softmax_scaling(dtype: ElementType) -> float:
    """The factor of :func:`scaled_softmax_stable` for elements of ``dtype``: 16,384 for f16, otherwise 1."""
    return SOFTMAX_SCALING.get(dtype, 1.0)


def scaled_softmax_stable(
    graph: Graph, tensor: Tensor, prog: Steps, name: str = "softmax_scaled"
) -> tuple[Tensor, float]:
    """:func:`softmax` times :func:`softmax_scaling`, and that factor: ``model_output_scaling`` of a loss.

    Raises:
        TensorError: The tensor is a scalar.
        TypeMismatchError: Its elements are no floats.
    """
    return _row_op(graph, _scaled_op(tensor), [tensor], None, prog, name), softmax_scaling(tensor.dtype)


def scaled_softmax_stable_in_place(graph: Graph, tensor: Tensor, prog: Steps, name: str = "softmax_scaled") -> float:
    """Overwrite ``tensor`` with its :func:`scaled_softmax_stable`; gives the factor.

    Raises:
        TensorError: The tensor is a scalar.
        TypeMismatchError: Its elements are no floats.
        ConstantWriteError: It cannot be written.
    """
    _row_op(graph, _scaled_op(tensor), [tensor], tensor, prog, name)
    return softmax_scaling(tensor.dtype)


def _scaled_op(tensor: Tensor) -> str:
    return "softmax" if softmax_scaling(tensor.dtype) == 1.0 else "softmax_scaled"


def log_softmax(
    graph: Graph, tensor: Tensor, prog: Steps, name: str = "log_softmax", *, out_type: ElementType | None = None
) -> Tensor:
    """The logarithm of :func:`softmax`, as a new tensor, without ever taking the logarithm of a small quotient.

    Raises:
        TensorError: The tensor is a scalar.
        TypeMismatchError: Its elements are no floats.
    """
    return _row_op(graph, "log_softmax", [tensor], out_type, prog, name)


def log_softmax_in_place(graph: Graph, tensor: Tensor, prog: Steps, name: str = "log_softmax") -> None:
    """Overwrite ``tensor`` with its :func:`log_softmax`.

    Raises:
        TensorError: The tensor is a scalar.
        TypeMismatchError: Its elements are no floats.
        ConstantWriteError: It cannot be written.
    """
    _row_op(graph, "log_softmax", [tensor], tensor, prog, name)


def softmax_input_gradient(
    graph: Graph,
    output: Tensor,
    out_gradient: Tensor,
    prog: Steps,
    name: str = "softmax_gradient",
    *,
    out_type: ElementType | None = None,
) -> Tensor:
    """Gradient of softmax's input: y·(g − Σ g·y) for its ``output`` y and output gradient g.

    Raises:
        TensorError: The shapes differ.
    """
    return _row_op(graph, "softmax_gradient", [output, out_gradient], out_type, prog, name)


def log_softmax_input_gradient(
    graph: Graph,
    output: Tensor,
    out_gradient: Tensor,
    prog: Steps,
    name: str = "log_softmax_gradient",
    *,
    out_type: ElementType | None = None,
) -> Tensor:
    """Gradient of log-softmax's input: g − exp(y)·Σ g for its ``output`` y and output gradient g.

    Raises:
        TensorError: The shapes differ.
    """
    return _row_op(graph, "log_softmax_gradient", [output, out_gradient], out_type, prog, name)


def _row_op(
    graph: Graph, op: str, inputs: list[Tensor], out: Tensor | ElementType | None, prog: Steps, name: str
) -> Tensor:
    tensor = inputs[0]
    if tensor.ndim == 0 or any(t.shape != tensor.shape for t in inputs):
        shapes = ", ".join(str(list(t.shape)) for t in inputs)
        raise TensorError(f"{name}: {op} takes tensors of one shape with at least one dimension, got {shapes}")
    if not all(t.dtype.is_float for t in inputs):
        raise TypeMismatchError(f"{name}: {op} takes floating-point elements, got {tensor.dtype}")
    if isinstance(out, ElementType) and not out.is_float:
        raise TypeMismatchError(f"{name}: {op} makes floating-point elements, and no {out}")
    if out is None or isinstance(out, ElementType):
        result = create_output_like(graph, inputs, tensor.shape, out or tensor.dtype, f"{name}/out")
    else:
        result = out
    if tensor.size == 0:
        return result
    emit, nests = _OPS[op]
    kernel = _kernel(inputs, result, nests)
    call = graph.library_call(
        prog,
        f"popnn.{op}",
        inputs=tuple(inputs),
        outputs=(result,),
        kernel=kernel,
        flops=4 * tensor.size,
        debug_name=name,
    )
    with call as body:
        emit(graph, body, inputs, result, name)
    return result


def _new_like(graph: Graph, tensor: Tensor, dtype: ElementType, name: str) -> Tensor:
    return create_output_like(graph, [tensor], tensor.shape, dtype, name)


def _column(row: Tensor) -> Tensor:
    """One value per row, to stand beside the elements of the row."""
    return row.expand_dims(row.ndim)


def _emit_softmax(graph: Graph, body: Steps, inputs: Sequence[Tensor], out: Tensor, name: str) -> None:
    _emit_scaled(graph, body, inputs, out, 1.0)


def _emit_safe_softmax(graph: Graph, body: Steps, inputs: Sequence[Tensor], out: Tensor, name: str) -> None:
    _emit_scaled(graph, body, inputs, out, 1.0, safe=True)


def _emit_scaled_softmax(graph: Graph, body: Steps, inputs: Sequence[Tensor], out: Tensor, name: str) -> None:
    _emit_scaled(graph, body, inputs, out, SOFTMAX_SCALING[f16])


def _computed(*tensors: Tensor) -> ElementType:
    """Type that operands and results are computed in: f32 if one of them is."""
    return f32 if any(t.dtype == f32 for t in tensors) else tensors[0].dtype


def _row_type(graph: Graph, tensor: Tensor, dtype: ElementType) -> ElementType:
    """Type of the values that are one per row, on tiles: ``dtype``, that of the elements, or f32.

    Maps of one type take about a cycle per element less than mixed ones. But single 16-bit values cannot be exchanged
    without arranging them, so where rows are cut between tiles that only pays for tiles with many elements.
    """
    num_tiles, few = graph.system.num_tiles, graph.system.ipu.rearrange.local_copy_cycles
    if tensor.size >= num_tiles * few:  # Some tile has as many, wherever they lie.
        return dtype
    mapping = graph.mapping_of(tensor.flatten())
    is_cut = bool((mapping.begin % tensor.shape[-1]).any())
    is_few = elements_per_tile(mapping, num_tiles).max(initial=0) < few
    return f32 if is_cut and is_few else dtype


def _emit_powers(
    graph: Graph, body: Steps, x: Tensor, dtype: ElementType, row_type: ElementType, *, safe: bool = False
) -> tuple[Tensor, Tensor, Tensor]:
    """The largest element of each row, the powers relative to it, of ``dtype``, and their sum.

    As in PopLibs, only the sum, of which there is one per row, is always f32.
    """
    top = emit_reduce(graph, body, x, dims=[-1], op="MAX", name="max", out_type=row_type)
    if safe:
        lowest = _lowest(row_type)
        emit_map(graph, body, [Op("select", lowest, _1, _1 < lowest)], [top], [top], "finite_max")
    powers = _new_like(graph, x, dtype, "exp/out")
    emit_map(graph, body, [exp(_1 - _2)], [x, _column(top)], [powers], "exp")
    return top, powers, emit_reduce(graph, body, powers, [-1], "ADD", "sum")


def _emit_scaled(
    graph: Graph, body: Steps, inputs: Sequence[Tensor], out: Tensor, factor: float, *, safe: bool = False
) -> None:
    dtype = _computed(inputs[0], out)
    row_type = _row_type(graph, inputs[0], dtype)
    _, powers, total = _emit_powers(graph, body, inputs[0], dtype, row_type, safe=safe)
    inverse = _new_like(graph, total, row_type, "inv/out")
    divided = Op("inv", Op("select", 1.0, _1, _1 < 1.0) if safe else _1)
    emit_map(graph, body, [divided * factor if factor != 1.0 else divided], [total], [inverse], "inv")
    emit_map(graph, body, [_1 * _2], [powers, _column(inverse)], [out], "scale")


def _emit_log_softmax(graph: Graph, body: Steps, inputs: Sequence[Tensor], out: Tensor, name: str) -> None:
    (x,) = inputs
    dtype = _computed(x, out)
    top, _, total = _emit_powers(graph, body, x, dtype, _row_type(graph, x, dtype))
    shift = _new_like(graph, total, f32, "log/out")
    emit_map(graph, body, [_1 + Op("log", _2)], [top, total], [shift], "log")
    emit_map(graph, body, [_1 - _2], [x, _column(shift)], [out], "shift")


def _emit_softmax_gradient(graph: Graph, body: Steps, inputs: Sequence[Tensor], out: Tensor, name: str) -> None:
    y, g = inputs
    dtype = _computed(y, g, out)
    products = _new_like(graph, y, dtype, "product/out")
    emit_map(graph, body, [_1 * _2], [y, g], [products], "product")
    total = emit_reduce(graph, body, products, dims=[-1], op="ADD", name="sum", out_type=_row_type(graph, y, dtype))
    emit_map(graph, body, [_1 * (_2 - _3)], [y, g, _column(total)], [out], "gradient")


def _emit_log_softmax_gradient(graph: Graph, body: Steps, inputs: Sequence[Tensor], out: Tensor, name: str) -> None:
    y, g = inputs
    row_type = _row_type(graph, g, _computed(y, g, out))
    total = emit_reduce(graph, body, g, dims=[-1], op="ADD", name="sum", out_type=row_type)
    emit_map(graph, body, [_2 - exp(_1) * _3], [y, g, _column(total)], [out], "gradient")


Nests = Callable[[tuple[int, ...], int], tuple[ir.Nest, ...]]
"""Nests over the shape of the operands, from the number of the output. Temporaries follow it: two with one value per
row, and one like the output, in f32."""


def _kernel(inputs: Sequence[Tensor], out: Tensor, nests: Nests) -> ir.HostKernel:
    shape, rows = out.shape, out.shape[:-1]
    tensors = (*inputs, out)
    return ir.HostKernel(
        (*(t.shape for t in tensors), rows, rows, shape),
        (*(t.dtype for t in tensors), f32, f32, f32),
        len(inputs),
        1,
        nests(shape, len(inputs)),
    )


def _at(shape: tuple[int, ...]) -> tuple[tuple[ir.Affine, ...], tuple[ir.Affine, ...]]:
    """Index of an element, and of its row."""
    at = point(len(shape))
    return at, at[:-1]


def _largest(shape: tuple[int, ...], out: int) -> ir.Nest:
    """The nest that leaves the largest element of each row."""
    at, row = _at(shape)
    return nest_over(shape, ir.Store(out + 1, row, ir.Load(0, at), "max"))


def _lowest(dtype: ElementType) -> float:
    """The least number of a type that is not minus infinity."""
    return float(np.finfo(dtype.np).min)


def _softmax_nests(shape: tuple[int, ...], out: int, factor: float = 1.0, *, safe: bool = False) -> tuple[ir.Nest, ...]:
    """With ``safe`` rows of minus infinities alone are all zeros.

    Powers relative to the least finite number are 0 there, and so is their sum. Any other row has a power of 1, and a
    sum that is no less: only sums of nothing are replaced by 1 before they are divided by. NaN passes both choices.
    """
    at, row = _at(shape)
    powers = out + 3
    top, total = ir.Load(out + 1, row), ir.Load(out + 2, row)
    inverse: ir.Expr = ir.apply("inv", ir.select(total < 1.0, 1.0, total) if safe else total)
    inverse = inverse * factor if factor != 1.0 else inverse
    lowest = _lowest(f32)
    shifted = ir.Load(0, at) - (ir.select(top < lowest, lowest, top) if safe else top)
    return (
        _largest(shape, out),
        nest_over(shape, ir.Store(powers, at, ir.apply("exp", shifted))),
        nest_over(shape, ir.Store(out + 2, row, ir.Load(powers, at), "add")),
        nest_over(shape, ir.Store(out, at, ir.Load(powers, at) * inverse)),
    )


def _scaled_softmax_nests(shape: tuple[int, ...], out: int) -> tuple[ir.Nest, ...]:
    return _softmax_nests(shape, out, SOFTMAX_SCALING[f16])


def _safe_softmax_nests(shape: tuple[int, ...], out: int) -> tuple[ir.Nest, ...]:
    return _softmax_nests(shape, out, safe=True)


def _log_softmax_nests(shape: tuple[int, ...], out: int) -> tuple[ir.Nest, ...]:
    at, row = _at(shape)
    x, top = ir.Load(0, at), ir.Load(out + 1, row)
    shift = top + ir.apply("log", ir.Load(out + 2, row))
    return (
        _largest(shape, out),
        nest_over(shape, ir.Store(out + 2, row, ir.apply("exp", x - top), "add")),
        nest_over(shape, ir.Store(out, at, x - shift)),
    )


def _softmax_gradient_nests(shape: tuple[int, ...], out: int) -> tuple[ir.Nest, ...]:
    at, row = _at(shape)
    y, g = ir.Load(0, at), ir.Load(1, at)
    return (
        nest_over(shape, ir.Store(out + 1, row, y * g, "add")),
        nest_over(shape, ir.Store(out, at, y * (g - ir.Load(out + 1, row)))),
    )


def _log_softmax_gradient_nests(shape: tuple[int, ...], out: int) -> tuple[ir.Nest, ...]:
    at, row = _at(shape)
    y, g = ir.Load(0, at), ir.Load(1, at)
    return (
        nest_over(shape, ir.Store(out + 1, row, g, "add")),
        nest_over(shape, ir.Store(out, at, g - ir.apply("exp", y) * ir.Load(out + 1, row))),
    )


_OPS: dict[str, tuple[Emit, Nests]] = {
    "softmax": (_emit_softmax, _softmax_nests),
    "safe_softmax": (_emit_safe_softmax, _safe_softmax_nests),
    "softmax_scaled": (_emit_scaled_softmax, _scaled_softmax_nests),
    "log_softmax": (_emit_log_softmax, _log_softmax_nests),
    "softmax_gradient": (_emit_softmax_gradient, _softmax_gradient_nests),
    "log_softmax_gradient": (_emit_log_softmax_gradient, _log_softmax_gradient_nests),
}
