"""Fully connected layers with dynamic sparse weights, under PopLibs' names.

Weights are [out, in] of each group; inputs [batch, groups · in], outputs [batch, groups · out].
"""

from __future__ import annotations

from abele.errors import InvalidOptionError, PatternMismatchError
from abele.graph import Graph, Tensor
from abele.graph.program import Sequence
from abele.numerics import ElementType
from abele.poplibs.poplin.contraction.host_kernel import UNSCALED, Scaling
from abele.poplibs.poplin.operations.float8 import Scales, given_scales, scaling_of
from abele.poplibs.popsparse.dynamic.cache import DynamicPlanningCache, plan_of
from abele.poplibs.popsparse.dynamic.grad_w import ValueGradient
from abele.poplibs.popsparse.dynamic.matmul import check_same
from abele.poplibs.popsparse.dynamic.params import DynamicFullyConnectedParams
from abele.poplibs.popsparse.dynamic.plan import DynamicPlan
from abele.poplibs.popsparse.dynamic.product import DynamicProduct
from abele.poplibs.popsparse.dynamic.tensors import (
    DynamicSparseTensor,
    OpMetaData,
    check_shape,
    create_dense,
    create_sparse,
    rows_shape,
    views_of,
)
from abele.poplibs.poputil.options import Options


def create_fully_connected_weights(
    graph: Graph,
    dtype: ElementType | str,
    params: DynamicFullyConnectedParams,
    name: str = "weights",
    *,
    options: Options = None,
    cache: DynamicPlanningCache | None = None,
) -> DynamicSparseTensor:
    """The weights of a layer.

    Args:
        options: ``doGradAPass`` and ``doGradWPass`` for a layer that is trained: they decide plan and buckets.

    Raises:
        SparsePatternError: The batch is off the grain.
        TypeMismatchError: Elements neither f16 nor f32.
        InvalidOptionError: An option or value that there is not.
    """
    plan = plan_of("createFullyConnectedWeights", params, dtype, graph, options, cache)
    return create_sparse(graph, plan, OpMetaData("fullyConnected", params, plan), name)


def create_fully_connected_input(
    graph: Graph,
    dtype: ElementType | str,
    params: DynamicFullyConnectedParams,
    name: str = "input",
    *,
    options: Options = None,
    cache: DynamicPlanningCache | None = None,
) -> Tensor:
    """The input [batch, groups · in] of a layer, laid out for it."""
    plan = plan_of("createFullyConnectedInput", params, dtype, graph, options, cache)
    return _as_batch(create_dense(graph, plan, rows_shape(plan, by_x=False), name))


def fully_connected_fwd(
    graph: Graph,
    weights: DynamicSparseTensor,
    acts: Tensor,
    params: DynamicFullyConnectedParams,
    prog: Sequence,
    *,
    options: Options = None,
    scales: Scales = None,
    throws: bool = True,
    name: str = "fully_connected_fwd",
    cache: DynamicPlanningCache | None = None,
) -> Tensor:
    """The output [batch, groups · out] of a layer for ``acts`` [batch, groups · in].

    Of 8-bit floats it is f16, times the powers of two of ``scales`` (of ``weights`` and ``acts``).

    Raises:
        TypeMismatchError: Scales of other operands than 8-bit floats.
        PatternMismatchError: Operands, or weights of other parameters or options.
    """
    function = "fullyConnectedFwd"
    scaling = scaling_of(graph, name, given_scales(function, weights.nzValues.dtype, scales), prog, throws=throws)
    return _product(
        graph, function, weights, acts, params, prog, options=options, name=name, cache=cache, scaling=scaling
    )


def fully_connected_grad_a(
    graph: Graph,
    weights: DynamicSparseTensor,
    grad: Tensor,
    params: DynamicFullyConnectedParams,
    prog: Sequence,
    *,
    options: Options = None,
    name: str = "fully_connected_grad_a",
    cache: DynamicPlanningCache | None = None,
) -> Tensor:
    """The gradient [batch, groups · in] of a layer's input, for that of its output [batch, groups · out].

    Raises:
        InvalidOptionError: ``doGradAPass`` is not set.
        PatternMismatchError: Operands, or weights of other parameters or options.
    """
    return _product(
        graph,
        "fullyConnectedGradA",
        weights,
        grad,
        params,
        prog,
        options=options,
        name=name,
        cache=cache,
        transposed=True,
    )


def fully_connected_sparse_grad_w(
    graph: Graph,
    meta_info: Tensor,
    grad: Tensor,
    acts: Tensor,
    params: DynamicFullyConnectedParams,
    prog: Sequence,
    *,
    options: Options = None,
    name: str = "fully_connected_sparse_grad_w",
    cache: DynamicPlanningCache | None = None,
) -> Tensor:
    """The gradient of the weights' values, laid out as ``nzValues``: unused slots are zero.

    Args:
        meta_info: Meta-info of the weights.
        grad: Gradient of the output [batch, groups · out].
        acts: Input [batch, groups · in].

    Raises:
        InvalidOptionError: ``doGradWPass`` is not set.
        PatternMismatchError: Operands of other sizes or types.
    """
    function = "fullyConnectedSparseGradW"
    plan = plan_of(function, params, grad.dtype, graph, options, cache)
    _check_pass(function, "doGradWPass", plan.options.grad_w)
    left, right = (
        _by_group(function, what, tensor, plan, by_x=by_x)
        for what, tensor, by_x in (("the gradient of the output", grad, True), ("the input", acts, False))
    )
    views = views_of(plan, meta_info, None, function)
    with graph.scope(name):
        return ValueGradient(graph, plan, views, left, right, "gradient").emit(prog)


def fully_connected_dense_grad_w_serial_splits(
    graph: Graph,
    dtype: ElementType | str,
    params: DynamicFullyConnectedParams,
    *,
    options: Options = None,
    cache: DynamicPlanningCache | None = None,
) -> tuple[int, int, int]:
    """Serial splits of in channels, out channels and batch that a dense gradient of the weights needs to fit.

    Its dense partials, spread over all tiles, must be within the share of memory that is allowed for temporaries.
    """
    plan = plan_of("fullyConnectedDenseGradWSerialSplits", params, dtype, graph, options, cache)
    ipu = graph.system.ipu
    allowed = plan.options.proportion * ipu.tile.usable_bytes * ipu.num_tiles
    needed, splits = 4 * params.dense_size, 1
    grid = plan.grid[1]
    while needed / splits > allowed and splits < grid:
        splits = next(n for n in range(splits + 1, grid + 1) if grid % n == 0)
    return splits, 1, 1


def _product(
    graph: Graph,
    function: str,
    weights: DynamicSparseTensor,
    given: Tensor,
    params: DynamicFullyConnectedParams,
    prog: Sequence,
    *,
    options: Options,
    name: str,
    cache: DynamicPlanningCache | None,
    transposed: bool = False,
    scaling: Scaling = UNSCALED,
) -> Tensor:
    plan = plan_of(function, params, weights.nzValues.dtype, graph, options, cache)
    if transposed:
        _check_pass(function, "doGradAPass", plan.options.grad_a)
    meta = weights.opMetaData
    if meta is not None:
        if meta.params != params:
            raise PatternMismatchError(
                f"{function}: the weights were made for other parameters",
                because=f"made for {meta.params}, used with {params}",
            )
        check_same(function, meta.options, plan.options)
    dense = _by_group(function, "the dense operand", given, plan, by_x=transposed)
    views = views_of(plan, weights.metaInfo, weights.nzValues, function)
    with graph.scope(name):
        return _as_batch(DynamicProduct(graph, plan, views, dense, transposed, "product", scaling=scaling).emit(prog))


def _check_pass(function: str, option: str, planned: bool) -> None:
    if not planned:
        raise InvalidOptionError(
            f"{function}: option {option!r} is not set",
            because="it decides the plan, and what buckets hold",
            remedy=f"{option!r}: true in the options of every call of the layer, and of its Partitioner",
        )


def _by_group(function: str, what: str, given: Tensor, plan: DynamicPlan, *, by_x: bool) -> Tensor:
    """A tensor [batch, groups · channels] as [groups, channels, batch]."""
    layer, shape = plan.layer, rows_shape(plan, by_x=by_x)
    check_shape(function, what, given, (layer.batchSize, layer.numGroups * shape.rows), plan.dtype)
    return given.reshape((layer.batchSize, layer.numGroups, shape.rows)).transpose((1, 2, 0))


def _as_batch(tensor: Tensor) -> Tensor:
    """A tensor [groups, channels, batch] as [batch, groups · channels]."""
    groups, rows, batch = tensor.shape
    return tensor.transpose((2, 0, 1)).reshape((batch, groups * rows))
