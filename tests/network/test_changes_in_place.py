"""State that maps change is written where it lies, unless something reads the old contents later."""

import numpy as np
import pytest

from abele.distribution.changed_in_place import changed_in_place
from abele.expr.derivative import arg
from abele.network import NetworkBuilder, evaluate
from abele.network.ops import build
from abele.session import Session

w, g = arg(0), arg(1)


def step(later):
    """A network that moves a state against an input, and the state; ``later`` adds a reader behind the change."""
    net = NetworkBuilder()
    state, x = net.buffer((4, 6), "f32", "state"), net.input((4, 6), "f32", "x")
    early = build.reduce(net, build.map_(net, w * g, [state, x]), [0, 1])
    new = build.map_(net, w - 0.5 * g, [state, x])
    net.updates[state] = new
    net.output(early)
    later(net, state, new)
    return net.finish(), state


LATER = {
    "nothing": lambda net, state, new: None,
    "new contents": lambda net, state, new: net.output(build.reduce(net, new, [0])),
    "old contents": lambda net, state, new: net.output(build.reduce(net, state, [0])),
    "a view of the old": lambda net, state, new: net.output(build.reduce(net, build.transpose(net, state), [0])),
    "the old itself": lambda net, state, new: net.output(state),
    "a part of the old": lambda net, state, new: net.output(build.slice_(net, state, 0, 1, 3)),
}


@pytest.mark.parametrize("later", LATER)
def test_change__whatever_reads_later__gives_the_same(later):
    net, state = step(LATER[later])
    rng = np.random.default_rng(0)
    held = rng.normal(size=state.shape).astype(np.float32)
    with Session.of(net, weights={"state": held.copy()}) as session:
        for _ in range(3):
            x = rng.normal(size=state.shape).astype(np.float32)
            wanted = evaluate(net, {state: held, net.inputs[0]: x}, precise=False)
            for found, value in zip(session(x), net.outputs, strict=True):
                np.testing.assert_allclose(found, wanted[value], rtol=1e-5, atol=1e-5)
            held = wanted[net.updates[state]]
        session.download()
        np.testing.assert_allclose(session.read("state"), held, rtol=1e-5)


@pytest.mark.parametrize("later", LATER)
def test_change__read_by_nothing_later__needs_no_copy(later):
    net, _ = step(LATER[later])
    assert bool(changed_in_place(net)) == (later in ("nothing", "new contents"))
    with Session.of(net) as session:
        copied = any("write_back" in name for name in session.report.steps["name"])
        assert copied == (later not in ("nothing", "new contents"))


def test_change__of_two_states_with_each_others_contents__keeps_both():
    net = NetworkBuilder()
    a, b = net.buffer((3,), "f32", "a"), net.buffer((3,), "f32", "b")
    net.updates[a] = build.map_(net, w + g, [a, b])
    net.updates[b] = build.map_(net, w - g, [b, a])
    net.output(build.reduce(net, a, [0]))
    held = {"a": np.arange(3, dtype=np.float32), "b": np.ones(3, np.float32)}
    with Session.of(net.finish(), weights={n: v.copy() for n, v in held.items()}) as session:
        session()
        session.download()
        np.testing.assert_array_equal(session.read("a"), held["a"] + held["b"])
        np.testing.assert_array_equal(session.read("b"), held["b"] - held["a"])
