"""Slices and updates at an offset that is data, against NumPy's slices."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from poplibs_kit import Bench, exact_values, ran

from abele.errors import (
    ApplicationRuntimeError,
    ConstantWriteError,
    InvalidOptionError,
    TensorError,
    TypeMismatchError,
)
from abele.graph import Execute, LibraryCall, Tensor, concat
from abele.numerics import as_element_type
from abele.poplibs.popops import slicing
from abele.poplibs.poputil import map_tensor_linearly
from support.examples import examples

RNG = np.random.default_rng(3)
values = partial(exact_values, RNG)
TYPES = ["f32", "f16", "bf16", "i32", "u32", "i16", "u16", "u8", "i8", "bool", "i64"]


def offset_of(bench: Bench, *at: int, dtype: str = "u32") -> Tensor:
    """A tensor that holds an offset."""
    return bench.tensor(np.array(at).astype(as_element_type(dtype).np), dtype, 0)


def window(at: Any, dims: Any, sizes: Any, rank: int) -> tuple[slice, ...]:
    """The index of a window in NumPy."""
    found = [slice(None)] * rank
    for start, dim, size in zip(at, dims, sizes, strict=True):
        found[dim] = slice(start, start + size)
    return tuple(found)


CASES = [
    ((9, 20), (0,), (1,), (4,)),
    ((9, 20), (0,), (3,), (6,)),
    ((9, 20), (1,), (1,), (19,)),
    ((9, 20), (1,), (7,), (2,)),
    ((6, 5, 8), (1,), (2,), (3,)),
    ((6, 5, 8), (0, 2), (2, 3), (1, 5)),
    ((6, 5, 8), (2, 0, 1), (1, 2, 3), (7, 4, 2)),
    ((50,), (0,), (11,), (30,)),
    ((1, 7), (0,), (1,), (0,)),
    ((5, 7), (0, 1), (5, 7), (0, 0)),
]


@pytest.mark.parametrize("tiles", [4, 64])
@pytest.mark.parametrize("layout", ["linear", 1, "sliceable"])
@pytest.mark.parametrize(("shape", "dims", "sizes", "at"), CASES)
def test_dynamic_slice__any_window__is_numpys_slice(
    tiles: int, layout: Any, shape: Any, dims: Any, sizes: Any, at: Any
) -> None:
    bench, data, piece = Bench(tiles), values(shape), None
    index = window(at, dims, sizes, len(shape))
    if layout == "sliceable":
        tensor = slicing.create_sliceable_tensor(bench.graph, "f32", shape, dims, sizes)
        bench.data[tensor] = data
    else:
        tensor = bench.tensor(data, layout=layout)
    offset = offset_of(bench, *at)
    out = slicing.dynamic_slice(bench.graph, tensor, offset, dims, sizes, bench.prog)
    new = values(out.shape)
    piece = bench.tensor(new)
    slicing.dynamic_update(bench.graph, tensor, piece, offset, dims, sizes, bench.prog)
    sliced, updated = ran(bench, out, tensor)
    np.testing.assert_array_equal(sliced, data[index])
    wanted = data.copy()
    wanted[index] = new
    np.testing.assert_array_equal(updated, wanted)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("dim", [0, 1])
def test_dynamic_slice__any_type__copies_bits(dtype: str, dim: int) -> None:
    bench, data = Bench(8), values((9, 10), dtype)
    tensor, offset = bench.tensor(data, dtype), offset_of(bench, 3)
    out = slicing.dynamic_slice(bench.graph, tensor, offset, (dim,), (2,), bench.prog)
    new = values(out.shape, dtype)
    slicing.dynamic_update(bench.graph, tensor, bench.tensor(new, dtype), offset, (dim,), (2,), bench.prog)
    sliced, updated = ran(bench, out, tensor)
    index = window((3,), (dim,), (2,), 2)
    np.testing.assert_array_equal(sliced, data[index])
    data[index] = new
    np.testing.assert_array_equal(updated, data)


@pytest.mark.parametrize("dtype", ["u32", "i32"])
@pytest.mark.parametrize("at", [5, 7, 8, 9, 2**31, -1])
@pytest.mark.parametrize(
    "options",
    [{}, {"remapOutOfBoundIndices": True}, {"remap_out_of_bound_indices": "true", "paddingIndexUsed": "true"}],
)
def test_dynamic_slice__offset_out_of_range__follows_the_options(dtype: str, at: int, options: Any) -> None:
    if not np.iinfo(as_element_type(dtype).np).min <= at <= np.iinfo(as_element_type(dtype).np).max:
        pytest.skip("the type lacks the number")
    bench, data, new = Bench(4), values((8, 6)), values((2, 6))
    tensor, offset = bench.tensor(data), offset_of(bench, at, dtype=dtype)
    out = slicing.dynamic_slice(bench.graph, tensor, offset, (0,), (2,), bench.prog, options=options)
    slicing.dynamic_update(bench.graph, tensor, bench.tensor(new), offset, (0,), (2,), bench.prog, options=options)
    if options and not 0 <= at <= 6 and not (len(options) == 2 and at == 8):
        at = 0
    wanted, after = np.zeros((2, 6), np.float32), data.copy()
    for row in range(2):
        if 0 <= at + row < 8:
            wanted[row] = data[at + row]
            after[at + row] = new[row]
    sliced, updated = ran(bench, out, tensor)
    np.testing.assert_array_equal(sliced, wanted)
    np.testing.assert_array_equal(updated, after)


@pytest.mark.parametrize(
    ("at", "padding", "stops"), [(6, False, False), (7, False, True), (8, False, True), (8, True, False)]
)
def test_dynamic_slice__validated_offset__stops_the_program_out_of_range(at: int, padding: bool, stops: bool) -> None:
    bench = Bench(4)
    tensor, offset = bench.tensor(values((8, 6))), offset_of(bench, 1, at)
    options = {"validateIndices": True, "paddingIndexUsed": padding}
    out = slicing.dynamic_slice(bench.graph, tensor, offset, (1, 0), (2, 2), bench.prog, options=options)
    for mode in ("tiles", "native"):
        if stops:
            with pytest.raises(ApplicationRuntimeError, match=r"offset out of range: a window of \[2, 2\] along dims"):
                bench.run(out, mode=mode)
        else:
            bench.run(out, mode=mode)


def test_dynamic_slice__negative_offset_validated__stops_the_program() -> None:
    bench = Bench(4)
    tensor, offset = bench.tensor(values((8, 6))), offset_of(bench, -1, dtype="i32")
    new, options = bench.tensor(values((1, 6))), {"validateIndices": True}
    slicing.dynamic_update(bench.graph, tensor, new, offset, (0,), (1,), bench.prog, options=options)
    with pytest.raises(ApplicationRuntimeError, match="offset out of range"):
        bench.run(tensor)


def test_dynamic_slice__big_chip__sends_the_offset_alone() -> None:
    bench, data = Bench(1472), values((40, 1472 * 8))
    tensor = slicing.create_sliceable_tensor(bench.graph, "f32", data.shape, (0,), (1,))
    bench.data[tensor] = data
    offset = offset_of(bench, 17)
    out = slicing.dynamic_slice(bench.graph, tensor, offset, (0,), (1,), bench.prog)
    mapping = bench.graph.mapping_of(out)
    assert len(set(mapping.tile.tolist())) == 1472
    np.testing.assert_array_equal(ran(bench, out)[0], data[17:18])
    steps = bench.executable.report.steps
    exchanged = int(np.asarray(steps["exchanged_bytes"]).sum())
    assert exchanged <= 1472 * 4


def test_dynamic_slice__one_region_a_tile__costs_what_popops_says() -> None:
    bench = Bench(4)
    tensor = slicing.create_sliceable_tensor(bench.graph, "f16", (10, 4 * 96), (0,), (3,))
    slicing.dynamic_slice(bench.graph, tensor, offset_of(bench, 2), (0,), (3,), bench.prog)
    compute = bench.executable.report.steps
    assert max(compute["compute_cycles"]) == 25 + 6 * (39 + (24 + 2 * (16 // 4)) * 3)


def test_dynamic_slice__many_regions_a_tile__costs_what_popops_says_of_2d_vertices() -> None:
    bench = Bench(4)
    tensor = bench.graph.variable("f32", (4 * 60, 10, 2), name="t").map_linear(1, 20)
    slicing.dynamic_slice(bench.graph, tensor, offset_of(bench, 2), (1,), (3,), bench.prog)
    table = bench.executable.report.steps
    assert max(table["compute_cycles"]) == 6 * (27 + 10 * ((29 + 1) * 3 + 13))
    assert max(table["num_vertices"]) == 4 * 6


@pytest.mark.parametrize("held", [True, False])
def test_dynamic_slice__virtual_graph__stays_on_its_tiles(held: bool) -> None:
    bench, data = Bench(8), values((6, 30))
    graph = bench.graph.virtual(tiles=[6, 1, 2])
    if held:
        tensor = slicing.create_sliceable_tensor(graph, "f32", data.shape, (0,), (1,))
    else:
        tensor = map_tensor_linearly(graph, graph.variable("f32", data.shape, name="t"), 1, 1)
    bench.data[tensor] = data
    offset = graph.map(graph.variable("u32", (1,), name="offset"), 0)
    bench.data[offset] = np.array([4], np.uint32)
    out = slicing.dynamic_slice(graph, tensor, offset, (0,), (2,), bench.prog)
    assert set(bench.graph.mapping_of(out).tile.tolist()) <= {6, 1, 2}
    np.testing.assert_array_equal(ran(bench, out)[0], data[4:6])


def test_create_sliceable_from_slice__of_a_slice__keeps_what_is_sliced_on_one_tile() -> None:
    bench = Bench(8)
    piece = bench.tensor(values((2, 64)))
    made = slicing.create_sliceable_tensor_from_slice(bench.graph, piece, (0,), (5,))
    assert made.shape == (10, 64)
    tiles = [bench.graph.mapping_of(made[i]).tile.tolist() for i in range(10)]
    assert all(t == tiles[0] for t in tiles)
    out = slicing.create_dynamic_slice_output(bench.graph, made, (0,), (2,))
    assert bench.graph.mapping_of(out[0]).tile.tolist() == tiles[0]


@examples(4)
@given(st.data())
def test_dynamic_slice__drawn_shapes__are_the_same_on_any_number_of_tiles(data: st.DataObject) -> None:
    shape = tuple(data.draw(st.lists(st.integers(1, 6), min_size=1, max_size=4)))
    dims = tuple(data.draw(st.permutations(range(len(shape))))[: data.draw(st.integers(1, len(shape)))])
    sizes = tuple(data.draw(st.integers(1, shape[d])) for d in dims)
    at = tuple(data.draw(st.integers(0, shape[d] - n)) for d, n in zip(dims, sizes, strict=True))
    array = values(shape)
    for tiles in (1, 5, 64):
        bench = Bench(tiles)
        tensor = bench.tensor(array)
        tensor.map_linear(1, 1)
        out = slicing.dynamic_slice(bench.graph, tensor, offset_of(bench, *at), dims, sizes, bench.prog)
        np.testing.assert_array_equal(bench.run(out)[0], array[window(at, dims, sizes, len(shape))])


def test_dynamic_slice__wrong_arguments__are_refused() -> None:
    bench = Bench(4)
    tensor, offset, half = bench.tensor(values((8, 6))), offset_of(bench, 1), bench.tensor(values((1, 6)), "f16")
    graph, prog = bench.graph, bench.prog
    with pytest.raises(TensorError, match=r"no dimension 2 in shape \[8, 6\]"):
        slicing.dynamic_slice(graph, tensor, offset, (2,), (1,), prog)
    with pytest.raises(TensorError, match="slices of 9 along dimension 0"):
        slicing.dynamic_slice(graph, tensor, offset, (0,), (9,), prog)
    with pytest.raises(TensorError, match=r"the offset .*v1.* has shape \[1\], not \[2\]"):
        slicing.dynamic_slice(graph, tensor, offset, (0, 1), (1, 1), prog)
    with pytest.raises(TypeMismatchError, match=r"the offset .* is f32, it must be u32 or i32"):
        slicing.dynamic_slice(graph, tensor, tensor[0, :1], (0,), (1,), prog)
    with pytest.raises(TypeMismatchError, match=r"the slice .*v2.* is f16, .*v0.* is f32"):
        slicing.dynamic_update(graph, tensor, half, offset, (0,), (1,), prog)
    with pytest.raises(TensorError, match=r"the slice .* has shape \[1, 6\], not \[2, 6\]"):
        slicing.dynamic_update(graph, tensor, half, offset, (0,), (2,), prog)
    with pytest.raises(InvalidOptionError, match="has no option 'validateIndexes'"):
        slicing.dynamic_slice(graph, tensor, offset, (0,), (1,), prog, options={"validateIndexes": True})
    with pytest.raises(TensorError, match="slices along dims"):
        slicing.create_sliceable_tensor_from_slice(graph, tensor, (0,), (0,))


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("dim", [0, 1])
def test_dynamic_slice__concatenated_tensor__reads_and_writes_both_parts(axis: int, dim: int) -> None:
    bench, data = Bench(8), values((2, 6, 10))
    parts = [bench.tensor(d) for d in data]
    whole, wanted = concat(parts, axis), np.concatenate(list(data), axis)
    offset = offset_of(bench, 4)
    out = slicing.dynamic_slice(bench.graph, whole, offset, (dim,), (2,), bench.prog)
    new = values(out.shape)
    slicing.dynamic_update(bench.graph, whole, bench.tensor(new), offset, (dim,), (2,), bench.prog)
    sliced, *updated = ran(bench, out, *parts)
    index = window((4,), (dim,), (2,), 2)
    np.testing.assert_array_equal(sliced, wanted[index])
    wanted[index] = new
    np.testing.assert_array_equal(np.concatenate(updated, axis), wanted)


def test_dynamic_slice__activations__are_sliced_along_every_dimension() -> None:
    bench, data = Bench(8), values((2, 32, 6), "f16")
    tensor, offset = bench.tensor(data, layout="activations"), offset_of(bench, 1)
    made = [slicing.dynamic_slice(bench.graph, tensor, offset, (d,), (1,), bench.prog) for d in range(3)]
    for dim, got in enumerate(ran(bench, *made)):
        np.testing.assert_array_equal(got, data.take([1], dim))


def test_dynamic_slice__eight_bit_floats_and_empty_tensors__have_slices() -> None:
    bench, data = Bench(8), np.arange(60).reshape(6, 10) % 7
    tensor = bench.graph.variable("f8_143", (6, 10), name="t").map_linear()
    bench.data[tensor] = data.astype(as_element_type("f8_143").np)
    offset, empty = offset_of(bench, 2), bench.graph.variable("f32", (6, 0), name="empty").map_linear()
    out = slicing.dynamic_slice(bench.graph, tensor, offset, (0,), (2,), bench.prog)
    assert slicing.dynamic_slice(bench.graph, empty, offset, (0,), (2,), bench.prog).shape == (2, 0)
    np.testing.assert_array_equal(bench.run(out)[0].astype(float), data[2:4])


def test_dynamic_update__constant__is_refused() -> None:
    bench = Bench(4)
    fixed = bench.graph.constant("f32", (6, 4), np.zeros((6, 4)), name="fixed")
    piece, offset = bench.tensor(values((1, 4))), offset_of(bench, 0)
    with pytest.raises(ConstantWriteError, match=r"writes to constant 'fixed'"):
        slicing.dynamic_update(bench.graph, fixed, piece, offset, (0,), (1,), bench.prog)


def test_dynamic_slice__of_indices_stored_in_the_middle__is_one_copy_on_the_host() -> None:
    bench, data = Bench(64), values((4, 8, 30, 16))
    tensor, offset = bench.tensor(data).transpose((2, 1, 0, 3)).reshape((30, 8, 64)), offset_of(bench, 17)
    made = bench.graph.clone(tensor[0], name="one").expand_dims(0)
    slicing.dynamic_slice_with_output(bench.graph, made, tensor, offset, (0,), (1,), bench.prog)
    slicing.dynamic_update(bench.graph, tensor, made, offset, (0,), (1,), bench.prog)
    calls = [step for step in bench.prog.steps if isinstance(step, LibraryCall)]
    hosts = [step for call in calls if call.host_body is not None for step in call.host_body.steps]
    assert [host.compute_set.num_vertices for host in hosts if isinstance(host, Execute)] == [1, 1]
    part, whole = ran(bench, made, tensor)
    expected = data.transpose((2, 1, 0, 3)).reshape((30, 8, 64))
    np.testing.assert_array_equal(part, expected[17:18])
    np.testing.assert_array_equal(whole, expected)
