"""Storage order, cells and regions against brute force."""

from __future__ import annotations

from enum import Enum

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from poplibs_kit import Bench, system_of

from abele.errors import TensorError
from abele.graph import Graph, TileMapping
from abele.numerics import f16, f32
from abele.poplibs import poputil
from abele.poplibs.poputil import (
    broadcast_to_match,
    calc_linear_tile_mapping,
    channels_per_group,
    clone,
    create_activations,
    create_output_like,
    duplicate,
    flat_regions,
    map_tensor_linearly,
    map_tensor_linearly_with_offset,
    split_evenly,
    storage_order,
    template_vertex,
    tile_imbalance,
)
from abele.poplibs.poputil.grid import BlockGrid, cells_of, collapse, rectangles_of, split_for_workers
from abele.poplibs.poputil.layout import storage_mapping
from abele.poplibs.poputil.order import is_same_view


def test_storage_order__activations__walks_memory_in_order() -> None:
    graph = Graph(system_of(8))
    x = create_activations(graph, f32, (3, 32, 5, 4), "x")
    order = storage_order(x)
    assert order.extents == (2, 3, 20, 16) or order.extents == (2, 3, 5, 4, 16)
    assert order.apply(x).is_contiguous
    np.testing.assert_array_equal(order.undo(order.apply(x)).addresses(), x.addresses())


@given(st.permutations(range(4)), st.booleans())
def test_storage_order__any_transposed_view__is_contiguous_again(axes: list[int], split: bool) -> None:
    graph = Graph(system_of(8))
    view = graph.variable(f32, (2, 6, 3, 4), name="x").transpose(axes)
    if split:
        view = view.reshape((*view.shape[:1], -1, *view.shape[2:]))
    order = storage_order(view)
    assert order.apply(view).is_contiguous
    np.testing.assert_array_equal(order.undo(order.apply(view)).addresses(), view.addresses())
    strides = np.array(order.logical_strides())
    linear = sum(
        np.arange(n).reshape([-1] + [1] * (len(strides) - d - 1)) * s
        for d, (n, s) in enumerate(zip(order.extents, strides, strict=True))
    )
    wanted = np.arange(view.size).reshape(view.shape)
    inside = order.apply(view).addresses().reshape(-1)
    np.testing.assert_array_equal(view.addresses().reshape(-1)[np.ravel(linear)], inside)
    assert wanted.size == view.size


def test_is_same_view__other_view_of_same_elements__is_told_apart() -> None:
    graph = Graph(system_of(8))
    x = graph.variable(f32, (4, 4), name="x")
    assert is_same_view(x, x[:])
    assert not is_same_view(x, x.T)


@pytest.mark.parametrize(("channels", "group"), [(64, 16), (24, 8), (12, 4), (10, 10), (1, 1)])
def test_channels_per_group__channels__are_divided(channels: int, group: int) -> None:
    assert channels_per_group(channels) == group


@pytest.mark.parametrize("shape", [(16, 32, 8, 8), (512, 64, 9, 9), (7, 10), (512, 200)])
def test_create_activations__any_shape__no_tile_has_more_than_a_group_above_another(shape: tuple[int, ...]) -> None:
    graph = Graph(system_of(1472))
    x = create_activations(graph, f16, shape, "x")
    mapping = storage_mapping(graph, x)
    counts = np.bincount(mapping.tile, weights=mapping.length)
    group = channels_per_group(shape[1])
    grain = group if group in (16, 8, 4) else 4
    assert counts.max() - counts[counts > 0].min() <= grain
    assert (counts > 0).sum() == min(1472, -(-x.size // grain))


def test_create_activations__one_dimension__names_the_tensor() -> None:
    with pytest.raises(TensorError, match="activations 'x' need a batch and a channel dimension"):
        create_activations(Graph(system_of(8)), f32, (5,), "x")


def test_create_activations__group_that_does_not_divide__is_refused() -> None:
    with pytest.raises(TensorError, match="10 channels do not divide into groups of 4"):
        create_activations(Graph(system_of(8)), f32, (2, 10), "x", group=4)


def test_linear_mapping__defaults__keep_128_bytes_a_tile() -> None:
    graph = Graph(system_of(64))
    x = map_tensor_linearly(graph, graph.variable(f32, (100,), name="x"))
    assert list(x.mapping.length) == [32, 34, 34]
    assert tile_imbalance(graph, x) == 0
    assert calc_linear_tile_mapping(graph, x, min_elements=2).tile.max() == 49


def test_create_output_like__crowded_input__spreads_over_the_tiles() -> None:
    graph = Graph(system_of(64))
    crowded = graph.variable(f32, (64, 64), name="x").map(3)
    out = create_output_like(graph, [crowded], (64, 64), f32, "out")
    assert np.bincount(out.mapping.tile, weights=out.mapping.length).max() == 64


def test_clone__activations__has_the_same_order_and_tiles() -> None:
    graph = Graph(system_of(64))
    x = create_activations(graph, f32, (2, 32, 3, 3), "x")
    y = clone(graph, x, "y", f16)
    assert y.dtype == f16
    np.testing.assert_array_equal(y.addresses() - y.addresses().min(), x.addresses() - x.addresses().min())
    np.testing.assert_array_equal(y.mapping.tile, x.mapping.tile)


def test_broadcast_to_match__shapes_that_do_not_fit__names_the_dimension() -> None:
    graph = Graph(system_of(8))
    a, b = graph.variable(f32, (2, 3), name="a"), graph.variable(f32, (4, 1, 3), name="b")
    assert [t.shape for t in broadcast_to_match(a, b)] == [(4, 2, 3)] * 2
    with pytest.raises(TensorError, match="operand 1 has 4 along dimension 1, another has 3"):
        broadcast_to_match(a, graph.variable(f32, (4,), name="c"))


mappings = st.integers(1, 60).flatmap(
    lambda size: st.lists(st.integers(0, size - 1), max_size=8).map(lambda cuts: (size, sorted({0, *cuts})))
)


@given(mappings, st.integers(1, 5), st.integers(1, 5), st.booleans())
def test_cells__any_mapping__cover_each_element_once_on_its_tile(
    mapping: tuple[int, list[int]], rows: int, columns: int, split: bool
) -> None:
    blocks, cuts = mapping
    size = blocks * rows * columns
    begin = np.array([c * rows * columns // 2 for c in cuts], np.int64)
    begin = np.unique(begin)
    tiles = TileMapping(size, begin, np.arange(len(begin), dtype=np.int32) % 3)
    grid = BlockGrid(((0, 1), (1, 2), (2, 3)), (blocks, rows, columns))
    cells = cells_of(grid, tiles)
    if split:
        cells = split_for_workers(cells, 6, 2)
    seen = np.full(size, -1)
    for i in range(cells.num):
        for r in range(cells.num_rows[i]):
            at = (cells.block[i] * rows + cells.row[i] + r) * columns + cells.column[i]
            span = slice(at, at + cells.num_columns[i])
            assert (seen[span] == -1).all()
            seen[span] = cells.tile[i]
        assert cells.num_rows[i] == 1 or cells.num_columns[i] == columns
        assert cells.column[i] + cells.num_columns[i] <= columns
        assert cells.row[i] + cells.num_rows[i] <= rows
    np.testing.assert_array_equal(seen, tiles.tiles_of(np.arange(size)))


@given(mappings, st.integers(1, 5), st.integers(1, 5))
def test_rectangles__any_mapping__cover_each_element_once_on_its_tile(
    mapping: tuple[int, list[int]], rows: int, columns: int
) -> None:
    blocks, cuts = mapping
    size = blocks * rows * columns
    begin = np.unique(np.array([c * rows * columns // 2 for c in cuts], np.int64))
    tiles = TileMapping(size, begin, np.arange(len(begin), dtype=np.int32) % 3)
    cells = rectangles_of(BlockGrid(((0, 1), (1, 2), (2, 3)), (blocks, rows, columns)), tiles)
    seen = np.full(size, -1)
    for cell, first, length in zip(*cells.runs(), strict=True):
        assert (seen[first : first + length] == -1).all()
        seen[first : first + length] = cells.tile[cell]
    np.testing.assert_array_equal(seen, tiles.tiles_of(np.arange(size)))
    np.testing.assert_array_equal(np.bincount(cells.runs()[0], cells.runs()[2], cells.num), cells.size)
    assert (np.diff(cells.position) > 0).all()


def test_rectangles__rows_split_over_two_tiles__one_each() -> None:
    begin = np.arange(10).repeat(2) * 9 + np.tile([0, 5], 10)
    tiles = TileMapping(90, begin, np.tile([0, 1], 10).astype(np.int32))
    cells = rectangles_of(BlockGrid(((0, 1), (1, 2)), (10, 9)), tiles)
    np.testing.assert_array_equal(cells.column, [0, 5])
    np.testing.assert_array_equal(cells.num_columns, [5, 4])
    np.testing.assert_array_equal(cells.num_rows, [10, 10])


def test_collapse__patterns__join_only_what_all_agree_on() -> None:
    grid = collapse((2, 1, 3, 4, 5), [(False, True, True, True, False)])
    assert grid.extents == (2, 12, 5)
    assert collapse((2, 3), []).extents == (6,)


@given(st.lists(st.tuples(st.integers(0, 40), st.integers(0, 19)), min_size=1, max_size=6))
def test_flat_regions__any_ranges__hold_the_elements_in_order(ranges: list[tuple[int, int]]) -> None:
    graph = Graph(system_of(8))
    view = graph.variable(f32, (5, 12), name="x").T.flatten()
    begin = np.array([b for b, _ in ranges], np.int64)
    length = np.array([n for _, n in ranges], np.int64)
    regions = flat_regions(view, begin, length)
    addresses = view.addresses()
    for i, (b, n) in enumerate(ranges):
        span = slice(regions.ptr[i], regions.ptr[i + 1])
        pieces = [np.arange(a, a + k) for a, k in zip(regions.begin[span], regions.length[span], strict=True)]
        np.testing.assert_array_equal(np.concatenate(pieces) if pieces else [], addresses[b : b + n])


@given(st.lists(st.integers(1, 50), min_size=1, max_size=5), st.integers(1, 7), st.integers(1, 4))
def test_split_evenly__ranges__parts_differ_by_a_grain(totals: list[int], parts: int, grain: int) -> None:
    total = np.array(totals, np.int64)
    entry, begin, length = split_evenly(total, np.full(len(total), parts), grain)
    for i, n in enumerate(totals):
        mine = entry == i
        assert length[mine].sum() == n
        np.testing.assert_array_equal(begin[mine], np.cumsum(length[mine]) - length[mine])
        assert length[mine].max() - length[mine][:-1].min(initial=length[mine].max()) <= grain


def test_duplicate__contents__are_copied() -> None:
    bench = Bench(8)
    x = bench.tensor(np.arange(24.0).reshape(2, 12), "f32", "activations")
    copy = duplicate(bench.graph, x, bench.prog)
    np.testing.assert_array_equal(bench.run(copy)[0], bench.data[x])
    np.testing.assert_array_equal(copy.mapping.tile, x.mapping.tile)


def test_map_tensor_linearly_with_offset__last_tile__wraps_around() -> None:
    graph = Graph(system_of(4))
    x = map_tensor_linearly_with_offset(graph, graph.variable(f32, (128,), name="x"), 3)
    assert list(x.mapping.tile) == [3, 0, 1, 2]


class _Kind(Enum):
    ADD = 1


def test_template_vertex__parameters_of_all_kinds__are_spelt_as_poplibs_does() -> None:
    assert (
        template_vertex("popops::Reduce", _Kind.ADD, f16, f32, False, 4)
        == "popops::Reduce<_Kind::ADD,half,float,false,4>"
    )
    assert template_vertex("popnn::Loss") == "popnn::Loss"


def test_camel_case_names__are_the_same_functions() -> None:
    assert poputil.mapTensorLinearly is map_tensor_linearly  # type: ignore[attr-defined]
    assert poputil.createOutputLike is create_output_like  # type: ignore[attr-defined]


@given(st.lists(st.tuples(st.integers(0, 59), st.integers(0, 60)), min_size=1, max_size=4), st.integers(1, 40))
def test_flat_regions__ranges_that_many_vertices_read__show_each_its_own(
    ranges: list[tuple[int, int]], times: int
) -> None:
    graph = Graph(system_of(8))
    view = graph.variable(f32, (6, 10)).transpose().flatten()
    begin, length = (np.array(n, dtype=np.int64) for n in zip(*ranges * times, strict=True))
    length = np.minimum(length, view.size - begin)
    found = flat_regions(view, begin, length)
    addresses = view.addresses().reshape(-1)
    for number, (first, size) in enumerate(zip(begin, length, strict=True)):
        low, high = found.ptr[number : number + 2]
        runs = zip(found.begin[low:high].tolist(), found.length[low:high].tolist(), strict=True)
        shown = [address for start, run in runs for address in range(start, start + run)]
        assert shown == addresses[first : first + size].tolist()
