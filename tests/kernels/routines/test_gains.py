"""Matrices with which a gain is measured stay in memory for as long as it is measured."""

import gc
import weakref

import pytest

from abele.kernels.routines import gains
from abele.kernels.routines.blocking import blocking
from abele.numerics import f32

SIZES = blocking(16, 32, 1 << 15, 1 << 20)


@pytest.mark.parametrize("is_turned", [False, True])
def test_packed__until_it_is_dropped__holds_its_matrices(monkeypatch, is_turned):
    made = []
    plain = gains._matrix

    def matrix(*args):
        array = plain(*args)
        made.append(weakref.ref(array))
        return array

    monkeypatch.setattr(gains, "_matrix", matrix)
    multiply = gains.packed_product(SIZES, f32, (320, 320, 320), is_turned=is_turned)
    gc.collect()
    a, b, c = (array() for array in made)
    assert a is not None
    assert b is not None
    assert c is not None
    multiply()
    # 320 products of 0.5 · 0.5, on top of the 0.5 that was there or not.
    assert (c == c[0, 0]).all()
    assert c[0, 0] in (80.0, 80.5)
    del a, b, c, multiply
    gc.collect()
    assert all(array() is None for array in made)
