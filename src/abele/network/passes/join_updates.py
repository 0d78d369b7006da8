"""``join-updates``: the element-wise part of captured updates is one pass for each parameter.

An update as a front end traces it has a map for each operation, whose result is a tensor as large as the parameter:
Adam has some fifteen. Composed, the new parameter and the new moments are expressions over the old ones, the gradient
and a few scalars; one ``element_update`` writes all three in place. States are joined that have a shape, and something
of that shape to read, in common::

    m' = $1 * 0.9 + $3 * 0.1        p' = $0 - $4 * (...$1...$3...) / sqrt(...)        one op on [p, m, v, g, rate]

Such ops run after all others of the update, which see states as they were.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import ClassVar

from abele.expr import Cast, Expr
from abele.expr.derivative import arg, substitute
from abele.expr.types import element_type
from abele.network.ir import Network, NetworkBuilder, NetworkOp, Stage, Value
from abele.network.ops import build
from abele.network.passes.base import Pass
from abele.network.passes.follow import WHOLE_VIEWS

_MOST_NODES = 400
"""Nodes of an expression above which its operands are computed apart. Chosen: Adam with clipping and decay has 60."""


@dataclass(frozen=True)
class JoinUpdates(Pass):
    """Compute new values of states that are element-wise in one pass over each parameter and what is beside it."""

    name: ClassVar[str] = "join-updates"

    def run(self, net: Network) -> Network:
        """The network with element-wise updates in place."""
        composing = _Composing(net)
        groups = _groups([composing.new(state, new) for state, new in net.updates.items() if new in composing.makers])
        made, written = NetworkBuilder.of(net), set[Value]()
        for group in groups:
            states = [new.state for new in group]
            leaves = dict.fromkeys(v for new in group for v in new.read)
            if not written.isdisjoint(map(composing.shown, leaves)):
                continue  # It reads what a pass before it has changed.
            written.update(states)
            inputs = [*states, *(v for v in leaves if v not in states)]
            exprs = [substitute(new.expr, [arg(inputs.index(v)) for v in new.read].__getitem__) for new in group]
            with made.at(group[0].op.debug, stage=Stage.UPDATE, place=group[0].op.place):
                made.updates |= zip(states, build.element_update(made, inputs, exprs), strict=True)
        joined = made.finish()
        kept = {*joined.needed(joined.leaves)}
        return replace(joined, ops=tuple(op for op in joined.ops if op.stage != Stage.UPDATE or op in kept))


@dataclass(frozen=True)
class _NewState:
    """The new value of a state as one expression.

    Attributes:
        state: The state.
        op: The op that makes its new value.
        expr: Over ``read``.
        read: Operands.
    """

    state: Value
    op: NetworkOp
    expr: Expr
    read: tuple[Value, ...]

    @property
    def place(self) -> tuple[tuple[int, ...], int]:
        """Its shape and IPU."""
        return self.state.shape, self.op.output.place.ipu

    @property
    def whole(self) -> list[Value]:
        """The state, and the operands of its shape."""
        return [self.state, *(v for v in self.read if v.shape == self.state.shape)]


class _Composing:
    """The element-wise ops of a network's update.

    Attributes:
        makers: The op that makes each of their results.
    """

    def __init__(self, net: Network) -> None:
        ops = [op for op in net.ops if op.kind in ("map", "cast") and op.stage == Stage.UPDATE]
        self.makers = {op.output: op for op in ops}
        self._views = {op.output: op for op in net.ops if op.kind in WHOLE_VIEWS}
        self._nodes = dict[Value, int]()
        for op in ops:
            own = sum(1 for _ in op.attrs["expr"].walk()) if op.kind == "map" else 1
            self._nodes[op.output] = own + sum(self._nodes[v] for v in op.inputs if self._is_inside(v, op.output))

    def _is_inside(self, value: Value, result: Value) -> bool:
        """True for an element-wise result that is computed as part of ``result``."""
        alike = value.shape == result.shape and value.place.ipu == result.place.ipu
        return alike and self._nodes.get(value, _MOST_NODES) < _MOST_NODES

    def shown(self, value: Value) -> Value:
        """The value whose elements a view shows; others themselves."""
        while value in self._views:
            value = self._views[value].inputs[0]
        return value

    def new(self, state: Value, new: Value) -> _NewState:
        """The new value of a state over what is no element-wise result of its shape and on its IPU."""
        read: dict[Value, Expr] = {}
        made: dict[Value, Expr] = {}

        def of(value: Value) -> Expr:
            if value is not new and not self._is_inside(value, new):
                return read.setdefault(value, arg(len(read)))
            if value not in made:
                made[value] = composed(self.makers[value])
            return made[value]

        def composed(op: NetworkOp) -> Expr:
            parts = [of(v) for v in op.inputs]
            inner = parts[0] if op.kind == "cast" else substitute(op.attrs["expr"], parts.__getitem__)
            own = element_type(inner, tuple(v.dtype for v in read))
            return inner if own in (None, op.output.dtype) else Cast(op.output.dtype, inner)

        expr = of(new)
        return _NewState(state, self.makers[new], expr, tuple(read))


def _groups(every: Iterable[_NewState]) -> list[list[_NewState]]:
    """New values that are computed together: of one shape and IPU, with an operand of that shape in common.

    The largest come first.
    """
    groups: list[list[_NewState]] = []
    for new in every:
        reads, kept = set(new.whole), list[list[_NewState]]()
        mine = [new]
        for group in groups:
            alike = group[0].place == new.place
            if alike and any(not reads.isdisjoint(other.whole) for other in group):
                mine = [*group, *mine]
            else:
                kept.append(group)
        groups = [*kept, mine]
    return sorted(groups, key=lambda group: -group[0].state.size)
