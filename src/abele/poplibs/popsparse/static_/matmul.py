"""Products of a sparse matrix, whose pattern is known when the graph is built, with a dense one."""

from __future__ import annotations

from abele.errors import PatternMismatchError, TensorError, TypeMismatchError, UnsupportedOpError
from abele.graph import Graph, Tensor
from abele.graph.program import Steps
from abele.numerics import ElementType
from abele.poplibs.popsparse.host import host_product
from abele.poplibs.popsparse.static_.explain import StaticPlanningCache
from abele.poplibs.popsparse.static_.layout import new_dense, new_values
from abele.poplibs.popsparse.static_.lowering import build
from abele.poplibs.popsparse.static_.params import StaticMatMulParams, StaticOptions, checked_type
from abele.poplibs.popsparse.static_.sparse_tensor import AnyMatrix, StaticLayouts, StaticSparseTensor
from abele.poplibs.poputil.host_body import note_host
from abele.poplibs.poputil.options import Options


def create_sparse_dense_matmul_lhs(
    graph: Graph,
    dtype: ElementType | str,
    params: StaticMatMulParams,
    matrix: AnyMatrix,
    name: str = "sparse",
    *,
    options: Options = None,
    cache: StaticPlanningCache | None = None,
) -> StaticSparseTensor:
    """The sparse left operand of sparse [1, m, k] by dense [1, k, n]: its values, where they are multiplied.

    Raises:
        PatternMismatchError: The matrix has another shape than the parameters say.
        SparsePatternError: Blocks without a vertex.
        OutOfMemoryError: No plan fits.
    """
    return _new_sparse(graph, dtype, params, matrix, name, options=options, cache=cache, sparse_first=True)


def create_sparse_dense_matmul_rhs(
    graph: Graph,
    dtype: ElementType | str,
    params: StaticMatMulParams,
    matrix: AnyMatrix,
    name: str = "dense",
    *,
    options: Options = None,
    cache: StaticPlanningCache | None = None,
) -> Tensor:
    """The dense right operand [1, k, n] of the same product."""
    return _new_dense(graph, dtype, params, matrix, name, options=options, cache=cache, sparse_first=True)


def create_dense_sparse_matmul_lhs(
    graph: Graph,
    dtype: ElementType | str,
    params: StaticMatMulParams,
    matrix: AnyMatrix,
    name: str = "dense",
    *,
    options: Options = None,
    cache: StaticPlanningCache | None = None,
) -> Tensor:
    """The dense left operand [1, n, k] of dense by sparse [1, k, m]; it is stored as its transpose."""
    return _new_dense(graph, dtype, params, matrix, name, options=options, cache=cache, sparse_first=False).transpose(
        (0, 2, 1)
    )


def create_dense_sparse_matmul_rhs(
    graph: Graph,
    dtype: ElementType | str,
    params: StaticMatMulParams,
    matrix: AnyMatrix,
    name: str = "sparse",
    *,
    options: Options = None,
    cache: StaticPlanningCache | None = None,
) -> StaticSparseTensor:
    """The sparse right operand of the same product."""
    return _new_sparse(graph, dtype, params, matrix, name, options=options, cache=cache, sparse_first=False)


def sparse_dense_matmul(
    graph: Graph,
    lhs: StaticSparseTensor,
    rhs: Tensor,
    prog: Steps,
    transpose_lhs: bool = False,
    transpose_rhs: bool = False,
    *,
    options: Options = None,
    cache: StaticPlanningCache | None = None,
    name: str = "sparse_dense_matmul",
) -> Tensor:
    """Sparse [1, m, k] by dense [1, k, n], or by [k, n].

    Args:
        graph: Graph in which vertices and the result are made.
        lhs: From :func:`create_sparse_dense_matmul_lhs`.
        rhs: The dense operand, best from :func:`create_sparse_dense_matmul_rhs`.
        prog: Sequence that the steps are appended to.
        transpose_lhs: Only False: a static product has one direction.
        transpose_rhs: True if ``rhs`` is [1, n, k].
        options: The options that ``lhs`` was created with; None takes those.
        cache: Accepted; the plan is that of ``lhs``.
        name: Name of the steps.

    Returns:
        [1, m, n], or [m, n] of a dense matrix without groups.

    Raises:
        PatternMismatchError: ``lhs`` is of another product, machine or options.
        UnsupportedOpError: A transposed sparse operand.
        TensorError: ``rhs`` has another shape.
        TypeMismatchError: ``rhs`` has another type.
    """
    if transpose_lhs:
        raise _no_transpose(name, "lhs")
    _check_tensor(lhs, options, name, sparse_first=True)
    dense = _dense_operand(lhs, rhs, name, transposed=transpose_rhs)
    out = _product(graph, lhs, dense, prog, name)
    return out if rhs.ndim == 2 else out.expand_dims(0)


def dense_sparse_matmul(
    graph: Graph,
    lhs: Tensor,
    rhs: StaticSparseTensor,
    prog: Steps,
    transpose_lhs: bool = False,
    transpose_rhs: bool = False,
    *,
    options: Options = None,
    cache: StaticPlanningCache | None = None,
    name: str = "dense_sparse_matmul",
) -> Tensor:
    """Dense [1, n, k], or [n, k], by sparse [1, k, m]; see :func:`sparse_dense_matmul`.

    Returns:
        [1, n, m], or [n, m] of a dense matrix without groups; stored as its transpose.
    """
    if transpose_rhs:
        raise _no_transpose(name, "rhs")
    _check_tensor(rhs, options, name, sparse_first=False)
    dense = _dense_operand(rhs, lhs, name, transposed=not transpose_lhs)
    out = _product(graph, rhs, dense, prog, name).transpose((1, 0))
    return out if lhs.ndim == 2 else out.expand_dims(0)


def _new_sparse(
    graph: Graph,
    dtype: ElementType | str,
    params: StaticMatMulParams,
    matrix: AnyMatrix,
    name: str,
    *,
    options: Options,
    cache: StaticPlanningCache | None,
    sparse_first: bool,
) -> StaticSparseTensor:
    layouts, chosen = _layouts(
        graph, dtype, params, matrix, name, options=options, cache=cache, sparse_first=sparse_first
    )
    return StaticSparseTensor(new_values(graph, layouts.layout, name), layouts, chosen, graph.system)


def _new_dense(
    graph: Graph,
    dtype: ElementType | str,
    params: StaticMatMulParams,
    matrix: AnyMatrix,
    name: str,
    *,
    options: Options,
    cache: StaticPlanningCache | None,
    sparse_first: bool,
) -> Tensor:
    layouts, _ = _layouts(graph, dtype, params, matrix, name, options=options, cache=cache, sparse_first=sparse_first)
    return new_dense(graph, layouts.layout, name).expand_dims(0)


def _layouts(
    graph: Graph,
    dtype: ElementType | str,
    params: StaticMatMulParams,
    matrix: AnyMatrix,
    name: str,
    *,
    options: Options,
    cache: StaticPlanningCache | None,
    sparse_first: bool,
) -> tuple[StaticLayouts, StaticOptions]:
    wanted = "createForSparseDense" if sparse_first else "createForDenseSparse"
    if params.sparse_first != sparse_first:
        raise PatternMismatchError(f"{name}: {params} are of the other product", remedy=f"MatMulParams.{wanted}")
    kind, chosen = checked_type(name, dtype), StaticOptions.read(name, options)
    found = StaticLayouts.find(name, graph, kind, params=params, matrix=matrix, options=chosen, cache=cache)
    return found, chosen


def _no_transpose(name: str, side: str) -> UnsupportedOpError:
    return UnsupportedOpError(
        f"{name}: the sparse operand ({side}) of a static product cannot be transposed",
        because="its values are placed for one direction",
        remedy="a sparse tensor of the transposed matrix, or popsparse.dynamic, which has both",
    )


def _check_tensor(sparse: StaticSparseTensor, options: Options, name: str, *, sparse_first: bool) -> None:
    if sparse.layouts.params.sparse_first != sparse_first:
        raise PatternMismatchError(f"{name}: the sparse tensor was created for the other product")
    if options is not None and StaticOptions.read(name, options) != sparse.options:
        raise PatternMismatchError(
            f"{name}: options differ from those of the sparse tensor",
            because=f"here {StaticOptions.read(name, options)}, there {sparse.options}",
            remedy="the same options at creation, use and in the Partitioner, or none at use",
        )


def _dense_operand(sparse: StaticSparseTensor, given: Tensor, name: str, *, transposed: bool) -> Tensor:
    """The dense operand as [k, n]."""
    params = sparse.layouts.params
    if given.dtype != sparse.dtype:
        raise TypeMismatchError(f"{name}: the dense operand is {given.dtype}, the sparse one {sparse.dtype}")
    wanted = (params.n, params.k) if transposed else (params.k, params.n)
    if given.ndim not in (2, 3) or given.shape[-2:] != wanted or (given.ndim == 3 and given.shape[0] != 1):
        raise TensorError(
            f"{name}: the dense operand is {list(given.shape)}, it should be {[1, *wanted]}",
            because=f"the sparse tensor was created for {params}",
        )
    dense = given.squeeze(0) if given.ndim == 3 else given
    return dense.transpose((1, 0)) if transposed else dense


def _product(graph: Graph, sparse: StaticSparseTensor, dense: Tensor, prog: Steps, name: str) -> Tensor:
    layout = sparse.layouts.layout
    values = sparse.nzValues
    out = graph.variable(layout.dtype, (layout.pattern.shape[0], layout.dense), name=f"{name}/out", map="linear")
    call = graph.library_call(
        prog,
        f"popsparse.static_.{name}" if name in _FUNCTIONS else "popsparse.static_.sparse_dense_matmul",
        inputs=(values, dense),
        outputs=(out,),
        flops=2 * layout.pattern.num_values * layout.dense,
        debug_name=name,
    )
    with call as body:
        build(graph, body, layout, values, dense, out)
    note_host(prog, host_product(graph, layout.pattern, values, dense, out, name=name))
    return out


_FUNCTIONS = ("sparse_dense_matmul", "dense_sparse_matmul")
