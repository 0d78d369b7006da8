"""The compiler's texts for a program of few tiles on a Pod."""

from __future__ import annotations

from syrupy.assertion import SnapshotAssertion

from abele.compiler import Executable, compile_program
from abele.graph import Copy, Execute, Graph, If, Repeat, Sequence
from abele.machine import systems
from abele.numerics import bool_, f32
from compiler.support import Update


def pod_program() -> Executable:
    """Vertices on three IPUs of a Pod16, copies between IPUs, a stream, and a decision that every tile receives."""
    graph = Graph(systems.get("bow-pod16"))
    tiles = [3, 1471, 1472, 20_000]
    x = graph.variable(f32, (4, 6), "x").map_rows(tiles)
    y = graph.variable(f32, (4, 6), "y").map_rows([*tiles[1:], tiles[0]])
    flag = graph.variable(bool_, (), "flag").map(5_000)
    step = graph.compute_set("update")
    step.vertices(Update, tile=tiles, x=x, y=y)
    stream = graph.host_stream_in("samples", f32, (4, 6))
    body = Sequence(Copy(stream, x), Execute(step), If(flag, Copy(x[0], y[3]), Copy(x, y)))
    return compile_program(graph, Repeat(10, body))


def test_texts__of_few_tiles_on_a_pod__tell_the_plan_and_the_memory(snapshot: SnapshotAssertion) -> None:
    executable = pod_program()
    texts = [executable.listing(), *(executable.plan_text(step) for step in executable.steps)]
    texts += [executable.memory_text(tile) for tile in (3, 4, 20_000)]
    assert "\n\n".join(texts) == snapshot
