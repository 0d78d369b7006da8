"""Differentiation of networks."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from abele.errors import TensorError, UnsupportedOpError
from abele.expr.derivative import arg
from abele.kernels.nest.ir import apply
from abele.network import NetworkBuilder, Value, differentiate, evaluate
from abele.network.ops import build


def scalar_loss(net: NetworkBuilder, value: Value) -> None:
    net.loss = build.reduce(net, value, range(value.ndim))


def test_differentiate__value_used_twice__sums_both_paths() -> None:
    net = NetworkBuilder()
    w = net.parameter((3,), "f32", "w")
    scalar_loss(net, build.map_(net, arg(0) * arg(1), [w, build.nonlinearity(net, "relu", w)]))
    made = differentiate(net.finish(), [w])
    grads = made.gradients
    values = evaluate(made, {w: [-1.0, 2.0, 3.0]})
    np.testing.assert_array_equal(values[grads[w]], [0.0, 4.0, 6.0])


def test_differentiate__many_paths__are_summed_in_one_op() -> None:
    net = NetworkBuilder()
    w = net.parameter((3,), "f32", "w")
    parts = [build.nonlinearity(net, name, w) for name in ("tanh", "sigmoid", "relu")]
    scalar_loss(net, build.total(net, parts))
    made = differentiate(net.finish(), [w])
    sums = [op for op in made.ops if op.kind == "map" and len(op.inputs) == 3]
    assert len(sums) == 2


def test_differentiate__input_without_need__gets_no_gradient_ops() -> None:
    net = NetworkBuilder()
    x, w = net.input((4, 2, 6, 6), "f32", "x"), net.parameter((3, 2, 3, 3), "f32", "w")
    scalar_loss(net, build.convolution(net, x, w, stride=(1, 1), padding=(0, 0), dilation=(1, 1)))
    made = differentiate(net.finish(), [w])
    kinds = [op.kind for op in made.ops]
    assert "convolution_grad_weight" in kinds
    assert "convolution_grad_data" not in kinds


def test_differentiate__detached_path__carries_no_gradient() -> None:
    net = NetworkBuilder()
    w = net.parameter((2,), "f32", "w")
    scalar_loss(net, build.map_(net, arg(0) * arg(1), [w, build.detach(net, w)]))
    made = differentiate(net.finish(), [w])
    grads = made.gradients
    np.testing.assert_array_equal(evaluate(made, {w: [3.0, 5.0]})[grads[w]], [3.0, 5.0])


def test_differentiate__parameter_that_the_loss_ignores__is_left_out() -> None:
    net = NetworkBuilder()
    w, unused = net.parameter((2,), "f32", "w"), net.parameter((2,), "f32", "unused")
    scalar_loss(net, w)
    assert list(differentiate(net.finish(), [w, unused]).gradients) == [w]


def test_differentiate__loss_scale__multiplies_the_gradient() -> None:
    net = NetworkBuilder()
    w = net.parameter((2,), "f32", "w")
    scalar_loss(net, build.map_(net, apply("square", arg(0)), [w]))
    made = differentiate(net.finish(), [w], scale=8.0)
    grads = made.gradients
    np.testing.assert_array_equal(evaluate(made, {w: [1.0, 2.0]})[grads[w]], [16.0, 32.0])


def test_differentiate__no_loss__is_refused() -> None:
    with pytest.raises(TensorError, match="the network has no loss to differentiate"):
        differentiate(NetworkBuilder().finish(), [])


def test_differentiate__op_without_derivative__names_it_and_its_place() -> None:
    net = NetworkBuilder()
    w = net.parameter((3, 2), "f32", "w")
    net.loss = build.reduce(net, net.emit_like("softmax_grad", [w, w], w), [0, 1])
    with pytest.raises(UnsupportedOpError) as caught:
        differentiate(net.finish(), [w])
    assert "softmax_grad has no derivative" in str(caught.value)
    assert "detach() its result" in str(caught.value)


@pytest.mark.parametrize("zeros", [0, 1, 2])
def test_differentiate__product__is_of_the_other_factors_even_beside_zeros(zeros: int) -> None:
    values = np.array([2.0, -3.0, 0.5, 4.0])
    values[:zeros] = 0.0
    net = NetworkBuilder()
    w = net.parameter((4,), "f32", "w")
    net.loss = build.reduce(net, w, [0], "mul")
    made = differentiate(net.finish(), [w])
    expected = [np.prod(np.delete(values, i)) for i in range(4)]
    np.testing.assert_allclose(evaluate(made, {w: values})[made.gradients[w]], expected)


@pytest.mark.parametrize("operation", ["max", "min"])
def test_differentiate__extremum__goes_to_where_it_is_reached(operation: str) -> None:
    net = NetworkBuilder()
    w = net.parameter((2, 3), "f32", "w")
    scalar_loss(net, build.reduce(net, w, [1], operation))
    made = differentiate(net.finish(), [w])
    grads = made.gradients
    got = evaluate(made, {w: [[1.0, 5.0, 5.0], [4.0, 2.0, 2.0]]})[grads[w]]
    expected = {"max": [[0, 0.5, 0.5], [1, 0, 0]], "min": [[1, 0, 0], [0, 0.5, 0.5]]}
    np.testing.assert_array_equal(got, expected[operation])


@given(cuts=st.lists(st.tuples(st.integers(0, 7), st.integers(1, 8)), min_size=1, max_size=5))
def test_differentiate__slices_of_one_value__gradients_add_up(cuts: list[tuple[int, int]]) -> None:
    net = NetworkBuilder()
    w = net.parameter((2, 8), "f32", "w")
    expected = np.zeros((2, 8))
    for number, (begin, length) in enumerate(cuts, 1):
        end = min(begin + length, 8)
        part = build.reduce(net, build.slice_(net, w, 1, begin, end), [0, 1], scale=float(number))
        net.loss = part if net.loss is None else build.total(net, [net.loss, part])
        expected[:, begin:end] += number
    made = differentiate(net.finish(), [w])
    np.testing.assert_array_equal(evaluate(made, {w: np.ones((2, 8))})[made.gradients[w]], expected)


def test_differentiate__value_taken_apart__gets_its_gradient_put_together() -> None:
    net = NetworkBuilder()
    w = net.parameter((3, 4), "f32", "w")
    parts = [build.nonlinearity(net, "tanh", build.slice_(net, w, 0, i, i + 1)) for i in range(3)]
    scalar_loss(net, build.map_(net, arg(0) * arg(1) + arg(2), parts))
    made = differentiate(net.finish(), [w])
    maker = next(op for op in made.ops if made.gradients[w] in op.outputs)
    # No zeros are added: the three gradients lie beside each other.
    assert (maker.kind, len(maker.inputs)) == ("concat", 3)
    assert not [op for op in made.ops if op.kind == "map" and op.output.shape == (3, 4)]


@pytest.mark.parametrize(("entering", "leaving"), [(2, 8), (8, 2), (4, 4)])
def test_differentiate__convolution__what_is_larger_is_not_alive_beside_the_gradient_by_weights(
    entering: int, leaving: int
) -> None:
    net = NetworkBuilder()
    x = build.map_(net, arg(0) * 2.0, [net.input((2, entering, 3, 3), "f32", "x")])
    first = net.parameter((entering, entering, 1, 1), "f32", "first")
    weight = net.parameter((leaving, entering, 1, 1), "f32", "weight")
    way = {"stride": (1, 1), "padding": (0, 0), "dilation": (1, 1)}
    made = build.convolution(net, build.convolution(net, x, first, **way), weight, **way)
    net.loss = build.reduce(net, made, range(4))
    ops = differentiate(net.finish(), net.parameters).ops
    kinds = [op.kind for op in ops if op.kind.startswith("convolution_grad")]
    by_weight, by_input = kinds.index("convolution_grad_weight"), kinds.index("convolution_grad_data")
    # Both read the gradient of the result; if that is large, the one that writes it anew comes last.
    assert (by_input < by_weight) == (entering < leaving)
