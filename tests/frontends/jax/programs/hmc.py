"""Hamiltonian Monte Carlo on a banana-shaped density: leapfrog by ``fori_loop``, accepted or not."""

import jax
import jax.numpy as jnp

from frontends.jax.programs.program import Program


def log_density(q):
    return -0.5 * (q[0] ** 2 + (q[1] - 0.5 * q[0] ** 2) ** 2 / 0.3)


def program(scale=1):
    gradient, size = jax.grad(log_density), 0.15

    def leapfrog(_, state):
        q, p = state
        p = p + 0.5 * size * gradient(q)
        q = q + size * p
        return q, p + 0.5 * size * gradient(q)

    def chain(q, key):
        draw, accept = jax.random.split(key)
        p = jax.random.normal(draw, q.shape)
        new_q, new_p = jax.lax.fori_loop(0, 8, leapfrog, (q, p))
        gain = log_density(new_q) - 0.5 * new_p @ new_p - log_density(q) + 0.5 * p @ p
        accepted = jnp.log(jax.random.uniform(accept)) < gain
        return jnp.where(accepted, new_q, q), accepted

    def step(state):
        q, key = state
        key, use = jax.random.split(key)
        q, accepted = jax.vmap(chain)(q, jax.random.split(use, q.shape[0]))
        return (q, key), accepted

    start = jax.random.normal(jax.random.key(0), (8 * scale, 2))
    return Program(step, (start, jax.random.key(7)), ((),) * 3, rtol=1e-4)
