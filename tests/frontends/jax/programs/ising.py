"""The Ising model: Metropolis sweeps over a chequerboard, with the bits of JAX's own keys."""

import jax
import jax.numpy as jnp

from frontends.jax.programs.program import Program


def program(scale=1):
    side = 8 * scale
    black = jnp.indices((side, side)).sum(0) % 2 == 0

    def half(spins, key, mask):
        around = sum(jnp.roll(spins, shift, axis) for shift in (1, -1) for axis in (0, 1))
        odds = jnp.exp(-2 * 0.44 * (spins * around).astype(jnp.float32))
        flips = mask & (jax.random.uniform(key, spins.shape) < odds)
        return jnp.where(flips, -spins, spins)

    def sweep(spins, key):
        first, second = jax.random.split(key)
        spins = half(half(spins, first, black), second, ~black)
        return spins, spins.sum()

    def step(state):
        spins, key = state
        key, use = jax.random.split(key)
        spins, magnet = jax.lax.scan(sweep, spins, jax.random.split(use, 4))
        return (spins, key), magnet

    spins = jnp.where(jax.random.bernoulli(jax.random.key(0), 0.5, (side, side)), 1, -1)
    return Program(step, (spins, jax.random.key(1)), ((),) * 3)
