"""Random chains of view operations, beside the same on a NumPy array of addresses."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from abele.graph import Graph, concat
from abele.numerics import f32

LARGEST = 300


@st.composite
def chains(draw, most=9):
    """A view and the NumPy array of addresses that it must show, after a random chain of operations."""
    g = Graph("gc200")
    shape = draw(st.tuples(*[st.integers(1, 6)] * 3))
    tensor = g.variable(f32, shape)
    array = np.arange(tensor.size).reshape(shape)
    for _ in range(draw(st.integers(1, most))):
        tensor, array = draw(st.sampled_from(OPERATIONS))(draw, g, tensor, array)
    return tensor, array


def _along(array, dim, item):
    return array[(slice(None),) * dim + (item,)]


def _dim(draw, tensor):
    return draw(st.integers(0, tensor.ndim - 1))


def slice_(draw, _graph, tensor, array):
    if not tensor.ndim:
        return tensor, array
    dim = _dim(draw, tensor)
    begin = draw(st.integers(0, tensor.shape[dim] - 1))
    end = draw(st.integers(begin + 1, tensor.shape[dim]))
    return tensor.slice(begin, end, dim), _along(array, dim, slice(begin, end))


def step(draw, _graph, tensor, array):
    if not tensor.ndim:
        return tensor, array
    dim, by = _dim(draw, tensor), draw(st.sampled_from([2, 3, -1, -2]))
    return _along(tensor, dim, slice(None, None, by)), _along(array, dim, slice(None, None, by))


def transpose(draw, _graph, tensor, array):
    order = draw(st.permutations(range(tensor.ndim)))
    return tensor.transpose(order), array.transpose(order)


def reshape(draw, _graph, tensor, array):
    size = tensor.size
    first = draw(st.sampled_from([d for d in range(1, size + 1) if size % d == 0]))
    rest = size // first
    second = draw(st.sampled_from([d for d in range(1, rest + 1) if rest % d == 0]))
    shape = (first, second, rest // second)
    return tensor.reshape(shape), array.reshape(shape)


def flatten(_draw, _graph, tensor, array):
    return tensor.flatten(), array.reshape(-1)


def broadcast_to(draw, _graph, tensor, array):
    if tensor.size > LARGEST or tensor.ndim > 3:
        return tensor, array
    shape = (draw(st.integers(1, 2)), *tensor.shape)
    return tensor.broadcast_to(shape), np.broadcast_to(array, shape)


def broadcast(draw, _graph, tensor, array):
    if not tensor.ndim or tensor.size > LARGEST:
        return tensor, array
    dim = _dim(draw, tensor)
    return tensor.broadcast(2, dim), np.concatenate([array, array], axis=dim)


def repeat(draw, _graph, tensor, array):
    if not tensor.ndim or tensor.size > LARGEST:
        return tensor, array
    dim = _dim(draw, tensor)
    return tensor.repeat(3, dim), np.repeat(array, 3, axis=dim)


def reverse(draw, _graph, tensor, array):
    if not tensor.ndim:
        return tensor, array
    dim = _dim(draw, tensor)
    return tensor.reverse(dim), np.flip(array, dim)


def rotate(draw, _graph, tensor, array):
    if not tensor.ndim:
        return tensor, array
    dim = _dim(draw, tensor)
    n = tensor.shape[dim]
    at = draw(st.integers(0, n))
    return concat([tensor.slice(at, n, dim), tensor.slice(0, at, dim)], dim), np.roll(array, -at, axis=dim)


def join(draw, g, tensor, array):
    if not tensor.ndim or tensor.size > LARGEST:
        return tensor, array
    dim = _dim(draw, tensor)
    other = g.variable(f32, tensor.shape)
    extra = other.variables[0].base + np.arange(other.size).reshape(other.shape)
    return concat([tensor, other, tensor], dim), np.concatenate([array, extra, array], axis=dim)


def squeeze(_draw, _graph, tensor, array):
    return tensor.squeeze(), array.squeeze()


OPERATIONS = [
    slice_,
    step,
    transpose,
    reshape,
    flatten,
    broadcast_to,
    broadcast,
    repeat,
    reverse,
    rotate,
    join,
    squeeze,
]
