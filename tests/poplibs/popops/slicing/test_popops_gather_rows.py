"""Elements of rows by index, and sequences of rows, against loops in NumPy."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from poplibs_kit import Array, Bench, exact_values, ran

from abele.errors import TensorError, TypeMismatchError
from abele.numerics import as_element_type
from abele.poplibs.popops import MASKED_LABEL_CODE, slicing
from abele.poplibs.poputil import map_tensor_linearly
from support.examples import examples

RNG = np.random.default_rng(5)
values = partial(exact_values, RNG)
TYPES = ["f32", "f16", "bf16", "i32", "u8", "i8", "bool", "i16"]


@pytest.mark.parametrize("tiles", [4, 64, 1472])
@pytest.mark.parametrize("shape", [(12, 7), (3, 400), (1, 1), (100, 5)])
@pytest.mark.parametrize("dtype", ["u32", "i32"])
def test_select_scalar_from_rows__any_layout__is_the_element_of_each_row(tiles: int, shape: Any, dtype: str) -> None:
    bench, data = Bench(tiles), values(shape)
    index = RNG.integers(0, shape[1], shape[0]).astype(np.int64)
    index[0] = MASKED_LABEL_CODE
    if shape[0] > 2:
        index[2] = shape[1]
    given = index.astype(np.uint32).view(as_element_type(dtype).np)
    params, indices = bench.tensor(data), bench.tensor(given)
    out = slicing.select_scalar_from_rows(bench.graph, params, indices, bench.prog)
    slicing.update_scalar_in_rows(bench.graph, params, indices, bench.prog)
    wanted, after = np.empty(shape[0], np.float32), data.copy()
    for row, at in enumerate(index):
        if at == MASKED_LABEL_CODE:
            wanted[row] = 0
        elif at >= shape[1]:
            wanted[row] = after[row] = np.nan
        else:
            wanted[row] = data[row, at]
            after[row, at] -= 1
    selected, updated = ran(bench, out, params)
    np.testing.assert_array_equal(selected, wanted)
    np.testing.assert_array_equal(updated, after)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("shape", [(6, 5), (2, 300)])
def test_select_scalar_from_rows__any_type__copies_bits(dtype: str, shape: Any) -> None:
    bench, data = Bench(8), values(shape, dtype)
    index = RNG.integers(0, shape[1], shape[0]).astype(np.uint32)
    out = slicing.select_scalar_from_rows(bench.graph, bench.tensor(data, dtype), bench.tensor(index), bench.prog)
    np.testing.assert_array_equal(ran(bench, out)[0], data[np.arange(shape[0]), index])


def test_select_scalar_from_rows__wrong_arguments__are_refused() -> None:
    bench = Bench(4)
    params, few = bench.tensor(values((4, 5))), bench.tensor(np.zeros(3, np.uint32))
    with pytest.raises(TensorError, match=r"indices .*v1.* of shape \[3\] do not go with .*v0.* of shape \[4, 5\]"):
        slicing.select_scalar_from_rows(bench.graph, params, few, bench.prog)
    with pytest.raises(TypeMismatchError, match=r"the indices .* are f32, they must be u32 or i32"):
        slicing.update_scalar_in_rows(bench.graph, params, params[:, 0], bench.prog)
    whole = bench.tensor(values((3, 5), "i32"))
    with pytest.raises(TypeMismatchError, match=r"is i32, its elements must be floats"):
        slicing.update_scalar_in_rows(bench.graph, whole, few, bench.prog)


def sliced(source: Array, target: Array, numbers: Any, zero: bool) -> Array:
    """The definition, row by row."""
    out = np.zeros_like(target) if zero else target.copy()
    for n, a, b in zip(*numbers, strict=True):
        for k in range(int(n)):
            if a + k < len(source) and b + k < len(target):
                out[b + k] = source[a + k]
    return out


@pytest.mark.parametrize("tiles", [4, 64, 1472])
@pytest.mark.parametrize("static", [False, True])
@pytest.mark.parametrize("zero", [False, True])
@pytest.mark.parametrize("inner", [(), (9,), (3, 40)])
def test_sequence_slice__any_layout__moves_the_sequences(tiles: int, static: bool, zero: bool, inner: Any) -> None:
    bench, numbers = Bench(tiles), ([3, 1, 0, 4], [0, 5, 2, 8], [7, 0, 3, 2])
    source, target = values((12, *inner)), values((10, *inner))
    at, to = bench.tensor(source), bench.tensor(target)
    given: Any = numbers if static else [bench.tensor(np.array(n, np.uint32)) for n in numbers]
    slicing.sequence_slice(bench.graph, at, to, *given, zero, bench.prog)
    np.testing.assert_array_equal(ran(bench, to)[0], sliced(source, target, numbers, zero))


@pytest.mark.parametrize("dtype", TYPES)
def test_sequence_slice__any_type__copies_bits(dtype: str) -> None:
    bench, source, target = Bench(4), values((9, 20), dtype), values((9, 20), dtype)
    numbers = ([2, 3], [6, 0], [1, 4])
    at, to = bench.tensor(source, dtype), bench.tensor(target, dtype)
    given = [bench.tensor(np.array(n, np.int32)) for n in numbers]
    slicing.sequence_slice(bench.graph, at, to, *given, True, bench.prog)
    np.testing.assert_array_equal(ran(bench, to)[0], sliced(source, target, numbers, True))


@examples(4)
@given(st.lists(st.tuples(st.integers(0, 6), st.integers(0, 12)), max_size=4), st.booleans())
def test_sequence_slice__drawn_lengths__pack_and_pass_over_what_is_outside(pairs: Any, zero: bool) -> None:
    lengths = [n for n, _ in pairs]
    numbers = (lengths, [a for _, a in pairs], [sum(lengths[:i]) for i in range(len(pairs))])
    source, target = values((12, 5)), values((14, 5))
    bench = Bench(5)
    at, to = bench.tensor(source), bench.tensor(target)
    given = [bench.tensor(np.array(n, np.uint32).reshape(len(pairs))) for n in numbers]
    slicing.sequence_slice(bench.graph, at, to, *given, zero, bench.prog)
    np.testing.assert_array_equal(bench.run(to)[0], sliced(source, target, numbers, zero))


def test_sequence_slice__wrong_arguments__are_refused() -> None:
    bench = Bench(4)
    graph, prog = bench.graph, bench.prog
    one, other = bench.tensor(values((4, 5))), bench.tensor(values((4, 6)))
    n = bench.tensor(np.zeros(2, np.uint32))
    with pytest.raises(TensorError, match=r"rows of .*v0.* do not fit .*v1"):
        slicing.sequence_slice(graph, one, other, n, n, n, False, prog)
    with pytest.raises(TensorError, match=r"5 rows from row 0 of .* to row 0 of .* are out of range"):
        slicing.sequence_slice(graph, one, one, [5], [0], [0], False, prog)
    with pytest.raises(TensorError, match="are all tensors or all numbers"):
        slicing.sequence_slice(graph, one, one, n, [0, 1], n, False, prog)
    with pytest.raises(TensorError, match=r"has shape \[1\], not \[2\]"):
        slicing.sequence_slice(graph, one, one, n, n[:1], n, False, prog)
    with pytest.raises(TypeMismatchError, match="must be all u32 or all i32"):
        slicing.sequence_slice(graph, one, one, n, one[0], n, False, prog)


def test_rows__virtual_graph__stay_on_its_tiles() -> None:
    bench, data, index = Bench(8), values((6, 30)), np.array([1, 29, 3, 4, 0, 7], np.uint32)
    graph = bench.graph.virtual(tiles=[6, 1, 2])
    params = map_tensor_linearly(graph, graph.variable("f32", data.shape, name="params"), 1, 1)
    indices = map_tensor_linearly(graph, graph.variable("u32", (6,), name="indices"), 1, 1)
    target = map_tensor_linearly(graph, graph.variable("f32", data.shape, name="target"), 1, 1)
    bench.data |= {params: data, indices: index, target: np.ones_like(data)}
    out = slicing.select_scalar_from_rows(graph, params, indices, bench.prog)
    slicing.sequence_slice(graph, params, target, indices[:1], indices[4:5], indices[2:3], False, bench.prog)
    assert set(bench.graph.mapping_of(out).tile.tolist()) <= {6, 1, 2}
    selected, moved = ran(bench, out, target)
    np.testing.assert_array_equal(selected, data[np.arange(6), index])
    np.testing.assert_array_equal(moved[3], data[0])
    assert (moved[[0, 1, 2, 4, 5]] == 1).all()
