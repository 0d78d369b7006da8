"""A Gaussian process whose length and noise are fitted: the marginal likelihood by Cholesky and triangular solves."""

import jax
import jax.numpy as jnp
import jax.scipy.linalg as linalg

from frontends.jax.programs.program import Program


def program(scale=1):
    count = 16 * scale
    x = jnp.sort(jax.random.uniform(jax.random.key(0), (count,))) * 5
    noise = jax.random.normal(jax.random.key(1), (3, count))

    def loss(params, y):
        length, height, jitter = jnp.exp(params)
        gram = height * jnp.exp(-0.5 * ((x[:, None] - x[None]) / length) ** 2) + (jitter + 1e-3) * jnp.eye(count)
        root = jnp.linalg.cholesky(gram)
        white = linalg.solve_triangular(root, y, lower=True)
        return 0.5 * white @ white + jnp.log(jnp.diagonal(root)).sum()

    def step(params, y):
        value, gradient = jax.value_and_grad(loss)(params, y)
        return params - 0.01 * gradient, value

    return Program(step, jnp.array([0.0, 0.0, -2.0]), tuple((jnp.sin(x) + 0.2 * n,) for n in noise), rtol=2e-3)
