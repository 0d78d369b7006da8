"""Hints for products that are there already, found by their readers."""

from __future__ import annotations

from dataclasses import replace

from abele.network.ir import BlockBuilder, FrozenDict, NetworkOp, PlanHint, Value
from abele.network.registry import RULES

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
