"""The meaning of program trees in plain Python and NumPy: what tests hold the engine against.

Every tensor is a NumPy view of the storage of its variable, so that views alias as they do on the machine; every copy
reads all before it writes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from abele.graph import (
    Call,
    Copy,
    CrossReplicaCopy,
    CrossReplicaExchange,
    Execute,
    Graph,
    If,
    Program,
    RemoteBuffer,
    Repeat,
    RepeatWhile,
    Sequence,
    Switch,
    Tensor,
)

Vertices = dict[int, Callable[[Callable[[Tensor], np.ndarray]], None]]


class Meaning:
    """State of all replicas of a graph, and what programs do to it.

    Args:
        graph: The graph.
        vertices: Function of each compute set in one replica, by its number, given the way from a view to its elements.
    """

    def __init__(self, graph: Graph, vertices: Vertices) -> None:
        self.replicas = range(graph.replicas)
        size = sum(v.size for v in graph.variables)
        self._memory = [np.zeros(size, dtype=np.int64) for _ in self.replicas]
        for replica, memory in enumerate(self._memory):
            for v in graph.variables:
                initial = replica if v.kind == "replica_index" else 0 if v.initial is None else v.initial
                memory[v.base : v.base + v.size] = np.broadcast_to(initial, v.shape).reshape(-1)
        self.remote = {
            b: [np.zeros((b.repeats, b.num_elements), np.int64) for _ in self.replicas]
            for b in graph.remote_buffers.values()
        }
        self._vertices = vertices

    def read(self, tensor: Tensor, replica: int = 0) -> np.ndarray:
        return self._memory[replica][tensor.addresses()]

    def write(self, tensor: Tensor, values: Any, replica: int = 0) -> None:
        self._memory[replica][tensor.addresses().reshape(-1)] = np.asarray(values).reshape(-1)

    def run(self, step: Program) -> None:
        """Do what a step means."""
        match step:
            case Sequence():
                for inner in step:
                    self.run(inner)
            case Execute():
                for replica in self.replicas:
                    self._vertices[step.compute_set.id](self, replica)
            case Copy():
                self._copy(step)
            case CrossReplicaCopy() | CrossReplicaExchange():
                read = [[self.read(copy.source, r) for r in self.replicas] for copy in step.copies]
                for copy, values in zip(step.copies, read, strict=True):
                    for replica in self.replicas:
                        self.write(copy.destination, values[replica], copy.map[replica])
            case Repeat():
                for _ in range(step.count):
                    self.run(step.body)
            case RepeatWhile():
                self.run(step.condition)
                while bool(self.read(step.predicate).item()) is step.value:
                    self.run(step.body)
                    self.run(step.condition)
            case If():
                self.run(step.then if self.read(step.predicate).item() else step.otherwise)
            case Switch():
                self.run(step.cases.get(self.read(step.control).item(), step.default))
            case Call():
                for copy in step.copies_in:
                    self._copy(copy)
                self.run(step.function.body)
                for copy in step.copies_out:
                    self._copy(copy)
            case _:
                for inner in step.children():
                    self.run(inner)

    def _copy(self, copy: Copy) -> None:
        for replica in self.replicas:
            rows = [0] if copy.offset is None else self.read(copy.offset, replica).reshape(-1).tolist()
            if isinstance(copy.source, RemoteBuffer):
                self.write(copy.destination, self.remote[copy.source][replica][rows], replica)
            elif isinstance(copy.destination, RemoteBuffer):
                values = self.read(copy.source, replica).reshape(len(rows), -1)
                for row, value in zip(rows, values, strict=True):
                    self.remote[copy.destination][replica][row] = value
            else:
                self.write(copy.destination, self.read(copy.source, replica), replica)
