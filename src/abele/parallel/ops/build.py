"""The functions that append ops to a network, in one place for front ends and derivative rules."""

from abele.parallel.ops.checkpoint import checkpoint
from abele.parallel.ops.constant import full
from abele.parallel.ops.control import call, cond, loop, switch, while_
from abele.parallel.ops.convolution import convolution, transposed_convolution
from abele.parallel.ops.ctc import ctc_loss
from abele.parallel.ops.ctc_decode import ctc_decode
from abele.parallel.ops.draw import draw, exponential, integers, normal, uniform
from abele.parallel.ops.dropout import dropout
from abele.parallel.ops.elementwise import cast, map_, total
from abele.parallel.ops.hinted import plan_with
from abele.parallel.ops.host_call import host_call
from abele.parallel.ops.linear import linear, matmul
from abele.parallel.ops.lookup import add_rows, look_up, look_up_groups, sum_rows, update_rows
from abele.parallel.ops.nonlinearity import nonlinearity
from abele.parallel.ops.norm import BATCH, norm
from abele.parallel.ops.own_gradient import own_gradient
from abele.parallel.ops.own_op import own_op
from abele.parallel.ops.plain_recurrent import gru, plain_rnn
from abele.parallel.ops.pooling import pool
from abele.parallel.ops.probe import keep, print_value
from abele.parallel.ops.recurrent import lstm
from abele.parallel.ops.reduction import mean, reduce, sum_to
from abele.parallel.ops.replicas import (
    replica_copy,
    replica_gather,
    replica_max,
    replica_rank,
    replica_scatter,
    replica_sum,
)
from abele.parallel.ops.resample import resample
from abele.parallel.ops.rows import read_row, write_row
from abele.parallel.ops.scan import add_along, positions, recurrence, scan, shifted, taken_from
from abele.parallel.ops.search import search
from abele.parallel.ops.softmax import safe_softmax, softmax
from abele.parallel.ops.sorting import sort, top_k
from abele.parallel.ops.training import (
    accumulate,
    add_counts,
    add_to_momentum,
    all_reduce,
    loss_scale,
    magnitudes,
    reduce_scatter,
    running_mean,
    sum_counts,
    update,
)
from abele.parallel.ops.transfer import transfer
from abele.parallel.ops.views import concat, detach, expand, pad, permute, placed, reshape, reverse, slice_, transpose

__all__ = [
    "BATCH",
    "accumulate",
    "add_along",
    "add_counts",
    "add_rows",
    "add_to_momentum",
    "all_reduce",
    "call",
    "cast",
    "checkpoint",
    "concat",
    "cond",
    "convolution",
    "ctc_decode",
    "ctc_loss",
    "detach",
    "draw",
    "dropout",
    "expand",
    "exponential",
    "full",
    "gru",
    "host_call",
    "integers",
    "keep",
    "linear",
    "look_up",
    "look_up_groups",
    "loop",
    "loss_scale",
    "lstm",
    "magnitudes",
    "map_",
    "matmul",
    "mean",
    "nonlinearity",
    "norm",
    "normal",
    "own_gradient",
    "own_op",
    "pad",
    "permute",
    "placed",
    "plain_rnn",
    "plan_with",
    "pool",
    "positions",
    "print_value",
    "read_row",
    "recurrence",
    "reduce",
    "reduce_scatter",
    "replica_copy",
    "replica_gather",
    "replica_max",
    "replica_rank",
    "replica_scatter",
    "replica_sum",
    "resample",
    "reshape",
    "reverse",
    "running_mean",
    "safe_softmax",
    "scan",
    "search",
    "shifted",
    "slice_",
    "softmax",
    "sort",
    "sum_counts",
    "sum_rows",
    "sum_to",
    "switch",
    "taken_from",
    "top_k",
    "total",
    "transfer",
    "transpose",
    "transposed_convolution",
    "uniform",
    "update",
    "update_rows",
    "while_",
    "write_row",
]
