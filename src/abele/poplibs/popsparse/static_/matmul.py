"""Products of a sparse matrix, whose pattern is known when the graph is built, with a dense one."""

from __future__ import annotations

from dataclasses import dataclass

from abele.errors import PatternMismatchError, TensorError, UnsupportedOpError
from abele.graph import Graph, Tensor
from abele.graph.program import Sequence, Steps
from abele.numerics import ElementType
from abele.poplibs.poplin.contraction.host_kernel import Scaling
from abele.poplibs.poplin.operations.float8 import Scales, given_scales, scaling_of
from abele.poplibs.popsparse.float8 import check_pair, scaled_for_host
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
    return _Creation(graph, dtype, params, matrix, name, options=options, cache=cache, sparse_first=True).sparse()


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
    return _Creation(graph, dtype, params, matrix, name, options=options, cache=cache, sparse_first=True).dense()


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
    return (
        _Creation(graph, dtype, params, matrix, name, options=options, cache=cache, sparse_first=False)
        .dense()
        .transpose((0, 2, 1))
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
    return _Creation(graph, dtype, params, matrix, name, options=options, cache=cache, sparse_first=False).sparse()


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
    scales: Scales = None,
    throws: bool = True,
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
        scales: Of 8-bit floats: further scales of ``lhs`` and ``rhs``, as in :func:`~abele.poplibs.poplin.matmul`.
        throws: False for scales of tensors that are out of range to be the nearest that are not.
        name: Name of the steps.

    Returns:
        [1, m, n], or [m, n] of a dense matrix without groups; in f16 of 8-bit floats.

    Raises:
        PatternMismatchError: ``lhs`` is of another product, machine or options.
        UnsupportedOpError: A transposed sparse operand.
        TensorError: ``rhs`` has another shape.
        TypeMismatchError: ``rhs`` has another type, or scales of other operands than 8-bit floats.
    """
    if transpose_lhs:
        raise _no_transpose(name, "lhs")
    _check_tensor(lhs, options, name, sparse_first=True)
    dense = _dense_operand(lhs, rhs, name, transposed=transpose_rhs)
    out = _product(graph, lhs, dense, prog, name, _scaling(graph, lhs, scales, prog, name, throws=throws))
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
    scales: Scales = None,
    throws: bool = True,
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
    scaling = _scaling(graph, rhs, scales, prog, name, throws=throws)
    out = _product(graph, rhs, dense, prog, name, scaling).transpose((1, 0))
    return out if lhs.ndim == 2 else out.expand_dims(0)


@dataclass(frozen=True)
class _Creation:
    """Arguments of the creators of operands; ``sparse_first`` tells the two products apart."""

    graph: Graph
    dtype: ElementType | str
    params: StaticMatMulParams
    matrix: AnyMatrix
    name: str
    options: Options
    cache: StaticPlanningCache | None
    sparse_first: bool

    def sparse(self) -> StaticSparseTensor:
        """The sparse operand."""
        chosen = StaticOptions.read(self.name, self.options)
        layouts = self._layouts(chosen)
        return StaticSparseTensor(new_values(self.graph, layouts.layout, self.name), layouts, chosen, self.graph.system)

    def dense(self) -> Tensor:
        """The dense operand, [1, k, n]."""
        layouts = self._layouts(StaticOptions.read(self.name, self.options))
        return new_dense(self.graph, layouts.layout, self.name).expand_dims(0)

    def _layouts(self, chosen: StaticOptions) -> StaticLayouts:
        name, params = self.name, self.params
        wanted = "createForSparseDense" if self.sparse_first else "createForDenseSparse"
        if params.sparse_first != self.sparse_first:
            raise PatternMismatchError(f"{name}: {params} are of the other product", remedy=f"MatMulParams.{wanted}")
        return StaticLayouts.find(
            name,
            self.graph,
            checked_type(name, self.dtype, self.graph.system),
            params=params,
            matrix=self.matrix,
            options=chosen,
            cache=self.cache,
        )


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
    check_pair(name, sparse.dtype, given.dtype, "dense operand")
    wanted = (params.n, params.k) if transposed else (params.k, params.n)
    if given.ndim not in (2, 3) or given.shape[-2:] != wanted or (given.ndim == 3 and given.shape[0] != 1):
        raise TensorError(
            f"{name}: the dense operand is {list(given.shape)}, it should be {[1, *wanted]}",
            because=f"the sparse tensor was created for {params}",
        )
    dense = given.squeeze(0) if given.ndim == 3 else given
    return dense.transpose((1, 0)) if transposed else dense


def _scaling(
    graph: Graph, sparse: StaticSparseTensor, scales: Scales, prog: Steps, name: str, *, throws: bool
) -> Scaling:
    return scaling_of(graph, name, given_scales(name, sparse.dtype, scales), prog, throws=throws)


def _product(
    graph: Graph, sparse: StaticSparseTensor, dense: Tensor, prog: Steps, name: str, scaling: Scaling
) -> Tensor:
    layout = sparse.layouts.layout
    values = sparse.nzValues
    out = graph.variable(layout.result, (layout.pattern.shape[0], layout.dense), name=f"{name}/out", map="linear")
    call = graph.library_call(
        prog,
        f"popsparse.static_.{name}" if name in _FUNCTIONS else "popsparse.static_.sparse_dense_matmul",
        inputs=(values, dense, *scaling.tensors),
        outputs=(out,),
        flops=2 * layout.pattern.num_values * layout.dense,
        debug_name=name,
    )
    with call as body:
        build(graph, body, layout, values, dense, out, scaling=scaling)
    scaled, first = scaled_for_host(graph, dense, scaling, name)
    note_host(prog, Sequence(first, host_product(graph, layout.pattern, values, scaled, out, name=name)))
    return out


_FUNCTIONS = ("sparse_dense_matmul", "dense_sparse_matmul")
