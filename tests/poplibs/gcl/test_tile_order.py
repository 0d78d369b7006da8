"""Order of elements in which sums over replicas take them: every element once, and those of a tile on that tile."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from abele.compiler import compile_program
from abele.graph import Copy, Graph, Sequence, concat
from abele.numerics import f32
from abele.poplibs import gcl
from abele.poplibs.gcl.rows import columns
from abele.poplibs.gcl.tile_order import TileOrder
from compiler.support import small_system
from support.examples import examples

TILES = 4


@examples(40)
@given(st.lists(st.tuples(st.integers(1, 300), st.integers(0, TILES - 1)), min_size=1, max_size=6), st.integers(1, 7))
def test_order__of_tensors_anywhere__has_every_element_once(tensors: list[tuple[int, int]], rows: int) -> None:
    graph = Graph(small_system(TILES))
    flat = concat([graph.variable(f32, (n,), f"x{i}").map(tile) for i, (n, tile) in enumerate(tensors)])
    order = TileOrder.of(graph, flat, rows)
    taken = np.concatenate([np.arange(b, b + n) for b, n in zip(order.begin, order.length, strict=True)])
    assert sorted(taken.tolist()) == list(range(rows * -(-flat.size // rows)))
    whole, goal = order.paired(order.arranged(flat), flat)
    assert whole.is_same_view(goal)
    assert whole.size == flat.size


@pytest.mark.parametrize("rows", [2, 4, 8])
def test_order__of_tensors_that_are_spread_evenly__moves_nothing(rows: int) -> None:
    graph = Graph(small_system(TILES))
    # 8, 3 and 5 vectors of 8 bytes for each row and tile.
    sizes = [n * 2 * rows * TILES for n in (8, 3, 5)]
    flat = concat([graph.variable(f32, (n,), f"x{n}").map_linear(min_elements=1) for n in sizes])
    made = columns(graph, f32, rows, sum(sizes) // rows, "rows")
    executable = compile_program(graph, Copy(TileOrder.of(graph, flat, rows).arranged(flat), made))
    assert not np.asarray(executable.memory.by_category["exchange_code"]).any()


def test_all_reduce__of_a_view_out_of_the_order_of_memory__takes_few_pieces() -> None:
    graph, prog = Graph(small_system(TILES, 2), replicas=2), Sequence()
    x = graph.variable(f32, (64, 64), "x").map_linear()
    gcl.all_reduce_cross_replica(graph, x.T, "add", prog)
    plan = compile_program(graph, prog).plan
    # Of 2,048 elements that would come and go one by one.
    assert sum(s.before.fragments for s in plan if s.before is not None and s.kind != "cross_replica") < 64
