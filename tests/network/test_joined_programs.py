"""Networks over one state as one, loops of networks, and states that loops and branches change where they lie."""

import numpy as np
import pytest

from abele.errors import NetworkError
from abele.expr.derivative import arg
from abele.network import NetworkBuilder, evaluate
from abele.network.ops import build
from abele.network.programs import joined_programs, looped
from abele.numerics import bool_, i32
from abele.session import Session

x, y = arg(0), arg(1)
ROWS = 256


def prefill():
    """Sets rows of the cache, and lets the loop begin behind them."""
    net = NetworkBuilder()
    cache, position = net.buffer((ROWS, 2, 8), "f32", "cache"), net.buffer((1,), i32, "position")
    rows, new = net.input((4,), i32, "rows"), net.input((4, 16), "f32", "new")
    flat = build.update_rows(net, build.reshape(net, cache, (ROWS, 16)), new, rows)
    net.updates[cache] = build.reshape(net, flat, cache.shape)
    net.updates[position] = build.slice_(net, rows, 0, 3, 4)
    net.output(build.reduce(net, new, [0, 1]))
    return net.finish()


def decode():
    """Sets the next row to the last one and a number; is alive until a row of the input."""
    net = NetworkBuilder()
    cache, position = net.buffer((ROWS, 2, 8), "f32", "cache"), net.buffer((1,), i32, "position")
    alive, end, step = net.buffer((2,), bool_, "alive"), net.input((2,), i32, "end"), net.input((), "f32", "step")
    flat = build.reshape(net, cache, (ROWS, 16))
    last = build.look_up(net, flat, position)
    after = build.map_(net, x + 1, [position])
    drawn = build.uniform(net, (1, 16))
    row = build.map_(net, x + y, [last, step])
    net.updates[cache] = build.reshape(net, build.update_rows(net, flat, row, after), cache.shape)
    net.updates[position] = after
    net.updates[alive] = build.map_(net, x < y, [build.expand(net, after, (2,)), end], bool_)
    net.output(row)
    net.output(drawn)
    return net.finish()


def held():
    return {
        "cache": np.zeros((ROWS, 2, 8), np.float32),
        "position": np.zeros(1, np.int32),
        "alive": np.ones(2, np.bool_),
    }


@pytest.fixture(scope="module")
def joined():
    return joined_programs({"decode": looped(decode(), "most", "alive"), "prefill": prefill()})


@pytest.fixture(scope="module")
def session(joined):
    with Session.of(joined.network, weights=held()) as made:
        yield made


def inputs_of(joined, name, *given):
    found = [np.zeros(v.shape, v.dtype.np) for v in joined.network.inputs]
    found[0] = np.int32(joined.numbers[name])
    for position, value in zip(joined.inputs[name], given, strict=True):
        found[position] = np.asarray(value)
    return found


def test_programs__run_by_turns__change_one_state(joined, session):
    rng, expected = np.random.default_rng(0), held()
    net = joined.network
    calls = [
        ("prefill", np.int32([3, 9, 4, 7]), rng.normal(size=(4, 16)).astype("f4")),
        ("decode", np.int32([12, 10]), np.float32(0.5), np.int32(100)),  # Until row 12.
        ("decode", np.int32([99, 99]), np.float32(0.5), np.int32(3)),  # Alive no longer: no trip.
        ("prefill", np.int32([0, 1, 2, 50]), rng.normal(size=(4, 16)).astype("f4")),
    ]
    for name, *given in calls:
        sent = inputs_of(joined, name, *given)
        feeds = {v: expected[v.name] for v in net.buffers} | dict(zip(net.inputs, sent, strict=True))
        values = evaluate(net, feeds | {net.seed: np.zeros(2, np.uint32)})
        found = session.run(sent).outputs
        kept = [n for n in joined.outputs[name] if name == "prefill" or n != joined.outputs[name][1]]
        for number in kept:
            np.testing.assert_allclose(found[number], values[net.outputs[number]], rtol=1e-5)
        expected = {s.name: np.asarray(values[net.updates[s]]) for s in net.buffers}
        for state, array in expected.items():
            np.testing.assert_allclose(session.read(state), array, rtol=1e-5)


def test_programs__of_a_loop__draw_afresh_in_each_trip():
    net = NetworkBuilder()
    drawn, place = net.buffer((6, 4), "f32", "drawn"), net.buffer((1,), i32, "place")
    net.updates[drawn] = build.update_rows(net, drawn, build.uniform(net, (1, 4)), place)
    net.updates[place] = build.map_(net, x + 1, [place])
    with Session.of(looped(net.finish(), 5), weights={"drawn": np.zeros((6, 4), "f4"), "place": [0]}) as session:
        session()
        found = session.read("drawn")
    assert len(np.unique(found[:5])) == 20
    assert not found[5].any()


def test_programs__with_a_cache__have_one_of_it(session):
    large = [v for v in session.executable.graph.variables if v.size == ROWS * 16]
    assert [v.name for v in large] == ["cache"]
    moves = {"carried", "carry", "result", "table", "write_back"}
    # Positions and outputs may be copied: a few elements, all on one tile.
    assert not any("cache" in name for name in session.report.steps["name"] if name.split("/")[0] in moves)


def changed_by_loop(net, state, new):
    (made,) = build.loop(net, 3, [state], lambda inner, trip, s: [build.update_rows(inner, s, new, rows(inner))])
    return made


def changed_by_while(net, state, new):
    first = net.constant(np.int32(0), i32)
    made, _ = build.while_(
        net,
        [state, first],
        lambda inner, s, n: build.map_(inner, x < 2, [n], bool_),
        lambda inner, trip, s, n: [
            build.update_rows(inner, s, new, rows(inner)),
            build.map_(inner, x + 1, [n]),
        ],
    )
    return made


def changed_by_one_branch(net, state, new):
    return build.cond(
        net,
        build.map_(net, x > 0.0, [build.reduce(net, new, [0, 1])], bool_),
        lambda inner: [state],
        lambda inner: [changed_by_loop(inner, state, new)],
    )[0]


def changed_by_one_and_made_by_another(net, state, new):
    total = build.cast(net, build.reduce(net, new, [0, 1]), i32)
    cases = [
        lambda inner: [build.update_rows(inner, state, new, rows(inner))],
        lambda inner: [build.map_(inner, x * 2.0 - y, [state, build.reduce(inner, new, [0, 1])])],
    ]
    return build.switch(net, total, cases)[0]


def changed_twice(net, state, new):
    return changed_by_loop(net, build.update_rows(net, state, new, rows(net)), build.map_(net, -x, [new]))


def rows(net):
    return net.constant(np.int32([5, 3]), i32)


CHANGES = [changed_by_loop, changed_by_while, changed_by_one_branch, changed_by_one_and_made_by_another, changed_twice]


@pytest.mark.parametrize("later", ["nothing", "the new", "the old"])
@pytest.mark.parametrize("change", CHANGES)
def test_state__changed_by_control_flow__stays_where_it_is(change, later):
    net = NetworkBuilder()
    state, new = net.buffer((64, 16), "f32", "state"), net.input((2, 16), "f32", "new")
    early = build.reduce(net, state, [1])
    made = change(net, state, new)
    net.updates[state] = made
    net.output(early)
    if later != "nothing":
        net.output(build.reduce(net, made if later == "the new" else state, [0]))
    made_net, rng = net.finish(), np.random.default_rng(1)
    array = rng.normal(size=(64, 16)).astype("f4")
    with Session.of(made_net, weights={"state": array.copy()}) as session:
        for _ in range(2):
            given = rng.normal(size=(2, 16)).astype("f4")
            values = evaluate(made_net, {state: array, new: given})
            for found, value in zip(session(given), made_net.outputs, strict=True):
                np.testing.assert_allclose(found, values[value], rtol=1e-4, atol=1e-4)
            array = np.asarray(values[made])
            np.testing.assert_allclose(session.read("state"), array, rtol=1e-4, atol=1e-4)
        copies = [n for n in session.report.steps["name"] if n.startswith("write_back")]
        large = [v for v in session.executable.graph.variables if v.size >= state.size]
        assert (bool(copies), len(large) > 1) == (later == "the old", later == "the old")


def test_state__whose_old_rows_a_body_returns__is_carried_as_before():
    net = NetworkBuilder()
    state, other = net.buffer((8, 8), "f32", "state"), net.buffer((8, 8), "f32", "other")
    made = build.loop(net, 3, [state, other], lambda inner, trip, s, o: [build.transpose(inner, o), s])
    net.updates.update(zip((state, other), made, strict=True))
    held = {n: np.arange(64, dtype=np.float32).reshape(8, 8) + k for n, k in (("state", 0), ("other", 100))}
    values = evaluate(net.finish(), {state: held["state"], other: held["other"]})
    with Session.of(net.finish(), weights=held) as session:
        session()
        for state_value, new in net.updates.items():
            np.testing.assert_array_equal(session.read(state_value.name), values[new])


def test_loop__of_zero_trips__changes_nothing():
    with Session.of(looped(decode(), 0), weights=held()) as session:
        row, _ = session(np.int32([9, 9]), np.float32(1))
        assert not row.any()
        assert session.read("position") == 0


def trains(net):
    net.loss = build.reduce(net, net.parameter((2,), "f32", "w"), [0])


def changes_an_input(net):
    given = net.input((2,), "f32", "given")
    net.changed_inputs[given] = build.map_(net, x + 1.0, [given])


@pytest.mark.parametrize(("make", "text"), [(trains, "trains"), (changes_an_input, "changes its input 'given'")])
def test_programs__that_are_none__are_refused(make, text):
    net = NetworkBuilder()
    make(net)
    for join in (lambda n: joined_programs({"one": n}), lambda n: looped(n, 3)):
        with pytest.raises(NetworkError, match=text):
            join(net.finish())


def test_programs__with_states_of_other_shapes__are_refused():
    net = NetworkBuilder()
    cache = net.buffer((ROWS, 16), "f32", "cache")
    net.updates[cache] = build.map_(net, x + 1.0, [cache])
    with pytest.raises(NetworkError, match="different states 'cache'") as raised:
        joined_programs({"prefill": prefill(), "other": net.finish()})
    assert "prefill has f32[256, 2, 8]" in str(raised.value)


@pytest.mark.parametrize(
    ("most", "while_", "text"),
    [(-1, "", "no -1 trips"), (3, "alve", "no buffer 'alve'"), (3, "position", "is i32"), ("end", "", "input 'end'")],
)
def test_loop__that_cannot_be__is_refused(most, while_, text):
    with pytest.raises(NetworkError, match=text):
        looped(decode(), most, while_)
