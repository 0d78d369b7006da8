"""A physics-informed network for Poisson's equation: the Laplacian by ``jvp`` of ``grad``."""

import jax
import jax.numpy as jnp
import optax

from frontends.jax.programs.program import Program


def program(scale=1):
    width = 16 * scale
    keys = jax.random.split(jax.random.key(0), 4)
    sizes = (2, width, width, 1)
    params = [
        (jax.random.normal(k, (m, n)) * m**-0.5, jnp.zeros(n)) for k, m, n in zip(keys, sizes, sizes[1:], strict=False)
    ]
    optimiser = optax.adam(1e-3)

    def u(params, x):
        for w, b in params[:-1]:
            x = jnp.tanh(x @ w + b)
        return (x @ params[-1][0] + params[-1][1])[0]

    def laplacian(params, x):
        gradient = jax.grad(u, argnums=1)
        return sum(jax.jvp(lambda x: gradient(params, x), (x,), (e,))[1] @ e for e in jnp.eye(2))

    def loss(params, inside, border):
        source = jnp.sin(jnp.pi * inside).prod(1)
        residual = jax.vmap(laplacian, (None, 0))(params, inside) + source
        return (residual**2).mean() + (jax.vmap(u, (None, 0))(params, border) ** 2).mean()

    def step(state, inside, border):
        params, opt = state
        value, grads = jax.value_and_grad(loss)(params, inside, border)
        updates, opt = optimiser.update(grads, opt)
        return (optax.apply_updates(params, updates), opt), value

    inside = jax.random.uniform(keys[3], (3, 32 * scale, 2))
    border = jnp.round(inside)
    return Program(step, (params, optimiser.init(params)), tuple(zip(inside, border, strict=True)), rtol=2e-4)
