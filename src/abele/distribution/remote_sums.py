"""Sums of gradients in streaming memory: each micro-batch brings them to the chip, adds to them, and takes them back.

They come in parts, one after the other, so that on the chip is room for the largest part alone. Updates load those of
what they update; what looks at gradients together before any update (sums over replicas, norms of all) has them loaded
at once.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING

from abele.graph import Copy, Graph, RemoteBuffer, Steps, Tensor, concat
from abele.network.ir import NetworkOp, Value
from abele.network.locations import TensorLocation, worthwhile_bytes
from abele.network.replicated_sharding import Shards
from abele.poplibs import popops

if TYPE_CHECKING:
    from abele.distribution.lowering import Lowering

_IN_PARTS = ("accumulate", "running_mean")
"""Kinds of op whose first operand is changed in place and may be in streaming memory."""


@dataclass(frozen=True, eq=False)
class SumPart:
    """Sums that come and go together.

    Attributes:
        ops: Ops that add to them.
        buffer: Buffer that they are in.
        tensor: Tensor that they are loaded into.
    """

    ops: tuple[NetworkOp, ...]
    buffer: RemoteBuffer
    tensor: Tensor

    def load(self, prog: Steps) -> None:
        """Append the copy to the chip."""
        prog.add(Copy(self.buffer, self.tensor, name=f"load/{self.buffer.name}"))

    def store(self, prog: Steps) -> None:
        """Append the copy from the chip."""
        prog.add(Copy(self.tensor, self.buffer, name=f"store/{self.buffer.name}"))


class RemoteSums:
    """The sums of a program that are in streaming memory.

    Args:
        to: Lowering with tensors of the sums.
        graph: The whole graph.
        ops: All ops that add to sums.
        location: Place of the sums.
    """

    def __init__(self, to: Lowering, graph: Graph, ops: Sequence[NetworkOp], location: TensorLocation) -> None:
        remote = [op for op in ops if op.kind in _IN_PARTS and location.is_off_chip(to[op.inputs[0]].size)]
        worthwhile = worthwhile_bytes(graph.system)
        parts: list[list[NetworkOp]] = []
        for _, alike in groupby(remote, lambda op: (op.output.place, op.inputs[0].dtype.name)):
            held = worthwhile
            for op in alike:
                if held >= worthwhile:
                    parts.append([])
                    held = 0
                parts[-1].append(op)
                held += to[op.inputs[0]].bytes
        self._parts = [self._part(to, graph, number, part) for number, part in enumerate(parts)]
        self._part_of = {op: part for part in self._parts for op in part.ops}
        self._waiting = {op.output: part for op, part in self._part_of.items()}

    @staticmethod
    def _part(to: Lowering, graph: Graph, number: int, ops: Sequence[NetworkOp]) -> SumPart:
        whole = concat([Shards.of(to[op.inputs[0]]).flat(to[op.inputs[0]]) for op in ops])
        return SumPart(tuple(ops), graph.remote_buffer(f"sums{number}", whole.dtype, whole.size), whole)

    def begin(self, to: Lowering, totals: Sequence[Value], prog: Steps) -> None:
        """Append what makes all sums zero, those on the chip as well."""
        away = {op.inputs[0] for op in self._part_of}
        for total in totals:
            if total not in away:
                popops.zero(to.graph.top_level, to[total], prog)
        for part in self._parts:
            for op in part.ops:
                popops.zero(to.graph.top_level, to[op.inputs[0]], prog)
            part.store(prog)

    def lower(self, to: Lowering, ops: Sequence[NetworkOp]) -> None:
        """Lower ops that add to sums, those of a part between its copies."""
        for part, together in groupby(ops, self._part_of.get):
            if part is not None:
                part.load(to.prog)
            to.lower(together)
            if part is not None:
                part.store(to.prog)

    def load(self, prog: Steps, wanted: Container[Value] | None = None) -> None:
        """Append what brings sums to the chip, where they stay until they are updated by.

        Args:
            prog: Sequence that the copies are appended to.
            wanted: The sums, as what has been added to them; all by default.
        """
        for part in self._parts:
            if wanted is None or any(op.output in wanted for op in part.ops):
                part.load(prog)
                self._waiting = {value: of for value, of in self._waiting.items() if of is not part}

    def waiting(self, total: Value) -> SumPart | None:
        """The part with a sum that is still in streaming memory."""
        return self._waiting.get(total)
