"""A control program in NumPy: library calls by the meaning of their kernels, copies and loops as written."""

from __future__ import annotations

from collections import defaultdict

import numpy as np
import numpy.typing as npt

from abele.arrays import Array
from abele.graph import Copy, Graph, If, LibraryCall, Program, Repeat, Sequence, Stream, Tensor, Variable, WriteUndef
from abele.kernels.nest.reference import evaluate


class Meaning:
    """The state of a graph's variables, and what went out on its streams."""

    def __init__(self, graph: Graph, feeds: dict[str, list[Array]] | None = None) -> None:
        self.memory = {v: np.zeros(v.size, v.dtype.np) for v in graph.variables}
        self.feeds = {name: iter(items) for name, items in (feeds or {}).items()}
        self.sent: dict[str, list[Array]] = defaultdict(list)
        for variable in graph.variables:
            if variable.initial is not None:
                self.write(graph.whole(variable), variable.initial)

    def read(self, tensor: Tensor) -> Array:
        """The elements of a view."""
        values = np.empty(tensor.size, tensor.dtype.np)
        for variable, inside, element in self._places(tensor):
            values[inside] = self.memory[variable][element]
        return values.reshape(tensor.shape)

    def write(self, tensor: Tensor, values: npt.ArrayLike) -> None:
        """Set the elements of a view."""
        flat = np.broadcast_to(np.asarray(values), tensor.shape).reshape(-1)
        for variable, inside, element in self._places(tensor):
            self.memory[variable][element] = flat[inside]

    @staticmethod
    def _places(tensor: Tensor) -> list[tuple[Variable, Array, Array]]:
        """For each variable of a view: which elements of the view it holds, and where."""
        at = tensor.addresses().reshape(-1)
        inside = {v: (at >= v.base) & (at < v.base + v.size) for v in tensor.variables}
        return [(v, mask, at[mask] - v.base) for v, mask in inside.items()]

    def run(self, program: Program) -> None:
        """Run one step and everything inside it."""
        match program:
            case LibraryCall():
                self._call(program)
            case Copy():
                self._copy(program)
            case Repeat():
                for _ in range(program.count):
                    self.run(program.body)
            case If():
                self.run(program.then if self.read(program.predicate).item() else program.otherwise)
            case Sequence():
                for step in program.host_body or program:
                    self.run(step)
            case WriteUndef():
                pass
            case _:
                raise NotImplementedError(type(program).__name__)

    def _call(self, call: LibraryCall) -> None:
        assert call.kernel is not None, f"{call} has no kernel"
        before = [self.read(t) for t in (*call.inputs, *call.outputs)]
        for tensor, result in zip(call.outputs, evaluate(call.kernel, before), strict=True):
            self.write(tensor, result)

    def _copy(self, copy: Copy) -> None:
        if isinstance(copy.source, Stream):
            assert isinstance(copy.destination, Tensor)
            self.write(copy.destination, next(self.feeds[copy.source.name]))
        elif isinstance(copy.destination, Stream):
            self.sent[copy.destination.name].append(self.read(copy.source).reshape(copy.destination.shape))
        else:
            self.write(copy.destination, self.read(copy.source).reshape(copy.destination.shape))
