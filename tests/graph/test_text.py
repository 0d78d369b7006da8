from __future__ import annotations

import re

import pytest

from abele.graph import Execute, Graph, Sequence, shared
from abele.graph.clusters import to_dot
from abele.numerics import f32
from support.vertices import Negate


@pytest.fixture
def graph():
    """Two compute sets: a matrix is negated row by row, and the result once more as a whole."""
    g = Graph("gc200")
    x, y, z = (g.variable(f32, (2, 3), name) for name in "xyz")
    x.map_rows([0, 1])
    y.map_rows([0, 1])
    z.map(4)
    g.compute_set("first").vertices(Negate, tile=[0, 1], x=x, y=y)
    g.compute_set("second").vertices(Negate, tile=[4], x=shared(y.flatten()), y=z.flatten()[None])
    return g


def test_to_dot__small_graph__draws_every_vertex_in_its_compute_set(graph):
    assert graph.to_dot().splitlines() == [
        "digraph compute {",
        "  rankdir=LR;",
        '  v0 [label="x\\nf32[2, 3]", shape=ellipse];',
        '  v1 [label="y\\nf32[2, 3]", shape=ellipse];',
        '  v2 [label="z\\nf32[2, 3]", shape=ellipse];',
        "  subgraph cluster_0 {",
        '    label="first";',
        '    s0g0v0 [label="Negate\\ntile 0", shape=box];',
        '    s0g0v1 [label="Negate\\ntile 1", shape=box];',
        "  }",
        "  subgraph cluster_1 {",
        '    label="second";',
        '    s1g0v0 [label="Negate\\ntile 4", shape=box];',
        "  }",
        '  v0 -> s0g0v0 [label="x"];',
        '  s0g0v0 -> v1 [label="y"];',
        '  v0 -> s0g0v1 [label="x"];',
        '  s0g0v1 -> v1 [label="y"];',
        '  v1 -> s1g0v0 [label="x"];',
        '  s1g0v0 -> v2 [label="y"];',
        "}",
    ]


def test_to_dot__of_a_program__draws_only_what_it_executes(graph):
    text = graph.to_dot(Sequence(Execute(graph.compute_sets[1])))
    assert "second" in text
    assert "first" not in text
    assert '"x\\n' not in text


def test_to_dot__many_vertices__are_drawn_by_group(graph):
    text = to_dot(graph, max_items=2)
    assert 's0g0 [label="2 × Negate\\n2 tiles", shape=box]' in text
    assert 'others [label="1 more variables"' in text
    assert "s1g0 -> others" in text


def test_to_dot__hostile_names__cannot_leave_their_string():
    g = Graph("gc200")
    g.variable(f32, 2, 'a"];\nevil [label="\\').map(0)
    g.variable(f32, 2, "bell\x07").map(0)
    lines = g.to_dot().splitlines()
    assert len(lines) == 5
    assert lines[3] == '  v1 [label="bell?\\nf32[2]", shape=ellipse];'
    string = re.compile(r'"(?:[^"\\]|\\.)*"')
    assert string.sub("", lines[2]) == "  v0 [label=, shape=ellipse];"


def test_vertex_graph__reads_of_what_was_written__are_edges(graph):
    links = [line.strip() for line in graph.vertex_graph().splitlines() if "->" in line]
    assert links == ["s0g0v0 -> s1g0v0;", "s0g0v1 -> s1g0v0;"]
    assert "s0g0 -> s1g0;" in graph.vertex_graph(max_items=1)


def test_describe__graph__lists_variables_with_their_balance_and_compute_sets(graph):
    graph.variable(f32, 10, "w")[:9].map({0: [(0, 6)], 7: [(6, 9)]})
    graph.variable(f32, 1, "nowhere")
    assert graph.describe().splitlines() == [
        "graph for gc200: 1,472 tiles, 5 variables of 116 B, 2 compute sets, 3 vertices",
        "variable  type       size  tiles                           balance",
        "x         f32[2, 3]  24 B  0 to 1                            100 %",
        "y         f32[2, 3]  24 B  0 to 1                            100 %",
        "z         f32[2, 3]  24 B  4                                 100 %",
        "w         f32[10]    40 B  0 to 7 (2), 1 element unmapped     75 %",
        "nowhere   f32[1]      4 B  none                                  -",
        "compute set first: 2 × Negate on 2 tiles",
        "compute set second: 1 × Negate on 1 tile",
    ]


def test_describe__more_than_fits__names_the_largest_and_counts_the_rest(graph):
    graph.variable(f32, 100, "large").map(0)
    lines = graph.describe(max_items=1).splitlines()
    assert lines[2].startswith("large")
    assert lines[3] == "… and 3 smaller variables"
    assert lines[-1] == "… and 1 more compute sets"
