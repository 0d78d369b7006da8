"""Text forms of graphs, tensors and programs, beside the stored forms."""

from __future__ import annotations

import re

import pytest
from syrupy.assertion import SnapshotAssertion

from abele.graph import Copy, Execute, Graph, Sequence, concat
from abele.numerics import f16, f32
from support.vertices import Halve


def example() -> tuple[Graph, Sequence]:
    """Three variables, a constant, one step of four vertices and a copy."""
    graph = Graph("gc200")
    with graph.scope("layer"):
        x = graph.variable(f32, (4, 6), "x").map_rows([0, 1, 2, 3])
        y = graph.variable(f32, (4, 6), "y").map_linear(6, 6)
    graph.constant(f16, (2,), [1.0, 2.0], "pair")
    graph.variable(f32, 5, "loose")
    step = graph.compute_set("halve")
    step.vertices(Halve, tile=range(4), x=x, y=y)
    return graph, Sequence(Execute(step), Copy(y[::2], x[1::2]))


def placeless(text: str) -> str:
    """The text without the lines of this file."""
    return re.sub(r"[\w/.-]*test_text_forms\.py:\d+", "here", text)


def test_describe__of_a_graph__is_the_stored_text(snapshot: SnapshotAssertion) -> None:
    graph, _ = example()
    assert placeless(graph.describe()) == snapshot
    assert placeless(graph.describe(max_items=1)) == snapshot(name="short")
    assert repr(graph) == snapshot(name="line")


@pytest.mark.parametrize("form", ["to_dot", "vertex_graph"])
def test_dot__of_a_program__is_the_stored_text(form: str, snapshot: SnapshotAssertion) -> None:
    graph, program = example()
    assert placeless(getattr(graph, form)(program)) == snapshot


def test_tensor_text__of_views__is_the_stored_text(snapshot: SnapshotAssertion) -> None:
    graph, _ = example()
    x, y, pair, loose = (graph.whole(v) for v in graph.variables)
    views = [x, x.T, x[1:3, ::2], concat([x, y]), y.broadcast_to((2, 4, 6)), pair, loose, x[:0]]
    assert "\n\n".join(f"{t!r}\n{t.text()}" for t in views) == snapshot


def test_cards__of_graph_and_tensor__are_the_stored_html(snapshot: SnapshotAssertion) -> None:
    graph, _ = example()
    assert placeless(graph._repr_html_()) == snapshot
    assert placeless(graph.whole(graph.variables[0])._repr_html_()) == snapshot(name="tensor")
