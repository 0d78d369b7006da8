"""Parameters in streaming memory: each comes to the chip before ops that read it, and is not there otherwise.

An op that reads parameters is a use of them. Ops that follow it and read no others belong to the same use, whatever
they compute; so do ops that read others, while all of them together are less than a copy is worth its time for. Each
use begins with a load: between two uses nothing of a parameter needs room, and other variables take its place.
Parameters with the same uses are one row of a buffer, which one copy brings, such as those of a layer whose ops are
outlined.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from abele.graph import Copy, Graph, RemoteBuffer, Steps, Tensor, Variable, concat
from abele.network.ir import Network, NetworkOp, Stage, Value
from abele.network.locations import TensorLocation
from abele.network.replicated_sharding import FlatState, Shards

if TYPE_CHECKING:
    from abele.distribution.lowering import Lowering


@dataclass(frozen=True, eq=False)
class WeightRow:
    """Parameters that come and go together.

    Attributes:
        buffer: Buffer that they are in.
        tensor: Tensor that they are loaded into: the elements of one after the other.
    """

    buffer: RemoteBuffer
    tensor: Tensor

    @property
    def bytes(self) -> int:
        """Room that they take on the chip."""
        return self.buffer.bytes

    def load(self, prog: Steps) -> None:
        """Append the copy to the chip."""
        prog.add(Copy(self.buffer, self.tensor, name=f"load/{self.buffer.name}"))

    def store(self, prog: Steps) -> None:
        """Append the copy from the chip."""
        prog.add(Copy(self.tensor, self.buffer, name=f"store/{self.buffer.name}"))


@dataclass(eq=False)
class _WeightUse:
    """The parameters that a sequence begins with loading."""

    steps: Steps
    values: dict[Value, None] = field(default_factory=dict)

    @property
    def bytes(self) -> int:
        """Room that they take."""
        return sum(math.prod(value.shape) * value.dtype.bytes for value in self.values)


class RemoteWeights:
    """The parameters of a program that are in streaming memory.

    Args:
        values: They.
        updated: Number of the optimiser that updates each, where one does.
        worthwhile: Bytes that one copy should move at least, where so many follow each other.

    Attributes:
        state: Place of each, by name; once :meth:`finish` has placed them.
        rows: The row that each is in, from then on.
    """

    def __init__(self, values: Iterable[Value], updated: Mapping[Value, int], worthwhile: int) -> None:
        self._values = list(values)
        self._worthwhile = worthwhile
        self._updated = updated
        self._uses: list[_WeightUse] = []
        self._current: dict[tuple[int, int], _WeightUse] = {}
        self._shown: dict[Variable, list[Value]] = {}
        self._unknown = set(self._values)
        self.rows: dict[Value, WeightRow] = {}
        self.state: dict[str, FlatState] = {}

    def run(self, to: Lowering, op: NetworkOp) -> None:
        """Lower an op, after loads of the parameters that it shows and that the op before it does not need."""
        steps, where = Steps(name="load"), to.prog
        where.add(steps)
        to.run_op(op)
        place = (0, 0) if op.place is None else (op.place.pipeline_stage, op.place.ipu)
        if not self._use(to, steps, place, [to[v] for v in op.inputs if v in to]):
            where.steps.remove(steps)

    def show(self, to: Lowering, prog: Steps, tensors: Iterable[Tensor]) -> None:
        """Append loads of the parameters that tensors show, for readers afterwards."""
        steps = Steps(name="load")
        self._current.pop((-1, -1), None)
        if self._use(to, steps, (-1, -1), list(tensors)):
            prog.add(steps)

    def _use(self, to: Lowering, steps: Steps, place: tuple[int, int], tensors: list[Tensor]) -> bool:
        """Note which parameters tensors show; returns whether some of them have to be loaded."""
        for value in [v for v in self._unknown if v in to]:
            self._unknown.remove(value)
            for variable in to[value].variables:
                self._shown.setdefault(variable, []).append(value)
        needed = dict.fromkeys(
            value for tensor in tensors for variable in tensor.variables for value in self._shown.get(variable, ())
        )
        current = self._current.get(place)
        if not needed or (current is not None and needed.keys() <= current.values.keys()):
            return False
        if current is not None and _WeightUse(steps, current.values | needed).bytes <= self._worthwhile:
            current.values |= needed
            return False
        use = self._current[place] = _WeightUse(steps, needed)
        self._uses.append(use)
        return True

    def finish(self, to: Lowering, graph: Graph) -> None:
        """Place the parameters in buffers, and fill in the loads; after everything that reads them was lowered."""
        used: dict[Value, list[int]] = {value: [] for value in self._values}
        for number, use in enumerate(self._uses):
            for value in use.values:
                used[value].append(number)
        together: dict[tuple[object, ...], list[Value]] = {}
        for value, uses in used.items():
            key = (value.dtype.name, value.place.ipu, self._updated.get(value), *uses)
            together.setdefault(key, []).append(value)
        for number, values in enumerate(together.values()):
            self._place(to, graph, f"weights{number}", values)
        for use in self._uses:
            for row in dict.fromkeys(self.rows[value] for value in use.values):
                row.load(use.steps)

    def _place(self, to: Lowering, graph: Graph, name: str, values: list[Value]) -> None:
        shards = [Shards.of(to[value]) for value in values]
        whole = concat([s.flat(to[value]) for s, value in zip(shards, values, strict=True)])
        buffer, begin = graph.remote_buffer(name, whole.dtype, whole.size), 0
        row = WeightRow(buffer, whole)
        for value, cut in zip(values, shards, strict=True):
            self.rows[value] = row
            self.state[value.name] = FlatState(cut, value.dtype, 0.0, buffer=buffer, begin=begin)
            begin += cut.size


def remote_weights(net: Network, location: TensorLocation, worthwhile: int) -> RemoteWeights | None:
    """The parameters that are in streaming memory; None if all are on the chip.

    What the model itself changes, returns, or sends to other IPUs stays on the chip, as does what no op reads.
    """
    updates = {op.output: op for op in net.ops if op.kind == "update"}
    kept = {v for op in net.ops if op.kind == "transfer" for v in op.inputs} | {*net.outputs}
    kept |= {v for op in net.ops if op.stage == Stage.UPDATE and op.kind not in _AFTERWARDS for v in op.inputs}
    read = {v for op in net.ops if op.stage != Stage.UPDATE for v in op.inputs}

    def is_remote(value: Value) -> bool:
        after = net.updates.get(value, value)
        alone = after is value or (after in updates and updates[after].inputs[0] is value)
        elements = math.prod(value.shape)
        return value in read and value not in kept and alone and location.is_off_chip(elements)

    values = [v for v in net.parameters if is_remote(v)]
    if not values:
        return None
    numbers = {v: updates[net.updates[v]].attrs["group"] for v in values if net.updates.get(v) in updates}
    return RemoteWeights(values, numbers, worthwhile)


_AFTERWARDS = ("update", "all_reduce", "reduce_scatter")
"""Kinds of op after the micro-batches that load their operands, or read none of their elements."""
