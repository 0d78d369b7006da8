"""Runs that two views share: every element with its counterpart, in as few runs as memory allows."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from abele.graph import Graph, Tensor, concat
from abele.graph.paired import paired_runs
from abele.machine import systems
from abele.numerics import f16

CHIP = systems.get("bow-2000:1")


def pairs_of(source: Tensor, destination: Tensor) -> set[tuple[int, int]]:
    """Pairs of addresses that the runs hold."""
    runs = paired_runs(source, destination)
    found = [
        (a + i, b + i)
        for a, b, n in zip(runs.source.tolist(), runs.destination.tolist(), runs.length.tolist(), strict=True)
        for i in range(n)
    ]
    assert len(found) == source.size
    return set(found)


def wanted(source: Tensor, destination: Tensor) -> set[tuple[int, int]]:
    return set(zip(source.addresses().reshape(-1).tolist(), destination.addresses().reshape(-1).tolist(), strict=True))


@st.composite
def views(draw: st.DrawFn) -> tuple[Tensor, Tensor]:
    """Two views [12, 8], each of a variable stored in its own blocks and order."""
    graph = Graph(CHIP)

    def view(name: str) -> Tensor:
        rows, columns = draw(st.sampled_from([1, 2, 3, 4, 6, 12])), draw(st.sampled_from([1, 2, 4, 8]))
        extents = (12 // rows, rows, 8 // columns, columns)
        order = draw(st.permutations(range(4)))
        stored = graph.variable(f16, [extents[d] for d in order], name=name, map=0)
        made = stored.transpose([order.index(d) for d in range(4)]).reshape((12, 8))
        if draw(st.booleans()):
            made = made.reverse(draw(st.integers(0, 1)))
        if draw(st.booleans()):
            made = concat([made[:5], graph.variable(f16, (7, 8), name=f"{name}/rest", map=1)], 0)
        return made

    return view("a"), view("b")


@given(views())
def test_paired_runs__blocked_turned_and_joined_views__pair_every_element_once(pair: tuple[Tensor, Tensor]) -> None:
    assert pairs_of(*pair) == wanted(*pair)


def test_paired_runs__two_variables_stored_alike__one_run() -> None:
    graph = Graph(CHIP)
    a, b = (graph.variable(f16, (4, 64, 16), name=n, map=0).transpose((1, 0, 2)).reshape((64, 64)).T for n in "ab")
    runs = paired_runs(a, b)
    assert runs.length.tolist() == [64 * 64]


def test_paired_runs__one_view_turned__runs_are_elements() -> None:
    graph = Graph(CHIP)
    a, b = (graph.variable(f16, (8, 8), name=n, map=0) for n in "ab")
    assert set(paired_runs(a, b.T).length.tolist()) == {1}


def test_paired_runs__a_row_copied_to_all_rows__reads_it_again() -> None:
    graph = Graph(CHIP)
    row, all_rows = graph.variable(f16, (8,), name="row", map=0), graph.variable(f16, (3, 8), name="rows", map=0)
    runs = paired_runs(row.broadcast_to((3, 8)), all_rows)
    assert runs.length.tolist() == [8, 8, 8]
    assert np.array_equal(np.unique(runs.source), [row.addresses()[0]])
