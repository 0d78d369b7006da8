"""Blocks whose ops are on several IPUs.

The ops of a block are on the IPU of the op that has it, whatever their own places say, unless these name several. Such
a block is *spread*: each of its ops is on its own IPU, and what enters it is where it is first read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

if TYPE_CHECKING:
    from abele.network.ir.op import NetworkOp, OpBlock
    from abele.network.ir.value import Place, Value

_SPREADING = frozenset({"call", "cond", "switch", "loop", "while"})
"""Kinds of op whose blocks take its last operands."""

_FOUND: WeakKeyDictionary[OpBlock, frozenset[int]] = WeakKeyDictionary()
"""IPUs of blocks that are alive: each is asked for at every call of its function."""


def ipus_of(block: OpBlock) -> frozenset[int]:
    """The IPUs that the ops of a block name; constants are wherever they are read."""
    found = _FOUND.get(block)
    if found is None:
        numbers: set[int] = set()
        for op in block.ops:
            if op.kind == "constant" or op.place is None:
                continue
            inner = _inside(op)
            numbers |= inner if len(inner) > 1 else {op.place.ipu}
        found = _FOUND[block] = frozenset(numbers)
    return found


def is_spread(op: NetworkOp) -> bool:
    """True for an op whose blocks have ops on several IPUs."""
    return bool(op.blocks) and len(_inside(op)) > 1


def _inside(op: NetworkOp) -> frozenset[int]:
    if op.kind not in _SPREADING:
        return frozenset()
    return frozenset[int]().union(*map(ipus_of, op.blocks))


def place_read(op: NetworkOp, number: int) -> Place | None:
    """Place at which an op reads its operand of a number; None if nothing inside of a spread one reads it."""
    if not is_spread(op) or (number == 0 and op.kind in ("cond", "switch")):
        return op.place
    for block in op.blocks:
        # The body of a loop begins with the trip, and branches have a chooser before what their regions take.
        found = first_read(block, block.parameters[number - len(op.inputs)])
        if found is not None:
            return found
    return None


def first_read(block: OpBlock, value: Value) -> Place | None:
    """Place of the first op in a block that reads a value; None if none does."""
    for op in block.ops:
        for number, operand in enumerate(op.inputs):
            if operand is value:
                found = place_read(op, number)
                if found is not None:
                    return found
    return None
