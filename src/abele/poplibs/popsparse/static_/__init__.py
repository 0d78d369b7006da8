"""popsparse::static_: products with a sparse matrix whose pattern is known when the graph is built.

Class names are PopLibs'. The plan, the exchange and each tile's lists are made for the pattern, so only dense rows and
partial sums move. Values are in the pattern's order, block by block; those of dense by sparse in its transpose's.

>>> import numpy as np
>>> from abele.graph import Graph, Sequence
>>> from abele.poplibs import popsparse
>>> matrix = popsparse.CSRMatrix(4, 4, [1.0, 2.0, 3.0], [0, 3, 1], [0, 2, 3, 3, 3])
>>> params = popsparse.static_.MatMulParams.createForSparseDense(1, 4, 4, 2)
>>> graph, prog = Graph("bow"), Sequence()
>>> a = popsparse.static_.createSparseDenseMatMulLHS(graph, "float", params, matrix)
>>> b = popsparse.static_.createSparseDenseMatMulRHS(graph, "float", params, matrix)
>>> popsparse.static_.sparseDenseMatMul(graph, a, b, prog).shape
(1, 4, 2)
"""

from abele.poplibs.popsparse.static_.explain import StaticPlanningCache as PlanningCache
from abele.poplibs.popsparse.static_.explain import explain_static
from abele.poplibs.popsparse.static_.matmul import (
    create_dense_sparse_matmul_lhs,
    create_dense_sparse_matmul_rhs,
    create_sparse_dense_matmul_lhs,
    create_sparse_dense_matmul_rhs,
    dense_sparse_matmul,
    sparse_dense_matmul,
)
from abele.poplibs.popsparse.static_.params import STATIC_OPTIONS
from abele.poplibs.popsparse.static_.params import StaticMatMulParams as MatMulParams
from abele.poplibs.popsparse.static_.sparse_tensor import StaticPartitioner as Partitioner
from abele.poplibs.popsparse.static_.sparse_tensor import StaticSparseTensor as SparseTensor
from abele.poplibs.poputil.guard import guarded_functions

__all__ = [
    "STATIC_OPTIONS",
    "MatMulParams",
    "Partitioner",
    "PlanningCache",
    "SparseTensor",
    "create_dense_sparse_matmul_lhs",
    "create_dense_sparse_matmul_rhs",
    "create_sparse_dense_matmul_lhs",
    "create_sparse_dense_matmul_rhs",
    "dense_sparse_matmul",
    "explain_static",
    "sparse_dense_matmul",
]

globals().update(guarded_functions(globals(), [n for n in __all__ if n != "explain_static"]))
createSparseDenseMatMulLHS = globals()["create_sparse_dense_matmul_lhs"]  # noqa: N816
createSparseDenseMatMulRHS = globals()["create_sparse_dense_matmul_rhs"]  # noqa: N816
createDenseSparseMatMulLHS = globals()["create_dense_sparse_matmul_lhs"]  # noqa: N816
createDenseSparseMatMulRHS = globals()["create_dense_sparse_matmul_rhs"]  # noqa: N816
sparseDenseMatMul = globals()["sparse_dense_matmul"]  # noqa: N816
denseSparseMatMul = globals()["dense_sparse_matmul"]  # noqa: N816
