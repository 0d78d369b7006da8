"""Host stashes: what a stage made and its backward stage makes again, kept on the host instead.

The machine computes activations twice because its tiles cannot keep those of all micro-batches on their way. A host
has the memory. So where host kernels run the program, each value is saved to a row of a stash when the stage has made
it, and the steps that make it again become a copy from there. What is modelled does not change: these copies are the
``host_body`` of steps, of which the compiler knows nothing, and vertices, checks and the debugger run the steps.

That is right because the values are the same: an op made again has the operands that it had. It is decided step by
step of the backward stage, from the last to the first. Steps that make a value again need not run if all that later
steps read of what they write is in stashes; what they read themselves is then not needed either.

Example: the first of three stages keeps ``x`` of [4, 8] and computes ``a = linear(x, w)``, ``b = gelu(a)``; stage 4
makes both again, as the gradients read them. The host saves a and b in stashes of 4 rows of 32 elements, 128 bytes
each; of stage 4 it runs the gradients alone. Of the norm behind them the forward pass does not make the whitened
activations, which the gradient reads: they are computed from b.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np

from abele.distribution.lowering import Lowering
from abele.distribution.strategy import StageSteps
from abele.graph import Execute, Graph, LibraryCall, Program, StashCopy, Steps, Tensor, Variable
from abele.graph.elements import elements_of
from abele.graph.interval_set import EMPTY, IntervalSet
from abele.llvm.host import LINE_BYTES
from abele.network.ir import Network, NetworkOp, Value
from abele.network.passes.recompute_stages import made_again
from abele.poplibs.poputil.order import storage_order


@dataclass(frozen=True, eq=False)
class _FirstResults:
    """Forward results of an op that is made again.

    Attributes:
        tensors: Its results that lie in one strided piece.
        saving: Steps right behind it, which save those that are asked for.
    """

    tensors: dict[Value, Tensor]
    saving: Steps


@dataclass(frozen=True, eq=False)
class _RemadeSteps:
    """Steps that make the results of an op again.

    Attributes:
        steps: The steps.
        own: Variables that they alone write.
        results: Tensors of the results, by the values of the forward pass.
    """

    steps: Steps
    own: frozenset[Variable]
    results: dict[Value, Tensor]


@dataclass
class HostStashes:
    """The stashes of a pipeline.

    Args:
        net: The network.

    Attributes:
        pairs: For each value that is made again the value of the forward pass.
    """

    net: Network
    pairs: dict[Value, Value] = field(init=False)
    _kept: frozenset[Value] = field(init=False)
    _made: dict[Value, _FirstResults] = field(init=False, default_factory=dict)
    _stashes: dict[Value, Tensor] = field(init=False, default_factory=dict)
    _again: dict[Program, _RemadeSteps] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        self.pairs = made_again(self.net)
        self._kept = frozenset(self.pairs.values())

    @contextmanager
    def around(self, to: Lowering, op: NetworkOp, stage: StageSteps) -> Iterator[Steps]:
        """The sequence into which an op of a stage is lowered: one of its own, if it makes values again."""
        if self.pairs.keys().isdisjoint(op.outputs):
            yield stage.compute
            if not self._kept.isdisjoint(op.outputs):
                made = _FirstResults({v: to[v] for v in op.outputs if v in to and _is_plain(to[v])}, Steps(name="save"))
                stage.compute.add(made.saving)
                self._made.update(dict.fromkeys(made.tensors, made))
            return
        steps, graph = Steps(name="again"), to.graph_of(op.output.place)
        before = len(graph.variables)
        yield steps
        if steps.steps:
            stage.compute.add(steps)
            results = {self.pairs[v]: to[v] for v in op.outputs if v in to and _is_plain(to[v])}
            self._again[steps] = _RemadeSteps(steps, frozenset(graph.variables[before:]), results)

    def close(self, stage: StageSteps, rows: int, saved: Tensor | None, restored: Tensor | None) -> None:
        """Decide which steps of a backward stage hosts leave out.

        Args:
            stage: The stage, of which all is lowered.
            rows: Micro-batches between it and its forward stage.
            saved: Index of the row of the forward stage; None where there is one row.
            restored: Index of the row of this stage.
        """
        read = _Reads([*stage.leaving, *stage.to_host])
        follows = False
        for step in reversed(stage.compute.steps):
            again = self._again.get(step)
            taken = None if again is None else self._taken(again, read)
            if again is None or taken is None or not (taken or follows):
                read.add(step)
                follows = False
                continue
            follows = True
            again.steps.host_body = Steps(name="restore")
            for value, tensor in taken.items():
                if value not in self._stashes:
                    self._stashes[value] = self._save(value, rows, saved)
                again.steps.host_body.add(StashCopy(_in_order(tensor), self._stashes[value], restored, saves=False))

    def _taken(self, again: _RemadeSteps, read: _Reads) -> dict[Value, Tensor] | None:
        """Results that later steps read, if these read nothing else of what the steps write."""
        parts = list(_parts(again.steps))
        tensors = [t for part in parts for t in (part.outputs if isinstance(part, LibraryCall) else part.writes())]
        written = {v for t in tensors for v in t.variables}
        if not read.are_known or any(isinstance(part, Execute) for part in parts) or not written <= again.own:
            return None
        left, taken = read.of(written), {}
        for value, tensor in again.results.items():
            shown = elements_of(tensor)
            if value in self._made and left.meets(shown):
                taken[value] = tensor
                left = left - shown
        return None if left else taken

    def _save(self, value: Value, rows: int, index: Tensor | None) -> Tensor:
        """The stash of a value, with the step that saves it."""
        made = self._made[value]
        tensor = made.tensors[value]
        graph: Graph = tensor.graph
        line = max(1, LINE_BYTES // tensor.dtype.bytes)
        shape = rows, -(-tensor.size // line) * line
        stash = graph.variable(tensor.dtype, shape, name=f"{value.name or 'value'}/stash", map="linear")
        if made.saving.host_body is None:
            made.saving.host_body = Steps(name="save")
        made.saving.host_body.add(StashCopy(_in_order(tensor), stash, index, saves=True))
        return stash


class _Reads:
    """Tensors that steps read, by variable.

    Attributes:
        are_known: False once vertices by hand read something.
    """

    def __init__(self, steps: Iterable[Program]) -> None:
        self.are_known = True
        self._tensors: dict[Variable, list[Tensor]] = {}
        for step in steps:
            self.add(step)

    def add(self, step: Program) -> None:
        """Note what a step reads."""
        for part in _parts(step):
            self.are_known &= not isinstance(part, Execute)
            for tensor in part.inputs if isinstance(part, LibraryCall) else part.reads():
                for variable in tensor.variables:
                    self._tensors.setdefault(variable, []).append(tensor)

    def of(self, variables: Iterable[Variable]) -> IntervalSet:
        """Elements of variables that are read."""
        return IntervalSet.union(self._of(v) for v in variables)

    def _of(self, variable: Variable) -> IntervalSet:
        tensors = {id(t): t for t in self._tensors.get(variable, ())}
        if not tensors:
            return EMPTY
        own = IntervalSet.of(np.array([variable.base]), np.array([variable.size]))
        return own & IntervalSet.union(map(elements_of, tensors.values()))


def _parts(step: Program) -> Iterator[Program]:
    """Steps inside a step, library calls as a whole."""
    waiting = [step]
    while waiting:
        part = waiting.pop()
        yield part
        if not isinstance(part, LibraryCall):
            waiting.extend(part.children())


def _is_plain(tensor: Tensor) -> bool:
    """True for a view of one strided piece, in its variable's type, that a copy can write."""
    return tensor.strided() is not None and tensor.writable and tensor.variables[0].dtype == tensor.dtype


def _in_order(tensor: Tensor) -> Tensor:
    """The elements of a tensor as they lie in memory."""
    return storage_order(tensor).apply(tensor)
