"""Donated arguments stay on the device from call to call, and are gone where they were."""

import gc
import pickle
import threading

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from abele import jax as ajax
from abele.frontends.jax.donation import placed_results
from abele.frontends.jax.errors import DonatedError


def _step(state, x):
    state = jax.tree.map(lambda w: w + x, state)
    return state, sum(jnp.sum(w) for w in jax.tree.leaves(state))


@pytest.fixture
def step():
    return ajax.jit(_step, donate_argnums=0)


def _uploads(step):
    """Arrays that the last program uploads from now on."""
    session = step._last._program._session
    sent, upload = [], session.upload

    def counted(names=None):
        sent.extend(names)
        upload(names)

    session.upload = counted
    return sent


def test_state_stays_on_the_device(step):
    state, _ = step({"a": jnp.zeros(3), "b": jnp.ones(2)}, 1.0)
    sent = _uploads(step)
    for _ in range(3):
        state, total = step(state, 1.0)
    assert sent == []
    assert float(total) == 4 * 3 + 5 * 2
    np.testing.assert_array_equal(state["a"], [4, 4, 4])


def test_keys_stay_on_the_device_and_are_keys_to_jax():
    def draw(state):
        key, use = jax.random.split(state["key"])
        return {"key": key, "sum": state["sum"] + jax.random.uniform(use)}

    step, ours, theirs = ajax.jit(draw, donate_argnums=0), *(
        {"key": jax.random.key(5), "sum": jnp.zeros(())} for _ in range(2)
    )  # fmt: skip
    ours, theirs = step(ours), draw(theirs)
    sent, first = _uploads(step), ours["key"]
    for _ in range(2):
        ours, theirs = step(ours), draw(theirs)
    assert sent == []
    assert first.is_deleted()
    key, expected = ours["key"], theirs["key"]
    assert isinstance(key, jax.Array)
    assert (key.dtype, key.shape, key.aval) == (expected.dtype, expected.shape, expected.aval)
    for use in (
        jax.random.key_data,
        jax.random.uniform,
        lambda k: jax.random.key_data(jax.random.fold_in(k, 3)),
        lambda k: jax.jit(lambda x: x + jax.random.uniform(k))(1.0),
        lambda k: jax.random.key_data(jnp.stack([k, k])),
        lambda k: ajax.jit(jax.random.normal)(k),
    ):
        np.testing.assert_array_equal(use(key), use(expected))
    # Another key in its place: this one keeps its words on the host.
    step({"key": jax.random.key(7), "sum": ours["sum"]})
    np.testing.assert_array_equal(jax.random.key_data(key), jax.random.key_data(expected))


def test_a_donated_array_is_deleted_where_jax_has_it(step):
    first = {"a": jnp.zeros(3)}
    state, _ = step(first, 1.0)
    later, _ = step(state, 1.0)
    assert first["a"].is_deleted()
    assert state["a"].is_deleted()
    assert not later["a"].is_deleted()
    for use in (lambda: np.asarray(state["a"]), lambda: state["a"] + 1, lambda: jnp.sin(state["a"])):
        with pytest.raises(RuntimeError, match="deleted"):
            use()
    with pytest.raises(DonatedError, match="donated to a call before"):
        step(state, 1.0)
    with pytest.raises(DonatedError, match="donated to a call before"):
        step(first, 1.0)
    assert "deleted" in repr(state["a"])
    np.testing.assert_array_equal(later["a"], [2, 2, 2])


def test_what_numpy_has_is_not_changed(step):
    first = {"a": np.zeros(3, "f4")}
    step(first, 1.0)
    np.testing.assert_array_equal(first["a"], 0)


def test_values_from_elsewhere_replace_those_of_the_device(step):
    kept, _ = step({"a": jnp.zeros(3)}, 1.0)
    other, _ = step({"a": jnp.full(3, 5.0)}, 1.0)
    np.testing.assert_array_equal(kept["a"], 1)
    np.testing.assert_array_equal(other["a"], 6)
    again, _ = step(kept, 1.0)
    np.testing.assert_array_equal(again["a"], 2)
    np.testing.assert_array_equal(other["a"], 6)


def test_another_program_gets_the_value(step):
    state, _ = step({"a": jnp.arange(3.0)}, 1.0)
    np.testing.assert_array_equal(ajax.jit(lambda s: s["a"] * 2)(state), [2, 4, 6])
    np.testing.assert_array_equal(jax.jit(lambda s: s["a"] * 2)(state), [2, 4, 6])
    twice = ajax.jit(lambda s: jax.tree.map(lambda a: a * 2, s), donate_argnums=0)
    moved = twice(state)
    assert state["a"].is_deleted()
    np.testing.assert_array_equal(moved["a"], [2, 4, 6])
    back, _ = step(moved, 1.0)
    np.testing.assert_array_equal(back["a"], [3, 5, 7])


def test_two_arguments_may_change_places():
    swap = ajax.jit(lambda a, b: (b, a), donate_argnums=(0, 1))
    a, b = jnp.zeros(3), jnp.ones(3)
    for _ in range(3):
        a, b = swap(a, b)
    assert (a[0], b[0]) == (1, 0)
    keep = ajax.jit(lambda a, b: (a + 1, b + 2), donate_argnums=(0, 1))
    a, b = keep(a, b)
    b, a = keep(b, a)
    assert (float(a[0]), float(b[0])) == (4, 3)


def test_one_array_twice_is_refused(step):
    x = jnp.zeros(3)
    with pytest.raises(DonatedError, match="two arguments"):
        step({"a": x, "b": x}, 1.0)
    with pytest.raises(DonatedError, match="two arguments"):
        ajax.jit(lambda a, b: a + b, donate_argnums=0)(x, x)
    assert not x.is_deleted()


def test_what_no_result_replaces_is_said_and_kept():
    total = ajax.jit(lambda x: x.sum(), donate_argnums=0)
    x = jnp.ones(3)
    with pytest.warns(UserWarning, match=r"donated arguments of <lambda> were not usable.*x: float32\[3\]"):
        assert float(total(x)) == 3
    assert not x.is_deleted()


def test_results_outlive_their_program(step):
    state, _ = step({"a": jnp.zeros(3)}, 1.0)
    step.clear_cache()
    np.testing.assert_array_equal(state["a"], 1)
    state, _ = step(state, 1.0)
    fetched = state["a"]
    del step, state
    gc.collect()
    np.testing.assert_array_equal(fetched, 2)


def test_a_result_is_an_array_to_jax_and_numpy(step):
    state, _ = step({"a": jnp.arange(4.0)}, 1.0)
    a = state["a"]
    assert isinstance(a, jax.Array)
    assert (a.shape, a.dtype, a.ndim, a.size, a.nbytes, len(a)) == ((4,), np.float32, 1, 4, 16, 4)
    assert a.block_until_ready() is a
    want = jnp.arange(1.0, 5.0)
    for fn in (
        lambda a: a + 1,
        lambda a: 2 - a,
        lambda a: a @ a,
        lambda a: a > 2,
        lambda a: -a[1:],
        lambda a: a.at[0].set(7),
        lambda a: a.reshape(2, 2).T,
        lambda a: jnp.where(a > 2, a, 0),
        lambda a: jax.grad(lambda v: (v * v).sum())(a),
        lambda a: jax.vmap(lambda v: v + 1)(a),
        lambda a: jnp.stack([a, a]),
        lambda a: jax.lax.scan(lambda c, v: (c + v, v), 0.0, a)[0],
        lambda a: np.add(a, np.ones(4, "f4")),
        lambda a: jax.device_put(a),
        lambda a: jax.device_get({"a": a})["a"],
        lambda a: pickle.loads(pickle.dumps(a)),
        lambda a: max(a),
    ):
        np.testing.assert_array_equal(fn(a), fn(want))
    with pytest.raises(ValueError, match="read-only"):
        np.asarray(a)[0] = 3


def test_keys_and_small_types_are_donated():
    def f(keys, half, count):
        return jnp.concatenate([keys[1:], keys[:1]]), half * 2, count + 1

    fn = ajax.jit(f, donate_argnums=(0, 1, 2))
    keys = jax.random.split(jax.random.key(0))
    words = jax.random.key_data(keys).tolist()
    state = keys, jnp.ones(3, jnp.bfloat16), jnp.zeros((), jnp.int32)
    for _ in range(3):
        state = fn(*state)
    assert jax.random.key_data(state[0]).tolist() == words[::-1]
    assert (state[1].dtype, float(state[1][0]), int(state[2])) == (jnp.bfloat16, 8.0, 3)


def test_each_tree_finds_its_own_among_results_of_one_type():
    def tree(example):
        return jax.tree.structure(example)

    four = [((3,), "f4")] * 4
    arguments, results = tree((({"w": 0}, [0, 0], 0), {})), tree(([0, 0], {"w": 0}, 0))
    placed = placed_results(arguments, four, [True, True, True, False], results, four)
    assert placed == {0: 2, 1: 0, 2: 1}
    assert placed_results(tree(((0, 0), {})), four[:2], [False, True], tree(0), four[:1]) == {1: 0}


def test_state_survives_a_call_that_the_host_ends():
    fails = [False, True, False]

    def check(v):
        if fails.pop(0):
            raise ValueError("stop")
        return v

    double = ajax.jit(lambda s: s + jax.pure_callback(check, s, s), donate_argnums=0)
    state = double(jnp.ones(2))
    with pytest.raises(ValueError, match="stop"):
        double(state)
    np.testing.assert_array_equal(state, 2)
    np.testing.assert_array_equal(double(state), 4)


def test_several_threads_use_one_function(step):
    double = ajax.jit(lambda x: x * 2)
    found = {}

    def work(n):
        state = {"a": jnp.full(3, float(n))}
        for _ in range(5):
            state, total = step(state, 1.0)
        found[n] = float(total), float(double(jnp.full(3, float(n)))[0])

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == {n: (3 * (n + 5.0), 2.0 * n) for n in range(4)}
