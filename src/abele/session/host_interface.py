"""The ends of a compiled network towards the host, by name: a program from a file has them as one just built does."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from abele.distribution import NetworkProgram
from abele.graph import Graph, Stream, Tensor
from abele.network import Network, Schedule
from abele.network.replicated_sharding import FlatState, Shards
from abele.network.split import Split
from abele.numerics import ElementType
from abele.poplibs.gcl import CommGroup
from abele.poplibs.poputil.order import StorageOrder


@dataclass(frozen=True, slots=True)
class Flat:
    """Layout of a tensor that is not whole on the chip: cut into shares of replicas, or in streaming memory.

    Attributes:
        order: The order in which it is cut, and in which its elements lie.
        replicas: Number of replicas that share it; 1 if each has all of it.
        initial: Value of its elements before the first run.
        begin: First element of its part of the remote buffer's row; None if it is on the chip.
    """

    order: StorageOrder
    replicas: int
    initial: float
    begin: int | None = None

    @property
    def width(self) -> int:
        """Elements that one replica has, with padding."""
        return Shards(self.order, self.replicas).width


@dataclass(frozen=True, slots=True)
class End:
    """A stream, or a tensor that the host may read and write.

    Attributes:
        name: The network's name of it.
        handle: Name for an engine, or the remote buffer that it lies in.
        shape: Dimensions; of a stream, those of one micro-batch.
        dtype: Element type on the device.
        group: Groups of replicas that each have values of their own; None if all have the same.
        flat: Layout of a tensor that is not whole on the chip.
        split: Split of the host's array into those of the groups; None if it has a row for each.
    """

    name: str
    handle: str
    shape: tuple[int, ...]
    dtype: ElementType
    group: CommGroup | None = None
    flat: Flat | None = None
    split: Split | None = None

    @property
    def is_remote(self) -> bool:
        """True if it is in streaming memory."""
        return self.flat is not None and self.flat.begin is not None

    def host_shape(self, replicas: int) -> tuple[int, ...]:
        """Dimensions of the host's array of a tensor: one for all replicas, of all parts, or for each group of them."""
        if self.split is not None:
            return self.split.whole_shape(self.shape)
        return self.shape if self.group is None else (len(self.group.members(replicas)), *self.shape)

    @property
    def np(self) -> np.dtype[Any]:
        """Element type of the host's arrays."""
        return self.dtype.np


@dataclass(frozen=True)
class Ends:
    """Everything of a compiled network that the host reaches.

    Attributes:
        inputs: A stream for each input.
        outputs: A stream for each output.
        changed: For each input that the network changes, its position and the stream of what it becomes.
        weights: Parameters and buffers by name.
        state: State of optimisers by name.
        numbers: For each optimiser, its hyper-parameters that may change from run to run.
        seed: The state of random ops, u32[2], if there are any.
        anchors: A stream for each anchor.
        gradients: Gradients of a micro-batch by the names of parameters; of a program from a file there are none.
    """

    inputs: tuple[End, ...]
    outputs: tuple[End, ...]
    changed: tuple[tuple[int, End], ...]
    weights: dict[str, End]
    state: dict[str, End]
    numbers: tuple[dict[str, End], ...]
    seed: End | None
    anchors: tuple[End, ...] = ()
    gradients: Mapping[str, Tensor] = field(default_factory=dict, compare=False)


def expose(net: Network, program: NetworkProgram) -> Ends:
    """The ends of a program, each tensor under a handle by which an engine finds it.

    A program that makes its own data has neither inputs nor outputs.
    """
    graph, schedule = program.graph, program.schedule
    parts = {name: tensor.shape for name, tensor in program.weights.items()}
    parts |= {name: weight.shards.order.shape for name, weight in program.remote_weights.items()}
    # Streams have no names in the program: outputs are numbered, changed inputs keep the names of the inputs.
    outputs = [f"output{i}" for i in range(len(program.outputs))]
    positions = [net.inputs.index(v) for v in net.changed_inputs]
    inputs = net.inputs if program.inputs else ()
    if not program.changed:
        positions = []
    changed = (_stream(net.inputs[i].name, s) for i, s in zip(positions, program.changed, strict=True))
    # State and numbers of all optimisers in one table; the loss scale's numbers belong to the first optimiser.
    shared = program.scale
    state = {name: t for update in program.groups for name, t in update.state.items()}
    state |= {} if shared is None else shared.state
    flat = {name: f for update in program.groups for name, f in update.flat.items()}
    hyper = [dict(update.hyper) for update in program.groups]
    if shared is not None and hyper:
        hyper[0] |= shared.hyper
    return Ends(
        gradients=program.gradients,
        inputs=tuple(_stream(v.name, s) for v, s in zip(inputs, program.inputs, strict=True)),
        outputs=tuple(_stream(n, s) for n, s in zip(outputs, program.outputs, strict=True)),
        changed=tuple(zip(positions, changed, strict=True)),
        weights={
            **{n: _owned(_tensor(graph, "weight", n, t), schedule, parts) for n, t in program.weights.items()},
            **{n: _owned(_flat(graph, n, f), schedule, parts) for n, f in program.remote_weights.items()},
        },
        state={
            **{n: _owned(_tensor(graph, "state", n, t), schedule, parts) for n, t in state.items()},
            **{n: _owned(_flat(graph, n, f), schedule, parts) for n, f in flat.items()},
        },
        numbers=tuple(
            {name: _tensor(graph, f"optimiser{i}", name, t) for name, t in scalars.items()}
            for i, scalars in enumerate(hyper)
        ),
        seed=None if program.seed is None else _tensor(graph, "random", "state", program.seed),
        anchors=tuple(_stream(a.tensor, s) for a, s in zip(program.schedule.anchors, program.anchors, strict=True)),
    )


def _stream(name: str, stream: Stream) -> End:
    return End(name, stream.name, stream.shape, stream.dtype)


def _owned(end: End, schedule: Schedule, parts: dict[str, tuple[int, ...]]) -> End:
    """End of a weight, or of its state: groups of replicas may have values or parts of their own."""
    name, split = end.name, schedule.split_of(end.name)
    # State of a weight is cut as the weight is, if it has an element for each of the weight's.
    owner = next((n for n in _begins(name) if n in parts), name)
    # Rows of replicas are groups of one each to the host, whichever replicas reduce their gradients together.
    group = CommGroup.none() if name in schedule.every_replica else schedule.group_of(name)
    return replace(end, group=group, split=split if parts.get(owner) == end.shape else None)


def _begins(name: str) -> Iterator[str]:
    """A name, and what it has before each of its slashes, the longest first."""
    while name:
        yield name
        name = name.rpartition("/")[0]


ROLES = {
    "weight": "weight",
    "state": "optimiser state",
    "optimiser": "hyper-parameter",
    "random": "random state",
}
"""Roles of tensors, by the kinds of their handles; numbers at the end of kinds left out."""


def _tensor(graph: Graph, kind: str, name: str, tensor: Tensor) -> End:
    return End(name, graph.expose(tensor, f"{kind}/{name}").name, tensor.shape, tensor.dtype)


def _flat(graph: Graph, name: str, state: FlatState) -> End:
    """End of a tensor that is not whole on the chip; it has the shape of its parameter."""
    shards = state.shards
    if state.buffer is not None:
        handle, begin = state.buffer.name, state.begin
    else:
        assert state.tensor is not None
        handle, begin = graph.expose(state.tensor, f"state/{name}").name, None
    flat = Flat(shards.order, shards.replicas, state.initial, begin)
    return End(name, handle, shards.order.shape, state.dtype, flat=flat)
