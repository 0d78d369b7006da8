"""Molecular dynamics of Lennard-Jones atoms in a periodic box: velocity Verlet by ``scan``, forces by ``grad``."""

import jax
import jax.numpy as jnp

from frontends.jax.programs.program import Program


def program(scale=1):
    side, box, dt = 3 * scale, 3.6 * scale, 0.002
    grid = jnp.stack(jnp.meshgrid(*[jnp.arange(side)] * 3, indexing="ij"), -1).reshape(-1, 3)
    start = (grid + 0.5) * (box / side) + 0.05 * jax.random.normal(jax.random.key(0), grid.shape)
    apart = 1.0 - jnp.eye(len(start))

    def energy(x):
        d = x[:, None] - x[None]
        d = d - box * jnp.round(d / box)
        r2 = (d * d).sum(-1) + (1.0 - apart)
        inverse = 1.0 / r2**3
        return 0.5 * (apart * 4.0 * (inverse * inverse - inverse)).sum()

    def verlet(state, _):
        x, v, f = state
        v = v + 0.5 * dt * f
        x = (x + dt * v) % box
        f = -jax.grad(energy)(x)
        v = v + 0.5 * dt * f
        return (x, v, f), energy(x) + 0.5 * (v * v).sum()

    def step(state):
        return jax.lax.scan(verlet, state, None, length=20)

    return Program(step, (start, jnp.zeros_like(start), -jax.grad(energy)(start)), ((),) * 3, rtol=5e-4)
