"""A segment as a network of its own, which is compiled to find its cost.

What enters the segment is an input; so is the gradient of what leaves it, and the gradient of what enters is an output.
Parameters are numbered, and random ops too: segments that do the same are equal networks, and are compiled once.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from abele.expr import derivative
from abele.fitting.chain import SegmentChain
from abele.network import Group, Network, NetworkBuilder, NetworkOp, Optimiser, Pipeline, Split, Value
from abele.network.ir import FrozenDict, needed
from abele.network.ops import build
from abele.network.passes.base import Pass
from abele.network.passes.differentiate import Differentiate
from abele.network.registry import RULES

CROSSING = "crossing/"
"""Prefix of the names of values that come from other segments or go to them."""


@dataclass(frozen=True)
class SegmentNetwork:
    """A segment by itself; equal ones do the same.

    Attributes:
        forward: Network of the forward pass.
        training: The same with a loss whose gradient by what leaves is what the host says; None for inference.
        trained: For each optimiser the parameters that it updates, by name.
        num_results: Outputs that are the model's own; those that go to other segments follow.
        group: Replicas that compute it together, of which the networks are one.
        splits: Splits of the parameters of which each has a part, by name.
    """

    forward: Network
    training: Network | None
    trained: tuple[tuple[Optimiser, tuple[str, ...]], ...]
    num_results: int
    group: int = 1
    splits: tuple[tuple[str, Split], ...] = ()

    @property
    def groups(self) -> list[Group]:
        """The optimisers with the parameters of the segment; none for inference."""
        if self.training is None:
            return []
        by_name = {p.name: p for p in self.training.parameters}
        return [Group(rule, tuple(by_name[n] for n in names)) for rule, names in self.trained]

    @property
    def has_products(self) -> bool:
        """True if libraries plan something in it, or may do so in a block of it."""
        return any(RULES[op.kind].planned or op.regions or op.kind == "call" for op in self.forward.ops)

    def pipeline(self, passes: Pipeline) -> Pipeline:
        """The passes of training, after which what enters is no parameter any more."""
        assert self.training is not None
        names = tuple(p.name for p in self.training.parameters if p.name.startswith(CROSSING))
        made: list[Pass] = []
        for step in passes.passes:
            if isinstance(step, Differentiate):
                made += [replace(step, parameters=(*step.parameters, *names)), _CrossingGradients()]
            else:
                made.append(step)
        return Pipeline(tuple(made))


def segment_network(
    chain: SegmentChain,
    number: int,
    groups: Sequence[Group] | None,
    *,
    group: int = 1,
    splits: Sequence[tuple[str, Split]] = (),
) -> SegmentNetwork:
    """The network of a segment.

    Args:
        chain: The chain that it is of.
        number: Its place there.
        groups: Optimisers and the parameters that they update; None for inference.
        group: Replicas that compute the model together.
        splits: Splits of the parameters of which each has a part, by name.
    """
    net, segment = chain.net, chain.segments[number]
    # Ops before the segment that make values known to be fixed, such as masks, are repeated in it.
    inside = net.ops[segment.begin : segment.end]
    made = {v for op in inside for v in op.outputs}
    read = dict.fromkeys(v for op in inside for v in op.inputs if v not in made)
    before = needed(net.ops[: segment.begin], [v for v in read if v in chain.fixed])
    before = [op for op in before if chain.fixed.issuperset(op.outputs)]
    ops = [*before, *inside]
    made |= {v for op in before for v in op.outputs}
    read = dict.fromkeys(v for op in ops for v in op.inputs if v not in made)
    # Values that enter get names by their order, so that equal segments become equal networks.
    names = _Renamed(net, segment.entering, chain.flowing)
    values = {v: names.of(v) for v in read}
    following = chain.segments[number + 1].entering if number + 1 < len(chain.segments) else ()
    leaving = [v for v in following if v in made]
    forward = _network(net, ops, values, leaving)
    cut = dict(splits)
    parts = tuple((w.name, cut[v.name]) for v, w in values.items() if v in chain.parameters and v.name in cut)
    results = len(forward.outputs) - len(leaving)
    if groups is None:
        return SegmentNetwork(forward, None, (), results, group, parts)
    trained = tuple(
        (g.optimiser, tuple(values[p].name for p in g.parameters if p in values))
        for g in groups
        if any(p in values for p in g.parameters)
    )
    # The last segment has the loss; others get gradients of their results from outside.
    flowing = [forward.outputs[results + n] for n, v in enumerate(leaving) if v in chain.flowing]
    training = forward if net.loss in made else _with_gradients(forward, flowing)
    return SegmentNetwork(forward, training, trained, results, group, parts)


class _Renamed:
    """Entries of the network as entries of the segment, numbered."""

    def __init__(self, net: Network, entering: Iterable[Value], flowing: frozenset[Value]) -> None:
        self._kinds = {v: kind for kind in ("parameters", "buffers", "inputs") for v in getattr(net, kind)}
        self._entering = set(entering)
        self._flowing = flowing
        self._seed = net.seed
        self._count = 0

    def of(self, value: Value) -> Value:
        self._count += 1
        if value is self._seed:
            return value
        if value in self._entering:
            what = "flow" if value in self._flowing else "mask"
            return replace(value, name=f"{CROSSING}{what}{self._count}")
        return replace(value, name=f"{self._kinds.get(value, 'value')}{self._count}")


def _network(net: Network, ops: Sequence[NetworkOp], values: dict[Value, Value], leaving: Sequence[Value]) -> Network:
    """Some ops as a network, with ``values`` in place of their operands from outside."""
    made = {v for op in ops for v in op.outputs}
    first = min((op.attrs[name] for op in ops for name in ("modifier", "random") if name in op.attrs), default=0)
    # Names of what ops make are those of the model's variables, which differ from layer to layer.
    inside = {v: replace(v, name="") for v in made}
    here = {**values, **inside}
    parameters, buffers, inputs = set(net.parameters), set(net.buffers), set(net.inputs)
    entered = [(v, w) for v, w in values.items() if v is not net.seed]
    crossing = [w for v, w in entered if w.name.startswith(f"{CROSSING}flow")]
    return Network(
        inputs=tuple(w for v, w in entered if v in inputs or w.name.startswith(f"{CROSSING}mask")),
        parameters=(*(w for v, w in entered if v in parameters), *crossing),
        buffers=tuple(w for v, w in entered if v in buffers),
        seed=net.seed if net.seed in values else None,
        ops=tuple(
            replace(
                op,
                inputs=tuple(here[v] for v in op.inputs),
                outputs=tuple(here[v] for v in op.outputs),
                attrs=_counted_from(op, first),
            )
            for op in ops
        ),
        outputs=(*(here[v] for v in net.outputs if v in made), *(here[v] for v in leaving)),
        updates=FrozenDict({here[s]: here[v] for s, v in net.updates.items() if s in here and v in here}),
        loss=here[net.loss] if net.loss is not None and net.loss in made else None,
        num_random=net.num_random,
    )


def _counted_from(op: NetworkOp, first: int) -> FrozenDict[str, Any]:
    """The attributes of an op with random modifiers counted from ``first``."""
    names = {"modifier", "random"} & op.attrs.keys()
    return FrozenDict({**op.attrs, **{n: op.attrs[n] - first for n in names}}) if names else op.attrs


def _with_gradients(net: Network, leaving: Sequence[Value]) -> Network:
    """Add a loss to ``net`` whose gradients by leaving values are inputs."""
    made = NetworkBuilder.of(net)
    for number, value in enumerate(leaving):
        gradient = made.input(value.shape, value.dtype, f"{CROSSING}gradient{number}")
        product = build.map_(made, derivative.arg(0) * derivative.arg(1), [value, gradient])
        part = build.reduce(made, product, list(range(value.ndim)), "add") if value.ndim else product
        made.loss = part if made.loss is None else build.total(made, [made.loss, part])
    return made.finish()


@dataclass(frozen=True)
class _CrossingGradients(Pass):
    """Make entering values inputs, and their gradients outputs."""

    name: ClassVar[str] = "crossing-gradients"

    def run(self, net: Network) -> Network:
        """The network with other ends."""
        entering = [p for p in net.parameters if p.name.startswith(CROSSING)]
        gradients = [net.gradients[p] for p in entering if p in net.gradients]
        return replace(
            net,
            inputs=(*net.inputs, *entering),
            parameters=tuple(p for p in net.parameters if p not in entering),
            outputs=(*net.outputs, *gradients),
            gradients=FrozenDict({p: g for p, g in net.gradients.items() if p not in entering}),
        )
