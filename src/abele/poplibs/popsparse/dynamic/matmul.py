"""Dynamic sparse matrix products, under PopLibs' names."""

from __future__ import annotations

from abele.errors import PatternMismatchError, TypeMismatchError
from abele.graph import Graph, Tensor
from abele.graph.program import Sequence
from abele.numerics import ElementType
from abele.poplibs.poplin.operations.float8 import Scales, given_scales, scaling_of
from abele.poplibs.popsparse.dynamic.cache import DynamicPlanningCache, plan_of
from abele.poplibs.popsparse.dynamic.options import DynamicOptions
from abele.poplibs.popsparse.dynamic.params import DynamicMatMulParams
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


def create_sparse_dense_matmul_lhs(
    graph: Graph,
    dtype: ElementType | str,
    params: DynamicMatMulParams,
    name: str = "lhs",
    *,
    options: Options = None,
    cache: DynamicPlanningCache | None = None,
) -> DynamicSparseTensor:
    """The sparse side of :func:`sparse_dense_matmul`.

    Raises:
        SparsePatternError: The batch is off the grain.
        TypeMismatchError: Elements neither f16 nor f32.
        InvalidOptionError: An option or value that there is not.
    """
    plan = plan_of("createSparseDenseMatMulLHS", params, dtype, graph, options, cache)
    return create_sparse(graph, plan, OpMetaData("matMul", params, plan), name)


def create_sparse_dense_matmul_rhs(
    graph: Graph,
    dtype: ElementType | str,
    params: DynamicMatMulParams,
    name: str = "rhs",
    *,
    options: Options = None,
    cache: DynamicPlanningCache | None = None,
) -> Tensor:
    """The dense side [groups, k, n] of :func:`sparse_dense_matmul`, laid out for it."""
    plan = plan_of("createSparseDenseMatMulRHS", params, dtype, graph, options, cache)
    return create_dense(graph, plan, rows_shape(plan, by_x=False), name)


def sparse_dense_matmul(
    graph: Graph,
    lhs: DynamicSparseTensor,
    rhs: Tensor,
    prog: Sequence,
    transpose_lhs: bool = False,
    transpose_rhs: bool = False,
    *,
    options: Options = None,
    scales: Scales = None,
    throws: bool = True,
    name: str = "sparse_dense_matmul",
    cache: DynamicPlanningCache | None = None,
) -> Tensor:
    """S·X [groups, m, n], or Sᵀ·X [groups, k, n], as a new tensor.

    Args:
        lhs: S, of :func:`create_sparse_dense_matmul_lhs`.
        rhs: X [groups, k, n]; for Sᵀ·X [groups, m, n]. With ``transpose_rhs`` its last two dimensions are swapped.
        transpose_lhs: True for Sᵀ·X, with the same sparse tensor.
        options: As given where ``lhs`` was made.
        scales: Of 8-bit floats: further scales of ``lhs`` and ``rhs``, as in :func:`~abele.poplibs.poplin.matmul`.
        throws: False for scales of tensors that are out of range to be the nearest that are not.

    Raises:
        TypeMismatchError: Sᵀ·X of 8-bit floats, or scales of other operands.
        PatternMismatchError: A sparse tensor of another operation, or other options than it was made with.
    """
    function = "sparseDenseMatMul"
    meta = lhs.opMetaData
    if meta is None or meta.operation != "matMul" or not isinstance(meta.params, DynamicMatMulParams):
        what = "no metadata" if meta is None else f"metadata of {meta.operation}"
        raise PatternMismatchError(
            f"{function}: the sparse tensor has {what}",
            because="the plan of its buckets is kept there",
            remedy="make it by createSparseDenseMatMulLHS, and keep its opMetaData",
        )
    plan = plan_of(function, meta.params, meta.plan.dtype, graph, options, cache)
    check_same(function, meta.options, plan.options)
    if transpose_lhs and plan.dtype.is_quarter:
        raise TypeMismatchError(
            f"{function}: Sᵀ·X of {plan.dtype} has no vertex",
            because="blocks of 8-bit floats are not transposed on tiles",
            remedy="a sparse tensor of the transposed matrix · values and dense operand of half",
        )
    scaling = scaling_of(graph, name, given_scales(function, plan.dtype, scales), prog, throws=throws)
    dense = rhs.transpose((0, 2, 1)) if transpose_rhs and rhs.ndim == 3 else rhs
    wanted = rows_shape(plan, by_x=transpose_lhs)
    shape = plan.layer.numGroups, wanted.rows, plan.layer.batchSize
    check_shape(function, "the dense operand", dense, shape, plan.dtype)
    views = views_of(plan, lhs.metaInfo, lhs.nzValues, function)
    with graph.scope(name):
        return DynamicProduct(graph, plan, views, dense, transpose_lhs, "product", scaling=scaling).emit(prog)


def check_same(function: str, made: DynamicOptions, given: DynamicOptions) -> None:
    """Raise unless a call has the options that its sparse tensor was made with.

    Raises:
        PatternMismatchError: It has not.
    """
    now = vars(given)
    wrong = [f"{name} {mine!r} → {now[name]!r}" for name, mine in vars(made).items() if mine != now[name]]
    if wrong:
        raise PatternMismatchError(
            f"{function}: options are others than those that the sparse tensor was made with",
            because="; ".join(wrong),
            remedy="the same options where the tensor is made, where it is used, and in Partitioner",
        )
