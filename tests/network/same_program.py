"""Two graphs with a program each, compared in everything: names, variables, vertices, steps."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from abele.graph import Execute, Graph, Program, Tensor
from abele.graph.debug import DebugRecord
from abele.graph.program import Copy, LibraryCall
from abele.graph.variable import Variable
from abele.graph.vertices import VertexGroup


def described(graph: Graph, program: Program) -> Iterator[tuple[Any, ...]]:
    """All there is, one thing after the other, in a form that compares."""
    for variable in graph.variables:
        yield "variable", *of_variable(variable)
    for compute_set in graph.compute_sets:
        yield "compute set", compute_set.id, compute_set.num_vertices, of_debug(compute_set.debug)
        for group in compute_set.groups:
            yield from of_group(group)
    yield from of_step(program)


def of_debug(debug: DebugRecord) -> tuple[Any, ...]:
    return debug.name, debug.path, debug.file, debug.line, debug.text


def of_array(array: Any) -> Any:
    return None if array is None else (array.dtype.str, array.shape, np.ascontiguousarray(array).tobytes())


def of_tensor(tensor: Any) -> Any:
    if not isinstance(tensor, Tensor):
        return repr(tensor)
    return tensor.dtype.name, tensor.shape, tuple(map(of_array, tensor.intervals())), tensor.is_contiguous


def of_variable(variable: Variable) -> tuple[Any, ...]:
    mapping = variable.mapping
    return (
        (variable.id, variable.name, variable.dtype.name, variable.shape, variable.base, variable.kind),
        (of_array(mapping.begin), of_array(mapping.tile), of_array(variable.initial), of_debug(variable.debug)),
    )


def of_group(group: VertexGroup) -> Iterator[tuple[Any, ...]]:
    yield "vertices", group.codelet.name, of_array(group.tile), of_array(group.cycles), of_debug(group.debug)
    for name, edge in group.edges.items():
        regions = edge.regions
        wiring = map(of_array, (edge.index, edge.row_begin, regions.ptr, regions.begin, regions.length))
        yield "edge", name, *wiring, of_tensor(regions.tensor)
    for name, state in group.state.items():
        yield "state", name, of_array(state.values), of_array(state.row_begin)


def of_step(step: Program) -> Iterator[tuple[Any, ...]]:
    # Lines of the program as a whole are those of whoever asked for it: the tests call from different ones.
    debug = of_debug(step.debug) if isinstance(step, LibraryCall) else (step.debug.full_name, step.debug.text)
    yield "step", type(step).__name__, debug, *map(of_tensor, (*step.reads(), *step.writes()))
    match step:
        case Execute():
            yield "runs", step.compute_set.id
        case Copy():
            yield "copies", of_tensor(step.source), of_tensor(step.destination)
        case LibraryCall():
            ends = tuple(map(of_tensor, step.inputs)), tuple(map(of_tensor, step.outputs))
            yield "calls", step.name, *ends, str(step.kernel), step.flops
            if step.host_body is not None:
                yield from of_step(step.host_body)
    for inner in step.children():
        yield from of_step(inner)
