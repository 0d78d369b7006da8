"""A normalising flow: affine couplings that are trained on a ring of points."""

import jax
import jax.numpy as jnp
import optax

from frontends.jax.programs.program import Program


def program(scale=1):
    width, depth = 16 * scale, 4
    keys = jax.random.split(jax.random.key(0), depth + 1)

    def coupling(key):
        first, second = jax.random.split(key)
        return {
            "w1": jax.random.normal(first, (1, width)),
            "b1": jnp.zeros(width),
            "w2": 0.1 * jax.random.normal(second, (width, 2)),
        }

    params = [coupling(k) for k in keys[1:]]
    optimiser = optax.adam(1e-2)

    def log_likelihood(params, x):
        total = 0.0
        for n, layer in enumerate(params):
            kept, moved = x[:, n % 2 : n % 2 + 1], x[:, 1 - n % 2 : 2 - n % 2]
            log_scale, shift = jnp.split(jax.nn.gelu(kept @ layer["w1"] + layer["b1"]) @ layer["w2"], 2, 1)
            log_scale = jnp.tanh(log_scale)
            moved = moved * jnp.exp(log_scale) + shift
            x = jnp.concatenate([kept, moved] if n % 2 == 0 else [moved, kept], 1)
            total += log_scale[:, 0]
        return total + jax.scipy.stats.norm.logpdf(x).sum(1)

    def step(state, x):
        params, opt = state
        value, grads = jax.value_and_grad(lambda p: -log_likelihood(p, x).mean())(params)
        updates, opt = optimiser.update(grads, opt)
        return (optax.apply_updates(params, updates), opt), value

    angle = jax.random.uniform(keys[0], (3, 32 * scale)) * 2 * jnp.pi
    ring = jnp.stack([jnp.cos(angle), jnp.sin(angle)], -1)
    return Program(step, (params, optimiser.init(params)), tuple((b,) for b in ring), rtol=5e-4)
