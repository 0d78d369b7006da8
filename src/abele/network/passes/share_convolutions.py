"""``share-convolutions``: equal convolutions become calls of one function, where code is short of memory.

The vertices of a convolution hold a list item for each row of outputs, worker and kernel position. A weight update of
3 × 3 kernels takes 14 KB of each tile for them in ResNet-50's second size, and its operands 5 KB. So its three equal
layers, whose programs differ in addresses alone, take one program and copies of operands, as PopLibs' callers cache
convolutions of one shape. Kernels of one position have short lists and large operands: they stay as they are.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from abele.network.ir import BlockBuilder, FrozenDict, Network, NetworkFunction, NetworkOp, OpBlock, Value
from abele.network.ir.network import attributes_key
from abele.network.passes.base import BlockPass, Pass, reading

KINDS = frozenset({"convolution", "convolution_grad_data", "convolution_grad_weight"})
"""Kinds of op that may be shared."""

_Key = tuple[Any, ...]


@dataclass(frozen=True)
class ShareConvolutions(Pass):
    """Put convolutions that occur more than once, with kernels of more than one position, into functions."""

    name: ClassVar[str] = "share-convolutions"

    def run(self, net: Network) -> Network:
        """The network with calls; ``net`` itself where no convolution occurs twice."""
        found: dict[_Key, dict[NetworkOp, None]] = {}
        for op in net.walk():
            if op.kind in KINDS and math.prod(op.attrs["params"].kernel) > 1:
                found.setdefault(_key(op), {})[op] = None
        repeated = [next(iter(ops)) for ops in found.values() if len(ops) > 1]
        functions = {_key(op): NetworkFunction(f"{op.kind}{n}", _body(op)) for n, op in enumerate(repeated)}
        return _Calling(functions).run(net) if functions else net


class _Calling(BlockPass):
    """Puts calls of functions in the place of convolutions, in every block.

    Args:
        functions: Functions by key of the convolutions.
    """

    def __init__(self, functions: Mapping[_Key, NetworkFunction]) -> None:
        self._functions = functions

    def rewrite(
        self, ops: Sequence[NetworkOp], results: Iterable[Value], into: BlockBuilder, values: dict[Value, Value]
    ) -> None:
        """Append each op, or a call in its place."""
        for op in ops:
            here = reading(op, values)
            function = self._functions.get(_key(op)) if op.kind in KINDS else None
            if function is not None:
                attrs = FrozenDict({"function": function, "path": "", "random": 0})
                here = NetworkOp("call", here.inputs, op.outputs, attrs, op.debug)
            into.append(here)
            values |= zip(op.outputs, op.outputs, strict=True)


def _key(op: NetworkOp) -> _Key:
    """Key of equal convolutions in one place."""
    types = tuple(v.type for v in (*op.inputs, *op.outputs))
    return op.kind, attributes_key(op.attrs), types, op.place


def _body(op: NetworkOp) -> OpBlock:
    """A block of the op alone, whose name is that of the call around it."""
    values = {v: Value(v.shape, v.dtype) for v in (*op.inputs, *op.outputs)}
    inputs, outputs = (tuple(values[v] for v in side) for side in (op.inputs, op.outputs))
    alone = NetworkOp(op.kind, inputs, outputs, op.attrs, replace(op.debug, name="", path=""))
    return OpBlock(tuple(dict.fromkeys(inputs)), (alone,), outputs)
