"""Inputs and outputs of a run: arrays, iterables and outfeeds, and those that are refused."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from test_session import session
from toy_front_end import mlp_batch

from abele.errors import ElementRangeError, SignatureError, StreamConnectionError, TensorIndexError
from abele.expr.derivative import arg
from abele.network import NetworkBuilder, Sgd
from abele.network.ops import build
from abele.numerics import bf16, bool_, f16, f32, i8, i32
from abele.session import Schedule, Session

TWO = Schedule(2)
X, TARGET = mlp_batch(12)


def of_type(dtype: Any, schedule: Schedule = TWO) -> Session:
    """A session that gives its input [3] back."""
    net = NetworkBuilder()
    x = net.input((3,), dtype, "x")
    net.output(build.reshape(net, x, (3,)))
    return Session.of(net.finish(), schedule)


def test_inputs__by_name_or_in_order__are_the_same() -> None:
    made = session(Schedule(3))
    by_order = made.run([X, TARGET]).outputs
    by_name = made.run({"x1": TARGET, "x0": X}).outputs
    np.testing.assert_array_equal(by_order[1], by_name[1])


def test_inputs__micro_batches_from_iterables__are_as_whole_batches() -> None:
    made = session(Schedule(3))
    whole = made.run([X, TARGET]).outputs[1]
    for inputs in (
        [iter(np.split(X, 3)), iter(np.split(TARGET, 3))],
        [np.split(X, 3), TARGET],
        [X, (part for part in np.split(TARGET, 3))],
    ):
        np.testing.assert_array_equal(made.run(inputs).outputs[1], whole)


def test_inputs__endless_iterable__gives_each_run_its_own_micro_batches() -> None:
    taken: list[int] = []

    def batches() -> Iterator[Any]:
        for number in range(1000):
            taken.append(number)
            yield np.full((4, 3), number, np.float32)

    source, made = batches(), session(Schedule(3))
    for _ in range(4):
        made.run([source, TARGET])
    assert taken == list(range(12))


def test_inputs__iterable_that_ends_early__is_refused_and_the_session_goes_on() -> None:
    made = session(Schedule(3))
    with pytest.raises(StreamConnectionError):
        made.run([iter(np.split(X, 3)[:2]), TARGET])
    assert made.run([X, TARGET]).outputs[1].shape == (12, 2)


def test_outfeed__each_micro_batch__comes_with_its_number() -> None:
    made, seen = session(Schedule(3), Sgd(lr=0.1)), []
    expected = session(Schedule(3), Sgd(lr=0.1)).run([X, TARGET]).outputs
    results = made.run([X, TARGET], outfeed=lambda number, outputs: seen.append((number, outputs)))
    assert results.outputs == ()
    assert [number for number, _ in seen] == [0, 1, 2]
    np.testing.assert_array_equal(np.concatenate([outputs[1] for _, outputs in seen]), expected[1])
    np.testing.assert_array_equal([outputs[0] for _, outputs in seen], expected[0])


def test_outfeed__that_raises__ends_the_run_with_its_error() -> None:
    def fail(number: int, outputs: tuple[Any, ...]) -> None:
        raise KeyError(number)

    made = session(Schedule(3))
    with pytest.raises(KeyError):
        made.run([X, TARGET], outfeed=fail)
    assert made.run([X, TARGET]).outputs[1].shape == (12, 2)


def test_run__after_one_that_failed_half_way__begins_its_streams_anew() -> None:
    made, calls = of_type(f32, Schedule(4)), []

    def second_fails(number: int, outputs: Any) -> None:
        calls.append(number)
        if number == 1:
            raise ArithmeticError

    given = np.arange(12, dtype=np.float32)
    with pytest.raises(ArithmeticError):
        made.run([given], outfeed=second_fails)
    np.testing.assert_array_equal(made(given + 1)[0], given + 1)
    np.testing.assert_array_equal(made(given)[0], given)


@pytest.mark.parametrize("each", [3, 1 << 16])
def test_results__of_several_runs__are_arrays_of_their_own(each: int) -> None:
    net = NetworkBuilder()
    net.output(build.reshape(net, net.input((each,), f32, "x"), (each,)))
    made, given = Session.of(net.finish(), TWO), np.zeros(2 * each, np.float32)
    results = []
    for number in range(3):
        given[:] = number
        results.append(made(given)[0])
    assert [r.min() for r in results] == [r.max() for r in results] == [0, 1, 2]
    results[1][:] = 9
    assert made(given)[0].max() == 2


def test_inputs__that_are_changed__come_back_by_position() -> None:
    net = NetworkBuilder()
    x, y = net.input((2,), "f32", "x"), net.input((2,), "f32", "y")
    net.changed_inputs[y] = build.map_(net, arg(0) + arg(1), [x, y])
    net.output(build.map_(net, arg(0) * 2.0, [x]))
    results = Session.of(net.finish(), Schedule(2)).run([[1.0, 2, 3, 4], [10.0, 20, 30, 40]])
    np.testing.assert_array_equal(results.outputs[0], [2, 4, 6, 8])
    np.testing.assert_array_equal(results.changed[1], [11, 22, 33, 44])


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ([X], r"takes 2 inputs, got 1"),
        ({"x0": X}, r"takes 2 inputs, got 1"),
        ({"x0": X, "x2": TARGET}, r"has no input 'x2'"),
        ([X[:8], TARGET], r"'x0' has shape \[12, 3\] for a run, got \[8, 3\]"),
        ([X.astype(complex), TARGET], "is f32, got complex128"),
        ([np.array([["a"] * 3] * 12), TARGET], "is f32, got <U1"),
    ],
)
def test_inputs__that_do_not_fit__are_named(inputs: Any, message: str) -> None:
    with pytest.raises(SignatureError, match=message):
        session(Schedule(3)).run(inputs)


def test_inputs__micro_batch_of_another_shape__is_named() -> None:
    with pytest.raises(SignatureError, match=r"'x0' has shape \[4, 3\] for a micro-batch, got \[3, 3\]"):
        session(Schedule(3)).run([iter([X[:3]] * 3), TARGET])


@pytest.mark.parametrize(
    ("dtype", "given"),
    [
        ("f32", np.arange(6.0)),
        ("f32", np.arange(6)),
        (f16, np.arange(6.0, dtype=np.float32)),
        (bf16, np.arange(6.0)),
        (i32, np.arange(6)),
        (i8, np.arange(6)),
        (bool_, np.arange(6) > 2),
        (i32, np.arange(6) > 2),
    ],
)
def test_types__that_convert__keep_their_values(dtype: Any, given: Any) -> None:
    np.testing.assert_array_equal(np.asarray(of_type(dtype)(given)[0], np.float64), np.asarray(given, np.float64))


def test_types__that_lose_something__are_refused() -> None:
    with pytest.raises(SignatureError, match="is i32, got float64"):
        of_type(i32)(np.arange(6.0))
    with pytest.raises(SignatureError, match="is bool, got int64"):
        of_type(bool_)(np.arange(6))
    with pytest.raises(ElementRangeError, match="holds 300, which does not fit in i8"):
        of_type(i8)(np.arange(6) * 60)
    with pytest.raises(ElementRangeError, match="the input x is"):
        of_type(i32)(np.arange(6) + 2**31)


def test_bounds__of_integers__are_checked_in_every_micro_batch() -> None:
    net = NetworkBuilder()
    x = net.input((3,), i32, "x")
    net.bound(x, 4, "label")
    net.output(build.reshape(net, x, (3,)))
    made = Session.of(net.finish(), Schedule(2))
    made(np.array([0, 1, 2, 3, 3, 3]))
    with pytest.raises(TensorIndexError, match="label 4"):
        made(np.array([0, 1, 2, 3, 3, 4]))
    with pytest.raises(TensorIndexError, match="label 4"):
        made.run([iter([np.array([0, 1, 2]), np.array([3, 3, 4])])])


def test_scalars__of_several_micro_batches__are_a_vector() -> None:
    net = NetworkBuilder()
    net.output(build.map_(net, arg(0) * 2.0, [net.input((), "f32", "x")]))
    np.testing.assert_array_equal(Session.of(net.finish(), Schedule(3))([1.0, 2.0, 3.0])[0], [2, 4, 6])
