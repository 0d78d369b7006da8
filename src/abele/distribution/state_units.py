"""Units: parameters that are updated together where their state does not lie whole on the chip.

For each unit the state comes from streaming memory in one copy per element type, replicas take their shares of the
parameters, the optimiser makes its steps, and both go back: state in one copy, parameters by an all-gather. Units come
one after the other, so that no more than the largest of them has room on the chip at a time.

Units of equal layers are alike. Where the machine has one copy of equal layers it has one of equal units, too: their
parameters and gradients are copied in and out, and state, which comes and goes anyway, comes to one place for all.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import TYPE_CHECKING

from abele.distribution.remote_weights import WeightRow
from abele.graph import Copy, Graph, RemoteBuffer, Steps, Tensor, concat
from abele.machine import System
from abele.network.ir import NetworkOp, Value
from abele.network.joined_copies import joined_copies
from abele.network.locations import TensorLocation, worthwhile_bytes
from abele.network.optimisers import StateSlot
from abele.network.replicated_sharding import MOST_BYTES, FlatState, Shards
from abele.poplibs import gcl, popops
from abele.poplibs.popops.programs.side_by_side import zip_on_machine
from abele.poplibs.poputil.layout import clone

if TYPE_CHECKING:
    from abele.distribution.lowering import Lowering


# Sums of gradients in streaming memory: each micro-batch brings them to the chip, adds to them, and takes them back.
#
# They come in parts, one after the other, so that on the chip is room for the largest part alone. Updates load those
# of what they update; what looks at gradients together before any update (sums over replicas, norms of all) has them
# loaded at once.

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
        away, lanes = {op.inputs[0] for op in self._part_of}, list[Steps]()
        for total in totals:
            if total not in away:
                lanes.append(Steps(name="zero"))
                popops.zero(to.graph.top_level, to[total], lanes[-1])
        if lanes:
            prog.add(zip_on_machine(to.graph, lanes, "zero"))
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


@dataclass(frozen=True, eq=False)
class UpdateTarget:
    """Tensors of one update.

    Attributes:
        name: Name of the parameter.
        parameter: The parameter, or the replica's share of it.
        gradient: Its gradient, of the same shape.
        slots: The optimiser's state of it, by the rule's names.
        is_share: True for a share.
    """

    name: str
    parameter: Tensor
    gradient: Tensor
    slots: Mapping[str, Tensor]
    is_share: bool = False


@dataclass(frozen=True, eq=False)
class Waiting:
    """A parameter that waits for its unit.

    Attributes:
        name: Name of the parameter.
        parameter: All of it.
        gradient: Its gradient, whole or the replica's share.
        shards: Division of its state between replicas.
        off_chip: True if its state is in streaming memory.
        row: Place of the parameter itself in streaming memory, if it is there.
        sums: Place of its gradient in streaming memory, if it is there still.
    """

    name: str
    parameter: Tensor
    gradient: Tensor
    shards: Shards
    off_chip: bool
    row: WeightRow | None = None
    sums: SumPart | None = None

    @property
    def is_share(self) -> bool:
        """True if replicas share it."""
        return self.shards.replicas > 1

    def moved_bytes(self, slots: Mapping[str, StateSlot]) -> int:
        """Bytes that come from streaming memory for its update, and go back."""
        state = self.shards.width * sum(slot.dtype.bytes for slot in slots.values()) if self.off_chip else 0
        return (
            state
            + (0 if self.row is None else self.parameter.bytes)
            + (0 if self.sums is None else self.gradient.bytes)
        )

    @property
    def gathered_bytes(self) -> int:
        """Bytes that replicas gather of it."""
        return self.shards.width * self.shards.replicas * self.parameter.dtype.bytes if self.is_share else 0


def units(waiting: Iterable[Waiting], slots: Mapping[str, StateSlot], system: System) -> list[list[Waiting]]:
    """Parameters by unit: as many as a copy is worth its time for; those of one row of streaming memory are in one.

    Gradients that come together need not be in one unit: each brings them anew.
    """
    rows: dict[object, list[Waiting]] = {}
    for one in waiting:
        rows.setdefault(one if one.row is None else one.row, []).append(one)
    worthwhile, most = worthwhile_bytes(system), MOST_BYTES * system.num_tiles
    made: list[list[Waiting]] = []
    moved = gathered = 0
    for row in rows.values():
        gathered += sum(one.gathered_bytes for one in row)
        # A unit is full when its copies are worth their time, or its collectives have as much as they may.
        if not made or moved >= worthwhile > 0 or gathered > most:
            made.append([])
            moved, gathered = 0, sum(one.gathered_bytes for one in row)
        made[-1] += row
        moved += sum(one.moved_bytes(slots) for one in row)
    return made


class StateUnit:
    """The steps of one unit around its updates.

    Args:
        graph: The IPU's.
        waiting: Its parameters.
        slots: The optimiser's state of each parameter.

    Attributes:
        targets: Tensors for the optimiser to update, between :meth:`share` and :meth:`gather`.
        whole: State that lies whole on the chip, by name.
        flat: Shares of state on the chip.
    """

    def __init__(self, graph: Graph, waiting: Sequence[Waiting], slots: Mapping[str, StateSlot]) -> None:
        self._graph = graph
        self._waiting = waiting
        self._slots = slots
        self.whole: dict[str, Tensor] = {}
        self.flat: dict[str, FlatState] = {}
        self.targets = [self._target(one) for one in waiting]

    def share(self, prog: Steps) -> None:
        """Append what gives replicas their shares of parameters."""
        for group in self._shared():
            rows = concat([one.shards.rows(self._graph, one.parameter) for one, _ in group], 1)
            own = gcl.reduce_scatter_cross_replica(self._graph, rows.flatten(), "local", prog, name="share")
            pairs, begin = [], 0
            for one, target in group:
                pairs.append((own[begin : begin + one.shards.width], target.parameter))
                begin += one.shards.width
            for copy in joined_copies(pairs, "spread_shares"):
                prog.add(copy)

    def gather(self, prog: Steps) -> None:
        """Append what makes parameters whole in all replicas."""
        for group in self._shared():
            own = concat([target.parameter for _, target in group])
            rows = gcl.all_gather_cross_replica(self._graph, own, prog, name="all_gather")
            pairs, begin = [], 0
            for one, _ in group:
                part = rows[:, begin : begin + one.shards.width]
                pairs.append((one.shards.whole(part), one.shards.flat(one.parameter)))
                begin += one.shards.width
            for copy in joined_copies(pairs, "gathered"):
                prog.add(copy)

    def _shared(self) -> list[list[tuple[Waiting, UpdateTarget]]]:
        """Shares of parameters by replica, with their updates, by the element type of the parameter."""
        found: dict[str, list[tuple[Waiting, UpdateTarget]]] = {}
        for one, target in zip(self._waiting, self.targets, strict=True):
            if one.is_share:
                found.setdefault(one.parameter.dtype.name, []).append((one, target))
        return list(found.values())

    def _target(self, one: Waiting) -> UpdateTarget:
        graph, name, moved = self._graph, one.name, one.parameter
        if one.is_share:
            moved = graph.map_linear(graph.variable(moved.dtype, (one.shards.width,), name=f"{name}/share"))
        slots = {key: clone(graph, moved, f"{name}/{key}", slot.dtype) for key, slot in self._slots.items()}
        if not one.off_chip:
            for key, tensor in slots.items():
                slot = self._slots[key]
                graph.initialise(tensor, slot.initial)
                if one.is_share:
                    self.flat[f"{name}/{key}"] = FlatState(one.shards, slot.dtype, slot.initial, tensor)
                else:
                    self.whole[f"{name}/{key}"] = tensor
        return UpdateTarget(name, moved, one.gradient, slots, one.is_share)


class RemoteState:
    """State of a unit in streaming memory: a buffer for each element type, which has state by state.

    Args:
        graph: The IPU's.
        waiting: Its parameters.
        targets: Destinations of their state.
        slots: The optimiser's state of each parameter.
        name: Name of its buffers.

    Attributes:
        flat: Layout of the state, by name.
    """

    def __init__(
        self,
        graph: Graph,
        waiting: Sequence[Waiting],
        targets: Sequence[UpdateTarget],
        slots: Mapping[str, StateSlot],
        name: str,
    ) -> None:
        self._rows = list(dict.fromkeys(one.row for one in waiting if one.row is not None))
        self._sums = list(dict.fromkeys(one.sums for one in waiting if one.sums is not None))
        self._remote: list[tuple[RemoteBuffer, Tensor]] = []
        self.flat: dict[str, FlatState] = {}
        parts: dict[str, list[Tensor]] = {}
        places: list[tuple[str, FlatState]] = []
        begins: dict[str, int] = {}
        for one, target in zip(waiting, targets, strict=True):
            for key, slot in slots.items() if one.off_chip else ():
                kind, tensor = slot.dtype.name, target.slots[key]
                begin = begins.get(kind, 0)
                parts.setdefault(kind, []).append(tensor if one.is_share else one.shards.flat(tensor))
                begins[kind] = begin + tensor.size
                place = FlatState(one.shards, slot.dtype, slot.initial, begin=begin)
                places.append((f"{one.name}/{key}", place))
        buffers: dict[str, RemoteBuffer] = {}
        for kind, tensors in parts.items():
            whole = concat(tensors)
            buffers[kind] = graph.top_level.remote_buffer(f"{name}/{kind}", whole.dtype, whole.size)
            self._remote.append((buffers[kind], whole))
        for key, place in places:
            buffer = buffers[place.dtype.name]
            self.flat[key] = replace(place, buffer=buffer)

    def load(self, prog: Steps) -> None:
        """Append what brings state, and parameters and gradients that are there."""
        for row in self._rows:
            row.load(prog)
        for part in self._sums:
            part.load(prog)
        for buffer, tensor in self._remote:
            prog.add(Copy(buffer, tensor, name=f"load/{buffer.name}"))

    def store(self, prog: Steps) -> None:
        """Append what takes them back."""
        for buffer, tensor in self._remote:
            prog.add(Copy(tensor, buffer, name=f"store/{buffer.name}"))
        for row in self._rows:
            row.store(prog)
