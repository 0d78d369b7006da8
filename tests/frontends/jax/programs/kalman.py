"""A Kalman filter over a whole sequence at once, by ``associative_scan`` of its filtering elements."""

import jax
import jax.numpy as jnp

from frontends.jax.programs.program import Program


def program(scale=1):
    steps = 16 * scale
    move = jnp.array([[1.0, 0.1], [0.0, 1.0]])
    process, seen, noise = 0.01 * jnp.eye(2), jnp.array([[1.0, 0.0]]), 0.1

    def element(y):
        spread = seen @ process @ seen.T + noise
        gain = process @ seen.T / spread
        a = (jnp.eye(2) - gain @ seen) @ move
        weight = move.T @ seen.T / spread
        return a, (gain @ y), (jnp.eye(2) - gain @ seen) @ process, (weight @ y), weight @ seen @ move

    def joined(first, second):
        a1, b1, c1, e1, j1 = first
        a2, b2, c2, e2, j2 = second
        eye = jnp.eye(2)

        def one(a1, b1, c1, e1, j1, a2, b2, c2, e2, j2):
            left = eye + c1 @ j2
            determinant = left[0, 0] * left[1, 1] - left[0, 1] * left[1, 0]
            inverse = jnp.array([[left[1, 1], -left[0, 1]], [-left[1, 0], left[0, 0]]]) / determinant
            a = a2 @ inverse @ a1
            b = a2 @ inverse @ (b1 + c1 @ e2) + b2
            c = a2 @ inverse @ c1 @ a2.T + c2
            back = a1.T @ inverse.T
            return a, b, c, back @ (e2 - j2 @ b1) + e1, back @ j2 @ a1 + j1

        return jax.vmap(one)(a1, b1, c1, e1, j1, a2, b2, c2, e2, j2)

    def step(level, y):
        elements = jax.vmap(element)(y[:, None])
        means = jax.lax.associative_scan(joined, elements)[1]
        return level + means[-1, 0], means

    y = jnp.cumsum(0.1 * jax.random.normal(jax.random.key(0), (3, steps)), 1)
    return Program(step, jnp.zeros(()), tuple((b,) for b in y), rtol=1e-4)
