"""Programs so small that one host thread runs them sooner than several.

Several threads are woken once a run and meet after every step. A step over a few hundred elements takes less time than
meeting, so that loops over small values, such as an integrator or a sampler, run at the speed of one thread or less.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from abele.network import Network
from abele.network.ir import NetworkOp
from abele.network.passes.recompute import VIEWS
from abele.network.registry import RULES

WORK_OF_A_RUN, WORK_OF_AN_OP = 3e5, 1e3
"""Element operations below which one thread does all: of a run, and more for each op. Measured on two cores of an EPYC
of the fifth generation: waking a second thread takes 0.1 to 0.2 ms, meeting it half a microsecond."""
_UNKNOWN_TRIPS = 16
"""Iterations assumed for a loop of unknown length."""
_OF_PRODUCTS = 1 / 8
"""An addition of a product beside an element of a map: products run eight lanes at once."""


def is_small(net: Network, runs: int = 1) -> bool:
    """True for a network that one host thread should run.

    Args:
        net: The network, before or after the passes.
        runs: Micro-batches of a run.
    """
    work, ops = _work(net.ops)
    return runs * work <= WORK_OF_A_RUN + runs * ops * WORK_OF_AN_OP


def _work(ops: Iterable[NetworkOp]) -> tuple[float, float]:
    """Element operations of ops, and ops that run."""
    total, count = 0.0, 0.0
    for op in ops:
        if op.kind == "constant" or op.kind in VIEWS:
            continue
        made = sum(math.prod(v.shape) for v in op.outputs)
        read = sum(math.prod(v.shape) for v in op.inputs)
        blocks = [_work(block.ops) for block in op.blocks]
        if blocks:
            trips = op.attrs.get("count", _UNKNOWN_TRIPS if op.kind == "while" else 1)
            total += trips * sum(work for work, _ in blocks)
            count += trips * sum(inner for _, inner in blocks)
            continue
        total, count = total + max(made, read), count + 1
        if op.kind in RULES and RULES[op.kind].planned and op.inputs:
            # A product adds up the inner dimension for each element; a convolution the kernel of a filter.
            first, second = op.inputs[0], op.inputs[min(1, len(op.inputs) - 1)]
            sizes = math.prod(first.shape) * math.prod(second.shape)
            total += _OF_PRODUCTS * made * math.sqrt(sizes / max(made, 1))
    return total, count
