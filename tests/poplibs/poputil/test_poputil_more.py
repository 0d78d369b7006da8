"""Intervals, groupings, mappings by use, IPUs, functions with parameters."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from poplibs_kit import Bench, system_of

from abele.errors import TensorError, TileMappingError, TypeMismatchError
from abele.graph import Graph, Sequence, Tensor
from abele.numerics import f16, f32
from abele.poplibs import popops, poputil
from abele.poplibs.poputil import graphfn
from abele.poplibs.poputil.mapping import map_small
from support.examples import examples

REGIONS = st.lists(st.tuples(st.integers(0, 60), st.integers(0, 60)).map(lambda p: (min(p), max(p))), max_size=6)


@given(regions=REGIONS, grain=st.integers(1, 7), parts=st.integers(1, 8), least=st.integers(0, 20))
@examples(12)
def test_split_regions__any__keeps_order_and_elements(
    regions: list[tuple[int, int]], grain: int, parts: int, least: int
) -> None:
    split = poputil.split_regions(regions, grain, parts, least)
    flat = [e for part in split for i in part for e in range(*i)]
    assert flat == [e for r in regions for e in range(*r)]
    sizes = [poputil.interval_sequence_num_elements(p) for p in split]
    assert len(split) <= parts
    assert all(s % grain == 0 for s in sizes[:-1])
    assert not sizes or max(sizes) - min(sizes[:-1], default=max(sizes)) <= grain
    assert all(s >= least - grain for s in sizes[:-1])


@given(regions=REGIONS)
@examples(8)
def test_merge_adjacent_regions__any__is_the_union(regions: list[tuple[int, int]]) -> None:
    merged = poputil.merge_adjacent_regions(regions)
    assert {e for i in merged for e in range(*i)} == {e for r in regions for e in range(*r)}
    assert all(a.end < b.begin for a, b in pairwise(merged))


def test_split_regions__largest_part__makes_more_parts_and_workers_share() -> None:
    assert [poputil.interval_sequence_num_elements(p) for p in poputil.split_regions([(0, 100)], 4, 2, 0, 20)] == [
        20
    ] * 5
    shares = poputil.split_regions_between_workers(Graph(system_of(4)), [(0, 10), (20, 34)], 2)
    assert [poputil.interval_sequence_num_elements(p) for p in shares] == [4] * 6
    with pytest.raises(TensorError, match="parts of 3 elements at the most do not hold a grain of 4"):
        poputil.split_regions([(0, 9)], 4, 2, 0, 3)


@given(shape=st.lists(st.integers(1, 6), min_size=1, max_size=4), data=st.data())
@examples(6)
def test_flatten_index__any__is_numpys_and_unflattens(shape: list[int], data: st.DataObject) -> None:
    index = [data.draw(st.integers(0, n - 1)) for n in shape]
    flat = poputil.flatten_index(shape, index)
    assert flat == np.ravel_multi_index(index, shape)
    assert list(poputil.unflatten_index(shape, flat)) == index


@pytest.mark.parametrize(("total", "parts"), [(10, 4), (12, 4), (3, 5), (0, 2)])
def test_balanced_partition__parts__add_up(total: int, parts: int) -> None:
    fuller, count = poputil.balanced_partition(total, parts)
    assert count * fuller + (parts - count) * max(fuller - 1, 0) == total
    with pytest.raises(TensorError, match="cannot be cut into 0 parts"):
        poputil.balanced_partition(total, 0)


def test_factor_dims__and_back__is_the_same_view() -> None:
    bench = Bench(4)
    x = bench.tensor(np.arange(2 * 6 * 8).reshape(2, 6, 8), "i32")
    factored = poputil.factor_dims(x, [3, 4], 1)
    assert factored.shape == (2, 2, 2, 3, 4)
    wanted = bench.data[x].reshape(2, 2, 3, 2, 4).transpose(0, 1, 3, 2, 4)
    np.testing.assert_array_equal(factored.addresses() - x.addresses().min(), wanted)
    assert poputil.unfactor_dims(factored, 2, 1).is_same_view(x)
    with pytest.raises(TensorError, match="the factor 5 does not divide"):
        poputil.factor_dims(x, [5])


def test_groupings__activations__channels_innermost() -> None:
    bench = Bench(4)
    x = bench.tensor(np.zeros((2, 32, 3, 3)), "f16", "activations")
    assert poputil.detect_dim_groupings(bench.graph, x)[0] == (1, 16)
    assert poputil.detect_innermost_grouping(bench.graph, x) == 1
    linear = bench.tensor(np.zeros((3, 24)), "f32", 0)
    assert poputil.detect_innermost_grouping(bench.graph, linear) == 24


def test_use_tracker__uses__decide_the_tiles() -> None:
    bench = Bench(8)
    x = bench.graph.variable(f32, (64,), name="x")
    tracker = poputil.TensorUseTracker(8)
    assert not tracker.map_tensors_by_use(bench.graph, x)
    tracker.add(5, x[:16])
    for tile in (1, 2):
        tracker.add(tile, x[16:48])
    assert tracker.map_tensors_by_use(bench.graph, x, grain=4, min_elements=4)
    tiles = bench.graph.mapping_of(x).tiles_of(np.arange(64))
    assert set(tiles[:16]) == {5}
    assert np.bincount(tiles[16:], minlength=3)[1:3].tolist() == [24, 24]
    with pytest.raises(TileMappingError, match=r"tile 9 uses .* but there are 8 tiles"):
        tracker.add(9, x)


def test_ipus__clone_and_copy__lie_on_the_other_one() -> None:
    bench = Bench(4)
    bench.graph = Graph(replace(system_of(4), num_ipus=2))
    x = bench.graph.variable(f32, (4, 8), name="x").map_rows(range(4))
    bench.data[x] = np.arange(32, dtype=np.float32).reshape(4, 8)
    made = poputil.copy_to_ipu(bench.graph, x, bench.prog, 1)
    assert bench.graph.mapping_of(made[:, 0]).tile.tolist() == [4, 5, 6, 7]
    np.testing.assert_array_equal(bench.run(made)[0], bench.data[x])
    assert poputil.dim_is_split_over_tiles(bench.graph, x, 0)
    assert not poputil.dim_is_split_over_tiles(bench.graph, x, 1)
    assert not poputil.dim_is_split_over_ipus(bench.graph, x, 0)
    with pytest.raises(TensorError, match="no IPU 2 among 2"):
        poputil.clone_to_ipu(bench.graph, x, 2)


def test_clone_n_and_broadcast_operand__lie_like_what_they_go_with() -> None:
    bench = Bench(16)
    x = bench.tensor(np.zeros((4, 64, 5, 5)), "f32", "activations")
    many = poputil.clone_n(bench.graph, x, 3)
    assert many.shape == (3, 4, 64, 5, 5)
    np.testing.assert_array_equal(bench.graph.mapping_of(many[2]).tile, bench.graph.mapping_of(x).tile)
    bias = poputil.create_broadcast_operand(bench.graph, x, f32, 1)
    assert bias.shape == (64,)
    assert bench.graph.mapping_of(bias).is_complete
    assert len(np.unique(bench.graph.mapping_of(bias).tile)) > 4


@given(size=st.integers(1, 5000), tiles=st.sampled_from([1, 6, 64]))
@examples(20)
def test_map_small__any_size__is_the_linear_mapping_from_another_tile_on(size: int, tiles: int) -> None:
    graph = Graph(system_of(tiles))
    made = [map_small(graph, graph.variable(f16, (size,), name=name)) for name in "ab"]
    linear = graph.map_linear(graph.variable(f16, (size,), name="c")).mapping
    for each in made:
        # Of one shape they lie alike, in as many chunks of as many elements as on the first tiles.
        assert np.array_equal(each.mapping.begin, linear.begin)
        first = int(each.mapping.tile[0])
        assert np.array_equal(each.mapping.tile, (linear.tile + first) % tiles)
        assert first == int(made[0].mapping.tile[0])
        assert first % 2 == 0


def test_map_small__shapes__begin_all_over_the_tiles() -> None:
    graph = Graph(system_of(64))
    first = {int(map_small(graph, graph.variable(f16, (n,), name="v")).mapping.tile[0]) for n in range(1, 200)}
    assert len(first) > 25


def test_choose_mapping_offset__shapes__spread() -> None:
    offsets = {poputil.choose_mapping_offset(1472, (n, 3)) for n in range(200)}
    assert len(offsets) > 150
    assert poputil.choose_mapping_offset(7, (3,)) == poputil.choose_mapping_offset(7, [3])
    with pytest.raises(TileMappingError, match="one of 0 tiles"):
        poputil.choose_mapping_offset(0, (3,))


@pytest.mark.parametrize(("value", "accurate"), [(0.5, True), (0.1, False), (1e6, False), (1e-7, False), (0.0, True)])
def test_half__accuracy__is_relative(value: float, accurate: bool) -> None:
    assert poputil.check_accuracy_when_cast(value, f32, f16, 1e-6) is accurate
    assert poputil.check_accuracy_when_cast(value, f16, f32, 1e-6)
    with np.errstate(over="ignore"):
        assert poputil.cast_to_device_half_value(value) == float(np.float16(value))


def test_graphfn__called_twice__holds_one_body() -> None:
    bench = Bench(4)
    a, b = bench.tensor([1.0, 2.0], "f32"), bench.tensor([10.0, 20.0], "f32")
    out = bench.tensor([0.0, 0.0], "f32")

    def body(args: list[Tensor | None], prog: Sequence) -> None:
        popops.add_with_output(bench.graph, args[0], 1.0, args[1], prog)  # type: ignore[arg-type]
        args[2] = popops.mul(bench.graph, args[0], 2.0, prog)  # type: ignore[arg-type]

    sig = [graphfn.input_(a), graphfn.output(out), graphfn.created()]
    function = graphfn.VoidFunction(bench.graph, sig, body)
    first: list[Tensor | None] = [a, out, None]
    second: list[Tensor | None] = [b, b, None]
    function(first, bench.prog)
    function(second, bench.prog)
    results = bench.run(out, first[2], b, second[2])  # type: ignore[arg-type]
    assert [r.tolist() for r in results] == [[2, 3], [2, 4], [11, 21], [20, 40]]
    assert sum(cs.debug.name.startswith("add") for cs in bench.graph.compute_sets) == 1
    with pytest.raises(TensorError, match=r"of shape \[1\] for parameter 'input' of shape \[2\]"):
        function([a[:1], out, None], bench.prog)
    with pytest.raises(TypeMismatchError, match=r"is i32, parameter 'input' f32"):
        function([bench.tensor([1, 2], "i32"), out, None], bench.prog)
    with pytest.raises(TensorError, match="takes 3 tensors, got 1"):
        function([a], bench.prog)


@pytest.mark.parametrize("inlined", [True, False])
def test_graphfn__tensor_and_program_functions__give_results(inlined: bool) -> None:
    bench = Bench(4)
    a = bench.tensor([1.0, 2.0], "f32")
    square = graphfn.TensorFunction(
        bench.graph,
        [graphfn.input_(a)],
        lambda args, prog: popops.square(bench.graph, args[0], prog),  # type: ignore[arg-type]
        inlined,
    )

    def doubled(args: list[Tensor | None]) -> Sequence:
        prog = Sequence()
        popops.mul_in_place(bench.graph, args[0], 2.0, prog)  # type: ignore[arg-type]
        return prog

    double = graphfn.ProgramFunction(bench.graph, [graphfn.inout(a)], doubled, inlined)
    once = square([a], bench.prog)
    bench.prog.add(double([a]))
    twice = square([a], bench.prog)
    assert [r.tolist() for r in bench.run(once, twice, a)] == [[1, 4], [4, 16], [2, 4]]
