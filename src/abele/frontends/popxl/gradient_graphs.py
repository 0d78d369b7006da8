"""The gradient graph of a graph, step by step from the last to the first.

Each step's gradient is a block, or for calls another call: of the gradient graph of what was called. A repeat becomes a
repeat that goes through the trips backwards, with one row of a table for what each trip's gradient reads; a conditional
becomes a conditional on the same bool. What gradients read leaves the forward graph as an output, and is copied first
if a later op changes it in place.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from abele.errors import UnsupportedOpError
from abele.frontends.popxl import dtypes, ops
from abele.frontends.popxl.calls import FunctionCall
from abele.frontends.popxl.errors import ContextError, GraphArgumentError
from abele.frontends.popxl.gradient_info import ExpectedConnection, ExpectedConnectionType, GradGraphInfo
from abele.frontends.popxl.graph import Graph, block_of, graph_input, ipu
from abele.frontends.popxl.operations import GraphOperation, inlined
from abele.frontends.popxl.states import State, States, Step
from abele.frontends.popxl.tensors import Constant, Tensor, constant
from abele.graph.debug import DebugRecord
from abele.network import NetworkBuilder, Value
from abele.network.autodiff.differentiate import gradients
from abele.network.ir import OpBlock, needed
from abele.network.ir.value import Place


@dataclass
class KnownGradients:
    """Gradient graphs of graphs that others call.

    Attributes:
        found: Those that are there, by graph.
        given: Those of them that the program made.
    """

    found: dict[Graph, GradGraphInfo]
    given: Mapping[Graph, GradGraphInfo] = field(default_factory=dict)

    def of(self, graph: Graph, provided: Sequence[Tensor], required: Sequence[Tensor]) -> GradGraphInfo:
        """A gradient graph that takes and gives certain gradients, made where none does.

        Raises:
            GraphArgumentError: The program's own does not.
        """
        known = self.found.get(graph)
        taken = [] if known is None else [e.fwd_tensor for e in known.expected_inputs if _is_gradient(e)]
        made = [] if known is None else [e.fwd_tensor for e in known.expected_outputs]
        lacking = [t for asked, there in ((provided, taken), (required, made)) for t in asked if t not in there]
        if known is not None and not lacking:
            return known
        if graph in self.given:
            raise GraphArgumentError(
                f"The gradient graph given for {graph.name!r} has nothing for {', '.join(repr(t) for t in lacking)}",
                remedy="popxl.transforms.autodiff(graph, grads_provided=…, grads_required=…)",
            )
        wanted = list(dict.fromkeys([*taken, *provided])), list(dict.fromkeys([*made, *required]))
        self.found[graph] = GradientGraph(graph, *wanted, self).run()
        return self.found[graph]


class GradientGraph:
    """One gradient graph in the making.

    Args:
        graph: Forward graph.
        provided: Tensors whose gradients enter.
        required: Tensors whose gradients leave.
        known: Gradient graphs of those that it calls.
    """

    def __init__(
        self, graph: Graph, provided: Sequence[Tensor], required: Sequence[Tensor], known: KnownGradients
    ) -> None:
        self.forward, self.provided, self.required, self.known = graph, provided, required, known
        self.states = States(graph)
        self.pending: dict[State, list[Tensor]] = {}
        self.activations: dict[State, Tensor] = {}
        self.inputs: list[ExpectedConnection] = []
        self.copies: list[tuple[int, GraphOperation]] = []

    def run(self) -> GradGraphInfo:
        """The graph."""
        if self.forward.ir.is_frozen:
            raise ContextError("The Ir can not change after a session was made of it", remedy="differentiate before")
        made = self.forward.ir.create_empty_graph(f"{self.forward.name}_grad")
        with made:
            for tensor in self.provided:
                entered = _entered(tensor, f"Gradient___{tensor.name}")
                self._add(self.states.last(tensor), entered)
                self.inputs.append(ExpectedConnection(tensor, ExpectedConnectionType.FwdGrad))
            wanted = [self.states.at_first(t) for t in self.required]
            self.reached = self._reached(wanted)
            for step in reversed(tuple(self.states.steps)):
                given = [self._total(s) if s in self.pending else None for s in step.outputs]
                if any(g is not None for g in given) and any(s in self.reached for s in step.outputs):
                    self._step(step, given)
            for tensor, state in zip(self.required, wanted, strict=True):
                made.outputs.append(self._total(state) if state in self.pending else _zeros(tensor))
        for since, op in sorted(self.copies, key=lambda c: -c[0]):
            self.forward.operations.insert(since, op)
        outputs = [ExpectedConnection(t, ExpectedConnectionType.FwdGrad) for t in self.required]
        return GradGraphInfo(self.forward, made, self.inputs, outputs)

    def _reached(self, wanted: Sequence[State]) -> set[State]:
        """States that depend on those required, through floats."""
        reached = set(wanted)
        for step in self.states.steps:
            if any(s in reached for s in step.inputs):
                reached.update(s for s in step.outputs if s.is_float)
        return reached

    def _add(self, state: State, gradient: Tensor) -> None:
        self.pending.setdefault(state, []).append(gradient)

    def _total(self, state: State) -> Tensor:
        parts = self.pending[state]
        if len(parts) > 1:
            with ipu(state.tensor.ipu):
                parts[:] = [ops.sum_of(parts)]
        return parts[0]

    # --- what gradients read

    def _activation(self, state: State) -> Tensor:
        """A forward state in the gradient graph."""
        if state not in self.activations:
            if isinstance(state.tensor, Constant):
                held = state.tensor
                self.activations[state] = constant(held.data, held.dtype, held.name)
                return self.activations[state]
            held_by = self._leaving(state)
            self.activations[state] = _entered(held_by, held_by.name)
            self.inputs.append(ExpectedConnection(held_by, ExpectedConnectionType.Fwd))
        return self.activations[state]

    def _leaving(self, state: State) -> Tensor:
        """A tensor that has the state at the end of the forward graph, and that a call of it gives."""
        forward, tensor = self.forward, state.tensor
        there = next((t for t in forward.outputs if t not in forward.inputs and self.states.last(t) is state), None)
        if there is not None:
            return there
        is_last = self.states.last(tensor) is state
        if tensor in forward.inputs and is_last and state is self.states.first[tensor]:
            return tensor
        if not is_last or tensor in forward.inputs:
            tensor = self._copied(state)
        forward.outputs.append(tensor)
        return tensor

    def _copied(self, state: State) -> Tensor:
        """A copy of a tensor, made before a later op changes it in place."""
        source = state.tensor
        made = Tensor(
            self.forward,
            f"{source.name}_kept",
            source.shape,
            source.dtype,
            ipu=source.ipu,
            meta_shape=source.meta_shape,
        )
        block, place = block_of(lambda net, v: v, [source]), Place(ipu=source.ipu)
        origin = DebugRecord("identity", text="kept for its gradient")
        self.copies.append(
            (state.since, GraphOperation("identity", (source,), [made], block, (), origin=origin, place=place))
        )
        return made

    # --- steps

    def _step(self, step: Step, given: Sequence[Tensor | None]) -> None:
        if isinstance(step.op, FunctionCall):
            {"Call": self._call, "Loop": self._loop, "If": self._choice}[step.op.kind](step, given)
        elif getattr(step.op, "backward", None) is not None and step.block is step.op.block:
            entered = [g if g is not None else _zeros(s.tensor) for s, g in zip(step.outputs, given, strict=True)]
            results = ops.emit_block(f"{step.kind}Grad", step.op.backward, entered, [s.tensor.ipu for s in step.inputs])
            for state, gradient in zip(step.inputs, results, strict=True):
                self._add(state, gradient)
        elif step.block is not None:
            wanted = [s in self.reached and s.is_float for s in step.inputs]
            block, used = _gradient(step.block, [g is not None for g in given], wanted)
            arguments = [self._activation(step.inputs[n]) for n in used]
            sources = [s for s, want in zip(step.inputs, wanted, strict=True) if want]
            there = [g for g in given if g is not None]
            results = ops.emit_block(f"{step.kind}Grad", block, [*arguments, *there], [s.tensor.ipu for s in sources])
            for state, gradient in zip(sources, results, strict=True):
                self._add(state, gradient)

    def _call(self, step: Step, given: Sequence[Tensor | None]) -> None:
        op = step.op
        child = op.graphs[0]
        # What a call changes has in the end what the graph's input has in the end.
        inside = [*child.outputs[: len(step.outputs) - len(step.changed)], *(child.inputs[n] for n in step.changed)]
        by_tensor = _summed(inside, given)
        required = [t for t, s in zip(child.inputs, step.inputs, strict=True) if s in self.reached and s.is_float]
        info = self.known.of(child, list(by_tensor), required)
        for other in self.forward.operations:
            if isinstance(other, FunctionCall) and other.graphs[0] is child:
                other.extend(self.forward)

        def read(tensor: Tensor) -> Tensor:
            if tensor in child.inputs:
                return self._activation(step.inputs[child.inputs.index(tensor)])
            number = child.outputs.index(tensor)
            if number < len(step.outputs) - len(step.changed):
                return self._activation(step.outputs[number])
            return self._activation(self.states.made(op.outputs[number], self._after(op)))

        made = ops.call(info.graph, *_arguments(info, by_tensor, read))
        for expected, gradient in zip(info.expected_outputs, made, strict=True):
            if expected.fwd_tensor in child.inputs:
                self._add(step.inputs[child.inputs.index(expected.fwd_tensor)], gradient)

    def _after(self, op: FunctionCall) -> int:
        return self.forward.operations.index(op) + 1

    def _kept(self, op: FunctionCall, graph: int, tensor: Tensor) -> State:
        """The state of a loop's or a choice's output for what its gradient reads of one of its graphs."""
        outputs = op.graphs[graph].outputs
        number = next((k for k in range(op.num_results, len(outputs)) if outputs[k] is tensor), len(outputs))
        if number == len(outputs):
            outputs.append(tensor)
        return self.states.made(op.keep(self.forward, graph, number), self._after(op))

    def _loop(self, step: Step, given: Sequence[Tensor | None]) -> None:
        op = step.op
        child, carried = op.graphs[0], op.num_results
        self._check_changed(step, given)
        if not op.count:
            for state, gradient in zip(step.inputs, given[:carried], strict=False):
                if gradient is not None and state in self.reached:
                    self._add(state, gradient)
            return
        numbers = [n for n in range(carried) if child.inputs[n].dtype.is_floating_point]
        others = [n for n in range(carried, len(child.inputs)) if step.inputs[n] in self.reached]
        others = [n for n in others if step.inputs[n].is_float]
        provided = list(dict.fromkeys(child.outputs[n] for n in numbers))
        info = self.known.of(child, provided, [child.inputs[n] for n in (*numbers, *others)])
        reads = [e.fwd_tensor for e in info.expected_inputs if not _is_gradient(e)]
        shared = [t for t in reads if t in child.inputs[carried:]]
        tables = {t: self._kept(op, 0, t) for t in reads if t not in shared}
        outside = [self._activation(step.inputs[child.inputs.index(t)]) for t in shared]
        kept = [self._activation(state) for state in tables.values()]
        starts = [g if (g := given[n]) is not None else _zeros(child.outputs[n]) for n in numbers]
        starts += [_zeros(child.inputs[n]) for n in others]

        back = self.forward.ir.create_empty_graph(f"{child.name}_trips_grad")
        with back:
            now = [_entered(t, t.name) for t in starts]
            trip = graph_input((1,), dtypes.int32, "trip")
            held = dict(zip(shared, (_entered(t, t.name) for t in outside), strict=True))
            rows = [_entered(t, t.name) for t in kept]
            held |= {t: _row(table, trip) for t, table in zip(tables, rows, strict=True)}
            by_tensor = _summed([child.outputs[n] for n in numbers], now[: len(numbers)])
            made = ops.call(info.graph, *_arguments(info, by_tensor, held.__getitem__))
            by_input = dict(zip((e.fwd_tensor for e in info.expected_outputs), made, strict=True))
            back.outputs += [by_input[child.inputs[n]] for n in numbers]
            back.outputs += [
                ops.add(total, by_input[child.inputs[n]]) for total, n in zip(now[len(numbers) :], others, strict=True)
            ]
            back.outputs.append(ops.sub(trip, constant([1], dtypes.int32)))
            # The carried inputs are first, the others keep their values.
            back.inputs[:] = [*now, trip, *(held[t] for t in shared), *rows]
        last = constant([op.count - 1], dtypes.int32)
        results = ops.repeat(back, op.count, *starts, last, *outside, *kept)
        for number, gradient in zip((*numbers, *others), results, strict=False):
            if step.inputs[number] in self.reached:
                self._add(step.inputs[number], gradient)

    def _choice(self, step: Step, given: Sequence[Tensor | None]) -> None:
        op, count = step.op, step.op.num_results
        assert step.condition is not None
        first = len(op.inputs[0])
        inputs = step.inputs[:first], step.inputs[first:]
        wanted = list(dict.fromkeys(s for s in step.inputs if s in self.reached and s.is_float))
        there = [(n, g) for n, g in enumerate(given[:count]) if g is not None]
        graphs, arguments = [], []
        for number, (child, states) in enumerate(zip(op.graphs, inputs, strict=True)):
            required = [t for t, s in zip(child.inputs, states, strict=True) if s in wanted]
            info = self.known.of(child, list(dict.fromkeys(child.outputs[n] for n, _ in there)), required)
            reads = [e.fwd_tensor for e in info.expected_inputs if not _is_gradient(e)]
            held = [
                self._activation(states[child.inputs.index(t)] if t in child.inputs else self._kept(op, number, t))
                for t in reads
            ]
            graphs.append(self._branch(info, [n for n, _ in there], reads, states, wanted))
            arguments.append([*(g for _, g in there), *held])
        made = ops.conditional(self._activation(step.condition), graphs[0], graphs[1], arguments[0], arguments[1])
        for state, gradient in zip(wanted, made, strict=True):
            self._add(state, gradient)

    def _branch(
        self,
        info: GradGraphInfo,
        numbers: Sequence[int],
        reads: Sequence[Tensor],
        states: Sequence[State],
        wanted: Sequence[State],
    ) -> Graph:
        """The gradient of one branch as a graph whose outputs are those of both."""
        child = info.forward_graph
        made = child.ir.create_empty_graph(f"{child.name}_branch_grad")
        with made:
            entered = [_entered(t, f"Gradient___{t.name}") for t in map(child.outputs.__getitem__, numbers)]
            held = {t: _entered(t, t.name) for t in reads}
            by_tensor = _summed([child.outputs[n] for n in numbers], entered)
            results = ops.call(info.graph, *_arguments(info, by_tensor, held.__getitem__))
            by_state: dict[State, list[Tensor]] = {}
            for expected, gradient in zip(info.expected_outputs, results, strict=True):
                if expected.fwd_tensor in child.inputs:
                    by_state.setdefault(states[child.inputs.index(expected.fwd_tensor)], []).append(gradient)
            for state in wanted:
                parts = by_state.get(state, [])
                made.outputs.append(ops.sum_of(parts) if parts else _zeros(state.tensor))
        return made

    def _check_changed(self, step: Step, given: Sequence[Tensor | None]) -> None:
        """Refuse gradients of what a loop changes by reference.

        Raises:
            UnsupportedOpError: There is one.
        """
        first = len(step.outputs) - len(step.changed)
        for number, gradient in zip(step.changed, given[first:], strict=True):
            if gradient is not None:
                raise UnsupportedOpError(
                    f"{step.op.name()} changes its input {number} by reference, and a gradient depends on what it has "
                    "afterwards",
                    remedy="let the repeated graph take and give it as a carried value",
                )


def _is_gradient(expected: ExpectedConnection) -> bool:
    return expected.connection_type is ExpectedConnectionType.FwdGrad


def _summed(tensors: Sequence[Tensor], given: Sequence[Tensor | None]) -> dict[Tensor, Tensor]:
    """Gradients by tensor; one that leaves a graph twice has the sum of both."""
    parts: dict[Tensor, list[Tensor]] = {}
    for tensor, gradient in zip(tensors, given, strict=True):
        if gradient is not None:
            parts.setdefault(tensor, []).append(gradient)
    return {t: several[0] if len(several) == 1 else ops.sum_of(several) for t, several in parts.items()}


def _arguments(
    info: GradGraphInfo, by_tensor: Mapping[Tensor, Tensor], read: Callable[[Tensor], Tensor]
) -> list[Tensor]:
    """Arguments of a call of a gradient graph."""

    def gradient(tensor: Tensor) -> Tensor:
        return by_tensor[tensor] if tensor in by_tensor else _zeros(tensor)

    return [gradient(e.fwd_tensor) if _is_gradient(e) else read(e.fwd_tensor) for e in info.expected_inputs]


def _row(table: Tensor, trip: Tensor) -> Tensor:
    return ops.reshape(ops.dynamic_slice(table, trip, [0], [1]), table.shape[1:])


def _zeros(like: Tensor) -> Tensor:
    with ipu(like.ipu):
        return ops.init(like.shape, like.dtype)


def _entered(like: Tensor, name: str) -> Tensor:
    """A new input like another tensor, on its IPU."""
    made = graph_input(like.shape, like.dtype, name, meta_shape=like.meta_shape)
    made.ipu = like.ipu
    return made


def _gradient(block: OpBlock, given: Sequence[bool], wanted: Sequence[bool]) -> tuple[OpBlock, list[int]]:
    """Gradients of a block's wanted inputs from those of some results, and numbers of the inputs that they read."""
    net = NetworkBuilder()
    entered = [net.input(v.shape, v.dtype, v.name) for v in block.parameters]
    results = inlined(net, block, entered)
    chosen: list[Value] = [r for r, there in zip(results, given, strict=False) if there]
    grads = [net.input(r.shape, r.dtype, f"gradient_{n}") for n, r in enumerate(chosen)]
    made = gradients(net, chosen, grads, [v for v, want in zip(entered, wanted, strict=True) if want])
    kept = needed(net.ops, made)
    read = {v for op in kept for v in op.inputs} | set(made)
    used = [n for n, v in enumerate(entered) if v in read]
    return OpBlock((*(entered[n] for n in used), *grads), tuple(kept), tuple(made)), used


__all__ = ["GradientGraph", "KnownGradients"]
