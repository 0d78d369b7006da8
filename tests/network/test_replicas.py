"""Collectives inside of networks: what they mean, their derivatives, and the same on both ways to execute."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from abele.errors import GraphReplicationError, NetworkError, UnsupportedOpError
from abele.expr.derivative import arg
from abele.network import (
    BlockBuilder,
    Network,
    NetworkBuilder,
    Schedule,
    Value,
    differentiate,
    evaluate,
    evaluate_replicas,
    parse,
    verify,
)
from abele.network.ops import build
from abele.poplibs.gcl import CommGroup
from abele.session import Session, Settings

RNG = np.random.default_rng(3)
GROUPS = {
    "consecutive": CommGroup.consecutive(2),
    "orthogonal": CommGroup.orthogonal(2),
    "strided": CommGroup.strided(2, 2),
    "three": CommGroup.consecutive(3),
}
SHAPE = (2, 6, 5)

Op = Callable[[BlockBuilder, Value, CommGroup], Value]
OPS: dict[str, Op] = {
    "copy": build.replica_copy,
    "sum": build.replica_sum,
    "sum_apart": lambda net, x, g: build.replica_sum(net, x, g, "apart"),
    "max": build.replica_max,
    "min": lambda net, x, g: build.replica_reduce(net, x, g, "min"),
    "mul": lambda net, x, g: build.replica_reduce(net, x, g, "mul"),
    "gather0": lambda net, x, g: build.replica_gather(net, x, 0, g),
    "gather2": lambda net, x, g: build.replica_gather(net, x, -1, g, "apart"),
    "scatter": lambda net, x, g: build.replica_scatter(net, x, 1, g),
    "scatter_sum": lambda net, x, g: build.replica_scatter(net, x, 1, g, of_sum=True),
    "rank": lambda net, x, g: build.map_(
        net, arg(0) + arg(1), [x, build.cast(net, build.replica_rank(net, g), x.dtype)]
    ),
}


def network(op: Op, group: CommGroup, dtype: str = "f32") -> Network:
    net = NetworkBuilder()
    net.output(op(net, net.input(SHAPE, dtype, "x"), group))
    return net.finish()


def by_numpy(name: str, x: np.ndarray, group: CommGroup) -> list[np.ndarray]:
    """The results on each replica, of x [replicas, ...]."""
    results: dict[int, np.ndarray] = {}
    for members in group.members(len(x)):
        for rank, replica in enumerate(members):
            results[replica] = one_of(name, x[members], rank)
    return [results[n] for n in range(len(x))]


def one_of(name: str, own: np.ndarray, rank: int) -> np.ndarray:
    """The result on the replica of a rank, of what its group has."""
    match name:
        case "copy":
            return own[rank]
        case "sum" | "sum_apart":
            return own.sum(0)
        case "max":
            return own.max(0)
        case "min":
            return own.min(0)
        case "mul":
            return own.prod(0)
        case "gather0":
            return np.concatenate(list(own), 0)
        case "gather2":
            return np.concatenate(list(own), 2)
        case "scatter":
            return np.split(own[rank], len(own), 1)[rank]
        case "scatter_sum":
            return np.split(own.sum(0), len(own), 1)[rank]
        case _:
            return own[rank] + rank


@pytest.mark.parametrize("kind", GROUPS)
@pytest.mark.parametrize("name", OPS)
def test_collective__of_each_kind_and_group__is_numpys_on_every_replica(name: str, kind: str) -> None:
    group = GROUPS[kind]
    replicas = 6 if kind == "three" else 4
    net = network(OPS[name], group)
    verify(net)
    assert parse(str(net)) == net
    x = RNG.integers(-9, 9, (replicas, *SHAPE)).astype(np.float32)
    expected = by_numpy(name, x, group)
    for replica, values in enumerate(evaluate_replicas(net, [{net.inputs[0]: part} for part in x])):
        np.testing.assert_array_equal(values[net.outputs[0]], expected[replica])
    given = x.reshape(-1, *SHAPE[1:])
    system = "bow-2000" if replicas <= 4 else "bow-pod16"
    for mode in ("native", "tiles"):
        session = Session.of(net, Schedule(replicas=replicas), settings=Settings(system=system, mode=mode))
        np.testing.assert_array_equal(session(given)[0].reshape(replicas, *expected[0].shape), expected)


def weighted(op: Op, group: CommGroup, replicas: int) -> tuple[Network, Value]:
    """A loss of a parameter through a collective, with factors that enter."""
    net = NetworkBuilder()
    x = net.parameter(SHAPE, "f32", "x")
    y = op(net, x, group)
    factor = net.input(y.shape, "f32", "factor")
    net.loss = build.reduce(net, build.map_(net, arg(0) * arg(0) * arg(1), [y, factor]), [0, 1, 2])
    return differentiate(net.finish(), [x]), x


@pytest.mark.parametrize("name", ["copy", "sum_apart", "gather2", "scatter_sum", "max", "min", "mul"])
def test_derivative__where_each_replica_has_a_loss_of_its_own__is_that_of_their_sum(name: str) -> None:
    op = OPS[name]
    group = CommGroup.consecutive(2)
    net, x = weighted(op, group, 4)
    xs = RNG.normal(size=(4, *SHAPE))
    if name == "copy":
        xs[1::2] = xs[::2]  # Alike, as what is copied to a group has to be.
    factors = RNG.normal(size=(4, *net.inputs[0].shape))

    def loss(xs: np.ndarray) -> float:
        made = by_numpy(name, xs, group)
        return sum(float((y * y * f).sum()) for y, f in zip(made, factors, strict=True))

    values = evaluate_replicas(net, [{x: a, net.inputs[0]: f} for a, f in zip(xs, factors, strict=True)])
    for _ in range(5):
        at = tuple(int(RNG.integers(n)) for n in (4, *SHAPE))
        step = np.zeros_like(xs)
        step[at] = 1e-4
        if name == "copy":
            step[at[0] ^ 1, *at[1:]] = 1e-4
        slope = (loss(xs + step) - loss(xs - step)) / 2e-4
        np.testing.assert_allclose(values[at[0]][net.gradients[x]][at[1:]], slope, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("name", ["sum", "gather0", "scatter"])
def test_derivative__where_replicas_share_one_loss__is_of_that_loss(name: str) -> None:
    group = CommGroup.consecutive(2)
    net, x = weighted(OPS[name], group, 2)
    xs = RNG.normal(size=(2, *SHAPE))
    factor = RNG.normal(size=net.inputs[0].shape)
    if name == "scatter":
        # A part of something alike, whose parts make one loss together.
        xs[1] = xs[0]
        factor = RNG.normal(size=(2, *net.inputs[0].shape))
    factors = np.broadcast_to(factor, (2, *net.inputs[0].shape))

    def loss(xs: np.ndarray) -> float:
        made = by_numpy(name, xs, group)
        each = [float((y * y * f).sum()) for y, f in zip(made, factors, strict=True)]
        return sum(each) if name == "scatter" else each[0]

    values = evaluate_replicas(net, [{x: a, net.inputs[0]: f} for a, f in zip(xs, factors, strict=True)])
    for _ in range(5):
        at = tuple(int(RNG.integers(n)) for n in (2, *SHAPE))
        step = np.zeros_like(xs)
        step[at] = 1e-4
        if name == "scatter":
            step[at[0] ^ 1, *at[1:]] = 1e-4
        slope = (loss(xs + step) - loss(xs - step)) / 2e-4
        np.testing.assert_allclose(values[at[0]][net.gradients[x]][at[1:]], slope, rtol=1e-6, atol=1e-7)


def test_collectives__alone__are_those_of_equal_replicas() -> None:
    x = RNG.normal(size=SHAPE)
    for name, op in OPS.items():
        net = network(op, CommGroup.consecutive(2))
        made = evaluate(net, {net.inputs[0]: x})[net.outputs[0]]
        np.testing.assert_array_equal(made, by_numpy(name, np.stack([x, x]), CommGroup.consecutive(2))[0])


def test_collectives__of_groups_of_one__are_nothing() -> None:
    for group in (CommGroup.none(), CommGroup.consecutive(1)):
        for name, op in OPS.items():
            kinds = {o.kind for o in network(op, group).ops}
            assert not any(kind.startswith("replica") for kind in kinds), name


def test_collective__in_a_loop__meets_in_every_trip() -> None:
    net, group = NetworkBuilder(), CommGroup.consecutive(2)
    x = net.input((3,), "f32", "x")
    (y,) = build.loop(
        net, 3, [x], lambda body, trip, v: [build.map_(body, arg(0) * 0.5, [build.replica_sum(body, v, group)])]
    )
    net.output(y)
    done = net.finish()
    given = RNG.integers(0, 9, (4, 3)).astype(np.float32)
    expected = np.repeat(given.reshape(2, 2, 3).mean(1), 2, 0)
    for replica, values in enumerate(evaluate_replicas(done, [{done.inputs[0]: part} for part in given])):
        np.testing.assert_allclose(values[done.outputs[0]], expected[replica])
    made = Session.of(done, Schedule(replicas=4), settings=Settings(system="bow-2000"))(given.reshape(-1))[0]
    np.testing.assert_array_equal(made.reshape(4, 3), expected)


def test_sums__in_half_precision__have_the_same_bits_on_all_replicas_of_a_group() -> None:
    net = network(OPS["sum"], CommGroup.consecutive(4), "f16")
    given = RNG.normal(size=(4 * SHAPE[0], *SHAPE[1:])).astype(np.float16)
    found = []
    for mode in ("native", "tiles"):
        made = Session.of(net, Schedule(replicas=4), settings=Settings(system="bow-2000", mode=mode))(given)[0]
        rows = made.reshape(4, *SHAPE)
        assert all((row.view(np.uint16) == rows[0].view(np.uint16)).all() for row in rows)
        found.append(rows[0])
    expected = given.reshape(4, *SHAPE).astype(np.float64).sum(0)
    np.testing.assert_allclose(found[0], expected, atol=2e-2)
    np.testing.assert_allclose(found[0], found[1], atol=2e-2)


REFUSED: dict[str, tuple[Op, str]] = {
    "parts": (lambda net, x, g: build.replica_scatter(net, x, 2, g), "no 2 equal parts"),
    "bools": (lambda net, x, g: build.replica_sum(net, build.cast(net, x, "bool"), g), "numbers are summed"),
    "rows": (lambda net, x, g: build.replica_exchange(net, build.slice_(net, x, 0, 0, 1), g), "no 2 rows"),
    "readers": (lambda net, x, g: build.replica_sum(net, x, g, "many"), "readers are alike or apart"),
    "no number": (lambda net, x, g: build.replica_sum(net, x, CommGroup.all()), "does not say how many"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_collective__that_is_not_legal__says_why(name: str) -> None:
    op, words = REFUSED[name]
    with pytest.raises(NetworkError, match=words):
        verify(network(op, CommGroup.consecutive(2)))


def test_collective__on_replicas_that_do_not_divide__is_refused() -> None:
    net = network(OPS["sum"], CommGroup.consecutive(3))
    with pytest.raises(GraphReplicationError):
        Session.of(net, Schedule(replicas=4), settings=Settings(system="bow-2000"))
    x = np.zeros(SHAPE)
    with pytest.raises(GraphReplicationError):
        evaluate_replicas(net, [{net.inputs[0]: x}] * 4)


def test_largest_of_replicas__has_no_derivative() -> None:
    with pytest.raises(UnsupportedOpError, match="largest of several replicas"):
        weighted(lambda net, x, _: build.largest_of_replicas(net, x), CommGroup.consecutive(2), 2)


def test_largest_of_replicas__steers_a_loop__that_all_go_through_as_often() -> None:
    net = NetworkBuilder()
    count = net.input((), "i32", "count")
    most = build.largest_of_replicas(net, count)

    def is_left(body: BlockBuilder, done: Value) -> Value:
        return build.map_(body, arg(0) < arg(1), [done, most], "bool")

    (trips,) = build.while_(
        net, [net.constant(0, "i32")], is_left, lambda body, _, done: [build.map_(body, arg(0) + 1, [done])]
    )
    net.output(trips)
    made = net.finish()
    verify(made)
    assert parse(str(made)) == made
    counts = np.array([2, 5, 3], np.int32)
    assert [int(f[made.outputs[0]]) for f in evaluate_replicas(made, [{made.inputs[0]: c} for c in counts])] == [5] * 3
    assert int(evaluate(made, {made.inputs[0]: counts[0]})[made.outputs[0]]) == 2
    for mode in ("native", "tiles"):
        session = Session.of(made, Schedule(replicas=3), settings=Settings(mode=mode))
        assert np.asarray(session(counts)[0]).tolist() == [5, 5, 5]
