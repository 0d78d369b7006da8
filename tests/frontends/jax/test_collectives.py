"""``pmap`` and ``shard_map`` over replicas compute what JAX computes on several devices."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AbstractMesh
from jax.sharding import PartitionSpec as P

from abele import jax as ajax
from abele.errors import BatchSizeError, GraphReplicationError, InvalidOptionError, UnsupportedOpError

N = 4
x = np.arange(N * N * 3, dtype="f4").reshape(N, N, 3) - 20
i = x.astype("i4")
FLOATS_AND_SLOW_INTEGERS = [pytest.param(x, id="f4"), pytest.param(i, id="i4", marks=pytest.mark.slow)]


def vmapped(fn, *args, in_axes=0, out_axes=0):
    """JAX's own meaning of collectives, on a batch: the oracle."""
    return jax.vmap(fn, in_axes, out_axes, axis_name="i")(*args)


def same(fn, *args, **axes):
    ours = ajax.pmap(fn, "i", **axes)(*args)
    for a, b in zip(jax.tree.leaves(ours), jax.tree.leaves(vmapped(fn, *args, **axes)), strict=True):
        assert (a.shape, a.dtype) == (b.shape, b.dtype)
        np.testing.assert_allclose(np.asarray(a), np.asarray(b), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("numbers", FLOATS_AND_SLOW_INTEGERS)
def test_sums_extrema_and_ranks(numbers):
    def f(v):
        s, m = jax.lax.psum(v, "i"), jax.lax.pmean(v, "i")
        return s, m, jax.lax.pmax(v, "i"), jax.lax.pmin(v, "i"), jax.lax.axis_index("i"), jax.lax.axis_size("i")

    same(f, numbers)


@pytest.mark.slow
def test_extrema_of_numbers_without_a_sign():
    same(lambda v: (jax.lax.pmin(v, "i"), jax.lax.pmax(v, "i")), np.array([3, 0, 250, 7], "u4"))


@pytest.mark.slow
def test_sum_of_tests_and_maximum_of_integers():
    same(lambda v: (jax.lax.psum(v > 0, "i"), jax.lax.pmax(jnp.int32(1) * v, "i")), i)


@pytest.mark.parametrize("numbers", FLOATS_AND_SLOW_INTEGERS)
def test_exchanges_of_parts(numbers):
    def f(v):
        return (
            jax.lax.all_gather(v, "i"),
            jax.lax.all_gather(v, "i", axis=1),
            jax.lax.all_gather(v, "i", axis=1, tiled=True),
            jax.lax.psum_scatter(v, "i"),
            jax.lax.psum_scatter(v, "i", tiled=True),
            jax.lax.all_to_all(v, "i", 0, 0),
            jax.lax.all_to_all(v, "i", 0, 1),
            jax.lax.all_to_all(v, "i", 0, 1, tiled=True),
        )

    same(f, numbers)


def test_permutations():
    ring = [(n, (n + 1) % N) for n in range(N)]

    def f(v):
        return (
            jax.lax.ppermute(v, "i", ring),
            jax.lax.pshuffle(v, "i", [3, 2, 1, 0]),
            jax.lax.pbroadcast(v, "i", 2),
        )

    same(f, x)
    sent = ajax.pmap(lambda v: (jax.lax.ppermute(v, "i", [(0, 2)]), jax.lax.ppermute(v > 0, "i", [(3, 1)])), "i")(x)
    zero = np.zeros_like(x[0])
    np.testing.assert_array_equal(sent[0], [zero, zero, x[0], zero])
    np.testing.assert_array_equal(sent[1], [zero > 0, x[3] > 0, zero > 0, zero > 0])


def test_groups_along_an_axis():
    for groups in ([[0, 1], [2, 3]], [[0, 2], [1, 3]]):
        got = ajax.pmap(lambda v, g=groups: jax.lax.psum(v, "i", axis_index_groups=g), "i")(x)
        for group in groups:
            np.testing.assert_allclose(got[np.array(group)], np.stack([x[group].sum(0)] * 2))
    with pytest.raises(UnsupportedOpError, match="over the groups"):
        ajax.pmap(lambda v: jax.lax.psum(v, "i", axis_index_groups=[[0, 3], [1, 2]]), "i")(x)


def test_axes_of_arguments_and_results():
    def f(v, tree, shared):
        return v * shared + tree["a"].sum(), {"v": v, "s": shared, "n": jax.lax.psum(v, "i")}

    tree = {"a": np.arange(8, dtype="f4").reshape(2, N)}
    axes = {"in_axes": (0, 1, None), "out_axes": (1, {"v": 0, "s": 0, "n": None})}
    same(f, x, tree, np.float32(3), **axes)
    same(lambda v: v, x, in_axes=1, out_axes=2)
    same(lambda v: jnp.float32(3), x, out_axes=0)


def test_training_on_replicas_keeps_their_state():
    def step(w, batch):
        gradient = jax.grad(lambda w: ((batch @ w) ** 2).mean())(w)
        return w - 0.1 * jax.lax.pmean(gradient, "i"), jax.lax.axis_index("i") * 1.0

    trained = ajax.pmap(step, axis_name="i", donate_argnums=0)
    w = np.broadcast_to(np.float32([1, -2, 0.5]), (N, 3))
    batch = x / 20
    ours, theirs = jnp.asarray(w), w
    for _ in range(3):
        (ours, ranks), before = trained(ours, batch), ours
        theirs = vmapped(step, theirs, batch)[0]
    assert before.is_deleted()
    assert ours.shape == (N, 3)
    np.testing.assert_allclose(ours, theirs, rtol=1e-6)
    np.testing.assert_array_equal(ranks, range(N))


def test_state_that_differs_from_replica_to_replica():
    moved = ajax.pmap(lambda s: jax.lax.ppermute(s, "i", [(n, (n + 1) % N) for n in range(N)]), "i", donate_argnums=0)
    state = moved(moved(jnp.arange(4.0)))
    np.testing.assert_array_equal(state, [2, 3, 0, 1])


def test_statics_and_numbers_of_replicas():
    scaled = ajax.pmap(lambda v, how: v * len(how), static_broadcasted_argnums=1, devices=N)
    np.testing.assert_array_equal(scaled(x, "abc"), x * 3)
    with pytest.raises(BatchSizeError, match=r"v has shape \[3\], and 4 replicas take axis 0 of 4"):
        scaled(np.ones(3, "f4"), "a")
    with pytest.raises(InvalidOptionError, match="in_axes has 1 axes for 2 arguments"):
        ajax.pmap(lambda a, b: a, in_axes=(0,))(x, x)
    with pytest.raises(InvalidOptionError, match="maps no argument"):
        ajax.pmap(lambda a: a, in_axes=None)(x)


# --- shard_map --------------------------------------------------------------------------------------------------------


def on(mesh, in_specs, out_specs, fn, **kwargs):
    return jax.shard_map(fn, mesh=mesh, in_specs=in_specs, out_specs=out_specs, **kwargs)


def test_shard_map_and_its_gradient():
    mesh = AbstractMesh((4,), ("i",))
    a, w = x.reshape(16, 3) / 20, np.linspace(-1, 1, 6, dtype="f4").reshape(3, 2)

    def f(a, w):
        def part(a, w):
            return jax.lax.psum(jnp.tanh(a @ w).sum(0), "i"), a * jax.lax.axis_index("i")

        return on(mesh, (P("i"), P()), (P(), P("i")), part)(a, w)

    total, ranked = ajax.jit(f)(a, w)
    np.testing.assert_allclose(total, np.tanh(a @ w).sum(0), rtol=1e-5)
    np.testing.assert_allclose(ranked, a * np.repeat(np.arange(4, dtype="f4"), 4)[:, None])
    ours = ajax.jit(jax.grad(lambda w: f(a, w)[0].sum()))(w)
    np.testing.assert_allclose(ours, jax.grad(lambda w: jnp.tanh(a @ w).sum())(w), rtol=1e-5)


def test_meshes_of_two_axes():
    mesh = AbstractMesh((2, 2), ("data", "model"))
    a, w = x.reshape(12, 4) / 20, np.linspace(-1, 1, 8, dtype="f4").reshape(4, 2)

    def part(a, w):
        product = jax.lax.psum(a @ w, "model")
        both = jax.lax.psum(a.sum(), ("data", "model"))
        return product, both, jax.lax.axis_index("data") * 10 + jnp.full((1, 1), jax.lax.axis_index("model"))

    specs = (P("data", "model"), P("model")), (P("data"), P(), P("data", "model"))
    product, both, places = ajax.jit(on(mesh, *specs, part))(a, w)
    np.testing.assert_allclose(product, a @ w, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(both, a.sum(), rtol=1e-5)
    np.testing.assert_array_equal(places, [[0, 1], [10, 11]])
    joint = on(mesh, P(("data", "model")), P(("data", "model")), lambda v: v + jax.lax.axis_index(("data", "model")))
    np.testing.assert_allclose(ajax.jit(joint)(a), a + np.repeat(np.arange(4, dtype="f4"), 3)[:, None])


def test_donated_state_beside_parts():
    mesh = AbstractMesh((2,), ("i",))

    @ajax.jit(donate_argnums=0)
    def step(w, batch):
        return w + on(mesh, P("i"), P(), lambda b: jax.lax.psum(b.sum(0), "i"))(batch), w.sum()

    w = jnp.zeros(3)
    for _ in range(2):
        w, before = step(w, np.ones((4, 3), "f4"))
    np.testing.assert_array_equal(w, [8, 8, 8])
    assert float(before) == 12


def test_meshes_of_several_sizes_are_refused():
    def f(a):
        one = on(AbstractMesh((2,), ("i",)), P("i"), P("i"), lambda v: v)(a)
        return on(AbstractMesh((4,), ("i",)), P("i"), P("i"), lambda v: v * 2)(one)

    with pytest.raises(GraphReplicationError, match="meshes of 2, 4 devices"):
        ajax.jit(f)(np.ones(4, "f4"))
