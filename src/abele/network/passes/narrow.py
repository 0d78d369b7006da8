"""``narrow``: only what is read is computed.

A model may compute all tokens and use the first, or join what it takes apart again. From the last op to the first, each
op is asked which parts of its operands the wanted part of its result needs; what several readers want of one value is
put together. Then the ops are made anew for those parts. So a slice wanders from where the model has it to what enters,
through maps, products, norms and views, and takes the work with it: forward, and backward, too, where the gradient of
what is sliced later would be zeros but for the slice. A classifier that reads the first of 128 tokens, for example,
computes the feed-forward part of its last layer for [batch, 1, width] instead of [batch, 128, width].

It is right because every kind says exactly what a part of its result depends on (:meth:`OpRule.needs`), and a part that
cannot be told is taken whole. It never costs: an op is made once, of no more elements than before. Parts of nearly all
are taken whole too, since rows of odd lengths cost more than the few elements that they save.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import ClassVar

from abele.network.ir import BlockBuilder, Network, NetworkOp, Value, needed
from abele.network.ir.part import ValuePart, take
from abele.network.passes.base import BlockPass, reading
from abele.network.registry import rule_of

MOST_PROPORTION = 0.75
"""Proportion of a value from which it is computed whole."""

_Needs = tuple[ValuePart, Sequence[ValuePart | None]]


@dataclass(frozen=True)
class Narrow(BlockPass):
    """Compute only those elements of each value that something reads."""

    name: ClassVar[str] = "narrow"

    def run(self, net: Network) -> Network:
        """The network with every block narrowed; ``net`` itself where everything is read whole."""
        made = super().run(net)
        return net if made.ops == net.ops else made

    def rewrite(
        self, ops: Sequence[NetworkOp], results: Iterable[Value], into: BlockBuilder, values: dict[Value, Value]
    ) -> None:
        """Append each op for the part of its result that is read."""
        results = list(results)
        demand = {v: ValuePart.whole(v.shape) for v in results}
        plan = _plan(needed(ops, results), demand)
        there: dict[Value, ValuePart] = {}
        for op in ops:
            if demand.keys().isdisjoint(op.outputs):
                continue
            if op not in plan:
                into.append(reading(op, values))
                values |= zip(op.outputs, op.outputs, strict=True)
                continue
            part, wanted = plan[op]
            with into.at(op.debug, stage=op.stage, place=op.place, hint=op.hint):
                read = [
                    take(into, values[v], p.inside(there.get(v) or ValuePart.whole(v.shape)))
                    for v, p in zip(op.inputs, wanted, strict=True)
                    if p is not None
                ]
                values[op.outputs[0]] = rule_of(op).emit_part(into, op, part, read)
            there[op.outputs[0]] = part


def _plan(ops: Sequence[NetworkOp], demand: dict[Value, ValuePart]) -> dict[NetworkOp, _Needs]:
    """Ops that make or read parts, with these parts.

    Args:
        ops: In order.
        demand: Parts of results that are needed; the needs of ops are added.
    """
    plan: dict[NetworkOp, _Needs] = {}
    narrow: set[Value] = set()
    for op in reversed(ops):
        if demand.keys().isdisjoint(op.outputs):
            continue
        part, read = _needs(op, demand)
        if not part.is_whole:
            narrow.add(op.outputs[0])
        if not part.is_whole or any(p is None or not p.is_whole for p in read):
            plan[op] = part, read
        for value, wanted in zip(op.inputs, read, strict=True):
            if wanted is not None:
                demand[value] = demand[value].union(wanted) if value in demand else wanted
    # An op that reads a part of a whole value, such as a slice, stays as it is.
    return {op: needs for op, needs in plan.items() if not narrow.isdisjoint((*op.inputs, *op.outputs))}


def _needs(op: NetworkOp, demand: dict[Value, ValuePart]) -> _Needs:
    first, *others = op.outputs
    # Of several results, a part can be made of the first alone: a norm whose statistics nothing reads.
    if op.blocks or not demand.keys().isdisjoint(others):
        return ValuePart.whole(first.shape), [ValuePart.whole(v.shape) for v in op.inputs]
    part = demand[first]
    if part.size > MOST_PROPORTION * first.size:
        part = ValuePart.whole(first.shape)
    while True:
        made, read = rule_of(op).needs(op, part)
        # Readers know their parts as parts of what they asked for; what is made instead has to be as easy to tell.
        odd = [d for d, (a, b) in enumerate(zip(made.dims, part.dims, strict=True)) if a != b and len(a) + len(b) > 2]
        if not odd or all(d.is_whole for place in odd for d in made.dims[place]):
            return made, read
        part = made.with_whole(*odd)
