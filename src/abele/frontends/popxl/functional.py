"""The pass that makes a network of graphs with in-place ops.

Each graph becomes one function: its parameters are the graph's inputs, the arrays of streams and remote buffers, and
how many entries of each stream were used. Its results are the outputs, what changed inputs hold afterwards, and the
arrays of streams to the host and of buffers that it stores to.
Values of a network never change, so ops are walked in program order with a table of values: an in-place op gives its
tensor another one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from abele.errors import UnsupportedOpError
from abele.expr import Const, apply
from abele.expr.derivative import arg
from abele.frontends.popxl.calls import FunctionCall
from abele.frontends.popxl.dtypes import float32
from abele.frontends.popxl.errors import UndefinedValue
from abele.frontends.popxl.graph import Graph
from abele.frontends.popxl.ir import Ir
from abele.frontends.popxl.operations import GraphOperation, HostLoad, HostStore, RemoteLoad, RemoteStore, inlined
from abele.frontends.popxl.remote import RemoteBuffer, RemoteVariable
from abele.frontends.popxl.streams import DeviceToHostStream, HostToDeviceStream
from abele.frontends.popxl.tensors import Constant, Tensor, Variable
from abele.network import BlockBuilder, Network, NetworkBuilder, Value
from abele.network.ir import NetworkFunction, RegionBuilder
from abele.network.ir.value import Place
from abele.network.ops import build
from abele.numerics import f32, i32

Stream = HostToDeviceStream | DeviceToHostStream
Outside = Stream | RemoteBuffer
"""Things of the program, which every graph reaches."""
Count = int | Value
"""Number of entries of a stream that were used: known, or a value of the program."""


@dataclass
class _Streams:
    """Streams and remote buffers on the way through a graph.

    Attributes:
        arrays: Of each its entries, [entries, …].
        used: Number of entries of each stream that were used.
    """

    arrays: dict[Outside, Value] = field(default_factory=dict)
    used: dict[Stream, Count] = field(default_factory=dict)


@dataclass(frozen=True)
class _GraphFunction:
    """A graph as a function.

    Attributes:
        function: The function.
        changed: Numbers of the inputs that it changes.
        outside: Streams and buffers in the order of its parameters.
        stored: Those of them that it stores to, in the order of its results.
        uses: Entries of each stream that a call uses.
    """

    function: NetworkFunction
    changed: tuple[int, ...]
    outside: tuple[Outside, ...]
    stored: tuple[Outside, ...]
    uses: Counter[Stream]


@dataclass(frozen=True)
class Functional:
    """A program as a network.

    Attributes:
        network: The network.
        inputs: Streams from the host, in the order of its inputs.
        outputs: Streams to the host, in the order of its outputs.
        variables: Variables of the chip.
        buffers: Remote buffers that it loads from or stores to.
    """

    network: Network
    inputs: tuple[HostToDeviceStream, ...]
    outputs: tuple[DeviceToHostStream, ...]
    variables: tuple[Variable, ...]
    buffers: tuple[RemoteBuffer, ...] = ()


def functional(ir: Ir) -> Functional:
    """The network of a program."""
    return _Pass(ir).run()


class _Pass:
    def __init__(self, ir: Ir) -> None:
        self.ir = ir
        self.entries = ir.num_host_transfers
        self.functions: dict[str, _GraphFunction] = {}
        self._uses: dict[str, Counter[Stream]] = {}
        self._buffers: dict[str, dict[RemoteBuffer, bool]] = {}
        # Prints whose results nothing reads run as what they give is stored, in a stream that nobody sees.
        self.printed = DeviceToHostStream(ir, "printed", (), float32)
        self._silent = _in_branches(ir.main_graph)
        self.homes = _homes(ir.main_graph) | {self.printed: Place(ipu=0)}
        self.totals = self.uses(ir.main_graph)

    def run(self) -> Functional:
        """The main graph as a network."""
        main, net = self.ir.main_graph, NetworkBuilder()
        streams = _Streams()
        walk = _GraphWalk(self, net, streams)
        variables = tuple(t for t in main.variables if not isinstance(t, RemoteVariable))
        reached = self.buffers(main)
        entered: dict[Tensor, Value] = {t: net.buffer(t.shape, t.dtype.element, t.id) for t in variables}
        walk.values |= entered
        uses = self.uses(main)
        loaded = tuple(s for s in self.ir.h2d.values() if uses[s])
        stored = tuple(s for s in self.ir.d2h.values() if uses[s])
        sinks = (*stored, self.printed) if uses[self.printed] else stored
        for source in loaded:
            shape = (self.entries, *source.shape)
            streams.arrays[source] = net.input(shape, source.dtype.element, source.tensor_id)
        for out in sinks:
            shape = (self.entries, *out.shape)
            with net.at(place=self.homes[out]):
                streams.arrays[out] = build.full(net, 0, shape, out.dtype.element)
        streams.used.update(dict.fromkeys((*loaded, *sinks), 0))
        tables: dict[Outside, Value] = {}
        for buffer in reached:
            shape = (buffer.entries, *buffer.tensor_shape)
            tables[buffer] = net.buffer(shape, buffer.tensor_dtype.element, buffer.state_name)
        streams.arrays.update(tables)
        walk.graph(main)
        for tensor, value in entered.items():
            if walk.values[tensor] is not value:
                net.updates[value] = walk.values[tensor]
        net.updates.update((table, streams.arrays[b]) for b, table in tables.items() if streams.arrays[b] is not table)
        for out in sinks:
            net.output(streams.arrays[out])
        return Functional(net.finish(), loaded, stored, variables, tuple(reached))

    def uses(self, graph: Graph) -> Counter[Stream]:
        """Entries of each stream that one run of a graph uses.

        Raises:
            UnsupportedOpError: It depends on a condition.
        """
        if graph.name not in self._uses:
            found: Counter[Stream] = Counter()
            for op in graph.operations:
                if isinstance(op, HostLoad | HostStore):
                    found[op.stream] += 1
                elif self.prints(graph, op):
                    found[self.printed] += 1
                elif isinstance(op, FunctionCall):
                    each = [self.uses(g) for g in op.graphs]
                    if any(other != each[0] for other in each):
                        raise UnsupportedOpError(
                            f"the branches {op.graphs[0].name!r} and {op.graphs[1].name!r} use different streams",
                            remedy="load and store around the conditional",
                        )
                    for stream, count in each[0].items():
                        found[stream] += count * op.count
            self._uses[graph.name] = found
        return self._uses[graph.name]

    def prints(self, graph: Graph, op: Any) -> bool:
        """True for ops that print; branches of a conditional print what is read alone."""
        return isinstance(op, GraphOperation) and op.kind == "print_tensor" and graph.name not in self._silent

    def buffers(self, graph: Graph) -> dict[RemoteBuffer, bool]:
        """Remote buffers of a graph's ops and calls, with True for those that it stores to."""
        if graph.name not in self._buffers:
            found: dict[RemoteBuffer, bool] = {}
            for op in graph.operations:
                if isinstance(op, RemoteLoad | RemoteStore):
                    found[op.buffer] = found.get(op.buffer, False) or isinstance(op, RemoteStore)
                elif isinstance(op, FunctionCall) and op.count:
                    for inner in op.graphs:
                        found |= {b: found.get(b, False) or stores for b, stores in self.buffers(inner).items()}
            self._buffers[graph.name] = found
        return self._buffers[graph.name]

    def function(self, graph: Graph) -> _GraphFunction:
        """The function of a graph, made once."""
        if graph.name not in self.functions:
            self.functions[graph.name] = self._made(graph)
        return self.functions[graph.name]

    def _made(self, graph: Graph) -> _GraphFunction:
        uses, buffers = self.uses(graph), self.buffers(graph)
        every: list[Stream] = [*self.ir.h2d.values(), *self.ir.d2h.values(), self.printed]
        used = tuple(s for s in every if s in uses)
        stored: list[Outside] = [s for s in used if isinstance(s, DeviceToHostStream)]
        stored += [b for b, stores in buffers.items() if stores]
        region = RegionBuilder(NetworkBuilder())
        walk = _GraphWalk(self, region, _Streams())
        entered = [region.parameter(region.value(t.shape, t.dtype.element, t.name), t.name) for t in graph.inputs]
        walk.values.update(zip(graph.inputs, entered, strict=True))
        for stream in used:
            like = region.value((self.entries, *stream.shape), stream.dtype.element)
            walk.streams.arrays[stream] = region.parameter(like, stream.tensor_id)
        for buffer in buffers:
            like = region.value((buffer.entries, *buffer.tensor_shape), buffer.tensor_dtype.element)
            walk.streams.arrays[buffer] = region.parameter(like, buffer.state_name)
        for stream in used:
            walk.streams.used[stream] = region.parameter(region.value((), i32), f"{stream.tensor_id}/used")
        walk.graph(graph)
        changed = tuple(n for n, t in enumerate(graph.inputs) if walk.values[t] is not entered[n])
        results = [walk.read(t) for t in graph.outputs]
        results += [walk.values[graph.inputs[n]] for n in changed]
        results += [walk.streams.arrays[s] for s in stored]
        function = NetworkFunction(graph.name, region.finish(results))
        return _GraphFunction(function, changed, (*used, *buffers), tuple(stored), uses)


def _in_branches(graph: Graph) -> set[str]:
    """Names of graphs that run in a branch of a conditional."""
    branches = [
        g
        for one in graph.reached
        for op in one.operations
        if isinstance(op, FunctionCall) and op.kind == "If"
        for g in op.graphs
    ]
    return {inner.name for branch in branches for inner in branch.reached}


class _GraphWalk:
    """One graph on its way: the value of each tensor so far."""

    def __init__(self, whole: _Pass, net: BlockBuilder, streams: _Streams) -> None:
        self.whole, self.net, self.streams = whole, net, streams
        self.values: dict[Tensor, Value] = {}

    def graph(self, graph: Graph) -> None:
        """Run all ops of a graph."""
        for op in graph.operations:
            match op:
                case GraphOperation():
                    self._operation(op)
                    if self.whole.prints(graph, op):
                        self._printed(self.values[op.outputs[0]])
                case HostLoad():
                    self._load(op)
                case HostStore():
                    self._store(op)
                case RemoteLoad():
                    self._load_row(op)
                case RemoteStore():
                    self._store_row(op)
                case FunctionCall():
                    self._call(op)

    # --- tensors

    def read(self, tensor: Tensor) -> Value:
        """The value that a tensor has now.

        Raises:
            UndefinedValue: Nothing has made it.
        """
        alias = tensor.alias
        if alias is not None:
            bases = [self.read(base) for base in alias.bases]
            with self.net.at(place=Place(ipu=alias.base.ipu)):
                return bases[0] if alias.read is None else self.net.inline(alias.read, bases)[0]
        if tensor not in self.values:
            if not isinstance(tensor, Constant):
                raise UndefinedValue(f"{tensor!r} has no value where it is read")
            self.values[tensor] = self.net.constant(
                tensor.dtype.device_array(tensor.data).copy(), tensor.dtype.element, tensor.name
            )
        return self.values[tensor]

    def write(self, tensor: Tensor, value: Value) -> None:
        """Give a tensor another value."""
        alias = tensor.alias
        if alias is None:
            self.values[tensor] = value
        elif alias.write is None:
            self.write(alias.base, value)
        else:
            with self.net.at(place=Place(ipu=alias.base.ipu)):
                made = self.net.inline(alias.write, [*(self.read(base) for base in alias.bases), value])
            for base, new in zip(alias.bases, made, strict=True):
                self.write(base, new)

    # --- ops

    def _operation(self, op: GraphOperation) -> None:
        if op.refusal is not None:
            raise op.refusal
        if op.is_view:
            return
        arguments = [self.read(t) for t in op.inputs]
        with self.net.at(op.origin):
            made = inlined(self.net, op.block, arguments)
        self.values.update(zip(op.outputs, made, strict=False))
        for number, value in zip(op.modifies, made[len(op.outputs) :], strict=True):
            self.write(op.inputs[number], value)

    def _index(self, stream: Stream) -> Count:
        """Number of the stream's next entry; it is used from now on."""
        used, entries = self.streams.used[stream], self.whole.entries
        self.streams.used[stream] = _plus(self.net, used, 1)
        if isinstance(used, int):
            return used % entries
        if self.whole.totals[stream] <= entries:
            return used
        return build.map_(self.net, apply("rem", arg(0), Const(entries, i32)), [used], i32)

    def _load(self, op: HostLoad) -> None:
        with self.net.at(place=self.whole.homes[op.stream]):
            self.values[op.output] = self._loaded(op)

    def _loaded(self, op: HostLoad) -> Value:
        rows, index = self.streams.arrays[op.stream], self._index(op.stream)
        if self.whole.entries == 1 or isinstance(index, int):
            first = 0 if self.whole.entries == 1 else index
            assert isinstance(first, int)
            row = build.slice_(self.net, rows, 0, first, first + 1)
        else:
            row = build.read_row(self.net, rows, index)
        return build.reshape(self.net, row, op.stream.shape)

    def _printed(self, value: Value) -> None:
        """Add an element of what a print gave to the stream of prints, so that it is needed."""
        if not value.size:
            return
        with self.net.at(place=self.whole.homes[self.whole.printed]):
            flat, table = build.reshape(self.net, value, (value.size,)), self.streams.arrays[self.whole.printed]
            first = build.cast(self.net, build.reshape(self.net, build.slice_(self.net, flat, 0, 0, 1), ()), f32)
            self.streams.arrays[self.whole.printed] = build.map_(self.net, arg(0) + arg(1), [table, first], f32)

    def _store(self, op: HostStore) -> None:
        with self.net.at(place=self.whole.homes[op.stream]):
            self._stored(op)

    def _stored(self, op: HostStore) -> None:
        table, index, value = self.streams.arrays[op.stream], self._index(op.stream), self.read(op.tensor)
        row = build.reshape(self.net, value, (1, *value.shape))
        if self.whole.entries == 1:
            self.streams.arrays[op.stream] = row
            return
        if isinstance(index, int):
            entries = self.whole.entries
            parts = [build.slice_(self.net, table, 0, 0, index)] if index else []
            rest = [build.slice_(self.net, table, 0, index + 1, entries)] if index + 1 < entries else []
            self.streams.arrays[op.stream] = build.concat(self.net, [*parts, row, *rest], 0)
            return
        self.streams.arrays[op.stream] = build.write_row(self.net, table, value, index)

    def _row(self, offset: int | Tensor) -> Value:
        """Number of a row of a remote buffer."""
        if isinstance(offset, int):
            return self.net.constant(np.int32(offset), i32)
        return build.reshape(self.net, build.cast(self.net, self.read(offset), i32), ())

    def _load_row(self, op: RemoteLoad) -> None:
        with self.net.at(op.origin, place=op.place):
            row = build.load_row(self.net, self.streams.arrays[op.buffer], self._row(op.offset))
        self.write(op.output, row)

    def _store_row(self, op: RemoteStore) -> None:
        table, value = self.streams.arrays[op.buffer], self.read(op.tensor)
        with self.net.at(op.origin, place=op.place):
            self.streams.arrays[op.buffer] = build.store_row(self.net, table, value, self._row(op.offset))

    # --- calls

    def _call(self, op: FunctionCall) -> None:
        functions = [self.whole.function(g) for g in op.graphs]
        arguments = [[self.read(t) for t in inputs] for inputs in op.inputs]
        # A block is on one IPU: that of its ops where they agree, else the first.
        numbers = set().union(*(g.ipus for g in op.graphs))
        with self.net.at(place=Place(ipu=min(numbers, default=0))):
            if op.kind == "Call":
                self._called(op, functions[0], arguments[0])
            elif op.kind == "Loop":
                self._repeated(op, functions[0], arguments[0])
            else:
                self._chosen(op, functions, arguments)
        for stream, count in functions[0].uses.items():
            with self.net.at(place=self.whole.homes[stream]):
                self.streams.used[stream] = _plus(self.net, self.streams.used[stream], count * op.count)

    def _used(self, net: BlockBuilder, stream: Stream) -> Value:
        used = self.streams.used[stream]
        return net.constant(np.int32(used), i32) if isinstance(used, int) else used

    def _streams_of(
        self, net: BlockBuilder, called: _GraphFunction, trip: Value | None = None, counted: Mapping[Stream, Value] = {}
    ) -> list[Value]:
        """Arrays and counts that a call hands on; ``counted`` are counts that the loop around carries."""
        counts = []
        for stream in (s for s in called.outside if not isinstance(s, RemoteBuffer)):
            value = counted.get(stream) or self._used(net, stream)
            if trip is not None and stream not in counted:
                value = build.map_(net, arg(0) + arg(1) * Const(called.uses[stream], i32), [value, trip], i32)
            counts.append(value)
        return [*(self.streams.arrays[s] for s in called.outside), *counts]

    def _seen(self, op: FunctionCall, called: _GraphFunction) -> list[int]:
        """Places in ``called.changed`` of inputs whose changes the caller sees."""
        inputs = op.graphs[0].inputs
        return [k for k, n in enumerate(called.changed) if inputs[n].by_ref or n in op.modified]

    def _called(self, op: FunctionCall, called: _GraphFunction, arguments: Sequence[Value]) -> None:
        made = build.call(self.net, called.function, [*arguments, *self._streams_of(self.net, called)])
        count = len(op.graphs[0].outputs)
        self.values.update(zip(op.outputs, made, strict=False))
        for k in self._seen(op, called):
            self.write(op.inputs[0][called.changed[k]], made[count + k])
        self.streams.arrays.update(zip(called.stored, made[count + len(called.changed) :], strict=True))

    def _repeated(self, op: FunctionCall, called: _GraphFunction, arguments: Sequence[Value]) -> None:
        count, every, seen = op.num_results, len(called.function.body.results), self._seen(op, called)
        every -= len(called.changed) + len(called.stored)
        by_ref = [called.changed[k] for k in seen]
        # An input that is carried anyway is the next trip's by what the outputs say.
        kept = [(k, n) for k, n in zip(seen, by_ref, strict=True) if n >= count]
        tables = [self.streams.arrays[s] for s in called.stored]
        # What gradients read of each trip is a row of a table.
        rows = [called.function.body.results[number] for _, number in op.kept]
        trips = [build.full(self.net, 0, (op.count, *row.shape), row.dtype) for row in rows]
        # Each IPU of several counts entries itself: the number of the trip would have to be sent.
        apart = list(called.uses) if len(op.graphs[0].ipus) > 1 else []
        initial = [*arguments[:count], *(arguments[n] for _, n in kept), *tables, *trips]
        initial += [self._used(self.net, stream) for stream in apart]
        front = len(initial) - len(apart)

        def body(net: BlockBuilder, trip: Value, *carried: Value) -> list[Value]:
            given = list(arguments)
            given[:count] = carried[:count]
            for (_, n), value in zip(kept, carried[count:], strict=False):
                given[n] = value
            outer = dict(self.streams.arrays)
            self.streams.arrays.update(zip(called.stored, carried[count + len(kept) :], strict=False))
            counted = dict(zip(apart, carried[front:], strict=True))
            streams = self._streams_of(net, called, trip, counted)
            self.streams.arrays = outer
            made = build.call(net, called.function, [*given, *streams])
            changed = made[every : every + len(called.changed)]
            written = [
                build.write_row(net, table, made[number], trip)
                for table, (_, number) in zip(carried[front - len(rows) : front], op.kept, strict=True)
            ]
            for stream, before in counted.items():
                with net.at(place=self.whole.homes[stream]):
                    after = _plus(net, before, called.uses[stream])
                assert isinstance(after, Value)
                counted[stream] = after
            return [
                *made[:count],
                *(changed[k] for k, _ in kept),
                *made[every + len(called.changed) :],
                *written,
                *counted.values(),
            ]

        if not op.count:
            made: tuple[Value, ...] = tuple(initial[:front])
        else:
            made = build.loop(self.net, op.count, initial, body)[:front]
        self.values.update(zip(op.outputs, [*made[:count], *made[len(made) - len(rows) :]], strict=False))
        for (_, n), value in zip(kept, made[count:], strict=False):
            self.write(op.inputs[0][n], value)
        self.streams.arrays.update(zip(called.stored, made[count + len(kept) :], strict=False))

    def _chosen(self, op: FunctionCall, called: Sequence[_GraphFunction], arguments: Sequence[Sequence[Value]]) -> None:
        assert op.condition is not None
        count, bodies = op.num_results, [c.function.body for c in called]
        # Branches use the same streams, but perhaps other remote buffers.
        stored = list(dict.fromkeys(s for which in called for s in which.stored))

        def branch(number: int, net: BlockBuilder) -> list[Value]:
            which, every = called[number], len(op.graphs[number].outputs)
            made = build.call(net, which.function, [*arguments[number], *self._streams_of(net, which)])
            # What gradients read of the other branch is not there.
            like = [bodies[graph].results[k] for graph, k in op.kept]
            kept = [
                made[k] if graph == number else build.full(net, 0, v.shape, v.dtype)
                for v, (graph, k) in zip(like, op.kept, strict=True)
            ]
            after = dict(zip(which.stored, made[every + len(which.changed) :], strict=True))
            return [*made[:count], *kept, *(after.get(s, self.streams.arrays[s]) for s in stored)]

        made = build.cond(self.net, self.read(op.condition), lambda net: branch(0, net), lambda net: branch(1, net))
        self.values.update(zip(op.outputs, made, strict=False))
        self.streams.arrays.update(zip(stored, made[count + len(op.kept) :], strict=True))


def _homes(main: Graph) -> dict[Stream, Place]:
    """IPU of the entries of each stream: that of the first op which loads or stores one."""
    found: dict[Stream, Place] = {}
    waiting, seen = [main], {main}
    for graph in waiting:
        for op in graph.operations:
            if isinstance(op, HostLoad | HostStore):
                tensor = op.output if isinstance(op, HostLoad) else op.tensor
                found.setdefault(op.stream, Place(ipu=tensor.ipu))
        more = [g for g in graph.called_graphs if g not in seen]
        seen.update(more)
        waiting += more
    return found


def _plus(net: BlockBuilder, used: Count, more: int) -> Count:
    if isinstance(used, int):
        return used + more
    return build.map_(net, arg(0) + Const(more, i32), [used], i32) if more else used
