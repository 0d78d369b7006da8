"""Intervals, broadcasting, parts of tensors, and clones in other graphs."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from poplibs_kit import Bench, system_of

from abele import Graph
from abele.errors import TensorError, TileMappingError
from abele.graph import Interval, Sequence
from abele.poplibs import gcl, poplin, popnn, popops, poprand, poputil


@given(st.lists(st.integers(1, 5), min_size=1, max_size=6), st.randoms(use_true_random=False))
def test_unshuffling__of_any_order__gives_elements_back(sizes: list[int], random: object) -> None:
    ends = np.cumsum(sizes)
    regions = [(int(e - s), int(e)) for s, e in zip(sizes, ends, strict=True)]
    random.shuffle(regions)
    shuffled = np.concatenate([np.arange(b, e) for b, e in regions])
    back = poputil.calculate_unshuffling_intervals(regions)
    assert np.concatenate([shuffled[b:e] for b, e in back]).tolist() == list(range(sum(sizes)))


def test_unshuffling__of_regions_with_a_gap__is_refused() -> None:
    with pytest.raises(TensorError, match="are no order of elements") as caught:
        poputil.calculate_unshuffling_intervals([(0, 2), (3, 4)])
    assert caught.value.because == "they break off at 2"


def test_flatten_intervals__of_lists__are_one_list() -> None:
    assert poputil.flatten_intervals([[(0, 2)], [], [(3, 4), (5, 6)]]) == [
        Interval(0, 2),
        Interval(3, 4),
        Interval(5, 6),
    ]


@pytest.mark.parametrize(
    ("one", "other", "wanted"), [((3, 1), (4,), True), ((3, 2), (4,), False), ((), (4,), True), ((2, 3), (3, 3), False)]
)
def test_can_broadcast__shapes__as_numpy_says(one: tuple[int, ...], other: tuple[int, ...], wanted: bool) -> None:
    graph = Graph(system_of(4))
    a, b = graph.variable("f32", one, name="a"), graph.variable("f32", other, name="b")
    assert poputil.can_broadcast_to_match(a, b) is wanted
    assert tuple(t.ndim for t in poputil.expand_to_match_ranks(a, b)) == (max(a.ndim, b.ndim),) * 2


def test_linear_mapping__from_an_offset__ends_where_the_next_begins() -> None:
    graph = Graph(system_of(64))
    x = graph.variable("f32", (32 * 10,), name="x")
    mapping, after = poputil.calc_linear_tile_mapping_and_new_offset(graph, x, 60)
    assert mapping.tile.tolist() == [*range(60, 64), *range(6)]
    assert after == 6
    poputil.map_tensor_linearly_with_offset(graph, x, 60)
    assert x.mapping.tile.tolist() == mapping.tile.tolist()


@pytest.mark.parametrize(
    ("shape", "parts"), [((6, 10), (2, 5)), ((7, 5), (3, 2)), ((5,), (7,)), ((2, 3, 4), (2, 1, 2))]
)
def test_partitionable__each_part__is_one_stretch(shape: tuple[int, ...], parts: tuple[int, ...]) -> None:
    graph = Graph(system_of(4))
    x = poputil.create_partitionable_tensor(graph, "f32", shape, parts)
    seen, wanted = [], np.arange(np.prod(shape)).reshape(shape)

    def visit(numbers: tuple[int, ...], part: object) -> None:
        length = part.intervals()[1]
        cut = tuple(slice(i * -(-n // p), (i + 1) * -(-n // p)) for i, n, p in zip(numbers, shape, parts, strict=True))
        assert part.shape == wanted[cut].shape
        assert len(length) <= 1
        seen.append(numbers)

    poputil.iterate_tensor_partitions(x, parts, visit)
    assert seen == list(np.ndindex(*parts))
    assert sorted(x.addresses().flatten().tolist()) == list(range(x.size))


def test_partitionable__wrong_number_of_parts__is_refused() -> None:
    with pytest.raises(TensorError, match=r"parts \[2\] of shape \[6, 10\]"):
        poputil.create_partitionable_tensor(Graph(system_of(4)), "f32", (6, 10), (2,))


def test_clone_to_graph__tiles_and_order__are_those_of_the_source() -> None:
    source, target = Graph(system_of(8)), Graph(system_of(64))
    x = source.variable("f16", (4, 6), name="x").map_rows([0, 2, 4, 6]).T
    made = poputil.clone_to_graph(source, target, x, "y", offset=10)
    assert made.graph is target
    assert made.shape == x.shape
    assert target.mapping_of(made.T).tile.tolist() == [10, 12, 14, 16]


def test_clone_to_graph__too_few_tiles__is_refused() -> None:
    source, target = Graph(system_of(64)), Graph(system_of(4))
    x = source.variable("f32", (4,), name="x").map(20)
    with pytest.raises(TileMappingError, match="20"):
        poputil.clone_to_graph(source, target, x)


def test_clone_and_expand__of_a_repeating_view__can_be_written() -> None:
    bench = Bench(16)
    x = bench.tensor(np.arange(4, dtype=np.float32), layout=3)
    wide = x.expand_dims(0).broadcast_to((3, 4))
    made = poputil.clone_and_expand_aliasing(bench.graph, wide, offset=2)
    assert made.writable
    assert set(made.mapping.tile.tolist()) == {5}
    popops.add_with_output(bench.graph, wide, 1.0, made, bench.prog)
    (got,) = bench.run_both(made)
    np.testing.assert_array_equal(got, np.arange(4) + np.ones((3, 1)))


def test_add_codelets__of_every_library__changes_nothing() -> None:
    graph = Graph(system_of(4))
    for library in (popops, poplin, popnn, poprand, gcl):
        assert library.addCodelets(graph) is None
    assert not graph.variables


def test_create_output__operands__like_the_one_that_is_spread() -> None:
    graph = Graph(system_of(64))
    bad, good = graph.variable("f32", (64, 8), name="bad").map(0), graph.variable("f32", (64, 8), name="good")
    good.map_rows(range(64))
    out = popops.create_output_for_element_wise_op(graph, [bad, good], "f16")
    assert out.dtype.name == "f16"
    assert out.mapping.tile.tolist() == list(range(64))
    with pytest.raises(TensorError, match="there are none"):
        popops.create_output_for_element_wise_op(graph, [], "f16")


def test_sequence__prog__is_untouched_by_layouts() -> None:
    graph, prog = Graph(system_of(64)), Sequence()
    popops.create_output_for_element_wise_op(graph, [graph.variable("f32", (8,), name="x").map(1)], "f32")
    assert not list(prog)
