"""Passes: each a named, small step from network to network."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import fields, is_dataclass
from typing import ClassVar

from abele.network.ir import (
    BlockBuilder,
    FrozenDict,
    Network,
    NetworkBuilder,
    NetworkFunction,
    NetworkOp,
    OpBlock,
    Value,
)
from abele.network.ir.attributes import Data, attribute_text


class Pass(ABC):
    """A step from network to network. Subclasses are frozen dataclasses of plain data, in a file of their name.

    Attributes:
        name: As in listings, dumps and ``stop_after``.
    """

    name: ClassVar[str]

    @abstractmethod
    def run(self, net: Network) -> Network:
        """The network after the pass; ``net`` itself if nothing changes."""

    def __str__(self) -> str:
        assert is_dataclass(self)
        options = ", ".join(
            f"{f.name}={attribute_text(getattr(self, f.name), Data())}"
            for f in fields(self)
            if getattr(self, f.name) != f.default
        )
        return f"{self.name}({options})" if options else self.name


class BlockPass(Pass):
    """A pass that does the same to the network's own ops, to every function and to every region."""

    def run(self, net: Network) -> Network:
        """The network with every block rewritten."""
        rewriting = BlockRewriting(self)
        ops, values = rewriting.top(net)
        return replaced(net, ops, values)

    @abstractmethod
    def rewrite(
        self, ops: Sequence[NetworkOp], results: Iterable[Value], into: BlockBuilder, values: dict[Value, Value]
    ) -> None:
        """Append to ``into`` what takes the place of ``ops``.

        Args:
            ops: In order. Their regions and functions are rewritten already.
            results: The values that something after the ops needs.
            into: Builder to append to; values of entries are the same objects there.
            values: For each value the one that takes its place; to be filled.
        """


class BlockRewriting:
    """One run of a :class:`BlockPass`: functions are rewritten once, however often they are called."""

    def __init__(self, doing: BlockPass) -> None:
        self._doing = doing
        self._functions: dict[NetworkFunction, NetworkFunction] = {}

    def top(self, net: Network, results: Iterable[Value] | None = None) -> tuple[list[NetworkOp], dict[Value, Value]]:
        """The network's own ops rewritten, and what took the place of each value.

        Args:
            net: The network.
            results: The values that something after its ops needs; by default all that leaves it.
        """
        into = NetworkBuilder.of(net, ops=False)
        values = {v: v for v in net.entries}
        self._doing.rewrite(
            [self._inside(op) for op in net.ops], net.leaves if results is None else results, into, values
        )
        return into.ops, values

    def block(self, block: OpBlock) -> OpBlock:
        """A block rewritten."""
        into = LooseBlock()
        values = {v: v for v in block.parameters}
        self._doing.rewrite([self._inside(op) for op in block.ops], block.results, into, values)
        return OpBlock(block.parameters, tuple(into.ops), tuple(values[v] for v in block.results))

    def _inside(self, op: NetworkOp) -> NetworkOp:
        """An op with its regions and its function rewritten."""
        if not op.blocks:
            return op
        attrs = dict(op.attrs)
        if op.function is not None:
            attrs["function"] = self._function(op.function)
        regions = tuple(map(self.block, op.regions))
        return NetworkOp(op.kind, op.inputs, op.outputs, FrozenDict(attrs), op.debug, regions)

    def _function(self, function: NetworkFunction) -> NetworkFunction:
        if function not in self._functions:
            body = self.block(function.body)
            self._functions[function] = NetworkFunction(function.name, body, function.num_random)
        return self._functions[function]


class LooseBlock(BlockBuilder):
    """A block that is rewritten on its own; what it reads is its own already."""

    @property
    def root(self) -> NetworkBuilder:
        """There is none: rewriting a block asks nothing of the network around."""
        raise AssertionError("a block that is rewritten on its own has no network around it")


def replaced(net: Network, ops: Iterable[NetworkOp], values: dict[Value, Value]) -> Network:
    """``net`` with other ops.

    Args:
        net: Network whose inputs and results are taken over.
        ops: The ops instead of those of ``net``.
        values: For each value that leaves, the one that takes its place.
    """
    from dataclasses import replace

    def pairs(mapping: FrozenDict[Value, Value]) -> FrozenDict[Value, Value]:
        return FrozenDict({k: values[v] for k, v in mapping.items()})

    return replace(
        net,
        ops=tuple(ops),
        outputs=tuple(values[v] for v in net.outputs),
        updates=pairs(net.updates),
        changed_inputs=pairs(net.changed_inputs),
        gradients=pairs(net.gradients),
        loss=None if net.loss is None else values[net.loss],
        wide=frozenset(values[v] for v in net.wide if v in values),
        bounds=tuple(replace(b, value=values[b.value]) for b in net.bounds),
    )


Watch = Callable[[int, str, Network], None]
"""Is shown the network after each pass, with the number and name of the pass; 0 and ``captured`` before the first."""


def reading(op: NetworkOp, values: dict[Value, Value]) -> NetworkOp:
    """``op`` reading what takes the place of its operands; the same object if nothing changes."""
    read = tuple(values[v] for v in op.inputs)
    return op if read == op.inputs else NetworkOp(op.kind, read, op.outputs, op.attrs, op.debug, op.regions)
