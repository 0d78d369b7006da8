"""Layers with sparse weights, and training that keeps them sparse: ``from abele.poptorch import sparse``.

>>> from abele.frontends.poptorch.sparse import SparseLinear
>>> SparseLinear(64, 32, density=0.25, block=8)
SparseLinear(in_features=64, out_features=32, bias=True, 512 weights held (density 0.25), blocks of 8 x 8)
"""

from abele.frontends.poptorch.sparse.attention import BlockSparseSelfAttention, block_sparse_attention
from abele.frontends.poptorch.sparse.float8 import Fp8SparseLinear, fp8_sparse_linear
from abele.frontends.poptorch.sparse.layers import BlockSparseLinear, SparseLinear
from abele.frontends.poptorch.sparse.pruning import MagnitudePruning, NofM
from abele.frontends.poptorch.sparse.saving import LayerSaving, SavingReport, report
from abele.frontends.poptorch.sparse.training import SET, Fixed, PatternChange, RigL, SparseTraining

__all__ = [
    "SET",
    "BlockSparseLinear",
    "BlockSparseSelfAttention",
    "Fixed",
    "Fp8SparseLinear",
    "LayerSaving",
    "MagnitudePruning",
    "NofM",
    "PatternChange",
    "RigL",
    "SavingReport",
    "SparseLinear",
    "SparseTraining",
    "block_sparse_attention",
    "fp8_sparse_linear",
    "report",
]
