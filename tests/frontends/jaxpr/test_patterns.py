"""Norms, softmaxes and activations that JAX writes as strings of primitives: found, and worth the same."""

from dataclasses import replace

import flax.linen as flax
import haiku as hk
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from hypothesis import given
from hypothesis import strategies as st

from abele.network import evaluate, verify
from abele.network.passes.canonicalise import Canonicalise
from abele.network.passes.common_subexpressions import CommonSubexpressions
from abele.network.passes.dead_code import DeadCode
from abele.network.passes.fold_constants import FoldConstants
from abele.network.passes.fuse_maps import FuseMaps
from abele.network.passes.join_views import JoinViews
from abele.network.passes.recognise import Recognise
from frontends.jaxpr.jaxpr_kit import captured, mostly_slow
from support.examples import examples

RNG = np.random.default_rng(0)


def values(net, found, arrays):
    """Outputs of a network in 64 bits."""
    feeds = dict(zip(found.arguments, arrays, strict=True)) | {
        b: found.closed_over[b.name] for b in found.network.buffers
    }
    made = evaluate(net, feeds)
    return [np.asarray(made[v], np.float64) for v in net.outputs]


def simplified(net):
    """A network as recognition sees it."""
    for step in (Canonicalise(), FoldConstants(), CommonSubexpressions(), DeadCode()):
        net = step.run(net)
    return net


def recognised(fn, *args, rtol=2e-6, atol=2e-6):
    """Kinds of op of a function's network after recognition, which gives the same values as before it."""
    found, arrays = captured(fn, *args)
    net = simplified(found.network)
    made = Recognise().run(net)
    verify(made)
    last = DeadCode().run(CommonSubexpressions().run(JoinViews().run(FuseMaps().run(made))))
    verify(last)
    want = values(net, found, arrays)
    for after in (made, last):
        for ours, theirs in zip(values(after, found, arrays), want, strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=rtol, atol=atol)
    return {op.kind for op in made.ops}


def gradients(fn, *args):
    """A function whose results are gradients of a weighted sum, and its arguments: weights, and those of ``fn``."""
    weights = normal(*jax.eval_shape(fn, *args).shape)
    numbers = tuple(range(1, len(args) + 1))
    return jax.value_and_grad(lambda weights, *args: (fn(*args) * weights).sum(), argnums=numbers), weights, *args


def normal(*shape, dtype=jnp.float32):
    return jnp.asarray(RNG.normal(size=shape), dtype)


# --- softmax ----------------------------------------------------------------------------------------------------------


def by_hand(x, axis):
    powers = jnp.exp(x - x.max(axis, keepdims=True))
    return powers / powers.sum(axis, keepdims=True)


def by_reciprocal(x, axis):
    powers = jnp.exp(x - jax.lax.stop_gradient(x.max(axis, keepdims=True)))
    return powers * (1.0 / powers.sum(axis, keepdims=True))


SOFTMAXES = {
    "jax.nn": lambda x, axis: jax.nn.softmax(x, axis),
    "by hand": by_hand,
    "by reciprocal": by_reciprocal,
    "unshifted": lambda x, axis: jnp.exp(x) / jnp.exp(x).sum(axis, keepdims=True),
    "scaled": lambda x, axis: jax.nn.softmax(x * 0.3 + 1.0, axis),
}


@pytest.mark.parametrize("form", SOFTMAXES)
@pytest.mark.parametrize("axis", [-1, 0, (1, 2)])
def test_softmax__however_written__is_one_op(form, axis):
    assert "softmax" in recognised(lambda x: SOFTMAXES[form](x, axis), normal(3, 4, 5))


@pytest.mark.parametrize("form", ["jax.nn", "by reciprocal", "scaled"])
@pytest.mark.parametrize("axis", [-1, 1])
def test_softmax__differentiated__has_one_op_for_the_gradient(form, axis):
    kinds = recognised(*gradients(lambda x: SOFTMAXES[form](x, axis), normal(3, 4, 5)))
    assert {"softmax", "softmax_grad"} <= kinds


@pytest.mark.parametrize("axis", [-1, 0])
def test_log_softmax__with_gradient__is_one_op_each(axis):
    kinds = recognised(*gradients(lambda x: jax.nn.log_softmax(x, axis), normal(3, 7)))
    assert {"log_softmax", "log_softmax_grad"} <= kinds


def test_softmax__of_half_precision__is_one_op():
    assert "softmax" in recognised(lambda x: jax.nn.softmax(x), normal(4, 8, dtype=jnp.float16), rtol=2e-3, atol=2e-3)


# --- cross entropy of labels ------------------------------------------------------------------------------------------


def of_logits(x, labels):
    return optax.softmax_cross_entropy_with_integer_labels(x, labels).mean()


def taken(x, labels):
    return -jnp.take_along_axis(jax.nn.log_softmax(x), labels[..., None], -1).mean()


def by_numbers(x, labels):
    return -jax.nn.log_softmax(x.reshape(-1, 7))[jnp.arange(labels.size), labels.ravel()].mean()


def focal(x, labels):
    entropy = optax.softmax_cross_entropy_with_integer_labels(x, labels)
    return (jnp.square(1 - jnp.exp(-entropy)) * entropy).sum()


def masked(x, labels):
    entropy = optax.softmax_cross_entropy_with_integer_labels(x, labels)
    return jnp.where(labels > 0, entropy, 0.0).sum()


def of_one_hot(x, labels):
    return -(jax.nn.one_hot(labels, 7) * jax.nn.log_softmax(x)).sum()


ENTROPIES = (of_logits, taken, by_numbers, focal, masked, of_one_hot)
LABELS = jnp.asarray([[3, 0, 6], [-1, 2, 2]])


@pytest.mark.parametrize("rows", [2, 1])
@pytest.mark.parametrize("fn", ENTROPIES, ids=lambda f: f.__name__)
def test_cross_entropy__of_labels__is_a_log_softmax_that_is_picked_from(fn, rows):
    kinds = recognised(jax.value_and_grad(fn), normal(rows, 3, 7), LABELS[:rows])
    assert "log_softmax" in kinds
    assert not {"look_up", "update_rows", "add_rows"} & kinds


@pytest.mark.parametrize("fn", [of_logits, masked], ids=lambda f: f.__name__)
def test_cross_entropy__of_labels_out_of_range__is_as_jax_has_it(fn):
    x, labels = normal(2, 3, 7).at[:, :, 1].set(-jnp.inf), LABELS.at[0, 0].set(-100)
    assert "log_softmax" in recognised(fn, x, labels)


def test_cross_entropy__whose_normaliser_is_needed__stays():
    def with_normaliser(x, labels):
        return of_logits(x, labels) + 1e-2 * jnp.square(jax.nn.logsumexp(x, -1)).sum()

    assert "log_softmax" not in recognised(jax.value_and_grad(with_normaliser), normal(2, 3, 7), LABELS)


# --- norms ------------------------------------------------------------------------------------------------------------


def layer_norm(x, gain, shift, axis=-1, eps=1e-5):
    mean = x.mean(axis, keepdims=True)
    return (x - mean) * jax.lax.rsqrt(x.var(axis, keepdims=True) + eps) * gain + shift


def by_squares(x, gain, shift, axis=-1, eps=1e-5):
    mean = x.mean(axis, keepdims=True)
    variance = jnp.maximum((x * x).mean(axis, keepdims=True) - mean * mean, 0.0)
    factor = jax.lax.rsqrt(variance + eps) * gain
    return x * factor + (shift - mean * factor)


def by_division(x, gain, shift, axis=-1, eps=1e-5):
    centred = x - x.mean(axis, keepdims=True)
    deviation = jnp.sqrt((centred**2).mean(axis, keepdims=True) + eps)
    return shift + gain * (centred / deviation)


NORMS = {"plain": layer_norm, "squares": by_squares, "division": by_division}


@pytest.mark.parametrize("form", NORMS)
@pytest.mark.parametrize("axis", [-1, 0, (0, 1)])
def test_norm__however_written__is_one_op(form, axis):
    gain, shift = normal(6), normal(6)
    kinds = recognised(lambda x, g, b: NORMS[form](x, g, b, axis), normal(4, 5, 6), gain, shift, atol=1e-5)
    assert "norm" in kinds


@pytest.mark.parametrize("form", NORMS)
@pytest.mark.parametrize("axis", [-1, (0, 1)])
def test_norm__differentiated__has_the_librarys_gradients(form, axis):
    step = gradients(lambda x, g, b: NORMS[form](x, g, b, axis), normal(4, 5, 6), normal(6), normal(6))
    kinds = recognised(*step, atol=1e-4)
    assert {"norm", "norm_grad", "norm_grad_parameters"} <= kinds


def test_norm__beside_a_residual__leaves_the_sum():
    def block(x, g, b):
        return (x + jnp.sin(layer_norm(x, g, b)) * 2.0).sum()

    kinds = recognised(jax.grad(block, argnums=(0, 1, 2)), normal(4, 6), normal(6), normal(6), atol=1e-5)
    assert {"norm", "norm_grad"} <= kinds


def whitened(x):
    return layer_norm(x, 1.0, 0.0)


POLYNOMIALS = {
    "square": lambda y: (y**2).sum(),
    "cube": lambda y: (y**3).sum(),
    "distance": lambda y: ((y - 0.3) ** 2).mean(),
    "sum": lambda y: (y + jnp.sin(y) * y * y).sum(),
}


@pytest.mark.parametrize("name", POLYNOMIALS)
def test_norm__whose_result_is_multiplied__has_the_librarys_gradient(name):
    x, side = normal(4, 6), normal(6)
    for fn in (whitened, lambda x: layer_norm(x, side, side)):
        kinds = recognised(jax.grad(lambda x, fn=fn: POLYNOMIALS[name](fn(x))), x, atol=1e-4)
        assert {"norm", "norm_grad"} <= kinds
        found = simplified(captured(lambda x, fn=fn: POLYNOMIALS[name](fn(x)), x)[0].network)
        trained = replace(found, loss=found.outputs[0])
        assert "norm" in {op.kind for op in Recognise(differentiated=True).run(trained).ops}


def test_norm__standardised_in_vmap__is_one_op():
    def standardise(row, eps=1e-5):
        return (row - row.mean()) / jnp.sqrt(row.var() + eps)

    assert {"norm", "norm_grad"} <= recognised(*gradients(jax.vmap(standardise), normal(5, 8)), atol=1e-5)


def test_norm__statistics_used_elsewhere__are_those_of_the_op():
    def step(x, running):
        mean, variance = x.mean(0), x.var(0)
        made = (x - mean) / jnp.sqrt(variance + 1e-3)
        return made, 0.9 * running + 0.1 * mean, variance

    assert "norm" in recognised(step, normal(16, 4), normal(4), atol=1e-5)


FLAX = {
    "LayerNorm": flax.LayerNorm(),
    "LayerNorm, slow": flax.LayerNorm(use_fast_variance=False),
    "BatchNorm": flax.BatchNorm(use_running_average=False),
}


@pytest.mark.parametrize("name", mostly_slow(FLAX, "LayerNorm", "BatchNorm"))
def test_norm__of_flax__has_the_librarys_gradients(name):
    layer, x = FLAX[name], normal(4, 3, 3, 8)
    state = layer.init(jax.random.key(0), x)

    def loss(params, x):
        y, changed = layer.apply({**state, "params": params}, x, mutable=["batch_stats"])
        return (jnp.sin(y) * y).sum(), changed

    kinds = recognised(jax.value_and_grad(loss, has_aux=True, argnums=(0, 1)), state["params"], x, atol=2e-4, rtol=1e-5)
    assert {"norm", "norm_grad"} <= kinds


def test_norm__of_haiku__has_the_librarys_gradients():
    net = hk.without_apply_rng(hk.transform(lambda x: hk.LayerNorm(-1, True, True)(x)))
    x = normal(4, 8)
    params = net.init(jax.random.key(0), x)
    kinds = recognised(jax.grad(lambda p, x: (net.apply(p, x) ** 3).sum(), argnums=(0, 1)), params, x, atol=1e-4)
    assert {"norm", "norm_grad"} <= kinds


# --- near misses ------------------------------------------------------------------------------------------------------


def over_deviation(x):
    centred = x - x.mean(-1, keepdims=True)
    return centred / (x.std(-1, keepdims=True) + 1e-3)


def other_axis(x):
    return (x - x.mean(0, keepdims=True)) * jax.lax.rsqrt(x.var(-1, keepdims=True) + 1e-5)


def root_mean_square(x):
    return x * jax.lax.rsqrt((x * x).mean(-1, keepdims=True) + 1e-6)


def not_centred(x):
    return x * jax.lax.rsqrt(x.var(-1, keepdims=True) + 1e-5)


def other_sum(x):
    powers = jnp.exp(x - x.max(-1, keepdims=True))
    return powers / powers.sum(0, keepdims=True)


def sum_used(x):
    powers = jnp.exp(x - x.max(-1, keepdims=True))
    total = powers.sum(-1, keepdims=True)
    return powers / total + jnp.log(total)


def shifted_within(x):
    powers = jnp.exp(x - x.max(0, keepdims=True))
    return powers / powers.sum(-1, keepdims=True)


def unbiased(x):
    return (x - x.mean(-1, keepdims=True)) / jnp.sqrt(x.var(-1, keepdims=True, ddof=1) + 1e-5)


MISSES = (over_deviation, other_axis, root_mean_square, not_centred, other_sum, sum_used, shifted_within, unbiased)


@pytest.mark.parametrize("fn", MISSES, ids=lambda f: f.__name__)
def test_near_miss__of_a_pattern__keeps_its_values(fn):
    x = normal(5, 5)
    recognised(fn, x, rtol=1e-5, atol=1e-5)
    recognised(*gradients(fn, x), rtol=1e-4, atol=1e-4)


# --- activations ------------------------------------------------------------------------------------------------------

ACTIVATIONS = {
    "gelu_erf": lambda x: jax.nn.gelu(x, approximate=False),
    "gelu": jax.nn.gelu,
    "silu": jax.nn.silu,
    "gelu by hand": lambda x: 0.5 * x * (1 + jax.scipy.special.erf(x / jnp.sqrt(2.0))),
    "silu by hand": lambda x: x / (1 + jnp.exp(-x)),
}


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_activation__however_written__is_one_op(name):
    kinds = recognised(lambda x: ACTIVATIONS[name](x + 1.0), normal(4, 5), atol=1e-5)
    assert "nonlinearity" in kinds


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_activation__differentiated__has_one_op_for_the_gradient(name):
    kinds = recognised(*gradients(lambda x, w: ACTIVATIONS[name](x @ w), normal(4, 5), normal(5, 3)), atol=1e-5)
    assert {"nonlinearity", "nonlinearity_grad"} <= kinds


def test_relu__differentiated__has_the_librarys_gradient():
    kinds = recognised(*gradients(lambda x, w: jax.nn.relu(x @ w), normal(4, 5), normal(5, 3)))
    assert "nonlinearity_grad" in kinds


def test_maximum__with_ties__keeps_its_halves():
    x = jnp.asarray([[0.0, 1.0, -1.0, 0.0]])
    kinds = recognised(*gradients(lambda x: jnp.maximum(x, 0.0), x))
    assert "nonlinearity_grad" not in kinds


@pytest.mark.parametrize("fn", [lambda x: x * jax.nn.sigmoid(1.1 * x), lambda x: jax.nn.gelu(x) * x, jnp.tanh])
def test_activation__nearly_one__keeps_its_values(fn):
    recognised(*gradients(fn, normal(4, 5)), atol=1e-5)


# --- any of them ------------------------------------------------------------------------------------------------------


@examples(6)
@given(st.data())
def test_patterns__any_shape__keep_their_values(data):
    shape = tuple(data.draw(st.lists(st.integers(1, 5), min_size=2, max_size=4)))
    axes = st.lists(st.integers(0, len(shape) - 1), min_size=1, max_size=len(shape) - 1, unique=True)
    axis = tuple(data.draw(axes))
    form = data.draw(st.sampled_from([*NORMS.values()]))
    softmax = data.draw(st.sampled_from([*SOFTMAXES.values()]))
    side = data.draw(st.sampled_from([(), shape[-1:], shape]))

    def fn(x, g, b):
        return softmax(form(x, g, b, axis, 1e-2), axis)

    recognised(*gradients(fn, normal(*shape), normal(*side), normal(*side)), rtol=1e-4, atol=1e-4)


def test_norm_whose_statistics_have_gradients__stays_where_they_are_taken():
    def normalised(x):
        mean = x.mean(-1, keepdims=True)
        inverse = jax.lax.rsqrt(((x - mean) ** 2).mean(-1, keepdims=True) + 1e-5)
        return (x - mean) * inverse, mean

    def of_result(x):
        return jnp.sin(normalised(x)[0]).sum(), normalised(x)[1]

    def of_both(x):
        result, mean = normalised(x)
        return jnp.sin(result).sum() + (mean**2).sum(), mean

    for fn, found in ((of_result, True), (of_both, False)):
        net = simplified(captured(fn, normal(4, 8))[0].network)
        trained = replace(net, loss=net.outputs[0])
        assert ("norm" in {op.kind for op in Recognise(differentiated=True).run(trained).ops}) == found
        assert "norm" in {op.kind for op in Recognise().run(trained).ops}
