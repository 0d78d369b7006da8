"""Denoising diffusion: a training step, and samples drawn by ``scan`` over the noise levels."""

import jax
import jax.numpy as jnp
import optax

from frontends.jax.programs.program import Program

LEVELS = 8


def program(scale=1):
    width = 16 * scale
    keys = jax.random.split(jax.random.key(0), 4)
    params = {
        "w1": jax.random.normal(keys[0], (4, width)) * 0.5,
        "w2": jax.random.normal(keys[1], (width, width)) * width**-0.5,
        "w3": jax.random.normal(keys[2], (width, 2)) * width**-0.5,
    }
    keep = jnp.cumprod(1 - jnp.linspace(1e-3, 0.3, LEVELS))
    optimiser = optax.adamw(1e-3)

    def noise_of(params, x, level):
        phase = jnp.broadcast_to(level / LEVELS, x.shape[:1])[:, None]
        h = jnp.concatenate([x, jnp.sin(3 * phase), jnp.cos(3 * phase)], -1)
        return jax.nn.silu(jax.nn.silu(h @ params["w1"]) @ params["w2"]) @ params["w3"]

    def loss(params, x, key):
        pick, draw = jax.random.split(key)
        level = jax.random.randint(pick, x.shape[:1], 0, LEVELS)
        noise = jax.random.normal(draw, x.shape)
        a = keep[level][:, None]
        made = noise_of(params, jnp.sqrt(a) * x + jnp.sqrt(1 - a) * noise, level.astype(jnp.float32))
        return ((made - noise) ** 2).mean()

    def sample(params, key, count):
        def back(x, level):
            a = keep[level]
            noise = noise_of(params, x, level.astype(jnp.float32))
            return 0.9 * (x - jnp.sqrt(1 - a) * noise), None

        start = jax.random.normal(key, (count, 2))
        return jax.lax.scan(back, start, jnp.arange(LEVELS - 1, -1, -1))[0]

    def step(state, x):
        params, opt, key = state
        key, first, second = jax.random.split(key, 3)
        value, grads = jax.value_and_grad(loss)(params, x, first)
        updates, opt = optimiser.update(grads, opt, params)
        params = optax.apply_updates(params, updates)
        return (params, opt, key), (value, sample(params, second, 4))

    x = jax.random.normal(keys[3], (3, 16 * scale, 2)) + 2.0
    return Program(step, (params, optimiser.init(params), jax.random.key(5)), tuple((b,) for b in x), rtol=1e-3)
