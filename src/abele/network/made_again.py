"""Values that the backward pass computes again: which value of the forward pass each of them equals."""

from __future__ import annotations

from collections.abc import Hashable

from abele.network.ir import Network, NetworkOp, Stage, Value
from abele.network.ir.network import attributes_key
from abele.network.registry import rule_of

# Value numbering: two ops of one kind with equal attributes and equal operands have equal results. Operands are equal
# if they are one value, or if the one is known to be the other made again. Ops that equal others only by name, such as
# those with a state, have ``repeats`` off.
#
# Example: ``a = linear(x, w)``, ``b = gelu(a)`` in the forward pass, ``c = linear(x, w)``, ``d = gelu(c)`` in the
# backward pass: c is a made again, and so d is b.


def made_again(net: Network) -> dict[Value, Value]:
    """For each value that a backward stage of a pipeline makes again, the same value of the stage it belongs to."""
    first: dict[Hashable, NetworkOp] = {}
    found: dict[Value, Value] = {}
    for op in net.ops:
        if op.place is None or op.kind in ("constant", "transfer") or not (rule_of(op).repeats or op.blocks):
            continue
        operands = tuple(found.get(v, v) for v in op.inputs)
        what = (op.kind, attributes_key(op.attrs), operands, op.regions, op.place.ipu)
        if op.stage == Stage.FORWARD:
            first.setdefault(what, op)
        elif op.stage == Stage.BACKWARD and what in first:
            before = first[what]
            assert before.place is not None
            if before.place.pipeline_stage + op.place.pipeline_stage == net.num_stages - 1:
                found.update(zip(op.outputs, before.outputs, strict=True))
    return found
