"""Programs that place library vertices by hand: one vertex after the other on one tile."""

from __future__ import annotations

from typing import Any

import numpy as np
from poplibs_kit import system_of

from abele import Engine, Graph
from abele.compiler import compile_program
from abele.compiler.cost import vertex_costs
from abele.graph import Execute, Sequence, Tensor
from abele.graph.compute_set import VertexRef
from abele.numerics import ElementType, as_element_type
from abele.poplibs import poplin, popnn, popops, poprand

Array = np.ndarray[Any, Any]


class Hand:
    """A graph whose vertices are placed one by one."""

    def __init__(self, num_tiles: int = 4) -> None:
        self.graph = Graph(system_of(num_tiles))
        for library in (popops, poplin, popnn, poprand):
            library.addCodelets(self.graph)
        self.prog = Sequence()
        self.data: dict[Tensor, Array] = {}
        self.kept: list[Tensor] = []
        self.steps: list[VertexRef] = []

    def put(self, values: Any, dtype: ElementType | str | None = None, tile: int = 0) -> Tensor:
        """A variable that holds ``values``."""
        array = np.asarray(values)
        element = as_element_type(dtype or array.dtype)
        made = self.graph.variable(element, array.shape, name=f"v{len(self.data)}").map(tile)
        self.data[made] = array.astype(element.np)
        return made

    def room(self, shape: int | tuple[int, ...], dtype: ElementType | str, tile: int = 0) -> Tensor:
        """A variable to be written."""
        made = self.graph.variable(as_element_type(dtype), shape, name=f"r{len(self.kept)}").map(tile)
        self.kept.append(made)
        return made

    def place(self, name: str, tile: int = 0, **fields: Any) -> VertexRef:
        """Append a compute set with one vertex; ``in_`` is the field ``in``."""
        cs = self.graph.addComputeSet(f"step{len(self.steps)}")
        vertex = self.graph.addVertex(cs, name)
        for key, value in fields.items():
            public = "in" if key == "in_" else key
            if next(f for f in vertex.codelet.fields if f.name == public).is_edge:
                self.graph.connect(vertex[public], value)
            else:
                self.graph.setInitialValue(vertex[public], value)
        self.graph.setTileMapping(vertex, tile)
        self.prog.add(Execute(cs))
        self.steps.append(vertex)
        return vertex

    def run(self, *, debug: bool = False, times: int = 1, **options: Any) -> dict[Tensor, Array]:
        """Every variable after so many runs."""
        self.executable = compile_program(self.graph, self.prog)
        keep = [*self.data, *self.kept]
        with Engine(self.executable, keep=keep, debug=debug, **options) as engine:
            for tensor, array in self.data.items():
                engine[tensor] = array
            for _ in range(times):
                engine.run()
            return {t: np.asarray(engine[t]) for t in keep}

    def cycles(self, vertex: VertexRef) -> int:
        """Tile cycles of a vertex with six workers, slots of one with one."""
        group, _ = vertex.compute_set.place_of(vertex)
        return int(vertex_costs(group, self.graph.system.ipu).amount[0])


def listed(tensor: Tensor) -> list[Tensor]:
    """The rows of a tensor, as a field of rows takes them."""
    return [tensor[i] for i in range(tensor.shape[0])]
