"""The graph as Graphviz text: which compute sets and copies read and write which variables."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import numpy as np

from abele.graph.compute_set import ComputeSet
from abele.graph.program import Copy, Execute, Program, walk
from abele.graph.tensor import Tensor
from abele.graph.variable import Variable

if TYPE_CHECKING:
    from abele.graph.graph import Graph


def compute_graph(graph: Graph, programs: Iterable[Program] = ()) -> str:
    """Variables and compute sets as Graphviz text; with programs, their executions and copies.

    Args:
        graph: The graph.
        programs: Programs whose steps are drawn; every compute set when there are none.
    """
    steps = [step for program in programs for step in walk(program)]
    sets = dict.fromkeys(s.compute_set for s in steps if isinstance(s, Execute)) or dict.fromkeys(graph.compute_sets)
    lines: list[str] = []
    used: dict[Variable, None] = {}
    for compute_set in sets:
        lines.append(f'  cs{compute_set.id} [shape=ellipse, label="{_quoted(compute_set.name)}"];')
        for variable, writes in _accesses(graph, compute_set):
            used[variable] = None
            lines.append(_arrow(f"cs{compute_set.id}", variable, writes))
    for step in steps:
        if isinstance(step, Copy):
            ends = [e.variables if isinstance(e, Tensor) else (e.name,) for e in (step.source, step.destination)]
            used.update(dict.fromkeys(v for end in ends for v in end if isinstance(v, Variable)))
            lines.extend(f"  {_node(a)} -> {_node(b)} [style=dashed];" for a in ends[0] for b in ends[1])
    return _document([_box(v) for v in used] + list(dict.fromkeys(lines)))


def _accesses(graph: Graph, compute_set: ComputeSet) -> Iterator[tuple[Variable, str]]:
    for group in compute_set.groups:
        for field in group.codelet.fields:
            if field.name in group.edges:
                regions = group.edges[field.name].regions
                for variable in graph.variables_at(np.concatenate([regions.begin, regions.begin + regions.length - 1])):
                    yield variable, field.direction


def _arrow(node: str, variable: Variable, direction: str) -> str:
    reads, writes = f"  {_node(variable)} -> {node};", f"  {node} -> {_node(variable)};"
    return {"in": reads, "out": writes}.get(direction, f"{reads}\n{writes}")


def _node(item: Variable | str) -> str:
    return f"var{item.id}" if isinstance(item, Variable) else f'"{_quoted(item)}"'


def _box(variable: Variable) -> str:
    shape = "x".join(map(str, variable.shape)) or "1"
    return f'  {_node(variable)} [shape=box, label="{_quoted(variable.name)}\\n{variable.dtype.poplar_name} {shape}"];'


def _quoted(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"')


def _document(lines: list[str]) -> str:
    return "\n".join(["digraph {", *lines, "}"]) + "\n"
