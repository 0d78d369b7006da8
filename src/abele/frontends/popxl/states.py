"""States of tensors between two changes, and the steps that make one state of others.

Ops of popxl change tensors in place, and gradients are of values. So a graph is read once in program order, as the
network is made of it: ``relu_(x)`` is a step from the state of ``x`` before to the one after, a view that is read is a
step from the state of its base, and a write through a view is a step to the base's next state. After that each state
is made by one step and never changes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from abele.frontends.popxl.calls import FunctionCall
from abele.frontends.popxl.graph import Graph
from abele.frontends.popxl.operations import GraphOperation, HostLoad, RemoteLoad
from abele.frontends.popxl.tensors import Tensor
from abele.network.ir import OpBlock


@dataclass(eq=False)
class State:
    """Contents of a tensor for some time.

    Attributes:
        tensor: The tensor.
        since: Number of the op before which it holds this.
    """

    tensor: Tensor
    since: int

    @property
    def is_float(self) -> bool:
        """True if it has gradients."""
        return self.tensor.dtype.is_floating_point


@dataclass(eq=False)
class Step:
    """A way from states to others.

    Attributes:
        op: Op of the graph that it comes of.
        block: Its meaning; None for calls and for what has none.
        inputs: States that it reads; of a conditional those of both branches.
        outputs: States that it makes.
        changed: For calls, the input that each of the last outputs replaces.
        condition: For conditionals, the state of their condition.
    """

    op: Any
    block: OpBlock | None
    inputs: list[State]
    outputs: list[State]
    changed: list[int] = field(default_factory=list)
    condition: State | None = None

    @property
    def kind(self) -> str:
        """Name of its op; views that only outputs read have none."""
        return getattr(self.op, "kind", "view")


class States:
    """The states of a graph's tensors, and the steps between them.

    Attributes:
        steps: Steps in an order in which they could run.
        first: First state of each tensor.
    """

    def __init__(self, graph: Graph) -> None:
        self.steps: list[Step] = []
        self.first: dict[Tensor, State] = {}
        self._now: dict[Tensor, State] = {}
        self._shown: dict[tuple[Tensor, tuple[State, ...]], State] = {}
        for tensor in graph.inputs:
            self._hold(State(tensor, 0))
        for number, op in enumerate(graph.operations):
            self._operation(number, op)
        self.end = len(graph.operations)

    def last(self, tensor: Tensor) -> State:
        """The state of a tensor at the end of the graph."""
        return self._read(None, tensor, self.end)

    def at_first(self, tensor: Tensor) -> State:
        """The state of a tensor at first."""
        return self.first.get(tensor) or self.last(tensor)

    def made(self, tensor: Tensor, since: int) -> State:
        """The state of a tensor that an op was given after the steps were made."""
        if tensor not in self._now:
            self._hold(State(tensor, since))
        return self.first[tensor]

    def _hold(self, state: State) -> State:
        self._now[state.tensor] = state
        self.first.setdefault(state.tensor, state)
        return state

    def _read(self, op: Any, tensor: Tensor, since: int) -> State:
        alias = tensor.alias
        if alias is None:
            return self._now[tensor] if tensor in self._now else self._hold(State(tensor, since))
        bases = tuple(self._read(op, base, since) for base in alias.bases)
        if alias.read is None:
            return bases[0]
        if (tensor, bases) not in self._shown:
            shown = self._shown[tensor, bases] = State(tensor, since)
            self.first.setdefault(tensor, shown)
            self.steps.append(Step(op, alias.read, list(bases), [shown]))
        return self._shown[tensor, bases]

    def _write(self, op: Any, tensor: Tensor, new: State) -> None:
        alias = tensor.alias
        if alias is None:
            new.tensor = tensor
            self._hold(new)
        elif alias.write is None:
            self._write(op, alias.base, new)
        else:
            before = [self._read(op, base, new.since - 1) for base in alias.bases]
            whole = [State(base, new.since) for base in alias.bases]
            self.steps.append(Step(op, alias.write, [*before, new], whole))
            for state in whole:
                self._write(op, state.tensor, state)

    def _operation(self, number: int, op: Any) -> None:
        if isinstance(op, FunctionCall):
            self._call(number, op)
        elif isinstance(op, GraphOperation):
            if op.is_view:
                self._read(op, op.outputs[0], number)
                return
            read = [self._read(op, t, number) for t in op.inputs]
            self._made(Step(op, op.block, read, []), op.outputs, [op.inputs[n] for n in op.modifies], number + 1)
        else:
            made = [op.output] if isinstance(op, HostLoad | RemoteLoad) and not changed_by(op) else []
            self._made(Step(op, None, [], []), made, changed_by(op), number + 1)

    def _made(self, step: Step, outputs: Sequence[Tensor], changed: Sequence[Tensor], since: int) -> None:
        """Append a step that makes some tensors, and changes others."""
        self.steps.append(step)
        step.outputs += [self._hold(State(t, since)) for t in outputs]
        for tensor in changed:
            new = State(tensor, since)
            step.outputs.append(new)
            self._write(step.op, tensor, new)

    def _call(self, number: int, op: FunctionCall) -> None:
        read = [self._read(op, t, number) for group in op.inputs for t in group]
        condition = None if op.condition is None else self._read(op, op.condition, number)
        numbers = changed_inputs(op)
        step = Step(op, None, read, [], changed=numbers, condition=condition)
        self._made(step, op.outputs, [op.inputs[0][n] for n in numbers], number + 1)


def changed_inputs(op: FunctionCall) -> list[int]:
    """Numbers of the arguments whose changes the caller sees."""
    inputs = op.graphs[0].inputs
    seen = [n for n in range(len(op.inputs[0])) if n in op.modified or inputs[n].by_ref]
    return [n for n in seen if changes(op.graphs[0], n)]


def changed_by(op: Any) -> list[Tensor]:
    """Tensors that an op changes."""
    if isinstance(op, GraphOperation):
        return [op.inputs[n] for n in op.modifies]
    if isinstance(op, FunctionCall):
        return [op.inputs[0][n] for n in changed_inputs(op)]
    return [op.output] if isinstance(op, RemoteLoad) and op.in_place else []


def changes(graph: Graph, number: int) -> bool:
    """True if a graph changes one of its inputs."""
    return any(graph.inputs[number] in _roots(t) for op in graph.operations for t in changed_by(op))


def _roots(tensor: Tensor) -> set[Tensor]:
    """The tensors that a view or in-place result shows in the end."""
    if tensor.alias is None:
        return {tensor}
    return set().union(*(_roots(base) for base in tensor.alias.bases))


__all__ = ["State", "States", "Step", "changed_by", "changed_inputs"]
