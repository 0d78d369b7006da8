"""Loops, branches and functions with derivatives of their own, as JAX traces them."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from abele import jax as ajax
from abele.frontends.jaxpr import read_into
from abele.frontends.jaxpr.types import type_of
from abele.network import NetworkBuilder, evaluate, inference_pipeline
from abele.network.autodiff import differentiate
from abele.network.ops import build
from frontends.jaxpr.jaxpr_kit import captured, check

x3 = np.linspace(-1, 1, 12, dtype="f4").reshape(4, 3)


def kinds(fn, *args):
    """Kinds of the ops of the function's network, those of bodies included."""
    return [op.kind for op in captured(fn, *args)[0].network.walk()]


# --- scan -------------------------------------------------------------------------------------------------------------


def _step(c, v):
    return c * 0.5 + v, (c * 2, v.sum())


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("unroll", [1, 2, 3, 4, True])
def test_scan(reverse, unroll):
    check(lambda c, x: jax.lax.scan(_step, c, x, reverse=reverse, unroll=unroll), x3[0], x3)


@pytest.mark.parametrize("length", [0, 1, 2])
def test_scan_of_few_trips(length):
    check(lambda c, x: jax.lax.scan(_step, c, x), x3[0], x3[:length])


def test_scan_without_inputs_and_with_what_it_closes_over():
    def f(c, w):
        return jax.lax.scan(lambda c, _: (jnp.tanh(c @ w) + jnp.arange(3.0), ()), c, None, length=5)[0]

    check(f, x3, np.eye(3, dtype="f4"), native=True)


@pytest.mark.parametrize("unroll", [1, 3])
def test_counter_is_the_number_of_the_trip(unroll):
    def f(c, x):
        def body(i, c):
            return c.at[i - 2].add(x[i] * jax.lax.dynamic_index_in_dim(x, 9 - i, keepdims=False))

        return jax.lax.fori_loop(2, 9, body, c, unroll=unroll)

    rows = np.linspace(-1, 1, 30, dtype="f4").reshape(10, 3)
    check(f, rows[:7], rows, native=unroll == 1)
    text = str(captured(f, rows[:7], rows)[0].network)
    assert "min(" not in text
    assert "carried=1" in text


def test_counters_after_the_loop_and_counters_of_other_numbers():
    def f(c, start):
        def body(carry):
            i, j, k, c = carry
            return i + 1, j - 3, k + 2, c + (i * j + k).astype("f4")

        return jax.lax.while_loop(lambda carry: carry[0] < 5, body, (0, 10, start, c))

    check(f, np.float32(0.5), np.int32(4))


def test_index_that_leaves_the_array_is_clamped():
    def f(x):
        def body(i, c):
            return c + jax.lax.dynamic_index_in_dim(x, i * 2 - 3, keepdims=False)

        return jax.lax.fori_loop(0, 6, body, x[0])

    check(f, x3)


def test_nested_scans_and_their_gradient():
    def f(c, x):
        def outer(c, row):
            c, ys = jax.lax.scan(lambda c, v: (jnp.sin(c + v), c * v), c, row)
            return c * 0.5, ys.sum()

        return jax.lax.scan(outer, c, x)

    check(f, np.float32(0.3), x3)
    check(jax.grad(lambda c, x: f(c, x)[1].sum() + f(c, x)[0], argnums=(0, 1)), np.float32(0.3), x3, native=True)


def test_scan_over_keys():
    keys = jax.random.split(jax.random.key(0), 3)
    check(lambda c, k: jax.lax.scan(lambda c, k: (k, c), c, k), keys[0], keys)


def test_scan_on_constants_is_computed_while_it_is_read():
    def f(x):
        return x + jax.lax.scan(lambda c, v: (c + v, c), 0, jnp.arange(5))[1]

    assert "loop" not in kinds(f, np.zeros(5, "i4"))
    check(f, np.zeros(5, "i4"))


# --- while ------------------------------------------------------------------------------------------------------------


def test_while_until_a_condition_fails():
    def f(x):
        return jax.lax.while_loop(lambda c: jnp.abs(c[0]) > 1e-2, lambda c: (c[0] * 0.5, c[1] + 1), (x, 0))

    assert "while" in kinds(f, np.float32(3))
    check(f, np.float32(3), native=True)
    check(jax.vmap(f), x3[0])


def test_while_with_what_both_parts_close_over():
    check(lambda x, n, w: jax.lax.while_loop(lambda c: c.sum() < n, lambda c: c * w, x), x3[3], np.float32(30), 2.0)


def test_fori_loops_with_bounds_of_values():
    check(lambda x, n: jax.lax.fori_loop(0, n, lambda i, c: c + i, x), 3, 5)
    check(lambda x: jax.lax.fori_loop(2, 9, lambda i, c: c + i, x), 3)


@pytest.mark.parametrize(
    ("first", "limit", "step", "test"),
    [
        (0, 10, 1, lambda i, n: i < n),
        (0, 10, 3, lambda i, n: i <= n),
        (10, 0, -3, lambda i, n: i > n),
        (10, 1, -3, lambda i, n: i >= n),
        (0, 10, 4, lambda i, n: n > i),
        (5, 5, 1, lambda i, n: i < n),
        (4, 5, 1, lambda i, n: i < n),
        (0, 7, 2, lambda i, n: n >= i),
    ],
)
def test_loops_that_count_are_loops_of_known_length(first, limit, step, test):
    def f(x):
        return jax.lax.while_loop(lambda c: test(c[0], limit), lambda c: (c[0] + step, c[1] * 2), (first, x))

    assert "while" not in kinds(f, np.float32(1))
    check(f, np.float32(1))


@pytest.mark.parametrize("step", [0, -1])
def test_loops_that_count_the_wrong_way_are_not(step):
    def f(x):
        return jax.lax.while_loop(lambda c: c[0] < 5, lambda c: (c[0] + step + jnp.int32(x > 0) * 2, c[1] + 1), (0, 0))

    assert "while" in kinds(f, np.float32(1))
    check(f, np.float32(1)) if step else None


# --- branches ---------------------------------------------------------------------------------------------------------


def test_cond_and_its_gradient():
    def f(p, x):
        return jax.lax.cond(p, lambda x: jnp.sin(x) * jnp.arange(3.0), lambda x: x + jnp.ones((4, 1)), x)

    assert "cond" in kinds(f, True, x3)
    for p in (True, False):
        check(f, p, x3)
        check(jax.grad(lambda x, p: f(p, x).sum()), x3, p)
    check(f, True, x3, native=True)


@pytest.mark.parametrize("index", [-3, 1, 7, *(pytest.param(i, marks=pytest.mark.slow) for i in (0, 2))])
def test_switch(index):
    def f(i, x):
        return jax.lax.switch(i, [lambda x: x * 2, jnp.sin, lambda x: x - 1], x)

    assert "switch" in kinds(f, 0, x3)
    check(f, index, x3)


def test_of_a_known_branch_only_one_case_is_read():
    def f(x):
        return jax.lax.cond(True, jnp.sin, lambda x: jax.lax.rng_bit_generator(jnp.zeros(4, "u4"), (4, 3))[1] + x, x)

    assert "cond" not in kinds(f, x3)
    check(lambda x: jax.lax.switch(2, [lambda x: x * 2, jnp.sin, lambda x: x - 1], x), x3)


def test_branches_in_loops_and_a_batch_of_predicates():
    def f(x):
        return jax.lax.scan(lambda c, v: (jax.lax.cond(v > 0, lambda: c + v, lambda: c * 2), None), 0.0, x)[0]

    check(f, x3[:, 1])
    check(jax.vmap(f), x3)


# --- functions --------------------------------------------------------------------------------------------------------


@jax.custom_vjp
def clipped(x, n, y):
    return {"a": jnp.sin(x) * y, "b": x * n}


clipped.defvjp(
    lambda x, n, y: (clipped(x, n, y), (jnp.cos(x), y)),
    lambda saved, g: (jnp.clip(saved[0] * g["a"] * saved[1], -0.1, 0.1) + g["b"], None, 2 * g["a"]),
)


@jax.custom_jvp
def doubled(x, y):
    return jnp.exp(x) + y


doubled.defjvp(lambda p, t: (doubled(*p), 2 * t[0] * jnp.exp(p[0]) + t[1]))


def _loss(x, y):
    made = clipped(x, 3, y)
    return (made["a"] * made["b"] + doubled(x, y)).sum()


def test_functions_with_derivatives_of_their_own():
    check(_loss, x3, x3 * 2)
    check(jax.grad(_loss, argnums=(0, 1)), x3, x3 * 2)


def _gradients(fn, *arrays):
    """Gradients by Abele's differentiation of what is read, and the network."""
    jaxpr, net = jax.make_jaxpr(fn)(*arrays), NetworkBuilder()
    parameters = [net.parameter(*type_of(v), f"p{n}") for n, v in enumerate(jaxpr.in_avals)]
    (net.loss,) = read_into(net, jaxpr, parameters, differentiated=True)
    made = differentiate(net.finish(), parameters)
    values = evaluate(made, dict(zip(parameters, arrays, strict=True)), precise=False)
    return [values[made.gradients[p]] for p in parameters], made


def test_derivatives_of_their_own_are_kept_where_abele_differentiates():
    got, _ = _gradients(_loss, x3, x3 * 2)
    for ours, theirs in zip(got, jax.grad(_loss, argnums=(0, 1))(x3, x3 * 2), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=2e-6, atol=2e-6)


def test_own_derivatives_in_scans_and_of_relu_at_zero():
    def f(x, y):
        return jax.lax.scan(lambda c, v: (jax.nn.relu(doubled(v * 0.1, c) - 1), None), jax.nn.relu(y[0]), x)[0].sum()

    x = np.where(np.abs(x3) < 0.2, 0, x3).astype("f4")
    got, _ = _gradients(f, x, x * 0)
    for ours, theirs in zip(got, jax.grad(f, argnums=(0, 1))(x, x * 0), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=2e-6, atol=2e-6)


def test_checkpoints_are_abeles_own_where_it_differentiates():
    def f(x, y):
        return (jax.checkpoint(lambda x: jnp.sin(jnp.sin(x) * y))(x)).sum()

    got, net = _gradients(f, x3, x3)
    assert "checkpoint" in [op.kind for op in net.walk()]
    np.testing.assert_allclose(got[0], jax.grad(f)(x3, x3), rtol=2e-6, atol=2e-6)


def test_recomputation_in_a_backward_pass_of_jax_stays_one():
    def block(x):
        return jnp.sin(jnp.exp(jnp.sin(x)))

    def loss(x, *, wrap):
        for _ in range(2):
            x = wrap(block)(x) @ jnp.ones((3, 3))
        return x.sum()

    def exponentials(wrap):
        found = captured(jax.grad(lambda x: loss(x, wrap=wrap)), x3)[0].network
        texts = [str(op) for op in inference_pipeline().run(found).walk() if op.kind in ("map", "nonlinearity")]
        return sum(text.count("exp") for text in texts)

    check(jax.grad(lambda x: loss(x, wrap=jax.checkpoint)), x3, native=True)
    assert exponentials(jax.checkpoint) > exponentials(lambda f: f)


def test_barriers_stay_and_change_nothing():
    def f(x):
        y = jnp.exp(x)
        return y + jnp.exp(jax.lax.optimization_barrier(x))

    found = inference_pipeline().run(captured(f, x3)[0].network)
    assert [op.kind for op in found.ops].count("barrier") == 1
    check(f, x3)
    net = NetworkBuilder()
    p = net.parameter((3,), "f32", "p")
    net.loss = build.reduce(net, build.barrier(net, p), [0])
    made = differentiate(net.finish(), [p])
    np.testing.assert_array_equal(evaluate(made, {p: np.ones(3)})[made.gradients[p]], np.ones(3))


def test_functions_within_functions():
    @jax.custom_batching.custom_vmap
    def mapped(x):
        return x + 1

    mapped.def_vmap(lambda size, batched, x: (x + 1, True))

    @jax.named_call
    def named(x):
        return x * 2

    def f(x):
        y = jax.jit(named, inline=True)(x) + jax.jit(lambda a: a * 3, donate_argnums=0)(x) + mapped(x)
        return y + jax.custom_derivatives.linear_call(lambda r, x: x * r, lambda r, t: t * r, 2.0, x)

    check(f, x3)


def test_eager_and_native_loops_agree():
    def f(x):
        c, ys = jax.lax.scan(_step, x[0], x)
        n = jax.lax.while_loop(lambda v: v.sum() < 10, lambda v: v * 2, jnp.abs(c) + 1)
        return ys, jax.lax.cond(n[0] > 2, lambda: n, lambda: -n)

    ours, theirs = ajax.jit(f)(x3), jax.jit(f)(x3)
    for a, b in zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True):
        np.testing.assert_allclose(a, b, rtol=2e-6, atol=2e-6)
