"""The pass that makes a network of graphs with in-place ops.

Each graph becomes one function: its parameters are the graph's inputs, the arrays of streams, and how many entries of
each were used. Its results are the outputs, what changed inputs hold afterwards, and the arrays of streams to the host.
Values of a network never change, so ops are walked in program order with a table of values: an in-place op gives its
tensor another one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from abele.errors import UnsupportedOpError
from abele.expr import Const, apply
from abele.expr.derivative import arg
from abele.frontends.popxl.calls import FunctionCall
from abele.frontends.popxl.errors import UndefinedValue
from abele.frontends.popxl.graph import Graph, GraphOperation, HostLoad, HostStore, Ir
from abele.frontends.popxl.streams import DeviceToHostStream, HostToDeviceStream
from abele.frontends.popxl.tensors import Constant, Tensor, Variable
from abele.network import BlockBuilder, Network, NetworkBuilder, Value
from abele.network.ir import NetworkFunction, RegionBuilder
from abele.network.ops import build
from abele.numerics import i32

Stream = HostToDeviceStream | DeviceToHostStream
Count = int | Value
"""Number of entries of a stream that were used: known, or a value of the program."""


@dataclass
class _Streams:
    """Streams on the way through a graph.

    Attributes:
        arrays: Of each stream its entries, [entries, …].
        used: Number of entries of each that were used.
    """

    arrays: dict[Stream, Value] = field(default_factory=dict)
    used: dict[Stream, Count] = field(default_factory=dict)


@dataclass(frozen=True)
class _GraphFunction:
    """A graph as a function.

    Attributes:
        function: The function.
        changed: Numbers of the inputs that it changes.
        streams: Streams in the order of its parameters.
        stored: Those of them to the host, in the order of its results.
        uses: Entries of each stream that a call uses.
    """

    function: NetworkFunction
    changed: tuple[int, ...]
    streams: tuple[Stream, ...]
    stored: tuple[Stream, ...]
    uses: Counter[Stream]


@dataclass(frozen=True)
class Functional:
    """A program as a network.

    Attributes:
        network: The network.
        inputs: Streams from the host, in the order of its inputs.
        outputs: Streams to the host, in the order of its outputs.
        variables: Variables that it reads or changes.
    """

    network: Network
    inputs: tuple[HostToDeviceStream, ...]
    outputs: tuple[DeviceToHostStream, ...]
    variables: tuple[Variable, ...]


def functional(ir: Ir) -> Functional:
    """The network of a program."""
    return _Pass(ir).run()


class _Pass:
    def __init__(self, ir: Ir) -> None:
        self.ir = ir
        self.entries = ir.num_host_transfers
        self.functions: dict[str, _GraphFunction] = {}
        self._uses: dict[str, Counter[Stream]] = {}

    def run(self) -> Functional:
        """The main graph as a network."""
        main, net = self.ir.main_graph, NetworkBuilder()
        streams = _Streams()
        walk = _GraphWalk(self, net, streams)
        variables = main.variables
        entered: dict[Tensor, Value] = {t: net.buffer(t.shape, t.dtype.element, t.id) for t in variables}
        walk.values |= entered
        uses = self.uses(main)
        loaded = tuple(s for s in self.ir.h2d.values() if uses[s])
        stored = tuple(s for s in self.ir.d2h.values() if uses[s])
        for source in loaded:
            shape = (self.entries, *source.shape)
            streams.arrays[source] = net.input(shape, source.dtype.element, source.tensor_id)
        for out in stored:
            shape = (self.entries, *out.shape)
            streams.arrays[out] = build.full(net, 0, shape, out.dtype.element)
        streams.used.update(dict.fromkeys((*loaded, *stored), 0))
        walk.graph(main)
        for tensor, value in entered.items():
            if walk.values[tensor] is not value:
                net.updates[value] = walk.values[tensor]
        for out in stored:
            net.output(streams.arrays[out])
        return Functional(net.finish(), loaded, stored, variables)

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

    def function(self, graph: Graph) -> _GraphFunction:
        """The function of a graph, made once."""
        if graph.name not in self.functions:
            self.functions[graph.name] = self._made(graph)
        return self.functions[graph.name]

    def _made(self, graph: Graph) -> _GraphFunction:
        uses = self.uses(graph)
        every: list[Stream] = [*self.ir.h2d.values(), *self.ir.d2h.values()]
        used = tuple(s for s in every if s in uses)
        stored = tuple(s for s in used if isinstance(s, DeviceToHostStream))
        region = RegionBuilder(NetworkBuilder())
        walk = _GraphWalk(self, region, _Streams())
        entered = [region.parameter(region.value(t.shape, t.dtype.element, t.name), t.name) for t in graph.inputs]
        walk.values.update(zip(graph.inputs, entered, strict=True))
        for stream in used:
            like = region.value((self.entries, *stream.shape), stream.dtype.element)
            walk.streams.arrays[stream] = region.parameter(like, stream.tensor_id)
        for stream in used:
            walk.streams.used[stream] = region.parameter(region.value((), i32), f"{stream.tensor_id}/used")
        walk.graph(graph)
        changed = tuple(n for n, t in enumerate(graph.inputs) if walk.values[t] is not entered[n])
        results = [walk.read(t) for t in graph.outputs]
        results += [walk.values[graph.inputs[n]] for n in changed]
        results += [walk.streams.arrays[s] for s in stored]
        return _GraphFunction(NetworkFunction(graph.name, region.finish(results)), changed, used, stored, uses)


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
                case HostLoad():
                    self._load(op)
                case HostStore():
                    self._store(op)
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
            base = self.read(alias.base)
            return base if alias.read is None else self.net.inline(alias.read, [base])[0]
        if tensor not in self.values:
            if not isinstance(tensor, Constant):
                raise UndefinedValue(f"{tensor!r} has no value where it is read")
            self.values[tensor] = self.net.constant(tensor.data, tensor.dtype.element, tensor.name)
        return self.values[tensor]

    def write(self, tensor: Tensor, value: Value) -> None:
        """Give a tensor another value."""
        alias = tensor.alias
        if alias is None:
            self.values[tensor] = value
        elif alias.write is None:
            self.write(alias.base, value)
        else:
            self.write(alias.base, self.net.inline(alias.write, [self.read(alias.base), value])[0])

    # --- ops

    def _operation(self, op: GraphOperation) -> None:
        if op.is_view:
            return
        arguments = [self.read(t) for t in op.inputs]
        with self.net.at(op.origin, place=op.place):
            made = self._inlined(op, arguments)
        self.values.update(zip(op.outputs, made, strict=False))
        for number, value in zip(op.modifies, made[len(op.outputs) :], strict=True):
            self.write(op.inputs[number], value)

    def _inlined(self, op: GraphOperation, arguments: Sequence[Value]) -> tuple[Value, ...]:
        values = dict(zip(op.block.parameters, arguments, strict=True))
        for inner in op.block.ops:
            values |= zip(inner.outputs, self.net.copy(inner, values), strict=True)
        return tuple(values[v] for v in op.block.results)

    def _index(self, stream: Stream) -> Count:
        """Number of the stream's next entry; it is used from now on."""
        used, entries = self.streams.used[stream], self.whole.entries
        self.streams.used[stream] = _plus(self.net, used, 1)
        if isinstance(used, int):
            return used % entries
        return build.map_(self.net, apply("rem", arg(0), Const(entries, i32)), [used], i32)

    def _load(self, op: HostLoad) -> None:
        rows, index = self.streams.arrays[op.stream], self._index(op.stream)
        if self.whole.entries == 1 or isinstance(index, int):
            first = 0 if self.whole.entries == 1 else index
            assert isinstance(first, int)
            row = build.slice_(self.net, rows, 0, first, first + 1)
        else:
            row = build.read_row(self.net, rows, index)
        self.values[op.output] = build.reshape(self.net, row, op.stream.shape)

    def _store(self, op: HostStore) -> None:
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

    # --- calls

    def _call(self, op: FunctionCall) -> None:
        functions = [self.whole.function(g) for g in op.graphs]
        arguments = [[self.read(t) for t in inputs] for inputs in op.inputs]
        if op.kind == "Call":
            self._called(op, functions[0], arguments[0])
        elif op.kind == "Loop":
            self._repeated(op, functions[0], arguments[0])
        else:
            self._chosen(op, functions, arguments)
        for stream, count in functions[0].uses.items():
            self.streams.used[stream] = _plus(self.net, self.streams.used[stream], count * op.count)

    def _streams_of(self, net: BlockBuilder, called: _GraphFunction, trip: Value | None = None) -> list[Value]:
        """Arrays and counts that a call hands on."""
        counts = []
        for stream in called.streams:
            used = self.streams.used[stream]
            value = net.constant(np.int32(used), i32) if isinstance(used, int) else used
            if trip is not None:
                value = build.map_(net, arg(0) + arg(1) * Const(called.uses[stream], i32), [value, trip], i32)
            counts.append(value)
        return [*(self.streams.arrays[s] for s in called.streams), *counts]

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
        count, seen = len(op.graphs[0].outputs), self._seen(op, called)
        by_ref = [called.changed[k] for k in seen]
        # An input that is carried anyway is the next trip's by what the outputs say.
        kept = [(k, n) for k, n in zip(seen, by_ref, strict=True) if n >= count]
        tables = [self.streams.arrays[s] for s in called.stored]
        initial = [*arguments[:count], *(arguments[n] for _, n in kept), *tables]

        def body(net: BlockBuilder, trip: Value, *carried: Value) -> list[Value]:
            given = list(arguments)
            given[:count] = carried[:count]
            for (_, n), value in zip(kept, carried[count:], strict=False):
                given[n] = value
            outer = dict(self.streams.arrays)
            self.streams.arrays.update(zip(called.stored, carried[count + len(kept) :], strict=True))
            streams = self._streams_of(net, called, trip)
            self.streams.arrays = outer
            made = build.call(net, called.function, [*given, *streams])
            changed = made[count : count + len(called.changed)]
            return [*made[:count], *(changed[k] for k, _ in kept), *made[count + len(called.changed) :]]

        if not op.count:
            made: tuple[Value, ...] = tuple(initial)
        else:
            made = build.loop(self.net, op.count, initial, body)
        self.values.update(zip(op.outputs, made, strict=False))
        for (_, n), value in zip(kept, made[count:], strict=False):
            self.write(op.inputs[0][n], value)
        self.streams.arrays.update(zip(called.stored, made[count + len(kept) :], strict=True))

    def _chosen(self, op: FunctionCall, called: Sequence[_GraphFunction], arguments: Sequence[Sequence[Value]]) -> None:
        assert op.condition is not None
        count = len(op.graphs[0].outputs)

        def branch(number: int, net: BlockBuilder) -> list[Value]:
            which = called[number]
            made = build.call(net, which.function, [*arguments[number], *self._streams_of(net, which)])
            return [*made[:count], *made[count + len(which.changed) :]]

        made = build.cond(self.net, self.read(op.condition), lambda net: branch(0, net), lambda net: branch(1, net))
        self.values.update(zip(op.outputs, made, strict=False))
        self.streams.arrays.update(zip(called[0].stored, made[count:], strict=True))


def _plus(net: BlockBuilder, used: Count, more: int) -> Count:
    if isinstance(used, int):
        return used + more
    return build.map_(net, arg(0) + Const(more, i32), [used], i32) if more else used
