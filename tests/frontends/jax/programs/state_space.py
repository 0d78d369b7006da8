"""A diagonal state-space layer (S5): its recurrence by ``associative_scan``, trained to copy with a delay."""

import jax
import jax.numpy as jnp
import optax

from frontends.jax.programs.program import Program


def program(scale=1):
    length, width, states = 16 * scale, 4 * scale, 8 * scale
    keys = jax.random.split(jax.random.key(0), 4)
    params = {
        "decay": jnp.linspace(-1.0, 1.0, states),
        "into": jax.random.normal(keys[0], (width, states)) * width**-0.5,
        "out": jax.random.normal(keys[1], (states, width)) * states**-0.5,
        "through": jnp.ones(width),
    }
    optimiser = optax.adam(3e-3)

    def layer(params, x):
        a = jax.nn.sigmoid(params["decay"])
        steps = jnp.broadcast_to(a, (length, states)), x @ params["into"] * (1 - a)
        _, h = jax.lax.associative_scan(lambda p, q: (p[0] * q[0], q[0] * p[1] + q[1]), steps)
        return jax.nn.gelu(h @ params["out"] + params["through"] * x)

    def step(state, x):
        params, opt = state
        target = jnp.roll(x, 2, 1).at[:, :2].set(0.0)
        loss = lambda p: ((jax.vmap(layer, (None, 0))(p, x) - target) ** 2).mean()  # noqa: E731
        value, grads = jax.value_and_grad(loss)(params)
        updates, opt = optimiser.update(grads, opt)
        return (optax.apply_updates(params, updates), opt), value

    x = jax.random.normal(keys[2], (3, 2 * scale, length, width))
    return Program(step, (params, optimiser.init(params)), tuple((b,) for b in x), rtol=1e-3)
