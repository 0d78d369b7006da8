from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from abele.errors import TensorError, TypeMismatchError
from abele.graph import Graph, boxes, concat, rows
from abele.numerics import f16, f32, i32, u32


def graph() -> Graph:
    return Graph("gc200")


def elements(tensor):
    """The addresses that a view shows, through its intervals."""
    begin, length = tensor.intervals()
    parts = [np.arange(b, b + n) for b, n in zip(begin, length, strict=True)]
    return np.concatenate(parts).reshape(tensor.shape) if parts else np.empty(tensor.shape, dtype=np.int64)


@st.composite
def chains(draw):
    """A view and the NumPy array of addresses that it must show, after a random chain of operations."""
    g = graph()
    shapes = draw(st.lists(st.tuples(*[st.integers(1, 5)] * 3), min_size=1, max_size=1))
    shape = shapes[0]
    tensor = g.variable(f32, shape)
    array = np.arange(tensor.size).reshape(shape)
    for _ in range(draw(st.integers(1, 7))):
        tensor, array = draw(st.sampled_from(OPERATIONS))(draw, g, tensor, array)
    return tensor, array


def _slice(draw, _graph, tensor, array):
    if not tensor.ndim:
        return tensor, array
    dim = draw(st.integers(0, tensor.ndim - 1))
    begin = draw(st.integers(0, tensor.shape[dim]))
    end = draw(st.integers(begin, tensor.shape[dim]))
    if begin == end:
        return tensor, array
    return tensor.slice(begin, end, dim), array[(slice(None),) * dim + (slice(begin, end),)]


def _step(draw, _graph, tensor, array):
    if not tensor.ndim:
        return tensor, array
    step = draw(st.sampled_from([2, 3, -1, -2]))
    return tensor[::step], array[::step]


def _transpose(draw, _graph, tensor, array):
    order = draw(st.permutations(range(tensor.ndim)))
    return tensor.transpose(order), array.transpose(order)


def _reshape(draw, _graph, tensor, array):
    size = tensor.size
    first = draw(st.sampled_from([d for d in range(1, size + 1) if size % d == 0]))
    rest = size // first
    second = draw(st.sampled_from([d for d in range(1, rest + 1) if rest % d == 0]))
    shape = (first, second, rest // second)
    return tensor.reshape(shape), array.reshape(shape)


def _flatten(_draw, _graph, tensor, array):
    return tensor.flatten(), array.reshape(-1)


def _broadcast(draw, _graph, tensor, array):
    n = draw(st.integers(1, 2))
    shape = (n, *tensor.shape)
    return tensor.broadcast_to(shape), np.broadcast_to(array, shape)


def _concat(draw, g, tensor, array):
    if not tensor.ndim or tensor.size > 500:
        return tensor, array
    dim = draw(st.integers(0, tensor.ndim - 1))
    other = g.variable(f32, tensor.shape)
    base = other.variables[0].base
    extra = base + np.arange(other.size).reshape(other.shape)
    return concat([tensor, other, tensor], dim), np.concatenate([array, extra, array], axis=dim)


OPERATIONS = [_slice, _step, _transpose, _reshape, _flatten, _broadcast, _concat]


@given(chains())
def test_views__any_chain_of_operations__shows_what_numpy_shows(case):
    tensor, array = case
    assert tensor.shape == array.shape
    np.testing.assert_array_equal(elements(tensor), array)
    np.testing.assert_array_equal(tensor.addresses(), array)


@given(chains(), st.data())
def test_boxes__any_view__list_the_elements_of_each_box(case, data):
    tensor, array = case
    if tensor.ndim == 0:
        return
    n = data.draw(st.integers(1, 4))
    starts, sizes = [], []
    for _ in range(n):
        start = [data.draw(st.integers(0, m - 1)) for m in tensor.shape]
        starts.append(start)
        sizes.append([data.draw(st.integers(1, m - s)) for s, m in zip(start, tensor.shape, strict=True)])
    regions = boxes(tensor, starts, sizes)
    assert regions.num == n
    for i, (start, size) in enumerate(zip(starts, sizes, strict=True)):
        expected = array[tuple(slice(s, s + m) for s, m in zip(start, size, strict=True))].reshape(-1)
        part = slice(regions.ptr[i], regions.ptr[i + 1])
        got = [np.arange(b, b + k) for b, k in zip(regions.begin[part], regions.length[part], strict=True)]
        np.testing.assert_array_equal(np.concatenate(got), expected)


@given(chains())
def test_aliases__any_view__found_exactly_when_an_element_repeats(case):
    tensor, array = case
    assert tensor.contains_aliases == (len(np.unique(array)) < array.size)


def test_strided__channels_view_of_a_grouped_layout__keeps_one_block_with_two_factors():
    t = graph().variable(f32, (4, 2, 9, 9, 16))
    channels = t.transpose(1, 0, 4, 2, 3).reshape(2, 64, 9, 9)
    strided = channels.strided()
    assert strided is not None
    assert strided.factors == (((2, 1296),), ((4, 2592), (16, 1)), ((9, 144),), ((9, 16),))


def test_rows__matrix__one_interval_a_row():
    t = graph().variable(f32, (6, 10))
    regions = rows(t)
    assert regions.num == 6
    assert regions.sizes.tolist() == [10] * 6
    assert regions.counts.tolist() == [1] * 6


def test_concat__same_variable_split_and_joined__is_contiguous():
    t = graph().variable(f32, 10)
    joined = concat([t[:4], t[4:]])
    assert joined.is_contiguous
    assert joined.is_same_view(t)


def test_writable__constants_and_broadcasts__are_not():
    g = graph()
    t = g.variable(f32, (4, 1))
    assert t.writable
    assert not t.broadcast_to((4, 3)).writable
    assert not g.constant(f32, (2,), 1.0).writable


def test_overlaps__shared_element__is_found():
    t = graph().variable(f32, 10)
    assert t[0:4].overlaps(t[3:6])
    assert not t[0:4].overlaps(t[4:6])


def test_reinterpret__other_width__is_refused():
    t = graph().variable(f32, 4)
    assert t.reinterpret(u32).dtype == u32
    with pytest.raises(TypeMismatchError, match="cannot see"):
        t.reinterpret(f16)


@pytest.mark.parametrize(
    ("action", "text"),
    [
        (lambda t: t[7], r"index 7 is out of range for dimension 0"),
        (lambda t: t.slice(2, 9), r"slice \[2, 9\) is outside dimension 0"),
        (lambda t: t.reshape(5, 5), r"it has 24 elements, the new shape 25"),
        (lambda t: t.reshape(-1, 5), r"do not divide"),
        (lambda t: t.transpose(0, 0), r"\[0, 0\] is no permutation"),
        (lambda t: t.broadcast_to((3, 6)), r"does not broadcast to \[3, 6\]"),
        (lambda t: t.squeeze(0), r"cannot squeeze dimension 0"),
        (lambda t: t[1, 2, 3], r"3 indices for a tensor of 2 dimensions"),
        (lambda t: t["a"], r"takes integers, slices"),
        (lambda t: t.split(5), r"in 5 equal parts"),
        (lambda t: concat([t, t[:, :2]]), r"along dimension 0: the shapes differ"),
        (lambda t: concat([]), r"nothing to concatenate"),
        (lambda t: boxes(t, [[0, 0]], [5, 6]), r"box 0 reaches outside"),
    ],
)
def test_views__wrong_argument__names_it(action, text):
    with pytest.raises(TensorError, match=text):
        action(graph().variable(f32, (4, 6), name="t"))


def test_concat__other_type__is_refused():
    g = graph()
    with pytest.raises(TypeMismatchError, match="element types differ"):
        concat([g.variable(f32, 2), g.variable(i32, 2)])
