"""popsparse::dynamic: products with a sparse matrix whose pattern comes when the program runs.

One compiled program serves every pattern of a plan: values lie in buckets of one size, and what does not fit its own
cell's buckets is carried round the grid, as often as the pattern needs. Class names are PopLibs'.

>>> import numpy as np
>>> from abele.graph import Graph, Sequence
>>> from abele.poplibs import popsparse
>>> element = popsparse.dynamic.SparsityParams()
>>> params = popsparse.dynamic.MatMulParams.createWithNumNonZeroValues(element, 3, 1, 4, 4, 2)
>>> graph, prog = Graph("bow"), Sequence()
>>> a = popsparse.dynamic.createSparseDenseMatMulLHS(graph, "float", params)
>>> b = popsparse.dynamic.createSparseDenseMatMulRHS(graph, "float", params)
>>> popsparse.dynamic.sparseDenseMatMul(graph, a, b, prog).shape
(1, 4, 2)
>>> partitioner = popsparse.dynamic.Partitioner(params, "float", graph)
>>> data = partitioner.createSparsityDataImpl(popsparse.CSRMatrix(4, 4, [1, 2, 3], [0, 3, 1], [0, 2, 3, 3, 3]))
>>> data.metaInfo.size == a.getMetaInfoTensor().size
True
"""

from abele.poplibs.popsparse.dynamic.cache import DynamicPlanningCache as PlanningCache
from abele.poplibs.popsparse.dynamic.cpp_forms import FORMS
from abele.poplibs.popsparse.dynamic.embedding import (
    create_indices_tensor,
    create_slice_tensor,
    embedding_slice,
    embedding_update_add,
)
from abele.poplibs.popsparse.dynamic.explain import explain_dynamic
from abele.poplibs.popsparse.dynamic.figure import SparseFigure, sparse_figure
from abele.poplibs.popsparse.dynamic.fully_connected import (
    create_fully_connected_input,
    create_fully_connected_weights,
    fully_connected_dense_grad_w_serial_splits,
    fully_connected_fwd,
    fully_connected_grad_a,
    fully_connected_sparse_grad_w,
)
from abele.poplibs.popsparse.dynamic.matmul import (
    create_sparse_dense_matmul_lhs,
    create_sparse_dense_matmul_rhs,
    sparse_dense_matmul,
)
from abele.poplibs.popsparse.dynamic.options import DYNAMIC_OPTIONS
from abele.poplibs.popsparse.dynamic.params import DynamicFullyConnectedParams as FullyConnectedParams
from abele.poplibs.popsparse.dynamic.params import DynamicMatMulParams as MatMulParams
from abele.poplibs.popsparse.dynamic.params import SparsityParams, SparsityStructure, SparsityType
from abele.poplibs.popsparse.dynamic.partitioner import BucketPlacement as Placement
from abele.poplibs.popsparse.dynamic.partitioner import DynamicPartitioner as Partitioner
from abele.poplibs.popsparse.dynamic.partitioner import SparsityData
from abele.poplibs.popsparse.dynamic.pattern_cost import PatternCost, pattern_cost
from abele.poplibs.popsparse.dynamic.tensors import DynamicSparseTensor as SparseTensor
from abele.poplibs.popsparse.dynamic.tensors import OpMetaData
from abele.poplibs.poputil.guard import guarded_functions
from abele.poplibs.poputil.names import camel_aliases
from abele.report.sparse import PassCost, pass_costs

__all__ = [
    "DYNAMIC_OPTIONS",
    "FullyConnectedParams",
    "MatMulParams",
    "OpMetaData",
    "Partitioner",
    "PassCost",
    "PatternCost",
    "Placement",
    "PlanningCache",
    "SparseFigure",
    "SparseTensor",
    "SparsityData",
    "SparsityParams",
    "SparsityStructure",
    "SparsityType",
    "create_fully_connected_input",
    "create_fully_connected_weights",
    "create_indices_tensor",
    "create_slice_tensor",
    "create_sparse_dense_matmul_lhs",
    "create_sparse_dense_matmul_rhs",
    "embedding_slice",
    "embedding_update_add",
    "explain_dynamic",
    "fully_connected_dense_grad_w_serial_splits",
    "fully_connected_fwd",
    "fully_connected_grad_a",
    "fully_connected_sparse_grad_w",
    "pass_costs",
    "pattern_cost",
    "sparse_dense_matmul",
    "sparse_figure",
]

_CALLS = [n for n in __all__ if n.startswith(("create_", "embedding_", "fully_", "sparse_dense"))]
SparsityDataImpl = SparsityData
globals().update(guarded_functions(globals(), _CALLS, FORMS))
globals().update(camel_aliases(globals(), [n for n in _CALLS if "matmul" not in n]))
createSparseDenseMatMulLHS = globals()["create_sparse_dense_matmul_lhs"]  # noqa: N816
createSparseDenseMatMulRHS = globals()["create_sparse_dense_matmul_rhs"]  # noqa: N816
sparseDenseMatMul = globals()["sparse_dense_matmul"]  # noqa: N816
