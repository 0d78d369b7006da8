"""Graphs that run for one micro-batch after the other, with what goes between graphs in streaming memory.

``batch_serialise(graph, 4, load_handles={x: stream}, store_buffers={y: RemoteHandle(buffer, 1)}, rows=3)`` makes a
graph that takes a row number ``n``. Step ``i`` of 4 loads ``x`` from the stream, and stores ``y`` in entry
``(n + 1) * 4 + i`` of the buffer, whose entries are ``batch_serial_buffer(y, 4, rows=4)``. So a loop over layers hands
activations of all micro-batches from one layer to the next, and weights of a layer are loaded once for all of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from abele.frontends import popxl
from abele.frontends.popxl import DeviceToHostStream, HostToDeviceStream, Tensor, ops
from abele.frontends.popxl.errors import GraphArgumentError, GraphTypeError
from abele.frontends.popxl.transforms import ExpectedConnection, ExpectedConnectionType, GradGraphInfo
from abele.frontends.popxl_addons.graph import GraphWithNamedArgs, input_like
from abele.frontends.popxl_addons.named_tensors import NamedTensors
from abele.frontends.popxl_addons.remote import create_remote_buffer
from abele.frontends.popxl_addons.rts import gathered, replica_sharded_spec, sliced
from abele.frontends.popxl_addons.streams import check_steps

H = TypeVar("H")

IO_MODES = ("compute", "io", "io_overlapped")


@dataclass(frozen=True, eq=False)
class RemoteHandle:
    """A place in streaming memory for all steps of a tensor.

    Attributes:
        buffer: Remote buffer.
        row_offset: Number added to the row number of a call; without rows it is the row.
        shard_group: Replicas that have the tensor alike, and over which the buffer shards it; None for whole tensors.
    """

    buffer: Any
    row_offset: int | None = None
    shard_group: Any = None


LoadHandle = HostToDeviceStream | RemoteHandle | tuple[Any, ...]
StoreHandle = RemoteHandle | tuple[Any, ...]


@dataclass(eq=False)
class BatchSerialResult:
    """A graph that runs all steps.

    Attributes:
        graph: The graph; its first input is the row number if there are rows.
        stored_buffers: Places of tensors of the graph for one step.
        remap: Inputs of the graph for those of the graph for one step that it still takes.
    """

    graph: GraphWithNamedArgs
    stored_buffers: dict[Tensor, RemoteHandle] = field(default_factory=dict)
    remap: dict[Tensor, Tensor] = field(default_factory=dict)


def batch_serial_buffer(t: Tensor, steps: int, rows: int = 1, shard_group: Any = None) -> Any:
    """A remote buffer for a tensor of each step, in each row.

    Args:
        t: Tensor, or its spec.
        steps: Entries per row.
        rows: Number of rows.
        shard_group: Replicas over which tensors are sharded.
    """
    entries = check_steps("batch_serial_buffer", steps) * check_steps("batch_serial_buffer", rows)
    if shard_group is None:
        return create_remote_buffer(t, entries=entries)
    return create_remote_buffer(replica_sharded_spec(t, shard_over=shard_group), entries=entries)


def batch_serialise(
    graph: GraphWithNamedArgs,
    steps: int,
    load_handles: Mapping[Tensor, LoadHandle],
    store_streams: Mapping[Tensor, DeviceToHostStream] | None = None,
    store_buffers: Mapping[Tensor, StoreHandle] | None = None,
    seed_input: Tensor | None = None,
    rows: int = 1,
    io_mode: str = "io",
) -> BatchSerialResult:
    """The graph that runs one for all steps, and loads and stores each step's tensors.

    Inputs without a handle stay inputs, by the names that they have. Outputs that are not stored are not kept.

    Args:
        graph: Graph of one step.
        steps: Number of steps.
        load_handles: For inputs the stream or the place that each step loads them from.
        store_streams: For outputs the stream that each step stores them to.
        store_buffers: For outputs, or inputs, the place that each step stores them in.
        seed_input: Input that is a seed: each step has another, of the one that the graph is called with.
        rows: Number of rows of places; from 2 on the graph's first input is the row number, int32.
        io_mode: ``compute``, ``io`` or ``io_overlapped``: no meaning here, where no tiles are set aside for input.

    Raises:
        GraphArgumentError: A handle is for a tensor that the graph does not have, or for a buffer that does not fit.
    """
    steps, rows = check_steps("batch_serialise", steps), check_steps("batch_serialise", rows)
    if io_mode not in IO_MODES:
        raise GraphArgumentError(f"io_mode is one of {', '.join(IO_MODES)}, not {io_mode!r}")
    serial = _Serial(graph, steps, rows, seed_input)
    return serial.run(
        {t: h if isinstance(h, HostToDeviceStream) else _handle(h) for t, h in load_handles.items()},
        dict(store_streams or {}),
        {t: _handle(h) for t, h in (store_buffers or {}).items()},
    )


def batch_serialise_fwd_and_grad(
    forward_graph: GraphWithNamedArgs,
    gradient_graph: GraphWithNamedArgs,
    named_inputs_for_grad_graph: NamedTensors,
    steps: int,
    load_handles: Mapping[Tensor, LoadHandle],
    store_streams: Mapping[Tensor, DeviceToHostStream] | None = None,
    store_buffers: Mapping[Tensor, StoreHandle] | None = None,
    seed_input: Tensor | None = None,
    rows: int = 1,
    io_mode: str = "io",
) -> tuple[BatchSerialResult, BatchSerialResult]:
    """Graphs of all steps, of a graph and of its gradient.

    Forward tensors that the gradient reads are loaded from where the forward graph loads them or stores them. Where it
    does neither it stores them in buffers made for that. Seeds, and what comes by streams, are such tensors as well.

    Args:
        forward_graph: Graph of one step.
        gradient_graph: Graph of its gradients.
        named_inputs_for_grad_graph: Inputs of the forward graph that stay inputs of the gradient's, by name: variables.
        steps: Number of steps.
        load_handles: As for :func:`batch_serialise`, of inputs of both graphs.
        store_streams: As there, of outputs of both.
        store_buffers: As there, of outputs of both.
        seed_input: Input of the forward graph that is a seed.
        rows: Number of rows.
        io_mode: No meaning here.

    Returns:
        The forward graph of all steps, and that of the gradients.
    """
    info = gradient_graph.grad_graph_info
    if info.forward_graph is not forward_graph.graph:
        raise GraphArgumentError(f"{gradient_graph!r} is not the gradient of {forward_graph!r}")
    steps, rows = check_steps("batch_serialise", steps), check_steps("batch_serialise", rows)
    forward, backward = forward_graph.graph, gradient_graph.graph
    for tensor in (*load_handles, *(store_streams or {}), *(store_buffers or {})):
        if tensor.graph is not forward and tensor.graph is not backward:
            raise GraphArgumentError(f"{tensor!r} is neither of {forward.name!r} nor of {backward.name!r}")
    loads = [_of_graph(g, load_handles) for g in (forward, backward)]
    streams = [_of_graph(g, store_streams) for g in (forward, backward)]
    buffers = [_of_graph(g, store_buffers) for g in (forward, backward)]
    named = {tensor: name for name, tensor in named_inputs_for_grad_graph.to_dict().items()}
    args = gradient_graph.args.copy()
    places: dict[Tensor, Any] = {t: h for t, h in loads[0].items() if not isinstance(h, HostToDeviceStream)}
    places |= buffers[0]
    for inside, expected in zip(backward.inputs, info.expected_inputs, strict=False):
        tensor = expected.fwd_tensor
        if expected.connection_type is not ExpectedConnectionType.Fwd or inside in loads[1]:
            continue
        if tensor in named:
            args.insert(named[tensor], inside)
        elif tensor not in forward.inputs or tensor in loads[0] or tensor == seed_input:
            if tensor not in places:
                places[tensor] = buffers[0][tensor] = RemoteHandle(batch_serial_buffer(tensor, steps, rows), 0)
            loads[1][inside] = places[tensor]
    ahead = batch_serialise(
        forward_graph,
        steps,
        loads[0],
        store_streams=streams[0],
        store_buffers=buffers[0],
        seed_input=seed_input,
        rows=rows,
        io_mode=io_mode,
    )
    back = batch_serialise(
        GraphWithNamedArgs(backward, args),
        steps,
        loads[1],
        store_streams=streams[1],
        store_buffers=buffers[1],
        rows=rows,
        io_mode=io_mode,
    )
    back.graph = _with_info(ahead, back, info, named)
    return ahead, back


def _of_graph(graph: popxl.Graph, table: Mapping[Tensor, H] | None) -> dict[Tensor, H]:
    """Handles of a graph's own tensors."""
    return {t: handle for t, handle in (table or {}).items() if t.graph is graph}


def _with_info(
    ahead: BatchSerialResult, back: BatchSerialResult, info: GradGraphInfo, named: Mapping[Tensor, str]
) -> GraphWithNamedArgs:
    """The gradients' graph of all steps, with the meaning of its inputs in the forward graph's."""
    by_input = {
        back.remap[t]: e for t, e in zip(info.graph.inputs, info.expected_inputs, strict=False) if t in back.remap
    }
    made, inputs = back.graph.graph, []
    # What the info says of the first inputs counts alone, so those that it knows go first.
    row = [t for t in made.inputs if t not in back.remap.values()]
    order = [t for t in made.inputs if t in by_input and by_input[t].fwd_tensor not in named]
    for tensor in order:
        expected = by_input[tensor]
        if expected.connection_type is ExpectedConnectionType.Fwd:
            expected = ExpectedConnection(ahead.remap[expected.fwd_tensor], ExpectedConnectionType.Fwd)
        inputs.append((tensor, expected))
    return GraphWithNamedArgs(made, back.graph.args, SerialGradInfo(ahead.graph.graph, made, dict(inputs), len(row)))


class SerialGradInfo(GradGraphInfo):
    """Meaning of inputs of a gradients' graph of all steps.

    Attributes:
        connections: Meaning of inputs, where they are known.
        num_rows: Inputs before those, that are row numbers.
    """

    def __init__(
        self, forward_graph: Any, graph: Any, connections: dict[Tensor, ExpectedConnection], num_rows: int
    ) -> None:
        super().__init__(forward_graph, graph, tuple(connections.values()), ())
        self.connections, self.num_rows = connections, num_rows

    def inputs_dict(self, fwd_call_info: Any) -> dict[Tensor, Tensor]:
        """Forward tensors that the graph reads, from a call of the forward graph."""
        self._check(fwd_call_info, self.forward_graph)
        return {
            inside: fwd_call_info.graph_to_parent(e.fwd_tensor)
            for inside, e in self.connections.items()
            if e.connection_type is ExpectedConnectionType.Fwd
        }


class _Serial:
    """One graph of all steps in the making."""

    def __init__(self, graph: GraphWithNamedArgs, steps: int, rows: int, seed: Tensor | None) -> None:
        self.named, self.graph = graph, graph.graph
        self.steps, self.rows, self.seed = steps, rows, seed
        if seed is not None and seed not in self.graph.inputs:
            raise GraphArgumentError(f"seed_input {seed!r} is not an input of {self.graph.name!r}")

    def run(
        self,
        loads: Mapping[Tensor, HostToDeviceStream | RemoteHandle],
        streams: Mapping[Tensor, DeviceToHostStream],
        buffers: Mapping[Tensor, RemoteHandle],
    ) -> BatchSerialResult:
        """The graph."""
        self._check(loads, streams, buffers)
        inner = self.graph
        free = [t for t in inner.inputs if t not in loads and t is not self.seed]
        carried = [] if self.seed is None else [self.seed]
        step = inner.ir.create_empty_graph(f"{inner.name}_step")
        with step, popxl.in_sequence():
            index = popxl.graph_input((), popxl.int32, "step")
            entered = {t: input_like(t) for t in carried}
            row = popxl.graph_input((), popxl.int32, "row") if self.rows > 1 else None
            entered |= {t: input_like(t) for t in free}
            outputs = [index + 1]
            if self.seed is not None:
                seeds = ops.split_random_seed(entered[self.seed])
                entered[self.seed] = seeds[0]
                outputs.append(seeds[1])
            entered |= {t: self._loaded(h, index, row, t.name) for t, h in loads.items()}
            results = ops.call(inner, inputs_dict=entered)
            there = entered | dict(zip(inner.outputs, results, strict=True))
            for tensor, stream in streams.items():
                ops.host_store(stream, there[tensor])
            for tensor, handle in buffers.items():
                self._stored(handle, index, row, there[tensor])
            step.outputs[:] = outputs
        made = inner.ir.create_empty_graph(f"{inner.name}_serialised")
        with made, popxl.in_sequence():
            rows = [popxl.graph_input((), popxl.int32, "row")] if self.rows > 1 else []
            remap = {t: input_like(t) for t in inner.inputs if t not in loads}
            ops.repeat(
                step,
                self.steps,
                popxl.constant(0, popxl.int32),
                *(remap[t] for t in carried),
                *rows,
                *(remap[t] for t in free),
            )
        args = NamedTensors.from_dict({name: remap[t] for name, t in self.named.args.to_dict().items() if t in remap})
        return BatchSerialResult(GraphWithNamedArgs(made, args), dict(buffers), remap)

    def _check(self, loads: Any, streams: Any, buffers: Any) -> None:
        for tensor in loads:
            if tensor not in self.graph.inputs:
                raise GraphArgumentError(f"{tensor!r} is to be loaded, but is not an input of {self.graph.name!r}")
        for tensor in (*streams, *buffers):
            if tensor not in self.graph.outputs and tensor not in self.graph.inputs:
                raise GraphArgumentError(
                    f"{tensor!r} is to be stored, but is neither an output nor an input of {self.graph.name!r}"
                )
        if self.seed is not None and self.seed in loads:
            raise GraphArgumentError(f"the seed {self.seed!r} is loaded, so it cannot be seed_input as well")
        for handle in (h for h in (*loads.values(), *buffers.values()) if isinstance(h, RemoteHandle)):
            first = handle.row_offset or 0
            last = first + self.rows
            if last * self.steps > handle.buffer.entries or first < 0:
                raise GraphArgumentError(
                    f"rows {first} to {last - 1} of {self.steps} steps do not fit in {handle.buffer!r}",
                    remedy=f"batch_serial_buffer(t, {self.steps}, rows={last})",
                )

    def _entry(self, handle: RemoteHandle, index: Tensor, row: Tensor | None) -> Tensor:
        first = (handle.row_offset or 0) * self.steps
        entry = index + first if first else index
        return entry if row is None else entry + row * self.steps

    def _loaded(
        self, handle: HostToDeviceStream | RemoteHandle, index: Tensor, row: Tensor | None, name: str
    ) -> Tensor:
        if isinstance(handle, HostToDeviceStream):
            return ops.host_load(handle, name)
        found = ops.remote_load(handle.buffer, self._entry(handle, index, row), name)
        return found if handle.shard_group is None else gathered(found, handle.shard_group)

    def _stored(self, handle: RemoteHandle, index: Tensor, row: Tensor | None, tensor: Tensor) -> None:
        tensor = tensor if handle.shard_group is None else sliced(tensor, handle.shard_group)
        ops.remote_store(handle.buffer, self._entry(handle, index, row), tensor)


def _handle(given: Any) -> RemoteHandle:
    if isinstance(given, RemoteHandle):
        return given
    if isinstance(given, tuple):
        return RemoteHandle(*given)
    if isinstance(given, popxl.RemoteBuffer):
        return RemoteHandle(given)
    raise GraphTypeError(f"a handle is a RemoteHandle or (buffer, row_offset), not {given!r}")


__all__ = [
    "BatchSerialResult",
    "RemoteHandle",
    "batch_serial_buffer",
    "batch_serialise",
    "batch_serialise_fwd_and_grad",
]
