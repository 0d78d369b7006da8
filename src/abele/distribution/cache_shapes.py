"""Tables that attention over pages reads after rows of them were set: they lie as it wants them from the start.

A step sets rows of a table [rows, heads · width], the first to read it, and then attends over it as [rows, heads,
width]. Laid out for the first alone, it would move to other tiles in every step.
"""

from __future__ import annotations

from collections.abc import Sequence

from abele.network.ir import NetworkOp, Value
from abele.network.ir.value import Shape


def cache_shapes(ops: Sequence[NetworkOp]) -> dict[Value, Shape]:
    """Shape [rows, kv heads, width] of the cache that each value becomes, for all that are the same rows before it."""
    made_by = {op.output: op for op in ops if op.kind in ("reshape", "update_rows")}
    found: dict[Value, Shape] = {}
    for op in ops:
        if op.kind != "cache":
            continue
        value = op.inputs[0]
        found[value] = op.output.shape
        while value in made_by:
            value = made_by[value].inputs[0]
            found[value] = op.output.shape
    return found
