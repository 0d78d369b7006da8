"""Chains: a network as a row of segments, between which a machine's IPUs may take over from each other.

A network may be cut where one activation alone, of those that gradients flow through, goes from what is before to what
is after. What else crosses (masks, inputs that later ops read) is sent along. Where the front end knows submodules, a
cut is where one of them begins, since that is where its users can say so. A segment without an op that libraries plan
(a product, a convolution, a look-up) is too little to balance anything and joins the one before it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

from abele.errors import FittingError
from abele.network import Group, Network, NetworkOp, Value
from abele.network.invariant_values import fixed_values
from abele.network.ir import differentiable
from abele.network.registry import RULES

_HEAVY = ("look_up", "update_rows", "call", "loop", "while", "checkpoint", "safe_softmax")
"""Kinds besides planned products that make a segment worth its own stage."""


@dataclass(frozen=True, eq=False)
class ChainSegment:
    """Ops that stay together.

    Attributes:
        begin: The first op.
        end: One past the last.
        module: The submodule that it begins with; empty at the start of a network, or where none is known.
        entering: Values that cross the border before it, in the order in which they were made.
    """

    begin: int
    end: int
    module: str
    entering: tuple[Value, ...]

    @cached_property
    def entering_bytes(self) -> int:
        """Bytes that cross the border before it, for one micro-batch."""
        return bytes_of(self.entering)

    @cached_property
    def narrow_entering_bytes(self) -> int:
        """The same with floats of 8 bits."""
        return narrow_bytes_of(self.entering)


@dataclass(frozen=True, eq=False)
class SegmentChain:
    """A network as a row of segments.

    Attributes:
        net: The network.
        segments: Its segments in order; together they have all ops.
        flowing: Values that gradients flow through.
        fixed: Values that are the same for all micro-batches of an update.
    """

    net: Network
    segments: tuple[ChainSegment, ...]
    flowing: frozenset[Value]
    fixed: frozenset[Value]

    @cached_property
    def parameters(self) -> frozenset[Value]:
        """The network's parameters."""
        return frozenset(self.net.parameters)

    def sent_back(self, segment: int) -> int:
        """Bytes of gradients that cross the border before a segment, for one micro-batch."""
        return bytes_of(v for v in self.segments[segment].entering if v in self.flowing)


def bytes_of(values: Iterable[Value]) -> int:
    """Bytes of all elements of some values."""
    return sum(v.size * v.dtype.bytes for v in values)


def narrow_bytes_of(values: Iterable[Value]) -> int:
    """The same with floats of 8 bits."""
    return sum(v.size * (1 if v.dtype.is_float else v.dtype.bytes) for v in values)


def chain_of(
    net: Network, groups: Sequence[Group] | None = None, *, starts: Collection[str] | None = None
) -> SegmentChain:
    """The chain of a network.

    Args:
        net: The network before any pass.
        groups: Optimisers and the parameters that they update; None for inference.
        starts: Module paths at which a stage may begin; None where it may begin anywhere.

    Raises:
        FittingError: The network has no ops.
    """
    if not net.ops:
        raise FittingError("the network has no operations to spread over a machine")
    trained = [p for group in groups for p in group.parameters] if groups is not None else list(net.parameters)
    flowing = frozenset(differentiable(net.ops, trained))
    fixed = frozenset(fixed_values(net))
    modules = _module_starts(net.ops, starts)
    crossing = _crossings(net, fixed)
    cuts = [
        place
        for place in range(1, len(net.ops))
        if modules[place] is not None and sum(v in flowing for v in crossing[place]) == 1
    ]
    return SegmentChain(net, tuple(_segments(net, _worthy(net, cuts, fixed), modules, crossing)), flowing, fixed)


def _worthy(net: Network, cuts: Sequence[int], fixed: frozenset[Value]) -> list[int]:
    """Cuts with work both before and after them."""
    kept: list[int] = []
    for cut, end in pairwise([*cuts, len(net.ops)]):
        before = net.ops[kept[-1] if kept else 0 : cut]
        if _has_work(net.ops[cut:end], fixed) and _has_work(before, fixed):
            kept.append(cut)
    return kept


def _has_work(ops: Iterable[NetworkOp], fixed: frozenset[Value]) -> bool:
    return any((RULES[op.kind].planned or op.kind in _HEAVY) and not fixed.issuperset(op.outputs) for op in ops)


def _segments(
    net: Network, cuts: Sequence[int], modules: Sequence[str | None], crossing: Sequence[tuple[Value, ...]]
) -> Iterable[ChainSegment]:
    for begin, end in zip([0, *cuts], [*cuts, len(net.ops)], strict=True):
        yield ChainSegment(begin, end, (modules[begin] or "") if begin else "", crossing[begin] if begin else ())


def _module_starts(ops: Sequence[NetworkOp], starts: Collection[str] | None) -> list[str | None]:
    """For each op the outermost submodule that begins with it; None where no stage may begin."""
    if starts is None:
        return [""] * len(ops)
    seen: set[str] = set()
    left: set[str] = set()
    found: list[str | None] = []
    inside: tuple[str, ...] = ()
    again: set[str] = set()
    for op in ops:
        if op.kind == "constant" and not op.debug.path:
            found.append(None)
            continue
        names = op.debug.path.split("/") if op.debug.path else []
        paths = tuple("/".join(names[: n + 1]) for n in range(len(names)))
        left.update(p for p in inside if p not in paths)
        again.update(p for p in paths if p in left)
        found.append(next((p for p in paths if p not in seen and p in starts), None))
        seen.update(paths)
        inside = paths
    # A submodule that is called again would begin a stage there, too.
    return [None if name in again else name for name in found]


def _crossings(net: Network, fixed: frozenset[Value]) -> list[tuple[Value, ...]]:
    """Values made before each op that change with each micro-batch and are read by the op or after it."""
    made: dict[Value, int] = {}
    last: dict[Value, int] = {}
    inputs = set(net.inputs)
    for place, op in enumerate(net.ops):
        for value in op.inputs:
            if value in inputs:
                made.setdefault(value, place)
            if value in made and value not in fixed:
                last[value] = place
        made |= dict.fromkeys((v for v in op.outputs if v not in fixed), place)
    ends = [net.loss] if net.loss is not None else []
    for value in (*ends, *net.updates.values()):
        if value in made and value not in last:
            last[value] = made[value]
    found: list[list[Value]] = [[] for _ in net.ops]
    for value, end in last.items():
        for place in range(made[value] + 1, end + 1):
            found[place].append(value)
    return [tuple(sorted(values, key=made.__getitem__)) for values in found]
