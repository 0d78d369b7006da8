"""A variational autoencoder: noise from a key that is part of the state, a KL term, binary cross-entropy."""

import jax
import jax.numpy as jnp
import optax

from frontends.jax.programs.program import Program


def program(scale=1):
    size, width, code = 16 * scale, 16 * scale, 4
    keys = iter(jax.random.split(jax.random.key(0), 8))

    def dense(rows, columns):
        return jax.random.normal(next(keys), (rows, columns)) * rows**-0.5, jnp.zeros(columns)

    params = [dense(size, width), dense(width, 2 * code), dense(code, width), dense(width, size)]
    optimiser = optax.rmsprop(1e-3)

    def loss(params, key, x):
        first, second, third, fourth = params
        mean, log_var = jnp.split(jax.nn.softplus(x @ first[0] + first[1]) @ second[0] + second[1], 2, -1)
        z = mean + jnp.exp(0.5 * log_var) * jax.random.normal(key, mean.shape)
        logits = jax.nn.elu(z @ third[0] + third[1]) @ fourth[0] + fourth[1]
        fit = optax.sigmoid_binary_cross_entropy(logits, x).sum(-1)
        divergence = -0.5 * (1 + log_var - mean**2 - jnp.exp(log_var)).sum(-1)
        return (fit + divergence).mean()

    def step(state, x):
        params, opt, key = state
        key, use = jax.random.split(key)
        value, grads = jax.value_and_grad(loss)(params, use, x)
        updates, opt = optimiser.update(grads, opt)
        return (optax.apply_updates(params, updates), opt, key), value

    x = jax.random.bernoulli(next(keys), 0.4, (3, 8 * scale, size)).astype(jnp.float32)
    return Program(step, (params, optimiser.init(params), jax.random.key(3)), tuple((b,) for b in x), rtol=1e-3)
