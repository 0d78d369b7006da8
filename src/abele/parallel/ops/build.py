"""The functions that append ops to a network, in one place for front ends and derivative rules."""

from abele.parallel.ops.convolution import convolution
from abele.parallel.ops.dropout import dropout
from abele.parallel.ops.elementwise import cast, map_, total
from abele.parallel.ops.linear import linear, matmul
from abele.parallel.ops.nonlinearity import nonlinearity
from abele.parallel.ops.pooling import pool
from abele.parallel.ops.reduction import mean, reduce, sum_to
from abele.parallel.ops.softmax import softmax
from abele.parallel.ops.views import concat, detach, expand, full, pad, permute, reshape, slice_, transpose

__all__ = [
    "cast",
    "concat",
    "convolution",
    "detach",
    "dropout",
    "expand",
    "full",
    "linear",
    "map_",
    "matmul",
    "mean",
    "nonlinearity",
    "pad",
    "permute",
    "pool",
    "reduce",
    "reshape",
    "slice_",
    "softmax",
    "sum_to",
    "total",
    "transpose",
]
