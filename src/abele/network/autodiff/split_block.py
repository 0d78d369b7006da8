"""A block as two that follow each other.

A checkpoint's backward pass needs a part of its forward pass, and the last ops of a stretch are often no part of it:
the sum and the ReLU behind the last norm of a block give only what leaves the stretch, and that is kept by whoever
reads it. So a forward block is split into what both passes run and what only the first does.

>>> from abele.network.ir import NetworkBuilder, needed
>>> from abele.network.ops import build
>>> net = NetworkBuilder()
>>> x = net.input((2,), "f32", "x")
>>> y = build.nonlinearity(net, "tanh", x)
>>> z = build.nonlinearity(net, "relu", y)
>>> first, rest = split(OpBlock((x,), tuple(net.ops), (z,)), needed(net.ops, [y]))
>>> [op.attrs["function"] for op in first.ops], [op.attrs["function"] for op in rest.ops], rest.parameters == (y,)
(['tanh'], ['relu'], True)
"""

from __future__ import annotations

from collections.abc import Iterable

from abele.network.ir import NetworkOp, OpBlock, Value, needed


def split(block: OpBlock, first: Iterable[NetworkOp]) -> tuple[OpBlock, OpBlock]:
    """A block with some of its ops, and one with the others; the former read nothing of the latter.

    The results of the first are what the second reads and what leaves the block; those of the second are the block's.
    Constants are in each that reads them.
    """
    chosen = set(map(id, first))
    early = [op for op in block.ops if id(op) in chosen]
    late = [op for op in block.ops if id(op) not in chosen]
    constants = {op.output: op for op in early if op.kind == "constant"}
    read = dict.fromkeys([*(v for op in late for v in op.inputs), *block.results])
    late = [*(op for v, op in constants.items() if v in read), *late]
    made = {v for op in early for v in op.outputs}.difference(constants)
    leaving = tuple(v for v in read if v in made)
    entering = {v for op in early for v in op.inputs}
    return (
        OpBlock(tuple(p for p in block.parameters if p in entering), tuple(early), leaving),
        OpBlock((*(p for p in block.parameters if p in read), *leaving), tuple(late), block.results),
    )


def at_once(block: OpBlock, known: Iterable[Value], asking: Iterable[Value]) -> list[NetworkOp]:
    """Readers of some values in a block with the ops before them, as far as known values suffice.

    Args:
        block: The block.
        known: Parameters that are known.
        asking: Those of them whose readers are wanted.
    """
    there, asked = set(known), set(asking)
    found: list[NetworkOp] = []
    for op in block.ops:
        if there.issuperset(op.inputs):
            there.update(op.outputs)
            found.append(op)
    return needed(found, [v for op in found if asked.intersection(op.inputs) for v in op.outputs])
