"""The functions that append ops to a network, in one place for front ends and derivative rules."""

from __future__ import annotations

from dataclasses import replace

from abele.network.ir import BlockBuilder, FrozenDict, NetworkOp, PlanHint, Value
from abele.network.ops.barrier import barrier
from abele.network.ops.block_attention import block_attention, block_product, block_scores, block_softmax
from abele.network.ops.cached_attention import cached_attention
from abele.network.ops.checkpoint import checkpoint
from abele.network.ops.constant import full
from abele.network.ops.control import call, cond, loop, switch, while_
from abele.network.ops.convolution import convolution, transposed_convolution
from abele.network.ops.ctc import ctc_decode, ctc_loss
from abele.network.ops.draw import draw, exponential, integers, normal, uniform
from abele.network.ops.dropout import dropout
from abele.network.ops.dynamic_sparse_matmul import dynamic_sparse_linear
from abele.network.ops.element_update import element_update
from abele.network.ops.elementwise import cast, map_, map_of, total
from abele.network.ops.host_call import host_call
from abele.network.ops.linear import linear, matmul
from abele.network.ops.lookup import add_rows, join_rows, look_up, look_up_groups, sum_rows, update_rows
from abele.network.ops.nonlinearity import nonlinearity
from abele.network.ops.norm import BATCH, norm, whiten
from abele.network.ops.off_chip_rows import load_row, store_row
from abele.network.ops.own_gradient import own_gradient
from abele.network.ops.own_op import own_op
from abele.network.ops.plain_recurrent import gru, plain_rnn
from abele.network.ops.pooling import pool
from abele.network.ops.probe import keep, print_value
from abele.network.ops.quantised import dequantise, look_up_quantised, quantised_linear
from abele.network.ops.recurrent import lstm
from abele.network.ops.reduction import mean, reduce, sum_to
from abele.network.ops.replicas import (
    largest_of_replicas,
    replica_copy,
    replica_exchange,
    replica_gather,
    replica_max,
    replica_permute,
    replica_rank,
    replica_reduce,
    replica_scatter,
    replica_sum,
)
from abele.network.ops.resample import resample
from abele.network.ops.rows import read_row, read_window, write_row, write_window
from abele.network.ops.scan import add_along, positions, recurrence, scan, shifted, taken_from
from abele.network.ops.search import search
from abele.network.ops.softmax import safe_softmax, softmax
from abele.network.ops.sorting import sort, top_k
from abele.network.ops.sparse_matmul import sampled_matmul, sparse_linear, sparse_matmul
from abele.network.ops.threefry import random_words, threefry
from abele.network.ops.training import (
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
from abele.network.ops.transfer import transfer
from abele.network.ops.views import (
    bitcast,
    concat,
    detach,
    expand,
    pad,
    permute,
    placed,
    reshape,
    reverse,
    slice_,
    transpose,
)
from abele.network.registry import RULES

# Hints for products that are there already, found by their readers.

_MOVING = frozenset({"reshape", "permute", "expand", "slice", "concat", "reverse", "keep"})
"""Kinds of ops whose results show others' elements."""


def plan_with(net: BlockBuilder, value: Value, proportion: float) -> bool:
    """Let the products that ``value`` shows, or that the same call made it of, plan with a share of a tile's memory.

    Returns:
        True if there are any in this block.
    """
    last = net.makers.get(value)
    waiting, found, seen = [value], False, set[NetworkOp]()
    while waiting:
        op = net.makers.get(waiting.pop())
        if op is None or op in seen:
            continue
        seen.add(op)
        if RULES[op.kind].planned:
            hint = replace(op.hint or PlanHint(), proportion=float(proportion))
            attrs = FrozenDict({**op.attrs, "hint": hint})
            net.replace(op, NetworkOp(op.kind, op.inputs, op.outputs, attrs, op.debug, op.regions))
            found = True
        elif op.kind in _MOVING or (last is not None and op.debug == last.debug):
            waiting.extend(op.inputs)
    return found


__all__ = [
    "BATCH",
    "accumulate",
    "add_along",
    "add_counts",
    "add_rows",
    "add_to_momentum",
    "all_reduce",
    "barrier",
    "bitcast",
    "block_attention",
    "block_product",
    "block_scores",
    "block_softmax",
    "cached_attention",
    "call",
    "cast",
    "checkpoint",
    "concat",
    "cond",
    "convolution",
    "ctc_decode",
    "ctc_loss",
    "dequantise",
    "detach",
    "draw",
    "dropout",
    "dynamic_sparse_linear",
    "element_update",
    "expand",
    "exponential",
    "full",
    "gru",
    "host_call",
    "integers",
    "join_rows",
    "keep",
    "largest_of_replicas",
    "linear",
    "load_row",
    "look_up",
    "look_up_groups",
    "look_up_quantised",
    "loop",
    "loss_scale",
    "lstm",
    "magnitudes",
    "map_",
    "map_of",
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
    "quantised_linear",
    "random_words",
    "read_row",
    "read_window",
    "recurrence",
    "reduce",
    "reduce_scatter",
    "replica_copy",
    "replica_exchange",
    "replica_gather",
    "replica_max",
    "replica_permute",
    "replica_rank",
    "replica_reduce",
    "replica_scatter",
    "replica_sum",
    "resample",
    "reshape",
    "reverse",
    "running_mean",
    "safe_softmax",
    "sampled_matmul",
    "scan",
    "search",
    "shifted",
    "slice_",
    "softmax",
    "sort",
    "sparse_linear",
    "sparse_matmul",
    "store_row",
    "sum_counts",
    "sum_rows",
    "sum_to",
    "switch",
    "taken_from",
    "threefry",
    "top_k",
    "total",
    "transfer",
    "transpose",
    "transposed_convolution",
    "uniform",
    "update",
    "update_rows",
    "while_",
    "whiten",
    "write_row",
    "write_window",
]
