"""The ends of a compiled network towards the host, by name: a program from a file has them as one just built does."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from abele.graph import Graph, Stream, Tensor
from abele.numerics import ElementType
from abele.parallel import Network, NetworkProgram, Schedule
from abele.parallel.split import Split
from abele.poplibs.gcl import CommGroup


@dataclass(frozen=True, slots=True)
class End:
    """A stream, or a tensor that the host may read and write.

    Attributes:
        name: The network's name of it.
        handle: What an engine calls it.
        shape: Dimensions; of a stream, those of one micro-batch.
        dtype: Element type on the device.
        group: Groups of replicas that each have values of their own; None if all have the same.
        split: How the host's array is cut into those of the groups; None if it has a row for each.
    """

    name: str
    handle: str
    shape: tuple[int, ...]
    dtype: ElementType
    group: CommGroup | None = None
    split: Split | None = None

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
    """

    inputs: tuple[End, ...]
    outputs: tuple[End, ...]
    changed: tuple[tuple[int, End], ...]
    weights: dict[str, End]
    state: dict[str, End]
    numbers: tuple[dict[str, End], ...]
    seed: End | None
    anchors: tuple[End, ...] = ()


def expose(net: Network, program: NetworkProgram) -> Ends:
    """The ends of a program, each tensor under a handle by which an engine finds it.

    A program that makes its own data has neither inputs nor outputs.
    """
    graph, schedule = program.graph, program.schedule
    parts = {name: tensor.shape for name, tensor in program.weights.items()}
    outputs = [f"output{i}" for i in range(len(program.outputs))]
    positions = [net.inputs.index(v) for v in net.changed_inputs]
    inputs = net.inputs if program.inputs else ()
    if not program.changed:
        positions = []
    changed = (_stream(net.inputs[i].name, s) for i, s in zip(positions, program.changed, strict=True))
    shared = program.scale
    state = {name: t for update in program.groups for name, t in update.state.items()}
    state |= {} if shared is None else shared.state
    hyper = [dict(update.hyper) for update in program.groups]
    if shared is not None and hyper:
        hyper[0] |= shared.hyper
    return Ends(
        inputs=tuple(_stream(v.name, s) for v, s in zip(inputs, program.inputs, strict=True)),
        outputs=tuple(_stream(n, s) for n, s in zip(outputs, program.outputs, strict=True)),
        changed=tuple(zip(positions, changed, strict=True)),
        weights={name: _owned(graph, "weight", name, t, schedule, parts) for name, t in program.weights.items()},
        state={name: _owned(graph, "state", name, t, schedule, parts) for name, t in state.items()},
        numbers=tuple(
            {name: _tensor(graph, f"optimiser{i}", name, t) for name, t in scalars.items()}
            for i, scalars in enumerate(hyper)
        ),
        seed=None if program.seed is None else _tensor(graph, "random", "state", program.seed),
        anchors=tuple(_stream(a.tensor, s) for a, s in zip(program.schedule.anchors, program.anchors, strict=True)),
    )


def _stream(name: str, stream: Stream) -> End:
    return End(name, stream.name, stream.shape, stream.dtype)


def _owned(
    graph: Graph, kind: str, name: str, tensor: Tensor, schedule: Schedule, parts: dict[str, tuple[int, ...]]
) -> End:
    """A weight, or what belongs to one, of which groups of replicas may have values or parts of their own."""
    end = _tensor(graph, kind, name, tensor, schedule.group_of(name))
    split = schedule.split_of(name)
    # What an optimiser keeps beside a weight is cut as that is, if it has an element for each of the weight's.
    owner = next((n for n in parts if name == n or name.startswith(f"{n}/")), name)
    return end if split is None or parts.get(owner) != tensor.shape else replace(end, split=split)


def _tensor(graph: Graph, kind: str, name: str, tensor: Tensor, group: CommGroup | None = None) -> End:
    return End(name, graph.expose(tensor, f"{kind}/{name}").name, tensor.shape, tensor.dtype, group)
