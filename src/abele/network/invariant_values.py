"""Fixed values: those that are the same for every micro-batch of an update."""

from __future__ import annotations

from abele.network.ir import Network, Stage, Value
from abele.network.registry import rule_of


def fixed_values(net: Network) -> set[Value]:
    """Weights that only optimisers change, constants, and all that is computed from these alone.

    Random ops are not fixed, since the seed is not; neither are ops that are to run each time, such as prints.
    """
    at_the_end = {v for op in net.ops if op.stage == Stage.UPDATE for v in op.outputs}
    found = {v for v in (*net.parameters, *net.buffers) if net.updates.get(v, v) is v or net.updates[v] in at_the_end}
    for op in net.ops:
        if op.stage == Stage.UPDATE or not found.issuperset(op.inputs):
            continue
        if op.kind == "loss_scale" or (rule_of(op).repeats and not op.blocks):
            found.update(op.outputs)
    return found
