"""Programs so small that one host thread runs them sooner than several."""

from __future__ import annotations

import math
from collections.abc import Iterable

from abele.network import Network
from abele.network.ir import NetworkOp
from abele.network.registry import RULES

SMALL_WORK = 3e5
"""Element operations of a run below which one thread does it. Measured on two cores of an EPYC of the fifth
generation: waking a second thread and meeting it at every step takes 0.1 to 0.2 ms, the time of so many."""
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
    return runs * _work(net.ops, SMALL_WORK / runs) <= SMALL_WORK


def _work(ops: Iterable[NetworkOp], limit: float) -> float:
    """Element operations of ops, counted until they are more than ``limit``."""
    total = 0.0
    for op in ops:
        made = sum(math.prod(v.shape) for v in op.outputs)
        read = sum(math.prod(v.shape) for v in op.inputs)
        total += max(made, read) if op.kind != "constant" else 0
        if op.kind in RULES and RULES[op.kind].planned and op.inputs:
            # A product adds up the inner dimension for each element; a convolution the kernel of a filter.
            first, second = op.inputs[0], op.inputs[min(1, len(op.inputs) - 1)]
            total += _OF_PRODUCTS * made * math.sqrt(math.prod(first.shape) * math.prod(second.shape) / max(made, 1))
        trips = op.attrs.get("count", _UNKNOWN_TRIPS if op.kind == "while" else 1)
        for block in op.blocks:
            total += trips * _work(block.ops, limit / trips)
        if total > limit:
            break
    return total
