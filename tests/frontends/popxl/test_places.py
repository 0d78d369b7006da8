"""PopXL programs on several IPUs: where ops of called graphs run, and what their results are."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from abele import popxl
from abele.frontends.popxl.session import Session
from abele.popxl import ops

RNG = np.random.default_rng(7)
WEIGHTS = [RNG.normal(size=(6, 6)).astype(np.float32) for _ in range(2)]
DATA = RNG.normal(size=(3, 4, 6)).astype(np.float32)
Here = popxl.Tensor
LIKE = popxl.TensorSpec((4, 6), popxl.float32)


def two_layers(x: Here, first: Here, second: Here) -> Here:
    with popxl.ipu(0):
        there = ops.relu(x @ first).copy_to_ipu(1)
    with popxl.ipu(1):
        return ops.ipu_copy(ops.tanh(there @ second), 0)


def called(ir: popxl.Ir, x: Here, ws: list[Here]) -> Here:
    graph = ir.create_graph(two_layers, LIKE, *ws)
    return ops.call(graph, *ops.call(graph, x, *ws), *ws)[0]


def nested(ir: popxl.Ir, x: Here, ws: list[Here]) -> Here:
    inner = ir.create_graph(two_layers, LIKE, *ws)

    def twice(t: Here, first: Here, second: Here) -> Here:
        return ops.call(inner, *ops.call(inner, t, first, second), first, second)[0]

    return ops.call(ir.create_graph(twice, LIKE, *ws), x, *ws)[0]


def repeated(ir: popxl.Ir, x: Here, ws: list[Here]) -> Here:
    return ops.repeat(ir.create_graph(two_layers, LIKE, *ws), 2, x, *ws)[0]


def chosen(ir: popxl.Ir, x: Here, ws: list[Here]) -> Here:
    graph, wrong = ir.create_graph(two_layers, LIKE, *ws), ir.create_graph(lambda t, a, b: t * 0, LIKE, *ws)
    for _ in range(2):
        taken = ops.equal(ops.sum(x), ops.sum(x))
        (x,) = ops.conditional(taken, graph, wrong, then_inputs=[x, *ws], else_inputs=[x, *ws])
    return x


def begun_elsewhere(ir: popxl.Ir, x: Here, ws: list[Here]) -> Here:
    """Arguments that lie on the other IPU than the graph reads them on."""
    graph = ir.create_graph(two_layers, LIKE, *ws)
    (y,) = ops.call(graph, x.copy_to_ipu(1), ws[0], ws[1].copy_to_ipu(0))
    return ops.call(graph, y, *ws)[0]


def ipus_of_variables(session: Session, name: str) -> set[int]:
    """IPUs of the elements of variables whose names end so."""
    graph = session._session.executable.graph
    tiles = np.concatenate([v.mapping.tile for v in graph.variables if v.name.endswith(name)])
    return set((tiles // (graph.num_tiles // 2)).tolist())


def ipus_of_vertices(session: Session, name: str) -> set[int]:
    """IPUs of the vertices of compute sets whose names end so."""
    graph = session._session.executable.graph
    tiles = np.concatenate([g.tile for c in graph.compute_sets if c.name.endswith(name) for g in c.groups])
    return set((tiles // (graph.num_tiles // 2)).tolist())


@pytest.mark.parametrize("program", [called, nested, repeated, chosen, begun_elsewhere])
def test_ops_of_called_graphs_run_on_their_ipus(program: Callable[..., Here]) -> None:
    ir = popxl.Ir()
    ir.num_host_transfers = 3
    with ir.main_graph, popxl.in_sequence():
        source, sink = popxl.h2d_stream((4, 6), popxl.float32), popxl.d2h_stream((4, 6), popxl.float32)
        first = popxl.variable(WEIGHTS[0], name="first")
        with popxl.ipu(1):
            second = popxl.variable(WEIGHTS[1], name="second")
        for _ in range(3):
            ops.host_store(sink, program(ir, ops.host_load(source), [first, second]))
    with Session(ir) as session:
        found = session.run({source: DATA})[sink]
        wanted = DATA
        for _ in range(2):
            wanted = np.tanh(np.maximum(wanted @ WEIGHTS[0], 0) @ WEIGHTS[1])
        np.testing.assert_allclose(found, wanted, rtol=2e-5, atol=2e-6)
        assert ipus_of_vertices(session, "relu") == {0}
        assert ipus_of_vertices(session, "tanh") == {1}
        assert ipus_of_variables(session, "first") == {0}
        if program in (called, nested, repeated):  # The others copy it.
            assert ipus_of_variables(session, "second") == {1}


def test_a_loop_calls_a_shared_graph_with_weights_of_its_own() -> None:
    """Calls outside have one weight in common, which the loop's call has not."""
    ir = popxl.Ir()
    with ir.main_graph, popxl.in_sequence():
        x, w, other = (popxl.variable(a) for a in (DATA[0], *WEIGHTS))
        graph = ir.create_graph(lambda t, by: ops.tanh(t @ by), LIKE, w)
        (y,) = ops.call(graph, *ops.call(graph, x, w), w)
        (y,) = ops.repeat(ir.create_graph(lambda t, by: ops.call(graph, t, by)[0], LIKE, other), 2, y, other)
        sink = popxl.d2h_stream((4, 6), popxl.float32)
        ops.host_store(sink, y)
    with popxl.Session(ir) as session:
        found = session.run()[sink]
    wanted = DATA[0]
    for weight in (WEIGHTS[0], WEIGHTS[0], WEIGHTS[1], WEIGHTS[1]):
        wanted = np.tanh(wanted @ weight)
    np.testing.assert_allclose(found, wanted, rtol=2e-5, atol=2e-6)
