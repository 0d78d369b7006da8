"""A net of masses and springs, thrown at a target: velocities optimised through 100 steps of its motion."""

import jax
import jax.numpy as jnp

from frontends.jax.programs.program import Program


def program(scale=1):
    side = 3 * scale
    x = jnp.stack(jnp.meshgrid(*[jnp.arange(side) * 0.1] * 2), -1).reshape(-1, 2)
    rows = [(i, i + 1) for i in range(side * side) if (i + 1) % side]
    pairs = jnp.array(rows + [(i, i + side) for i in range(side * side - side)])
    target = jnp.array([1.5, 0.4])

    def forces(x):
        first, second = pairs[:, 0], pairs[:, 1]
        d = x[second] - x[first]
        length = jnp.sqrt((d * d).sum(-1, keepdims=True) + 1e-9)
        pull = 40.0 * (length - 0.1) * d / length
        return jnp.zeros_like(x).at[first].add(pull).at[second].add(-pull) - jnp.array([0.0, 1.0])

    def thrown(v):
        def move(state, _):
            x, v = state
            v = 0.999 * (v + 0.01 * forces(x))
            return (x + 0.01 * v, v), None

        (end, _), _ = jax.lax.scan(move, (x, jnp.broadcast_to(v, x.shape)), None, length=100)
        return ((end.mean(0) - target) ** 2).sum()

    def step(v):
        value, gradient = jax.value_and_grad(thrown)(v)
        return v - 0.2 * gradient, value

    return Program(step, jnp.array([1.0, 1.0]), ((),) * 3, rtol=5e-4)
