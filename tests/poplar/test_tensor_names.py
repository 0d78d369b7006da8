"""Poplar's names of a tensor's views, against NumPy on an array of element numbers."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import abele as ab
from abele.errors import InvalidOptionError, TensorError, TensorIndexError
from abele.graph import Tensor
from abele.poplar import UpsampleMethod

Array = np.ndarray[Any, Any]


def tensor(*shape: int) -> Tensor:
    return ab.Graph("bow").variable(ab.f32, shape, name="x").map(0)


def shown(t: Tensor) -> Array:
    """Address of every element that the view shows: its number in the graph's first variable."""
    return t.addresses()


def numbers(*shape: int) -> Array:
    return np.arange(np.prod(shape, dtype=int)).reshape(shape)


def test_shape__as_attribute_and_as_call__is_the_same_tuple() -> None:
    t = tensor(4, 5)
    assert t.shape == (4, 5) == t.shape()
    assert t[1].shape() == (5,)
    assert (t.dim(1), t.rank(), t.numElements(), t.elementType()) == (5, 2, 20, ab.f32)
    assert t.shapeToString() == "{4, 5}"
    assert t.valid()


def test_dim__outside__is_refused() -> None:
    with pytest.raises(TensorError, match="has no dimension 2"):
        tensor(4, 5).dim(2)


def test_slice__poplars_three_forms__show_what_numpy_shows() -> None:
    t, a = tensor(4, 5), numbers(4, 5)
    np.testing.assert_array_equal(shown(t.slice(1, 3)), a[1:3])
    np.testing.assert_array_equal(shown(t.slice(1, 3, 1)), a[:, 1:3])
    np.testing.assert_array_equal(shown(t.slice([3, 1], [4, 3])), a[3:4, 1:3])
    np.testing.assert_array_equal(shown(t.slice((3,), (4,))), a[3:4])
    np.testing.assert_array_equal(shown(t.slice(ab.Interval(2, 4), 1)), a[:, 2:4])
    np.testing.assert_array_equal(shown(t.slice(ab.Interval(2, 4), dim=1)), a[:, 2:4])
    np.testing.assert_array_equal(shown(t.slice(ab.Interval(2, 4))), a[2:4])


def test_slice__more_pairs_than_dimensions__is_refused() -> None:
    with pytest.raises(TensorIndexError, match="one begin and one end for each of up to 2 dimensions"):
        tensor(4, 5).slice([0, 0, 0], [1, 1, 1])


def test_views__poplars_names__show_what_numpy_shows() -> None:
    t, a = tensor(2, 3, 4), numbers(2, 3, 4)
    pairs = [
        (t.dimShuffle([2, 0, 1]), a.transpose(2, 0, 1)),
        (t.dimShufflePartial([0, 2], [2, 0]), np.moveaxis(a, [0, 2], [2, 0])),
        (t.dimShufflePartial([2], [1]), np.moveaxis(a, 2, 1)),
        (t.dimRoll(2), np.moveaxis(a, 2, 0)),
        (t.dimRoll(0, 1), np.moveaxis(a, 0, 1)),
        (t.reshapePartial(1, 3, [6, 2]), a.reshape(2, 6, 2)),
        (t.reshapePartial(0, 2, [6]), a.reshape(6, 4)),
        (t.expand([0, 2]), a.reshape(1, 2, 3, 1, 4)),
        (t.expand([3]), a[..., None]),
        (t.expand([1, 1]), a[:, None, None]),
        (t.subSample(2, 2), a[..., ::2]),
        (t.reverse(1), a[:, ::-1]),
        (t.upsample(3, 1, UpsampleMethod.REPEAT), np.repeat(a, 3, 1)),
        (t.upsample(0, 1), np.repeat(a, 0, 1)),
        (t.broadcast(2, 1), np.tile(a, (1, 2, 1))),
        (t.flatten(0, 2), a.reshape(6, 4)),
        (t.flatten(), a.reshape(-1)),
        (t.index([1, 2]), a[1, 2]),
        (t.transpose(), a.T),
        (t.expand([0]).squeeze([0]), a),
    ]
    for view, expected in pairs:
        assert view.shape == expected.shape
        np.testing.assert_array_equal(shown(view), expected)


@given(st.permutations(range(4)), st.integers(1, 4))
def test_dim_shuffle_partial__any_move__agrees_with_numpy(order: list[int], count: int) -> None:
    t, a = tensor(2, 3, 4, 5), numbers(2, 3, 4, 5)
    source, destination = order[:count], sorted(order)[::-1][:count]
    np.testing.assert_array_equal(shown(t.dimShufflePartial(source, destination)), np.moveaxis(a, source, destination))


def test_dim_shuffle_partial__dimension_twice__is_refused() -> None:
    with pytest.raises(TensorError):
        tensor(2, 3).dimShufflePartial([0, 0], [0, 1])


def test_slices__intervals_and_lists_of_them__give_a_view_each() -> None:
    t, a = tensor(6, 4), numbers(6, 4)
    first, second = t.slices([ab.Interval(0, 2), ab.Interval(3, 6)])
    np.testing.assert_array_equal(shown(first), a[0:2])
    np.testing.assert_array_equal(shown(second), a[3:6])
    (joined,) = t.slices([[ab.Interval(0, 1), ab.Interval(2, 4)]], 1)
    np.testing.assert_array_equal(shown(joined), a[:, [0, 2, 3]])


def test_upsample__another_method__is_refused() -> None:
    with pytest.raises(InvalidOptionError):
        tensor(3).upsample(-1, 0)


def test_questions__about_aliases_and_constants__are_answered() -> None:
    t = tensor(4, 5)
    constant = t.graph.constant(ab.f32, (3,), 1.0)
    assert t.isContiguous()
    assert not t.transpose().isContiguous()
    assert t.isParallelWriteable()
    assert not t.broadcast(2, 0).isParallelWriteable()
    assert t.broadcast(2, 0).containsAliases()
    assert constant.containsConstant()
    assert not constant.isParallelWriteable()
    assert t[0].intersectsWith(t[:, 1])
    assert not t[0].intersectsWith(t[1])


def test_regions__view_of_two_variables__are_cut_between_them() -> None:
    graph = ab.Graph("bow")
    a, b = (graph.variable(ab.f32, (4,), name=n) for n in "ab")
    t = ab.concat([a, b[:2], a[1:2]])
    assert t.getContiguousRegions() == [(0, 4), (4, 6), (6, 7)]
    assert [(r.var.name, tuple(r.interval)) for r in t.getVarRegions()] == [("a", (0, 4)), ("b", (0, 2)), ("a", (1, 2))]
    out = io.StringIO()
    t.outputRegions(out)
    assert out.getvalue() == t.dump() + "\n"
    assert "a[0:4)" in t.dump()
    assert "float" in t.getDebugStr()
