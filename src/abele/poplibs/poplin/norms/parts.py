"""Parts of every norm: statistics of a tensor over some dimensions, and gradients through them.

The dimensions that are kept number the statistics. A group norm keeps batch and group, a batch norm the channels; so
neither knows of the other's shapes. There is no norm vertex: each is a chain of reductions and element-wise maps, and
as few of these as the sums allow. Source: machine reference §4.10 (norms).

Σx and Σx² (or Σg and Σg·w) come from one pass over the tensor and one exchange of partial sums, which is why the
variance is taken as E[x²] − E[x]². That loses digits where the mean is large beside the deviation; ``stable`` then
takes the squares of distances from the mean, in a second pass. The host takes distances for both: a second pass over
what a cache still holds costs nothing there, and results are those of other frameworks. The gradient goes through the
statistics: whitening removes mean and scale, so what the gradient has along these two directions has no effect, and
(g − E[g] − w·E[g·w]) · i is what is left, with i the inverse deviation.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from abele.errors import InvalidOptionError, TensorError, TypeMismatchError
from abele.graph import ComputeSet, Execute, Graph, Tensor
from abele.graph.program import Steps
from abele.kernels.nest import ir
from abele.numerics import ElementType, f32
from abele.poplibs.popops.elementwise.map import emit_map, map_with_outputs
from abele.poplibs.popops.expr import Expr, Op, _1, _2, _3, _4, _5
from abele.poplibs.popops.expressions.host_kernel import nest_over, point
from abele.poplibs.popops.reductions.reduce import ReduceParams, SingleReduceOp, emit_reduce, kept_dims, reduce_many
from abele.poplibs.popops.reductions.two_sums import TwoSums
from abele.poplibs.poputil.layout import create_output_like
from abele.poplibs.poputil.mapping import map_small


@dataclass(frozen=True)
class Moments:
    """Parameters of the statistics of a tensor.

    Attributes:
        kept: Dimensions that the statistics keep.
        eps: Added to the variance.
        count: Elements of one statistic, of all replicas.
        unbiased: True if the variance is over count − 1.

    Raises:
        InvalidOptionError: A negative ``eps``.
    """

    kept: tuple[int, ...]
    eps: float
    count: int
    unbiased: bool

    def __post_init__(self) -> None:
        if not self.eps >= 0:
            raise InvalidOptionError(f"statistics: eps is {self.eps}, it must be at least 0")

    @property
    def correction(self) -> float:
        """Factor of the mean of the squared distances: Bessel's correction, or 1."""
        return self.count / max(self.count - 1, 1) if self.unbiased else 1.0


def check_floats(name: str, *tensors: Tensor) -> None:
    """All ``tensors`` hold floating-point elements.

    Raises:
        TypeMismatchError: One does not.
    """
    for tensor in tensors:
        if not tensor.dtype.is_float:
            raise TypeMismatchError(f"{name}: {tensor!r} holds no floating-point elements")


def check_shape(name: str, role: str, tensor: Tensor, shape: Sequence[int]) -> None:
    """``tensor`` has ``shape``.

    Raises:
        TensorError: It has not.
    """
    if tensor.shape != tuple(shape):
        raise TensorError(f"{name}: {role} {tensor!r} has shape {list(tensor.shape)}, not {list(shape)}")


def beside(statistic: Tensor, kept: Sequence[int], ndim: int) -> Tensor:
    """A statistic with dimensions of one index where its tensor is reduced, so that both broadcast."""
    for dim in range(ndim):
        if dim not in kept:
            statistic = statistic.expand_dims(dim)
    return statistic


def gone_dims(ndim: int, kept: Sequence[int]) -> list[int]:
    """The dimensions that are reduced."""
    return [d for d in range(ndim) if d not in kept]


def _at(x: Tensor, kept: Sequence[int]) -> tuple[tuple[ir.Affine, ...], tuple[ir.Affine, ...]]:
    """Index of an element and of its statistic, in a nest over the tensor."""
    at = point(x.ndim)
    return at, tuple(at[d] for d in kept)


def _kept_shape(x: Tensor, kept: Sequence[int]) -> tuple[int, ...]:
    return tuple(x.shape[d] for d in kept)


def sums(graph: Graph, x: Tensor, y: Tensor | None, kept: tuple[int, ...], prog: Steps, name: str) -> list[Tensor]:
    """Σ x, and Σ x² or Σ x·y where ``y`` is given, over all but the ``kept`` dimensions, in f32."""
    shape, inputs = _kept_shape(x, kept), (x,) if y is None else (x, y)
    at, own = _at(x, kept)
    first = len(inputs)
    square = ir.Load(0, at) * ir.Load(first - 1, at)
    stores = ir.Store(first, own, ir.Load(0, at), "add"), ir.Store(first + 1, own, square, "add")
    tensors = (*(t.shape for t in inputs), shape, shape)
    types = (*(t.dtype for t in inputs), f32, f32)
    body = Steps()
    outputs = _emit_sums(graph, body, x, y, kept)
    kernel = ir.HostKernel(tensors, types, first, 2, (nest_over(x.shape, *stores),))
    call = graph.library_call(
        prog,
        "poplin.norm_sums",
        inputs=inputs,
        outputs=tuple(outputs),
        kernel=kernel,
        flops=3 * x.size,
        debug_name=name,
    )
    with call as inner:
        for step in body:
            inner.add(step)
    return outputs


def _emit_sums(graph: Graph, body: Steps, x: Tensor, y: Tensor | None, kept: tuple[int, ...]) -> list[Tensor]:
    gone = gone_dims(x.ndim, kept)
    if y is None:
        return _emit_together(graph, body, x, None, gone)
    # No reduction multiplies two tensors: the product is made first, laid out as one of them.
    product = create_output_like(graph, [x, y], x.shape, x.dtype, "product/out")
    emit_map(graph, body, [_1 * _2], [x, y], [product], "product")
    return _emit_together(graph, body, x, product, gone)


def _emit_together(graph: Graph, body: Steps, x: Tensor, y: Tensor | None, gone: list[int]) -> list[Tensor]:
    """Σ x and Σ y, or Σ x² without ``y``, in f32: as one reduction of both, or in shared supersteps."""
    sets: list[ComputeSet] = []
    both = TwoSums.of(graph, x, y, kept_dims(x, gone, "sums"), "sums")
    if both is not None:
        made = list(both.add(sets))
    else:
        wanted = [(x, "ADD"), (x, "SQUARE_ADD") if y is None else (y, "ADD")]
        reductions = [SingleReduceOp(t, gone, ReduceParams(op), f32, f"sum{n}") for n, (t, op) in enumerate(wanted)]
        made = reduce_many(graph, reductions, sets, name="sums")
    for compute_set in sets:
        body.add(Execute(compute_set))
    return made


def _inverse_deviation(variance: Expr, moments: Moments) -> Expr:
    # Rounding may leave a variance just below 0.
    return Op("rsqrt", Op("max", variance, 0.0) * moments.correction + moments.eps)


def _kernel_inverse(variance: ir.Expr, moments: Moments) -> ir.Expr:
    return ir.apply("rsqrt", ir.apply("max", variance, 0.0) * moments.correction + moments.eps)


def statistics_of_sums(
    graph: Graph, total: Tensor, squares: Tensor, moments: Moments, dtype: ElementType, prog: Steps, name: str
) -> tuple[Tensor, Tensor]:
    """Mean and inverse standard deviation from Σ x and Σ x²."""
    shape, at = total.shape, point(total.ndim)
    mean, power = ir.Load(0, at) * (1.0 / moments.count), ir.Load(1, at) * (1.0 / moments.count)
    stores = ir.Store(2, at, mean), ir.Store(3, at, _kernel_inverse(power - mean * mean, moments))
    kernel = ir.HostKernel((shape,) * 4, (f32, f32, dtype, dtype), 2, 2, (nest_over(shape, *stores),))
    outs = [create_output_like(graph, [total], shape, dtype, f"{name}/{n}") for n in ("mean", "inv_std_dev")]
    call = graph.library_call(
        prog, "poplin.norm_statistics", inputs=(total, squares), outputs=tuple(outs), kernel=kernel, debug_name=name
    )
    with call as body:
        _emit_finish(graph, body, total, squares, moments, outs)
    return outs[0], outs[1]


def _emit_finish(
    graph: Graph, body: Steps, total: Tensor, squares: Tensor, moments: Moments, outs: Sequence[Tensor]
) -> None:
    # Of all replicas: sums may have been reduced over them.
    share = 1.0 / moments.count
    mean = _1 * share
    emit_map(
        graph, body, [mean, _inverse_deviation(_2 * share - mean * mean, moments)], [total, squares], outs, "finish"
    )


def statistics(
    graph: Graph, x: Tensor, moments: Moments, prog: Steps, name: str, *, stable: bool, dtype: ElementType | None = None
) -> tuple[Tensor, Tensor]:
    """Mean and inverse standard deviation of ``x``, in its type or in ``dtype``.

    ``stable`` takes the squares of the distances from the mean, after the mean, rather than those of the elements. The
    host kernel always does.
    """
    kept = moments.kept
    shape = _kept_shape(x, kept)
    # Statistics are few: spread evenly, wherever the sums are made.
    dtype = dtype or x.dtype
    outs = [map_small(graph, graph.variable(dtype, shape, name=f"{name}/{n}")) for n in ("mean", "inv_std_dev")]
    kernel = _statistics_kernel(x, moments, dtype)
    call = graph.library_call(
        prog,
        "poplin.norm_statistics",
        inputs=(x,),
        outputs=tuple(outs),
        kernel=kernel,
        flops=3 * x.size,
        debug_name=name,
    )
    with call as body:
        if stable:
            _emit_stable(graph, body, x, moments, outs)
        else:
            total, squares = _emit_sums(graph, body, x, None, kept)
            _emit_finish(graph, body, total, squares, moments, outs)
    return outs[0], outs[1]


def _emit_stable(graph: Graph, body: Steps, x: Tensor, moments: Moments, outs: Sequence[Tensor]) -> None:
    kept, share = moments.kept, 1.0 / moments.count
    gone = gone_dims(x.ndim, kept)
    total = emit_reduce(graph, body, x, gone, "ADD", "sum")
    distance = create_output_like(graph, [x], x.shape, x.dtype, "distance/out")
    emit_map(graph, body, [_1 - _2 * share], [x, beside(total, kept, x.ndim)], [distance], "distance")
    squares = emit_reduce(graph, body, distance, gone, "SQUARE_ADD", "squares")
    exprs = [_1 * share, _inverse_deviation(_2 * share, moments)]
    emit_map(graph, body, exprs, [total, squares], outs, "finish")


def _statistics_kernel(x: Tensor, moments: Moments, dtype: ElementType) -> ir.HostKernel:
    """Operands: the tensor; mean and inverse deviation; Σ x and the sum of squared distances from the mean."""
    kept, share = moments.kept, 1.0 / moments.count
    shape = _kept_shape(x, kept)
    at, own = _at(x, kept)
    here, value = point(len(shape)), ir.Load(0, at)
    distance = value - ir.Load(3, own) * share
    inverse = _kernel_inverse(ir.Load(4, here) * share, moments)
    nests = (
        nest_over(x.shape, ir.Store(3, own, value, "add")),
        nest_over(x.shape, ir.Store(4, own, distance * distance, "add")),
        nest_over(shape, ir.Store(1, here, ir.Load(3, here) * share), ir.Store(2, here, inverse)),
    )
    types = (x.dtype, dtype, dtype, f32, f32)
    return ir.HostKernel((x.shape, *(shape,) * 4), types, 1, 2, nests)


PARAMETER_SEEDS = (0, 1)
"""Seeds of the places of gamma and beta, and of their gradients, for ``map_small``."""


def parameter_gradients(
    graph: Graph,
    whitened: Tensor,
    grads: Tensor,
    kept: tuple[int, ...],
    prog: Steps,
    name: str,
    *,
    types: tuple[ElementType, ElementType] | None = None,
) -> tuple[Tensor, Tensor]:
    """Σ g·w and Σ g over all but the ``kept`` dimensions, in the type of ``grads`` or in ``types``."""
    shape, made = _kept_shape(grads, kept), types or (grads.dtype,) * 2
    wanted = zip(("gamma", "beta"), made, PARAMETER_SEEDS, strict=True)
    outs = [map_small(graph, graph.variable(dtype, shape, name=f"{name}/{n}"), seed) for n, dtype, seed in wanted]
    at, own = _at(grads, kept)
    g, w, here = ir.Load(1, at), ir.Load(0, at), point(len(shape))
    nests = (
        nest_over(grads.shape, ir.Store(4, own, g * w, "add"), ir.Store(5, own, g, "add")),
        nest_over(shape, ir.Store(2, here, ir.Load(4, here)), ir.Store(3, here, ir.Load(5, here))),
    )
    kernel = ir.HostKernel(
        (grads.shape, grads.shape, *(shape,) * 4), (whitened.dtype, grads.dtype, *made, f32, f32), 2, 2, nests
    )
    call = graph.library_call(
        prog,
        "poplin.norm_param_gradients",
        inputs=(whitened, grads),
        outputs=tuple(outs),
        kernel=kernel,
        flops=3 * grads.size,
        debug_name=name,
    )
    with call as body:
        beta, gamma = _emit_sums(graph, body, grads, whitened, kept)
        emit_map(graph, body, [_1, _2], [gamma, beta], outs, "narrow")
    return outs[0], outs[1]


def input_gradient_of_sums(
    graph: Graph,
    operands: Sequence[Tensor],
    totals: Sequence[Tensor],
    kept: tuple[int, ...],
    count: int,
    prog: Steps,
    name: str,
) -> Tensor:
    """(g − Σ g / n − w·Σ g·w / n) · i for ``operands`` (w, g, i) and ``totals`` (Σ g, Σ g·w)."""
    w, g, inverse = operands
    out = create_output_like(graph, [g, w], g.shape, g.dtype, f"{name}/out")
    inputs = (w, g, inverse, *totals)
    at, own = _at(g, kept)
    share = 1.0 / count
    value = ir.Load(1, at) - ir.Load(3, own) * share - ir.Load(0, at) * (ir.Load(4, own) * share)
    nest = nest_over(g.shape, ir.Store(5, at, value * ir.Load(2, own)))
    tensors = (*inputs, out)
    kernel = ir.HostKernel(tuple(t.shape for t in tensors), tuple(t.dtype for t in tensors), 5, 1, (nest,))
    call = graph.library_call(
        prog,
        "poplin.norm_input_gradient",
        inputs=inputs,
        outputs=(out,),
        kernel=kernel,
        flops=5 * g.size,
        debug_name=name,
    )
    with call as body:
        _emit_gradient(graph, body, inputs, kept, share, out)
    return out


def _emit_gradient(
    graph: Graph, body: Steps, inputs: Sequence[Tensor], kept: tuple[int, ...], share: float, out: Tensor
) -> None:
    wide = [beside(t, kept, out.ndim) for t in inputs[2:]]
    value = (_2 - _4 * share - _1 * (_5 * share)) * _3
    emit_map(graph, body, [value], [*inputs[:2], *wide], [out], "gradient")


def input_gradient(
    graph: Graph,
    operands: Sequence[Tensor],
    gamma: Tensor | None,
    kept: tuple[int, ...],
    prog: Steps,
    name: str,
) -> Tensor:
    """Gradient of the tensor whose whitened elements are w, for ``operands`` (w, g, i).

    Args:
        graph: Graph in which vertices and the result are made.
        operands: Whitened elements, gradient of what they became, inverse standard deviations.
        gamma: Factors of the whitened elements, of the rank of w with dimensions of one index; or None for 1.
        kept: Dimensions that the statistics keep.
        prog: Sequence that the steps are appended to.
        name: Name of the steps.
    """
    w, g, inverse = operands
    out = create_output_like(graph, [g, w], g.shape, g.dtype, f"{name}/out")
    inputs = (w, g, inverse, *(() if gamma is None else (gamma,)))
    count = w.size // max(math.prod(_kept_shape(w, kept)), 1)
    kernel = _input_gradient_kernel(inputs, out, kept, count)
    call = graph.library_call(
        prog,
        "poplin.norm_input_gradient",
        inputs=inputs,
        outputs=(out,),
        kernel=kernel,
        flops=9 * g.size,
        debug_name=name,
    )
    with call as body:
        if gamma is not None:
            scaled = create_output_like(graph, [g, w], g.shape, g.dtype, "scaled/out")
            product = create_output_like(graph, [g, w], g.shape, g.dtype, "product/out")
            emit_map(graph, body, [_1 * _2, _1 * _2 * _3], [g, gamma, w], [scaled, product], "scaled")
            gone = gone_dims(w.ndim, kept)
            total, with_w = _emit_together(graph, body, scaled, product, gone)
            _emit_gradient(graph, body, (w, scaled, inverse, total, with_w), kept, 1.0 / count, out)
        else:
            total, with_w = _emit_sums(graph, body, g, w, kept)
            _emit_gradient(graph, body, (w, g, inverse, total, with_w), kept, 1.0 / count, out)
    return out


def _input_gradient_kernel(inputs: Sequence[Tensor], out: Tensor, kept: tuple[int, ...], count: int) -> ir.HostKernel:
    """Operands: w, g, i, gamma where there is one; the result; Σ g and Σ g·w."""
    at, own = _at(out, kept)
    shape, result = _kept_shape(out, kept), len(inputs)
    w, g = ir.Load(0, at), ir.Load(1, at)
    grad: ir.Expr = g
    if result == 4:
        index = tuple(ir.affine(0) if n == 1 else a for n, a in zip(inputs[3].shape, at, strict=True))
        grad = g * ir.Load(3, index)
    share = 1.0 / count
    value = grad - ir.Load(result + 1, own) * share - w * (ir.Load(result + 2, own) * share)
    nests = (
        nest_over(out.shape, ir.Store(result + 1, own, grad, "add"), ir.Store(result + 2, own, grad * w, "add")),
        nest_over(out.shape, ir.Store(result, at, value * ir.Load(2, own))),
    )
    shapes = (*(t.shape for t in inputs), out.shape, shape, shape)
    return ir.HostKernel(shapes, (*(t.dtype for t in inputs), out.dtype, f32, f32), result, 1, nests)


def whiten(
    graph: Graph,
    x: Tensor,
    stats: Sequence[Tensor],
    kept: tuple[int, ...],
    out: Tensor,
    prog: Steps,
    name: str,
    gamma_beta: Sequence[Tensor] = (),
    whitened: Tensor | None = None,
) -> None:
    """Write (x − mean) · i to ``whitened``, and the same, times gamma plus beta where given, to ``out``."""
    plain = (_1 - _2) * _3
    operands = [x, *(beside(t, kept, x.ndim) for t in stats), *gamma_beta]
    exprs = [plain * _4 + _5] if gamma_beta else [plain]
    outs = [out]
    if whitened is not None:
        exprs, outs = [*exprs, plain], [out, whitened]
    map_with_outputs(graph, exprs, operands, outs, prog, name)
