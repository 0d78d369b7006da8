"""Narrowing: parts of values, and networks that compute only what is read."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from abele.expr import Const
from abele.expr.derivative import arg
from abele.network import Network, NetworkBuilder, Value, evaluate, verify
from abele.network.autodiff import differentiate
from abele.network.ir.part import Digit, ValuePart, some_digits, take, whole_digits
from abele.network.ops import build
from abele.network.ops.convolution import convolution
from abele.network.ops.dropout import dropout
from abele.network.ops.pooling import pool
from abele.network.passes import DeadCode, Narrow
from abele.numerics import f32, i32
from abele.poplibs.poplin import ConvParams
from abele.poplibs.popnn.pool_params import PoolParams
from support.examples import examples

# --- parts ------------------------------------------------------------------------------------------------------------


def rows_of_first_tokens(samples: int, tokens: int, width: int) -> ValuePart:
    return ValuePart(((Digit(samples, 0, samples), Digit(tokens, 0, 1)), whole_digits(width)))


def elements(part: ValuePart, shape: tuple[int, ...]) -> set[int]:
    """The positions of a part in a row-major array, from its meaning alone."""
    inside = np.ones([d.extent for digits in part.dims for d in digits], bool)
    for place, digit in enumerate(d for digits in part.dims for d in digits):
        chosen = (np.arange(digit.extent) >= digit.low) & (np.arange(digit.extent) < digit.high)
        inside &= chosen.reshape([-1 if d == place else 1 for d in range(inside.ndim)])
    return set(np.flatnonzero(inside.reshape(shape)).tolist())


def test_part__one_token_of_rows__is_a_range_where_tokens_are_a_dimension() -> None:
    part = rows_of_first_tokens(4, 5, 3).reshaped((20, 3), (4, 5, 3))
    assert part == ValuePart((whole_digits(4), some_digits(5, 0, 1), whole_digits(3)))
    assert part.reshaped((4, 5, 3), (20, 3)) == rows_of_first_tokens(4, 5, 3)


def test_part__border_within_a_digit__grows_to_what_can_be_told() -> None:
    # Five of six rows cannot be told apart in a shape of four by three.
    part = ValuePart((some_digits(12, 0, 5),))
    assert part.reshaped((12,), (4, 3)) == ValuePart((some_digits(4, 0, 2), whole_digits(3)))
    assert ValuePart(((Digit(2, 0, 2), Digit(6, 0, 3)),)).reshaped((12,), (3, 4)).is_whole


SHAPES = st.sampled_from([(12,), (4, 3), (2, 2, 3), (3, 4), (2, 6), (6, 2), (3, 2, 2), (1, 12), (2, 1, 6)])


@st.composite
def digits(draw: Any, extent: int) -> tuple[Digit, ...]:
    factors = [n for n in range(2, extent + 1) if extent % n == 0]
    outer = draw(st.sampled_from([1, *factors]))
    made = []
    for n in (outer, extent // outer):
        low = draw(st.integers(0, n - 1))
        made.append(Digit(n, low, draw(st.integers(low + 1, n))))
    from abele.network.ir.part import joined_digits

    return joined_digits(made)


@st.composite
def parts(draw: Any, shape: tuple[int, ...]) -> ValuePart:
    return ValuePart(tuple(draw(digits(n)) for n in shape))


@given(data=st.data(), old=SHAPES, new=SHAPES)
def test_part__reshaped__has_every_element_that_it_had(data: Any, old: tuple[int, ...], new: tuple[int, ...]) -> None:
    part = data.draw(parts(old))
    assert part.size == len(elements(part, old)) == math.prod(part.shape)
    moved = part.reshaped(old, new)
    assert elements(part, old) <= elements(moved, new)
    if moved.size == part.size:
        assert moved.reshaped(new, old) == part


@given(data=st.data(), shape=SHAPES)
def test_part__union__has_what_either_has(data: Any, shape: tuple[int, ...]) -> None:
    one, other = data.draw(parts(shape)), data.draw(parts(shape))
    both = one.union(other)
    assert elements(one, shape) | elements(other, shape) <= elements(both, shape)
    net = NetworkBuilder()
    x = net.input(shape, f32, "x")
    net.output(take(net, take(net, x, both), one.inside(both)))
    net.output(take(net, x, one))
    values = evaluate(net.finish(), {x: np.arange(math.prod(shape), dtype=np.float32).reshape(shape)})
    through, straight = (values[v] for v in net.outputs)
    np.testing.assert_array_equal(through, straight)
    assert set(straight.reshape(-1).astype(int).tolist()) == elements(one, shape)


# --- networks ---------------------------------------------------------------------------------------------------------


def shapes(net: Network, kind: str) -> list[tuple[int, ...]]:
    return [op.output.shape for op in net.ops if op.kind == kind]


def narrowed(net: NetworkBuilder) -> Network:
    made = Narrow().run(net.finish())
    verify(made)
    return made


def two_layers(net: NetworkBuilder, x: Value) -> Value:
    w = net.parameter((8, x.shape[-1]), f32, "w")
    v = net.parameter((6, 8), f32, "v")
    hidden = build.nonlinearity(net, "gelu", build.linear(net, x, w))
    return build.linear(net, hidden, v, net.parameter((6,), f32, "bias"))


def test_narrow__first_of_all_tokens__takes_the_slice_before_both_layers() -> None:
    net = NetworkBuilder()
    x = net.input((4, 16, 5), f32, "x")
    net.output(build.slice_(net, two_layers(net, x), 1, 0, 1))
    made = narrowed(net)
    assert shapes(made, "linear") == [(4, 8), (4, 6)]
    assert shapes(made, "nonlinearity") == [(4, 1, 8)]


def test_narrow__every_second_token__halves_the_rows() -> None:
    net = NetworkBuilder()
    x = net.input((4, 16, 5), f32, "x")
    net.output(build.slice_(net, two_layers(net, x), 1, 1, 16, 2))
    assert shapes(narrowed(net), "linear") == [(32, 8), (32, 6)]


def test_narrow__slice_of_a_reshaped_value_without_elements__stays() -> None:
    net = NetworkBuilder()
    empty = build.nonlinearity(net, "relu", build.slice_(net, net.input((4,), f32, "x"), 0, 0, 0))
    net.output(build.slice_(net, build.reshape(net, build.reshape(net, empty, (0, 5)), (5, 0)), 0, 0, 3))
    assert [v.shape for v in narrowed(net).outputs] == [(3, 0)]


def test_narrow__value_that_another_op_reads_whole__stays_whole() -> None:
    net = NetworkBuilder()
    x = net.input((4, 16, 5), f32, "x")
    y = two_layers(net, x)
    net.output(build.slice_(net, y, 1, 0, 1))
    net.output(build.reduce(net, y, [1]))
    made = narrowed(net)
    assert made == net.finish()


def test_narrow__attention_of_one_query__keeps_all_keys() -> None:
    net = NetworkBuilder()
    q, k, v = (net.input((2, 7, 4), f32, name) for name in "qkv")
    scores = build.softmax(net, build.matmul(net, build.map_(net, arg(0) * 0.5, [q]), build.transpose(net, k)), -1)
    net.output(build.slice_(net, build.matmul(net, scores, v), 1, 2, 3))
    made = narrowed(net)
    assert shapes(made, "map") == [(2, 1, 4)]
    assert shapes(made, "softmax") == [(2, 1, 7)]
    assert shapes(made, "matmul") == [(2, 1, 7), (2, 1, 4)]


def test_narrow__concatenation_of_which_one_side_is_read__drops_the_other() -> None:
    net = NetworkBuilder()
    a, b = net.input((3, 4), f32, "a"), net.input((3, 4), f32, "b")
    joined = build.concat(net, [build.map_(net, arg(0) + 1.0, [a]), build.map_(net, arg(0) * 2.0, [b])], 0)
    net.output(build.slice_(net, joined, 0, 4, 6))
    made = narrowed(net)
    assert shapes(made, "concat") == []
    assert shapes(made, "map") == [(2, 4)]


def test_narrow__nearly_all_of_a_value__is_computed_whole() -> None:
    net = NetworkBuilder()
    net.output(build.slice_(net, two_layers(net, net.input((4, 16, 5), f32, "x")), 1, 1, 16))
    assert narrowed(net) == net.finish()


def test_narrow__norm_of_whose_statistics_nothing_is_read__normalises_fewer_samples() -> None:
    net = NetworkBuilder()
    x = net.input((4, 16, 6), f32, "x")
    sides = [net.parameter((6,), f32, name) for name in ("gain", "shift")]
    rows = build.reshape(net, x, (64, 6))
    out, mean, _ = build.norm(net, rows, 1, 1e-5, *sides)
    net.output(build.slice_(net, build.reshape(net, out, x.shape), 1, 3, 4))
    made, before = narrowed(net), net.finish()
    assert [op.outputs[0].shape for op in made.ops if op.kind == "norm"] == [(4, 6)]
    feeds = {v: np.random.default_rng(1).standard_normal(v.shape) for v in (x, *sides)}
    got, expected = evaluate(made, feeds), evaluate(before, feeds)
    np.testing.assert_allclose(got[made.outputs[0]], expected[before.outputs[0]], atol=1e-6)
    net.output(mean)
    assert [op.outputs[0].shape for op in narrowed(net).ops if op.kind == "norm"] == [(64, 6)]


def test_narrow__before_differentiation__leaves_no_zeros_to_multiply() -> None:
    net = NetworkBuilder()
    x = net.input((4, 16, 5), f32, "x")
    net.loss = build.mean(net, build.slice_(net, two_layers(net, x), 1, 0, 1), [0, 1, 2])
    plain, parameters = net.finish(), net.parameters
    made = differentiate(narrowed(net), parameters)
    assert all(op.output.size <= 48 for op in made.ops if op.kind in ("matmul", "linear", "nonlinearity_grad"))
    rng = np.random.default_rng(0)
    feeds = {v: rng.standard_normal(v.shape).astype(np.float32) for v in (x, *parameters)}
    whole = differentiate(plain, parameters)
    got, expected = evaluate(made, feeds), evaluate(whole, feeds)
    for p in parameters:
        np.testing.assert_allclose(got[made.gradients[p]], expected[whole.gradients[p]], atol=1e-6)


def images(net: NetworkBuilder, stride: int = 1) -> tuple[Value, Value]:
    """Images, and a convolution of two padded rows on each side."""
    x, w = net.input((4, 3, 16, 16), f32, "x"), net.parameter((8, 3, 5, 5), f32, "w")
    made = convolution(net, x, w, stride=(stride,) * 2, padding=(2, 2), dilation=(1, 1))
    return x, made


@pytest.mark.parametrize(
    ("stride", "rows", "field", "padding"),
    [(1, (0, 3), 5, (2, 0)), (1, (6, 8), 6, (0, 0)), (1, (12, 16), 6, (0, 2)), (2, (2, 4), 7, (0, 0))],
)
def test_narrow__rows_of_a_convolution__reads_the_rows_under_its_kernel(
    stride: int, rows: tuple[int, int], field: int, padding: tuple[int, int]
) -> None:
    net = NetworkBuilder()
    x, y = images(net, stride)
    net.output(build.slice_(net, y, 2, *rows))
    made, before = narrowed(net), net.finish()
    (params,) = [op.attrs["params"] for op in made.ops if op.kind == "convolution"]
    assert (params.field[0], params.padding_lower[0], params.padding_upper[0]) == (field, *padding)
    feeds = {v: np.random.default_rng(1).standard_normal(v.shape) for v in (x, *net.parameters)}
    got, expected = evaluate(made, feeds), evaluate(before, feeds)
    np.testing.assert_allclose(got[made.outputs[0]], expected[before.outputs[0]], atol=1e-6)


def test_narrow__pool_of_one_sample_and_corner__pools_no_others() -> None:
    net = NetworkBuilder()
    _, y = images(net)
    pooled = pool(net, y, PoolParams("max", (16, 16), (2, 2), (2, 2), (0, 0), (0, 0), 8, 4))
    net.output(build.slice_(net, build.slice_(net, pooled, 0, 1, 2), 3, 0, 3))
    made = narrowed(net)
    assert shapes(made, "pool") == [(1, 8, 8, 3)]
    assert shapes(made, "convolution") == [(1, 8, 16, 6)]


def test_narrow__dropout_between_layers__keeps_the_same_elements_and_gradients() -> None:
    net = NetworkBuilder()
    x = net.input((4, 16, 5), f32, "x")
    w, v = net.parameter((8, 5), f32, "w"), net.parameter((6, 8), f32, "v")
    hidden = dropout(net, build.linear(net, x, w), 0.5)
    y = build.slice_(net, build.linear(net, hidden, v), 1, 0, 1)
    net.loss = build.mean(net, build.map_(net, arg(0) * arg(0), [y]), [0, 1, 2])
    assert shapes(narrowed(net), "linear") == [(4, 8), (4, 6)]
    rng, found = np.random.default_rng(0), []
    feeds = {p: rng.standard_normal(p.shape).astype(np.float32) for p in (x, w, v)}
    assert net.seed is not None
    feeds[net.seed] = np.array([5, 6], np.uint32)
    for made in (differentiate(narrowed(net), [w, v]), differentiate(net.finish(), [w, v])):
        values = evaluate(made, feeds)
        found.append([values[made.gradients[p]] for p in (w, v)])
    for got, expected in zip(*found, strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-6)
        assert np.abs(expected).max() > 0.01


def work(net: Network) -> int:
    """Elements that ops make, but for views."""
    views = ("slice", "reshape", "permute", "concat", "expand", "constant", "dropout_mask")
    return sum(op.output.size for op in net.ops if op.kind not in views)


@pytest.mark.parametrize(
    ("numbers", "kinds"),
    [
        ([0, 1, 2, 3, 4, 5, 6], []),
        ([1, 2, 3], ["slice"]),
        ([6, 4, 2], ["slice", "reverse"]),
        ([3, 3, 3], ["slice", "expand"]),
        ([5, 1, 2, 0], ["slice", "slice", "slice", "concat"]),
        ([0, 2] * 9, ["constant", "look_up"]),
    ],
)
def test_look_up__of_known_numbers__is_views_of_the_table(numbers: list[int], kinds: list[str]) -> None:
    net = NetworkBuilder()
    table = net.input((7, 3), f32, "table")
    net.output(build.look_up(net, table, net.constant(numbers, i32)))
    made = DeadCode().run(net.finish())
    assert [op.kind for op in made.ops] == kinds
    values = np.arange(21, dtype=np.float32).reshape(7, 3)
    np.testing.assert_array_equal(evaluate(made, {made.inputs[0]: values})[made.outputs[0]], values[numbers])


class Slices:
    """Draws ops among which slices are many."""

    def __init__(self, data: Any, net: NetworkBuilder) -> None:
        self.data, self.net = data, net
        self.index = net.input((5,), i32, "index")
        self.values = [net.input((2, 4, 6), f32, "x"), net.input((8, 6), f32, "y")]

    def draw(self, *choices: Any) -> Any:
        return self.data.draw(st.sampled_from(choices))

    def op(self) -> None:
        kinds = (
            "slice",
            "slice",
            "reshape",
            "permute",
            "map",
            "linear",
            "matmul",
            "reduce",
            "concat",
            "softmax",
            "expand",
            "rows",
            "flip",
            "dropout",
            "windows",
            "windows",
        )
        self.values.append(getattr(self, self.draw(*kinds))(self.draw(*self.values[-4:])))

    def slice(self, x: Value) -> Value:
        places = [d for d, n in enumerate(x.shape) if n > 1]
        if not places:
            return x
        dim = self.draw(*places)
        begin = self.data.draw(st.integers(0, x.shape[dim] - 1))
        end = self.data.draw(st.integers(begin + 1, x.shape[dim]))
        return build.slice_(self.net, x, dim, begin, end, self.draw(1, 1, 2, 3))

    def reshape(self, x: Value) -> Value:
        shapes = [(-1,), (x.size,), (1, x.size), *((n, -1) for n in (2, 3, 4, 6) if x.size % n == 0)]
        shapes += [(2, n, -1) for n in (2, 3, 4) if x.size % (2 * n) == 0]
        return build.reshape(self.net, x, self.draw(*shapes))

    def permute(self, x: Value) -> Value:
        return build.permute(self.net, x, self.data.draw(st.permutations(range(x.ndim))))

    def map(self, x: Value) -> Value:
        other = self.draw(x, *(v for v in self.values if v.shape == x.shape), self.reduce(x))
        return build.map_(self.net, arg(0) * 0.5 + arg(1), [x, other])

    def linear(self, x: Value) -> Value:
        weight = self.net.constant(np.linspace(-1, 1, 4 * x.shape[-1]).reshape(4, -1), f32)
        return build.linear(self.net, x, weight)

    def matmul(self, x: Value) -> Value:
        return build.matmul(self.net, x, build.transpose(self.net, x)) if x.ndim > 1 and x.size < 200 else x

    def reduce(self, x: Value) -> Value:
        dim = self.data.draw(st.integers(0, x.ndim - 1))
        return build.reduce(self.net, x, [dim], self.draw("add", "max"), keep=True)

    def concat(self, x: Value) -> Value:
        dim = self.data.draw(st.integers(0, x.ndim - 1))
        return build.concat(self.net, [x, build.map_(self.net, arg(0) + Const(1.0), [x])], dim) if x.size < 200 else x

    def softmax(self, x: Value) -> Value:
        return build.softmax(self.net, x, -1, log=self.draw(True, False))

    def expand(self, x: Value) -> Value:
        return build.expand(self.net, build.reshape(self.net, x, (1, *x.shape)), (3, *x.shape)) if x.size < 100 else x

    def dropout(self, x: Value) -> Value:
        return dropout(self.net, x, self.draw(0.0, 0.4, 1.0))

    def windows(self, x: Value) -> Value:
        """A convolution or a pooling over all dimensions but the first two."""
        if x.ndim < 3 or x.size > 1000:
            return x
        rank = x.ndim - 2
        kernel = tuple(self.data.draw(st.integers(1, min(3, n))) for n in x.shape[2:])
        stride, lower, upper = (tuple(self.draw(*of) for _ in range(rank)) for of in ((1, 1, 2, 3), (0, 1), (0, 1, 2)))
        if self.draw(True, False):
            kind = self.draw("max", "avg", "sum")
            lower = tuple(min(p, k - 1) for p, k in zip(lower, kernel, strict=True))
            return pool(
                self.net, x, PoolParams(kind, x.shape[2:], kernel, stride, lower, lower, x.shape[1], x.shape[0])
            )
        shape = (2, x.shape[1], *kernel)
        weight = self.net.constant(np.linspace(-1, 1, math.prod(shape)).reshape(shape), f32)
        params = ConvParams(
            x.shape[0], x.shape[1], 2, x.shape[2:], kernel, stride, padding_lower=lower, padding_upper=upper
        )
        return self.net.emit("convolution", [x, weight], params.output_shape, f32, params=params)

    def flip(self, x: Value) -> Value:
        return build.reverse(self.net, x, self.data.draw(st.lists(st.integers(0, x.ndim - 1), max_size=2)))

    def rows(self, x: Value) -> Value:
        table = build.reshape(self.net, x, (x.shape[0], -1))
        # Known numbers become views; those that the host sends are looked up.
        index = self.draw(self.net.constant(np.arange(6) % x.shape[0], i32), self.index)
        return build.look_up(self.net, table, index)


@examples(30)
@given(data=st.data())
def test_narrow__any_network_of_slices__means_the_same(data: Any) -> None:
    net = NetworkBuilder()
    draw = Slices(data, net)
    for _ in range(data.draw(st.integers(1, 8))):
        draw.op()
    net.output(draw.slice(draw.values[-1]))
    if data.draw(st.booleans()):
        net.output(data.draw(st.sampled_from(draw.values)))
    before, made = net.finish(), narrowed(net)
    rng = np.random.default_rng(0)
    feeds = {v: rng.standard_normal(v.shape).astype(np.float32) for v in net.inputs if v.dtype == f32}
    feeds[draw.index] = np.zeros(5, np.int32)
    if net.seed is not None:
        feeds[net.seed] = np.array([3, 4], np.uint32)
    expected, got = evaluate(before, feeds), evaluate(made, feeds)
    for a, b in zip(before.outputs, made.outputs, strict=True):
        np.testing.assert_allclose(got[b], expected[a], rtol=1e-5, atol=1e-5)
    assert work(made) <= work(before)
