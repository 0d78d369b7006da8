"""Cycles as a program on the machine would see them: through its own counter, and counted while it runs."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from abele.compiler import compute_cycles
from abele.compiler.cost import VertexCosts
from abele.graph import CycleCount, Execute, Graph, Repeat, Sequence, VertexGroup
from abele.machine import systems
from abele.numerics import f32, i32, u32
from abele.poplibs import popops
from abele.runtime import Engine
from compiler.support import Multi, Reader, Search, small_system

RAW_ADD = {10: 330, 1024: 1860}
RAW_SUBTRACT = {64: 375, 128: 467, 256: 665, 512: 1043}
"""Counts on a Bow IPU, the counter's reading included (TessellateIPU)."""


def counted(elements: int, *, subtract: bool) -> int:
    graph, main = Graph("bow"), Sequence()
    a, b, out = (graph.variable(f32, (1, elements), n, initial=0.0).map(0) for n in ("a", "b", "out"))
    if subtract:
        popops.scaled_subtract_from(graph, a, b, 0.5, main)
    else:
        popops.map_with_output(graph, popops._1 + popops._2, [a, b], out, main)
    count = graph.variable(u32, (2,), "count").map(0)
    with Engine(graph, CycleCount(main, count)) as engine:
        engine.run()
        low, high = engine["count"].tolist()
    return low + (high << 32)


@pytest.mark.parametrize(("elements", "silicon"), RAW_ADD.items())
def test_cycle_count__of_an_add__shows_what_silicon_shows(elements: int, silicon: int) -> None:
    assert counted(elements, subtract=False) == pytest.approx(silicon, rel=0.03)


@pytest.mark.parametrize(("elements", "silicon"), RAW_SUBTRACT.items())
def test_cycle_count__of_a_scaled_subtract__shows_what_silicon_shows(elements: int, silicon: int) -> None:
    assert counted(elements, subtract=True) == pytest.approx(silicon, rel=0.03)


def test_run__of_codelets_whose_cost_depends_on_data__makes_rows_counted() -> None:
    graph = Graph(small_system())
    x = graph.variable(f32, (8, 50), "x", initial=np.tril(np.ones((8, 50)))).map_rows(range(8))
    y = graph.variable(i32, (8,), "y").map_linear()
    cs = graph.compute_set("search")
    cs.vertices(Search, tile=range(8), x=x, y=y)
    with Engine(graph, Repeat(3, Execute(cs)), mode="tiles") as engine:
        compute = engine.report.steps["kind"] == "compute"
        assert engine.report.steps["basis"][compute].tolist() == ["assumed"]
        assumed = engine.report.cycles().total
        engine.run()
        assert engine["y"].tolist() == list(range(1, 9))
        assert engine.report.steps["basis"][compute].tolist() == ["counted"]
        assert engine.report.graph["num_estimated_steps"] == 0
        assert engine.report.cycles().total != assumed
        assert engine.report.groups["end_cycle"].tolist() == [engine.report.cycles().total]


groups_of_vertices = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 60), st.booleans()), min_size=1, max_size=40)


@given(groups_of_vertices, st.data())
def test_compute_cycles__more_work_or_more_vertices__never_cost_less(
    vertices: list[tuple[int, int, bool]], data: st.DataObject
) -> None:
    def total(chosen: list[tuple[int, int, bool]]) -> int:
        groups, costs = [], []
        for codelet, multi in ((Reader, False), (Multi, True)):
            mine = [v for v in chosen if v[2] == multi]
            if mine:
                tile = np.array([v[0] for v in mine], dtype=np.int32)
                groups.append(VertexGroup(codelet.codelet, tile, {}, {}, None, Graph("bow").origin("v")))
                costs.append(VertexCosts(np.array([v[1] for v in mine], dtype=np.int64), False))
        found = compute_cycles(groups, systems.get("bow").ipu, 4, costs)
        assert set(found.by_tile.nonzero().tolist()) == {v[0] for v in chosen if v[1]}
        return int(found.by_tile.max()) + found.launch

    number = data.draw(st.integers(0, len(vertices) - 1))
    tile, cost, multi = vertices[number]
    grown = [*vertices[:number], (tile, cost + 7, multi), *vertices[number + 1 :]]
    assert total(vertices[:-1]) <= total(vertices) <= total(grown)
