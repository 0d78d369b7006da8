"""Checks of integers on the host: only what follows from inputs is looked at, and in 64 bits."""

from __future__ import annotations

import numpy as np
import pytest

from abele.errors import ElementRangeError, TensorIndexError
from abele.expr.derivative import arg
from abele.network import NetworkBuilder, Value
from abele.network.ops import build
from abele.numerics import f32, i32
from abele.session.input_checks import InputChecks


def squared() -> tuple[NetworkBuilder, Value]:
    net = NetworkBuilder()
    x = net.input((3,), i32, "x")
    net.wide.add(x)
    result = build.map_(net, arg(0) * arg(0), [x])
    net.wide.add(result)
    return net, x


def test_check__product_that_leaves_32_bits__is_refused_with_its_value() -> None:
    net, _ = squared()
    with pytest.raises(ElementRangeError, match=f"is {2**40}, which does not fit in the 32 bits"):
        InputChecks(net.finish()).check([np.array([1, 2**20, 3])], 1)


def test_check__product_that_fits__passes() -> None:
    net, _ = squared()
    InputChecks(net.finish()).check([np.array([1, 2**15, -3])], 1)


def test_check__every_micro_batch__is_looked_at() -> None:
    net, _ = squared()
    with pytest.raises(ElementRangeError):
        InputChecks(net.finish()).check([np.array([1, 2, 3, 4, 5, 2**20])], 2)


def test_check__integers_of_32_bits_in_the_model__wrap_as_they_do_there() -> None:
    net, _ = squared()
    net.wide.clear()
    InputChecks(net.finish()).check([np.array([1, 2**20, 3], np.int32)], 1)


def test_check__input_that_leaves_32_bits__is_refused_by_name() -> None:
    net, _ = squared()
    with pytest.raises(ElementRangeError, match="the input x is -4294967296"):
        InputChecks(net.finish()).check([np.array([1, -(2**32), 3])], 1)


@pytest.mark.parametrize(("labels", "fault"), [([0, 3, -1], None), ([0, 4, 1], 4), ([-2, 0, 1], -2)])
def test_check__bounds__allow_the_exception_alone(labels: list[int], fault: int | None) -> None:
    net = NetworkBuilder()
    net.bound(net.input((3,), i32, "labels"), 4, "label", -1)
    if fault is None:
        InputChecks(net.finish()).check([np.array(labels)], 1)
        return
    with pytest.raises(TensorIndexError, match=f"label {fault} of the network is out of bounds: there are 4"):
        InputChecks(net.finish()).check([np.array(labels)], 1)


def test_check__labels_computed_from_inputs__are_evaluated() -> None:
    net = NetworkBuilder()
    x = net.input((2, 3), i32, "x")
    shifted = build.map_(net, arg(0) + 1, [build.slice_(net, x, 1, 1, 3)])
    net.bound(shifted, 4, "label")
    InputChecks(net.finish()).check([np.array([[9, 1, 2], [9, 0, 1]])], 1)
    with pytest.raises(TensorIndexError, match="label 4 "):
        InputChecks(net.finish()).check([np.array([[9, 1, 2], [9, 3, 1]])], 1)


def test_check__what_depends_on_floats__is_left_out() -> None:
    net = NetworkBuilder()
    x = net.input((2,), f32, "x")
    net.bound(build.cast(net, x, i32), 4, "label")
    InputChecks(net.finish()).check([np.array([7.0, 8.0], np.float32)], 1)


def test_constant__integer_that_its_type_cannot_hold__is_refused() -> None:
    with pytest.raises(ElementRangeError, match=f"the constant {2**40} does not fit in i32"):
        NetworkBuilder().constant(np.array([1, 2**40]), i32)
