"""A deep residual MLP of Equinox, its layers stacked and run by ``scan``."""

import equinox as eqx
import jax
import jax.numpy as jnp
import optax

from frontends.jax.programs.program import Program


class Block(eqx.Module):
    norm: eqx.nn.LayerNorm
    inner: eqx.nn.Linear
    outer: eqx.nn.Linear

    def __init__(self, width, key):
        first, second = jax.random.split(key)
        self.norm = eqx.nn.LayerNorm(width)
        self.inner, self.outer = eqx.nn.Linear(width, 2 * width, key=first), eqx.nn.Linear(2 * width, width, key=second)

    def __call__(self, x):
        return x + self.outer(jax.nn.silu(self.inner(self.norm(x))))


def program(scale=1):
    width, depth, batch = 8 * scale, 4, 8 * scale
    blocks = eqx.filter_vmap(lambda key: Block(width, key))(jax.random.split(jax.random.key(0), depth))
    params, static = eqx.partition(blocks, eqx.is_array)
    x = jax.random.normal(jax.random.key(1), (3, batch, width))
    optimiser = optax.sgd(0.05)

    def forward(params, x):
        def layer(x, params):
            return jax.vmap(eqx.combine(params, static))(x), None

        return jax.lax.scan(layer, x, params)[0]

    def step(state, x):
        params, opt = state
        value, grads = jax.value_and_grad(lambda p: ((forward(p, x) - jnp.roll(x, 1, 1)) ** 2).mean())(params)
        updates, opt = optimiser.update(grads, opt)
        return (optax.apply_updates(params, updates), opt), value

    return Program(step, (params, optimiser.init(params)), tuple((b,) for b in x), rtol=1e-4)
