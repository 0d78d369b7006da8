"""Graphs that call another one several times."""

from __future__ import annotations

from abele.frontends.popxl import ops
from abele.frontends.popxl_addons.graph import GraphWithNamedArgs, input_like


def repeat_graph(graph: GraphWithNamedArgs, repeat_count: int) -> GraphWithNamedArgs:
    """A graph run several times: its outputs are the first inputs of the next time.

    Args:
        graph: Graph; as many of its inputs as it has outputs are carried on.
        repeat_count: Number of times.
    """
    inner = graph.graph
    made = inner.ir.create_empty_graph(f"{inner.name}_repeated")
    with made:
        entered = [input_like(t) for t in inner.inputs]
        made.outputs[:] = ops.repeat(inner, repeat_count, *entered)
    return GraphWithNamedArgs(made, graph.args.remap(dict(zip(inner.inputs, entered, strict=True))))


__all__ = ["repeat_graph"]
