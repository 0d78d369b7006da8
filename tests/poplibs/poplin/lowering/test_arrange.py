from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from abele.graph import Execute, Graph, Sequence
from abele.numerics import f32
from abele.poplibs.poplin.contraction.operand import allocate, operand
from abele.poplibs.poplin.lowering.arrange import _even_run, arrange
from poplibs.poplin.support import run_body, system


@given(st.integers(1, 6), st.sampled_from([9, 14, 27]), st.sampled_from([1, 3, 40]))
def test_arrange__rows_and_blocks_that_do_not_divide__keeps_the_values(rows: int, width: int, channels: int) -> None:
    samples = rows * width * 16
    graph = Graph(system(8))
    stored = graph.variable(f32, (rows * 16, channels, width), name="x").map_linear()
    source = operand(stored.transpose(0, 2, 1).reshape((samples, channels)), ("b", "co"))
    target = allocate(graph, f32, source.extents, [("b", 16), ("co", 1), ("b", 1)], "arranged")
    compute_set = graph.compute_set("arrange")
    arrange(graph, compute_set, source, target)
    prog = Sequence(Execute(compute_set))
    values = np.random.default_rng(0).normal(size=stored.shape).astype(np.float32)
    (result,) = run_body(graph, prog, {stored: values}, target.tensor)
    assert np.array_equal(result, values.transpose(0, 2, 1).reshape(samples, channels))


def test_arrange__rows_and_blocks_that_do_not_divide__makes_few_vertices() -> None:
    graph = Graph(system(8))
    stored = graph.variable(f32, (16, 64, 81), name="x").map_linear()
    source = operand(stored.transpose(0, 2, 1).reshape((16 * 81, 64)), ("b", "co"))
    target = allocate(graph, f32, source.extents, [("b", 16), ("co", 1), ("b", 1)], "arranged")
    arrange(graph, graph.compute_set("arrange"), source, target)
    (group,) = graph.compute_sets[-1].groups
    assert group.num == 8
    assert group.edges["x"].regions.num == 81 + 15  # one for each block of samples, and each row that ends inside one


def test_arrange__few_weights__leaves_long_pieces() -> None:
    graph = Graph(system(1472))
    stored = graph.variable(f32, (2, 4, 9, 16, 16), name="x").map_linear()
    source = operand(stored.transpose(1, 4, 0, 3, 2).reshape((64, 32, 9)), ("co", "ci", "k0"))
    order = [("co", 16), ("ci", 16), ("k0", 1), ("co", 1), ("ci", 1)]
    target = allocate(graph, f32, source.extents, order, "arranged")
    arrange(graph, graph.compute_set("arrange"), source, target)
    assert graph.mapping_of(target.storage.flatten()).length.min() == 4 * 16


def test_arrange__blocks_of_the_source_that_end_inside_vectors__leaves_vectors_on_one_tile() -> None:
    graph = Graph(system(8))
    stored = graph.variable(f32, (64, 64, 20), name="x").map_linear()
    source = operand(stored.transpose(0, 2, 1).reshape((64 * 20, 64)), ("b", "co"))
    target = allocate(graph, f32, source.extents, [("b", 16), ("co", 1), ("b", 1)], "arranged")
    arrange(graph, graph.compute_set("arrange"), source, target)
    mapping = target.tensor.mapping
    assert len(np.unique(mapping.tile)) == 8
    # The target stores vectors of 16 samples one after the other.
    assert (mapping.begin % 16 == 0).all()


@given(st.integers(1, 4000), st.integers(1, 70), st.sampled_from([8, 64, 1472]))
def test_even_run__any_number_of_boxes__leaves_the_fullest_tile_no_more_than_the_plain_number(
    steps: int, rows: int, tiles: int
) -> None:
    boxes = rows * steps
    if boxes < 2 * tiles:
        return

    def fullest(run: int) -> int:
        return -(-rows * -(-steps // run) // tiles) * min(run, steps)

    found = _even_run(steps, boxes, tiles)
    assert fullest(found) <= fullest(boxes // tiles)
    # No tile has less than an even share, and none has more than one run beyond it.
    assert boxes / tiles <= fullest(found) < boxes / tiles + 2 * min(found, steps) + 1


def test_even_run__rows_of_a_large_vocabulary__fill_all_tiles_once() -> None:
    # 50,257 words by 1,024 in blocks of 16: 3,142 squares in each of 64 rows. 137 of them make 23 runs a row, 1,472.
    assert _even_run(3142, 64 * 3142, 1472) == 137


@given(st.integers(1, 40), st.integers(17, 60))
def test_arrange__longer_target__ends_in_zeros(rows: int, channels: int) -> None:
    graph = Graph(system(8))
    stored = graph.variable(f32, (channels, rows), name="x").map_linear()
    source = operand(stored.transpose(1, 0), ("co", "ci"))
    extents = {"co": rows, "ci": -(-channels // 16) * 16}
    target = allocate(graph, f32, extents, [("ci", 16), ("co", 1), ("ci", 1)], "arranged")
    compute_set = graph.compute_set("arrange")
    arrange(graph, compute_set, source, target)
    values = np.random.default_rng(0).normal(size=stored.shape).astype(np.float32)
    (result,) = run_body(graph, Sequence(Execute(compute_set)), {stored: values}, target.tensor)
    assert np.array_equal(result[:, :channels], values.T)
    assert not result[:, channels:].any()
    # Zeros lie on the tile of the channels before them: a reader finds these in one piece.
    for row in range(rows):
        assert len(np.unique(graph.mapping_of(target.tensor[row, channels - 1 :]).tile)) == 1
