"""``group-convolutions``: convolutions grouped by the model's author become one op and run together.

A group is contracted to one node of the graph of ops. That is an order of the ops again if no member depends on
another, directly or through ops or groups between them; then the op stands where the first member stood, and what other
members read is made before it. A path back into a group that is being made is a dependence, and is refused.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from abele.errors import NetworkError
from abele.network.ir import BlockBuilder, FrozenDict, Network, NetworkOp, Value
from abele.network.ir.op import PlanHint
from abele.network.ops.convolution_group import KINDS, GroupedConv, group_attributes
from abele.network.passes.base import BlockPass

_Key = tuple[int, bool]


@dataclass(frozen=True)
class GroupConvolutions(BlockPass):
    """Put the convolutions of each group into one op; gradients by weights into one of their own."""

    name: ClassVar[str] = "group-convolutions"

    def run(self, net: Network) -> Network:
        """The network with a single op for each group; ``net`` itself where nothing is grouped.

        Raises:
            NetworkError: A convolution of a group depends on another one of it.
        """
        return super().run(net) if any(_key(op) for op in net.walk()) else net

    def rewrite(
        self, ops: Sequence[NetworkOp], results: Iterable[Value], into: BlockBuilder, values: dict[Value, Value]
    ) -> None:
        """Append each op after what it reads, and each group where its first member was."""
        for op in _contracted(ops):
            into.append(op)
            values |= zip(op.outputs, op.outputs, strict=True)


def _key(op: NetworkOp) -> _Key | None:
    """The group of an op."""
    if op.kind not in KINDS or op.hint is None or op.hint.group is None:
        return None
    return op.hint.group.number, op.kind == KINDS[2]


def _contracted(ops: Sequence[NetworkOp]) -> list[NetworkOp]:
    """``ops`` with one op in the place of each group of several, in an order in which they can run."""
    # All members of a group are one node, named by its first member.
    groups: dict[_Key, list[NetworkOp]] = {}
    for op in ops:
        key = _key(op)
        if key is not None:
            groups.setdefault(key, []).append(op)
    nodes = {op: members[0] for members in groups.values() for op in members}
    makers = {v: op for op in ops for v in op.outputs}
    # Depth-first order with a stack of its own: networks are deeper than Python's recursion.
    ready: list[NetworkOp] = []
    # An op is entered when it is first reached, and left when what it reads is there.
    state: dict[NetworkOp, bool] = {}
    for start in ops:
        stack = [nodes.get(start, start)]
        while stack:
            op = stack[-1]
            members = groups[key] if (key := _key(op)) is not None else [op]
            if op in state:
                stack.pop()
                if not state[op]:
                    state[op] = True
                    ready.append(_joined(members))
                continue
            state[op] = False
            # Makers are pushed in reverse, so that they are entered in the order of the operands; an open one closes a
            # cycle.
            before = [makers[v] for m in members for v in m.inputs if v in makers]
            for maker in (nodes.get(m, m) for m in reversed(before)):
                if state.get(maker) is False:
                    raise _dependent(maker, members)
                if maker not in state:
                    stack.append(maker)
    return ready


def _joined(members: Sequence[NetworkOp]) -> NetworkOp:
    first = members[0]
    hint = first.hint or PlanHint()
    if hint.group is None:
        return first
    members = [_alone(op) for op in members]
    if len(members) == 1:
        return members[0]
    # One op is one group: its number says nothing any more, and would keep equal layers apart.
    attrs = FrozenDict(group_attributes([GroupedConv.of(op) for op in members], replace(hint.group, number=0)))
    inputs = tuple(v for op in members for v in op.inputs)
    outputs = tuple(v for op in members for v in op.outputs)
    return NetworkOp("convolution_group", inputs, outputs, attrs, first.debug)


def _alone(op: NetworkOp) -> NetworkOp:
    """A member without its group."""
    assert op.hint is not None
    attrs = FrozenDict({**op.attrs, "hint": replace(op.hint, group=None)})
    return NetworkOp(op.kind, op.inputs, op.outputs, attrs, op.debug)


def _dependent(op: NetworkOp, members: Sequence[NetworkOp]) -> NetworkError:
    """Error for a group that depends on itself through ``members``."""
    last = members[-1]
    among = "another one needs its result" if _key(op) != _key(last) else "is one of them"
    return NetworkError(
        "convolutions of a group depend on each other, so they cannot run together",
        at=last.debug.location or op.debug.location or None,
        because=f"{last.debug} reads what one of them makes, and {among}",
        remedy="group convolutions that read nothing of each other's results",
    )
