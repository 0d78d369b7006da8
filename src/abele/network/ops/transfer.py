"""Transfers: values that one IPU makes and another reads."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from abele.arrays import Array
from abele.graph import Copy, Steps, Tensor
from abele.network.ir import BlockBuilder, NetworkOp, Value
from abele.network.joined_copies import joined_copies
from abele.network.registry import Gradients, LazyReader, Types, only, rule
from abele.poplibs.poputil.layout import clone_between

if TYPE_CHECKING:
    from abele.distribution.lowering import Lowering


_NAME = "transfer"


def transfer(net: BlockBuilder, value: Value) -> Value:
    """``value`` on the IPU of the place where ops are made now."""
    return net.emit_like("transfer", [value], value)


@rule("transfer")
class Transfer(LazyReader):
    """Copy of its operand on another IPU, on the tiles of the same numbers there."""

    def types(self, op: NetworkOp) -> Types:
        """The operand's."""
        return [op.inputs[0].type]

    def evaluate(self, op: NetworkOp, value: Array) -> Array:
        """The operand."""
        return np.asarray(value)

    def lower(self, to: Lowering, op: NetworkOp) -> Tensor:
        """One copy over the links, together with those just before it."""
        source = to[op.inputs[0]]
        made = laid_out_there(to, op, source)
        _add(to.prog, source, made)
        return made

    def backward(self, net: BlockBuilder, op: NetworkOp, grads: Gradients, wanted: Sequence[bool]) -> Gradients:
        """The gradient, sent back."""
        with net.at(place=op.inputs[0].place):
            return [transfer(net, only(grads))]


def laid_out_there(to: Lowering, op: NetworkOp, source: Tensor) -> Tensor:
    """A new tensor for the result of a transfer, on the tiles of its IPU that ``source`` has on its own."""
    name = op.inputs[0].name or "transferred"
    # A constant as a whole lies as its readers want it; zeros that others are filled up with lie anywhere.
    if source.contains_aliases or (source.contains_constant and len(source.variables) > 1):
        return to.variable_like(source, name)
    return clone_between(to.graph_of(op.inputs[0].place), to.graph, source, name)


def _add(prog: Steps, source: Tensor, made: Tensor) -> None:
    """Append a transfer; all IPUs wait for one, so that several in a row are one step."""
    last = prog.steps[-1] if prog.steps else None
    pair = Copy(source, made, name=_NAME)
    if isinstance(last, Copy) and last.debug.name == _NAME and _are_apart(last, pair):
        del prog.steps[-1]
        assert isinstance(last.source, Tensor)
        assert isinstance(last.destination, Tensor)
        (pair,) = joined_copies([(last.source, last.destination), (source, made)], _NAME)
    prog.add(pair)


def _are_apart(one: Copy, other: Copy) -> bool:
    """True if copies of one type could be made at once."""
    ends = [t for t in (one.source, one.destination, other.source, other.destination) if isinstance(t, Tensor)]
    if len(ends) < 4 or len({t.dtype for t in ends}) > 1:
        return False
    read, written, also_read, also_written = ({*t.variables} for t in ends)
    return written.isdisjoint(also_written | also_read) and also_written.isdisjoint(read)
