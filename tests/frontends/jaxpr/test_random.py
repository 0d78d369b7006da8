"""Keys and random numbers are JAX's, bit for bit; by choice they are the machine's own."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from abele.errors import UnsupportedOpError
from abele.frontends.jaxpr import capture
from abele.network import evaluate
from abele.session import Session
from frontends.jaxpr.jaxpr_kit import captured, check, compiled_where_slow, fused_kinds, mostly_slow, read

KEY = jax.random.key(42)
KEYS = jax.random.split(KEY, 3)


@pytest.mark.parametrize("partitionable", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_bits_splits_and_folds__are_jaxs_bit_for_bit(partitionable):
    with jax.threefry_partitionable(partitionable):
        check(
            lambda k: [jax.random.bits(k, s, t) for s, t in (((5, 3), "uint32"), ((3,), "uint8"), ((), "uint16"))], KEY
        )
        check(lambda k: (jax.random.split(k, (2, 3)), jax.random.fold_in(k, 7), jax.random.clone(k)), KEY)


@pytest.mark.slow
def test_words__compiled__are_jaxs_bit_for_bit():
    def drawn(key, keys, number):
        batch = jax.vmap(lambda k: jax.random.bits(k, (4, 5)))(keys)
        folded = jax.vmap(jax.random.fold_in, (None, 0))(key, jnp.arange(3) + number)
        return jax.random.bits(key, (700,)), batch, jax.random.split(key, 5), folded, jax.random.key(number)

    check(drawn, KEY, KEYS, np.int32(-3), native=True)


@compiled_where_slow
def test_numbers_of_32_and_16_bits__are_jaxs_bit_for_bit(native):
    def drawn(key):
        some = [jax.random.uniform(key, (9,), t) for t in ("float32", "float16", "bfloat16")]
        return some, jax.random.bernoulli(key, 0.3, (9,)), jax.random.randint(key, (9,), -5, 100)

    check(drawn, KEY, rtol=0, atol=0, native=native)


def test_distributions__through_maps__are_jaxs():
    def drawn(key):
        r = jax.random
        plain = (r.normal, r.gumbel, r.laplace, r.exponential, r.cauchy, r.logistic, r.rademacher)
        return [f(key, (6,)) for f in plain], r.truncated_normal(key, -1.0, 2.0, (6,)), r.rayleigh(key, 2.0, (6,))

    check(drawn, KEY, rtol=1e-5, atol=1e-5)


def test_distributions__by_order__are_jaxs():
    r = jax.random
    check(lambda key: (r.permutation(key, 9), r.choice(key, 7, (3,), replace=False)), KEY)


@pytest.mark.slow
def test_distributions__by_rejection__are_jaxs():
    check(lambda key: jax.random.gamma(key, jnp.array([0.4, 3.0])), KEY, rtol=1e-5, atol=1e-5)


@pytest.mark.slow
def test_further_distributions__are_jaxs():
    r = jax.random

    def drawn(key):
        return (
            r.categorical(key, jnp.arange(12.0).reshape(3, 4)),
            r.beta(key, 2.0, jnp.array([0.3, 5.0])),
            r.dirichlet(key, jnp.array([0.3, 1.0, 5.0])),
            r.poisson(key, jnp.array([0.3, 50.0])),
            r.t(key, 3.0, (4,)),
            r.ball(key, 3, shape=(2,)),
            r.orthogonal(key, 3),
            r.multivariate_normal(key, jnp.zeros(2), jnp.array([[2.0, 0.5], [0.5, 1.0]]), (3,)),
            r.binomial(key, 10.0, 0.3, (4,)),
            r.multinomial(key, 10.0, jnp.array([0.2, 0.3, 0.5])),
        )

    check(drawn, KEY, rtol=1e-4, atol=1e-5)


def test_old_keys__that_are_words__work():
    check(lambda k: jax.random.normal(jax.random.split(k)[1], (5,)), jax.random.PRNGKey(3), rtol=1e-5)


@pytest.mark.parametrize("kind", mostly_slow(["philox2x32", "philox4x32", "threefry4x32"], "philox4x32"))
def test_other_ciphers__are_jaxs_bit_for_bit(kind):
    check(lambda k: jax.random.bits(jax.random.split(k, 2)[1], (5,)), jax.random.key(3, impl=kind))


@pytest.mark.parametrize("kind", ["rbg", "unsafe_rbg"])
def test_keys_without_numbers_of_their_own__draw_evenly(kind):
    (drawn,) = read(lambda k: jax.random.uniform(k, (4000,)), jax.random.key(3, impl=kind))
    assert abs(drawn.mean() - 0.5) < 0.03
    assert abs(drawn.std() - 12**-0.5) < 0.02


def test_state_of_a_generator__of_another_width__is_refused():
    def drawn(state):
        return jax.lax.rng_bit_generator(state, (4,))[1]

    with pytest.raises(UnsupportedOpError, match=r"rng_bit_generator in .* with a state of u32"):
        captured(drawn, np.zeros(6, "u4"))


def test_known_keys__are_drawn_from_while_reading():
    found, _ = captured(lambda x: x + jax.random.normal(jax.random.key(3), (4,)), np.ones(4, "f4"))
    assert "random_words" not in {op.kind for op in found.network.ops}


def test_dropout__is_two_ops():
    def dropout(key, x):
        return jnp.where(jax.random.bernoulli(key, 0.9, x.shape), x / 0.9, 0)

    found, _ = captured(dropout, KEY, np.ones((8, 8), "f4"))
    assert fused_kinds(found.network) == ["random_words", "map"]
    check(dropout, KEY, np.ones((8, 8), "f4"), native=True)


def test_the_machines_generator__draws_other_numbers_of_the_distribution_by_the_key():
    jaxpr = jax.make_jaxpr(lambda k: jax.random.normal(k, (3000,)))(KEY)
    found = capture(jaxpr, ["key"], random="device")
    assert "draw" in {op.kind for op in found.network.ops}
    words = np.asarray(jax.random.key_data(KEY))
    with Session.of(found.network) as session:
        (first,), (again,), (other,) = session(words), session(words), session(words + np.uint32(1))
    np.testing.assert_array_equal(first, again)
    assert (first != other).mean() > 0.99
    assert abs(first.mean()) < 0.06
    assert abs(first.std() - 1) < 0.05
    wanted = evaluate(found.network, {found.arguments[0]: words})[found.network.outputs[0]]
    np.testing.assert_allclose(first, wanted, rtol=1e-4, atol=1e-5)
