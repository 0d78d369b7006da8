"""A small program under test: variables with data, run by every way of executing it."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from typing import Any

import numpy as np

from abele.compiler import Executable, compile_program
from abele.graph import Graph, LibraryCall, Sequence, Tensor, walk
from abele.kernels.nest.reference import evaluate
from abele.machine import System, systems
from abele.numerics import ElementType, as_element_type
from abele.poplibs.poputil import create_activations
from abele.runtime import Engine

Array = np.ndarray[Any, Any]
TOLERANCE = {"f32": 2e-5, "f16": 4e-3}
TILES = (4, 64)


@cache
def system_of(num_tiles: int) -> System:
    """One Bow chip cut down to so many tiles."""
    whole = systems.get("bow")
    return replace(whole, ipu=replace(whole.ipu, num_tiles=num_tiles), num_ipus=1)


def two_of(system: System) -> System:
    """Two chips of a system's kind."""
    whole = systems.get("bow-2000").with_ipus(2)
    return replace(whole, ipu=system.ipu)


@dataclass
class Bench:
    """A graph, a sequence and the data of its variables."""

    num_tiles: int = 64
    data: dict[Tensor, Array] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.graph = Graph(system_of(self.num_tiles))
        self.prog = Sequence()

    def tensor(self, array: Any, dtype: ElementType | str | None = None, layout: str | int = "linear") -> Tensor:
        """A variable that holds ``array``: spread linearly, as grouped activations, or on one tile."""
        array = np.asarray(array)
        element = as_element_type(dtype or array.dtype)
        name = f"v{len(self.data)}"
        if layout == "activations":
            made = create_activations(self.graph, element, array.shape, name)
        else:
            made = self.graph.variable(element, array.shape, name=name)
            made = made.map_linear() if layout == "linear" else made.map(layout)
        self.data[made] = array.astype(element.np)
        return made

    def values(self, tensor: Tensor) -> Array:
        """Initial values of a variable, in 64 bits."""
        return self.data[tensor].astype(np.float64)

    @cached_property
    def executable(self) -> Executable:
        """The program, compiled when it is first run: what is appended later does not run."""
        return compile_program(self.graph, self.prog)

    def run(self, *outputs: Tensor, mode: str = "tiles", debug: bool = False, threads: int = 1) -> list[Array]:
        """Run the program once and read ``outputs``."""
        keep = [*self.data, *outputs]
        with Engine(self.executable, mode=mode, debug=debug, threads=threads, keep=keep) as engine:
            for tensor, array in self.data.items():
                engine[tensor] = array
            engine.run()
            return [np.asarray(engine[t]) for t in outputs]

    def run_both(self, *outputs: Tensor) -> list[Array]:
        """Run as placed and by host kernels; they must agree. Returns what the placed vertices gave."""
        placed, native = self.run(*outputs), self.run(*outputs, mode="native")
        for tensor, one, other in zip(outputs, placed, native, strict=True):
            assert_close(other, one, tensor.dtype)
        return placed

    def kernels(self, *outputs: Tensor) -> list[Array]:
        """Results of the host kernels, evaluated in 64 bits."""
        memory = _Memory(self.graph, self.data)
        for step in walk(self.prog):
            if isinstance(step, LibraryCall):
                assert step.kernel is not None, step
                results = evaluate(step.kernel, [memory.get(t) for t in step.inputs], precise=True)
                for tensor, value in zip(step.outputs, results, strict=True):
                    memory.set(tensor, value)
        return [memory.get(t) for t in outputs]


class _Memory:
    """Every element of the graph, floats in 64 bits."""

    def __init__(self, graph: Graph, data: dict[Tensor, Array]) -> None:
        self.elements = np.zeros(max((v.base + v.size for v in graph.variables), default=0))
        for variable in graph.variables:
            if variable.initial is not None:
                self.set(graph.whole(variable), variable.initial)
        for tensor, array in data.items():
            self.set(tensor, array)

    def get(self, tensor: Tensor) -> Array:
        values = self.elements[tensor.addresses()]
        return values if tensor.dtype.is_float else values.astype(tensor.dtype.np)

    def set(self, tensor: Tensor, values: Array) -> None:
        self.elements[tensor.addresses()] = values


def assert_close(got: Any, wanted: Any, dtype: ElementType, factor: float = 1.0) -> None:
    """``got`` within the rounding of ``dtype`` of ``wanted``."""
    tolerance = TOLERANCE.get(dtype.name, 0.0) * factor
    np.testing.assert_allclose(
        np.asarray(got, np.float64), np.asarray(wanted, np.float64), rtol=tolerance, atol=tolerance
    )


def exact_values(rng: np.random.Generator, shape: tuple[int, ...], dtype: str = "f32") -> Array:
    """Random numbers that ``dtype`` holds exactly."""
    element = as_element_type(dtype)
    if element.name == "bool":
        return rng.integers(0, 2, shape).astype(bool)
    low, high = (1, 200) if element.kind == "uint" else (-100, 100)
    return rng.integers(low, high, shape).astype(element.np)


def ran(bench: Bench, *outputs: Tensor) -> list[Array]:
    """The results of both ways of running, which must be the same to the last bit."""
    placed, native = bench.run(*outputs), bench.run(*outputs, mode="native")
    for one, other in zip(placed, native, strict=True):
        np.testing.assert_array_equal(one, other)
    return placed
